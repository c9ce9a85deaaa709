//! Normalisation.

use super::{
    at::{At, Imported, malformed, unsupported},
    table::real,
    training,
};
use bricolage_ir::ops::{
    BatchNorm, Binary, Expand, GroupNorm, LayerNorm, Lrn, Reduce, ReduceKind, Unary,
};
use bricolage_tensor::{Dim, Shape};

pub(crate) fn batch(at: &mut At<'_, '_>) -> Imported {
    let all = at.all(5, 5)?;
    let epsilon = real(at.float("epsilon", 1e-5)?);
    if at.opset >= 14 && at.flag("training_mode", false)? {
        return training::batch_norm(at, &all, epsilon);
    }
    at.ignore(&["momentum"]);
    let further = (1..at.node.output.len()).any(|i| at.wants(i));
    if further {
        return unsupported("batch normalisation in training mode is not supported");
    }
    if at.int_or("spatial", 1)? != 1 {
        return unsupported("needs `spatial` to be 1");
    }
    // A vector has one channel per element.
    let dims = at.dims(all[0])?;
    if dims.len() == 1 {
        let x = at.reshape(all[0], vec![dims[0].clone(), Dim::from(1)])?;
        let y = at.add(BatchNorm { epsilon }, &[x, all[1], all[2], all[3], all[4]])?;
        return Ok(vec![at.reshape(y, dims)?]);
    }
    at.one(BatchNorm { epsilon }, &all)
}

pub(crate) fn layer(at: &mut At<'_, '_>, rms: bool) -> Imported {
    at.at_most(if rms { 2 } else { 3 })?;
    let x = at.input(0)?;
    at.input(1)?;
    let axis = at.int_or("axis", -1)?;
    let axis = at.axis(axis, at.rank(x)?)?;
    let epsilon = real(at.float("epsilon", 1e-5)?);
    at.ignore(&["stash_type"]);
    let statistics = at.wants(1) || at.wants(2);
    if statistics && rms {
        return malformed("needs one output, found several");
    }
    let inputs = at.inputs.clone();
    at.add_all(LayerNorm { axis, epsilon, rms, statistics }, &inputs)
}

pub(crate) fn group(at: &mut At<'_, '_>) -> Imported {
    let mut all = at.all(3, 3)?;
    let epsilon = real(at.float("epsilon", 1e-5)?);
    at.ignore(&["stash_type"]);
    let groups = at.int_or("num_groups", 0)?;
    let Some(channels) = at.dims(all[0])?.get(1).cloned() else {
        return malformed("needs operand 0 to have channels, found fewer than 2 dims");
    };
    if groups < 1 {
        return malformed(format!("needs `num_groups` above 0, found {groups}"));
    }
    if at.opset < 21 {
        // Scale and bias were given per group.
        let per = channels.floor_div(&Dim::from(groups));
        for v in &mut all[1..] {
            let column = at.reshape(*v, vec![Dim::from(groups), Dim::from(1)])?;
            let to = Shape(vec![Dim::from(groups), per.clone()]);
            let whole = at.add(Expand { to }, &[column])?;
            *v = at.reshape(whole, vec![channels.clone()])?;
        }
    }
    at.one(GroupNorm { groups, epsilon }, &all)
}

pub(crate) fn instance(at: &mut At<'_, '_>) -> Imported {
    let all = at.all(3, 3)?;
    let epsilon = real(at.float("epsilon", 1e-5)?);
    let channels = [at.dims(all[0])?.get(1).cloned(), at.dims(all[1])?.first().cloned()];
    let known = channels.iter().flatten().find_map(Dim::as_const);
    match known {
        Some(groups) if groups > 0 => at.one(GroupNorm { groups, epsilon }, &all),
        _ => unsupported("needs the number of channels as a number"),
    }
}

pub(crate) fn lrn(at: &mut At<'_, '_>) -> Imported {
    let x = at.all(1, 1)?[0];
    let size = at.int_or("size", 0)?;
    if !(1..1 << 31).contains(&size) {
        return malformed(format!("needs a 32-bit `size` above 0, found {size}"));
    }
    let alpha = real(at.float("alpha", 1e-4)?);
    let (beta, bias) = (real(at.float("beta", 0.75)?), real(at.float("bias", 1.0)?));
    at.one(Lrn { size, alpha, beta, bias }, &[x])
}

/// `x` over its norm along a dim; 0 where the norm is 0.
pub(crate) fn lp(at: &mut At<'_, '_>) -> Imported {
    let x = at.all(1, 1)?[0];
    let axis = at.int_or("axis", -1)?;
    let axis = at.axis(axis, at.rank(x)?)?;
    let kind = match at.int_or("p", 2)? {
        1 => ReduceKind::L1,
        2 => ReduceKind::L2,
        p => return malformed(format!("needs `p` to be 1 or 2, found {p}")),
    };
    let norm = at.add(Reduce { kind, axes: vec![axis], keep_dims: true }, &[x])?;
    let zero = at.scalar(at.ty(x)?.dtype, 0.0);
    let empty = at.add(Binary::Equal, &[norm, zero])?;
    let one = at.scalar(at.ty(x)?.dtype, 1.0);
    let norm = at.add(bricolage_ir::ops::Select, &[empty, one, norm])?;
    at.one(Binary::Div, &[x, norm])
}

/// `(x - mean) / (deviation + 1e-9)`.
pub(crate) fn mean_variance(at: &mut At<'_, '_>) -> Imported {
    let x = at.all(1, 1)?[0];
    let axes = at.ints("axes")?.unwrap_or(vec![0, 2, 3]);
    let mut axes = at.axes(&axes, at.rank(x)?)?;
    axes.sort_unstable();
    let mean = Reduce { kind: ReduceKind::Mean, axes, keep_dims: true };
    let dtype = at.ty(x)?.dtype;
    let middle = at.add(mean.clone(), &[x])?;
    let centred = at.add(Binary::Sub, &[x, middle])?;
    let squares = at.add(Binary::Mul, &[centred, centred])?;
    let variance = at.add(mean, &[squares])?;
    let deviation = at.add(Unary::Sqrt, &[variance])?;
    let epsilon = at.scalar(dtype, 1e-9);
    let divisor = at.add(Binary::Add, &[deviation, epsilon])?;
    at.one(Binary::Div, &[centred, divisor])
}
