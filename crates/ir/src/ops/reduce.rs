//! Combining all elements along some dims.

use super::{
    Binary, OpDef, Unary,
    elements::{Elements, for_each_run, one, sizes, strides},
    results,
    types::{Operands, attribute, expect_axis, expect_dtype},
};
use crate::{AxisKind, AxisMap, Body, Combiner, EvalError, Fact, Index, Inputs, Scalar, TypeError};
use bricolage_tensor::{DType, Datum, Dim, Tensor, Type};
use serde::{Deserialize, Serialize};

/// How elements are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum ReduceKind {
    /// Sum; 0 of nothing.
    Sum,
    /// Sum divided by the number of elements.
    Mean,
    /// Largest; the lowest number of the type of nothing.
    Max,
    /// Smallest; the highest number of the type of nothing.
    Min,
    /// Product; 1 of nothing.
    Product,
    /// Sum of absolute values.
    L1,
    /// Square root of the sum of squares.
    L2,
    /// Logarithm of the sum.
    LogSum,
    /// Logarithm of the sum of exponentials, computed without overflow.
    LogSumExp,
    /// Sum of squares.
    SumSquare,
}

use ReduceKind::*;

impl ReduceKind {
    /// Every kind.
    pub const ALL: &'static [ReduceKind] =
        &[Sum, Mean, Max, Min, Product, L1, L2, LogSum, LogSumExp, SumSquare];

    /// How partial results combine, and the function applied once to the whole.
    fn combiner(self) -> (Combiner, Option<Unary>) {
        match self {
            Sum | L1 | SumSquare => (Combiner::Sum, None),
            Mean => (Combiner::Mean, None),
            Max => (Combiner::Max, None),
            Min => (Combiner::Min, None),
            Product => (Combiner::Product, None),
            L2 => (Combiner::Sum, Some(Unary::Sqrt)),
            LogSum | LogSumExp => (Combiner::Sum, Some(Unary::Log)),
        }
    }
}

/// Combines all elements along `axes`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reduce {
    /// How.
    pub kind: ReduceKind,
    /// Dims to combine, rising; none of them means that every element stands alone.
    pub axes: Vec<usize>,
    /// Keeps each combined dim with size 1.
    pub keep_dims: bool,
}

/// The shape left after combining `axes`.
fn left(shape: &[Dim], axes: &[usize], keep_dims: bool) -> Vec<Dim> {
    let kept = |(d, dim): (usize, &Dim)| match axes.contains(&d) {
        false => Some(dim.clone()),
        true => keep_dims.then(|| Dim::from(1)),
    };
    shape.iter().enumerate().filter_map(kept).collect()
}

/// An axis per dim, of the given kind where combined.
fn reduce_axes(shape: &[Dim], axes: &[usize], keep_dims: bool, kind: AxisKind) -> AxisMap {
    let mut map = AxisMap::new(1, 1);
    let mut input = Vec::new();
    for (d, dim) in shape.iter().enumerate() {
        let combined = axes.contains(&d);
        let axis = map.add(format!("d{d}"), dim, if combined { kind } else { AxisKind::Parallel });
        input.push(Index::axis(axis));
        match (combined, keep_dims) {
            (false, _) => map.outputs[0].push(Index::axis(axis)),
            (true, true) => map.outputs[0].push(Index::fixed(0)),
            (true, false) => {}
        }
    }
    map.inputs[0] = Some(input);
    map
}

impl OpDef for Reduce {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let t = Operands::new(inputs, 1, 1)?.tensor(0)?;
        match self.kind {
            Max | Min => {}
            LogSum | LogSumExp => expect_dtype(0, t.dtype, DType::is_float, "float")?,
            _ => expect_dtype(0, t.dtype, |d| d != DType::Bool, "number")?,
        }
        for &axis in &self.axes {
            expect_axis(axis, t.shape.len())?;
        }
        if !self.axes.is_sorted_by(|a, b| a < b) {
            return Err(attribute("axes", "rising and without doubles", &self.axes));
        }
        Ok(vec![Fact::tensor(t.dtype, left(&t.shape, &self.axes, self.keep_dims))])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (dtype, dims) = results(self, inputs)?.swap_remove(0);
        let t = inputs.tensor(0)?;
        let shape = sizes(t.dims());
        let kept: Vec<usize> =
            (0..shape.len()).map(|d| if self.axes.contains(&d) { 1 } else { shape[d] }).collect();
        let mut to = strides(&kept);
        for &axis in &self.axes {
            to[axis] = 0;
        }
        let count: usize = kept.iter().product();
        let inner = shape.last().copied().unwrap_or(1);
        let step = to.last().copied().unwrap_or(0);
        let visit = |f: &mut dyn FnMut(usize, usize)| {
            for_each_run(&shape, [&to], |from, [at]| {
                (0..inner).for_each(|i| f(from + i, at + i * step));
            });
        };
        let terms = self.axes.iter().map(|&a| shape[a]).product::<usize>();
        let result = match Elements::of(t) {
            Elements::Float(x) => {
                let start = match self.kind {
                    Max | LogSumExp => f64::NEG_INFINITY,
                    Min => f64::INFINITY,
                    Product => 1.0,
                    _ => 0.0,
                };
                let mut sums = vec![start; count];
                visit(&mut |from, at| {
                    let (sum, x) = (&mut sums[at], x[from]);
                    *sum = match self.kind {
                        Sum | Mean | LogSum => *sum + x,
                        Max | LogSumExp => Binary::Max.at(*sum, x),
                        Min => Binary::Min.at(*sum, x),
                        Product => *sum * x,
                        L1 => *sum + x.abs(),
                        L2 | SumSquare => *sum + x * x,
                    };
                });
                match self.kind {
                    Mean => sums.iter_mut().for_each(|s| *s /= terms as f64),
                    L2 => sums.iter_mut().for_each(|s| *s = s.sqrt()),
                    LogSum => sums.iter_mut().for_each(|s| *s = s.ln()),
                    LogSumExp => {
                        let shift: Vec<f64> =
                            sums.iter().map(|m| if m.is_finite() { *m } else { 0.0 }).collect();
                        let mut total = vec![0.0; count];
                        visit(&mut |from, at| total[at] += (x[from] - shift[at]).exp());
                        for ((s, total), shift) in sums.iter_mut().zip(total).zip(shift) {
                            *s = total.ln() + shift;
                        }
                    }
                    _ => {}
                }
                Elements::Float(sums)
            }
            Elements::Int(x) => {
                let (low, high) = limits(dtype);
                let start = match self.kind {
                    Max => low,
                    Min => high,
                    Product => 1,
                    _ => 0,
                };
                let mut sums = vec![start; count];
                visit(&mut |from, at| {
                    let (sum, x) = (&mut sums[at], x[from]);
                    *sum = match self.kind {
                        Max => x.max(*sum),
                        Min => x.min(*sum),
                        Product => sum.wrapping_mul(x),
                        L1 => sum.wrapping_add(x.abs()),
                        L2 | SumSquare => sum.wrapping_add(x * x),
                        _ => sum.wrapping_add(x),
                    };
                });
                match self.kind {
                    Mean => {
                        sums.iter_mut().for_each(|s| *s = s.checked_div(terms as i128).unwrap_or(0))
                    }
                    L2 => sums.iter_mut().for_each(|s| *s = s.isqrt()),
                    _ => {}
                }
                Elements::Int(sums)
            }
        };
        one(result.into_tensor(dtype, &dims))
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let Some(Type::Tensor(t)) = inputs[0].map(|f| &f.ty) else {
            return AxisMap::opaque(inputs, outputs);
        };
        let (combiner, finish) = self.kind.combiner();
        // A mean of integers truncates, which does not commute with weighting.
        let kind = match self.kind {
            Mean if !t.dtype.is_float() => AxisKind::Opaque,
            _ => AxisKind::Reduce(combiner),
        };
        let mut map = reduce_axes(&t.shape, &self.axes, self.keep_dims, kind);
        map.finishes = finish.is_some();
        map
    }

    fn body(&self, _: &[Option<&Fact>]) -> Option<Body> {
        let mut steps = vec![Scalar::Input(0)];
        match self.kind {
            L1 => steps.push(Scalar::Unary(Unary::Abs, 0)),
            L2 | SumSquare => steps.push(Scalar::Binary(Binary::Mul, 0, 0)),
            LogSumExp => steps.push(Scalar::Unary(Unary::Exp, 0)),
            _ => {}
        }
        let point = steps.len() - 1;
        if let (_, Some(finish)) = self.kind.combiner() {
            steps.extend([Scalar::Combined, Scalar::Unary(finish, point + 1)]);
        }
        let result = steps.len() - 1;
        Some(Body { steps, point, result })
    }
}

/// Least and greatest number of an integer type.
fn limits(dtype: DType) -> (i128, i128) {
    match dtype {
        DType::Bool => (0, 1),
        d if d.is_signed_int() => (-(1 << (d.bits() - 1)), (1 << (d.bits() - 1)) - 1),
        d => (0, (1 << d.bits()) - 1),
    }
}

/// The position of the largest or smallest element along a dim, as `i64`. NaN counts as larger
/// than every number for `largest`, and as smaller otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ArgReduce {
    /// Largest, or smallest.
    pub largest: bool,
    /// The dim.
    pub axis: usize,
    /// Keeps the dim with size 1.
    pub keep_dims: bool,
    /// Of equal elements, the last counts; otherwise the first.
    pub select_last: bool,
}

impl OpDef for ArgReduce {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let t = Operands::new(inputs, 1, 1)?.number(0)?;
        expect_axis(self.axis, t.shape.len())?;
        if t.shape[self.axis].as_const() == Some(0) {
            let (expected, got) = (Dim::from(1), Dim::from(0));
            return Err(TypeError::Dim { operand: 0, dim: self.axis, expected, got });
        }
        Ok(vec![Fact::tensor(DType::I64, left(&t.shape, &[self.axis], self.keep_dims))])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (_, dims) = results(self, inputs)?.swap_remove(0);
        let t = inputs.tensor(0)?;
        let shape = sizes(t.dims());
        let inner: usize = shape[self.axis + 1..].iter().product();
        let length = shape[self.axis];
        let outer: usize = shape[..self.axis].iter().product();
        let elements = Elements::of(t);
        let mut to = Vec::with_capacity(outer * inner);
        for lane in 0..outer * inner {
            let base = lane / inner * length * inner + lane % inner;
            let place = |i: usize| base + i * inner;
            let best = match &elements {
                Elements::Float(x) => self.best(length, |a, b| {
                    let (a, b) = (x[place(a)], x[place(b)]);
                    match (a.is_nan(), b.is_nan()) {
                        (true, true) => std::cmp::Ordering::Equal,
                        (true, false) => std::cmp::Ordering::Greater,
                        (false, true) => std::cmp::Ordering::Less,
                        _ if self.largest => a.partial_cmp(&b).unwrap_or(std::cmp::Ordering::Equal),
                        _ => b.partial_cmp(&a).unwrap_or(std::cmp::Ordering::Equal),
                    }
                }),
                Elements::Int(x) => self.best(length, |a, b| {
                    let order = x[place(a)].cmp(&x[place(b)]);
                    if self.largest { order } else { order.reverse() }
                }),
            };
            to.push(best as i64);
        }
        one(Tensor::of(&dims, &to))
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        match inputs[0].map(|f| &f.ty) {
            Some(Type::Tensor(t)) => {
                reduce_axes(&t.shape, &[self.axis], self.keep_dims, AxisKind::Opaque)
            }
            _ => AxisMap::opaque(inputs, outputs),
        }
    }
}

impl ArgReduce {
    /// The position that no other beats.
    fn best(self, length: usize, better: impl Fn(usize, usize) -> std::cmp::Ordering) -> usize {
        let mut best = 0;
        for i in 1..length {
            let order = better(i, best);
            if order.is_gt() || (order.is_eq() && self.select_last) {
                best = i;
            }
        }
        best
    }
}
