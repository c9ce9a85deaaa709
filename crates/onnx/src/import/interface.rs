//! What goes into a model and comes out, whatever lies between.

use super::types::Symbols;
use crate::{
    ImportError,
    proto::{
        ModelProto, ValueInfoProto,
        tensor_shape_proto::{Dimension, dimension::Value as DimValue},
        type_proto::Value,
    },
};
use bricolage_ir::{Graph, ops, origin};
use bricolage_tensor::Type;
use prost::{Message, bytes::Bytes};
use std::{
    collections::{HashMap, HashSet},
    path::Path,
    sync::Arc,
};

/// Reads the inputs and outputs of a model whose nodes may have no meaning here: one [`ops::Opaque`]
/// node, which only a runtime of its own can take, stands for all of them. Inputs with a default are
/// left out, as by [`super::load`].
pub fn load_interface(path: &Path) -> Result<Graph, ImportError> {
    let bytes = bricolage_runtime::map_file(path)
        .map_err(|error| ImportError::File { path: path.to_owned(), error })?;
    let len = bytes.len();
    let model = ModelProto::decode(Bytes::from_owner(bytes))
        .map_err(|error| ImportError::Decode { len, why: error.to_string() })?;
    interface(&model, len)
}

pub(super) fn interface(model: &ModelProto, len: usize) -> Result<Graph, ImportError> {
    let proto = model.graph.as_ref().ok_or(ImportError::NoGraph { len })?;
    if proto.output.is_empty() {
        return Err(ImportError::NoOutputs { graph: proto.name().to_owned() });
    }
    let own = model.opset_import.iter().find(|o| matches!(o.domain(), "" | "ai.onnx"));
    let opset = own.map_or(0, |entry| entry.version());
    let dense = proto.initializer.iter();
    let sparse = proto.sparse_initializer.iter().filter_map(|t| t.values.as_ref());
    let defaults: HashSet<&str> = dense.chain(sparse).map(|t| t.name()).collect();
    let mut symbols = Symbols::new(proto);
    let mut graph = Graph::new(proto.name());
    let mut inputs = Vec::new();
    for input in proto.input.iter().filter(|i| !defaults.contains(i.name())) {
        inputs.push(graph.input(input.name(), port(&mut symbols, "input", input)?));
    }
    let (mut outputs, mut listed) = (Vec::new(), HashSet::new());
    for output in &proto.output {
        if !listed.insert(output.name()) {
            let (name, found) = (output.name().to_owned(), "two graph outputs".to_owned());
            return Err(ImportError::DuplicateName { name, found });
        }
        outputs.push(port(&mut symbols, "output", output)?);
    }
    let op = ops::Opaque {
        domain: String::new(),
        name: "the whole model".to_owned(),
        opset,
        attributes: Vec::new(),
        outputs,
    };
    let names: Vec<Arc<str>> = proto.output.iter().map(|o| Arc::from(o.name())).collect();
    let added = graph.add_named(op, &inputs, origin(proto.name()), &names);
    graph.outputs = added.map_err(|error| ImportError::Node {
        node: proto.name().to_owned(),
        op: "the whole model".to_owned(),
        error: Box::new(error),
        operands: Vec::new(),
    })?;
    Ok(graph)
}

/// The dims that are declared for a value.
fn dims_of(info: &mut ValueInfoProto) -> &mut [Dimension] {
    match info.r#type.as_mut().and_then(|t| t.value.as_mut()) {
        Some(Value::TensorType(t)) => t.shape.as_mut().map_or(&mut [], |s| &mut s.dim),
        _ => &mut [],
    }
}

/// Declares these sizes for inputs, and the same sizes wherever the names of open ones stand. Sizes
/// that contradict each other or a declared rank change nothing.
pub(super) fn fix_sizes(model: &mut ModelProto, sizes: &[(&str, &[i64])]) {
    let Some(graph) = model.graph.as_mut() else { return };
    let mut named: HashMap<String, i64> = HashMap::new();
    let size_of = |name: &str| sizes.iter().find(|(n, _)| *n == name).map(|(_, dims)| *dims);
    for input in &mut graph.input {
        let Some(given) = size_of(input.name()) else { continue };
        let declared = dims_of(input);
        if declared.len() != given.len() {
            return;
        }
        for (dim, &size) in declared.iter().zip(given) {
            if let Some(DimValue::DimParam(name)) = &dim.value
                && !matches!(name.as_str(), "" | "?")
                && named.insert(name.clone(), size).is_some_and(|other| other != size)
            {
                return;
            }
        }
    }
    for input in &mut graph.input {
        let Some(given) = size_of(input.name()) else { continue };
        for (dim, &size) in dims_of(input).iter_mut().zip(given) {
            if !matches!(dim.value, Some(DimValue::DimValue(n)) if n >= 0) {
                dim.value = Some(DimValue::DimValue(size));
            }
        }
    }
    for info in graph.input.iter_mut().chain(&mut graph.output).chain(&mut graph.value_info) {
        for dim in dims_of(info) {
            if let Some(DimValue::DimParam(name)) = &dim.value
                && let Some(&size) = named.get(name)
            {
                dim.value = Some(DimValue::DimValue(size));
            }
        }
    }
}

/// The declared type of an input or output of the graph.
pub(super) fn port(
    symbols: &mut Symbols,
    place: &'static str,
    info: &ValueInfoProto,
) -> Result<Type, ImportError> {
    let fault = |(needed, found)| {
        let name = info.name().to_owned();
        ImportError::Input { place, name, needed, found }
    };
    symbols.any_type(info.name(), info.r#type.as_ref()).map_err(fault)
}
