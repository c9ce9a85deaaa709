//! Nodes that give what they take.

use crate::{Outcome, Patch, Rule, look::Look};
use bricolage_ir::{
    Graph, Node, NodeId, Numerics, Op, OpKind,
    ops::{Binary, Unary},
};

/// `f(x)` is `x`: identities, transposes, reshapes, casts, expansions, slices, pads, clips and
/// concatenations that change nothing.
pub(super) struct RemoveIdentity;

impl Rule for RemoveIdentity {
    fn name(&self) -> &'static str {
        "remove-identity"
    }

    fn anchors(&self) -> &'static [OpKind] {
        &[
            OpKind::Unary,
            OpKind::Cast,
            OpKind::Clip,
            OpKind::Reshape,
            OpKind::Transpose,
            OpKind::Expand,
            OpKind::Tile,
            OpKind::Concat,
            OpKind::Split,
            OpKind::Slice,
            OpKind::Pad,
        ]
    }

    fn apply(&self, graph: &Graph, at: NodeId) -> Outcome {
        let node = graph.node(at);
        let look = Look(graph);
        let (Some(x), [output]) = (look.operand(node, 0), &node.outputs[..]) else {
            return Outcome::NoMatch;
        };
        if !look.same_type(x, *output) || !keeps_elements(node) {
            return Outcome::NoMatch;
        }
        Outcome::Rewrite(Patch::forward(at, *output, x))
    }
}

/// Whether a node whose result has the type of its first operand has its elements too.
fn keeps_elements(node: &Node) -> bool {
    match &node.op {
        Op::Unary(f) => *f == Unary::Identity,
        // Of equal element type, equal shape.
        Op::Cast(_) | Op::Reshape(_) | Op::Expand(_) | Op::Tile(_) => true,
        Op::Clip(c) => {
            c.min.is_none_or(|b| b.get() == f64::NEG_INFINITY)
                && c.max.is_none_or(|b| b.get() == f64::INFINITY)
        }
        Op::Transpose(t) => t.perm.iter().copied().eq(0..t.perm.len()),
        Op::Concat(_) => node.inputs.len() == 1,
        Op::Split(_) => node.outputs.len() == 1,
        Op::Slice(s) => s.steps.iter().all(|&step| step == 1),
        Op::Pad(p) => p.before.iter().chain(&p.after).all(|d| d.as_const() == Some(0)),
        _ => false,
    }
}

/// `x + 0`, `x - 0`, `x * 1`, `x / 1` and `x ^ 1` are `x`.
pub(super) struct DropNeutralOperand;

impl Rule for DropNeutralOperand {
    fn name(&self) -> &'static str {
        "drop-neutral-operand"
    }

    /// `-0 + 0` is `0`, and `-0` after the rule.
    fn numerics(&self) -> Numerics {
        Numerics::Reassociates
    }

    fn anchors(&self) -> &'static [OpKind] {
        &[OpKind::Binary]
    }

    fn apply(&self, graph: &Graph, at: NodeId) -> Outcome {
        let node = graph.node(at);
        let Op::Binary(function) = node.op else { return Outcome::NoMatch };
        let neutral = match function {
            Binary::Add | Binary::Sub => 0.0,
            Binary::Mul | Binary::Div | Binary::Pow => 1.0,
            _ => return Outcome::NoMatch,
        };
        let output = node.outputs[0];
        match Look(graph).with_scalar(output, function) {
            Some((x, number)) if number == neutral => {
                Outcome::Rewrite(Patch::forward(at, output, x))
            }
            _ => Outcome::NoMatch,
        }
    }
}
