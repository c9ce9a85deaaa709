//! One session for inputs of all sizes: right answers, and no more sessions than are kept.
#![allow(clippy::unwrap_used)] // a test may panic

use bricolage::{DynamicSession, Goal};
use bricolage_backend::{Policy, Registry};
use bricolage_backends::{Native, Reference};
use bricolage_ir::{Error, Graph, evaluate, ops, origin, solve_symbols, tolerances};
use bricolage_tensor::{DType, Datum, Dim, Rng, Shape, Tensor, TensorType};
use std::sync::Arc;

fn goal() -> Goal {
    Goal { threads: 1, policy: Policy::Default, time_limit: None, seed: 3, shapes: Vec::new() }
}

/// Products, a softmax and a norm over `[batch, length, 16]`, flattened at the end.
fn encoder() -> Graph {
    let mut rng = Rng::new(11);
    let mut random = |dims: &[i64]| Tensor::generate(DType::F32, dims, |_| 0.3 * rng.normal());
    let (batch, length) = (Dim::symbol("batch"), Dim::symbol("length"));
    let mut g = Graph::new("encoder");
    let shape = Shape(vec![batch.clone(), length.clone(), Dim::from(16)]);
    let x = g.input("x", TensorType { dtype: DType::F32, shape });
    let w = g.constant("w", random(&[16, 16]));
    let product = |transpose_rhs| ops::MatMul { transpose_lhs: false, transpose_rhs };
    let q = g.add1(product(false), &[x, w], origin("q")).unwrap();
    let scores = g.add1(product(true), &[q, x], origin("scores")).unwrap();
    let weights =
        g.add1(ops::Softmax { axis: 2, log: false }, &[scores], origin("softmax")).unwrap();
    let mixed = g.add1(product(false), &[weights, x], origin("mixed")).unwrap();
    let sum = g.add1(ops::Binary::Add, &[mixed, x], origin("sum")).unwrap();
    let flat = ops::Reshape { to: Shape(vec![batch, &length * &Dim::from(16)]) };
    let y = g.add1(flat, &[sum], origin("flat")).unwrap();
    g.outputs = vec![y];
    g
}

#[test]
fn a_walk_over_shapes_gives_right_answers_and_keeps_few_sessions() {
    let registry = Registry::new(vec![Arc::new(Native::default()), Arc::new(Reference)]);
    let graph = encoder();
    let mut session = DynamicSession::new(&registry, graph.clone(), &goal()).unwrap();
    let mut rng = Rng::new(5);
    for step in 0..40 {
        let dims = [1 + rng.below(4) as i64, 1 + rng.below(24) as i64, 16];
        let x = Datum::from(Tensor::generate(DType::F32, &dims, |_| rng.normal()));
        let found = session.run(std::slice::from_ref(&x)).unwrap();
        let wanted = evaluate(&graph, std::slice::from_ref(&x)).unwrap();
        let (wanted, found) = (wanted[0].as_tensor().unwrap(), found[0].1.as_tensor().unwrap());
        let inputs = std::slice::from_ref(&x);
        let sizes = solve_symbols(&graph, inputs).unwrap();
        let fixed = graph.bind(&|s| sizes.get(s).map(|&n| Dim::from(n))).unwrap();
        let allowed = tolerances(&fixed, inputs, &[Some(wanted)], &|_| None, &|_| 0.0, 1);
        let error = Error::between(wanted, found);
        let share = error.share_of(&allowed.unwrap()[0]);
        assert!(share <= 1.0, "step {step}, dims {dims:?}: {error}");
        assert!(session.classes() <= 8);
    }
    let twice = Datum::from(Tensor::generate(DType::F32, &[2, 3, 16], |_| rng.normal()));
    session.run(std::slice::from_ref(&twice)).unwrap();
    let before = session.classes();
    session.run(&[twice]).unwrap();
    assert_eq!(session.classes(), before);
}

#[test]
fn what_the_model_does_not_allow_is_refused() {
    let registry = Registry::new(vec![Arc::new(Native::default()), Arc::new(Reference)]);
    let mut session = DynamicSession::new(&registry, encoder(), &goal()).unwrap();
    let wrong = Datum::from(Tensor::generate(DType::F32, &[2, 3, 17], |_| 0.0));
    let error = session.run(&[wrong]).err().unwrap().to_string();
    assert!(error.contains('x') && error.contains("17"), "{error}");
}

/// Where `x` is not 0, times 2: as many columns as elements are found, between two planned stages.
#[test]
fn sizes_that_the_graph_tells_are_learned_from_every_run() {
    let mut g = Graph::new("found");
    let shape = Shape(vec![Dim::symbol("n")]);
    let x = g.input("x", TensorType { dtype: DType::F32, shape });
    let two = g.constant("two", Tensor::of(&[], &[2i64]));
    let y = g.add1(ops::Unary::Relu, &[x], origin("relu")).unwrap();
    let at = g.add1(ops::NonZero { found: Dim::symbol("found") }, &[y], origin("at")).unwrap();
    g.outputs = vec![g.add1(ops::Binary::Mul, &[at, two], origin("twice")).unwrap()];
    let graph = g;
    let registry = Registry::new(vec![Arc::new(Native::default()), Arc::new(Reference)]);
    let mut session = DynamicSession::new(&registry, graph, &goal()).unwrap();
    for (x, wanted) in [
        (vec![0f32, 3.0, -1.0, 4.0], vec![2, 6]),
        (vec![1.0; 3], vec![0, 2, 4]),
        (vec![-1.0], vec![]),
    ] {
        let x = Datum::from(Tensor::of(&[x.len() as i64], &x));
        let found = session.run(&[x]).unwrap();
        let found = found[0].1.as_tensor().unwrap();
        assert_eq!((found.dims()[1] as usize, found.to_i64()), (wanted.len(), wanted));
    }
}
