//! The steps for one case: artefacts by every way of placement, then all of them in turn in one run.

use super::{Bench, Case, Results};
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

/// Models of each kind, for which the graph level, the published method and backends one by one are evaluated too.
const GRAPH_LEVEL: [&str; 8] = [
    "resnet18",
    "mobilenet-v2",
    "efficientnet-b0",
    "unet",
    "bert-base",
    "vit-b16",
    "dcgan",
    "collage-resnext50",
];
/// Models that are evaluated with more than one image or sequence at once as well.
const BATCHED: [&str; 5] = ["resnet50", "mobilenet-v2", "resnext50", "bert-base", "dcgan"];
const BATCHES: [u64; 3] = [4, 8, 16];

/// Time for a search at the op level, and for that of models with thousands of nodes.
pub(super) const OP_LIMIT: &str = "60s";
const LARGE: [&str; 2] = ["nasnet-a-large", "collage-nasnet-a"];
pub(super) const LARGE_LIMIT: &str = "120s";
/// Time for a search at the graph level, and for the published method.
pub(super) const GRAPH_LIMIT: &str = "3m";

/// What is evaluated of these models: all at batch 1, and some at larger ones on one thread.
pub(super) fn cases(models: &[String], threads: &[u64]) -> Vec<Case> {
    let of = |model: &String, batch, threads| Case { threads, batch, model: model.clone() };
    let one = threads.iter().flat_map(|&t| models.iter().map(move |m| of(m, 1, t)));
    let batched = models.iter().filter(|m| BATCHED.contains(&m.as_str()) && threads.contains(&1));
    let more = batched.flat_map(|m| BATCHES.map(|batch| of(m, batch, 1)));
    one.chain(more).collect()
}

/// A way to an artefact: its name, its time limit, and the options of `optimize`.
struct Way {
    name: String,
    limit: &'static str,
    options: Vec<String>,
}

impl Way {
    fn new(name: impl Into<String>, limit: &'static str, options: &[&str]) -> Way {
        Way { name: name.into(), limit, options: options.iter().map(|&o| o.to_owned()).collect() }
    }
}

/// Takes every step for a case that is not there.
pub(super) fn evaluate(bench: &Bench, results: &mut Results, case: &Case) -> Result<(), String> {
    let folder = bench.folder.join(format!("{}-{}-{}", case.model, case.batch, case.threads));
    let steps = Steps { bench, case, folder: &folder };
    let cache = folder.join("cache");
    if results.get(OP_LEVEL, case).is_none() && folder.exists() {
        // The first search is timed with nothing known.
        fs::remove_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    fs::create_dir_all(&cache).map_err(|e| format!("{}: {e}", cache.display()))?;
    let limit = if LARGE.contains(&case.model.as_str()) { LARGE_LIMIT } else { OP_LIMIT };
    let op_level = |name: &str, backends: &str| {
        let options = ["--placement", OP_LEVEL, "--backend", backends];
        Way::new(name, limit, if backends.is_empty() { &options[..2] } else { &options })
    };
    let first = steps.optimize(results, &op_level(OP_LEVEL, ""))?;
    if !first["refused"].is_null() {
        return Ok(());
    }
    steps.optimize(results, &op_level(&again(OP_LEVEL), ""))?;
    let graph_level = case.batch == 1 && GRAPH_LEVEL.contains(&case.model.as_str());
    let mut ways = Vec::new();
    if case.batch == 1 {
        ways.extend(ALONE.iter().map(|b| op_level(&format!("{b} alone"), b)));
        ways.push(Way::new("greedy", limit, &["--placement", "greedy", "--backend", GREEDY]));
    }
    let sets = sets();
    if graph_level {
        let own = sets.iter().filter(|(name, _)| name != OP_LEVEL && !is_single(name));
        ways.extend(own.map(|(name, backends)| op_level(name, &backends.join(","))));
    }
    let mut targets = vec![(OP_LEVEL.to_owned(), artefact(&folder, OP_LEVEL))];
    steps.add(results, &ways, &mut targets)?;
    let file = bench.model(case)?.display().to_string();
    let frameworks = FRAMEWORKS.map(|f| (framework(f), format!("{file}@{f}")));
    targets.extend(frameworks);
    steps.judge(results, &targets)?;
    if graph_level {
        // Searches that repeat nothing: all by the prices that are known now.
        for (name, backends) in sets.iter().filter(|(name, _)| name != OP_LEVEL) {
            steps.optimize(results, &op_level(&again(name), &backends.join(",")))?;
        }
        let engines = engines_first(&first);
        let published = ["--placement", PUBLISHED, "--backend", &engines];
        let ways =
            [Way::new(EXACT, GRAPH_LIMIT, &[]), Way::new(PUBLISHED, GRAPH_LIMIT, &published)];
        let mut compared = Vec::new();
        steps.add(results, &ways, &mut compared)?;
        steps.optimize(results, &Way::new(again(EXACT), GRAPH_LIMIT, &[]))?;
        compared.extend(targets.into_iter().filter(|t| t.0 == OP_LEVEL || is_single(&t.0)));
        if compared.first().is_some_and(|t| t.0 == EXACT) {
            steps.judge(results, &compared)?;
        }
    }
    // Nothing is left to do with artefacts and costs.
    fs::remove_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))
}

/// The cheapest cover by single measurements: the way that is judged for every case.
pub(super) const OP_LEVEL: &str = "op-level";
/// With covers made anew from what plans and merged regions take: judged for some.
pub(super) const EXACT: &str = "exact";
/// The published method.
pub(super) const PUBLISHED: &str = "collage-v1";

/// Names of the ways with one backend more each, the last with all.
pub(super) fn added() -> Vec<String> {
    let name = |i: usize| match i {
        0 => format!("{} alone", ADDED[0]),
        i if i + 1 == ADDED.len() => OP_LEVEL.to_owned(),
        i => format!("up to {}", ADDED[i]),
    };
    (0..ADDED.len()).map(name).collect()
}

/// Names of the ways without one backend each, in the order in which they are added.
pub(super) fn left_out() -> Vec<String> {
    let added = added();
    let name = |i: usize| match i {
        // Without the one that is added last.
        i if i + 1 == ADDED.len() => added[i - 1].clone(),
        i => format!("without {}", ADDED[i]),
    };
    (0..ADDED.len()).map(name).collect()
}

/// The ways with some of the backends, and which those are.
fn sets() -> Vec<(String, Vec<&'static str>)> {
    let up_to = added().into_iter().zip((1..).map(|count| ADDED[..count].to_vec()));
    let without = |out: &str| ADDED.into_iter().filter(|b| *b != out).collect();
    let all_but_one = left_out().into_iter().zip(ADDED.map(without));
    up_to.chain(all_but_one.filter(|(name, _)| name.starts_with("without"))).collect()
}

/// The name of a way that is gone a second time.
pub(super) fn again(name: &str) -> String {
    format!("{name} again")
}

/// The name of a runtime's own run of the model.
pub(super) fn framework(name: &str) -> String {
    format!("{name} itself")
}

/// The step that times others against a judged way.
pub(super) fn timing(judged: &str) -> String {
    format!("bench {judged}")
}

/// The step that times one against a judged way once more.
pub(super) fn repeated(judged: &str, other: &str) -> String {
    format!("bench {judged} again {other}")
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
fn engines_first(op_level: &Value) -> String {
    let time = |engine: &str| {
        let name = format!("{engine} whole");
        let plan = items(&op_level["contenders"]).find(|c| text(c, "name") == name);
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
    case: &'a Case,
    folder: &'a Path,
}

impl Steps<'_> {
    fn optimize(&self, results: &mut Results, way: &Way) -> Result<Value, String> {
        let (threads, cache) = (self.case.threads.to_string(), self.folder.join("cache"));
        let model = self.bench.model(self.case)?.display().to_string();
        let out = artefact(self.folder, &way.name);
        let mut words = vec!["optimize", &model, "--output", &out, "--overwrite"];
        words.extend(["--threads", &threads, "--time-limit", way.limit]);
        words.extend(way.options.iter().map(String::as_str));
        results.take(&way.name, self.case, &mut || Ok(brief(&self.bench.json(&words, &cache)?)))
    }

    /// Takes these ways, and adds their artefacts to the targets.
    fn add(
        &self,
        results: &mut Results,
        ways: &[Way],
        targets: &mut Vec<(String, String)>,
    ) -> Result<(), String> {
        for way in ways {
            let made = self.optimize(results, way)?;
            // What the reference has to help out with is nobody's plan.
            if made["refused"].is_null() && made["on_reference"] == 0 {
                targets.push((way.name.clone(), artefact(self.folder, &way.name)));
            }
        }
        Ok(())
    }

    /// Times targets against the first one, and those that were faster beyond noise once more.
    fn judge(&self, results: &mut Results, targets: &[(String, String)]) -> Result<(), String> {
        let cache = self.folder.join("cache");
        let judged = &targets[0].0;
        let step = timing(judged);
        let timed = results.take(&step, self.case, &mut || self.bench(&cache, targets))?;
        for faster in faster_than_first(&timed) {
            let Some(target) = targets.iter().find(|t| t.0 == faster) else { continue };
            let both = [targets[0].clone(), target.clone()];
            let step = repeated(judged, &faster);
            results.take(&step, self.case, &mut || self.bench(&cache, &both))?;
        }
        Ok(())
    }

    /// Times targets in turn, without those whose results are wrong.
    fn bench(&self, cache: &Path, targets: &[(String, String)]) -> Result<Value, String> {
        let threads = self.case.threads.to_string();
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
