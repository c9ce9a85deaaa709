//! Reference evaluation: one node after the other, values dropped after their last use.

use crate::{EvalError, Graph, Inputs, NodeId, Op, Role, TypeError, ValueId, ops};
use bricolage_tensor::{Datum, Dim, Symbol, Tensor, Type};
use std::collections::{BTreeMap, HashMap};

/// What one run gives.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// Content of the graph's outputs, in order.
    pub outputs: Vec<Datum>,
    /// New content of every state that a node updates in place.
    pub states: HashMap<ValueId, Tensor>,
}

/// The outputs for these inputs, both in the graph's order; states have their first content.
pub fn evaluate(graph: &Graph, inputs: &[Datum]) -> Result<Vec<Datum>, EvalError> {
    evaluate_from(graph, inputs, &HashMap::new(), &mut |_, _| {}).map(|e| e.outputs)
}

/// Runs once with `states` in place of the first content, and shows every value that a node
/// computes to `observe`.
pub fn evaluate_from(
    graph: &Graph,
    inputs: &[Datum],
    states: &HashMap<ValueId, Tensor>,
    observe: &mut dyn FnMut(ValueId, &Datum),
) -> Result<Evaluation, EvalError> {
    let mut symbols = solve_symbols(graph, inputs)?;
    let mut live: HashMap<ValueId, Datum> = HashMap::new();
    let mut left: HashMap<ValueId, usize> = HashMap::new();
    for value in graph.values() {
        left.insert(value, graph.uses(value).len());
        let content = match &graph.value(value).role {
            Role::Constant(t) => t,
            Role::State(t) => states.get(&value).unwrap_or(t),
            _ => continue,
        };
        live.insert(value, content.clone().into());
    }
    live.extend(graph.inputs.iter().copied().zip(inputs.iter().cloned()));
    for output in &graph.outputs {
        *left.entry(*output).or_default() += 1;
    }
    let mut updated = HashMap::new();
    for id in graph.order() {
        let node = graph.node(id);
        let mut operands = Vec::with_capacity(node.inputs.len());
        for (operand, value) in node.inputs.iter().enumerate() {
            operands.push(match value {
                None => None,
                Some(v) => Some(
                    live.get(v)
                        .ok_or_else(|| at_node(graph, id, TypeError::Missing { operand }.into()))?,
                ),
            });
        }
        let operands = Inputs(&operands);
        let results = if symbols.is_empty() {
            node.op.eval(&operands)
        } else {
            node.op.bind(&|s| symbols.get(s).map(|&v| Dim::from(v))).eval(&operands)
        };
        let results = results.map_err(|error| at_node(graph, id, error))?;
        for (&value, content) in node.outputs.iter().zip(&results) {
            learn_sizes(&graph.fact(value).ty, content, &mut symbols);
        }
        for value in node.inputs.iter().flatten() {
            release(&mut live, &mut left, *value);
        }
        for (i, (&value, content)) in node.outputs.iter().zip(results).enumerate() {
            observe(value, &content);
            for state in node.aliases.iter().filter(|a| a.0 == i).filter_map(|a| node.inputs[a.1]) {
                if let (Role::State(_), Datum::Tensor(t)) = (&graph.value(state).role, &content) {
                    updated.insert(state, t.clone());
                }
            }
            if left[&value] > 0 {
                live.insert(value, content);
            }
        }
    }
    let mut outputs = Vec::with_capacity(graph.outputs.len());
    for value in &graph.outputs {
        let content = live.get(value).ok_or(TypeError::Missing { operand: outputs.len() })?;
        outputs.push(content.clone());
    }
    Ok(Evaluation { outputs, states: updated })
}

fn release(live: &mut HashMap<ValueId, Datum>, left: &mut HashMap<ValueId, usize>, value: ValueId) {
    if let Some(count) = left.get_mut(&value) {
        *count -= 1;
        if *count == 0 {
            live.remove(&value);
        }
    }
}

fn at_node(graph: &Graph, id: NodeId, error: EvalError) -> EvalError {
    let node = graph.node(id);
    let names: Vec<String> = node.origin.iter().map(|name| format!("`{name}`")).collect();
    let op = node.op.kind().name();
    EvalError::Node { origin: names.join(", "), op, error: Box::new(error) }
}

/// Inputs by name, in the graph's order.
pub fn named_inputs(
    graph: &Graph,
    mut by_name: HashMap<String, Datum>,
) -> Result<Vec<Datum>, EvalError> {
    let mut all = Vec::with_capacity(graph.inputs.len());
    for &id in &graph.inputs {
        let value = graph.value(id);
        all.push(by_name.remove(&*value.name).ok_or_else(|| EvalError::Input {
            name: value.name.to_string(),
            expected: value.fact.to_string(),
            got: "nothing".to_owned(),
        })?);
    }
    Ok(all)
}

/// The size that each symbol has for these inputs. Fails when they do not fit the graph's types.
pub fn solve_symbols(graph: &Graph, inputs: &[Datum]) -> Result<BTreeMap<Symbol, i64>, EvalError> {
    if inputs.len() != graph.inputs.len() {
        let (min, got) = (graph.inputs.len(), inputs.len());
        return Err(TypeError::Arity { min, max: min, got }.into());
    }
    let mut symbols = BTreeMap::new();
    let pairs = || graph.inputs.iter().map(|&v| graph.value(v)).zip(inputs);
    for (value, datum) in pairs() {
        learn_sizes(&value.fact.ty, datum, &mut symbols);
    }
    let bound = |s: &Symbol| symbols.get(s).map(|&v| Dim::from(v));
    for (value, datum) in pairs() {
        let fits = match (&value.fact.ty, datum) {
            (Type::Tensor(t), Datum::Tensor(given)) => {
                t.dtype == given.dtype()
                    && t.shape.len() == given.dims().len()
                    && t.shape.iter().zip(given.dims()).all(|(dim, &size)| {
                        dim.substitute(&bound).as_const().is_none_or(|known| known == size)
                    })
            }
            (Type::Strings(shape), Datum::Strings(given)) => {
                shape.len() == given.dims().len()
                    && shape.iter().zip(given.dims()).all(|(dim, &size)| {
                        dim.substitute(&bound).as_const().is_none_or(|known| known == size)
                    })
            }
            (ty, datum) => ty.admits(datum),
        };
        if !fits {
            return Err(EvalError::Input {
                name: value.name.to_string(),
                expected: value.fact.to_string(),
                got: datum.ty().map_or("another kind of value".to_owned(), |t| t.to_string()),
            });
        }
    }
    Ok(symbols)
}

/// Notes the sizes of symbols that are dims of a value by themselves, where they are new.
pub fn learn_sizes(ty: &Type, datum: &Datum, symbols: &mut BTreeMap<Symbol, i64>) {
    let (shape, dims) = match (ty, datum) {
        (Type::Tensor(t), Datum::Tensor(given)) => (&t.shape, given.dims()),
        (Type::Strings(shape), Datum::Strings(given)) => (shape, given.dims()),
        _ => return,
    };
    for (dim, &size) in shape.iter().zip(dims) {
        if let Some(symbol) = dim.as_symbol() {
            symbols.entry(symbol.clone()).or_insert(size);
        }
    }
}

/// Chosen elements (flat, row-major) of output `output`, as a tensor of one dim. Convolutions and
/// matrix products compute only these; other ops compute all and pick.
pub fn evaluate_at(
    op: &Op,
    inputs: &Inputs<'_>,
    output: usize,
    elements: &[usize],
) -> Result<Tensor, EvalError> {
    if output == 0
        && let Some(t) = ops::sample(op, inputs, elements)?
    {
        return Ok(t);
    }
    let mut results = op.eval(inputs)?;
    if output >= results.len() {
        return Err(EvalError::Operand { operand: output, expected: "result" });
    }
    match results.swap_remove(output) {
        Datum::Tensor(t) => ops::elements_of(&t, elements),
        _ => Err(EvalError::Operand { operand: output, expected: "tensor" }),
    }
}
