//! One session for inputs of all sizes: right answers, and no more sessions than are kept.
#![allow(clippy::unwrap_used)] // a test may panic

use bricolage::{Cx, DynamicSession, Goal, InputShape, Opened, Progress, artefact, optimize, pool};
use bricolage_backend::Registry;
use bricolage_backends::{Native, Reference};
use bricolage_ir::{Error, Graph, evaluate, ops, origin, solve_symbols, tolerances};
use bricolage_runtime::Cancel;
use bricolage_tensor::{DType, Datum, Dim, Rng, Shape, Tensor, TensorType};
use std::{fs, sync::Arc};

fn goal() -> Goal {
    Goal { seed: 3, ..Goal::new(1) }
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

/// The only output is within what rounding allows.
fn assert_right(graph: &Graph, x: &Datum, found: &[(String, Datum)]) {
    let inputs = std::slice::from_ref(x);
    let wanted = evaluate(graph, inputs).unwrap();
    let (wanted, found) = (wanted[0].as_tensor().unwrap(), found[0].1.as_tensor().unwrap());
    let sizes = solve_symbols(graph, inputs).unwrap();
    let fixed = graph.bind(&|s| sizes.get(s).map(|&n| Dim::from(n))).unwrap();
    let allowed = tolerances(&fixed, inputs, &[Some(wanted)], &|_| None, &|_| 0.0, 1);
    let error = Error::between(wanted, found);
    let share = error.share_of(&allowed.unwrap()[0]);
    assert!(share <= 1.0, "{}: {error}", wanted.ty());
}

#[test]
fn a_walk_over_shapes_gives_right_answers_and_keeps_few_sessions() {
    let registry = Registry::new(vec![Arc::new(Native::default()), Arc::new(Reference)]);
    let graph = encoder();
    let mut session = DynamicSession::new(&registry, graph.clone(), &goal()).unwrap();
    let mut rng = Rng::new(5);
    for _ in 0..40 {
        let dims = [1 + rng.below(4) as i64, 1 + rng.below(24) as i64, 16];
        let x = Datum::from(Tensor::generate(DType::F32, &dims, |_| rng.normal()));
        let found = session.run(std::slice::from_ref(&x)).unwrap();
        assert_right(&graph, &x, &found);
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

fn registry() -> Registry {
    Registry::new(vec![Arc::new(Native::default()), Arc::new(Reference)])
}

fn vector(g: &mut Graph, name: &str, dtype: DType, symbol: &str) -> bricolage_ir::ValueId {
    g.input(name, TensorType { dtype, shape: Shape(vec![Dim::symbol(symbol)]) })
}

/// `x[i]`, which fails where an index lies outside.
fn picking() -> Graph {
    let mut g = Graph::new("picking");
    let x = vector(&mut g, "x", DType::F32, "n");
    let i = vector(&mut g, "i", DType::I64, "m");
    g.outputs = vec![g.add1(ops::Gather { axis: 0 }, &[x, i], origin("pick")).unwrap()];
    g
}

#[test]
fn a_class_that_fails_is_not_kept() {
    let mut session = DynamicSession::new(&registry(), picking(), &goal()).unwrap();
    let x = Datum::from(Tensor::of(&[3], &[1f32, 2.0, 3.0]));
    let at = |i: i64| Datum::from(Tensor::of(&[1], &[i]));
    assert!(session.run(&[x.clone(), at(7)]).is_err());
    assert_eq!((session.classes(), session.arena_bytes()), (0, 0));
    let found = session.run(&[x.clone(), at(2)]).unwrap();
    assert_eq!(found[0].1.as_tensor().unwrap().to_f64(), [3.0]);
    assert_eq!(session.classes(), 1);
    assert!(session.run(&[x, at(7)]).is_err());
    assert_eq!(session.classes(), 0);
}

#[test]
fn sizes_that_contradict_each_other_and_sizes_without_room_are_refused() {
    let mut g = Graph::new("outer");
    let (x, y) = (vector(&mut g, "x", DType::F32, "n"), vector(&mut g, "y", DType::F32, "n"));
    let column = Shape(vec![Dim::symbol("n"), Dim::from(1)]);
    let column = g.add1(ops::Reshape { to: column }, &[x], origin("column")).unwrap();
    g.outputs = vec![g.add1(ops::Binary::Mul, &[column, y], origin("outer")).unwrap()];
    let mut session = DynamicSession::new(&registry(), g, &goal()).unwrap();
    let ones = |n: i64| Datum::from(Tensor::generate(DType::F32, &[n], |_| 1.0));
    let error = |e: Result<_, bricolage::Error>| e.err().unwrap().to_string();
    let refused = error(session.run(&[ones(3), ones(4)]));
    assert!(refused.contains("`y`") && refused.contains('4'), "{refused}");
    let refused = error(session.run(&[ones(3_000_000), ones(3_000_000)]));
    assert!(refused.contains("bytes of memory"), "{refused}");
    assert_eq!(session.classes(), 0);
    for n in [0, 1] {
        let found = session.run(&[ones(n), ones(n)]).unwrap();
        assert_eq!(found[0].1.as_tensor().unwrap().dims(), [n, n]);
    }
}

/// Sessions of one artefact in several threads, at sizes that differ, one of them outside its range.
#[test]
fn threads_have_a_session_of_an_artefact_each() {
    let folder = std::env::temp_dir().join(format!("bricolage-dynamic-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (model, out) = (folder.join("encoder.onnx"), folder.join("encoder.bricolage"));
    let graph = encoder();
    fs::write(&model, bricolage_onnx::export(&graph).unwrap()).unwrap();
    let registry = registry();
    let shapes = ["batch:0..2", "length:1..9"].map(|s| InputShape::parse(s).unwrap());
    let cx = Cx {
        registry: &registry,
        cache: folder.join("cache"),
        worker: None,
        goal: Goal { shapes: shapes.to_vec(), ..goal() },
        rules: bricolage::RULES,
        progress: &|_: &Progress| {},
        cancel: &Cancel::default(),
    };
    let report = optimize(&cx, &model, &out, false).unwrap().report;
    let sizes = report.sizes.unwrap();
    assert_eq!(sizes.measured, [("batch".to_owned(), 2), ("length".to_owned(), 9)].into());
    let loaded = artefact::load(&out, &registry).unwrap();
    loaded.self_test(pool(1).unwrap()).unwrap();
    assert!(matches!(Opened::new(&loaded, pool(1).unwrap()).unwrap(), Opened::Dynamic(_)));
    std::thread::scope(|scope| {
        for thread in 0..3 {
            let (loaded, graph) = (&loaded, &graph);
            scope.spawn(move || {
                let mut session = DynamicSession::open(loaded, pool(1).unwrap()).unwrap();
                let mut rng = Rng::new(thread);
                for length in [9, 4, 9, 1, 4] {
                    for batch in 0..3 {
                        let dims = [batch, length, 16];
                        let x = Datum::from(Tensor::generate(DType::F32, &dims, |_| rng.normal()));
                        let found = session.run(std::slice::from_ref(&x)).unwrap();
                        assert_right(graph, &x, &found);
                        let measured = (batch, length) == (2, 9);
                        assert_eq!(session.unmeasured().is_none(), measured, "{dims:?}");
                    }
                }
                let x = Datum::from(Tensor::generate(DType::F32, &[2, 10, 16], |_| 1.0));
                match session.run(&[x]).err().unwrap() {
                    bricolage::Error::OutOfRange { input, size, found, low, high } => {
                        assert_eq!((&*input, &*size, found, low, high), ("x", "length", 10, 1, 9));
                    }
                    other => panic!("{other}"),
                }
            });
        }
    });
    fs::remove_dir_all(&folder).unwrap();
}
