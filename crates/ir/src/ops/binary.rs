//! Elementwise functions of two operands, broadcast by numpy's rules.

use super::{
    OpDef,
    elements::{Elements, broadcast_strides, for_each_run, one, sizes},
    results,
    types::{Operands, broadcast, expect_dtype},
};
use crate::{AxisMap, Body, EvalError, Fact, Inputs, Scalar, TypeError};
use bricolage_tensor::{DType, Datum, Dim, Ranges};
use serde::{Deserialize, Serialize};

/// Declares the functions and the list of all of them.
macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// A scalar function of two numbers. Comparisons give `Bool`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum Binary {
            $($(#[$doc])* $name,)*
        }

        impl Binary {
            /// Every function.
            pub const ALL: &'static [Binary] = &[$(Binary::$name,)*];
        }
    };
}

functions! {
    /// `a + b`.
    Add,
    /// `a - b`.
    Sub,
    /// `a * b`.
    Mul,
    /// `a / b`; integers truncate towards 0.
    Div,
    /// The remainder with the sign of `b`.
    Mod,
    /// The remainder with the sign of `a`.
    Fmod,
    /// `a` to the power of `b`, which may have another element type; the result has `a`'s.
    Pow,
    /// The smaller; NaN if either is.
    Min,
    /// The larger; NaN if either is.
    Max,
    /// Both true.
    And,
    /// Either true.
    Or,
    /// Exactly one true.
    Xor,
    /// Bits set in both.
    BitAnd,
    /// Bits set in either.
    BitOr,
    /// Bits set in exactly one.
    BitXor,
    /// `a` shifted up by `b` bits; 0 from the width on, and for a negative `b`.
    ShiftLeft,
    /// `a` shifted down by `b` bits; a negative `b` shifts out every bit, as a large one does.
    ShiftRight,
    /// `a`, or `a * b` where `a` is below 0.
    Prelu,
    /// `a == b`.
    Equal,
    /// `a < b`.
    Less,
    /// `a <= b`.
    LessEqual,
    /// `a > b`.
    Greater,
    /// `a >= b`.
    GreaterEqual,
}

use Binary::*;

impl Binary {
    /// Whether the result is a truth value.
    pub const fn compares(self) -> bool {
        matches!(self, Equal | Less | LessEqual | Greater | GreaterEqual)
    }

    /// Whether the operands may change places.
    pub const fn commutes(self) -> bool {
        matches!(self, Add | Mul | Min | Max | And | Or | Xor | BitAnd | BitOr | BitXor | Equal)
    }

    fn check(self, operand: usize, dtype: DType) -> Result<(), TypeError> {
        let (allowed, name): (fn(DType) -> bool, _) = match self {
            And | Or | Xor => (|d| d == DType::Bool, "bool"),
            BitAnd | BitOr | BitXor | ShiftLeft | ShiftRight => (DType::is_int, "integer"),
            Equal => (|_| true, "any"),
            _ => (|d| d != DType::Bool, "number"),
        };
        expect_dtype(operand, dtype, allowed, name)
    }

    /// The value for two floats; truth values are 0 and 1. Functions of integers alone give NaN.
    pub fn at(self, a: f64, b: f64) -> f64 {
        let truth = |t: bool| f64::from(u8::from(t));
        match self {
            Add => a + b,
            Sub => a - b,
            Mul => a * b,
            Div => a / b,
            Mod => {
                let rest = a % b;
                if rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest }
            }
            Fmod => a % b,
            Pow => a.powf(b),
            Min if a.is_nan() || b.is_nan() => f64::NAN,
            Max if a.is_nan() || b.is_nan() => f64::NAN,
            Min => a.min(b),
            Max => a.max(b),
            Prelu => {
                if a < 0.0 {
                    a * b
                } else {
                    a
                }
            }
            And => truth(a != 0.0 && b != 0.0),
            Or => truth(a != 0.0 || b != 0.0),
            Xor => truth((a != 0.0) != (b != 0.0)),
            Equal => truth(a == b),
            Less => truth(a < b),
            LessEqual => truth(a <= b),
            Greater => truth(a > b),
            GreaterEqual => truth(a >= b),
            BitAnd | BitOr | BitXor | ShiftLeft | ShiftRight => f64::NAN,
        }
    }

    /// The value for two integers of a type of `bits` bits, before wrapping. `None` for a
    /// division by 0.
    pub(crate) fn at_int(self, a: i128, b: i128, bits: u64) -> Option<i128> {
        Some(match self {
            Add => a + b,
            Sub => a - b,
            Mul => a.wrapping_mul(b),
            Div => a.checked_div(b)?,
            Mod => {
                let rest = a.checked_rem(b)?;
                if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
            }
            Fmod => a.checked_rem(b)?,
            Pow => power(a, b)?,
            Min => a.min(b),
            Max => a.max(b),
            And => i128::from(a != 0 && b != 0),
            Or => i128::from(a != 0 || b != 0),
            Xor => i128::from((a != 0) != (b != 0)),
            BitAnd => a & b,
            BitOr => a | b,
            BitXor => a ^ b,
            ShiftLeft if b < 0 || b >= i128::from(bits) => 0,
            ShiftLeft => a.wrapping_shl(b as u32),
            ShiftRight if b < 0 => a >> 127,
            ShiftRight => a >> b.min(127),
            Prelu if a < 0 => a.wrapping_mul(b),
            Prelu => a,
            Equal => i128::from(a == b),
            Less => i128::from(a < b),
            LessEqual => i128::from(a <= b),
            Greater => i128::from(a > b),
            GreaterEqual => i128::from(a >= b),
        })
    }

    /// The result for sizes that are known as expressions.
    fn at_dim(self, a: &Dim, b: &Dim) -> Option<Dim> {
        match self {
            Add => Some(a + b),
            Sub => Some(a - b),
            Mul => Some(a * b),
            Min => Some(a.smaller(b)),
            Max => Some(a.larger(b)),
            // Sizes are not negative: truncation is the floor when the divisor is positive.
            Div if b.as_const().is_some_and(|b| b > 0) && a.as_const().is_none_or(|a| a >= 0) => {
                Some(a.floor_div(b))
            }
            Equal if a == b => Some(Dim::from(1)),
            // Sizes are not negative, which tells them from the -1 that stands for one to be found.
            Equal => match (a - b).bounds(&Ranges::default()) {
                (0, 0) => Some(Dim::from(1)),
                (low, high) if low > 0 || high < 0 => Some(Dim::from(0)),
                _ => None,
            },
            _ => None,
        }
    }
}

fn power(base: i128, exponent: i128) -> Option<i128> {
    if exponent < 0 {
        return match base {
            0 => None,
            1 => Some(1),
            -1 => Some(if exponent % 2 == 0 { 1 } else { -1 }),
            _ => Some(0),
        };
    }
    let (mut result, mut square, mut left) = (1i128, base, exponent);
    while left > 0 {
        if left % 2 == 1 {
            result = result.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        left /= 2;
    }
    Some(result)
}

impl OpDef for Binary {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let operands = Operands::new(inputs, 2, 2)?;
        let (a, b) = (operands.tensor(0)?, operands.tensor(1)?);
        self.check(0, a.dtype)?;
        self.check(1, b.dtype)?;
        if *self != Pow {
            operands.same_dtype(0, 1)?;
        }
        let shape = broadcast(&[(0, &a.shape), (1, &b.shape)])?;
        let dtype = if self.compares() { DType::Bool } else { a.dtype };
        let fact = Fact::tensor(dtype, shape.iter().cloned());
        let known = match (operands.known(0), operands.known(1), fact.ty.as_tensor()) {
            (Some(a), Some(b), Some(t)) => {
                let count = t.shape.element_count().unwrap_or(0) as usize;
                let pick = |v: &'_ [Option<Dim>], i: usize| {
                    v.get(if v.len() == 1 { 0 } else { i }).cloned().flatten()
                };
                (0..count).map(|i| self.at_dim(&pick(a, i)?, &pick(b, i)?)).collect()
            }
            _ => Vec::new(),
        };
        Ok(vec![fact.with_known(known)])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (dtype, dims) = results(self, inputs)?.swap_remove(0);
        let (a, b) = (inputs.tensor(0)?, inputs.tensor(1)?);
        let shape = sizes(&dims);
        let (sa, sb) = (
            broadcast_strides(&sizes(a.dims()), &shape),
            broadcast_strides(&sizes(b.dims()), &shape),
        );
        let inner = shape.last().copied().unwrap_or(1);
        let step = |s: &[usize]| s.last().copied().unwrap_or(0);
        let (ia, ib) = (step(&sa), step(&sb));
        let count: usize = shape.iter().product();
        let operands = match (Elements::of(a), Elements::of(b)) {
            (Elements::Int(x), Elements::Float(y)) => {
                // Only a power mixes the two.
                (Elements::Float(x.iter().map(|&v| v as f64).collect()), Elements::Float(y))
            }
            (Elements::Float(x), Elements::Int(y)) => {
                (Elements::Float(x), Elements::Float(y.iter().map(|&v| v as f64).collect()))
            }
            same => same,
        };
        let result = match operands {
            (Elements::Float(x), Elements::Float(y)) => {
                let mut to = Vec::with_capacity(count);
                for_each_run(&shape, [&sa, &sb], |_, [pa, pb]| {
                    to.extend((0..inner).map(|i| self.at(x[pa + i * ia], y[pb + i * ib])));
                });
                Elements::Float(to)
            }
            (Elements::Int(x), Elements::Int(y)) => {
                let mut to = Vec::with_capacity(count);
                let mut fault = false;
                for_each_run(&shape, [&sa, &sb], |_, [pa, pb]| {
                    for i in 0..inner {
                        let (x, y) = (x[pa + i * ia], y[pb + i * ib]);
                        let value = self.at_int(x, y, a.dtype().bits());
                        fault |= value.is_none();
                        to.push(value.unwrap_or(0));
                    }
                });
                if fault {
                    let what = "a divisor of 0".to_owned();
                    return Err(EvalError::Domain { operand: 1, what });
                }
                Elements::Int(to)
            }
            _ => return Err(EvalError::Operand { operand: 1, expected: "number" }),
        };
        one(result.into_tensor(dtype, &dims))
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        AxisMap::pointwise(inputs, outputs)
    }

    fn body(&self, _: &[Option<&Fact>]) -> Option<Body> {
        Some(Body::of(vec![Scalar::Input(0), Scalar::Input(1), Scalar::Binary(*self, 0, 1)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_divide_as_the_rows_say() {
        let at = |f: Binary, a, b| f.at_int(a, b, 32);
        assert_eq!(
            (at(Div, -7, 2), at(Mod, -7, 2), at(Fmod, -7, 2)),
            (Some(-3), Some(1), Some(-1))
        );
        assert_eq!((at(Mod, 7, -2), at(Fmod, 7, -2)), (Some(-1), Some(1)));
        assert_eq!((at(Div, 1, 0), at(Pow, 0, -1)), (None, None));
        assert_eq!((at(Pow, 3, 4), at(Pow, -1, -3), at(Pow, 2, -1)), (Some(81), Some(-1), Some(0)));
        assert_eq!((at(ShiftLeft, 1, 32), at(ShiftRight, -8, 1)), (Some(0), Some(-4)));
        assert_eq!(Mod.at(-7.5, 2.0), 0.5);
        assert!(Min.at(f64::NAN, 1.0).is_nan() && Max.at(1.0, f64::NAN).is_nan());
    }
}
