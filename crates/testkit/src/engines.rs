//! Everything that can compute a graph, under one trait.

use crate::{
    Case, Expected,
    case::tensors,
    covers::{self, Choice},
    workers::{Workers, end_of},
};
use bricolage::{Emitted, Temporary};
use bricolage_backend::{Backend, BackendKind, Policy, Registry, Setting};
use bricolage_backends::{Native, Reference, foreign};
use bricolage_ir::{
    Error, Graph, NodeId, Op, ValueId, evaluate, evaluate_from,
    ops::{Binary, Coordinates, Interpolation, PoolKind, Rounding, Unary},
    verify,
};
use bricolage_measure::Machine;
use bricolage_onnx::{export, import};
use bricolage_placement::{Placed, gather_whole};
use bricolage_rewrite::{Audit, RULES, simplify_audited};
use bricolage_runtime::{Program, Session};
use bricolage_tensor::{DType, Datum, Storage, Tensor};
use std::{
    collections::{HashMap, HashSet},
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::Arc,
};

/// Something that computes graphs.
pub trait Engine: Send + Sync {
    /// A short name.
    fn name(&self) -> &str;

    /// The least share of any cases that it takes: ONNX does not say everything, and a foreign library does
    /// not have everything.
    fn least_share(&self) -> f64 {
        1.0
    }

    /// Computes the case's outputs and compares them. The largest error as a share of the allowed one.
    fn check(&self, case: &Case) -> Result<f64, Fault>;
}

/// Why an engine gave no right answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// It does not take such graphs; that is no error of ours.
    Unsupported(String),
    /// It failed, in words.
    Failed(String),
    /// It panicked.
    Panicked(String),
    /// An output is further from the reference than rounding explains.
    Wrong(String),
}

impl Fault {
    /// Whether two faults are of one kind.
    pub fn is_like(&self, other: &Fault) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// Whether it says of a foreign engine no more than that it does not take the graph: it ended its process, or
    /// has no kernel for some types and sizes. A model that breaks the rules is our fault.
    pub(crate) fn is_theirs(&self) -> bool {
        let says = |why: &str, words: &[&str]| words.iter().any(|w| why.contains(w));
        match self {
            Fault::Unsupported(_) => true,
            Fault::Failed(why) => says(why, THEIRS) && !says(why, INVALID),
            Fault::Panicked(_) | Fault::Wrong(_) => false,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Unsupported(why) => write!(f, "unsupported: {why}"),
            Fault::Failed(why) => write!(f, "failed: {why}"),
            Fault::Panicked(why) => write!(f, "panicked: {why}"),
            Fault::Wrong(what) => write!(f, "wrong: {what}"),
        }
    }
}

/// [`Engine::check`], with panics caught.
pub fn check(engine: &dyn Engine, case: &Case) -> Result<f64, Fault> {
    guarded(|| engine.check(case))
}

/// What `f` gives; a panic is a fault.
pub(crate) fn guarded<R>(f: impl FnOnce() -> Result<R, Fault>) -> Result<R, Fault> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(result) => result,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            Err(Fault::Panicked(text.unwrap_or_else(|| "without words".to_owned())))
        }
    }
}

/// The content of an environment variable that names a foreign library.
pub type Variable<'a> = &'a dyn Fn(&str) -> Option<PathBuf>;

/// Foreign backends that are here, and for each one that is not, why.
pub(crate) fn foreign_here(variable: Variable<'_>) -> (Vec<Arc<dyn Backend>>, Vec<String>) {
    let (mut here, mut absent) = (Vec::new(), Vec::new());
    for backend in foreign(variable, None).expect("pattern files of ours fit the language") {
        let status = backend.status();
        match status.version {
            Some(_) => here.push(backend),
            None => absent.push(format!("{}: {}; {}", status.name, status.found, status.how)),
        }
    }
    (here, absent)
}

/// Every engine that is here, and for each one that is not, why. Foreign code runs in `workers`.
pub fn engines(
    variable: Variable<'_>,
    workers: &Arc<Workers>,
) -> (Vec<Box<dyn Engine>>, Vec<String>) {
    let mut all: Vec<Box<dyn Engine>> = vec![
        Box::new(Rewritten),
        Box::new(Exported),
        Box::new(Plans { name: "plan, 1 thread", threads: 1, choice: Choice::Guessed }),
        Box::new(Plans { name: "plan, 2 threads", threads: 2, choice: Choice::Guessed }),
        Box::new(Plans { name: "random plan", threads: 2, choice: Choice::Random }),
        Box::new(Candidates {
            name: "candidates".to_owned(),
            registry: own_registry(),
            workers: None,
        }),
    ];
    let (here, absent) = foreign_here(variable);
    let is_whole = |b: &Arc<dyn Backend>| b.kind() == BackendKind::GraphEngine;
    let wholes: Vec<String> =
        here.iter().filter(|b| is_whole(b)).map(|b| b.name().to_owned()).collect();
    for backend in here {
        let name = backend.name().to_owned();
        let whole = is_whole(&backend);
        let others = wholes.iter().filter(|other| **other != name).cloned().collect();
        let registry = Registry::new(vec![backend, Arc::new(Reference)]);
        let workers = workers.clone();
        all.push(match whole {
            true => Box::new(Foreign { name, registry, others, workers }),
            false => Box::new(Candidates { name, registry, workers: Some(workers) }),
        });
    }
    (all, absent)
}

/// The error of the outputs as a share of what is allowed.
fn compare(graph: &Graph, expected: &Expected, found: &[Tensor]) -> Result<f64, Fault> {
    if found.len() != expected.outputs.len() {
        return Err(Fault::Wrong(format!(
            "needed {} outputs, found {}",
            expected.outputs.len(),
            found.len()
        )));
    }
    let mut largest: f64 = 0.0;
    for (i, found) in found.iter().enumerate() {
        let name = graph.outputs.get(i).map_or("?", |&v| &*graph.value(v).name);
        let (reference, allowed) = (&expected.outputs[i], &expected.allowed[i]);
        if found.ty() != reference.ty() {
            let (needed, found) = (reference.ty(), found.ty());
            return Err(Fault::Wrong(format!("`{name}` is {found}, needs {needed}")));
        }
        let error = Error::between(reference, found);
        let share = error.share_of(allowed);
        if share.is_nan() || share > 1.0 {
            return Err(Fault::Wrong(format!(
                "`{name}`: {error}; allowed {:.3e} and {:.3e}",
                allowed.max_abs, allowed.relative_l2
            )));
        }
        largest = largest.max(share);
    }
    Ok(largest)
}

fn failed(error: impl fmt::Display) -> Fault {
    Fault::Failed(error.to_string())
}

fn rewritten(case: &Case) -> Result<Case, Fault> {
    let graph = bricolage::rewrite(case.graph.clone()).map_err(failed)?.graph;
    let faults = verify(&graph);
    if let Some(fault) = faults.first() {
        return Err(failed(format!("the rewritten graph is unsound: {fault}")));
    }
    Ok(Case { graph, inputs: case.inputs.clone() })
}

/// The reference evaluator on the simplified graph, and on each patch that simplified it.
struct Rewritten;

impl Engine for Rewritten {
    fn name(&self) -> &str {
        "rewritten"
    }

    fn check(&self, case: &Case) -> Result<f64, Fault> {
        let after = rewritten(case)?;
        let expected = case.expected(&|_| 0.0).map_err(failed)?;
        let found = evaluate(&after.graph, &after.data()).map_err(failed)?;
        let share = compare(&case.graph, &expected, &tensors(found))?;
        let mut audit = Audit::new(&case.graph, &case.data()).map_err(failed)?;
        simplify_audited(case.graph.clone(), RULES, &mut audit).map_err(failed)?;
        match audit.caught.first() {
            None => Ok(share),
            Some(c) => Err(Fault::Wrong(format!(
                "rewrite `{}` of {} changes {}",
                c.rule, c.origin, c.what
            ))),
        }
    }
}

/// The reference evaluator after a way through ONNX and back, as it is and simplified.
struct Exported;

impl Engine for Exported {
    fn name(&self) -> &str {
        "exported"
    }

    fn least_share(&self) -> f64 {
        0.5
    }

    fn check(&self, case: &Case) -> Result<f64, Fault> {
        let mut share: f64 = 0.0;
        for case in [case.clone(), rewritten(case)?] {
            // What ONNX cannot say is refused in words.
            let bytes = export(&case.graph).map_err(|e| Fault::Unsupported(e.to_string()))?;
            let again = import(Storage::copy_of(&bytes), None).map_err(failed)?;
            if let Some(warning) = again.warnings.first() {
                return Err(failed(format!("declared sizes: {warning}")));
            }
            let names = |g: &Graph, all: &[bricolage_ir::ValueId]| -> Vec<String> {
                all.iter().map(|&v| g.value(v).name.to_string()).collect()
            };
            let (old, new) = (&case.graph, &again.graph);
            for (needed, found) in [
                (names(old, &old.inputs), names(new, &new.inputs)),
                (names(old, &old.outputs), names(new, &new.outputs)),
            ] {
                if needed != found {
                    return Err(Fault::Wrong(format!("ports {needed:?} became {found:?}")));
                }
            }
            let expected = case.expected(&|_| 0.0).map_err(failed)?;
            let found = evaluate(new, &case.data()).map_err(failed)?;
            share = share.max(compare(old, &expected, &tensors(found))?);
        }
        Ok(share)
    }
}

/// Our own kernels and the reference.
pub(crate) fn own_registry() -> Registry {
    Registry::new(vec![Arc::new(Native::default()), Arc::new(Reference)])
}

/// Whole plans of our own kernels on the simplified graph, as emitted and judged.
struct Plans {
    name: &'static str,
    threads: usize,
    choice: Choice,
}

impl Engine for Plans {
    fn name(&self) -> &str {
        self.name
    }

    fn check(&self, case: &Case) -> Result<f64, Fault> {
        let case = rewritten(case)?;
        let setting = Setting { threads: self.threads, policy: Policy::Default };
        let registry = own_registry();
        let mut share: f64 = 0.0;
        for placed in covers::covers(&case, &registry, setting, self.choice).map_err(failed)? {
            share = share.max(run_plan(&case, &placed, &registry, setting)?);
        }
        Ok(share)
    }
}

/// Emits a placement and has it judged.
fn judged(
    graph: &Graph,
    placed: &Placed,
    registry: &Registry,
    setting: Setting,
) -> Result<Emitted, Fault> {
    let emitted = bricolage::emit(graph, placed, registry, &setting).map_err(failed)?;
    bricolage::check(graph, placed, &emitted.plan, &emitted.kernels)
        .map_err(|why| failed(format!("the judge of plans refuses: {why}")))?;
    Ok(emitted)
}

/// Emits a placement, has it judged, runs it on memory full of patterns and compares.
fn run_plan(
    case: &Case,
    placed: &Placed,
    registry: &Registry,
    setting: Setting,
) -> Result<f64, Fault> {
    let graph = &case.graph;
    let emitted = judged(graph, placed, registry, setting)?;
    let weights = emitted.weights.to_storage();
    let program = Program::new(emitted.plan, emitted.kernels, weights).map_err(failed)?;
    let pool = bricolage::pool(setting.threads).map_err(failed)?;
    let mut session = Session::open(Arc::new(program), pool).map_err(failed)?;
    let expected = case.expected(&covers::noise_of(placed)).map_err(failed)?;
    let mut share: f64 = 0.0;
    let mut first: Option<Vec<Tensor>> = None;
    // All bits set are NaN as floats; the second pattern is a large number.
    for pattern in [0xFF, 0x7E] {
        session.arena_mut().bytes_mut().fill(pattern);
        let found = session.run(&case.inputs).map_err(failed)?;
        share = share.max(compare(graph, &expected, &found)?);
        if first.get_or_insert_with(|| found.clone()) != &found {
            return Err(Fault::Wrong("what the arena held before changes the outputs".to_owned()));
        }
    }
    Ok(share)
}

/// Every candidate of some backends alone, on what the reference gives its region.
struct Candidates {
    name: String,
    registry: Registry,
    /// Where foreign ones run.
    workers: Option<Arc<Workers>>,
}

impl Engine for Candidates {
    fn name(&self) -> &str {
        &self.name
    }

    fn check(&self, case: &Case) -> Result<f64, Fault> {
        let case = rewritten(case)?;
        let mut share: f64 = 0.0;
        for threads in [1, 2] {
            let setting = Setting { threads, policy: Policy::Fast };
            let workers = self.workers.as_deref();
            for (what, verdict) in covers::candidates(&case, &self.registry, setting, workers)? {
                share = share.max(verdict.map_err(|why| {
                    let why = format!("{what}: {why}");
                    end_of(&why).unwrap_or(Fault::Wrong(why))
                })?);
            }
        }
        Ok(share)
    }
}

/// A foreign runtime on the exported graph, whole.
struct Foreign {
    name: String,
    registry: Registry,
    /// Names of other such runtimes.
    others: Vec<String>,
    workers: Arc<Workers>,
}

/// An error so many times as large as the allowed one is no matter of rounding.
const GROSS: f64 = 1e3;

impl Foreign {
    /// What is wrong with the runtime itself: on the exported file its own reader makes a gross error, and that of
    /// another runtime none.
    fn fault_of_its_own(&self, case: &Case) -> Option<String> {
        let path = std::env::temp_dir().join(format!(
            "{}-{}-{:?}.onnx",
            self.name,
            std::process::id(),
            std::thread::current().id()
        ));
        let file = Temporary::new(path);
        std::fs::write(file.path(), export(&case.graph).ok()?).ok()?;
        let name = |&v: &ValueId| case.graph.value(v).name.to_string();
        let inputs: Vec<(String, Tensor)> =
            case.graph.inputs.iter().map(name).zip(case.inputs.iter().cloned()).collect();
        let outputs: Vec<String> = case.graph.outputs.iter().map(name).collect();
        let expected = case.expected(&|_| 0.0).ok()?;
        let share = |runtime: &str| {
            let found = self.workers.by_itself(runtime, file.path(), &inputs, &outputs).ok()?;
            let all = found.iter().zip(&expected.outputs).zip(&expected.allowed);
            let shares = all.map(|((found, reference), allowed)| {
                let same = found.ty() == reference.ty();
                let share = Error::between(reference, found).share_of(allowed);
                if same && !share.is_nan() { share } else { f64::INFINITY }
            });
            Some(shares.fold(0.0, f64::max))
        };
        let own = share(&self.name).filter(|&own| own > GROSS)?;
        let right = self.others.iter().find(|other| share(other).is_some_and(|s| s <= 1.0))?;
        Some(format!(
            "by itself it is wrong {own:.0} times beyond what is allowed, where {right} is right"
        ))
    }
}

impl Engine for Foreign {
    fn name(&self) -> &str {
        &self.name
    }

    /// At least one case.
    fn least_share(&self) -> f64 {
        f64::MIN_POSITIVE
    }

    fn check(&self, case: &Case) -> Result<f64, Fault> {
        let setting = Setting { threads: 1, policy: Policy::Default };
        let Some(offer) = gather_whole(&case.graph, &self.registry, &setting).pop() else {
            return Err(Fault::Unsupported("it does not take the graph".to_owned()));
        };
        judged(&case.graph, &Placed::whole(offer.clone()), &self.registry, setting)?;
        let mut share: f64 = 0.0;
        for (what, verdict) in covers::whole(case, &self.registry, setting, &self.workers, &offer)?
        {
            share = share.max(verdict.map_err(|why| {
                end_of(&why).unwrap_or_else(|| match Fault::Failed(why.clone()).is_theirs() {
                    true => Fault::Unsupported(why),
                    false => match foreign_fault(&self.name, &case.graph, &case.data()) {
                        Some(why) => Fault::Unsupported(why.to_owned()),
                        None => {
                            let own = self.fault_of_its_own(case).map(|own| format!("; {own}"));
                            Fault::Wrong(format!("{what}: {why}{}", own.unwrap_or_default()))
                        }
                    },
                })
            })?);
        }
        Ok(share)
    }
}

/// How faults begin that the runtime itself reports.
const THEIRS: &[&str] = &[
    "cannot rebuild kernel",
    "-region` failed",
    "-region@extended` failed",
    "-region@basic` failed",
    "-region@disabled` failed",
];

/// What the runtime says of a model that breaks the rules.
const INVALID: &[&str] =
    &["invalid model", "TypeInferenceError", "ShapeInferenceError", "Invalid rank"];

/// What is known to be wrong in the runtime itself for this graph on these inputs, and explains wrong results.
pub(crate) fn foreign_fault(name: &str, graph: &Graph, inputs: &[Datum]) -> Option<&'static str> {
    match name {
        "onnxruntime" => onnxruntime_fault(graph),
        "openvino" => openvino_fault(graph, inputs),
        _ => None,
    }
}

fn openvino_fault(graph: &Graph, inputs: &[Datum]) -> Option<&'static str> {
    // By instructions that give the second of two operands where one is no number, call it no other than 0, or call
    // greater what is not less.
    let compares = |n: &NodeId| match &graph.node(*n).op {
        Op::Cast(cast) => cast.to == DType::Bool,
        Op::Clip(_) | Op::ArgReduce(_) | Op::TopK(_) => true,
        Op::Binary(Binary::Min | Binary::Max | Binary::Greater | Binary::GreaterEqual) => true,
        Op::Pool(pool) => matches!(pool.kind, PoolKind::Max { .. }),
        Op::Unary(f) => matches!(
            f,
            Unary::Relu
                | Unary::LeakyRelu { .. }
                | Unary::ThresholdedRelu { .. }
                | Unary::HardSigmoid { .. }
                | Unary::HardSwish
        ),
        _ => false,
    };
    let compared = graph.nodes().filter(compares).flat_map(|n| graph.node(n).inputs.clone());
    let compared: HashSet<ValueId> = compared.flatten().collect();
    if compared.is_empty() {
        return None;
    }
    let is_nan = |t: &Tensor| t.dtype().is_float() && t.to_f64().iter().any(|v| v.is_nan());
    let of_inputs = graph.inputs.iter().zip(inputs).filter(|(v, _)| compared.contains(v));
    let mut found = of_inputs.filter_map(|(_, d)| d.as_tensor()).any(is_nan);
    // Who compares the results meets the error.
    let _ = evaluate_from(graph, inputs, &HashMap::new(), &mut |v, datum| {
        found |= compared.contains(&v) && datum.as_tensor().is_some_and(is_nan);
    });
    found.then_some("its comparisons take a bound, or what is larger, for what is no number")
}

fn onnxruntime_fault(graph: &Graph) -> Option<&'static str> {
    let tensor = |v: ValueId| graph.fact(v).ty.as_tensor();
    let turned =
        |v| graph.producer(v).is_some_and(|n| matches!(graph.node(n).op, Op::Transpose(_)));
    graph.nodes().map(|n| graph.node(n)).find_map(|node| match (&node.op, &node.inputs[..]) {
        (Op::MatMul(op), &[Some(a), Some(b)]) => {
            let left = op.transpose_lhs || turned(a);
            (left && tensor(b)?.shape.len() == 1)
                .then_some("its product of a transposed matrix and a vector is wrong")
        }
        (Op::Unary(Unary::GeluTanh), &[Some(x)]) if tensor(x)?.dtype == DType::F64 => {
            Some("the constants of its gelu by tanh have the precision of f32")
        }
        (Op::Resize(r), _)
            if matches!(
                (r.mode, r.coordinates),
                (Interpolation::Nearest(Rounding::PreferCeil), Coordinates::Asymmetric)
                    | (Interpolation::Nearest(_), Coordinates::HalfPixelSymmetric)
            ) =>
        {
            Some("it rounds such coordinates otherwise than others")
        }
        (Op::Lrn(_), _) => {
            Some("it sums the squares of neighbouring channels by what enters and what leaves")
        }
        (Op::GroupNorm(_), &[Some(x), ..]) if tensor(x)?.dtype == DType::F64 => {
            Some("it norms groups of f64 in the precision of f32")
        }
        _ => None,
    })
}

/// The size of the largest cache, which decides how often trials copy constants.
pub(crate) fn last_level_cache() -> u64 {
    Machine::read().last_level_cache()
}
