//! Moving elements between row-major order and the other layouts, plainly: the reference for every
//! conversion kernel.

use crate::{Format, Layout, Storage, Tensor, TensorError};

impl Format {
    /// The elements of `tensor` in this format, padding zero.
    ///
    /// Returns `None` when the element type differs, or the layout does not fit the rank.
    pub fn pack(&self, tensor: &Tensor) -> Option<Storage> {
        if self.dtype != tensor.dtype() {
            return None;
        }
        if self.layout == Layout::Plain {
            return Some(tensor.storage().clone());
        }
        let len = usize::try_from(self.byte_len(tensor.dims())?).ok()?;
        let size = (self.dtype.bits() / 8) as usize;
        Some(Storage::build(len, |to| {
            self.for_each(tensor.dims(), |plain, packed| {
                to[packed * size..][..size]
                    .copy_from_slice(&tensor.bytes()[plain * size..][..size]);
            });
        }))
    }

    /// The tensor with logical `dims` whose elements lie in `bytes` in this format.
    ///
    /// Fails when the layout does not fit the rank or the number of bytes is wrong.
    pub fn unpack(&self, dims: &[i64], bytes: &[u8]) -> Result<Tensor, TensorError> {
        let impossible = || TensorError::Dims { dtype: self.dtype, dims: dims.to_vec() };
        let needed = self.byte_len(dims).ok_or_else(impossible)?;
        if needed != bytes.len() as u64 {
            let found = bytes.len() as u64;
            return Err(TensorError::Size {
                dtype: self.dtype,
                dims: dims.to_vec(),
                needed,
                found,
            });
        }
        let size = (self.dtype.bits() / 8) as usize;
        let plain = Format::plain(self.dtype).byte_len(dims).ok_or_else(impossible)? as usize;
        let storage = Storage::build(plain, |to| {
            self.for_each(dims, |plain, packed| {
                to[plain * size..][..size].copy_from_slice(&bytes[packed * size..][..size]);
            });
        });
        Tensor::new(self.dtype, dims, storage)
    }

    /// Calls `visit(row-major index, index in this format)` for every element.
    fn for_each(&self, dims: &[i64], mut visit: impl FnMut(usize, usize)) {
        let (Some(strides), Some(origin)) = (self.strides(dims), self.origin(dims)) else { return };
        let block = match self.layout {
            Layout::Blocked { block, .. } => i64::from(block),
            _ => 1,
        };
        let count: i64 = dims.iter().product();
        let mut at = vec![0i64; dims.len()];
        for plain in 0..count {
            let mut packed = origin;
            for (d, (&i, &stride)) in at.iter().zip(&strides).enumerate() {
                packed +=
                    if d == 1 && block > 1 { (i / block) * stride + i % block } else { i * stride };
            }
            visit(plain as usize, packed as usize);
            for d in (0..dims.len()).rev() {
                at[d] += 1;
                if at[d] < dims[d] {
                    break;
                }
                at[d] = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    #[test]
    fn every_layout_round_trips() {
        let dims = [2, 11, 3, 5];
        let tensor = Tensor::generate(DType::F32, &dims, |i| i as f64);
        for layout in [
            Layout::Plain,
            Layout::ChannelsLast { halo: 0 },
            Layout::ChannelsLast { halo: 2 },
            Layout::Blocked { block: 8, halo: 0 },
            Layout::Blocked { block: 16, halo: 1 },
        ] {
            let format = Format { dtype: DType::F32, layout };
            let packed = format.pack(&tensor).unwrap();
            assert_eq!(format.unpack(&dims, &packed).unwrap(), tensor, "{format}");
            let sum = |b: &[u8]| -> f32 {
                bytemuck::allocation::pod_collect_to_vec::<u8, f32>(b).iter().sum()
            };
            assert_eq!(sum(&packed), sum(tensor.bytes()), "the padding of {format} is zero");
        }
    }

    #[test]
    fn channels_last_puts_channels_together() {
        let tensor = Tensor::of(&[1, 2, 1, 3], &[1f32, 2.0, 3.0, 10.0, 20.0, 30.0]);
        let format = Format { dtype: DType::F32, layout: Layout::ChannelsLast { halo: 0 } };
        let packed = format.pack(&tensor).unwrap();
        assert_eq!(*packed, *Tensor::of(&[6], &[1f32, 10.0, 2.0, 20.0, 3.0, 30.0]).bytes());
        assert!(format.pack(&Tensor::of(&[2], &[1f32, 2.0])).is_none());
    }
}
