//! Larger regions for graph engines than they propose: stretches of the graph between places where one value
//! is alive, products of one value with several weights, and neighbours in a cover that one engine computes, made one.

use crate::{Form, Offer, Placed, offers::offer_jointly};
use bricolage_backend::{Backend, BackendKind, Region, Setting};
use bricolage_ir::{Graph, NodeId, Op, ValueId, ops::Binary};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// Into how many stretches of equal work a graph is cut, as far as it can be.
const STRETCHES: u64 = 8;

/// What `backend` offers for each stretch, and for siblings together.
pub(crate) fn offer_stretches(
    graph: &Graph,
    backend: &Arc<dyn Backend>,
    setting: &Setting,
) -> Vec<Offer> {
    let stretches = stretches(graph).into_iter().map(|region| region.nodes);
    let all = stretches.chain(siblings(graph));
    all.filter_map(|nodes| offer_jointly(graph, backend, &nodes, setting).ok()).collect()
}

/// What engines offer for runs of regions that are theirs in a cover, each run as one region.
pub(crate) fn offer_merged(graph: &Graph, placed: &Placed, setting: &Setting) -> Vec<Offer> {
    let engines: Vec<Option<&Arc<dyn Backend>>> = placed
        .regions
        .iter()
        .map(|region| match &region.offer.form {
            Form::Kernel(b) if b.kind() == BackendKind::GraphEngine => Some(b),
            _ => None,
        })
        .collect();
    let parts: Vec<Part<'_>> = placed
        .regions
        .iter()
        .zip(&engines)
        .map(|(region, engine)| Part {
            nodes: &region.region().nodes,
            engine: engine.map(|b| b.name()),
            is_view: matches!(region.offer.form, Form::View),
        })
        .collect();
    let all = merged(graph, &parts).into_iter();
    all.filter_map(|(first, nodes)| offer_jointly(graph, engines[first]?, &nodes, setting).ok())
        .collect()
}

/// Multiplications and additions of a node.
pub(crate) fn macs(graph: &Graph, node: NodeId) -> u64 {
    let n = graph.node(node);
    n.op.work(&graph.facts(&n.inputs), &graph.output_facts(node)).map_or(0, |w| w.macs)
}

/// Stretches of about equal work in the order of the graph, each with one exit. Nodes that prepare something
/// before any product or convolution belong to none: what they make may be read everywhere.
fn stretches(graph: &Graph) -> Vec<Region> {
    let order = graph.order();
    let place: HashMap<NodeId, usize> = order.iter().enumerate().map(|(i, &n)| (n, i)).collect();
    let work: Vec<u64> = order.iter().map(|&n| macs(graph, n)).collect();
    let total: u64 = work.iter().sum();
    let mut prepares = vec![true; order.len()];
    for (i, &node) in order.iter().enumerate() {
        let mut before = graph.node(node).inputs.iter().flatten();
        let fed = before.any(|&v| graph.producer(v).is_some_and(|p| !prepares[place[&p]]));
        prepares[i] = work[i] == 0 && !fed;
    }
    let last_use = |node: NodeId| {
        let outputs = graph.node(node).outputs.iter();
        let one = |&v: &bricolage_ir::ValueId| match graph.is_output(v) {
            true => usize::MAX,
            false => graph.uses(v).iter().map(|u| place[&u.node]).max().unwrap_or(0),
        };
        outputs.map(one).max().unwrap_or(0)
    };
    let (mut found, mut start, mut done) = (Vec::new(), 0, 0);
    // The last place at which a value is read that was made before this one.
    let mut reach = 0;
    for (i, &node) in order.iter().enumerate() {
        done += work[i];
        if prepares[i] {
            continue;
        }
        let enough = done * STRETCHES >= total || i + 1 == order.len();
        if reach <= i && enough && done > 0 {
            let nodes = (start..=i).filter(|&j| !prepares[j]).map(|j| order[j]).collect();
            found.extend(Region::of(graph, nodes).ok());
            (start, done) = (i + 1, 0);
        }
        reach = reach.max(last_use(node));
    }
    found.retain(|region| region.nodes.len() > 1 && region.nodes.len() < order.len());
    found
}

/// Products and convolutions of one value with constant weights, each with the bias after it: a set for each value
/// that has several. None of a set waits for another one.
fn siblings(graph: &Graph) -> Vec<Vec<NodeId>> {
    let multiplies = |n: NodeId, v: ValueId| {
        let mut inputs = graph.node(n).inputs.iter();
        let first = inputs.next().copied().flatten() == Some(v);
        first && inputs.flatten().all(|&w| graph.constant_of(w).is_some()) && macs(graph, n) > 0
    };
    let bias = |n: NodeId| {
        let &[output] = &graph.node(n).outputs[..] else { return None };
        let [only] = graph.uses(output) else { return None };
        let adds = matches!(graph.node(only.node).op, Op::Binary(Binary::Add));
        let of_constant = || {
            graph.node(only.node).inputs.iter().flatten().any(|&v| graph.constant_of(v).is_some())
        };
        (adds && of_constant() && !graph.is_output(output)).then_some(only.node)
    };
    let mut found = Vec::new();
    for value in graph.values() {
        let mut all: Vec<NodeId> = graph.uses(value).iter().map(|u| u.node).collect();
        all.sort_unstable();
        all.dedup();
        all.retain(|&n| multiplies(n, value));
        if all.len() > 1 {
            let after: Vec<NodeId> = all.iter().filter_map(|&n| bias(n)).collect();
            found.push(Region::in_order(graph, [all, after].concat()));
        }
    }
    found
}

/// A region of a cover, as far as runs of neighbours are concerned.
struct Part<'a> {
    nodes: &'a [NodeId],
    /// The graph engine that computes it, if one does.
    engine: Option<&'a str>,
    /// Whether nothing is computed, whoever is given it.
    is_view: bool,
}

/// The longest runs of neighbours in a cover that one engine computes: as far as they have one exit, and with all the
/// exits that they have; each with its first part. What follows each other in an order in which it can run waits for
/// nothing between.
fn merged(graph: &Graph, parts: &[Part<'_>]) -> Vec<(usize, Vec<NodeId>)> {
    let (mut found, mut start, mut run_end) = (Vec::new(), 0, 0);
    while start < parts.len() {
        if parts[start].engine.is_none() {
            start += 1;
            continue;
        }
        let same = |&i: &usize| parts[i].is_view || parts[i].engine == parts[start].engine;
        let run = (start..parts.len()).take_while(same);
        let end = run.filter(|&i| parts[i].engine.is_some()).last().unwrap_or(start);
        let joint = |end: usize| {
            let all = parts[start..=end].iter().flat_map(|part| part.nodes);
            Region::in_order(graph, all.copied().collect())
        };
        if start >= run_end && end > start {
            found.push((start, joint(end)));
        }
        run_end = run_end.max(end + 1);
        let has_one_exit = |end: &usize| Region::of(graph, joint(*end)).is_ok();
        match (start + 1..=end).rev().find(has_one_exit) {
            Some(end) => {
                found.push((start, joint(end)));
                start = end + 1;
            }
            None => start += 1,
        }
    }
    let mut seen = HashSet::new();
    found.retain(|(_, nodes)| seen.insert(nodes.clone()));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use bricolage_ir::parse;

    fn names(graph: &Graph, nodes: &[NodeId]) -> Vec<String> {
        nodes.iter().map(|&n| graph.node(n).origin.join(",")).collect()
    }

    #[test]
    #[allow(clippy::unwrap_used)] // a test may panic
    fn products_of_one_value_are_siblings() {
        let graph = parse(
            r#"
graph "attention"
input %x: f32[2, 3]
constant %w: f32[3, 3] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
constant %b: f32[3] = [1.0, 2.0, 3.0]
%q = MatMul(transpose_lhs:false,transpose_rhs:false) %x %w : f32[2, 3] from "q"
%k = MatMul(transpose_lhs:false,transpose_rhs:false) %x %w : f32[2, 3] from "k"
%biased = Binary Add %q %b : f32[2, 3] from "biased"
%late = MatMul(transpose_lhs:false,transpose_rhs:false) %k %w : f32[2, 3] from "late"
%r = Unary Relu %x : f32[2, 3] from "r"
output %biased
output %late
output %r
"#,
            &[],
        )
        .unwrap();
        let found: Vec<_> = siblings(&graph).iter().map(|nodes| names(&graph, nodes)).collect();
        assert_eq!(found, [["q", "k", "biased"]]);
    }

    #[test]
    #[allow(clippy::unwrap_used)] // a test may panic
    fn runs_of_one_engine_have_one_exit_or_all_their_exits() {
        let graph = parse(
            r#"
graph "runs"
input %x: f32[2, 3]
%a = Unary Exp %x : f32[2, 3] from "a"
%b = Unary Relu %a : f32[2, 3] from "b"
%c = Unary Tanh %a : f32[2, 3] from "c"
%d = Binary Add %b %c : f32[2, 3] from "d"
%e = Unary Abs %c : f32[2, 3] from "e"
%f = Binary Mul %d %e : f32[2, 3] from "f"
output %f
"#,
            &[],
        )
        .unwrap();
        let order = graph.order();
        let runs = |engines: [Option<&str>; 6], view: Option<usize>| -> Vec<(usize, String)> {
            let parts: Vec<Part<'_>> = engines
                .into_iter()
                .enumerate()
                .map(|(i, engine)| Part { nodes: &order[i..=i], engine, is_view: view == Some(i) })
                .collect();
            let all = merged(&graph, &parts).into_iter();
            all.map(|(first, nodes)| (first, names(&graph, &nodes).concat())).collect()
        };
        let (p, q) = (Some("p"), Some("q"));
        let run = |first: usize, nodes: &str| (first, nodes.to_owned());
        // `c` and `d` are both read later, so no part of the run has one exit.
        assert_eq!(runs([p, p, p, p, None, None], None), [run(0, "abcd")]);
        // One exit: the run is found once.
        assert_eq!(runs([p; 6], None), [run(0, "abcdef")]);
        // Another engine ends a run; what only shows a value in another way does not, and is in none at its end.
        assert_eq!(runs([p, p, q, q, q, q], None), [run(0, "ab"), run(2, "cdef")]);
        assert_eq!(runs([p, None, p, None, None, None], Some(1)), [run(0, "abc")]);
        assert!(runs([p, None, None, None, None, None], Some(1)).is_empty());
    }
}
