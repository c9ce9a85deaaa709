//! The straight line: bytes, graph, graph, placed, plan, session.

use crate::{
    Emitted, Error, Goal, InputShape, Progress, WorkerCommand, artefact, check,
    claim::Claim,
    constant_bytes, contest, emit, inputs, loaded,
    original::Original,
    planned::search_stages,
    report::{self, Report},
    reproducer, search,
    stages::Cut,
};
use bricolage_backend::Registry;
use bricolage_ir::{Graph, ValueId};
use bricolage_measure::{Database, Machine};
use bricolage_onnx::Model;
use bricolage_placement::{Carried, Placed, place_guessed};
use bricolage_rewrite::{Audit, RULES, Rewritten, Rule};
use bricolage_runtime::{Cancel, Plan, Pool, PoolOptions, Program, Session, ThreadPool};
use bricolage_tensor::{Datum, Storage, Tensor};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

/// Everything that one optimisation works with.
pub struct Cx<'a> {
    /// Backends that may be used; the reference is among them.
    pub registry: &'a Registry,
    /// Where the cost database lies.
    pub cache: PathBuf,
    /// How to start worker processes; without one, foreign code runs in this process.
    pub worker: Option<WorkerCommand>,
    /// What is wanted.
    pub goal: Goal,
    /// How the graph is simplified; [`bricolage_rewrite::RULES`] are ours.
    pub rules: &'a [&'a dyn Rule],
    /// Told where the optimisation stands.
    pub progress: &'a dyn Fn(&Progress),
    /// Asks to stop with the best so far.
    pub cancel: &'a Cancel,
}

/// What an optimisation gave.
pub struct Outcome {
    /// Everything about it; also in the artefact.
    pub report: Report,
    /// Whether it was stopped early.
    pub interrupted: bool,
}

/// Reads an ONNX model. Weights stay in the mapped file. A model that has no meaning here while its
/// sizes are open is read for inputs of `shapes`, as far as those are single sizes.
pub fn import(path: &Path, shapes: &[InputShape]) -> Result<Model, Error> {
    let read = match bricolage_onnx::load(path) {
        Err(error) if error.is_unsupported() && !shapes.is_empty() => {
            let all: Vec<(&str, Vec<i64>)> =
                shapes.iter().filter_map(|s| Some((s.name.as_str(), s.fixed()?))).collect();
            let sizes: Vec<(&str, &[i64])> = all.iter().map(|(n, d)| (*n, d.as_slice())).collect();
            bricolage_onnx::load_sized(path, &sizes).or(Err(error))
        }
        other => other,
    };
    read.map_err(|error| Error::Import { path: path.to_owned(), error })
}

/// Reads what goes into an ONNX model and comes out, for a runtime that takes the model whole: all its
/// nodes are one that has no meaning here.
pub fn import_interface(path: &Path) -> Result<Graph, Error> {
    bricolage_onnx::load_interface(path)
        .map_err(|error| Error::Import { path: path.to_owned(), error })
}

/// Simplifies a graph: the same meaning in fewer, larger ops.
pub fn rewrite(graph: Graph) -> Result<Rewritten, Error> {
    rewrite_by(graph, RULES)
}

fn rewrite_by(graph: Graph, rules: &[&dyn Rule]) -> Result<Rewritten, Error> {
    bricolage_rewrite::simplify(graph, rules)
        .map_err(|e| Error::Internal { what: format!("a rewrite broke the graph: {e}") })
}

/// [`rewrite`] by these rules, where every patch must give on `inputs`, and on edge values in their place, what was there
/// before. A rule that does not is left out; what shows it is saved below `reproducers`.
pub fn rewrite_audited(
    graph: Graph,
    rules: &[&dyn Rule],
    inputs: &[Datum],
    reproducers: &Path,
) -> Result<(Rewritten, report::Audited), Error> {
    let mut audit = Audit::new(&graph, inputs)?;
    let rewritten = bricolage_rewrite::simplify_audited(graph, rules, &mut audit)
        .map_err(|e| Error::Internal { what: format!("a rewrite broke the graph: {e}") })?;
    let mut caught = Vec::new();
    for c in &audit.caught {
        let what = format!("rewrite `{}` of {} changes {}", c.rule, c.origin, c.what);
        let after = format!("{what}\nin its place:\n{}", bricolage_ir::print(&c.after).0);
        let kind = format!("rewrite-{}", c.rule);
        let place = reproducer::save(reproducers, &kind, &c.before, &c.inputs, &after)?;
        caught.push(format!(
            "{what}; it is left out; this is a bug in bricolage, `{}` shows it",
            place.display()
        ));
    }
    let (unjudged, why) = audit.unjudged;
    Ok((rewritten, report::Audited { agreed: audit.agreed, unjudged, why, caught }))
}

/// A pool of this many threads.
pub fn pool(threads: usize) -> Result<Arc<dyn Pool + Send + Sync>, Error> {
    let options = PoolOptions { threads, ..PoolOptions::default() };
    let pool = ThreadPool::new(&options)
        .map_err(|e| Error::Internal { what: format!("cannot start threads: {e}") })?;
    Ok(Arc::new(pool))
}

/// Takes a model to an artefact in `out`: imports, rewrites, places by measurement, emits, checks,
/// verifies and saves. Sizes that have a range are measured at its upper end.
pub fn optimize(cx: &Cx<'_>, path: &Path, out: &Path, overwrite: bool) -> Result<Outcome, Error> {
    artefact::require_room(out, overwrite)?;
    let _claim = Claim::take(&cx.cache, out)?;
    let outcome = make(cx, path, out, overwrite, cx.goal.audit_rewrites);
    match outcome {
        // Which rewrite it was takes an evaluation of each; the search is repeated without it.
        Err(Error::Rewrite { .. }) if !cx.goal.audit_rewrites => {
            make(cx, path, out, overwrite, true)
        }
        other => other,
    }
}

/// [`optimize`], each rewrite evaluated where `audit` asks for it.
fn make(
    cx: &Cx<'_>,
    path: &Path,
    out: &Path,
    overwrite: bool,
    audit: bool,
) -> Result<Outcome, Error> {
    let started = Instant::now();
    let step = |phase| (cx.progress)(&Progress { phase, done: 0, total: 0, best_ns: None });
    step("import");
    let model = import(path, &cx.goal.shapes)?;
    let graph = inputs::bind_shapes(&model.graph, &cx.goal.shapes)?;
    // What an input is for is plainest before ops are merged.
    let tensors = inputs::sample_inputs(&graph, cx.goal.seed)?;
    let draws = inputs::describe_draws(&graph);
    step("rewrite");
    let before = graph.nodes().count();
    let data: Vec<Datum> = tensors.iter().cloned().map(Datum::from).collect();
    let original = Original::new(&graph, &data);
    let (rewritten, audited) = if audit {
        let found =
            rewrite_audited(graph.clone(), cx.rules, &data, &reproducer::folder(&cx.cache))?;
        (found.0, Some(found.1))
    } else {
        (rewrite_by(graph.clone(), cx.rules)?, None)
    };
    let cut = Arc::new(cut(&rewritten.graph)?);

    let machine = Machine::read();
    let opened = Database::open(&cx.cache, &machine)?;
    let mut warnings = model.warnings.clone();
    warnings.extend(audited.iter().flat_map(report::Audited::warnings));
    if let Some(aside) = &opened.set_aside {
        warnings.push(format!(
            "the cost database was damaged; it was set aside as `{}`",
            aside.display()
        ));
    }
    let waiting = Instant::now();
    let lock = search::lock(cx, &mut warnings)?;
    // The time limit is for the search: waiting for others does not count.
    let started = started + waiting.elapsed();
    let known = (&opened.database, &machine);
    let searched = search_stages(cx, &model.hash, &cut, &tensors, known, started)?;
    drop(lock);
    for planned in &searched.planned {
        let said = planned.found.warnings.iter();
        warnings.extend(said.map(|w| format!("{}{w}", searched.label(planned))));
    }
    let spent = started.elapsed();
    if let Some(limit) = cx.goal.time_limit
        && spent > limit
    {
        warnings.push(format!(
            "the search took {:.1} s of the {:.1} s that it was given: the model is read and plans are \
             verified in any case",
            spent.as_secs_f64(),
            limit.as_secs_f64()
        ));
    }
    step("save");
    let sizes = (!inputs::is_fixed(&cut.graph)).then(|| artefact::OpenSizes {
        ranges: cut.graph.ranges.0.iter().map(|(s, r)| (s.to_string(), *r)).collect(),
        measured: searched.sizes.iter().map(|(s, n)| (s.to_string(), *n)).collect(),
    });
    let verified = searched.verify(cx, &cut, &tensors, sizes.is_some())?;
    warnings.extend(original.require(&verified, &model.hash, &opened.database)?);
    let unproven = verified.allowed.iter().filter(|a| !a.max_abs.is_finite());
    warnings.extend(unproven.map(|a| {
        format!(
            "nothing is proven of output `{}`: on the drawn inputs rounding alone may make anything of it",
            a.output
        )
    }));
    let mut report = Report {
        inputs: draws,
        rewrites: rewritten.applied.iter().map(report::Applied::of).collect(),
        audited,
        nodes: (before, cut.graph.nodes().count()),
        sizes: sizes.clone(),
        allowed: verified.allowed.clone(),
        error_share: verified.error_share,
        warnings,
        ..Report::new(path, &model.hash, &cx.goal, machine.clone())
    };
    report.memory.constants_bytes = constant_bytes(&cut.graph);
    for planned in &searched.planned {
        report.add(&searched.label(planned), &planned.graph, &planned.found);
    }
    let (plans, weights) = searched.merge();
    report.memory.weights_bytes = weights.len();
    report.seconds = started.elapsed().as_secs_f64();
    let manifest = artefact::Manifest {
        model: model.hash.clone(),
        backends: searched.backends(cx.registry, sizes.is_some()),
        sizes,
        allowed: verified.allowed,
        ..artefact::Manifest::new(&cx.goal, machine)
    };
    artefact::save(
        out,
        overwrite,
        artefact::Contents {
            manifest,
            plans: &plans,
            weights: &weights,
            inputs: &named(&cut.graph, &cut.graph.inputs, &tensors),
            outputs: &named(&cut.graph, &cut.graph.outputs, &verified.outputs),
            model: Some(&rewritten.graph),
            report: &report,
        },
    )?;
    Ok(Outcome { report, interrupted: cx.cancel.is_cancelled() })
}

/// The stages of a rewritten graph that fits into memory.
pub(crate) fn cut(rewritten: &Graph) -> Result<Cut, Error> {
    let largest = inputs::at_upper_ends(rewritten)?;
    inputs::require_memory(&largest, largest.values())?;
    Cut::of(as_saved(rewritten)?)
}

fn named(graph: &Graph, values: &[ValueId], tensors: &[Tensor]) -> Vec<(String, Tensor)> {
    let name = |&v: &ValueId| graph.value(v).name.to_string();
    values.iter().map(name).zip(tensors.iter().cloned()).collect()
}

/// The graph as whoever opens an artefact of it will see it. An open graph is written and read: its stages
/// are cut again when the artefact is loaded, and must be these.
fn as_saved(graph: &Graph) -> Result<Graph, Error> {
    if inputs::is_fixed(graph) {
        return Ok(graph.clone());
    }
    let bytes = bricolage_onnx::export(graph)?;
    let len = bytes.len();
    loaded::reread(Storage::shared(Arc::new(bytes), 0, len), &graph.ranges)
}

/// Emits a placement and has it judged.
pub(crate) fn emit_checked(
    registry: &Registry,
    goal: &Goal,
    graph: &Graph,
    placed: &Placed,
) -> Result<Emitted, Error> {
    let emitted = emit(graph, placed, registry, &goal.setting())?;
    check(graph, placed, &emitted.plan, &emitted.kernels).map_err(|what| Error::Internal {
        what: format!("the plan `{}` is wrong: {what}", placed.name),
    })?;
    Ok(emitted)
}

/// A session of a plan that was just emitted.
pub(crate) fn open(emitted: &Emitted, pool: Arc<dyn Pool + Send + Sync>) -> Result<Session, Error> {
    let program =
        Program::new(emitted.plan.clone(), emitted.kernels.clone(), emitted.weights.to_storage())?;
    Ok(Session::open(Arc::new(program), pool)?)
}

/// Places a graph without measuring anything: the backends' own guesses decide.
pub fn place_unmeasured(registry: &Registry, graph: &Graph, goal: &Goal) -> Result<Placed, Error> {
    place_carrying(registry, graph, goal, &[])
}

/// [`place_unmeasured`], where choices that were measured at other sizes come before guesses.
pub(crate) fn place_carrying(
    registry: &Registry,
    graph: &Graph,
    goal: &Goal,
    carried: &[Carried],
) -> Result<Placed, Error> {
    // Guesses are not worth a longer search.
    let until = Instant::now().checked_add(Duration::from_secs(1));
    Ok(place_guessed(graph, registry, &goal.setting(), carried, until)?)
}

/// A model ready to run: rewritten, placed by guesses on `registry`, emitted and checked.
pub fn compile_unmeasured(
    registry: &Registry,
    graph: Graph,
    goal: &Goal,
) -> Result<(Graph, Plan, Session), Error> {
    let graph = rewrite(graph)?.graph;
    let (plan, session) = compile_rewritten(registry, &graph, goal)?;
    Ok((graph, plan, session))
}

/// [`compile_unmeasured`] of a graph that is rewritten already.
pub(crate) fn compile_rewritten(
    registry: &Registry,
    graph: &Graph,
    goal: &Goal,
) -> Result<(Plan, Session), Error> {
    let emitted = emit_unmeasured(registry, graph, goal)?;
    let session = open(&emitted, pool(goal.threads)?)?;
    Ok((emitted.plan, session))
}

fn emit_unmeasured(registry: &Registry, graph: &Graph, goal: &Goal) -> Result<Emitted, Error> {
    inputs::require_fixed(graph)?;
    let placed = place_unmeasured(registry, graph, goal)?;
    emit_checked(registry, goal, graph, &placed)
}

/// An artefact of a graph placed by guesses, nothing measured or verified: for timing a backend alone. Of a
/// graph that tells sizes it holds no plan: they are made when the sizes are known.
pub fn save_unmeasured(
    registry: &Registry,
    graph: Graph,
    goal: &Goal,
    folder: &Path,
) -> Result<(), Error> {
    let graph = rewrite(graph)?.graph;
    let parent = folder.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent).map_err(Error::file("write", parent))?;
    if inputs::is_fixed(&graph) {
        let emitted = emit_unmeasured(registry, &graph, goal)?;
        return contest::save_scratch(&emitted, goal, folder);
    }
    // What cannot be cut or written is refused here.
    Cut::of(as_saved(&graph)?)?;
    let manifest = artefact::Manifest {
        backends: registry.iter().map(|b| (b.name().to_owned(), b.version())).collect(),
        sizes: Some(artefact::OpenSizes::default()),
        ..artefact::Manifest::new(goal, Machine::read())
    };
    let contents = artefact::Contents {
        manifest,
        plans: &[],
        weights: &bricolage_runtime::Weights::default(),
        inputs: &[],
        outputs: &[],
        model: Some(&graph),
        report: &(),
    };
    artefact::save(folder, true, contents)
}
