//! Operators whose results are as large as what they find.

use super::at::{At, Imported, malformed};
use bricolage_ir::ops::{Compress, NonMaxSuppression, NonZero, Unique};

pub(crate) fn non_zero(at: &mut At<'_, '_>) -> Imported {
    let x = at.all(1, 1)?[0];
    let found = at.fresh_dim("found");
    at.one(NonZero { found }, &[x])
}

/// The slices along `axis` for which a computed condition holds.
pub(crate) fn compress(
    at: &mut At<'_, '_>,
    x: bricolage_ir::ValueId,
    condition: bricolage_ir::ValueId,
    axis: usize,
) -> Imported {
    let found = at.fresh_dim("found");
    at.one(Compress { axis, found }, &[x, condition])
}

pub(crate) fn unique(at: &mut At<'_, '_>) -> Imported {
    let x = at.all(1, 1)?[0];
    let axis = match at.int("axis")? {
        Some(axis) => Some(at.axis(axis, at.rank(x)?)?),
        None => None,
    };
    let sorted = at.flag("sorted", true)?;
    let found = at.fresh_dim("found");
    at.add_all(Unique { axis, sorted, found }, &[x])
}

pub(crate) fn non_max_suppression(at: &mut At<'_, '_>) -> Imported {
    at.at_most(5)?;
    let centered = match at.int_or("center_point_box", 0)? {
        0 => false,
        1 => true,
        other => return malformed(format!("needs `center_point_box` to be 0 or 1, found {other}")),
    };
    let found = at.fresh_dim("found");
    let mut inputs = at.inputs.clone();
    while inputs.last().is_some_and(Option::is_none) {
        inputs.pop();
    }
    at.one(NonMaxSuppression { centered, found }, &inputs)
}
