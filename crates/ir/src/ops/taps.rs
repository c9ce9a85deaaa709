//! Evaluation of convolutions: which elements every output position sums over.

use super::{
    conv::{Conv, ConvTranspose},
    elements::sizes,
    window::{MOST_SPATIAL, Slide, lead, positions, slides},
};
use crate::{
    EvalError,
    contract::{self, Number, Sizes, Strip},
};
use bricolage_tensor::{DType, Tensor};

/// A (transposed) convolution as products `[m, c * k] x [c * k, o]`, one per image and group.
pub(crate) struct Taps {
    sizes: Sizes,
    groups: usize,
    /// Input channels per group.
    channels: usize,
    /// Spatial sizes of the input.
    image: [i64; MOST_SPATIAL],
    /// Offset of each (channel, tap) pair within a group of the input, before the position.
    inner: Vec<(usize, [i64; MOST_SPATIAL])>,
    /// Reading position of each output position, without the tap.
    outer: Vec<[i64; MOST_SPATIAL]>,
    /// Only multiples of this are input positions; the quotient is the position.
    step: [i64; MOST_SPATIAL],
    /// Steps between windows, and output positions.
    stride: [i64; MOST_SPATIAL],
    out: [usize; MOST_SPATIAL],
    transposed: bool,
}

impl Taps {
    pub(crate) fn of_conv(
        op: &Conv,
        x: &Tensor,
        w: &Tensor,
        out: &[i64],
    ) -> Result<Taps, EvalError> {
        let slides = op.slides(x.dims().len() - 2)?;
        Ok(Taps::new(&slides, op.groups, x, w.dims(), out, false))
    }

    pub(crate) fn of_transpose(
        op: &ConvTranspose,
        x: &Tensor,
        w: &Tensor,
        out: &[i64],
    ) -> Result<Taps, EvalError> {
        let slides = slides(x.dims().len() - 2, &op.strides, &op.dilations, &op.pads)?;
        Ok(Taps::new(&slides, op.groups, x, w.dims(), out, true))
    }

    fn new(
        slides: &[Slide],
        groups: i64,
        x: &Tensor,
        w: &[i64],
        out: &[i64],
        transposed: bool,
    ) -> Taps {
        let (shape, w, out) = (sizes(x.dims()), sizes(w), sizes(out));
        let groups = groups as usize;
        let channels = shape[1] / groups;
        let pick =
            |f: fn(&Slide) -> i64, fill: i64| lead(&slides.iter().map(f).collect::<Vec<_>>(), fill);
        let (stride, dilation) = (pick(|s| s.stride, 1), pick(|s| s.dilation, 1));
        let pad = pick(|s| s.pad.0, 0);
        let plane: usize = shape[2..].iter().product();
        let taps: Vec<[i64; MOST_SPATIAL]> = positions(lead(&w[2..], 1))
            .map(|k| std::array::from_fn(|d| k[d] * dilation[d] * if transposed { -1 } else { 1 }))
            .collect();
        let outer = positions(lead(&out[2..], 1)).map(|o| {
            std::array::from_fn(
                |d| if transposed { o[d] + pad[d] } else { o[d] * stride[d] - pad[d] },
            )
        });
        let mut outer: Vec<[i64; MOST_SPATIAL]> = outer.collect();
        let mut image = lead(&shape[2..].iter().map(|&d| d as i64).collect::<Vec<_>>(), 1);
        let mut result = lead(&out[2..], 1);
        let (dense, aligned) = (stride == [1; MOST_SPATIAL], pad == [0; MOST_SPATIAL]);
        if dense && aligned && taps.len() == 1 && shape[2..] == out[2..] {
            // Every position reads its own place: the image is one line.
            image = [1, 1, plane as i64];
            result = [1, 1, plane];
            outer = (0..plane as i64).map(|p| [0, 0, p]).collect();
        }
        Taps {
            sizes: Sizes {
                batches: shape[0] * groups,
                m: out[1] / groups,
                n: outer.len(),
                k: channels * taps.len(),
            },
            groups,
            channels,
            image,
            inner: (0..channels).flat_map(|c| taps.iter().map(move |&t| (c * plane, t))).collect(),
            outer,
            step: if transposed { stride } else { [1; MOST_SPATIAL] },
            stride,
            out: result,
            transposed,
        }
    }

    fn weight<S: Copy>(&self, w: &[S], batch: usize, row: usize, l: usize) -> S {
        let (g, m) = (batch % self.groups, self.sizes.m);
        if self.transposed {
            let taps = self.inner.len() / self.channels;
            w[((g * self.channels + l / taps) * m + row) * taps + l % taps]
        } else {
            w[(g * m + row) * self.sizes.k + l]
        }
    }

    fn input<S: Copy + Default>(&self, x: &[S], batch: usize, l: usize, column: usize) -> S {
        let ((offset, tap), at) = (self.inner[l], self.outer[column]);
        let [h, w, d] = self.image;
        let mut p = [at[0] + tap[0], at[1] + tap[1], at[2] + tap[2]];
        if self.transposed {
            for (p, step) in p.iter_mut().zip(self.step) {
                if *p % step != 0 {
                    return S::default();
                }
                *p /= step;
            }
        }
        let inside = (0..h).contains(&p[0]) && (0..w).contains(&p[1]) && (0..d).contains(&p[2]);
        if !inside {
            return S::default();
        }
        let base = batch * self.channels * (h * w * d) as usize + offset;
        x[base + ((p[0] * w + p[1]) * d + p[2]) as usize]
    }

    fn run<S, T>(
        &self,
        x: &[S],
        w: &[S],
        bias: Option<&[S]>,
        round: impl Fn(T) -> S + Sync,
    ) -> Vec<S>
    where
        S: Copy + Default + Into<T> + Send + Sync,
        T: Number,
    {
        let Sizes { batches, m, n, .. } = self.sizes;
        if self.channels == 1 && !self.transposed && batches * m * n > 0 {
            let (mut to, phases) = (vec![S::default(); batches * m * n], Phases::new(self));
            let lane = |scratch: &mut (Vec<T>, Vec<T>), i: usize, lane: &mut [S]| {
                let (batch, row) = (i / m, i % m);
                let weights = &w[(batch % self.groups * m + row) * phases.starts.len()..];
                phases.sums::<S, T>(&x[batch * phases.image()..], weights, scratch);
                let bias = bias.map(|b| b[batch % self.groups * m + row].into());
                phases.lines(&scratch.1).zip(lane.chunks_mut(self.out[2])).for_each(
                    |(sums, to)| {
                        for (slot, &sum) in to.iter_mut().zip(sums) {
                            *slot = round(bias.map_or(sum, |b: T| sum.add(b)));
                        }
                    },
                );
            };
            contract::lanes(&mut to, n, self.sizes.k, || phases.scratch(), lane);
            return to;
        }
        contract::products(
            self.sizes,
            |batch, rows| self.filters(w, batch, rows),
            |batch, columns| self.windows(x, batch, columns),
            |batch, row, sum| {
                let bias = bias.map(|b| b[batch % self.groups * m + row].into());
                round(bias.map_or(sum, |b: T| sum.add(b)))
            },
        )
    }

    /// Fills a strip with filters, one lane per output channel.
    fn filters<S, T, const W: usize>(&self, w: &[S], batch: usize, strip: &mut Strip<'_, T, W>)
    where
        S: Copy + Into<T>,
        T: Number,
    {
        let Sizes { m, k, .. } = self.sizes;
        if !self.transposed {
            return strip.fill(&w[batch % self.groups * m * k..], k, 1);
        }
        let taps = self.inner.len() / self.channels;
        for (line, l) in strip.lines.iter_mut().zip(strip.term..) {
            let channel = batch % self.groups * self.channels + l / taps;
            let from = w[(channel * m + strip.first) * taps + l % taps..].iter().step_by(taps);
            line[..strip.lanes].iter_mut().zip(from).for_each(|(slot, &v)| *slot = v.into());
        }
    }

    /// Fills a strip with windows of the input, one lane per output position.
    fn windows<S, T, const W: usize>(&self, x: &[S], batch: usize, strip: &mut Strip<'_, T, W>)
    where
        S: Copy + Default + Into<T>,
        T: Number,
    {
        let [height, width, depth] = self.image;
        let plane = (height * width * depth) as usize;
        let x = &x[batch * self.channels * plane..];
        let mut lane = 0;
        while lane < strip.lanes {
            // Neighbouring output positions that differ in the innermost dim alone.
            let column = strip.first + lane;
            let run = self.out[2] - column % self.out[2];
            let lanes = lane..strip.lanes.min(lane + run);
            let at = self.outer[column];
            for (line, &(offset, tap)) in strip.lines.iter_mut().zip(&self.inner[strip.term..]) {
                let to = &mut line[lanes.clone()];
                let (y, z) = (at[0] + tap[0], at[1] + tap[1]);
                let (Some(y), Some(z)) =
                    (place(y, self.step[0], height), place(z, self.step[1], width))
                else {
                    to.fill(T::default());
                    continue;
                };
                let from = &x[offset + ((y * width + z) * depth) as usize..][..depth as usize];
                self.positions(from, at[2] + tap[2], to);
            }
            lane = lanes.end;
        }
    }

    /// Copies the elements of one line of the input that neighbouring output positions read, zero
    /// where there is none; the first of them reads at `first`.
    #[inline(always)]
    fn positions<S, T>(&self, from: &[S], first: i64, to: &mut [T])
    where
        S: Copy + Default + Into<T>,
        T: Number,
    {
        let (stride, step) = (self.stride[2], self.step[2]);
        if step > 1 {
            // Every `step`-th position reads, at neighbouring places.
            let skip = (-first).rem_euclid(step);
            to.fill(T::default());
            let places = (first + skip) / step..from.len() as i64;
            for (slot, at) in to.iter_mut().skip(skip as usize).step_by(step as usize).zip(places) {
                if at >= 0 {
                    *slot = from[at as usize].into();
                }
            }
            return;
        }
        let last = first + (to.len() as i64 - 1) * stride;
        if first < 0 || last >= from.len() as i64 {
            for (slot, at) in to.iter_mut().zip((first..).step_by(stride as usize)) {
                let inside = usize::try_from(at).ok().and_then(|at| from.get(at));
                *slot = inside.copied().unwrap_or_default().into();
            }
        } else if stride == 1 {
            let from = &from[first as usize..][..to.len()];
            to.iter_mut().zip(from).for_each(|(slot, &v)| *slot = v.into());
        } else {
            let from = from[first as usize..].iter().step_by(stride as usize);
            to.iter_mut().zip(from).for_each(|(slot, &v)| *slot = v.into());
        }
    }

    pub(crate) fn eval(
        &self,
        x: &Tensor,
        w: &Tensor,
        bias: Option<&Tensor>,
        dtype: DType,
        dims: &[i64],
    ) -> Tensor {
        match dtype {
            DType::F32 => {
                let bias = bias.map(Tensor::elements::<f32>);
                let (x, w) = (x.elements::<f32>(), w.elements::<f32>());
                Tensor::of(dims, &self.run::<f32, f64>(&x, &w, bias.as_deref(), |v| v as f32))
            }
            d if d.is_float() => {
                let bias = bias.map(Tensor::to_f64);
                let to = self.run::<f64, f64>(&x.to_f64(), &w.to_f64(), bias.as_deref(), |v| v);
                Tensor::from_f64(d, dims, &to)
            }
            d => {
                let bias = bias.map(Tensor::to_i64);
                let to = self.run::<i64, i64>(&x.to_i64(), &w.to_i64(), bias.as_deref(), |v| v);
                Tensor::from_i64(d, dims, &to)
            }
        }
    }

    /// Output element `flat`, without computing the others.
    pub(crate) fn at<S, T>(&self, x: &[S], w: &[S], bias: Option<&[S]>, flat: usize) -> T
    where
        S: Copy + Default + Into<T>,
        T: Number,
    {
        let Sizes { m, n, k, .. } = self.sizes;
        let (batch, row, column) = (flat / (m * n), flat / n % m, flat % n);
        let sum = contract::product_at(
            k,
            |l| self.weight(w, batch, row, l).into(),
            |l| self.input(x, batch, l, column).into(),
        );
        match bias {
            Some(b) => sum.add(b[batch % self.groups * m + row].into()),
            None => sum,
        }
    }
}

/// The place in a dim of `size` that `at` stands for when only multiples of `step` are places.
#[inline(always)]
fn place(at: i64, step: i64, size: i64) -> Option<i64> {
    let place = match step {
        1 => at,
        _ if at % step == 0 => at / step,
        _ => return None,
    };
    (0..size).contains(&place).then_some(place)
}

/// Most sums that are added to in one go, so that they stay in the first-level cache.
const SUMS: usize = 2048;

/// One plane of the input of a depthwise convolution, padded, and taken apart by position modulo
/// stride: whatever a tap reads for neighbouring output positions lies next to each other, from the
/// first output position to the last.
struct Phases {
    image: [usize; MOST_SPATIAL],
    stride: [usize; MOST_SPATIAL],
    out: [usize; MOST_SPATIAL],
    pad: [usize; MOST_SPATIAL],
    /// Positions of the padded plane that are read.
    padded: [usize; MOST_SPATIAL],
    /// Positions of each phase.
    grid: [usize; MOST_SPATIAL],
    /// Where the first output position reads, per tap.
    starts: Vec<usize>,
}

impl Phases {
    /// The phases of a convolution with at least one output position.
    fn new(taps: &Taps) -> Phases {
        let stride = taps.stride.map(|s| s as usize);
        let reach = |d: usize| taps.inner.iter().map(|(_, t)| t[d]).max().unwrap_or(0) as usize;
        let padded: [usize; MOST_SPATIAL] =
            std::array::from_fn(|d| (taps.out[d] - 1) * stride[d] + reach(d) + 1);
        let mut phases = Phases {
            image: taps.image.map(|d| d as usize),
            stride,
            out: taps.out,
            pad: taps.outer[0].map(|first| -first as usize),
            padded,
            grid: std::array::from_fn(|d| padded[d].div_ceil(stride[d])),
            starts: Vec::new(),
        };
        let start = |(_, tap): &(usize, [i64; MOST_SPATIAL])| phases.at(tap.map(|t| t as usize));
        phases.starts = taps.inner.iter().map(start).collect();
        phases
    }

    /// Where position `p` of the padded plane lies.
    fn at(&self, p: [usize; MOST_SPATIAL]) -> usize {
        let (s, g) = (self.stride, self.grid);
        let phase = ((p[0] % s[0]) * s[1] + p[1] % s[1]) * s[2] + p[2] % s[2];
        ((phase * g[0] + p[0] / s[0]) * g[1] + p[1] / s[1]) * g[2] + p[2] / s[2]
    }

    /// Elements of one plane of the input.
    fn image(&self) -> usize {
        self.image.iter().product()
    }

    /// A plane of zeros, and the sums.
    fn scratch<T: Number>(&self) -> (Vec<T>, Vec<T>) {
        let phases: usize = self.stride.iter().product();
        let positions: usize = self.grid.iter().product();
        let last = ((self.out[0] - 1) * self.grid[1] + self.out[1] - 1) * self.grid[2];
        (vec![T::default(); positions * phases], vec![T::default(); last + self.out[2]])
    }

    /// The sums of all positions of one output channel.
    fn sums<S, T>(&self, plane: &[S], weights: &[S], scratch: &mut (Vec<T>, Vec<T>))
    where
        S: Copy + Into<T>,
        T: Number,
    {
        let (apart, sums) = scratch;
        self.take_apart(plane, apart);
        sums.fill(T::default());
        for (i, sums) in sums.chunks_mut(SUMS).enumerate() {
            for (&start, &weight) in self.starts.iter().zip(weights) {
                T::add_scaled(sums, weight.into(), &apart[start + i * SUMS..][..sums.len()]);
            }
        }
    }

    /// Copies the plane to its places; the padding stays as it is.
    fn take_apart<S: Copy + Into<T>, T: Number>(&self, plane: &[S], apart: &mut [T]) {
        let ([height, width, depth], pad, step) = (self.image, self.pad, self.stride[2]);
        let depth_read = depth.min(self.padded[2].saturating_sub(pad[2]));
        for y in 0..height.min(self.padded[0].saturating_sub(pad[0])) {
            for z in 0..width.min(self.padded[1].saturating_sub(pad[1])) {
                let line = &plane[(y * width + z) * depth..][..depth_read];
                for first in 0..step.min(depth_read) {
                    let to = &mut apart[self.at([y + pad[0], z + pad[1], first + pad[2]])..];
                    if step == 1 {
                        to.iter_mut().zip(line).for_each(|(slot, &v)| *slot = v.into());
                    } else {
                        let from = line[first..].iter().step_by(step);
                        to.iter_mut().zip(from).for_each(|(slot, &v)| *slot = v.into());
                    }
                }
            }
        }
    }

    /// The sums of each line of output positions, in order.
    fn lines<'a, T>(&'a self, sums: &'a [T]) -> impl Iterator<Item = &'a [T]> {
        let [height, width, depth] = self.out;
        let lines = (0..height).flat_map(move |y| (0..width).map(move |z| (y, z)));
        lines.map(move |(y, z)| &sums[(y * self.grid[1] + z) * self.grid[2]..][..depth])
    }
}
