//! The steps for one model: artefacts by every way of placement, then all of them in turn in one run.

use super::{Bench, Results};
use crate::models::{items, text};
use serde_json::{Value, json};
use std::{collections::BTreeSet, fs, path::Path};

/// Backends in the order in which they are added; the first is always there.
pub(super) const ADDED: [&str; 5] = ["native", "blas", "onednn", "onnxruntime", "openvino"];
/// Backends that are tried alone.
pub(super) const ALONE: [&str; 4] = ["native", "onnxruntime", "openvino", "onednn"];
/// Runtimes that run the model's file by themselves, at their own best settings.
pub(super) const FRAMEWORKS: [&str; 2] = ["onnxruntime", "openvino"];
/// The order of greedy placement: who knows fewer ops comes first, as users order execution providers.
pub(super) const GREEDY: &str = "onednn,blas,openvino,onnxruntime,native";

/// A way to an artefact: its name, and the options of `optimize`.
struct Way {
    name: String,
    options: Vec<String>,
}

impl Way {
    fn new(name: impl Into<String>, options: &[&str]) -> Way {
        Way { name: name.into(), options: options.iter().map(|&o| o.to_owned()).collect() }
    }
}

/// Takes every step for a model that is not there.
pub(super) fn evaluate(
    bench: &Bench,
    results: &mut Results,
    model: &str,
    threads: u64,
) -> Result<(), String> {
    let steps = Steps { bench, model, threads };
    let folder = bench.folder.join(format!("{model}-{threads}"));
    let cache = folder.join("cache");
    if results.get(EXACT, model, threads).is_none() && folder.exists() {
        // The first search is timed with nothing known.
        fs::remove_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    fs::create_dir_all(&cache).map_err(|e| format!("{}: {e}", cache.display()))?;
    let exact = steps.optimize(results, &folder, &Way::new(EXACT, &[]))?;
    let mut ways: Vec<Way> =
        ALONE.iter().map(|b| Way::new(format!("{b} alone"), &["--backend", b])).collect();
    ways.push(Way::new("greedy", &["--placement", "greedy", "--backend", GREEDY]));
    let engines = engines_first(&exact);
    ways.push(Way::new("collage-v1", &["--placement", "collage-v1", "--backend", &engines]));
    let sets = added();
    for (count, name) in (1..).zip(&sets).filter(|(_, name)| name.starts_with("up to")) {
        ways.push(Way::new(name, &["--backend", &ADDED[..count].join(",")]));
    }
    let mut targets = vec![(EXACT.to_owned(), artefact(&folder, EXACT))];
    for way in &ways {
        let made = steps.optimize(results, &folder, way)?;
        // What the reference has to help out with is nobody's plan.
        if made["refused"].is_null() && made["on_reference"] == 0 {
            targets.push((way.name.clone(), artefact(&folder, &way.name)));
        }
    }
    // Searches that repeat nothing: all by the prices that are known now.
    for (count, name) in (1..).zip(&sets) {
        let backends = ADDED[..count].join(",");
        let options = if name == EXACT { vec![] } else { vec!["--backend", backends.as_str()] };
        steps.optimize(results, &folder, &Way::new(again(name), &options))?;
    }
    let file = bench.model(model)?.display().to_string();
    targets.extend(FRAMEWORKS.map(|f| (framework(f), format!("{file}@{f}"))));
    if !exact["refused"].is_null() {
        return Ok(());
    }
    let timed = results.take("bench", model, threads, &mut || steps.bench(&cache, &targets))?;
    for slower in faster_than_first(&timed) {
        let Some(target) = targets.iter().find(|t| t.0 == slower) else { continue };
        let both = [targets[0].clone(), target.clone()];
        let step = format!("bench again {slower}");
        results.take(&step, model, threads, &mut || steps.bench(&cache, &both))?;
    }
    // Nothing is left to do with artefacts and costs.
    fs::remove_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))
}

/// The way that is judged.
pub(super) const EXACT: &str = "exact";

/// Names of the ways with one backend more each, the last with all.
pub(super) fn added() -> Vec<String> {
    let name = |i: usize| match i {
        0 => format!("{} alone", ADDED[0]),
        i if i + 1 == ADDED.len() => EXACT.to_owned(),
        i => format!("up to {}", ADDED[i]),
    };
    (0..ADDED.len()).map(name).collect()
}

/// The name of a way that is gone a second time.
pub(super) fn again(name: &str) -> String {
    format!("{name} again")
}

/// The name of a runtime's own run of the model.
pub(super) fn framework(name: &str) -> String {
    format!("{name} itself")
}

/// What users run without us: single backends, and runtimes by themselves.
pub(super) fn is_single(name: &str) -> bool {
    name.ends_with(" alone") || name.ends_with(" itself")
}

/// Single targets of a run that took less time than the first beyond noise.
pub(super) fn faster_than_first(timed: &Value) -> Vec<String> {
    let faster = |t: &&Value| t["ratio"][2].as_f64().is_some_and(|high| high < 1.0);
    let single = |t: &&Value| is_single(text(t, "name"));
    let all = items(&timed["targets"]).skip(1).filter(faster).filter(single);
    all.map(|t| text(t, "name").to_owned()).collect()
}

/// A finished step in a few words.
pub(super) fn in_words(row: &Value) -> String {
    let ms = |v: &Value| v.as_f64().map_or("-".to_owned(), |ns| format!("{:.3} ms", ns / 1e6));
    if row["targets"].is_array() {
        let one = |t: &Value| format!("{} {}", text(t, "name"), ms(&t["median_ns"]));
        return items(&row["targets"]).map(one).collect::<Vec<_>>().join(", ");
    }
    let backends: Vec<&str> = items(&row["backends"]).filter_map(Value::as_str).collect();
    format!(
        "{} on {} in {:.1} s",
        ms(&row["measured_ns"]),
        backends.join(", "),
        row["seconds"].as_f64().unwrap_or(0.0)
    )
}

/// All backends, the graph engine first whose plan of the whole model was the faster one: the published method
/// has one engine, and gets the better.
fn engines_first(exact: &Value) -> String {
    let time = |engine: &str| {
        let name = format!("{engine} whole");
        let plan = items(&exact["contenders"]).find(|c| text(c, "name") == name);
        plan.and_then(|c| c["measured_ns"].as_f64()).unwrap_or(f64::INFINITY)
    };
    let mut engines = FRAMEWORKS;
    engines.sort_by(|a, b| time(a).total_cmp(&time(b)));
    let others = ADDED.iter().filter(|b| !FRAMEWORKS.contains(b)).copied();
    engines.into_iter().chain(others).collect::<Vec<_>>().join(",")
}

fn artefact(folder: &Path, name: &str) -> String {
    folder.join(format!("{}.bricolage", name.replace(' ', "-"))).display().to_string()
}

struct Steps<'a> {
    bench: &'a Bench,
    model: &'a str,
    threads: u64,
}

impl Steps<'_> {
    fn optimize(&self, results: &mut Results, folder: &Path, way: &Way) -> Result<Value, String> {
        let (threads, limit) = (self.threads.to_string(), results.time_limit.clone());
        let (model, cache) = (self.bench.model(self.model)?, folder.join("cache"));
        let (model, out) = (model.display().to_string(), artefact(folder, &way.name));
        let mut words = vec!["optimize", &model, "--output", &out, "--overwrite"];
        words.extend(["--threads", &threads, "--time-limit", &limit]);
        words.extend(way.options.iter().map(String::as_str));
        results.take(&way.name, self.model, self.threads, &mut || {
            Ok(brief(&self.bench.json(&words, &cache)?))
        })
    }

    /// Times targets in turn, without those whose results are wrong.
    fn bench(&self, cache: &Path, targets: &[(String, String)]) -> Result<Value, String> {
        let threads = self.threads.to_string();
        let (mut left, mut out) = (targets.to_vec(), Vec::new());
        loop {
            let mut words = vec!["bench", "--threads", &threads];
            words.extend(left.iter().map(|t| t.1.as_str()));
            let why = match self.bench.json(&words, cache) {
                Ok(table) => {
                    let rows = items(&table["targets"]).zip(&left).map(|(row, (name, _))| {
                        json!({
                            "name": name, "median_ns": row["median_ns"], "runs": row["runs"],
                            "ratio": [
                                row["ratio_to_first"], row["ratio_ci95"][0], row["ratio_ci95"][1]
                            ],
                        })
                    });
                    let rows: Vec<Value> = rows.collect();
                    return Ok(
                        json!({ "targets": rows, "left_out": out, "noise": table["noise"] }),
                    );
                }
                Err(why) => why,
            };
            // The first is what all are compared with; a fault that names none is one of all.
            let at = left.iter().skip(1).position(|t| why.contains(&format!("`{}`", t.1)));
            let Some(at) = at else { return Err(why) };
            let (name, _) = left.remove(at + 1);
            out.push(json!({ "name": name, "why": why }));
        }
    }
}

/// What the page needs of a report.
fn brief(report: &Value) -> Value {
    let regions: Vec<&Value> =
        items(&report["regions"]).filter(|r| text(r, "backend") != "view").collect();
    let backends: BTreeSet<&str> = regions.iter().map(|r| text(r, "backend")).collect();
    let contenders: Vec<Value> = items(&report["contenders"])
        .map(|c| {
            json!({
                "name": c["name"], "chosen": c["chosen"], "predicted_ns": c["prediction"]["sum_ns"],
                "gap": c["prediction"]["gap"],
                "measured_ns": c["measured"]["median_ns"], "refused": c["refused"],
            })
        })
        .collect();
    let chosen = contenders.iter().find(|c| c["chosen"] == true).cloned().unwrap_or_default();
    let mixed = contenders.iter().find(|c| text(c, "name") == "mixed").cloned().unwrap_or_default();
    json!({
        "machine": report["machine"]["model"],
        "seconds": report["seconds"],
        "offers": report["offers"],
        "measured": report["measured"],
        "skipped": report["skipped"],
        "gap": mixed["gap"],
        "regions": regions.len(),
        "conversions": items(&report["conversions"]).count(),
        "backends": backends,
        "on_reference": regions.iter().filter(|r| text(r, "backend") == "reference").count(),
        "chosen": chosen["name"],
        "measured_ns": chosen["measured_ns"],
        "predicted_ns": mixed["predicted_ns"],
        "contenders": contenders,
        "evolutions": report["evolutions"],
        "convolutions": convolutions(&regions),
    })
}

/// Who computes each distinct convolution. Equal regions are measured once: they are those with one record.
fn convolutions(regions: &[&Value]) -> Vec<Value> {
    let mut seen = BTreeSet::new();
    let mut all = Vec::new();
    for r in regions {
        let pattern = text(r, "pattern").to_lowercase();
        let is_one = pattern.split(['+', ' ']).any(|word| word.starts_with("conv"));
        let key = format!("{}{}{}{}", r["backend"], r["pattern"], r["kernel"], r["measured"]);
        if is_one && seen.insert(key) {
            all.push(json!({
                "backend": r["backend"], "pattern": r["pattern"],
                "ns": r["measured"]["median_ns"], "next": r["runner_up"]["backend"],
                "next_ns": r["runner_up"]["median_ns"],
            }));
        }
    }
    all
}
