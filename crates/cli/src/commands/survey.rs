//! `optimize --dry-run`: what a search would look at.

use super::{explain, print_json};
use crate::{args::Format, output::say, setup};
use bricolage::{Cx, Error, Goal, Survey};
use bricolage_runtime::Cancel;
use std::path::Path;

pub(super) fn run(
    model: &Path,
    backends: &[String],
    goal: Goal,
    format: Format,
) -> Result<(), Error> {
    let registry = setup::registry(backends)?;
    let cx = Cx {
        registry: &registry,
        cache: setup::cache_folder(),
        worker: setup::worker_command(),
        goal,
        rules: bricolage::RULES,
        progress: &|_| {},
        cancel: &Cancel::default(),
    };
    let survey = bricolage::survey(&cx, model)?;
    match format {
        Format::Json => print_json(&survey),
        Format::Text => {
            print(&survey);
            Ok(())
        }
    }
}

fn print(survey: &Survey) {
    let count = survey.nodes.len();
    say!("nodes      {} became {count}", survey.before);
    say!("{:<14} {:>7} {:>9} {:>7} {:>7}", "backend", "offers", "distinct", "known", "nodes");
    for (name, b) in &survey.backends {
        let alone = if b.covers { "; covers the graph" } else { "" };
        say!("{name:<14} {:>7} {:>9} {:>7} {:>7}{alone}", b.offers, b.distinct, b.known, b.nodes);
    }
    let pace = match survey.pace_s {
        Some(pace) => format!("{:.0} ms each in the last search here", 1e3 * pace),
        None => "no search was made here before: 100 ms each are supposed".to_owned(),
    };
    say!(
        "trials     {}, about {:.0} s predicted ({pace}); whole plans are measured besides",
        survey.trials,
        survey.predicted_s
    );
    for node in &survey.nodes {
        say!("  {} {}: {}", explain::names(&node.names), node.op, node.backends.join(", "));
    }
    explain::refusals("declined by patterns", &survey.declined);
}
