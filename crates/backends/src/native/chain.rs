//! Chains: a contraction and what follows it up to an exit, to ride in its registers.

use super::{scalar, view::View};
use bricolage_ir::{Node, NodeId, Op, ValueId, ops::Binary};
use bricolage_kernels::{Post, Unary};

/// Longest chain after the contraction, in nodes.
const LONGEST: usize = 6;

/// A contraction with its epilogue.
#[derive(Clone)]
pub(crate) struct Chain {
    /// The contraction.
    pub(crate) anchor: NodeId,
    /// From the contraction to the exit.
    pub(crate) nodes: Vec<NodeId>,
    /// A constant that is added first, if there is one: the bias of a matrix product.
    pub(crate) bias: Option<ValueId>,
    /// What follows.
    pub(crate) posts: Vec<Post>,
    /// The value that [`Post::Add`] adds.
    pub(crate) residual: Option<ValueId>,
}

impl Chain {
    /// `conv`, `conv+add+relu`.
    pub(crate) fn name(&self, anchor: &str) -> String {
        let mut name = anchor.to_owned();
        if self.bias.is_some() {
            name.push_str("+bias");
        }
        for post in &self.posts {
            match post {
                Post::Add => name.push_str("+add"),
                Post::Unary(Unary::Relu) => name.push_str("+relu"),
                Post::Unary(_) => name.push_str("+activation"),
            }
        }
        name
    }
}

/// Every chain that ends at `exit` and starts at a node for which `is_anchor` holds.
///
/// `bias_dims` gives the dims that a constant must have to be the bias of the anchor.
pub(crate) fn chains(
    view: &View<'_>,
    exit: NodeId,
    is_anchor: &dyn Fn(&Node) -> bool,
    is_bias: &dyn Fn(NodeId, ValueId) -> bool,
) -> Vec<Chain> {
    let mut found = Vec::new();
    let start =
        Chain { anchor: exit, nodes: Vec::new(), bias: None, posts: Vec::new(), residual: None };
    grow(view, exit, start, is_anchor, is_bias, &mut found);
    found
}

/// Walks up from `at`, which comes before everything in `below`.
fn grow(
    view: &View<'_>,
    at: NodeId,
    mut below: Chain,
    is_anchor: &dyn Fn(&Node) -> bool,
    is_bias: &dyn Fn(NodeId, ValueId) -> bool,
    found: &mut Vec<Chain>,
) {
    let node = view.node(at);
    if below.nodes.len() > LONGEST || node.outputs.len() != 1 || !node.aliases.is_empty() {
        return;
    }
    below.nodes.insert(0, at);
    if is_anchor(node) {
        below.anchor = at;
        found.push(below);
        return;
    }
    // A test of a number, whose result is none, does not ride in registers of numbers.
    let Some(dims) = view.float_dims(node.outputs[0]) else { return };
    if let (Some(function), Some(x)) = (scalar::function(node), view.operand(node, 0)) {
        if let Some(producer) = view.private_producer(x, at) {
            // Nothing comes between the sum and its bias.
            if below.bias.is_none() {
                below.posts.insert(0, Post::Unary(function));
                grow(view, producer, below, is_anchor, is_bias, found);
            }
        }
        return;
    }
    let (Op::Binary(Binary::Add), Some(a), Some(b)) =
        (&node.op, view.operand(node, 0), view.operand(node, 1))
    else {
        return;
    };
    if below.bias.is_some() {
        return;
    }
    for (through, other) in [(a, b), (b, a)] {
        let Some(producer) = view.private_producer(through, at) else { continue };
        if a == b || view.float_dims(through) != Some(dims.clone()) {
            continue;
        }
        let mut next = below.clone();
        if view.constant(other).is_some() {
            if is_anchor(view.node(producer)) && is_bias(producer, other) {
                next.bias = Some(other);
                grow(view, producer, next, is_anchor, is_bias, found);
            }
            continue;
        }
        if next.residual.is_none() && view.float_dims(other) == Some(dims.clone()) {
            next.residual = Some(other);
            next.posts.insert(0, Post::Add);
            grow(view, producer, next, is_anchor, is_bias, found);
        }
    }
}
