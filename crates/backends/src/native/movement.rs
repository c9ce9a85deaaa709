//! Patterns that only move elements, of any type.

use super::{
    Proposal,
    view::{View, blocked, channels_last},
};
use bricolage_ir::{NodeId, Numerics, Op, ValueId, ops::PadMode};
use bricolage_kernels::{CopySpec, GatherSpec, PadMode as KernelPadMode, Spec};
use bricolage_tensor::{DType, Format, Type};

fn plain(view: &View<'_>, value: ValueId) -> Result<(Vec<i64>, Format), String> {
    let dims = view.dims(value).ok_or("needs tensors of constant size")?;
    let dtype = view.dtype(value).ok_or("needs tensors")?;
    Ok((dims, Format::plain(dtype)))
}

/// Transposes, expansions, tiles, slices, pads, concatenations and splits.
pub(super) fn copy(view: &View<'_>, exit: NodeId) -> Result<Vec<Proposal>, String> {
    let node = view.node(exit);
    let inputs: Vec<ValueId> = node.inputs.iter().flatten().copied().collect();
    let outputs = &node.outputs;
    let Some(&x) = inputs.first() else { return Err("has no input".to_owned()) };
    let (dims, format) = plain(view, x)?;
    let (out, _) = plain(view, outputs[0])?;
    let mut all: Vec<(CopySpec, Format)> = Vec::new();
    match &node.op {
        Op::Transpose(t) => {
            all.push((CopySpec::transpose(&dims, &format, &t.perm), format.clone()))
        }
        Op::Expand(_) => all.push((CopySpec::expand(&dims, &format, &out), format.clone())),
        Op::Tile(t) => {
            let times: Option<Vec<i64>> = t.repeats.iter().map(|d| d.as_const()).collect();
            let times = times.ok_or("needs constant repeats")?;
            all.push((CopySpec::tile(&dims, &format, &times), format.clone()));
        }
        Op::Slice(s) => {
            let (mut start, mut step) = (vec![0; dims.len()], vec![1; dims.len()]);
            for (i, &axis) in s.axes.iter().enumerate() {
                step[axis] = s.steps[i];
                start[axis] = s.first(i, dims[axis]).ok_or("needs constant positions")?;
            }
            all.push((CopySpec::slice(&dims, &format, &start, &step, &out), format.clone()));
        }
        Op::Pad(p) => {
            let number = |d: &bricolage_tensor::Dim| d.as_const().ok_or("needs constant widths");
            let before: Vec<i64> = p.before.iter().map(number).collect::<Result<_, _>>()?;
            let after: Vec<i64> = p.after.iter().map(number).collect::<Result<_, _>>()?;
            let size = (format.dtype.bits() / 8) as usize;
            let mode = match p.mode {
                PadMode::Constant => KernelPadMode::Constant(match view.operand(node, 1) {
                    None => vec![0; size],
                    Some(v) => {
                        view.constant(v).ok_or("needs a constant to fill with")?.bytes().to_vec()
                    }
                }),
                PadMode::Edge => KernelPadMode::Edge,
                PadMode::Reflect => KernelPadMode::Reflect,
                PadMode::Wrap => KernelPadMode::Wrap,
                other => return Err(format!("does not pad by {other:?}")),
            };
            let spec = CopySpec::pad(&dims, &format, &before, &after, &mode);
            all.push((spec.ok_or("cannot make as many elements as asked for")?, format.clone()));
        }
        Op::Concat(c) => {
            if inputs.iter().any(|&v| view.constant(v).is_some()) {
                return Err("needs operands that are no constants".to_owned());
            }
            let every: Vec<Vec<i64>> =
                inputs.iter().map(|&v| plain(view, v).map(|p| p.0)).collect::<Result<_, _>>()?;
            for format in layouts(&format, &dims) {
                all.extend(CopySpec::concat(&every, &format, c.axis).map(|s| (s, format)));
            }
        }
        Op::Split(s) => {
            let every: Vec<Vec<i64>> =
                outputs.iter().map(|&v| plain(view, v).map(|p| p.0)).collect::<Result<_, _>>()?;
            for format in layouts(&format, &dims) {
                all.extend(CopySpec::split(&every, &format, s.axis).map(|s| (s, format)));
            }
        }
        _ => return Ok(Vec::new()),
    }
    let kept: Vec<ValueId> = match &node.op {
        Op::Concat(_) => inputs.clone(),
        _ => vec![x],
    };
    if view.constant(x).is_some() {
        return Err("needs an operand that is no constant".to_owned());
    }
    let mut unique = kept.clone();
    unique.sort_unstable();
    unique.dedup();
    if unique.len() != kept.len() {
        return Err("reads one value twice".to_owned());
    }
    let name = node.op.kind().name().to_lowercase();
    let mut proposals = Vec::new();
    for (spec, format) in all {
        let operands: Vec<_> = kept.iter().map(|&v| (v, format.clone())).collect();
        let results = vec![format; outputs.len()];
        let candidate = view.candidate(
            vec![exit],
            &operands,
            &results,
            (&name, "copy".to_owned()),
            Numerics::Exact,
            view.movement_ns(outputs) * 2.0,
        )?;
        proposals.push(Proposal { candidate, spec: Spec::Copy(spec), raw: Vec::new() });
    }
    Ok(proposals)
}

/// Row-major, and the layouts of images where the operand may be one.
fn layouts(plain: &Format, dims: &[i64]) -> Vec<Format> {
    let mut all = vec![plain.clone()];
    if plain.dtype == DType::F32 && matches!(dims.len(), 3 | 4) && dims[1] >= 8 {
        all.extend([blocked(0), channels_last(0)]);
    }
    all
}

/// Slices of a table at given positions.
pub(super) fn gather(view: &View<'_>, exit: NodeId) -> Result<Vec<Proposal>, String> {
    let node = view.node(exit);
    let Op::Gather(op) = &node.op else { return Ok(Vec::new()) };
    let (Some(data), Some(indices)) = (view.operand(node, 0), view.operand(node, 1)) else {
        return Err("needs two operands".to_owned());
    };
    let ((dims, format), (index_dims, index_format)) = (plain(view, data)?, plain(view, indices)?);
    if !matches!(view.graph.fact(indices).ty, Type::Tensor(_)) || view.constant(indices).is_some() {
        return Err("needs positions that are no constants".to_owned());
    }
    let constant = view.constant(data);
    let spec = GatherSpec {
        data: dims,
        dtype: format.dtype,
        constant: constant.is_some(),
        axis: op.axis,
        indices: index_dims,
        index_dtype: index_format.dtype,
    };
    let mut operands = Vec::new();
    if constant.is_none() {
        operands.push((data, format.clone()));
    }
    operands.push((indices, index_format));
    let candidate = view.candidate(
        vec![exit],
        &operands,
        &[format],
        ("gather", "copy".to_owned()),
        Numerics::Exact,
        view.movement_ns(&node.outputs) * 2.0,
    )?;
    Ok(vec![Proposal {
        candidate,
        spec: Spec::Gather(spec),
        raw: constant.cloned().into_iter().collect(),
    }])
}
