//! Every kernel against naive references in `f64`, on guarded memory, for every instruction set.

mod conv;
mod harness;
mod matmul;
mod movement;
mod pointwise;
mod reference;
mod registry;
mod rows;
