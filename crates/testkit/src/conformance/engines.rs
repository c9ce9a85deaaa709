//! What computes models.

use crate::{Fault, engines::own_registry};
use bricolage::{DynamicSession, Goal};
use bricolage_backend::Registry;
use bricolage_backends::{OnnxRuntime, Reference};
use bricolage_ir::{EvalError, Graph, Op, evaluate};
use bricolage_onnx::{export, import};
use bricolage_tensor::{Datum, Storage};
use std::{path::Path, sync::Arc};

/// What an engine gave for a model.
pub(super) struct Computed {
    pub(super) outputs: Vec<Datum>,
    /// Whether kernels of the engine's own took part.
    pub(super) own: bool,
}

/// Computes models whose inputs may have any sizes and kinds.
pub struct Computer {
    /// A short name, without spaces.
    pub name: &'static str,
    way: Way,
}

enum Way {
    /// The reference evaluator.
    Reference,
    /// The reference evaluator after a way through ONNX and back.
    RoundTrip,
    /// Plans by guesses, the reference where the backend `own` has no kernel; simplified or as it is.
    Plans { registry: Registry, own: &'static str, simplified: bool },
}

/// Every engine that is here, and for each one that is not, why.
pub fn computers(onnxruntime: Option<&Path>) -> (Vec<Computer>, Vec<String>) {
    let plans = |registry, own, simplified| Way::Plans { registry, own, simplified };
    let mut all = vec![
        Computer { name: "reference", way: Way::Reference },
        Computer { name: "native", way: plans(own_registry(), "native", false) },
        Computer { name: "optimised", way: plans(own_registry(), "native", true) },
        Computer { name: "round-trip", way: Way::RoundTrip },
    ];
    let mut absent = Vec::new();
    let runtime = OnnxRuntime::find(onnxruntime, None);
    if runtime.is_present() {
        let registry = Registry::new(vec![Arc::new(runtime), Arc::new(Reference)]);
        all.insert(2, Computer { name: "onnxruntime", way: plans(registry, "onnxruntime", false) });
    } else {
        let status = bricolage_backend::Backend::status(&runtime);
        absent.push(format!("onnxruntime: {}; {}", status.found, status.how));
    }
    (all, absent)
}

fn failed(error: impl std::fmt::Display) -> Fault {
    Fault::Failed(error.to_string())
}

impl Computer {
    /// Whether it has kernels of its own, with the reference where they end.
    pub(super) fn has_own(&self) -> bool {
        matches!(self.way, Way::Plans { .. })
    }

    /// The outputs on inputs in the graph's order.
    pub(super) fn compute(&self, graph: &Graph, inputs: &[Datum]) -> Result<Computed, Fault> {
        match &self.way {
            Way::Reference => evaluated(graph, inputs),
            Way::RoundTrip => {
                let bytes = export(graph).map_err(failed)?;
                let again = import(Storage::copy_of(&bytes), None).map_err(failed)?;
                if !again.warnings.is_empty() {
                    return Err(failed(again.warnings.join("; ")));
                }
                evaluated(&again.graph, inputs)
            }
            Way::Plans { registry, own, simplified } => {
                let goal = Goal::new(1);
                let lacks_meaning =
                    graph.nodes().any(|n| matches!(graph.node(n).op, Op::Opaque(_)));
                let failed = |error: bricolage::Error| match lacks_meaning {
                    true => Fault::Unsupported(error.to_string()),
                    false => failed(error),
                };
                let graph = graph.clone();
                let session = match simplified {
                    true => DynamicSession::new(registry, graph, &goal),
                    false => DynamicSession::as_it_is(registry, graph, &goal),
                };
                let mut session = session.map_err(failed)?;
                let outputs = session.run(inputs).map_err(failed)?;
                let own = session.backends().iter().any(|b| b == own);
                Ok(Computed { outputs: outputs.into_iter().map(|(_, datum)| datum).collect(), own })
            }
        }
    }
}

fn evaluated(graph: &Graph, inputs: &[Datum]) -> Result<Computed, Fault> {
    match evaluate(graph, inputs) {
        Ok(outputs) => Ok(Computed { outputs, own: false }),
        Err(EvalError::Node { error, .. }) if matches!(*error, EvalError::Foreign { .. }) => {
            Err(Fault::Unsupported(error.to_string()))
        }
        Err(error) => Err(failed(error)),
    }
}
