//! What every value of a graph holds on one set of inputs, by the reference evaluator.

use bricolage_ir::{EvalError, Graph, ValueId, evaluate_observed};
use bricolage_tensor::{Datum, Tensor};
use std::collections::HashMap;

/// Reference contents: the inputs that trials run on and the results that they must reproduce.
#[derive(Clone, Debug, Default)]
pub struct Observed(HashMap<ValueId, Tensor>);

impl Observed {
    /// Evaluates `graph` once on `inputs` and keeps every tensor.
    pub fn new(graph: &Graph, inputs: &[Datum]) -> Result<Observed, EvalError> {
        let mut contents = HashMap::new();
        evaluate_observed(graph, inputs, &mut |value, datum| {
            if let Datum::Tensor(tensor) = datum {
                contents.insert(value, tensor.clone());
            }
        })?;
        for (&value, datum) in graph.inputs.iter().zip(inputs) {
            if let Datum::Tensor(tensor) = datum {
                contents.insert(value, tensor.clone());
            }
        }
        Ok(Observed(contents))
    }

    /// The content of `value`, if it is a tensor.
    pub fn get(&self, value: ValueId) -> Option<&Tensor> {
        self.0.get(&value)
    }
}
