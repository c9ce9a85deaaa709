//! Softmax and attention.

use super::at::{At, Fault, Imported, Step, malformed, unsupported};
use bricolage_ir::{
    Real, ValueId,
    ops::{
        ArgReduce, Attention, Binary, Cast, Concat, Expand, Iota, MatMul, OneHot, Pad, PadMode,
        Reduce, ReduceKind, Select, Softmax, Unary,
    },
};
use bricolage_tensor::{DType, Dim, Shape, Tensor};

/// The axis, and for operator sets that flatten around it, the operand as a matrix.
fn rows(at: &mut At<'_, '_>) -> Result<(ValueId, usize, Option<Vec<Dim>>), Fault> {
    let x = at.all(1, 1)?[0];
    let dims = at.dims(x)?;
    let old = at.opset < 13;
    let axis = at.int_or("axis", if old { 1 } else { -1 })?;
    if dims.is_empty() {
        return malformed("needs operand 0 to have dims, found a scalar");
    }
    if !old {
        return Ok((x, at.axis(axis, dims.len())?, None));
    }
    let axis = if axis == dims.len() as i64 { dims.len() } else { at.axis(axis, dims.len())? };
    if axis + 1 == dims.len() {
        return Ok((x, axis, None));
    }
    let product = |dims: &[Dim]| dims.iter().fold(Dim::from(1), |p, d| &p * d);
    let matrix = at.reshape(x, vec![product(&dims[..axis]), product(&dims[axis..])])?;
    Ok((matrix, 1, Some(dims)))
}

pub(crate) fn softmax(at: &mut At<'_, '_>, log: bool) -> Imported {
    let (x, axis, back) = rows(at)?;
    let y = at.add(Softmax { axis, log }, &[x])?;
    match back {
        Some(dims) => Ok(vec![at.reshape(y, dims)?]),
        None => Ok(vec![y]),
    }
}

/// One at the first largest element, 0 elsewhere.
pub(crate) fn hardmax(at: &mut At<'_, '_>) -> Imported {
    let (x, axis, back) = rows(at)?;
    let ty = at.ty(x)?;
    let argmax = ArgReduce { largest: true, axis, keep_dims: false, select_last: false };
    let best = at.add(argmax, &[x])?;
    let values = at.tensor_value(Tensor::from_f64(ty.dtype, &[2], &[0.0, 1.0]));
    let y = at.add(OneHot { axis, depth: ty.shape[axis].clone() }, &[best, values])?;
    match back {
        Some(dims) => Ok(vec![at.reshape(y, dims)?]),
        None => Ok(vec![y]),
    }
}

/// `[b, s, h * d]` as `[b, h, s, d]`.
fn split_heads(at: &mut At<'_, '_>, x: ValueId, heads: i64) -> Step {
    let dims = at.dims(x)?;
    let heads = Dim::from(heads);
    let size = dims[2].floor_div(&heads);
    let apart = at.reshape(x, vec![dims[0].clone(), dims[1].clone(), heads, size])?;
    at.transpose(apart, &[0, 2, 1, 3])
}

struct Scores {
    scale: f64,
    softcap: f64,
    mode: i64,
}

pub(crate) fn attention(at: &mut At<'_, '_>) -> Imported {
    at.at_most(7)?;
    let [mut q, mut k, mut v] = [at.input(0)?, at.input(1)?, at.input(2)?];
    let causal = at.flag("is_causal", false)?;
    let (heads, kv_heads) = (at.int_or("q_num_heads", 0)?, at.int_or("kv_num_heads", 0)?);
    let softcap = f64::from(at.float("softcap", 0.0)?);
    let mode = at.int_or("qk_matmul_output_mode", 0)?;
    at.ignore(&["softmax_precision"]);
    let reach = [at.int_or("left_window_size", -1)?, at.int_or("right_window_size", -1)?];
    let flat = at.rank(q)? == 3;
    if flat {
        if heads < 1 || kv_heads < 1 {
            return malformed("needs `q_num_heads` and `kv_num_heads` for 3 dims, found none");
        }
        q = split_heads(at, q, heads)?;
        k = split_heads(at, k, kv_heads)?;
        v = split_heads(at, v, kv_heads)?;
    }
    for (operand, x) in [q, k, v].into_iter().enumerate() {
        let got = at.rank(x)?;
        if got != 4 {
            return Err(bricolage_ir::TypeError::Rank { operand, min: 3, max: 4, got }.into());
        }
    }
    let filled = at.optional(6);
    let mut offset = Dim::from(0);
    if let (Some(past_k), Some(past_v)) = (at.optional(4), at.optional(5)) {
        offset = at.dims(past_k)?.get(2).cloned().unwrap_or_default();
        k = at.add(Concat { axis: 2 }, &[past_k, k])?;
        v = at.add(Concat { axis: 2 }, &[past_v, v])?;
    }
    let (dims, key_dims) = (at.dims(q)?, at.dims(k)?);
    let (s, t) = (dims[2].clone(), key_dims[2].clone());
    let mut mask = at.optional(3);
    if let Some(m) = mask {
        mask = Some(padded(at, m, &t)?);
    }
    // The op lets the last query see every key; another offset is part of the mask.
    let aligned = &t - &s == offset && filled.is_none();
    let scale = at.float("scale", 0.0)?;
    let scale = match (scale, dims[3].as_const()) {
        (scale, _) if scale != 0.0 => f64::from(scale),
        (_, Some(d)) => 1.0 / (d as f64).sqrt(),
        _ => return unsupported("needs the size of a head as a number"),
    };
    let explicit = softcap != 0.0 || at.wants(3);
    let causal_here = causal && (!aligned || explicit);
    let limits = Limits { causal: causal_here, left: reach[0], right: reach[1], offset, filled };
    if let Some(seen) = limits.seen(at, &s, &t)? {
        mask = Some(hidden_elsewhere(at, seen, mask)?);
    }
    let (mut y, scores) = if explicit {
        let how = Scores { scale, softcap, mode };
        let (y, scores) = primitives(at, [q, k, v], mask, &how)?;
        (y, Some(scores))
    } else {
        let op = Attention { scale: Some(Real::new(scale)), causal: causal && aligned };
        let mut inputs = vec![q, k, v];
        inputs.extend(mask);
        (at.add(op, &inputs)?, None)
    };
    if flat {
        let together = at.transpose(y, &[0, 2, 1, 3])?;
        let d = at.dims(together)?;
        y = at.reshape(together, vec![d[0].clone(), d[1].clone(), &d[2] * &d[3]])?;
    }
    let mut outputs = vec![y, k, v];
    outputs.extend(scores);
    Ok(outputs)
}

/// A mask over fewer keys than there are hides the others.
fn padded(at: &mut At<'_, '_>, mask: ValueId, keys: &Dim) -> Step {
    let ty = at.ty(mask)?;
    let Some(last) = ty.shape.last() else { return Ok(mask) };
    let missing = keys - last;
    if last.as_const() == Some(1) || missing.as_const().is_none_or(|m| m <= 0) {
        return Ok(mask);
    }
    let (before, mut after) =
        (vec![Dim::from(0); ty.shape.len()], vec![Dim::from(0); ty.shape.len()]);
    after[ty.shape.len() - 1] = missing;
    let hidden = if ty.dtype == DType::Bool { 0.0 } else { f64::NEG_INFINITY };
    let fill = at.scalar(ty.dtype, hidden);
    at.add(Pad { mode: PadMode::Constant, before, after }, &[mask, fill])
}

/// Which keys the position of a query lets it see.
struct Limits {
    /// None after the query's own.
    causal: bool,
    /// Most keys before and after the query's own; below 0, any number.
    left: i64,
    right: i64,
    /// The position of the first query, where it is the same in all images.
    offset: Dim,
    /// Number of keys that are there in each image; the last query is at the last of them.
    filled: Option<ValueId>,
}

impl Limits {
    /// A mask that is true for what may be seen; `None` where that is everything.
    fn seen(&self, at: &mut At<'_, '_>, s: &Dim, t: &Dim) -> Result<Option<ValueId>, Fault> {
        let near = self.causal || self.left >= 0 || self.right >= 0;
        if !near && self.filled.is_none() {
            return Ok(None);
        }
        let one = || Dim::from(1);
        let range =
            |start: Dim, len: &Dim| Iota { dtype: DType::I64, start, len: len.clone(), step: 1 };
        let keys = at.add::<ValueId>(range(Dim::from(0), t), &[])?;
        let mut parts = Vec::new();
        let filled = match self.filled {
            Some(count) => {
                let images = at.dims(count)?.first().cloned().unwrap_or(one());
                let count = at.reshape(count, vec![images, one(), one(), one()])?;
                parts.push(at.add(Binary::Less, &[keys, count])?);
                Some(count)
            }
            None => None,
        };
        if near {
            let first =
                if filled.is_some() { Dim::from(0) - s.clone() } else { self.offset.clone() };
            let queries = at.add::<ValueId>(range(first, s), &[])?;
            let mut queries = at.reshape(queries, vec![s.clone(), one()])?;
            if let Some(count) = filled {
                queries = at.add(Binary::Add, &[queries, count])?;
            }
            let mut bound = |at: &mut At<'_, '_>, f, shift: i64| -> Result<(), Fault> {
                let shift = at.tensor_value(Tensor::of(&[], &[shift]));
                let limit = at.add(Binary::Add, &[queries, shift])?;
                parts.push(at.add(f, &[keys, limit])?);
                Ok(())
            };
            if self.causal {
                bound(at, Binary::LessEqual, 0)?;
            }
            if self.left >= 0 {
                bound(at, Binary::GreaterEqual, -self.left)?;
            }
            if self.right >= 0 {
                bound(at, Binary::LessEqual, self.right)?;
            }
        }
        let Some((&first, rest)) = parts.split_first() else { return Ok(None) };
        let all = |seen, &part| at.add(Binary::And, &[seen, part]);
        rest.iter().try_fold(first, all).map(Some)
    }
}

/// A mask that shows what `mask` does, and nothing that is not seen.
fn hidden_elsewhere(at: &mut At<'_, '_>, seen: ValueId, mask: Option<ValueId>) -> Step {
    let Some(m) = mask else { return Ok(seen) };
    match at.ty(m)?.dtype {
        DType::Bool => at.add(Binary::And, &[m, seen]),
        dtype => {
            let hidden = at.scalar(dtype, f64::NEG_INFINITY);
            at.add(Select, &[seen, m, hidden])
        }
    }
}

/// Attention step by step, with the scores as the second result.
fn primitives(
    at: &mut At<'_, '_>,
    [q, k, v]: [ValueId; 3],
    mask: Option<ValueId>,
    how: &Scores,
) -> Result<(ValueId, ValueId), Fault> {
    let heads = at.dims(q)?[1].clone();
    let (k, v) = (repeat_heads(at, k, &heads)?, repeat_heads(at, v, &heads)?);
    let dtype = at.ty(q)?.dtype;
    let product = at.add(MatMul { transpose_lhs: false, transpose_rhs: true }, &[q, k])?;
    let scale = at.scalar(dtype, how.scale);
    let mut x = at.add(Binary::Mul, &[product, scale])?;
    let mut shown = x;
    if how.softcap != 0.0 {
        let cap = at.scalar(dtype, how.softcap);
        let part = at.add(Binary::Div, &[x, cap])?;
        let bent = at.add(Unary::Tanh, &[part])?;
        x = at.add(Binary::Mul, &[bent, cap])?;
        if how.mode == 1 {
            shown = x;
        }
    }
    let mut bias = None;
    if let Some(mut m) = mask {
        if at.ty(m)?.dtype == DType::Bool {
            let (zero, hidden) = (at.scalar(dtype, 0.0), at.scalar(dtype, f64::NEG_INFINITY));
            m = at.add(Select, &[m, zero, hidden])?;
        } else if at.ty(m)?.dtype != dtype {
            m = at.add(Cast::to(dtype), &[m])?;
        }
        x = at.add(Binary::Add, &[x, m])?;
        bias = Some(m);
    }
    if how.mode == 2 {
        shown = x;
    }
    let mut weights = at.add(Softmax { axis: 3, log: false }, &[x])?;
    if let Some(m) = bias {
        // A query that sees no key has no weights.
        let axes = at.rank(m)?.checked_sub(1).into_iter().collect();
        let best = at.add(Reduce { kind: ReduceKind::Max, axes, keep_dims: true }, &[m])?;
        let (zero, hidden) = (at.scalar(dtype, 0.0), at.scalar(dtype, f64::NEG_INFINITY));
        let blind = at.add(Binary::Equal, &[best, hidden])?;
        weights = at.add(Select, &[blind, zero, weights])?;
    }
    if how.mode == 3 {
        shown = weights;
    }
    Ok((at.add(MatMul::default(), &[weights, v])?, shown))
}

/// Every head of keys or values as often as query heads share it.
pub(super) fn repeat_heads(at: &mut At<'_, '_>, x: ValueId, heads: &Dim) -> Step {
    let d = at.dims(x)?;
    if d[1] == *heads {
        return Ok(x);
    }
    let share = heads.floor_div(&d[1]);
    let one = Dim::from(1);
    let apart = at.reshape(x, vec![d[0].clone(), d[1].clone(), one, d[2].clone(), d[3].clone()])?;
    let to = Shape(vec![d[0].clone(), d[1].clone(), share, d[2].clone(), d[3].clone()]);
    let spread = at.add(Expand { to }, &[apart])?;
    at.reshape(spread, vec![d[0].clone(), heads.clone(), d[2].clone(), d[3].clone()])
}
