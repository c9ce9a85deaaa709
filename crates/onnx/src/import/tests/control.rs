//! Graphs inside nodes, functions of a model, lists, and sizes that are data.

use super::*;
use crate::proto::FunctionProto;
use bricolage_tensor::Datum;

fn inner(nodes: Vec<NodeProto>, inputs: &[(&str, i32)], outputs: &[&str]) -> GraphProto {
    GraphProto {
        name: Some("inner".to_owned()),
        node: nodes,
        input: inputs.iter().map(|(n, ty)| info(n, *ty, &[])).collect(),
        output: outputs
            .iter()
            .map(|n| ValueInfoProto { r#type: None, ..info(n, 1, &[]) })
            .collect(),
        ..GraphProto::default()
    }
}

fn run(m: &ModelProto, inputs: &[Datum]) -> Vec<Datum> {
    let graph = read(m).unwrap_or_else(|e| panic!("{e} {:?}", e.notes())).graph;
    assert_eq!(bricolage_ir::verify(&graph), []);
    let (text, aside) = bricolage_ir::print(&graph);
    let parsed = bricolage_ir::parse(&text, &aside).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(bricolage_ir::print(&parsed).0, text);
    let results = evaluate(&graph, inputs).unwrap();
    assert_eq!(evaluate(&parsed, inputs).unwrap(), results);
    let bytes = crate::export(&graph).unwrap();
    let again = import(Storage::copy_of(&bytes), None);
    let again = again.unwrap_or_else(|e| panic!("{e} {:?}", e.notes())).graph;
    assert_eq!(evaluate(&again, inputs).unwrap(), results);
    results
}

fn numbers(datum: &Datum) -> Vec<f64> {
    datum.as_tensor().unwrap().to_f64()
}

/// A loop that reads a value of the model, one of the loop around it and a large constant of its own.
#[test]
fn nested_loops_read_from_around() {
    let sum = inner(
        vec![
            node("Identity", "go", &["c2"], &["go2"]),
            node("Add", "a", &["s2", "x"], &["t2"]),
            node("Add", "b", &["t2", "shift"], &["u2"]),
            node("Add", "m", &["u2", "table"], &["next2"]),
        ],
        &[("i2", 7), ("c2", 9), ("s2", 1)],
        &["go2", "next2"],
    );
    let mut sum = sum;
    sum.initializer.push(floats("table", &[1, 4], &[0.0, 1.0, 2.0, 3.0]));
    let mut outer = inner(
        vec![
            node("Cast", "cast", &["i1"], &["shift"]),
            node("Identity", "go", &["c1"], &["go1"]),
            with(node("Loop", "in", &["two", "", "s1"], &["next1"]), "body", |a| {
                a.g = Some(sum.clone());
            }),
            node("ReduceSum", "r", &["next1"], &["total"]),
        ],
        &[("i1", 7), ("c1", 9), ("s1", 1)],
        &["go1", "next1", "total"],
    );
    outer.node[0] = with(outer.node[0].clone(), "to", |a| a.i = Some(1));
    let mut m = model(vec![with(
        node("Loop", "out", &["three", "", "x"], &["y", "totals"]),
        "body",
        |a| a.g = Some(outer.clone()),
    )]);
    let graph = graph_of(&mut m);
    graph.initializer.extend([longs("two", &[2]), longs("three", &[3])]);
    graph.output.push(info("totals", 1, &["3", "1", "1"]));
    let x = [1f32, 2.0, 3.0, 4.0];
    let results = run(&m, &[Tensor::of(&[1, 4], &x).into()]);
    // Each of 3 * 2 rounds adds x, the number of the outer round, and the table.
    let expected: Vec<f64> =
        (0..4).map(|i| f64::from(x[i]) * 7.0 + 2.0 * 3.0 + 6.0 * i as f64).collect();
    assert_eq!(numbers(&results[0]), expected);
    let totals: Vec<f64> = (1..=3)
        .map(|round| {
            let shifts: f64 = (0..round).map(|r| 2.0 * f64::from(r)).sum();
            let rounds = f64::from(2 * round);
            10.0 * (1.0 + rounds) + 4.0 * shifts + 6.0 * rounds
        })
        .collect();
    assert_eq!(numbers(&results[1]), totals);
}

#[test]
fn constants_larger_than_a_line_move_out_of_graphs() {
    let many: Vec<f32> = (0..20).map(|i| i as f32).collect();
    let side = |op: &str| {
        let mut side = inner(vec![node(op, "n", &["x", "many"], &["r"])], &[], &["r"]);
        side.initializer.push(floats("many", &[5, 4], &many));
        side
    };
    let branch = with(node("If", "if", &["c"], &["y"]), "then_branch", |a| a.g = Some(side("Add")));
    let branch = with(branch, "else_branch", |a| a.g = Some(side("Sub")));
    let mut m = model(vec![branch]);
    graph_of(&mut m).output[0] = info("y", 1, &["5", "4"]);
    graph_of(&mut m).input.push(info("c", 9, &[]));
    let x = Datum::from(Tensor::of(&[1, 4], &[1f32; 4]));
    let results = run(&m, &[x.clone(), Tensor::of_bool(&[], &[false]).into()]);
    assert_eq!(numbers(&results[0])[19], -18.0);
    let results = run(&m, &[x, Tensor::of_bool(&[], &[true]).into()]);
    assert_eq!(numbers(&results[0])[19], 20.0);
}

/// A state that grows from round to round has a size of its own.
#[test]
fn growing_states_and_lists_are_typed() {
    let body = inner(
        vec![
            node("Identity", "go", &["c"], &["go_on"]),
            with(node("Concat", "grow", &["s", "x"], &["longer"]), "axis", |a| a.i = Some(0)),
            node("SequenceInsert", "keep", &["all", "longer"], &["more"]),
        ],
        &[("i", 7), ("c", 9), ("s", 1), ("all", 1)],
        &["go_on", "longer", "more"],
    );
    let mut m = model(vec![
        with(node("SequenceConstruct", "e", &["x"], &["none"]), "unused", |_| {}),
        with(node("Loop", "l", &["n", "", "x", "none"], &["y", "lists"]), "body", |a| {
            a.g = Some(body.clone());
        }),
        node("SequenceLength", "len", &["lists"], &["count"]),
        node("SequenceAt", "at", &["lists", "one"], &["second"]),
    ]);
    m.graph.as_mut().unwrap().node[0].attribute.clear();
    let graph = graph_of(&mut m);
    graph.initializer.push(longs("one", &[1]));
    graph.input.push(info("n", 7, &[]));
    graph.output[0] = info("y", 1, &["rows", "4"]);
    graph.output.push(info("count", 7, &[]));
    graph.output.push(info("second", 1, &["some", "4"]));
    let x = Tensor::of(&[1, 4], &[1f32, 2.0, 3.0, 4.0]);
    let results = run(&m, &[x.into(), Tensor::of(&[], &[3i64]).into()]);
    assert_eq!(results[0].as_tensor().unwrap().dims(), [4, 4]);
    assert_eq!(numbers(&results[1]), [4.0]);
    assert_eq!(results[2].as_tensor().unwrap().dims(), [2, 4]);
}

#[test]
fn sizes_that_are_data_flow_on() {
    let mut m = model(vec![
        node("NonZero", "nz", &["x"], &["places"]),
        node("Shape", "shape", &["places"], &["dims"]),
        with(node("ConstantOfShape", "fill", &["dims"], &["zeros"]), "value", |a| {
            a.t = Some(longs("seven", &[7]));
        }),
        node("Add", "a", &["places", "zeros"], &["y"]),
    ]);
    graph_of(&mut m).output[0] = info("y", 7, &["2", "found"]);
    let results = run(&m, &[Tensor::of(&[1, 4], &[0f32, 2.0, 0.0, 4.0]).into()]);
    assert_eq!(numbers(&results[0]), [7.0, 7.0, 8.0, 10.0]);
}

fn function(name: &str, nodes: Vec<NodeProto>) -> FunctionProto {
    FunctionProto {
        name: Some(name.to_owned()),
        domain: Some("local".to_owned()),
        input: vec!["a".to_owned()],
        output: vec!["b".to_owned()],
        node: nodes,
        opset_import: vec![OperatorSetIdProto {
            version: Some(17),
            ..OperatorSetIdProto::default()
        }],
        ..FunctionProto::default()
    }
}

fn call(name: &str, label: &str, from: &str, to: &str) -> NodeProto {
    NodeProto { domain: Some("local".to_owned()), ..node(name, label, &[from], &[to]) }
}

#[test]
fn functions_are_replaced_by_their_nodes() {
    let leaky = with(node("LeakyRelu", "l", &["t"], &["b"]), "alpha", |a| {
        a.ref_attr_name = Some("slope".to_owned());
    });
    let half = function("Half", vec![node("Neg", "n", &["a"], &["t"]), leaky]);
    let twice = function(
        "Twice",
        vec![
            call("Half", "first", "a", "t"),
            with(call("Half", "second", "t", "b"), "slope", |a| {
                a.f = Some(0.5);
            }),
        ],
    );
    let mut m = model(vec![call("Twice", "c1", "x", "t"), call("Twice", "c2", "t", "y")]);
    m.functions = vec![twice, half];
    let results = run(&m, &[Tensor::of(&[1, 4], &[-1f32, 2.0, -3.0, 4.0]).into()]);
    // Without a slope the default of 0.01 holds: the attribute is left out.
    let f = |x: f64, slope: f64| if x > 0.0 { -x * slope } else { -x };
    let both = |x: f64| f(f(x, f64::from(0.01f32)), 0.5);
    let expected: Vec<f64> = [-1.0, 2.0, -3.0, 4.0].iter().map(|&x| both(both(x))).collect();
    for (a, b) in numbers(&results[0]).iter().zip(expected) {
        assert!((a - b).abs() <= 1e-6 * b.abs(), "{a} is not {b}");
    }
}

#[test]
fn functions_without_end_are_refused() {
    let mut m = model(vec![call("A", "c", "x", "y")]);
    m.functions = vec![
        function("A", vec![call("B", "b", "a", "b")]),
        function("B", vec![call("A", "a", "a", "b")]),
    ];
    let (code, text) = fails(&m);
    assert_eq!(code, "onnx::recursion");
    assert_eq!(text, "function `A` calls itself, directly or through others");
    // Each calls the next twice: 2^40 nodes.
    m.functions = (0..40)
        .map(|i| {
            let next = format!("F{}", i + 1);
            function(&format!("F{i}"), vec![call(&next, "l", "a", "t"), call(&next, "r", "t", "b")])
        })
        .collect();
    m.functions.push(function("F40", vec![node("Neg", "n", &["a"], &["b"])]));
    graph_of(&mut m).node = vec![call("F0", "c", "x", "y")];
    let (code, text) = fails(&m);
    assert_eq!(code, "onnx::too-many-nodes");
    assert!(text.contains("at most 262144 nodes"), "{text}");
    m.functions = vec![function("A", vec![node("Neg", "n", &["a"], &["b"])])];
    m.functions[0].opset_import[0].version = Some(13);
    graph_of(&mut m).node = vec![call("A", "c", "x", "y")];
    assert_eq!(fails(&m).0, "onnx::function-opset");
}

#[test]
fn graphs_inside_graphs_end_somewhere() {
    let mut side = inner(vec![node("Neg", "n", &["x"], &["r0"])], &[], &["r0"]);
    for depth in 1..10 {
        let name = format!("r{depth}");
        let branch = with(node("If", "if", &["c"], &[&name]), "then_branch", |a| {
            a.g = Some(side.clone());
        });
        let branch = with(branch, "else_branch", |a| {
            a.g = Some(inner(vec![node("Abs", "n", &["x"], &["e"])], &[], &["e"]));
        });
        side = inner(vec![branch], &[], &[&name]);
    }
    let mut m = model(vec![with(
        with(node("If", "if", &["c"], &["y"]), "then_branch", |a| a.g = Some(side.clone())),
        "else_branch",
        |a| a.g = Some(inner(vec![node("Abs", "n", &["x"], &["e"])], &[], &["e"])),
    )]);
    graph_of(&mut m).input.push(info("c", 9, &[]));
    let (code, text) = fails(&m);
    assert_eq!(code, "onnx::malformed-node");
    assert!(text.contains("at most 8 graphs inside each other"), "{text}");
}

#[test]
fn texts_are_constants_too() {
    let words = TensorProto {
        name: Some("words".to_owned()),
        dims: vec![2],
        data_type: Some(8),
        string_data: vec!["a".into(), "é".into()],
        ..TensorProto::default()
    };
    let mut m = model(vec![
        node("StringConcat", "cat", &["words", "words"], &["pairs"]),
        node("Equal", "eq", &["pairs", "words"], &["same"]),
        node("Where", "w", &["same", "pairs", "words"], &["y"]),
    ]);
    m.opset_import[0].version = Some(20);
    let graph = graph_of(&mut m);
    graph.initializer.push(words);
    graph.output[0] = info("y", 8, &["2"]);
    let results = run(&m, &[Tensor::of(&[1, 4], &[0f32; 4]).into()]);
    let Datum::Strings(y) = &results[0] else { panic!("{results:?}") };
    assert_eq!(y.elements(), ["a", "é"]);
}
