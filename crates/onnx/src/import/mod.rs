//! From ONNX bytes to a graph: every node through the row of its operator.

mod arrange;
mod at;
mod cache;
mod contract;
mod control;
mod create;
mod dynamic;
mod elementwise;
mod flex;
mod found;
mod functions;
mod gather;
mod interface;
mod learning;
mod linear;
mod losses;
mod microsoft;
mod norm;
mod order;
mod pool;
mod quantised;
mod random;
mod recurrent;
mod reduce;
mod resize;
mod rotary;
mod sampling;
mod sequence;
mod shape;
mod signal;
mod sizes;
mod slice;
mod softmax;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod training;
mod types;

use crate::{
    ImportError, TensorFault, UnsupportedNode,
    error::full_name,
    proto::{GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, tensor_proto::DataType},
    tensor::{External, from_proto, from_sparse, strings_of},
};
use at::{At, Fault};
use bricolage_ir::{Graph, Inputs, NodeId, Op, Role, TypeError, ValueId, ops, origin};
use bricolage_tensor::{Datum, Storage, Strings, Tensor};
pub(crate) use dynamic::finds_sizes;
pub use interface::load_interface;
use order::Definitions;
use prost::{Message, bytes::Bytes};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::Path,
    sync::Arc,
};
use types::{Contradiction, Symbols};

/// Oldest operator set of ONNX's own domain that is understood.
pub const OLDEST_OPSET: i64 = 1;
/// Newest operator set of ONNX's own domain that is understood.
pub const NEWEST_OPSET: i64 = 28;

/// Constants of at most this many elements take part in computing attributes.
const MOST_FOLDED: usize = 4096;

/// Longest expression for a size, in symbols and calls.
const LONGEST_SIZE: usize = 1000;

/// A model as the graph means it.
#[derive(Clone, Debug)]
pub struct Model {
    /// The program; it shares its weights with the model's files.
    pub graph: Graph,
    /// Version of ONNX's own operator set that the model uses; 0 if it uses none.
    pub opset: i64,
    /// Name and version of the program that wrote the model; empty when it does not say.
    pub producer: String,
    /// BLAKE3, in hexadecimal, of the model's bytes followed by every external data file that it
    /// uses, in the order of their paths.
    pub hash: String,
    /// Bytes of all external data files that the model uses.
    pub external_bytes: u64,
    /// Declared sizes that contradict inferred ones, one line each.
    pub warnings: Vec<String>,
}

/// Reads a model from a file, which must not change while the graph is in use.
pub fn load(path: &Path) -> Result<Model, ImportError> {
    load_sized(path, &[])
}

/// Reads a model from a file for inputs of these sizes, by name. What follows from the sizes, such as
/// which branch is taken by the number of dims, is then known.
pub fn load_sized(path: &Path, sizes: &[(&str, &[i64])]) -> Result<Model, ImportError> {
    let bytes = bricolage_runtime::map_file(path)
        .map_err(|error| ImportError::File { path: path.to_owned(), error })?;
    import_sized(bytes, Some(path.parent().unwrap_or(Path::new(""))), sizes)
}

/// Reads a model from its bytes; external data lie in `folder`.
pub fn import(bytes: Storage, folder: Option<&Path>) -> Result<Model, ImportError> {
    import_sized(bytes, folder, &[])
}

fn import_sized(
    bytes: Storage,
    folder: Option<&Path>,
    sizes: &[(&str, &[i64])],
) -> Result<Model, ImportError> {
    let len = bytes.len();
    let mut model = ModelProto::decode(Bytes::from_owner(bytes.clone()))
        .map_err(|error| ImportError::Decode { len, why: error.to_string() })?;
    interface::fix_sizes(&mut model, sizes);
    functions::inline(&mut model)?;
    flex::expand(&mut model);
    let proto = model.graph.as_ref().ok_or(ImportError::NoGraph { len })?;
    let opsets = opsets(&model)?;
    let opset = opsets.get("").copied().unwrap_or(0);
    let importer = Importer {
        opsets,
        graph: Graph::new(proto.name()),
        definitions: Definitions::new(proto)?,
        values: HashMap::new(),
        symbols: Symbols::new(proto),
        declared: HashMap::new(),
        small: HashMap::new(),
        next: 0,
        unsupported: Vec::new(),
        warnings: Vec::new(),
        external: External::new(folder),
        outer: Vec::new(),
        captured: Vec::new(),
        visited: 0,
        sized: !sizes.is_empty(),
    };
    let (graph, warnings, external) = importer.run(proto)?;
    let mut hash = blake3::Hasher::new();
    hash.update(&bytes);
    let mut external_bytes = 0;
    for (_, file) in external.files() {
        hash.update(file);
        external_bytes += file.len() as u64;
    }
    let producer = format!("{} {}", model.producer_name(), model.producer_version());
    Ok(Model {
        graph,
        opset,
        producer: producer.trim().to_owned(),
        hash: hash.finalize().to_hex().to_string(),
        external_bytes,
        warnings,
    })
}

/// Version of every domain that the model uses; ONNX's own is the empty one.
fn opsets(model: &ModelProto) -> Result<BTreeMap<String, i64>, ImportError> {
    let mut opsets = BTreeMap::new();
    for entry in &model.opset_import {
        let domain = if entry.domain() == "ai.onnx" { "" } else { entry.domain() };
        let found = entry.version();
        match opsets.insert(domain.to_owned(), found) {
            Some(other) if other != found => {
                let found = format!("operator set {other} and operator set {found}");
                return Err(ImportError::DuplicateName { name: said(domain).to_owned(), found });
            }
            _ => {}
        }
    }
    if opsets.is_empty() {
        return Err(no_opset(""));
    }
    let (oldest, newest) = (OLDEST_OPSET, NEWEST_OPSET);
    match opsets.get("") {
        Some(&found) if !(oldest..=newest).contains(&found) => {
            Err(ImportError::Opset { domain: "ai.onnx".to_owned(), found, oldest, newest })
        }
        _ => Ok(opsets),
    }
}

fn no_opset(domain: &str) -> ImportError {
    ImportError::NoOpset { domain: said(domain).to_owned() }
}

/// A domain as people write it: ONNX's own has no name in models.
fn said(domain: &str) -> &str {
    if domain.is_empty() { "ai.onnx" } else { domain }
}

/// What the importer says of a node that cannot be.
fn malformed_node(node: &NodeProto, what: String) -> ImportError {
    let (name, op) = (order::node_name(node), full_name(node.domain(), node.op_type()));
    ImportError::Malformed { node: name.to_owned(), op, what }
}

fn named(name: &str, t: Result<Tensor, TensorFault>) -> Result<Tensor, ImportError> {
    t.map_err(|fault| ImportError::Tensor { name: name.to_owned(), fault })
}

struct Importer<'m> {
    opsets: BTreeMap<String, i64>,
    graph: Graph,
    definitions: Definitions<'m>,
    /// What each name means so far; `None` where an unsupported node should define it.
    values: HashMap<&'m str, Option<ValueId>>,
    symbols: Symbols,
    declared: HashMap<&'m str, &'m TypeProto>,
    /// Content of small values that follows from constants and sizes.
    small: HashMap<ValueId, Tensor>,
    /// The first node that `small` has not been told of.
    next: u32,
    unsupported: Vec<UnsupportedNode>,
    warnings: Vec<String>,
    external: External<'m>,
    /// Scopes around the graph under import, the outermost first.
    outer: Vec<control::Scope<'m>>,
    /// Values of the scope around that the graph under import reads, in the order of its inputs.
    captured: Vec<ValueId>,
    /// Nodes imported so far; those of a loop count again for every attempt to type its states.
    visited: usize,
    /// Whether the sizes of inputs were given: a branch that they do not fit is never taken.
    sized: bool,
}

impl<'m> Importer<'m> {
    fn run(
        mut self,
        proto: &'m GraphProto,
    ) -> Result<(Graph, Vec<String>, External<'m>), ImportError> {
        self.constants(proto)?;
        self.inputs(proto)?;
        for info in proto.value_info.iter().chain(&proto.output) {
            if let Some(ty) = &info.r#type {
                self.declared.insert(info.name(), ty);
            }
        }
        for node in self.definitions.order(proto, &|_| false)? {
            self.node(node)?;
        }
        if !self.unsupported.is_empty() {
            return Err(ImportError::Unsupported(self.unsupported));
        }
        if proto.output.is_empty() {
            return Err(ImportError::NoOutputs { graph: proto.name().to_owned() });
        }
        for output in &proto.output {
            let name = output.name();
            let unknown = || ImportError::UnknownValue {
                reader: "the graph's list of outputs".to_owned(),
                value: name.to_owned(),
            };
            let value = self.values.get(name).copied().flatten().ok_or_else(unknown)?;
            self.graph.outputs.push(value);
        }
        self.compare_declared()?;
        self.settle_sizes();
        self.graph.remove_dead();
        dynamic::order_sizes(&mut self.graph);
        Ok((self.graph, self.warnings, self.external))
    }

    fn constants(&mut self, proto: &'m GraphProto) -> Result<(), ImportError> {
        for t in &proto.initializer {
            if t.data_type() == DataType::String as i32 {
                let texts = strings_of(t)
                    .map_err(|fault| ImportError::Tensor { name: t.name().to_owned(), fault })?;
                self.texts(t.name(), &texts);
                continue;
            }
            let tensor = named(t.name(), from_proto(t, &mut self.external))?;
            self.constant(t.name(), tensor);
        }
        for t in &proto.sparse_initializer {
            let name = t.values.as_ref().map_or("", TensorProto::name);
            let tensor = named(name, from_sparse(t, &mut self.external))?;
            self.constant(name, tensor);
        }
        Ok(())
    }

    fn constant(&mut self, name: &'m str, tensor: Tensor) {
        let value = self.graph.constant(name, tensor);
        self.values.insert(name, Some(value));
    }

    fn texts(&mut self, name: &'m str, texts: &Strings) {
        let (dims, elements) = (texts.dims().to_vec(), texts.elements().to_vec());
        let op = ops::Text::Constant { dims, elements };
        let added = self.graph.add_named::<ValueId>(op, &[], origin(name), &[Arc::from(name)]);
        let added = added.expect("texts have as many elements as their dims say");
        self.values.insert(name, Some(added[0]));
    }

    fn inputs(&mut self, proto: &'m GraphProto) -> Result<(), ImportError> {
        for input in &proto.input {
            let name = input.name();
            // An initializer of the same name is a default; it counts as the value.
            if self.values.contains_key(name) {
                continue;
            }
            let value = self.graph.input(name, interface::port(&mut self.symbols, "input", input)?);
            self.values.insert(name, Some(value));
        }
        Ok(())
    }

    fn node(&mut self, node: &'m NodeProto) -> Result<(), ImportError> {
        self.visited += 1;
        if self.visited > functions::MOST_NODES {
            return Err(ImportError::TooManyNodes { limit: functions::MOST_NODES });
        }
        let name = order::node_name(node);
        let domain = if node.domain() == "ai.onnx" { "" } else { node.domain() };
        let op = node.op_type();
        let opset = self.opsets.get(domain).copied();
        if domain.is_empty() && matches!(op, "If" | "Loop" | "Scan" | "SequenceMap") {
            let Some(opset) = opset else { return Err(no_opset(domain)) };
            return self.control(node, opset);
        }
        let mut reason = None;
        let row = match table::find(domain, op) {
            Some(row) => match opset {
                None => {
                    return Err(no_opset(domain));
                }
                Some(v) if v < row.oldest || v > row.newest => {
                    let (oldest, newest) = (row.oldest, row.newest);
                    reason = Some(match newest {
                        i64::MAX => format!("needs opset {oldest} or newer, found {v}"),
                        _ => format!("needs opset {oldest} to {newest}, found {v}"),
                    });
                    None
                }
                Some(_) => Some(row),
            },
            None => {
                reason = Some(self.why_unknown(node, domain));
                None
            }
        };
        let mut inputs = Vec::new();
        for input in &node.input {
            match self.find(input.as_str()) {
                Some(Some(value)) => inputs.push(Some(value)),
                // Not to be told again: the node that should define it is on the list.
                Some(None) if reason.is_none() => return self.give_up(node),
                Some(None) => inputs.push(None),
                None => inputs.push(None),
            }
        }
        let before = self.graph.values().next_back().map_or(0, |v| v.0 + 1);
        let result = match (row, reason) {
            (Some(row), _) => {
                let base = node.output.iter().find(|o| !o.is_empty()).map_or(name, |o| o);
                let mut at = At {
                    graph: &mut self.graph,
                    node,
                    opset: opset.unwrap_or(0),
                    inputs: inputs.clone(),
                    origin: origin(name),
                    base,
                    taken: self.definitions.names(),
                    small: &self.small,
                    symbols: &mut self.symbols,
                    declared: &self.declared,
                    external: &mut self.external,
                    asked: Vec::new(),
                    parts: 0,
                };
                match (row.import)(&mut at) {
                    Ok(outputs) => at.check_attributes().map(|()| outputs),
                    Err(fault) => Err(fault),
                }
            }
            (None, reason) => Err(Fault::Unsupported(reason.unwrap_or_default())),
        };
        match result {
            Ok(outputs) => self.define(node, &outputs, before),
            Err(Fault::Type(TypeError::NotTensor { operand, got })) => {
                self.unsupported.push(UnsupportedNode {
                    name: name.to_owned(),
                    op: op.to_owned(),
                    domain: domain.to_owned(),
                    opset: opset.unwrap_or(0),
                    reason: format!("needs a tensor of numbers as operand {operand}, found {got}"),
                });
                self.give_up(node)
            }
            Err(Fault::Type(error)) => {
                let operands = self.describe(node, &inputs);
                let (node, op, error) = (name.to_owned(), op.to_owned(), Box::new(error));
                Err(ImportError::Node { node, op, error, operands })
            }
            Err(Fault::Malformed(what)) => {
                Err(ImportError::Malformed { node: name.to_owned(), op: op.to_owned(), what })
            }
            Err(Fault::Tensor(fault)) => Err(ImportError::Tensor { name: name.to_owned(), fault }),
            Err(Fault::Unsupported(reason)) => match self.opaque(node, domain, opset, &inputs) {
                Some(op) => {
                    let names: Vec<Arc<str>> =
                        node.output.iter().map(|n| Arc::from(n.as_str())).collect();
                    let added = self.graph.add_named(op, &inputs, origin(name), &names);
                    let outputs = added.map_err(|error| ImportError::Node {
                        node: name.to_owned(),
                        op: node.op_type().to_owned(),
                        error: Box::new(error),
                        operands: Vec::new(),
                    })?;
                    self.define(node, &outputs, before)
                }
                None => {
                    self.unsupported.push(UnsupportedNode {
                        name: name.to_owned(),
                        op: op.to_owned(),
                        domain: domain.to_owned(),
                        opset: opset.unwrap_or(0),
                        reason,
                    });
                    self.give_up(node)
                }
            },
        }
    }

    /// Takes over the nodes of the branch that a constant condition chooses. False when the
    /// condition is not known.
    fn branch(&mut self, node: &'m NodeProto) -> Result<bool, ImportError> {
        let condition = node.input.first().and_then(|n| self.find(n.as_str()));
        let Some(condition) = condition.flatten() else { return Ok(false) };
        let known = self.graph.constant_of(condition).or_else(|| self.small.get(&condition));
        let Some(&[taken]) = known.map(|t| t.to_i64()).as_deref() else { return Ok(false) };
        self.take(node, if taken != 0 { "then_branch" } else { "else_branch" })
    }

    /// Takes over the nodes of a branch. False when there is no such branch.
    fn take(&mut self, node: &'m NodeProto, name: &str) -> Result<bool, ImportError> {
        let attribute = node.attribute.iter().find(|a| a.name() == name);
        let Some(graph) = attribute.and_then(|a| a.g.as_ref()) else { return Ok(false) };
        self.constants(graph)?;
        let inner = Definitions::new(graph)?;
        let order = inner.order(graph, &|name| self.knows(name))?;
        for node in order {
            self.node(node)?;
        }
        let mut outputs = Vec::new();
        for output in &graph.output {
            match self.find(output.name()) {
                Some(Some(value)) => outputs.push(value),
                Some(None) => return self.give_up(node).map(|()| true),
                None => {
                    let reader = format!("`{name}` of node `{}`", order::node_name(node));
                    return Err(ImportError::UnknownValue {
                        reader,
                        value: output.name().to_owned(),
                    });
                }
            }
        }
        self.define(node, &outputs, u32::MAX)?;
        Ok(true)
    }

    fn give_up(&mut self, node: &'m NodeProto) -> Result<(), ImportError> {
        self.values.extend(node.output.iter().map(|o| (o.as_str(), None)));
        Ok(())
    }

    fn why_unknown(&self, node: &NodeProto, domain: &str) -> String {
        match table::why_not(domain, node.op_type()) {
            Some(why) => why.to_owned(),
            None if domain.is_empty() => "the operator is not known".to_owned(),
            None => format!("the domain `{domain}` has no such operator here"),
        }
    }

    /// The node as one that a foreign backend may take, where the types of its results are
    /// declared and everything that it reads is an operand.
    fn opaque(
        &mut self,
        node: &'m NodeProto,
        domain: &str,
        opset: Option<i64>,
        inputs: &[Option<ValueId>],
    ) -> Option<Op> {
        let opset = opset?;
        let graphs = node.attribute.iter().any(|a| a.g.is_some() || !a.graphs.is_empty());
        let missing = node.input.iter().zip(inputs).any(|(n, v)| !n.is_empty() && v.is_none());
        if graphs || missing || node.output.iter().any(String::is_empty) {
            return None;
        }
        let mut outputs = Vec::new();
        for name in &node.output {
            let ty = self.declared.get(name.as_str())?;
            outputs.push(self.symbols.any_type(name, Some(ty)).ok()?);
        }
        let attributes =
            NodeProto { attribute: node.attribute.clone(), ..NodeProto::default() }.encode_to_vec();
        let name = node.op_type().to_owned();
        Some(ops::Opaque { domain: domain.to_owned(), name, opset, attributes, outputs }.into())
    }

    /// Gives the results of a node the names that the model has for them.
    fn define(
        &mut self,
        node: &'m NodeProto,
        outputs: &[ValueId],
        before: u32,
    ) -> Result<(), ImportError> {
        let name = order::node_name(node);
        let mut renamed = HashSet::new();
        for (i, output) in node.output.iter().enumerate().filter(|(_, o)| !o.is_empty()) {
            let Some(&value) = outputs.get(i) else {
                return Err(ImportError::Malformed {
                    node: name.to_owned(),
                    op: full_name(node.domain(), node.op_type()),
                    what: format!(
                        "needs at most {} outputs, found {}",
                        outputs.len(),
                        node.output.len()
                    ),
                });
            };
            let fact = self.graph.fact(value);
            let sizes = fact.ty.as_tensor().map_or(&[][..], |t| &t.shape);
            let longest = sizes.iter().chain(fact.known.iter().flatten().flatten());
            let longest = longest.map(bricolage_tensor::Dim::weight).max().unwrap_or(0);
            if longest > LONGEST_SIZE {
                self.unsupported.push(UnsupportedNode {
                    name: name.to_owned(),
                    op: node.op_type().to_owned(),
                    domain: node.domain().to_owned(),
                    opset: self.opsets.get(node.domain()).copied().unwrap_or(0),
                    reason: format!(
                        "needs sizes of at most {LONGEST_SIZE} symbols, found {longest}"
                    ),
                });
                return self.give_up(node);
            }
            // A value that is older, or has a name already, keeps it.
            let fresh = value.0 >= before && renamed.insert(value);
            let value = if fresh {
                self.graph.rename(value, output);
                value
            } else {
                let names = [Arc::from(output.as_str())];
                let copy =
                    self.graph.add_named(ops::Unary::Identity, &[value], origin(name), &names);
                copy.expect("identity takes every operand")[0]
            };
            self.values.insert(output, Some(value));
        }
        self.fold();
        Ok(())
    }

    /// Computes small values of new nodes where all operands are known.
    fn fold(&mut self) {
        while let Some(node) = self.graph.get_node(NodeId(self.next)) {
            self.next += 1;
            let small = |v: ValueId| match &self.graph.value(v).role {
                Role::Constant(t) => Some(t).filter(|t| t.len() <= MOST_FOLDED),
                _ => self.small.get(&v),
            };
            let fits = |v: ValueId| {
                let ty = self.graph.fact(v).ty.as_tensor();
                ty.and_then(|t| t.shape.element_count()).is_some_and(|n| n <= MOST_FOLDED as u64)
            };
            if !node.outputs.iter().all(|&v| fits(v)) {
                continue;
            }
            let from_facts = |v: ValueId| {
                let fact = self.graph.fact(v);
                let (numbers, ty) = (fact.as_numbers()?, fact.ty.as_tensor()?);
                Some(Tensor::from_i64(ty.dtype, &ty.shape.as_fixed()?, &numbers))
            };
            let known: Option<Vec<Tensor>> = node.outputs.iter().map(|&v| from_facts(v)).collect();
            let results = known.or_else(|| {
                if !is_cheap(&node.op) {
                    return None;
                }
                let mut data = Vec::new();
                for input in &node.inputs {
                    data.push(match input {
                        Some(v) => Some(Datum::from(small(*v)?.clone())),
                        None => None,
                    });
                }
                let refs: Vec<Option<&Datum>> = data.iter().map(Option::as_ref).collect();
                let results = node.op.eval(&Inputs(&refs)).ok()?;
                results.iter().map(|d| d.as_tensor().cloned()).collect()
            });
            if let Some(results) = results {
                let outputs = node.outputs.clone();
                self.small.extend(outputs.into_iter().zip(results));
            }
        }
    }

    fn describe(&self, node: &NodeProto, inputs: &[Option<ValueId>]) -> Vec<String> {
        let mut lines = Vec::new();
        for (i, (name, value)) in node.input.iter().zip(inputs).enumerate() {
            let Some(value) = value else { continue };
            let value = self.graph.value(*value);
            let kind = if matches!(value.role, Role::Constant(_)) { "constant " } else { "" };
            lines.push(format!("operand {i} is the {kind}value `{name}`, {}", value.fact));
        }
        lines
    }

    /// As ONNX Runtime does: another element type than declared is an error, other sizes are worth a
    /// warning.
    fn compare_declared(&mut self) -> Result<(), ImportError> {
        let mut names: Vec<&&str> = self.declared.keys().collect();
        names.sort();
        for name in names {
            let Some(Some(value)) = self.values.get(*name) else { continue };
            let fact = self.graph.fact(*value);
            let Some(found) = fact.ty.as_tensor() else { continue };
            let Some(contradiction) = types::contradiction(found, self.declared[*name]) else {
                continue;
            };
            match contradiction {
                Contradiction::Element(declared) => {
                    return Err(ImportError::Declared {
                        name: (*name).to_owned(),
                        declared,
                        found: found.to_string(),
                    });
                }
                Contradiction::Sizes(declared) => self
                    .warnings
                    .push(format!("value `{name}` is declared as {declared}, and is {found}")),
            }
        }
        Ok(())
    }
}

/// Whether an op costs no more than its operands and results are large.
fn is_cheap(op: &Op) -> bool {
    matches!(
        op,
        Op::Unary(_)
            | Op::Binary(_)
            | Op::Clip(_)
            | Op::Select(_)
            | Op::Cast(_)
            | Op::BitCast(_)
            | Op::Quantize(_)
            | Op::Dequantize(_)
            | Op::Reduce(_)
            | Op::ArgReduce(_)
            | Op::Reshape(_)
            | Op::Transpose(_)
            | Op::Expand(_)
            | Op::Tile(_)
            | Op::Concat(_)
            | Op::Split(_)
            | Op::Slice(_)
            | Op::Gather(_)
            | Op::GatherElements(_)
            | Op::GatherNd(_)
            | Op::ScatterElements(_)
            | Op::ScatterNd(_)
            | Op::Iota(_)
            | Op::ShapeOf(_)
            | Op::OneHot(_)
            | Op::Trilu(_)
            | Op::Running(_)
    )
}
