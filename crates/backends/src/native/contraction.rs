//! Patterns over matrices: products with their epilogues, attention.

use super::{
    Proposal,
    chain::{Chain, chains},
    view::{PLAIN, View},
};
use bricolage_ir::{NodeId, Numerics, Op, ValueId};
use bricolage_kernels::{AttentionSpec, MatMulKnobs, MatMulSpec, Spec};
use bricolage_tensor::Tensor;

/// Whether a constant holds one number for each column of a product's result.
pub(crate) fn is_column_bias(view: &View<'_>, product: NodeId, constant: ValueId) -> bool {
    let result = view.dims(view.node(product).outputs[0]);
    let (Some(result), Some(dims)) = (result, view.float_dims(constant)) else { return false };
    let Some((last, rest)) = dims.split_last() else { return false };
    result.last() == Some(last) && rest.iter().all(|&d| d == 1) && dims.len() <= result.len()
}

/// A matrix product and up to a bias, an addition and activations after it.
pub(super) fn matmul(view: &View<'_>, exit: NodeId) -> Result<Vec<Proposal>, String> {
    let is_anchor = |n: &bricolage_ir::Node| matches!(n.op, Op::MatMul(_));
    let mut all = Vec::new();
    for chain in chains(view, exit, &is_anchor, &|p, c| is_column_bias(view, p, c)) {
        all.extend(product(view, &chain)?);
    }
    Ok(all)
}

fn product(view: &View<'_>, chain: &Chain) -> Result<Vec<Proposal>, String> {
    let node = view.node(chain.anchor);
    let Op::MatMul(op) = &node.op else { return Ok(Vec::new()) };
    let (Some(a), Some(b)) = (view.operand(node, 0), view.operand(node, 1)) else {
        return Err("needs two operands".to_owned());
    };
    let matrix = |v| {
        view.float_dims(v).filter(|d| d.len() >= 2).ok_or("needs f32 operands of two dims or more")
    };
    let (left, right) = (matrix(a)?, matrix(b)?);
    if view.constant(a).is_some() {
        return Err("needs a left factor that is no constant".to_owned());
    }
    let split = |dims: &[i64]| {
        (dims[..dims.len() - 2].to_vec(), dims[dims.len() - 2], dims[dims.len() - 1])
    };
    let (a_batch, rows, columns) = split(&left);
    let (m, k) = if op.transpose_lhs { (columns, rows) } else { (rows, columns) };
    let (b_batch, rows, columns) = split(&right);
    let n = if op.transpose_rhs { rows } else { columns };
    let constant_b = view.constant(b).is_some();
    let mut raw: Vec<Tensor> = Vec::new();
    raw.extend(view.constant(b).cloned());
    if let Some(bias) = chain.bias.and_then(|v| view.constant(v)) {
        raw.push(bias.reshaped(&[n]).map_err(|e| e.to_string())?);
    }
    let batch: i64 = a_batch.iter().product::<i64>().max(b_batch.iter().product());
    let spec = MatMulSpec {
        a_batch,
        b_batch,
        m,
        k,
        n,
        transpose_a: op.transpose_lhs,
        transpose_b: op.transpose_rhs,
        constant_b,
        bias: chain.bias.is_some(),
        row_bias: false,
        alpha: 1.0,
        posts: chain.posts.clone(),
        knobs: MatMulKnobs::default(),
    };
    let mut operands = vec![(a, PLAIN)];
    if !constant_b {
        operands.push((b, PLAIN));
    }
    operands.extend(chain.residual.map(|r| (r, PLAIN)));
    let macs = batch as f64 * m as f64 * k as f64 * n as f64;
    let moved = if m == 1 { right.iter().product::<i64>() as f64 / 5.0 } else { 0.0 };
    let candidate = view.candidate(
        chain.nodes.clone(),
        &operands,
        &[PLAIN],
        (&chain.name("matmul"), if constant_b { "packed" } else { "dynamic" }.to_owned()),
        Numerics::Reassociates,
        view.compute_ns(macs).max(moved),
    )?;
    Ok(vec![Proposal { candidate, spec: Spec::MatMul(spec), raw }])
}

/// Attention without the matrix of all scores.
pub(super) fn attention(view: &View<'_>, exit: NodeId) -> Result<Vec<Proposal>, String> {
    let node = view.node(exit);
    let Op::Attention(op) = &node.op else { return Ok(Vec::new()) };
    let value = |i| view.operand(node, i).ok_or("lacks an operand");
    let (q, k, v) = (value(0)?, value(1)?, value(2)?);
    if [q, k, v].iter().any(|&x| view.constant(x).is_some()) || q == k || k == v || q == v {
        return Err("needs three different operands that are no constants".to_owned());
    }
    let dims = |x| view.float_dims(x).ok_or("needs f32 operands");
    let (qd, kd, vd) = (dims(q)?, dims(k)?, dims(v)?);
    let mut operands = vec![(q, PLAIN), (k, PLAIN), (v, PLAIN)];
    let mut mask_dims = None;
    if let Some(mask) = view.operand(node, 3) {
        let mut dims = dims(mask)?;
        if view.constant(mask).is_some() {
            return Err("needs a mask that is no constant".to_owned());
        }
        if dims.len() != 4 {
            while dims.len() < 4 {
                dims.insert(0, 1);
            }
            return Err(format!("needs a mask of four dims, found {}", dims.len()));
        }
        mask_dims = Some(dims);
        operands.push((mask, PLAIN));
    }
    let depth = qd[3];
    let spec = AttentionSpec {
        batch: qd[0],
        heads: qd[1],
        key_heads: kd[1],
        queries: qd[2],
        keys: kd[2],
        depth,
        value_depth: vd[3],
        scale: op.scale.map_or(1.0 / (depth as f32).sqrt(), |s| s.get() as f32),
        mask: mask_dims,
        causal: op.causal,
    };
    let macs = (qd[0] * qd[1] * qd[2] * kd[2]) as f64 * (depth + vd[3]) as f64;
    let candidate = view.candidate(
        vec![exit],
        &operands,
        &[PLAIN],
        ("attention", "streamed".to_owned()),
        Numerics::Reassociates,
        view.compute_ns(macs) * 1.2,
    )?;
    Ok(vec![Proposal { candidate, spec: Spec::Attention(spec), raw: Vec::new() }])
}
