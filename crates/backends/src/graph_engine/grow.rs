//! Which nodes are offered together: an exit with producers that are read by nobody else.

use bricolage_backend::Region;
use bricolage_ir::{Graph, NodeId, Op, OpKind};
use bricolage_tensor::Type;
use std::collections::HashSet;

/// Nodes of the largest region offered.
const MOST: usize = 6;

/// Ops that do most of the work, to which the library fuses what follows.
fn is_anchor(graph: &Graph, node: NodeId) -> bool {
    matches!(
        graph.node(node).op.kind(),
        OpKind::Conv
            | OpKind::ConvTranspose
            | OpKind::MatMul
            | OpKind::Einsum
            | OpKind::Attention
            | OpKind::LayerNorm
    )
}

/// Up to three regions that end at `exit`: the node alone, with what leads back to one anchor, and
/// with everything around that up to [`MOST`] nodes, anchors or not.
pub(crate) fn regions(graph: &Graph, exit: NodeId) -> Vec<Region> {
    let mut sets = vec![vec![exit]];
    for anchors in [1, usize::MAX] {
        let nodes = grow(graph, exit, anchors, MOST);
        if !sets.contains(&nodes) {
            sets.push(nodes);
        }
    }
    sets.into_iter().filter_map(|nodes| Region::of(graph, nodes).ok()).collect()
}

/// The region of up to `most` nodes that ends at `exit`, with as many anchors as it happens to have.
pub(crate) fn region_around(graph: &Graph, exit: NodeId, most: usize) -> Option<Region> {
    Region::of(graph, grow(graph, exit, usize::MAX, most)).ok()
}

/// Whether a region has an op that does most of the work.
pub(crate) fn has_anchor(graph: &Graph, region: &Region) -> bool {
    region.nodes.iter().any(|&n| is_anchor(graph, n))
}

/// Whether no pointwise op follows that could be computed together with this one: its results go to an
/// anchor, to several readers, or out of the graph.
pub(crate) fn ends_chain(graph: &Graph, exit: NodeId) -> bool {
    let outputs = &graph.node(exit).outputs;
    let mut readers = outputs.iter().flat_map(|&v| graph.uses(v)).map(|u| u.node);
    match (readers.next(), readers.next()) {
        (Some(only), None) => is_anchor(graph, only) || outputs.iter().any(|&v| graph.is_output(v)),
        _ => true,
    }
}

/// Adds producers breadth first while there are at most `anchors` anchors and `most` nodes, in topological
/// order.
fn grow(graph: &Graph, exit: NodeId, anchors: usize, most: usize) -> Vec<NodeId> {
    let mut inside = HashSet::from([exit]);
    let mut found = usize::from(is_anchor(graph, exit));
    let mut queue = std::collections::VecDeque::from([exit]);
    while let Some(node) = queue.pop_front() {
        if anchors == 1 && is_anchor(graph, node) {
            continue;
        }
        for &value in graph.node(node).inputs.iter().flatten() {
            let Some(producer) = graph.producer(value) else { continue };
            let private = graph.node(producer).outputs.iter().all(|&v| {
                !graph.is_output(v) && graph.uses(v).iter().all(|u| inside.contains(&u.node))
            });
            let anchor = is_anchor(graph, producer);
            let fits = inside.len() < most && (!anchor || found < anchors);
            if inside.contains(&producer) || !private || !fits || !is_tensor_op(graph, producer) {
                continue;
            }
            found += usize::from(anchor);
            inside.insert(producer);
            queue.push_back(producer);
        }
    }
    let mut nodes = topological(graph, exit, &inside);
    // A reshape at the border costs nothing as a view, and a copy inside.
    while let Some(at) = nodes[..nodes.len() - 1].iter().position(|&n| {
        matches!(graph.node(n).op, Op::Reshape(_))
            && graph
                .node(n)
                .inputs
                .iter()
                .flatten()
                .all(|&v| graph.producer(v).is_none_or(|p| !inside.contains(&p)))
    }) {
        inside.remove(&nodes.remove(at));
    }
    nodes
}

/// The nodes of `inside`, producers first; `exit` is the only one that is read from outside.
fn topological(graph: &Graph, exit: NodeId, inside: &HashSet<NodeId>) -> Vec<NodeId> {
    fn visit(
        graph: &Graph,
        node: NodeId,
        inside: &HashSet<NodeId>,
        seen: &mut HashSet<NodeId>,
        order: &mut Vec<NodeId>,
    ) {
        if !inside.contains(&node) || !seen.insert(node) {
            return;
        }
        for &value in graph.node(node).inputs.iter().flatten() {
            if let Some(producer) = graph.producer(value) {
                visit(graph, producer, inside, seen, order);
            }
        }
        order.push(node);
    }
    let mut order = Vec::new();
    visit(graph, exit, inside, &mut HashSet::new(), &mut order);
    order
}

/// Whether everything that the node makes is a tensor of constant size.
fn is_tensor_op(graph: &Graph, node: NodeId) -> bool {
    graph
        .node(node)
        .outputs
        .iter()
        .all(|&v| matches!(&graph.fact(v).ty, Type::Tensor(t) if t.shape.as_fixed().is_some()))
}

/// A guess of the time of the nodes in nanoseconds.
pub(super) fn guess_ns(graph: &Graph, region: &Region, threads: usize) -> f64 {
    /// Multiply-adds and bytes per nanosecond on one thread, and nanoseconds of one call.
    const MACS: f64 = 30.0;
    const BYTES: f64 = 12.0;
    const CALL: f64 = 3000.0;
    /// The library has no better kernels than others, and an interpreter around them.
    const SHARE: f64 = 1.3;
    let node = |&n: &NodeId| {
        let work =
            graph.node(n).op.work(&graph.facts(&graph.node(n).inputs), &graph.output_facts(n));
        work.map_or(0.0, |w| w.macs as f64 / MACS + w.bytes as f64 / BYTES)
    };
    SHARE * (CALL + region.nodes.iter().map(node).sum::<f64>() / threads.max(1) as f64)
}
