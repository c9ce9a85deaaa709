//! A model file as the library's own users run it: a pool of its own whose threads spin, and every
//! optimisation.

use super::engine::{Options, Session, Source, Value, engine};
use bricolage_backend::Peer;
use bricolage_tensor::Tensor;
use ort_sys::GraphOptimizationLevel as Level;
use std::{
    path::Path,
    time::{Duration, Instant},
};

/// An open model.
pub(super) struct Model {
    session: Session,
}

impl Model {
    /// Opens the file `model` with the library at `library`.
    pub(super) fn open(library: &Path, model: &Path, threads: usize) -> Result<Model, String> {
        // As its own users run it.
        let level = Level::ORT_ENABLE_ALL;
        let options = Options { threads, spinning: true, level, exact_bytes: false };
        let engine = engine(library, threads)?;
        Ok(Model { session: Session::open(engine, Source::File(model), None, &options)? })
    }

    /// The inputs in the model's order, over the tensors' memory.
    fn values(&self, inputs: &[(String, Tensor)]) -> Result<Vec<Value>, String> {
        let value = |name: String| {
            let (_, t) = inputs
                .iter()
                .find(|(n, _)| *n == name)
                .ok_or_else(|| format!("needs an input `{name}`"))?;
            let bytes = t.bytes();
            // SAFETY: the tensors live as long as `inputs`, longer than a run, and are only read.
            unsafe {
                self.session.tensor(bytes.as_ptr().cast_mut(), bytes.len(), t.dtype(), t.dims())
            }
        };
        self.session.inputs().map(value).collect()
    }
}

impl Peer for Model {
    fn run(&mut self, inputs: &[(String, Tensor)]) -> Result<Vec<(String, Tensor)>, String> {
        let results = self.session.run(&self.values(inputs)?)?;
        let read = |(name, value)| Ok((name, self.session.read(value)?));
        self.session.outputs().zip(&results).map(read).collect()
    }

    fn sample(&mut self, inputs: &[(String, Tensor)], iterations: u32) -> Result<Duration, String> {
        let values = self.values(inputs)?;
        let start = Instant::now();
        for _ in 0..iterations {
            self.session.run(&values)?;
        }
        Ok(start.elapsed())
    }
}
