//! Worker processes: where foreign kernels are compiled and first run, whole plans are timed, and graphs
//! are computed that foreign code may fail.
//!
//! A worker is this program started again with a hidden verb. Requests and answers are frames of
//! a length and a `postcard` message over its standard input and output. A worker that crashes,
//! takes too much memory or does not answer in time costs the candidate that it was busy with, and is
//! started again.

mod graph;
mod local;
mod message;
mod plan;
mod process;
mod scout;
mod serve;
mod trial;

pub use graph::Computed;
pub(crate) use local::LocalPlan;
pub use plan::{Alone, OpenPlan, RemotePlan};
pub use process::{Worker, WorkerCommand, ended};
pub use scout::RemoteScout;
pub use serve::serve;
pub use trial::Benches;
