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
    /// Four bits of exponent and three of mantissa; no infinity.
    F8E4M3FN,
    /// Four bits of exponent and three of mantissa; neither infinity nor negative zero.
    F8E4M3FNUZ,
    /// Five bits of exponent and two of mantissa.
    F8E5M2,
    /// Five bits of exponent and two of mantissa; neither infinity nor negative zero.
    F8E5M2FNUZ,
    /// A power of two from -127 to 127, or NaN: a scale.
    F8E8M0,
    /// Two bits of exponent and one of mantissa; neither infinity nor NaN.
    F4E2M1,
    I4,
    U4,
    I2,
    U2,
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
        DType::F8E4M3FN,
        DType::F8E4M3FNUZ,
        DType::F8E5M2,
        DType::F8E5M2FNUZ,
        DType::F8E8M0,
        DType::F4E2M1,
        DType::I4,
        DType::U4,
        DType::I2,
        DType::U2,
    ];

    /// Size of one element in bits. Elements below a byte are packed, the first in the lowest bits; the
    /// bits that the last byte has left over are zero.
    pub const fn bits(self) -> u64 {
        match self {
            DType::I2 | DType::U2 => 2,
            DType::I4 | DType::U4 | DType::F4E2M1 => 4,
            DType::I8 | DType::U8 | DType::Bool => 8,
            DType::F8E4M3FN | DType::F8E4M3FNUZ => 8,
            DType::F8E5M2 | DType::F8E5M2FNUZ | DType::F8E8M0 => 8,
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
        matches!(self, DType::F32 | DType::F64 | DType::F16 | DType::BF16) || self.is_narrow_float()
    }

    /// A floating-point type of at most eight bits: [`crate::decode_float`] reads its codes.
    pub const fn is_narrow_float(self) -> bool {
        matches!(
            self,
            DType::F8E4M3FN
                | DType::F8E4M3FNUZ
                | DType::F8E5M2
                | DType::F8E5M2FNUZ
                | DType::F8E8M0
                | DType::F4E2M1
        )
    }

    /// A signed or unsigned integer; `Bool` is neither.
    pub const fn is_int(self) -> bool {
        !self.is_float() && !matches!(self, DType::Bool)
    }

    /// A signed integer.
    pub const fn is_signed_int(self) -> bool {
        matches!(self, DType::I8 | DType::I16 | DType::I32 | DType::I64 | DType::I4 | DType::I2)
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
            DType::F8E4M3FN => "f8e4m3fn",
            DType::F8E4M3FNUZ => "f8e4m3fnuz",
            DType::F8E5M2 => "f8e5m2",
            DType::F8E5M2FNUZ => "f8e5m2fnuz",
            DType::F8E8M0 => "f8e8m0",
            DType::F4E2M1 => "f4e2m1",
            DType::I4 => "i4",
            DType::U4 => "u4",
            DType::I2 => "i2",
            DType::U2 => "u2",
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
            DType::F8E4M3FN | DType::F8E4M3FNUZ => 0.125,
            DType::F8E5M2 | DType::F8E5M2FNUZ => 0.25,
            DType::F4E2M1 => 0.5,
            DType::F8E8M0 => 1.0,
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
            assert_eq!(dtype.byte_len(3), Some((3 * dtype.bits()).div_ceil(8)));
        }
        assert_eq!(DType::F32.byte_len(u64::MAX), None);
    }
}
