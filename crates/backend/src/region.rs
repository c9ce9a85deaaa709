//! Regions: the nodes that one kernel replaces.

use bricolage_ir::{Graph, NodeId, ValueId};
use std::collections::HashSet;

/// A convex set of nodes with one exit, and the values that cross its border.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// In topological order; the last is the exit, the only node that is read from outside.
    pub nodes: Vec<NodeId>,
    /// Values read but not computed inside, constants excluded: in the order of first use, or in
    /// that of a kernel's operands, where a value may come more than once.
    pub inputs: Vec<ValueId>,
    /// Constants read inside, in the order of first use.
    pub constants: Vec<ValueId>,
    /// Outputs of the exit that are read outside or are outputs of the graph; all of the exit's
    /// outputs when none is.
    pub outputs: Vec<ValueId>,
}

/// Why nodes do not make a region.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RegionError {
    /// There are no nodes.
    #[error("a region needs a node")]
    Empty,
    /// A node other than the exit is read from outside.
    #[error("value `{value}` inside the region is read from outside")]
    Tap {
        /// Name of the value.
        value: String,
    },
}

impl Region {
    /// The region of `nodes`, which are in topological order.
    ///
    /// With one exit and no inner value read from outside, the set is convex.
    pub fn of(graph: &Graph, nodes: Vec<NodeId>) -> Result<Region, RegionError> {
        let Some(&exit) = nodes.last() else { return Err(RegionError::Empty) };
        let inside: HashSet<NodeId> = nodes.iter().copied().collect();
        for &node in &nodes[..nodes.len() - 1] {
            for &output in &graph.node(node).outputs {
                let outside = graph.is_output(output)
                    || graph.uses(output).iter().any(|u| !inside.contains(&u.node));
                if outside {
                    return Err(RegionError::Tap { value: graph.value(output).name.to_string() });
                }
            }
        }
        let boundary = graph.boundary(&nodes);
        let mut outputs = boundary.outputs;
        if outputs.is_empty() {
            outputs = graph.node(exit).outputs.clone();
        }
        Ok(Region { nodes, inputs: boundary.inputs, constants: boundary.constants, outputs })
    }

    /// The nodes of a set, each once and after those of the set that it reads; the oldest first where there
    /// is a choice.
    pub fn in_order(graph: &Graph, mut left: Vec<NodeId>) -> Vec<NodeId> {
        left.sort_unstable();
        left.dedup();
        let mut order = Vec::with_capacity(left.len());
        while !left.is_empty() {
            let waits = |n: &NodeId| {
                let inputs = graph.node(*n).inputs.iter().flatten();
                inputs.filter_map(|&v| graph.producer(v)).any(|p| left.contains(&p))
            };
            let next = left.iter().position(|n| !waits(n)).expect("graphs have no cycles");
            order.push(left.remove(next));
        }
        order
    }

    /// The only node that is read from outside.
    pub fn exit(&self) -> NodeId {
        self.nodes[self.nodes.len() - 1]
    }

    /// Names, in the user's model, of everything that the region computes.
    pub fn origin(&self, graph: &Graph) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for &node in &self.nodes {
            for name in graph.node(node).origin.iter() {
                if !names.iter().any(|n| **n == **name) {
                    names.push(name.to_string());
                }
            }
        }
        names
    }
}
