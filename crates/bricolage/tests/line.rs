//! The straight line on small graphs: right answers, judged plans, artefacts that know when they are
//! damaged.
#![allow(clippy::unwrap_used)] // a test may panic

use bricolage::{
    Cx, Goal, Progress, artefact, check, compile_unmeasured, emit, optimize, place_unmeasured,
    pool, rewrite,
};
use bricolage_backend::Registry;
use bricolage_backends::{Native, Reference};
use bricolage_ir::{Error, Graph, Tolerance, evaluate, evaluate_noisy, ops, origin};
use bricolage_measure::{Database, Machine};
use bricolage_runtime::{Action, Cancel, Place, Session};
use bricolage_tensor::{DType, Datum, Rng, Shape, Tensor, TensorType};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

fn registry() -> Registry {
    Registry::new(vec![Arc::new(Native::default()), Arc::new(Reference)])
}

fn goal() -> Goal {
    Goal { seed: 3, ..Goal::new(1) }
}

/// Two convolutions with a residual, pooling, a view of a convolution's result, and products: every
/// kind of edge that plans have.
fn network(seed: u64) -> Graph {
    let mut rng = Rng::new(seed);
    let mut random = |dims: &[i64]| Tensor::generate(DType::F32, dims, |_| 0.3 * rng.normal());
    let mut g = Graph::new("network");
    let x = g.input("x", TensorType::fixed(DType::F32, &[1, 3, 12, 12]));
    let w1 = g.constant("w1", random(&[16, 3, 3, 3]));
    let b1 = g.constant("b1", random(&[16]));
    let w2 = g.constant("w2", random(&[16, 16, 3, 3]));
    let fc = g.constant("fc", random(&[16, 5]));
    let same = ops::Conv { pads: vec![(1, 1), (1, 1)], ..ops::Conv::plain(2) };
    let a = g.add1(same.clone(), &[x, w1, b1], origin("conv1")).unwrap();
    let a = g.add1(ops::Unary::Relu, &[a], origin("relu1")).unwrap();
    let b = g.add1(same, &[a, w2], origin("conv2")).unwrap();
    let w3 = g.constant("w3", random(&[16, 16, 1, 1]));
    let f = g.add1(ops::Conv::plain(2), &[a, w3], origin("conv3")).unwrap();
    let f = g.add1(ops::Unary::Relu, &[f], origin("relu3")).unwrap();
    let b = g.add1(ops::Binary::Add, &[f, b], origin("add3")).unwrap();
    let c = g.add1(ops::Binary::Add, &[b, a], origin("add")).unwrap();
    let c = g.add1(ops::Unary::Sigmoid, &[c], origin("sigmoid")).unwrap();
    let mean = ops::Reduce { kind: ops::ReduceKind::Mean, axes: vec![2, 3], keep_dims: false };
    let d = g.add1(mean, &[c], origin("mean")).unwrap();
    let product = ops::MatMul { transpose_lhs: false, transpose_rhs: false };
    let y = g.add1(product, &[d, fc], origin("fc")).unwrap();
    let pool = ops::Pool {
        kind: ops::PoolKind::Max { indices: false },
        kernel: vec![2, 2],
        strides: vec![2, 2],
        dilations: vec![1, 1],
        pads: vec![(0, 0); 2],
        ceil_mode: false,
    };
    let e = g.add1(pool, &[b], origin("pool")).unwrap();
    let flat = ops::Reshape { to: Shape::fixed(&[1, 16 * 6 * 6]) };
    let e = g.add1(flat, &[e], origin("flatten")).unwrap();
    let wide = g.constant("wide", random(&[16 * 6 * 6, 4]));
    let product = ops::MatMul { transpose_lhs: false, transpose_rhs: false };
    let z = g.add1(product, &[e, wide], origin("wide")).unwrap();
    g.outputs = vec![y, a, z];
    g
}

fn inputs(seed: u64) -> Vec<Tensor> {
    let mut rng = Rng::new(seed);
    vec![Tensor::generate(DType::F32, &[1, 3, 12, 12], |_| rng.normal())]
}

/// Every output is within what rounding allows.
fn assert_right(graph: &Graph, given: &[Tensor], found: &[Tensor]) {
    let data: Vec<Datum> = given.iter().cloned().map(Datum::from).collect();
    let exact = evaluate(graph, &data).unwrap();
    let noisy = evaluate_noisy(graph, &data, &|_| 1e-5, 1).unwrap();
    assert_eq!(exact.len(), found.len());
    for ((exact, noisy), found) in exact.iter().zip(&noisy).zip(found) {
        let (exact, noisy) = (exact.as_tensor().unwrap(), noisy.as_tensor().unwrap());
        let error = Error::between(exact, found);
        assert!(error.share_of(&Tolerance::from_floor(exact, noisy)) <= 1.0, "{error}");
    }
}

#[test]
fn a_compiled_model_gives_the_right_answer() {
    for seed in 0..4 {
        let graph = network(seed);
        let (_, _, mut session) = compile_unmeasured(&registry(), graph.clone(), &goal()).unwrap();
        assert_right(&graph, &inputs(seed), &session.run(&inputs(seed)).unwrap());
    }
}

#[test]
fn outputs_may_come_in_any_order() {
    for order in [[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut graph = network(5);
        graph.outputs = order.iter().map(|&i| graph.outputs[i]).collect();
        let (_, _, mut session) = compile_unmeasured(&registry(), graph.clone(), &goal()).unwrap();
        assert_right(&graph, &inputs(5), &session.run(&inputs(5)).unwrap());
    }
}

#[test]
fn a_run_touches_the_arena_and_nothing_else_matters() {
    let graph = network(1);
    let (_, plan, mut session) = compile_unmeasured(&registry(), graph.clone(), &goal()).unwrap();
    let first = session.run(&inputs(1)).unwrap();
    for pattern in [0x00, 0xFF, 0xA5] {
        session.arena_mut().bytes_mut().fill(pattern);
        assert_eq!(
            session.run(&inputs(1)).unwrap(),
            first,
            "what the arena held before changes nothing"
        );
    }
    assert_eq!(session.arena().len() as u64, plan.arena);
}

#[test]
fn the_judge_sees_every_kind_of_damage() {
    let rewritten = rewrite(network(2)).unwrap();
    let placed = place_unmeasured(&registry(), &rewritten.graph, &goal()).unwrap();
    let emitted = emit(&rewritten.graph, &placed, &registry(), &goal().setting()).unwrap();
    let judge =
        |plan: &bricolage_runtime::Plan| check(&rewritten.graph, &placed, plan, &emitted.kernels);
    judge(&emitted.plan).unwrap();
    let mut seen = 0;
    // Every buffer in the arena, moved onto every other: whatever the judge lets pass must still
    // compute the same.
    let places: Vec<usize> = (0..emitted.plan.buffers.len())
        .filter(|&b| matches!(emitted.plan.buffers[b].place, Place::Arena(_)))
        .collect();
    for &a in &places {
        for &b in &places {
            let mut plan = emitted.plan.clone();
            if plan.buffers[a].place == plan.buffers[b].place {
                continue;
            }
            plan.buffers[a].place = plan.buffers[b].place;
            match judge(&plan) {
                Err(_) => seen += 1,
                Ok(()) => assert_right_plan(&rewritten.graph, &plan, &emitted),
            }
        }
    }
    assert!(seen > 0);
    let mut swapped = emitted.plan.clone();
    swapped.steps.swap(0, 1);
    assert!(judge(&swapped).is_err(), "a step before its operands is seen");
    let mut dropped = emitted.plan.clone();
    dropped.steps.pop();
    assert!(judge(&dropped).is_err(), "a missing step is seen");
    let mut small = emitted.plan.clone();
    for step in &mut small.steps {
        if let Action::Run(run) = &mut step.action
            && run.workspace_len > 0
        {
            run.workspace_len -= 1;
        }
    }
    assert!(
        small == emitted.plan || judge(&small).is_err(),
        "a workspace that is too small is seen"
    );
}

fn assert_right_plan(graph: &Graph, plan: &bricolage_runtime::Plan, emitted: &bricolage::Emitted) {
    let Ok(program) = bricolage_runtime::Program::new(
        plan.clone(),
        emitted.kernels.clone(),
        emitted.weights.to_storage(),
    ) else {
        return;
    };
    let mut session = Session::open(Arc::new(program), pool(1).unwrap()).unwrap();
    assert_right(graph, &inputs(9), &session.run(&inputs(9)).unwrap());
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("bricolage-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn optimise(folder: &Path, out: &Path) -> bricolage::report::Report {
    optimise_graph(&network(5), folder, out)
}

fn optimise_graph(graph: &Graph, folder: &Path, out: &Path) -> bricolage::report::Report {
    let model = folder.join("model.onnx");
    fs::write(&model, bricolage_onnx::export(graph).unwrap()).unwrap();
    let (registry, cancel) = (registry(), Cancel::default());
    let cx = Cx {
        registry: &registry,
        cache: folder.join("cache"),
        worker: None,
        goal: goal(),
        rules: bricolage::RULES,
        progress: &|_: &Progress| {},
        cancel: &cancel,
    };
    optimize(&cx, &model, out, true).unwrap().report
}

#[test]
fn an_artefact_runs_and_the_second_search_measures_nothing() {
    let folder = Folder::new("artefact");
    let out = folder.0.join("net.bricolage");
    let first = optimise(&folder.0, &out);
    assert!(first.measured > 0 && first.error_share <= 1.0);
    let second = optimise(&folder.0, &out);
    assert_eq!((second.measured, second.skipped), (0, 0));
    assert_eq!(second.regions, first.regions);

    let loaded = artefact::load(&out, &registry()).unwrap();
    loaded.self_test(pool(1).unwrap()).unwrap();
    let mut session = Session::open(loaded.fixed().unwrap().clone(), pool(1).unwrap()).unwrap();
    assert_right(&network(5), &inputs(4), &session.run(&inputs(4)).unwrap());
    let arena = first.memory.arena_bytes;
    assert!(
        arena as f64 <= 1.10 * first.memory.live_peak_bytes as f64,
        "{arena} against {}",
        first.memory.live_peak_bytes
    );

    // Every file, one byte changed in the middle: never taken for whole.
    for name in ["plan", "weights.bin", "selftest.npz", "manifest.json"] {
        let path = out.join(name);
        let whole = fs::read(&path).unwrap();
        let mut damaged = whole.clone();
        let middle = damaged.len() / 2;
        damaged[middle] ^= 0x55;
        fs::write(&path, &damaged).unwrap();
        let usable = artefact::load(&out, &registry()).and_then(|l| l.self_test(pool(1).unwrap()));
        assert!(usable.is_err(), "a changed {name} is not seen");
        fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        assert!(artefact::load(&out, &registry()).is_err(), "a cut {name} is not seen");
        fs::write(&path, whole).unwrap();
    }
    artefact::load(&out, &registry()).unwrap();
    let path = out.join("manifest.json");
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        fs::write(&path, &damaged).unwrap();
        assert!(
            artefact::manifest(&out).is_err(),
            "a changed byte {at} of the manifest is not seen"
        );
    }
    for more in ["\n", " ", "{}"] {
        fs::write(&path, [&whole[..], more.as_bytes()].concat()).unwrap();
        assert!(artefact::manifest(&out).is_err(), "{more:?} after the manifest is not seen");
    }
}

/// Where every kernel errs more than rounding allows, the reference takes the node.
#[test]
fn a_search_ends_though_kernels_are_refused() {
    let folder = Folder::new("refused");
    let mut g = Graph::new("steep");
    let x = g.input("x", TensorType::fixed(DType::F32, &[2, 20_000]));
    let steep = g.constant("steep", Tensor::generate(DType::F32, &[], |_| 60.0));
    let x = g.add1(ops::Binary::Mul, &[x, steep], origin("mul")).unwrap();
    let y = g.add1(ops::Softmax { axis: 1, log: false }, &[x], origin("softmax")).unwrap();
    g.outputs = vec![y];
    let report = optimise_graph(&g, &folder.0, &folder.0.join("out.bricolage"));
    assert!(report.contenders.iter().any(|c| c.chosen), "{:?}", report.contenders);
}

#[test]
fn a_stopped_search_still_gives_a_right_plan() {
    let folder = Folder::new("stopped");
    let model = folder.0.join("model.onnx");
    fs::write(&model, bricolage_onnx::export(&network(6)).unwrap()).unwrap();
    let (registry, cancel) = (registry(), Cancel::default());
    cancel.cancel();
    let cx = Cx {
        registry: &registry,
        cache: folder.0.join("cache"),
        worker: None,
        goal: goal(),
        rules: bricolage::RULES,
        progress: &|_: &Progress| {},
        cancel: &cancel,
    };
    let out = folder.0.join("net.bricolage");
    let outcome = optimize(&cx, &model, &out, false).unwrap();
    assert!(outcome.interrupted && outcome.report.measured == 0);
    let loaded = artefact::load(&out, &registry).unwrap();
    let mut session = Session::open(loaded.fixed().unwrap().clone(), pool(1).unwrap()).unwrap();
    assert_right(&network(6), &inputs(8), &session.run(&inputs(8)).unwrap());
}

#[test]
fn a_search_without_time_gives_a_right_plan_and_a_later_one_goes_on() {
    let folder = Folder::new("hasty");
    let model = folder.0.join("model.onnx");
    fs::write(&model, bricolage_onnx::export(&network(6)).unwrap()).unwrap();
    let (registry, cancel) = (registry(), Cancel::default());
    let out = folder.0.join("net.bricolage");
    let search = |time_limit| {
        let cx = Cx {
            registry: &registry,
            cache: folder.0.join("cache"),
            worker: None,
            goal: Goal { time_limit, ..goal() },
            rules: bricolage::RULES,
            progress: &|_: &Progress| {},
            cancel: &cancel,
        };
        let report = optimize(&cx, &model, &out, true).unwrap().report;
        let loaded = artefact::load(&out, &registry).unwrap();
        let mut session = Session::open(loaded.fixed().unwrap().clone(), pool(1).unwrap()).unwrap();
        assert_right(&network(6), &inputs(8), &session.run(&inputs(8)).unwrap());
        report
    };
    let hasty = search(Some(Duration::from_millis(1)));
    assert!(hasty.skipped > 0 && hasty.error_share <= 1.0);
    assert!(hasty.warnings.iter().any(|w| w.contains("there was no time to measure")));
    let patient = search(None);
    // What cannot win is refused without being measured.
    assert!(patient.skipped == 0 && patient.measured > 0);
}

#[test]
fn nothing_is_replaced_without_being_asked() {
    let folder = Folder::new("existing");
    let precious = folder.0.join("precious");
    fs::create_dir_all(&precious).unwrap();
    fs::write(precious.join("thesis.tex"), "years of work").unwrap();
    for overwrite in [false, true] {
        assert!(artefact::refuse_existing(&precious, overwrite).is_err());
    }
    assert!(artefact::refuse_existing(&folder.0.join("new"), false).is_ok());
    assert!(artefact::refuse_existing(&folder.0.join("no/such/parent"), false).is_err());
    let database = Database::open(&folder.0, &Machine::read()).unwrap();
    assert!(database.set_aside.is_none());
}

/// Twenty thousand nodes, most of which rewriting removes or merges, and a thousand outputs: every
/// stage takes time in proportion to the nodes, or this would take minutes.
#[test]
fn large_graphs_are_compiled_in_proportion() {
    let mut g = Graph::new("large");
    let x = g.input("x", TensorType::fixed(DType::F32, &[2, 4]));
    let zero = g.constant("zero", Tensor::of(&[], &[0f32]));
    let half = g.constant("half", Tensor::of(&[], &[0.5f32]));
    let mut at = x;
    for i in 0..5000 {
        let name = |op: &str| origin(&format!("{op}{i}"));
        at = g.add1(ops::Binary::Add, &[at, zero], name("add")).unwrap();
        at = g.add1(ops::Unary::Identity, &[at], name("same")).unwrap();
        at = g.add1(ops::Binary::Mul, &[at, half], name("mul")).unwrap();
        at = g.add1(ops::Unary::Sigmoid, &[at], name("sigmoid")).unwrap();
        if i % 5 == 0 {
            g.outputs.push(at);
        }
    }
    let start = std::time::Instant::now();
    let given = [Tensor::generate(DType::F32, &[2, 4], |i| i as f64 - 3.0)];
    let (_, _, mut session) = compile_unmeasured(&registry(), g.clone(), &goal()).unwrap();
    assert_right(&g, &given, &session.run(&given).unwrap());
    assert!(start.elapsed().as_secs() < 40, "{:?}", start.elapsed());
}
