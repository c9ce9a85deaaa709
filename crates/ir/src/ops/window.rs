//! Sliding windows: where an output position reads, and how many there are.

use super::types::attribute;
use crate::{Index, Part, TypeError};
use bricolage_tensor::Dim;

/// Most spatial dims that windows slide over.
pub(crate) const MOST_SPATIAL: usize = 3;

/// The window of one spatial dim.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slide {
    pub(crate) stride: i64,
    pub(crate) dilation: i64,
    pub(crate) pad: (i64, i64),
}

/// Collects per-dim attributes, which must all have one entry per spatial dim.
pub(crate) fn slides(
    spatial: usize,
    strides: &[i64],
    dilations: &[i64],
    pads: &[(i64, i64)],
) -> Result<Vec<Slide>, TypeError> {
    let entries = format!("{spatial} numbers above 0");
    if strides.len() != spatial || strides.iter().any(|&s| s < 1) {
        return Err(attribute("strides", entries, strides));
    }
    if dilations.len() != spatial || dilations.iter().any(|&d| d < 1) {
        return Err(attribute("dilations", entries, dilations));
    }
    if pads.len() != spatial || pads.iter().any(|p| p.0 < 0 || p.1 < 0) {
        return Err(attribute("pads", format!("{spatial} pairs of at least 0"), pads));
    }
    Ok((0..spatial)
        .map(|d| Slide { stride: strides[d], dilation: dilations[d], pad: pads[d] })
        .collect())
}

impl Slide {
    /// Positions of a window of `kernel` taps over a dim of `size`. Fails when the window is larger
    /// than the padded dim, unless the dim is empty or part of a window counts (`ceil`).
    pub(crate) fn positions(&self, size: &Dim, kernel: &Dim, ceil: bool) -> Result<Dim, TypeError> {
        let reach = (kernel - &Dim::from(1)) * Dim::from(self.dilation) + Dim::from(1);
        let padded = size + &Dim::from(self.pad.0 + self.pad.1);
        let room = &padded - &reach;
        let (stride, one) = (Dim::from(self.stride), Dim::from(1));
        let positions = if ceil {
            // The last window starts inside the operand or its leading padding.
            let last = (size + &Dim::from(self.pad.0 - 1)).floor_div(&stride);
            room.ceil_div(&stride).smaller(&last) + one
        } else {
            room.floor_div(&stride) + one
        };
        let too_large = match positions.as_const() {
            Some(n) if size.as_const() == Some(0) => n < 0,
            Some(n) if ceil => n < 1,
            _ => room.as_const().is_some_and(|r| r < 0),
        };
        match too_large {
            true => Err(TypeError::Attribute {
                name: "kernel",
                expected: format!("no larger than the padded dim of {padded}"),
                got: format!("a window over {reach}"),
            }),
            false => Ok(positions),
        }
    }

    /// Where output position `at` with tap `tap` reads.
    pub(crate) fn index(&self, at: usize, tap: usize) -> Index {
        let index = Index::default().plus(at, self.stride).plus(tap, self.dilation);
        Index { window: true, ..index.shifted(&Dim::from(-self.pad.0)) }
    }
}

/// The padding of a part: that of the whole, but for the spatial dim that is split (axis `o0`
/// splits positions of dim 0, `k0` its taps).
pub(crate) fn part_pads(part: &Part, whole: &[(i64, i64)]) -> Vec<(i64, i64)> {
    let mut pads = whole.to_vec();
    let windows = part.inputs[0].as_deref().unwrap_or_default();
    for (d, pad) in pads.iter_mut().enumerate() {
        if part.name == format!("o{d}") || part.name == format!("k{d}") {
            *pad = (windows[2 + d].before, windows[2 + d].after);
        }
    }
    pads
}

/// Spatial sizes with leading dims of 1, so that every case has [`MOST_SPATIAL`] of them.
pub(crate) fn lead<T: Copy>(values: &[T], fill: T) -> [T; MOST_SPATIAL] {
    let mut all = [fill; MOST_SPATIAL];
    all[MOST_SPATIAL - values.len()..].copy_from_slice(values);
    all
}

/// All positions of a box, outermost dim slowest.
pub(crate) fn positions(sizes: [usize; MOST_SPATIAL]) -> impl Iterator<Item = [i64; MOST_SPATIAL]> {
    let count = sizes.iter().product::<usize>();
    let [_, b, c] = sizes;
    (0..count).map(move |i| [(i / (b * c)) as i64, (i / c % b) as i64, (i % c) as i64])
}
