//! What a library is asked to compute, from a candidate.

use bricolage_backend::{
    Candidate, Packed, Policy, Setting,
    pattern::{Bindings, attributes, op_name},
};
use bricolage_ir::{Graph, ValueId};
use bricolage_plugin::{Binding, DTYPES, Layout, Node, Role, Subgraph, Tensor, Value};
use bricolage_tensor::{DType, Format, Layout as Order};
use serde_json::Value as Json;
use std::collections::HashMap;

fn value(json: &Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(is) => Value::Bool(*is),
        Json::Number(n) => match n.as_i64() {
            Some(whole) => Value::Int(whole),
            None => n.as_f64().map_or(Value::Null, Value::Real),
        },
        Json::String(text) => Value::Text(text.clone()),
        Json::Array(all) => Value::List(all.iter().map(value).collect()),
        Json::Object(all) => Value::Fields(fields(all)),
    }
}

fn fields(all: &serde_json::Map<String, Json>) -> Vec<(String, Value)> {
    all.iter().map(|(name, json)| (name.clone(), value(json))).collect()
}

/// A tensor with these dims in a format, or why the interface has no such.
fn tensor(name: &str, role: Role, dims: &[i64], format: &Format) -> Result<Tensor, String> {
    let code = DTYPES.iter().position(|(name, _)| *name == format.dtype.name());
    let code = code.ok_or_else(|| format!("needs a known element type, found {}", format.dtype))?;
    let layout = match format.layout {
        Order::Plain => Layout::Plain,
        Order::ChannelsLast { halo } => Layout::ChannelsLast { halo: halo.into() },
        Order::Blocked { block, halo } => {
            Layout::Blocked { block: block.into(), halo: halo.into() }
        }
        _ => return Err(format!("needs a known layout, found {}", format.layout)),
    };
    let no_format = || format!("needs dims that {format} fits, found {dims:?}");
    Ok(Tensor {
        // A zero byte ends a text of C.
        name: name.replace('\0', ""),
        role,
        dtype: code as u32,
        layout,
        dims: dims.to_vec(),
        strides: format.strides(dims).ok_or_else(no_format)?,
        bytes: format.byte_len(dims).ok_or_else(no_format)?,
        data: 0,
    })
}

/// The format of a tensor, if it is one whose strides and bytes are those that it says.
pub(super) fn format(found: &Tensor) -> Result<Format, String> {
    let dtype = DTYPES.get(found.dtype as usize).and_then(|(name, _)| DType::from_name(name));
    let small = |n: u32| u8::try_from(n).map_err(|e| e.to_string());
    let layout = match found.layout {
        Layout::Plain => Order::Plain,
        Layout::ChannelsLast { halo } => Order::ChannelsLast { halo: small(halo)? },
        Layout::Blocked { block, halo } => {
            Order::Blocked { block: small(block)?, halo: small(halo)? }
        }
    };
    let dtype = dtype.ok_or("needs a known element type")?;
    let format = Format { dtype, layout };
    if found.dims.iter().any(|&d| d < 0) || matches!(format.layout, Order::Blocked { block: 0, .. })
    {
        return Err(format!("needs dims that {format} fits, found {:?}", found.dims));
    }
    let same = tensor(&found.name, found.role, &found.dims, &format)?;
    match (same.strides == found.strides, same.bytes == found.bytes) {
        (true, true) => Ok(format),
        _ => Err(format!(
            "needs {} bytes for {format}{:?}, found {}",
            same.bytes, found.dims, found.bytes
        )),
    }
}

/// What is put together on the way.
struct Parts<'a> {
    graph: &'a Graph,
    all: Subgraph,
    places: HashMap<ValueId, u32>,
}

impl Parts<'_> {
    fn add(&mut self, v: ValueId, role: Role, format: Option<&Format>) -> Result<u32, String> {
        let name = &self.graph.value(v).name;
        let fact = self.graph.fact(v);
        let ty = fact.ty.as_tensor();
        let fixed = ty.and_then(|t| Some((t.dtype, t.shape.as_fixed()?)));
        let (dtype, dims) =
            fixed.ok_or_else(|| format!("needs tensors of known sizes, found `{name}` {fact}"))?;
        let plain = Format::plain(dtype);
        let place = self.all.tensors.len() as u32;
        self.all.tensors.push(tensor(name, role, &dims, format.unwrap_or(&plain))?);
        self.places.insert(v, place);
        Ok(place)
    }
}

/// The sub-graph of a candidate, with no constant's address, and the constants in its order.
pub(super) fn subgraph(
    entry: &str,
    graph: &Graph,
    candidate: &Candidate,
    bindings: &Bindings,
    setting: &Setting,
) -> Result<(Subgraph, Vec<Packed>), String> {
    let region = &candidate.region;
    let all = Subgraph {
        entry: entry.to_owned(),
        threads: setting.threads as u32,
        numerics: match setting.policy {
            Policy::Strict => 0,
            Policy::Default => 1,
            Policy::Fast => 2,
        },
        ..Subgraph::default()
    };
    let mut parts = Parts { graph, all, places: HashMap::new() };
    for (i, (&v, format)) in region.inputs.iter().zip(&candidate.inputs).enumerate() {
        let place = parts.add(v, Role::Input(i as u32), Some(format))?;
        parts.all.inputs.push(place);
    }
    let mut constants = Vec::new();
    for (i, &v) in region.constants.iter().enumerate() {
        let place = parts.add(v, Role::Constant(i as u32), None)?;
        parts.all.constants.push(place);
        let found = graph.constant_of(v).ok_or("needs constants that are known")?;
        constants.push(Packed {
            format: Format::plain(found.dtype()),
            dims: found.dims().to_vec(),
            bytes: found.storage().clone(),
        });
    }
    parts.all.outputs = vec![0; region.outputs.len()];
    for &id in &region.nodes {
        let node = graph.node(id);
        if !node.op.nested().is_empty() {
            return Err(format!("needs ops without graphs inside, found `{}`", op_name(&node.op)));
        }
        let operand = |v: &Option<ValueId>| match v {
            None => Ok(None),
            Some(v) => parts.places.get(v).copied().map(Some).ok_or_else(|| {
                format!("needs nodes in order, found `{}` too late", graph.value(*v).name)
            }),
        };
        let operands = node.inputs.iter().map(operand).collect::<Result<_, _>>()?;
        let mut results = Vec::new();
        for &v in &node.outputs {
            let out = region.outputs.iter().position(|&o| o == v);
            let role = out.map_or(Role::Inner, |i| Role::Output(i as u32));
            let place = parts.add(v, role, out.map(|i| &candidate.outputs[i]))?;
            if let Some(i) = out {
                parts.all.outputs[i] = place;
            }
            results.push(Some(place));
        }
        let attributes = attributes(&node.op).as_object().map(fields).unwrap_or_default();
        parts.all.nodes.push(Node { op: op_name(&node.op), operands, results, attributes });
    }
    for (name, v) in bindings.iter().filter(|(name, _)| !name.is_empty()) {
        let node = bindings.node(name);
        let node = node.and_then(|n| region.nodes.iter().position(|&m| m == n)).map(|n| n as u32);
        let tensor = v.and_then(|v| parts.places.get(&v)).copied();
        parts.all.bindings.push(Binding {
            name: name.to_owned(),
            tensor,
            node,
            held: bindings.has(name),
        });
    }
    Ok((parts.all, constants))
}

/// A copy of a tensor from one format to another.
pub(super) fn copy(
    entry: &str,
    dims: &[i64],
    from: &Format,
    to: &Format,
) -> Result<Subgraph, String> {
    Ok(Subgraph {
        entry: entry.to_owned(),
        tensors: vec![
            tensor("from", Role::Input(0), dims, from)?,
            tensor("to", Role::Output(0), dims, to)?,
        ],
        inputs: vec![0],
        outputs: vec![1],
        ..Subgraph::default()
    })
}
