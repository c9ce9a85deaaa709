//! Composite ops in the primitive spelling of exporters.

use super::{Growing, elements::activate, is_norm_worth, real};
use bricolage_ir::{
    ValueId,
    ops::{
        Attention, Binary, Clip, MatMul, Reduce, ReduceKind, Reshape, Softmax, Transpose, Unary,
    },
};
use bricolage_tensor::{DType, Shape, Tensor};

fn either(g: &mut Growing, function: Binary, a: ValueId, b: ValueId) -> Option<ValueId> {
    let pair = if function.commutes() && g.chance(0.5) { [b, a] } else { [a, b] };
    g.on(function, &pair)
}

fn with_number(g: &mut Growing, function: Binary, x: ValueId, number: f64) -> Option<ValueId> {
    let dtype = g.dtype_of(x);
    let number = g.number(dtype, number);
    either(g, function, x, number)
}

/// `x / 2 * (1 + erf(x / sqrt(2)))` in one of its spellings, or the approximation by a hyperbolic tangent.
pub(super) fn gelu(g: &mut Growing) -> Option<()> {
    let x = g.pick_float(1..=5)?;
    if g.chance(0.35) {
        let cubed = if g.chance(0.5) {
            let dtype = g.dtype_of(x);
            let three = g.number(dtype, 3.0);
            g.on(Binary::Pow, &[x, three])?
        } else {
            let squared = g.on(Binary::Mul, &[x, x])?;
            either(g, Binary::Mul, squared, x)?
        };
        let scaled = with_number(g, Binary::Mul, cubed, 0.044715)?;
        let sum = either(g, Binary::Add, x, scaled)?;
        let inner = with_number(g, Binary::Mul, sum, (2.0 / std::f64::consts::PI).sqrt())?;
        let tanh = g.on(Unary::Tanh, &[inner])?;
        let one = with_number(g, Binary::Add, tanh, 1.0)?;
        return halves(g, x, one);
    }
    let scaled = if g.chance(0.6) {
        let dtype = g.dtype_of(x);
        let root = g.number(dtype, std::f64::consts::SQRT_2);
        g.on(Binary::Div, &[x, root])?
    } else {
        with_number(g, Binary::Mul, x, std::f64::consts::FRAC_1_SQRT_2)?
    };
    let erf = g.on(Unary::Erf, &[scaled])?;
    let one = with_number(g, Binary::Add, erf, 1.0)?;
    halves(g, x, one)
}

/// `x * y / 2` in some order.
fn halves(g: &mut Growing, x: ValueId, y: ValueId) -> Option<()> {
    if g.chance(0.5) {
        let product = either(g, Binary::Mul, x, y)?;
        with_number(g, Binary::Mul, product, 0.5)?;
    } else {
        let half = with_number(g, Binary::Mul, x, 0.5)?;
        either(g, Binary::Mul, half, y)?;
    }
    Some(())
}

/// `x` times a function of `x`: silu, hard swish, mish; or a gated unit.
pub(super) fn gated(g: &mut Growing) -> Option<()> {
    let x = g.pick_float(1..=5)?;
    let gate = match g.below(4) {
        0 => g.on(Unary::Sigmoid, &[x])?,
        1 => {
            let sum = with_number(g, Binary::Add, x, 3.0)?;
            let (low, high) = (Some(real(0.0)), Some(real(6.0)));
            let bounded = g.on(Clip { min: low, max: high }, &[sum])?;
            let product = either(g, Binary::Mul, x, bounded)?;
            let dtype = g.dtype_of(x);
            let six = g.number(dtype, 6.0);
            return g.on(Binary::Div, &[product, six]).map(|_| ());
        }
        2 => {
            let soft = g.on(Unary::Softplus, &[x])?;
            g.on(Unary::Tanh, &[soft])?
        }
        _ => {
            let op = Unary::HardSigmoid { alpha: real(1.0 / 6.0), beta: real(0.5) };
            g.on(op, &[x])?
        }
    };
    either(g, Binary::Mul, x, gate).map(|_| ())
}

/// Layer norm or its mean-free form from reductions.
pub(super) fn norm(g: &mut Growing) -> Option<()> {
    let x = g.pick_float(2..=4)?;
    let (dims, dtype) = (g.dims(x), g.dtype_of(x));
    let axis = if g.chance(0.85) { dims.len() - 1 } else { g.below(dims.len()) };
    if !is_norm_worth(dims[axis]) {
        return None;
    }
    let mean = Reduce { kind: ReduceKind::Mean, axes: vec![axis], keep_dims: true };
    let centred = if g.chance(0.6) {
        let middle = g.on(mean.clone(), &[x])?;
        g.on(Binary::Sub, &[x, middle])?
    } else {
        x
    };
    let squared = if g.chance(0.5) {
        let two = g.number(dtype, 2.0);
        g.on(Binary::Pow, &[centred, two])?
    } else {
        g.on(Binary::Mul, &[centred, centred])?
    };
    let variance = g.on(mean, &[squared])?;
    let shifted = with_number(g, Binary::Add, variance, 1e-5)?;
    let root = g.on(Unary::Sqrt, &[shifted])?;
    let y = if g.chance(0.6) {
        g.on(Binary::Div, &[centred, root])?
    } else {
        let inverse = g.on(Unary::Reciprocal, &[root])?;
        either(g, Binary::Mul, centred, inverse)?
    };
    if g.chance(0.2) {
        return Some(());
    }
    let scale = g.weight(dtype, &dims[dims.len() - 1..], 0.7)?;
    let scaled = either(g, Binary::Mul, y, scale)?;
    if g.chance(0.7) {
        let shift = g.weight(dtype, &dims[dims.len() - 1..], 0.5)?;
        either(g, Binary::Add, scaled, shift)?;
    }
    Some(())
}

pub(super) fn softmax(g: &mut Growing) -> Option<()> {
    let x = g.pick_float(1..=4)?;
    let axis = g.below(g.dims(x).len());
    let along = |kind| Reduce { kind, axes: vec![axis], keep_dims: true };
    let shifted = if g.chance(0.7) {
        let largest = g.on(along(ReduceKind::Max), &[x])?;
        g.on(Binary::Sub, &[x, largest])?
    } else {
        x
    };
    let powers = g.on(Unary::Exp, &[shifted])?;
    let sum = g.on(along(ReduceKind::Sum), &[powers])?;
    g.on(Binary::Div, &[powers, sum]).map(|_| ())
}

/// Rows times a matrix, plus a shift.
fn linear(g: &mut Growing, x: ValueId, width: i64) -> Option<ValueId> {
    let (dims, dtype) = (g.dims(x), g.dtype_of(x));
    let depth = dims[dims.len() - 1];
    let w = g.weight(dtype, &[depth, width], 1.0 / (depth as f64).sqrt())?;
    let y = g.on(MatMul::default(), &[x, w])?;
    if g.chance(0.4) {
        return Some(y);
    }
    let shift = g.weight(dtype, &[width], 0.3)?;
    either(g, Binary::Add, y, shift)
}

/// `[b, s, h * d]` to `[b, h, s, d]`, or to `[b, h, d, s]`.
fn heads(g: &mut Growing, x: ValueId, count: i64, turned: bool) -> Option<ValueId> {
    let dims = g.dims(x);
    let to = Shape::fixed(&[dims[0], dims[1], count, dims[2] / count]);
    let split = g.on(Reshape { to }, &[x])?;
    let perm = if turned { vec![0, 2, 3, 1] } else { vec![0, 2, 1, 3] };
    g.on(Transpose { perm }, &[split])
}

/// Self-attention over rows, or attention as an op.
pub(super) fn attention(g: &mut Growing) -> Option<()> {
    let x = g.pick_float(3..=3)?;
    let (dims, dtype) = (g.dims(x), g.dtype_of(x));
    let count = g.one_of(&[1, 2, 2, 3, 4]);
    let depth = g.one_of(&[1, 2, 4, 5, 8]);
    let width = count * depth;
    let q = linear(g, x, width)?;
    let k = linear(g, x, width)?;
    let v = linear(g, x, width)?;
    let whole = g.chance(0.2);
    let turned = !whole && g.chance(0.7);
    let q = heads(g, q, count, false)?;
    let k = heads(g, k, count, turned)?;
    let v = heads(g, v, count, false)?;
    let (b, s) = (dims[0], dims[1]);
    let mask = match g.below(4) {
        0 => Some(vec![1, 1, s, s]),
        1 => Some(vec![b, 1, 1, s]),
        2 if g.chance(0.3) => Some(vec![s, s]),
        _ => None,
    };
    let mask = match mask {
        Some(shape) => {
            let n = shape.iter().product::<i64>();
            let low = g.one_of(&[-10.0, -2.0]);
            let values: Vec<f64> = (0..n).map(|_| if g.chance(0.3) { low } else { 0.0 }).collect();
            Some(g.constant(Tensor::from_f64(dtype, &shape, &values)))
        }
        None => None,
    };
    let out = if whole {
        let scale = if g.chance(0.5) { None } else { Some(real(0.4)) };
        let op = Attention { scale, causal: g.chance(0.3) };
        g.add(op.into(), &[Some(q), Some(k), Some(v), mask])?[0]
    } else {
        let scale = 1.0 / (depth as f64).sqrt();
        let q = if g.chance(0.3) { with_number(g, Binary::Mul, q, scale)? } else { q };
        let op = MatMul { transpose_lhs: false, transpose_rhs: !turned };
        let mut scores = g.on(op, &[q, k])?;
        scores = if g.chance(0.5) {
            let root = g.number(dtype, (depth as f64).sqrt());
            g.on(Binary::Div, &[scores, root])?
        } else {
            with_number(g, Binary::Mul, scores, scale)?
        };
        if let Some(mask) = mask {
            scores = either(g, Binary::Add, scores, mask)?;
        }
        let shares = g.on(Softmax { axis: 3, log: false }, &[scores])?;
        g.on(MatMul::default(), &[shares, v])?
    };
    let turned = g.on(Transpose { perm: vec![0, 2, 1, 3] }, &[out])?;
    let rows = g.on(Reshape { to: Shape::fixed(&[b, s, width]) }, &[turned])?;
    let y = linear(g, rows, dims[2])?;
    let y = if g.chance(0.7) { either(g, Binary::Add, y, x)? } else { y };
    if g.chance(0.2) && dtype == DType::F32 {
        activate(g, y)?;
    }
    Some(())
}
