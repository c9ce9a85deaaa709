//! The straight line: bytes, graph, graph, placed, plan, session.

use crate::{
    Emitted, Error, Goal, Progress, Proven, WorkerCommand, artefact, check,
    claim::Claim,
    constant_bytes, contest, emit, inputs,
    report::{self, Report},
    rewrite_proven,
    worker::{Benches, Worker},
};
use bricolage_backend::Registry;
use bricolage_ir::{Graph, NodeId};
use bricolage_measure::{Database, Machine, MeasuringLock};
use bricolage_onnx::Model;
use bricolage_placement::{
    Form, MeasuredConversions, Observed, Placed, PlacedRegion, Placements, Price, Pricing,
    Unpriced, gather_whole, place,
};
use bricolage_rewrite::{RULES, Rewritten};
use bricolage_runtime::{Cancel, Plan, Pool, PoolOptions, Program, Session, ThreadPool};
use bricolage_tensor::{Datum, Tensor};
use std::{
    cell::RefCell,
    path::{Path, PathBuf},
    rc::Rc,
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

/// Reads an ONNX model. Weights stay in the mapped file.
pub fn import(path: &Path) -> Result<Model, Error> {
    bricolage_onnx::load(path).map_err(|error| Error::Import { path: path.to_owned(), error })
}

/// Reads what goes into an ONNX model and comes out, for a runtime that takes the model whole: all its
/// nodes are one that has no meaning here.
pub fn import_interface(path: &Path) -> Result<Graph, Error> {
    bricolage_onnx::load_interface(path)
        .map_err(|error| Error::Import { path: path.to_owned(), error })
}

/// Simplifies a graph: the same meaning in fewer, larger ops.
pub fn rewrite(graph: Graph) -> Result<Rewritten, Error> {
    bricolage_rewrite::simplify(graph)
        .map_err(|e| Error::Internal { what: format!("a rewrite broke the graph: {e}") })
}

/// A pool of this many threads.
pub fn pool(threads: usize) -> Result<Arc<dyn Pool + Send + Sync>, Error> {
    let options = PoolOptions { threads, ..PoolOptions::default() };
    let pool = ThreadPool::new(&options)
        .map_err(|e| Error::Internal { what: format!("cannot start threads: {e}") })?;
    Ok(Arc::new(pool))
}

/// Takes a model to an artefact in `out`: imports, rewrites, places by measurement, emits, checks,
/// verifies and saves.
pub fn optimize(cx: &Cx<'_>, path: &Path, out: &Path, overwrite: bool) -> Result<Outcome, Error> {
    let started = Instant::now();
    artefact::require_room(out, overwrite)?;
    let _claim = Claim::take(&cx.cache, out)?;
    let step = |phase| (cx.progress)(&Progress { phase, done: 0, total: 0, best_ns: None });
    step("import");
    let model = import(path)?;
    let graph = inputs::bind_shapes(&model.graph, &cx.goal.shapes)?;
    // What an input is for is plainest before ops are merged.
    let tensors = inputs::sample_inputs(&graph, cx.goal.seed)?;
    let draws = inputs::describe_draws(&graph);
    let machine = Machine::read();
    let opened = Database::open(&cx.cache, &machine)?;
    step("rewrite");
    let before = graph.nodes().count();
    let data: Vec<Datum> = tensors.iter().cloned().map(Datum::from).collect();
    let Proven { rewritten, left_out } =
        rewrite_proven(&graph, RULES, &data, cx.goal.seed, Some(&opened.database))?;
    let graph = &rewritten.graph;
    let observed = Observed::new(graph, &data);
    let mut warnings = model.warnings.clone();
    warnings.extend(left_out);
    if let Some(aside) = &opened.set_aside {
        warnings.push(format!(
            "the cost database was damaged; it was set aside as `{}`",
            aside.display()
        ));
    }
    let waiting = Instant::now();
    let lock = lock(cx, &mut warnings)?;
    // The time limit is for the search: waiting for others does not count.
    let started = started + waiting.elapsed();
    let search = search_name(cx, &model, graph, &tensors);
    let limit = cx.goal.time_limit.map_or(f64::INFINITY, |l| l.as_secs_f64());
    let ended = opened.database.note(&search)?.and_then(|text| text.parse::<f64>().ok());
    let exhausted = ended.is_some_and(|before| limit <= before);
    let known = (&opened.database, search.as_str());
    let placed = placements(cx, graph, &observed, known, &machine, started, exhausted)?;
    let best = contest::run(&contest::Contest {
        cx,
        model: &model,
        graph,
        observed: &observed,
        tensors: &tensors,
        database: &opened.database,
        deadline: cx.goal.time_limit.and_then(|limit| started.checked_add(limit)),
        exhausted,
        scratch: cx.cache.join("scratch"),
        placed: &placed.all,
        floors: contest::Floors::default(),
    })?;
    drop(lock);
    if !cx.cancel.is_cancelled() && !exhausted {
        opened.database.set_note(&search, &limit.to_string())?;
    }
    warnings.extend(best.warnings.iter().cloned());
    let doubted = placed.effort.doubted.iter();
    warnings.extend(doubted.map(|d| format!("a time in the cost database cannot be: {d}")));
    if placed.effort.skipped > 0 {
        let (skipped, all) = (placed.effort.skipped, placed.offers);
        warnings.push(match exhausted {
            true => format!(
                "an earlier search with as much time ended without {skipped} of {all} offers; one \
                 with a longer limit measures them"
            ),
            false => format!("there was no time to measure {skipped} of {all} offers"),
        });
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
    let chosen = &placed.all[best.chosen];
    let emitted = &best.emitted;
    let report = Report {
        schema_version: report::SCHEMA_VERSION,
        bricolage: env!("CARGO_PKG_VERSION").to_owned(),
        model: path.display().to_string(),
        model_hash: model.hash.clone(),
        machine: machine.clone(),
        threads: cx.goal.threads as u32,
        seed: cx.goal.seed,
        inputs: draws,
        rewrites: rewritten
            .applied
            .iter()
            .map(|a| report::Applied {
                rule: a.rule.to_owned(),
                times: a.times,
                numerics: a.numerics.to_string(),
            })
            .collect(),
        nodes: (before, graph.nodes().count()),
        contenders: best.contenders.clone(),
        ratio_to_best_single: best.ratio,
        regions: chosen.regions.iter().map(|r| region_report(graph, r)).collect(),
        conversions: chosen
            .conversions
            .iter()
            .map(|c| report::Conversion {
                value: graph.value(c.value).name.to_string(),
                from: c.from.to_string(),
                to: c.to.to_string(),
                median_ns: match &c.price {
                    Price::Measured(m) => Some(m.median_ns),
                    _ => None,
                },
            })
            .collect(),
        declined: declined(graph, &placed),
        refused: placed
            .refused
            .iter()
            .map(|r| report::Refusal {
                backend: r.backend.clone(),
                what: r.what.clone(),
                nodes: origins(graph, &r.nodes),
                why: r.why.clone(),
            })
            .collect(),
        offers: placed.offers,
        known: placed.effort.known + best.known,
        measured: placed.effort.measured + best.measured,
        skipped: placed.effort.skipped,
        exact: chosen.exact,
        memory: report::Memory {
            arena_bytes: emitted.plan.arena,
            live_peak_bytes: emitted.live_peak,
            weights_bytes: emitted.plan.weights,
            constants_bytes: constant_bytes(graph),
        },
        allowed: best.allowed.clone(),
        error_share: best.error_share,
        warnings,
        seconds: started.elapsed().as_secs_f64(),
    };
    let named = |ports: &[bricolage_runtime::Port], tensors: &[Tensor]| {
        ports.iter().zip(tensors).map(|(p, t)| (p.name.clone(), t.clone())).collect::<Vec<_>>()
    };
    let mut backends = std::collections::BTreeMap::new();
    for source in &emitted.plan.kernels {
        if let Ok(backend) = cx.registry.get(&source.recipe.backend) {
            backends.insert(backend.name().to_owned(), backend.version());
        }
    }
    let manifest = artefact::Manifest {
        schema_version: artefact::SCHEMA_VERSION,
        bricolage: env!("CARGO_PKG_VERSION").to_owned(),
        model: model.hash.clone(),
        fingerprint: machine.fingerprint(),
        machine,
        threads: cx.goal.threads as u32,
        seed: cx.goal.seed,
        backends,
        files: std::collections::BTreeMap::new(),
        allowed: best.allowed.clone(),
    };
    artefact::save(
        out,
        overwrite,
        artefact::Contents {
            manifest,
            plan: &emitted.plan,
            weights: &emitted.weights,
            inputs: &named(&emitted.plan.inputs, &tensors),
            outputs: &named(&emitted.plan.outputs, &best.outputs),
            model: Some(graph),
            report: &report,
        },
    )?;
    Ok(Outcome { report, interrupted: cx.cancel.is_cancelled() })
}

/// Between two attempts to get the machine's lock.
const RETRY: Duration = Duration::from_millis(50);

/// Waits for other measuring processes, and says so.
fn lock(cx: &Cx<'_>, warnings: &mut Vec<String>) -> Result<Option<MeasuringLock>, Error> {
    let start = Instant::now();
    let mut waits = false;
    loop {
        match MeasuringLock::try_take(&cx.cache) {
            Ok(Some(lock)) => {
                if waits {
                    warnings.push(format!(
                        "waited {:.1} s for another measuring process, besides the time limit",
                        start.elapsed().as_secs_f64()
                    ));
                }
                return Ok(Some(lock));
            }
            Ok(None) if cx.cancel.is_cancelled() => return Err(Error::Interrupted),
            Ok(None) => {
                waits = true;
                let phase = "wait for another measuring process";
                (cx.progress)(&Progress { phase, done: 0, total: 0, best_ns: None });
                std::thread::sleep(RETRY);
            }
            Err(e) => {
                warnings.push(format!("measured without the machine's lock: {e}"));
                return Ok(None);
            }
        }
    }
}

/// The name under which the database keeps how many seconds a search that ended was given: a search
/// with no more time has nothing left to do.
fn search_name(cx: &Cx<'_>, model: &Model, graph: &Graph, tensors: &[Tensor]) -> String {
    let mut text = format!(
        "{}\n{} threads, {:?}, seed {}\n",
        model.hash, cx.goal.threads, cx.goal.policy, cx.goal.seed
    );
    text.push_str(&inputs::contents_name(graph, tensors));
    for backend in cx.registry.iter() {
        text.push_str(&format!("{} {}\n", backend.name(), backend.version()));
    }
    format!("search {}", blake3::hash(text.as_bytes()))
}

/// Prices all offers, unless that was done, and covers the graph: the best mix, each backend alone, each engine's whole graph.
fn placements(
    cx: &Cx<'_>,
    graph: &Graph,
    observed: &Observed<'_>,
    (database, contents): (&Database, &str),
    machine: &Machine,
    started: Instant,
    exhausted: bool,
) -> Result<Placements, Error> {
    let setting = cx.goal.setting();
    let scratch = cx.cache.join("scratch");
    let worker = cx
        .worker
        .clone()
        .map(|command| Rc::new(RefCell::new(Worker::new(command, setting.threads))));
    let search = match (exhausted, cx.goal.time_limit) {
        (false, Some(limit)) => Some(search_time(limit, graph, observed)),
        _ => None,
    };
    // Of all time, 0.85, 0.7 and 0.5 where the rest is enough for whole plans.
    let until = |share: f64| match (exhausted, search) {
        (true, _) => Some(started),
        (false, search) => search.and_then(|s| started.checked_add(s.mul_f64(share / 0.7))),
    };
    let deadline = until(0.7);
    let bench = Benches::new(cx.registry, pool(setting.threads)?, worker, scratch).until(deadline);
    let pricing = Pricing {
        graph,
        setting,
        database,
        contents,
        bench: &bench,
        observed,
        last_level_cache: machine.last_level_cache(),
        first_deadline: until(0.5),
        deadline,
        // A cover of what is known takes no measuring: a search that is repeated has time for it again.
        cover_deadline: match (exhausted, cx.goal.time_limit) {
            (true, limit) => limit.and_then(|l| started.checked_add(l.mul_f64(0.85))),
            (false, _) => until(0.85),
        },
        cancel: cx.cancel,
        progress: &|phase, done, total| {
            (cx.progress)(&Progress { phase, done, total, best_ns: None })
        },
    };
    let conversions = MeasuredConversions::new(&pricing, cx.registry);
    let mut placed = place(&pricing, cx.registry, &conversions).map_err(|error| {
        // Where the model itself cannot be evaluated, no kernel could be right.
        match graph.outputs.iter().find_map(|&v| observed.get(v).err()) {
            Some(fault) => Error::from(fault),
            None => Error::from(error),
        }
    })?;
    placed.effort.doubted.extend(conversions.doubted.take());
    for offer in gather_whole(graph, cx.registry, &setting) {
        let backend = offer.backend().to_owned();
        // The engine's own optimiser beats its single ops put together; those are no contender.
        placed.all.retain(|p| p.name != format!("{backend} alone"));
        placed.all.push(Placed::whole(offer));
    }
    Ok(placed)
}

/// How much of the time limit goes into measuring regions. The rest is for whole plans: each is opened,
/// verified and timed, and each kind of noise floor that they have takes about twice as long as the
/// reference evaluation, which is needed in any case.
fn search_time(limit: Duration, graph: &Graph, observed: &Observed<'_>) -> Duration {
    const FLOORS: u32 = 3;
    const PLANS: Duration = Duration::from_secs(2);
    let start = Instant::now();
    if let Some(&output) = graph.outputs.first() {
        // Who needs the content meets the error.
        let _ = observed.get(output);
    }
    let plans = PLANS + 2 * FLOORS * start.elapsed();
    limit.saturating_sub(plans).clamp(limit.mul_f64(0.25), limit.mul_f64(0.7))
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
    let machine = Machine::read();
    let database = Database::in_memory(&machine)?;
    let observed = Observed::new(graph, &[]);
    let bench = Benches::new(registry, Arc::new(bricolage_runtime::Serial), None, PathBuf::new());
    let cancel = Cancel::default();
    // The past: nothing is measured.
    let past = Instant::now().checked_sub(Duration::from_secs(1)).or_else(|| Some(Instant::now()));
    let pricing = Pricing {
        graph,
        setting: goal.setting(),
        database: &database,
        contents: "",
        bench: &bench,
        observed: &observed,
        last_level_cache: machine.last_level_cache(),
        first_deadline: past,
        deadline: past,
        // Guesses are not worth a longer search.
        cover_deadline: Instant::now().checked_add(Duration::from_secs(1)),
        cancel: &cancel,
        progress: &|_, _, _| {},
    };
    let placements = place(&pricing, registry, &Unpriced(registry))?;
    placements
        .all
        .into_iter()
        .next()
        .ok_or_else(|| Error::Internal { what: "no placement was found".to_owned() })
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

/// An artefact of a graph placed by guesses, nothing measured or verified: for timing a backend alone.
pub fn save_unmeasured(
    registry: &Registry,
    graph: Graph,
    goal: &Goal,
    folder: &Path,
) -> Result<(), Error> {
    let emitted = emit_unmeasured(registry, &rewrite(graph)?.graph, goal)?;
    let parent = folder.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent).map_err(Error::file("write", parent))?;
    contest::save_scratch(&emitted, goal, folder)
}

fn origins(graph: &Graph, nodes: &[NodeId]) -> Vec<String> {
    let all = nodes.iter().filter_map(|&n| graph.get_node(n)).flat_map(|n| n.origin.iter());
    all.map(|name| name.to_string()).collect()
}

fn declined(graph: &Graph, placed: &Placements) -> Vec<report::Refusal> {
    let all = placed.declined.iter().map(|(backend, d)| report::Refusal {
        backend: backend.clone(),
        what: d.pattern.clone(),
        nodes: origins(graph, &[d.node]),
        why: d.why.clone(),
    });
    all.collect()
}

fn region_report(graph: &Graph, region: &PlacedRegion) -> report::Region {
    let c = &region.offer.candidate;
    let text =
        |formats: &[bricolage_tensor::Format]| formats.iter().map(|f| f.to_string()).collect();
    report::Region {
        nodes: c.region.origin(graph),
        backend: match region.offer.form {
            Form::View => "view".to_owned(),
            Form::Kernel(_) => region.offer.backend().to_owned(),
        },
        pattern: c.pattern.clone(),
        kernel: c.variant.clone(),
        inputs: text(&c.inputs),
        outputs: text(&c.outputs),
        numerics: c.numerics.to_string(),
        measured: region.measured().cloned(),
        runner_up: region.runner_up.as_ref().map(|r| report::RunnerUp {
            backend: r.backend.clone(),
            candidate: r.candidate.clone(),
            median_ns: r.median_ns,
        }),
    }
}
