//! What computes models.

use crate::{
    Fault,
    engines::{Variable, foreign_here, own_registry},
};
use bricolage::{DynamicSession, Goal};
use bricolage_backend::Registry;
use bricolage_backends::{OpenVino, Reference};
use bricolage_ir::{EvalError, Graph, Op, evaluate};
use bricolage_onnx::{export, import};
use bricolage_tensor::{Datum, Storage};
use std::sync::Arc;

/// What an engine gave for a model.
pub(super) struct Computed {
    pub(super) outputs: Vec<Datum>,
    /// Whether kernels of the engine's own took part.
    pub(super) own: bool,
}

/// Computes models whose inputs may have any sizes and kinds.
pub struct Computer {
    /// A short name, without spaces.
    pub name: String,
    way: Way,
}

enum Way {
    /// The reference evaluator.
    Reference,
    /// The reference evaluator after a way through ONNX and back.
    RoundTrip,
    /// Plans by guesses, the reference where the backend `own` has no kernel; simplified or as it is.
    Plans { registry: Registry, own: String, simplified: bool },
}

/// Every engine that is here, and for each one that is not, why.
pub fn computers(variable: Variable<'_>) -> (Vec<Computer>, Vec<String>) {
    let computer = |name: &str, way| Computer { name: name.to_owned(), way };
    let plans = |registry, own: &str, simplified| {
        let own = own.to_owned();
        Way::Plans { registry, own, simplified }
    };
    let mut all = vec![
        computer("reference", Way::Reference),
        computer("native", plans(own_registry(), "native", false)),
    ];
    let (here, absent) = foreign_here(variable);
    for backend in here {
        let name = backend.name().to_owned();
        let backend = match name == OpenVino::NAME {
            // In a plan of its own kernels and the reference's it would show little.
            true => Arc::new(
                OpenVino::find(variable(OpenVino::VARIABLE).as_deref(), None).with_single_ops(),
            ),
            false => backend,
        };
        let registry = Registry::new(vec![backend, Arc::new(Reference)]);
        all.push(computer(&name, plans(registry, &name, false)));
    }
    all.push(computer("optimised", plans(own_registry(), "native", true)));
    all.push(computer("round-trip", Way::RoundTrip));
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
