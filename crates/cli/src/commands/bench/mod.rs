//! `bench`: targets against each other, in turn, each in a process of its own.

mod lane;
mod sampling;

use super::print_json;
use crate::{
    args::{Bench, Format, Setting},
    commands::run,
    judge,
    output::say,
    setup::{self, Target},
    units,
};
use bricolage::{Error, target, worker::OpenPlan};
use bricolage_ir::{Graph, evaluate, tolerances};
use bricolage_measure::{Measurement, Noise, noise};
use bricolage_tensor::{Datum, Tensor};
pub(crate) use lane::open_peer;
use lane::{Judged, Lane};
use serde::Serialize;
use std::process::ExitCode;

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
    let mut lanes = Vec::new();
    for (i, (target, graph)) in targets.iter().zip(&graphs).enumerate() {
        lanes.push(Lane::new(i, target, setting, graph, run::name_inputs(graph, &tensors))?);
    }
    let judged = match graphs.iter().find(|g| judge::is_known(g)) {
        Some(graph) => Some(reference(graph, &tensors)?),
        // One target that the reference cannot evaluate has nothing to agree with.
        None if targets.len() == 1 => None,
        None => Some(by_itself(&mut lanes[0], &graphs[0], &tensors)?),
    };
    let noise = noise(10);
    sampling::sample(&mut lanes, judged.as_ref(), setting.seed, iterations)?;
    Ok(Table { schema_version: super::SCHEMA_VERSION, targets: rows(&lanes)?, noise })
}

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
    Ok(Judged { outputs, allowed })
}

/// The outputs of a target that the reference cannot evaluate, and how far others may be from them.
fn by_itself(lane: &mut Lane, graph: &Graph, tensors: &[Tensor]) -> Result<Judged, Error> {
    judge::tell(&lane.name);
    let outputs = lane.start(None)?.outputs()?;
    let disturbed = run::name_inputs(graph, &judge::disturbed(tensors)?);
    let disturbed = lane.start_on(&disturbed)?.outputs()?;
    let allowed = judge::tolerances(&outputs, &disturbed);
    Ok(Judged { outputs, allowed })
}

fn rows(lanes: &[Lane]) -> Result<Vec<Row>, Error> {
    let row = |lane: &Lane| {
        let all = Measurement::of(&lane.samples, 1, false)?;
        let starts = Measurement::of(&lane.starts, 1, false)?;
        let ratio = lane.ratio(&lanes[0])?;
        let first = lane.first?;
        Some(Row {
            name: lane.name.clone(),
            backend: lane.backend.clone(),
            threads: lane.threads,
            median_ns: all.median_ns,
            p90_ns: all.p90_ns,
            p99_ns: all.p99_ns,
            min_ns: all.min_ns,
            ci95_ns: starts.ci95_ns,
            runs: all.samples,
            ratio_to_first: ratio.median,
            ratio_ci95: ratio.ci95,
            load_ns: first.load_ns,
            first_run_ns: first.first_run_ns,
            peak_bytes: first.peak_bytes,
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
