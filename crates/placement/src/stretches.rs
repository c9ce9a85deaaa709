//! Larger regions for graph engines than they propose: stretches of the graph between places where one value
//! is alive, and neighbours in a cover that one engine computes, made one.

use crate::{Form, Offer, Placed, offers::offer_jointly};
use bricolage_backend::{Backend, BackendKind, Region, Setting};
use bricolage_ir::{Graph, NodeId};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// Into how many stretches of equal work a graph is cut, as far as it can be.
const STRETCHES: u64 = 8;

/// What `backend` offers for each stretch.
pub(crate) fn offer_stretches(
    graph: &Graph,
    backend: &Arc<dyn Backend>,
    setting: &Setting,
) -> Vec<Offer> {
    let all = stretches(graph).into_iter();
    all.filter_map(|region| offer_jointly(graph, backend, &region.nodes, setting).ok()).collect()
}

/// What engines offer for runs of regions that are theirs in a cover, each run as one region.
pub(crate) fn offer_merged(graph: &Graph, placed: &Placed, setting: &Setting) -> Vec<Offer> {
    let all = merged(graph, placed).into_iter();
    all.filter_map(|(backend, region)| offer_jointly(graph, &backend, &region.nodes, setting).ok())
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

/// The longest runs of neighbours in a cover that one engine computes and that have one exit.
fn merged(graph: &Graph, placed: &Placed) -> Vec<(Arc<dyn Backend>, Region)> {
    let engine = |i: usize| match &placed.regions[i].offer.form {
        Form::Kernel(b) if b.kind() == BackendKind::GraphEngine => Some(b),
        _ => None,
    };
    let is_view = |i: usize| matches!(placed.regions[i].offer.form, Form::View);
    let count = placed.regions.len();
    let (mut found, mut start) = (Vec::new(), 0);
    while start < count {
        let Some(backend) = engine(start) else {
            start += 1;
            continue;
        };
        let same = |&i: &usize| is_view(i) || engine(i).is_some_and(|b| b.name() == backend.name());
        let end = (start..count).take_while(same).last().unwrap_or(start);
        let whole = |end: &usize| {
            let all = (start..=*end).flat_map(|i| &placed.regions[i].region().nodes);
            let nodes = Region::in_order(graph, all.copied().collect());
            Region::of(graph, nodes).ok().map(|region| (*end, region))
        };
        match (start + 1..=end).rev().find_map(|end| whole(&end)) {
            Some((end, region)) => {
                found.push((backend.clone(), region));
                start = end + 1;
            }
            None => start += 1,
        }
    }
    let mut seen = HashSet::new();
    found.retain(|(_, region)| seen.insert(region.nodes.clone()));
    found
}
