//! The page: what is behind the figures.

use super::{
    Case,
    plans::{ADDED, EXACT, OP_LEVEL, PUBLISHED, added, again, left_out, timing},
    summary::{Page, mean, number},
};
use crate::models::{items, text};
use serde_json::Value;
use std::collections::BTreeMap;

impl Page<'_> {
    pub(super) fn added(&self) -> String {
        let first = &added()[0];
        let mark = |i: usize| if i == 0 { "" } else { "+" };
        let named = ADDED.iter().enumerate().map(|(i, b)| format!("{}{b}", mark(i)));
        format!(
            "## Backends added one by one\n\n\
             Of each set: the predicted optimum over that of the first set, all by the same prices, and the time \
             of that set's plan over that of *op-level*, which has all.\n\n{}",
            self.sets(&added(), named.collect(), first)
        )
    }

    pub(super) fn left_out(&self) -> String {
        let named = ADDED.iter().map(|b| format!("-{b}"));
        format!(
            "## Backends left out one by one\n\n\
             Of all but one: the predicted optimum over that of all, by the same prices, and the time of that \
             set's plan over that of *op-level*. What nobody else computes is left to the reference; such a plan is \
             not timed.\n\n{}",
            self.sets(&left_out(), named.collect(), OP_LEVEL)
        )
    }

    /// A table of ways with some of the backends, predicted over `first` and measured over all.
    fn sets(&self, steps: &[String], named: Vec<String>, first: &str) -> String {
        let mut page = format!("| model | threads | {} |\n", named.join(" | "));
        page += &format!("|---|---|{}\n", "---|".repeat(steps.len()));
        let whole = |(case, _): &(&Case, &Value)| {
            steps.iter().any(|s| self.step(&again(s), case).is_some())
        };
        let mut all: Vec<Vec<f64>> = vec![Vec::new(); steps.len()];
        for (case, timed) in self.all(&timing(OP_LEVEL)).into_iter().filter(whole) {
            let ratios = Self::ratios(timed);
            let predicted = |step: &str| {
                let row = self.step(&again(step), case)?;
                row["predicted_ns"].as_f64()
            };
            let first = predicted(first);
            let cells = steps.iter().zip(&mut all).map(|(step, all)| {
                let share = predicted(step).zip(first).map(|(p, first)| p / first);
                let share = share.map_or("-".to_owned(), |s| format!("{s:.3}"));
                let measured = match step.as_str() {
                    OP_LEVEL => Some(1.0),
                    step => ratios.get(step).map(|r| r.0),
                };
                all.extend(measured);
                let measured = measured.map_or("-".to_owned(), |r| format!("{r:.3}"));
                format!("{share}, {measured}")
            });
            let cells: Vec<String> = cells.collect();
            page += &format!("| {} | {} | {} |\n", case.name(), case.threads, cells.join(" | "));
        }
        let means = all.iter().map(|a| mean(a).map_or("-".to_owned(), |m| format!("{m:.3}")));
        let means: Vec<String> = means.collect();
        page + &format!("\nGeometric means of what was measured: {}.\n\n", means.join(", "))
    }

    pub(super) fn convolutions(&self) -> String {
        let mut page = String::from(
            "## Who computes each distinct convolution\n\n\
             Of the plans of *op-level* that are no engine's whole graph: equal regions count once.\n\n\
             | model | threads | convolutions | by backend |\n|---|---|---|---|\n",
        );
        let mut all: BTreeMap<&str, usize> = BTreeMap::new();
        let list = |by: &BTreeMap<&str, usize>| {
            let each: Vec<String> = by.iter().map(|(b, n)| format!("{b} {n}")).collect();
            each.join(", ")
        };
        for (case, row) in self.all(OP_LEVEL) {
            let mut by: BTreeMap<&str, usize> = BTreeMap::new();
            for conv in items(&row["convolutions"]) {
                *by.entry(text(conv, "backend")).or_default() += 1;
                *all.entry(text(conv, "backend")).or_default() += 1;
            }
            let count: usize = by.values().sum();
            if count > 0 {
                page +=
                    &format!("| {} | {} | {count} | {} |\n", case.name(), case.threads, list(&by));
            }
        }
        let count: usize = all.values().sum();
        if let Some((name, most)) = all.iter().max_by_key(|(_, n)| **n) {
            let share = 100.0 * *most as f64 / count as f64;
            page += &format!("\nIn all {}: {name} wins {share:.0} %.\n", list(&all));
        }
        page + "\n"
    }

    pub(super) fn searches(&self) -> String {
        let seconds = |v: &Value| v.as_f64().map_or("-".to_owned(), |s| format!("{s:.1} s"));
        let mut page = String::from(
            "## Search\n\n\
             Seconds with nothing known, those of *exact* with the prices of the op level known, and again.\n\n\
             | model | threads | level | first | offers left out | again |\n|---|---|---|---|---|---|\n",
        );
        for way in [OP_LEVEL, EXACT] {
            for (case, row) in self.all(way) {
                let again = self.step(&again(way), case).map(|r| r["seconds"].clone());
                page += &format!(
                    "| {} | {} | {way} | {} | {} | {} |\n",
                    case.name(),
                    case.threads,
                    seconds(&row["seconds"]),
                    row["skipped"],
                    seconds(&again.unwrap_or_default())
                );
            }
        }
        page += &format!(
            "\nOf *{PUBLISHED}*, with all prices known: the plans that were timed, those that failed, when the best \
             was found, and the mean time of its op level's plan over the best one's.\n\n\
             | model | threads | plans | failed | best after | gain |\n|---|---|---|---|---|---|\n",
        );
        for (case, row) in self.all(PUBLISHED) {
            let e = &row["evolutions"][0];
            let gain = e["op_level_ns"].as_f64().zip(e["best_ns"].as_f64());
            page += &format!(
                "| {} | {} | {} | {} | {} | {} |\n",
                case.name(),
                case.threads,
                number(&e["individuals"]),
                number(&e["failed"]),
                seconds(&e["best_after_s"]),
                gain.map_or("-".to_owned(), |(op_level, best)| format!("{:.3}", op_level / best))
            );
        }
        page + "\n"
    }

    pub(super) fn blind(&self) -> String {
        let mut page = String::from(
            "## What it costs to ignore layouts\n\n\
             Predicted price over that of the exact cover: of the cover that is cheapest while conversions are \
             not seen and that then pays them, and of the op level of *collage-v1*, which charges each kernel \
             0.01 ms besides.\n\n\
             | model | threads | blind to layouts | op level of collage-v1 |\n|---|---|---|---|\n",
        );
        let mut losses = [Vec::new(), Vec::new()];
        for (case, row) in self.all(PUBLISHED) {
            let optimum = self.step(&again(OP_LEVEL), case).or(self.step(OP_LEVEL, case));
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
            page += &format!("| {} | {} | {} |\n", case.name(), case.threads, cells.join(" | "));
        }
        if let (Some(blind), Some(op_level)) = (mean(&losses[0]), mean(&losses[1])) {
            page += &format!("\nGeometric means: {blind:.3} and {op_level:.3}.\n");
        }
        page + "\n"
    }

    /// Steps that could not be done, and targets that are in no run.
    pub(super) fn missing(&self) -> String {
        let mut lines = String::new();
        for case in &self.cases {
            let own = |row: &&Value| Case::of(row) == *case;
            for row in self.results.rows.iter().filter(own) {
                let step = text(row, "step");
                let mut say = |what: &str, why: &str| {
                    let why = why.replace('\n', " ");
                    lines +=
                        &format!("- {} at {} threads, {what}: {why}\n", case.name(), case.threads);
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
