//! What a deployed program needs: plan, kernel and device traits, thread pool, arena, session,
//! trace. Knows no graph and takes no decision.
#![allow(unsafe_code)] // pointers into the arena, and the thread pool

mod kernel;
mod pool;
mod threads;

pub use kernel::{
    Cancel, DeviceId, Dims, Kernel, Needs, Operand, Pool, Queue, Recipe, Run, RunError, Serial,
};
pub use pool::{PoolOptions, ThreadPool};
pub use threads::{AvailableThreads, ThreadLimit, available_threads};
