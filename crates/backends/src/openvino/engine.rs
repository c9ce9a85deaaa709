//! The library's C interface: one core per process, compiled models, and tensors over our memory.

use crate::library::{Library, Loaded, Owned, functions};
use bricolage_tensor::{DType, Storage, Tensor, TensorType};
use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    path::Path,
    ptr::{null, null_mut},
    sync::{Mutex, PoisonError},
};

/// Types that only the library sees into.
macro_rules! opaque {
    ($($name:ident)*) => { $(#[repr(C)] pub(super) struct $name([u8; 0]);)* };
}
opaque! { Core Model CompiledModel Request Port HostTensor }

#[repr(C)]
struct Version {
    build: *const c_char,
    description: *const c_char,
}

#[repr(C)]
struct Shape {
    rank: i64,
    dims: *mut i64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Dimension {
    least: i64,
    most: i64,
}

#[repr(C)]
struct PartialShape {
    rank: Dimension,
    dims: *mut Dimension,
}

functions! {
    /// What is used of the interface.
    struct Api {
        ov_get_openvino_version: fn(*mut Version) -> c_int,
        ov_get_last_err_msg: fn() -> *const c_char,
        ov_get_error_info: fn(c_int) -> *const c_char,
        ov_free: fn(*const c_char),
        ov_core_create: fn(*mut *mut Core) -> c_int,
        ov_core_read_model: fn(*const Core, *const c_char, *const c_char, *mut *mut Model) -> c_int,
        ov_core_read_model_from_memory_buffer:
            fn(*const Core, *const c_char, usize, *const HostTensor, *mut *mut Model) -> c_int,
        ov_core_compile_model:
            fn(*const Core, *const Model, *const c_char, usize, *mut *mut CompiledModel; ...) -> c_int,
        ov_model_free: fn(*mut Model),
        ov_model_reshape: fn(*const Model, *const *const c_char, *const PartialShape, usize) -> c_int,
        ov_partial_shape_create_static: fn(i64, *const i64, *mut PartialShape) -> c_int,
        ov_partial_shape_free: fn(*mut PartialShape),
        ov_compiled_model_free: fn(*mut CompiledModel),
        ov_compiled_model_inputs_size: fn(*const CompiledModel, *mut usize) -> c_int,
        ov_compiled_model_input_by_index: fn(*const CompiledModel, usize, *mut *mut Port) -> c_int,
        ov_compiled_model_input_by_name: fn(*const CompiledModel, *const c_char, *mut *mut Port) -> c_int,
        ov_compiled_model_output_by_index: fn(*const CompiledModel, usize, *mut *mut Port) -> c_int,
        ov_compiled_model_output_by_name: fn(*const CompiledModel, *const c_char, *mut *mut Port) -> c_int,
        ov_compiled_model_create_infer_request: fn(*const CompiledModel, *mut *mut Request) -> c_int,
        ov_port_get_any_name: fn(*const Port, *mut *mut c_char) -> c_int,
        ov_output_const_port_free: fn(*mut Port),
        ov_infer_request_free: fn(*mut Request),
        ov_infer_request_set_tensor_by_const_port: fn(*mut Request, *const Port, *const HostTensor) -> c_int,
        ov_infer_request_get_tensor_by_const_port: fn(*const Request, *const Port, *mut *mut HostTensor) -> c_int,
        ov_infer_request_infer: fn(*mut Request) -> c_int,
        ov_tensor_create_from_host_ptr: fn(c_int, Shape, *mut c_void, *mut *mut HostTensor) -> c_int,
        ov_tensor_get_element_type: fn(*const HostTensor, *mut c_int) -> c_int,
        ov_tensor_get_shape: fn(*const HostTensor, *mut Shape) -> c_int,
        ov_tensor_get_byte_size: fn(*const HostTensor, *mut usize) -> c_int,
        ov_tensor_data: fn(*const HostTensor, *mut *mut c_void) -> c_int,
        ov_tensor_free: fn(*mut HostTensor),
        ov_shape_free: fn(*mut Shape) -> c_int,
    }
}

/// Element types by the library's numbers.
const ELEMENTS: &[(DType, c_int)] = &[
    (DType::Bool, 1),
    (DType::BF16, 2),
    (DType::F16, 3),
    (DType::F32, 4),
    (DType::F64, 5),
    (DType::I8, 7),
    (DType::I16, 8),
    (DType::I32, 9),
    (DType::I64, 10),
    (DType::U8, 16),
    (DType::U16, 17),
    (DType::U32, 18),
    (DType::U64, 19),
];

/// The loaded library with its core; both live as long as the process.
pub(super) struct Engine {
    api: Api,
    core: *mut Core,
}

// SAFETY: the library says that a core may be used from any thread.
unsafe impl Send for Engine {}
// SAFETY: as above.
unsafe impl Sync for Engine {}

static ENGINE: Loaded<Engine> = Loaded::new();

/// The library at `path`, loaded by the first call.
pub(super) fn engine(path: &Path) -> Result<&'static Engine, String> {
    ENGINE.get(path, Engine::of)
}

fn c_string(text: &str) -> Result<CString, String> {
    CString::new(text).map_err(|_| format!("the name `{text}` has a zero byte in it"))
}

fn element(dtype: DType) -> Result<c_int, String> {
    let found = ELEMENTS.iter().find(|(d, _)| *d == dtype);
    found.map(|(_, number)| *number).ok_or_else(|| format!("the library has no `{dtype}`"))
}

impl Engine {
    fn of(library: &Library) -> Result<Engine, String> {
        // SAFETY: these have been the signatures since the interface's version 2.0.
        let api = unsafe { Api::of(library)? };
        let engine = Engine { api, core: null_mut() };
        engine.check_elements()?;
        let mut core = null_mut();
        // SAFETY: `core` is where the new object's address is written.
        engine.check(unsafe { (api.ov_core_create)(&mut core) })?;
        Ok(Engine { api, core })
    }

    /// The numbers of element types have changed between versions.
    fn check_elements(&self) -> Result<(), String> {
        let mut memory = [0u64];
        for &(dtype, _) in ELEMENTS {
            // SAFETY: the memory holds an element of any type and outlives the tensor.
            let tensor = unsafe { self.tensor(memory.as_mut_ptr().cast(), dtype, &[1])? };
            let mut bytes = 0;
            // SAFETY: the tensor is alive.
            self.check(unsafe { (self.api.ov_tensor_get_byte_size)(tensor.ptr(), &mut bytes) })?;
            if bytes as u64 != dtype.bits() / 8 {
                return Err(format!("needs version 2025.1 or later, found {}", self.version()));
            }
        }
        Ok(())
    }

    fn version(&self) -> String {
        let mut version = Version { build: null(), description: null() };
        // SAFETY: the texts are constants of the library, or null where the call fails.
        unsafe {
            match (self.api.ov_get_openvino_version)(&mut version) {
                0 if !version.build.is_null() => {
                    CStr::from_ptr(version.build).to_string_lossy().into_owned()
                }
                _ => "an unknown one".to_owned(),
            }
        }
    }

    fn check(&self, status: c_int) -> Result<(), String> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: both give a text or null. Whose the first is depends on the version: it is left alone.
        let texts =
            unsafe { [(self.api.ov_get_last_err_msg)(), (self.api.ov_get_error_info)(status)] };
        let text = |text: &*const c_char| {
            // SAFETY: it is not null, and ends with a zero byte.
            (!text.is_null())
                .then(|| unsafe { CStr::from_ptr(*text) }.to_string_lossy().into_owned())
        };
        let words = texts.iter().filter_map(text).find(|t| !t.is_empty());
        Err(words.unwrap_or_else(|| format!("it fails with status {status}")))
    }

    /// What `create` writes into its argument.
    fn make<T>(
        &self,
        release: unsafe extern "C" fn(*mut T),
        create: impl FnOnce(*mut *mut T) -> c_int,
    ) -> Result<Owned<T>, String> {
        let mut ptr = null_mut();
        self.check(create(&mut ptr))?;
        // SAFETY: the library made it for us, and its objects are not bound to threads.
        Ok(unsafe { Owned::new(ptr, release) })
    }

    /// A tensor over memory of ours.
    ///
    /// # Safety
    /// While the tensor is used, the memory holds that many elements, readable, and writable if it is an
    /// output.
    unsafe fn tensor(
        &self,
        ptr: *mut u8,
        dtype: DType,
        dims: &[i64],
    ) -> Result<Owned<HostTensor>, String> {
        let element = element(dtype)?;
        let shape = Shape { rank: dims.len() as i64, dims: dims.as_ptr().cast_mut() };
        // SAFETY: the dims are read and not kept; the caller promises the memory.
        self.make(self.api.ov_tensor_free, |out| unsafe {
            (self.api.ov_tensor_create_from_host_ptr)(element, shape, ptr.cast(), out)
        })
    }

    fn model(&self, source: Source<'_>) -> Result<Owned<Model>, String> {
        let (api, core) = (&self.api, self.core);
        match source {
            Source::File(path) => {
                let path = c_string(&path.to_string_lossy())?;
                // SAFETY: core and path are alive; there is no second file.
                self.make(api.ov_model_free, |out| unsafe {
                    (api.ov_core_read_model)(core, path.as_ptr(), null(), out)
                })
            }
            // SAFETY: core and bytes are alive, and the bytes are copied.
            Source::Bytes(bytes) => self.make(api.ov_model_free, |out| unsafe {
                let text = bytes.as_ptr().cast();
                (api.ov_core_read_model_from_memory_buffer)(core, text, bytes.len(), null(), out)
            }),
        }
    }

    /// Gives a model's inputs the dims of these.
    fn reshape(&self, model: &Owned<Model>, inputs: &[(&str, &[i64])]) -> Result<(), String> {
        struct Shapes<'a>(&'a Engine, Vec<PartialShape>);
        impl Drop for Shapes<'_> {
            fn drop(&mut self) {
                // SAFETY: the library made each, and it is given back once.
                self.1.iter_mut().for_each(|s| unsafe { (self.0.api.ov_partial_shape_free)(s) });
            }
        }
        let mut shapes = Shapes(self, Vec::new());
        let mut names = Vec::new();
        for (name, dims) in inputs {
            names.push(c_string(name)?);
            let none = Dimension { least: 0, most: 0 };
            let mut shape = PartialShape { rank: none, dims: null_mut() };
            // SAFETY: the dims are read for the call, and `shape` is where the result is written.
            self.check(unsafe {
                let rank = dims.len() as i64;
                (self.api.ov_partial_shape_create_static)(rank, dims.as_ptr(), &mut shape)
            })?;
            shapes.1.push(shape);
        }
        let names: Vec<_> = names.iter().map(|n| n.as_ptr()).collect();
        // SAFETY: both lists have this length, and their entries are alive.
        self.check(unsafe {
            let (names, shapes) = (names.as_ptr(), shapes.1.as_ptr());
            (self.api.ov_model_reshape)(model.ptr(), names, shapes, inputs.len())
        })
    }

    fn compile(
        &self,
        model: &Owned<Model>,
        options: &Options,
    ) -> Result<Owned<CompiledModel>, String> {
        let api = &self.api;
        let threads = c_string(&options.threads.to_string())?;
        let (yes, no) = (c"YES".as_ptr(), c"NO".as_ptr());
        // The last setting is the library's own choice where it has the processor to itself.
        let count = if options.alone { 8 } else { 10 };
        // SAFETY: core and model are alive; after the address come as many texts as are counted, a name and
        // a value each, and no more are read.
        self.make(api.ov_compiled_model_free, |out| unsafe {
            (api.ov_core_compile_model)(
                self.core,
                model.ptr(),
                c"CPU".as_ptr(),
                count,
                out,
                c"PERFORMANCE_HINT".as_ptr(),
                c"LATENCY".as_ptr(),
                c"NUM_STREAMS".as_ptr(),
                c"1".as_ptr(),
                c"INFERENCE_NUM_THREADS".as_ptr(),
                threads.as_ptr(),
                c"INFERENCE_PRECISION_HINT".as_ptr(),
                c"f32".as_ptr(),
                c"ENABLE_CPU_PINNING".as_ptr(),
                if options.alone { yes } else { no },
            )
        })
    }
}

/// How models are compiled: for the least time of one run, in single precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Options {
    /// Threads of a run.
    pub(super) threads: usize,
    /// Whether nothing else uses the processor between runs; else threads are not tied to processors.
    pub(super) alone: bool,
}

/// Where a model comes from.
pub(super) enum Source<'a> {
    /// A file, with its external data next to it.
    File(&'a Path),
    /// A self-contained ONNX model.
    Bytes(&'a [u8]),
}

/// Memory of ours that a run reads or writes.
#[derive(Clone, Copy)]
pub(super) struct Memory<'a> {
    pub(super) ptr: *mut u8,
    pub(super) dtype: DType,
    pub(super) dims: &'a [i64],
}

/// One way through a compiled model, for one run at a time.
struct Lane {
    request: Owned<Request>,
    /// Addresses of the memory that it is tied to.
    bound: Vec<usize>,
}

/// A compiled model. Runs may overlap.
pub(super) struct Session {
    engine: &'static Engine,
    // The lanes go before what they run on.
    idle: Mutex<Vec<Lane>>,
    inputs: Vec<Owned<Port>>,
    outputs: Vec<Owned<Port>>,
    compiled: Owned<CompiledModel>,
}

// SAFETY: shared use is making a request, which the library allows from any thread, and reading ports.
unsafe impl Sync for Session {}

impl Session {
    /// Compiles a model whose runs take `inputs` and give `outputs`, named in this order. Where dims come
    /// with the inputs, the model's are replaced by them.
    pub(super) fn open(
        engine: &'static Engine,
        source: Source<'_>,
        inputs: &[(&str, Option<&[i64]>)],
        outputs: &[&str],
        options: &Options,
    ) -> Result<Session, String> {
        let api = &engine.api;
        let model = engine.model(source)?;
        let sized: Vec<_> = inputs.iter().filter_map(|(n, d)| Some((*n, (*d)?))).collect();
        if !sized.is_empty() {
            engine.reshape(&model, &sized)?;
        }
        let compiled = engine.compile(&model, options)?;
        type Find =
            unsafe extern "C" fn(*const CompiledModel, *const c_char, *mut *mut Port) -> c_int;
        let port = |find: Find, name: &str| {
            let text = c_string(name)?;
            // SAFETY: model and name are alive.
            engine.make(api.ov_output_const_port_free, |out| unsafe {
                find(compiled.ptr(), text.as_ptr(), out)
            })
        };
        let find = api.ov_compiled_model_input_by_name;
        let inputs = inputs.iter().map(|(name, _)| port(find, name)).collect::<Result<_, _>>()?;
        let find = api.ov_compiled_model_output_by_name;
        let outputs = outputs.iter().enumerate().map(|(at, name)| {
            // The library renames outputs that are inputs as well.
            port(find, name).or_else(|_| {
                // SAFETY: the model is alive.
                engine.make(api.ov_output_const_port_free, |out| unsafe {
                    (api.ov_compiled_model_output_by_index)(compiled.ptr(), at, out)
                })
            })
        });
        let outputs = outputs.collect::<Result<_, _>>()?;
        Ok(Session { engine, idle: Mutex::new(Vec::new()), inputs, outputs, compiled })
    }

    /// Names of all inputs of the model, whether they were asked for or not.
    pub(super) fn wanted(&self) -> Result<Vec<String>, String> {
        let (api, compiled) = (&self.engine.api, self.compiled.ptr());
        let mut count = 0;
        // SAFETY: the model is alive.
        self.engine.check(unsafe { (api.ov_compiled_model_inputs_size)(compiled, &mut count) })?;
        let name = |at| {
            // SAFETY: the model is alive.
            let port = self.engine.make(api.ov_output_const_port_free, |out| unsafe {
                (api.ov_compiled_model_input_by_index)(compiled, at, out)
            })?;
            let mut text = null_mut();
            // SAFETY: the port is alive; the text is copied before it is given back.
            unsafe {
                self.engine.check((api.ov_port_get_any_name)(port.ptr(), &mut text))?;
                let copy = CStr::from_ptr(text).to_string_lossy().into_owned();
                (api.ov_free)(text);
                Ok(copy)
            }
        };
        (0..count).map(name).collect()
    }

    /// Runs on memory of ours. Outputs that are not given are kept in the library's memory until `read`.
    ///
    /// # Safety
    /// Each memory holds the elements that it says for the time of the run, writable for outputs.
    pub(super) unsafe fn run<R>(
        &self,
        inputs: &[Memory<'_>],
        outputs: &[Memory<'_>],
        read: impl FnOnce(&Done<'_>) -> Result<R, String>,
    ) -> Result<R, String> {
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let known = idle().pop();
        let mut lane = known.map_or_else(|| self.lane(), Ok)?;
        let ports = self.inputs.iter().zip(inputs).chain(self.outputs.iter().zip(outputs));
        for (at, (port, memory)) in ports.enumerate() {
            if lane.bound.get(at) == Some(&memory.ptr.addr()) {
                continue;
            }
            // SAFETY: the caller promises the memory; the request takes part in the tensor and uses it only
            // while it runs, before which it is tied to the memory of that run.
            unsafe {
                let tensor = self.engine.tensor(memory.ptr, memory.dtype, memory.dims)?;
                let tie = self.engine.api.ov_infer_request_set_tensor_by_const_port;
                self.engine.check(tie(lane.request.ptr(), port.ptr(), tensor.ptr()))?;
            }
            lane.bound.resize(lane.bound.len().max(at + 1), 0);
            lane.bound[at] = memory.ptr.addr();
        }
        // SAFETY: the request is ours alone.
        self.engine
            .check(unsafe { (self.engine.api.ov_infer_request_infer)(lane.request.ptr()) })?;
        let result = read(&Done { session: self, lane: &lane })?;
        idle().push(lane);
        Ok(result)
    }

    fn lane(&self) -> Result<Lane, String> {
        let api = &self.engine.api;
        // SAFETY: the model is alive.
        let request = self.engine.make(api.ov_infer_request_free, |out| unsafe {
            (api.ov_compiled_model_create_infer_request)(self.compiled.ptr(), out)
        })?;
        Ok(Lane { request, bound: Vec::new() })
    }
}

/// A run that has ended, with its outputs.
pub(super) struct Done<'a> {
    session: &'a Session,
    lane: &'a Lane,
}

impl Done<'_> {
    /// Copies the outputs.
    pub(super) fn outputs(&self) -> Result<Vec<Tensor>, String> {
        self.session.outputs.iter().map(|port| self.output(port)).collect()
    }

    fn output(&self, port: &Owned<Port>) -> Result<Tensor, String> {
        let (engine, api) = (self.session.engine, &self.session.engine.api);
        // SAFETY: request and port are alive.
        let tensor = engine.make(api.ov_tensor_free, |out| unsafe {
            (api.ov_infer_request_get_tensor_by_const_port)(
                self.lane.request.ptr(),
                port.ptr(),
                out,
            )
        })?;
        let mut number = 0;
        let mut shape = Shape { rank: 0, dims: null_mut() };
        let (mut len, mut data) = (0, null_mut());
        // SAFETY: the tensor is alive; the shape has as many dims as its rank says, and is given back once
        // they are copied.
        let dims = unsafe {
            engine.check((api.ov_tensor_get_element_type)(tensor.ptr(), &mut number))?;
            engine.check((api.ov_tensor_get_shape)(tensor.ptr(), &mut shape))?;
            let dims = match usize::try_from(shape.rank) {
                Ok(rank) if rank > 0 => std::slice::from_raw_parts(shape.dims, rank).to_vec(),
                _ => Vec::new(),
            };
            engine.check((api.ov_shape_free)(&mut shape))?;
            dims
        };
        let found = ELEMENTS.iter().find(|(_, n)| *n == number);
        let (dtype, _) = found.ok_or_else(|| format!("gives an output of type {number}"))?;
        // SAFETY: as above; of no elements there may be no memory.
        unsafe {
            engine.check((api.ov_tensor_get_byte_size)(tensor.ptr(), &mut len))?;
            if len > 0 {
                engine.check((api.ov_tensor_data)(tensor.ptr(), &mut data))?;
            }
        }
        if TensorType::fixed(*dtype, &dims).byte_len() != Some(len as u64) {
            return Err(format!("gives an output of {len} bytes with dims {dims:?}"));
        }
        let bytes = match data.is_null() {
            true => &[][..],
            // SAFETY: the tensor has as many bytes as it says, and is alive until they are copied.
            false => unsafe { std::slice::from_raw_parts(data.cast::<u8>().cast_const(), len) },
        };
        Tensor::new(*dtype, &dims, Storage::copy_of(bytes)).map_err(|e| e.to_string())
    }
}
