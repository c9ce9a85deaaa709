//! Losses over classes.

use super::at::{At, Fault, Imported, malformed};
use bricolage_ir::{
    TypeError, ValueId,
    ops::{Binary, Expand, Gather, GatherElements, Reduce, ReduceKind, Select, Softmax, Unary},
};
use bricolage_tensor::{Dim, Shape, Tensor};

pub(crate) fn negative_log_likelihood(at: &mut At<'_, '_>) -> Imported {
    at.at_most(3)?;
    let x = at.input(0)?;
    Ok(vec![loss(at, x)?])
}

/// The loss, and the logarithms of the probabilities.
pub(crate) fn softmax_cross_entropy(at: &mut At<'_, '_>) -> Imported {
    at.at_most(3)?;
    let scores = at.input(0)?;
    let logarithms = at.add(Softmax { axis: 1, log: true }, &[scores])?;
    Ok(vec![loss(at, logarithms)?, logarithms])
}

/// What the classes in operand 1 lack in `x`, the logarithms of their probabilities, weighted by operand 2.
fn loss(at: &mut At<'_, '_>, x: ValueId) -> Result<ValueId, Fault> {
    let (target, weight) = (at.input(1)?, at.optional(2));
    let reduction = at.text("reduction", "mean")?;
    let ty = at.ty(target)?;
    let (shape, rank) = (ty.shape.0.clone(), at.rank(x)?);
    if rank < 2 || shape.len() + 1 != rank {
        let (min, got) = (rank.saturating_sub(1).max(1), shape.len());
        return Err(TypeError::Rank { operand: 1, min, max: min, got }.into());
    }
    let dtype = at.ty(x)?.dtype;
    let zero = at.scalar(dtype, 0.0);
    // A target to be ignored need not be a class: another one stands in for it.
    let (ignored, classes) = match at.int("ignore_index")? {
        None => (None, target),
        Some(index) => {
            let index = at.tensor_value(Tensor::from_i64(ty.dtype, &[], &[index]));
            let ignored = at.add(Binary::Equal, &[target, index])?;
            let first = at.tensor_value(Tensor::from_i64(ty.dtype, &[], &[0]));
            (Some(ignored), at.add(Select, &[ignored, first, target])?)
        }
    };
    let mut column = shape.clone();
    column.insert(1, Dim::from(1));
    let column = at.reshape(classes, column)?;
    let picked = at.add(GatherElements { axis: 1 }, &[x, column])?;
    let picked = at.reshape(picked, shape.clone())?;
    let mut loss = at.add(Unary::Neg, &[picked])?;
    let mut weights = match weight {
        Some(w) => Some(at.add(Gather { axis: 0 }, &[w, classes])?),
        None => None,
    };
    if let Some(w) = weights {
        loss = at.add(Binary::Mul, &[loss, w])?;
    }
    if let Some(ignored) = ignored {
        loss = at.add(Select, &[ignored, zero, loss])?;
        let counted = match weights {
            Some(w) => w,
            None => at.scalar(dtype, 1.0),
        };
        weights = Some(at.add(Select, &[ignored, zero, counted])?);
    }
    let axes: Vec<usize> = (0..shape.len()).collect();
    let all = |kind| Reduce { kind, axes: axes.clone(), keep_dims: false };
    match (reduction.as_str(), weights) {
        ("none", _) => Ok(loss),
        ("sum", _) => at.add(all(ReduceKind::Sum), &[loss]),
        ("mean", None) => at.add(all(ReduceKind::Mean), &[loss]),
        ("mean", Some(w)) => {
            let w = at.add(Expand { to: Shape(shape) }, &[w])?;
            let (sum, total) =
                (at.add(all(ReduceKind::Sum), &[loss])?, at.add(all(ReduceKind::Sum), &[w])?);
            at.add(Binary::Div, &[sum, total])
        }
        (other, _) => {
            malformed(format!("needs `reduction` to be none, sum or mean, found `{other}`"))
        }
    }
}
