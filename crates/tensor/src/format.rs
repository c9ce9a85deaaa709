//! Formats: how the elements of a value lie in memory.

use crate::DType;
use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};

/// The order in which the elements of a tensor lie in memory.
///
/// Dim 0 is the batch and dim 1 the channels of layouts that name them; a layout other than
/// [`Layout::Plain`] and [`Layout::Opaque`] needs a rank of at least 3.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Layout {
    /// Row-major, the last dim contiguous.
    Plain,
    /// `[n, spatial.., c]`, with `halo` zero elements before and after each spatial dim.
    ChannelsLast {
        /// Zero elements on each side of every spatial dim.
        halo: u8,
    },
    /// `[n, ceil(c / block), spatial.., block]`; missing channels are zero, and so is the halo.
    Blocked {
        /// Channels that lie next to each other.
        block: u8,
        /// Zero elements on each side of every spatial dim.
        halo: u8,
    },
    /// Known to one backend only; for constants that a kernel has packed.
    Opaque(Arc<str>),
}

/// Element type and layout of a value in memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Format {
    /// Type of one element as stored.
    pub dtype: DType,
    /// Order of the elements.
    pub layout: Layout,
}

impl Format {
    /// Row-major elements of `dtype`.
    pub const fn plain(dtype: DType) -> Format {
        Format { dtype, layout: Layout::Plain }
    }

    /// The physical dims of a tensor with logical `dims` in this format, outermost first.
    ///
    /// Returns `None` when the layout does not fit the rank, or is opaque.
    pub fn physical_dims(&self, dims: &[i64]) -> Option<Vec<i64>> {
        let spatial = |halo: u8| dims[2..].iter().map(move |d| d + 2 * i64::from(halo));
        match self.layout {
            Layout::Plain => Some(dims.to_vec()),
            _ if dims.len() < 3 => None,
            Layout::ChannelsLast { halo } => {
                Some([dims[0]].into_iter().chain(spatial(halo)).chain([dims[1]]).collect())
            }
            Layout::Blocked { block, halo } => {
                let block = i64::from(block);
                let blocks = (dims[1] + block - 1) / block;
                Some([dims[0], blocks].into_iter().chain(spatial(halo)).chain([block]).collect())
            }
            Layout::Opaque(_) => None,
        }
    }

    /// Bytes of a dense tensor with logical `dims` in this format, padding included.
    ///
    /// Returns `None` when the layout does not fit, or on overflow.
    pub fn byte_len(&self, dims: &[i64]) -> Option<u64> {
        let elements = self
            .physical_dims(dims)?
            .iter()
            .try_fold(1u64, |n, &d| n.checked_mul(u64::try_from(d).ok()?))?;
        self.dtype.byte_len(elements)
    }

    /// Distance in elements between neighbours along each logical dim of a dense tensor.
    ///
    /// For [`Layout::Blocked`] the channel stride is the distance between two channel *blocks*;
    /// inside a block channels are neighbours. The first element (index 0 everywhere) lies at
    /// [`Format::origin`].
    pub fn strides(&self, dims: &[i64]) -> Option<Vec<i64>> {
        let physical = self.physical_dims(dims)?;
        let mut dense = vec![1i64; physical.len()];
        for d in (1..physical.len()).rev() {
            dense[d - 1] = dense[d] * physical[d];
        }
        match self.layout {
            Layout::Plain => Some(dense),
            Layout::ChannelsLast { .. } => {
                let channel = dense.pop()?;
                dense.insert(1, channel);
                Some(dense)
            }
            Layout::Blocked { .. } => {
                dense.pop();
                Some(dense)
            }
            Layout::Opaque(_) => None,
        }
    }

    /// Offset in elements of the element with index 0 along every dim: past the leading halo.
    pub fn origin(&self, dims: &[i64]) -> Option<i64> {
        let halo = match self.layout {
            Layout::ChannelsLast { halo } | Layout::Blocked { halo, .. } => i64::from(halo),
            _ => 0,
        };
        let strides = self.strides(dims)?;
        Some(strides.iter().skip(2).map(|s| s * halo).sum())
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let halo = |f: &mut fmt::Formatter<'_>, halo: u8| match halo {
            0 => Ok(()),
            n => write!(f, "+{n}"),
        };
        match self {
            Layout::Plain => f.write_str("plain"),
            Layout::ChannelsLast { halo: n } => {
                f.write_str("channels-last").and_then(|()| halo(f, *n))
            }
            Layout::Blocked { block, halo: n } => {
                write!(f, "blocked{block}").and_then(|()| halo(f, *n))
            }
            Layout::Opaque(tag) => write!(f, "packed:{tag}"),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.dtype, self.layout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocked_layouts_pad_channels_and_halo() {
        let format = Format { dtype: DType::F32, layout: Layout::Blocked { block: 8, halo: 1 } };
        let dims = [2, 12, 5, 7];
        assert_eq!(format.physical_dims(&dims), Some(vec![2, 2, 7, 9, 8]));
        assert_eq!(format.byte_len(&dims), Some(4 * 2 * 2 * 7 * 9 * 8));
        assert_eq!(format.strides(&dims), Some(vec![2 * 7 * 9 * 8, 7 * 9 * 8, 9 * 8, 8]));
        assert_eq!(format.origin(&dims), Some(9 * 8 + 8));
        assert_eq!(format.to_string(), "f32:blocked8+1");
    }

    #[test]
    fn channels_last_strides_follow_logical_order() {
        let format = Format { dtype: DType::F32, layout: Layout::ChannelsLast { halo: 0 } };
        assert_eq!(format.strides(&[1, 3, 4, 5]), Some(vec![60, 1, 15, 3]));
        assert_eq!(format.strides(&[3, 4]), None);
    }
}
