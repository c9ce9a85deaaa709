//! A region compiled into a session of the library.

use super::{
    NAME,
    engine::{Options, Session, Source, Value, engine},
};
use crate::graph_engine::{Body, Compiled, Port, Refusal};
use bricolage_runtime::Operand;
use bricolage_tensor::Tensor;
use ort_sys::GraphOptimizationLevel as Level;
use std::path::Path;

/// From the level that gives the fastest code to the one that changes nothing, with the name of a
/// kernel that was compiled at it.
const LEVELS: &[(Level, &str)] = &[
    (Level::ORT_ENABLE_ALL, "onnxruntime-region"),
    (Level::ORT_ENABLE_EXTENDED, "onnxruntime-region@extended"),
    (Level::ORT_ENABLE_BASIC, "onnxruntime-region@basic"),
    (Level::ORT_DISABLE_ALL, "onnxruntime-region@disabled"),
];

impl Compiled for Session {
    const BACKEND: &'static str = NAME;
    const NAME: &'static str = LEVELS[0].1;

    /// Compiled at the highest level at which the library takes the model.
    fn compile(
        library: &Path,
        body: &Body,
        weights: &[(String, Tensor)],
    ) -> Result<(Session, &'static str), String> {
        let threads = body.threads as usize;
        let engine = engine(library, threads)?;
        let names = |ports: &[Port]| ports.iter().map(|p| p.name.clone()).collect::<Vec<_>>();
        let (inputs, outputs) = (names(&body.inputs), names(&body.outputs));
        let mut first = None;
        for &(level, name) in LEVELS {
            let source = Source::Bytes(&body.model, weights.to_vec());
            let options = Options { threads, spinning: body.alone, level, exact_bytes: true };
            match Session::open(engine, source, Some((&inputs, &outputs)), &options) {
                Ok(session) => return Ok((session, name)),
                Err(why) => first = first.or(Some(why)),
            }
        }
        Err(first.unwrap_or_default())
    }

    unsafe fn run(
        &self,
        body: &Body,
        inputs: &[Operand<'_>],
        outputs: &[Operand<'_>],
    ) -> Result<(), Refusal> {
        let values = |operands: &[Operand<'_>], ports: &[Port]| {
            let value = |(operand, port): (&Operand<'_>, &Port)| {
                // SAFETY: the caller promises memory of this length for the time of the run.
                unsafe { self.tensor(operand.as_mut_ptr(), operand.len(), port.dtype, &port.dims) }
            };
            operands.iter().zip(ports).map(value).collect::<Result<Vec<Value>, String>>()
        };
        let (inputs, outputs) = (values(inputs, &body.inputs)?, values(outputs, &body.outputs)?);
        Ok(self.run_into(&inputs, &outputs)?)
    }
}
