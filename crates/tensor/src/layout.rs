//! Moving elements between row-major order and the other layouts, plainly: the reference for every
//! conversion kernel.

use crate::{Format, Layout, Storage, Tensor, TensorError};

impl Format {
    /// The elements of `tensor` in this format, padding zero.
    ///
    /// Returns `None` when the element type differs, or the layout does not fit the rank, or elements of
    /// less than a byte lie in another order than row-major.
    pub fn pack(&self, tensor: &Tensor) -> Option<Storage> {
        if self.dtype != tensor.dtype() {
            return None;
        }
        if self.layout == Layout::Plain {
            return Some(tensor.storage().clone());
        }
        let len = usize::try_from(self.byte_len(tensor.dims())?).ok()?;
        if self.dtype.bits() < 8 {
            return None;
        }
        Some(Storage::build(len, |to| match self.dtype.bits() / 8 {
            1 => self.pack_elements::<1>(tensor, to),
            2 => self.pack_elements::<2>(tensor, to),
            4 => self.pack_elements::<4>(tensor, to),
            _ => self.pack_elements::<8>(tensor, to),
        }))
    }

    fn pack_elements<const SIZE: usize>(&self, tensor: &Tensor, to: &mut [u8]) {
        let (from, to) = (tensor.bytes().as_chunks::<SIZE>().0, to.as_chunks_mut::<SIZE>().0);
        self.for_each_line(tensor.dims(), |Line { plain, packed, len, step }| {
            let to = to[packed..].iter_mut().step_by(step);
            to.zip(&from[plain..plain + len]).for_each(|(to, from)| *to = *from);
        });
    }

    /// The tensor with logical `dims` whose elements lie in `bytes` in this format.
    ///
    /// Fails when the layout does not fit the rank, the number of bytes is wrong, or elements of less than
    /// a byte lie in another order than row-major.
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
        if self.layout == Layout::Plain {
            return Tensor::new(self.dtype, dims, Storage::copy_of(bytes));
        }
        if self.dtype.bits() < 8 {
            return Err(impossible());
        }
        let plain = Format::plain(self.dtype).byte_len(dims).ok_or_else(impossible)? as usize;
        let storage = Storage::build(plain, |to| match self.dtype.bits() / 8 {
            1 => self.unpack_elements::<1>(dims, bytes, to),
            2 => self.unpack_elements::<2>(dims, bytes, to),
            4 => self.unpack_elements::<4>(dims, bytes, to),
            _ => self.unpack_elements::<8>(dims, bytes, to),
        });
        Tensor::new(self.dtype, dims, storage)
    }

    fn unpack_elements<const SIZE: usize>(&self, dims: &[i64], from: &[u8], to: &mut [u8]) {
        let (from, to) = (from.as_chunks::<SIZE>().0, to.as_chunks_mut::<SIZE>().0);
        self.for_each_line(dims, |Line { plain, packed, len, step }| {
            let from = from[packed..].iter().step_by(step);
            to[plain..plain + len].iter_mut().zip(from).for_each(|(to, from)| *to = *from);
        });
    }

    /// Visits every line of a tensor in a layout that names the channels: a few channels of the
    /// same place one after the other, so that both sides stay in the cache.
    fn for_each_line(&self, dims: &[i64], mut visit: impl FnMut(Line)) {
        let (Some(strides), Some(origin)) = (self.strides(dims), self.origin(dims)) else { return };
        let &[images, channels, ref outer @ .., len] = dims else { return };
        let (block, channel_step) = match self.layout {
            Layout::Blocked { block, .. } => (i64::from(block), 1),
            _ => (CHANNELS, strides[1]),
        };
        let blocks = (channels + block - 1) / block;
        let block_step = match self.layout {
            Layout::Blocked { .. } => strides[1],
            _ => block * channel_step,
        };
        let lines: i64 = outer.iter().product();
        for (image, b) in (0..images).flat_map(|image| (0..blocks).map(move |b| (image, b))) {
            for line in 0..lines {
                let (mut start, mut rest) = (origin + image * strides[0] + b * block_step, line);
                for (&size, &stride) in outer.iter().zip(&strides[2..]).rev() {
                    start += rest % size * stride;
                    rest /= size;
                }
                for c in 0..block.min(channels - b * block) {
                    visit(Line {
                        plain: (((image * channels + b * block + c) * lines + line) * len) as usize,
                        packed: (start + c * channel_step) as usize,
                        len: len as usize,
                        step: strides[dims.len() - 1] as usize,
                    });
                }
            }
        }
    }
}

/// Channels that are moved together where the layout does not say: a cache line of `f32`.
const CHANNELS: i64 = 16;

/// Neighbours along the innermost dim.
struct Line {
    /// Row-major index of the first.
    plain: usize,
    /// Index of the first in the other layout.
    packed: usize,
    /// How many there are.
    len: usize,
    /// Steps between them in the other layout.
    step: usize,
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

    /// Where an element lies, from the meaning of the layouts.
    fn index(format: &Format, dims: &[i64], at: &[i64]) -> usize {
        let (halo, block) = match format.layout {
            Layout::ChannelsLast { halo } => (halo, dims[1]),
            Layout::Blocked { block, halo } => (halo, i64::from(block)),
            _ => (0, 0),
        };
        if block == 0 {
            return at.iter().zip(dims).fold(0, |flat, (i, d)| flat * d + i) as usize;
        }
        let mut flat = at[0] * ((dims[1] + block - 1) / block) + at[1] / block;
        for (i, d) in at[2..].iter().zip(&dims[2..]) {
            flat = flat * (d + 2 * i64::from(halo)) + i + i64::from(halo);
        }
        (flat * block + at[1] % block) as usize
    }

    proptest::proptest! {
        #[test]
        fn elements_lie_where_the_layout_says(
            dims in proptest::collection::vec(1i64..20, 3..6),
            dtype in proptest::sample::select(DType::ALL),
            block in proptest::sample::select(&[1u8, 3, 8, 16]),
            halo in 0u8..3,
            kind in 0..3,
        ) {
            let layout = match kind {
                0 => Layout::Plain,
                1 => Layout::ChannelsLast { halo },
                _ => Layout::Blocked { block, halo },
            };
            let format = Format { dtype, layout };
            let dims: Vec<i64> = dims.iter().enumerate().map(|(d, &n)| if d < 2 { n } else { n % 6 + 1 }).collect();
            proptest::prop_assume!(dtype.bits() >= 8);
            let size = (dtype.bits() / 8) as usize;
            let count = dims.iter().product::<i64>() as usize;
            let bytes: Vec<u8> = (0..count * size).map(|i| (i * 37 % 251) as u8 + 1).collect();
            let tensor = Tensor::new(dtype, &dims, Storage::copy_of(&bytes)).unwrap();
            let mut expected = vec![0u8; format.byte_len(&dims).unwrap() as usize];
            for plain in 0..count {
                let mut rest = plain as i64;
                let mut at = dims.clone();
                for (i, d) in at.iter_mut().zip(&dims).rev() {
                    (*i, rest) = (rest % d, rest / d);
                }
                expected[index(&format, &dims, &at) * size..][..size]
                    .copy_from_slice(&bytes[plain * size..][..size]);
            }
            proptest::prop_assert_eq!(&*format.pack(&tensor).unwrap(), &expected[..]);
            proptest::prop_assert_eq!(format.unpack(&dims, &expected).unwrap(), tensor);
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
