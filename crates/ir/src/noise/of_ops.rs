//! What errors the steps inside an op make.

use super::Sizes;
use crate::{
    EvalError, Inputs, Op,
    ops::{Binary, GridMode, Late, PoolKind, Reduce, ReduceKind, RunningKind, Unary},
};
use bricolage_tensor::{DType, Datum, Rng, Tensor};

/// Whether all implementations give the same bits: there is at most one rounding, of one operand.
pub(super) fn is_exact(op: &Op) -> bool {
    use Unary::{Abs, Ceil, Floor, Neg, Relu, Round, Sign};
    match op {
        Op::Unary(f) => matches!(f, Abs | Neg | Sign | Ceil | Floor | Round | Relu),
        Op::Binary(f) => matches!(f, Binary::Min | Binary::Max),
        Op::Reduce(r) => matches!(r.kind, ReduceKind::Max | ReduceKind::Min),
        Op::Pool(p) => matches!(p.kind, PoolKind::Max { .. }),
        Op::Clip(_) | Op::Select(_) | Op::Cast(_) | Op::BitCast(_) => true,
        Op::Quantize(_) | Op::Dequantize(_) => true,
        Op::Reshape(_) | Op::Transpose(_) | Op::Expand(_) | Op::Tile(_) => true,
        Op::Concat(_) | Op::Split(_) | Op::Slice(_) | Op::Pad(_) | Op::Trilu(_) => true,
        Op::Gather(_) | Op::GatherElements(_) | Op::GatherNd(_) | Op::TopK(_) => true,
        Op::Compress(_) | Op::Unique(_) | Op::Sequence(_) | Op::Optional(_) => true,
        Op::Lookup(_) | Op::Random(_) | Op::Text(_) => true,
        Op::Dynamic(d) => d.op != Late::Range,
        Op::OneHot(_) | Op::DepthToSpace(_) | Op::SpaceToDepth(_) => true,
        _ => false,
    }
}

/// Whether an op begins with a difference of its first operand and something of like size: its rounding
/// is an error of the operand.
pub(super) fn takes_difference(op: &Op) -> bool {
    matches!(op, Op::Softmax(_) | Op::LayerNorm(_) | Op::GroupNorm(_) | Op::BatchNorm(_))
}

/// What errors inside an op amount to as errors of this operand.
pub(super) fn errors_of(op: &Op, operand: usize, content: &Tensor) -> Option<Sizes> {
    let own = |own: f64| Some(Sizes { own, ..Sizes::ROUNDED });
    match (op, operand) {
        // Sums with the weights of the input and of the state are taken in each of many steps, and the next ones carry
        // on their errors: they are those of as many roundings of the weights, whatever these are multiplied by.
        (Op::Recurrent(_), 1 | 2) => {
            content.dims().last().and_then(|&n| own((1.0 + n as f64 / 2.0).sqrt()))
        }
        // A factor `scale / sqrt(variance + epsilon)` has the roundings of a sum, halved by the root, of the root
        // and of the division; what is added, `bias - mean * factor`, those of a product and a difference.
        (Op::BatchNorm(_), 1) => own(1.5),
        (Op::BatchNorm(_), 2 | 3) => own(1.0),
        // Positions between elements are computed in single precision: from a coordinate plus 1, from corners times a
        // factor, and from an offset plus the place that it starts from. Where the nearest element is taken, or the
        // number of samples depends on the size of a region, an error is a matter of luck.
        (Op::GridSample(g), 1) if g.mode != GridMode::Nearest => {
            Some(Sizes { flat: SINGLE, ..Sizes::ROUNDED })
        }
        (Op::RoiAlign(r), 1) if r.samples > 0 => own(2.0),
        (Op::DeformConv(conv), 2) => {
            let places = content.dims().iter().rev().zip(conv.strides.iter().rev());
            let farthest = places.map(|(&n, &stride)| n * stride).max().unwrap_or(0);
            Some(Sizes { flat: SINGLE * farthest as f64, ..Sizes::ROUNDED })
        }
        _ => None,
    }
}

/// The unit roundoff of single precision, in which positions are computed.
const SINGLE: f64 = f32::EPSILON as f64 / 2.0;

/// The results of an op, at places that single precision may give where it reads between elements: a scale, a
/// quotient by it and a difference are rounded.
pub(super) fn eval(op: &Op, inputs: &Inputs<'_>, rng: &mut Rng) -> Result<Vec<Datum>, EvalError> {
    let Op::Resize(resize) = op else { return op.eval(inputs) };
    resize.eval_at(inputs, &mut |at| {
        let error = 3f64.sqrt() * rng.normal();
        at + SINGLE * (at.abs() + 0.5) * error.abs().max(2.0).copysign(error)
    })
}

/// Whether an op makes errors besides those of its operands and its results.
pub(super) fn moves_places(op: &Op) -> bool {
    matches!(op, Op::Resize(resize) if resize.is_between())
}

/// The results of an op on these operands, without a number where other steps or another order of them make another:
/// of the factors of a product the large ones may be infinite together and the small ones 0, though all of them
/// are neither, and so may squares be whose root is not.
pub(super) fn passing_range(
    op: &Op,
    operands: &[Option<&Datum>],
    results: Vec<Datum>,
) -> Result<Vec<Datum>, EvalError> {
    let operand = operands.first().copied().flatten().and_then(|d| d.as_tensor());
    let (Op::Reduce(reduce), Some(operand)) = (op, operand) else { return Ok(results) };
    if !operand.dtype().is_float() {
        return Ok(results);
    }
    let passes: Box<dyn Fn(usize, f64) -> bool> = match reduce.kind {
        ReduceKind::L2 => {
            let largest = largest_square(operand.dtype());
            Box::new(move |_, v| v.abs() > largest)
        }
        ReduceKind::Product => Box::new(passing_factors(op, operands, operand)?),
        _ => return Ok(results),
    };
    let one = |datum: Datum| match datum.as_tensor() {
        Some(t) => {
            let value = |(at, v)| if passes(at, v) { f64::NAN } else { v };
            let values: Vec<f64> = t.to_f64().into_iter().enumerate().map(value).collect();
            Tensor::from_f64(t.dtype(), t.dims(), &values).into()
        }
        None => datum,
    };
    Ok(results.into_iter().map(one).collect())
}

/// Whether a product, by its place, is of factors that pass the range in some order.
fn passing_factors(
    op: &Op,
    operands: &[Option<&Datum>],
    factors: &Tensor,
) -> Result<impl Fn(usize, f64) -> bool + use<>, EvalError> {
    let product = |clamp: fn(f64) -> f64| -> Result<Vec<f64>, EvalError> {
        let values: Vec<f64> = factors.to_f64().into_iter().map(clamp).collect();
        let part = Datum::from(Tensor::from_f64(factors.dtype(), factors.dims(), &values));
        let mut operands = operands.to_vec();
        operands[0] = Some(&part);
        let products = op.eval(&Inputs(&operands))?;
        Ok(products.first().and_then(Datum::as_tensor).map(Tensor::to_f64).unwrap_or_default())
    };
    let (large, small) = (product(|v| v.abs().max(1.0))?, product(|v| v.abs().min(1.0))?);
    let nothing = product(|v| if v == 0.0 { 0.0 } else { 1.0 })?;
    Ok(move |at: usize, _: f64| {
        let over = large[at].is_infinite() && small[at] < 1.0;
        let under = small[at] == 0.0 && nothing[at] != 0.0 && large[at] > 1.0;
        over || under
    })
}

/// Terms of the longest sum of which the results of an op are parts.
pub(super) fn running_terms(op: &Op, result: &Tensor) -> Option<u64> {
    match op {
        Op::Running(running) if running.kind == RunningKind::Sum => {
            result.dims().get(running.axis).and_then(|&n| u64::try_from(n).ok())
        }
        _ => None,
    }
}

/// Whether the results are sums whose terms all have one sign: their errors are then shares of each sum, however much
/// smaller it is than the others.
pub(super) fn sums_of_one_sign(op: &Op, operands: &[Option<&Datum>]) -> bool {
    let is_not_negative = |operand: &Option<&Datum>| {
        let Some(tensor) = operand.and_then(|d| d.as_tensor()) else { return operand.is_none() };
        match tensor.dtype() {
            DType::F32 => tensor.elements::<f32>().iter().all(|&v| v >= 0.0),
            _ => tensor.to_f64().into_iter().all(|v| v >= 0.0),
        }
    };
    match op {
        Op::Reduce(reduce) => match reduce.kind {
            ReduceKind::L1 | ReduceKind::L2 | ReduceKind::SumSquare => true,
            ReduceKind::Sum | ReduceKind::Mean => operands.iter().take(1).all(is_not_negative),
            _ => false,
        },
        Op::Pool(pool) => match pool.kind {
            PoolKind::Lp { .. } => true,
            _ => operands.iter().take(1).all(is_not_negative),
        },
        Op::MatMul(_) | Op::Conv(_) | Op::ConvTranspose(_) => operands.iter().all(is_not_negative),
        _ => false,
    }
}

/// Terms of the sum that divides each element of a result, and whose error is therefore a share of it.
pub(super) fn divisor_terms(op: &Op, result: &Tensor) -> Option<f64> {
    match op {
        Op::Softmax(s) if !s.log => result.dims().get(s.axis).map(|&n| n as f64),
        _ => None,
    }
}

/// Terms of a sum with the error that a variance may bring to each element of a result, as a share of it. ONNX
/// defines it as the mean of squares less the square of the mean: that difference takes over the error of
/// both, and its root half of that.
pub(super) fn variance_terms(op: &Op, operand: &Tensor) -> Option<f64> {
    let dims = operand.dims();
    let size = |dims: &[i64]| dims.iter().product::<i64>() as usize;
    let (lane, epsilon) = match op {
        Op::LayerNorm(l) if l.rms => return Some(size(dims.get(l.axis..)?) as f64 / 4.0),
        Op::LayerNorm(l) => (size(dims.get(l.axis..)?), l.epsilon.get()),
        Op::GroupNorm(g) => (size(dims.get(1..)?) / g.groups.max(1) as usize, g.epsilon.get()),
        _ => return None,
    };
    let values = operand.to_f64();
    let times = |lane: &[f64]| {
        let n = lane.len() as f64;
        let mean = lane.iter().sum::<f64>() / n;
        let variance = lane.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
        let times = 1.0 + mean * mean / (variance + epsilon);
        if times.is_finite() { times } else { 1.0 }
    };
    let times = values.chunks(lane.max(1)).map(times).fold(1.0, f64::max);
    Some(lane as f64 * times * times / 4.0)
}

/// Terms of the sum whose logarithm a result is or has in it: a share of the sum is an absolute error of it.
pub(super) fn logarithm_terms(op: &Op, result: &Tensor, terms: u64) -> Option<f64> {
    match op {
        Op::Softmax(s) if s.log => result.dims().get(s.axis).map(|&n| n as f64),
        Op::Reduce(r) if matches!(r.kind, ReduceKind::LogSum | ReduceKind::LogSumExp) => {
            Some(terms as f64)
        }
        _ => None,
    }
}

/// The square of a smaller number may be 0.
fn least_square(dtype: DType) -> f64 {
    let is_double = dtype == DType::F64;
    let least = if is_double { f64::MIN_POSITIVE } else { f64::from(f32::MIN_POSITIVE) };
    least.sqrt()
}

/// The square of a larger number may be infinite.
fn largest_square(dtype: DType) -> f64 {
    if dtype == DType::F64 { f64::MAX.sqrt() } else { f64::from(f32::MAX).sqrt() }
}

/// A function may be computed by a sum that nearly cancels: `1 + erf(x / sqrt(2))` or `exp(x) - 1`, or
/// `1/2 + tanh(x / 2) / 2` for a logistic one, or `x - y floor(x / y)` for a remainder. The rounding of its terms, in `f32` for narrower types, is an
/// absolute error of the result, times the operand where that multiplies the sum.
pub(super) fn hidden_sum(op: &Op, operand: &Tensor) -> f64 {
    let roundoff = operand.dtype().epsilon().min(DType::F32.epsilon()) / 2.0;
    if let Op::Reduce(Reduce { kind: ReduceKind::L2, .. }) = op {
        return least_square(operand.dtype());
    }
    if let Op::Binary(Binary::Mod | Binary::Fmod) = op {
        let finite = operand.to_f64().into_iter().filter(|v| v.is_finite());
        return roundoff * finite.fold(0.0, |m, v| f64::max(m, v.abs()));
    }
    let Op::Unary(function) = *op else { return 0.0 };
    // How far the operand goes below 0, up to where the sum is 0 in `f64` and in narrower types.
    let below = |in_f64: f64, in_f32: f64| {
        let least = operand.to_f64().into_iter().fold(0.0f64, f64::min);
        (-least).min(if operand.dtype() == DType::F64 { in_f64 } else { in_f32 })
    };
    let times = match function {
        Unary::Sigmoid => 0.5,
        Unary::Silu => below(37.0, 18.0) / 2.0,
        Unary::Gelu | Unary::GeluTanh => below(8.5, 6.0) / 2.0,
        Unary::Elu { alpha } | Unary::Celu { alpha } => alpha.get().abs(),
        Unary::Selu { alpha, gamma } => (alpha.get() * gamma.get()).abs(),
        _ => 0.0,
    };
    times * roundoff
}

/// The magnitude that sums of so many terms have where the terms are of random sign. Among many results some have it;
/// of a few each may be one whose terms cancel, and errs no less for that. 0 where the op is no such sum.
pub(super) fn uncancelled(op: &Op, operands: &[Option<&Datum>], terms: u64) -> f64 {
    let rms = |i: usize| {
        let tensor = operands.get(i).copied().flatten().and_then(|d| d.as_tensor());
        let values = tensor.map(Tensor::to_f64).unwrap_or_default();
        let finite = || values.iter().filter(|v| v.is_finite());
        (finite().map(|v| v * v).sum::<f64>() / finite().count().max(1) as f64).sqrt()
    };
    let root = (terms as f64).sqrt();
    match op {
        Op::Reduce(reduce) => match reduce.kind {
            ReduceKind::Sum => rms(0) * root,
            ReduceKind::Mean => rms(0) / root,
            _ => 0.0,
        },
        Op::Pool(pool) if matches!(pool.kind, PoolKind::Average { .. }) => rms(0) / root,
        Op::MatMul(_) | Op::Conv(_) | Op::ConvTranspose(_) => rms(0) * rms(1) * root,
        Op::Einsum(_) if operands.len() == 2 => rms(0) * rms(1) * root,
        _ => 0.0,
    }
}
