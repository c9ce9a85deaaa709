//! Ops whose sizes are data: what other ops have as attributes, these have as operands.

use super::{
    OpDef, check,
    sequence::apply,
    types::{Operands, attribute, expect_dtype, expect_rank},
};
use crate::{
    AxisMap, EvalError, Fact, Inputs, TypeError,
    ops::{Expand, Pad, PadMode, Reshape, Slice, Tile},
};
use bricolage_tensor::{DType, Datum, Dim, Shape, Symbol, Tensor, Type};
use serde::{Deserialize, Serialize};

/// Which op it is. Operand 0 is what is worked on; the others are integers `[n]`, unless said
/// otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Late {
    /// [`Slice`]: starts, ends and, where they are there, axes and steps. Numbers below 0 count from
    /// the end.
    Slice,
    /// [`Reshape`]: the sizes, of which one may be -1.
    Reshape {
        /// A size of 0 means 0 rather than the size that the dim has.
        zero_is_size: bool,
    },
    /// [`Expand`]: the shape to broadcast with.
    Expand,
    /// [`Tile`]: the repeats.
    Tile,
    /// [`Pad`]: sizes before and after all dims or those in operand 3; operand 2 may hold what to fill
    /// with.
    Pad(PadMode),
    /// One value over and over: operand 0 is the shape, operand 1 the value, `[1]`.
    Fill,
    /// The numbers from operand 0 on up to but without operand 1, operand 2 apart; three scalars of one
    /// type.
    Range,
}

/// An op whose sizes are operands. `shape` is the shape of the result, with symbols of its own for
/// sizes that are data.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Dynamic {
    /// Which op.
    pub op: Late,
    /// Shape of the result.
    pub shape: Shape,
}

impl Late {
    fn operands(self) -> (usize, usize) {
        match self {
            Late::Slice => (3, 5),
            Late::Pad(_) => (2, 4),
            Late::Range => (3, 3),
            Late::Reshape { .. } | Late::Expand | Late::Tile | Late::Fill => (2, 2),
        }
    }

    /// Whether operand `i` holds integers.
    fn counts(self, i: usize) -> bool {
        match self {
            Late::Fill => i == 0,
            Late::Range => false,
            Late::Pad(_) => i == 1 || i == 3,
            _ => i > 0,
        }
    }
}

impl OpDef for Dynamic {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let (min, max) = self.op.operands();
        let operands = Operands::new(inputs, min, max)?;
        for i in 0..inputs.len() {
            if self.op.counts(i)
                && let Some(t) = operands.optional(i)?
            {
                expect_dtype(i, t.dtype, DType::is_int, "integer")?;
                expect_rank(i, t, 0, 1)?;
            }
        }
        let (dtype, rank) = match self.op {
            Late::Fill => (operands.tensor(1)?.dtype, None),
            Late::Range => {
                operands.same_dtype(0, 1)?;
                operands.same_dtype(0, 2)?;
                (operands.number(0)?.dtype, Some(1))
            }
            Late::Reshape { .. } | Late::Expand => (operands.tensor(0)?.dtype, None),
            _ => {
                let t = operands.tensor(0)?;
                (t.dtype, Some(t.shape.len()))
            }
        };
        if rank.is_some_and(|rank| rank != self.shape.len()) {
            return Err(attribute("shape", format!("{rank:?} dims"), &self.shape));
        }
        Ok(vec![Fact::tensor(dtype, self.shape.iter().cloned())])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        check(self, inputs)?;
        let datum = self.compute(inputs)?;
        let dims = match &datum {
            Datum::Tensor(t) => t.dims(),
            Datum::Strings(s) => s.dims(),
            _ => return Err(EvalError::Operand { operand: 0, expected: "tensor" }),
        };
        let fits = dims.len() == self.shape.len()
            && self.shape.iter().zip(dims).all(|(d, &n)| d.as_const().is_none_or(|d| d == n));
        if !fits {
            let what = format!("sizes that give the shape {dims:?}, not {}", self.shape);
            return Err(EvalError::Domain { operand: 1, what });
        }
        Ok(vec![datum])
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        AxisMap::opaque(inputs, outputs)
    }

    fn bind(&self, value: &dyn Fn(&Symbol) -> Option<Dim>) -> Dynamic {
        let shape = self.shape.iter().map(|d| d.substitute(value)).collect();
        Dynamic { op: self.op, shape }
    }
}

fn dims_of(numbers: &[i64]) -> Vec<Dim> {
    numbers.iter().map(|&n| Dim::from(n)).collect()
}

fn domain(operand: usize, what: String) -> EvalError {
    EvalError::Domain { operand, what }
}

impl Dynamic {
    fn compute(&self, inputs: &Inputs<'_>) -> Result<Datum, EvalError> {
        let whole = inputs.0.first().copied().flatten();
        let whole = whole.ok_or(EvalError::Type(TypeError::Missing { operand: 0 }))?;
        let numbers = |i: usize| Ok::<_, EvalError>(inputs.optional(i)?.map(Tensor::to_i64));
        let have = match whole.ty() {
            Some(Type::Tensor(t)) => t.shape,
            Some(Type::Strings(shape)) => shape,
            _ => return Err(EvalError::Operand { operand: 0, expected: "tensor" }),
        };
        let have = have.as_fixed().unwrap_or_default();
        let axes = |list: Option<Vec<i64>>, operand: usize| match list {
            None => Ok((0..have.len()).collect()),
            Some(list) => {
                let axis = |a| super::elements::wrap_index(a, have.len(), operand);
                list.into_iter().map(axis).collect::<Result<Vec<usize>, _>>()
            }
        };
        let second = || numbers(1).map(Option::unwrap_or_default);
        match self.op {
            Late::Slice => {
                let (starts, ends) = (second()?, numbers(2)?.unwrap_or_default());
                let mut axes = axes(numbers(3)?, 3)?;
                axes.truncate(starts.len());
                let steps = numbers(4)?.unwrap_or_else(|| vec![1; starts.len()]);
                let limit = i64::from(i32::MAX);
                let steps = steps.into_iter().map(|s| s.clamp(-limit, limit)).collect();
                let (starts, ends) = (dims_of(&starts), dims_of(&ends));
                apply(Slice { axes, starts, ends, steps }, &[whole])
            }
            Late::Reshape { zero_is_size } => {
                let mut to = second()?;
                for (i, size) in to.iter_mut().enumerate() {
                    if *size == 0 && !zero_is_size {
                        let none = || domain(1, format!("a 0 for dim {i} of {}", have.len()));
                        *size = *have.get(i).ok_or_else(none)?;
                    }
                }
                if let Some(open) = to.iter().position(|&n| n == -1) {
                    let mut others = to.iter().filter(|&&n| n != -1);
                    let others = others.try_fold(1i64, |product, &n| product.checked_mul(n));
                    let Some(others) = others.filter(|&n| n > 0) else {
                        return Err(domain(1, format!("the sizes {to:?}")));
                    };
                    to[open] = have.iter().product::<i64>() / others;
                }
                if to.iter().any(|&n| n < 0) {
                    return Err(domain(1, format!("the sizes {to:?}")));
                }
                apply(Reshape { to: Shape::fixed(&to) }, &[whole])
            }
            Late::Expand => {
                let asked = dims_of(&second()?);
                let have = dims_of(&have);
                let to = super::types::broadcast(&[(0, &have), (1, &asked)])?;
                apply(Expand { to }, &[whole])
            }
            Late::Tile => apply(Tile { repeats: dims_of(&second()?) }, &[whole]),
            Late::Pad(mode) => {
                let (pads, axes) = (second()?, axes(numbers(3)?, 3)?);
                if pads.len() != 2 * axes.len() {
                    let what = format!("{} sizes for {} dims", pads.len(), axes.len());
                    return Err(domain(1, what));
                }
                let mut all = [vec![Dim::from(0); have.len()], vec![Dim::from(0); have.len()]];
                for (i, &axis) in axes.iter().enumerate() {
                    all[0][axis] = Dim::from(pads[i]);
                    all[1][axis] = Dim::from(pads[axes.len() + i]);
                }
                let [before, after] = all;
                let fill = inputs.0.get(2).copied().flatten();
                let fill = fill.filter(|_| mode == PadMode::Constant);
                let operands: Vec<&Datum> = [Some(whole), fill].into_iter().flatten().collect();
                apply(Pad { mode, before, after }, &operands)
            }
            Late::Fill => {
                let to = inputs.tensor(0)?.to_i64();
                if to.iter().any(|&n| n < 0) {
                    return Err(domain(0, format!("the sizes {to:?}")));
                }
                let value: Datum = inputs.tensor(1)?.reshaped(&[])?.into();
                apply(Expand { to: Shape::fixed(&to) }, &[&value])
            }
            Late::Range => range(inputs),
        }
    }
}

/// Most numbers of a range.
const MOST: f64 = (1u64 << 28) as f64;

fn range(inputs: &Inputs<'_>) -> Result<Datum, EvalError> {
    let all = [inputs.tensor(0)?, inputs.tensor(1)?, inputs.tensor(2)?];
    let dtype = all[0].dtype();
    if let Some(operand) = all.iter().position(|t| t.len() != 1) {
        return Err(domain(operand, format!("{} elements, not one", all[operand].len())));
    }
    let [start, end, step] = all.map(|t| t.to_f64()[0]);
    let count = ((end - start) / step).ceil();
    if step == 0.0 || count.is_nan() || count > MOST {
        return Err(domain(2, format!("the step {step} from {start} to {end}")));
    }
    let dims = [count.max(0.0) as i64];
    if !dtype.is_float() {
        let [start, end, step] = all.map(|t| t.to_i64()[0]);
        let (wide, far) = (i128::from(end) - i128::from(start), i128::from(step));
        let count = (wide.abs() + far.abs() - 1) / far.abs();
        let count = if wide.signum() == far.signum() { count as i64 } else { 0 };
        let numbers: Vec<i64> =
            (0..count).map(|i| start.wrapping_add(i.wrapping_mul(step))).collect();
        return Ok(Tensor::from_i64(dtype, &[count], &numbers).into());
    }
    let numbers: Vec<f64> = (0..dims[0]).map(|i| start + i as f64 * step).collect();
    Ok(Tensor::from_f64(dtype, &dims, &numbers).into())
}
