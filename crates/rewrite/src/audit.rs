//! Evaluates what a patch replaces and what it puts in its place, on data, before it is applied.

use crate::Patch;
use bricolage_ir::{
    Error, EvalError, Graph, Inputs, NodeId, Tolerance, ValueId, evaluate, evaluate_from,
    learn_sizes, solve_symbols, tolerances,
};
use bricolage_tensor::{DType, Datum, Dim, Symbol, Tensor};
use std::collections::{BTreeMap, HashMap, HashSet};

/// What float inputs hold in the second set of contents: zeros of both signs, where functions bend,
/// where they saturate, the very small and the large.
const EDGES: [f64; 16] =
    [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1e-30, -1e-30, 3.0, -3.0, 6.0, -6.0, 20.0, -20.0, 1e4, -1e4];

/// A rule that changes what a graph computes.
#[derive(Clone, Debug)]
pub struct Caught {
    /// Its name.
    pub rule: &'static str,
    /// The nodes that it replaced: names in the user's model.
    pub origin: String,
    /// The value that differs, by how much, and what was allowed.
    pub what: String,
    /// The smallest sub-graph that shows it: the nodes that were to be replaced.
    pub before: Graph,
    /// What was to come in their place.
    pub after: Graph,
    /// The inputs of `before` that show it, in its order.
    pub inputs: Vec<Tensor>,
}

/// Contents of every value of a graph, by which patches are judged.
pub struct Audit {
    sets: Vec<Contents>,
    /// Rules that were caught, each once.
    pub caught: Vec<Caught>,
    /// Patches that were evaluated and gave the same.
    pub agreed: usize,
    /// Patches that could not be evaluated, and the last reason.
    pub unjudged: (usize, String),
}

/// One set of contents and the sizes that it gives the graph's symbols.
struct Contents {
    data: HashMap<ValueId, Datum>,
    sizes: BTreeMap<Symbol, i64>,
}

/// Why a patch could not be judged, in words.
struct Unjudged(String);

impl From<EvalError> for Unjudged {
    fn from(error: EvalError) -> Unjudged {
        Unjudged(error.to_string())
    }
}

impl From<bricolage_ir::TypeError> for Unjudged {
    fn from(error: bricolage_ir::TypeError) -> Unjudged {
        Unjudged(error.to_string())
    }
}

impl Audit {
    /// Evaluates `graph`, which is to be rewritten, on these inputs and on edge values of the same
    /// sizes in the place of floats, where the graph takes them.
    pub fn new(graph: &Graph, inputs: &[Datum]) -> Result<Audit, EvalError> {
        let mut sets = vec![Contents::new(graph, inputs)?];
        let edges: Vec<Datum> = inputs.iter().enumerate().map(|(i, d)| edge_values(i, d)).collect();
        sets.extend(Contents::new(graph, &edges).ok());
        Ok(Audit { sets, caught: Vec::new(), agreed: 0, unjudged: (0, String::new()) })
    }

    /// Whether a patch of `rule` keeps what the graph computes, as far as can be told.
    pub(crate) fn allows(&mut self, graph: &Graph, patch: &Patch, rule: &'static str) -> bool {
        match self.judge(graph, patch, rule) {
            Ok(None) => self.agreed += 1,
            Ok(Some(caught)) => {
                self.caught.push(caught);
                return false;
            }
            Err(Unjudged(why)) => self.unjudged = (self.unjudged.0 + 1, why),
        }
        true
    }

    fn judge(
        &mut self,
        graph: &Graph,
        patch: &Patch,
        rule: &'static str,
    ) -> Result<Option<Caught>, Unjudged> {
        let (after, operands) = patch.as_graph(graph)?;
        let nodes = from_operands(graph, patch.replaced_nodes(graph), &operands);
        let before = graph.extract(&nodes)?;
        let border = graph.boundary(&nodes).inputs;
        let replaced: Vec<ValueId> = patch.replaced().collect();
        for contents in &mut self.sets {
            let mut gather = |values: &[ValueId]| -> Result<Vec<Datum>, Unjudged> {
                values.iter().map(|&v| contents.content(graph, v)).collect()
            };
            let (old_inputs, new_inputs) = (gather(&border)?, gather(&operands)?);
            let bind = |g: &Graph| g.bind(&|s| contents.sizes.get(s).map(|&n| Dim::from(n)));
            let (old, new) = (bind(&before)?, bind(&after)?);
            // What was replaced before may round otherwise, so contents of the whole graph tell nothing here.
            let (wanted, found) = (outputs(&old, &old_inputs)?, outputs(&new, &new_inputs)?);
            for (i, found) in found.iter().enumerate() {
                let name = &graph.value(replaced[i]).name;
                let at = old.find(name).and_then(|v| old.outputs.iter().position(|&o| o == v));
                let wanted = at.map(|at| &wanted[at]);
                let wanted = wanted
                    .ok_or_else(|| Unjudged(format!("`{name}` is no result of what goes")))?;
                let allowed = wanted.1.plus(found.1);
                let Some(difference) = difference(&wanted.0, &found.0, &allowed) else { continue };
                let inputs = old_inputs.iter().filter_map(|d| d.as_tensor().cloned()).collect();
                return Ok(Some(Caught {
                    rule,
                    origin: origins(graph, &nodes),
                    what: format!("`{name}`: {difference}"),
                    before: old,
                    after: new,
                    inputs,
                }));
            }
        }
        Ok(None)
    }
}

/// These nodes with everything that they read and that depends on one of the operands: what comes in their place
/// is given the operands alone.
fn from_operands(graph: &Graph, nodes: Vec<NodeId>, operands: &[ValueId]) -> Vec<NodeId> {
    let mut chosen: HashSet<NodeId> = nodes.iter().copied().collect();
    let read = |n: NodeId| graph.node(n).inputs.iter().flatten().copied();
    let is_open = |v: &ValueId| !operands.contains(v) && graph.producer(*v).is_some();
    let mut open: Vec<ValueId> = nodes.iter().flat_map(|&n| read(n)).filter(is_open).collect();
    open.retain(|&v| graph.producer(v).is_none_or(|n| !chosen.contains(&n)));
    if open.is_empty() {
        return nodes;
    }
    let order = graph.order();
    let mut later: HashSet<ValueId> = operands.iter().copied().collect();
    for &n in &order {
        if read(n).any(|v| later.contains(&v)) {
            later.extend(&graph.node(n).outputs);
        }
    }
    while let Some(v) = open.pop() {
        let Some(n) = graph.producer(v).filter(|_| later.contains(&v)) else { continue };
        if chosen.insert(n) {
            open.extend(read(n).filter(is_open));
        }
    }
    order.into_iter().filter(|n| chosen.contains(n)).collect()
}

/// How two contents differ by more than what is allowed.
fn difference(wanted: &Datum, found: &Datum, allowed: &Tolerance) -> Option<String> {
    let (Some(w), Some(f)) = (wanted.as_tensor(), found.as_tensor()) else {
        return (wanted != found).then(|| "the lists or strings differ".to_owned());
    };
    if w.dtype().is_float() && w.to_f64().iter().any(|x| !x.is_finite()) {
        // Past the range of the type the order of operations decides.
        return None;
    }
    let error = Error::between(w, f);
    let share = error.share_of(allowed);
    (share.is_nan() || share > 1.0).then(|| format!("{error}; allowed {:.3e}", allowed.max_abs))
}

/// Each output, and how far it may be off by rounding alone.
fn outputs(graph: &Graph, inputs: &[Datum]) -> Result<Vec<(Datum, Tolerance)>, Unjudged> {
    let exact = evaluate(graph, inputs)?;
    let tensors: Vec<Option<&Tensor>> = exact.iter().map(Datum::as_tensor).collect();
    let allowed = tolerances(graph, inputs, &tensors, &|_| None, &|_| 0.0, 1)?;
    Ok(exact.into_iter().zip(allowed).collect())
}

fn origins(graph: &Graph, nodes: &[NodeId]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in nodes.iter().flat_map(|&n| graph.node(n).origin.iter()) {
        if !names.contains(&&**name) {
            names.push(name);
        }
    }
    names.join(", ")
}

fn edge_values(number: usize, datum: &Datum) -> Datum {
    match datum {
        Datum::Tensor(t) if matches!(t.dtype(), DType::F32 | DType::F64) => {
            let value = |i: usize| EDGES[(i * 7 + number * 3) % EDGES.len()];
            let all: Vec<f64> = (0..t.len()).map(value).collect();
            Tensor::from_f64(t.dtype(), t.dims(), &all).into()
        }
        other => other.clone(),
    }
}

impl Contents {
    fn new(graph: &Graph, inputs: &[Datum]) -> Result<Contents, EvalError> {
        let mut sizes = solve_symbols(graph, inputs)?;
        let mut data: HashMap<ValueId, Datum> = HashMap::new();
        evaluate_from(graph, inputs, &HashMap::new(), &mut |v, datum| {
            learn_sizes(&graph.fact(v).ty, datum, &mut sizes);
            data.insert(v, datum.clone());
        })?;
        data.extend(graph.inputs.iter().copied().zip(inputs.iter().cloned()));
        Ok(Contents { data, sizes })
    }

    /// What a value holds; values that patches made are evaluated when they are first asked for.
    fn content(&mut self, graph: &Graph, value: ValueId) -> Result<Datum, Unjudged> {
        let mut open = vec![value];
        while let Some(&v) = open.last() {
            if self.data.contains_key(&v) {
                open.pop();
                continue;
            }
            if let Some(constant) = graph.constant_of(v) {
                self.data.insert(v, constant.clone().into());
                continue;
            }
            let Some(id) = graph.producer(v) else {
                return Err(Unjudged(format!("`{}` has no content", graph.value(v).name)));
            };
            let node = graph.node(id);
            let missing: HashSet<ValueId> = node
                .inputs
                .iter()
                .flatten()
                .copied()
                .filter(|v| !self.data.contains_key(v))
                .collect();
            if !missing.is_empty() {
                open.extend(missing);
                continue;
            }
            let operands: Vec<Option<&Datum>> =
                node.inputs.iter().map(|v| v.and_then(|v| self.data.get(&v))).collect();
            let op = node.op.bind(&|s| self.sizes.get(s).map(|&n| Dim::from(n)));
            let results = op.eval(&Inputs(&operands))?;
            self.data.extend(node.outputs.iter().copied().zip(results));
        }
        self.data.get(&value).cloned().ok_or_else(|| Unjudged("a value has no content".to_owned()))
    }
}
