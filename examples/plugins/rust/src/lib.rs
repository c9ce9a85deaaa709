//! A backend in Rust: sums, differences and products of tensors of equal dims, on threads of the host.
//!
//! `cargo build --release` makes `target/release/libtinyrust.so`.

use bricolage_plugin::{
    ABI, Backend, CANCELLED, DETERMINISTIC, FAILED, Host, OK, Plan, REFUSED, Subgraph,
};
use std::{
    ffi::{CString, c_char, c_void},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr, slice,
};

const PATTERNS: &str = concat!(
    r#"
backend tinyrust {
  kind: supplement;
  version: "1.0" .. "2.0";
  covers: "sums, differences and products of tensors of equal dims, and tanh";
}
pattern pairs {
  match: y@add/sub/mul(a@_, b@_);
  where: all(d in a.dims: d >= 0) && a.rank == b.rank && y.elements == a.elements && y.elements == b.elements;
  formats: { _: f32:plain; }
  numerics: exact;
}
pattern hyperbolic { match: tanh(a@_); formats: { _: f32:plain; } entry: "tanh"; }
"#,
    "\0"
);

/// What is computed of each pair of elements, or of each element.
#[derive(Clone, Copy, Debug)]
enum Work {
    Add,
    Sub,
    Mul,
    Tanh,
}

/// A kernel.
struct Kernel {
    work: Work,
    elements: usize,
}

/// Elements of one task.
const TASK: usize = 4096;

/// Tells the host why, and gives the status back.
fn because(host: &Host, status: i32, why: &str) -> i32 {
    let why = CString::new(why.replace('\0', "")).unwrap_or_default();
    // SAFETY: the host takes a text during a call.
    unsafe { (host.reason)(host.context, why.as_ptr()) };
    status
}

/// Nothing unwinds into the host.
fn guarded(host: &Host, body: impl FnOnce() -> i32) -> i32 {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| because(host, FAILED, "it panicked"))
}

fn kernel(bytes: &[u8]) -> Result<Kernel, String> {
    let graph = Subgraph::decode(bytes).map_err(|fault| fault.to_string())?;
    let node = graph.nodes.first().ok_or("needs a node")?;
    let work = match (graph.entry.as_str(), node.op.as_str()) {
        ("tanh", _) => Work::Tanh,
        (_, "add") => Work::Add,
        (_, "sub") => Work::Sub,
        (_, "mul") => Work::Mul,
        (_, other) => {
            return Err(format!("needs a sum, a difference or a product, found `{other}`"));
        }
    };
    if !graph.constants.is_empty() {
        return Err("needs operands that are no constants".to_owned());
    }
    if !matches!(work, Work::Tanh) && graph.inputs.len() != 2 {
        return Err(format!("needs two operands, found {}", graph.inputs.len()));
    }
    let output = &graph.tensors[graph.outputs[0] as usize];
    let elements =
        usize::try_from(output.dims.iter().product::<i64>()).map_err(|e| e.to_string())?;
    Ok(Kernel { work, elements })
}

unsafe extern "C" fn plan(
    host: *const Host,
    subgraph: *const c_void,
    bytes: u64,
    plan: *mut Plan,
) -> i32 {
    // SAFETY: the host passes a table, a sub-graph of as many bytes and room for a plan.
    let (host, bytes, plan) = unsafe {
        (&*host, slice::from_raw_parts(subgraph.cast::<u8>(), bytes as usize), &mut *plan)
    };
    guarded(host, || match kernel(bytes) {
        Ok(_) => {
            plan.flags = DETERMINISTIC;
            OK
        }
        Err(why) => because(host, REFUSED, &why),
    })
}

unsafe extern "C" fn compile(
    host: *const Host,
    subgraph: *const c_void,
    bytes: u64,
    to: *mut *mut c_void,
) -> i32 {
    // SAFETY: the host passes a table and a sub-graph of as many bytes.
    let (host, bytes) =
        unsafe { (&*host, slice::from_raw_parts(subgraph.cast::<u8>(), bytes as usize)) };
    guarded(host, || match kernel(bytes) {
        Ok(kernel) => {
            // SAFETY: there is room for a pointer.
            unsafe { *to = Box::into_raw(Box::new(kernel)).cast() };
            OK
        }
        Err(why) => because(host, REFUSED, &why),
    })
}

/// What the tasks of a run share.
struct Run<'a> {
    kernel: &'a Kernel,
    a: *const f32,
    b: *const f32,
    y: *mut f32,
}

unsafe extern "C" fn task(run: *mut c_void, task: u64, _: u32) {
    // SAFETY: the run below hands itself to its tasks, and lives until all have ended.
    let Run { kernel, a, b, y } = unsafe { &*run.cast::<Run<'_>>() };
    for i in task as usize * TASK..kernel.elements.min((task as usize + 1) * TASK) {
        // SAFETY: all tensors have as many elements, and no two tasks have the same.
        unsafe {
            *y.add(i) = match kernel.work {
                Work::Add => *a.add(i) + *b.add(i),
                Work::Sub => *a.add(i) - *b.add(i),
                Work::Mul => *a.add(i) * *b.add(i),
                Work::Tanh => (*a.add(i)).tanh(),
            }
        }
    }
}

unsafe extern "C" fn run(
    host: *const Host,
    kernel: *mut c_void,
    inputs: *const *const c_void,
    outputs: *const *mut c_void,
    _: *mut c_void,
) -> i32 {
    // SAFETY: the host passes a table, a kernel that `compile` made, and as many tensors as the sub-graph has.
    unsafe {
        let (host, kernel) = (&*host, &*kernel.cast::<Kernel>());
        let (a, y) = ((*inputs).cast(), (*outputs).cast());
        let b =
            if matches!(kernel.work, Work::Tanh) { ptr::null() } else { (*inputs.add(1)).cast() };
        let mut run = Run { kernel, a, b, y };
        let tasks = kernel.elements.div_ceil(TASK) as u64;
        (host.parallel_for)(host.context, tasks, task, ptr::from_mut(&mut run).cast());
        if (host.cancelled)(host.context) != 0 { CANCELLED } else { OK }
    }
}

unsafe extern "C" fn destroy(kernel: *mut c_void) {
    // SAFETY: `compile` made it, and the host gives it back once.
    drop(unsafe { Box::from_raw(kernel.cast::<Kernel>()) });
}

/// Pointers to what never changes.
struct Fixed<T>(T);

// SAFETY: nothing is ever written through the pointers.
unsafe impl<T> Sync for Fixed<T> {}

static ENTRIES: Fixed<[*const c_char; 2]> = Fixed([c"pairs".as_ptr(), c"tanh".as_ptr()]);

static TABLE: Fixed<Backend> = Fixed(Backend {
    abi: ABI,
    size: size_of::<Backend>() as u32,
    name: c"tinyrust".as_ptr(),
    version: c"1.0.0".as_ptr(),
    patterns: PATTERNS.as_ptr().cast(),
    entries: ENTRIES.0.as_ptr(),
    entry_count: 2,
    own_threads: 0,
    plan: Some(plan),
    compile: Some(compile),
    run: Some(run),
    destroy: Some(destroy),
});

/// The one symbol.
#[unsafe(no_mangle)]
extern "C" fn bricolage_backend(abi: u32) -> *const Backend {
    if abi == ABI { &TABLE.0 } else { ptr::null() }
}
