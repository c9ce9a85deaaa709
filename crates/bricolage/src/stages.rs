//! A graph cut where its sizes become known.
//!
//! A planned stage holds nodes whose sizes are known once its inputs are. Between planned stages the
//! reference evaluates what tells sizes or is no tensor: indices of elements that are not zero, lists,
//! strings, bodies of loops.

use crate::{Error, inputs};
use bricolage_ir::{Graph, NodeId, Op, Role, ValueId, learn_sizes, solve_symbols};
use bricolage_tensor::{Datum, Dim, Symbol, Type};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Sizes by the symbols that stand for them.
pub(crate) type Sizes = BTreeMap<Symbol, i64>;

/// A rewritten graph and its stages, in the order in which they run.
pub(crate) struct Cut {
    /// Inputs and outputs are those of the model.
    pub(crate) graph: Graph,
    pub(crate) parts: Vec<Part>,
}

/// Nodes that run together.
pub(crate) struct Part {
    /// The nodes alone.
    pub(crate) graph: Graph,
    /// The symbols that decide every size in it.
    pub(crate) symbols: Vec<Symbol>,
    /// Whether it becomes plans; otherwise the reference evaluates it.
    pub(crate) planned: bool,
}

impl Cut {
    /// What names a stage of an open model.
    pub(crate) fn stage_name(model: &str, stage: usize) -> String {
        format!("{model} stage {stage}")
    }

    /// Cuts a rewritten graph.
    pub(crate) fn of(graph: Graph) -> Result<Cut, Error> {
        let part = |(nodes, planned): &(Vec<NodeId>, bool)| {
            // Only a foreign backend knows what these are, and it takes them at constant sizes.
            let opaque = |&n: &NodeId| matches!(graph.node(n).op, Op::Opaque(_));
            if !planned && nodes.iter().any(opaque) {
                inputs::require_fixed(&graph)?;
            }
            let part = graph
                .extract(nodes)
                .map_err(|e| Error::Internal { what: format!("a stage is not well typed: {e}") })?;
            let symbols = symbols_of(&part);
            Ok(Part { graph: part, symbols, planned: *planned })
        };
        if inputs::is_fixed(&graph) {
            let only = Part { graph: graph.clone(), symbols: Vec::new(), planned: true };
            return Ok(Cut { graph, parts: vec![only] });
        }
        let parts: Result<Vec<Part>, Error> = levels(&graph).iter().map(part).collect();
        Ok(Cut { parts: parts?, graph })
    }

    /// Runs the stages in order on the model's inputs and returns the model's outputs by name, with all
    /// sizes that were met. `run` is given the number of a stage, the sizes that are known before it and
    /// its inputs, and returns its outputs.
    pub(crate) fn walk(
        &self,
        given: &[Datum],
        mut run: impl FnMut(usize, &Sizes, Vec<Datum>) -> Result<Vec<Datum>, Error>,
    ) -> Result<(Vec<(String, Datum)>, Sizes), Error> {
        let graph = &self.graph;
        let mut sizes = solve_symbols(graph, given)
            .map_err(|e| Error::Inputs { what: e.to_string(), help: String::new() })?;
        inputs::require_ranges(graph, given)?;
        let name = |v: ValueId| graph.value(v).name.to_string();
        let mut live: HashMap<String, Datum> =
            graph.inputs.iter().map(|&v| name(v)).zip(given.iter().cloned()).collect();
        for &v in &graph.outputs {
            if let Role::Constant(t) = &graph.value(v).role {
                live.insert(name(v), t.clone().into());
            }
        }
        let mut last_read: HashMap<String, usize> = HashMap::new();
        for (i, part) in self.parts.iter().enumerate() {
            let read = part.graph.inputs.iter().map(|&v| part.graph.value(v).name.to_string());
            last_read.extend(read.map(|name| (name, i)));
        }
        let kept: HashSet<String> = graph.outputs.iter().map(|&v| name(v)).collect();
        for (i, part) in self.parts.iter().enumerate() {
            let operand = |&v: &ValueId| {
                let name = &*part.graph.value(v).name;
                live.get(name).cloned().ok_or_else(|| missing(name))
            };
            let data = part.graph.inputs.iter().map(operand).collect::<Result<_, _>>()?;
            let results = run(i, &sizes, data)?;
            for (&v, datum) in part.graph.outputs.iter().zip(results) {
                learn(&part.graph, v, &datum, &mut sizes)?;
                live.insert(part.graph.value(v).name.to_string(), datum);
            }
            live.retain(|name, _| {
                kept.contains(name) || last_read.get(name).is_some_and(|&r| r > i)
            });
        }
        let output = |&v: &ValueId| {
            let name = name(v);
            let datum = live.get(&name).cloned().ok_or_else(|| missing(&name))?;
            Ok((name, datum))
        };
        let outputs: Result<Vec<_>, Error> = graph.outputs.iter().map(output).collect();
        Ok((outputs?, sizes))
    }
}

fn missing(name: &str) -> Error {
    Error::Internal { what: format!("no stage makes `{name}` before it is read") }
}

impl Part {
    /// The stage at these sizes. Fails when they contradict each other, or a value then takes more than the
    /// machine's memory.
    pub(crate) fn at(&self, sizes: &Sizes) -> Result<Graph, Error> {
        let graph = inputs::bind_sizes(&self.graph, sizes)?;
        inputs::require_memory(&graph, graph.values())?;
        Ok(graph)
    }

    /// The sizes that decide all others, in the order of `symbols`.
    pub(crate) fn class(&self, sizes: &Sizes) -> Vec<i64> {
        self.symbols.iter().map(|s| sizes.get(s).copied().unwrap_or(0)).collect()
    }
}

/// Takes the sizes that a value tells. Fails when they contradict those that were told before.
fn learn(graph: &Graph, value: ValueId, datum: &Datum, sizes: &mut Sizes) -> Result<(), Error> {
    let ty = &graph.fact(value).ty;
    learn_sizes(ty, datum, sizes);
    let (Type::Tensor(t), Datum::Tensor(found)) = (ty, datum) else { return Ok(()) };
    let known = |d: &Dim| d.substitute(&|s| sizes.get(s).map(|&n| Dim::from(n))).as_const();
    let mut dims = t.shape.iter().zip(found.dims());
    if t.shape.len() == found.dims().len() && dims.all(|(d, &n)| known(d).is_none_or(|k| k == n)) {
        return Ok(());
    }
    let name = &graph.value(value).name;
    Err(Error::Inputs {
        what: format!("value `{name}` is {ty} and came out as {}", found.ty()),
        help: String::new(),
    })
}

/// Every symbol in the types and the attributes of a graph, each once.
fn symbols_of(graph: &Graph) -> Vec<Symbol> {
    let mut all = Vec::new();
    for v in graph.values() {
        graph.fact(v).ty.symbols(&mut all);
    }
    for n in graph.nodes() {
        all.extend(graph.node(n).op.symbols());
    }
    all.sort();
    all.dedup();
    all
}

/// The nodes stage by stage, and whether each stage is planned.
///
/// A planned node joins the first planned stage at whose start its operands from other stages, and every
/// size in it, are known; another one the first stage of its kind at which its operands are there.
fn levels(graph: &Graph) -> Vec<(Vec<NodeId>, bool)> {
    // Even numbers are planned stages. What inputs and constants tell is known before the first.
    let mut told: HashMap<Symbol, usize> = graph.symbols().into_iter().map(|s| (s, 0)).collect();
    let mut made: HashMap<ValueId, usize> = HashMap::new();
    let mut stages: BTreeMap<usize, Vec<NodeId>> = BTreeMap::new();
    for id in graph.order() {
        let node = graph.node(id);
        let mut needed = node.op.symbols();
        let values = node.inputs.iter().flatten().chain(&node.outputs);
        let mut tensors = true;
        for &v in values {
            let ty = &graph.fact(v).ty;
            tensors &= matches!(ty, Type::Tensor(_));
            ty.symbols(&mut needed);
        }
        let planned = tensors && needed.iter().all(|s| told.contains_key(s));
        let parity = usize::from(!planned);
        let from = node.inputs.iter().flatten().filter_map(|v| made.get(v));
        // A symbol is told when the stage that tells it has ended.
        let sizes = needed.iter().filter_map(|s| told.get(s));
        let first = from.chain(sizes).copied().max().unwrap_or(0);
        let stage = first + usize::from(first % 2 != parity);
        for s in needed {
            told.entry(s).or_insert(stage + 1);
        }
        made.extend(node.outputs.iter().map(|&v| (v, stage)));
        stages.entry(stage).or_default().push(id);
    }
    stages.into_iter().map(|(number, nodes)| (nodes, number % 2 == 0)).collect()
}
