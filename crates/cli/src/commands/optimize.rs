//! `optimize`: a model becomes an artefact.

use super::print_json;
use crate::{
    args::{Format, Numerics, Optimize},
    output::say,
    progress::Display,
    setup, units,
};
use bricolage::{Cx, Error, Goal, report::Report};
use bricolage_backend::Policy;
use bricolage_runtime::Cancel;
use std::{path::Path, process::ExitCode, sync::Arc};

pub(crate) fn run(a: &Optimize) -> Result<ExitCode, Error> {
    let goal = Goal {
        policy: match a.numerics {
            Numerics::Strict => Policy::Strict,
            Numerics::Default => Policy::Default,
            Numerics::Fast => Policy::Fast,
        },
        time_limit: a.time_limit,
        ..setup::goal(&a.setting)
    };
    let (report, interrupted) = optimize(&a.model, &a.output, a.overwrite, &a.backends, goal)?;
    match a.format.format {
        Format::Json => print_json(&report)?,
        Format::Text => summary(&report, &a.output),
    }
    Ok(if interrupted { ExitCode::from(130) } else { ExitCode::SUCCESS })
}

/// Optimises with live progress; a first Ctrl-C stops with the best so far, a second one at once.
pub(crate) fn optimize(
    model: &Path,
    output: &Path,
    overwrite: bool,
    backends: &[String],
    goal: Goal,
) -> Result<(Report, bool), Error> {
    let registry = setup::registry(backends)?;
    let cancel = Arc::new(Cancel::default());
    let handler = cancel.clone();
    // Without the handler Ctrl-C ends the program, which loses nothing that is in the database.
    let _ = ctrlc::set_handler(move || {
        if handler.is_cancelled() {
            std::process::exit(130);
        }
        eprintln!("stopping with the best so far; once more to stop at once");
        handler.cancel();
    });
    let display = Display::new();
    let cx = Cx {
        registry: &registry,
        cache: setup::cache_folder(),
        worker: setup::worker_command(),
        goal,
        progress: &|p| display.show(p),
        cancel: &cancel,
    };
    let outcome = bricolage::optimize(&cx, model, output, overwrite);
    display.finish();
    let outcome = outcome?;
    for warning in &outcome.report.warnings {
        eprintln!("warning: {warning}");
    }
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
                let predicted =
                    c.predicted_ns.map_or("nothing".to_owned(), |ns| units::time(ns).to_string());
                say!("{:<22} not timed; predicted {predicted} {mark}", c.name)
            }
        }
    }
    let regions = report.regions.iter().filter(|r| r.backend != "view");
    let mut by_backend = std::collections::BTreeMap::new();
    for region in regions {
        *by_backend.entry(region.backend.as_str()).or_insert(0) += 1;
    }
    let used: Vec<String> = by_backend.iter().map(|(b, n)| format!("{n} on {b}")).collect();
    say!("regions    {}; {} conversions", used.join(", "), report.conversions.len());
    say!(
        "memory     arena {}, weights {}",
        units::bytes(report.memory.arena_bytes),
        units::bytes(report.memory.weights_bytes)
    );
    say!("verified   largest error {:.1} % of what rounding allows", 100.0 * report.error_share);
    say!(
        "search     {:.1} s, {} of {} offers measured, {} known",
        report.seconds,
        report.measured,
        report.offers,
        report.known
    );
    say!("written    {}", output.display());
}
