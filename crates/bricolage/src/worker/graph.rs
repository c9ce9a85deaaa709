//! Graphs computed in a worker.

use super::{
    message::{Answer, Content, Request, Wire},
    process::Worker,
};
use crate::{DynamicSession, Goal};
use bricolage_backend::Registry;
use bricolage_ir::{Graph, parse, print};
use bricolage_tensor::{Datum, Tensor};
use std::time::Duration;

/// What a graph gave in a worker.
#[derive(Clone, Debug)]
pub struct Computed {
    /// In the graph's order.
    pub outputs: Vec<Datum>,
    /// Names of the backends whose kernels took part.
    pub backends: Vec<String>,
}

impl Worker {
    /// Computes a graph, of any sizes and kinds of values, as it is: in plans by guesses over these backends of
    /// the worker's. It is waited for `limit`, in which it is planned, compiled and run. `Err` in words;
    /// [`super::ended`] tells whether that ended its process.
    pub fn compute(
        &mut self,
        graph: &Graph,
        inputs: &[Datum],
        backends: &[&str],
        limit: Duration,
    ) -> Result<Computed, String> {
        let (graph, constants) = print(graph);
        let request = Request::Compute {
            graph,
            constants: constants.iter().map(Wire::from).collect(),
            backends: backends.iter().map(|&b| b.to_owned()).collect(),
            inputs: inputs.iter().map(Content::of).collect::<Result<_, _>>()?,
        };
        match self.call(&request, limit)? {
            Answer::Computed { outputs, backends } => {
                let outputs = outputs.into_iter().map(Content::datum).collect::<Result<_, _>>()?;
                Ok(Computed { outputs, backends })
            }
            _ => Err("the worker answered something else".to_owned()),
        }
    }
}

/// The worker's side of [`Worker::compute`].
pub(super) fn compute(
    registry: &Registry,
    threads: usize,
    (graph, constants): (String, Vec<Wire>),
    backends: &[String],
    inputs: Vec<Content>,
) -> Result<Answer, String> {
    let constants: Vec<Tensor> =
        constants.into_iter().map(Wire::tensor).collect::<Result<_, _>>()?;
    let inputs: Vec<Datum> = inputs.into_iter().map(Content::datum).collect::<Result<_, _>>()?;
    let graph = parse(&graph, &constants).map_err(|e| e.to_string())?;
    let registry = registry.only(backends).map_err(|e| e.to_string())?;
    let session = DynamicSession::as_it_is(&registry, graph, &Goal::new(threads));
    let mut session = session.map_err(|e| e.to_string())?;
    let named = session.run(&inputs).map_err(|e| e.to_string())?;
    let outputs = named.iter().map(|(_, datum)| Content::of(datum)).collect::<Result<_, _>>()?;
    Ok(Answer::Computed { outputs, backends: session.backends() })
}
