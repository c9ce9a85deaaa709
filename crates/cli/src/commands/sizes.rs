//! What a report says of sizes that are open.

use crate::output::say;
use bricolage::report::Report;
use std::collections::BTreeMap;

fn list<T>(all: &BTreeMap<String, T>, one: impl Fn(&str, &T) -> String) -> String {
    let all: Vec<String> = all.iter().map(|(name, value)| one(name, value)).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}

/// The lines about open sizes.
pub(crate) fn print(report: &Report) {
    let Some(sizes) = &report.sizes else { return };
    say!("measured   at {}", list(&sizes.measured, |s, n| format!("{s}={n}")));
    say!("open       {}", list(&sizes.ranges, |s, (low, high)| format!("{s} {low}..{high}")));
    say!("           other sizes: choices carry over, nothing is measured");
}

/// What the memory line adds: which sizes it is for.
pub(crate) fn holds_for(report: &Report) -> String {
    let measured = |sizes: &bricolage::artefact::OpenSizes| {
        format!(" at {}", list(&sizes.measured, |s, n| format!("{s}={n}")))
    };
    report.sizes.as_ref().map_or_else(String::new, measured)
}
