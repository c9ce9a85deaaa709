//! The one contract that native and foreign kernels keep.

use bricolage_tensor::Format;
use serde::{Deserialize, Serialize};
use std::{
    marker::PhantomData,
    sync::atomic::{AtomicBool, Ordering},
};

/// A place where kernels run and memory lies; 0 is the host processor.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct DeviceId(pub u8);

/// An order of execution on one device; 0 is the host's own.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct Queue(pub u8);

/// A flag that asks a long run to stop early.
#[derive(Debug, Default)]
pub struct Cancel(AtomicBool);

impl Cancel {
    /// Asks every run that sees the flag to stop.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether a stop was asked for.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// One tensor handed to a kernel: memory and how the elements lie in it.
#[derive(Clone, Copy)]
pub struct Operand<'a> {
    ptr: *mut u8,
    len: usize,
    /// Where the memory lies.
    pub device: DeviceId,
    /// Logical dims, outermost first.
    pub dims: &'a [i64],
    /// Distance in elements between neighbours along each logical dim; for a blocked layout the
    /// channel stride is that between two blocks. See [`Format::strides`].
    pub strides: &'a [i64],
    /// Element type and layout.
    pub format: &'a Format,
    memory: PhantomData<&'a mut [u8]>,
}

// SAFETY: an operand is a description; by the contract of `Operand::new` its bytes are the kernel's
// alone while it runs, and the kernel orders the accesses of its own threads.
unsafe impl Send for Operand<'_> {}
// SAFETY: as above.
unsafe impl Sync for Operand<'_> {}

impl<'a> Operand<'a> {
    /// Describes `len` bytes at `ptr`.
    ///
    /// # Safety
    /// For `'a` the bytes are readable, and writable where the kernel's contract says that this
    /// operand is written; nobody else writes them meanwhile, nor reads those that are written.
    pub unsafe fn new(
        ptr: *mut u8,
        len: usize,
        device: DeviceId,
        dims: &'a [i64],
        strides: &'a [i64],
        format: &'a Format,
    ) -> Operand<'a> {
        Operand { ptr, len, device, dims, strides, format, memory: PhantomData }
    }

    /// Start of the memory, the leading halo included.
    pub fn as_ptr(&self) -> *const u8 {
        self.ptr
    }

    /// Start of the memory, for an operand that the kernel writes.
    pub fn as_mut_ptr(&self) -> *mut u8 {
        self.ptr
    }

    /// Moves the operand to other memory, of which the contract of [`Operand::new`] holds.
    pub(crate) fn set_ptr(&mut self, ptr: *mut u8) {
        self.ptr = ptr;
    }

    /// Bytes of memory.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no memory at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// What one run of a kernel works on.
pub struct Run<'a> {
    /// Read; in the order of the region's inputs.
    pub inputs: &'a [Operand<'a>],
    /// Written; an output may share the memory of an input that [`Needs::in_place`] pairs it with.
    pub outputs: &'a [Operand<'a>],
    /// Read; packed by the backend when the kernel was made.
    pub constants: &'a [Operand<'a>],
    /// Scratch memory, 64-byte aligned, at least [`Needs::workspace`] bytes, with any content.
    pub workspace: Operand<'a>,
    /// The threads that the kernel may use.
    pub pool: &'a dyn Pool,
    /// Where the run is ordered.
    pub queue: Queue,
    /// Asked between long parts of the work.
    pub cancel: &'a Cancel,
}

/// The logical dims that a kernel is about to be run on.
#[derive(Clone, Copy, Debug)]
pub struct Dims<'a> {
    /// Dims of each input.
    pub inputs: &'a [Vec<i64>],
    /// Dims of each output.
    pub outputs: &'a [Vec<i64>],
}

/// What a kernel needs for given dims and threads: upper bounds, declared before it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Needs {
    /// Bytes of workspace.
    pub workspace: u64,
    /// Bytes that a foreign library allocates by itself; `None` when it declares no bound.
    pub foreign: Option<u64>,
    /// Pairs (output, input) that may share memory.
    pub in_place: Vec<(usize, usize)>,
    /// Whether two runs on equal inputs give equal bits.
    pub deterministic: bool,
}

/// Enough for the loader to rebuild the same kernel, also in another process.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Recipe {
    /// Name of the backend that rebuilds it.
    pub backend: String,
    /// Which of the backend's kernels, with its version: `avx2-f32-matmul-6x16/1`.
    pub kernel: String,
    /// Parameters in the backend's own form.
    pub body: Vec<u8>,
}

/// Why a run gave no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A stop was asked for.
    #[error("the run was cancelled")]
    Cancelled,
    /// The operands are not those that the kernel was made for.
    #[error("kernel `{kernel}` {what}")]
    Operand {
        /// Name of the kernel.
        kernel: String,
        /// A clause with what was needed and what was found.
        what: String,
    },
    /// The inputs have values that the operator does not allow, such as an index out of range.
    #[error("kernel `{kernel}` cannot compute this: {why}")]
    Domain {
        /// Name of the kernel.
        kernel: String,
        /// A clause with the value found.
        why: String,
    },
    /// A foreign library reported a failure.
    #[error("kernel `{kernel}` failed: {why}")]
    Failed {
        /// Name of the kernel.
        kernel: String,
        /// The library's own words.
        why: String,
    },
}

/// Compiled code with its needs declared.
pub trait Kernel: Send + Sync {
    /// `{isa}-{dtypes}-{op}-{variant}`, for example `avx2-f32-matmul-6x16`.
    fn name(&self) -> &str;

    /// Upper bounds for these dims on `threads` threads.
    fn needs(&self, dims: &Dims<'_>, threads: usize) -> Needs;

    /// Computes every output. Re-entrant; allocates nothing unless it declares foreign bytes.
    fn run(&self, run: &mut Run<'_>) -> Result<(), RunError>;

    /// What the loader rebuilds this kernel from.
    fn recipe(&self) -> Recipe;
}

/// Threads that split one piece of work among them.
pub trait Pool: Sync {
    /// How many threads work, the caller included.
    fn threads(&self) -> usize;

    /// Calls `body(task, thread)` once for every `task < tasks`, and returns when all have ended.
    ///
    /// `thread < self.threads()` names the thread that runs the task, so that each may have its
    /// own part of the workspace. Tasks are handed out in rising order; a nested call from inside
    /// `body` runs serially on the calling thread.
    fn run(&self, tasks: usize, body: &(dyn Fn(usize, usize) + Sync));
}

/// The calling thread alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Serial;

impl Pool for Serial {
    fn threads(&self) -> usize {
        1
    }

    fn run(&self, tasks: usize, body: &(dyn Fn(usize, usize) + Sync)) {
        for task in 0..tasks {
            body(task, 0);
        }
    }
}
