//! Reading images at positions between their elements.
//!
//! Positions and filters follow the definitions of the ONNX operators `GridSample`, `RoiAlign` and
//! `DeformConv`.

use super::{
    OpDef,
    elements::{one, sizes, strides},
    results,
    types::{Operands, attribute, differ, expect_rank, expect_same_dim},
};
use crate::{AxisKind, AxisMap, EvalError, Fact, Index, Inputs, Real, TypeError};
use bricolage_tensor::{Datum, Dim, Tensor};
use serde::{Deserialize, Serialize};

/// How values between elements are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum GridMode {
    /// The nearest element, the even one of two.
    Nearest,
    /// Between the two neighbours, per dim.
    Linear,
    /// From the four neighbours, per dim, by the convolution kernel with parameter -0.75.
    Cubic,
}

/// What lies outside the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Outside {
    /// 0.
    Zeros,
    /// The nearest element of the image.
    Border,
    /// The image mirrored.
    Reflection,
}

/// Images `[n, c, d1, ..]` sampled at the positions in operand 1, `[n, o1, .., rank]`, whose last dim
/// holds a coordinate per dim, the innermost first, from -1 at one end of the dim to 1 at the other.
/// Result: `[n, c, o1, ..]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GridSample {
    /// How values between elements are found.
    pub mode: GridMode,
    /// What lies outside.
    pub outside: Outside,
    /// The ends of a dim are the centres of its outermost elements rather than their outer edges.
    pub align_corners: bool,
}

/// `x` mirrored at both ends until it lies between them.
fn reflect(x: f64, low: f64, high: f64) -> f64 {
    let range = high - low;
    if range <= 0.0 {
        return low;
    }
    let turn = (x - low).rem_euclid(2.0 * range);
    low + if turn <= range { turn } else { 2.0 * range - turn }
}

impl GridSample {
    /// Elements of a dim of `size` and their weights, for one coordinate.
    fn weights(self, coordinate: f64, size: usize) -> Vec<(usize, f64)> {
        if size == 0 || !coordinate.is_finite() {
            return Vec::new();
        }
        let length = size as f64;
        let (mut x, low, high) = match self.align_corners {
            true => ((coordinate + 1.0) / 2.0 * (length - 1.0), 0.0, length - 1.0),
            false => (((coordinate + 1.0) * length - 1.0) / 2.0, -0.5, length - 0.5),
        };
        if self.mode == GridMode::Nearest {
            x = x.round_ties_even();
        }
        if x < low || x > high {
            x = match self.outside {
                // Every tap of a cubic stays inside for itself.
                Outside::Border if self.mode == GridMode::Cubic => x,
                Outside::Zeros => x,
                Outside::Border => x.clamp(0.0, length - 1.0),
                Outside::Reflection => reflect(x, low, high),
            };
        }
        let at = |i: f64| {
            let inside = (0.0..length).contains(&i);
            match self.outside {
                Outside::Zeros if !inside => None,
                Outside::Reflection if !inside => {
                    Some(reflect(i, low, high).clamp(0.0, length - 1.0) as usize)
                }
                _ => Some(i.clamp(0.0, length - 1.0) as usize),
            }
        };
        let base = x.floor();
        let t = x - base;
        let taps: Vec<(f64, f64)> = match self.mode {
            GridMode::Nearest => vec![(x.round_ties_even(), 1.0)],
            GridMode::Linear => vec![(base, 1.0 - t), (base + 1.0, t)],
            GridMode::Cubic => {
                let a = -0.75;
                let near = |x: f64| ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0;
                let far = |x: f64| ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a;
                let taps = [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)];
                taps.iter().enumerate().map(|(i, &w)| (base - 1.0 + i as f64, w)).collect()
            }
        };
        taps.into_iter().filter_map(|(i, w)| at(i).map(|i| (i, w))).collect()
    }
}

impl OpDef for GridSample {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let operands = Operands::new(inputs, 2, 2)?;
        let (x, grid) = (operands.float(0)?, operands.float(1)?);
        expect_rank(0, x, 3, usize::MAX)?;
        expect_rank(1, grid, x.shape.len(), x.shape.len())?;
        expect_same_dim(&operands, (0, 0), (1, 0))?;
        let (rank, last) = (Dim::from(x.shape.len() as i64 - 2), x.shape.len() - 1);
        if differ(&grid.shape[last], &rank) {
            let got = grid.shape[last].clone();
            return Err(TypeError::Dim { operand: 1, dim: last, expected: rank, got });
        }
        let mut shape = x.shape[..2].to_vec();
        shape.extend_from_slice(&grid.shape[1..last]);
        Ok(vec![Fact::tensor(x.dtype, shape)])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (dtype, dims) = results(self, inputs)?.swap_remove(0);
        let (x, grid) = (inputs.tensor(0)?, inputs.tensor(1)?.to_f64());
        let shape = sizes(x.dims());
        let (channels, space) = (shape[1], &shape[2..]);
        let own = strides(space);
        let plane: usize = space.iter().product();
        let points: usize = sizes(&dims)[2..].iter().product();
        let x = x.to_f64();
        let mut out = vec![0.0; dims.iter().product::<i64>() as usize];
        for n in 0..shape[0] {
            for p in 0..points {
                let at = &grid[(n * points + p) * space.len()..][..space.len()];
                let mut taps = vec![(0usize, 1.0f64)];
                for (d, &size) in space.iter().enumerate() {
                    let along = self.weights(at[space.len() - 1 - d], size);
                    let step = own[d];
                    let both = |(base, w): (usize, f64)| {
                        along.iter().map(move |(i, v)| (base + i * step, w * v))
                    };
                    taps = taps.into_iter().flat_map(both).collect();
                }
                for c in 0..channels {
                    let image = &x[(n * channels + c) * plane..][..plane];
                    out[(n * channels + c) * points + p] =
                        taps.iter().map(|&(i, w)| w * image[i]).sum();
                }
            }
        }
        one(Tensor::from_f64(dtype, &dims, &out))
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let Ok(x) = Operands(inputs).tensor(0) else { return AxisMap::opaque(inputs, outputs) };
        let mut map = AxisMap::pointwise(&[], outputs);
        let rank = x.shape.len();
        let mut image = vec![Index::axis(0), Index::axis(1)];
        for d in 2..rank {
            image.push(Index::axis(map.add(format!("i{d}"), &x.shape[d], AxisKind::Opaque)));
        }
        let mut grid = vec![Index::axis(0)];
        grid.extend((2..rank).map(Index::axis));
        let last = map.add("x", &Dim::from(rank as i64 - 2), AxisKind::Opaque);
        grid.push(Index::axis(last));
        map.inputs = vec![Some(image), Some(grid)];
        map
    }
}

/// The four elements around a position and their weights, inside an image of `h` by `w`; none
/// where the position lies more than one element outside.
fn around(y: f64, x: f64, h: usize, w: usize) -> [(usize, f64); 4] {
    let (height, width) = (h as f64, w as f64);
    let inside = (-1.0..=height).contains(&y) && (-1.0..=width).contains(&x);
    if !inside || h == 0 || w == 0 {
        return [(0, 0.0); 4];
    }
    let split = |v: f64, size: usize| {
        let v = v.max(0.0);
        let low = v as usize;
        if low >= size - 1 { (size - 1, size - 1, 0.0) } else { (low, low + 1, v - low as f64) }
    };
    let ((y0, y1, ly), (x0, x1, lx)) = (split(y, h), split(x, w));
    let (hy, hx) = (1.0 - ly, 1.0 - lx);
    [(y0 * w + x0, hy * hx), (y0 * w + x1, hy * lx), (y1 * w + x0, ly * hx), (y1 * w + x1, ly * lx)]
}

/// Images `[n, c, h, w]` pooled over regions: operand 1 holds corners `x, y, x, y` of `r` regions,
/// `[r, 4]`, operand 2 the image of each, integers `[r]`. Result: `[r, c, height, width]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RoiAlign {
    /// Takes the largest weighted element rather than the mean.
    pub largest: bool,
    /// Height of the result.
    pub height: i64,
    /// Width of the result.
    pub width: i64,
    /// Samples along each side of a bin; when 0, as many as the bin is long, up to 10000.
    pub samples: i64,
    /// Factor from the corners to positions in the image.
    pub scale: Real,
    /// Positions count from the centres of elements: half an element is taken off.
    pub half_pixel: bool,
}

impl OpDef for RoiAlign {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let operands = Operands::new(inputs, 3, 3)?;
        let (x, regions, of) = (operands.float(0)?, operands.float(1)?, operands.int(2)?);
        expect_rank(0, x, 4, 4)?;
        expect_rank(1, regions, 2, 2)?;
        expect_rank(2, of, 1, 1)?;
        expect_same_dim(&operands, (1, 0), (2, 0))?;
        let sizes = [self.height, self.width, self.samples];
        if self.height < 1 || self.width < 1 || sizes.iter().any(|&n| !(0..1 << 16).contains(&n)) {
            return Err(attribute("height", "sizes from 1 to 65535", sizes));
        }
        let four = Dim::from(4);
        if differ(&regions.shape[1], &four) {
            let got = regions.shape[1].clone();
            return Err(TypeError::Dim { operand: 1, dim: 1, expected: four, got });
        }
        let (h, w) = (Dim::from(self.height), Dim::from(self.width));
        Ok(vec![Fact::tensor(x.dtype, [of.shape[0].clone(), x.shape[1].clone(), h, w])])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (dtype, dims) = results(self, inputs)?.swap_remove(0);
        let x = inputs.tensor(0)?;
        let shape = sizes(x.dims());
        let (channels, h, w) = (shape[1], shape[2], shape[3]);
        let (regions, of, x) = (inputs.tensor(1)?.to_f64(), inputs.tensor(2)?.to_i64(), x.to_f64());
        let mut out = Vec::with_capacity(dims.iter().product::<i64>() as usize);
        for (r, &image) in of.iter().enumerate() {
            let image = super::elements::wrap_index(image, shape[0], 2)?;
            let shift = if self.half_pixel { 0.5 } else { 0.0 };
            let corner = |i: usize| regions[r * 4 + i] * self.scale.get() - shift;
            let (x0, y0) = (corner(0), corner(1));
            let (mut wide, mut tall) = (corner(2) - x0, corner(3) - y0);
            if !self.half_pixel {
                (wide, tall) = (wide.max(1.0), tall.max(1.0));
            }
            let (bin_h, bin_w) = (tall / self.height as f64, wide / self.width as f64);
            let count = |bin: f64| match self.samples {
                0 => bin.ceil().clamp(0.0, 1e4) as usize,
                n => n as usize,
            };
            let (rows, columns) = (count(bin_h), count(bin_w));
            for c in 0..channels {
                let plane = &x[(image * channels + c) * h * w..][..h * w];
                for bin in 0..(self.height * self.width) as usize {
                    let (by, bx) = (bin / self.width as usize, bin % self.width as usize);
                    let (mut sum, mut best) = (0.0, f64::NEG_INFINITY);
                    for s in 0..rows * columns {
                        let (iy, ix) = (s / columns, s % columns);
                        let y = y0 + by as f64 * bin_h + (iy as f64 + 0.5) * bin_h / rows as f64;
                        let x = x0 + bx as f64 * bin_w + (ix as f64 + 0.5) * bin_w / columns as f64;
                        for (at, weight) in around(y, x, h, w) {
                            let value = weight * plane.get(at).copied().unwrap_or(0.0);
                            sum += value;
                            best = best.max(value);
                        }
                    }
                    let count = rows * columns;
                    out.push(match self.largest {
                        true if count > 0 => best,
                        true => 0.0,
                        false => sum / count.max(1) as f64,
                    });
                }
            }
        }
        one(Tensor::from_f64(dtype, &dims, &out))
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let Ok(x) = Operands(inputs).tensor(0) else { return AxisMap::opaque(inputs, outputs) };
        let mut map = AxisMap::pointwise(&[], outputs);
        map.axes[2].kind = AxisKind::Opaque;
        map.axes[3].kind = AxisKind::Opaque;
        let mut whole = |name, d: usize| Index::axis(map.add(name, &x.shape[d], AxisKind::Opaque));
        let image = vec![whole("i", 0), Index::axis(1), whole("y", 2), whole("x", 3)];
        let corners = map.add("k", &Dim::from(4), AxisKind::Opaque);
        let regions = vec![Index::axis(0), Index::axis(corners)];
        map.inputs = vec![Some(image), Some(regions), Some(vec![Index::axis(0)])];
        map
    }
}

/// A convolution of images whose taps move with the data.
///
/// Operands: images `[n, c, h, w]`; weights `[m, c / groups, kh, kw]`; offsets
/// `[n, 2 offset_groups kh kw, oh, ow]`, for every tap first down, then right; optionally a bias `[m]`
/// and factors `[n, offset_groups kh kw, oh, ow]`. Between elements values are linear, outside they are
/// 0. Result: `[n, m, oh, ow]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DeformConv {
    /// Step of the window, per dim.
    pub strides: Vec<i64>,
    /// Distance between taps, per dim.
    pub dilations: Vec<i64>,
    /// Positions before and after, per dim.
    pub pads: Vec<(i64, i64)>,
    /// Groups of channels that go together.
    pub groups: i64,
    /// Groups of channels that have offsets of their own.
    pub offset_groups: i64,
}

/// The value of an image at a position; elements outside are 0.
fn bilinear(plane: &[f64], h: usize, w: usize, y: f64, x: f64) -> f64 {
    if !(y > -1.0 && y < h as f64 && x > -1.0 && x < w as f64) {
        return 0.0;
    }
    let (y0, x0) = (y.floor(), x.floor());
    let at = |y: f64, x: f64| {
        let inside = y >= 0.0 && x >= 0.0 && y < h as f64 && x < w as f64;
        if inside { plane[y as usize * w + x as usize] } else { 0.0 }
    };
    let (ly, lx) = (y - y0, x - x0);
    let top = at(y0, x0) * (1.0 - lx) + at(y0, x0 + 1.0) * lx;
    let bottom = at(y0 + 1.0, x0) * (1.0 - lx) + at(y0 + 1.0, x0 + 1.0) * lx;
    top * (1.0 - ly) + bottom * ly
}

impl OpDef for DeformConv {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let operands = Operands::new(inputs, 3, 5)?;
        let (x, w, offset) = (operands.float(0)?, operands.float(1)?, operands.float(2)?);
        for (i, t) in [x, w, offset].into_iter().enumerate() {
            expect_rank(i, t, 4, 4)?;
        }
        let two = [&self.strides, &self.dilations].iter().all(|l| l.len() == 2);
        let positive = self.strides.iter().chain(&self.dilations).all(|&n| n >= 1);
        if !two || !positive || self.pads.len() != 2 || self.groups < 1 || self.offset_groups < 1 {
            return Err(attribute("strides", "two numbers of at least 1", &self.strides));
        }
        let groups = Dim::from(self.groups);
        let taps = &(&w.shape[2] * &w.shape[3]) * &Dim::from(self.offset_groups);
        let out = |d: usize| {
            let reach = &(&w.shape[2 + d] - &Dim::from(1)) * &Dim::from(self.dilations[d]);
            let padded = &x.shape[2 + d] + &Dim::from(self.pads[d].0 + self.pads[d].1);
            let last = &(&padded - &reach) - &Dim::from(1);
            &last.floor_div(&Dim::from(self.strides[d])) + &Dim::from(1)
        };
        let (oh, ow) = (out(0), out(1));
        let check = |operand: usize, dim: usize, expected: Dim| -> Result<(), TypeError> {
            let got = &operands.tensor(operand)?.shape[dim];
            match differ(got, &expected) {
                true => Err(TypeError::Dim { operand, dim, expected, got: got.clone() }),
                false => Ok(()),
            }
        };
        check(0, 1, &w.shape[1] * &groups)?;
        check(2, 0, x.shape[0].clone())?;
        check(2, 1, &taps * &Dim::from(2))?;
        check(2, 2, oh.clone())?;
        check(2, 3, ow.clone())?;
        if let Some(bias) = operands.optional(3)? {
            expect_rank(3, bias, 1, 1)?;
            check(3, 0, w.shape[0].clone())?;
        }
        if let Some(mask) = operands.optional(4)? {
            expect_rank(4, mask, 4, 4)?;
            check(4, 0, x.shape[0].clone())?;
            check(4, 1, taps)?;
            check(4, 2, oh.clone())?;
            check(4, 3, ow.clone())?;
        }
        let divides = |a: &Dim, b: i64| a.as_const().is_none_or(|a| a % b == 0);
        if !divides(&x.shape[1], self.offset_groups) || !divides(&w.shape[0], self.groups) {
            let got = (self.groups, self.offset_groups);
            return Err(attribute("groups", "divisors of the channels", got));
        }
        Ok(vec![Fact::tensor(x.dtype, [x.shape[0].clone(), w.shape[0].clone(), oh, ow])])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (dtype, dims) = results(self, inputs)?.swap_remove(0);
        let (x, w) = (inputs.tensor(0)?, inputs.tensor(1)?);
        let (shape, kernel, out_shape) = (sizes(x.dims()), sizes(w.dims()), sizes(&dims));
        let (channels, h, width) = (shape[1], shape[2], shape[3]);
        let (per_group, kh, kw) = (kernel[1], kernel[2], kernel[3]);
        let (m, points) = (out_shape[1], out_shape[2] * out_shape[3]);
        let (x, w, offset) = (x.to_f64(), w.to_f64(), inputs.tensor(2)?.to_f64());
        let bias = inputs.optional(3)?.map(Tensor::to_f64);
        let mask = inputs.optional(4)?.map(Tensor::to_f64);
        let (groups, offset_groups) = (self.groups as usize, self.offset_groups as usize);
        let (per_offset, taps) = ((channels / offset_groups).max(1), kh * kw);
        let mut out = Vec::with_capacity(dims.iter().product::<i64>() as usize);
        let mut column = vec![0.0; channels * taps];
        let mut columns = vec![0.0; points * channels * taps];
        for n in 0..shape[0] {
            for p in 0..points {
                let (oy, ox) = (p / out_shape[3], p % out_shape[3]);
                let start =
                    |d: usize, o: usize| (o as i64 * self.strides[d] - self.pads[d].0) as f64;
                for c in 0..channels {
                    let plane = &x[(n * channels + c) * h * width..][..h * width];
                    for tap in 0..taps {
                        let set = (n * offset_groups + c / per_offset) * taps + tap;
                        let moved = |d: usize| offset[(set * 2 + d) * points + p];
                        let (ky, kx) = ((tap / kw) as i64, (tap % kw) as i64);
                        let y = start(0, oy) + (ky * self.dilations[0]) as f64 + moved(0);
                        let x = start(1, ox) + (kx * self.dilations[1]) as f64 + moved(1);
                        let factor = mask.as_ref().map_or(1.0, |m| m[set * points + p]);
                        column[c * taps + tap] = factor * bilinear(plane, h, width, y, x);
                    }
                }
                columns[p * column.len()..][..column.len()].copy_from_slice(&column);
            }
            for o in 0..m {
                let first = o / (m / groups).max(1) * per_group * taps;
                let row = &w[o * per_group * taps..][..per_group * taps];
                for p in 0..points {
                    let taken = &columns[p * column.len() + first..][..row.len()];
                    let sum: f64 = row.iter().zip(taken).map(|(a, b)| a * b).sum();
                    out.push(sum + bias.as_ref().map_or(0.0, |b| b[o]));
                }
            }
        }
        one(Tensor::from_f64(dtype, &dims, &out))
    }

    /// Images are independent of each other.
    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let mut map = AxisMap::opaque(inputs, outputs);
        let Ok(x) = Operands(inputs).tensor(0) else { return map };
        let n = map.add("n", &x.shape[0], AxisKind::Parallel);
        for operand in [0, 2, 4] {
            if let Some(Some(index)) = map.inputs.get_mut(operand) {
                index[0] = Index::axis(n);
            }
        }
        map.outputs[0][0] = Index::axis(n);
        map
    }
}
