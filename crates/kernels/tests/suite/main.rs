//! Every kernel against naive references in `f64`, on guarded memory, for every instruction set.

mod conv;
mod harness;
mod matmul;
mod reference;
