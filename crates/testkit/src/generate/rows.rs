//! Steps on matrices and rows.

use super::{Growing, real, spatial::epilogue};
use bricolage_ir::ops::{
    ArgReduce, Einsum, LayerNorm, MatMul, Reduce, ReduceKind, Running, RunningKind, Softmax, TopK,
};
use bricolage_tensor::Dim;

pub(super) fn product(g: &mut Growing) -> Option<()> {
    let a = g.pick_float(1..=5)?;
    let (dims, dtype) = (g.dims(a), g.dtype_of(a));
    let rank = dims.len();
    let transpose_lhs = rank >= 2 && g.chance(0.15);
    let depth = if transpose_lhs { dims[rank - 2] } else { dims[rank - 1] };
    let spread = 1.0 / (depth as f64).sqrt();
    // Another value of the same element type that has the depth where it must be.
    if g.chance(0.25) {
        let transpose_rhs = g.chance(0.5);
        let fits = |t: &bricolage_tensor::Tensor| {
            let r = t.dims().len();
            r >= 2
                && t.dtype() == dtype
                && t.dims()[if transpose_rhs { r - 1 } else { r - 2 }] == depth
        };
        if let Some(b) = g.pick(fits) {
            let y = g.on(MatMul { transpose_lhs, transpose_rhs }, &[a, b])?;
            return epilogue(g, y, a);
        }
    }
    let width = g.width();
    let transpose_rhs = g.chance(0.25);
    let mut shape = match g.below(10) {
        0 if rank >= 3 => dims[..rank - 2].to_vec(),
        1 if rank >= 3 => {
            dims[..rank - 2].iter().map(|&d| if g.chance(0.5) { 1 } else { d }).collect()
        }
        2 => vec![g.between(1, 3)],
        3 if !transpose_rhs => {
            let b = g.weight(dtype, &[depth], spread)?;
            let y = g.on(MatMul { transpose_lhs, transpose_rhs }, &[a, b])?;
            return epilogue(g, y, a);
        }
        _ => Vec::new(),
    };
    shape.extend(if transpose_rhs { [width, depth] } else { [depth, width] });
    let b = g.weight(dtype, &shape, spread)?;
    let op = MatMul { transpose_lhs, transpose_rhs };
    let y = g.on(op, &[a, b])?;
    epilogue(g, y, a)
}

pub(super) fn einsum(g: &mut Growing) -> Option<()> {
    let x = g.pick_float(2..=4)?;
    let (dims, dtype) = (g.dims(x), g.dtype_of(x));
    let width = g.width();
    let (equation, other): (&str, Vec<i64>) = match dims.len() {
        2 => match g.below(3) {
            0 => ("ij,jk->ik", vec![dims[1], width]),
            1 => ("ij,kj->ki", vec![width, dims[1]]),
            _ => ("ij,ij->i", dims.clone()),
        },
        3 => match g.below(3) {
            0 => ("bij,bkj->bik", vec![dims[0], width, dims[2]]),
            1 => ("bij,jk->bik", vec![dims[2], width]),
            _ => ("bij,bij->bj", dims.clone()),
        },
        _ => match g.below(2) {
            0 => ("bhid,bhjd->bhij", vec![dims[0], dims[1], g.between(1, 6), dims[3]]),
            _ => ("bhij,bjhd->bihd", vec![dims[0], dims[3], dims[1], g.between(1, 6)]),
        },
    };
    let other = g.weight(dtype, &other, 0.3)?;
    g.on(Einsum { equation: equation.to_owned() }, &[x, other]).map(|_| ())
}

pub(super) fn layer_norm(g: &mut Growing) -> Option<()> {
    let x = g.pick_float(2..=4)?;
    let (dims, dtype) = (g.dims(x), g.dtype_of(x));
    let axis = if g.chance(0.8) { dims.len() - 1 } else { g.below(dims.len()) };
    let rms = g.chance(0.3);
    if !super::is_norm_worth(dims[axis..].iter().product()) {
        return None;
    }
    let shape = dims[axis..].to_vec();
    let mut operands = vec![Some(x)];
    if g.chance(0.9) {
        operands.push(Some(g.weight(dtype, &shape, 0.7)?));
        if !rms && g.chance(0.8) {
            operands.push(Some(g.weight(dtype, &shape, 0.5)?));
        }
    }
    let epsilon = real(g.one_of(&[1e-5, 1e-6, 1e-12]));
    let statistics = g.chance(0.05);
    g.add(LayerNorm { axis, epsilon, rms, statistics }.into(), &operands).map(|_| ())
}

pub(super) fn softmax(g: &mut Growing) -> Option<()> {
    let x = g.pick_float(1..=5)?;
    let rank = g.dims(x).len();
    let axis = if g.chance(0.7) { rank - 1 } else { g.below(rank) };
    let log = g.chance(0.3);
    g.on(Softmax { axis, log }, &[x]).map(|_| ())
}

pub(super) fn reduce(g: &mut Growing) -> Option<()> {
    let x = g.pick(|t| t.dtype() != bricolage_tensor::DType::Bool && !t.dims().is_empty())?;
    let rank = g.dims(x).len();
    let kind = if g.dtype_of(x).is_float() {
        g.one_of(ReduceKind::ALL)
    } else {
        g.one_of(&[ReduceKind::Sum, ReduceKind::Max, ReduceKind::Min])
    };
    let mut axes: Vec<usize> = (0..rank).filter(|_| g.chance(0.4)).collect();
    if axes.is_empty() {
        axes.push(g.below(rank));
    }
    let keep_dims = g.chance(0.5);
    g.on(Reduce { kind, axes, keep_dims }, &[x]).map(|_| ())
}

pub(super) fn position(g: &mut Growing) -> Option<()> {
    let x = g.pick(|t| t.dtype() != bricolage_tensor::DType::Bool && !t.dims().is_empty())?;
    let axis = g.below(g.dims(x).len());
    let op = ArgReduce {
        largest: g.chance(0.6),
        axis,
        keep_dims: g.chance(0.5),
        select_last: g.chance(0.3),
    };
    g.on(op, &[x]).map(|_| ())
}

pub(super) fn running_sum(g: &mut Growing) -> Option<()> {
    let x = g.pick(|t| t.dtype() != bricolage_tensor::DType::Bool && !t.dims().is_empty())?;
    let axis = g.below(g.dims(x).len());
    let op =
        Running { kind: RunningKind::Sum, axis, exclusive: g.chance(0.4), reverse: g.chance(0.4) };
    g.on(op, &[x]).map(|_| ())
}

pub(super) fn best(g: &mut Growing) -> Option<()> {
    let x = g.pick_float(1..=4)?;
    let axis = g.below(g.dims(x).len());
    let size = g.dims(x)[axis];
    let k = Dim::from(g.between(1, size));
    let op = TopK { axis, k, largest: g.chance(0.6) };
    g.on(op, &[x]).map(|_| ())
}
