//! Attention whose scores and weights pass through graphs of the model: such a node becomes several, among
//! them those of its graphs.

use super::{
    at::{At, Fault, Imported, malformed, unsupported},
    softmax::repeat_heads,
};
use crate::{
    proto::{AttributeProto, GraphProto, ModelProto, NodeProto, attribute_proto::AttributeType},
    tensor::dtype_of,
};
use bricolage_ir::{
    Real, ValueId,
    ops::{Attention, Binary, Cast, MatMul},
};
use bricolage_tensor::{DType, Dim};
use std::collections::{HashMap, HashSet};

const DOMAIN: &str = "ai.onnx.preview";
/// The attributes that hold graphs.
const GRAPHS: [&str; 2] = ["score_mod", "prob_mod"];

/// Replaces every node that has a graph for scores or weights, in all graphs of the model.
pub(super) fn expand(model: &mut ModelProto) {
    if let Some(graph) = &mut model.graph {
        expand_graph(graph);
    }
    for function in &mut model.functions {
        let taken = function.input.iter().cloned().collect();
        expand_nodes(&mut function.node, taken);
    }
}

fn expand_graph(graph: &mut GraphProto) {
    let given = graph.input.iter().map(|v| v.name().to_owned());
    let stored = graph.initializer.iter().map(|t| t.name().to_owned());
    let taken = given.chain(stored).collect();
    expand_nodes(&mut graph.node, taken);
}

/// `taken` are names other than those of the nodes' results.
fn expand_nodes(nodes: &mut Vec<NodeProto>, mut taken: HashSet<String>) {
    taken.extend(nodes.iter().flat_map(|n| n.output.clone()));
    let mut all = Vec::with_capacity(nodes.len());
    for mut node in std::mem::take(nodes) {
        for a in &mut node.attribute {
            a.g.iter_mut().chain(&mut a.graphs).for_each(expand_graph);
        }
        let has_graph = |a: &AttributeProto| a.g.is_some() && GRAPHS.contains(&a.name());
        let flex = node.domain() == DOMAIN && node.op_type() == "FlexAttention";
        if flex && node.attribute.iter().any(has_graph) && node.output.len() == 1 {
            expand_node(node, &mut all, &mut taken);
        } else {
            all.push(node);
        }
    }
    *nodes = all;
}

fn expand_node(mut node: NodeProto, all: &mut Vec<NodeProto>, taken: &mut HashSet<String>) {
    let base = node.output[0].clone();
    let mut fresh = |what: &str| {
        let mut name = format!("{base}/{what}");
        while !taken.insert(name.clone()) {
            name.push('~');
        }
        name
    };
    let part = |op: &str, input: Vec<String>, output: &str| NodeProto {
        input,
        output: vec![output.to_owned()],
        name: Some(node.name.clone().filter(|n| !n.is_empty()).unwrap_or(base.clone())),
        op_type: Some(op.to_owned()),
        domain: node.domain.clone().filter(|_| op.starts_with("FlexAttention")),
        ..NodeProto::default()
    };
    let input = |i: usize| node.input.get(i).cloned().unwrap_or_default();
    let (mut scores, weights) = (fresh("scores"), fresh("weights"));
    let (mut first, mut last) = (
        part("FlexAttention:scores", vec![input(0), input(1)], &scores),
        part("FlexAttention:output", Vec::new(), &base),
    );
    let values = input(2);
    let mut softmax = part("Softmax", Vec::new(), &weights);
    softmax.attribute.push(AttributeProto {
        name: Some("axis".to_owned()),
        i: Some(-1),
        r#type: Some(AttributeType::Int as i32),
        ..AttributeProto::default()
    });
    let mut graphs = [None, None];
    for a in std::mem::take(&mut node.attribute) {
        match GRAPHS.iter().position(|g| *g == a.name()) {
            Some(i) if a.g.is_some() => graphs[i] = a.g,
            _ => first.attribute.push(a),
        }
    }
    let [of_scores, of_weights] = graphs;
    all.push(first);
    let mut through = |graph: Option<GraphProto>, x: String, all: &mut Vec<NodeProto>| {
        let Some(mut graph) = graph else { return x };
        // A graph that does not take one value and give one is left to fail under its own names.
        let mut names = HashMap::new();
        if let Some(input) = graph.input.first() {
            names.insert(input.name().to_owned(), x.clone());
        }
        let own = graph.node.iter().flat_map(|n| &n.output).cloned();
        let stored = graph.initializer.iter().map(|t| t.name().to_owned());
        let sparse = graph.sparse_initializer.iter().filter_map(|t| t.values.as_ref());
        let sparse = sparse.map(|t| t.name().to_owned());
        for name in own.chain(stored).chain(sparse).filter(|n| !n.is_empty()).collect::<Vec<_>>() {
            let new = fresh(&name);
            names.insert(name, new);
        }
        rename_graph(&mut graph, &names);
        let result = graph.output.first().map_or(x, |o| o.name().to_owned());
        all.extend(constants(&mut graph));
        all.append(&mut graph.node);
        result
    };
    scores = through(of_scores, scores, all);
    softmax.input = vec![scores];
    all.push(softmax);
    let weights = through(of_weights, weights, all);
    last.input = vec![weights, values];
    all.push(last);
}

/// The constants of a graph as nodes.
fn constants(graph: &mut GraphProto) -> Vec<NodeProto> {
    let node = |name: String, attribute: AttributeProto| NodeProto {
        output: vec![name],
        op_type: Some("Constant".to_owned()),
        attribute: vec![attribute],
        ..NodeProto::default()
    };
    let mut nodes = Vec::new();
    for t in std::mem::take(&mut graph.initializer) {
        let attribute = AttributeProto {
            name: Some("value".to_owned()),
            r#type: Some(AttributeType::Tensor as i32),
            t: Some(t.clone()),
            ..AttributeProto::default()
        };
        nodes.push(node(t.name().to_owned(), attribute));
    }
    for t in std::mem::take(&mut graph.sparse_initializer) {
        let name = t.values.as_ref().map_or("", |v| v.name()).to_owned();
        let attribute = AttributeProto {
            name: Some("sparse_value".to_owned()),
            r#type: Some(AttributeType::SparseTensor as i32),
            sparse_tensor: Some(t),
            ..AttributeProto::default()
        };
        nodes.push(node(name, attribute));
    }
    nodes
}

/// Gives values new names, also where graphs inside read them and do not define them anew.
fn rename_graph(graph: &mut GraphProto, names: &HashMap<String, String>) {
    let rename = |name: &mut String| {
        if let Some(new) = names.get(name) {
            name.clone_from(new);
        }
    };
    for node in &mut graph.node {
        node.input.iter_mut().chain(&mut node.output).for_each(rename);
        if let Some(name) = &mut node.name {
            rename(name);
        }
        for inner in node.attribute.iter_mut().flat_map(|a| a.g.iter_mut().chain(&mut a.graphs)) {
            let mut seen = names.clone();
            let own = inner.node.iter().flat_map(|n| n.output.clone());
            let given = inner.input.iter().map(|v| v.name().to_owned());
            let stored = inner.initializer.iter().map(|t| t.name().to_owned());
            own.chain(given).chain(stored).for_each(|name| {
                seen.remove(&name);
            });
            rename_graph(inner, &seen);
        }
    }
    let stored = graph.initializer.iter_mut();
    let sparse = graph.sparse_initializer.iter_mut().filter_map(|t| t.values.as_mut());
    stored.chain(sparse).filter_map(|t| t.name.as_mut()).for_each(rename);
    let ports = graph.input.iter_mut().chain(&mut graph.output).chain(&mut graph.value_info);
    ports.filter_map(|v| v.name.as_mut()).for_each(rename);
}

/// The whole operator, where no graph changes scores or weights.
pub(crate) fn attention(at: &mut At<'_, '_>) -> Imported {
    let all = at.all(3, 3)?;
    if GRAPHS.into_iter().any(|g| at.has(g)) {
        return malformed("needs graphs for scores and weights in a node of one result");
    }
    // The op rounds once, at its results.
    at.ignore(&["softmax_precision"]);
    let scale = at.float("scale", 0.0)?;
    let scale = at.has("scale").then(|| Real::from(scale));
    at.one(Attention { scale, causal: false }, &all)
}

fn cast(at: &mut At<'_, '_>, x: ValueId, to: DType) -> Result<ValueId, Fault> {
    if at.ty(x)?.dtype == to { Ok(x) } else { at.add(Cast::to(to), &[x]) }
}

/// Scaled products of queries and keys.
pub(crate) fn scores(at: &mut At<'_, '_>) -> Imported {
    let [q, k]: [ValueId; 2] = match at.all(2, 2)?[..] {
        [q, k] => [q, k],
        _ => return malformed("needs queries and keys"),
    };
    let own = at.ty(q)?.dtype;
    let default = if own == DType::F64 { DType::F64 } else { DType::F32 };
    let precision = match at.int("softmax_precision")? {
        None => default,
        Some(number) => match dtype_of(i32::try_from(number).unwrap_or(0)) {
            Ok(dtype) => dtype,
            Err(fault) => return unsupported(format!("`softmax_precision`: {fault}")),
        },
    };
    let dims = at.dims(q)?;
    let [_, heads, _, depth] = &dims[..] else {
        let got = dims.len();
        return Err(bricolage_ir::TypeError::Rank { operand: 0, min: 4, max: 4, got }.into());
    };
    let scale = match (at.float("scale", 0.0)?, at.has("scale"), depth.as_const()) {
        (scale, true, _) => f64::from(scale),
        (_, false, Some(d)) => 1.0 / (d as f64).sqrt(),
        _ => return unsupported("needs the size of a head as a number"),
    };
    let (q, k) = (cast(at, q, precision)?, cast(at, k, precision)?);
    let k = repeat_heads(at, k, heads)?;
    let product = at.add(MatMul { transpose_lhs: false, transpose_rhs: true }, &[q, k])?;
    let scale = at.scalar(precision, scale);
    at.one(Binary::Mul, &[product, scale])
}

/// Values by their weights.
pub(crate) fn output(at: &mut At<'_, '_>) -> Imported {
    let all = at.all(2, 2)?;
    let (weights, v) = (all[0], all[1]);
    let (precision, own) = (at.ty(weights)?.dtype, at.ty(v)?.dtype);
    let heads = at.dims(weights)?.get(1).cloned().unwrap_or(Dim::from(1));
    let v = cast(at, v, precision)?;
    let v = repeat_heads(at, v, &heads)?;
    let y = at.add(MatMul::default(), &[weights, v])?;
    Ok(vec![cast(at, y, own)?])
}
