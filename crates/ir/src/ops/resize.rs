//! Sampling a tensor at another resolution.
//!
//! Coordinates and filters follow the definition of the ONNX operator `Resize`; the antialiasing
//! filter is the interpolation kernel stretched by the inverse scale.

use super::{
    OpDef,
    elements::{one, pick, sizes, strides},
    results,
    types::{Operands, attribute},
};
use crate::{AxisKind, AxisMap, EvalError, Fact, Index, Inputs, Part, Real, TypeError};
use bricolage_tensor::{Datum, Dim, Shape, Symbol, Tensor};
use serde::{Deserialize, Serialize};

/// How values between elements are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Interpolation {
    /// The nearest element.
    Nearest(Rounding),
    /// Between the two neighbours, per dim.
    Linear,
    /// From the four neighbours, per dim, by the convolution kernel with this parameter (usually
    /// -0.75 or -0.5).
    Cubic(Real),
}

/// Which element is nearest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Rounding {
    /// The nearer; the lower of two equally near.
    PreferFloor,
    /// The nearer; the upper of two equally near.
    PreferCeil,
    /// The next below.
    Floor,
    /// The next above.
    Ceil,
}

/// Which coordinate of the operand a position of the result has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Coordinates {
    /// `(x + 0.5) / scale - 0.5`.
    HalfPixel,
    /// The same, with the operand's centre kept where the size was rounded.
    HalfPixelSymmetric,
    /// Half a pixel, but 0 for a result of one element.
    PytorchHalfPixel,
    /// `x * (size - 1) / (result - 1)`.
    AlignCorners,
    /// `x / scale`.
    Asymmetric,
    /// Positions in the region of interest; outside the operand lies the extrapolation value.
    CropAndResize,
}

/// Samples the operand so that the result has the given sizes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Resize {
    /// The shape of the result.
    pub sizes: Shape,
    /// Result size over operand size, per dim; the quotient of the sizes when absent.
    pub scales: Option<Vec<Real>>,
    /// How values between elements are found.
    pub mode: Interpolation,
    /// Which coordinate a position has.
    pub coordinates: Coordinates,
    /// Leaves out weights that fall outside the operand, and rescales the others.
    pub exclude_outside: bool,
    /// Widens the filter when the result is smaller.
    pub antialias: bool,
    /// Starts, then ends, of the region of interest, per dim, in parts of the size; used by
    /// [`Coordinates::CropAndResize`] alone.
    pub roi: Vec<Real>,
    /// The value outside the operand for [`Coordinates::CropAndResize`].
    pub extrapolation: Real,
}

/// Weights of operand elements for one position; empty where it lies outside.
type Weights = Vec<(usize, f64)>;

impl Resize {
    fn is_identity(&self, d: usize, size: &Dim) -> bool {
        let scale = self.scales.as_ref().map_or(1.0, |s| s[d].get());
        *size == self.sizes[d] && scale == 1.0 && self.coordinates != Coordinates::CropAndResize
    }

    /// Which element a position that lies on a whole coordinate is the nearest of is a matter of rounding: ONNX holds
    /// scales in single precision, and the runtimes compute coordinates in it, so that here each step of those is
    /// rounded to it. Weights between elements are computed in double precision: what single precision does to the
    /// coordinate is in the noise floor.
    fn coordinate(&self, d: usize, x: f64, size: f64, result: f64, scale: f64) -> f64 {
        let r = |v: f64| if self.is_between() { v } else { f64::from(v as f32) };
        let scale = r(scale);
        let centred = || r(r((x + 0.5) / scale) - 0.5);
        match self.coordinates {
            Coordinates::HalfPixel => centred(),
            Coordinates::HalfPixelSymmetric => {
                let adjust = r(result / r(scale * size));
                let offset = r(size / 2.0 * r(1.0 - adjust));
                r(r(offset + r((x + 0.5) / scale)) - 0.5)
            }
            Coordinates::PytorchHalfPixel if result > 1.0 => centred(),
            Coordinates::PytorchHalfPixel => 0.0,
            Coordinates::AlignCorners if result > 1.0 => r(r(x * (size - 1.0)) / (result - 1.0)),
            Coordinates::AlignCorners => 0.0,
            Coordinates::Asymmetric => r(x / scale),
            Coordinates::CropAndResize => {
                let (start, end) = (self.roi[d].get(), self.roi[self.sizes.len() + d].get());
                if result > 1.0 {
                    let steps = r(r(r(x * r(end - start)) * (size - 1.0)) / (result - 1.0));
                    r(r(start * (size - 1.0)) + steps)
                } else {
                    r(r(0.5 * r(start + end)) * (size - 1.0))
                }
            }
        }
    }

    /// Whether a position along dim `d` lies half-way between two of its `size` elements, and single precision does
    /// not hold the scale: which of them is the nearest then depends on how it is computed.
    pub fn has_half_way(&self, d: usize, size: i64, result: i64) -> bool {
        let (size, wanted) = (size as f64, result as f64);
        let scale = self.scales.as_ref().map_or(wanted / size, |scales| scales[d].get());
        let is_exact = f64::from(scale as f32) == scale;
        let half_way = |x: i64| {
            let at = self.coordinate(d, x as f64, size, wanted, scale);
            (at - at.floor() - 0.5).abs() <= 4.0 * f64::from(f32::EPSILON) * at.abs().max(1.0)
        };
        !is_exact && (0..result).any(half_way)
    }

    /// Whether results lie between elements, so that a small error of the coordinate makes a small error of them.
    pub(crate) fn is_between(&self) -> bool {
        !matches!(self.mode, Interpolation::Nearest(_))
    }

    /// Weights of every position along dim `d`, at the coordinate that `moved` gives for the right one.
    fn weights(
        &self,
        d: usize,
        size: usize,
        result: usize,
        moved: &mut dyn FnMut(f64) -> f64,
    ) -> Vec<Weights> {
        let scale = match &self.scales {
            Some(scales) => scales[d].get(),
            None => result as f64 / size as f64,
        };
        (0..result)
            .map(|x| {
                let at = self.coordinate(d, x as f64, size as f64, result as f64, scale);
                let crops = self.coordinates == Coordinates::CropAndResize;
                if crops && (at < 0.0 || at > size as f64 - 1.0) {
                    return Weights::new();
                }
                let at = if self.is_between() { moved(at) } else { at };
                self.filter(at, size, scale)
            })
            .collect()
    }

    fn filter(&self, at: f64, size: usize, scale: f64) -> Weights {
        let last = size as i64 - 1;
        let near = |i: f64| (i as i64).clamp(0, last) as usize;
        if let Interpolation::Nearest(rounding) = self.mode {
            let i = match rounding {
                Rounding::PreferFloor => (at - 0.5).ceil(),
                Rounding::PreferCeil => (at + 0.5).floor(),
                Rounding::Floor => at.floor(),
                Rounding::Ceil => at.ceil(),
            };
            return vec![(near(i), 1.0)];
        }
        let (reach, kernel): (f64, Box<dyn Fn(f64) -> f64>) = match self.mode {
            Interpolation::Cubic(a) => {
                let a = a.get();
                (
                    2.0,
                    Box::new(move |x: f64| match x.abs() {
                        x if x <= 1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
                        x if x < 2.0 => ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a,
                        _ => 0.0,
                    }),
                )
            }
            _ => (1.0, Box::new(|x: f64| (1.0 - x.abs()).max(0.0))),
        };
        let stretch = if self.antialias && scale < 1.0 { scale } else { 1.0 };
        let reach = reach / stretch;
        let (first, end) = ((at - reach).floor() as i64, (at + reach).ceil() as i64);
        let mut all = Weights::new();
        let mut sum = 0.0;
        for i in first..=end {
            let weight = kernel((i as f64 - at) * stretch);
            let outside = i < 0 || i > last;
            if weight == 0.0 || (outside && self.exclude_outside) {
                continue;
            }
            sum += weight;
            all.push((i.clamp(0, last) as usize, weight));
        }
        // The kernels sum to 1 unless weights were left out or the kernel was stretched.
        if self.exclude_outside || stretch != 1.0 {
            all.iter_mut().for_each(|(_, weight)| *weight /= sum);
        }
        all
    }

    /// [`eval`](OpDef::eval) at the coordinates that `moved` gives for the right ones, where results lie between
    /// elements.
    pub(crate) fn eval_at(
        &self,
        inputs: &Inputs<'_>,
        moved: &mut dyn FnMut(f64) -> f64,
    ) -> Result<Vec<Datum>, EvalError> {
        let (dtype, dims) = results(self, inputs)?.swap_remove(0);
        let t = inputs.tensor(0)?;
        let (shape, to) = (sizes(t.dims()), sizes(&dims));
        let changed: Vec<usize> =
            (0..shape.len()).filter(|&d| !self.is_identity(d, &Dim::from(t.dims()[d]))).collect();
        let weights: Vec<Vec<Weights>> =
            changed.iter().map(|&d| self.weights(d, shape[d], to[d], moved)).collect();
        if !self.is_between() && weights.iter().flatten().all(|w| !w.is_empty()) {
            let own = strides(&shape);
            let count: usize = to.iter().product();
            return one(pick(t, &dims, |out| {
                for flat in 0..count {
                    let (mut rest, mut from) = (flat, 0);
                    for d in (0..to.len()).rev() {
                        let at = rest % to[d];
                        rest /= to[d];
                        let of = changed.iter().position(|&c| c == d);
                        from += of.map_or(at, |c| weights[c][at][0].0) * own[d];
                    }
                    out(from);
                }
            })?);
        }
        // One dim after the other; outside is NaN until the end, and marked apart.
        let (mut x, mut shape) = (t.to_f64(), shape);
        let mut outside = vec![false; dims.iter().product::<i64>() as usize];
        for (&d, weights) in changed.iter().zip(&weights) {
            let (outer, inner): (usize, usize) =
                (shape[..d].iter().product(), shape[d + 1..].iter().product());
            let mut next = vec![0.0; outer * to[d] * inner];
            for o in 0..outer {
                for (i, all) in weights.iter().enumerate() {
                    let line = &mut next[(o * to[d] + i) * inner..][..inner];
                    for &(from, weight) in all {
                        let source = &x[(o * shape[d] + from) * inner..][..inner];
                        line.iter_mut().zip(source).for_each(|(y, x)| *y += weight * x);
                    }
                }
            }
            shape[d] = to[d];
            x = next;
        }
        let own = strides(&to);
        for (&d, weights) in changed.iter().zip(&weights) {
            for (flat, outside) in outside.iter_mut().enumerate() {
                *outside |= weights[flat / own[d] % to[d]].is_empty();
            }
        }
        for (x, outside) in x.iter_mut().zip(outside) {
            if outside {
                *x = self.extrapolation.get();
            }
        }
        one(Tensor::from_f64(dtype, &dims, &x))
    }
}

impl OpDef for Resize {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let x = Operands::new(inputs, 1, 1)?.tensor(0)?;
        let rank = x.shape.len();
        if self.sizes.len() != rank {
            return Err(attribute("sizes", format!("{rank} sizes"), &self.sizes));
        }
        for (size, have) in self.sizes.iter().zip(x.shape.iter()) {
            let bad = size.as_const().is_some_and(|s| s < 0)
                || (have.as_const() == Some(0) && size != have);
            if bad {
                return Err(attribute("sizes", format!("possible for {}", x.shape), &self.sizes));
            }
        }
        if let Some(scales) = &self.scales
            && (scales.len() != rank || scales.iter().any(|s| s.get().is_nan() || s.get() <= 0.0))
        {
            return Err(attribute("scales", format!("{rank} numbers above 0"), scales));
        }
        if self.coordinates == Coordinates::CropAndResize && self.roi.len() != 2 * rank {
            return Err(attribute("roi", format!("{} numbers", 2 * rank), &self.roi));
        }
        if self.is_between() {
            Operands(inputs).number(0)?;
        }
        Ok(vec![Fact::tensor(x.dtype, self.sizes.iter().cloned())])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        self.eval_at(inputs, &mut |at| at)
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let Ok(x) = Operands(inputs).tensor(0) else { return AxisMap::opaque(inputs, outputs) };
        let mut map = AxisMap::pointwise(&[], outputs);
        let mut index = Vec::new();
        for (d, dim) in x.shape.iter().enumerate() {
            if self.is_identity(d, dim) {
                index.push(Index::axis(d));
            } else {
                map.axes[d].kind = AxisKind::Opaque;
                index.push(Index::axis(map.add(format!("i{d}"), dim, AxisKind::Opaque)));
            }
        }
        map.inputs = vec![Some(index)];
        map
    }

    fn bind(&self, value: &dyn Fn(&Symbol) -> Option<Dim>) -> Resize {
        let sizes = self.sizes.iter().map(|d| d.substitute(value)).collect();
        Resize { sizes, ..self.clone() }
    }

    fn part(&self, part: &Part) -> Resize {
        Resize { sizes: super::reshape::lengths(part), ..self.clone() }
    }
}
