//! An independent check of everything that a graph promises.

use crate::{Graph, NodeId, Role, TypeError, Use, ValueId};
use std::collections::{HashMap, HashSet};

/// One broken promise. Nodes are named by their origin, values by their name.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// An id names nothing.
    #[error("{place} names {what} that does not exist")]
    Dangling {
        /// Where.
        place: String,
        /// What is missing.
        what: String,
    },
    /// A name does not lead to its value, or two values share it.
    #[error("the name `{name}` does not lead to its value alone")]
    Name {
        /// The name.
        name: String,
    },
    /// Role and producer of a value contradict each other.
    #[error("value `{value}` {what}")]
    Value {
        /// Its name.
        value: String,
        /// A clause with the contradiction.
        what: &'static str,
    },
    /// A node has no origin.
    #[error("node {node} ({op}) has no origin")]
    Origin {
        /// The node.
        node: u32,
        /// Name of its op.
        op: &'static str,
    },
    /// The use list of a value differs from the operands that read it.
    #[error("value `{value}` is read by {needed} operands, its use list has {found} of them")]
    Uses {
        /// Its name.
        value: String,
        /// Number of operands.
        needed: usize,
        /// Number of them listed, or of listed uses if more.
        found: usize,
    },
    /// The operands of a node do not fit its op.
    #[error("node `{node}` {error}")]
    Type {
        /// Its origin.
        node: String,
        /// Why.
        error: TypeError,
    },
    /// The type of a value is not the one that follows from its node or content.
    #[error("value `{value}` needs type {needed}, found {found}")]
    Fact {
        /// Its name.
        value: String,
        /// The type that follows.
        needed: String,
        /// The type stored.
        found: String,
    },
    /// An alias pair does not name an output and an input of one size.
    #[error(
        "node `{node}` aliases output {output} with input {input}, which do not fit each other"
    )]
    Alias {
        /// Its origin.
        node: String,
        /// The output.
        output: usize,
        /// The input.
        input: usize,
    },
    /// A graph inside a node breaks a promise.
    #[error("inside node `{node}`: {fault}")]
    Nested {
        /// Its origin.
        node: String,
        /// Which promise.
        fault: Box<Fault>,
    },
    /// Nodes depend on each other in a circle.
    #[error("node `{node}` depends on itself")]
    Cycle {
        /// Its origin.
        node: String,
    },
    /// The interval of a symbol is empty or below 0.
    #[error("symbol `{symbol}` has the range {low} to {high}")]
    Range {
        /// The symbol.
        symbol: String,
        /// Its lowest value.
        low: i64,
        /// Its highest value.
        high: i64,
    },
}

/// Every broken promise of the graph; empty for a sound one.
pub fn verify(graph: &Graph) -> Vec<Fault> {
    let mut faults = Vec::new();
    check_values(graph, &mut faults);
    check_nodes(graph, &mut faults);
    check_uses(graph, &mut faults);
    check_cycles(graph, &mut faults);
    let mut outputs = HashSet::new();
    for value in graph.outputs.iter().filter(|&&v| !outputs.insert(v)) {
        if let Some(value) = graph.get_value(*value) {
            let what = "is listed twice as an output";
            faults.push(Fault::Value { value: value.name.to_string(), what });
        }
    }
    for (symbol, &(low, high)) in &graph.ranges.0 {
        if low < 0 || high < low {
            faults.push(Fault::Range { symbol: symbol.to_string(), low, high });
        }
    }
    faults
}

fn node_name(graph: &Graph, id: NodeId) -> String {
    graph
        .get_node(id)
        .and_then(|n| n.origin.first())
        .map_or(format!("#{}", id.0), |n| n.to_string())
}

fn check_values(graph: &Graph, faults: &mut Vec<Fault>) {
    let mut names = HashSet::new();
    for id in graph.values() {
        let value = graph.value(id);
        if !names.insert(value.name.clone()) || graph.find(&value.name) != Some(id) {
            faults.push(Fault::Name { name: value.name.to_string() });
        }
        let fault = |what| Fault::Value { value: value.name.to_string(), what };
        match (&value.role, value.producer) {
            (Role::Activation, None) => faults.push(fault("is computed by no node")),
            (Role::Activation, Some((node, index))) => {
                let outputs = graph.get_node(node).map(|n| n.outputs.as_slice());
                if outputs.and_then(|o| o.get(index)) != Some(&id) {
                    faults.push(fault("is not an output of the node said to compute it"));
                }
            }
            (_, Some(_)) => faults.push(fault("is given and computed")),
            (Role::Input, None) => {
                if graph.inputs.iter().filter(|&&v| v == id).count() != 1 {
                    faults.push(fault("is an input that the graph does not list exactly once"));
                }
            }
            (Role::Constant(t) | Role::State(t), None) => {
                if value.fact.ty.as_tensor() != Some(&t.ty()) {
                    faults.push(Fault::Fact {
                        value: value.name.to_string(),
                        needed: t.ty().to_string(),
                        found: value.fact.to_string(),
                    });
                }
            }
        }
    }
    for (place, list) in
        [("the list of inputs", &graph.inputs), ("the list of outputs", &graph.outputs)]
    {
        for id in list.iter().filter(|&&id| graph.get_value(id).is_none()) {
            faults
                .push(Fault::Dangling { place: place.to_owned(), what: format!("value {}", id.0) });
        }
    }
    for &id in &graph.inputs {
        if let Some(value) = graph.get_value(id)
            && value.role != Role::Input
        {
            let what = "is listed as an input, but has another role";
            faults.push(Fault::Value { value: value.name.to_string(), what });
        }
    }
}

fn check_nodes(graph: &Graph, faults: &mut Vec<Fault>) {
    for id in graph.nodes() {
        let node = graph.node(id);
        let name = || node_name(graph, id);
        if node.origin.is_empty() {
            faults.push(Fault::Origin { node: id.0, op: node.op.kind().name() });
        }
        let place = || format!("node `{}`", name());
        let mut whole = true;
        for value in node.inputs.iter().flatten().chain(&node.outputs) {
            if graph.get_value(*value).is_none() {
                whole = false;
                faults.push(Fault::Dangling { place: place(), what: format!("value {}", value.0) });
            }
        }
        for earlier in node.after.iter().filter(|&&n| graph.get_node(n).is_none()) {
            faults.push(Fault::Dangling { place: place(), what: format!("node {}", earlier.0) });
        }
        if !whole {
            continue;
        }
        for (index, &output) in node.outputs.iter().enumerate() {
            if graph.value(output).producer != Some((id, index)) {
                let what = "does not name the node that computes it";
                faults.push(Fault::Value { value: graph.value(output).name.to_string(), what });
            }
        }
        match node.op.infer(&graph.facts(&node.inputs)) {
            Err(error) => faults.push(Fault::Type { node: name(), error }),
            Ok(facts) => {
                if facts.len() != node.outputs.len() {
                    let what = format!(
                        "{} outputs, not the {} of its op",
                        node.outputs.len(),
                        facts.len()
                    );
                    faults.push(Fault::Dangling { place: place(), what });
                }
                for (fact, &output) in facts.iter().zip(&node.outputs) {
                    let value = graph.value(output);
                    if *fact != value.fact {
                        faults.push(Fault::Fact {
                            value: value.name.to_string(),
                            needed: fact.to_string(),
                            found: value.fact.to_string(),
                        });
                    }
                }
            }
        }
        for nested in node.op.nested() {
            let inside = |fault| Fault::Nested { node: name(), fault: Box::new(fault) };
            faults.extend(verify(nested.graph()).into_iter().map(inside));
        }
        for &(output, input) in &node.aliases {
            let out = node.outputs.get(output).map(|&v| &graph.fact(v).ty);
            let from = node.inputs.get(input).copied().flatten().map(|v| &graph.fact(v).ty);
            if out.is_none() || out != from {
                faults.push(Fault::Alias { node: name(), output, input });
            }
        }
    }
}

fn check_uses(graph: &Graph, faults: &mut Vec<Fault>) {
    let mut read: HashMap<ValueId, HashSet<Use>> = HashMap::new();
    for id in graph.nodes() {
        for (operand, value) in graph.node(id).inputs.iter().enumerate() {
            if let Some(value) = value {
                read.entry(*value).or_default().insert(Use { node: id, operand });
            }
        }
    }
    for id in graph.values() {
        let (listed, read) = (graph.uses(id), read.remove(&id).unwrap_or_default());
        let distinct: HashSet<Use> = listed.iter().copied().collect();
        if distinct != read || listed.len() != distinct.len() {
            let right = distinct.intersection(&read).count();
            faults.push(Fault::Uses {
                value: graph.value(id).name.to_string(),
                needed: read.len(),
                found: if right == read.len() { listed.len() } else { right },
            });
        }
    }
}

/// Depth-first search that reports each node found again on its own path.
fn check_cycles(graph: &Graph, faults: &mut Vec<Fault>) {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        Open,
        Done,
    }
    let before = |id: NodeId| -> Vec<NodeId> {
        let Some(node) = graph.get_node(id) else { return Vec::new() };
        let values = node.inputs.iter().flatten().filter_map(|&v| graph.get_value(v));
        values.filter_map(|v| v.producer).map(|p| p.0).chain(node.after.iter().copied()).collect()
    };
    let mut marks: HashMap<NodeId, Mark> = HashMap::new();
    for root in graph.nodes() {
        if marks.contains_key(&root) {
            continue;
        }
        marks.insert(root, Mark::Open);
        let mut path = vec![(root, before(root))];
        while let Some((id, left)) = path.last_mut() {
            match left.pop() {
                None => {
                    marks.insert(*id, Mark::Done);
                    path.pop();
                }
                Some(next) => match marks.get(&next) {
                    Some(Mark::Done) => {}
                    Some(Mark::Open) => faults.push(Fault::Cycle { node: node_name(graph, next) }),
                    None => {
                        marks.insert(next, Mark::Open);
                        path.push((next, before(next)));
                    }
                },
            }
        }
    }
}
