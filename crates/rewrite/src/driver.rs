//! Applies rules until none matches. Only the driver changes graphs.

use crate::{Audit, Outcome, RewriteError, Rule};
use bricolage_ir::{Graph, NodeId, Numerics, verify};
use bricolage_tensor::Tensor;
use std::collections::HashMap;

/// Far more rounds than any graph needs: each round is a pass over all nodes.
const ROUNDS: usize = 100;

/// How often a rule was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Its name.
    pub rule: &'static str,
    /// How often.
    pub times: usize,
    /// What it does to the numbers.
    pub numerics: Numerics,
}

/// A matching rule that did not apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Its name.
    pub rule: &'static str,
    /// The node that it looked at: names in the user's model.
    pub origin: String,
    /// A clause.
    pub why: &'static str,
}

/// A graph after rewriting, and what was done to it.
#[derive(Debug)]
pub struct Rewritten {
    /// Same meaning, fewer nodes.
    pub graph: Graph,
    /// Rules that were applied, in the order of the list.
    pub applied: Vec<Applied>,
    /// Rules that matched and did not apply, in the last round.
    pub refused: Vec<Refused>,
}

/// Applies `rules`, commonly [`crate::RULES`], to a graph in which equal constants are one, until none
/// matches.
pub fn simplify(mut graph: Graph, rules: &[&dyn Rule]) -> Result<Rewritten, RewriteError> {
    merge_equal_constants(&mut graph);
    run(graph, rules)
}

/// [`simplify`], where each patch must also give on data what was there before. A rule that does not is
/// caught and left out from there on. `audit` is of this graph.
pub fn simplify_audited(
    mut graph: Graph,
    rules: &[&dyn Rule],
    audit: &mut Audit,
) -> Result<Rewritten, RewriteError> {
    merge_equal_constants(&mut graph);
    run_audited(graph, rules, audit)
}

/// Applies `rules` until none matches, each patch checked for types and the result for soundness.
pub fn run(graph: Graph, rules: &[&dyn Rule]) -> Result<Rewritten, RewriteError> {
    drive(graph, rules, None)
}

/// [`run`] with an audit, as [`simplify_audited`] has one.
pub fn run_audited(
    graph: Graph,
    rules: &[&dyn Rule],
    audit: &mut Audit,
) -> Result<Rewritten, RewriteError> {
    drive(graph, rules, Some(audit))
}

fn drive(
    mut graph: Graph,
    rules: &[&dyn Rule],
    mut audit: Option<&mut Audit>,
) -> Result<Rewritten, RewriteError> {
    graph.remove_dead();
    let mut times = vec![0; rules.len()];
    let mut refused = Vec::new();
    let mut last = "nothing";
    for round in 0.. {
        let mut changed = false;
        refused.clear();
        for node in graph.order() {
            if graph.get_node(node).is_none() {
                continue;
            }
            if let Some(rule) = visit(&mut graph, node, rules, &mut refused, audit.as_deref_mut())?
            {
                times[rule] += 1;
                last = rules[rule].name();
                changed = true;
            }
        }
        if !changed {
            break;
        }
        if round >= ROUNDS {
            return Err(RewriteError::Endless { rule: last, rounds: ROUNDS });
        }
    }
    graph.remove_dead();
    if let Some(fault) = verify(&graph).first() {
        return Err(RewriteError::Unsound { rule: last, fault: fault.to_string() });
    }
    let applied = rules.iter().zip(times).filter(|(_, n)| *n > 0);
    let applied = applied
        .map(|(r, times)| Applied { rule: r.name(), times, numerics: r.numerics() })
        .collect();
    Ok(Rewritten { graph, applied, refused })
}

/// Applies the first rule that changes `node`.
fn visit(
    graph: &mut Graph,
    node: NodeId,
    rules: &[&dyn Rule],
    refused: &mut Vec<Refused>,
    mut audit: Option<&mut Audit>,
) -> Result<Option<usize>, RewriteError> {
    let kind = graph.node(node).op.kind();
    for (i, rule) in rules.iter().enumerate() {
        if !rule.anchors().is_empty() && !rule.anchors().contains(&kind) {
            continue;
        }
        if audit.as_ref().is_some_and(|a| a.caught.iter().any(|c| c.rule == rule.name())) {
            continue;
        }
        let mut refuse = |graph: &Graph, why| {
            refused.push(Refused {
                rule: rule.name(),
                origin: graph.node(node).origin.join(", "),
                why,
            });
        };
        match rule.apply(graph, node) {
            Outcome::NoMatch => {}
            Outcome::Declined(why) => refuse(graph, why),
            Outcome::Rewrite(patch) if patch.takes_a_name(graph) => {
                refuse(graph, "an output of the graph must keep a name of its own");
            }
            Outcome::Rewrite(patch)
                if audit.as_mut().is_some_and(|a| !a.allows(graph, &patch, rule.name())) =>
            {
                refuse(graph, "it gave another result on data");
            }
            Outcome::Rewrite(patch) => {
                patch.apply(graph, rule.name())?;
                patch.replaced().for_each(|old| graph.remove_unread(old));
                return Ok(Some(i));
            }
        }
    }
    Ok(None)
}

/// Larger constants are compared by the storage that they share, not by their bytes.
const COMPARED: usize = 4096;

/// Has equal constants be one value, so that equal nodes have equal operands.
fn merge_equal_constants(graph: &mut Graph) {
    let mut first: HashMap<(String, Vec<u8>), bricolage_ir::ValueId> = HashMap::new();
    let all: Vec<_> = graph.values().collect();
    for value in all {
        let Some(tensor) = graph.constant_of(value) else { continue };
        if tensor.bytes().len() > COMPARED || graph.is_output(value) {
            continue;
        }
        let key = |t: &Tensor| (t.ty().to_string(), t.bytes().to_vec());
        match first.entry(key(tensor)) {
            std::collections::hash_map::Entry::Occupied(entry) => {
                let kept = *entry.get();
                graph.replace_uses(value, kept);
            }
            std::collections::hash_map::Entry::Vacant(entry) => {
                entry.insert(value);
            }
        }
    }
}
