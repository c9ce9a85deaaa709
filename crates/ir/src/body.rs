//! The scalar computation at one point of an op's iteration space.

use crate::{
    Real,
    ops::{Binary, Unary},
};
use bricolage_tensor::DType;
use serde::{Deserialize, Serialize};

/// One scalar step; operands are indices of earlier steps.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Scalar {
    /// The element of this op input that its index names, or 0 where the index lies outside.
    Input(usize),
    /// A number.
    Constant(Real),
    /// A function of one step.
    Unary(Unary, usize),
    /// A function of two steps.
    Binary(Binary, usize, usize),
    /// The second step where the first is true, else the third.
    Select(usize, usize, usize),
    /// The step converted to an element type.
    Cast(DType, usize),
    /// The value of [`Body::point`] combined over all reduce axes.
    Combined,
}

/// What is computed: `point` at every point, combined over the reduce axes, and `result` once for
/// every output element. Without reduce axes the two are the same step.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Body {
    /// In the order of evaluation.
    pub steps: Vec<Scalar>,
    /// The step that is combined.
    pub point: usize,
    /// The step that is stored.
    pub result: usize,
}

impl Body {
    /// A body whose last step is both combined and stored.
    pub fn of(steps: Vec<Scalar>) -> Body {
        let last = steps.len() - 1;
        Body { steps, point: last, result: last }
    }

    /// A product of inputs 0 and 1, combined; with a bias, input 2 is added once.
    pub fn contraction(bias: bool) -> Body {
        let mut steps = vec![Scalar::Input(0), Scalar::Input(1), Scalar::Binary(Binary::Mul, 0, 1)];
        if !bias {
            return Body::of(steps);
        }
        steps.extend([Scalar::Combined, Scalar::Input(2), Scalar::Binary(Binary::Add, 3, 4)]);
        Body { steps, point: 2, result: 5 }
    }

    /// Whether [`Body::point`] is a product, so that combining it by a sum is multiply-add.
    pub fn multiplies(&self) -> bool {
        matches!(self.steps[self.point], Scalar::Binary(Binary::Mul, ..))
    }
}
