//! `explain`: how an artefact came about.

use super::{evolutions, print_json, sizes};
use crate::{
    args::{Explain, Format},
    output::say,
    units,
};
use bricolage::{
    Error, artefact,
    report::{Refusal, Report},
};
use std::{collections::BTreeMap, process::ExitCode};

/// Nodes named in one line.
const NAMED: usize = 3;

pub(crate) fn run(a: &Explain) -> Result<ExitCode, Error> {
    let report: Report = artefact::report(&a.artefact)?;
    if a.format.format == Format::Json {
        print_json(&report)?;
        return Ok(ExitCode::SUCCESS);
    }
    say!("model      {} on {} threads, {}", report.model, report.threads, report.machine.model);
    let rules: Vec<String> =
        report.rewrites.iter().map(|r| format!("{} {}", r.rule, r.times)).collect();
    for draw in &report.inputs {
        say!("drawn      {draw}");
    }
    say!("rewrites   {} nodes became {}: {}", report.nodes.0, report.nodes.1, rules.join(", "));
    say!("placement  {}", report.placement);
    evolutions::print(&report);
    say!("plans");
    for c in &report.contenders {
        let time = match (&c.measured, &c.refused) {
            (Some(m), _) => format!("{} measured", units::time(m.median_ns)),
            (None, Some(why)) => format!("refused: {why}"),
            (None, None) => "not timed".to_owned(),
        };
        let mark = if c.chosen { "<-" } else { "" };
        let parts = c
            .predicted_ns
            .map_or_else(String::new, |ns| format!("; sum of parts {} predicted", units::time(ns)));
        say!("  {:<20} {time}{parts} {mark}", c.name);
    }
    if let Some(r) = &report.ratio_to_best_single {
        say!(
            "  mixed over the best single backend: {:.3} ({:.3} to {:.3}, {} pairs)",
            r.median,
            r.ci95.0,
            r.ci95.1,
            r.pairs
        );
    }
    say!(
        "cover      {}",
        if report.exact {
            "the cheapest of these offers"
        } else {
            "bounded: not proven to be the cheapest of these offers"
        }
    );
    say!("regions");
    for r in &report.regions {
        let time = r
            .measured
            .as_ref()
            .map_or_else(|| "not measured".to_owned(), |m| units::time(m.median_ns));
        say!(
            "  {} | {} {} {} | {time} | {}",
            names(&r.nodes),
            r.backend,
            r.pattern,
            r.kernel,
            r.numerics
        );
        say!("      {} -> {}", r.inputs.join(", "), r.outputs.join(", "));
        match &r.runner_up {
            Some(next) => {
                say!(
                    "      next best: {} {} {}",
                    next.backend,
                    next.candidate,
                    units::time(next.median_ns)
                );
            }
            None if r.backend == "reference" => {
                say!("      no other backend has a kernel for it: the reference evaluator runs it");
            }
            None => {}
        }
    }
    if !report.conversions.is_empty() {
        say!("conversions");
        for c in &report.conversions {
            let time = c.median_ns.map_or_else(|| "not measured".to_owned(), units::time);
            say!("  {} {} -> {} {time}", c.value, c.from, c.to);
        }
    }
    refusals("declined by patterns", &report.declined);
    refusals("tried and refused", &report.refused);
    say!(
        "memory     arena {} (largest live sum {}), weights {} packed from {}{}",
        units::bytes(report.memory.arena_bytes),
        units::bytes(report.memory.live_peak_bytes),
        units::bytes(report.memory.weights_bytes),
        units::bytes(report.memory.constants_bytes),
        sizes::holds_for(&report)
    );
    sizes::print(&report);
    for allowed in &report.allowed {
        say!(
            "verified   {}: {:.1} % of the allowed error {:.3e}",
            allowed.output,
            100.0 * report.error_share,
            allowed.max_abs
        );
    }
    for warning in &report.warnings {
        say!("warning    {warning}");
    }
    Ok(ExitCode::SUCCESS)
}

fn names(nodes: &[String]) -> String {
    let shown = nodes.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(" + ");
    match nodes.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} + {more} more"),
    }
}

/// Refusals of one kind, equal reasons together.
fn refusals(title: &str, all: &[Refusal]) {
    if all.is_empty() {
        return;
    }
    let mut by_reason: BTreeMap<(&str, &str, &str), Vec<String>> = BTreeMap::new();
    for r in all {
        by_reason.entry((&r.backend, &r.what, &r.why)).or_default().push(names(&r.nodes));
    }
    say!("{title}");
    for ((backend, what, why), nodes) in by_reason {
        say!("  {backend} {what}: {why} ({}x, first {})", nodes.len(), nodes[0]);
    }
}
