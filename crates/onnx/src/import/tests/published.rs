//! What published models do that the standard alone does not tell.

use super::*;
use bricolage_tensor::DType;

fn evaluated(m: &ModelProto, inputs: &[Tensor]) -> Vec<Tensor> {
    let graph = read(m).unwrap_or_else(|e| panic!("{e} {:?}", e.notes())).graph;
    let data: Vec<Datum> = inputs.iter().cloned().map(Datum::from).collect();
    let results = evaluate(&graph, &data).unwrap();
    results.iter().map(|d| d.as_tensor().unwrap().clone()).collect()
}

fn branch(op: &str, inputs: &[&str], output: &str) -> GraphProto {
    GraphProto {
        node: vec![node(op, op, inputs, &[output])],
        output: vec![ValueInfoProto { r#type: None, ..info(output, 1, &[]) }],
        ..GraphProto::default()
    }
}

fn choice(condition: &str, then: &GraphProto, otherwise: &GraphProto, output: &str) -> NodeProto {
    let choice = node("If", "choice", &[condition], &[output]);
    let choice = with(choice, "then_branch", |a| a.g = Some(then.clone()));
    with(choice, "else_branch", |a| a.g = Some(otherwise.clone()))
}

#[test]
fn a_condition_of_one_element_has_any_number_of_dims() {
    let (neg, abs) = (branch("Neg", &["x"], "n"), branch("Abs", &["x"], "a"));
    let mut m = model(vec![choice("c", &neg, &abs, "y")]);
    graph_of(&mut m).input.push(info("c", 9, &["1", "1"]));
    let x = Tensor::from_f64(DType::F32, &[1, 4], &[1.0, -2.0, 3.0, -4.0]);
    for (taken, expected) in [(1, [-1.0, 2.0, -3.0, 4.0]), (0, [1.0, 2.0, 3.0, 4.0])] {
        let c = Tensor::from_i64(DType::Bool, &[1, 1], &[taken]);
        assert_eq!(evaluated(&m, &[x.clone(), c])[0].to_f64(), expected);
    }
    graph_of(&mut m).input[1] = info("c", 9, &["2", "1"]);
    assert!(fails(&m).1.contains("operand 0"), "{}", fails(&m).1);
}

/// A real signal may lack the dim of its parts.
#[test]
fn a_short_time_transform_takes_signals_of_two_dims() {
    let signal: Vec<f64> = (0..12).map(|i| f64::from(i * i % 7) - 3.0).collect();
    let mut spectra = Vec::new();
    for dims in [&["2", "6"][..], &["2", "6", "1"]] {
        let mut m = model(vec![node("STFT", "stft", &["x", "step", "", "length"], &["y"])]);
        let graph = graph_of(&mut m);
        graph.input = vec![info("x", 1, dims)];
        graph.output = vec![ValueInfoProto { r#type: None, ..info("y", 1, &[]) }];
        for (name, number) in [("step", 2), ("length", 4)] {
            let scalar = TensorProto { dims: Vec::new(), ..longs(name, &[number]) };
            graph.initializer.push(scalar);
        }
        let dims: Vec<i64> = dims.iter().map(|d| d.parse().unwrap()).collect();
        spectra.push(evaluated(&m, &[Tensor::from_f64(DType::F32, &dims, &signal)]).remove(0));
    }
    assert_eq!(spectra[0].dims(), [2, 2, 3, 2]);
    assert_eq!(spectra[0], spectra[1]);
}

#[test]
fn a_scaler_moves_and_stretches_every_feature() {
    let scaled = |ty: i32| {
        let scaler = node("Scaler", "s", &["x"], &["y"]);
        let scaler = with(scaler, "offset", |a| a.floats = vec![1.0, 2.0, 3.0, 4.0]);
        let mut scaler = with(scaler, "scale", |a| a.floats = vec![0.5]);
        scaler.domain = Some("ai.onnx.ml".to_owned());
        let mut m = model(vec![scaler]);
        let domain = Some("ai.onnx.ml".to_owned());
        m.opset_import.push(OperatorSetIdProto { domain, version: Some(1) });
        graph_of(&mut m).input[0] = info("x", ty, &["b", "4"]);
        m
    };
    let numbers = [2.0, 2.0, 2.0, 2.0, -1.0, 0.0, 5.0, 8.0];
    for (ty, dtype) in [(1, DType::F32), (11, DType::F64), (7, DType::I64)] {
        let x = Tensor::from_f64(dtype, &[2, 4], &numbers);
        let y = evaluated(&scaled(ty), &[x]).remove(0);
        assert_eq!(y.dtype(), DType::F32);
        assert_eq!(y.to_f64(), [0.5, 0.0, -0.5, -1.0, -1.0, -1.0, 1.0, 2.0]);
    }
    let mut bare = scaled(1);
    graph_of(&mut bare).node[0].attribute.clear();
    assert!(fails(&bare).1.contains("`offset`"));
}

/// A start that is a size below 0 counts from the end, as attention over earlier places writes it.
#[test]
fn a_slice_may_start_a_whole_size_before_the_end() {
    let mut m = model(vec![
        node("Shape", "sizes", &["x"], &["sizes"]),
        node("Gather", "size", &["sizes", "place"], &["size"]),
        node("Neg", "back", &["size"], &["start"]),
        node("Slice", "cut", &["x", "start", "far", "axis"], &["t"]),
        node("Relu", "r", &["t"], &["y"]),
    ]);
    for (name, number) in [("place", 0), ("far", i64::MAX), ("axis", 0)] {
        graph_of(&mut m).initializer.push(longs(name, &[number]));
    }
    let graph = read(&m).unwrap().graph;
    assert_eq!(graph.fact(graph.outputs[0]).to_string(), "f32[b, 4]");
    let x = Tensor::from_f64(DType::F32, &[2, 4], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    assert_eq!(evaluated(&m, std::slice::from_ref(&x))[0], x);
}

/// The number of dims that a branch gives hangs on a size: known sizes decide it.
#[test]
fn given_sizes_decide_branches() {
    let mut squeeze = branch("Squeeze", &["x", "first"], "squeezed");
    squeeze.initializer.push(longs("first", &[0]));
    let keep = branch("Identity", &["x"], "kept");
    let mut m = model(vec![
        node("Shape", "sizes", &["x"], &["sizes"]),
        node("Gather", "size", &["sizes", "zero"], &["size"]),
        node("Equal", "one", &["size", "one"], &["single"]),
        choice("single", &squeeze, &keep, "z"),
        node("Shape", "known", &["z"], &["y"]),
    ]);
    let graph = graph_of(&mut m);
    graph.output = vec![ValueInfoProto { r#type: None, ..info("y", 7, &[]) }];
    for (name, number) in [("zero", 0), ("one", 1)] {
        graph.initializer.push(TensorProto { dims: Vec::new(), ..longs(name, &[number]) });
    }
    let open = read(&m).unwrap_err();
    assert!(open.is_unsupported() && open.help().unwrap().contains("sizes"), "{open}");
    for (given, expected) in [([1, 4], vec![4.0]), ([3, 4], vec![3.0, 4.0])] {
        let bytes = Storage::copy_of(&m.encode_to_vec());
        let graph = import_sized(bytes, None, &[("x", &given)]).unwrap().graph;
        assert_eq!(graph.fact(graph.inputs[0]).to_string(), format!("f32[{}, 4]", given[0]));
        let x =
            Datum::from(Tensor::from_f64(DType::F32, &given, &vec![0.0; given[0] as usize * 4]));
        assert_eq!(evaluate(&graph, &[x]).unwrap()[0].as_tensor().unwrap().to_f64(), expected);
    }
    // Sizes that do not fit are for others to tell.
    let bytes = Storage::copy_of(&m.encode_to_vec());
    assert!(import_sized(bytes, None, &[("x", &[1, 4, 1])]).unwrap_err().is_unsupported());
}

/// Of two branches, one for each length of a signal, only one fits given sizes.
#[test]
fn a_branch_that_given_sizes_do_not_fit_is_never_taken() {
    let then = branch("Squeeze", &["x", "first"], "squeezed");
    let mut otherwise = branch("MatMul", &["x", "w"], "product");
    otherwise.initializer.push(floats("w", &[4, 2], &[1.0; 8]));
    let mut m = model(vec![choice("c", &then, &otherwise, "z"), node("Relu", "r", &["z"], &["y"])]);
    let graph = graph_of(&mut m);
    graph.initializer.push(longs("first", &[0]));
    graph.input.push(info("c", 9, &[]));
    graph.output = vec![ValueInfoProto { r#type: None, ..info("y", 1, &[]) }];
    assert!(read(&m).unwrap_err().is_unsupported());
    let bytes = Storage::copy_of(&m.encode_to_vec());
    let read = import_sized(bytes, None, &[("x", &[3, 4])]).unwrap();
    assert_eq!(read.graph.fact(read.graph.outputs[0]).to_string(), "f32[3, 2]");
    assert!(read.warnings[0].contains("`choice`") && read.warnings[0].contains("else_branch"));
}

#[test]
fn given_sizes_stand_wherever_their_names_do() {
    let mut m = model(vec![node("Add", "sum", &["x", "z"], &["y"])]);
    graph_of(&mut m).input.push(info("z", 1, &["b", "4"]));
    let sized = |sizes: &[(&str, &[i64])]| {
        let graph = import_sized(Storage::copy_of(&m.encode_to_vec()), None, sizes).unwrap().graph;
        let types = graph.inputs.iter().map(|&v| graph.fact(v).to_string());
        types.collect::<Vec<_>>()
    };
    assert_eq!(sized(&[("x", &[5, 4])]), ["f32[5, 4]", "f32[5, 4]"]);
    // Of sizes that contradict each other none is taken.
    assert_eq!(sized(&[("x", &[5, 4]), ("z", &[6, 4])]), ["f32[b, 4]", "f32[b, 4]"]);
}

#[test]
fn maps_are_refused_with_a_way_out() {
    let mut zip = node("ZipMap", "zip", &["x"], &["y"]);
    zip.domain = Some("ai.onnx.ml".to_owned());
    let mut m = model(vec![zip]);
    let domain = Some("ai.onnx.ml".to_owned());
    m.opset_import.push(OperatorSetIdProto { domain, version: Some(1) });
    graph_of(&mut m).output[0].r#type = None;
    assert!(read(&m).unwrap_err().notes()[0].contains("zipmap=False"));
}
