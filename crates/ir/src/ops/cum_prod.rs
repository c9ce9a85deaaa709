//! Running products.

use super::{
    OpDef,
    elements::{Elements, one, sizes},
    results,
    types::{Operands, expect_axis},
};
use crate::{AxisKind, AxisMap, EvalError, Fact, Inputs, TypeError};
use bricolage_tensor::Datum;
use serde::{Deserialize, Serialize};

/// Running products along a dim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CumProd {
    /// The dim.
    pub axis: usize,
    /// Leaves the element itself out of its product.
    pub exclusive: bool,
    /// Multiplies from the end.
    pub reverse: bool,
}

impl CumProd {
    fn run<T: Copy>(
        self,
        x: &mut [T],
        [length, inner]: [usize; 2],
        one: T,
        times: impl Fn(T, T) -> T,
    ) {
        for block in x.chunks_mut((length * inner).max(1)) {
            for i in 0..inner {
                let mut product = one;
                for step in 0..length {
                    let at = if self.reverse { length - 1 - step } else { step } * inner + i;
                    let before = product;
                    product = times(product, block[at]);
                    block[at] = if self.exclusive { before } else { product };
                }
            }
        }
    }
}

impl OpDef for CumProd {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let t = Operands::new(inputs, 1, 1)?.number(0)?;
        expect_axis(self.axis, t.shape.len())?;
        Ok(vec![Fact::from(t.clone())])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        results(self, inputs)?;
        let t = inputs.tensor(0)?;
        let shape = sizes(t.dims());
        let size = [shape[self.axis], shape[self.axis + 1..].iter().product()];
        let mut elements = Elements::of(t);
        match &mut elements {
            Elements::Float(x) => self.run(x, size, 1.0, |a, b| a * b),
            // Modulo 2^64 at every step, which is exact once wrapped to the type's width.
            Elements::Int(x) => {
                self.run(x, size, 1, |a, b| i128::from((a as u64).wrapping_mul(b as u64)))
            }
        }
        one(elements.into_tensor(t.dtype(), t.dims()))
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let mut map = AxisMap::pointwise(inputs, outputs);
        map.axes[self.axis].kind = AxisKind::Opaque;
        map
    }
}
