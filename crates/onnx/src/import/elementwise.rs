//! Operators that work element by element.

use super::{
    at::{At, Fault, Imported, Step, malformed, unsupported},
    table::real,
};
use crate::tensor::dtype_of;
use bricolage_ir::{
    Real, ValueId,
    ops::{Binary, BitCast, Cast, Clip, Expand, Select, Unary},
};
use bricolage_tensor::{DType, Powers, Shape, Tensor};

pub(crate) fn unary(at: &mut At<'_, '_>, f: Unary) -> Imported {
    let all = at.all(1, 1)?;
    at.one(f, &all)
}

pub(crate) fn binary(at: &mut At<'_, '_>, f: Binary) -> Imported {
    let all = at.all(2, 2)?;
    at.one(f, &all)
}

/// A function with a parameter `alpha`.
pub(crate) fn alpha(at: &mut At<'_, '_>, default: f32, f: fn(Real) -> Unary) -> Imported {
    let alpha = at.float("alpha", default)?;
    unary(at, f(real(alpha)))
}

pub(crate) fn celu(at: &mut At<'_, '_>) -> Imported {
    alpha(at, 1.0, |alpha| Unary::Celu { alpha })
}

pub(crate) fn selu(at: &mut At<'_, '_>) -> Imported {
    let alpha = at.float("alpha", 1.673_263_2)?;
    let gamma = at.float("gamma", 1.050_701)?;
    unary(at, Unary::Selu { alpha: real(alpha), gamma: real(gamma) })
}

pub(crate) fn hard_sigmoid(at: &mut At<'_, '_>) -> Imported {
    let (alpha, beta) = (at.float("alpha", 0.2)?, at.float("beta", 0.5)?);
    unary(at, Unary::HardSigmoid { alpha: real(alpha), beta: real(beta) })
}

pub(crate) fn gelu(at: &mut At<'_, '_>) -> Imported {
    match at.text("approximate", "none")?.as_str() {
        "none" => unary(at, Unary::Gelu),
        "tanh" => unary(at, Unary::GeluTanh),
        other => malformed(format!("needs `approximate` to be none or tanh, found `{other}`")),
    }
}

/// `x * sigmoid(alpha * x)`.
pub(crate) fn swish(at: &mut At<'_, '_>, default: f32) -> Imported {
    let alpha = at.float("alpha", default)?;
    let x = at.all(1, 1)?[0];
    Ok(vec![swished(at, x, alpha)?])
}

pub(crate) fn swished(at: &mut At<'_, '_>, x: ValueId, alpha: f32) -> Step {
    if alpha == 1.0 {
        return at.add(Unary::Silu, &[x]);
    }
    let alpha = at.scalar(at.ty(x)?.dtype, alpha.into());
    let scaled = at.add(Binary::Mul, &[x, alpha])?;
    let gate = at.add(Unary::Sigmoid, &[scaled])?;
    at.add(Binary::Mul, &[x, gate])
}

pub(crate) fn bit_cast(at: &mut At<'_, '_>) -> Imported {
    let x = at.all(1, 1)?[0];
    match dtype_of(i32::try_from(at.int_or("to", 0)?).unwrap_or(0)) {
        Ok(to) => at.one(BitCast { to }, &[x]),
        Err(fault) => unsupported(format!("cannot cast: {fault}")),
    }
}

/// `x - bias` above `lambd`, `x + bias` below `-lambd`, else 0.
pub(crate) fn shrink(at: &mut At<'_, '_>) -> Imported {
    let (bias, lambda) = (at.float("bias", 0.0)?, at.float("lambd", 0.5)?);
    let x = at.all(1, 1)?[0];
    let dtype = at.ty(x)?.dtype;
    let number = |at: &mut At<'_, '_>, v: f32| at.scalar(dtype, v.into());
    let (low, high) = (number(at, -lambda), number(at, lambda));
    let (bias, zero) = (number(at, bias), number(at, 0.0));
    let (below, above) = (at.add(Binary::Less, &[x, low])?, at.add(Binary::Greater, &[x, high])?);
    let (plus, minus) = (at.add(Binary::Add, &[x, bias])?, at.add(Binary::Sub, &[x, bias])?);
    let rest = at.add(Select, &[above, minus, zero])?;
    at.one(Select, &[below, plus, rest])
}

pub(crate) fn bit_shift(at: &mut At<'_, '_>) -> Imported {
    match at.text("direction", "")?.as_str() {
        "LEFT" => binary(at, Binary::ShiftLeft),
        "RIGHT" => binary(at, Binary::ShiftRight),
        other => malformed(format!("needs `direction` to be LEFT or RIGHT, found `{other}`")),
    }
}

pub(crate) fn modulo(at: &mut At<'_, '_>) -> Imported {
    let f = if at.flag("fmod", false)? { Binary::Fmod } else { Binary::Mod };
    binary(at, f)
}

/// Combines all operands.
pub(crate) fn fold(at: &mut At<'_, '_>, f: Binary) -> Imported {
    Ok(vec![folded(at, f)?])
}

fn folded(at: &mut At<'_, '_>, f: Binary) -> Step {
    let all = at.all(1, usize::MAX)?;
    if let [x] = all[..] {
        return at.add(Unary::Identity, &[x]);
    }
    all[1..].iter().try_fold(all[0], |x, &y| at.add(f, &[x, y]))
}

pub(crate) fn mean(at: &mut At<'_, '_>) -> Imported {
    let sum = folded(at, Binary::Add)?;
    let count = at.scalar(at.ty(sum)?.dtype, at.inputs.len() as f64);
    at.one(Binary::Div, &[sum, count])
}

fn cast_to(at: &mut At<'_, '_>, x: ValueId, to: DType) -> Imported {
    // Only float types of at most eight bits are told what to do with what they cannot hold. Integers of less
    // than a byte get the low bits of the nearest whole number; for others ONNX leaves it open.
    let saturate = match (at.flag("saturate", true)?, to.is_narrow_float()) {
        (saturate, true) => saturate,
        _ => to.bits() >= 8,
    };
    let powers = match at.text("round_mode", "up")?.as_str() {
        "up" => Powers::Up,
        "down" => Powers::Down,
        "nearest" => Powers::Nearest,
        other => {
            let what = "needs `round_mode` to be up, down or nearest";
            return malformed(format!("{what}, found `{other}`"));
        }
    };
    let mut x = x;
    if to.is_int() && to.bits() < 8 && at.ty(x)?.dtype.is_float() {
        if at.ty(x)?.dtype.is_narrow_float() {
            x = at.add(Cast::to(DType::F32), &[x])?;
        }
        x = at.add(Unary::Round, &[x])?;
    }
    at.one(Cast { to, saturate, powers }, &[x])
}

pub(crate) fn cast(at: &mut At<'_, '_>) -> Imported {
    let x = at.all(1, 1)?[0];
    let Some(to) = at.int("to")? else { return malformed("needs attribute `to`, found none") };
    let number = i32::try_from(to).unwrap_or(0);
    match dtype_of(number) {
        Ok(to) => cast_to(at, x, to),
        Err(fault) => unsupported(format!("cannot cast: {fault}")),
    }
}

pub(crate) fn cast_like(at: &mut At<'_, '_>) -> Imported {
    let all = at.all(2, 2)?;
    let to = at.ty(all[1])?.dtype;
    cast_to(at, all[0], to)
}

pub(crate) fn clip(at: &mut At<'_, '_>) -> Imported {
    let x = at.input(0)?;
    if at.opset < 11 {
        at.at_most(1)?;
        let (min, max) = (at.float("min", f32::MIN)?, at.float("max", f32::MAX)?);
        return at.one(Clip { min: Some(real(min)), max: Some(real(max)) }, &[x]);
    }
    at.at_most(3)?;
    // A bound that an `f64` holds exactly is an attribute; another is an operand.
    let bound = |at: &At<'_, '_>, i: usize| -> Result<Option<Real>, Fault> {
        let Some(v) = at.optional(i) else { return Ok(None) };
        let Some(t) = at.constant(v) else { return Ok(None) };
        if t.len() != 1 {
            return malformed(format!("needs a scalar as operand {i}, found {} elements", t.len()));
        }
        let value = t.to_f64()[0];
        let exact = t.dtype().is_float() || t.to_i64()[0].unsigned_abs() < 1 << 53;
        Ok((exact && !value.is_nan()).then(|| Real::new(value)))
    };
    let (min, max) = (bound(at, 1)?, bound(at, 2)?);
    let computed =
        |at: &At<'_, '_>, i: usize, b: &Option<Real>| at.optional(i).filter(|_| b.is_none());
    let (low, high) = (computed(at, 1, &min), computed(at, 2, &max));
    if low.is_none() && high.is_none() {
        return at.one(Clip { min, max }, &[x]);
    }
    let mut y = x;
    for (i, f) in [(1, Binary::Max), (2, Binary::Min)] {
        if let Some(v) = at.optional(i) {
            y = at.add(f, &[y, v])?;
        }
    }
    Ok(vec![y])
}

pub(crate) fn select(at: &mut At<'_, '_>) -> Imported {
    let all = at.all(3, 3)?;
    at.one(Select, &all)
}

pub(crate) fn identity(at: &mut At<'_, '_>) -> Imported {
    let all = at.all(1, 1)?;
    at.one(Unary::Identity, &all)
}

pub(crate) fn is_inf(at: &mut At<'_, '_>) -> Imported {
    let negative = at.flag("detect_negative", true)?;
    let positive = at.flag("detect_positive", true)?;
    match (negative, positive) {
        (true, true) => unary(at, Unary::IsInf),
        (true, false) => unary(at, Unary::IsNegInf),
        (false, true) => unary(at, Unary::IsPosInf),
        (false, false) => {
            let x = at.all(1, 1)?[0];
            let no = at.tensor_value(Tensor::of_bool(&[], &[false]));
            let to = Shape(at.dims(x)?);
            at.one(Expand { to }, &[no])
        }
    }
}

/// Without training, the operand itself and a mask that is true everywhere.
pub(crate) fn dropout(at: &mut At<'_, '_>) -> Imported {
    at.ignore(&["ratio", "seed"]);
    at.at_most(3)?;
    let x = at.input(0)?;
    let number = |i: usize, default: f64| match at.optional(i) {
        None => Some(default),
        Some(v) => at.constant(v).and_then(|t| t.to_f64().first().copied()),
    };
    if number(2, 0.0) != Some(0.0) && number(1, 0.5) != Some(0.0) {
        return super::random::dropout(at);
    }
    let mut outputs = vec![at.add(Unary::Identity, &[x])?];
    if at.wants(1) {
        let kept = at.tensor_value(Tensor::of_bool(&[], &[true]));
        let to = Shape(at.dims(x)?);
        outputs.push(at.add(Expand { to }, &[kept])?);
    }
    Ok(outputs)
}
