//! Transposes and reshapes that cancel, merge, or ride in a matrix product.

use crate::{Outcome, Patch, Rule, look::Look};
use bricolage_ir::{Graph, NodeId, Op, OpKind, ops::Transpose};

/// `transpose(transpose(x, p), q)` is `transpose(x, p[q])`.
pub(super) struct MergeTransposes;

impl Rule for MergeTransposes {
    fn name(&self) -> &'static str {
        "merge-transposes"
    }

    fn anchors(&self) -> &'static [OpKind] {
        &[OpKind::Transpose]
    }

    fn apply(&self, graph: &Graph, at: NodeId) -> Outcome {
        let (look, node) = (Look(graph), graph.node(at));
        let Op::Transpose(outer) = &node.op else { return Outcome::NoMatch };
        let Some((first, inner_node)) = look.operand(node, 0).and_then(|v| look.node(v)) else {
            return Outcome::NoMatch;
        };
        let Op::Transpose(inner) = &inner_node.op else { return Outcome::NoMatch };
        let Some(x) = look.operand(inner_node, 0) else { return Outcome::NoMatch };
        let perm: Vec<usize> = outer.perm.iter().map(|&d| inner.perm[d]).collect();
        let mut patch = Patch::of(&[first, at]);
        let merged = patch.add(Transpose { perm }, &[x.into()]);
        patch.replace(node.outputs[0], merged);
        Outcome::Rewrite(patch)
    }
}

/// `reshape(reshape(x))` is the outer reshape of `x`.
pub(super) struct MergeReshapes;

impl Rule for MergeReshapes {
    fn name(&self) -> &'static str {
        "merge-reshapes"
    }

    fn anchors(&self) -> &'static [OpKind] {
        &[OpKind::Reshape]
    }

    fn apply(&self, graph: &Graph, at: NodeId) -> Outcome {
        let (look, node) = (Look(graph), graph.node(at));
        let Some((first, inner)) = look.operand(node, 0).and_then(|v| look.node(v)) else {
            return Outcome::NoMatch;
        };
        let (Op::Reshape(_), Some(x)) = (&inner.op, look.operand(inner, 0)) else {
            return Outcome::NoMatch;
        };
        let mut patch = Patch::of(&[first, at]);
        let merged = patch.add(node.op.clone(), &[x.into()]);
        patch.replace(node.outputs[0], merged);
        Outcome::Rewrite(patch)
    }
}

/// `matmul(transpose(a), b)` with the last two dims swapped is a product that reads `a` that way.
pub(super) struct TransposeIntoMatMul;

impl Rule for TransposeIntoMatMul {
    fn name(&self) -> &'static str {
        "transpose-into-matmul"
    }

    fn anchors(&self) -> &'static [OpKind] {
        &[OpKind::MatMul]
    }

    fn apply(&self, graph: &Graph, at: NodeId) -> Outcome {
        let (look, node) = (Look(graph), graph.node(at));
        let Op::MatMul(m) = &node.op else { return Outcome::NoMatch };
        let (Some(a), Some(b)) = (look.operand(node, 0), look.operand(node, 1)) else {
            return Outcome::NoMatch;
        };
        // A product with a vector has no dims to swap.
        if look.rank(a).is_none_or(|r| r < 2) || look.rank(b).is_none_or(|r| r < 2) {
            return Outcome::NoMatch;
        }
        let swapped = |value| {
            let (id, inner) = look.node(value)?;
            let Op::Transpose(t) = &inner.op else { return None };
            let rank = t.perm.len();
            let leading = t.perm[..rank - 2].iter().copied().eq(0..rank - 2);
            let swaps = leading && t.perm[rank - 2..] == [rank - 1, rank - 2];
            swaps.then_some((id, look.operand(inner, 0)?))
        };
        let (mut op, mut operands, mut nodes) = (*m, [a, b], vec![at]);
        for (i, value) in [a, b].into_iter().enumerate() {
            if let Some((id, x)) = swapped(value) {
                let flag = if i == 0 { &mut op.transpose_lhs } else { &mut op.transpose_rhs };
                *flag = !*flag;
                operands[i] = x;
                nodes.push(id);
            }
        }
        if nodes.len() == 1 {
            return Outcome::NoMatch;
        }
        let mut patch = Patch::of(&nodes);
        let product = patch.add(op, &[operands[0].into(), operands[1].into()]);
        patch.replace(node.outputs[0], product);
        Outcome::Rewrite(patch)
    }
}
