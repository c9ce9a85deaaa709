//! Element types, symbolic dims, shapes, formats and host tensors. Knows no operators.

mod datum;
mod dim;
mod dtype;
mod format;
mod layout;
mod narrow;
mod rng;
mod shape;
mod storage;
mod strings;
mod tensor;

pub use datum::Datum;
pub use dim::{Dim, DimParseError, Factor, Ranges, Symbol};
pub use dtype::{DType, Element};
pub use format::{Format, Layout};
pub use narrow::{Narrowing, Powers, decode_float, encode_float};
pub use rng::Rng;
pub use shape::{Shape, TensorType, Type};
pub use storage::Storage;
pub use strings::Strings;
pub use tensor::{Tensor, TensorError};
