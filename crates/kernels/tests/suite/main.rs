//! Every kernel against naive references in `f64`, on guarded memory, for every instruction set.
#![allow(clippy::unwrap_used)] // a failed test may panic

mod conv;
mod harness;
mod matmul;
mod movement;
mod pointwise;
mod recurrent;
mod reference;
mod registry;
mod rows;
