//! The other ways to give nodes to backends, with a graph engine that takes regions of any size.
#![allow(clippy::unwrap_used)] // a test may panic

use bricolage::{
    Charge, Cx, Error, Goal, Method, Progress, Temporary, Wish, Wishes, artefact, optimize, pool,
    report::Report,
};
use bricolage_backend::{
    Backend, BackendKind, BackendStatus, Bound, Candidate, Declined, Packed, Policy, Proposals,
    Region, Registry, Setting,
};
use bricolage_backends::{Native, Reference};
use bricolage_ir::{
    Error as Difference, Graph, NodeId, Numerics, Op, Tolerance, evaluate, evaluate_noisy, ops,
    origin,
};
use bricolage_placement::{Offer, gather};
use bricolage_runtime::{Cancel, Kernel, Recipe, Session};
use bricolage_tensor::{DType, Datum, Rng, Tensor, TensorType};
use std::{fs, sync::Arc, time::Duration};

/// The reference as a graph engine that takes anything but pooling, and says that of its numbers.
struct Engine(Numerics);

const NAME: &str = "engine";

fn takes(graph: &Graph, region: &Region) -> bool {
    !region.nodes.iter().any(|&n| matches!(graph.node(n).op, Op::Pool(_)))
}

impl Engine {
    fn offer(
        &self,
        graph: &Graph,
        region: &Region,
        setting: &Setting,
    ) -> Result<Candidate, Declined> {
        let declined = |why: &str| Declined {
            node: region.exit(),
            pattern: "region".to_owned(),
            why: why.to_owned(),
        };
        if !takes(graph, region) {
            return Err(declined("does not pool"));
        }
        // All formats are plain and all elements floats, as those of one node are.
        let one = Reference.propose(graph, region.exit(), setting).candidates;
        let one = one.into_iter().next().ok_or_else(|| declined("has no candidate"))?;
        let plain = one.outputs[0].clone();
        Ok(Candidate {
            inputs: vec![plain.clone(); region.inputs.len()],
            outputs: vec![plain; region.outputs.len()],
            pattern: format!("{} nodes", region.nodes.len()),
            region: region.clone(),
            numerics: self.0,
            ..one
        })
    }
}

impl Backend for Engine {
    fn name(&self) -> &str {
        NAME
    }
    fn kind(&self) -> BackendKind {
        BackendKind::GraphEngine
    }
    fn version(&self) -> String {
        "1".to_owned()
    }
    fn status(&self) -> BackendStatus {
        BackendStatus { name: NAME.to_owned(), ..Reference.status() }
    }
    fn propose(&self, graph: &Graph, exit: NodeId, setting: &Setting) -> Proposals {
        let region = Region::of(graph, vec![exit]).unwrap();
        match self.offer(graph, &region, setting) {
            Ok(candidate) => Proposals { candidates: vec![candidate], declined: Vec::new() },
            Err(declined) => Proposals { candidates: Vec::new(), declined: vec![declined] },
        }
    }
    fn propose_region(
        &self,
        graph: &Graph,
        region: &Region,
        _: bool,
        setting: &Setting,
    ) -> Result<Candidate, Declined> {
        self.offer(graph, region, setting)
    }
    fn bind(&self, graph: &Graph, c: &Candidate, setting: &Setting) -> Result<Bound, String> {
        Reference.bind(graph, c, setting)
    }
    fn rebuild(&self, recipe: &Recipe, built_in: &[Packed]) -> Result<Arc<dyn Kernel>, String> {
        Reference.rebuild(recipe, built_in)
    }
}

/// Two branches around a pooling that the engine does not take, joined by a product.
fn network() -> Graph {
    let mut rng = Rng::new(2);
    let mut random = |dims: &[i64]| Tensor::generate(DType::F32, dims, |_| 0.3 * rng.normal());
    let mut g = Graph::new("network");
    let x = g.input("x", TensorType::fixed(DType::F32, &[1, 8, 8, 8]));
    let [w1, w2] = ["w1", "w2"].map(|name| g.constant(name, random(&[8, 8, 3, 3])));
    let fc = g.constant("fc", random(&[8, 5]));
    let same = ops::Conv { pads: vec![(1, 1), (1, 1)], ..ops::Conv::plain(2) };
    let pool = ops::Pool {
        kind: ops::PoolKind::Max { indices: false },
        kernel: vec![3, 3],
        strides: vec![1, 1],
        dilations: vec![1, 1],
        pads: vec![(1, 1); 2],
        ceil_mode: false,
    };
    let a = g.add1(same.clone(), &[x, w1], origin("conv1")).unwrap();
    let a = g.add1(ops::Unary::Sigmoid, &[a], origin("sigmoid1")).unwrap();
    let p = g.add1(pool, &[a], origin("pool")).unwrap();
    let b = g.add1(same, &[p, w2], origin("conv2")).unwrap();
    let c = g.add1(ops::Binary::Add, &[a, b], origin("add")).unwrap();
    let mean = ops::Reduce { kind: ops::ReduceKind::Mean, axes: vec![2, 3], keep_dims: false };
    let d = g.add1(mean, &[c], origin("mean")).unwrap();
    let product = ops::MatMul { transpose_lhs: false, transpose_rhs: false };
    let y = g.add1(product, &[d, fc], origin("fc")).unwrap();
    g.outputs = vec![y, p];
    g
}

/// Optimises the network by a method, and runs what came of it.
fn place(method: Method, backends: Vec<Arc<dyn Backend>>, name: &str) -> Report {
    place_wishing(method, backends, &Wishes::default(), name).unwrap()
}

/// [`place`], with wishes.
fn place_wishing(
    method: Method,
    backends: Vec<Arc<dyn Backend>>,
    wishes: &Wishes,
    name: &str,
) -> Result<Report, Error> {
    let folder =
        std::env::temp_dir().join(format!("bricolage-methods-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let _removed = Temporary::new(folder.clone());
    let graph = network();
    let model = folder.join("model.onnx");
    fs::write(&model, bricolage_onnx::export(&graph).unwrap()).unwrap();
    let (registry, cancel) = (Registry::new(backends), Cancel::default());
    let time_limit = Some(Duration::from_secs(3));
    let cx = Cx {
        registry: &registry,
        cache: folder.join("cache"),
        worker: None,
        goal: Goal { placement: method, wishes: wishes.clone(), time_limit, ..Goal::new(1) },
        rules: bricolage::RULES,
        progress: &|_: &Progress| {},
        cancel: &cancel,
    };
    let out = folder.join("net.bricolage");
    let report = optimize(&cx, &model, &out, false)?.report;
    let read: Report = artefact::report(&out).unwrap();
    assert_eq!((read.placement, &read.evolutions), (method, &report.evolutions));
    let loaded = artefact::load(&out, &registry).unwrap();
    assert_eq!(artefact::manifest(&out).unwrap().goal().placement, method);
    let mut session = Session::open(loaded.fixed().unwrap().clone(), pool(1).unwrap()).unwrap();
    let mut rng = Rng::new(4);
    let x = Tensor::generate(DType::F32, &[1, 8, 8, 8], |_| rng.normal());
    let found = session.run(std::slice::from_ref(&x)).unwrap();
    let data = [Datum::from(x)];
    let exact = evaluate(&graph, &data).unwrap();
    let noisy = evaluate_noisy(&graph, &data, &|_| 1e-5, 1).unwrap();
    for ((exact, noisy), found) in exact.iter().zip(&noisy).zip(&found) {
        let (exact, noisy) = (exact.as_tensor().unwrap(), noisy.as_tensor().unwrap());
        let error = Difference::between(exact, found);
        assert!(error.share_of(&Tolerance::from_floor(exact, noisy)) <= 1.0, "{error}");
    }
    // A second search that has as much time repeats nothing and comes to the same.
    let again = optimize(&cx, &model, &out, true).unwrap().report;
    assert_eq!(again.evolutions, report.evolutions);
    assert!(again.regions.iter().map(|r| &r.kernel).eq(report.regions.iter().map(|r| &r.kernel)));
    assert_eq!(again.measured, 0);
    Ok(report)
}

fn engine() -> Arc<dyn Backend> {
    Arc::new(Engine(Numerics::Reassociates))
}

fn native() -> Arc<dyn Backend> {
    Arc::new(Native::default())
}

#[test]
fn a_greedy_engine_takes_all_that_it_can() {
    let report = place(Method::Greedy, vec![engine(), native(), Arc::new(Reference)], "a");
    let by = |name: &str| report.regions.iter().filter(|r| r.backend == name).count();
    // What is before the pooling and what is behind it.
    assert_eq!((by(NAME), by("native"), report.regions.len()), (2, 1, 3));
    assert_eq!(report.contenders.len(), 1);
    let other = place(Method::Greedy, vec![native(), engine(), Arc::new(Reference)], "b");
    assert!(other.regions.iter().all(|r| r.backend == "native"));
    assert!(other.evolutions.is_empty());
}

#[test]
fn short_kernels_are_offered_on_one_thread_too() {
    let mut g = Graph::new("sizes");
    for (name, elements) in [("short", 16), ("long", 1 << 20)] {
        let x = g.input(&format!("{name} input"), TensorType::fixed(DType::F32, &[elements]));
        let y = g.add1(ops::Unary::Sigmoid, &[x], origin(name)).unwrap();
        g.outputs.push(y);
    }
    let registry = Registry::new(vec![native(), Arc::new(Reference)]);
    let offers = |threads| {
        let setting = Setting { threads, policy: Policy::Default };
        let all = gather(&g, &registry, &setting).unwrap().all;
        let key = |o: Offer| (o.candidate.region.origin(&g).concat(), o.threads, o.key.0);
        all.into_iter().map(key).collect::<Vec<_>>()
    };
    let (one, two) = (offers(1), offers(2));
    for (name, counts) in [("short", &[1, 2][..]), ("long", &[2][..])] {
        let mut found: Vec<usize> = two.iter().filter(|o| o.0 == name).map(|o| o.1).collect();
        found.sort_unstable();
        found.dedup();
        assert_eq!(found, counts, "{name}");
    }
    // What is known of them from plans of one thread holds here.
    assert!(two.iter().filter(|o| o.1 == 1).all(|o| one.contains(o)));
}

#[test]
fn the_op_level_makes_no_cover_anew() {
    let all = vec![native(), engine(), Arc::new(Reference)];
    let report = place(Method::OpLevel, all, "o");
    let names: Vec<&str> = report.contenders.iter().map(|c| &*c.name).collect();
    assert_eq!(names, ["mixed", "native alone"]);
    let prediction = report.contenders[0].prediction.as_ref().unwrap();
    assert_eq!(prediction.gap, 0.0);
    assert!(report.regions.iter().any(|r| !r.alternatives.is_empty()));
}

#[test]
fn the_published_method_breeds_plans_of_an_engine() {
    let all = vec![native(), engine(), Arc::new(Reference)];
    let report = place(Method::CollageV1, all, "c");
    let [e] = &report.evolutions[..] else { panic!("{:?}", report.evolutions) };
    assert_eq!(e.engine.as_deref(), Some(NAME));
    assert!(e.genes > 0 && e.genes < e.groups, "the engine does not pool: {e:?}");
    assert!(e.individuals > 1 && e.failed == 0, "{e:?}");
    let (op_level, engine, best) =
        (e.op_level_ns.unwrap(), e.engine_ns.unwrap(), e.best_ns.unwrap());
    assert!(best <= op_level && best <= engine, "{e:?}");
    // The reference is slower than kernels.
    assert!(report.regions.iter().any(|r| r.backend == "native"));
    assert!(e.op_level_predicted_ns > 0.0 && e.layout_blind_ns > 0.0);
}

#[test]
fn without_an_engine_the_op_level_decides() {
    let report = place(Method::CollageV1, vec![native(), Arc::new(Reference)], "d");
    let [e] = &report.evolutions[..] else { panic!("{:?}", report.evolutions) };
    assert_eq!((e.engine.clone(), e.individuals), (None, 0));
    assert!(report.contenders.len() == 1 && report.contenders[0].chosen);
}

/// The backend that computes a node.
fn backend_of<'a>(report: &'a Report, node: &str) -> &'a str {
    let holds = |r: &&bricolage::report::Region| r.nodes.iter().any(|n| n == node);
    &report.regions.iter().find(holds).unwrap().backend
}

#[test]
fn wishes_decide_before_prices() {
    let all = || vec![native(), engine(), Arc::new(Reference)];
    let wish = |text: &str, pinned| Wish::parse(text, pinned).unwrap();
    // The engine is slower than kernels, and would not be chosen.
    let of_nodes = |nodes: Vec<Wish>| Wishes { nodes, ..Wishes::default() };
    let wishes = of_nodes(vec![wish("add=engine", true), wish("conv2=native", false)]);
    let report = place_wishing(Method::Exact, all(), &wishes, "e").unwrap();
    assert_eq!(backend_of(&report, "add"), NAME);
    assert_ne!(backend_of(&report, "conv2"), "native");
    assert_eq!(backend_of(&report, "conv1"), "native");
    // Who takes nothing else takes the last resort.
    let only = vec![native(), Arc::new(Reference) as Arc<dyn Backend>];
    let wishes = of_nodes(vec![wish("conv2=native", false)]);
    let report = place_wishing(Method::Exact, only, &wishes, "f").unwrap();
    assert_eq!(backend_of(&report, "conv2"), "reference");
    for (text, pinned, method, why) in [
        ("pool=engine", true, Method::Exact, "does not pool"),
        ("conv9=native", true, Method::Exact, "no node of this name"),
        ("conv2=other", false, Method::Exact, "no backend `other`"),
        ("conv2=native", false, Method::Greedy, "grants no wishes"),
    ] {
        let wishes = of_nodes(vec![wish(text, pinned)]);
        let error = place_wishing(method, all(), &wishes, "g").err().unwrap();
        assert!(error.code() == "place::wish" && error.to_string().contains(why), "{error}");
    }
}

#[test]
fn a_backend_must_save_what_it_is_charged() {
    let all = || vec![native(), engine(), Arc::new(Reference)];
    // Only the last resort pools then, and each backend can do without the other.
    let nodes = vec![Wish::parse("pool=native", false).unwrap()];
    let charged = |backend: &str, ns: f64| Wishes {
        nodes: nodes.clone(),
        charges: vec![Charge { backend: backend.to_owned(), ns }],
        error: None,
    };
    let uses = |report: &Report, name: &str| report.regions.iter().any(|r| r.backend == name);
    let free = place_wishing(Method::Exact, all(), &charged("native", 0.0), "i").unwrap();
    assert!(uses(&free, "native"), "{:?}", free.regions);
    let dear = place_wishing(Method::Exact, all(), &charged("native", 1e12), "j").unwrap();
    assert!(uses(&dear, NAME) && !uses(&dear, "native"), "{:?}", dear.regions);
    assert_eq!(dear.wishes, charged("native", 1e12));
    let mixed = dear.contenders.iter().find(|c| c.name == "mixed").unwrap();
    assert!(mixed.prediction.as_ref().unwrap().sum_ns < 1e12);
    for (backend, method, why) in [
        ("other", Method::Exact, "no backend `other`"),
        ("native", Method::CollageV1, "grants no wishes"),
    ] {
        let mut wishes = charged(backend, 1.0);
        wishes.nodes.clear();
        let error = place_wishing(method, all(), &wishes, "k").err().unwrap();
        assert!(error.code() == "place::wish" && error.to_string().contains(why), "{error}");
    }
}

#[test]
fn errors_of_kernels_stay_within_their_budget() {
    let rough: Arc<dyn Backend> = Arc::new(Engine(Numerics::Winograd(4)));
    let all = || vec![native(), rough.clone(), Arc::new(Reference) as Arc<dyn Backend>];
    let each = Numerics::Winograd(4).error();
    // The pooling between the two is the engine's in no plan, so that they are two kernels.
    let pin = |node: &str| Wish::parse(&format!("{node}=engine"), true).unwrap();
    let within = |error: f64, name: &str| {
        let wishes = Wishes {
            nodes: vec![pin("conv1"), pin("conv2")],
            charges: Vec::new(),
            error: Some(error),
        };
        place_wishing(Method::Exact, all(), &wishes, name)
    };
    let report = within(2.0 * each, "l").unwrap();
    assert_eq!(["conv1", "conv2"].map(|node| backend_of(&report, node)), [NAME; 2]);
    let error = within(1.5 * each, "m").err().unwrap();
    assert!(error.code() == "place::wish", "{error}");
    assert!(error.to_string().contains("err by more in every plan"), "{error}");
}

#[test]
fn every_region_says_what_others_lack() {
    let all = vec![native(), engine(), Arc::new(Reference)];
    let report = place(Method::Exact, all, "h");
    let mixed = report.contenders.iter().find(|c| c.name == "mixed").unwrap();
    let prediction = mixed.prediction.as_ref().unwrap();
    assert!(prediction.gap == 0.0 && prediction.bound_ns <= prediction.sum_ns * (1.0 + 1e-9));
    for region in &report.regions {
        for other in &region.alternatives {
            assert!(other.exact && other.lacks_ns >= 0.0 && other.median_ns > 0.0, "{region:?}");
        }
        // The engine does not pool.
        let engine = region.alternatives.iter().any(|a| a.backend == NAME);
        assert!(engine || region.backend == NAME || region.nodes == ["pool"], "{region:?}");
    }
    assert!(report.regions.iter().any(|r| r.in_plan_ns.is_some()), "{:?}", report.regions);
}
