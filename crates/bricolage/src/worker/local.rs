//! A plan in this process.

use super::plan::OpenPlan;
use crate::Error;
use bricolage_measure::{Sample, SampleError};
use bricolage_runtime::{Session, SessionError, Trace};
use bricolage_tensor::Tensor;
use std::time::{Duration, Instant};

/// A plan of fixed sizes with its inputs, and room for its outputs.
pub(crate) struct LocalPlan {
    session: Session,
    inputs: Vec<Tensor>,
    /// In words, so that any element lies as it must.
    outputs: Vec<Vec<u64>>,
    /// Bytes of each output.
    sizes: Vec<usize>,
    trace: Trace,
}

impl LocalPlan {
    /// Of a session that takes these inputs.
    pub(crate) fn new(session: Session, inputs: Vec<Tensor>) -> LocalPlan {
        let plan = session.program().plan();
        let sizes: Vec<usize> =
            plan.outputs.iter().map(|p| p.ty.byte_len().unwrap_or(0) as usize).collect();
        let outputs = sizes.iter().map(|s| vec![0; s.div_ceil(8)]).collect();
        let trace = Trace::with_capacity(plan.steps.len());
        LocalPlan { session, inputs, outputs, sizes, trace }
    }

    /// Runs once; outputs go nowhere.
    pub(crate) fn run(&mut self, traced: bool) -> Result<(), SessionError> {
        let given: Vec<&[u8]> = self.inputs.iter().map(Tensor::bytes).collect();
        let mut taken: Vec<&mut [u8]> = self
            .outputs
            .iter_mut()
            .zip(&self.sizes)
            .map(|(words, size)| &mut bytemuck::cast_slice_mut::<u64, u8>(words)[..*size])
            .collect();
        self.session.run_into(&given, &mut taken, traced.then_some(&mut self.trace))
    }
}

impl Sample for LocalPlan {
    fn sample(&mut self, iterations: u32) -> Result<Duration, SampleError> {
        let start = Instant::now();
        for _ in 0..iterations {
            self.run(false).map_err(|e| SampleError(e.to_string()))?;
        }
        Ok(start.elapsed())
    }
}

impl OpenPlan for LocalPlan {
    fn outputs(&mut self) -> Result<Vec<(String, Tensor)>, Error> {
        let tensors = self.session.run(&self.inputs)?;
        let names = self.session.program().plan().outputs.iter().map(|p| p.name.clone());
        Ok(names.zip(tensors).collect())
    }

    fn steps(&mut self) -> Result<Vec<Duration>, Error> {
        self.run(true)?;
        Ok(self.trace.spans().iter().map(|s| s.duration()).collect())
    }
}
