//! Reductions.

use super::at::{At, Imported, malformed};
use bricolage_ir::ops::{ArgReduce, Reduce, ReduceKind};

pub(crate) fn reduce(at: &mut At<'_, '_>, kind: ReduceKind) -> Imported {
    at.at_most(2)?;
    let x = at.input(0)?;
    let rank = at.rank(x)?;
    let keep_dims = at.flag("keepdims", true)?;
    let stays = at.flag("noop_with_empty_axes", false)?;
    let axes = at.ints_either("axes", 1)?.unwrap_or_default();
    let mut axes = at.axes(&axes, rank)?;
    if axes.is_empty() && !stays {
        axes = (0..rank).collect();
    }
    axes.sort_unstable();
    at.one(Reduce { kind, axes, keep_dims }, &[x])
}

pub(crate) fn position(at: &mut At<'_, '_>, largest: bool) -> Imported {
    let x = at.all(1, 1)?[0];
    let rank = at.rank(x)?;
    if rank == 0 {
        return malformed("needs operand 0 to have dims, found a scalar");
    }
    let axis = at.int_or("axis", 0)?;
    let axis = at.axis(axis, rank)?;
    let keep_dims = at.flag("keepdims", true)?;
    let select_last = at.flag("select_last_index", false)?;
    at.one(ArgReduce { largest, axis, keep_dims, select_last }, &[x])
}
