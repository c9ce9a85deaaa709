//! From a graph to ONNX bytes: every node through the row of its op.

mod arrange;
mod compute;
mod control;
mod further;
mod integers;
mod table;
mod writer;

use crate::{
    ExportError,
    proto::{
        GraphProto, ModelProto, OperatorSetIdProto, StringStringEntryProto, TensorProto,
        TensorShapeProto, TypeProto, ValueInfoProto,
        tensor_proto::{DataLocation, DataType},
        tensor_shape_proto, type_proto,
    },
    tensor::{describe, number_of, to_proto},
};
use bricolage_ir::{Graph, Op, Role, ValueId};
use bricolage_tensor::{Dim, Shape, Tensor, Type};
use prost::Message;
use std::collections::HashSet;
use writer::Writer;

/// The operator set that models are written in, unless they need a newer one.
const OPSET: i64 = 21;
/// Largest message of protocol buffers.
const MOST_BYTES: u64 = i32::MAX as u64;
/// Larger constants are left out of a [`Structure`].
const MOST_INLINE: usize = 1024;
/// Name of the file that a [`Structure`] says its weights lie in.
const WEIGHTS: &str = "weights";

/// A model without its large constants, for an engine that takes them by name.
#[derive(Clone, Debug)]
pub struct Structure {
    /// The model. It declares every constant of more than 1 KiB as external data in a file
    /// `weights`, which need not exist: the engine is given the constants instead.
    pub bytes: Vec<u8>,
    /// Name and content of these constants, in the order in which the model declares them.
    pub weights: Vec<(String, Tensor)>,
}

/// Writes one self-contained model. Names of values, inputs and outputs stay.
pub fn export(graph: &Graph) -> Result<Vec<u8>, ExportError> {
    let (model, _) = write(graph, false)?;
    Ok(model.encode_to_vec())
}

/// Writes a model whose large constants are listed apart.
pub fn export_structure(graph: &Graph) -> Result<Structure, ExportError> {
    let (model, weights) = write(graph, true)?;
    Ok(Structure { bytes: model.encode_to_vec(), weights })
}

/// One self-contained model from the bytes of a [`Structure`] and its weights.
pub fn inline(bytes: &[u8], weights: &[(String, Tensor)]) -> Result<Vec<u8>, ExportError> {
    let fault = |why: String| ExportError::Structure { why };
    let mut model = ModelProto::decode(bytes).map_err(|e| fault(e.to_string()))?;
    let declared = model.graph.iter_mut().flat_map(|g| &mut g.initializer);
    let mut declared = declared.filter(|t| t.data_location == Some(DataLocation::External as i32));
    for (name, weight) in weights {
        let slot = declared.next().filter(|t| t.name() == name);
        let slot = slot.ok_or_else(|| fault(format!("it declares no `{name}` at this place")))?;
        *slot = to_proto(name, weight).ok_or_else(|| no_type(name))?;
    }
    if let Some(t) = declared.next() {
        return Err(fault(format!("it declares `{}` as well", t.name())));
    }
    let found = model.encoded_len() as u64;
    if found > MOST_BYTES {
        return Err(ExportError::TooLarge { found, limit: MOST_BYTES });
    }
    Ok(model.encode_to_vec())
}

type Weights = Vec<(String, Tensor)>;

fn write(graph: &Graph, apart: bool) -> Result<(ModelProto, Weights), ExportError> {
    let mut writer = Writer::new(graph);
    let mut initializers = Vec::new();
    let mut weights = Weights::new();
    let mut offset = 0;
    for value in graph.values() {
        let v = graph.value(value);
        let t = match &v.role {
            Role::Constant(t) => t,
            Role::State(_) => return Err(ExportError::State { name: v.name.to_string() }),
            _ => continue,
        };
        let output = graph.is_output(value);
        if graph.uses(value).is_empty() && !output {
            continue;
        }
        // An output of the model is computed by a node.
        let name = if output { writer.fresh(&v.name) } else { v.name.to_string() };
        if output {
            writer.identity(&name, &v.name);
        }
        if apart && t.bytes().len() > MOST_INLINE {
            initializers.push(external(&name, t, offset)?);
            offset += t.bytes().len() as u64;
            weights.push((name, t.clone()));
        } else {
            initializers.push(to_proto(&name, t).ok_or_else(|| no_type(&v.name))?);
        }
    }
    for id in graph.order() {
        writer.node(graph, id)?;
    }
    let mut outputs = Vec::new();
    let mut seen = HashSet::new();
    for &value in &graph.outputs {
        let v = graph.value(value);
        let mut name = v.name.to_string();
        if !seen.insert(value) {
            name = writer.fresh(&v.name);
            writer.identity(&v.name, &name);
        }
        outputs.push(ValueInfoProto { name: Some(name), ..info(graph, value)? });
    }
    let inputs = graph.inputs.iter().map(|&v| info(graph, v)).collect::<Result<_, _>>()?;
    let declared = declared(&writer)?;
    initializers.extend(writer.initializers);
    let ir_version = ir_version(writer.opsets[""]);
    let opsets = writer.opsets.into_iter().map(|(domain, version)| OperatorSetIdProto {
        domain: Some(domain),
        version: Some(version),
    });
    let name = if graph.name.is_empty() { "graph" } else { &graph.name };
    let model = ModelProto {
        ir_version: Some(ir_version),
        producer_name: Some("bricolage".to_owned()),
        producer_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
        opset_import: opsets.collect(),
        graph: Some(GraphProto {
            name: Some(name.to_owned()),
            node: writer.nodes,
            initializer: initializers,
            input: inputs,
            output: outputs,
            value_info: declared,
            ..GraphProto::default()
        }),
        ..ModelProto::default()
    };
    let found = model.encoded_len() as u64;
    if found > MOST_BYTES {
        return Err(ExportError::TooLarge { found, limit: MOST_BYTES });
    }
    Ok((model, weights))
}

/// The version of the format that goes with an operator set.
fn ir_version(opset: i64) -> i64 {
    match opset {
        ..=22 => 10,
        23 => 11,
        24 => 12,
        25..=27 => 13,
        _ => 14,
    }
}

fn no_type(name: &str) -> ExportError {
    ExportError::Node {
        node: name.to_owned(),
        op: "Constant",
        why: "ONNX has no such element type".to_owned(),
    }
}

fn external(name: &str, t: &Tensor, offset: u64) -> Result<TensorProto, ExportError> {
    let entry = |key: &str, value: String| StringStringEntryProto {
        key: Some(key.to_owned()),
        value: Some(value),
    };
    let external_data = vec![
        entry("location", WEIGHTS.to_owned()),
        entry("offset", offset.to_string()),
        entry("length", t.bytes().len().to_string()),
    ];
    let described = describe(name, t).ok_or_else(|| no_type(name))?;
    let data_location = Some(DataLocation::External as i32);
    Ok(TensorProto { external_data, data_location, ..described })
}

/// Types of values that do not follow from the operands of their nodes alone.
fn declared(writer: &Writer<'_>) -> Result<Vec<ValueInfoProto>, ExportError> {
    let graph = writer.graph();
    let mut declared = Vec::new();
    for id in graph.nodes() {
        let node = graph.node(id);
        if matches!(node.op, Op::Opaque(_) | Op::Sequence(_) | Op::Optional(_)) {
            for &v in node.outputs.iter().filter(|&&v| !graph.is_output(v)) {
                declared.push(ValueInfoProto { name: Some(writer.name(v)), ..info(graph, v)? });
            }
        }
    }
    Ok(declared)
}

/// Inputs, outputs and further types of an inner graph, after its nodes have been written.
fn fill_nested(
    writer: &mut Writer<'_>,
    formal: usize,
) -> Result<[Vec<ValueInfoProto>; 3], ExportError> {
    let graph = writer.graph();
    for value in graph.values() {
        let v = graph.value(value);
        if let Role::Constant(t) = &v.role {
            let name = writer.name(value);
            writer.initializers.push(to_proto(&name, t).ok_or_else(|| no_type(&v.name))?);
        }
    }
    for id in graph.order() {
        writer.node(graph, id)?;
    }
    let named = |writer: &Writer<'_>, value: ValueId, name: Option<String>| {
        let name = name.unwrap_or_else(|| writer.name(value));
        let mut info = ValueInfoProto { name: Some(name), ..info(graph, value)? };
        // Sizes inside have no name: what has one outside may mean another there.
        if let Some(ty) = &mut info.r#type {
            forget_names(ty);
        }
        Ok(info)
    };
    let mut inputs = Vec::new();
    for &value in &graph.inputs[..formal] {
        inputs.push(named(writer, value, None)?);
    }
    let mut outputs = Vec::new();
    for &value in &graph.outputs {
        // An output is computed inside.
        let computed = graph.value(value).producer.is_some();
        let name = match computed {
            true => None,
            false => {
                let (from, to) = (writer.name(value), writer.fresh(&graph.value(value).name));
                writer.identity(&from, &to);
                Some(to)
            }
        };
        outputs.push(named(writer, value, name)?);
    }
    let mut declared = declared(writer)?;
    declared.iter_mut().filter_map(|info| info.r#type.as_mut()).for_each(forget_names);
    Ok([inputs, outputs, declared])
}

fn forget_names(ty: &mut TypeProto) {
    use tensor_shape_proto::dimension::Value;
    if let Some(type_proto::Value::TensorType(t)) = &mut ty.value {
        for dim in t.shape.iter_mut().flat_map(|s| &mut s.dim) {
            dim.value = dim.value.take().filter(|v| matches!(v, Value::DimValue(_)));
        }
    }
}

/// A type as ONNX writes it.
pub(crate) fn type_of(ty: &Type) -> Option<TypeProto> {
    use tensor_shape_proto::{Dimension, dimension::Value};
    let tensor = |elem_type: i32, shape: Option<&Shape>| {
        let dim = |d: &Dim| Dimension {
            value: match d.as_const() {
                Some(n) => Some(Value::DimValue(n)),
                None if d.as_symbol().is_some_and(|s| &*s.0 == Type::ANY) => None,
                None => Some(Value::DimParam(d.to_string())),
            },
            ..Dimension::default()
        };
        let shape = shape.map(|s| TensorShapeProto { dim: s.iter().map(dim).collect() });
        type_proto::Value::TensorType(type_proto::Tensor { elem_type: Some(elem_type), shape })
    };
    let value = match ty {
        Type::Tensor(t) => tensor(number_of(t.dtype)?, Some(&t.shape)),
        Type::Unranked(dtype) => tensor(number_of(*dtype)?, None),
        Type::Strings(shape) => tensor(DataType::String as i32, Some(shape)),
        Type::Sequence(t) => {
            let elem_type = Some(Box::new(type_of(t)?));
            type_proto::Value::SequenceType(Box::new(type_proto::Sequence { elem_type }))
        }
        Type::Optional(t) => {
            let elem_type = Some(Box::new(type_of(t)?));
            type_proto::Value::OptionalType(Box::new(type_proto::Optional { elem_type }))
        }
        _ => return None,
    };
    Some(TypeProto { value: Some(value), ..TypeProto::default() })
}

/// Name and type of a value.
fn info(graph: &Graph, value: ValueId) -> Result<ValueInfoProto, ExportError> {
    let v = graph.value(value);
    Ok(ValueInfoProto {
        name: Some(v.name.to_string()),
        r#type: Some(type_of(&v.fact.ty).ok_or_else(|| no_type(&v.name))?),
        ..ValueInfoProto::default()
    })
}
