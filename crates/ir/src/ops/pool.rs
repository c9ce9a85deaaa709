//! Pooling: one number for every window.

use super::{
    Binary, OpDef,
    elements::sizes,
    results,
    types::{Operands, attribute, expect_dtype, expect_rank},
    window::{MOST_SPATIAL, Slide, lead, part_pads, positions, slides},
};
use crate::{
    AxisKind, AxisMap, Body, Combiner, EvalError, Fact, Index, Inputs, Part, Real, Scalar,
    TypeError,
};
use bricolage_tensor::{DType, Datum, Dim, Tensor};
use serde::{Deserialize, Serialize};

/// What a window gives. Padding is left out unless said otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum PoolKind {
    /// The largest element.
    Max {
        /// A second output, `i64`, holds the flat position of each in the whole operand.
        indices: bool,
    },
    /// The mean.
    Average {
        /// Padding counts as elements of 0.
        count_include_pad: bool,
    },
    /// The `p`-th root of the sum of `p`-th powers of absolute values.
    Lp {
        /// At least 1.
        p: i64,
    },
}

/// Slides a window over one to three spatial dims of an operand `[n, c, ..]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pool {
    /// What each window gives.
    pub kind: PoolKind,
    /// Taps per spatial dim.
    pub kernel: Vec<i64>,
    /// Steps between windows, per spatial dim.
    pub strides: Vec<i64>,
    /// Steps between taps, per spatial dim.
    pub dilations: Vec<i64>,
    /// Padding before and after, per spatial dim.
    pub pads: Vec<(i64, i64)>,
    /// A last window that only partly fits counts, if it starts inside.
    pub ceil_mode: bool,
}

impl Pool {
    fn slides(&self, spatial: usize) -> Result<Vec<Slide>, TypeError> {
        if self.kernel.len() != spatial || self.kernel.iter().any(|&k| k < 1) {
            return Err(attribute("kernel", format!("{spatial} numbers above 0"), &self.kernel));
        }
        slides(spatial, &self.strides, &self.dilations, &self.pads)
    }
}

impl OpDef for Pool {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let x = Operands::new(inputs, 1, 1)?.number(0)?;
        if !matches!(self.kind, PoolKind::Max { .. }) {
            expect_dtype(0, x.dtype, DType::is_float, "float")?;
        }
        if let PoolKind::Lp { p } = self.kind
            && p < 1
        {
            return Err(attribute("p", "above 0", p));
        }
        expect_rank(0, x, 3, 2 + MOST_SPATIAL)?;
        let mut shape = x.shape[..2].to_vec();
        for (d, slide) in self.slides(x.shape.len() - 2)?.iter().enumerate() {
            let kernel = Dim::from(self.kernel[d]);
            shape.push(slide.positions(&x.shape[2 + d], &kernel, self.ceil_mode)?);
        }
        let mut facts = vec![Fact::tensor(x.dtype, shape.clone())];
        if self.kind == (PoolKind::Max { indices: true }) {
            facts.push(Fact::tensor(DType::I64, shape));
        }
        Ok(facts)
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (dtype, dims) = results(self, inputs)?.swap_remove(0);
        let x = inputs.tensor(0)?;
        let slides = self.slides(dims.len() - 2)?;
        let shape = sizes(x.dims());
        let image = lead(&shape[2..], 1);
        let [height, width, depth] = image.map(|d| d as i64);
        let taps: Vec<[i64; MOST_SPATIAL]> = {
            let kernel: Vec<usize> = self.kernel.iter().map(|&k| k as usize).collect();
            let dilation = lead(&self.dilations, 1);
            let scale = |k: [i64; MOST_SPATIAL]| std::array::from_fn(|d| k[d] * dilation[d]);
            positions(lead(&kernel, 1)).map(scale).collect()
        };
        let stride = lead(&self.strides, 1);
        let pads = lead(&slides.iter().map(|s| s.pad).collect::<Vec<_>>(), (0, 0));
        let out = lead(&sizes(&dims[2..]), 1);
        let plane = image.iter().product::<usize>();
        let source =
            if dtype.is_float() { Source::Float(x.to_f64()) } else { Source::Int(x.to_i64()) };
        let (mut values, mut exact, mut indices) = (Vec::new(), Vec::new(), Vec::new());
        let mut inside = Vec::with_capacity(taps.len());
        for base in (0..shape[0] * shape[1]).map(|i| i * plane) {
            for o in positions(out) {
                let start: [i64; MOST_SPATIAL] =
                    std::array::from_fn(|d| o[d] * stride[d] - pads[d].0);
                inside.clear();
                let mut padded = 0usize;
                for tap in &taps {
                    let p: [i64; MOST_SPATIAL] = std::array::from_fn(|d| start[d] + tap[d]);
                    let within = |d: usize, n: i64| (0..n).contains(&p[d]);
                    if within(0, height) && within(1, width) && within(2, depth) {
                        inside.push(base + ((p[0] * width + p[1]) * depth + p[2]) as usize);
                    }
                    let counted = |d: usize| p[d] < image[d] as i64 + pads[d].1;
                    padded += usize::from(counted(0) && counted(1) && counted(2));
                }
                match &source {
                    Source::Float(x) => {
                        let value = self.window(inside.iter().map(|&i| x[i]), inside.len(), padded);
                        values.push(value);
                        let hit = inside.iter().find(|&&i| x[i] == value || x[i].is_nan());
                        indices.push(hit.map_or(-1, |&i| i as i64));
                    }
                    Source::Int(x) => {
                        let best =
                            inside.iter().copied().reduce(|a, b| if x[b] > x[a] { b } else { a });
                        exact.push(best.map_or(i64::MIN, |i| x[i]));
                        indices.push(best.map_or(-1, |i| i as i64));
                    }
                }
            }
        }
        let first = match source {
            Source::Float(_) => Tensor::from_f64(dtype, &dims, &values),
            Source::Int(_) => Tensor::from_i64(dtype, &dims, &exact),
        };
        let mut all = vec![Datum::from(first)];
        if self.kind == (PoolKind::Max { indices: true }) {
            all.push(Tensor::of(&dims, &indices).into());
        }
        Ok(all)
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let (Ok(x), Some(out)) = (Operands(inputs).tensor(0), outputs[0].ty.as_tensor()) else {
            return AxisMap::opaque(inputs, outputs);
        };
        let Ok(slides) = self.slides(x.shape.len() - 2) else {
            return AxisMap::opaque(inputs, outputs);
        };
        // Flat positions refer to the whole operand.
        let flat = self.kind == (PoolKind::Max { indices: true });
        let outer = if flat { AxisKind::Opaque } else { AxisKind::Parallel };
        // Which padding counts depends on where the whole operand ends.
        let ragged = self.ceil_mode && self.kind == PoolKind::Average { count_include_pad: true };
        let spatial = if flat || ragged { AxisKind::Opaque } else { AxisKind::Parallel };
        let combiner = match self.kind {
            PoolKind::Max { .. } => Combiner::Max,
            _ => Combiner::Sum,
        };
        let mut map = AxisMap::new(1, outputs.len());
        let n = map.add("n", &x.shape[0], outer);
        let c = map.add("c", &x.shape[1], outer);
        let (mut input, mut output) =
            (vec![Index::axis(n), Index::axis(c)], vec![Index::axis(n), Index::axis(c)]);
        for (d, slide) in slides.iter().enumerate() {
            let o = map.add(format!("o{d}"), &out.shape[2 + d], spatial);
            let kernel = Dim::from(self.kernel[d]);
            let k = map.add(format!("k{d}"), &kernel, AxisKind::Reduce(combiner));
            input.push(slide.index(o, k));
            output.push(Index::axis(o));
        }
        map.inputs[0] = Some(input);
        map.outputs.fill(output);
        map.finishes = true;
        map
    }

    fn body(&self, _: &[Option<&Fact>]) -> Option<Body> {
        match self.kind {
            PoolKind::Max { indices: false } => Some(Body::of(vec![Scalar::Input(0)])),
            PoolKind::Average { count_include_pad } => {
                let unpadded = self.pads.iter().all(|&p| p == (0, 0));
                if self.ceil_mode || !(unpadded || count_include_pad) {
                    return None;
                }
                let count = self.kernel.iter().product::<i64>() as f64;
                let steps = vec![
                    Scalar::Input(0),
                    Scalar::Combined,
                    Scalar::Constant(Real::new(count)),
                    Scalar::Binary(Binary::Div, 1, 2),
                ];
                Some(Body { steps, point: 0, result: 3 })
            }
            _ => None,
        }
    }

    fn part(&self, part: &Part) -> Pool {
        Pool { pads: part_pads(part, &self.pads), ..self.clone() }
    }
}

enum Source {
    Float(Vec<f64>),
    Int(Vec<i64>),
}

impl Pool {
    fn window(&self, inside: impl Iterator<Item = f64>, count: usize, padded: usize) -> f64 {
        match self.kind {
            PoolKind::Max { .. } => inside.fold(f64::NEG_INFINITY, |a, b| Binary::Max.at(a, b)),
            PoolKind::Average { count_include_pad } => {
                inside.sum::<f64>() / if count_include_pad { padded } else { count } as f64
            }
            PoolKind::Lp { p: 1 } => inside.map(f64::abs).sum(),
            PoolKind::Lp { p: 2 } => inside.map(|x| x * x).sum::<f64>().sqrt(),
            PoolKind::Lp { p } => {
                let p = p as f64;
                inside.map(|x| x.abs().powf(p)).sum::<f64>().powf(1.0 / p)
            }
        }
    }
}
