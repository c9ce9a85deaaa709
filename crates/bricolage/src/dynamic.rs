//! Running graphs whose sizes inputs tell, or the graph itself: a session for every shape that comes.
//!
//! The graph is cut into stages. A planned stage holds nodes whose sizes are known once its inputs are;
//! it is compiled for the sizes that it meets, by guesses, and kept for the next time. Between planned
//! stages the reference evaluates what tells sizes or is no tensor: indices of elements that are not
//! zero, lists, strings, bodies of loops.

use crate::{Error, Goal, inputs, line};
use bricolage_backend::Registry;
use bricolage_ir::{Graph, NodeId, Op, Role, ValueId, evaluate, learn_sizes, solve_symbols};
use bricolage_runtime::Session;
use bricolage_tensor::{Datum, Dim, Symbol, Tensor, Type};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

/// Sessions of one stage that are kept, at most.
const MOST_CLASSES: usize = 8;

/// Sizes by the symbols that stand for them.
type Sizes = BTreeMap<Symbol, i64>;

/// A graph that runs on inputs of any sizes that it allows.
pub struct DynamicSession<'r> {
    registry: &'r Registry,
    goal: Goal,
    graph: Graph,
    stages: Vec<Stage>,
    /// Whether stages are simplified for the sizes that they meet.
    simplifies: bool,
}

/// Nodes that run together.
struct Stage {
    /// The nodes alone.
    graph: Graph,
    /// The symbols that decide every size in it.
    symbols: Vec<Symbol>,
    /// Sessions by the sizes of `symbols`, the one that ran last at the end; `None` where the reference
    /// evaluates.
    classes: Option<Vec<(Vec<i64>, Session)>>,
}

impl<'r> DynamicSession<'r> {
    /// Simplifies the graph and cuts it into stages; nothing is compiled before the first run.
    pub fn new(
        registry: &'r Registry,
        graph: Graph,
        goal: &Goal,
    ) -> Result<DynamicSession<'r>, Error> {
        DynamicSession::of_rewritten(registry, line::rewrite(graph)?.graph, goal)
    }

    /// [`DynamicSession::new`] of a graph that is rewritten already.
    pub(crate) fn of_rewritten(
        registry: &'r Registry,
        graph: Graph,
        goal: &Goal,
    ) -> Result<DynamicSession<'r>, Error> {
        DynamicSession::cut(registry, graph, goal, true)
    }

    /// [`DynamicSession::new`] of the graph as it is: nothing is simplified, here or for any size.
    pub fn as_it_is(
        registry: &'r Registry,
        graph: Graph,
        goal: &Goal,
    ) -> Result<DynamicSession<'r>, Error> {
        DynamicSession::cut(registry, graph, goal, false)
    }

    fn cut(
        registry: &'r Registry,
        graph: Graph,
        goal: &Goal,
        simplifies: bool,
    ) -> Result<DynamicSession<'r>, Error> {
        let cut = |nodes: &[NodeId], planned: bool| {
            // Only a foreign backend knows what these are, and it takes them at constant sizes.
            let opaque = |&n: &NodeId| matches!(graph.node(n).op, Op::Opaque(_));
            if !planned && nodes.iter().any(opaque) {
                inputs::require_fixed(&graph)?;
            }
            let part = graph
                .extract(nodes)
                .map_err(|e| Error::Internal { what: format!("a stage is not well typed: {e}") })?;
            let symbols = symbols_of(&part);
            Ok(Stage { graph: part, symbols, classes: planned.then(Vec::new) })
        };
        let stages: Result<Vec<Stage>, Error> =
            levels(&graph).iter().map(|(nodes, planned)| cut(nodes, *planned)).collect();
        Ok(DynamicSession { registry, goal: goal.clone(), stages: stages?, graph, simplifies })
    }

    /// The graph that runs: inputs and outputs are those of the model.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// How many sessions are kept, over all stages.
    pub fn sessions(&self) -> usize {
        self.stages.iter().filter_map(|s| s.classes.as_ref()).map(Vec::len).sum()
    }

    /// The backends whose kernels are in the sessions that are kept, each once.
    pub fn backends(&self) -> Vec<String> {
        let classes = self.stages.iter().filter_map(|s| s.classes.as_ref()).flatten();
        let kernels = classes.flat_map(|(_, session)| &session.program().plan().kernels);
        let names: BTreeSet<&String> = kernels.map(|k| &k.recipe.backend).collect();
        names.into_iter().cloned().collect()
    }

    /// Runs once on inputs in the graph's order, and returns the outputs by name.
    pub fn run(&mut self, given: &[Datum]) -> Result<Vec<(String, Datum)>, Error> {
        let mut sizes = solve_symbols(&self.graph, given)
            .map_err(|e| Error::Inputs { what: e.to_string(), help: String::new() })?;
        let name = |v: ValueId| self.graph.value(v).name.to_string();
        let mut live: HashMap<String, Datum> =
            self.graph.inputs.iter().map(|&v| name(v)).zip(given.iter().cloned()).collect();
        for &v in &self.graph.outputs {
            if let Role::Constant(t) = &self.graph.value(v).role {
                live.insert(name(v), t.clone().into());
            }
        }
        let mut last_read: HashMap<String, usize> = HashMap::new();
        for (i, stage) in self.stages.iter().enumerate() {
            let read = stage.graph.inputs.iter().map(|&v| stage.graph.value(v).name.to_string());
            last_read.extend(read.map(|name| (name, i)));
        }
        let kept: HashSet<String> = self.graph.outputs.iter().map(|&v| name(v)).collect();
        for (i, stage) in self.stages.iter_mut().enumerate() {
            let operand = |&v: &ValueId| {
                let name = &*stage.graph.value(v).name;
                live.get(name).cloned().ok_or_else(|| missing(name))
            };
            let data: Vec<Datum> =
                stage.graph.inputs.iter().map(operand).collect::<Result<_, _>>()?;
            let results = stage.run(self.registry, &self.goal, self.simplifies, &sizes, data)?;
            for (&v, datum) in stage.graph.outputs.iter().zip(results) {
                learn(&stage.graph, v, &datum, &mut sizes)?;
                live.insert(stage.graph.value(v).name.to_string(), datum);
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
        self.graph.outputs.iter().map(output).collect()
    }
}

fn missing(name: &str) -> Error {
    Error::Internal { what: format!("no stage makes `{name}` before it is read") }
}

impl Stage {
    fn run(
        &mut self,
        registry: &Registry,
        goal: &Goal,
        simplifies: bool,
        sizes: &Sizes,
        data: Vec<Datum>,
    ) -> Result<Vec<Datum>, Error> {
        let bind = |graph: &Graph| {
            let bound = graph.bind(&|s| sizes.get(s).map(|&n| Dim::from(n)));
            bound.map_err(|e| Error::Inputs {
                what: format!("the model does not fit these sizes: {e}"),
                help: String::new(),
            })
        };
        let Some(classes) = &mut self.classes else {
            return Ok(evaluate(&bind(&self.graph)?, &data)?);
        };
        let class: Vec<i64> =
            self.symbols.iter().map(|s| sizes.get(s).copied().unwrap_or(0)).collect();
        match classes.iter().position(|(known, _)| *known == class) {
            Some(at) => classes[at..].rotate_left(1),
            None => {
                if classes.len() == MOST_CLASSES {
                    classes.remove(0);
                }
                let bound = bind(&self.graph)?;
                let session = match simplifies {
                    true => line::compile_unmeasured(registry, bound, goal)?.2,
                    false => line::compile_rewritten(registry, &bound, goal)?.1,
                };
                classes.push((class, session));
            }
        }
        let session = match classes.last_mut() {
            Some((_, session)) => session,
            None => return Err(Error::Internal { what: "a stage has no session".to_owned() }),
        };
        let tensors: Option<Vec<Tensor>> =
            data.into_iter().map(|d| d.as_tensor().cloned()).collect();
        let tensors = tensors.ok_or_else(|| Error::Internal {
            what: "a planned stage reads something other than a tensor".to_owned(),
        })?;
        Ok(session.run(&tensors)?.into_iter().map(Datum::from).collect())
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
