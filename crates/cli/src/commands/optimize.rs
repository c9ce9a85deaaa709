//! `optimize`: a model becomes an artefact.

use super::{evolutions, print_json, sizes, survey};
use crate::{
    args::{Format, Numerics, Optimize, Placement},
    interrupt::Graceful,
    output::say,
    progress::Display,
    setup::{self, Target},
    units,
};
use bricolage::{Cx, Error, Goal, Method, Wishes, WorkerCommand, artefact, report::Report};
use bricolage_backend::Policy;
use std::{path::Path, process::ExitCode};

pub(crate) fn run(a: &Optimize) -> Result<ExitCode, Error> {
    let target = Target::parse(&a.target)?;
    let goal = Goal {
        shapes: target.shapes(&a.setting)?,
        policy: match a.numerics {
            Numerics::Strict => Policy::Strict,
            Numerics::Default => Policy::Default,
            Numerics::Fast => Policy::Fast,
        },
        placement: match a.placement {
            Placement::Exact => Method::Exact,
            Placement::OpLevel => Method::OpLevel,
            Placement::CollageV1 => Method::CollageV1,
            Placement::Greedy => Method::Greedy,
        },
        wishes: Wishes {
            nodes: a.pin.iter().chain(&a.exclude).cloned().collect(),
            charges: a.charge.clone(),
            error: a.error_budget,
        },
        time_limit: a.time_limit,
        ..setup::goal(&a.setting)
    };
    let backends = backends(&target, &a.backends)?;
    let model = match &target {
        Target::Artefact(folder) => artefact::model(folder)?,
        Target::Model(path) | Target::On(path, _) => path.clone(),
    };
    let Some(output) = a.output.as_ref().filter(|_| !a.dry_run) else {
        survey::run(&model, &backends, goal, a.format.format)?;
        return Ok(ExitCode::SUCCESS);
    };
    if let Target::Artefact(folder) = &target {
        refuse_inside(folder, output)?;
    }
    let worker = setup::worker_command()
        .map(|command| WorkerCommand { kernel_limit: a.kernel_time_limit, ..command });
    let (report, interrupted) = optimize(&model, output, a.overwrite, &backends, goal, worker)?;
    match a.format.format {
        Format::Json => print_json(&report)?,
        Format::Text => summary(&report, output),
    }
    Ok(if interrupted { ExitCode::from(130) } else { ExitCode::SUCCESS })
}

/// The backends that the target and the flag name; they must not contradict.
fn backends(target: &Target, flag: &[String]) -> Result<Vec<String>, Error> {
    match target {
        Target::On(_, named) if !flag.is_empty() && flag.iter().any(|b| b != named) => {
            Err(Error::Backend {
                what: format!("`@{named}` and `--backend {}` contradict", flag.join(",")),
                help: "name the backends once".to_owned(),
            })
        }
        Target::On(_, named) => {
            setup::require_placeable(named)?;
            Ok(vec![named.clone()])
        }
        _ => Ok(flag.to_vec()),
    }
}

/// An artefact is not written into another one.
fn refuse_inside(folder: &Path, output: &Path) -> Result<(), Error> {
    let parent = output.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (parent.canonicalize(), folder.canonicalize()) {
        (Ok(to), Ok(from)) if to.starts_with(&from) => {
            let why = format!("it lies inside `{}`, which is optimised", from.display());
            Err(Error::File { action: "write", path: output.to_owned(), why })
        }
        _ => Ok(()),
    }
}

/// Optimises with live progress; a first Ctrl-C stops with the best so far, a second one at once.
pub(crate) fn optimize(
    model: &Path,
    output: &Path,
    overwrite: bool,
    backends: &[String],
    goal: Goal,
    worker: Option<WorkerCommand>,
) -> Result<(Report, bool), Error> {
    let registry = setup::registry(backends)?;
    let graceful = Graceful::new();
    let display = Display::new();
    let cx = Cx {
        registry: &registry,
        cache: setup::cache_folder(),
        worker,
        goal,
        rules: bricolage::RULES,
        progress: &|p| display.show(p),
        cancel: graceful.cancel(),
    };
    let outcome = bricolage::optimize(&cx, model, output, overwrite);
    display.finish();
    let outcome = outcome?;
    setup::warn(&outcome.report.warnings);
    Ok((outcome.report, outcome.interrupted))
}

/// The table at the end.
pub(crate) fn summary(report: &Report, output: &Path) {
    say!("{:<22} {:>12} {:>22} {:>9}", "plan", "median", "95 % interval", "ratio");
    let chosen = report.contenders.iter().find(|c| c.chosen).and_then(|c| c.measured.as_ref());
    for c in &report.contenders {
        let mark = if c.chosen { "<-" } else { "" };
        match (&c.measured, &c.refused) {
            (Some(m), _) => {
                let ratio = chosen.map_or(1.0, |best| m.median_ns / best.median_ns);
                let interval =
                    format!("{} - {}", units::time(m.ci95_ns.0), units::time(m.ci95_ns.1));
                say!(
                    "{:<22} {:>12} {interval:>22} {ratio:>8.2}x {mark}",
                    c.name,
                    units::time(m.median_ns)
                );
            }
            (None, Some(why)) => say!("{:<22} refused: {why}", c.name),
            (None, None) => {
                let predicted = match &c.prediction {
                    Some(p) => units::time(p.sum_ns).to_string(),
                    None => "nothing".to_owned(),
                };
                say!("{:<22} not timed; predicted {predicted} {mark}", c.name)
            }
        }
    }
    evolutions::print(report);
    let regions = report.regions.iter().filter(|r| r.backend != "view");
    let mut by_backend = std::collections::BTreeMap::new();
    for region in regions {
        *by_backend.entry(region.backend.as_str()).or_insert(0) += 1;
    }
    let used: Vec<String> = by_backend.iter().map(|(b, n)| format!("{n} on {b}")).collect();
    say!("regions    {}; {} conversions", used.join(", "), report.conversions.len());
    say!(
        "memory     arena {}, weights {}{}",
        units::bytes(report.memory.arena_bytes),
        units::bytes(report.memory.weights_bytes),
        sizes::holds_for(report)
    );
    sizes::print(report);
    say!("verified   largest error {:.1} % of what rounding allows", 100.0 * report.error_share);
    say!(
        "search     {:.1} s, {} offers; {} times of offers and plans measured, {} known",
        report.seconds,
        report.offers,
        report.measured,
        report.known
    );
    say!("written    {}", output.display());
}
