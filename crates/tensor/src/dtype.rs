//! Element types.

use half::{bf16, f16};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The type of one tensor element, as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum DType {
    F32,
    F64,
    F16,
    BF16,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    /// One byte an element: 0 or 1.
    Bool,
}

impl DType {
    /// Every element type, in the order of the declaration.
    pub const ALL: &'static [DType] = &[
        DType::F32,
        DType::F64,
        DType::F16,
        DType::BF16,
        DType::I8,
        DType::I16,
        DType::I32,
        DType::I64,
        DType::U8,
        DType::U16,
        DType::U32,
        DType::U64,
        DType::Bool,
    ];

    /// Size of one element in bits; types below a byte are packed.
    pub const fn bits(self) -> u64 {
        match self {
            DType::I8 | DType::U8 | DType::Bool => 8,
            DType::F16 | DType::BF16 | DType::I16 | DType::U16 => 16,
            DType::F32 | DType::I32 | DType::U32 => 32,
            DType::F64 | DType::I64 | DType::U64 => 64,
        }
    }

    /// Bytes taken by `elements` elements, the last byte padded; `None` on overflow.
    pub fn byte_len(self, elements: u64) -> Option<u64> {
        Some(elements.checked_mul(self.bits())?.div_ceil(8))
    }

    /// A floating-point type of any width.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F64 | DType::F16 | DType::BF16)
    }

    /// A signed or unsigned integer; `Bool` is neither.
    pub const fn is_int(self) -> bool {
        !self.is_float() && !matches!(self, DType::Bool)
    }

    /// A signed integer.
    pub const fn is_signed_int(self) -> bool {
        matches!(self, DType::I8 | DType::I16 | DType::I32 | DType::I64)
    }

    /// The name used in text forms: `f32`, `i64`, `bool`.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F64 => "f64",
            DType::F16 => "f16",
            DType::BF16 => "bf16",
            DType::I8 => "i8",
            DType::I16 => "i16",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::U8 => "u8",
            DType::U16 => "u16",
            DType::U32 => "u32",
            DType::U64 => "u64",
            DType::Bool => "bool",
        }
    }

    /// The inverse of [`DType::name`].
    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.iter().copied().find(|d| d.name() == name)
    }

    /// Distance from 1 to the next larger number of a float type; 0 for other types.
    pub const fn epsilon(self) -> f64 {
        match self {
            DType::F32 => f32::EPSILON as f64,
            DType::F64 => f64::EPSILON,
            DType::F16 => 9.765_625e-4,
            DType::BF16 => 7.812_5e-3,
            _ => 0.0,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A Rust type that is the in-memory form of a [`DType`]. `Bool` is stored as `u8` and has no own type.
pub trait Element: bytemuck::Pod + Send + Sync + PartialOrd + fmt::Debug {
    /// The element type that this Rust type stores.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($ty:ty => $dtype:ident,)*) => { $(impl Element for $ty { const DTYPE: DType = DType::$dtype; })* };
}
elements! {
    f32 => F32, f64 => F64, f16 => F16, bf16 => BF16,
    i8 => I8, i16 => I16, i32 => I32, i64 => I64,
    u8 => U8, u16 => U16, u32 => U32, u64 => U64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for &dtype in DType::ALL {
            assert_eq!(DType::from_name(dtype.name()), Some(dtype));
            assert_eq!(dtype.byte_len(3), Some(3 * dtype.bits() / 8));
        }
        assert_eq!(DType::F32.byte_len(u64::MAX), None);
    }
}
