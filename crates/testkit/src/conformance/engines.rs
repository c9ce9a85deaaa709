//! What computes models.

use crate::{
    Fault, Workers,
    engines::{Variable, foreign_fault, foreign_here, own_registry},
    workers::end_of,
};
use bricolage::{DynamicSession, Goal};
use bricolage_backend::Registry;
use bricolage_ir::{EvalError, Graph, Op, ValueId, evaluate};
use bricolage_onnx::{export, import};
use bricolage_tensor::{Datum, Storage, Tensor};
use std::{path::Path, sync::Arc, time::Duration};

/// Longest time for one model on a foreign engine, which compiles every op of it.
const PATIENCE: Duration = Duration::from_secs(300);

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
    /// Plans by guesses of our kernels, the reference where they end; simplified or as it is.
    Plans { registry: Registry, simplified: bool },
    /// Such plans of the foreign backend of this name, of the model as it is, in a process of their own.
    Apart { backend: String, workers: Arc<Workers> },
}

/// Name of the backend of our kernels.
const OWN: &str = "native";
/// Where the others have no kernel.
const REFERENCE: &str = "reference";

/// Every engine that is here, and for each one that is not, why. Foreign code runs in `workers`.
pub fn computers(variable: Variable<'_>, workers: &Arc<Workers>) -> (Vec<Computer>, Vec<String>) {
    let computer = |name: &str, way| Computer { name: name.to_owned(), way };
    let plans = |simplified| Way::Plans { registry: own_registry(), simplified };
    let mut all = vec![computer(REFERENCE, Way::Reference), computer(OWN, plans(false))];
    let (here, absent) = foreign_here(variable);
    for backend in here {
        let backend = backend.name().to_owned();
        all.push(Computer {
            name: backend.clone(),
            way: Way::Apart { backend, workers: workers.clone() },
        });
    }
    all.push(computer("optimised", plans(true)));
    all.push(computer("round-trip", Way::RoundTrip));
    (all, absent)
}

fn failed(error: impl std::fmt::Display) -> Fault {
    Fault::Failed(error.to_string())
}

impl Computer {
    /// Whether it has kernels of its own, with the reference where they end.
    pub(super) fn has_own(&self) -> bool {
        matches!(self.way, Way::Plans { .. } | Way::Apart { .. })
    }

    /// Whether others' kernels compute.
    pub(super) fn is_foreign(&self) -> bool {
        matches!(self.way, Way::Apart { .. })
    }

    /// What is known to be wrong in the engine for this graph on these inputs.
    pub(super) fn known_fault(&self, graph: &Graph, inputs: &[Datum]) -> Option<&'static str> {
        match &self.way {
            Way::Apart { backend, .. } => foreign_fault(backend, graph, inputs),
            _ => None,
        }
    }

    /// What the engine's own reader makes of the file from which `graph` is, on inputs in the graph's order; `None`
    /// where it has none, or does not take the file.
    pub(super) fn by_itself(
        &self,
        file: &Path,
        graph: &Graph,
        inputs: &[Datum],
    ) -> Option<Vec<Datum>> {
        let Way::Apart { backend, workers } = &self.way else { return None };
        let name = |&v: &ValueId| graph.value(v).name.to_string();
        let named = graph.inputs.iter().map(name).zip(inputs);
        let named: Option<Vec<(String, Tensor)>> =
            named.map(|(name, datum)| Some((name, datum.as_tensor()?.clone()))).collect();
        let outputs: Vec<String> = graph.outputs.iter().map(name).collect();
        let found = workers.by_itself(backend, file, &named?, &outputs).ok()?;
        Some(found.into_iter().map(Datum::from).collect())
    }

    /// The outputs on inputs in the graph's order.
    pub(super) fn compute(&self, graph: &Graph, inputs: &[Datum]) -> Result<Computed, Fault> {
        let lacks_meaning = graph.nodes().any(|n| matches!(graph.node(n).op, Op::Opaque(_)));
        let refused = |why: String| match lacks_meaning {
            true => Fault::Unsupported(why),
            false => Fault::Failed(why),
        };
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
            Way::Plans { registry, simplified } => {
                let goal = Goal::new(1);
                let refused = |error: bricolage::Error| refused(error.to_string());
                let graph = graph.clone();
                let session = match simplified {
                    true => DynamicSession::new(registry, graph, &goal),
                    false => DynamicSession::as_it_is(registry, graph, &goal),
                };
                let mut session = session.map_err(refused)?;
                let outputs = session.run(inputs).map_err(refused)?;
                let own = session.backends().iter().any(|b| b == OWN);
                Ok(Computed { outputs: outputs.into_iter().map(|(_, datum)| datum).collect(), own })
            }
            Way::Apart { backend, workers } => {
                let backends = [backend.as_str(), REFERENCE];
                let computed = workers.with(1, |worker| {
                    worker.borrow_mut().compute(graph, inputs, &backends, PATIENCE)
                });
                let computed =
                    computed.map_err(|why| end_of(&why).unwrap_or_else(|| refused(why)))?;
                let own = computed.backends.contains(backend);
                Ok(Computed { outputs: computed.outputs, own })
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
