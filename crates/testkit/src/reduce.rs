//! Makes a failing graph small: fewer outputs, then fewer nodes, for as long as it fails.

use crate::Case;
use bricolage_ir::{Graph, Role, ValueId, evaluate_from};
use bricolage_tensor::{Datum, Tensor};
use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

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

/// The smallest case that was found within `limit` for which `fails` still holds; `case` itself fails.
/// It ends without a limit, too: every step makes the case smaller.
pub fn reduce(case: &Case, limit: Duration, fails: &dyn Fn(&Case) -> bool) -> Case {
    let deadline = Instant::now().checked_add(limit);
    let mut best = case.clone();
    loop {
        let Some(contents) = contents(&best) else { return best };
        let attempts = outputs_less(&best.graph).map(|outputs| (outputs, HashMap::new())).chain(
            stands(&best.graph).map(|(v, s)| (best.graph.outputs.clone(), HashMap::from([(v, s)]))),
        );
        let smaller = attempts
            .take_while(|_| deadline.is_none_or(|d| Instant::now() < d))
            .filter_map(|(outputs, stands)| rebuilt(&best, &contents, &outputs, &stands))
            .filter(|c| size(c) < size(&best))
            .find(|c| fails(c));
        match smaller {
            Some(case) => best = case,
            None => return best,
        }
    }
}

/// Nodes, then outputs, then values.
fn size(case: &Case) -> (usize, usize, usize) {
    let g = &case.graph;
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

fn contents(case: &Case) -> Option<HashMap<ValueId, Tensor>> {
    let mut all = HashMap::new();
    let mut keep = |v: ValueId, d: &Datum| {
        if let Some(t) = d.as_tensor() {
            all.insert(v, t.clone());
        }
    };
    evaluate_from(&case.graph, &case.data(), &HashMap::new(), &mut keep).ok()?;
    for (&v, t) in case.graph.inputs.iter().zip(&case.inputs) {
        all.insert(v, t.clone());
    }
    Some(all)
}

/// The part of the case that `outputs` need, with replaced values.
fn rebuilt(
    case: &Case,
    contents: &HashMap<ValueId, Tensor>,
    outputs: &[ValueId],
    stands: &HashMap<ValueId, Stand>,
) -> Option<Case> {
    let from = &case.graph;
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
    for (&v, tensor) in from.inputs.iter().zip(&case.inputs).filter(|(v, _)| live.contains(v)) {
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
    Some(Case { graph: to, inputs })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate;
    use bricolage_ir::{Op, verify};

    #[test]
    fn a_failure_shrinks_to_its_cause() {
        let mut shrunk = 0;
        for seed in 0..40 {
            let case = Case::from(generate(seed));
            let fails = |c: &Case| {
                let mut ops = c.graph.nodes().map(|n| &c.graph.node(n).op);
                ops.any(|op| matches!(op, Op::Conv(_)))
            };
            if !fails(&case) {
                continue;
            }
            let small = reduce(&case, Duration::MAX, &fails);
            assert_eq!(verify(&small.graph), []);
            assert_eq!(small.graph.nodes().count(), 1, "seed {seed}");
            assert!(contents(&small).is_some());
            shrunk += 1;
        }
        assert!(shrunk > 5);
    }
}
