//! The library's C interface: one environment per process, sessions, and tensors over our memory.

use crate::library::{Library, Loaded};
use bricolage_tensor::{DType, Storage, Tensor};
use ort_sys::{
    ExecutionMode, GraphOptimizationLevel, ONNXTensorElementDataType as Element, ORT_API_VERSION,
    OrtAllocatorType, OrtApi, OrtApiBase, OrtEnv, OrtLoggingLevel, OrtMemType, OrtMemoryInfo,
    OrtSession, OrtSessionOptions, OrtStatusPtr, OrtTensorTypeAndShapeInfo, OrtValue,
};
use std::{
    ffi::{CStr, CString, c_int, c_void},
    path::Path,
    ptr::{null, null_mut},
};

/// The loaded library with its environment; both live as long as the process.
pub(super) struct Engine {
    api: Api,
    env: *mut OrtEnv,
    memory: *mut OrtMemoryInfo,
    /// Threads of the pool that sessions share.
    threads: usize,
}

// SAFETY: the environment and the memory description are immutable after they are made, and the
// library says that both may be used from any thread.
unsafe impl Send for Engine {}
// SAFETY: as above.
unsafe impl Sync for Engine {}

/// The table of functions.
#[derive(Clone, Copy)]
struct Api(&'static OrtApi);

/// An object of the library that is released when it is dropped.
struct Owned<T> {
    ptr: *mut T,
    release: unsafe extern "system" fn(*mut T),
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: `ptr` was made by the library for us alone, and `release` is the function that
        // the library names for objects of this type; null is allowed.
        unsafe { (self.release)(self.ptr) }
    }
}

// SAFETY: an object has one owner; the library's objects are not bound to the thread that made them.
unsafe impl<T> Send for Owned<T> {}
// SAFETY: shared use happens only through functions that the library declares thread-safe: running a
// session and reading a tensor.
unsafe impl<T> Sync for Owned<T> {}

static ENGINE: Loaded<Engine> = Loaded::new();

impl Api {
    fn check(self, status: OrtStatusPtr) -> Result<(), String> {
        if status.0.is_null() {
            return Ok(());
        }
        // SAFETY: a status that is not null is ours to read once and to release.
        unsafe {
            let words = CStr::from_ptr((self.0.GetErrorMessage)(status.0));
            let words = words.to_string_lossy().into_owned();
            (self.0.ReleaseStatus)(status.0);
            Err(words)
        }
    }

    /// What `create` writes into its argument.
    fn make<T>(
        self,
        release: unsafe extern "system" fn(*mut T),
        create: impl FnOnce(*mut *mut T) -> OrtStatusPtr,
    ) -> Result<Owned<T>, String> {
        let mut ptr = null_mut();
        self.check(create(&mut ptr))?;
        Ok(Owned { ptr, release })
    }
}

/// The library at `path`, loaded by the first call with a pool of `threads` threads.
pub(super) fn engine(path: &Path, threads: usize) -> Result<&'static Engine, String> {
    ENGINE.get(path, |library| Engine::of(library, threads))
}

fn small(number: usize) -> c_int {
    c_int::try_from(number).unwrap_or(c_int::MAX)
}

impl Engine {
    fn of(library: &Library, threads: usize) -> Result<Engine, String> {
        // SAFETY: the function has had this signature in every version of the library.
        let base: unsafe extern "system" fn() -> *const OrtApiBase =
            unsafe { library.function("OrtGetApiBase")? };
        // SAFETY: the function returns a table that lives as long as the library, or null.
        let (version, api) = unsafe {
            let base = base().as_ref().ok_or("the library has no interface")?;
            let version = CStr::from_ptr((base.GetVersionString)()).to_string_lossy().into_owned();
            (version, (base.GetApi)(ORT_API_VERSION).as_ref())
        };
        let api = Api(api.ok_or_else(|| {
            format!("needs version 1.{ORT_API_VERSION} or later of the library, found {version}")
        })?);
        let options = api.make(api.0.ReleaseThreadingOptions, |out| {
            // SAFETY: `out` is where the new object's address is written.
            unsafe { (api.0.CreateThreadingOptions)(out) }
        })?;
        // SAFETY: `options` is alive.
        unsafe {
            api.check((api.0.SetGlobalIntraOpNumThreads)(options.ptr, small(threads)))?;
            api.check((api.0.SetGlobalInterOpNumThreads)(options.ptr, 1))?;
            // Between two kernels of this library others have the processors.
            api.check((api.0.SetGlobalSpinControl)(options.ptr, 0))?;
        }
        let mut env = null_mut();
        // SAFETY: `options` is alive and the name ends with a zero byte.
        api.check(unsafe {
            (api.0.CreateEnvWithGlobalThreadPools)(
                OrtLoggingLevel::ORT_LOGGING_LEVEL_ERROR,
                c"bricolage".as_ptr(),
                options.ptr,
                &mut env,
            )
        })?;
        // SAFETY: the environment was just made.
        api.check(unsafe { (api.0.DisableTelemetryEvents)(env) })?;
        let mut memory = null_mut();
        // SAFETY: `memory` is where the new object's address is written.
        api.check(unsafe {
            (api.0.CreateCpuMemoryInfo)(
                OrtAllocatorType::OrtDeviceAllocator,
                OrtMemType::OrtMemTypeDefault,
                &mut memory,
            )
        })?;
        Ok(Engine { api, env, memory, threads })
    }

    /// A tensor over memory of ours.
    ///
    /// # Safety
    /// While the tensor is used, the bytes are readable, and writable if it is an output.
    pub(super) unsafe fn tensor(
        &self,
        ptr: *mut u8,
        len: usize,
        dtype: DType,
        dims: &[i64],
    ) -> Result<Value, String> {
        let api = self.api;
        // SAFETY: dims and memory are described with their lengths; the caller promises the rest.
        let owned = api.make(api.0.ReleaseValue, |out| unsafe {
            (api.0.CreateTensorWithDataAsOrtValue)(
                self.memory,
                ptr.cast::<c_void>(),
                len,
                dims.as_ptr(),
                dims.len(),
                element(dtype),
                out,
            )
        })?;
        Ok(Value(owned))
    }
}

/// A tensor of the library.
pub(super) struct Value(Owned<OrtValue>);

/// How sessions are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// Threads of a run.
    pub(super) threads: usize,
    /// A pool of the session's own whose threads spin, instead of the process's pool, whose do not.
    pub(super) spinning: bool,
    /// What the library may do to the graph.
    pub(super) level: GraphOptimizationLevel,
    /// Sums of products of unsigned and signed bytes are exact. On processors without an instruction for them
    /// the library otherwise adds pairs in 16 bits, which overflow.
    pub(super) exact_bytes: bool,
}

/// Where a model comes from.
pub(super) enum Source<'a> {
    /// A file, with its external data next to it.
    File(&'a Path),
    /// Bytes, and the content of initializers that they declare as external.
    Bytes(&'a [u8], Vec<(String, Tensor)>),
}

/// A compiled model. Runs may overlap.
pub(super) struct Session {
    engine: &'static Engine,
    session: Owned<OrtSession>,
    inputs: Vec<CString>,
    outputs: Vec<CString>,
    /// Read by the session as long as it lives.
    _weights: Vec<(Value, Storage)>,
}

impl Session {
    /// Compiles a model whose runs take `inputs` and give `outputs`, named in this order; where
    /// nothing is named, those of the model.
    pub(super) fn open(
        engine: &'static Engine,
        source: Source<'_>,
        names: Option<(&[String], &[String])>,
        options: &Options,
    ) -> Result<Session, String> {
        let api = engine.api;
        if !options.spinning && options.threads != engine.threads {
            return Err(format!(
                "needs {} threads, and the library's pool in this process has {}",
                options.threads, engine.threads
            ));
        }
        let settings = engine.options(options)?;
        let mut weights = Vec::new();
        let session = match source {
            Source::File(path) => {
                let path = c_string(&path.to_string_lossy())?;
                // SAFETY: environment, path and options are alive.
                api.make(api.0.ReleaseSession, |out| unsafe {
                    (api.0.CreateSession)(engine.env, path.as_ptr(), settings.ptr, out)
                })?
            }
            Source::Bytes(bytes, given) => {
                let mut names = Vec::new();
                for (name, tensor) in given {
                    let memory = tensor.storage().clone();
                    // SAFETY: the session keeps the bytes alive, and only reads them.
                    let value = unsafe {
                        engine.tensor(
                            memory.as_ptr().cast_mut(),
                            memory.len(),
                            tensor.dtype(),
                            tensor.dims(),
                        )?
                    };
                    names.push(c_string(&name)?);
                    weights.push((value, memory));
                }
                let names: Vec<_> = names.iter().map(|n| n.as_ptr()).collect();
                let values: Vec<_> = weights.iter().map(|(v, _)| v.0.ptr.cast_const()).collect();
                if !names.is_empty() {
                    // SAFETY: both lists have this length and their entries are alive until the
                    // session is made, the values as long as it lives.
                    api.check(unsafe {
                        (api.0.AddExternalInitializers)(
                            settings.ptr,
                            names.as_ptr(),
                            values.as_ptr(),
                            names.len(),
                        )
                    })?;
                }
                // SAFETY: the bytes are copied or parsed before the call returns.
                api.make(api.0.ReleaseSession, |out| unsafe {
                    (api.0.CreateSessionFromArray)(
                        engine.env,
                        bytes.as_ptr().cast::<c_void>(),
                        bytes.len(),
                        settings.ptr,
                        out,
                    )
                })?
            }
        };
        let of =
            |names: &[String]| names.iter().map(|n| c_string(n)).collect::<Result<Vec<_>, _>>();
        let (inputs, outputs) = match names {
            Some((inputs, outputs)) => (of(inputs)?, of(outputs)?),
            None => (engine.names(&session, true)?, engine.names(&session, false)?),
        };
        Ok(Session { engine, session, inputs, outputs, _weights: weights })
    }

    /// Names of what a run takes.
    pub(super) fn inputs(&self) -> impl Iterator<Item = String> {
        self.inputs.iter().map(|n| n.to_string_lossy().into_owned())
    }

    /// Names of what a run gives.
    pub(super) fn outputs(&self) -> impl Iterator<Item = String> {
        self.outputs.iter().map(|n| n.to_string_lossy().into_owned())
    }

    /// A tensor over memory of ours; see [`Engine::tensor`].
    ///
    /// # Safety
    /// As there.
    pub(super) unsafe fn tensor(
        &self,
        ptr: *mut u8,
        len: usize,
        dtype: DType,
        dims: &[i64],
    ) -> Result<Value, String> {
        // SAFETY: the caller promises it.
        unsafe { self.engine.tensor(ptr, len, dtype, dims) }
    }

    /// Runs into outputs over memory of ours.
    pub(super) fn run_into(&self, inputs: &[Value], outputs: &[Value]) -> Result<(), String> {
        let mut results: Vec<*mut OrtValue> = outputs.iter().map(|v| v.0.ptr).collect();
        self.call(inputs, &mut results)
    }

    /// Runs into outputs that the library allocates.
    pub(super) fn run(&self, inputs: &[Value]) -> Result<Vec<Value>, String> {
        let mut results = vec![null_mut(); self.outputs.len()];
        let ran = self.call(inputs, &mut results);
        let release = self.engine.api.0.ReleaseValue;
        let values = results.into_iter().map(|ptr| Value(Owned { ptr, release })).collect();
        ran.map(|()| values)
    }

    fn call(&self, inputs: &[Value], results: &mut [*mut OrtValue]) -> Result<(), String> {
        if inputs.len() != self.inputs.len() || results.len() != self.outputs.len() {
            return Err(format!(
                "needs {} inputs and {} outputs, found {} and {}",
                self.inputs.len(),
                self.outputs.len(),
                inputs.len(),
                results.len()
            ));
        }
        let api = self.engine.api;
        let given: Vec<_> = inputs.iter().map(|v| v.0.ptr.cast_const()).collect();
        let taken: Vec<_> = self.inputs.iter().map(|n| n.as_ptr()).collect();
        let made: Vec<_> = self.outputs.iter().map(|n| n.as_ptr()).collect();
        // SAFETY: names and values have the lengths given and are alive; the library allows runs of
        // one session to overlap.
        api.check(unsafe {
            (api.0.Run)(
                self.session.ptr,
                null(),
                taken.as_ptr(),
                given.as_ptr(),
                given.len(),
                made.as_ptr(),
                made.len(),
                results.as_mut_ptr(),
            )
        })
    }

    /// Copies a tensor out of the library.
    pub(super) fn read(&self, value: &Value) -> Result<Tensor, String> {
        let api = self.engine.api;
        let value = value.0.ptr;
        let mut is_tensor = 0;
        // SAFETY: the value is alive or null, which is asked first.
        unsafe {
            if !value.is_null() {
                api.check((api.0.IsTensor)(value, &mut is_tensor))?;
            }
        }
        if is_tensor == 0 {
            return Err("gives an output that is not a tensor".to_owned());
        }
        // SAFETY: the value is a live tensor.
        let info: Owned<OrtTensorTypeAndShapeInfo> = api
            .make(api.0.ReleaseTensorTypeAndShapeInfo, |out| unsafe {
                (api.0.GetTensorTypeAndShape)(value, out)
            })?;
        let mut found = Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
        let mut rank = 0;
        let mut data = null_mut();
        // SAFETY: the info and the tensor are alive; `dims` has room for `rank` numbers.
        let dims = unsafe {
            api.check((api.0.GetTensorElementType)(info.ptr, &mut found))?;
            api.check((api.0.GetDimensionsCount)(info.ptr, &mut rank))?;
            let mut dims = vec![0i64; rank];
            api.check((api.0.GetDimensions)(info.ptr, dims.as_mut_ptr(), rank))?;
            api.check((api.0.GetTensorMutableData)(value, &mut data))?;
            dims
        };
        let dtype = DType::ALL.iter().copied().find(|&d| element(d) == found);
        let dtype = dtype.ok_or_else(|| format!("gives an output of type {found:?}"))?;
        let len = bricolage_tensor::TensorType::fixed(dtype, &dims)
            .byte_len()
            .ok_or_else(|| format!("gives an output with dims {dims:?}"))?
            as usize;
        let bytes = if len == 0 || data.is_null() {
            &[][..]
        } else {
            // SAFETY: the library's tensor has as many elements as its dims say, each of the size
            // of its type, and lives while `value` does.
            unsafe { std::slice::from_raw_parts(data.cast::<u8>().cast_const(), len) }
        };
        Tensor::new(dtype, &dims, Storage::copy_of(bytes)).map_err(|e| e.to_string())
    }
}

impl Engine {
    fn options(&self, options: &Options) -> Result<Owned<OrtSessionOptions>, String> {
        let api = self.api;
        let made = api.make(api.0.ReleaseSessionOptions, |out| {
            // SAFETY: `out` is where the new object's address is written.
            unsafe { (api.0.CreateSessionOptions)(out) }
        })?;
        // SAFETY: the options are alive, and so are the texts.
        unsafe {
            api.check((api.0.SetSessionGraphOptimizationLevel)(made.ptr, options.level))?;
            api.check((api.0.SetSessionExecutionMode)(made.ptr, ExecutionMode::ORT_SEQUENTIAL))?;
            api.check((api.0.SetSessionLogSeverityLevel)(
                made.ptr,
                OrtLoggingLevel::ORT_LOGGING_LEVEL_ERROR as c_int,
            ))?;
            if options.exact_bytes {
                api.check((api.0.AddSessionConfigEntry)(
                    made.ptr,
                    c"session.x64quantprecision".as_ptr(),
                    c"1".as_ptr(),
                ))?;
            }
            if options.spinning {
                api.check((api.0.SetIntraOpNumThreads)(made.ptr, small(options.threads)))?;
                api.check((api.0.SetInterOpNumThreads)(made.ptr, 1))?;
                api.check((api.0.AddSessionConfigEntry)(
                    made.ptr,
                    c"session.intra_op.allow_spinning".as_ptr(),
                    c"1".as_ptr(),
                ))?;
            } else {
                api.check((api.0.DisablePerSessionThreads)(made.ptr))?;
            }
        }
        Ok(made)
    }

    fn names(&self, session: &Owned<OrtSession>, inputs: bool) -> Result<Vec<CString>, String> {
        let api = self.api;
        let mut allocator = null_mut();
        let mut count = 0;
        // SAFETY: the session is alive; the default allocator is the library's own.
        unsafe {
            api.check((api.0.GetAllocatorWithDefaultOptions)(&mut allocator))?;
            let of = if inputs { api.0.SessionGetInputCount } else { api.0.SessionGetOutputCount };
            api.check(of(session.ptr, &mut count))?;
        }
        let name = |at| {
            let of = if inputs { api.0.SessionGetInputName } else { api.0.SessionGetOutputName };
            let mut text = null_mut();
            // SAFETY: `at` is below the count; the text is copied before it is given back.
            unsafe {
                api.check(of(session.ptr, at, allocator, &mut text))?;
                let copy = CStr::from_ptr(text).to_owned();
                api.check((api.0.AllocatorFree)(allocator, text.cast::<c_void>()))?;
                Ok(copy)
            }
        };
        (0..count).map(name).collect()
    }
}

fn c_string(text: &str) -> Result<CString, String> {
    CString::new(text).map_err(|_| format!("the name `{text}` has a zero byte in it"))
}

fn element(dtype: DType) -> Element {
    match dtype {
        DType::F32 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,
        DType::F64 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE,
        DType::F16 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16,
        DType::BF16 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16,
        DType::I8 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8,
        DType::I16 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16,
        DType::I32 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32,
        DType::I64 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64,
        DType::U8 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8,
        DType::U16 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16,
        DType::U32 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32,
        DType::U64 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64,
        DType::Bool => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL,
        DType::F8E4M3FN => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E4M3FN,
        DType::F8E4M3FNUZ => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E4M3FNUZ,
        DType::F8E5M2 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E5M2,
        DType::F8E5M2FNUZ => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E5M2FNUZ,
        DType::U4 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT4,
        DType::I4 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT4,
        DType::F4E2M1 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT4E2M1,
        DType::F8E8M0 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E8M0,
        DType::U2 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT2,
        DType::I2 => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT2,
        _ => Element::ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED,
    }
}
