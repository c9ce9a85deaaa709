//! Tensors made from attributes or sizes alone.

use super::{
    OpDef,
    elements::{Elements, ints, one, sizes},
    results,
    types::{Operands, attribute, expect_axis, expect_dtype, expect_rank},
};
use crate::{AxisKind, AxisMap, EvalError, Fact, Index, Inputs, Part, TypeError};
use bricolage_tensor::{DType, Datum, Dim, Symbol, Tensor};
use serde::{Deserialize, Serialize};

/// The numbers `start, start + step, ..`, `len` of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Iota {
    /// Element type of the result; not `Bool`.
    pub dtype: DType,
    /// First number.
    pub start: Dim,
    /// How many.
    pub len: Dim,
    /// Distance between neighbours.
    pub step: i64,
}

impl OpDef for Iota {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        Operands::new(inputs, 0, 0)?;
        if self.dtype == DType::Bool {
            return Err(attribute("dtype", "a number type", self.dtype));
        }
        if self.len.as_const().is_some_and(|n| n < 0) {
            return Err(attribute("len", "at least 0", &self.len));
        }
        let fact = Fact::tensor(self.dtype, [self.len.clone()]);
        let wide = matches!(self.dtype, DType::I64 | DType::I32);
        let count = self.len.as_const().filter(|&n| wide && n <= Fact::MOST_KNOWN as i64);
        let at = |i: i64| Some(&self.start + &Dim::from(i * self.step));
        Ok(vec![fact.with_known((0..count.unwrap_or(0)).map(at).collect())])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (dtype, dims) = results(self, inputs)?.swap_remove(0);
        let start = &self.start;
        let start = start.as_const().ok_or_else(|| EvalError::Symbolic { dim: start.clone() })?;
        let at = |i: i64| i128::from(start) + i128::from(i) * i128::from(self.step);
        one(ints(dtype, &dims, &(0..dims[0]).map(at).collect::<Vec<_>>()))
    }

    fn axes(&self, _: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        AxisMap::pointwise(&[], outputs)
    }

    fn bind(&self, value: &dyn Fn(&Symbol) -> Option<Dim>) -> Iota {
        let (start, len) = (self.start.substitute(value), self.len.substitute(value));
        Iota { start, len, ..*self }
    }

    fn part(&self, part: &Part) -> Iota {
        let start = &self.start + &Dim::from(part.points.start * self.step);
        Iota { start, len: Dim::from(part.points.end - part.points.start), ..*self }
    }
}

/// Dims `start..end` of the operand's shape, as `i64[end - start]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ShapeOf {
    /// First dim.
    pub start: usize,
    /// The dim before which it stops.
    pub end: usize,
}

impl OpDef for ShapeOf {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let t = Operands::new(inputs, 1, 1)?.tensor(0)?;
        if self.start > self.end || self.end > t.shape.len() {
            return Err(attribute("end", format!("within {} dims", t.shape.len()), self.end));
        }
        let dims = &t.shape[self.start..self.end];
        let fact = Fact::tensor(DType::I64, [Dim::from(dims.len() as i64)]);
        Ok(vec![fact.with_known(dims.iter().cloned().map(Some).collect())])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        results(self, inputs)?;
        let dims = &inputs.tensor(0)?.dims()[self.start..self.end];
        one(Tensor::of(&[dims.len() as i64], dims))
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        AxisMap::opaque(inputs, outputs)
    }
}

/// A new dim along which one position is "on": where it equals the element of operand 0, counted
/// from the end when negative. Operand 1 holds the two values, off and on. An element outside the
/// dim gives no "on".
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OneHot {
    /// Where the new dim goes.
    pub axis: usize,
    /// Its size.
    pub depth: Dim,
}

impl OpDef for OneHot {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let operands = Operands::new(inputs, 2, 2)?;
        let (at, values) = (operands.number(0)?, operands.tensor(1)?);
        expect_axis(self.axis, at.shape.len() + 1)?;
        expect_rank(1, values, 1, 1)?;
        if values.shape[0].as_const().is_some_and(|n| n != 2) {
            let (expected, got) = (Dim::from(2), values.shape[0].clone());
            return Err(TypeError::Dim { operand: 1, dim: 0, expected, got });
        }
        let mut shape = at.shape.clone();
        shape.insert(self.axis, self.depth.clone());
        Ok(vec![Fact::tensor(values.dtype, shape.0)])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (dtype, dims) = results(self, inputs)?.swap_remove(0);
        let at = inputs.tensor(0)?.to_i64();
        let shape = sizes(&dims);
        let inner: usize = shape[self.axis + 1..].iter().product();
        let (depth, total) = (shape[self.axis], shape.iter().product::<usize>());
        let on = |flat: usize| {
            let (outer, d, i) = (flat / (depth * inner), flat / inner % depth, flat % inner);
            let at = at[outer * inner + i];
            let at = if at < 0 { at + depth as i64 } else { at };
            usize::from(at == d as i64)
        };
        one(match Elements::of(inputs.tensor(1)?) {
            Elements::Float(v) => Elements::Float((0..total).map(|i| v[on(i)]).collect()),
            Elements::Int(v) => Elements::Int((0..total).map(|i| v[on(i)]).collect()),
        }
        .into_tensor(dtype, &dims))
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let mut map = AxisMap::pointwise(&[], outputs);
        map.axes[self.axis].kind = AxisKind::Opaque;
        let rank = map.axes.len();
        let positions = (0..rank).filter(|&d| d != self.axis).map(Index::axis).collect();
        let values = map.add("v", &Dim::from(2), AxisKind::Opaque);
        map.inputs = vec![Some(positions), Some(vec![Index::axis(values)])];
        map.inputs.truncate(inputs.len());
        map
    }

    fn bind(&self, value: &dyn Fn(&Symbol) -> Option<Dim>) -> OneHot {
        OneHot { axis: self.axis, depth: self.depth.substitute(value) }
    }
}

/// The upper or lower triangle of each matrix in the last two dims; the rest becomes 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Trilu {
    /// Keeps columns from `row + diagonal` on; otherwise, columns up to it.
    pub upper: bool,
    /// Which diagonal bounds the triangle: 0 is the main one, above it is positive.
    pub diagonal: i64,
}

impl OpDef for Trilu {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let t = Operands::new(inputs, 1, 1)?.tensor(0)?;
        expect_rank(0, t, 2, usize::MAX)?;
        Ok(vec![Fact::from(t.clone())])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        results(self, inputs)?;
        let t = inputs.tensor(0)?;
        let shape = t.dims();
        let (rows, columns) = (shape[shape.len() - 2], shape[shape.len() - 1]);
        let keep = |flat: usize| {
            let (row, column) = (flat as i64 / columns % rows, flat as i64 % columns);
            let bound = row.saturating_add(self.diagonal);
            if self.upper { column >= bound } else { column <= bound }
        };
        one(match Elements::of(t) {
            Elements::Float(mut v) => {
                v.iter_mut().enumerate().filter(|(i, _)| !keep(*i)).for_each(|(_, x)| *x = 0.0);
                Elements::Float(v)
            }
            Elements::Int(mut v) => {
                v.iter_mut().enumerate().filter(|(i, _)| !keep(*i)).for_each(|(_, x)| *x = 0);
                Elements::Int(v)
            }
        }
        .into_tensor(t.dtype(), shape))
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let mut map = AxisMap::pointwise(inputs, outputs);
        let rank = map.axes.len();
        map.axes[rank - 2..].iter_mut().for_each(|a| a.kind = AxisKind::Opaque);
        map
    }
}

/// The `k` largest or smallest elements along a dim, best first, and their positions as `i64`; of
/// equal elements the earlier comes first. NaN counts as the largest.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TopK {
    /// The dim.
    pub axis: usize,
    /// How many.
    pub k: Dim,
    /// Largest, or smallest.
    pub largest: bool,
}

impl OpDef for TopK {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let t = Operands::new(inputs, 1, 1)?.number(0)?;
        expect_dtype(0, t.dtype, |d| d != DType::Bool, "number")?;
        expect_axis(self.axis, t.shape.len())?;
        let size = &t.shape[self.axis];
        let negative = self.k.as_const().is_some_and(|k| k < 0);
        if negative || (&self.k - size).as_const().is_some_and(|more| more > 0) {
            return Err(attribute("k", format!("0 to {size}"), &self.k));
        }
        let mut shape = t.shape.clone();
        shape[self.axis] = self.k.clone();
        Ok(vec![
            Fact::tensor(t.dtype, shape.iter().cloned()),
            Fact::tensor(DType::I64, shape.iter().cloned()),
        ])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (_, dims) = results(self, inputs)?.swap_remove(0);
        let t = inputs.tensor(0)?;
        let shape = sizes(t.dims());
        let inner: usize = shape[self.axis + 1..].iter().product();
        let (length, k) = (shape[self.axis], dims[self.axis] as usize);
        let outer: usize = shape[..self.axis].iter().product();
        let elements = Elements::of(t);
        let mut positions = vec![0i64; outer * k * inner];
        let mut sources = vec![0usize; outer * k * inner];
        for o in 0..outer {
            for i in 0..inner {
                let place = |at: usize| (o * length + at) * inner + i;
                let mut order: Vec<usize> = (0..length).collect();
                order.sort_by(|&a, &b| {
                    let order = match &elements {
                        Elements::Float(x) => {
                            let (x, y) = (x[place(a)], x[place(b)]);
                            x.partial_cmp(&y).unwrap_or_else(|| x.is_nan().cmp(&y.is_nan()))
                        }
                        Elements::Int(x) => x[place(a)].cmp(&x[place(b)]),
                    };
                    if self.largest { order.reverse() } else { order }
                });
                for (rank, &at) in order[..k].iter().enumerate() {
                    positions[(o * k + rank) * inner + i] = at as i64;
                    sources[(o * k + rank) * inner + i] = place(at);
                }
            }
        }
        let values = super::elements::pick(t, &dims, |out| sources.into_iter().for_each(out))?;
        Ok(vec![values.into(), Tensor::of(&dims, &positions).into()])
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let Ok(t) = Operands(inputs).tensor(0) else { return AxisMap::opaque(inputs, outputs) };
        let mut map = AxisMap::pointwise(&[], outputs);
        map.axes[self.axis].kind = AxisKind::Opaque;
        let whole = map.add("i", &t.shape[self.axis], AxisKind::Opaque);
        let index = |d| Index::axis(if d == self.axis { whole } else { d });
        map.inputs = vec![Some((0..t.shape.len()).map(index).collect())];
        map
    }

    fn bind(&self, value: &dyn Fn(&Symbol) -> Option<Dim>) -> TopK {
        TopK { k: self.k.substitute(value), ..self.clone() }
    }
}
