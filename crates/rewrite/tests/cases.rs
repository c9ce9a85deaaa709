//! Every rule has a case file: a graph before and after, and a graph that it refuses or leaves alone.
//!
//! `BLESS=1 cargo test -p bricolage-rewrite` writes what the rules give into the files, to be read
//! as a diff. Each pair is evaluated on random inputs as well, so a blessed mistake is caught.

#![allow(clippy::unwrap_used)] // a test may panic

use bricolage_ir::{Error, Graph, Tolerance, evaluate, evaluate_noisy, parse, print};
use bricolage_rewrite::{Audit, RULES, Rule, run, run_audited};
use bricolage_tensor::{DType, Datum, Rng, Tensor};
use std::{collections::BTreeSet, fs, path::PathBuf};

/// A part of a case file: its first line, and the graph below it.
struct Section {
    head: String,
    body: String,
}

struct Case {
    comment: String,
    sections: Vec<Section>,
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../cases/rewrites")
}

fn read(text: &str) -> Case {
    let (mut comment, mut sections) = (String::new(), Vec::<Section>::new());
    for line in text.lines() {
        let head = ["before", "after", "refuse", "leave"]
            .iter()
            .any(|w| line.split(' ').next() == Some(w));
        match sections.last_mut() {
            _ if head => sections.push(Section { head: line.to_owned(), body: String::new() }),
            None => comment.push_str(&format!("{line}\n")),
            Some(section) => section.body.push_str(&format!("{line}\n")),
        }
    }
    Case { comment, sections }
}

fn graph(section: &Section, file: &str) -> Graph {
    parse(section.body.trim(), &[])
        .unwrap_or_else(|e| panic!("{file}, below `{}`: {e}", section.head))
}

fn inputs(graph: &Graph) -> Vec<Datum> {
    let mut rng = Rng::new(7);
    let one = |&v: &bricolage_ir::ValueId| {
        let t = graph.fact(v).ty.as_tensor().expect("cases have tensors");
        let dims = t.shape.as_fixed().expect("cases have fixed sizes");
        let tensor = Tensor::generate(t.dtype, &dims, |_| match t.dtype {
            DType::F32 | DType::F64 => rng.normal(),
            _ => rng.below(2) as f64,
        });
        Datum::from(tensor)
    };
    graph.inputs.iter().map(one).collect()
}

/// Both graphs give the same results, up to rounding.
fn assert_equal_meaning(before: &Graph, after: &Graph, file: &str) {
    let data = inputs(before);
    let (a, b) = (evaluate(before, &data).unwrap(), evaluate(after, &data).unwrap());
    let noisy = evaluate_noisy(before, &data, &|_| 0.0, 3).unwrap();
    assert_eq!(a.len(), b.len(), "{file}");
    for ((a, b), noisy) in a.iter().zip(&b).zip(&noisy) {
        let (a, b, noisy) =
            (a.as_tensor().unwrap(), b.as_tensor().unwrap(), noisy.as_tensor().unwrap());
        let error = Error::between(a, b);
        assert!(error.share_of(&Tolerance::from_floor(a, noisy)) <= 1.0, "{file}: {error}");
    }
}

fn check(rule: &dyn Rule) -> Result<(), String> {
    let path = folder().join(format!("{}.case", rule.name()));
    let file = path.file_name().unwrap().to_string_lossy().into_owned();
    let text = fs::read_to_string(&path).map_err(|_| format!("{file} is missing"))?;
    let case = read(&text);
    let bless = std::env::var_os("BLESS").is_some();
    let mut blessed = case.comment.clone();
    let (mut rewrites, mut refusals) = (0, 0);
    let mut before: Option<(Graph, Graph)> = None;
    for section in &case.sections {
        let mut body = section.body.clone();
        match section.head.split(' ').next() {
            Some("before") => {
                let start = graph(section, &file);
                let mut audit = Audit::new(&start, &inputs(&start)).map_err(|e| e.to_string())?;
                let result = run_audited(start.clone(), &[rule], &mut audit)
                    .map_err(|e| format!("{file}: {e}"))?;
                if let Some(caught) = audit.caught.first() {
                    return Err(format!("{file}: {caught:?}"));
                }
                if audit.unjudged.0 > 0 {
                    return Err(format!("{file}: not evaluated: {}", audit.unjudged.1));
                }
                if result.applied.is_empty() {
                    return Err(format!("{file}: the rule does not match: {:?}", result.refused));
                }
                assert_equal_meaning(&start, &result.graph, &file);
                before = Some((start, result.graph));
            }
            Some("after") => {
                let (_, result) =
                    before.take().ok_or(format!("{file}: `after` without `before`"))?;
                let printed = print(&result).0;
                if bless {
                    body = format!("{}\n\n", printed.trim());
                } else if printed.trim() != section.body.trim() {
                    return Err(format!("{file}: found\n{printed}\nexpected\n{}", section.body));
                }
                rewrites += 1;
            }
            Some(word) => {
                let start = graph(section, &file);
                let result = run(start.clone(), &[rule]).map_err(|e| format!("{file}: {e}"))?;
                if !result.applied.is_empty() {
                    return Err(format!("{file}: the rule applies below `{}`", section.head));
                }
                let why = section.head.strip_prefix(word).unwrap_or("").trim();
                let said: Vec<&str> = result.refused.iter().map(|r| r.why).collect();
                if word == "refuse" && said != [why] {
                    return Err(format!("{file}: refused with {said:?}, expected `{why}`"));
                }
                if word == "leave" && !said.is_empty() {
                    return Err(format!("{file}: refused with {said:?}, expected no match"));
                }
                refusals += 1;
            }
            None => {}
        }
        blessed.push_str(&format!("{}\n{}", section.head, body));
    }
    if bless {
        fs::write(&path, blessed.trim_end().to_owned() + "\n").map_err(|e| e.to_string())?;
    }
    if rewrites == 0 || refusals == 0 {
        return Err(format!(
            "{file} has {rewrites} rewrites and {refusals} refusals, needs one of each"
        ));
    }
    Ok(())
}

#[test]
fn every_rule_keeps_its_case() {
    let faults: Vec<String> = RULES.iter().filter_map(|r| check(*r).err()).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

#[test]
fn every_case_has_a_rule() {
    let names: BTreeSet<&str> = RULES.iter().map(|r| r.name()).collect();
    for entry in fs::read_dir(folder()).unwrap() {
        let name = entry.unwrap().file_name().to_string_lossy().into_owned();
        assert!(names.contains(name.trim_end_matches(".case")), "no rule is called {name}");
    }
}
