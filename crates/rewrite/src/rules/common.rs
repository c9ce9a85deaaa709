//! What is computed twice.

use crate::{Outcome, Patch, Rule};
use bricolage_ir::{Graph, NodeId, OpKind};

/// A node with the op and the operands of an earlier one gives the same results.
pub(super) struct MergeEqualNodes;

impl Rule for MergeEqualNodes {
    fn name(&self) -> &'static str {
        "merge-equal-nodes"
    }

    fn anchors(&self) -> &'static [OpKind] {
        &[]
    }

    fn apply(&self, graph: &Graph, at: NodeId) -> Outcome {
        let node = graph.node(at);
        let Some(&shared) = node.inputs.iter().flatten().next() else { return Outcome::NoMatch };
        if !node.aliases.is_empty() || !node.after.is_empty() {
            return Outcome::NoMatch;
        }
        // Of two equal nodes the younger goes, so that they do not go in turn.
        let twin = graph.uses(shared).iter().map(|u| u.node).find(|&other| {
            let o = graph.node(other);
            other < at
                && o.op == node.op
                && o.inputs == node.inputs
                && o.aliases.is_empty()
                && o.after.is_empty()
        });
        let Some(twin) = twin else { return Outcome::NoMatch };
        let mut patch = Patch::of(&[at]);
        for (&old, &kept) in node.outputs.iter().zip(&graph.node(twin).outputs) {
            patch.replace(old, kept);
        }
        Outcome::Rewrite(patch)
    }
}
