//! The library's C interface, version 3: descriptions of memory, primitives, and their execution on the
//! thread that calls.

use crate::library::{Library, Loaded, Owned, functions};
use std::{
    ffi::{c_int, c_uint, c_void},
    path::Path,
    ptr::{null, null_mut},
};

/// Types that only the library sees into.
macro_rules! opaque {
    ($($name:ident)*) => { $(#[repr(C)] pub(super) struct $name([u8; 0]);)* };
}
opaque! { Cpu Stream Desc PrimitiveDesc Primitive Memory Attributes PostOps }

#[repr(C)]
struct Version {
    major: c_int,
    minor: c_int,
    patch: c_int,
    hash: *const u8,
    cpu_runtime: c_uint,
    gpu_runtime: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Argument {
    kind: c_int,
    memory: *mut Memory,
}

type Dims = *const i64;

functions! {
    /// What is used of the interface.
    struct Api {
        dnnl_version: fn() -> *const Version,
        dnnl_engine_create: fn(*mut *mut Cpu, c_int, usize) -> c_int,
        dnnl_stream_create: fn(*mut *mut Stream, *mut Cpu, c_uint) -> c_int,
        dnnl_stream_destroy: fn(*mut Stream) -> c_int,
        dnnl_memory_desc_create_with_strides: fn(*mut *mut Desc, c_int, Dims, c_int, Dims) -> c_int,
        dnnl_memory_desc_create_with_tag: fn(*mut *mut Desc, c_int, Dims, c_int, c_int) -> c_int,
        dnnl_memory_desc_clone: fn(*mut *mut Desc, *const Desc) -> c_int,
        dnnl_memory_desc_destroy: fn(*mut Desc) -> c_int,
        dnnl_memory_desc_get_size: fn(*const Desc) -> usize,
        dnnl_memory_create: fn(*mut *mut Memory, *const Desc, *mut Cpu, *mut c_void) -> c_int,
        dnnl_memory_destroy: fn(*mut Memory) -> c_int,
        dnnl_primitive_attr_create: fn(*mut *mut Attributes) -> c_int,
        dnnl_primitive_attr_destroy: fn(*mut Attributes) -> c_int,
        dnnl_primitive_attr_set_scratchpad_mode: fn(*mut Attributes, c_int) -> c_int,
        dnnl_primitive_attr_set_post_ops: fn(*mut Attributes, *const PostOps) -> c_int,
        dnnl_post_ops_create: fn(*mut *mut PostOps) -> c_int,
        dnnl_post_ops_destroy: fn(*mut PostOps) -> c_int,
        dnnl_post_ops_append_sum: fn(*mut PostOps, f32, i32, c_int) -> c_int,
        dnnl_post_ops_append_eltwise: fn(*mut PostOps, c_int, f32, f32) -> c_int,
        dnnl_convolution_forward_primitive_desc_create:
            fn(*mut *mut PrimitiveDesc, *mut Cpu, c_int, c_int, *const Desc, *const Desc, *const Desc,
                *const Desc, Dims, Dims, Dims, Dims, *const Attributes) -> c_int,
        dnnl_matmul_primitive_desc_create:
            fn(*mut *mut PrimitiveDesc, *mut Cpu, *const Desc, *const Desc, *const Desc, *const Desc,
                *const Attributes) -> c_int,
        dnnl_reorder_primitive_desc_create:
            fn(*mut *mut PrimitiveDesc, *const Desc, *mut Cpu, *const Desc, *mut Cpu, *const Attributes) -> c_int,
        dnnl_primitive_desc_destroy: fn(*mut PrimitiveDesc) -> c_int,
        dnnl_primitive_desc_query_md: fn(*const PrimitiveDesc, c_int, c_int) -> *const Desc,
        dnnl_primitive_create: fn(*mut *mut Primitive, *const PrimitiveDesc) -> c_int,
        dnnl_primitive_destroy: fn(*mut Primitive) -> c_int,
        dnnl_primitive_execute: fn(*const Primitive, *mut Stream, c_int, *const Argument) -> c_int,
    }
}

// Numbers of the interface's version 3.
const CPU: c_int = 1;
const IN_ORDER: c_uint = 1;
const F32: c_int = 3;
const ANY: c_int = 1;
const FORWARD_INFERENCE: c_int = 96;
const DIRECT: c_int = 1;
const CLIP: c_int = 0x2e;
const RELU: c_int = 0x20;
const USER_SCRATCHPAD: c_int = 1;
const WEIGHTS_OF: c_int = 131;
const SCRATCHPAD_OF: c_int = 136;
const SOURCE: c_int = 1;
const RESULT: c_int = 17;
const WEIGHTS: c_int = 33;
const BIAS: c_int = 41;
const SCRATCHPAD: c_int = 80;
/// Without threads of its own, and with those of OpenMP.
const RUNTIMES: [c_uint; 2] = [1, 2];
/// Most dims of a description.
const RANK: usize = 12;

/// What the library's functions that give an object back are called through: they give a status too.
macro_rules! release {
    ($name:ident, $object:ty, $function:ident) => {
        unsafe extern "C" fn $name(object: *mut $object) {
            if let Some(engine) = ENGINE.loaded() {
                // SAFETY: the object was made by the library for its owner alone.
                unsafe { (engine.api.$function)(object) };
            }
        }
    };
}
release!(release_desc, Desc, dnnl_memory_desc_destroy);
release!(release_memory, Memory, dnnl_memory_destroy);
release!(release_attributes, Attributes, dnnl_primitive_attr_destroy);
release!(release_posts, PostOps, dnnl_post_ops_destroy);
release!(release_primitive_desc, PrimitiveDesc, dnnl_primitive_desc_destroy);
release!(release_primitive, Primitive, dnnl_primitive_destroy);
release!(release_stream, Stream, dnnl_stream_destroy);

/// The loaded library with its engine; both live as long as the process.
pub(super) struct Engine {
    api: Api,
    cpu: *mut Cpu,
    /// Sets how many threads OpenMP takes for the calling thread, and says how many it would take.
    openmp: Option<(unsafe extern "C" fn(c_int), unsafe extern "C" fn() -> c_int)>,
}

// SAFETY: an engine may be used from any thread.
unsafe impl Send for Engine {}
// SAFETY: as above.
unsafe impl Sync for Engine {}

static ENGINE: Loaded<Engine> = Loaded::new();

/// The library at `path`, loaded by the first call.
pub(super) fn engine(path: &Path) -> Result<&'static Engine, String> {
    ENGINE.get(path, Engine::of)
}

/// A step after a sum of products.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Step {
    /// Adds what the result's memory held before.
    AddKept,
    /// Limits to an interval.
    Clamp(f32, f32),
}

/// How a convolution of two spatial dims walks over the image.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walk {
    pub(super) strides: [i64; 2],
    pub(super) dilations: [i64; 2],
    pub(super) before: [i64; 2],
    pub(super) after: [i64; 2],
}

/// A primitive with the descriptions of its operands.
pub(super) struct Compiled {
    primitive: Owned<Primitive>,
    source: Owned<Desc>,
    pub(super) weights: Owned<Desc>,
    bias: Option<Owned<Desc>>,
    result: Owned<Desc>,
    scratchpad: Owned<Desc>,
    /// Bytes of scratch memory that a run needs.
    pub(super) scratch: usize,
}

// SAFETY: a primitive may be run by several threads at a time, each with scratch memory of its own, and
// descriptions are only read.
unsafe impl Sync for Compiled {}

/// Memory of one run of a primitive.
#[derive(Clone, Copy)]
pub(super) struct Places {
    pub(super) source: *mut f32,
    pub(super) weights: *mut f32,
    pub(super) bias: *mut f32,
    pub(super) result: *mut f32,
    pub(super) scratch: *mut u8,
}

/// OpenMP takes one thread for the calling thread while this lives.
struct Alone<'a>(&'a Engine, c_int);

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        if let Some((set, _)) = self.0.openmp {
            // SAFETY: it takes any positive number.
            unsafe { set(self.1) }
        }
    }
}

fn padded(dims: &[i64]) -> [i64; RANK] {
    let mut all = [0; RANK];
    all[..dims.len()].copy_from_slice(dims);
    all
}

impl Engine {
    fn of(library: &Library) -> Result<Engine, String> {
        // SAFETY: these are the signatures of version 3; what others have is not called before the version
        // is known, and that function never changed.
        let api = unsafe { Api::of(library) }
            .map_err(|why| format!("needs version 3 of the interface: {why}"))?;
        // SAFETY: the function gives a constant of the library.
        let version = unsafe { (api.dnnl_version)().as_ref() }.ok_or("it tells no version")?;
        if version.major != 3 {
            return Err(format!(
                "needs version 3, found {}.{}.{}",
                version.major, version.minor, version.patch
            ));
        }
        if !RUNTIMES.contains(&version.cpu_runtime) {
            return Err(format!(
                "needs a build with OpenMP or without threads, found threads of kind {}",
                version.cpu_runtime
            ));
        }
        // SAFETY: these are OpenMP's; a library looks through those that it needs as well.
        let openmp = unsafe {
            library
                .function("omp_set_num_threads")
                .and_then(|set| library.function("omp_get_max_threads").map(|most| (set, most)))
        };
        let openmp = openmp.ok();
        if version.cpu_runtime == RUNTIMES[1] && openmp.is_none() {
            return Err("its OpenMP cannot be told how many threads to take".to_owned());
        }
        let mut cpu = null_mut();
        let engine = Engine { api, cpu, openmp };
        // SAFETY: `cpu` is where the new object's address is written.
        engine.check("create an engine", unsafe { (api.dnnl_engine_create)(&mut cpu, CPU, 0) })?;
        Ok(Engine { api, cpu, openmp })
    }

    fn alone(&self) -> Alone<'_> {
        let before = self.openmp.map_or(1, |(set, most)| {
            // SAFETY: both concern the calling thread's next parallel region alone.
            unsafe {
                let before = most();
                set(1);
                before
            }
        });
        Alone(self, before)
    }

    fn check(&self, what: &str, status: c_int) -> Result<(), String> {
        match status {
            0 => Ok(()),
            1 => Err(format!("cannot {what}: out of memory")),
            3 => Err(format!("cannot {what}: it has no such kernel")),
            other => Err(format!("cannot {what}: status {other}")),
        }
    }

    fn make<T>(
        &self,
        what: &str,
        release: unsafe extern "C" fn(*mut T),
        create: impl FnOnce(*mut *mut T) -> c_int,
    ) -> Result<Owned<T>, String> {
        let mut ptr = null_mut();
        self.check(what, create(&mut ptr))?;
        // SAFETY: the library made it for us, and its objects are not bound to threads.
        Ok(unsafe { Owned::new(ptr, release) })
    }

    /// Elements at these strides.
    pub(super) fn strided(&self, dims: &[i64], strides: &[i64]) -> Result<Owned<Desc>, String> {
        let (rank, dims, strides) = (dims.len() as c_int, padded(dims), padded(strides));
        // SAFETY: both lists have the library's greatest length.
        self.make("describe memory", release_desc, |out| unsafe {
            let create = self.api.dnnl_memory_desc_create_with_strides;
            create(out, rank, dims.as_ptr(), F32, strides.as_ptr())
        })
    }

    /// Row-major elements.
    pub(super) fn plain(&self, dims: &[i64]) -> Result<Owned<Desc>, String> {
        let mut strides = vec![1; dims.len()];
        for d in (1..dims.len()).rev() {
            strides[d - 1] = strides[d] * dims[d];
        }
        self.strided(dims, &strides)
    }

    /// Elements in whatever order a primitive likes best.
    pub(super) fn any(&self, dims: &[i64]) -> Result<Owned<Desc>, String> {
        let (rank, dims) = (dims.len() as c_int, padded(dims));
        // SAFETY: the list has the library's greatest length.
        self.make("describe memory", release_desc, |out| unsafe {
            (self.api.dnnl_memory_desc_create_with_tag)(out, rank, dims.as_ptr(), F32, ANY)
        })
    }

    /// Bytes of memory of this description.
    pub(super) fn size(&self, desc: &Owned<Desc>) -> usize {
        // SAFETY: the description is alive.
        unsafe { (self.api.dnnl_memory_desc_get_size)(desc.ptr()) }
    }

    fn attributes(&self, steps: &[Step]) -> Result<Owned<Attributes>, String> {
        let api = &self.api;
        // SAFETY: `out` is where the new object's address is written.
        let posts = self
            .make("list steps", release_posts, |out| unsafe { (api.dnnl_post_ops_create)(out) })?;
        for step in steps {
            // SAFETY: the list is alive.
            let status = unsafe {
                match *step {
                    Step::AddKept => (api.dnnl_post_ops_append_sum)(posts.ptr(), 1.0, 0, F32),
                    Step::Clamp(0.0, f32::INFINITY) => {
                        (api.dnnl_post_ops_append_eltwise)(posts.ptr(), RELU, 0.0, 0.0)
                    }
                    Step::Clamp(min, max) => {
                        (api.dnnl_post_ops_append_eltwise)(posts.ptr(), CLIP, min, max)
                    }
                }
            };
            self.check("append a step", status)?;
        }
        // SAFETY: `out` is where the new object's address is written; the list is copied.
        let made = self.make("make attributes", release_attributes, |out| unsafe {
            (api.dnnl_primitive_attr_create)(out)
        })?;
        // SAFETY: attributes and list are alive.
        unsafe {
            let mode = (api.dnnl_primitive_attr_set_scratchpad_mode)(made.ptr(), USER_SCRATCHPAD);
            self.check("choose scratch memory", mode)?;
            let set = (api.dnnl_primitive_attr_set_post_ops)(made.ptr(), posts.ptr());
            self.check("set steps", set)?;
        }
        Ok(made)
    }

    fn copy(&self, desc: *const Desc) -> Result<Owned<Desc>, String> {
        if desc.is_null() {
            return Err("has no description of an operand".to_owned());
        }
        // SAFETY: the description is alive.
        self.make("copy a description", release_desc, |out| unsafe {
            (self.api.dnnl_memory_desc_clone)(out, desc)
        })
    }

    fn primitive(&self, desc: &Owned<PrimitiveDesc>) -> Result<Owned<Primitive>, String> {
        // SAFETY: the description is alive.
        self.make("compile a primitive", release_primitive, |out| unsafe {
            (self.api.dnnl_primitive_create)(out, desc.ptr())
        })
    }

    fn compiled(
        &self,
        desc: &Owned<PrimitiveDesc>,
        source: Owned<Desc>,
        bias: Option<Owned<Desc>>,
        result: Owned<Desc>,
    ) -> Result<Compiled, String> {
        // SAFETY: the description is alive, and so are those that it holds, until they are copied.
        let of = |what| unsafe { (self.api.dnnl_primitive_desc_query_md)(desc.ptr(), what, 0) };
        let (weights, scratchpad) = (self.copy(of(WEIGHTS_OF))?, self.copy(of(SCRATCHPAD_OF))?);
        let scratch = self.size(&scratchpad);
        let primitive = self.primitive(desc)?;
        Ok(Compiled { primitive, source, weights, bias, result, scratchpad, scratch })
    }

    /// A convolution of two spatial dims that runs on the calling thread.
    pub(super) fn convolution(
        &self,
        source: Owned<Desc>,
        weights: &Owned<Desc>,
        bias: Option<Owned<Desc>>,
        result: Owned<Desc>,
        walk: &Walk,
        steps: &[Step],
    ) -> Result<Compiled, String> {
        let _alone = self.alone();
        let attributes = self.attributes(steps)?;
        let [strides, before, after] = [walk.strides, walk.before, walk.after].map(|d| padded(&d));
        let dilations = padded(&walk.dilations.map(|d| d - 1));
        // SAFETY: descriptions and attributes are alive; lists have the library's greatest length.
        let desc = self.make("find a convolution", release_primitive_desc, |out| unsafe {
            (self.api.dnnl_convolution_forward_primitive_desc_create)(
                out,
                self.cpu,
                FORWARD_INFERENCE,
                DIRECT,
                source.ptr(),
                weights.ptr(),
                bias.as_ref().map_or(null(), |b| b.ptr().cast_const()),
                result.ptr(),
                strides.as_ptr(),
                dilations.as_ptr(),
                before.as_ptr(),
                after.as_ptr(),
                attributes.ptr(),
            )
        })?;
        self.compiled(&desc, source, bias, result)
    }

    /// A product of two matrices that runs on the calling thread.
    pub(super) fn product(
        &self,
        source: Owned<Desc>,
        weights: &Owned<Desc>,
        bias: Option<Owned<Desc>>,
        result: Owned<Desc>,
        steps: &[Step],
    ) -> Result<Compiled, String> {
        let _alone = self.alone();
        let attributes = self.attributes(steps)?;
        // SAFETY: descriptions and attributes are alive.
        let desc = self.make("find a product", release_primitive_desc, |out| unsafe {
            (self.api.dnnl_matmul_primitive_desc_create)(
                out,
                self.cpu,
                source.ptr(),
                weights.ptr(),
                bias.as_ref().map_or(null(), |b| b.ptr().cast_const()),
                result.ptr(),
                attributes.ptr(),
            )
        })?;
        self.compiled(&desc, source, bias, result)
    }

    /// Moves elements from one description's order to another's.
    ///
    /// # Safety
    /// `from` and `to` have as many bytes as their descriptions say.
    pub(super) unsafe fn reorder(
        &self,
        (from_desc, from): (&Owned<Desc>, *mut f32),
        (to_desc, to): (&Owned<Desc>, *mut f32),
    ) -> Result<(), String> {
        let _alone = self.alone();
        // SAFETY: descriptions are alive; no attributes are the usual ones.
        let desc = self.make("find a reorder", release_primitive_desc, |out| unsafe {
            (self.api.dnnl_reorder_primitive_desc_create)(
                out,
                from_desc.ptr(),
                self.cpu,
                to_desc.ptr(),
                self.cpu,
                null(),
            )
        })?;
        let primitive = self.primitive(&desc)?;
        let (from, to) = (self.memory(from_desc, from)?, self.memory(to_desc, to)?);
        self.execute(&primitive, &[(SOURCE, &from), (RESULT, &to)])
    }

    fn memory(&self, desc: &Owned<Desc>, at: *mut f32) -> Result<Owned<Memory>, String> {
        // SAFETY: the description is alive; the memory is used by executions alone.
        self.make("take memory", release_memory, |out| unsafe {
            (self.api.dnnl_memory_create)(out, desc.ptr(), self.cpu, at.cast())
        })
    }

    fn execute(
        &self,
        primitive: &Owned<Primitive>,
        arguments: &[(c_int, &Owned<Memory>)],
    ) -> Result<(), String> {
        // SAFETY: `out` is where the new object's address is written.
        let stream = self.make("create a stream", release_stream, |out| unsafe {
            (self.api.dnnl_stream_create)(out, self.cpu, IN_ORDER)
        })?;
        let argument =
            |&(kind, memory): &(c_int, &Owned<Memory>)| Argument { kind, memory: memory.ptr() };
        let arguments: Vec<Argument> = arguments.iter().map(argument).collect();
        // SAFETY: everything is alive; without threads of its own the library is done when it returns.
        self.check("run", unsafe {
            let count = arguments.len() as c_int;
            (self.api.dnnl_primitive_execute)(
                primitive.ptr(),
                stream.ptr(),
                count,
                arguments.as_ptr(),
            )
        })
    }

    /// Runs a primitive on the calling thread.
    ///
    /// # Safety
    /// The places have as many bytes as the primitive's descriptions say, and nobody else uses the result
    /// and the scratch memory.
    pub(super) unsafe fn run(&self, compiled: &Compiled, places: &Places) -> Result<(), String> {
        let _alone = self.alone();
        let source = self.memory(&compiled.source, places.source)?;
        let weights = self.memory(&compiled.weights, places.weights)?;
        let result = self.memory(&compiled.result, places.result)?;
        let scratch = self.memory(&compiled.scratchpad, places.scratch.cast())?;
        let bias = compiled.bias.as_ref().map(|b| self.memory(b, places.bias)).transpose()?;
        let mut arguments =
            vec![(SOURCE, &source), (WEIGHTS, &weights), (RESULT, &result), (SCRATCHPAD, &scratch)];
        arguments.extend(bias.as_ref().map(|b| (BIAS, b)));
        self.execute(&compiled.primitive, &arguments)
    }
}
