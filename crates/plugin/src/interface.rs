//! Tables of functions, field by field as in the header.

use std::ffi::{c_char, c_void};

/// Version of the interface.
pub const ABI: u32 = 1;
/// Name of the one symbol that a library exports, a [`Find`].
pub const SYMBOL: &str = "bricolage_backend";

/// It was done.
pub const OK: i32 = 0;
/// The sub-graph is not taken.
pub const REFUSED: i32 = 1;
/// The inputs hold values that the op does not allow.
pub const DOMAIN: i32 = 2;
/// Something else went wrong.
pub const FAILED: i32 = 3;
/// The run stopped because the host asked for it.
pub const CANCELLED: i32 = 4;

/// A flag of [`Plan`]: two runs on equal inputs give equal bits.
pub const DETERMINISTIC: u32 = 1;

/// A task of `parallel_for`: its argument, the task's number, the thread's number.
pub type Body = unsafe extern "C" fn(argument: *mut c_void, task: u64, thread: u32);

/// What the host does for a library during a call.
#[repr(C)]
pub struct Host {
    /// [`ABI`].
    pub abi: u32,
    /// Size of the table.
    pub size: u32,
    /// Passed back to every function.
    pub context: *mut c_void,
    /// How many threads `parallel_for` uses.
    pub threads: unsafe extern "C" fn(context: *mut c_void) -> u32,
    /// Runs tasks on threads of the host.
    pub parallel_for:
        unsafe extern "C" fn(context: *mut c_void, tasks: u64, body: Body, argument: *mut c_void),
    /// Not 0 once a run shall end early.
    pub cancelled: unsafe extern "C" fn(context: *mut c_void) -> i32,
    /// Keeps a line for people.
    pub log: unsafe extern "C" fn(context: *mut c_void, line: *const c_char),
    /// Takes a clause that says why the call does not return [`OK`].
    pub reason: unsafe extern "C" fn(context: *mut c_void, clause: *const c_char),
}

/// What a kernel will need.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Size of the table.
    pub size: u32,
    /// [`DETERMINISTIC`] or 0.
    pub flags: u32,
    /// Bytes of scratch memory for one run, at most.
    pub workspace: u64,
}

/// Takes or refuses a sub-graph.
pub type PlanFn = unsafe extern "C" fn(
    host: *const Host,
    subgraph: *const c_void,
    bytes: u64,
    plan: *mut Plan,
) -> i32;
/// Makes a kernel of a sub-graph.
pub type Compile = unsafe extern "C" fn(
    host: *const Host,
    subgraph: *const c_void,
    bytes: u64,
    kernel: *mut *mut c_void,
) -> i32;
/// Computes.
pub type RunFn = unsafe extern "C" fn(
    host: *const Host,
    kernel: *mut c_void,
    inputs: *const *const c_void,
    outputs: *const *mut c_void,
    workspace: *mut c_void,
) -> i32;
/// Gives a kernel back.
pub type Destroy = unsafe extern "C" fn(kernel: *mut c_void);
/// Gives the table, or null for an interface that the library does not know.
pub type Find = unsafe extern "C" fn(abi: u32) -> *const Backend;

/// What a library is. Functions are optional, for a table may be wrong.
#[repr(C)]
pub struct Backend {
    /// [`ABI`].
    pub abi: u32,
    /// Size of the table.
    pub size: u32,
    /// As its pattern file says.
    pub name: *const c_char,
    /// Of the library.
    pub version: *const c_char,
    /// The pattern file.
    pub patterns: *const c_char,
    /// Names of the entries.
    pub entries: *const *const c_char,
    /// How many entries there are.
    pub entry_count: u32,
    /// Threads of its own that the library keeps at most.
    pub own_threads: u32,
    /// See [`PlanFn`].
    pub plan: Option<PlanFn>,
    /// See [`Compile`].
    pub compile: Option<Compile>,
    /// See [`RunFn`].
    pub run: Option<RunFn>,
    /// See [`Destroy`].
    pub destroy: Option<Destroy>,
}
