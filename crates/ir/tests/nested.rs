//! Graphs inside ops, and sizes that only evaluation tells.
#![allow(clippy::unwrap_used)] // a panic is how a test fails, also in the functions that tests share

use bricolage_ir::{
    Fault, Graph, Op, evaluate, evaluate_noisy,
    ops::{Binary, Expand, If, Nested, NonZero, Unary},
    origin, parse, print, verify,
};
use bricolage_tensor::{DType, Datum, Dim, Shape, Tensor, TensorType, Type};

fn vector(size: &str) -> Type {
    let shape = Shape(vec![Dim::parse(size).unwrap()]);
    TensorType { dtype: DType::F32, shape }.into()
}

fn apply(f: Unary) -> Graph {
    let mut graph = Graph::new("side");
    let x = graph.input("x", vector("n"));
    graph.outputs = vec![graph.add1(f, &[x], origin("f")).unwrap()];
    graph
}

fn choice(then: Graph) -> Graph {
    let mut graph = Graph::new("choice");
    let c = graph.input("c", TensorType::fixed(DType::Bool, &[]));
    let x = graph.input("x", vector("n"));
    let (then, otherwise) = (Nested::new(then).unwrap(), Nested::new(apply(Unary::Abs)).unwrap());
    let op = If { then, otherwise, outputs: vec![vector("n")] };
    graph.outputs = graph.add(op, &[c, x], origin("if")).unwrap();
    graph
}

#[test]
fn symbols_around_bind_inside() {
    let graph = choice(apply(Unary::Neg));
    assert_eq!(verify(&graph), []);
    let bound = graph.bind(&|s| (&*s.0 == "n").then(|| Dim::from(3))).unwrap();
    assert_eq!(verify(&bound), []);
    let (text, aside) = print(&bound);
    assert!(text.contains("input %x: f32[3]") && !text.contains("f32[n]"), "{text}");
    let again = parse(&text, &aside).unwrap();
    let inputs: Vec<Datum> =
        vec![Tensor::of_bool(&[], &[true]).into(), Tensor::of(&[3], &[1f32, -2.0, 3.0]).into()];
    let expected: Datum = Tensor::of(&[3], &[-1f32, 2.0, -3.0]).into();
    for graph in [&graph, &bound, &again] {
        assert_eq!(evaluate(graph, &inputs).unwrap(), std::slice::from_ref(&expected));
    }
}

#[test]
fn broken_promises_inside_are_told() {
    let mut side = apply(Unary::Neg);
    let twice = side.outputs[0];
    side.outputs.push(twice);
    let mut graph = Graph::new("choice");
    let c = graph.input("c", TensorType::fixed(DType::Bool, &[]));
    let x = graph.input("x", vector("n"));
    let (then, otherwise) = (Nested::new(side.clone()).unwrap(), Nested::new(side).unwrap());
    let op = If { then, otherwise, outputs: vec![vector("n"), vector("n")] };
    graph.outputs = graph.add(op, &[c, x], origin("if")).unwrap();
    let faults = verify(&graph);
    assert_eq!(faults.len(), 2);
    assert!(matches!(&faults[0], Fault::Nested { node, .. } if node == "if"), "{faults:?}");
    assert!(faults[0].to_string().contains("is listed twice as an output"), "{faults:?}");
}

#[test]
fn operands_must_fit_the_graph() {
    let mut graph = Graph::new("g");
    let c = graph.input("c", TensorType::fixed(DType::Bool, &[]));
    let x = graph.input("x", TensorType::fixed(DType::F64, &[2]));
    let side = Nested::new(apply(Unary::Neg)).unwrap();
    let op = If { then: side.clone(), otherwise: side, outputs: vec![vector("n")] };
    let error = graph.add(op, &[c, x], origin("if")).unwrap_err().to_string();
    assert_eq!(error, "needs f32[n] as operand 1, found f64[2]");
}

#[test]
fn graphs_inside_graphs_end_somewhere() {
    let mut graph = apply(Unary::Neg);
    for _ in 1..Nested::MOST_DEPTH {
        let mut around = choice(graph);
        around.inputs.truncate(2);
        let mut next = Graph::new("next");
        let x = next.input("x", vector("n"));
        let c = next.constant("c", Tensor::of_bool(&[], &[true]));
        let node = around.nodes().next().unwrap();
        next.outputs = next.add(around.node(node).op.clone(), &[c, x], origin("if")).unwrap();
        graph = next;
    }
    let (text, aside) = print(&graph);
    assert_eq!(print(&parse(&text, &aside).unwrap()).0, text);
    let x: Datum = Tensor::of(&[1], &[2f32]).into();
    assert_eq!(evaluate(&graph, &[x]).unwrap(), [Tensor::of(&[1], &[-2f32]).into()]);
    let error = Nested::new(choice(graph)).unwrap_err().to_string();
    assert!(error.contains("at most 8 graphs inside each other"), "{error}");
}

#[test]
fn sizes_found_by_one_node_are_known_to_the_next() {
    let mut graph = Graph::new("found");
    let x = graph.input("x", vector("n"));
    let found = Dim::symbol("found");
    let places = graph.add1(NonZero { found: found.clone() }, &[x], origin("nz")).unwrap();
    let one = graph.constant("one", Tensor::of(&[], &[1i64]));
    let to = Shape(vec![Dim::from(2), found]);
    let ones = graph.add1(Op::from(Expand { to }), &[one], origin("ones")).unwrap();
    let sum = graph.add1(Binary::Add, &[ones, ones], origin("sum")).unwrap();
    let first = graph.producer(places).unwrap();
    graph.add_control_edge(first, graph.producer(ones).unwrap());
    graph.outputs = vec![places, sum];
    assert_eq!(verify(&graph), []);
    let x = Datum::from(Tensor::of(&[4], &[0f32, 1.0, 0.0, 5.0]));
    let results = evaluate(&graph, std::slice::from_ref(&x)).unwrap();
    assert_eq!(results[0], Tensor::of(&[1, 2], &[1i64, 3]).into());
    assert_eq!(results[1], Tensor::of(&[2, 2], &[2i64; 4]).into());
    assert_eq!(evaluate_noisy(&graph, &[x], &|_| 0.0, 1).unwrap(), results);
}
