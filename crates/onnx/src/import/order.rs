//! Who defines which name, and an order in which every node follows what it reads.

use crate::{
    ImportError,
    proto::{GraphProto, NodeProto, TensorProto},
};
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap, HashSet},
};

/// Name of a node: its own, or that of its first output.
pub(crate) fn node_name(node: &NodeProto) -> &str {
    if !node.name().is_empty() {
        return node.name();
    }
    node.output.iter().find(|o| !o.is_empty()).map_or(node.op_type(), |o| o)
}

/// Names that the graphs inside a node read from outside.
pub(crate) fn free_names(node: &NodeProto) -> Vec<&str> {
    fn visit<'m>(
        graph: &'m GraphProto,
        defined: &mut Vec<HashSet<&'m str>>,
        free: &mut Vec<&'m str>,
    ) {
        let mut own: HashSet<&str> = graph.initializer.iter().map(|t| t.name()).collect();
        own.extend(
            graph.sparse_initializer.iter().filter_map(|t| t.values.as_ref()).map(|t| t.name()),
        );
        own.extend(graph.input.iter().map(|v| v.name()));
        own.extend(graph.node.iter().flat_map(|n| &n.output).map(String::as_str));
        defined.push(own);
        let outputs = graph.output.iter().map(|v| v.name());
        let read = graph.node.iter().flat_map(|n| &n.input).map(String::as_str).chain(outputs);
        for name in read.filter(|n| !n.is_empty()) {
            if !defined.iter().any(|scope| scope.contains(name)) {
                free.push(name);
            }
        }
        for inner in graph.node.iter().flat_map(|n| &n.attribute) {
            inner.g.iter().chain(&inner.graphs).for_each(|g| visit(g, defined, free));
        }
        defined.pop();
    }
    let mut free = Vec::new();
    for attribute in &node.attribute {
        let graphs = attribute.g.iter().chain(&attribute.graphs);
        graphs.for_each(|g| visit(g, &mut Vec::new(), &mut free));
    }
    free
}

/// All names that a graph defines.
pub(crate) struct Definitions<'m> {
    names: HashSet<&'m str>,
    producers: HashMap<&'m str, usize>,
}

impl<'m> Definitions<'m> {
    pub(crate) fn new(graph: &'m GraphProto) -> Result<Definitions<'m>, ImportError> {
        let mut places: HashMap<&'m str, String> = HashMap::new();
        let mut define = |name: &'m str, place: String| match places.insert(name, place.clone()) {
            Some(first) => Err(ImportError::DuplicateName {
                name: name.to_owned(),
                found: format!("{first} and {place}"),
            }),
            None => Ok(()),
        };
        let (inputs, outputs) = (&graph.input, &graph.output);
        for (place, all) in [("input", inputs), ("output", outputs)] {
            let mut seen = HashSet::new();
            for name in all.iter().map(|v| v.name()) {
                if name.is_empty() {
                    return Err(ImportError::NoName { place });
                }
                if !seen.insert(name) {
                    let found = format!("two graph {place}s");
                    return Err(ImportError::DuplicateName { name: name.to_owned(), found });
                }
            }
        }
        let mut names = HashSet::new();
        for t in &graph.initializer {
            define(t.name(), "an initializer".to_owned())?;
            names.insert(t.name());
        }
        for t in &graph.sparse_initializer {
            let name = t.values.as_ref().map_or("", TensorProto::name);
            define(name, "a sparse initializer".to_owned())?;
            names.insert(name);
        }
        for input in inputs {
            if names.insert(input.name()) {
                define(input.name(), "a graph input".to_owned())?;
            }
        }
        let mut producers = HashMap::new();
        for (i, node) in graph.node.iter().enumerate() {
            for output in node.output.iter().filter(|o| !o.is_empty()) {
                define(output, format!("node `{}`", node_name(node)))?;
                names.insert(output);
                producers.insert(output.as_str(), i);
            }
        }
        Ok(Definitions { names, producers })
    }

    /// Every name of the model.
    pub(crate) fn names(&self) -> &HashSet<&'m str> {
        &self.names
    }

    /// Every node after those that it reads from, as written where there is a choice. `outer`
    /// knows the names that are defined outside.
    pub(crate) fn order(
        &self,
        graph: &'m GraphProto,
        outer: &dyn Fn(&str) -> bool,
    ) -> Result<Vec<&'m NodeProto>, ImportError> {
        let nodes = &graph.node;
        let mut waits = vec![0usize; nodes.len()];
        let mut readers: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
        for (i, node) in nodes.iter().enumerate() {
            for input in node.input.iter().filter(|n| !n.is_empty()) {
                if let Some(&producer) = self.producers.get(input.as_str()) {
                    waits[i] += 1;
                    readers[producer].push(i);
                } else if !self.names.contains(input.as_str()) && !outer(input) {
                    let reader = format!("node `{}` ({})", node_name(node), node.op_type());
                    return Err(ImportError::UnknownValue { reader, value: input.clone() });
                }
            }
            for name in free_names(node) {
                if let Some(&producer) = self.producers.get(name) {
                    waits[i] += 1;
                    readers[producer].push(i);
                }
            }
        }
        let free = (0..nodes.len()).filter(|&i| waits[i] == 0).map(Reverse);
        let mut ready: BinaryHeap<Reverse<usize>> = free.collect();
        let mut order = Vec::with_capacity(nodes.len());
        while let Some(Reverse(i)) = ready.pop() {
            order.push(&nodes[i]);
            for &reader in &readers[i] {
                waits[reader] -= 1;
                if waits[reader] == 0 {
                    ready.push(Reverse(reader));
                }
            }
        }
        if order.len() < nodes.len() {
            // A node that waits for ever is on a cycle or after one; going back finds the cycle.
            let mut at = waits.iter().position(|&w| w > 0).unwrap_or(0);
            for _ in 0..nodes.len() {
                let read = nodes[at].input.iter().map(String::as_str).chain(free_names(&nodes[at]));
                let before = read.filter_map(|n| self.producers.get(n));
                at = before.copied().find(|&p| waits[p] > 0).unwrap_or(at);
            }
            return Err(ImportError::Cycle { node: node_name(&nodes[at]).to_owned() });
        }
        Ok(order)
    }
}
