//! Models that are wrong, and what is said about them; models that are right in unusual ways.

mod control;
mod published;
mod ranges;

use super::*;
use crate::proto::{
    AttributeProto, OperatorSetIdProto, StringStringEntryProto, TensorShapeProto, ValueInfoProto,
    tensor_proto::DataLocation, tensor_shape_proto, type_proto,
};
use bricolage_ir::evaluate;
use proptest::prelude::*;

fn info(name: &str, ty: i32, dims: &[&str]) -> ValueInfoProto {
    use tensor_shape_proto::{Dimension, dimension::Value};
    let dim = dims.iter().map(|d| Dimension {
        value: match d.parse() {
            Ok(n) => Some(Value::DimValue(n)),
            Err(_) if d.is_empty() => None,
            Err(_) => Some(Value::DimParam((*d).to_owned())),
        },
        ..Dimension::default()
    });
    let shape = Some(TensorShapeProto { dim: dim.collect() });
    let tensor = type_proto::Tensor { elem_type: Some(ty), shape };
    let value = Some(type_proto::Value::TensorType(tensor));
    ValueInfoProto {
        name: Some(name.to_owned()),
        r#type: Some(TypeProto { value, ..TypeProto::default() }),
        ..ValueInfoProto::default()
    }
}

fn node(op: &str, name: &str, inputs: &[&str], outputs: &[&str]) -> NodeProto {
    NodeProto {
        op_type: Some(op.to_owned()),
        name: Some(name.to_owned()),
        input: inputs.iter().map(|s| (*s).to_owned()).collect(),
        output: outputs.iter().map(|s| (*s).to_owned()).collect(),
        ..NodeProto::default()
    }
}

fn with(mut node: NodeProto, name: &str, set: impl Fn(&mut AttributeProto)) -> NodeProto {
    let mut a = AttributeProto { name: Some(name.to_owned()), ..AttributeProto::default() };
    set(&mut a);
    node.attribute.push(a);
    node
}

fn floats(name: &str, dims: &[i64], data: &[f32]) -> TensorProto {
    let (dims, float_data) = (dims.to_vec(), data.to_vec());
    let (name, data_type) = (Some(name.to_owned()), Some(1));
    TensorProto { name, dims, float_data, data_type, ..TensorProto::default() }
}

fn longs(name: &str, data: &[i64]) -> TensorProto {
    TensorProto {
        name: Some(name.to_owned()),
        dims: vec![data.len() as i64],
        int64_data: data.to_vec(),
        data_type: Some(7),
        ..TensorProto::default()
    }
}

/// A model of these nodes over `x: f32[b, 4]`, with output `y`.
fn model(nodes: Vec<NodeProto>) -> ModelProto {
    ModelProto {
        ir_version: Some(8),
        producer_name: Some("hand".to_owned()),
        producer_version: Some("1".to_owned()),
        opset_import: vec![OperatorSetIdProto { domain: None, version: Some(17) }],
        graph: Some(GraphProto {
            name: Some("g".to_owned()),
            node: nodes,
            input: vec![info("x", 1, &["b", "4"])],
            output: vec![info("y", 1, &["b", "4"])],
            ..GraphProto::default()
        }),
        ..ModelProto::default()
    }
}

fn read(m: &ModelProto) -> Result<Model, ImportError> {
    import(Storage::copy_of(&m.encode_to_vec()), None)
}

fn graph_of(m: &mut ModelProto) -> &mut GraphProto {
    m.graph.as_mut().unwrap()
}

fn fails(m: &ModelProto) -> (&'static str, String) {
    let error = read(m).map(|m| m.graph).unwrap_err();
    (error.code(), error.to_string())
}

#[test]
fn a_plain_model_keeps_names_and_symbols() {
    let m = read(&model(vec![node("Relu", "/act", &["x"], &["y"])])).unwrap();
    assert_eq!((m.opset, m.producer.as_str(), m.external_bytes), (17, "hand 1", 0));
    assert_eq!(m.hash.len(), 64);
    let y = m.graph.outputs[0];
    assert_eq!(&*m.graph.value(y).name, "y");
    assert_eq!(m.graph.fact(y).to_string(), "f32[b, 4]");
    assert_eq!(&*m.graph.node(m.graph.producer(y).unwrap()).origin[0], "/act");
    assert!(m.warnings.is_empty());
}

#[test]
fn broken_bytes_are_no_model() {
    let error = import(Storage::copy_of(b"not a model at all"), None).unwrap_err();
    assert_eq!(error.code(), "onnx::not-a-model");
    let error = import(Storage::copy_of(&[]), None).unwrap_err();
    assert_eq!(error.code(), "onnx::no-graph");
    let missing = load(Path::new("no/such/file.onnx")).unwrap_err();
    assert_eq!(missing.code(), "onnx::file");
    assert!(missing.to_string().contains("no/such/file.onnx"));
}

#[test]
fn opsets_are_checked() {
    let mut m = model(vec![node("Relu", "r", &["x"], &["y"])]);
    m.opset_import[0].version = Some(0);
    let found = read(&m).unwrap_err();
    assert_eq!(found.to_string(), "needs operator set 1 to 28 of `ai.onnx`, found 0");
    assert!(found.is_unsupported() && found.help().unwrap().ends_with("opset 1"));
    // What an operator meant before is told apart one by one.
    m.opset_import[0].version = Some(5);
    graph_of(&mut m).output[0].r#type = None;
    let found = read(&m).unwrap_err();
    assert!(found.notes()[0].ends_with("needs opset 6 or newer, found 5"), "{:?}", found.notes());
    m.opset_import[0].version = Some(1000);
    assert!(read(&m).unwrap_err().help().unwrap().ends_with("opset 28"));
    m.opset_import.clear();
    assert_eq!(fails(&m).0, "onnx::no-opset");
}

#[test]
fn names_must_be_defined_once() {
    let m = model(vec![node("Add", "sum", &["x", "ghost"], &["y"])]);
    let text = "node `sum` (Add) reads `ghost`, which nothing defines".to_owned();
    assert_eq!(fails(&m), ("onnx::unknown-value", text));
    let m = model(vec![node("Relu", "a", &["x"], &["y"]), node("Abs", "b", &["x"], &["y"])]);
    let (code, text) = fails(&m);
    assert_eq!(code, "onnx::duplicate-name");
    assert!(text.contains("node `a` and node `b`"), "{text}");
    let m = model(vec![
        node("Add", "a", &["x", "v"], &["u"]),
        node("Relu", "b", &["u"], &["v"]),
        node("Relu", "c", &["v"], &["y"]),
    ]);
    let (code, text) = fails(&m);
    assert_eq!(code, "onnx::cycle");
    assert!(text.contains("`a`") || text.contains("`b`"), "{text}");
    let m = model(vec![node("Relu", "a", &["x"], &["z"])]);
    assert_eq!(fails(&m).0, "onnx::unknown-value");
}

#[test]
fn nodes_may_come_in_any_order() {
    let m = model(vec![node("Relu", "b", &["t"], &["y"]), node("Neg", "a", &["x"], &["t"])]);
    assert!(read(&m).is_ok());
}

#[test]
fn mismatches_name_the_node_and_its_operands() {
    let mut m = model(vec![node("MatMul", "/fc/MatMul", &["x", "w"], &["y"])]);
    graph_of(&mut m).initializer.push(floats("w", &[3, 4], &[0.0; 12]));
    let error = read(&m).unwrap_err();
    assert_eq!(
        error.to_string(),
        "node `/fc/MatMul` (MatMul): needs operand 0 dim 1 to equal operand 1 dim 0, found 4 and 3"
    );
    assert_eq!(
        error.notes(),
        ["operand 0 is the value `x`, f32[b, 4]", "operand 1 is the constant value `w`, f32[3, 4]"]
    );
}

#[test]
fn stored_tensors_are_checked_before_memory_is_taken() {
    let check = |t: TensorProto| {
        let mut m = model(vec![node("Add", "s", &["x", "w"], &["y"])]);
        graph_of(&mut m).initializer.push(t);
        fails(&m)
    };
    let (code, text) = check(floats("w", &[1 << 40], &[]));
    assert_eq!(code, "onnx::tensor");
    assert!(text.contains("needs 1099511627776 numbers, found 0"), "{text}");
    let huge = check(floats("w", &[1 << 40, 1 << 40], &[])).1;
    assert!(huge.contains("not a possible tensor"), "{huge}");
    let negative = check(floats("w", &[-4], &[])).1;
    assert!(negative.contains("a dim is negative"), "{negative}");
    let short = TensorProto {
        raw_data: Some(Bytes::from_static(&[0; 7])),
        float_data: Vec::new(),
        ..floats("w", &[4], &[])
    };
    let short = check(short).1;
    assert!(short.contains("needs 16 bytes, found 7"), "{short}");
    let complex = check(TensorProto { data_type: Some(14), ..floats("w", &[4], &[]) }).1;
    assert!(complex.contains("found COMPLEX64"), "{complex}");
    let unknown = check(TensorProto { data_type: Some(999), ..floats("w", &[4], &[]) }).1;
    assert!(unknown.contains("found type 999"), "{unknown}");
}

#[test]
fn inputs_need_a_numeric_type_and_a_rank() {
    let mut m = model(vec![node("Relu", "r", &["x"], &["y"])]);
    graph_of(&mut m).input[0] = info("x", 1, &["-2", "4"]);
    assert_eq!(
        fails(&m),
        (
            "onnx::input-type",
            "graph input `x` needs dims of at least 0, or -1 for an unknown one, found -2"
                .to_owned()
        )
    );
    graph_of(&mut m).input[0] = info("x", 14, &["4"]);
    assert!(fails(&m).1.contains("found COMPLEX64"));
    graph_of(&mut m).input[0].r#type = None;
    assert!(fails(&m).1.contains("needs a declared type"));
}

#[test]
fn symbols_keep_names_and_unnamed_dims_get_them() {
    let mut m = model(vec![node("Identity", "i", &["x"], &["y"])]);
    let dims = ["batch size", "", "past", "past + 1", "2x"];
    graph_of(&mut m).input[0] = info("x", 1, &dims);
    graph_of(&mut m).output[0] = info("y", 1, &dims);
    let m = read(&m).unwrap();
    assert_eq!(
        m.graph.fact(m.graph.inputs[0]).to_string(),
        "f32[batch_size, x_d1, past, past+1, _2x]"
    );
}

#[test]
fn every_unsupported_node_is_told_at_once() {
    let mut m = model(vec![
        node("ImageDecoder", "decode", &["x"], &["h"]),
        node("Relu", "r", &["h"], &["t"]),
        NodeProto { domain: Some("com.acme".to_owned()), ..node("FancyPool", "", &["t"], &["y"]) },
    ]);
    graph_of(&mut m).output[0].r#type = None;
    let error = read(&m).unwrap_err();
    assert!(error.is_unsupported());
    assert_eq!(error.code(), "onnx::unsupported-operator");
    assert_eq!(error.to_string(), "cannot import `ImageDecoder`, `com.acme.FancyPool` (2 nodes)");
    assert_eq!(
        error.notes(),
        [
            "node `decode` (ImageDecoder, opset 17): encoded images are not supported",
            "node `y` (com.acme.FancyPool, opset 0): the domain `com.acme` has no such operator here"
        ]
    );
}

#[test]
fn foreign_nodes_of_declared_type_stay_whole() {
    let mut m = model(vec![
        with(
            NodeProto { domain: Some("com.acme".to_owned()), ..node("Fancy", "f", &["x"], &["t"]) },
            "alpha",
            |a| a.i = Some(3),
        ),
        node("Relu", "r", &["t"], &["y"]),
    ]);
    m.opset_import
        .push(OperatorSetIdProto { domain: Some("com.acme".to_owned()), version: Some(2) });
    graph_of(&mut m).value_info.push(info("t", 1, &["b", "4"]));
    let graph = read(&m).unwrap().graph;
    let written = crate::export(&graph).unwrap();
    let again = ModelProto::decode(written.as_slice()).unwrap();
    assert!(again.opset_import.iter().any(|o| o.domain() == "com.acme" && o.version() == 2));
    let fancy = &again.graph.as_ref().unwrap().node[0];
    assert_eq!((fancy.op_type(), fancy.attribute[0].i()), ("Fancy", 3));
    assert!(import(Storage::copy_of(&written), None).is_ok());
}

/// `y = relu(fancy(relu(x)))` over `x: f32[sizes]`; `r` and `t` lie between and are declared as said.
fn around_a_foreign_node(sizes: [&str; 2], r: [&str; 2], t: [&str; 2]) -> ModelProto {
    let mut m = model(vec![
        node("Relu", "first", &["x"], &["r"]),
        NodeProto { domain: Some("com.acme".to_owned()), ..node("Fancy", "f", &["r"], &["t"]) },
        node("Relu", "last", &["t"], &["y"]),
    ]);
    m.opset_import
        .push(OperatorSetIdProto { domain: Some("com.acme".to_owned()), version: Some(2) });
    let graph = graph_of(&mut m);
    graph.input[0] = info("x", 1, &sizes);
    graph.output[0] = info("y", 1, &t);
    graph.value_info = vec![info("r", 1, &r), info("t", 1, &t)];
    m
}

#[test]
fn names_of_sizes_mean_what_values_of_that_size_have() {
    for (sizes, r, t, found) in [
        (["b", "4"], ["n", "4"], ["n", "7"], "f32[b, 7]"),
        (["3", "4"], ["n", "m"], ["m", "n"], "f32[4, 3]"),
        (["3", "3"], ["n", "n"], ["n", "n"], "f32[3, 3]"),
        // A name for two sizes means neither, a name of an input's size means that.
        (["3", "4"], ["n", "n"], ["n", "2"], "f32[n, 2]"),
        (["b", "4"], ["4", "b"], ["b", "2"], "f32[b, 2]"),
        (["b", "4"], ["b", "4"], ["n", "2"], "f32[n, 2]"),
    ] {
        let graph = read(&around_a_foreign_node(sizes, r, t)).unwrap().graph;
        let y = graph.outputs[0];
        assert_eq!(graph.fact(y).to_string(), found, "{sizes:?} {r:?} {t:?}");
        assert_eq!(&*graph.value(y).name, "y");
        assert!(bricolage_ir::verify(&graph).is_empty());
    }
}

#[test]
fn inputs_and_outputs_are_known_without_the_nodes() {
    let mut m = model(vec![node("Unheard", "u", &["x", "w"], &["y"])]);
    let graph = graph_of(&mut m);
    graph.input.push(info("w", 1, &["2"]));
    graph.initializer = vec![floats("w", &[2], &[1.0, 2.0])];
    graph.output.push(info("z", 7, &["b", "n"]));
    let known = interface::interface(&m, 1).unwrap();
    let facts = |all: &[ValueId]| -> Vec<String> {
        all.iter().map(|&v| format!("{} {}", known.value(v).name, known.fact(v))).collect()
    };
    assert_eq!(facts(&known.inputs), ["x f32[b, 4]"]);
    assert_eq!(facts(&known.outputs), ["y f32[b, 4]", "z i64[b, n]"]);
    graph_of(&mut m).output[1].r#type = None;
    let said = interface::interface(&m, 1).unwrap_err().to_string();
    assert_eq!(said, "graph output `z` needs a declared type, found none");
}

#[test]
fn a_graph_needs_outputs_and_each_once() {
    let mut m = model(vec![node("Relu", "r", &["x"], &["y"])]);
    graph_of(&mut m).output.clear();
    for error in [read(&m).unwrap_err(), interface::interface(&m, 1).unwrap_err()] {
        assert_eq!(error.to_string(), "graph `g` needs at least one output, found none");
        assert_eq!((error.code(), error.is_unsupported()), ("onnx::no-outputs", false));
    }
    graph_of(&mut m).output = vec![info("y", 1, &["b", "4"]); 2];
    for error in [read(&m).unwrap_err(), interface::interface(&m, 1).unwrap_err()] {
        assert_eq!(error.to_string(), "needs one definition of `y`, found two graph outputs");
        assert_eq!((error.code(), error.is_unsupported()), ("onnx::duplicate-name", false));
    }
}

#[test]
fn attributes_that_are_not_known_are_not_ignored() {
    let m = model(vec![with(node("Relu", "r", &["x"], &["y"]), "slope", |a| a.f = Some(0.1))]);
    let mut m = m;
    graph_of(&mut m).output[0].r#type = None;
    assert_eq!(
        read(&m).unwrap_err().notes(),
        ["node `r` (Relu, opset 17): attribute `slope` is not known"]
    );
}

#[test]
fn shapes_computed_from_shapes_resolve() {
    // y = reshape(x, concat(gather(shape(x), 0), [2], [-1]))
    let mut m = model(vec![
        node("Shape", "s", &["x"], &["shape"]),
        node("Gather", "g", &["shape", "zero"], &["b"]),
        node("Concat", "c", &["b", "rest"], &["to"]),
        node("Reshape", "r", &["x", "to"], &["y"]),
    ]);
    let graph = graph_of(&mut m);
    graph.node[2] = with(graph.node[2].clone(), "axis", |a| a.i = Some(0));
    graph.initializer = vec![longs("zero", &[0]), longs("rest", &[2, -1])];
    graph.output[0] = info("y", 1, &["b", "2", "2"]);
    let m = read(&m).unwrap();
    assert_eq!(m.graph.fact(m.graph.outputs[0]).to_string(), "f32[b, 2, 2]");
    assert_eq!(m.graph.nodes().count(), 1, "what the shape came from is not needed");
    assert!(m.warnings.is_empty());
}

#[test]
fn sizes_cannot_grow_without_bound() {
    // Every step squares a size, or divides it once more.
    let chain = |op: &str, count: usize| -> Vec<NodeProto> {
        let name = |i: usize| if i == 0 { "x".to_owned() } else { format!("t{i}") };
        let mut nodes = Vec::new();
        for i in 0..count {
            let (from, to, shape) = (name(i), name(i + 1), format!("s{i}"));
            if op == "Tile" {
                nodes.push(node("Shape", "", &[&from], &[&shape]));
                nodes.push(node("Tile", "", &[&from, &shape], &[&to]));
            } else {
                let pool = with(node("MaxPool", "", &[&from], &[&to]), "kernel_shape", |a| {
                    a.ints = vec![3]
                });
                nodes.push(with(pool, "strides", |a| a.ints = vec![2]));
            }
        }
        nodes.push(node("Relu", "last", &[&name(count)], &["y"]));
        nodes
    };
    for (op, dims) in [("Tile", &["b+1", "b"][..]), ("MaxPool", &["1", "1", "h"])] {
        let mut m = model(chain(op, 5000));
        graph_of(&mut m).input[0] = info("x", 1, dims);
        graph_of(&mut m).output[0].r#type = None;
        let (code, text) = fails(&m);
        assert_eq!(code, "onnx::unsupported-operator", "{text}");
        let notes = read(&m).unwrap_err().notes();
        assert!(notes[0].contains("needs sizes of at most 1000 symbols"), "{notes:?}");
    }
}

#[test]
fn declared_types_that_contradict_are_told() {
    let mut m = model(vec![node("Relu", "r", &["x"], &["y"])]);
    graph_of(&mut m).output[0] = info("y", 1, &["b", "5"]);
    let warnings = read(&m).unwrap().warnings;
    assert_eq!(warnings, ["value `y` is declared as f32[b, 5], and is f32[b, 4]"]);
}

#[test]
fn a_declared_element_type_that_contradicts_is_refused() {
    for output in [true, false] {
        let mut m =
            model(vec![node("Relu", "r", &["x"], &["m"]), node("Relu", "s", &["m"], &["y"])]);
        let name = if output { "y" } else { "m" };
        match output {
            true => graph_of(&mut m).output[0] = info(name, 7, &["b", "4"]),
            false => graph_of(&mut m).value_info.push(info(name, 7, &["b", "4"])),
        }
        let text = format!("value `{name}` is declared as i64[b, 4], found f32[b, 4]");
        assert_eq!(fails(&m), ("onnx::declared-type", text));
    }
    // Symbols fit every size.
    let mut m = model(vec![node("Relu", "r", &["x"], &["y"])]);
    graph_of(&mut m).output[0] = info("y", 1, &["rows", "columns"]);
    assert!(read(&m).unwrap().warnings.is_empty());
}

#[test]
fn inputs_and_outputs_have_names_of_their_own() {
    let mut m = model(vec![node("Relu", "r", &["x"], &["y"])]);
    let y = graph_of(&mut m).output[0].clone();
    graph_of(&mut m).output.push(y);
    let text = "needs one definition of `y`, found two graph outputs".to_owned();
    assert_eq!(fails(&m), ("onnx::duplicate-name", text));
    let mut m = model(vec![node("Relu", "r", &["x"], &["y"])]);
    graph_of(&mut m).input.push(info("", 1, &["2"]));
    let text = "needs a name for every graph input, found an empty one".to_owned();
    assert_eq!(fails(&m), ("onnx::no-name", text));
    // An input may be an output.
    let mut m = model(vec![node("Relu", "r", &["x"], &["y"])]);
    graph_of(&mut m).output.push(info("x", 1, &["b", "4"]));
    assert_eq!(read(&m).unwrap().graph.outputs.len(), 2);
}

#[test]
fn windows_and_mirrors_that_do_not_fit_are_refused() {
    let image = |op: NodeProto| {
        let mut m = model(vec![op]);
        graph_of(&mut m).input[0] = info("x", 1, &["1", "1", "4", "4"]);
        graph_of(&mut m).output[0].r#type = None;
        m
    };
    let pool = |kernel: i64, stride: i64, ceil: i64| {
        let n = with(node("MaxPool", "p", &["x"], &["y"]), "kernel_shape", |a| {
            a.ints = vec![kernel; 2];
        });
        let n = with(n, "strides", |a| a.ints = vec![stride; 2]);
        image(with(n, "ceil_mode", |a| a.i = Some(ceil)))
    };
    for stride in [1, 2, 9] {
        let (code, text) = fails(&pool(5, stride, 0));
        assert_eq!(code, "type::mismatch");
        assert!(text.contains("padded dim of 4, found a window over 5"), "{text}");
    }
    // Part of a window counts.
    read(&pool(5, 2, 1)).unwrap();
    fails(&pool(5, 1, 1));
    let pads = |mode: &str, by: i64| {
        let mut m = image(with(node("Pad", "p", &["x", "by"], &["y"]), "mode", |a| {
            a.s = Some(mode.as_bytes().to_vec().into());
        }));
        graph_of(&mut m).initializer.push(longs("by", &[0, 0, by, 0, 0, 0, 0, 0]));
        m
    };
    read(&pads("reflect", 3)).unwrap();
    read(&pads("edge", 4)).unwrap();
    let (code, text) = fails(&pads("reflect", 4));
    assert_eq!(code, "type::mismatch");
    assert!(text.contains("below the size 4 of dim 2") && text.contains("[0, 0, 4, 0]"), "{text}");
}

#[test]
fn a_branch_of_constant_condition_is_taken() {
    let side = |op: &str| GraphProto {
        node: vec![node(op, "inner", &["x"], &["inner_y"])],
        output: vec![info("inner_y", 1, &["b", "4"])],
        ..GraphProto::default()
    };
    let mut branch =
        with(node("If", "if", &["c"], &["y"]), "then_branch", |a| a.g = Some(side("Neg")));
    branch = with(branch, "else_branch", |a| a.g = Some(side("Abs")));
    let mut m = model(vec![branch.clone()]);
    let condition = TensorProto {
        name: Some("c".to_owned()),
        data_type: Some(9),
        int32_data: vec![0],
        ..TensorProto::default()
    };
    graph_of(&mut m).initializer.push(condition);
    let graph = read(&m).unwrap().graph;
    let x = Tensor::of(&[1, 4], &[-1f32, 2.0, -3.0, 4.0]);
    let y = evaluate(&graph, &[x.into()]).unwrap();
    assert_eq!(y[0].as_tensor().unwrap().to_f64(), [1.0, 2.0, 3.0, 4.0]);
    let mut m = model(vec![branch]);
    graph_of(&mut m).input.push(info("c", 9, &[]));
    let graph = read(&m).unwrap().graph;
    for (taken, sign) in [(true, -1.0), (false, 1.0)] {
        let x = Tensor::of(&[1, 4], &[1f32, 2.0, 3.0, 4.0]);
        let c = Tensor::of_bool(&[], &[taken]);
        let y = evaluate(&graph, &[x.into(), c.into()]).unwrap();
        assert_eq!(y[0].as_tensor().unwrap().to_f64(), [sign, 2.0 * sign, 3.0 * sign, 4.0 * sign]);
    }
}

#[test]
fn old_forms_of_operators_are_read() {
    let cases = [
        with(node("Unsqueeze", "u", &["x"], &["y"]), "axes", |a| a.ints = vec![0]),
        with(node("Softmax", "s", &["x"], &["y"]), "axis", |a| a.i = Some(0)),
        with(with(node("Clip", "c", &["x"], &["y"]), "min", |a| a.f = Some(0.0)), "max", |a| {
            a.f = Some(1.0)
        }),
        with(node("Pad", "p", &["x"], &["y"]), "pads", |a| a.ints = vec![0, 1, 0, 1]),
        with(
            with(node("Slice", "s", &["x"], &["y"]), "starts", |a| a.ints = vec![1]),
            "ends",
            |a| a.ints = vec![3],
        ),
        with(node("Upsample", "u", &["x", "scales"], &["y"]), "mode", |a| {
            a.s = Some(Bytes::from_static(b"nearest"))
        }),
    ];
    for case in cases {
        let op = case.op_type().to_owned();
        let mut m = model(vec![case]);
        m.opset_import[0].version = Some(9);
        graph_of(&mut m).input[0] = info("x", 1, &["6", "4"]);
        graph_of(&mut m).output[0].r#type = None;
        graph_of(&mut m).initializer.push(floats("scales", &[2], &[1.0, 2.0]));
        read(&m).unwrap_or_else(|e| panic!("{op}: {e}"));
    }
}

fn external(location: &str, offset: &str, length: &str) -> ModelProto {
    let entry = |key: &str, value: &str| StringStringEntryProto {
        key: Some(key.to_owned()),
        value: Some(value.to_owned()),
    };
    let mut m = model(vec![node("Add", "s", &["x", "w"], &["y"])]);
    graph_of(&mut m).initializer.push(TensorProto {
        float_data: Vec::new(),
        external_data: vec![
            entry("location", location),
            entry("offset", offset),
            entry("length", length),
        ],
        data_location: Some(DataLocation::External as i32),
        ..floats("w", &[4], &[])
    });
    m
}

#[test]
#[cfg(target_pointer_width = "64")]
fn external_data_lie_beyond_two_gibibytes() {
    use std::io::{Seek, SeekFrom, Write};
    let folder = std::env::temp_dir().join(format!("bricolage-large-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    // All but the end is a hole, which takes no room on the disk.
    let at = (2u64 << 30) + 4096;
    let mut file = std::fs::File::create(folder.join("w.bin")).unwrap();
    file.seek(SeekFrom::Start(at)).unwrap();
    let data: Vec<u8> = [1f32, 2.0, 3.0, 4.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    file.write_all(&data).unwrap();
    let m = external("w.bin", &at.to_string(), "16");
    let read = import(Storage::copy_of(&m.encode_to_vec()), Some(&folder));
    std::fs::remove_dir_all(&folder).unwrap();
    let read = read.unwrap();
    let w = read.graph.find("w").unwrap();
    assert_eq!(read.graph.constant_of(w).unwrap().to_f64(), [1.0, 2.0, 3.0, 4.0]);
}

#[test]
fn external_data_stay_inside_the_folder() {
    let folder = std::env::temp_dir().join(format!("bricolage-external-{}", std::process::id()));
    let inside = folder.join("model");
    std::fs::create_dir_all(&inside).unwrap();
    let data: Vec<u8> = [0f32, 1.0, 2.0, 3.0, 4.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    std::fs::write(inside.join("w.bin"), &data).unwrap();
    std::fs::write(folder.join("secret.bin"), &data).unwrap();
    let read = |m: &ModelProto| import(Storage::copy_of(&m.encode_to_vec()), Some(&inside));
    let m = read(&external("w.bin", "4", "16")).unwrap();
    let w = m.graph.find("w").unwrap();
    assert_eq!(m.graph.constant_of(w).unwrap().to_f64(), [1.0, 2.0, 3.0, 4.0]);
    assert_eq!(m.external_bytes, 20);
    std::fs::write(inside.join("w.bin"), [&data[..16], &[9, 9, 9, 9]].concat()).unwrap();
    assert_ne!(read(&external("w.bin", "4", "16")).unwrap().hash, m.hash);
    for (location, offset, length, why) in [
        ("../secret.bin", "0", "16", "needs a relative path inside the model's folder"),
        ("/etc/passwd", "0", "16", "needs a relative path inside the model's folder"),
        ("", "0", "16", "needs a relative path inside the model's folder"),
        ("gone.bin", "0", "16", "needs a file in"),
        ("w.bin", "8", "16", "needs 16 bytes from byte 8 on, found a file of 20 bytes"),
        ("w.bin", "18446744073709551615", "16", "needs 16 bytes from byte"),
        ("w.bin", "0", "12", "needs a length of 16 bytes, found 12"),
        ("w.bin", "x", "16", "needs a whole number as `offset`, found `x`"),
    ] {
        let error = read(&external(location, offset, length)).unwrap_err();
        assert_eq!(error.code(), "onnx::external-data");
        let text = error.to_string();
        assert!(text.contains("tensor `w`") && text.contains(why), "{text}");
    }
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(folder.join("secret.bin"), inside.join("link.bin")).unwrap();
        let text = read(&external("link.bin", "0", "16")).unwrap_err().to_string();
        assert!(text.contains("found a link to"), "{text}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Operators with operands that may fit and the attributes that they know.
const OPERATORS: &[(&str, &str, &str)] = &[
    ("Conv", "image w", "pads strides dilations group"),
    ("ConvTranspose", "image w", "pads strides dilations group output_padding output_shape"),
    ("MaxPool", "image", "kernel_shape pads strides dilations ceil_mode"),
    ("AveragePool", "image", "kernel_shape pads strides dilations ceil_mode"),
    ("LpPool", "image", "kernel_shape pads strides dilations p ceil_mode"),
    ("GlobalLpPool", "image", "p"),
    ("InstanceNormalization", "image four four", ""),
    ("GroupNormalization", "image four four", "num_groups"),
    ("BatchNormalization", "image four four four four", "spatial"),
    ("LayerNormalization", "x four", "axis"),
    ("LRN", "image", "size"),
    ("Softmax", "image", "axis"),
    ("Hardmax", "image", "axis"),
    ("Reshape", "image a", "allowzero"),
    ("Flatten", "image", "axis"),
    ("Squeeze", "image a", "axes"),
    ("Unsqueeze", "image a", "axes"),
    ("Transpose", "image", "perm"),
    ("Expand", "x a", ""),
    ("Concat", "x x", "axis"),
    ("Split", "image a", "axis split num_outputs"),
    ("Slice", "image a b", "starts ends"),
    ("Slice", "image a b c d", ""),
    ("Slice", "flat a b c d", ""),
    ("Pad", "image a", "pads"),
    ("Pad", "flat a", "pads"),
    ("Gather", "image a", "axis"),
    ("GatherElements", "flat a", "axis"),
    ("GatherND", "image a", "batch_dims"),
    ("ScatterElements", "flat a b", "axis"),
    ("ScatterND", "flat a b", ""),
    ("Resize", "image none none a", "axes"),
    ("Resize", "image none scales", "axes"),
    ("Upsample", "image scales", ""),
    ("Range", "one two one", ""),
    ("Range", "one two two", ""),
    ("Shape", "image", "start end"),
    ("Size", "image", ""),
    ("ConstantOfShape", "a", ""),
    ("Trilu", "image one", "upper"),
    ("CumSum", "image one", "reverse"),
    ("TopK", "image one", "axis k"),
    ("OneHot", "a one two", "axis"),
    ("Tile", "image a", ""),
    ("Tile", "flat one", ""),
    ("DepthToSpace", "image", "blocksize"),
    ("SpaceToDepth", "image", "blocksize"),
    ("ReduceSum", "image a", "axes keepdims"),
    ("ReduceMean", "image", "axes keepdims"),
    ("ArgMax", "image", "axis keepdims"),
    ("EyeLike", "x", "k dtype"),
    ("CenterCropPad", "image a", "axes"),
    ("Attention", "image image image", "is_causal"),
    ("RotaryEmbedding", "image x x", "rotary_embedding_dim num_heads"),
    ("Cast", "flat", "to"),
    ("Compress", "flat a", "axis"),
    ("Mod", "flat a", "fmod"),
    ("Div", "a b", ""),
    ("Mul", "a b", ""),
    ("Pow", "a b", ""),
    ("Add", "a b", ""),
    ("Neg", "a", ""),
    ("NonZero", "a", ""),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = import(Storage::copy_of(&bytes), None);
    }

    #[test]
    fn damaged_models_never_panic(flips in proptest::collection::vec((any::<u16>(), any::<u8>()), 1..6), cut in any::<u16>()) {
        let mut m = model(vec![
            with(node("Conv", "c", &["x", "w"], &["t"]), "pads", |a| a.ints = vec![1, 1]),
            node("Relu", "r", &["t"], &["y"]),
        ]);
        graph_of(&mut m).input[0] = info("x", 1, &["b", "2", "8"]);
        graph_of(&mut m).initializer.push(floats("w", &[2, 2, 3], &[0.5; 12]));
        let mut bytes = m.encode_to_vec();
        let len = bytes.len();
        for (at, value) in flips {
            bytes[at as usize % len] ^= value;
        }
        bytes.truncate(len - cut as usize % 20);
        let _ = import(Storage::copy_of(&bytes), None);
    }

    /// Any operator with any numbers as attributes and operands: an answer, no panic, and no
    /// more memory than the model holds.
    #[test]
    fn strange_nodes_never_panic(
        op in 0..OPERATORS.len(),
        values in proptest::collection::vec((strange(), 0u8..8), 6),
        lists in proptest::collection::vec(proptest::collection::vec(strange(), 0..5), 4),
        scalars in proptest::collection::vec(strange(), 2),
        scales in proptest::collection::vec(any::<f32>(), 4),
        again in any::<bool>(),
        opset in prop_oneof![Just(9i64), Just(13), Just(17), Just(23)],
    ) {
        let (op, inputs, attributes) = OPERATORS[op];
        let inputs: Vec<&str> = inputs.split(' ').map(|n| if n == "none" { "" } else { n }).collect();
        let mut first = node(op, "n", &inputs, &["y"]);
        for (name, (value, kind)) in attributes.split_whitespace().zip(&values) {
            if *kind > 3 {
                continue;
            }
            first = with(first, name, |a| match kind {
                0 => a.i = Some(*value),
                1 => a.ints = vec![*value; 2],
                2 => a.ints = vec![1, 0, *value, 1],
                _ => a.ints = vec![*value],
            });
            if *kind == 0 && *value == 0 {
                first.attribute.pop();
            }
        }
        let mut nodes = vec![first];
        if again {
            nodes[0].output[0] = "t".to_owned();
            nodes.push(node("Mul", "m", &["t", "t"], &["y"]));
        }
        let mut m = model(nodes);
        m.opset_import[0].version = Some(opset);
        let graph = graph_of(&mut m);
        graph.input.push(info("image", 1, &["n", "4", "6", "6"]));
        graph.input.push(info("flat", 7, &["6"]));
        graph.initializer.extend(["a", "b", "c", "d"].iter().zip(&lists).map(|(n, l)| longs(n, l)));
        let scalar = |n: &str, v: i64| TensorProto { dims: Vec::new(), ..longs(n, &[v]) };
        graph.initializer.extend([scalar("one", scalars[0]), scalar("two", scalars[1])]);
        graph.initializer.push(floats("w", &[4, 4, 1, 1], &[0.5; 16]));
        graph.initializer.push(floats("four", &[4], &[0.5; 4]));
        graph.initializer.push(floats("scales", &[4], &scales));
        graph.output[0].r#type = None;
        if let Ok(m) = read(&m) {
            prop_assert!(bricolage_ir::verify(&m.graph).is_empty());
            if let Ok(bytes) = crate::export(&m.graph) {
                let again = import(Storage::copy_of(&bytes), None);
                prop_assert!(again.is_ok(), "{}", again.unwrap_err());
            }
        }
    }
}

fn strange() -> impl Strategy<Value = i64> {
    prop_oneof![
        -3i64..8,
        Just(i64::MAX),
        Just(i64::MIN),
        Just(i64::from(i32::MAX)),
        Just(i64::from(i32::MIN)),
        Just(1 << 40),
        Just(-1),
        Just(1),
    ]
}
