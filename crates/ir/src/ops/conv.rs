//! Convolution: windows of the input times filters, and its transpose.

use super::{
    OpDef, results,
    taps::Taps,
    types::{Operands, attribute, differ, expect_rank, expect_same_dim},
    window::{MOST_SPATIAL, Slide, part_pads, slides},
};
use crate::{AxisKind, AxisMap, Body, Combiner, EvalError, Fact, Index, Inputs, Part, TypeError};
use bricolage_tensor::{Datum, Dim, TensorType};
use serde::{Deserialize, Serialize};

/// `out[n, m, o] = bias[m] + sum_{c, k} x[n, c, o * stride + k * dilation - pad] * w[m, c, k]`
/// for one to three spatial dims. Operands: `x` as `[n, groups * c, ..]`, `w` as `[m, c, ..]`,
/// and optionally `bias` as `[m]`; output channel `m` belongs to group `m / (m / groups)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Conv {
    /// Steps between windows, per spatial dim.
    pub strides: Vec<i64>,
    /// Steps between taps, per spatial dim.
    pub dilations: Vec<i64>,
    /// Zeros before and after, per spatial dim.
    pub pads: Vec<(i64, i64)>,
    /// Number of independent groups of channels.
    pub groups: i64,
}

impl Conv {
    /// Stride 1, dilation 1, no padding, one group.
    pub fn plain(spatial: usize) -> Conv {
        Conv {
            strides: vec![1; spatial],
            dilations: vec![1; spatial],
            pads: vec![(0, 0); spatial],
            groups: 1,
        }
    }

    pub(crate) fn slides(&self, spatial: usize) -> Result<Vec<Slide>, TypeError> {
        slides(spatial, &self.strides, &self.dilations, &self.pads)
    }
}

/// The operands of a (transposed) convolution, checked for what both have in common.
fn operands<'a>(
    inputs: &'a [Option<&'a Fact>],
    groups: i64,
    channels: usize,
) -> Result<(&'a TensorType, &'a TensorType), TypeError> {
    let operands = Operands::new(inputs, 2, 3)?;
    let (x, w) = (operands.number(0)?, operands.number(1)?);
    operands.same_dtype(0, 1)?;
    expect_rank(0, x, 3, 2 + MOST_SPATIAL)?;
    expect_rank(1, w, x.shape.len(), x.shape.len())?;
    if groups < 1 {
        return Err(attribute("groups", "above 0", groups));
    }
    if let Some(bias) = operands.optional(2)? {
        operands.same_dtype(0, 2)?;
        expect_rank(2, bias, 1, 1)?;
        let m = if channels == 0 { w.shape[0].clone() } else { &w.shape[1] * &Dim::from(groups) };
        if differ(&bias.shape[0], &m) {
            let got = bias.shape[0].clone();
            return Err(TypeError::Dim { operand: 2, dim: 0, expected: m, got });
        }
    }
    Ok((x, w))
}

/// The axes that both kinds have: batch, groups and channels; `w` holds output channels in dim
/// `m_dim`. Returns the map, and the axes of input channels and output channels.
fn channel_axes(
    inputs: &[Option<&Fact>],
    x: &TensorType,
    per_group: (&Dim, &Dim),
    groups: i64,
) -> (AxisMap, [Index; 3]) {
    let mut map = AxisMap::new(inputs.len(), 1);
    let n = map.add("n", &x.shape[0], AxisKind::Parallel);
    let g = (groups > 1).then(|| map.add("g", &Dim::from(groups), AxisKind::Parallel));
    let m = map.add("m", per_group.1, AxisKind::Parallel);
    let c = map.add("c", per_group.0, AxisKind::Reduce(Combiner::Sum));
    let of_group = |axis: usize, size: &Dim| match g {
        Some(g) => Index::axis(axis).plus(g, size.clone()),
        None => Index::axis(axis),
    };
    let (input, output) = (of_group(c, per_group.0), of_group(m, per_group.1));
    (map, [Index::axis(n), input, output])
}

impl OpDef for Conv {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let (x, w) = operands(inputs, self.groups, 0)?;
        let groups = Dim::from(self.groups);
        let channels = &w.shape[1] * &groups;
        if differ(&x.shape[1], &channels) {
            let got = x.shape[1].clone();
            return Err(TypeError::Dim { operand: 0, dim: 1, expected: channels, got });
        }
        if w.shape[0].as_const().is_some_and(|m| m % self.groups != 0) {
            let expected = format!("a divisor of {} output channels", w.shape[0]);
            return Err(attribute("groups", expected, self.groups));
        }
        let mut shape = vec![x.shape[0].clone(), w.shape[0].clone()];
        for (d, slide) in self.slides(x.shape.len() - 2)?.iter().enumerate() {
            shape.push(slide.positions(&x.shape[2 + d], &w.shape[2 + d], false)?);
        }
        Ok(vec![Fact::tensor(x.dtype, shape)])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (dtype, dims) = results(self, inputs)?.swap_remove(0);
        let (x, w) = (inputs.tensor(0)?, inputs.tensor(1)?);
        let taps = Taps::of_conv(self, x, w, &dims)?;
        Ok(vec![taps.eval(x, w, inputs.optional(2)?, dtype, &dims).into()])
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let operands = Operands(inputs);
        let (Ok(x), Ok(w), Some(out)) =
            (operands.tensor(0), operands.tensor(1), outputs[0].ty.as_tensor())
        else {
            return AxisMap::opaque(inputs, outputs);
        };
        let Ok(slides) = self.slides(x.shape.len() - 2) else {
            return AxisMap::opaque(inputs, outputs);
        };
        let m = w.shape[0].floor_div(&Dim::from(self.groups));
        let (mut map, [n, c, m]) = channel_axes(inputs, x, (&w.shape[1], &m), self.groups);
        let mut input = vec![n.clone(), c.clone()];
        let mut filter = vec![m.clone(), Index::axis(c.terms[0].0)];
        map.outputs[0] = vec![n, m.clone()];
        for (d, slide) in slides.iter().enumerate() {
            let o = map.add(format!("o{d}"), &out.shape[2 + d], AxisKind::Parallel);
            let k = map.add(format!("k{d}"), &w.shape[2 + d], AxisKind::Reduce(Combiner::Sum));
            input.push(slide.index(o, k));
            filter.push(Index::axis(k));
            map.outputs[0].push(Index::axis(o));
        }
        map.inputs[0] = Some(input);
        map.inputs[1] = Some(filter);
        if inputs.get(2).copied().flatten().is_some() {
            map.inputs[2] = Some(vec![m]);
            map.finishes = true;
        }
        map
    }

    fn body(&self, inputs: &[Option<&Fact>]) -> Option<Body> {
        Some(Body::contraction(inputs.get(2).copied().flatten().is_some()))
    }

    fn part(&self, part: &Part) -> Conv {
        let groups =
            if part.name == "g" { part.points.end - part.points.start } else { self.groups };
        Conv { pads: part_pads(part, &self.pads), groups, ..self.clone() }
    }
}

/// The transpose of [`Conv`] as a linear map: every input position adds its window of filters to
/// the output. Operands: `x` as `[n, groups * c, ..]`, `w` as `[groups * c, m, ..]`, and
/// optionally `bias` as `[groups * m]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ConvTranspose {
    /// Output steps between input positions, per spatial dim.
    pub strides: Vec<i64>,
    /// Steps between taps, per spatial dim.
    pub dilations: Vec<i64>,
    /// Output positions cut off before and after, per spatial dim.
    pub pads: Vec<(i64, i64)>,
    /// Output positions added after, per spatial dim.
    pub output_padding: Vec<i64>,
    /// Number of independent groups of channels.
    pub groups: i64,
}

impl OpDef for ConvTranspose {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let (x, w) = operands(inputs, self.groups, 1)?;
        expect_same_dim(&Operands(inputs), (0, 1), (1, 0))?;
        if x.shape[1].as_const().is_some_and(|c| c % self.groups != 0) {
            let expected = format!("a divisor of {} input channels", x.shape[1]);
            return Err(attribute("groups", expected, self.groups));
        }
        let spatial = x.shape.len() - 2;
        let slides = slides(spatial, &self.strides, &self.dilations, &self.pads)?;
        if self.output_padding.len() != spatial || self.output_padding.iter().any(|&p| p < 0) {
            let expected = format!("{spatial} numbers of at least 0");
            return Err(attribute("output_padding", expected, &self.output_padding));
        }
        let mut shape = vec![x.shape[0].clone(), &w.shape[1] * &Dim::from(self.groups)];
        let one = Dim::from(1);
        for (d, slide) in slides.iter().enumerate() {
            let spread = (&x.shape[2 + d] - &one) * Dim::from(slide.stride);
            let reach = (&w.shape[2 + d] - &one) * Dim::from(slide.dilation);
            let extra = self.output_padding[d] + 1 - slide.pad.0 - slide.pad.1;
            let size = spread + reach + Dim::from(extra);
            if size.as_const().is_some_and(|n| n < 0) {
                let most = size + Dim::from(slide.pad.0 + slide.pad.1);
                let expected = format!("at most {most} together in dim {d}");
                return Err(attribute("pads", expected, slide.pad));
            }
            shape.push(size);
        }
        Ok(vec![Fact::tensor(x.dtype, shape)])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (dtype, dims) = results(self, inputs)?.swap_remove(0);
        let (x, w) = (inputs.tensor(0)?, inputs.tensor(1)?);
        let taps = Taps::of_transpose(self, x, w, &dims)?;
        Ok(vec![taps.eval(x, w, inputs.optional(2)?, dtype, &dims).into()])
    }

    /// The space is that of the scattered products. Spatial axes are opaque: neighbouring input
    /// positions add to the same outputs.
    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let operands = Operands(inputs);
        let (Ok(x), Ok(w)) = (operands.tensor(0), operands.tensor(1)) else {
            return AxisMap::opaque(inputs, outputs);
        };
        let c = x.shape[1].floor_div(&Dim::from(self.groups));
        let (mut map, [n, c, m]) = channel_axes(inputs, x, (&c, &w.shape[1]), self.groups);
        let mut input = vec![n.clone(), c.clone()];
        let mut filter = vec![c, Index::axis(m.terms[0].0)];
        map.outputs[0] = vec![n, m.clone()];
        for d in 0..x.shape.len() - 2 {
            let i = map.add(format!("i{d}"), &x.shape[2 + d], AxisKind::Opaque);
            let k = map.add(format!("k{d}"), &w.shape[2 + d], AxisKind::Opaque);
            input.push(Index::axis(i));
            filter.push(Index::axis(k));
            let at = Index::default().plus(i, self.strides[d]).plus(k, self.dilations[d]);
            map.outputs[0].push(at.shifted(&Dim::from(-self.pads[d].0)));
        }
        map.inputs[0] = Some(input);
        map.inputs[1] = Some(filter);
        if inputs.get(2).copied().flatten().is_some() {
            map.inputs[2] = Some(vec![m]);
            map.finishes = true;
        }
        map
    }

    fn body(&self, inputs: &[Option<&Fact>]) -> Option<Body> {
        Some(Body::contraction(inputs.get(2).copied().flatten().is_some()))
    }

    fn part(&self, part: &Part) -> ConvTranspose {
        let groups =
            if part.name == "g" { part.points.end - part.points.start } else { self.groups };
        ConvTranspose { groups, ..self.clone() }
    }
}
