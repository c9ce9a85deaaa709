//! Covers the graph with measured regions, formats and conversions included.

mod problem;
mod sweep;

pub use problem::{Choice, Conversion, Cover, FormatId, Problem, ProblemError, Tensor};
pub use sweep::{Limits, Solution, sweep};
