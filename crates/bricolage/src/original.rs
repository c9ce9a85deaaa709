//! What the model means before anything is rewritten: the last judge of a plan.

use bricolage_ir::{EvalError, Graph, evaluate};
use bricolage_tensor::Datum;
use std::cell::OnceCell;

/// The imported graph with its inputs, evaluated by the reference when that is first asked for.
pub(crate) struct Original<'a> {
    graph: &'a Graph,
    inputs: &'a [Datum],
    outputs: OnceCell<Result<Vec<Datum>, EvalError>>,
}

impl<'a> Original<'a> {
    pub(crate) fn new(graph: &'a Graph, inputs: &'a [Datum]) -> Original<'a> {
        Original { graph, inputs, outputs: OnceCell::new() }
    }

    /// The outputs in the graph's order. Fails where the reference cannot evaluate the graph.
    pub(crate) fn outputs(&self) -> Result<&[Datum], &EvalError> {
        let outputs = self.outputs.get_or_init(|| evaluate(self.graph, self.inputs));
        outputs.as_deref()
    }
}
