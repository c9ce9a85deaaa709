//! Worker processes: where foreign kernels are compiled and first run, and whole plans are timed.
//!
//! A worker is this program started again with a hidden verb. Requests and answers are frames of
//! a length and a `postcard` message over its standard input and output. A worker that crashes,
//! takes too much memory or does not answer in time costs the candidate that it was busy with, and is
//! started again.

mod message;
mod plan;
mod process;
mod scout;
mod serve;
mod trial;

pub use plan::{Alone, OpenPlan, RemotePlan};
pub use process::{Worker, WorkerCommand};
pub use scout::RemoteScout;
pub use serve::serve;
pub use trial::Benches;
