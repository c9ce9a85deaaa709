//! Elementwise ops that are not a plain function of one or two numbers.

use super::{
    OpDef,
    elements::{
        Elements, broadcast_strides, for_each_run, ints, one, packed, pick, sizes, whole_bytes,
    },
    results,
    types::{Operands, attribute, broadcast, expect_dtype},
};
use crate::{AxisMap, Body, EvalError, Fact, Inputs, Real, Scalar, TypeError};
use bricolage_tensor::{DType, Datum, Dim, Narrowing, Powers, Storage, Tensor};
use serde::{Deserialize, Serialize};

/// The second operand where the first is true, else the third; all three broadcast.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Select;

impl OpDef for Select {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let operands = Operands::new(inputs, 3, 3)?;
        let (c, a, b) = (operands.tensor(0)?, operands.tensor(1)?, operands.tensor(2)?);
        expect_dtype(0, c.dtype, |d| d == DType::Bool, "bool")?;
        operands.same_dtype(1, 2)?;
        let shape = broadcast(&[(0, &c.shape), (1, &a.shape), (2, &b.shape)])?;
        let fact = Fact::tensor(a.dtype, shape.iter().cloned());
        let known = match (operands.known(0), operands.known(1), operands.known(2)) {
            (Some(c), Some(a), Some(b)) => {
                let pick = |v: &[Option<Dim>], i: usize| {
                    v.get(if v.len() == 1 { 0 } else { i }).cloned().flatten()
                };
                let count = shape.element_count().unwrap_or(0) as usize;
                let at = |i| match pick(c, i)?.as_const()? {
                    0 => pick(b, i),
                    _ => pick(a, i),
                };
                (0..count).map(at).collect()
            }
            _ => Vec::new(),
        };
        Ok(vec![fact.with_known(known)])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (_, dims) = results(self, inputs)?.swap_remove(0);
        let shape = sizes(&dims);
        let (c, a, b) = (inputs.tensor(0)?, inputs.tensor(1)?, inputs.tensor(2)?);
        // Both branches lie one after the other, so that choosing is a copy of elements.
        let (first, second) = (whole_bytes(a)?, whole_bytes(b)?);
        let both = Storage::copy_of(&[first.bytes(), second.bytes()].concat());
        let both = Tensor::new(first.dtype(), &[(a.len() + b.len()) as i64], both)?;
        let strides = [c, a, b].map(|t| broadcast_strides(&sizes(t.dims()), &shape));
        let steps = strides.each_ref().map(|s| s.last().copied().unwrap_or(0));
        let inner = shape.last().copied().unwrap_or(1);
        let (truth, second) = (c.bytes(), a.len());
        let chosen = pick(&both, &dims, |out| {
            for_each_run(&shape, strides.each_ref().map(Vec::as_slice), |_, [pc, pa, pb]| {
                for i in 0..inner {
                    out(if truth[pc + i * steps[0]] != 0 {
                        pa + i * steps[1]
                    } else {
                        second + pb + i * steps[2]
                    });
                }
            });
        })?;
        one(packed(a.dtype(), &chosen))
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        AxisMap::pointwise(inputs, outputs)
    }

    fn body(&self, _: &[Option<&Fact>]) -> Option<Body> {
        let inputs = (0..3).map(Scalar::Input);
        Some(Body::of(inputs.chain([Scalar::Select(0, 1, 2)]).collect()))
    }
}

/// Conversion of every element to another type. Floats round to nearest, or towards 0 for an
/// integer type; integers wrap; `Bool` is true for all but 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cast {
    /// The type of the result.
    pub to: DType,
    /// A float outside an integer type gives its nearest end; otherwise it wraps. A number outside a
    /// float type of at most eight bits gives its largest; otherwise infinity or NaN.
    pub saturate: bool,
    /// Which power of two a number becomes where `to` is `F8E8M0`.
    #[serde(default, skip_serializing_if = "is_up")]
    pub powers: Powers,
}

fn is_up(powers: &Powers) -> bool {
    *powers == Powers::Up
}

impl Cast {
    /// A saturating conversion.
    pub const fn to(to: DType) -> Cast {
        Cast { to, saturate: true, powers: Powers::Up }
    }
}

impl OpDef for Cast {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let operands = Operands::new(inputs, 1, 1)?;
        let t = operands.tensor(0)?;
        let fact = Fact::tensor(self.to, t.shape.iter().cloned());
        // Numbers are folded exactly; a size stays itself in the types that sizes have.
        let wide = matches!(self.to, DType::I64 | DType::I32);
        let keeps = |d: &&Dim| wide && d.as_const().is_none_or(|v| i32::try_from(v).is_ok());
        let known = operands.known(0).unwrap_or_default().iter();
        let known = known.map(|k| k.as_ref().filter(keeps).cloned()).collect();
        Ok(vec![fact.with_known(known)])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let t = inputs.tensor(0)?;
        let how = Narrowing { saturate: self.saturate, powers: self.powers };
        let narrow = |v: &[f64]| Tensor::from_f64_narrowing(self.to, t.dims(), v, how);
        one(match Elements::of(t) {
            Elements::Int(v) if self.to.is_narrow_float() => {
                narrow(&v.iter().map(|&x| x as f64).collect::<Vec<_>>())
            }
            Elements::Int(v) => ints(self.to, t.dims(), &v),
            Elements::Float(v) if self.to.is_int() && !self.saturate => {
                ints(self.to, t.dims(), &v.iter().map(|&x| x as i128).collect::<Vec<_>>())
            }
            Elements::Float(v) => narrow(&v),
        })
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        AxisMap::pointwise(inputs, outputs)
    }

    fn body(&self, _: &[Option<&Fact>]) -> Option<Body> {
        Some(Body::of(vec![Scalar::Input(0), Scalar::Cast(self.to, 0)]))
    }
}

/// Limits every element to an interval; NaN stays. Bounds that are values are written with
/// [`super::Binary::Min`] and [`super::Binary::Max`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Clip {
    /// The least value of the result.
    pub min: Option<Real>,
    /// The greatest value of the result; it wins where the bounds cross.
    pub max: Option<Real>,
}

impl OpDef for Clip {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let t = Operands::new(inputs, 1, 1)?.number(0)?;
        for (name, bound) in [("min", self.min), ("max", self.max)] {
            if bound.is_some_and(|b| b.get().is_nan()) {
                return Err(attribute(name, "a number", bound));
            }
        }
        Ok(vec![Fact::tensor(t.dtype, t.shape.iter().cloned())])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let t = inputs.tensor(0)?;
        let (low, high) = (self.min.map(Real::get), self.max.map(Real::get));
        one(match Elements::of(t) {
            Elements::Float(mut v) => {
                for x in &mut v {
                    *x = low.filter(|low| *x < *low).unwrap_or(*x);
                    *x = high.filter(|high| *x > *high).unwrap_or(*x);
                }
                Elements::Float(v)
            }
            Elements::Int(mut v) => {
                let (low, high) = (low.map(|b| b.ceil() as i128), high.map(|b| b.floor() as i128));
                for x in &mut v {
                    *x = low.map_or(*x, |low| low.max(*x));
                    *x = high.map_or(*x, |high| high.min(*x));
                }
                Elements::Int(v)
            }
        }
        .into_tensor(t.dtype(), t.dims()))
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        AxisMap::pointwise(inputs, outputs)
    }

    fn body(&self, _: &[Option<&Fact>]) -> Option<Body> {
        use super::Binary::{Max, Min};
        let mut steps = vec![Scalar::Input(0)];
        for (bound, f) in [(self.min, Max), (self.max, Min)] {
            if let Some(bound) = bound {
                let x = steps.len() - 1;
                steps.extend([Scalar::Constant(bound), Scalar::Binary(f, x, x + 1)]);
            }
        }
        Some(Body::of(steps))
    }
}
