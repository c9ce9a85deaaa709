//! Makes a failing graph small: a short run of its nodes, then fewer outputs, then fewer nodes, for as long
//! as it fails. The steps are those of delta debugging (Zeller and Hildebrandt, *Simplifying and isolating
//! failure-inducing input*, 2002): halves first, then ever smaller parts.

use bricolage_ir::{Graph, NodeId, Role, ValueId, evaluate_from};
use bricolage_tensor::{Datum, Tensor};
use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

/// A graph with inputs for it, in the graph's order.
#[derive(Clone, Debug)]
pub struct Example {
    /// What is computed.
    pub graph: Graph,
    /// On what.
    pub inputs: Vec<Tensor>,
}

impl Example {
    /// The inputs as the evaluator takes them.
    pub fn data(&self) -> Vec<Datum> {
        self.inputs.iter().cloned().map(Datum::from).collect()
    }
}

/// What takes the place of a value.
#[derive(Clone, Copy, Debug)]
enum Stand {
    /// An operand of its node.
    Value(ValueId),
    /// An input with what the value held.
    Input,
    /// A constant with what the value held.
    Constant,
}

/// The smallest example that was found within `limit` for which `fails` still holds; `example` itself fails.
/// It ends without a limit, too: every step makes the example smaller.
pub fn reduce(example: &Example, limit: Duration, fails: &dyn Fn(&Example) -> bool) -> Example {
    let deadline = Instant::now().checked_add(limit);
    let in_time = || deadline.is_none_or(|d| Instant::now() < d);
    let mut best = example.clone();
    let mut length = best.graph.nodes().count() / 2;
    while length > 0 {
        let contents = contents(&best);
        let smaller = windows(&best.graph, length)
            .take_while(|_| in_time())
            .filter_map(|nodes| part(&best, &contents, &nodes))
            .find(|e| fails(e));
        if let Some(example) = smaller {
            best = example;
            length = length.min(best.graph.nodes().count());
        }
        length /= 2;
    }
    loop {
        let contents = contents(&best);
        let attempts = outputs_less(&best.graph).map(|outputs| (outputs, HashMap::new())).chain(
            stands(&best.graph).map(|(v, s)| (best.graph.outputs.clone(), HashMap::from([(v, s)]))),
        );
        let smaller = attempts
            .take_while(|_| in_time())
            .filter_map(|(outputs, stands)| rebuilt(&best, &contents, &outputs, &stands))
            .filter(|c| size(c) < size(&best))
            .find(|c| fails(c));
        match smaller {
            Some(example) => best = example,
            None => return best,
        }
    }
}

/// Runs of so many nodes in the graph's order, each half over the one before it.
fn windows(graph: &Graph, length: usize) -> impl Iterator<Item = Vec<NodeId>> + use<> {
    let order = graph.order();
    let last = order.len().saturating_sub(length);
    let starts = (0..last).step_by(length.div_ceil(2).max(1)).chain([last]);
    starts.map(move |start| order[start..start + length].to_vec())
}

/// Some nodes alone, on what they are given in the whole.
fn part(
    example: &Example,
    contents: &HashMap<ValueId, Tensor>,
    nodes: &[NodeId],
) -> Option<Example> {
    let border = example.graph.boundary(nodes).inputs;
    let inputs = border.iter().map(|v| contents.get(v).cloned()).collect::<Option<Vec<_>>>()?;
    Some(Example { graph: example.graph.extract(nodes).ok()?, inputs })
}

/// Nodes, then outputs, then values.
fn size(example: &Example) -> (usize, usize, usize) {
    let g = &example.graph;
    (g.nodes().count(), g.outputs.len(), g.values().count())
}

/// Each output alone, then all but each, then each computed value alone, the first first: that cuts what
/// comes after it.
fn outputs_less(graph: &Graph) -> impl Iterator<Item = Vec<ValueId>> + use<> {
    let all = graph.outputs.clone();
    let several = all.len() > 1;
    let alone: Vec<Vec<ValueId>> = all.iter().map(|&v| vec![v]).collect();
    let inner: Vec<Vec<ValueId>> = graph
        .order()
        .into_iter()
        .flat_map(|n| graph.node(n).outputs.clone())
        .map(|v| vec![v])
        .collect();
    let without = (0..all.len())
        .map(move |i| all.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, &v)| v).collect());
    alone.into_iter().chain(without).filter(move |_| several).chain(inner)
}

/// Everything that one value can be replaced by: the latest nodes first, inputs first for them cut most.
fn stands(graph: &Graph) -> impl Iterator<Item = (ValueId, Stand)> + use<> {
    let mut all = Vec::new();
    for node in graph.order().into_iter().rev() {
        let node = graph.node(node);
        for &output in &node.outputs {
            all.push((output, Stand::Input));
            let alike = |v: &ValueId| graph.fact(*v).ty == graph.fact(output).ty;
            let operands = node.inputs.iter().flatten().copied().filter(alike);
            all.extend(operands.map(|v| (output, Stand::Value(v))));
            all.push((output, Stand::Constant));
        }
    }
    all.into_iter()
}

/// What each value holds, as far as the reference gets.
fn contents(example: &Example) -> HashMap<ValueId, Tensor> {
    let mut all = HashMap::new();
    let mut keep = |v: ValueId, d: &Datum| {
        if let Some(t) = d.as_tensor() {
            all.insert(v, t.clone());
        }
    };
    // Where it fails nothing more is known.
    let _ = evaluate_from(&example.graph, &example.data(), &HashMap::new(), &mut keep);
    for (&v, t) in example.graph.inputs.iter().zip(&example.inputs) {
        all.insert(v, t.clone());
    }
    all
}

/// The part of the example that `outputs` need, with replaced values.
fn rebuilt(
    example: &Example,
    contents: &HashMap<ValueId, Tensor>,
    outputs: &[ValueId],
    stands: &HashMap<ValueId, Stand>,
) -> Option<Example> {
    let from = &example.graph;
    let target = |v: ValueId| match stands.get(&v) {
        Some(&Stand::Value(other)) => other,
        _ => v,
    };
    let cut = |v: ValueId| matches!(stands.get(&v), Some(Stand::Input | Stand::Constant));
    let mut live: HashSet<ValueId> = HashSet::new();
    let mut open: Vec<ValueId> = outputs.iter().map(|&v| target(v)).collect();
    while let Some(v) = open.pop() {
        if live.insert(v)
            && !cut(v)
            && let Some(node) = from.producer(v)
        {
            open.extend(from.node(node).inputs.iter().flatten().map(|&v| target(v)));
        }
    }
    let mut to = Graph::new(from.name.clone());
    let mut map: HashMap<ValueId, ValueId> = HashMap::new();
    let mut inputs = Vec::new();
    for (&v, tensor) in from.inputs.iter().zip(&example.inputs).filter(|(v, _)| live.contains(v)) {
        map.insert(v, to.input(&from.value(v).name, tensor.ty()));
        inputs.push(tensor.clone());
    }
    for v in from.values().filter(|v| live.contains(v)) {
        let name = &from.value(v).name;
        match (stands.get(&v), &from.value(v).role) {
            (Some(Stand::Input), _) => {
                let tensor = contents.get(&v)?;
                map.insert(v, to.input(name, tensor.ty()));
                inputs.push(tensor.clone());
            }
            (Some(Stand::Constant), _) => {
                map.insert(v, to.constant(name, contents.get(&v)?.clone()));
            }
            (_, Role::Constant(tensor)) => {
                map.insert(v, to.constant(name, tensor.clone()));
            }
            _ => {}
        }
    }
    for id in from.order() {
        let node = from.node(id);
        if !node.outputs.iter().any(|v| live.contains(v) && !cut(*v)) {
            continue;
        }
        let operands: Vec<Option<ValueId>> =
            node.inputs.iter().map(|v| v.and_then(|v| map.get(&target(v)).copied())).collect();
        let names: Vec<_> = node.outputs.iter().map(|&v| from.value(v).name.clone()).collect();
        let made = to.add_named(node.op.clone(), &operands, node.origin.clone(), &names).ok()?;
        for (&old, new) in node.outputs.iter().zip(made) {
            map.entry(old).or_insert(new);
        }
    }
    for &v in outputs {
        let new = *map.get(&target(v))?;
        if !to.outputs.contains(&new) {
            to.outputs.push(new);
        }
    }
    Some(Example { graph: to, inputs })
}
