//! What every value of a graph holds on one set of inputs, by the reference evaluator.

use bricolage_ir::{EvalError, Graph, ValueId, evaluate_from};
use bricolage_tensor::{Datum, Tensor};
use std::{cell::OnceCell, collections::HashMap};

/// Reference contents: the inputs that trials run on and the results that they must reproduce.
///
/// The graph is evaluated when a content is first asked for: a search that measures nothing anew
/// does not pay for it.
pub struct Observed<'a> {
    graph: &'a Graph,
    inputs: &'a [Datum],
    contents: OnceCell<Result<HashMap<ValueId, Tensor>, EvalError>>,
}

impl<'a> Observed<'a> {
    /// The contents of `graph` on `inputs`.
    pub fn new(graph: &'a Graph, inputs: &'a [Datum]) -> Observed<'a> {
        Observed { graph, inputs, contents: OnceCell::new() }
    }

    /// The content of `value`; `None` when it is not a tensor.
    pub fn get(&self, value: ValueId) -> Result<Option<&Tensor>, EvalError> {
        let contents = self.contents.get_or_init(|| evaluate_all(self.graph, self.inputs));
        match contents {
            Ok(contents) => Ok(contents.get(&value)),
            Err(error) => Err(error.clone()),
        }
    }
}

fn evaluate_all(graph: &Graph, inputs: &[Datum]) -> Result<HashMap<ValueId, Tensor>, EvalError> {
    let mut contents = HashMap::new();
    let mut keep = |value, datum: &Datum| {
        if let Datum::Tensor(tensor) = datum {
            contents.insert(value, tensor.clone());
        }
    };
    evaluate_from(graph, inputs, &HashMap::new(), &mut keep)?;
    for (&value, datum) in graph.inputs.iter().zip(inputs) {
        keep(value, datum);
    }
    for value in graph.values() {
        if let Some(tensor) = graph.constant_of(value) {
            contents.insert(value, tensor.clone());
        }
    }
    Ok(contents)
}
