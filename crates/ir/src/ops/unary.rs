//! Elementwise functions of one operand. A function is one row of `functions!`.

use super::{
    OpDef,
    elements::{Elements, one},
    types::{Operands, expect_dtype},
};
use crate::{AxisMap, Body, EvalError, Fact, Inputs, Real, Scalar, TypeError};
use bricolage_tensor::{DType, Datum, Dim, Tensor};
use serde::{Deserialize, Serialize};

/// Element types that a function takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Domain {
    Float,
    Signed,
    Number,
    Int,
    Bool,
    Any,
}

impl Domain {
    fn check(self, dtype: DType) -> Result<(), TypeError> {
        let (allowed, name): (fn(DType) -> bool, _) = match self {
            Domain::Float => (DType::is_float, "float"),
            Domain::Signed => (|d| d.is_float() || d.is_signed_int(), "signed number"),
            Domain::Number => (|d| d != DType::Bool, "number"),
            Domain::Int => (DType::is_int, "integer"),
            Domain::Bool => (|d| d == DType::Bool, "bool"),
            Domain::Any => (|_| true, "any"),
        };
        expect_dtype(0, dtype, allowed, name)
    }
}

macro_rules! functions {
    ($x:ident; $($(#[$doc:meta])* $name:ident $({ $($field:ident = $default:literal),* })?, $text:literal, $domain:ident, $f:expr;)*) => {
        /// A scalar function applied to every element. NaN gives NaN unless said otherwise.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[non_exhaustive]
        #[allow(missing_docs)] // a parameter is what the formula of its function says
        pub enum Unary { $($(#[$doc])* $name $({ $($field: Real),* })?,)* }

        impl Unary {
            /// Every function, with its usual parameters.
            pub const ALL: &'static [Unary] =
                &[$(Unary::$name $({ $($field: Real::new($default)),* })?,)*];

            /// The name used in messages.
            pub const fn name(self) -> &'static str {
                match self { $(Unary::$name { .. } => $text,)* }
            }

            const fn domain(self) -> Domain {
                match self { $(Unary::$name { .. } => Domain::$domain,)* }
            }

            /// The value at `x`; booleans are 0 and 1.
            pub fn at(self, $x: f64) -> f64 {
                match self {
                    $(Unary::$name $({ $($field),* })? => {
                        $($(let $field = $field.get();)*)?
                        $f
                    })*
                }
            }
        }
    };
}
functions! {
    x;
    /// The absolute value.
    Abs, "abs", Number, x.abs();
    /// The number with the other sign.
    Neg, "neg", Signed, -x;
    /// -1, 0 or 1.
    Sign, "sign", Number, if x > 0.0 { 1.0 } else if x < 0.0 { -1.0 } else { x };
    /// `1 / x`.
    Reciprocal, "reciprocal", Float, 1.0 / x;
    /// The square root.
    Sqrt, "sqrt", Float, x.sqrt();
    /// `1 / sqrt(x)`.
    Rsqrt, "rsqrt", Float, 1.0 / x.sqrt();
    /// `e` to the power of `x`.
    Exp, "exp", Float, x.exp();
    /// The natural logarithm.
    Log, "log", Float, x.ln();
    /// The sine; angles are in radians throughout.
    Sin, "sin", Float, x.sin();
    /// The cosine.
    Cos, "cos", Float, x.cos();
    /// The tangent.
    Tan, "tan", Float, x.tan();
    /// The inverse sine.
    Asin, "asin", Float, x.asin();
    /// The inverse cosine.
    Acos, "acos", Float, x.acos();
    /// The inverse tangent.
    Atan, "atan", Float, x.atan();
    /// The hyperbolic sine.
    Sinh, "sinh", Float, x.sinh();
    /// The hyperbolic cosine.
    Cosh, "cosh", Float, x.cosh();
    /// The hyperbolic tangent.
    Tanh, "tanh", Float, x.tanh();
    /// The inverse hyperbolic sine.
    Asinh, "asinh", Float, x.asinh();
    /// The inverse hyperbolic cosine.
    Acosh, "acosh", Float, x.acosh();
    /// The inverse hyperbolic tangent.
    Atanh, "atanh", Float, x.atanh();
    /// The error function.
    Erf, "erf", Float, libm::erf(x);
    /// The next integer below.
    Floor, "floor", Number, x.floor();
    /// The next integer above.
    Ceil, "ceil", Number, x.ceil();
    /// The nearest integer; halves go to the even one.
    Round, "round", Number, x.round_ties_even();
    /// The next integer towards 0.
    Trunc, "trunc", Number, x.trunc();
    /// `max(x, 0)`.
    Relu, "relu", Number, if x < 0.0 { 0.0 } else { x };
    /// `x`, or `alpha * x` below 0.
    LeakyRelu { alpha = 0.01 }, "leaky_relu", Float, if x < 0.0 { alpha * x } else { x };
    /// `x` above `alpha`, else 0.
    ThresholdedRelu { alpha = 1.0 }, "thresholded_relu", Float, if x > alpha || x.is_nan() { x } else { 0.0 };
    /// `x`, or `alpha * (exp(x) - 1)` below 0.
    Elu { alpha = 1.0 }, "elu", Float, if x < 0.0 { alpha * x.exp_m1() } else { x };
    /// `x`, or `alpha * (exp(x / alpha) - 1)` below 0.
    Celu { alpha = 1.0 }, "celu", Float, if x < 0.0 { alpha * (x / alpha).exp_m1() } else { x };
    /// `gamma * x`, or `gamma * alpha * (exp(x) - 1)` up to 0.
    Selu { alpha = 1.673_263_192_176_818_8, gamma = 1.050_701_022_148_132_3 }, "selu", Float, if x > 0.0 { gamma * x } else { gamma * alpha * x.exp_m1() };
    /// `alpha * x + beta`, within 0 and 1.
    HardSigmoid { alpha = 0.2, beta = 0.5 }, "hard_sigmoid", Float, clamp(alpha * x + beta, 0.0, 1.0);
    /// `x` times `x / 6 + 1 / 2` within 0 and 1.
    HardSwish, "hard_swish", Float, x * clamp(x / 6.0 + 0.5, 0.0, 1.0);
    /// `1 / (1 + exp(-x))`.
    Sigmoid, "sigmoid", Float, sigmoid(x);
    /// `x * sigmoid(x)`.
    Silu, "silu", Float, x * sigmoid(x);
    /// `x * tanh(softplus(x))`.
    Mish, "mish", Float, x * softplus(x).tanh();
    /// `log(1 + exp(x))`.
    Softplus, "softplus", Float, softplus(x);
    /// `x / (1 + |x|)`.
    Softsign, "softsign", Float, x / (1.0 + x.abs());
    /// `x / 2 * (1 + erf(x / sqrt(2)))`.
    Gelu, "gelu", Float, 0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2);
    /// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`.
    GeluTanh, "gelu_tanh", Float, gelu_tanh(x);
    /// The other truth value.
    Not, "not", Bool, if x == 0.0 { 1.0 } else { 0.0 };
    /// Every bit inverted.
    BitNot, "bit_not", Int, -x - 1.0;
    /// Whether the number is NaN; a `Bool`.
    IsNan, "is_nan", Float, f64::from(u8::from(x.is_nan()));
    /// Whether the number is infinite; a `Bool`.
    IsInf, "is_inf", Float, f64::from(u8::from(x.is_infinite()));
    /// Whether the number is positive infinity; a `Bool`.
    IsPosInf, "is_pos_inf", Float, f64::from(u8::from(x == f64::INFINITY));
    /// Whether the number is negative infinity; a `Bool`.
    IsNegInf, "is_neg_inf", Float, f64::from(u8::from(x == f64::NEG_INFINITY));
    /// The element itself.
    Identity, "identity", Any, x;
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p() + if x.is_nan() { x } else { 0.0 }
}

fn gelu_tanh(x: f64) -> f64 {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
    // 0.5 * (1 + tanh(y)) = sigmoid(2 y), without cancellation.
    x * sigmoid(2.0 * inner)
}

/// `x` within the bounds; NaN stays.
fn clamp(x: f64, low: f64, high: f64) -> f64 {
    if x < low {
        low
    } else if x > high {
        high
    } else {
        x
    }
}

impl Unary {
    /// The value at an integer, exact, for the functions that take integers; others give `x`.
    pub(crate) fn at_int(self, x: i128) -> i128 {
        match self {
            Unary::Abs => x.abs(),
            Unary::Neg => -x,
            Unary::Sign => x.signum(),
            Unary::Relu => x.max(0),
            Unary::Not => i128::from(x == 0),
            Unary::BitNot => !x,
            _ => x,
        }
    }

    /// The element type of the result.
    fn result(self, operand: DType) -> DType {
        match self {
            Unary::IsNan | Unary::IsInf | Unary::IsPosInf | Unary::IsNegInf => DType::Bool,
            _ => operand,
        }
    }
}

impl OpDef for Unary {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let operands = Operands::new(inputs, 1, 1)?;
        if *self == Unary::Identity {
            let fact = inputs[0].ok_or(TypeError::Missing { operand: 0 })?;
            return Ok(vec![fact.clone()]);
        }
        let t = operands.tensor(0)?;
        self.domain().check(t.dtype)?;
        let fact = Fact::tensor(self.result(t.dtype), t.shape.iter().cloned());
        let known = operands.known(0).unwrap_or_default().iter().map(|k| match (self, k) {
            (Unary::Neg, Some(d)) => Some(Dim::from(0) - d.clone()),
            (Unary::Floor | Unary::Ceil | Unary::Round | Unary::Trunc, d) => d.clone(),
            _ => None,
        });
        let known = known.collect();
        Ok(vec![fact.with_known(known)])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        if *self == Unary::Identity {
            let datum = inputs.0.first().copied().flatten();
            return Ok(vec![datum.ok_or(TypeError::Missing { operand: 0 })?.clone()]);
        }
        let t = inputs.tensor(0)?;
        self.domain().check(t.dtype())?;
        let dtype = self.result(t.dtype());
        if t.dtype() == DType::F32 && dtype == DType::F32 {
            let to: Vec<f32> =
                t.elements::<f32>().iter().map(|&x| self.at(f64::from(x)) as f32).collect();
            return one(Tensor::of(t.dims(), &to));
        }
        let to = match Elements::of(t) {
            Elements::Float(v) => Elements::Float(v.into_iter().map(|x| self.at(x)).collect()),
            Elements::Int(v) => Elements::Int(v.into_iter().map(|x| self.at_int(x)).collect()),
        };
        one(to.into_tensor(dtype, t.dims()))
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        AxisMap::pointwise(inputs, outputs)
    }

    fn body(&self, _: &[Option<&Fact>]) -> Option<Body> {
        Some(Body::of(vec![Scalar::Input(0), Scalar::Unary(*self, 0)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(f: Unary, x: f64) -> f64 {
        f.at(x)
    }

    #[test]
    fn functions_hit_known_points() {
        let near = |f: Unary, x: f64, y: f64| {
            let got = at(f, x);
            assert!(
                (got - y).abs() <= 1e-12 * y.abs().max(1e-3),
                "{}({x}) = {got}, not {y}",
                f.name()
            );
        };
        near(Unary::Erf, 0.5, 0.520_499_877_813_046_5);
        near(Unary::Gelu, 1.0, 0.841_344_746_068_542_9);
        near(Unary::GeluTanh, 1.0, 0.841_191_990_608_276_9);
        near(Unary::Mish, 1.0, 0.865_098_388_267_102_6);
        near(Unary::Softplus, -40.0, 4.248_354_255_291_589e-18);
        near(Unary::Round, 2.5, 2.0);
        near(Unary::Round, -3.5, -4.0);
        near(Unary::HardSwish, 1.0, 2.0 / 3.0);
        near(Unary::Celu { alpha: Real::new(2.0) }, -1.0, 2.0 * (-0.5f64).exp_m1());
    }

    #[test]
    fn nan_stays_nan() {
        for &f in Unary::ALL {
            if f.domain() == Domain::Bool || f.result(DType::F32) == DType::Bool {
                continue;
            }
            assert!(at(f, f64::NAN).is_nan(), "{}", f.name());
        }
    }

    #[test]
    fn infinities_are_as_the_formulas_have_them() {
        for f in [Unary::Silu, Unary::Mish, Unary::Gelu, Unary::GeluTanh, Unary::HardSwish] {
            assert!(at(f, f64::NEG_INFINITY).is_nan(), "{}", f.name());
            assert_eq!(at(f, f64::INFINITY), f64::INFINITY, "{}", f.name());
        }
        assert!(at(Unary::Softsign, f64::INFINITY).is_nan());
    }
}
