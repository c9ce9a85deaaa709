//! Steps element by element.

use super::Growing;
use bricolage_ir::{
    Real, ValueId,
    ops::{Binary, Cast, Clip, Select, Unary},
};
use bricolage_tensor::{DType, Tensor};

const ACTIVATIONS: &[Unary] = &[
    Unary::Relu,
    Unary::Relu,
    Unary::Sigmoid,
    Unary::Tanh,
    Unary::Silu,
    Unary::Gelu,
    Unary::GeluTanh,
    Unary::HardSwish,
    Unary::Softplus,
    Unary::Mish,
    Unary::Elu { alpha: Real::new(0.75) },
    Unary::LeakyRelu { alpha: Real::new(0.125) },
    Unary::HardSigmoid { alpha: Real::new(0.1875), beta: Real::new(0.5) },
];

/// An activation, as an op or as a clip.
pub(super) fn activate(g: &mut Growing, x: ValueId) -> Option<ValueId> {
    if g.chance(0.15) {
        return bounded(g, x);
    }
    let function = g.one_of(ACTIVATIONS);
    g.on(function, &[x])
}

fn bounded(g: &mut Growing, x: ValueId) -> Option<ValueId> {
    let (min, max) = match g.below(5) {
        0 | 1 => (Some(0.0), Some(6.0)),
        2 => (Some(-1.0), Some(1.0)),
        3 => (None, Some(0.5)),
        _ => (Some(-0.25), None),
    };
    g.on(Clip { min: min.map(Real::new), max: max.map(Real::new) }, &[x])
}

pub(super) fn clip(g: &mut Growing) -> Option<()> {
    let x = g.pick(|t| t.dtype() != DType::Bool)?;
    if g.dtype_of(x).is_float() && g.chance(0.3) {
        // The same in two ops.
        let dtype = g.dtype_of(x);
        let (low, high) = (g.number(dtype, 0.0), g.number(dtype, 6.0));
        let y = g.on(Binary::Max, &[x, low])?;
        return g.on(Binary::Min, &[y, high]).map(|_| ());
    }
    bounded(g, x).map(|_| ())
}

pub(super) fn function(g: &mut Growing) -> Option<()> {
    let x = g.pick_float(0..=5)?;
    let function = g.one_of(Unary::ALL);
    if function == Unary::Not || function == Unary::BitNot {
        return None;
    }
    // Parameters as ONNX can hold them.
    let function = match function {
        Unary::LeakyRelu { .. } => Unary::LeakyRelu { alpha: Real::new(0.0625) },
        Unary::HardSigmoid { .. } => {
            Unary::HardSigmoid { alpha: Real::new(0.25), beta: Real::new(0.375) }
        }
        Unary::Selu { .. } => Unary::Selu { alpha: Real::new(1.625), gamma: Real::new(1.0625) },
        other => other,
    };
    g.on(function, &[x]).map(|_| ())
}

/// Dims that broadcast with `dims`: some of them 1, leading ones perhaps left out, or more of them.
fn broadcast_dims(g: &mut Growing, dims: &[i64]) -> Vec<i64> {
    let rank = dims.len();
    match g.below(8) {
        0 => Vec::new(),
        1 => vec![1],
        2 if rank >= 1 => vec![dims[rank - 1]],
        3 | 4 if rank >= 3 => {
            let mut per_channel = vec![1; rank - 1];
            per_channel[0] = dims[1];
            if g.chance(0.4) {
                per_channel.insert(0, 1);
            }
            per_channel
        }
        5 if rank < 5 => {
            let mut more = dims.to_vec();
            more.insert(0, g.between(1, 2));
            more
        }
        6 => dims.iter().map(|&d| if g.chance(0.5) { 1 } else { d }).collect(),
        _ => dims.to_vec(),
    }
}

/// Adds a constant that broadcasts.
pub(super) fn shift(g: &mut Growing, x: ValueId) -> Option<ValueId> {
    let (dims, dtype) = (g.dims(x), g.dtype_of(x));
    let shape = broadcast_dims(g, &dims);
    let other = g.weight(dtype, &shape, 0.5)?;
    let function = g.one_of(&[Binary::Add, Binary::Add, Binary::Mul, Binary::Sub]);
    let pair = if g.chance(0.7) { [x, other] } else { [other, x] };
    g.on(function, &pair)
}

pub(super) fn pair(g: &mut Growing) -> Option<()> {
    let x = g.pick_float(0..=5)?;
    let (dims, dtype) = (g.dims(x), g.dtype_of(x));
    let function = g.one_of(&[
        Binary::Add,
        Binary::Add,
        Binary::Mul,
        Binary::Mul,
        Binary::Sub,
        Binary::Div,
        Binary::Min,
        Binary::Max,
        Binary::Pow,
        Binary::Prelu,
        Binary::Mod,
        Binary::Fmod,
    ]);
    if function == Binary::Pow {
        let exponent = g.one_of(&[2.0, 0.5, -1.0, 3.0, 1.0, 0.0, 1.5]);
        let exponent = g.number(dtype, exponent);
        return g.on(Binary::Pow, &[x, exponent]).map(|_| ());
    }
    if g.chance(0.4)
        && let Some(other) = g.pick(|t| t.dtype() == dtype && t.dims().len() <= 5)
    {
        let pair = if g.chance(0.5) { [x, other] } else { [other, x] };
        return g.on(function, &pair).map(|_| ());
    }
    let shape = broadcast_dims(g, &dims);
    let other = g.weight(dtype, &shape, 1.0)?;
    let commuted = function.commutes() && g.chance(0.3);
    let pair = if commuted { [other, x] } else { [x, other] };
    g.on(function, &pair).map(|_| ())
}

/// A comparison, perhaps joined with another, and a choice by it.
pub(super) fn choice(g: &mut Growing) -> Option<()> {
    let x = g.pick(|t| t.dtype() != DType::Bool)?;
    let (dims, dtype) = (g.dims(x), g.dtype_of(x));
    let compare =
        [Binary::Less, Binary::LessEqual, Binary::Greater, Binary::GreaterEqual, Binary::Equal];
    let function = g.one_of(&compare);
    let shape = broadcast_dims(g, &dims);
    let other = g.weight(dtype, &shape, 0.7)?;
    let mut mask = g.on(function, &[x, other])?;
    if g.chance(0.3) {
        mask = g.on(Unary::Not, &[mask])?;
    }
    if g.chance(0.3)
        && let Some(second) = g.pick(|t| t.dtype() == DType::Bool)
    {
        let function = g.one_of(&[Binary::And, Binary::Or, Binary::Xor]);
        mask = g.on(function, &[mask, second])?;
    }
    if g.chance(0.2) {
        let to = g.one_of(&[DType::F32, DType::I64, DType::F16]);
        g.on(Cast::to(to), &[mask])?;
    }
    let y = g.pick(|t| t.dtype().is_float())?;
    let dtype = g.dtype_of(y);
    let fill = g.one_of(&[0.0, -1.0, 5.0]);
    let fill = g.number(dtype, fill);
    let pair = if g.chance(0.5) { [mask, y, fill] } else { [mask, fill, y] };
    g.on(Select, &pair).map(|_| ())
}

pub(super) fn cast(g: &mut Growing) -> Option<()> {
    let x = g.pick(|_| true)?;
    let from = g.dtype_of(x);
    // Every engine knows these.
    let common: Vec<DType> =
        DType::ALL.iter().copied().filter(|d| d.bits() >= 8 && !d.is_narrow_float()).collect();
    let to = g.one_of(&common);
    // What an integer beyond its type becomes is nobody's promise.
    let fits = |v: f64| match to {
        _ if to.is_float() || to == DType::Bool => true,
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => (0.0..=200.0).contains(&v),
        _ => v.abs() <= 120.0,
    };
    if !g.content(x).to_f64().into_iter().all(fits) {
        return None;
    }
    let y = g.on(Cast::to(to), &[x])?;
    if g.chance(0.6) {
        let back = if from == to { g.dtype } else { from };
        g.on(Cast::to(back), &[y])?;
    }
    Some(())
}

pub(super) fn integers(g: &mut Growing) -> Option<()> {
    let x = match g.pick(|t| t.dtype().is_int()) {
        Some(x) => x,
        None if g.chance(0.5) => {
            let dtype = g.one_of(&[DType::I64, DType::I32, DType::U8, DType::I8]);
            let dims = [g.between(1, 4), g.between(1, 9)];
            g.input(dtype, &dims)
        }
        None => return None,
    };
    let (dims, dtype) = (g.dims(x), g.dtype_of(x));
    let shape = broadcast_dims(g, &dims);
    let values: Vec<i64> = (0..shape.iter().product::<i64>()).map(|_| g.between(1, 5)).collect();
    let other = g.constant(Tensor::from_i64(dtype, &shape, &values));
    let function = g.one_of(&[
        Binary::Add,
        Binary::Sub,
        Binary::Mul,
        Binary::Div,
        Binary::Mod,
        Binary::Fmod,
        Binary::Min,
        Binary::Max,
        Binary::BitAnd,
        Binary::BitOr,
        Binary::BitXor,
    ]);
    g.on(function, &[x, other]).map(|_| ())
}

/// Several functions after one another.
pub(super) fn chain(g: &mut Growing) -> Option<()> {
    let mut x = g.pick_float(1..=5)?;
    let first = x;
    for _ in 0..g.between(2, 5) {
        x = match g.below(4) {
            0 => activate(g, x)?,
            1 | 2 => shift(g, x)?,
            _ => {
                let function =
                    g.one_of(&[Unary::Abs, Unary::Neg, Unary::Sin, Unary::Atan, Unary::Softsign]);
                g.on(function, &[x])?
            }
        };
    }
    if g.dims(first) == g.dims(x) && g.chance(0.4) {
        let function = g.one_of(&[Binary::Add, Binary::Mul]);
        g.on(function, &[first, x])?;
    }
    Some(())
}

/// A sum of two values of the same dims, or one value used twice.
pub(super) fn residual(g: &mut Growing) -> Option<()> {
    let x = g.pick_float(1..=5)?;
    let (dims, dtype) = (g.dims(x), g.dtype_of(x));
    let other = g.pick(|t| t.dims() == dims && t.dtype() == dtype)?;
    let y = g.on(Binary::Add, &[x, other])?;
    if g.chance(0.5) {
        activate(g, y)?;
    }
    Some(())
}
