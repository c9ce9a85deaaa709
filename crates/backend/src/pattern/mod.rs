//! A language in which libraries say what they can compute, and the backend that is made of it.
//!
//! A pattern file names shapes of computations, conditions, formats and the entry of the library that
//! computes them; `docs/patterns.md` describes the language. [`PatternBackend`] finds the regions, checks
//! them and offers the candidates; a [`Provider`] makes the kernels.
//!
//! The language leaves out what this crate has no meaning for. A region has one exit, so there is nothing to
//! expose and no pattern with several exits. The order of patterns decides nothing, so there are no
//! priorities. Quantisation is an op, not part of a format, so formats have no scheme; constants are packed by
//! the entry, so they have no format either. There is no op that adds a bias: a convolution takes one as an
//! operand, and `add` is an op. Sizes of results are inferred, so there is no function for those of a
//! convolution. How a kernel uses threads, and whether it repeats, is what the kernel itself declares.
//!
//! A size that is no number makes a condition *not known*, and the candidate is declined with that reason:
//! nothing guards a plan at run time.

mod backend;
mod bindings;
mod constraint;
mod error;
mod evaluate;
mod formats;
mod growth;
mod load;
mod matcher;
mod names;
mod parser;
mod print;
mod sample;
mod shape;
pub mod syntax;
#[cfg(test)]
mod tests;
mod token;
mod value;
mod view;

pub use backend::{PatternBackend, Provider};
pub use bindings::Bindings;
pub use error::{Fault, FaultKind, PatternError, Position};
pub use names::Library;
pub use sample::Samples;
pub use syntax::File;
pub use view::{attributes, op_name};
