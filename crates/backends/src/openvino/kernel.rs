//! A region compiled into a model of the library.

use super::{
    NAME,
    engine::{Memory, Options, Session, Source, engine},
};
use crate::graph_engine::{Body, Compiled, Port, Refusal};
use bricolage_onnx::inline;
use bricolage_runtime::Operand;
use bricolage_tensor::{DType, Tensor};
use std::path::Path;

impl Compiled for Session {
    const BACKEND: &'static str = NAME;
    const NAME: &'static str = "openvino-region";

    fn compile(
        library: &Path,
        body: &Body,
        weights: &[(String, Tensor)],
    ) -> Result<(Session, &'static str), String> {
        let model = inline(&body.model, weights).map_err(|e| e.to_string())?;
        let inputs: Vec<_> = body.inputs.iter().map(|p| (p.name.as_str(), None)).collect();
        let outputs: Vec<_> = body.outputs.iter().map(|p| p.name.as_str()).collect();
        let options = Options { threads: body.threads as usize, alone: body.alone };
        let engine = engine(library)?;
        let session = Session::open(engine, Source::Bytes(&model), &inputs, &outputs, &options)?;
        Ok((session, <Session as Compiled>::NAME))
    }

    unsafe fn run(
        &self,
        body: &Body,
        inputs: &[Operand<'_>],
        outputs: &[Operand<'_>],
    ) -> Result<(), Refusal> {
        for (operand, port) in inputs.iter().zip(&body.inputs) {
            // SAFETY: the caller promises readable memory of this length.
            unsafe { check_narrow(operand, port)? };
        }
        let (inputs, outputs) = (memory(inputs, &body.inputs), memory(outputs, &body.outputs));
        // SAFETY: as above, and writable for outputs.
        unsafe { Session::run(self, &inputs, &outputs, |_| Ok(()))? };
        Ok(())
    }
}

fn memory<'a>(operands: &[Operand<'_>], ports: &'a [Port]) -> Vec<Memory<'a>> {
    let one = |(operand, port): (&Operand<'_>, &'a Port)| Memory {
        ptr: operand.as_mut_ptr(),
        dtype: port.dtype,
        dims: &port.dims,
    };
    operands.iter().zip(ports).map(one).collect()
}

/// Whether the library computes with the same numbers: it takes integers of 64 bits for ones of 32.
///
/// # Safety
/// The operand's memory is readable.
unsafe fn check_narrow(operand: &Operand<'_>, port: &Port) -> Result<(), Refusal> {
    if port.dtype != DType::I64 {
        return Ok(());
    }
    // SAFETY: the caller promises it; elements lie at multiples of their size.
    let all =
        unsafe { std::slice::from_raw_parts(operand.as_ptr().cast::<i64>(), operand.len() / 8) };
    match all.iter().find(|&&i| i32::try_from(i).is_err()) {
        None => Ok(()),
        Some(i) => {
            Err(Refusal::Domain(format!("`{}` has {i}, which needs more than 32 bits", port.name)))
        }
    }
}
