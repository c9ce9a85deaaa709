//! Faults put in on purpose: a wrong rule, wrong kernels, a wrong conversion and wrong records. Each is
//! caught by what guards every search, and named where the user reads.
#![allow(clippy::unwrap_used)] // a test may panic

use bricolage::{Cx, Error, Goal, Progress, Temporary, optimize, report::Report};
use bricolage_backend::{
    Backend, BackendKind, BackendStatus, Bound, Candidate, Packed, Proposals, Registry, Setting,
};
use bricolage_backends::{Native, Reference};
use bricolage_ir::{Graph, NodeId, Op, OpKind, ops, origin};
use bricolage_measure::{Database, Key, Machine, Measurement, Record};
use bricolage_placement::{Form, gather, least_ns};
use bricolage_rewrite::{Outcome, Patch, RULES, Rule};
use bricolage_runtime::{Cancel, Dims, Kernel, Needs, Recipe, Run, RunError};
use bricolage_tensor::{DType, Format, Rng, Tensor, TensorType};
use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// What is wrong with a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    /// A kernel of two operands takes one for the other.
    Always,
    /// The same after so many runs.
    After(u64),
    /// A conversion takes channels for rows.
    Conversion,
}

/// Our own kernels under another name, and a fault.
struct Planted {
    inner: Native,
    wrong: Wrong,
    runs: Arc<AtomicU64>,
}

const NAME: &str = "planted";

impl Planted {
    fn new(wrong: Wrong) -> Arc<Planted> {
        Arc::new(Planted { inner: Native::default(), wrong, runs: Arc::default() })
    }

    fn spoil(&self, inner: Arc<dyn Kernel>) -> Arc<dyn Kernel> {
        Arc::new(Spoilt { inner, wrong: self.wrong, runs: self.runs.clone() })
    }
}

impl Backend for Planted {
    fn name(&self) -> &str {
        NAME
    }
    fn kind(&self) -> BackendKind {
        BackendKind::OpLibrary
    }
    fn version(&self) -> String {
        "1".to_owned()
    }
    fn status(&self) -> BackendStatus {
        BackendStatus { name: NAME.to_owned(), ..self.inner.status() }
    }
    fn propose(&self, graph: &Graph, exit: NodeId, setting: &Setting) -> Proposals {
        match self.wrong {
            Wrong::Conversion => Proposals::default(),
            _ => self.inner.propose(graph, exit, setting),
        }
    }
    fn bind(&self, graph: &Graph, c: &Candidate, setting: &Setting) -> Result<Bound, String> {
        let bound = self.inner.bind(graph, c, setting)?;
        Ok(Bound { kernel: self.spoil(bound.kernel.clone()), ..bound })
    }
    fn convert(&self, dims: &[i64], from: &Format, to: &Format) -> Option<Bound> {
        let bound = match self.wrong {
            Wrong::Conversion => Reference.convert(dims, from, to)?,
            _ => return None,
        };
        Some(Bound { kernel: self.spoil(bound.kernel.clone()), ..bound })
    }
    fn rebuild(&self, recipe: &Recipe, built_in: &[Packed]) -> Result<Arc<dyn Kernel>, String> {
        let inner: &dyn Backend = match self.wrong {
            Wrong::Conversion => &Reference,
            _ => &self.inner,
        };
        let recipe = Recipe { backend: inner.name().to_owned(), ..recipe.clone() };
        Ok(self.spoil(inner.rebuild(&recipe, built_in)?))
    }
}

struct Spoilt {
    inner: Arc<dyn Kernel>,
    wrong: Wrong,
    runs: Arc<AtomicU64>,
}

impl Kernel for Spoilt {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn needs(&self, dims: &Dims<'_>, threads: usize) -> Needs {
        self.inner.needs(dims, threads)
    }
    fn run(&self, run: &mut Run<'_>) -> Result<(), RunError> {
        let before = self.runs.fetch_add(1, Ordering::Relaxed);
        let mut inputs = run.inputs.to_vec();
        let mut dims = Vec::new();
        match self.wrong {
            Wrong::After(runs) if before < runs => {}
            Wrong::Always | Wrong::After(_) => inputs.reverse(),
            Wrong::Conversion => {
                dims.extend_from_slice(inputs[0].dims);
                dims.swap(1, 2);
                inputs[0].dims = &dims;
            }
        }
        self.inner.run(&mut Run {
            inputs: &inputs,
            outputs: run.outputs,
            constants: run.constants,
            workspace: run.workspace,
            pool: run.pool,
            queue: run.queue,
            cancel: run.cancel,
        })
    }
    fn recipe(&self) -> Recipe {
        Recipe { backend: NAME.to_owned(), ..self.inner.recipe() }
    }
}

/// `sigmoid(a - b)`: one for the other is wrong.
fn difference() -> Graph {
    let mut g = Graph::new("difference");
    let ty = || TensorType::fixed(DType::F32, &[16, 64]);
    let (a, b) = (g.input("a", ty()), g.input("b", ty()));
    let d = g.add1(ops::Binary::Sub, &[a, b], origin("sub")).unwrap();
    g.outputs = vec![g.add1(ops::Unary::Sigmoid, &[d], origin("y")).unwrap()];
    g
}

/// A convolution that reads blocks of channels.
fn convolution() -> Graph {
    let mut rng = Rng::new(3);
    let mut g = Graph::new("convolution");
    let x = g.input("x", TensorType::fixed(DType::F32, &[1, 16, 8, 10]));
    let x = g.add1(ops::Unary::Sigmoid, &[x], origin("before")).unwrap();
    let w = Tensor::generate(DType::F32, &[16, 16, 3, 3], |_| 0.3 * rng.normal());
    let w = g.constant("w", w);
    let same = ops::Conv { pads: vec![(1, 1), (1, 1)], ..ops::Conv::plain(2) };
    g.outputs = vec![g.add1(same, &[x, w], origin("conv")).unwrap()];
    g
}

fn product() -> Graph {
    let mut rng = Rng::new(4);
    let mut g = Graph::new("product");
    let x = g.input("x", TensorType::fixed(DType::F32, &[64, 96]));
    let w = g.constant("w", Tensor::generate(DType::F32, &[96, 80], |_| rng.normal()));
    let op = ops::MatMul { transpose_lhs: false, transpose_rhs: false };
    g.outputs = vec![g.add1(op, &[x, w], origin("product")).unwrap()];
    g
}

fn goal() -> Goal {
    Goal { seed: 3, ..Goal::new(1) }
}

/// A folder that goes when the test ends.
fn folder(name: &str) -> Temporary {
    let path = std::env::temp_dir().join(format!("bricolage-{name}-{}", std::process::id()));
    fs::create_dir_all(&path).unwrap();
    Temporary::new(path)
}

fn search(graph: &Graph, folder: &Temporary, registry: &Registry) -> Result<Report, Error> {
    search_by(graph, folder, registry, RULES)
}

fn search_by(
    graph: &Graph,
    folder: &Temporary,
    registry: &Registry,
    rules: &[&dyn Rule],
) -> Result<Report, Error> {
    let model = folder.path().join("model.onnx");
    fs::write(&model, bricolage_onnx::export(graph).unwrap()).unwrap();
    let cancel = Cancel::default();
    let cx = Cx {
        registry,
        cache: cache(folder),
        worker: None,
        goal: goal(),
        rules,
        progress: &|_: &Progress| {},
        cancel: &cancel,
    };
    let outcome = optimize(&cx, &model, &folder.path().join("out.bricolage"), true)?;
    Ok(outcome.report)
}

fn cache(folder: &Temporary) -> PathBuf {
    folder.path().join("cache")
}

fn with(planted: Arc<Planted>) -> Registry {
    Registry::new(vec![planted, Arc::new(Native::default()), Arc::new(Reference)])
}

#[test]
fn a_wrong_kernel_is_refused_by_name() {
    let folder = folder("planted-kernel");
    let report = search(&difference(), &folder, &with(Planted::new(Wrong::Always))).unwrap();
    let refused: Vec<_> = report.refused.iter().filter(|r| r.backend == NAME).collect();
    assert!(!refused.is_empty());
    for r in &refused {
        assert!(r.why.contains("its result is wrong"), "{}", r.why);
        assert!(r.nodes.iter().any(|n| n == "sub"), "{:?}", r.nodes);
    }
    assert!(report.regions.iter().all(|r| r.backend != NAME));
    assert!(report.error_share <= 1.0);
    // The refusal is remembered, and still told.
    let again = search(&difference(), &folder, &with(Planted::new(Wrong::Always))).unwrap();
    assert_eq!((again.measured, again.refused), (0, report.refused));
}

#[test]
fn a_kernel_that_goes_wrong_later_is_refused_with_its_plans() {
    let folder = folder("planted-late");
    let report = search(&difference(), &folder, &with(Planted::new(Wrong::After(64)))).unwrap();
    assert!(report.regions.iter().all(|r| r.backend != NAME));
    assert!(report.error_share <= 1.0);
    let refused = report.contenders.iter().filter(|c| c.backends.iter().any(|b| b == NAME));
    let refused: Vec<_> = refused.collect();
    assert!(!refused.is_empty());
    for plan in refused {
        let why = plan.refused.as_ref().unwrap();
        assert!(why.contains("output `y` is wrong"), "{why}");
        let named = |w: &String| w.contains(&plan.name) && w.contains(why);
        assert!(report.warnings.iter().any(named), "{:?}", report.warnings);
    }
}

#[test]
fn a_plan_of_nothing_but_wrong_kernels_is_an_error() {
    let folder = folder("planted-only");
    let registry = Registry::new(vec![Planted::new(Wrong::After(64)), Arc::new(Reference)]);
    let error = search(&difference(), &folder, &registry).unwrap_err();
    assert!(matches!(error, Error::Mismatch { .. }), "{error}");
    let said = error.to_string();
    assert!(said.contains(NAME) && said.contains("output `y` is wrong"), "{said}");
}

#[test]
fn a_wrong_conversion_is_refused_by_name_and_another_taken() {
    let folder = folder("planted-conversion");
    let registry = with(Planted::new(Wrong::Conversion));
    let report = search(&convolution(), &folder, &registry).unwrap();
    let told = |report: &Report| {
        report.refused.iter().any(|r| {
            r.backend == NAME
                && r.what.starts_with("conversion ")
                && r.why == "it does not keep the elements"
        })
    };
    assert!(told(&report), "{:?}", report.refused);
    assert!(report.error_share <= 1.0);
    assert!(report.regions.iter().any(|r| r.backend == "native" && r.nodes == ["conv"]));
    let again = search(&convolution(), &folder, &registry).unwrap();
    assert!(again.measured == 0 && told(&again));
}

/// Takes a sigmoid for a tanh.
struct TakesSigmoidForTanh;

impl Rule for TakesSigmoidForTanh {
    fn name(&self) -> &'static str {
        "take-sigmoid-for-tanh"
    }
    fn anchors(&self) -> &'static [OpKind] {
        &[OpKind::Unary]
    }
    fn apply(&self, graph: &Graph, at: NodeId) -> Outcome {
        let node = graph.node(at);
        match (&node.op, &node.inputs[..], &node.outputs[..]) {
            (Op::Unary(ops::Unary::Sigmoid), &[Some(x)], &[y]) => {
                Outcome::Rewrite(Patch::in_place_of(at, y, ops::Unary::Tanh, x))
            }
            _ => Outcome::NoMatch,
        }
    }
}

#[test]
fn a_wrong_rule_is_named_and_left_out() {
    let mut graph = difference();
    // Something for a right rule.
    let same = graph.add1(ops::Unary::Identity, &[graph.outputs[0]], origin("same")).unwrap();
    graph.outputs = vec![graph.add1(ops::Unary::Relu, &[same], origin("z")).unwrap()];
    let registry = Registry::new(vec![Arc::new(Native::default()), Arc::new(Reference)]);
    for (i, place) in [0, RULES.len()].into_iter().enumerate() {
        let mut rules = RULES.to_vec();
        rules.insert(place, &TakesSigmoidForTanh);
        let folder = folder(&format!("rule-{i}"));
        let report = search_by(&graph, &folder, &registry, &rules).unwrap();
        let named = |w: &&String| w.contains("`take-sigmoid-for-tanh` of y changes `y`");
        let warning = report.warnings.iter().find(named).unwrap();
        let place = warning.split('`').rfind(|part| part.contains("reproducers")).unwrap();
        for file in ["graph.case", "model.onnx", "inputs.npz"] {
            assert!(PathBuf::from(place).join(file).is_file(), "{place}: {file}");
        }
        assert!(report.rewrites.iter().all(|r| r.rule != "take-sigmoid-for-tanh"));
        assert!(report.rewrites.iter().any(|r| r.rule == "remove-identity"));
        assert!(report.audited.is_some_and(|a| a.caught.len() == 1));
    }
    let folder = folder("rules-right");
    let report = search(&graph, &folder, &registry).unwrap();
    assert!(report.audited.is_none() && report.warnings.is_empty(), "{:?}", report.warnings);
}

/// The database of a search, its records and what they belong to.
fn records(folder: &Temporary, graph: &Graph, registry: &Registry) -> Vec<(Key, f64)> {
    let graph = bricolage::rewrite(graph.clone()).unwrap().graph;
    let offers = gather(&graph, registry, &goal().setting()).unwrap().all;
    let kernels = offers.into_iter().filter(|o| matches!(o.form, Form::Kernel(_)));
    fs::create_dir_all(cache(folder)).unwrap();
    kernels
        .map(|o| {
            let region = &o.candidate.region;
            (o.key, least_ns(&graph, &region.nodes, &region.outputs, goal().threads))
        })
        .collect()
}

fn record(ns: f64) -> Record {
    let measurement = Measurement::of(&[ns, ns, ns], 1, false).unwrap();
    Record::Measured { measurement, error_share: 0.0, workspace: 0, refined: true }
}

#[test]
fn records_of_other_code_and_other_machines_are_not_taken() {
    let folder = folder("planted-stale");
    let registry = Registry::new(vec![Arc::new(Native::default()), Arc::new(Reference)]);
    let all = records(&folder, &product(), &registry);
    let other = Machine { model: "another".to_owned(), ..Machine::read() };
    let elsewhere = Database::open(&cache(&folder), &other).unwrap().database;
    let here = Database::open(&cache(&folder), &Machine::read()).unwrap().database;
    for (key, least) in &all {
        elsewhere.put(key, &record(2.0 * least)).unwrap();
        let version = Native::default().version();
        assert!(key.0.contains(&version), "{}", key.0);
        let stale = Key(key.0.replace(&version, "another version"));
        here.put(&stale, &record(2.0 * least)).unwrap();
    }
    drop((elsewhere, here));
    let report = search(&product(), &folder, &registry).unwrap();
    assert_eq!(report.known, 0);
    assert!(report.measured >= all.len(), "{} of {}", report.measured, all.len());
}

#[test]
fn impossible_times_are_named_and_taken_anew() {
    let folder = folder("planted-time");
    let registry = Registry::new(vec![Arc::new(Native::default()), Arc::new(Reference)]);
    let all = records(&folder, &product(), &registry);
    let database = Database::open(&cache(&folder), &Machine::read()).unwrap().database;
    let distinct: std::collections::BTreeSet<&str> = all.iter().map(|(k, _)| &*k.0).collect();
    for (i, (key, least)) in all.iter().enumerate() {
        let ns = if i % 2 == 0 { 0.5 * least } else { -1.0 };
        database.put(key, &record(ns)).unwrap();
    }
    drop(database);
    let report = search(&product(), &folder, &registry).unwrap();
    assert_eq!(report.known, 0);
    let told = |w: &&String| {
        w.starts_with("a time in the cost database cannot be: native") && w.contains("of product")
    };
    assert_eq!(
        report.warnings.iter().filter(told).count(),
        distinct.len(),
        "{:?}",
        report.warnings
    );
    let time = report.regions[0].measured.as_ref().unwrap();
    assert!(time.median_ns > all[0].1);
    let again = search(&product(), &folder, &registry).unwrap();
    assert!(again.measured == 0 && again.known > 0 && again.warnings.is_empty());
}
