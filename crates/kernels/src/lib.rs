//! Hand-written kernels for `f32`, portable and for AVX2 and AVX-512 from one source.
//!
//! A [`Spec`] is plain data: shapes, formats, parameters and blocking. [`Spec::build`] makes a kernel
//! for an instruction set; [`rebuild`] does the same from a kernel's recipe.
#![allow(unsafe_code)]
// vector instructions, and pointers into operands
// The body of an unsafe function is one block of address arithmetic; its contract stands above it.
#![allow(unsafe_op_in_unsafe_fn)]
// Register tiles are arrays with constant bounds, which the compiler unrolls when indexed.
#![allow(clippy::needless_range_loop)]

mod attention;
mod conv;
mod iterate;
mod layout;
mod math;
mod matmul;
mod movement;
mod pointwise;
mod pooling;
mod post;
mod recurrent;
pub mod registry;
mod rows;
mod simd;
mod spec;
mod tile;
mod unary;
mod view;

pub use attention::{Attention, AttentionSpec};
pub use conv::{Conv, ConvAlgorithm, ConvKnobs, ConvSpec};
pub use matmul::{MatMul, MatMulKnobs, MatMulSpec};
pub use movement::{
    Convert, ConvertSpec, Coordinates, Copy, CopySpec, Gather, GatherSpec, PadMode, Piece, Resize,
    ResizeMode, ResizeSpec, Rounding,
};
pub use pointwise::{Binary, Instruction, Pointwise, PointwiseOperand, PointwiseSpec};
pub use pooling::{PoolOp, PoolSpec, Pooling};
pub use post::Post;
pub use recurrent::{Lengths, Recurrent, RecurrentCell, RecurrentSpec, Start};
pub use rows::{Norm, NormSpec, Reduce, ReduceOp, ReduceSpec, Softmax, SoftmaxSpec};
pub use simd::Isa;
pub use spec::{BACKEND, NativeKernel, Packed, Spec, SpecError, rebuild};
pub use unary::Unary;
