//! Cutting out and padding.

use super::at::{At, Fault, Imported, malformed, unsupported};
use bricolage_ir::{
    ValueId,
    ops::{Pad, PadMode, Slice},
};
use bricolage_tensor::Dim;

pub(crate) fn slice(at: &mut At<'_, '_>) -> Imported {
    let x = at.input(0)?;
    let rank = at.rank(x)?;
    let (starts, ends, axes, steps);
    if at.opset < 10 {
        let dims = |list: Option<Vec<i64>>| list.map(|l| l.into_iter().map(Dim::from).collect());
        starts = dims(at.ints("starts")?);
        ends = dims(at.ints("ends")?);
        axes = at.ints("axes")?;
        steps = None;
    } else {
        at.at_most(5)?;
        starts = at.sizes_input(1, "`starts`")?;
        ends = at.sizes_input(2, "`ends`")?;
        axes = at.ints_input(3, "`axes`")?;
        steps = at.ints_input(4, "`steps`")?;
    }
    let (starts, ends): (Vec<Dim>, Vec<Dim>) = match (starts, ends) {
        (Some(starts), Some(ends)) => (starts, ends),
        _ => return malformed("needs `starts` and `ends`, found none"),
    };
    let axes = match axes {
        Some(axes) => at.axes(&axes, rank)?,
        None => (0..starts.len()).collect(),
    };
    let steps = steps.unwrap_or(vec![1; axes.len()]);
    // A step beyond the longest dim takes the first position alone, as any such step does.
    let limit = i64::from(i32::MAX);
    let steps = steps.into_iter().map(|s| s.clamp(-limit, limit)).collect();
    at.one(Slice { axes, starts, ends, steps }, &[x])
}

/// What is put around.
pub(crate) fn pad_mode(at: &mut At<'_, '_>) -> Result<PadMode, Fault> {
    Ok(match at.text("mode", "constant")?.as_str() {
        "constant" => PadMode::Constant,
        "reflect" => PadMode::Reflect,
        "edge" => PadMode::Edge,
        "wrap" => PadMode::Wrap,
        other => return malformed(format!("needs a known `mode`, found `{other}`")),
    })
}

pub(crate) fn pad(at: &mut At<'_, '_>) -> Imported {
    let x = at.input(0)?;
    let rank = at.rank(x)?;
    let mode = pad_mode(at)?;
    let (pads, mut fill, axes);
    if at.opset < 11 {
        pads = at.steps("pads")?.map(|l| l.into_iter().map(Dim::from).collect::<Vec<_>>());
        let value = at.float("value", 0.0)?;
        fill = (value != 0.0).then_some(value);
        axes = None;
    } else {
        at.at_most(4)?;
        pads = at.sizes_input(1, "`pads`")?;
        fill = None;
        axes = at.ints_input(3, "`axes`")?;
    }
    let Some(pads) = pads else { return malformed("needs `pads`, found none") };
    let axes = match axes {
        Some(axes) => at.axes(&axes, rank)?,
        None => (0..rank).collect(),
    };
    if pads.len() != 2 * axes.len() {
        return malformed(format!(
            "needs {} numbers as `pads`, found {}",
            2 * axes.len(),
            pads.len()
        ));
    }
    let (mut before, mut after) = (vec![Dim::from(0); rank], vec![Dim::from(0); rank]);
    for (i, &axis) in axes.iter().enumerate() {
        before[axis] = pads[i].clone();
        after[axis] = pads[axes.len() + i].clone();
    }
    let mut inputs: Vec<Option<ValueId>> = vec![Some(x)];
    if mode == PadMode::Constant {
        if let Some(value) = fill.take() {
            let dtype = at.ty(x)?.dtype;
            inputs.push(Some(at.scalar(dtype, value.into())));
        } else if let Some(value) = at.optional(2).filter(|_| at.opset >= 11) {
            inputs.push(Some(value));
        }
    }
    at.one(Pad { mode, before, after }, &inputs)
}

/// The size that each axis shall have, as a number.
fn target(at: &mut At<'_, '_>, rank: usize) -> Result<(Vec<usize>, Vec<Dim>), Fault> {
    let sizes = at.sizes_input(1, "`shape`")?.unwrap_or_default();
    let axes = match at.ints("axes")? {
        Some(axes) => at.axes(&axes, rank)?,
        None => (0..rank).collect(),
    };
    if sizes.len() != axes.len() {
        return malformed(format!("needs {} sizes, found {}", axes.len(), sizes.len()));
    }
    Ok((axes, sizes))
}

/// Cuts or pads equally on both sides; an odd position falls to the end.
pub(crate) fn center_crop_pad(at: &mut At<'_, '_>) -> Imported {
    let x = at.all(2, 2)?[0];
    let dims = at.dims(x)?;
    let (axes, sizes) = target(at, dims.len())?;
    let (mut cut, mut starts, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    let (mut before, mut after) = (vec![Dim::from(0); dims.len()], vec![Dim::from(0); dims.len()]);
    for (axis, size) in axes.into_iter().zip(sizes) {
        let Some(more) = (&size - &dims[axis]).as_const() else {
            return unsupported(format!(
                "needs to know whether {size} or {} is larger",
                dims[axis]
            ));
        };
        let half = more.abs() / 2;
        if more < 0 {
            cut.push(axis);
            starts.push(Dim::from(half));
            ends.push(Dim::from(half) + size);
        } else {
            before[axis] = Dim::from(half);
            after[axis] = Dim::from(more - half);
        }
    }
    let steps = vec![1; cut.len()];
    let cropped = at.add(Slice { axes: cut, starts, ends, steps }, &[x])?;
    at.one(Pad { mode: PadMode::Constant, before, after }, &[cropped])
}
