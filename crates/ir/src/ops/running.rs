//! Running sums and products.

use super::{
    OpDef,
    elements::{Elements, one, sizes},
    results,
    types::{Operands, expect_axis},
};
use crate::{AxisKind, AxisMap, EvalError, Fact, Inputs, TypeError};
use bricolage_tensor::Datum;
use serde::{Deserialize, Serialize};

/// How elements are taken together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RunningKind {
    /// Added.
    Sum,
    /// Multiplied.
    Product,
}

/// Each element with those before it along a dim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Running {
    /// How.
    pub kind: RunningKind,
    /// The dim.
    pub axis: usize,
    /// Leaves the element itself out.
    pub exclusive: bool,
    /// Begins at the end.
    pub reverse: bool,
}

impl Running {
    fn run<T: Copy>(
        self,
        x: &mut [T],
        [length, inner]: [usize; 2],
        start: T,
        with: impl Fn(T, T) -> T,
    ) {
        for block in x.chunks_mut((length * inner).max(1)) {
            for i in 0..inner {
                let mut all = start;
                for step in 0..length {
                    let at = if self.reverse { length - 1 - step } else { step } * inner + i;
                    let before = all;
                    all = with(all, block[at]);
                    block[at] = if self.exclusive { before } else { all };
                }
            }
        }
    }
}

impl OpDef for Running {
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
        match (&mut elements, self.kind) {
            (Elements::Float(x), RunningKind::Sum) => self.run(x, size, 0.0, |a, b| a + b),
            (Elements::Float(x), RunningKind::Product) => self.run(x, size, 1.0, |a, b| a * b),
            (Elements::Int(x), RunningKind::Sum) => self.run(x, size, 0, |a, b| a + b),
            // Modulo 2^64 at every step, which is exact once wrapped to the type's width.
            (Elements::Int(x), RunningKind::Product) => {
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
