//! The one stopwatch: protocol, statistics, machine fingerprint and the cost database.
//!
//! Everything that takes time in the product takes it here, so that placement, tuning, benchmarks
//! and reports mean the same by a number. Only one process of a machine measures at a time
//! ([`MeasuringLock`]).

mod database;
mod lock;
mod machine;
mod protocol;
mod sentinel;
mod statistics;

pub use database::{Database, DatabaseError, Key, Opened, Record};
pub use lock::MeasuringLock;
pub use machine::{Cache, Machine, free_memory};
pub use protocol::{
    Contestant, LEAST, Pairing, Protocol, Repeat, Sample, SampleError, Verdict, pair, race,
};
pub use sentinel::{Noise, Sentinel, noise};
pub use statistics::{Measurement, Ratio, median_interval, quantile};
