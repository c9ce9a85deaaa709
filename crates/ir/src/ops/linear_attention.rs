//! Attention by a recurrent state.

use super::{
    OpDef,
    elements::sizes,
    results,
    types::{Operands, attribute, differ, expect_rank, expect_same_dim},
};
use crate::{AxisKind, AxisMap, EvalError, Fact, Index, Inputs, Part, Real, TypeError};
use bricolage_tensor::{DType, Datum, Dim, Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// What a step writes into the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Update {
    /// The outer product of key and value.
    Add,
    /// The outer product of the key and what the value differs by from the one that the state holds for
    /// the key, times the rate (Schlag et al., "Linear Transformers Are Secretly Fast Weight
    /// Programmers", 2021).
    Correct,
}

/// For each image and head, a state `S` of `[dk, dv]` that starts as the past one, or 0, and at each position:
///
/// 1. `S` is scaled by `exp(decay)`, where there is a decay: each row by its own, or all by one;
/// 2. `S += k (x) v`, or with [`Update::Correct`] `S += rate * k (x) (v - S^T k)`;
/// 3. the result is `scale * S^T q`.
///
/// Operands: `q` as `[b, t, heads * dk]`, `k` as `[b, t, kv_heads * dk]`, `v` as `[b, t, kv_heads * dv]`, and
/// optionally the past state as `[b, kv_heads, dk, dv]`, the decay as `[b, t, kv_heads * dk]` or
/// `[b, t, kv_heads]`, and the rate as `[b, t, kv_heads]` or `[b, t, 1]`, 1 where it is absent. Query head `i`
/// reads the state of head `i / (heads / kv_heads)`. Results: `[b, t, heads * dv]`, and the last state, which
/// has the element type of the past one, or of `q`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LinearAttention {
    /// Number of query heads.
    pub heads: i64,
    /// Number of states; it divides `heads`.
    pub kv_heads: i64,
    /// See above.
    pub update: Update,
    /// Factor of the results.
    pub scale: Real,
}

/// Sizes that are numbers or expressions: key and value per head.
struct Depths {
    key: Dim,
    value: Dim,
}

impl LinearAttention {
    fn depths(&self, k: &TensorType, v: &TensorType) -> Depths {
        let heads = Dim::from(self.kv_heads);
        Depths { key: k.shape[2].floor_div(&heads), value: v.shape[2].floor_div(&heads) }
    }
}

impl OpDef for LinearAttention {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let operands = Operands::new(inputs, 3, 6)?;
        if self.kv_heads < 1 || self.heads < 1 || self.heads % self.kv_heads != 0 {
            let expected = format!("a multiple of {}, above 0", self.kv_heads);
            return Err(attribute("heads", expected, self.heads));
        }
        let (q, k, v) = (operands.float(0)?, operands.float(1)?, operands.float(2)?);
        for i in [0, 1, 2, 4, 5] {
            let Some(t) = operands.optional(i)? else { continue };
            expect_rank(i, t, 3, 3)?;
            operands.same_dtype(0, i)?;
            expect_same_dim(&operands, (0, 0), (i, 0))?;
            expect_same_dim(&operands, (0, 1), (i, 1))?;
        }
        let parts = [(0, q, self.heads), (1, k, self.kv_heads), (2, v, self.kv_heads)];
        for (operand, t, heads) in parts {
            if t.shape[2].as_const().is_some_and(|d| d % heads != 0) {
                let (expected, got) = (Dim::from(heads), t.shape[2].clone());
                return Err(TypeError::Dim { operand, dim: 2, expected, got });
            }
        }
        let Depths { key, value } = self.depths(k, v);
        let heads = Dim::from(self.heads);
        let expect = |operand: usize, dim: usize, allowed: &[&Dim], got: &Dim| match allowed
            .iter()
            .all(|a| differ(a, got))
        {
            true => {
                let (expected, got) = (allowed[0].clone(), got.clone());
                Err(TypeError::Dim { operand, dim, expected, got })
            }
            false => Ok(()),
        };
        expect(0, 2, &[&(&heads * &key)], &q.shape[2])?;
        let kv_heads = Dim::from(self.kv_heads);
        let state = [q.shape[0].clone(), kv_heads.clone(), key.clone(), value.clone()];
        let mut state_type = q.dtype;
        if let Some(past) = operands.optional(3)? {
            operands.float(3)?;
            expect_rank(3, past, 4, 4)?;
            for (dim, (expected, got)) in state.iter().zip(past.shape.iter()).enumerate() {
                expect(3, dim, &[expected], got)?;
            }
            state_type = past.dtype;
        }
        if let Some(decay) = operands.optional(4)? {
            expect(4, 2, &[&k.shape[2], &kv_heads], &decay.shape[2])?;
        }
        if let Some(rate) = operands.optional(5)? {
            expect(5, 2, &[&kv_heads, &Dim::from(1)], &rate.shape[2])?;
        }
        let out = [q.shape[0].clone(), q.shape[1].clone(), &heads * &value];
        Ok(vec![Fact::tensor(q.dtype, out), Fact::tensor(state_type, state)])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let types = results(self, inputs)?;
        let [(dtype, dims), (state_dtype, state_dims)]: &[(DType, Vec<i64>)] = &types[..] else {
            return Err(EvalError::Operand { operand: 0, expected: "tensor" });
        };
        let [batches, kv_heads, dk, dv] = sizes(state_dims)[..] else {
            return Err(EvalError::Operand { operand: 3, expected: "tensor of 4 dims" });
        };
        let (length, share) = (dims[1] as usize, (self.heads / self.kv_heads) as usize);
        let numbers = |i: usize| -> Result<Vec<f64>, EvalError> { Ok(inputs.tensor(i)?.to_f64()) };
        let (q, k, v) = (numbers(0)?, numbers(1)?, numbers(2)?);
        let mut state = match inputs.optional(3)? {
            Some(past) => past.to_f64(),
            None => vec![0.0; batches * kv_heads * dk * dv],
        };
        let optional = |i: usize| -> Result<Option<(Vec<f64>, usize)>, EvalError> {
            Ok(inputs.optional(i)?.map(|t| (t.to_f64(), t.dims()[2] as usize)))
        };
        let (decay, rate) = (optional(4)?, optional(5)?);
        let mut out = vec![0.0; dims.iter().product::<i64>() as usize];
        for b in 0..batches {
            for h in 0..kv_heads {
                let s = &mut state[(b * kv_heads + h) * dk * dv..][..dk * dv];
                for t in 0..length {
                    let row = b * length + t;
                    if let Some((g, width)) = &decay {
                        let per_head = *width == kv_heads && dk != 1;
                        for (i, line) in s.chunks_mut(dv.max(1)).enumerate().take(dk) {
                            let at = if per_head { h } else { h * dk + i };
                            let factor = g[row * width + at].exp();
                            line.iter_mut().for_each(|x| *x *= factor);
                        }
                    }
                    let key = &k[(row * kv_heads + h) * dk..][..dk];
                    let value = &v[(row * kv_heads + h) * dv..][..dv];
                    let rate = rate
                        .as_ref()
                        .map_or(1.0, |(r, width)| r[row * width + if *width == 1 { 0 } else { h }]);
                    let held = |s: &[f64], x: &[f64], j: usize| -> f64 {
                        x.iter().enumerate().map(|(i, x)| x * s[i * dv + j]).sum()
                    };
                    let change: Vec<f64> = match self.update {
                        Update::Add => value.to_vec(),
                        Update::Correct => {
                            (0..dv).map(|j| rate * (value[j] - held(s, key, j))).collect()
                        }
                    };
                    for (i, x) in key.iter().enumerate() {
                        for (j, c) in change.iter().enumerate() {
                            s[i * dv + j] += x * c;
                        }
                    }
                    for r in 0..share {
                        let head = row * kv_heads * share + h * share + r;
                        let query = &q[head * dk..][..dk];
                        for j in 0..dv {
                            out[head * dv + j] = self.scale.get() * held(s, query, j);
                        }
                    }
                }
            }
        }
        Ok(vec![
            Tensor::from_f64(*dtype, dims, &out).into(),
            Tensor::from_f64(*state_dtype, state_dims, &state).into(),
        ])
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let operands = Operands(inputs);
        let (Ok(q), Ok(k), Ok(v)) = (operands.tensor(0), operands.tensor(1), operands.tensor(2))
        else {
            return AxisMap::opaque(inputs, outputs);
        };
        let Depths { key, value } = self.depths(k, v);
        let share = Dim::from(self.heads / self.kv_heads);
        let mut map = AxisMap::new(inputs.len(), 2);
        let b = map.add("b", &q.shape[0], AxisKind::Parallel);
        let g = map.add("g", &Dim::from(self.kv_heads), AxisKind::Parallel);
        let r = map.add("r", &share, AxisKind::Opaque);
        let t = map.add("t", &q.shape[1], AxisKind::Opaque);
        let i = map.add("k", &key, AxisKind::Opaque);
        let j = map.add("v", &value, AxisKind::Opaque);
        let packed = |depth: usize, size: &Dim, heads: bool| {
            let index = Index::axis(depth);
            match heads {
                true => index.plus(r, size.clone()).plus(g, &share * size),
                false => index.plus(g, size.clone()),
            }
        };
        let row = |last: Index| vec![Index::axis(b), Index::axis(t), last];
        map.inputs[0] = Some(row(packed(i, &key, true)));
        map.inputs[1] = Some(row(packed(i, &key, false)));
        map.inputs[2] = Some(row(packed(j, &value, false)));
        map.outputs[0] = row(packed(j, &value, true));
        map.outputs[1] = [b, g, i, j].map(Index::axis).to_vec();
        if inputs.get(3).copied().flatten().is_some() {
            map.inputs[3] = Some([b, g, i, j].map(Index::axis).to_vec());
        }
        if let Ok(Some(decay)) = operands.optional(4) {
            let rows = differ(&decay.shape[2], &Dim::from(self.kv_heads));
            map.inputs[4] = Some(row(if rows { packed(i, &key, false) } else { Index::axis(g) }));
        }
        if let Ok(Some(rate)) = operands.optional(5) {
            let one = rate.shape[2].as_const() == Some(1);
            map.inputs[5] = Some(row(if one { Index::fixed(0) } else { Index::axis(g) }));
        }
        map
    }

    fn part(&self, part: &Part) -> LinearAttention {
        if part.name != "g" {
            return *self;
        }
        let kv_heads = part.points.end - part.points.start;
        LinearAttention { heads: self.heads / self.kv_heads * kv_heads, kv_heads, ..*self }
    }
}
