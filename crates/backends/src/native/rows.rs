//! Patterns over rows: softmax, norms, reductions.

use super::{
    Proposal,
    view::{PLAIN, View},
};
use bricolage_ir::{
    NodeId, Numerics, Op,
    ops::{Binary, ReduceKind},
};
use bricolage_kernels::{NormSpec, ReduceOp, ReduceSpec, SoftmaxSpec, Spec};

/// Softmax and its logarithm.
pub(super) fn softmax(view: &View<'_>, exit: NodeId) -> Result<Vec<Proposal>, String> {
    let node = view.node(exit);
    let (Op::Softmax(op), Some(x)) = (&node.op, view.operand(node, 0)) else {
        return Ok(Vec::new());
    };
    let dims = view.float_dims(x).ok_or("needs f32 elements")?;
    let spec = SoftmaxSpec { dims, axis: op.axis, log: op.log };
    let candidate = view.candidate(
        vec![exit],
        &[(x, PLAIN)],
        &[PLAIN],
        ("softmax", "rows".to_owned()),
        Numerics::Reassociates,
        view.movement_ns(&[x, x]) * 2.0,
    )?;
    Ok(vec![Proposal { candidate, spec: Spec::Softmax(spec), raw: Vec::new() }])
}

/// Layer norm, alone and of a sum that nobody else reads.
pub(super) fn norm(view: &View<'_>, exit: NodeId) -> Result<Vec<Proposal>, String> {
    let node = view.node(exit);
    let (Op::LayerNorm(op), Some(x)) = (&node.op, view.operand(node, 0)) else {
        return Ok(Vec::new());
    };
    let dims = view.float_dims(x).ok_or("needs f32 elements")?;
    if op.statistics {
        return Err("does not give the statistics".to_owned());
    }
    let mut raw = Vec::new();
    for i in 1..3 {
        if let Some(value) = view.operand(node, i) {
            let constant = view.constant(value).ok_or("needs a constant scale and bias")?;
            let (found, needed) = (constant.dims(), &dims[op.axis..]);
            if without_ones(found) != without_ones(needed) {
                return Err(format!("needs scale and bias of dims {needed:?}, found {found:?}"));
            }
            raw.push(constant.reshaped(&dims[op.axis..]).map_err(|e| e.to_string())?);
        }
    }
    let spec = NormSpec {
        dims: dims.clone(),
        axis: op.axis,
        epsilon: op.epsilon.get() as f32,
        rms: op.rms,
        scale: view.operand(node, 1).is_some(),
        bias: view.operand(node, 2).is_some(),
        residual: false,
        keep_sum: false,
    };
    let alone = view.candidate(
        vec![exit],
        &[(x, PLAIN)],
        &[PLAIN],
        ("layer-norm", "rows".to_owned()),
        Numerics::Reassociates,
        view.movement_ns(&[x, x]),
    )?;
    let mut all =
        vec![Proposal { candidate: alone, spec: Spec::Norm(spec.clone()), raw: raw.clone() }];
    if let Some(sum) = view.private_producer(x, exit)
        && let Op::Binary(Binary::Add) = view.node(sum).op
        && let (Some(a), Some(b)) =
            (view.operand(view.node(sum), 0), view.operand(view.node(sum), 1))
        && [a, b]
            .iter()
            .all(|&v| view.float_dims(v).as_ref() == Some(&dims) && view.constant(v).is_none())
        && a != b
    {
        let candidate = view.candidate(
            vec![sum, exit],
            &[(a, PLAIN), (b, PLAIN)],
            &[PLAIN],
            ("add+layer-norm", "rows".to_owned()),
            Numerics::Reassociates,
            view.movement_ns(&[a, b, x]),
        )?;
        all.push(Proposal {
            candidate,
            spec: Spec::Norm(NormSpec { residual: true, ..spec }),
            raw,
        });
    }
    Ok(all)
}

/// Dims from the first that is not 1 on.
fn without_ones(dims: &[i64]) -> &[i64] {
    &dims[dims.iter().take_while(|&&d| d == 1).count()..]
}

/// Reductions over any axes.
pub(super) fn reduce(view: &View<'_>, exit: NodeId) -> Result<Vec<Proposal>, String> {
    let node = view.node(exit);
    let (Op::Reduce(op), Some(x)) = (&node.op, view.operand(node, 0)) else {
        return Ok(Vec::new());
    };
    let dims = view.float_dims(x).ok_or("needs f32 elements")?;
    let kind = match op.kind {
        ReduceKind::Sum => ReduceOp::Sum,
        ReduceKind::Mean => ReduceOp::Mean,
        ReduceKind::Max => ReduceOp::Max,
        ReduceKind::Min => ReduceOp::Min,
        ReduceKind::Product => ReduceOp::Prod,
        ReduceKind::L1 => ReduceOp::L1,
        ReduceKind::L2 => ReduceOp::L2,
        other => return Err(format!("has no kernel for {other:?}")),
    };
    let spec = ReduceSpec { dims, axes: op.axes.clone(), keep_dims: op.keep_dims, op: kind };
    let candidate = view.candidate(
        vec![exit],
        &[(x, PLAIN)],
        &[PLAIN],
        ("reduce", "plain".to_owned()),
        Numerics::Reassociates,
        view.movement_ns(&[x]) * 2.0,
    )?;
    Ok(vec![Proposal { candidate, spec: Spec::Reduce(spec), raw: Vec::new() }])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trials::{Case, SETTING, drawn};
    use bricolage_ir::{Real, ops::LayerNorm};
    use bricolage_tensor::DType;

    #[test]
    fn a_scale_of_rows_is_none_of_columns() {
        let op = LayerNorm { axis: 1, epsilon: Real::new(1e-5), rms: false, statistics: false };
        for (dims, fits) in [(&[3][..], true), (&[1, 3], true), (&[3, 1], false)] {
            let mut case = Case::new();
            let x = case.input(drawn(DType::F32, &[3, 3], 1));
            let scale = case.constant(drawn(DType::F32, dims, 2));
            let y = case.op(op, &[x, scale]);
            let view = View { graph: &case.graph, setting: SETTING };
            let found = case.graph.producer(y).map(|exit| norm(&view, exit)).unwrap();
            assert_eq!(found.is_ok(), fits, "{dims:?}");
        }
    }
}
