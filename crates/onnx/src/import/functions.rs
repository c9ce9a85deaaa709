//! Functions of the model, replaced by their nodes wherever they are called.

use super::{order::node_name, said};
use crate::{
    ImportError,
    proto::{AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, OperatorSetIdProto},
};
use std::collections::{HashMap, HashSet};

/// Most nodes of a model after its functions have been replaced.
pub(super) const MOST_NODES: usize = 1 << 18;
/// Most functions inside each other.
const MOST_DEPTH: usize = 64;

type Key = (String, String, String);

fn domain(name: &str) -> &str {
    if name == "ai.onnx" { "" } else { name }
}

struct Inliner {
    functions: HashMap<Key, FunctionProto>,
    /// Every name of a value in the model.
    taken: HashSet<String>,
    nodes: usize,
    calls: usize,
}

/// Replaces every call of a function.
pub(super) fn inline(model: &mut ModelProto) -> Result<(), ImportError> {
    if model.functions.is_empty() {
        return Ok(());
    }
    let mut functions = HashMap::new();
    for f in std::mem::take(&mut model.functions) {
        let key = (domain(f.domain()).to_owned(), f.name().to_owned(), f.overload().to_owned());
        if functions.contains_key(&key) {
            let found = "two functions of the model".to_owned();
            return Err(ImportError::DuplicateName { name: key.1, found });
        }
        functions.insert(key, f);
    }
    let Some(graph) = model.graph.as_mut() else { return Ok(()) };
    let mut taken = HashSet::new();
    collect(graph, &mut taken);
    let mut inliner = Inliner { functions, taken, nodes: 0, calls: 0 };
    // A model that grows without bound is refused before it grows.
    if inliner.count(&graph.node, &mut HashMap::new(), 0) > MOST_NODES as u64 {
        return Err(ImportError::TooManyNodes { limit: MOST_NODES });
    }
    let mut used = HashSet::new();
    inliner.graph(graph, &mut Vec::new(), &mut used)?;
    let mut used: Vec<Key> = used.into_iter().collect();
    used.sort();
    for key in used {
        let function = &inliner.functions[&key];
        for entry in &function.opset_import {
            let same = |o: &&OperatorSetIdProto| domain(o.domain()) == domain(entry.domain());
            match model.opset_import.iter().find(same) {
                None => model.opset_import.push(entry.clone()),
                Some(found) if found.version() == entry.version() => {}
                Some(found) => {
                    return Err(ImportError::FunctionOpset {
                        function: function.name().to_owned(),
                        domain: said(entry.domain()).to_owned(),
                        needed: found.version(),
                        found: entry.version(),
                    });
                }
            }
        }
    }
    Ok(())
}

/// Every name of a value in a graph and in those inside.
fn collect(graph: &GraphProto, names: &mut HashSet<String>) {
    names.extend(graph.input.iter().chain(&graph.output).map(|v| v.name().to_owned()));
    names.extend(graph.initializer.iter().map(|t| t.name().to_owned()));
    for node in &graph.node {
        names.extend(node.input.iter().chain(&node.output).cloned());
        for attribute in &node.attribute {
            attribute.g.iter().chain(&attribute.graphs).for_each(|g| collect(g, names));
        }
    }
}

/// The function that a node may call.
fn callee(node: &NodeProto) -> Key {
    (domain(node.domain()).to_owned(), node.op_type().to_owned(), node.overload().to_owned())
}

impl Inliner {
    /// How many nodes these become, at least: what calls itself and what lies too deep counts nothing.
    fn count(&self, nodes: &[NodeProto], known: &mut HashMap<Key, u64>, depth: usize) -> u64 {
        let mut all = 0u64;
        for node in nodes {
            all = all.saturating_add(1);
            for attribute in &node.attribute {
                for graph in attribute.g.iter().chain(&attribute.graphs) {
                    all = all.saturating_add(self.count(&graph.node, known, depth));
                }
            }
            let key = callee(node);
            let Some(function) = self.functions.get(&key).filter(|_| depth < MOST_DEPTH) else {
                continue;
            };
            let inside = match known.get(&key) {
                Some(&inside) => inside,
                None => {
                    known.insert(key.clone(), 0);
                    let inside = self.count(&function.node, known, depth + 1);
                    known.insert(key, inside);
                    inside
                }
            };
            all = all.saturating_add(inside);
        }
        all
    }

    fn graph(
        &mut self,
        graph: &mut GraphProto,
        path: &mut Vec<Key>,
        used: &mut HashSet<Key>,
    ) -> Result<(), ImportError> {
        let nodes = std::mem::take(&mut graph.node);
        graph.node = self.expand(nodes, path, used)?;
        Ok(())
    }

    fn expand(
        &mut self,
        nodes: Vec<NodeProto>,
        path: &mut Vec<Key>,
        used: &mut HashSet<Key>,
    ) -> Result<Vec<NodeProto>, ImportError> {
        let mut all = Vec::with_capacity(nodes.len());
        for mut node in nodes {
            self.nodes += 1;
            if self.nodes > MOST_NODES {
                return Err(ImportError::TooManyNodes { limit: MOST_NODES });
            }
            for attribute in &mut node.attribute {
                for graph in attribute.g.iter_mut().chain(&mut attribute.graphs) {
                    self.graph(graph, path, used)?;
                }
            }
            let key = callee(&node);
            let Some(function) = self.functions.get(&key).cloned() else {
                all.push(node);
                continue;
            };
            if path.contains(&key) {
                return Err(ImportError::Recursion { function: key.1 });
            }
            if path.len() >= MOST_DEPTH {
                return Err(ImportError::DeepFunctions { function: key.1, limit: MOST_DEPTH });
            }
            let body = self.body(&function, &node);
            used.insert(key.clone());
            path.push(key);
            all.extend(self.expand(body, path, used)?);
            path.pop();
        }
        Ok(all)
    }

    /// The nodes of a function under the names and attributes of a call.
    fn body(&mut self, function: &FunctionProto, call: &NodeProto) -> Vec<NodeProto> {
        self.calls += 1;
        let prefix = format!("{}~{}", node_name(call), self.calls);
        let mut names: HashMap<String, String> = HashMap::new();
        for (i, formal) in function.input.iter().enumerate() {
            names.insert(formal.clone(), call.input.get(i).cloned().unwrap_or_default());
        }
        let mut nodes = function.node.clone();
        let mut copies = Vec::new();
        for (i, formal) in function.output.iter().enumerate() {
            let actual = call.output.get(i).filter(|o| !o.is_empty());
            match (actual, names.get(formal)) {
                (None, _) => {}
                (Some(actual), None) => {
                    names.insert(formal.clone(), actual.clone());
                }
                // An input that is passed on, or an output listed twice.
                (Some(actual), Some(_)) => copies.push((formal, actual)),
            }
        }
        for node in &mut nodes {
            self.rename(node, &prefix, &mut names, function, call);
        }
        nodes.extend(copies.into_iter().map(|(formal, actual)| NodeProto {
            op_type: Some("Identity".to_owned()),
            name: Some(node_name(call).to_owned()),
            input: vec![names[formal].clone()],
            output: vec![actual.clone()],
            ..NodeProto::default()
        }));
        nodes
    }

    fn fresh(&mut self, name: &str) -> String {
        let mut unique = name.to_owned();
        while !self.taken.insert(unique.clone()) {
            unique.push('\'');
        }
        unique
    }

    fn name(&mut self, name: &mut String, prefix: &str, names: &mut HashMap<String, String>) {
        if name.is_empty() {
            return;
        }
        if !names.contains_key(name) {
            let new = self.fresh(&format!("{prefix}/{name}"));
            names.insert(name.clone(), new);
        }
        name.clone_from(&names[name]);
    }

    fn rename(
        &mut self,
        node: &mut NodeProto,
        prefix: &str,
        names: &mut HashMap<String, String>,
        function: &FunctionProto,
        call: &NodeProto,
    ) {
        let label = node.name().to_owned();
        node.name = Some(match label.is_empty() {
            true => node_name(call).to_owned(),
            false => format!("{}/{label}", node_name(call)),
        });
        for name in node.input.iter_mut().chain(&mut node.output) {
            self.name(name, prefix, names);
        }
        let attributes = std::mem::take(&mut node.attribute);
        for attribute in attributes {
            let Some(mut attribute) = resolved(attribute, function, call) else { continue };
            let own = attribute.ref_attr_name.take().is_none();
            // A graph that the caller gives reads the caller's names.
            for graph in attribute.g.iter_mut().chain(&mut attribute.graphs).filter(|_| own) {
                self.rename_graph(graph, prefix, names, function, call);
            }
            node.attribute.push(attribute);
        }
    }

    fn rename_graph(
        &mut self,
        graph: &mut GraphProto,
        prefix: &str,
        names: &mut HashMap<String, String>,
        function: &FunctionProto,
        call: &NodeProto,
    ) {
        let infos = graph.input.iter_mut().chain(&mut graph.output).chain(&mut graph.value_info);
        let labels = infos.map(|v| &mut v.name);
        let dense = graph.initializer.iter_mut();
        let sparse = graph.sparse_initializer.iter_mut().filter_map(|t| t.values.as_mut());
        for name in labels.chain(dense.chain(sparse).map(|t| &mut t.name)).flatten() {
            self.name(name, prefix, names);
        }
        for node in &mut graph.node {
            self.rename(node, prefix, names, function, call);
        }
    }
}

/// The attribute, or what the call gives where it refers to an attribute of the function; `None` where
/// the call gives nothing. One that the call gave still says what it referred to.
fn resolved(
    attribute: AttributeProto,
    function: &FunctionProto,
    call: &NodeProto,
) -> Option<AttributeProto> {
    let wanted = attribute.ref_attr_name().to_owned();
    if wanted.is_empty() {
        return Some(AttributeProto { ref_attr_name: None, ..attribute });
    }
    let mut given = call.attribute.iter().chain(&function.attribute_proto);
    let found = given.find(|a| a.name() == wanted)?;
    Some(AttributeProto { name: attribute.name, ref_attr_name: Some(wanted), ..found.clone() })
}
