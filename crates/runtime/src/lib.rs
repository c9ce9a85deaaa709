//! What a deployed program needs: plan, kernel and device traits, thread pool, arena, session,
//! trace. Knows no graph and takes no decision.
#![allow(unsafe_code)] // pointers into the arena, mapped files, and the thread pool

mod arena;
mod kernel;
mod map;
mod path;
mod plan;
mod pool;
mod session;
mod threads;
mod trace;
mod weights;

pub use arena::{ALIGNMENT, Arena};
pub use kernel::{
    Cancel, DeviceId, Dims, Kernel, Needs, Operand, Pool, Queue, Recipe, Run, RunError, Serial,
};
pub use map::{map_file, open_file, read_file};
pub use path::{in_words, kind_of};
pub use plan::{Action, Buffer, BufferId, KernelSource, Place, Plan, Port, RunStep, Step};
pub use pool::{PoolOptions, ThreadPool};
pub use session::{Constant, Program, Rebuild, Session, SessionError};
pub use threads::{AvailableThreads, ThreadLimit, available_threads};
pub use trace::{Span, Trace};
pub use weights::Weights;
