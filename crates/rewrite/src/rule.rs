//! What a rule is.

use crate::Patch;
use bricolage_ir::{Graph, NodeId, Numerics, OpKind};

/// What a rule says of one node.
#[derive(Debug)]
pub enum Outcome {
    /// The rule is about something else.
    NoMatch,
    /// The rule matches, and does not apply because of this, in a clause.
    Declined(&'static str),
    /// The node is replaced.
    Rewrite(Patch),
}

/// A named change of graphs that keeps their meaning.
pub trait Rule: Sync {
    /// Two or three words with hyphens: `fold-batch-norm`.
    fn name(&self) -> &'static str;

    /// What it does to the numbers.
    fn numerics(&self) -> Numerics {
        Numerics::Exact
    }

    /// Kinds of nodes at which it looks; empty for all.
    fn anchors(&self) -> &'static [OpKind];

    /// Looks at the node `at`.
    fn apply(&self, graph: &Graph, at: NodeId) -> Outcome;
}
