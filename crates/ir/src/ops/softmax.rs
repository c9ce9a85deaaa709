//! Softmax and attention.

use super::{
    MatMul, OpDef,
    elements::{broadcast_strides, one, sizes},
    matmul::Plan,
    results,
    types::{
        Operands, attribute, broadcast, differ, expect_axis, expect_dtype, expect_rank,
        expect_same_dim,
    },
};
use crate::{AxisKind, AxisMap, EvalError, Fact, Index, Inputs, Real, TypeError, Work, cost};
use bricolage_tensor::{DType, Datum, Dim, Tensor};
use serde::{Deserialize, Serialize};

/// `exp(x) / sum(exp(x))` along a dim, or its logarithm, computed without overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Softmax {
    /// The dim that sums to 1.
    pub axis: usize,
    /// Gives the logarithm.
    pub log: bool,
}

/// Softmax of one lane in place.
fn softmax(lane: &mut [f64], log: bool) {
    let max = lane.iter().fold(f64::NEG_INFINITY, |a, &b| super::Binary::Max.at(a, b));
    let sum: f64 = lane.iter().map(|x| (x - max).exp()).sum();
    for x in lane.iter_mut() {
        *x = if log { *x - max - sum.ln() } else { (*x - max).exp() / sum };
    }
}

impl OpDef for Softmax {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let x = Operands::new(inputs, 1, 1)?.float(0)?;
        expect_axis(self.axis, x.shape.len())?;
        Ok(vec![Fact::from(x.clone())])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        results(self, inputs)?;
        let t = inputs.tensor(0)?;
        let (mut x, shape) = (t.to_f64(), sizes(t.dims()));
        let inner: usize = shape[self.axis + 1..].iter().product();
        let length = shape[self.axis];
        let mut lane = vec![0.0; length];
        for block in x.chunks_mut((length * inner).max(1)) {
            for i in 0..inner {
                for (slot, x) in lane.iter_mut().zip(block[i..].iter().step_by(inner)) {
                    *slot = *x;
                }
                softmax(&mut lane, self.log);
                for (x, slot) in block[i..].iter_mut().step_by(inner).zip(&lane) {
                    *x = *slot;
                }
            }
        }
        one(Tensor::from_f64(t.dtype(), t.dims(), &x))
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let mut map = AxisMap::pointwise(inputs, outputs);
        map.axes[self.axis].kind = AxisKind::Opaque;
        map
    }
}

/// Scaled dot-product attention: `softmax(scale * q k^T + mask) v` for each image and head.
///
/// Operands: `q` as `[b, h, s, d]`, `k` as `[b, hk, t, d]`, `v` as `[b, hk, t, dv]`, and
/// optionally a mask that broadcasts to `[b, h, s, t]`: floats are added, a `Bool` lets through
/// what is true. `hk` divides `h`; head `i` reads `k` and `v` of head `i / (h / hk)`. A query
/// that is shown no key (its mask is -inf throughout) gives 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Attention {
    /// Factor of the scores; `1 / sqrt(d)` when absent.
    pub scale: Option<Real>,
    /// Position `i` of the query sees keys up to `i + t - s`: the last query sees all of them.
    pub causal: bool,
}

impl OpDef for Attention {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let operands = Operands::new(inputs, 3, 4)?;
        let (q, k, v) = (operands.float(0)?, operands.float(1)?, operands.float(2)?);
        for (i, t) in [q, k, v].into_iter().enumerate() {
            expect_rank(i, t, 4, 4)?;
            operands.same_dtype(0, i)?;
            expect_same_dim(&operands, (0, 0), (i, 0))?;
        }
        expect_same_dim(&operands, (0, 3), (1, 3))?;
        expect_same_dim(&operands, (1, 1), (2, 1))?;
        expect_same_dim(&operands, (1, 2), (2, 2))?;
        if let (Some(h), Some(hk)) = (q.shape[1].as_const(), k.shape[1].as_const())
            && (hk < 1 || h % hk != 0)
        {
            let (expected, got) = (q.shape[1].clone(), k.shape[1].clone());
            return Err(TypeError::Dim { operand: 1, dim: 1, expected, got });
        }
        if let Some(mask) = operands.optional(3)? {
            expect_dtype(3, mask.dtype, |d| d.is_float() || d == DType::Bool, "float or bool")?;
            let scores = scores(&q.shape, &k.shape);
            let whole = broadcast(&[(0, &scores), (3, &mask.shape)])?;
            if whole.len() != 4 || whole.iter().zip(&scores).any(|(a, b)| differ(a, b)) {
                let expected = format!("broadcast to {scores:?}");
                return Err(attribute("mask", expected, &mask.shape));
            }
        }
        let [b, h, s] = [0, 1, 2].map(|d| q.shape[d].clone());
        Ok(vec![Fact::tensor(q.dtype, [b, h, s, v.shape[3].clone()])])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (dtype, dims) = results(self, inputs)?.swap_remove(0);
        let (q, k, v) = (inputs.tensor(0)?, inputs.tensor(1)?, inputs.tensor(2)?);
        let (b, h, s, d) = (q.dims()[0], q.dims()[1], q.dims()[2], q.dims()[3]);
        let (hk, t, dv) = (k.dims()[1], k.dims()[2], v.dims()[3]);
        let scale = self.scale.map_or(1.0 / (d as f64).sqrt(), Real::get);
        // Query heads that share keys are one dim that the keys broadcast over.
        let grouped = [b, hk, h / hk.max(1), s, d];
        let (keys, values) = ([b, hk, 1, t, d], [b, hk, 1, t, dv]);
        let scored = [b, hk, h / hk.max(1), s, t];
        let product = MatMul { transpose_lhs: false, transpose_rhs: true };
        let plan = Plan::new(product, &grouped, &keys, &scored);
        let mut scores = plan.run::<f64, f64>(&q.to_f64(), &k.to_f64(), |x| x * scale);
        let shape = sizes(&[b, h, s, t]);
        let mask = inputs.optional(3)?.map(|m| {
            let truth = m.dtype() == DType::Bool;
            let add = move |x: f64| match (truth, x) {
                (false, x) => x,
                (true, 0.0) => f64::NEG_INFINITY,
                (true, _) => 0.0,
            };
            let values: Vec<f64> = m.to_f64().into_iter().map(add).collect();
            (values, broadcast_strides(&sizes(m.dims()), &shape))
        });
        for (row, lane) in scores.chunks_mut((t as usize).max(1)).enumerate() {
            let position = row % shape[2];
            let seen = match self.causal {
                true => (position as i64 + t - s + 1).clamp(0, t) as usize,
                false => t as usize,
            };
            let mut blind = seen == 0;
            if let Some((values, strides)) = &mask {
                let base = row / (shape[1] * shape[2]) * strides[0]
                    + row / shape[2] % shape[1] * strides[1]
                    + position * strides[2];
                let at = |j: usize| values[base + j * strides[3]];
                blind |= (0..seen).all(|j| at(j) == f64::NEG_INFINITY);
                for (j, x) in lane.iter_mut().enumerate() {
                    *x += at(j);
                }
            }
            if blind {
                lane.fill(0.0);
                continue;
            }
            lane[seen..].fill(f64::NEG_INFINITY);
            softmax(lane, false);
        }
        let out = [b, hk, h / hk.max(1), s, dv];
        let plan = Plan::new(MatMul::default(), &scored, &values, &out);
        let to = plan.run::<f64, f64>(&scores, &v.to_f64(), |x| x);
        one(Tensor::from_f64(dtype, &dims, &to))
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let operands = Operands(inputs);
        let (Ok(q), Ok(k), Ok(v)) = (operands.tensor(0), operands.tensor(1), operands.tensor(2))
        else {
            return AxisMap::opaque(inputs, outputs);
        };
        let mut map = AxisMap::new(inputs.len(), 1);
        let b = map.add("b", &q.shape[0], AxisKind::Parallel);
        let share = q.shape[1].floor_div(&k.shape[1]);
        let g = map.add("g", &k.shape[1], AxisKind::Parallel);
        let r = map.add("r", &share, AxisKind::Parallel);
        let query = if self.causal { AxisKind::Opaque } else { AxisKind::Parallel };
        let s = map.add("s", &q.shape[2], query);
        let t = map.add("t", &k.shape[2], AxisKind::Opaque);
        let d = map.add("d", &q.shape[3], AxisKind::Opaque);
        let e = map.add("v", &v.shape[3], AxisKind::Parallel);
        let head = Index::axis(r).plus(g, share);
        let index = |axes: [usize; 4]| axes.map(Index::axis).to_vec();
        let mut query = index([b, r, s, d]);
        query[1] = head.clone();
        map.outputs[0] = vec![query[0].clone(), head.clone(), query[2].clone(), Index::axis(e)];
        map.inputs[0] = Some(query);
        map.inputs[1] = Some(index([b, g, t, d]));
        map.inputs[2] = Some(index([b, g, t, e]));
        if let Ok(Some(mask)) = operands.optional(3) {
            let scores = scores(&q.shape, &k.shape);
            let whole = [Index::axis(b), head, Index::axis(s), Index::axis(t)];
            let lead = 4 - mask.shape.len();
            let mut of_mask = Vec::new();
            for (d, dim) in mask.shape.iter().enumerate() {
                if *dim == scores[lead + d] {
                    of_mask.push(whole[lead + d].clone());
                    continue;
                }
                of_mask.push(Index::fixed(0));
                if dim.as_const() != Some(1) {
                    for (axis, _) in &whole[lead + d].terms {
                        map.axes[*axis].kind = AxisKind::Opaque;
                    }
                }
            }
            map.inputs[3] = Some(of_mask);
        }
        map
    }

    /// Two products, of `d` and of `dv` multiply-adds per score.
    fn work(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> Option<Work> {
        let operands = Operands(inputs);
        let (q, k) = (operands.tensor(0).ok()?, operands.tensor(1).ok()?);
        let v = operands.tensor(2).ok()?;
        let points = cost::product(&scores(&q.shape, &k.shape))?;
        let (d, e) = (q.shape[3].as_const()?, v.shape[3].as_const()?);
        let macs = points.checked_mul((d + e) as u64)?;
        let facts = inputs.iter().flatten().copied().chain(outputs);
        let bytes = facts.map(cost::byte_len).sum::<Option<u64>>()?;
        Some(Work { points, macs, bytes })
    }
}

/// The shape of the scores.
fn scores(q: &[Dim], k: &[Dim]) -> [Dim; 4] {
    [q[0].clone(), q[1].clone(), q[2].clone(), k[2].clone()]
}
