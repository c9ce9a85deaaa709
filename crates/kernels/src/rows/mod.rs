//! Kernels over rows: softmax, normalisation and reductions.

mod norm;
mod reduce;
mod softmax;

pub use norm::{Norm, NormSpec};
pub use reduce::{Reduce, ReduceOp, ReduceSpec};
pub use softmax::{Softmax, SoftmaxSpec};

pub(crate) use softmax::{exp_row, max_row, scale_row};
