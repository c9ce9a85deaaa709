//! Scalar functions of the graph as those of our kernels.

use bricolage_ir::{Node, Op, ops};
use bricolage_kernels::{Binary, Unary};

/// The kernels' function for one of the graph's, if they have it.
pub(super) fn unary(function: ops::Unary) -> Option<Unary> {
    use ops::Unary as F;
    let n = |r: bricolage_ir::Real| r.get() as f32;
    Some(match function {
        F::Abs => Unary::Abs,
        F::Neg => Unary::Neg,
        F::Sign => Unary::Sign,
        F::Reciprocal => Unary::Reciprocal,
        F::Sqrt => Unary::Sqrt,
        F::Rsqrt => Unary::Rsqrt,
        F::Exp => Unary::Exp,
        F::Log => Unary::Log,
        F::Sin => Unary::Sin,
        F::Cos => Unary::Cos,
        F::Tan => Unary::Tan,
        F::Asin => Unary::Asin,
        F::Acos => Unary::Acos,
        F::Atan => Unary::Atan,
        F::Sinh => Unary::Sinh,
        F::Cosh => Unary::Cosh,
        F::Tanh => Unary::Tanh,
        F::Asinh => Unary::Asinh,
        F::Acosh => Unary::Acosh,
        F::Atanh => Unary::Atanh,
        F::Erf => Unary::Erf,
        F::Floor => Unary::Floor,
        F::Ceil => Unary::Ceil,
        F::Round => Unary::Round,
        F::Trunc => Unary::Trunc,
        F::Relu => Unary::Relu,
        F::LeakyRelu { alpha } => Unary::LeakyRelu { alpha: n(alpha) },
        F::ThresholdedRelu { alpha } => Unary::ThresholdedRelu { alpha: n(alpha) },
        F::Elu { alpha } => Unary::Elu { alpha: n(alpha) },
        F::Celu { alpha } => Unary::Celu { alpha: n(alpha) },
        F::Selu { alpha, gamma } => Unary::Selu { alpha: n(alpha), gamma: n(gamma) },
        F::HardSigmoid { alpha, beta } => Unary::HardSigmoid { alpha: n(alpha), beta: n(beta) },
        F::HardSwish => Unary::HardSwish,
        F::Sigmoid => Unary::Sigmoid,
        F::Silu => Unary::Swish { alpha: 1.0 },
        F::Mish => Unary::Mish,
        F::Softplus => Unary::Softplus,
        F::Softsign => Unary::Softsign,
        F::Gelu => Unary::Gelu,
        F::GeluTanh => Unary::GeluTanh,
        F::Not => Unary::Not,
        F::IsNan => Unary::IsNaN,
        F::IsInf => Unary::IsInf { negative: true, positive: true },
        F::IsPosInf => Unary::IsInf { negative: false, positive: true },
        F::IsNegInf => Unary::IsInf { negative: true, positive: false },
        _ => return None,
    })
}

/// The function of a node with one operand and one function.
pub(super) fn function(node: &Node) -> Option<Unary> {
    match &node.op {
        Op::Unary(f) => unary(*f),
        Op::Clip(c) => Some(Unary::Clip {
            min: c.min.map_or(f32::NEG_INFINITY, |b| b.get() as f32),
            max: c.max.map_or(f32::INFINITY, |b| b.get() as f32),
        }),
        _ => None,
    }
}

/// The kernels' function of two for one of the graph's, if they have it.
pub(super) fn binary(function: ops::Binary) -> Option<Binary> {
    use ops::Binary as F;
    Some(match function {
        F::Add => Binary::Add,
        F::Sub => Binary::Sub,
        F::Mul => Binary::Mul,
        F::Div => Binary::Div,
        F::Mod => Binary::Mod,
        F::Fmod => Binary::Rem,
        F::Pow => Binary::Pow,
        F::Min => Binary::Min,
        F::Max => Binary::Max,
        F::And => Binary::And,
        F::Or => Binary::Or,
        F::Xor => Binary::Xor,
        F::Prelu => Binary::PRelu,
        F::Equal => Binary::Equal,
        F::Less => Binary::Less,
        F::LessEqual => Binary::LessOrEqual,
        F::Greater => Binary::Greater,
        F::GreaterEqual => Binary::GreaterOrEqual,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use crate::{
        Native,
        trials::{self, Case, SETTING},
    };
    use bricolage_ir::ops::Unary;
    use bricolage_tensor::{DType, Tensor};

    #[test]
    fn infinities_are_those_of_the_reference() {
        let ends = [f64::NEG_INFINITY, f64::INFINITY, f64::NAN, -1e30, 1e30, -1.0, 0.0, 2.0];
        for f in [
            Unary::Silu,
            Unary::Mish,
            Unary::Gelu,
            Unary::GeluTanh,
            Unary::Softsign,
            Unary::Softplus,
            Unary::Sigmoid,
            Unary::Tanh,
            Unary::Erf,
            Unary::Exp,
            Unary::HardSwish,
            Unary::Relu,
        ] {
            let mut case = Case::new();
            let x = case.input(Tensor::generate(DType::F32, &[19], |i| ends[i % ends.len()]));
            let y = case.op(f, &[x]);
            trials::check(&Native::default(), &mut case, &[y], &["pointwise"], &SETTING);
        }
    }
}
