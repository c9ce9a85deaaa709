//! The same bits under another element type.

use super::{
    OpDef,
    elements::one,
    results,
    types::{Operands, attribute},
};
use crate::{AxisMap, EvalError, Fact, Inputs, TypeError};
use bricolage_tensor::{DType, Datum, Tensor};
use serde::{Deserialize, Serialize};

/// Every element's bits, lowest first, as an element of another type of the same width. As `Bool`, all but
/// 0 are true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BitCast {
    /// The type of the result.
    pub to: DType,
}

impl OpDef for BitCast {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let t = Operands::new(inputs, 1, 1)?.tensor(0)?;
        if self.to.bits() != t.dtype.bits() {
            return Err(attribute("to", format!("a type of {} bits", t.dtype.bits()), self.to));
        }
        Ok(vec![Fact::tensor(self.to, t.shape.iter().cloned())])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (dtype, dims) = results(self, inputs)?.swap_remove(0);
        let t = inputs.tensor(0)?;
        if dtype == DType::Bool {
            let truths: Vec<bool> = t.bytes().iter().map(|&b| b != 0).collect();
            return one(Tensor::of_bool(&dims, &truths));
        }
        one(Tensor::new(dtype, &dims, t.storage().clone())?)
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        AxisMap::pointwise(inputs, outputs)
    }
}
