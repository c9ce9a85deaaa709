//! A model file as the library's own users run it: compiled for the sizes of its inputs and the least time
//! of one run, on processors that it chooses.

use super::engine::{Memory, Options, Session, Source, engine};
use bricolage_backend::Peer;
use bricolage_tensor::Tensor;
use std::{
    path::Path,
    time::{Duration, Instant},
};

/// An open model.
pub(super) struct Model {
    session: Session,
    inputs: Vec<String>,
    outputs: Vec<String>,
}

impl Model {
    /// Opens the file `model` with the library at `library` for inputs of these types.
    pub(super) fn open(
        library: &Path,
        model: &Path,
        threads: usize,
        inputs: &[(String, Tensor)],
        outputs: &[String],
    ) -> Result<Model, String> {
        let options = Options { threads, alone: true };
        let sized: Vec<_> = inputs.iter().map(|(n, t)| (n.as_str(), Some(t.dims()))).collect();
        let named: Vec<&str> = outputs.iter().map(String::as_str).collect();
        let engine = engine(library)?;
        let session = Session::open(engine, Source::File(model), &sized, &named, &options)?;
        let wanted = session.wanted()?;
        if wanted.len() != inputs.len() {
            let found: Vec<&str> = inputs.iter().map(|(n, _)| n.as_str()).collect();
            return Err(format!("needs inputs {wanted:?}, found {found:?}"));
        }
        let inputs = inputs.iter().map(|(n, _)| n.clone()).collect();
        Ok(Model { session, inputs, outputs: outputs.to_vec() })
    }

    /// The inputs in the order in which the model was opened, where they lie.
    fn memory<'a>(&self, inputs: &'a [(String, Tensor)]) -> Result<Vec<Memory<'a>>, String> {
        let one = |name: &String| {
            let (_, t) = inputs
                .iter()
                .find(|(n, _)| n == name)
                .ok_or_else(|| format!("needs an input `{name}`"))?;
            Ok(Memory { ptr: t.bytes().as_ptr().cast_mut(), dtype: t.dtype(), dims: t.dims() })
        };
        self.inputs.iter().map(one).collect()
    }
}

impl Peer for Model {
    fn run(&mut self, inputs: &[(String, Tensor)]) -> Result<Vec<(String, Tensor)>, String> {
        let memory = self.memory(inputs)?;
        // SAFETY: the tensors live as long as `inputs`, longer than the run, and are only read.
        let found = unsafe { self.session.run(&memory, &[], |done| done.outputs())? };
        Ok(self.outputs.iter().cloned().zip(found).collect())
    }

    fn sample(&mut self, inputs: &[(String, Tensor)], iterations: u32) -> Result<Duration, String> {
        let memory = self.memory(inputs)?;
        let start = Instant::now();
        for _ in 0..iterations {
            // SAFETY: as above.
            unsafe { self.session.run(&memory, &[], |_| Ok(()))? };
        }
        Ok(start.elapsed())
    }
}
