//! The proof that a simplified graph means what the model means: both are evaluated on the inputs that
//! plans are verified on.

use crate::{Error, inputs};
use bricolage_ir::{Error as Difference, Graph, Tolerance, evaluate, print, tolerances};
use bricolage_measure::Database;
use bricolage_rewrite::{Rewritten, Rule, simplify_by};
use bricolage_tensor::{Datum, Tensor};
use std::collections::{HashMap, hash_map::Entry};

/// A graph that was simplified and found to mean the same.
pub struct Proven {
    /// By the rules that are right.
    pub rewritten: Rewritten,
    /// What was found of the others, a sentence each.
    pub left_out: Vec<String>,
}

/// Simplifies `graph` by `rules`, and evaluates it on `data` before and after. Where an output differs by
/// more than rounding explains, the rule that does it is found and left out.
///
/// Fails when a size is not fixed. A graph that cannot be evaluated proves nothing, and nothing is left out. `known` holds what was proven
/// before; `seed` as [`tolerances`] takes it.
pub fn rewrite_proven(
    graph: &Graph,
    rules: &[&dyn Rule],
    data: &[Datum],
    seed: u64,
    known: Option<&Database>,
) -> Result<Proven, Error> {
    let mut rules = rules.to_vec();
    let mut left_out = Vec::new();
    let mut judge = Judge { graph, data, seed, before: None };
    loop {
        let rewritten = apply(graph, &rules)?;
        inputs::require_fixed(&rewritten.graph)?;
        let name = known.map(|_| name(graph, &rewritten.graph, data));
        if let (Some(database), Some(name)) = (known, &name)
            && database.note(name)?.is_some()
        {
            return Ok(Proven { rewritten, left_out });
        }
        let Some(fault) = judge.differs(&rewritten.graph) else {
            if let (Some(database), Some(name)) = (known, &name) {
                database.set_note(name, "proven")?;
            }
            return Ok(Proven { rewritten, left_out });
        };
        let wrong = guilty(&mut judge, &rules)?.ok_or_else(|| Error::Internal {
            what: format!("merging equal constants changes the model: {fault}"),
        })?;
        let rule = rules.remove(wrong).name();
        left_out.push(format!("rewrite rule `{rule}` is wrong here and was left out: {fault}"));
    }
}

fn apply(graph: &Graph, rules: &[&dyn Rule]) -> Result<Rewritten, Error> {
    simplify_by(graph.clone(), rules)
        .map_err(|e| Error::Internal { what: format!("a rewrite broke the graph: {e}") })
}

/// The first rule with which, after those before it, the graph means something else; `None` when it
/// does without any.
fn guilty(judge: &mut Judge<'_>, rules: &[&dyn Rule]) -> Result<Option<usize>, Error> {
    for count in 0..=rules.len() {
        if judge.differs(&apply(judge.graph, &rules[..count])?.graph).is_some() {
            return Ok(count.checked_sub(1));
        }
    }
    Ok(rules.len().checked_sub(1))
}

/// Under this name the database keeps that one graph means what another means on these inputs.
fn name(before: &Graph, after: &Graph, data: &[Datum]) -> String {
    let mut hasher = blake3::Hasher::new();
    // What both graphs hold is read once.
    let mut known: HashMap<(*const u8, usize), usize> = HashMap::new();
    let texts = [print(before), print(after)];
    for (text, aside) in &texts {
        hasher.update(text.as_bytes());
        for tensor in aside {
            let (bytes, next) = (tensor.bytes(), known.len());
            match known.entry((bytes.as_ptr(), bytes.len())) {
                Entry::Occupied(at) => hasher.update(&at.get().to_le_bytes()),
                Entry::Vacant(free) => {
                    free.insert(next);
                    hasher.update(bytes)
                }
            };
        }
    }
    let tensors: Vec<Tensor> = data.iter().filter_map(|d| d.as_tensor().cloned()).collect();
    hasher.update(inputs::contents_name(before, &tensors).as_bytes());
    format!("rewritten {}", hasher.finalize().to_hex())
}

/// Compares graphs with one.
struct Judge<'a> {
    graph: &'a Graph,
    data: &'a [Datum],
    seed: u64,
    /// What the graph gives, when it was needed and can be computed.
    before: Option<Option<Before>>,
}

struct Before {
    outputs: Vec<Datum>,
    /// By the noise floor, when it was needed.
    allowed: Option<Vec<Tolerance>>,
}

impl Judge<'_> {
    /// Where the results of `after` differ, in words.
    fn differs(&mut self, after: &Graph) -> Option<String> {
        let &mut Judge { graph, data, seed, .. } = self;
        let before = self.before.get_or_insert_with(|| {
            inputs::require_memory(graph, graph.values()).ok()?;
            let outputs = evaluate(graph, data).ok()?;
            Some(Before { outputs, allowed: None })
        });
        let before = before.as_mut()?;
        let outputs = match evaluate(after, data) {
            Ok(outputs) => outputs,
            Err(e) => return Some(format!("it can no longer be evaluated: {e}")),
        };
        for (i, (wanted, found)) in before.outputs.iter().zip(&outputs).enumerate() {
            if wanted == found {
                continue;
            }
            let name = &graph.value(graph.outputs[i]).name;
            let (Datum::Tensor(wanted), Datum::Tensor(found)) = (wanted, found) else {
                return Some(format!("output `{name}` is another"));
            };
            let error = Difference::between(wanted, found);
            let within = |t: &Tolerance| error.share_of(t) <= 1.0;
            // Units in the last place are allowed in any case, and the floor takes longer than both graphs.
            if within(&Tolerance::from_floor(wanted, wanted)) {
                continue;
            }
            let reference: Vec<Option<&Tensor>> =
                before.outputs.iter().map(Datum::as_tensor).collect();
            let allowed = before.allowed.get_or_insert_with(|| {
                let found = tolerances(graph, data, &reference, &|_| None, &|_| 0.0, seed);
                found.unwrap_or_else(|_| vec![Tolerance::EXACT; reference.len()])
            });
            if !within(&allowed[i]) {
                let allowed = allowed[i].max_abs;
                return Some(format!("output `{name}` is wrong: {error}, allowed {allowed:.3e}"));
            }
        }
        None
    }
}
