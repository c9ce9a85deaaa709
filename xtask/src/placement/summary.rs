//! The page: what the finished steps show.

use super::{
    Results,
    plans::{
        ADDED, ALONE, EXACT, FRAMEWORKS, GREEDY, added, again, faster_than_first, framework,
        is_single,
    },
};
use crate::models::{items, text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A model at a number of threads.
type Case = (String, u64);

/// Speed-ups of one way over others: time of the other over its own, with the interval.
type Gain = (f64, f64, f64);

struct Page<'a> {
    results: &'a Results,
    cases: Vec<Case>,
}

/// The page about all steps that are there.
pub(super) fn page(results: &Results) -> String {
    let mut cases: Vec<Case> = Vec::new();
    for row in results.rows.iter().filter(|r| text(r, "time_limit") == results.time_limit) {
        let case = (text(row, "model").to_owned(), row["threads"].as_u64().unwrap_or(0));
        if !cases.contains(&case) {
            cases.push(case);
        }
    }
    cases.sort_by_key(|case| case.1);
    let page = Page { results, cases };
    [
        page.head(),
        page.gains(),
        page.means(),
        page.violations(),
        page.added(),
        page.convolutions(),
        page.searches(),
        page.blind(),
        page.missing(),
    ]
    .concat()
}

impl Page<'_> {
    fn step(&self, step: &str, case: &Case) -> Option<&Value> {
        self.results.get(step, &case.0, case.1)
    }

    /// Every case with what a step gave for it, where it gave something.
    fn all(&self, step: &'static str) -> impl Iterator<Item = (&Case, &Value)> {
        let found = move |case| Some((case, self.step(step, case)?));
        self.cases.iter().filter_map(found).filter(|(_, row)| row["refused"].is_null())
    }

    fn head(&self) -> String {
        let machines: BTreeSet<&str> =
            self.all(EXACT).map(|(_, row)| text(row, "machine")).collect();
        let machines: Vec<&str> = machines.into_iter().collect();
        format!(
            "# Placement against its baselines\n\n\
             `cargo xtask bench placement` wrote this page. Models are those of `bricolage zoo`, batch 1, f32; \
             machine: {}; time limit of each search: {}.\n\n\
             *exact* is `optimize` as it is. *X alone* is `optimize --backend X`. *X itself* is the \
             runtime on the model's file, at its own best settings. *greedy* gives each backend the \
             largest regions that it takes, in the order {GREEDY}. *collage-v1* is the published method of Collage \
             (a cover that sees no formats and charges 0.01 ms a kernel, then an evolutionary search \
             with the published parameters), its graph engine the faster of the two. All artefacts of a \
             model are timed in turn in one run, after their results were compared with the reference; a ratio \
             is the median of paired ratios, with its 95 % interval.\n\n",
            machines.join(", "),
            self.results.time_limit
        )
    }

    /// The ratio of each target over the first.
    fn ratios(timed: &Value) -> BTreeMap<&str, Gain> {
        let ratio = |t: &Value| {
            let r = |i: usize| t["ratio"][i].as_f64();
            Some((r(0)?, r(1)?, r(2)?))
        };
        items(&timed["targets"]).filter_map(|t| Some((text(t, "name"), ratio(t)?))).collect()
    }

    fn gains(&self) -> String {
        let mut columns: Vec<String> = FRAMEWORKS.iter().map(|f| framework(f)).collect();
        columns.extend(ALONE.iter().map(|b| format!("{b} alone")));
        columns.extend(["greedy".to_owned(), "collage-v1".to_owned()]);
        let mut page = format!(
            "## Speed-up of exact placement\n\n\
             Time of the column over that of *exact*: more than 1 is a gain.\n\n\
             | model | threads | exact | backends in its plan | {} |\n|---|---|---|---|{}\n",
            columns.join(" | "),
            "---|".repeat(columns.len())
        );
        for (case, timed) in self.all("bench") {
            let ratios = Self::ratios(timed);
            let cells: Vec<String> = columns.iter().map(|c| cell(ratios.get(c.as_str()))).collect();
            let exact = items(&timed["targets"]).next().and_then(|t| t["median_ns"].as_f64());
            let backends = self.step(EXACT, case).map_or_else(String::new, |row| {
                let names: Vec<&str> = items(&row["backends"]).filter_map(Value::as_str).collect();
                format!("{}: {}", names.len(), names.join(", "))
            });
            page += &format!(
                "| {} | {} | {} | {backends} | {} |\n",
                case.0,
                case.1,
                time(exact),
                cells.join(" | ")
            );
        }
        page + "\n"
    }

    fn means(&self) -> String {
        let mut page = String::from(
            "## Geometric means\n\n\
             The best single framework is the one runtime that is fastest over all models; the best per model \
             is chosen for each.\n\n\
             | threads | models | over | speed-up | least |\n|---|---|---|---|---|\n",
        );
        let threads: BTreeSet<u64> = self.cases.iter().map(|c| c.1).collect();
        for threads in threads {
            let timed: Vec<BTreeMap<&str, Gain>> = self
                .all("bench")
                .filter(|(case, _)| case.1 == threads)
                .map(|(_, timed)| Self::ratios(timed))
                .collect();
            let mut line = |over: &str, gains: Vec<f64>| {
                if let Some(mean) = mean(&gains) {
                    let least = gains.iter().copied().fold(f64::INFINITY, f64::min);
                    page += &format!(
                        "| {threads} | {} | {over} | {mean:.3} | {least:.3} |\n",
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
            for name in itself.iter().map(String::as_str).chain(["greedy", "collage-v1"]) {
                line(name, over(name));
            }
        }
        page + "\n"
    }

    fn violations(&self) -> String {
        let mut page = String::from(
            "## Slower than a single one\n\n\
             Where the interval says that a backend alone or a framework took less time, both are timed once \
             more by themselves.\n\n",
        );
        let (mut found, mut confirmed) = (0, 0);
        for (case, timed) in self.all("bench") {
            for name in faster_than_first(timed) {
                found += 1;
                let first = Self::ratios(timed);
                let again = self.step(&format!("bench again {name}"), case);
                let again = again.map(Self::ratios).unwrap_or_default();
                let stays = again.get(name.as_str()).is_some_and(|gain| gain.2 < 1.0);
                confirmed += usize::from(stays);
                page += &format!(
                    "- {} at {} threads, {name}: {}; again {}{}\n",
                    case.0,
                    case.1,
                    cell(first.get(name.as_str())),
                    cell(again.get(name.as_str())),
                    if stays { ": **slower**" } else { "" }
                );
            }
        }
        page + &format!("\n{found} found, {confirmed} of them twice.\n\n")
    }

    fn added(&self) -> String {
        let mut page = String::from(
            "## Backends added one by one\n\n\
             Of each set: the predicted optimum over that of the first set, all by the same prices, and the time \
             of that set's plan over that of *exact*, which has all.\n\n| model | threads |",
        );
        let steps = added();
        for (i, backend) in ADDED.iter().enumerate() {
            page += &format!(" {}{backend} |", if i == 0 { "" } else { "+" });
        }
        page += &format!("\n|---|---|{}\n", "---|".repeat(ADDED.len()));
        for (case, timed) in self.all("bench") {
            let ratios = Self::ratios(timed);
            let predicted = |step: &str| self.step(&again(step), case)?["predicted_ns"].as_f64();
            let first = predicted(&steps[0]);
            let cells = steps.iter().map(|step| {
                let share = predicted(step).zip(first).map(|(p, first)| p / first);
                let share = share.map_or("-".to_owned(), |s| format!("{s:.3}"));
                let measured = match step.as_str() {
                    EXACT => Some(1.0),
                    step => ratios.get(step).map(|r| r.0),
                };
                let measured = measured.map_or("-".to_owned(), |r| format!("{r:.3}"));
                format!("{share}, {measured}")
            });
            let cells: Vec<String> = cells.collect();
            page += &format!("| {} | {} | {} |\n", case.0, case.1, cells.join(" | "));
        }
        page + "\n"
    }

    fn convolutions(&self) -> String {
        let mut page = String::from(
            "## Who computes each distinct convolution\n\n\
             Of the plans of *exact* that are no engine's whole graph: equal regions count once.\n\n\
             | model | threads | convolutions | by backend |\n|---|---|---|---|\n",
        );
        let mut all: BTreeMap<&str, usize> = BTreeMap::new();
        let list = |by: &BTreeMap<&str, usize>| {
            let each: Vec<String> = by.iter().map(|(b, n)| format!("{b} {n}")).collect();
            each.join(", ")
        };
        for (case, row) in self.all(EXACT) {
            let mut by: BTreeMap<&str, usize> = BTreeMap::new();
            for conv in items(&row["convolutions"]) {
                *by.entry(text(conv, "backend")).or_default() += 1;
                *all.entry(text(conv, "backend")).or_default() += 1;
            }
            let count: usize = by.values().sum();
            if count > 0 {
                page += &format!("| {} | {} | {count} | {} |\n", case.0, case.1, list(&by));
            }
        }
        let count: usize = all.values().sum();
        if let Some((name, most)) = all.iter().max_by_key(|(_, n)| **n) {
            let share = 100.0 * *most as f64 / count as f64;
            page += &format!("\nIn all {}: {name} wins {share:.0} %.\n", list(&all));
        }
        page + "\n"
    }

    fn searches(&self) -> String {
        let mut page = String::from(
            "## Search\n\n\
             Seconds of *exact* with nothing known and again; of *collage-v1*, with all prices known, the plans \
             that were timed, those that failed, when the best was found, and the mean time of the op level's \
             plan over the best one's.\n\n\
             | model | threads | cold | offers left out | again | plans | failed | best after | gain of the graph \
             level |\n|---|---|---|---|---|---|---|---|---|\n",
        );
        for (case, row) in self.all(EXACT) {
            let seconds = |v: &Value| v.as_f64().map_or("-".to_owned(), |s| format!("{s:.1} s"));
            let again =
                self.step(&again(EXACT), case).map_or(Value::Null, |r| r["seconds"].clone());
            let evolution = self.step("collage-v1", case).map(|r| r["evolutions"][0].clone());
            let e = evolution.unwrap_or_default();
            let gain = e["op_level_ns"].as_f64().zip(e["best_ns"].as_f64());
            page += &format!(
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} |\n",
                case.0,
                case.1,
                seconds(&row["seconds"]),
                row["skipped"],
                seconds(&again),
                number(&e["individuals"]),
                number(&e["failed"]),
                seconds(&e["best_after_s"]),
                gain.map_or("-".to_owned(), |(op_level, best)| format!("{:.3}", op_level / best))
            );
        }
        page + "\n"
    }

    fn blind(&self) -> String {
        let mut page = String::from(
            "## What it costs to ignore layouts\n\n\
             Predicted price over that of the exact cover: of the cover that is cheapest while conversions are \
             not seen and that then pays them, and of the op level of *collage-v1*, which charges each kernel \
             0.01 ms besides.\n\n\
             | model | threads | blind to layouts | op level of collage-v1 |\n|---|---|---|---|\n",
        );
        let mut losses = [Vec::new(), Vec::new()];
        for (case, row) in self.all("collage-v1") {
            let optimum = self.step(&again(EXACT), case).or(self.step(EXACT, case));
            let Some(optimum) = optimum.and_then(|r| r["predicted_ns"].as_f64()) else { continue };
            let e = &row["evolutions"][0];
            let mut cells = Vec::new();
            for (field, all) in
                ["layout_blind_ns", "op_level_predicted_ns"].into_iter().zip(&mut losses)
            {
                let loss = e[field].as_f64().map(|ns| ns / optimum);
                all.extend(loss);
                cells.push(loss.map_or("-".to_owned(), |l| format!("{l:.3}")));
            }
            page += &format!("| {} | {} | {} |\n", case.0, case.1, cells.join(" | "));
        }
        if let (Some(blind), Some(op_level)) = (mean(&losses[0]), mean(&losses[1])) {
            page += &format!("\nGeometric means: {blind:.3} and {op_level:.3}.\n");
        }
        page + "\n"
    }

    /// Steps that could not be done, and targets that are in no run.
    fn missing(&self) -> String {
        let mut lines = String::new();
        for case in &self.cases {
            let own = |row: &&Value| {
                text(row, "model") == case.0
                    && row["threads"] == case.1
                    && text(row, "time_limit") == self.results.time_limit
            };
            for row in self.results.rows.iter().filter(own) {
                let step = text(row, "step");
                let mut say = |what: &str, why: &str| {
                    let why = why.replace('\n', " ");
                    lines += &format!("- {} at {} threads, {what}: {why}\n", case.0, case.1);
                };
                if let Some(why) = row["refused"].as_str() {
                    say(step, why);
                }
                if let Some(count) = row["on_reference"].as_u64().filter(|&n| n > 0) {
                    say(step, &format!("does not cover the model: {count} regions are left"));
                }
                for out in items(&row["left_out"]) {
                    say(&format!("{step} of {}", text(out, "name")), text(out, "why"));
                }
            }
        }
        match lines.is_empty() {
            true => String::new(),
            false => format!("## Not there\n\n{lines}"),
        }
    }
}

fn cell(gain: Option<&Gain>) -> String {
    gain.map_or("-".to_owned(), |(r, low, high)| format!("{r:.3} ({low:.3}-{high:.3})"))
}

fn time(ns: Option<f64>) -> String {
    ns.map_or("-".to_owned(), |ns| format!("{:.3} ms", ns / 1e6))
}

fn number(value: &Value) -> String {
    value.as_u64().map_or("-".to_owned(), |n| n.to_string())
}

/// The geometric mean; none of nothing.
fn mean(all: &[f64]) -> Option<f64> {
    let logs: f64 = all.iter().map(|x| x.ln()).sum();
    (!all.is_empty()).then(|| (logs / all.len() as f64).exp())
}
