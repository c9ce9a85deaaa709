//! `explain`: how an artefact came about.

use super::{evolutions, print_json, sizes};
use crate::{
    args::{Explain, Format},
    output::say,
    units,
};
use bricolage::{
    Error, artefact,
    report::{Alternative, Prediction, Refusal, Region, Report},
};
use std::{collections::BTreeMap, process::ExitCode};

/// Name of the plan of the cheapest cover of all.
const MIXED: &str = "mixed";
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
    for wish in report.wishes.in_words() {
        say!("wish       {wish}");
    }
    evolutions::print(&report);
    say!("plans");
    for c in &report.contenders {
        let time = match (&c.measured, &c.refused) {
            (Some(m), _) => format!("{} measured", units::time(m.median_ns)),
            (None, Some(why)) => format!("refused: {why}"),
            (None, None) => "not timed".to_owned(),
        };
        let mark = if c.chosen { "<-" } else { "" };
        let parts = c.prediction.as_ref().map_or_else(String::new, |p| {
            format!("; sum of parts {} predicted", units::time(p.sum_ns))
        });
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
    for c in &report.contenders {
        if let (true, Some(p)) = (c.name.ends_with(MIXED), &c.prediction) {
            say!("cover      {}: {}", c.name, certificate(p));
        }
    }
    difference(&report);
    say!("regions");
    for r in &report.regions {
        let time = r
            .measured
            .as_ref()
            .map_or_else(|| "not measured".to_owned(), |m| units::time(m.median_ns));
        say!(
            "  {} | {} {} {}{} | {time} | {}",
            names(&r.nodes),
            r.backend,
            r.pattern,
            r.kernel,
            on_one(r.threads, report.threads),
            r.numerics
        );
        let inside = r
            .in_plan_ns
            .map_or_else(String::new, |ns| format!("; {} inside the plan", units::time(ns)));
        say!("      {} -> {}{inside}", r.inputs.join(", "), r.outputs.join(", "));
        for other in &r.alternatives {
            say!("      {}", alternative(other, &r.nodes, report.threads));
        }
        if r.alternatives.is_empty() && r.backend == "reference" {
            say!("      no other backend has a kernel for it: the reference evaluator runs it");
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

/// How the chosen plan's time from end to end differs from the sum of its parts, and where that comes from.
fn difference(report: &Report) {
    let chosen = report.contenders.iter().find(|c| c.chosen);
    let Some(whole) = chosen.and_then(|c| c.measured.as_ref()) else { return };
    let parts = report.regions.iter();
    let mut parts: Vec<(&Region, f64, f64)> =
        parts.filter_map(|r| Some((r, r.measured.as_ref()?.median_ns, r.in_plan_ns?))).collect();
    if parts.is_empty() {
        return;
    }
    let alone: f64 = parts.iter().map(|p| p.1).sum();
    let inside: f64 = parts.iter().map(|p| p.2).sum();
    let (count, rest) = (parts.len(), whole.median_ns - inside);
    say!(
        "sum        {count} kernels take {} alone and {} inside the plan, which takes {}; conversions, what \
         lies between steps, and noise: {}",
        units::time(alone),
        units::time(inside),
        units::time(whole.median_ns),
        signed(rest)
    );
    parts.sort_by(|a, b| (b.2 - b.1).abs().total_cmp(&(a.2 - a.1).abs()));
    for (r, alone, inside) in parts.into_iter().take(NAMED) {
        let difference = signed(inside - alone);
        say!("           {difference} inside: {} | {} {}", names(&r.nodes), r.backend, r.kernel);
    }
}

/// A difference of times.
fn signed(ns: f64) -> String {
    format!("{}{}", if ns < 0.0 { "-" } else { "+" }, units::time(ns.abs()))
}

/// What is known of the least sum.
fn certificate(p: &Prediction) -> String {
    let (sum, bound) = (units::time(p.sum_ns), units::time(p.bound_ns));
    let work = format!("found by {}, {} states", p.finder, p.states);
    match p.gap {
        0.0 => format!("sum {sum}, and no cover of these offers has a smaller one; {work}"),
        gap => format!(
            "sum {sum}; no cover of these offers has one below {bound}, {:.2} % less; {work}",
            100.0 * gap
        ),
    }
}

/// Says of a kernel that it leaves the plan's other threads alone.
fn on_one(threads: usize, of_plan: u32) -> &'static str {
    if threads == 1 && of_plan > 1 { ", on one thread" } else { "" }
}

/// What another way would need to be chosen.
fn alternative(other: &Alternative, nodes: &[String], threads: u32) -> String {
    let beyond = other.nodes.iter().filter(|n| !nodes.contains(n)).count();
    let what = match beyond {
        0 => String::new(),
        more => format!(", with {more} more"),
    };
    let lacks = match (other.lacks_ns, other.exact) {
        (0.0, true) => "would do as well".to_owned(),
        (0.0, false) => "is not known to do worse".to_owned(),
        (ns, exact) => {
            let least = if exact { "" } else { "at least " };
            format!("would have to be {least}{} faster to be chosen", units::time(ns))
        }
    };
    let (backend, candidate) = (&other.backend, &other.candidate);
    let alone = on_one(other.threads, threads);
    format!("{backend} {candidate}{alone}{what} {}: {lacks}", units::time(other.median_ns))
}

pub(super) fn names(nodes: &[String]) -> String {
    let shown = nodes.iter().take(NAMED).map(String::as_str).collect::<Vec<_>>().join(" + ");
    match nodes.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} + {more} more"),
    }
}

/// Refusals of one kind, equal reasons together.
pub(super) fn refusals(title: &str, all: &[Refusal]) {
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
