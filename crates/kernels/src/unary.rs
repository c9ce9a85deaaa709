//! Functions of one `f32`, used by pointwise kernels and by the epilogues of contractions.

use crate::{
    math,
    simd::{Body, LANES, Simd},
};
use serde::{Deserialize, Serialize};

/// A function of one `f32`; names and parameters as in ONNX.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Unary {
    Neg,
    Abs,
    Sign,
    Ceil,
    Floor,
    /// To the nearest integer, ties to even.
    Round,
    Trunc,
    Sqrt,
    /// `1 / sqrt(x)`.
    Rsqrt,
    /// `1 / x`.
    Reciprocal,
    Square,
    Exp,
    Log,
    Erf,
    Tanh,
    Sigmoid,
    /// `x` above 0, else 0.
    Relu,
    LeakyRelu {
        alpha: f32,
    },
    /// `x` above `alpha`, else 0.
    ThresholdedRelu {
        alpha: f32,
    },
    /// `x` above 0, else `alpha (e^x - 1)`.
    Elu {
        alpha: f32,
    },
    /// `max(x, 0) + min(0, alpha (e^(x / alpha) - 1))`.
    Celu {
        alpha: f32,
    },
    /// `gamma x` above 0, else `gamma alpha (e^x - 1)`.
    Selu {
        alpha: f32,
        gamma: f32,
    },
    Clip {
        min: f32,
        max: f32,
    },
    /// `max(0, min(1, alpha x + beta))`.
    HardSigmoid {
        alpha: f32,
        beta: f32,
    },
    /// `x max(0, min(1, x / 6 + 1/2))`.
    HardSwish,
    /// `ln(1 + e^x)`.
    Softplus,
    /// `x / (1 + |x|)`.
    Softsign,
    /// `x` times the normal distribution function.
    Gelu,
    /// The approximation of [`Unary::Gelu`] by a hyperbolic tangent.
    GeluTanh,
    /// `x / (1 + e^(-alpha x))`; `alpha` 1 is SiLU.
    Swish {
        alpha: f32,
    },
    /// `x tanh(ln(1 + e^x))`.
    Mish,
    /// `scale x + shift`.
    Affine {
        scale: f32,
        shift: f32,
    },
    Sin,
    Cos,
    Tan,
    Asin,
    Acos,
    Atan,
    Sinh,
    Cosh,
    Asinh,
    Acosh,
    Atanh,
    /// 1 where `x` is 0, else 0.
    Not,
    /// 1 where `x` is NaN, else 0.
    IsNaN,
    /// 1 where `x` is infinite with an asked-for sign, else 0.
    IsInf {
        negative: bool,
        positive: bool,
    },
}

impl Unary {
    /// The bounds of a function that only clamps.
    pub(crate) fn as_clamp(self) -> Option<(f32, f32)> {
        match self {
            Unary::Relu => Some((0.0, f32::INFINITY)),
            Unary::Clip { min, max } => Some((min, max)),
            _ => None,
        }
    }
}

/// Applies a function to `len` elements from `src` to `dst`, which may be the same.
///
/// # Safety
/// Both pointers are valid for `len` elements.
pub(crate) struct MapUnary {
    pub(crate) op: Unary,
    pub(crate) src: *const f32,
    pub(crate) dst: *mut f32,
    pub(crate) len: usize,
}

/// The loop over all elements: four vectors at a time, then one, then part of one.
macro_rules! all {
    ($self:ident, $x:ident, $four:expr, $one:expr) => {{
        let mut i = 0;
        while S::SPECIAL && i + 4 * LANES <= $self.len {
            let p = $self.src.add(i);
            let $x = [S::load(p), S::load(p.add(8)), S::load(p.add(16)), S::load(p.add(24))];
            let y: [S::V; 4] = $four;
            for q in 0..4 {
                S::store($self.dst.add(i + LANES * q), y[q]);
            }
            i += 4 * LANES;
        }
        while i < $self.len {
            let n = ($self.len - i).min(LANES);
            let $x = [if n == LANES {
                S::load($self.src.add(i))
            } else {
                S::load_part($self.src.add(i), n)
            }];
            let y: [S::V; 1] = $one;
            if n == LANES {
                S::store($self.dst.add(i), y[0]);
            } else {
                S::store_part($self.dst.add(i), y[0], n);
            }
            i += n;
        }
    }};
}

/// A function given as an expression on one vector.
macro_rules! simple {
    ($self:ident, $x:ident => $e:expr) => {
        all!(
            $self,
            v,
            {
                let mut y = [S::zero(); 4];
                for q in 0..4 {
                    let $x = v[q];
                    y[q] = $e;
                }
                y
            },
            {
                let $x = v[0];
                [$e]
            }
        )
    };
}

/// A function given as a generic function on several vectors.
macro_rules! chains {
    ($self:ident, $f:ident) => {
        chains!($self, x => x, $f, (x, y) => y)
    };
    ($self:ident, $pre:ident => $before:expr, $f:ident, ($x:ident, $y:ident) => $after:expr) => {
        all!(
            $self,
            v,
            {
                let mut t = v;
                for q in 0..4 {
                    let $pre = v[q];
                    t[q] = $before;
                }
                let mut y = math::$f::<S, 4>(t);
                for q in 0..4 {
                    let ($x, $y) = (v[q], y[q]);
                    let _ = $x;
                    y[q] = $after;
                }
                y
            },
            {
                let $pre = v[0];
                let y = math::$f::<S, 1>([$before]);
                let ($x, $y) = (v[0], y[0]);
                let _ = $x;
                [$after]
            }
        )
    };
}

/// A function of the standard library, one lane at a time.
macro_rules! scalar {
    ($self:ident, $f:expr) => {
        for i in 0..$self.len {
            *$self.dst.add(i) = $f(*$self.src.add(i));
        }
    };
}

/// [`MapUnary`] for the function with one number only, so that each function has code of its own.
struct One<const FUNCTION: u8>(MapUnary);

macro_rules! numbered {
    ($($name:ident)*) => {
        #[derive(Clone, Copy)]
        #[repr(u8)]
        enum Function {
            $($name),*
        }

        impl Unary {
            fn function(self) -> Function {
                match self {
                    $(Unary::$name { .. } => Function::$name),*
                }
            }
        }

        impl Body for MapUnary {
            type Out = ();

            #[inline(always)]
            unsafe fn run<S: Simd>(self) {
                match self.op.function() {
                    $(Function::$name => S::enter(One::<{ Function::$name as u8 }>(self))),*
                }
            }
        }
    };
}

numbered! {
    Neg Abs Sign Ceil Floor Round Trunc Sqrt
    Rsqrt Reciprocal Square Exp Log Erf Tanh Sigmoid
    Relu LeakyRelu ThresholdedRelu Elu Celu Selu Clip HardSigmoid
    HardSwish Softplus Softsign Gelu GeluTanh Swish Mish Affine
    Sin Cos Tan Asin Acos Atan Sinh Cosh
    Asinh Acosh Atanh Not IsNaN IsInf
}

impl<const FUNCTION: u8> Body for One<FUNCTION> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        self.0.apply::<S, FUNCTION>();
    }
}

/// The arm of the function with number `FUNCTION`; the others are not even compiled.
macro_rules! arm {
    ($op:expr; $(Unary::$name:ident $({ $($field:ident),* })? => $body:expr,)*) => {
        $(
            if const { FUNCTION == Function::$name as u8 } {
                if let Unary::$name $({ $($field),* })? = $op {
                    $body
                }
            }
        )*
    };
}

impl MapUnary {
    #[inline(always)]
    unsafe fn apply<S: Simd, const FUNCTION: u8>(self) {
        let one = S::splat(1.0);
        let zero = S::zero();
        arm! { self.op;
            Unary::Neg => simple!(self, x => math::neg::<S>(x)),
            Unary::Abs => simple!(self, x => math::abs::<S>(x)),
            Unary::Sign => simple!(self, x => {
                let sign = S::or(S::and(x, S::splat(-0.0)), one);
                S::select(S::or(S::eq(x, zero), S::nan(x)), x, sign)
            }),
            Unary::Ceil => simple!(self, x => S::ceil(x)),
            Unary::Floor => simple!(self, x => S::floor(x)),
            Unary::Round => simple!(self, x => S::round(x)),
            Unary::Trunc => simple!(self, x => S::trunc(x)),
            Unary::Sqrt => simple!(self, x => S::sqrt(x)),
            Unary::Rsqrt => simple!(self, x => S::div(one, S::sqrt(x))),
            Unary::Reciprocal => simple!(self, x => S::div(one, x)),
            Unary::Square => simple!(self, x => S::mul(x, x)),
            Unary::Exp => chains!(self, exp),
            Unary::Log => chains!(self, log),
            Unary::Erf => chains!(self, erf),
            Unary::Tanh => chains!(self, tanh),
            Unary::Sigmoid => chains!(self, sigmoid),
            Unary::Relu => simple!(self, x => S::max(zero, x)),
            Unary::LeakyRelu { alpha } => {
                let alpha = S::splat(alpha);
                simple!(self, x => S::select(S::lt(x, zero), S::mul(x, alpha), x))
            },
            Unary::ThresholdedRelu { alpha } => {
                let alpha = S::splat(alpha);
                simple!(self, x => S::andnot(S::le(x, alpha), x))
            },
            Unary::Elu { alpha } => {
                let alpha = S::splat(alpha);
                chains!(self, x => x, expm1,
                    (x, y) => S::select(S::lt(x, zero), S::mul(alpha, y), x))
            },
            Unary::Celu { alpha } => {
                let (alpha, inverse) = (S::splat(alpha), S::splat(1.0 / alpha));
                chains!(self, x => S::mul(x, inverse), expm1,
                    (x, y) => S::select(S::nan(x), x,
                        S::add(S::max(x, zero), S::min(zero, S::mul(alpha, y)))))
            },
            Unary::Selu { alpha, gamma } => {
                let (low, gamma) = (S::splat(alpha * gamma), S::splat(gamma));
                chains!(self, x => x, expm1,
                    (x, y) => S::select(S::le(x, zero), S::mul(low, y), S::mul(gamma, x)))
            },
            Unary::Clip { min, max } => simple!(self, x => math::clamp::<S>(x, min, max)),
            Unary::HardSigmoid { alpha, beta } => {
                let (alpha, beta) = (S::splat(alpha), S::splat(beta));
                simple!(self, x => math::clamp::<S>(S::fma(x, alpha, beta), 0.0, 1.0))
            },
            Unary::HardSwish => {
                let sixth = S::splat(1.0 / 6.0);
                simple!(self, x => S::mul(x,
                    math::clamp::<S>(S::fma(x, sixth, S::splat(0.5)), 0.0, 1.0)))
            },
            Unary::Softplus => chains!(self, x => x, softplus, (x, y) => y),
            Unary::Softsign => simple!(self, x => S::div(x, S::add(one, math::abs::<S>(x)))),
            Unary::Gelu => chains!(self, gelu),
            Unary::GeluTanh => {
                let (a, b) = (S::splat(1.595_769), S::splat(1.595_769 * 0.044_715));
                chains!(self, x => S::mul(x, S::fma(S::mul(x, x), b, a)), sigmoid,
                    (x, y) => S::mul(x, y))
            },
            Unary::Swish { alpha } => {
                let alpha = S::splat(alpha);
                chains!(self, x => S::mul(alpha, x), sigmoid, (x, y) => S::mul(x, y))
            },
            Unary::Mish => {
                // tanh(ln(1 + e)) = e (e + 2) / (e (e + 2) + 2), which is 1 in f32 above 20.
                let (top, two) = (S::splat(20.0), S::splat(2.0));
                chains!(self, x => S::min(top, x), exp, (x, y) => {
                    let t = S::mul(y, S::add(y, two));
                    S::mul(x, S::div(t, S::add(t, two)))
                })
            },
            Unary::Affine { scale, shift } => {
                let (scale, shift) = (S::splat(scale), S::splat(shift));
                simple!(self, x => S::fma(x, scale, shift))
            },
            Unary::Sin => scalar!(self, f32::sin),
            Unary::Cos => scalar!(self, f32::cos),
            Unary::Tan => scalar!(self, f32::tan),
            Unary::Asin => scalar!(self, f32::asin),
            Unary::Acos => scalar!(self, f32::acos),
            Unary::Atan => scalar!(self, f32::atan),
            Unary::Sinh => scalar!(self, f32::sinh),
            Unary::Cosh => scalar!(self, f32::cosh),
            Unary::Asinh => scalar!(self, |x: f32| f64::from(x).asinh() as f32),
            Unary::Acosh => scalar!(self, |x: f32| f64::from(x).acosh() as f32),
            Unary::Atanh => scalar!(self, |x: f32| f64::from(x).atanh() as f32),
            Unary::Not => simple!(self, x => S::and(S::eq(x, zero), one)),
            Unary::IsNaN => simple!(self, x => S::and(S::nan(x), one)),
            Unary::IsInf { negative, positive } => {
                let low = if negative { S::splat(f32::NEG_INFINITY) } else { S::splat(f32::NAN) };
                let high = if positive { S::splat(f32::INFINITY) } else { S::splat(f32::NAN) };
                simple!(self, x => S::and(S::or(S::eq(x, low), S::eq(x, high)), one))
            },
        }
    }
}
