//! An artefact that is open for running, at the sizes of its plan or at any that it allows.

use crate::{
    DynamicSession, Error,
    artefact::Loaded,
    target::{Outputs, tensor_output},
};
use bricolage_runtime::{Pool, Session};
use bricolage_tensor::{Datum, Tensor};
use std::sync::Arc;

/// A session of an artefact.
pub enum Opened {
    /// Of fixed sizes.
    Fixed(Session),
    /// Of open sizes.
    Dynamic(Box<DynamicSession>),
}

impl Opened {
    /// Opens an artefact.
    pub fn new(loaded: &Loaded, pool: Arc<dyn Pool + Send + Sync>) -> Result<Opened, Error> {
        match loaded.fixed() {
            Some(program) => Ok(Opened::Fixed(Session::open(program.clone(), pool)?)),
            None => Ok(Opened::Dynamic(Box::new(DynamicSession::open(loaded, pool)?))),
        }
    }

    /// Runs once on tensors in the model's order, and returns the outputs by name.
    pub fn run(&mut self, inputs: &[Tensor]) -> Result<Outputs, Error> {
        match self {
            Opened::Fixed(session) => {
                let tensors = session.run(inputs)?;
                let names = session.program().plan().outputs.iter().map(|p| p.name.clone());
                Ok(names.zip(tensors).collect())
            }
            Opened::Dynamic(session) => {
                let data: Vec<Datum> = inputs.iter().cloned().map(Datum::from).collect();
                session.run(&data)?.into_iter().map(tensor_output).collect()
            }
        }
    }

    /// In words that the last run was at sizes that nothing was measured at.
    pub fn unmeasured(&self) -> Option<String> {
        match self {
            Opened::Fixed(_) => None,
            Opened::Dynamic(session) => session.unmeasured(),
        }
    }
}
