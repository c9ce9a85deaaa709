//! Kernels that move elements without computing, and resizing.

mod convert;
mod copy;
mod gather;
mod resize;

pub use convert::{Convert, ConvertSpec};
pub use copy::{Copy, CopySpec, PadMode, Piece};
pub use gather::{Gather, GatherSpec};
pub use resize::{Coordinates, Resize, ResizeMode, ResizeSpec, Rounding};
