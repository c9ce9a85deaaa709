//! Host tensors: typed bytes in row-major order.

use crate::{DType, Element, Narrowing, Storage, TensorType, decode_float, encode_float};
use half::{bf16, f16};
use std::borrow::Cow;

/// Why bytes do not make a tensor.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// The number of bytes is not what type and dims need.
    #[error("{dtype}{dims:?} needs {needed} bytes, found {found}")]
    Size {
        /// Element type.
        dtype: DType,
        /// Dims as given.
        dims: Vec<i64>,
        /// Bytes that type and dims need.
        needed: u64,
        /// Bytes given.
        found: u64,
    },
    /// The number of texts is not what the dims need.
    #[error("strings of dims {dims:?} need {} elements, found {found}", needed.map_or("a possible number of".to_owned(), |n| n.to_string()))]
    Count {
        /// Dims as given.
        dims: Vec<i64>,
        /// Elements that the dims need, if they are possible.
        needed: Option<u64>,
        /// Elements given.
        found: u64,
    },
    /// A dim is negative, or the byte count overflows.
    #[error("{dtype}{dims:?} is not a possible tensor: a dim is negative or the size overflows")]
    Dims {
        /// Element type.
        dtype: DType,
        /// Dims as given.
        dims: Vec<i64>,
    },
}

/// An immutable dense tensor in host memory, row-major, sharing its bytes when cloned.
#[derive(Clone, Debug)]
pub struct Tensor {
    dtype: DType,
    dims: Vec<i64>,
    bytes: Storage,
}

impl Tensor {
    /// A tensor over `bytes`; they may be unaligned.
    pub fn new(dtype: DType, dims: &[i64], bytes: Storage) -> Result<Tensor, TensorError> {
        let needed = TensorType::fixed(dtype, dims)
            .byte_len()
            .ok_or_else(|| TensorError::Dims { dtype, dims: dims.to_vec() })?;
        let found = bytes.len() as u64;
        if needed != found {
            return Err(TensorError::Size { dtype, dims: dims.to_vec(), needed, found });
        }
        Ok(Tensor { dtype, dims: dims.to_vec(), bytes })
    }

    /// A tensor of zeros.
    pub fn zeros(dtype: DType, dims: &[i64]) -> Result<Tensor, TensorError> {
        let bytes = TensorType::fixed(dtype, dims)
            .byte_len()
            .and_then(|b| usize::try_from(b).ok().filter(|&b| b < isize::MAX as usize))
            .ok_or_else(|| TensorError::Dims { dtype, dims: dims.to_vec() })?;
        Tensor::new(dtype, dims, Storage::build(bytes, |_| {}))
    }

    /// A tensor with a copy of `elements`. Panics when their number does not fit `dims`.
    pub fn of<T: Element>(dims: &[i64], elements: &[T]) -> Tensor {
        Tensor::new(T::DTYPE, dims, Storage::copy_of(bytemuck::cast_slice(elements)))
            .expect("the caller gives as many elements as the dims need")
    }

    /// A `Bool` tensor. Panics when the number of elements does not fit `dims`.
    pub fn of_bool(dims: &[i64], elements: &[bool]) -> Tensor {
        let bytes: Vec<u8> = elements.iter().map(|&b| u8::from(b)).collect();
        Tensor::new(DType::Bool, dims, Storage::copy_of(&bytes))
            .expect("the caller gives as many elements as the dims need")
    }

    /// A tensor whose element `i`, in row-major order, is `value(i)` rounded to `dtype` as [`Tensor::from_f64`] does.
    pub fn generate(dtype: DType, dims: &[i64], value: impl FnMut(usize) -> f64) -> Tensor {
        let count: i64 = dims.iter().product();
        let values: Vec<f64> = (0..usize::try_from(count).unwrap_or(0)).map(value).collect();
        Tensor::from_f64(dtype, dims, &values)
    }

    /// A tensor of a type of at most eight bits, made of the codes of its elements, one a byte; bits above
    /// those of the type are dropped. Panics for another type, and when the number of codes does not fit
    /// `dims`.
    pub fn from_codes(dtype: DType, dims: &[i64], codes: &[u8]) -> Tensor {
        let bits = dtype.bits() as usize;
        assert!(bits <= 8, "elements of {dtype} are larger than their codes would be");
        let storage = match 8 / bits {
            1 => Storage::copy_of(codes),
            per => Storage::build(codes.len().div_ceil(per), |to| {
                for (byte, codes) in to.iter_mut().zip(codes.chunks(per)) {
                    for (i, code) in codes.iter().enumerate() {
                        *byte |= (code & ((1 << bits) - 1)) << (i * bits);
                    }
                }
            }),
        };
        Tensor::new(dtype, dims, storage)
            .expect("the caller gives as many elements as the dims need")
    }

    /// The codes of the elements, one a byte. Panics for a type of more than eight bits.
    pub fn codes(&self) -> Cow<'_, [u8]> {
        let bits = self.dtype.bits() as usize;
        assert!(bits <= 8, "elements of {} are larger than their codes would be", self.dtype);
        match 8 / bits {
            1 => Cow::Borrowed(&*self.bytes),
            per => {
                let of = |byte: &u8| {
                    let byte = *byte;
                    (0..per).map(move |i| byte >> (i * bits) & ((1 << bits) - 1))
                };
                Cow::Owned(self.bytes.iter().flat_map(of).take(self.len()).collect())
            }
        }
    }

    /// A tensor of `values` rounded to the nearest element (ties to even for floats, those of at most eight
    /// bits as [`Narrowing::default`] says; integers round toward zero and saturate; `Bool` is true for
    /// all but 0). Panics when the number of values does not fit `dims`.
    pub fn from_f64(dtype: DType, dims: &[i64], values: &[f64]) -> Tensor {
        Tensor::from_f64_narrowing(dtype, dims, values, Narrowing::default())
    }

    /// [`Tensor::from_f64`], where `how` says what becomes of numbers that a float type of at most eight
    /// bits does not hold.
    pub fn from_f64_narrowing(
        dtype: DType,
        dims: &[i64],
        values: &[f64],
        how: Narrowing,
    ) -> Tensor {
        macro_rules! cast {
            ($ty:ty) => {
                Tensor::of(dims, &values.iter().map(|&v| v as $ty).collect::<Vec<_>>())
            };
        }
        match dtype {
            DType::F32 => cast!(f32),
            DType::F64 => Tensor::of(dims, values),
            DType::F16 => {
                Tensor::of(dims, &values.iter().map(|&v| f16::from_f64(v)).collect::<Vec<_>>())
            }
            DType::BF16 => {
                Tensor::of(dims, &values.iter().map(|&v| bf16::from_f64(v)).collect::<Vec<_>>())
            }
            DType::I8 => cast!(i8),
            DType::I16 => cast!(i16),
            DType::I32 => cast!(i32),
            DType::I64 => cast!(i64),
            DType::U8 => cast!(u8),
            DType::U16 => cast!(u16),
            DType::U32 => cast!(u32),
            DType::U64 => cast!(u64),
            DType::Bool => {
                Tensor::of_bool(dims, &values.iter().map(|&v| v != 0.0).collect::<Vec<_>>())
            }
            DType::I4 | DType::U4 | DType::I2 | DType::U2 => {
                let (low, high) = narrow_limits(dtype);
                let code = |v: &f64| v.clamp(low, high) as i64 as u8;
                Tensor::from_codes(dtype, dims, &values.iter().map(code).collect::<Vec<_>>())
            }
            DType::F8E4M3FN
            | DType::F8E4M3FNUZ
            | DType::F8E5M2
            | DType::F8E5M2FNUZ
            | DType::F8E8M0
            | DType::F4E2M1 => {
                let code = |v: &f64| encode_float(dtype, *v, how);
                Tensor::from_codes(dtype, dims, &values.iter().map(code).collect::<Vec<_>>())
            }
        }
    }

    /// A tensor of integers, wrapped to the width of `dtype`; for float types, rounded to nearest.
    /// Panics when the number of values does not fit `dims`.
    pub fn from_i64(dtype: DType, dims: &[i64], values: &[i64]) -> Tensor {
        macro_rules! cast {
            ($ty:ty) => {
                Tensor::of(dims, &values.iter().map(|&v| v as $ty).collect::<Vec<_>>())
            };
        }
        match dtype {
            DType::I8 => cast!(i8),
            DType::I16 => cast!(i16),
            DType::I32 => cast!(i32),
            DType::I64 => Tensor::of(dims, values),
            DType::U8 => cast!(u8),
            DType::U16 => cast!(u16),
            DType::U32 => cast!(u32),
            DType::U64 => cast!(u64),
            DType::Bool => {
                Tensor::of_bool(dims, &values.iter().map(|&v| v != 0).collect::<Vec<_>>())
            }
            DType::I4 | DType::U4 | DType::I2 | DType::U2 => {
                let codes: Vec<u8> = values.iter().map(|&v| v as u8).collect();
                Tensor::from_codes(dtype, dims, &codes)
            }
            float => {
                Tensor::from_f64(float, dims, &values.iter().map(|&v| v as f64).collect::<Vec<_>>())
            }
        }
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Dims, outermost first.
    pub fn dims(&self) -> &[i64] {
        &self.dims
    }

    /// Type with constant dims.
    pub fn ty(&self) -> TensorType {
        TensorType::fixed(self.dtype, &self.dims)
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.dims.iter().product::<i64>() as usize
    }

    /// Whether a dim is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements' bytes, row-major.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The shared bytes.
    pub fn storage(&self) -> &Storage {
        &self.bytes
    }

    /// The same elements under other dims.
    pub fn reshaped(&self, dims: &[i64]) -> Result<Tensor, TensorError> {
        Tensor::new(self.dtype, dims, self.bytes.clone())
    }

    /// The elements, borrowed when the bytes are aligned. Panics when `T` is not the element type
    /// (`u8` also reads `Bool`).
    pub fn elements<T: Element>(&self) -> Cow<'_, [T]> {
        let readable =
            self.dtype == T::DTYPE || (self.dtype == DType::Bool && T::DTYPE == DType::U8);
        assert!(readable, "elements are {}, asked for {}", self.dtype, T::DTYPE);
        match bytemuck::try_cast_slice(&self.bytes) {
            Ok(elements) => Cow::Borrowed(elements),
            Err(_) => Cow::Owned(bytemuck::allocation::pod_collect_to_vec(&self.bytes)),
        }
    }

    /// All elements as `f64`; 64-bit integers beyond 2^53 lose precision.
    pub fn to_f64(&self) -> Vec<f64> {
        macro_rules! cast {
            ($ty:ty) => {
                self.elements::<$ty>().iter().map(|&v| v as f64).collect()
            };
        }
        match self.dtype {
            DType::F32 => cast!(f32),
            DType::F64 => self.elements::<f64>().into_owned(),
            DType::F16 => self.elements::<f16>().iter().map(|v| v.to_f64()).collect(),
            DType::BF16 => self.elements::<bf16>().iter().map(|v| v.to_f64()).collect(),
            DType::I8 => cast!(i8),
            DType::I16 => cast!(i16),
            DType::I32 => cast!(i32),
            DType::I64 => cast!(i64),
            DType::U8 | DType::Bool => cast!(u8),
            DType::U16 => cast!(u16),
            DType::U32 => cast!(u32),
            DType::U64 => cast!(u64),
            DType::I4 | DType::U4 | DType::I2 | DType::U2 => {
                self.to_i64().into_iter().map(|v| v as f64).collect()
            }
            DType::F8E4M3FN
            | DType::F8E4M3FNUZ
            | DType::F8E5M2
            | DType::F8E5M2FNUZ
            | DType::F8E8M0
            | DType::F4E2M1 => {
                let numbers: Vec<f64> =
                    (0..=u8::MAX).map(|code| decode_float(self.dtype, code)).collect();
                self.codes().iter().map(|&code| numbers[usize::from(code)]).collect()
            }
        }
    }

    /// All elements as `i64`: floats truncated and saturated, `u64` beyond `i64::MAX` wrapped.
    pub fn to_i64(&self) -> Vec<i64> {
        macro_rules! cast {
            ($ty:ty) => {
                self.elements::<$ty>().iter().map(|&v| v as i64).collect()
            };
        }
        match self.dtype {
            DType::I8 => cast!(i8),
            DType::I16 => cast!(i16),
            DType::I32 => cast!(i32),
            DType::I64 => self.elements::<i64>().into_owned(),
            DType::U8 | DType::Bool => cast!(u8),
            DType::U16 => cast!(u16),
            DType::U32 => cast!(u32),
            DType::U64 => cast!(u64),
            DType::U4 | DType::U2 => self.codes().iter().map(|&v| i64::from(v)).collect(),
            DType::I4 | DType::I2 => {
                // The sign is the highest bit of the code.
                let above = 8 - self.dtype.bits();
                let extend = |&code: &u8| i64::from(((code << above) as i8) >> above);
                self.codes().iter().map(extend).collect()
            }
            _ => self.to_f64().into_iter().map(|v| v as i64).collect(),
        }
    }
}

/// Least and greatest number of an integer type of less than a byte.
fn narrow_limits(dtype: DType) -> (f64, f64) {
    let count = f64::from(1u8 << dtype.bits());
    if dtype.is_signed_int() { (-count / 2.0, count / 2.0 - 1.0) } else { (0.0, count - 1.0) }
}

/// Equal type, dims and bytes; NaNs with equal bits are equal, 0.0 and -0.0 are not.
impl PartialEq for Tensor {
    fn eq(&self, other: &Tensor) -> bool {
        self.dtype == other.dtype && self.dims == other.dims && *self.bytes == *other.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_must_fit() {
        let bytes = Storage::copy_of(&[0; 20]);
        assert!(Tensor::new(DType::F32, &[5], bytes.clone()).is_ok());
        assert!(matches!(
            Tensor::new(DType::F32, &[4], bytes.clone()),
            Err(TensorError::Size { needed: 16, .. })
        ));
        assert!(matches!(Tensor::new(DType::F32, &[-1], bytes), Err(TensorError::Dims { .. })));
        assert!(matches!(Tensor::zeros(DType::F64, &[i64::MAX, 4]), Err(TensorError::Dims { .. })));
    }

    #[test]
    fn unaligned_bytes_read_right() {
        let padded = Storage::build(13, |b| {
            b[1..13].copy_from_slice(bytemuck::cast_slice(&[1f32, 2.0, 3.0]))
        });
        let t = Tensor::new(DType::F32, &[3], padded.slice(1, 12)).unwrap();
        assert_eq!(&*t.elements::<f32>(), &[1.0, 2.0, 3.0]);
    }

    #[test]
    fn every_dtype_converts_both_ways() {
        for &dtype in DType::ALL {
            // A scale has no zero.
            let zero = if dtype == DType::F8E8M0 { 2f64.powi(-127) } else { 0.0 };
            let t = Tensor::from_i64(dtype, &[2], &[0, 1]);
            assert_eq!((t.to_f64(), t.to_i64()), (vec![zero, 1.0], vec![0, 1]), "{dtype}");
            assert_eq!(t, Tensor::from_f64(dtype, &[2], &[0.0, 1.0]));
        }
        assert_eq!(Tensor::of(&[1], &[i64::MAX]).to_i64(), [i64::MAX]);
    }

    #[test]
    fn elements_below_a_byte_lie_lowest_bits_first() {
        let t = Tensor::from_i64(DType::I4, &[3], &[1, -2, 7]);
        assert_eq!(t.bytes(), [0xE1, 0x07]);
        assert_eq!(t.to_i64(), [1, -2, 7]);
        let t = Tensor::from_i64(DType::U2, &[5], &[0, 1, 2, 3, 2]);
        assert_eq!(t.bytes(), [0b1110_0100, 0b10]);
        assert_eq!(t.to_f64(), [0.0, 1.0, 2.0, 3.0, 2.0]);
        let t = Tensor::from_f64(DType::F4E2M1, &[2, 1], &[-6.0, 0.5]);
        assert_eq!(t.bytes(), [0x1F]);
        assert_eq!(*t.codes(), [0xF, 0x1]);
        assert_eq!(Tensor::from_codes(DType::F4E2M1, &[2, 1], &t.codes()), t);
    }

    #[test]
    fn integers_below_a_byte_saturate_or_wrap() {
        for (dtype, low, high) in
            [(DType::I4, -8, 7), (DType::U4, 0, 15), (DType::I2, -2, 1), (DType::U2, 0, 3)]
        {
            for v in -40i64..40 {
                let near = Tensor::from_f64(dtype, &[1], &[v as f64 + 0.4 * v.signum() as f64]);
                assert_eq!(near.to_i64(), [v.clamp(low, high)], "{dtype} {v}");
                let wrapped = Tensor::from_i64(dtype, &[1], &[v]).to_i64()[0];
                assert!((low..=high).contains(&wrapped));
                assert_eq!((wrapped - v).rem_euclid(high - low + 1), 0, "{dtype} {v}");
            }
            assert_eq!(Tensor::from_f64(dtype, &[1], &[f64::NAN]).to_i64(), [0]);
        }
    }
}
