//! `bench`: targets against each other, in turn, each in a process of its own.

use super::print_json;
use crate::{
    args::{Bench, Format, Setting},
    commands::run,
    judge,
    output::say,
    setup::{self, Target},
    units,
};
use bricolage::{
    Error, Temporary, artefact, target,
    worker::{Alone, OpenPlan, RemotePlan, WorkerCommand},
};
use bricolage_ir::{Error as Difference, Graph, Tolerance, evaluate, tolerances};
use bricolage_measure::{Measurement, Noise, Ratio, Sample, noise};
use bricolage_tensor::{Datum, Rng, Tensor};
use serde::Serialize;
use std::{
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

/// Samples of each target, unless the user says otherwise.
const MOST: u32 = 500;
/// A ratio is known when its interval is this narrow, as a share of it; sampling ends when all are.
const NARROW: f64 = 0.02;
/// Of a target that is this many times as fast or as slow as the first, less is enough.
const FAR: f64 = 1.25;
const FAR_NARROW: f64 = 0.2;
/// After [`LIMIT`] it goes on, up to [`LONGEST`], while an interval is wider than this.
const WIDE: f64 = 0.04;
/// A sample repeats the run until it lasts this many seconds: long enough that the other targets'
/// traces in the caches do not count.
const SAMPLE: f64 = 0.04;
/// Time for all samples, unless the user says otherwise.
const LIMIT: Duration = Duration::from_secs(60);
/// Time for all samples where the machine is noisy.
const LONGEST: Duration = Duration::from_secs(600);

#[derive(Serialize)]
struct Row {
    name: String,
    backend: String,
    threads: usize,
    median_ns: f64,
    p90_ns: f64,
    p99_ns: f64,
    min_ns: f64,
    ci95_ns: (f64, f64),
    runs: u32,
    ratio_to_first: f64,
    ratio_ci95: (f64, f64),
    load_ns: u64,
    first_run_ns: u64,
    peak_bytes: u64,
}

#[derive(Serialize)]
pub(crate) struct Table {
    schema_version: u32,
    targets: Vec<Row>,
    noise: Noise,
}

fn command() -> Result<WorkerCommand, Error> {
    setup::worker_command()
        .ok_or_else(|| Error::Worker("this program cannot find itself".to_owned()))
}

/// Opens a model with a runtime of its own, in a process of its own, at its own best settings.
pub(crate) fn open_peer(
    path: &Path,
    backend: &str,
    setting: &Setting,
    graph: &Graph,
    inputs: &[(String, Tensor)],
) -> Result<RemotePlan, Error> {
    setup::require(backend)?;
    let outputs: Vec<String> =
        graph.outputs.iter().map(|&v| graph.value(v).name.to_string()).collect();
    RemotePlan::open_peer(&command()?, setup::threads(setting), backend, path, inputs, &outputs)
        .map_err(|e| {
            let why = match e {
                Error::Worker(why) => why,
                other => other.to_string(),
            };
            Error::Peer { target: format!("{}@{backend}", path.display()), why }
        })
}

struct Lane {
    name: String,
    backend: String,
    threads: usize,
    open: RemotePlan,
    samples: Vec<f64>,
    _folder: Option<Temporary>,
}

pub(crate) fn run(a: &Bench) -> Result<ExitCode, Error> {
    let mut targets: Vec<Target> =
        a.targets.iter().map(|t| Target::parse(t)).collect::<Result<_, _>>()?;
    for backend in &a.backends {
        targets.push(Target::On(targets[0].path().to_owned(), backend.clone()));
    }
    let table = table(&targets, &a.setting, a.iterations)?;
    match a.format.format {
        Format::Json => print_json(&table)?,
        Format::Text => print(&table),
    }
    Ok(ExitCode::SUCCESS)
}

/// Verifies all targets, times them in turn and compares each with the first.
pub(crate) fn table(
    targets: &[Target],
    setting: &Setting,
    iterations: Option<u32>,
) -> Result<Table, Error> {
    // Each target is what its own file says.
    let graphs: Vec<Graph> =
        targets.iter().map(|t| t.graph(setting, None)).collect::<Result<_, _>>()?;
    let tensors = setup::tensors(&graphs[0], None, setting.seed)?;
    let graphs = graphs.iter().map(|g| bricolage::inputs::bind_to(g, &tensors));
    let graphs: Vec<Graph> = graphs.collect::<Result<_, _>>()?;
    let known = graphs.iter().find(|g| judge::is_known(g));
    let mut judged = known.map(|g| reference(g, &tensors)).transpose()?;
    let mut lanes = Vec::new();
    for (target, graph) in targets.iter().zip(&graphs) {
        let mut lane =
            open(lanes.len(), target, setting, graph, &run::name_inputs(graph, &tensors))?;
        if judged.is_none() && targets.len() > 1 {
            judged = Some(by_itself(&mut lane, target, setting, graph, &tensors)?);
        }
        // One target that the reference cannot evaluate has nothing to agree with.
        if let Some((reference, allowed)) = &judged {
            verify(&mut lane, reference, allowed)?;
        }
        lane.open.pause();
        lanes.push(lane);
    }
    let noise = noise(10);
    sample(&mut lanes, setting.seed, iterations)?;
    Ok(Table { schema_version: super::SCHEMA_VERSION, targets: rows(&lanes)?, noise })
}

/// Outputs that others are compared with, and how far they may be from them.
type Judged = (target::Outputs, Vec<Tolerance>);

/// Outputs by the reference evaluator, and how far others may be from them. Plans may use kernels of
/// any admitted numerics class, so the class of the widest is allowed for at every convolution.
fn reference(graph: &Graph, tensors: &[Tensor]) -> Result<Judged, Error> {
    let data: Vec<Datum> = tensors.iter().cloned().map(Datum::from).collect();
    let exact = evaluate(graph, &data)?;
    let tensors: Vec<Option<&Tensor>> = exact.iter().map(Datum::as_tensor).collect();
    let found =
        tolerances(graph, &data, &tensors, &|_| None, &|n| target::class_error(graph, n), 1)?;
    let mut outputs = Vec::new();
    let mut allowed = Vec::new();
    for ((&v, exact), tolerance) in graph.outputs.iter().zip(exact).zip(found) {
        if let Datum::Tensor(exact) = exact {
            allowed.push(tolerance);
            outputs.push((graph.value(v).name.to_string(), exact));
        }
    }
    Ok((outputs, allowed))
}

/// The outputs of a target that the reference cannot evaluate, and how far others may be from them.
fn by_itself(
    lane: &mut Lane,
    target: &Target,
    setting: &Setting,
    graph: &Graph,
    tensors: &[Tensor],
) -> Result<Judged, Error> {
    judge::tell(&lane.name);
    let named = run::name_inputs(graph, &judge::disturbed(tensors)?);
    let outputs = lane.open.outputs()?;
    let disturbed = open(0, target, setting, graph, &named)?.open.outputs()?;
    let allowed = judge::tolerances(&outputs, &disturbed);
    Ok((outputs, allowed))
}

fn open(
    number: usize,
    target: &Target,
    setting: &Setting,
    graph: &Graph,
    named: &[(String, Tensor)],
) -> Result<Lane, Error> {
    let tensors: Vec<Tensor> = named.iter().map(|(_, t)| t.clone()).collect();
    let threads = setup::threads(setting);
    let (open, backend, threads, folder) = match target {
        Target::Artefact(folder) => {
            let manifest = artefact::manifest(folder)?;
            artefact::require_here(folder, &manifest, &setup::registry(&[])?)?;
            let threads = setting.threads.unwrap_or(manifest.threads as usize);
            let backends: Vec<String> = manifest.backends.into_keys().collect();
            (
                RemotePlan::open(&command()?, threads, folder, &tensors)?,
                backends.join("+"),
                threads,
                None,
            )
        }
        Target::On(path, backend) if !setup::is_ours(backend) => {
            (open_peer(path, backend, setting, graph, named)?, backend.clone(), threads, None)
        }
        Target::Model(_) | Target::On(..) => {
            let backend = match target {
                Target::On(_, backend) => backend.clone(),
                _ => "native".to_owned(),
            };
            let registry = setup::registry(std::slice::from_ref(&backend))?;
            let folder = setup::cache_folder()
                .join("scratch")
                .join(format!("bench-{}-{number}", std::process::id()));
            let temporary = Temporary::new(folder.clone());
            bricolage::save_unmeasured(&registry, graph.clone(), &setup::goal(setting), &folder)?;
            (
                RemotePlan::open(&command()?, threads, &folder, &tensors)?,
                backend,
                threads,
                Some(temporary),
            )
        }
    };
    let name = target.name();
    if let Target::Artefact(_) = target {
        setup::note_unmeasured(&name, open.unmeasured.as_deref());
    }
    Ok(Lane { name, backend, threads, open, samples: Vec::new(), _folder: folder })
}

/// A target's outputs are right before its time counts.
fn verify(
    lane: &mut Lane,
    reference: &[(String, Tensor)],
    allowed: &[Tolerance],
) -> Result<(), Error> {
    let found = lane.open.outputs()?;
    for (i, ((name, expected), allowed)) in reference.iter().zip(allowed).enumerate() {
        // Rewriting keeps names; a runtime that renames keeps the order.
        let by_name = found.iter().find(|(n, _)| n == name).or_else(|| found.get(i));
        let Some((_, found)) = by_name else {
            return Err(Error::Mismatch {
                what: format!("`{}` gives no output `{name}`", lane.name),
            });
        };
        let error = Difference::between(expected, found);
        let share = error.share_of(allowed);
        if share.is_nan() || share > 1.0 {
            return Err(Error::Mismatch {
                what: format!(
                    "`{}`: output `{name}` is wrong: {error}, allowed {:.3e}",
                    lane.name, allowed.max_abs
                ),
            });
        }
    }
    Ok(())
}

/// Samples lanes round by round in changing order, every other process stopped meanwhile, each until its
/// ratio is known.
fn sample(lanes: &mut [Lane], seed: u64, iterations: Option<u32>) -> Result<(), Error> {
    let mut rng = Rng::new(seed);
    let most = iterations.unwrap_or(MOST).max(1);
    let start = Instant::now();
    let mut repeats = vec![1u32; lanes.len()];
    let mut known = vec![false; lanes.len()];
    for round in 0..most + 3 {
        let mut order: Vec<usize> = (0..lanes.len()).filter(|&i| !known[i]).collect();
        rng.shuffle(&mut order);
        for i in order {
            let lane = &mut lanes[i];
            let time = Alone::new(&mut lane.open)
                .sample(repeats[i])
                .map_err(|e| Error::Worker(format!("`{}`: {e}", lane.name)))?;
            if round < 3 {
                let one = (time / repeats[i]).as_secs_f64().max(1e-9);
                repeats[i] = (SAMPLE / one).ceil().clamp(1.0, 1e5) as u32;
            } else {
                lane.samples.push(time.as_secs_f64() * 1e9 / f64::from(repeats[i]));
            }
        }
        let least = if lanes.len() > 1 { 15 } else { 30 };
        if iterations.is_some() || lanes[0].samples.len() < least {
            continue;
        }
        for (known, lane) in known.iter_mut().zip(&*lanes).skip(1) {
            *known |= ratio(&lanes[0], lane).is_some_and(|r| is_known(&r, NARROW));
        }
        let wide = |lane: &Lane| ratio(&lanes[0], lane).is_none_or(|r| !is_known(&r, WIDE));
        let spent = start.elapsed();
        if known[1..].iter().all(|&k| k)
            || spent > LONGEST
            || (spent > LIMIT && !lanes[1..].iter().any(wide))
        {
            break;
        }
    }
    Ok(())
}

/// Whether a ratio is known well enough: its interval is this narrow, or it is far from one.
fn is_known(ratio: &Ratio, narrow: f64) -> bool {
    let width = (ratio.ci95.1 - ratio.ci95.0) / ratio.median;
    let far = ratio.ci95.0 > FAR || ratio.ci95.1 < 1.0 / FAR;
    width <= if far { narrow.max(FAR_NARROW) } else { narrow }
}

/// The time of one target over that of the first, of the rounds in which both were sampled.
fn ratio(first: &Lane, lane: &Lane) -> Option<Ratio> {
    let ratios: Vec<f64> = lane.samples.iter().zip(&first.samples).map(|(a, b)| a / b).collect();
    Ratio::of(&ratios)
}

fn rows(lanes: &[Lane]) -> Result<Vec<Row>, Error> {
    let row = |lane: &Lane| {
        let m = Measurement::of(&lane.samples, 1, false)?;
        let r = ratio(&lanes[0], lane)?;
        Some(Row {
            name: lane.name.clone(),
            backend: lane.backend.clone(),
            threads: lane.threads,
            median_ns: m.median_ns,
            p90_ns: m.p90_ns,
            p99_ns: m.p99_ns,
            min_ns: m.min_ns,
            ci95_ns: m.ci95_ns,
            runs: m.samples,
            ratio_to_first: r.median,
            ratio_ci95: r.ci95,
            load_ns: lane.open.load_ns,
            first_run_ns: lane.open.first_run_ns,
            peak_bytes: lane.open.peak_bytes,
        })
    };
    lanes
        .iter()
        .map(|lane| {
            row(lane).ok_or_else(|| Error::Worker(format!("`{}` was not timed", lane.name)))
        })
        .collect()
}

/// The table as text.
pub(crate) fn print(table: &Table) {
    let (rows, noise) = (&table.targets, &table.noise);
    say!(
        "{:<40} {:>11} {:>11} {:>22} {:>6} {:>16} {:>10} {:>10} {:>10}",
        "target",
        "median",
        "p90",
        "95 % interval",
        "runs",
        "ratio to first",
        "load",
        "first run",
        "peak"
    );
    for r in rows {
        say!(
            "{:<40} {:>11} {:>11} {:>22} {:>6} {:>16} {:>10} {:>10} {:>10}",
            r.name,
            units::time(r.median_ns),
            units::time(r.p90_ns),
            format!("{} - {}", units::time(r.ci95_ns.0), units::time(r.ci95_ns.1)),
            r.runs,
            format!("{:.3} ({:.3}-{:.3})", r.ratio_to_first, r.ratio_ci95.0, r.ratio_ci95.1),
            units::time(r.load_ns as f64),
            units::time(r.first_run_ns as f64),
            units::bytes(r.peak_bytes)
        );
    }
    say!(
        "noise: compute {:.1} %, memory {:.1} %; {} of {} self-races named a winner",
        100.0 * noise.compute_spread,
        100.0 * noise.memory_spread,
        noise.aa_false,
        noise.aa_trials
    );
}
