//! The graph: editing, binding, extracting, text form, verifier and evaluation.
#![allow(clippy::unwrap_used)] // a panic is how a test fails, also in the functions that tests share

#[allow(dead_code)] // each test file uses a part
mod samples;

use bricolage_ir::{
    EvalError, Fault, Graph, NodeId, Op, Origin, ParseFault, Role, Use, ValueId, evaluate,
    evaluate_from, named_inputs, ops::*, origin, parse, print, verify,
};
use bricolage_tensor::{DType, Datum, Dim, Shape, Symbol, Tensor, TensorType};
use half::{bf16, f16};
use proptest::prelude::*;
use std::{collections::HashMap, sync::Arc, time::Instant};

fn ty(dims: &[&str]) -> TensorType {
    let shape = dims.iter().map(|d| Dim::parse(d).unwrap()).collect();
    TensorType { dtype: DType::F32, shape }
}

fn ones(dims: &[i64]) -> Tensor {
    Tensor::generate(DType::F32, dims, |_| 1.0)
}

/// Two dense layers over a symbolic batch.
fn network() -> Graph {
    let mut g = Graph::new("network");
    g.ranges.0.insert(Symbol(Arc::from("n")), (1, 64));
    let mut x = g.input("x", ty(&["n", "4"]));
    for i in 0..2 {
        let w = g.constant(&format!("w{i}"), ones(&[4, 4]));
        let b = g.constant(&format!("b{i}"), ones(&[4]));
        let y = g.add1(MatMul::default(), &[x, w], origin(&format!("fc{i}"))).unwrap();
        let y = g.add1(Binary::Add, &[y, b], origin(&format!("fc{i}"))).unwrap();
        x = g.add1(Unary::Relu, &[y], origin(&format!("relu{i}"))).unwrap();
    }
    g.outputs.push(x);
    g
}

fn assert_sound(g: &Graph) {
    assert_eq!(verify(g), []);
}

fn assert_round_trips(g: &Graph) {
    let (text, aside) = print(g);
    let back = parse(&text, &aside).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_sound(&back);
    let (again, aside_again) = print(&back);
    assert_eq!(again, text);
    assert_eq!(aside_again, aside);
}

#[test]
fn sizes_flow_through_shape_chains() {
    let mut g = Graph::new("flatten");
    let x = g.input("x", ty(&["n", "3", "h"]));
    let o = || origin("chain");
    let shape = g.add1(ShapeOf { start: 0, end: 3 }, &[x], o()).unwrap();
    let first = g.constant("first", Tensor::of(&[], &[0i64]));
    let rest = g.constant("rest", Tensor::of(&[2], &[1i64, 2]));
    let n = g.add1(Gather { axis: 0 }, &[shape, first], o()).unwrap();
    let n = g.add1(Reshape { to: Shape::fixed(&[1]) }, &[n], o()).unwrap();
    let tail = g.add1(Gather { axis: 0 }, &[shape, rest], o()).unwrap();
    let two = g.constant("two", Tensor::of(&[], &[2i64]));
    let doubled = g.add1(Binary::Mul, &[tail, two], o()).unwrap();
    let joined = g.add1(Concat { axis: 0 }, &[n, doubled], o()).unwrap();
    let dims = g.fact(joined).as_dims().unwrap();
    assert_eq!(dims.iter().map(Dim::to_string).collect::<Vec<_>>(), ["n", "6", "2*h"]);
    let last = Slice {
        axes: vec![0],
        starts: vec![Dim::from(-1)],
        ends: vec![Dim::from(i64::MAX)],
        steps: vec![1],
    };
    let last = g.add1(last, &[joined], o()).unwrap();
    assert_eq!(g.fact(last).as_dims().unwrap(), [Dim::parse("2*h").unwrap()]);
    let product = Reduce { kind: ReduceKind::Product, axes: vec![0], keep_dims: false };
    let count = g.add1(product.clone(), &[rest], o()).unwrap();
    assert_eq!(g.fact(count).as_numbers(), Some(vec![2]), "known integers fold through every op");
    assert_sound(&g);
    assert_round_trips(&g);
}

#[test]
fn order_is_topological_and_stable() {
    let mut g = network();
    let nodes: Vec<NodeId> = g.nodes().collect();
    assert_eq!(g.order(), nodes);
    g.add_control_edge(nodes[5], nodes[5 - 5]);
    assert!(verify(&g).iter().any(|f| matches!(f, Fault::Cycle { .. })));
    let mut g = Graph::new("two chains");
    let x = g.input("x", ty(&["4"]));
    let a = g.add1(Unary::Exp, &[x], origin("a")).unwrap();
    let b = g.add1(Unary::Log, &[x], origin("b")).unwrap();
    g.outputs.extend([a, b]);
    let (a, b) = (g.producer(a).unwrap(), g.producer(b).unwrap());
    g.add_control_edge(b, a);
    assert_eq!(g.order(), [b, a]);
    assert_sound(&g);
    assert_round_trips(&g);
}

#[test]
fn editing_keeps_use_lists_right() {
    let mut g = network();
    let order = g.order();
    let (relu, add) = (order[2], order[1]);
    let (old, new) = (g.node(relu).outputs[0], g.node(add).outputs[0]);
    g.replace_uses(old, new);
    assert_sound(&g);
    assert!(g.uses(old).is_empty());
    assert_eq!(g.uses(new).len(), 2);
    assert_eq!(g.remove_dead(), 1);
    assert!(g.get_node(relu).is_none() && g.get_value(old).is_none());
    assert_sound(&g);
    let w = g.find("w1").unwrap();
    let w0 = g.find("w0").unwrap();
    let at = g.uses(w)[0];
    g.set_input(at, Some(w0));
    assert_sound(&g);
    assert_eq!(g.remove_dead(), 0);
    assert!(g.get_value(w).is_none(), "an unread constant goes");
    assert_eq!(&*g.rename(w0, "b1"), "b1.1", "names stay unique");
    assert_sound(&g);
    assert_round_trips(&g);
}

#[test]
fn what_only_an_unread_value_needs_goes() {
    let mut g = Graph::new("unread");
    let x = g.input("x", ty(&["2"]));
    let (shared, own) = (g.constant("shared", ones(&[2])), g.constant("own", ones(&[2])));
    let a = g.add1(Binary::Add, &[x, own], origin("a")).unwrap();
    let b = g.add1(Binary::Mul, &[a, shared], origin("b")).unwrap();
    let c = g.add1(Binary::Add, &[a, shared], origin("c")).unwrap();
    let d = g.add1(Unary::Exp, &[c], origin("d")).unwrap();
    g.outputs = vec![b, d];
    g.remove_unread(d);
    assert_eq!(g.nodes().count(), 4, "an output is needed");
    g.replace_uses(d, x);
    g.remove_unread(d);
    assert!(g.get_value(c).is_none() && g.get_value(d).is_none());
    assert!(g.get_value(a).is_some() && g.get_value(shared).is_some());
    g.replace_uses(b, x);
    g.remove_unread(b);
    assert_eq!(g.values().collect::<Vec<_>>(), [x]);
}

#[test]
fn updates_of_state_stay_alive_and_carry_over() {
    let mut g = Graph::new("counter");
    let x = g.input("x", ty(&["1"]));
    let count = g.state("count", Tensor::of(&[1], &[10f32]));
    let next = g.add1(Binary::Add, &[count, x], origin("step")).unwrap();
    let node = g.producer(next).unwrap();
    g.add_alias(node, 0, 0);
    assert_eq!(g.remove_dead(), 0);
    assert_sound(&g);
    assert_round_trips(&g);
    let one: Datum = Tensor::of(&[1], &[1f32]).into();
    let mut states = HashMap::new();
    for expected in [11.0f32, 12.0] {
        let run = evaluate_from(&g, std::slice::from_ref(&one), &states, &mut |_, _| {}).unwrap();
        states = run.states;
        assert_eq!(states[&count], Tensor::of(&[1], &[expected]));
    }
}

#[test]
fn binding_infers_anew() {
    let g = network();
    let bound = g.bind(&|s| (&*s.0 == "n").then(|| Dim::from(8))).unwrap();
    assert_sound(&bound);
    assert_eq!(bound.fact(bound.outputs[0]).to_string(), "f32[8, 4]");
    assert!(bound.ranges.0.is_empty() && bound.symbols().is_empty());
    assert_eq!(g.symbols().len(), 1);
    let named: Vec<&str> = bound.values().map(|v| &*bound.value(v).name).collect();
    assert!(g.values().all(|v| named.contains(&&*g.value(v).name)));
}

#[test]
fn equal_regions_have_equal_canonical_text() {
    let g = network();
    let order = g.order();
    let (first, second) = (&order[..3], &order[3..]);
    assert_ne!(first, second);
    assert_eq!(g.canonical(first), g.canonical(second));
    assert_ne!(g.canonical(first), g.canonical(&order[..2]));
    let boundary = g.boundary(second);
    assert_eq!(
        (boundary.inputs.len(), boundary.constants.len(), boundary.outputs.len()),
        (1, 2, 1)
    );
    let part = g.extract(second).unwrap();
    assert_sound(&part);
    assert_eq!(part.canonical(&part.order()), g.canonical(second));
    let x: Datum = ones(&[2, 4]).into();
    let whole = evaluate(&g, std::slice::from_ref(&x)).unwrap();
    let half = evaluate(&g.extract(first).unwrap(), &[x]).unwrap();
    assert_eq!(evaluate(&part, &half).unwrap(), whole);
    assert_eq!(whole[0].as_tensor().unwrap().to_f64(), [21.0; 8]);
}

#[test]
fn evaluation_names_the_node_and_the_input() {
    let g = network();
    let error = evaluate(&g, &[ones(&[2, 5]).into()]).unwrap_err();
    assert_eq!(error.to_string(), "graph input `x` needs f32[n, 4], found f32[2, 5]");
    let by_name = HashMap::from([("x".to_owned(), Datum::from(ones(&[3, 4])))]);
    let inputs = named_inputs(&g, by_name).unwrap();
    let mut seen = Vec::new();
    evaluate_from(&g, &inputs, &HashMap::new(), &mut |id, _| seen.push(id)).unwrap();
    assert_eq!(seen.len(), 6);
    assert!(matches!(named_inputs(&g, HashMap::new()), Err(EvalError::Input { .. })));
    let mut g = Graph::new("g");
    let x = g.input("x", TensorType::fixed(DType::I64, &[2]));
    let y = g.add1(Binary::Div, &[x, x], origin("quotient")).unwrap();
    g.outputs.push(y);
    let error = evaluate(&g, &[Tensor::of(&[2], &[1i64, 0]).into()]).unwrap_err();
    assert_eq!(error.to_string(), "node `quotient` (Binary): operand 1 has a divisor of 0");
}

#[test]
fn type_errors_say_what_was_needed_and_found() {
    let mut g = Graph::new("g");
    let a = g.input("a", ty(&["n", "768"]));
    let b = g.input("b", ty(&["3072", "768"]));
    let i = g.input("i", TensorType::fixed(DType::I64, &[2]));
    let mut fault =
        |op: Op, inputs: &[ValueId]| g.add(op, inputs, origin("x")).unwrap_err().to_string();
    assert_eq!(
        fault(MatMul::default().into(), &[a, b]),
        "needs operand 0 dim 1 to equal operand 1 dim 0, found 768 and 3072"
    );
    assert_eq!(fault(Unary::Exp.into(), &[i]), "needs float elements in operand 0, found i64");
    assert_eq!(fault(Binary::Add.into(), &[a]), "needs 2 operands, found 1");
    assert_eq!(
        fault(Binary::Add.into(), &[a, i]),
        "needs operands 0 and 1 to have one element type, found f32 and i64"
    );
    assert_eq!(
        fault(Softmax { axis: 2, log: false }.into(), &[a]),
        "needs an axis below 2, found 2"
    );
    assert_sound(&g);
}

#[test]
fn text_keeps_every_bit_and_name() {
    let mut g = Graph::new("odd \"names\"\n");
    let x = g.input("a b\"c\\", ty(&["floor(n+1, 2)", "max(n, 3)"]));
    let y = g.input("%", ty(&[]));
    g.constant("f32", Tensor::of(&[6], &[f32::NAN, -0.0, f32::INFINITY, 1e-45, f32::MAX, 0.1]));
    g.constant("nan", Tensor::of(&[1], &[f32::from_bits(0xffc0_1234)]));
    g.constant("f64", Tensor::of(&[3], &[f64::MIN_POSITIVE, -1.0 / 3.0, f64::NEG_INFINITY]));
    g.constant("f16", Tensor::of(&[3], &[f16::from_bits(1), f16::MAX, f16::from_bits(0x7e01)]));
    g.constant("bf16", Tensor::of(&[2], &[bf16::from_f32(0.1), bf16::NEG_INFINITY]));
    g.constant("u64", Tensor::of(&[2], &[u64::MAX, 0]));
    g.constant("i64", Tensor::of(&[], &[i64::MIN]));
    g.constant("bool", Tensor::of_bool(&[2], &[true, false]));
    g.constant("none", Tensor::of::<f32>(&[0, 3], &[]));
    g.constant("large", Tensor::generate(DType::F32, &[17], |i| i as f64));
    let names: Origin = Arc::from([Arc::from("/x/Exp_1"), Arc::from("tab\there")]);
    let z = g.add1(Unary::LeakyRelu { alpha: 0.1f32.into() }, &[x], names).unwrap();
    g.outputs.extend([z, y]);
    assert_sound(&g);
    let (text, aside) = print(&g);
    let back = parse(&text, &aside).unwrap_or_else(|e| panic!("{e}\n{text}"));
    assert_eq!(back.name, g.name);
    for (a, b) in g.values().zip(back.values()) {
        assert_eq!(g.value(a).fact, back.value(b).fact);
        assert_eq!(g.value(a).name, back.value(b).name);
        if let (Role::Constant(a), Role::Constant(b)) = (&g.value(a).role, &back.value(b).role) {
            assert_eq!(a, b);
        }
    }
    assert_round_trips(&g);
}

#[test]
fn every_op_round_trips_in_a_graph() {
    let mut g = Graph::new("all");
    for (i, sample) in samples::all().iter().enumerate() {
        let mut inputs = Vec::new();
        for (j, datum) in sample.inputs.iter().enumerate() {
            let name = format!("c{i}.{j}");
            inputs.push(datum.as_ref().map(|d| match d.as_tensor() {
                Some(t) => g.constant(&name, t.clone()),
                None => g.input(&name, d.ty().unwrap()),
            }));
        }
        let outputs = g.add(sample.op.clone(), &inputs, origin(&format!("op{i}"))).unwrap();
        g.outputs.extend(outputs);
    }
    assert_sound(&g);
    assert_round_trips(&g);
}

#[test]
fn faults_in_text_are_placed() {
    for (text, line, column, what) in [
        ("graph \"g\"\nfoo", 2, 4, "needs `graph`"),
        ("input %x: f31[2]", 1, 11, "needs a type"),
        ("input %x: f32[2]\n%y = Exp %x : f32[2] from \"a\"", 2, 6, "needs the name of an op"),
        ("%y = Unary Exp %x : f32[2] from \"a\"", 1, 16, "needs a value defined above, found `%x`"),
        ("input %x: f32[2]\ninput %x: f32[2]", 2, 7, "the name `%x` is taken"),
        (
            "input %x: f32[2]\n%y = Unary Exp %x : f32[3] from \"a\"",
            2,
            21,
            "needs type f32[2], found f32[3]",
        ),
        ("constant %c: f32[2] = [1.0]", 1, 28, "needs 2 elements, found 1"),
        ("constant %c: f32[2] = #0", 1, 25, "needs a number below 0, found 0"),
        (
            "input %x: f32[2]\n%y = Softmax(axis:0) %x : f32[2] from \"a\"",
            2,
            13,
            "needs attributes of Softmax",
        ),
        ("input %x: i64[2]\n%y = Unary Exp %x : i64[2] from \"a\"", 2, 36, "needs float elements"),
        ("input %x: f32[2] extra", 1, 18, "needs the end of the line"),
    ] {
        let error = parse(text, &[]).unwrap_err();
        assert_eq!((error.line, error.column), (line, column), "{text}: {error}");
        assert!(error.fault.to_string().starts_with(what), "{text}: {error}");
    }
    let unknown = parse("output %q", &[]).unwrap_err();
    assert_eq!(unknown.fault, ParseFault::Unknown("q".to_owned()));
}

#[test]
fn the_verifier_finds_planted_faults() {
    let mut g = network();
    g.inputs.clear();
    assert!(matches!(verify(&g)[..], [Fault::Value { .. }]));
    let mut g = network();
    g.outputs.push(ValueId(999));
    assert!(matches!(verify(&g)[..], [Fault::Dangling { .. }]));
    let mut g = network();
    g.outputs.push(g.outputs[0]);
    assert!(matches!(verify(&g)[..], [Fault::Value { .. }]));
    let mut g = network();
    let first = g.order()[0];
    g.set_origin(first, Arc::from([]));
    g.ranges.0.insert(Symbol(Arc::from("k")), (5, 1));
    assert_eq!(verify(&g).len(), 2, "all faults are reported");
    let mut g = network();
    let order = g.order();
    let last = g.node(order[5]).outputs[0];
    g.set_input(Use { node: order[0], operand: 0 }, Some(last));
    assert!(verify(&g).iter().any(|f| matches!(f, Fault::Cycle { .. })));
    let mut g = network();
    let (w, b) = (g.find("w0").unwrap(), g.find("b0").unwrap());
    g.replace_uses(w, b);
    assert!(verify(&g).iter().any(|f| matches!(f, Fault::Type { .. } | Fault::Fact { .. })));
    let mut g = network();
    let first = g.order()[0];
    g.add_alias(first, 0, 1);
    assert!(matches!(verify(&g)[..], [Fault::Alias { output: 0, input: 1, .. }]));
}

#[test]
fn ten_thousand_nodes_are_quick() {
    let mut g = Graph::new("deep");
    let mut x = g.input("x", ty(&["n", "8"]));
    let c = g.constant("c", ones(&[8]));
    for i in 0..10_000 {
        x = g.add1(Binary::Add, &[x, c], origin(&format!("node{i}"))).unwrap();
    }
    g.outputs.push(x);
    let start = Instant::now();
    assert_round_trips(&g);
    assert_eq!(g.order().len(), 10_000);
    assert_eq!(g.bind(&|_| Some(Dim::from(2))).unwrap().nodes().count(), 10_000);
    // Anything quadratic takes a hundred times longer than this.
    assert!(start.elapsed().as_secs() < 20, "took {:?}", start.elapsed());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Random graphs stay sound under random edits, round trip, and compute the same after
    /// dead nodes are gone.
    #[test]
    fn random_graphs_stay_sound(steps in proptest::collection::vec((0usize..6, any::<u16>(), any::<u16>()), 1..40)) {
        let mut g = Graph::new("random");
        let mut values = vec![g.input("x", ty(&["n", "3"])), g.input("y", ty(&["n", "3"]))];
        for (i, &(kind, a, b)) in steps.iter().enumerate() {
            let pick = |r: u16| values[r as usize % values.len()];
            let (a, b) = (pick(a), pick(b));
            let o = origin(&format!("s{}", i % 7));
            let made = match kind {
                0 => g.add(Unary::Tanh, &[a], o),
                1 => g.add(Binary::Max, &[a, b], o),
                2 => g.add(Binary::Sub, &[a, b], o),
                3 => g.add(Transpose { perm: vec![0, 1] }, &[a], o),
                4 => g.add(Softmax { axis: 1, log: false }, &[a], o),
                _ => g.add(Select, &[None::<ValueId>, Some(a), Some(b)], o).or_else(|_| g.add(Unary::Neg, &[a], origin("n"))),
            };
            values.extend(made.unwrap());
        }
        g.outputs.push(values[values.len() - 1]);
        prop_assert_eq!(verify(&g), []);
        let inputs: Vec<Datum> = (0..2).map(|i| Tensor::generate(DType::F32, &[2, 3], |j| (i * 6 + j) as f64 * 0.3 - 1.0).into()).collect();
        let before = evaluate(&g, &inputs).unwrap();
        assert_round_trips(&g);
        g.remove_dead();
        prop_assert_eq!(verify(&g), []);
        prop_assert_eq!(&evaluate(&g, &inputs).unwrap(), &before);
        let bound = g.bind(&|_| Some(Dim::from(2))).unwrap();
        prop_assert_eq!(verify(&bound), []);
        prop_assert_eq!(&evaluate(&bound, &inputs).unwrap(), &before);
        let order = g.order();
        let half = &order[..order.len() / 2];
        prop_assert_eq!(verify(&g.extract(half).unwrap()), []);
    }
}
