//! What can be computed before the first run.

use crate::{Outcome, Patch, Rule};
use bricolage_ir::{Graph, Inputs, NodeId, Op, OpKind};
use bricolage_tensor::{Datum, Type};

/// A result may be this much larger than the operands together, and is always allowed below
/// [`SMALL`] bytes.
const GROWTH: u64 = 4;
const SMALL: u64 = 1 << 20;

/// `f(c)` is a constant when `c` is.
pub(super) struct FoldConstants;

impl Rule for FoldConstants {
    fn name(&self) -> &'static str {
        "fold-constants"
    }

    fn anchors(&self) -> &'static [OpKind] {
        &[]
    }

    fn apply(&self, graph: &Graph, at: NodeId) -> Outcome {
        let node = graph.node(at);
        // A graph inside may take any time.
        let unbounded = matches!(node.op, Op::Opaque(_)) || !node.op.nested().is_empty();
        if unbounded || !node.aliases.is_empty() {
            return Outcome::NoMatch;
        }
        // What is known of a value's elements is a constant too: shapes of fixed size, for one.
        if let [output] = node.outputs[..]
            && let Some(numbers) = graph.fact(output).as_numbers()
            && let Type::Tensor(t) = &graph.fact(output).ty
            && let Some(dims) = t.shape.as_fixed()
        {
            let mut patch = Patch::of(&[at]);
            let tensor = bricolage_tensor::Tensor::from_i64(t.dtype, &dims, &numbers);
            let constant = patch.constant(graph.value(output).name.to_string(), tensor);
            patch.replace(output, constant);
            return Outcome::Rewrite(patch);
        }
        let mut operands: Vec<Option<Datum>> = Vec::new();
        for input in &node.inputs {
            operands.push(match input {
                None => None,
                Some(value) => match graph.constant_of(*value) {
                    Some(tensor) => Some(tensor.clone().into()),
                    None => return Outcome::NoMatch,
                },
            });
        }
        let bytes = |v| graph.fact(v).ty.as_tensor().and_then(|t| t.byte_len());
        let Some(made) = node.outputs.iter().map(|&v| bytes(v)).sum::<Option<u64>>() else {
            return Outcome::Declined("its size is symbolic");
        };
        let read: u64 = node.inputs.iter().flatten().filter_map(|&v| bytes(v)).sum();
        if made > SMALL && made > GROWTH * read {
            return Outcome::Declined("the result is much larger than the operands");
        }
        let refs: Vec<Option<&Datum>> = operands.iter().map(Option::as_ref).collect();
        let Ok(results) = node.op.eval(&Inputs(&refs)) else {
            return Outcome::Declined("it cannot be evaluated");
        };
        let mut patch = Patch::of(&[at]);
        for (&output, datum) in node.outputs.iter().zip(results) {
            let Datum::Tensor(tensor) = datum else { return Outcome::NoMatch };
            let constant = patch.constant(graph.value(output).name.to_string(), tensor);
            patch.replace(output, constant);
        }
        Outcome::Rewrite(patch)
    }
}
