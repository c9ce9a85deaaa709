//! Reading and writing at positions that a tensor holds.

use super::at::{At, Fault, Imported, Step, malformed, unsupported};
use bricolage_ir::ops::{Gather, GatherElements, GatherNd, Scatter, ScatterElements, ScatterNd};
use bricolage_tensor::Tensor;

fn axis_of(at: &mut At<'_, '_>, default: i64) -> Result<usize, Fault> {
    let rank = at.rank(at.input(0)?)?;
    let axis = at.int_or("axis", default)?;
    at.axis(axis, rank)
}

pub(crate) fn gather(at: &mut At<'_, '_>) -> Imported {
    let all = at.all(2, 2)?;
    let axis = axis_of(at, 0)?;
    at.one(Gather { axis }, &all)
}

pub(crate) fn elements(at: &mut At<'_, '_>) -> Imported {
    let all = at.all(2, 2)?;
    let axis = axis_of(at, 0)?;
    at.one(GatherElements { axis }, &all)
}

pub(crate) fn nd(at: &mut At<'_, '_>) -> Imported {
    let all = at.all(2, 2)?;
    let rank = at.rank(all[0])?;
    match at.int_or("batch_dims", 0)? {
        b if (0..=rank as i64).contains(&b) => at.one(GatherNd { batch_dims: b as usize }, &all),
        b => malformed(format!("needs `batch_dims` from 0 to {rank}, found {b}")),
    }
}

fn reduction(at: &mut At<'_, '_>) -> Result<Scatter, Fault> {
    Ok(match at.text("reduction", "none")?.as_str() {
        "none" => Scatter::Replace,
        "add" => Scatter::Add,
        "mul" => Scatter::Mul,
        "max" => Scatter::Max,
        "min" => Scatter::Min,
        other => return malformed(format!("needs a known `reduction`, found `{other}`")),
    })
}

pub(crate) fn scatter_elements(at: &mut At<'_, '_>) -> Imported {
    let all = at.all(3, 3)?;
    let axis = axis_of(at, 0)?;
    let reduction = reduction(at)?;
    at.one(ScatterElements { axis, reduction }, &all)
}

pub(crate) fn scatter_nd(at: &mut At<'_, '_>) -> Imported {
    let all = at.all(3, 3)?;
    let reduction = reduction(at)?;
    at.one(ScatterNd { reduction }, &all)
}

/// The slices whose condition holds, for a condition that is constant.
pub(crate) fn compress(at: &mut At<'_, '_>) -> Imported {
    let mut x = at.all(2, 2)?[0];
    let Some(v) = at.optional(1) else { return unsupported("needs a condition") };
    let Some(condition) = at.constant(v) else {
        let axis = if at.has("axis") {
            axis_of(at, 0)?
        } else {
            x = flat(at, x)?;
            0
        };
        return super::found::compress(at, x, v, axis);
    };
    let kept: Vec<i64> =
        (0..).zip(condition.to_i64()).filter(|(_, c)| *c != 0).map(|(i, _)| i).collect();
    let axis = if at.has("axis") {
        axis_of(at, 0)?
    } else {
        x = flat(at, x)?;
        0
    };
    let positions = at.tensor_value(Tensor::of(&[kept.len() as i64], &kept));
    at.one(Gather { axis }, &[x, positions])
}

fn flat(at: &mut At<'_, '_>, x: bricolage_ir::ValueId) -> Step {
    let elements = at.ty(x)?.shape.elements();
    at.reshape(x, vec![elements])
}
