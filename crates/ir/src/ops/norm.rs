//! Normalisation: shifting and scaling by statistics.

use super::{
    OpDef,
    elements::{broadcast_strides, for_each_run, one, sizes},
    results,
    types::{Operands, attribute, broadcast, differ, expect_axis, expect_rank},
};
use crate::{AxisKind, AxisMap, EvalError, Fact, Index, Inputs, Part, Real, TypeError};
use bricolage_tensor::{DType, Datum, Dim, Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// `(x - mean) / sqrt(variance + epsilon) * scale + bias` with given statistics. Operands: `x` as
/// `[n, c, ..]`, then `scale`, `bias`, `mean` and `variance` as `[c]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BatchNorm {
    /// Added to the variance.
    pub epsilon: Real,
}

/// Fails unless operand `i` is `[c]` for the channels of operand 0.
fn expect_channels(operands: &Operands<'_>, i: usize, channels: &Dim) -> Result<(), TypeError> {
    let t = operands.float(i)?;
    expect_rank(i, t, 1, 1)?;
    if differ(&t.shape[0], channels) {
        let (expected, got) = (channels.clone(), t.shape[0].clone());
        return Err(TypeError::Dim { operand: i, dim: 0, expected, got });
    }
    Ok(())
}

/// An axis per dim of operand 0, opaque where `opaque` says so.
fn dim_axes(
    inputs: &[Option<&Fact>],
    outputs: &[Fact],
    x: &TensorType,
    opaque: impl Fn(usize) -> bool,
) -> AxisMap {
    let mut map = AxisMap::new(inputs.len(), outputs.len());
    for (d, dim) in x.shape.iter().enumerate() {
        let kind = if opaque(d) { AxisKind::Opaque } else { AxisKind::Parallel };
        map.add(format!("d{d}"), dim, kind);
    }
    let all: Vec<Index> = (0..x.shape.len()).map(Index::axis).collect();
    map.inputs[0] = Some(all.clone());
    map.outputs[0] = all;
    map
}

impl OpDef for BatchNorm {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let operands = Operands::new(inputs, 5, 5)?;
        let x = operands.float(0)?;
        expect_rank(0, x, 2, usize::MAX)?;
        for i in 1..5 {
            expect_channels(&operands, i, &x.shape[1])?;
        }
        Ok(vec![Fact::from(x.clone())])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        results(self, inputs)?;
        let x = inputs.tensor(0)?;
        let mut per_channel = Vec::new();
        for i in 1..5 {
            per_channel.push(inputs.tensor(i)?.to_f64());
        }
        let shape = sizes(x.dims());
        let plane: usize = shape[2..].iter().product();
        let mut values = x.to_f64();
        for (i, lane) in values.chunks_mut(plane.max(1)).enumerate() {
            let c = i % shape[1];
            let (scale, bias) = (per_channel[0][c], per_channel[1][c]);
            let (mean, variance) = (per_channel[2][c], per_channel[3][c]);
            let inverse = 1.0 / (variance + self.epsilon.get()).sqrt();
            lane.iter_mut().for_each(|v| *v = (*v - mean) * inverse * scale + bias);
        }
        one(Tensor::from_f64(x.dtype(), x.dims(), &values))
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let Ok(x) = Operands(inputs).tensor(0) else { return AxisMap::opaque(inputs, outputs) };
        let mut map = dim_axes(inputs, outputs, x, |_| false);
        map.inputs[1..].fill(Some(vec![Index::axis(1)]));
        map
    }
}

/// Normalises over the dims from `axis` on: `(x - mean) / sqrt(variance + epsilon)`, or without
/// the mean, `x / sqrt(mean of squares + epsilon)`; then times `scale` (operand 1) plus `bias`
/// (operand 2), both optional and broadcast to `x`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LayerNorm {
    /// First dim of those normalised together.
    pub axis: usize,
    /// Added to the variance.
    pub epsilon: Real,
    /// Leaves the mean alone.
    pub rms: bool,
    /// Gives the mean (unless `rms`) and the inverse deviation as further outputs, normalised
    /// dims kept as 1, in the type of `x` but at least `f32`.
    pub statistics: bool,
}

impl OpDef for LayerNorm {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let operands = Operands::new(inputs, 1, 3)?;
        let x = operands.float(0)?;
        expect_axis(self.axis, x.shape.len())?;
        for i in 1..3 {
            if let Some(t) = operands.optional(i)? {
                operands.float(i)?;
                let whole = broadcast(&[(0, &x.shape), (i, &t.shape)])?;
                if whole.len() != x.shape.len()
                    || whole.iter().zip(x.shape.iter()).any(|(a, b)| differ(a, b))
                {
                    let max = x.shape.len();
                    return Err(TypeError::Rank { operand: i, min: 0, max, got: t.shape.len() });
                }
            }
        }
        let mut facts = vec![Fact::from(x.clone())];
        if self.statistics {
            let dtype = if x.dtype == DType::F64 { DType::F64 } else { DType::F32 };
            let rest = x.shape[self.axis..].iter().map(|_| Dim::from(1));
            let fact = Fact::tensor(dtype, x.shape[..self.axis].iter().cloned().chain(rest));
            facts.resize(if self.rms { 2 } else { 3 }, fact);
        }
        Ok(facts)
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let types = results(self, inputs)?;
        let x = inputs.tensor(0)?;
        let shape = sizes(x.dims());
        let lane: usize = shape[self.axis..].iter().product();
        let mut values = x.to_f64();
        let (mut means, mut inverses) = (Vec::new(), Vec::new());
        for row in values.chunks_mut(lane.max(1)) {
            let mean = if self.rms { 0.0 } else { row.iter().sum::<f64>() / lane as f64 };
            let variance = row.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / lane as f64;
            let inverse = 1.0 / (variance + self.epsilon.get()).sqrt();
            row.iter_mut().for_each(|v| *v = (*v - mean) * inverse);
            means.push(mean);
            inverses.push(inverse);
        }
        for (i, f) in [(1, (|a, b| a * b) as fn(f64, f64) -> f64), (2, |a, b| a + b)] {
            if let Some(t) = inputs.optional(i)? {
                let factor = t.to_f64();
                let strides = broadcast_strides(&sizes(t.dims()), &shape);
                let (inner, step) = (shape[shape.len() - 1], strides[shape.len() - 1]);
                for_each_run(&shape, [&strides], |at, [from]| {
                    for (j, v) in values[at..at + inner].iter_mut().enumerate() {
                        *v = f(*v, factor[from + j * step]);
                    }
                });
            }
        }
        let mut all = vec![Tensor::from_f64(x.dtype(), x.dims(), &values).into()];
        if self.statistics {
            let (dtype, dims) = &types[1];
            if !self.rms {
                all.push(Tensor::from_f64(*dtype, dims, &means).into());
            }
            all.push(Tensor::from_f64(*dtype, dims, &inverses).into());
        }
        Ok(all)
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let Ok(x) = Operands(inputs).tensor(0) else { return AxisMap::opaque(inputs, outputs) };
        let mut map = dim_axes(inputs, outputs, x, |d| d >= self.axis);
        let broadcast = AxisMap::pointwise(inputs, &outputs[..1]);
        map.inputs[1..].clone_from_slice(&broadcast.inputs[1..]);
        for (axis, pointwise) in map.axes.iter_mut().zip(broadcast.axes) {
            if pointwise.kind == AxisKind::Opaque {
                axis.kind = AxisKind::Opaque;
            }
        }
        for index in map.outputs.iter_mut().skip(1) {
            let kept = |d| if d < self.axis { Index::axis(d) } else { Index::fixed(0) };
            *index = (0..x.shape.len()).map(kept).collect();
        }
        map
    }
}

/// Normalises each group of channels of each image over its elements, then times `scale`
/// (operand 1) plus `bias` (operand 2), both `[c]` and optional. With as many groups as channels
/// it is instance normalisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GroupNorm {
    /// Number of groups; it divides the channels of `x`, which is `[n, c, ..]`.
    pub groups: i64,
    /// Added to the variance.
    pub epsilon: Real,
}

impl OpDef for GroupNorm {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let operands = Operands::new(inputs, 1, 3)?;
        let x = operands.float(0)?;
        expect_rank(0, x, 2, usize::MAX)?;
        for i in 1..3 {
            if operands.optional(i)?.is_some() {
                expect_channels(&operands, i, &x.shape[1])?;
            }
        }
        let indivisible = x.shape[1].as_const().is_some_and(|c| c % self.groups.max(1) != 0);
        if self.groups < 1 || indivisible {
            return Err(attribute("groups", format!("a divisor of {}", x.shape[1]), self.groups));
        }
        Ok(vec![Fact::from(x.clone())])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        results(self, inputs)?;
        let x = inputs.tensor(0)?;
        let (scale, bias) = (inputs.optional(1)?, inputs.optional(2)?);
        let (scale, bias) = (scale.map(Tensor::to_f64), bias.map(Tensor::to_f64));
        let shape = sizes(x.dims());
        let plane: usize = shape[2..].iter().product();
        let channels = shape[1] / self.groups as usize;
        let lane = channels * plane;
        let mut values = x.to_f64();
        for (i, group) in values.chunks_mut(lane.max(1)).enumerate() {
            let first = i % self.groups as usize * channels;
            let mean = group.iter().sum::<f64>() / lane as f64;
            let variance = group.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / lane as f64;
            let inverse = 1.0 / (variance + self.epsilon.get()).sqrt();
            for (c, channel) in group.chunks_mut(plane.max(1)).enumerate() {
                let scale = scale.as_ref().map_or(1.0, |s| s[first + c]);
                let bias = bias.as_ref().map_or(0.0, |b| b[first + c]);
                channel.iter_mut().for_each(|v| *v = (*v - mean) * inverse * scale + bias);
            }
        }
        one(Tensor::from_f64(x.dtype(), x.dims(), &values))
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let Ok(x) = Operands(inputs).tensor(0) else { return AxisMap::opaque(inputs, outputs) };
        let mut map = AxisMap::new(inputs.len(), 1);
        let n = map.add("n", &x.shape[0], AxisKind::Parallel);
        let g = map.add("g", &Dim::from(self.groups), AxisKind::Parallel);
        let size = x.shape[1].floor_div(&Dim::from(self.groups));
        let c = map.add("c", &size, AxisKind::Opaque);
        let channel = Index::axis(c).plus(g, size);
        let mut index = vec![Index::axis(n), channel.clone()];
        for (d, dim) in x.shape.iter().enumerate().skip(2) {
            index.push(Index::axis(map.add(format!("d{d}"), dim, AxisKind::Opaque)));
        }
        map.inputs[0] = Some(index.clone());
        map.outputs[0] = index;
        for (to, input) in map.inputs.iter_mut().zip(inputs).skip(1) {
            *to = input.map(|_| vec![channel.clone()]);
        }
        map
    }

    fn part(&self, part: &Part) -> GroupNorm {
        let groups =
            if part.name == "g" { part.points.end - part.points.start } else { self.groups };
        GroupNorm { groups, ..*self }
    }
}

/// `x / (bias + alpha / size * sum of squares over size neighbouring channels)^beta`, with
/// `(size - 1) / 2` channels before and the rest after (local response normalisation).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lrn {
    /// Channels in a window.
    pub size: i64,
    /// See the formula.
    pub alpha: Real,
    /// See the formula.
    pub beta: Real,
    /// See the formula.
    pub bias: Real,
}

impl OpDef for Lrn {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let x = Operands::new(inputs, 1, 1)?.float(0)?;
        expect_rank(0, x, 2, usize::MAX)?;
        if self.size < 1 {
            return Err(attribute("size", "above 0", self.size));
        }
        Ok(vec![Fact::from(x.clone())])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        results(self, inputs)?;
        let t = inputs.tensor(0)?;
        let (x, shape) = (t.to_f64(), sizes(t.dims()));
        let plane: usize = shape[2..].iter().product();
        let before = (self.size as usize - 1) / 2;
        let mut values = Vec::with_capacity(x.len());
        for n in 0..shape[0] {
            for c in 0..shape[1] {
                let window =
                    c.saturating_sub(before)..shape[1].min(c + self.size as usize - before);
                for p in 0..plane {
                    let at = |c: usize| x[(n * shape[1] + c) * plane + p];
                    let squares: f64 = window.clone().map(|c| at(c) * at(c)).sum();
                    let base = self.bias.get() + self.alpha.get() / self.size as f64 * squares;
                    values.push(at(c) / base.powf(self.beta.get()));
                }
            }
        }
        one(Tensor::from_f64(t.dtype(), t.dims(), &values))
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        match Operands(inputs).tensor(0) {
            Ok(x) => dim_axes(inputs, outputs, x, |d| d == 1),
            Err(_) => AxisMap::opaque(inputs, outputs),
        }
    }
}
