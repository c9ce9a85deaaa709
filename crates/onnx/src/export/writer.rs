//! Nodes under construction, and values that ops take as operands where the graph has attributes.

use super::{OPSET, table};
use crate::{
    ExportError,
    import::finds_sizes,
    proto::{
        AttributeProto, GraphProto, NodeProto, TensorProto, TypeProto,
        attribute_proto::AttributeType,
    },
    tensor::{number_of, to_proto},
};
use bricolage_ir::{
    Fact, Graph, Node, NodeId, Op, OpKind, Role, ValueId, decompose,
    ops::{Late, Unary},
};
use bricolage_tensor::{DType, Dim, Factor, Tensor, Type};
use prost::bytes::Bytes;
use std::collections::{BTreeMap, HashMap, HashSet};

/// An attribute's value.
#[derive(Clone, Copy)]
pub(crate) enum Attr<'a> {
    Int(i64),
    Float(f64),
    Ints(&'a [i64]),
    Floats(&'a [f32]),
    Text(&'a str),
    Texts(&'a [String]),
    Tensor(&'a TensorProto),
    Graph(&'a GraphProto),
    Type(&'a TypeProto),
}

/// The model written so far.
pub(crate) struct Writer<'g> {
    graph: &'g Graph,
    pub(crate) nodes: Vec<NodeProto>,
    pub(crate) initializers: Vec<TensorProto>,
    pub(crate) opsets: BTreeMap<String, i64>,
    /// Names other than those in the graph: what an inner graph reads from around, and what it must
    /// call otherwise there.
    names: HashMap<ValueId, String>,
    taken: HashSet<String>,
    node_names: HashSet<String>,
    /// Small constants by content.
    constants: HashMap<(DType, Vec<i64>, Vec<u8>), String>,
    /// Values of one element that hold a size.
    sizes: HashMap<Dim, String>,
}

impl<'g> Writer<'g> {
    pub(crate) fn new(graph: &'g Graph) -> Writer<'g> {
        Writer {
            graph,
            nodes: Vec::new(),
            initializers: Vec::new(),
            opsets: BTreeMap::from([(String::new(), OPSET)]),
            names: HashMap::new(),
            taken: graph.values().map(|v| graph.value(v).name.to_string()).collect(),
            node_names: HashSet::new(),
            constants: HashMap::new(),
            sizes: HashMap::new(),
        }
    }

    /// Raises the version of an operator set to at least this one.
    pub(crate) fn needs(&mut self, domain: &str, version: i64) {
        let have = self.opsets.entry(domain.to_owned()).or_insert(version);
        *have = version.max(*have);
    }

    /// A name that starts with `base` and that no value has.
    pub(crate) fn fresh(&mut self, base: &str) -> String {
        let mut n = 0;
        loop {
            let name = format!("{base}~{n}");
            if self.taken.insert(name.clone()) {
                return name;
            }
            n += 1;
        }
    }

    pub(crate) fn identity(&mut self, from: &str, to: &str) {
        self.push("", "Identity", to, vec![from.to_owned()], vec![to.to_owned()], Vec::new());
    }

    fn push(
        &mut self,
        domain: &str,
        op: &str,
        name: &str,
        input: Vec<String>,
        output: Vec<String>,
        attribute: Vec<AttributeProto>,
    ) {
        let mut unique = name.to_owned();
        let mut n = 1;
        while !self.node_names.insert(unique.clone()) {
            unique = format!("{name}~{n}");
            n += 1;
        }
        self.nodes.push(NodeProto {
            input,
            output,
            name: Some(unique),
            op_type: Some(op.to_owned()),
            domain: (!domain.is_empty()).then(|| domain.to_owned()),
            attribute,
            ..NodeProto::default()
        });
    }

    /// The name that a value is written under.
    pub(crate) fn name(&self, value: ValueId) -> String {
        let own = || self.graph.value(value).name.to_string();
        self.names.get(&value).cloned().unwrap_or_else(own)
    }

    /// A graph inside a node: its last inputs are values around, with these names.
    pub(crate) fn nested(
        &mut self,
        graph: &Graph,
        captured: &[String],
    ) -> Result<GraphProto, ExportError> {
        let formal = graph.inputs.len() - captured.len();
        let mut names: HashMap<ValueId, String> =
            graph.inputs[formal..].iter().copied().zip(captured.iter().cloned()).collect();
        for value in graph.values() {
            let name = graph.value(value).name.to_string();
            if !names.contains_key(&value) && !self.taken.insert(name.clone()) {
                names.insert(value, self.fresh(&name));
            }
        }
        let mut inner = Writer {
            graph,
            nodes: Vec::new(),
            initializers: Vec::new(),
            opsets: std::mem::take(&mut self.opsets),
            names,
            taken: std::mem::take(&mut self.taken),
            node_names: std::mem::take(&mut self.node_names),
            constants: HashMap::new(),
            sizes: HashMap::new(),
        };
        let filled = super::fill_nested(&mut inner, formal);
        self.opsets = inner.opsets;
        self.taken = inner.taken;
        self.node_names = inner.node_names;
        let [input, output, value_info] = filled?;
        Ok(GraphProto {
            name: Some(if graph.name.is_empty() { "graph" } else { &graph.name }.to_owned()),
            node: inner.nodes,
            initializer: inner.initializers,
            input,
            output,
            value_info,
            ..GraphProto::default()
        })
    }

    /// The graph that is written.
    pub(crate) fn graph(&self) -> &'g Graph {
        self.graph
    }

    /// Writes a node of the whole graph.
    pub(crate) fn node(&mut self, graph: &Graph, id: NodeId) -> Result<(), ExportError> {
        let name = |v: ValueId| self.name(v);
        let node = graph.node(id);
        let inputs = node.inputs.iter().map(|v| v.map_or_else(String::new, name)).collect();
        let outputs = node.outputs.iter().map(|&v| name(v)).collect();
        self.write(graph, node, inputs, outputs)
    }

    fn write(
        &mut self,
        graph: &Graph,
        node: &Node,
        mut inputs: Vec<String>,
        mut outputs: Vec<String>,
    ) -> Result<(), ExportError> {
        let name = node.origin.join(",");
        let op = node.op.kind().name();
        let fault = |why: String| ExportError::Node { node: name.clone(), op, why };
        let facts = graph.facts(&node.inputs);
        let types = |facts: &[&Fact]| -> Vec<DType> {
            facts.iter().filter_map(|f| f.ty.as_tensor()).map(|t| t.dtype).collect()
        };
        let read = types(&facts.iter().flatten().copied().collect::<Vec<_>>());
        if read.contains(&DType::BF16) {
            self.needs("", 22);
        }
        let results: Vec<&Fact> = node.outputs.iter().map(|&v| graph.fact(v)).collect();
        for dtype in read.into_iter().chain(types(&results)) {
            match dtype {
                DType::F4E2M1 => self.needs("", 23),
                DType::F8E8M0 => self.needs("", 24),
                DType::I2 | DType::U2 => self.needs("", 25),
                _ => {}
            }
        }
        // Where ONNX's operator lacks a narrow type, it works on a wider one, which holds the same elements.
        let wide = !takes_narrow(&node.op);
        let mut narrowed = Vec::new();
        if wide {
            for (name, fact) in inputs.iter_mut().zip(&facts) {
                let ty = fact.and_then(|f| f.ty.as_tensor()).filter(|_| !name.is_empty());
                if let Some(to) = ty.and_then(|t| wider(&node.op, t.dtype)) {
                    let base = name.clone();
                    *name = self.emit(&base, "Cast", &[&base], conversion(to, true));
                }
            }
            for (name, fact) in outputs.iter_mut().zip(&results) {
                let Some(t) = fact.ty.as_tensor().filter(|t| wider(&node.op, t.dtype).is_some())
                else {
                    continue;
                };
                let inner = self.fresh(name);
                narrowed.push((inner.clone(), std::mem::replace(name, inner), t.dtype));
            }
        }
        let mut at = At { writer: self, graph, node, inputs, outputs, name: &name, wide };
        let written = match table::EXPORTS.get(node.op.kind()) {
            Ok(row) => match row(&mut at, &node.op) {
                Err(Fault::Decompose) => at.decomposed(),
                Err(Fault::None(why)) => Err(fault(why)),
                Err(Fault::Inside(error)) => Err(error),
                Err(Fault::Symbol(symbol)) => {
                    Err(ExportError::Symbol { node: name.clone(), symbol })
                }
                Ok(()) => Ok(()),
            },
            Err(why) => Err(fault((*why).to_owned())),
        };
        for (inner, outer, to) in narrowed {
            let attributes = conversion(to, computes(&node.op));
            self.push("", "Cast", &outer, vec![inner], vec![outer.clone()], attributes);
        }
        written
    }

    /// A constant, shared with others of the same content.
    pub(crate) fn constant(&mut self, base: &str, t: &Tensor) -> String {
        let key = (t.dtype(), t.dims().to_vec(), t.bytes().to_vec());
        if let Some(name) = self.constants.get(&key) {
            return name.clone();
        }
        let name = self.fresh(base);
        self.initializers.extend(to_proto(&name, t));
        self.constants.insert(key, name.clone());
        name
    }

    fn emit(
        &mut self,
        base: &str,
        op: &str,
        inputs: &[&str],
        attributes: Vec<AttributeProto>,
    ) -> String {
        let output = self.fresh(base);
        let inputs = inputs.iter().map(|s| (*s).to_owned()).collect();
        self.push("", op, &output, inputs, vec![output.clone()], attributes);
        output
    }

    /// A value `i64[1]` with this size, computed from shapes where it is no number.
    fn size(&mut self, base: &str, dim: &Dim) -> Result<String, Fault> {
        if let Some(n) = dim.as_const() {
            return Ok(self.constant(base, &Tensor::of(&[1], &[n])));
        }
        if let Some(name) = self.sizes.get(dim) {
            return Ok(name.clone());
        }
        let name = match self.place_of(dim) {
            Some((value, d)) => {
                let range =
                    vec![attribute("start", Attr::Int(d)), attribute("end", Attr::Int(d + 1))];
                self.emit(base, "Shape", &[&value], range)
            }
            None => self.expression(base, dim)?,
        };
        self.sizes.insert(dim.clone(), name.clone());
        Ok(name)
    }

    /// A value that is there from the start, or that only a foreign op gives, and its dim of
    /// exactly this size.
    fn place_of(&self, dim: &Dim) -> Option<(String, i64)> {
        self.graph.values().find_map(|v| {
            let value = self.graph.value(v);
            let given = match (&value.role, value.producer) {
                (Role::Input, _) => true,
                (_, Some((node, _))) => finds_sizes(&self.graph.node(node).op),
                _ => false,
            };
            let shape = match &value.fact.ty {
                Type::Tensor(t) => &t.shape,
                Type::Strings(shape) => shape,
                _ => return None,
            };
            let d = shape.iter().position(|d| d == dim).filter(|_| given)?;
            Some((self.name(v), d as i64))
        })
    }

    fn expression(&mut self, base: &str, dim: &Dim) -> Result<String, Fault> {
        let (constant, terms) = dim.parts();
        let mut sum: Option<String> = None;
        for (coefficient, factors) in terms {
            let mut product: Option<String> = None;
            for factor in factors {
                let value = match &factor {
                    Factor::Symbol(s) if *dim == Dim::symbol(&s.0) => {
                        return Err(Fault::Symbol(s.to_string()));
                    }
                    Factor::Symbol(s) => self.size(base, &Dim::symbol(&s.0))?,
                    Factor::Floor(a, b) => self.both(base, "Div", a, b)?,
                    Factor::Min(a, b) => self.both(base, "Min", a, b)?,
                    Factor::Max(a, b) => self.both(base, "Max", a, b)?,
                };
                product = Some(self.join(base, "Mul", product, value));
            }
            if coefficient != 1 {
                let value = self.constant(base, &Tensor::of(&[1], &[coefficient]));
                product = Some(self.join(base, "Mul", product, value));
            }
            if let Some(product) = product {
                sum = Some(self.join(base, "Add", sum, product));
            }
        }
        if constant != 0 || sum.is_none() {
            let value = self.constant(base, &Tensor::of(&[1], &[constant]));
            sum = Some(self.join(base, "Add", sum, value));
        }
        Ok(sum.unwrap_or_default())
    }

    fn both(&mut self, base: &str, op: &str, a: &Dim, b: &Dim) -> Result<String, Fault> {
        let (a, b) = (self.size(base, a)?, self.size(base, b)?);
        Ok(self.emit(base, op, &[&a, &b], Vec::new()))
    }

    fn join(&mut self, base: &str, op: &str, a: Option<String>, b: String) -> String {
        match a {
            Some(a) => self.emit(base, op, &[&a, &b], Vec::new()),
            None => b,
        }
    }
}

/// Why a row wrote nothing.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The op is to be written as simpler ones.
    Decompose,
    /// ONNX has no form for it.
    None(String),
    /// A graph inside could not be written.
    Inside(ExportError),
    /// A size depends on a symbol that no given value has.
    Symbol(String),
}

pub(crate) type Written = Result<(), Fault>;

/// A node under export.
pub(crate) struct At<'w, 'g> {
    pub(crate) writer: &'w mut Writer<'g>,
    pub(crate) graph: &'w Graph,
    pub(crate) node: &'w Node,
    /// Names of the operands; empty for one that is absent.
    pub(crate) inputs: Vec<String>,
    pub(crate) outputs: Vec<String>,
    pub(crate) name: &'w str,
    /// Narrow operands and results are written as wider ones.
    wide: bool,
}

impl<'w> At<'w, '_> {
    /// Dims of operand `i`.
    pub(crate) fn dims(&self, i: usize) -> Vec<Dim> {
        let value = self.node.inputs.get(i).copied().flatten();
        let ty = value.and_then(|v| self.graph.fact(v).ty.as_tensor());
        ty.map_or_else(Vec::new, |t| t.shape.0.clone())
    }

    /// Element type of operand `i`.
    pub(crate) fn dtype(&self, i: usize) -> DType {
        let value = self.node.inputs.get(i).copied().flatten();
        let ty = value.and_then(|v| self.graph.fact(v).ty.as_tensor());
        let own = ty.map_or(DType::F32, |t| t.dtype);
        wider(&self.node.op, own).filter(|_| self.wide).unwrap_or(own)
    }

    /// The graph that the node belongs to.
    pub(crate) fn graph(&self) -> &'w Graph {
        self.graph
    }

    /// Operand `i`, if it is there.
    pub(crate) fn operand(&self, i: usize) -> Option<ValueId> {
        self.node.inputs.get(i).copied().flatten()
    }

    /// Whether the first result has the dims of the first operand.
    pub(crate) fn keeps_dims(&self) -> bool {
        let ty = self.graph.fact(self.node.outputs[0]).ty.as_tensor();
        ty.is_some_and(|t| *t.shape.0 == self.dims(0))
    }

    pub(crate) fn has(&self, i: usize) -> bool {
        self.inputs.get(i).is_some_and(|n| !n.is_empty())
    }

    pub(crate) fn input(&self, i: usize) -> String {
        self.inputs.get(i).cloned().unwrap_or_default()
    }

    /// Writes a node whose results are those of the node under export.
    pub(crate) fn finish(
        &mut self,
        op: &str,
        inputs: &[&str],
        attributes: &[(&str, Attr<'_>)],
    ) -> Written {
        self.finish_in("", op, inputs, list(attributes))
    }

    pub(crate) fn finish_in(
        &mut self,
        domain: &str,
        op: &str,
        inputs: &[&str],
        attributes: Vec<AttributeProto>,
    ) -> Written {
        let mut inputs: Vec<String> = inputs.iter().map(|s| (*s).to_owned()).collect();
        while inputs.last().is_some_and(String::is_empty) {
            inputs.pop();
        }
        self.writer.push(domain, op, self.name, inputs, self.outputs.clone(), attributes);
        Ok(())
    }

    /// Writes a node under the operands of the node under export.
    pub(crate) fn same(&mut self, op: &str, attributes: &[(&str, Attr<'_>)]) -> Written {
        let inputs = self.inputs.clone();
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        self.finish(op, &inputs, attributes)
    }

    /// Writes a node in between and gives the name of its result.
    pub(crate) fn emit(
        &mut self,
        op: &str,
        inputs: &[&str],
        attributes: &[(&str, Attr<'_>)],
    ) -> String {
        let base = self.base();
        self.writer.emit(&base, op, inputs, list(attributes))
    }

    fn base(&self) -> String {
        self.outputs.first().cloned().unwrap_or_default()
    }

    pub(crate) fn constant(&mut self, t: &Tensor) -> String {
        let base = self.base();
        self.writer.constant(&base, t)
    }

    pub(crate) fn scalar(&mut self, dtype: DType, value: f64) -> String {
        self.constant(&Tensor::from_f64(dtype, &[], &[value]))
    }

    pub(crate) fn ints(&mut self, values: &[i64]) -> String {
        self.constant(&Tensor::of(&[values.len() as i64], values))
    }

    /// A value `i64[n]` with these sizes.
    pub(crate) fn sizes(&mut self, dims: &[Dim]) -> Result<String, Fault> {
        if let Some(numbers) = dims.iter().map(Dim::as_const).collect::<Option<Vec<i64>>>() {
            return Ok(self.ints(&numbers));
        }
        let base = self.base();
        let mut parts = Vec::new();
        for dim in dims {
            parts.push(self.writer.size(&base, dim)?);
        }
        if let [one] = &parts[..] {
            return Ok(one.clone());
        }
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        Ok(self.emit("Concat", &parts, &[("axis", Attr::Int(0))]))
    }

    /// A scalar `i64` with this size.
    pub(crate) fn size(&mut self, dim: &Dim) -> Result<String, Fault> {
        if let Some(n) = dim.as_const() {
            return Ok(self.constant(&Tensor::of(&[], &[n])));
        }
        let list = self.sizes(std::slice::from_ref(dim))?;
        let shape = self.ints(&[]);
        Ok(self.emit("Reshape", &[&list, &shape], &[]))
    }

    /// Writes the op as simpler ones.
    fn decomposed(&mut self) -> Result<(), ExportError> {
        let fault = |why: String| ExportError::Node {
            node: self.name.to_owned(),
            op: self.node.op.kind().name(),
            why,
        };
        let facts = self.graph.facts(&self.node.inputs);
        let parts = decompose(&self.node.op, &facts)
            .map_err(|e| fault(format!("cannot be written as simpler ops: {e}")))?
            .ok_or_else(|| fault("ONNX has no form for it".to_owned()))?;
        let present = self.inputs.iter().filter(|n| !n.is_empty());
        let mut names: HashMap<ValueId, String> =
            parts.inputs.iter().copied().zip(present.cloned()).collect();
        let results = parts.outputs.iter().copied().zip(self.outputs.iter().cloned());
        let results: HashMap<ValueId, String> = results.collect();
        for value in parts.values() {
            if let Some(t) = parts.constant_of(value) {
                names.insert(value, self.constant(t));
            }
        }
        for id in parts.order() {
            let node = parts.node(id);
            let inputs =
                node.inputs.iter().map(|v| v.map_or_else(String::new, |v| names[&v].clone()));
            let inputs = inputs.collect();
            let base = self.base();
            let mut outputs = Vec::new();
            for &v in &node.outputs {
                let name = match results.get(&v) {
                    Some(name) => name.clone(),
                    None => self.writer.fresh(&base),
                };
                names.insert(v, name.clone());
                outputs.push(name);
            }
            let named = Node { origin: self.node.origin.clone(), ..node.clone() };
            self.writer.write(&parts, &named, inputs, outputs)?;
        }
        Ok(())
    }
}

/// The type that holds all elements of one that ONNX's operator for `op` lacks.
fn wider(op: &Op, dtype: DType) -> Option<DType> {
    let half = match op {
        Op::Unique(_) | Op::Compress(_) | Op::OneHot(_) | Op::TopK(_) | Op::Einsum(_) => {
            dtype == DType::BF16
        }
        Op::Dynamic(d) if d.op == Late::Range => matches!(dtype, DType::F16 | DType::BF16),
        _ => false,
    };
    match dtype {
        DType::I4 | DType::I2 => Some(DType::I8),
        DType::U4 | DType::U2 => Some(DType::U8),
        _ if half || dtype.is_narrow_float() => Some(DType::F32),
        _ => None,
    }
}

/// Whether ONNX's operators for it have all types.
fn takes_narrow(op: &Op) -> bool {
    match op {
        Op::Unary(f) => *f == Unary::Identity,
        Op::Cast(_) | Op::BitCast(_) | Op::Quantize(_) | Op::Dequantize(_) => true,
        Op::Reshape(_) | Op::Transpose(_) | Op::ShapeOf(_) | Op::Opaque(_) => true,
        _ => false,
    }
}

/// Whether results may be numbers that no operand is.
fn computes(op: &Op) -> bool {
    let kinds = [
        OpKind::Select,
        OpKind::Expand,
        OpKind::Tile,
        OpKind::Concat,
        OpKind::Split,
        OpKind::Slice,
        OpKind::Pad,
        OpKind::Gather,
        OpKind::GatherElements,
        OpKind::GatherNd,
        OpKind::ScatterElements,
        OpKind::ScatterNd,
        OpKind::TopK,
        OpKind::DepthToSpace,
        OpKind::SpaceToDepth,
        OpKind::OneHot,
        OpKind::Trilu,
    ];
    !kinds.contains(&op.kind())
}

/// The attributes of a conversion.
fn conversion(to: DType, saturate: bool) -> Vec<AttributeProto> {
    let number = number_of(to).map_or(0, i64::from);
    let mut attributes = vec![attribute("to", Attr::Int(number))];
    if to.is_narrow_float() && !saturate {
        attributes.push(attribute("saturate", Attr::Int(0)));
    }
    attributes
}

pub(crate) fn list(attributes: &[(&str, Attr<'_>)]) -> Vec<AttributeProto> {
    attributes.iter().map(|(name, value)| attribute(name, *value)).collect()
}

fn attribute(name: &str, value: Attr<'_>) -> AttributeProto {
    let mut a = AttributeProto { name: Some(name.to_owned()), ..AttributeProto::default() };
    let ty = match value {
        Attr::Int(i) => {
            a.i = Some(i);
            AttributeType::Int
        }
        Attr::Float(f) => {
            a.f = Some(f as f32);
            AttributeType::Float
        }
        Attr::Ints(list) => {
            a.ints = list.to_vec();
            AttributeType::Ints
        }
        Attr::Floats(list) => {
            a.floats = list.to_vec();
            AttributeType::Floats
        }
        Attr::Texts(list) => {
            let bytes = list.iter().map(|t| Bytes::copy_from_slice(t.as_bytes()));
            a.strings = bytes.collect();
            AttributeType::Strings
        }
        Attr::Tensor(t) => {
            a.t = Some(t.clone());
            AttributeType::Tensor
        }
        Attr::Graph(g) => {
            a.g = Some(g.clone());
            AttributeType::Graph
        }
        Attr::Type(t) => {
            a.tp = Some(t.clone());
            AttributeType::TypeProto
        }
        Attr::Text(text) => {
            a.s = Some(Bytes::copy_from_slice(text.as_bytes()));
            AttributeType::String
        }
    };
    a.r#type = Some(ty as i32);
    a
}
