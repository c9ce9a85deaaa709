//! The page: how judged ways compare.

use super::{
    Case, Results,
    plans::{
        ALONE, EXACT, FRAMEWORKS, GRAPH_LIMIT, GREEDY, LARGE_LIMIT, OP_LEVEL, OP_LIMIT, PUBLISHED,
        faster_than_first, framework, is_single, repeated, timing,
    },
};
use crate::models::{items, text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Speed-ups of one way over others: time of the other over its own, with the interval.
type Gain = (f64, f64, f64);

pub(super) struct Page<'a> {
    pub(super) results: &'a Results,
    pub(super) cases: Vec<Case>,
}

/// The page about all steps that are there.
pub(super) fn page(results: &Results) -> String {
    let cases: BTreeSet<Case> = results.rows.iter().map(Case::of).collect();
    let page = Page { results, cases: cases.into_iter().collect() };
    let judged = |way: &str| {
        [page.gains(way), page.means(way), page.mixes(way), page.violations(way)].concat()
    };
    [
        page.head(),
        judged(OP_LEVEL),
        judged(EXACT),
        page.added(),
        page.left_out(),
        page.convolutions(),
        page.searches(),
        page.blind(),
        page.missing(),
    ]
    .concat()
}

impl Page<'_> {
    pub(super) fn step(&self, step: &str, case: &Case) -> Option<&Value> {
        self.results.get(step, case)
    }

    /// Every case with what a step gave for it, where it gave something.
    pub(super) fn all(&self, step: &str) -> Vec<(&Case, &Value)> {
        let found = |case| Some((case, self.step(step, case)?));
        let all = self.cases.iter().filter_map(found);
        all.filter(|(_, row)| row["refused"].is_null()).collect()
    }

    fn head(&self) -> String {
        let machines: BTreeSet<&str> =
            self.all(OP_LEVEL).into_iter().map(|(_, row)| text(row, "machine")).collect();
        let machines: Vec<&str> = machines.into_iter().collect();
        format!(
            "# Placement against its baselines\n\n\
             `cargo xtask bench placement` wrote this page. Models are those of `bricolage zoo`, f32; machine: {}.\n\n\
             *op-level* is `optimize --placement op-level` with {OP_LIMIT} ({LARGE_LIMIT} for NASNet), *exact* is \
             `optimize` as it is with {GRAPH_LIMIT}. *X alone* is the op level with `--backend X`. *X itself* is the \
             runtime on the model's file, at its own best settings. *greedy* gives each backend the \
             largest regions that it takes, in the order {GREEDY}. *{PUBLISHED}* is the published method of Collage \
             (a cover that sees no formats and charges 0.01 ms a kernel, then an evolutionary search \
             with the published parameters) with {GRAPH_LIMIT}, its graph engine the faster of the two. All \
             artefacts are timed in turn in one run, after their results were compared with the reference; a ratio \
             is the median of paired ratios, with its 95 % interval.\n\n",
            machines.join(", ")
        )
    }

    /// The ratio of each target over the first.
    pub(super) fn ratios(timed: &Value) -> BTreeMap<&str, Gain> {
        let ratio = |t: &Value| {
            let r = |i: usize| t["ratio"][i].as_f64();
            Some((r(0)?, r(1)?, r(2)?))
        };
        items(&timed["targets"]).filter_map(|t| Some((text(t, "name"), ratio(t)?))).collect()
    }

    fn gains(&self, judged: &str) -> String {
        let mut columns: Vec<String> = FRAMEWORKS.iter().map(|f| framework(f)).collect();
        columns.extend(ALONE.iter().map(|b| format!("{b} alone")));
        columns.extend(match judged {
            OP_LEVEL => vec!["greedy".to_owned()],
            _ => vec![OP_LEVEL.to_owned(), PUBLISHED.to_owned()],
        });
        let mut page = format!(
            "## Speed-up of *{judged}*\n\n\
             Time of the column over that of *{judged}*: more than 1 is a gain.\n\n\
             | model | threads | {judged} | backends in its plan | {} |\n|---|---|---|---|{}\n",
            columns.join(" | "),
            "---|".repeat(columns.len())
        );
        for (case, timed) in self.all(&timing(judged)) {
            let ratios = Self::ratios(timed);
            let cells: Vec<String> = columns.iter().map(|c| cell(ratios.get(c.as_str()))).collect();
            let own = items(&timed["targets"]).next().and_then(|t| t["median_ns"].as_f64());
            let names = self.backends(judged, case);
            page += &format!(
                "| {} | {} | {} | {}: {} | {} |\n",
                case.name(),
                case.threads,
                time(own),
                names.len(),
                names.join(", "),
                cells.join(" | ")
            );
        }
        page + "\n"
    }

    /// Backends in the plan of a way.
    fn backends(&self, way: &str, case: &Case) -> Vec<&str> {
        let row = self.step(way, case);
        row.map_or_else(Vec::new, |r| items(&r["backends"]).filter_map(Value::as_str).collect())
    }

    /// What was timed against a way, of each group of cases: those of one batch at one number of threads, and those
    /// of larger batches.
    fn groups(&self, judged: &str) -> BTreeMap<String, Vec<(&Case, &Value)>> {
        let mut groups: BTreeMap<String, Vec<(&Case, &Value)>> = BTreeMap::new();
        for (case, timed) in self.all(&timing(judged)) {
            let larger = if case.batch > 1 { ", larger batches" } else { "" };
            let group = groups.entry(format!("{}{larger}", case.threads)).or_default();
            group.push((case, timed));
        }
        groups
    }

    fn means(&self, judged: &str) -> String {
        let mut page = format!(
            "### Geometric means of *{judged}*\n\n\
             The best single framework is the one runtime that is fastest over all models; the best per model \
             is chosen for each.\n\n\
             | threads | models | over | speed-up | least |\n|---|---|---|---|---|\n",
        );
        for (group, timed) in self.groups(judged) {
            let timed: Vec<_> = timed.into_iter().map(|(_, timed)| Self::ratios(timed)).collect();
            let mut line = |over: &str, gains: Vec<f64>| {
                if let Some(mean) = mean(&gains) {
                    let least = gains.iter().copied().fold(f64::INFINITY, f64::min);
                    page += &format!(
                        "| {group} | {} | {over} | {mean:.3} | {least:.3} |\n",
                        gains.len()
                    );
                }
            };
            let over = |name: &str| -> Vec<f64> {
                timed.iter().filter_map(|ratios| Some(ratios.get(name)?.0)).collect()
            };
            let least_of = |meant: &dyn Fn(&str) -> bool| -> Vec<f64> {
                let least = |ratios: &BTreeMap<&str, Gain>| {
                    let all = ratios.iter().filter(|(name, _)| meant(name)).map(|(_, gain)| gain.0);
                    all.min_by(f64::total_cmp)
                };
                timed.iter().filter_map(least).collect()
            };
            let itself: Vec<String> = FRAMEWORKS.iter().map(|f| framework(f)).collect();
            // Only one that runs every model is a framework for all.
            let singles = itself.iter().filter(|name| over(name).len() == timed.len());
            let best = singles.min_by(|a, b| {
                let of = |name: &str| mean(&over(name)).unwrap_or(f64::INFINITY);
                of(a).total_cmp(&of(b))
            });
            if let Some(best) = best {
                line(&format!("the best single framework, {best}"), over(best));
            }
            line(
                "the best framework per model",
                least_of(&|name| itself.iter().any(|i| i == name)),
            );
            line("the best per model of all backends alone and frameworks", least_of(&is_single));
            let others = ["greedy", OP_LEVEL, PUBLISHED].into_iter().filter(|&o| o != judged);
            for name in itself.iter().map(String::as_str).chain(others) {
                line(name, over(name));
            }
        }
        page + "\n"
    }

    /// Plans of several backends that take less time than every single one beyond the interval.
    fn mixes(&self, judged: &str) -> String {
        let mut page = format!("### Plans of *{judged}* that several backends make\n\n");
        for (group, timed) in self.groups(judged) {
            let wins = timed.iter().filter(|(case, timed)| {
                let ratios = Self::ratios(timed);
                let mut singles = ratios.iter().filter(|(name, _)| is_single(name));
                self.backends(judged, case).len() > 1 && singles.all(|(_, gain)| gain.1 > 1.0)
            });
            let names: Vec<String> = wins.map(|(case, _)| case.name()).collect();
            page += &format!(
                "- {group} threads: {} of {} beat every single backend and framework beyond the interval: {}\n",
                names.len(),
                timed.len(),
                if names.is_empty() { "none".to_owned() } else { names.join(", ") }
            );
        }
        page + "\n"
    }

    fn violations(&self, judged: &str) -> String {
        let mut page = format!(
            "### Where *{judged}* is slower than a single one\n\n\
             Where the interval says that a backend alone or a framework took less time, both are timed once \
             more by themselves.\n\n",
        );
        let (mut found, mut confirmed) = (0, 0);
        for (case, timed) in self.all(&timing(judged)) {
            for name in faster_than_first(timed) {
                found += 1;
                let first = Self::ratios(timed);
                let again = self.step(&repeated(judged, &name), case);
                let again = again.map(Self::ratios).unwrap_or_default();
                let stays = again.get(name.as_str()).is_some_and(|gain| gain.2 < 1.0);
                confirmed += usize::from(stays);
                page += &format!(
                    "- {} at {} threads, {name}: {}; again {}{}\n",
                    case.name(),
                    case.threads,
                    cell(first.get(name.as_str())),
                    cell(again.get(name.as_str())),
                    if stays { ": **slower**" } else { "" }
                );
            }
        }
        page + &format!("\n{found} found, {confirmed} of them twice.\n\n")
    }
}

fn cell(gain: Option<&Gain>) -> String {
    gain.map_or("-".to_owned(), |(r, low, high)| format!("{r:.3} ({low:.3}-{high:.3})"))
}

fn time(ns: Option<f64>) -> String {
    ns.map_or("-".to_owned(), |ns| format!("{:.3} ms", ns / 1e6))
}

pub(super) fn number(value: &Value) -> String {
    value.as_u64().map_or("-".to_owned(), |n| n.to_string())
}

/// The geometric mean; none of nothing.
pub(super) fn mean(all: &[f64]) -> Option<f64> {
    let logs: f64 = all.iter().map(|x| x.ln()).sum();
    (!all.is_empty()).then(|| (logs / all.len() as f64).exp())
}
