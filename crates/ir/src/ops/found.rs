//! Ops that find as many things as there are: the size of the result depends on data. Each holds the
//! size that it is known by, usually a symbol of its own.

use super::{
    OpDef, check,
    elements::{Elements, one, pick, sizes, strides},
    types::{Operands, attribute, expect_axis, expect_dtype, expect_rank, expect_same_dim},
};
use crate::{AxisMap, EvalError, Fact, Inputs, TypeError};
use bricolage_tensor::{DType, Datum, Dim, Symbol, Tensor};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;

/// Coordinates of all elements other than 0, row-major, one column each: `i64[rank, found]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NonZero {
    /// How many.
    pub found: Dim,
}

impl OpDef for NonZero {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let t = Operands::new(inputs, 1, 1)?.tensor(0)?;
        let rank = Dim::from(t.shape.len() as i64);
        Ok(vec![Fact::tensor(DType::I64, [rank, self.found.clone()])])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let t = inputs.tensor(0)?;
        let shape = sizes(t.dims());
        let own = strides(&shape);
        let found: Vec<usize> = match Elements::of(t) {
            Elements::Float(x) => (0..x.len()).filter(|&i| x[i] != 0.0).collect(),
            Elements::Int(x) => (0..x.len()).filter(|&i| x[i] != 0).collect(),
        };
        let mut all = Vec::with_capacity(shape.len() * found.len());
        for (own, size) in own.iter().zip(&shape) {
            all.extend(found.iter().map(|at| (at / own % size) as i64));
        }
        one(Tensor::of(&[shape.len() as i64, found.len() as i64], &all))
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        AxisMap::opaque(inputs, outputs)
    }

    fn bind(&self, value: &dyn Fn(&Symbol) -> Option<Dim>) -> NonZero {
        NonZero { found: self.found.substitute(value) }
    }
}

/// The slices of operand 0 along a dim for which operand 1, `bool[n]`, is true; beyond its `n`
/// elements there is none.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Compress {
    /// The dim.
    pub axis: usize,
    /// How many.
    pub found: Dim,
}

impl OpDef for Compress {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let operands = Operands::new(inputs, 2, 2)?;
        let (x, keep) = (operands.tensor(0)?, operands.tensor(1)?);
        expect_axis(self.axis, x.shape.len())?;
        expect_dtype(1, keep.dtype, |d| d == DType::Bool, "bool")?;
        expect_rank(1, keep, 1, 1)?;
        let mut shape = x.shape.clone();
        shape[self.axis] = self.found.clone();
        Ok(vec![Fact::tensor(x.dtype, shape.0)])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        check(self, inputs)?;
        let (x, keep) = (inputs.tensor(0)?, inputs.tensor(1)?.to_i64());
        let shape = sizes(x.dims());
        let length = shape[self.axis];
        let kept: Vec<usize> = (0..keep.len()).filter(|&i| keep[i] != 0).collect();
        if let Some(outside) = kept.iter().find(|&&i| i >= length) {
            let what = format!("position {outside} outside a dim of {length}");
            return Err(EvalError::Domain { operand: 1, what });
        }
        let outer: usize = shape[..self.axis].iter().product();
        let inner: usize = shape[self.axis + 1..].iter().product();
        let mut dims = x.dims().to_vec();
        dims[self.axis] = kept.len() as i64;
        one(pick(x, &dims, |out| {
            for o in 0..outer {
                for at in &kept {
                    let base = (o * length + at) * inner;
                    (base..base + inner).for_each(&mut *out);
                }
            }
        })?)
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        AxisMap::opaque(inputs, outputs)
    }

    fn bind(&self, value: &dyn Fn(&Symbol) -> Option<Dim>) -> Compress {
        Compress { axis: self.axis, found: self.found.substitute(value) }
    }
}

/// The distinct slices of the operand along a dim, or its distinct elements: the slices; of each, the
/// first position; for each position, the number of its slice; and how often each slice occurs.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Unique {
    /// The dim; without one, the operand counts as a list of elements.
    pub axis: Option<usize>,
    /// Slices in ascending order, element by element, rather than in that of their first position.
    pub sorted: bool,
    /// How many.
    pub found: Dim,
}

impl OpDef for Unique {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let t = Operands::new(inputs, 1, 1)?.tensor(0)?;
        let list = |n: &Dim| Fact::tensor(DType::I64, [n.clone()]);
        let (values, positions) = match self.axis {
            None => (Fact::tensor(t.dtype, [self.found.clone()]), t.shape.elements()),
            Some(axis) => {
                expect_axis(axis, t.shape.len())?;
                let mut shape = t.shape.clone();
                let all = std::mem::replace(&mut shape[axis], self.found.clone());
                (Fact::tensor(t.dtype, shape.0), all)
            }
        };
        Ok(vec![values, list(&self.found), list(&positions), list(&self.found)])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        check(self, inputs)?;
        let t = inputs.tensor(0)?;
        let mut dims = match self.axis {
            Some(_) => t.dims().to_vec(),
            None => vec![t.len() as i64],
        };
        let axis = self.axis.unwrap_or(0);
        let shape = sizes(&dims);
        let length = shape[axis];
        let (outer, inner): (usize, usize) =
            (shape[..axis].iter().product(), shape[axis + 1..].iter().product());
        let elements = Elements::of(t);
        // NaN equals NaN and is the largest.
        let order = |a: usize, b: usize| match &elements {
            Elements::Int(x) => x[a].cmp(&x[b]),
            Elements::Float(x) => {
                x[a].partial_cmp(&x[b]).unwrap_or_else(|| x[a].is_nan().cmp(&x[b].is_nan()))
            }
        };
        let slice = |at: usize| {
            (0..outer).flat_map(move |o| {
                let base = (o * length + at) * inner;
                base..base + inner
            })
        };
        let compare = |a: usize, b: usize| {
            let mut pairs = slice(a).zip(slice(b)).map(|(a, b)| order(a, b));
            pairs.find(|&o| o != Ordering::Equal).unwrap_or(Ordering::Equal)
        };
        let mut by_value: Vec<usize> = (0..length).collect();
        by_value.sort_by(|&a, &b| compare(a, b));
        // Runs of equal slices; sorting kept the first position of each in front.
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for at in by_value {
            match groups.last_mut() {
                Some(group) if compare(group[0], at) == Ordering::Equal => group.push(at),
                _ => groups.push(vec![at]),
            }
        }
        if !self.sorted {
            groups.sort_by_key(|group| group[0]);
        }
        let mut of = vec![0i64; length];
        for (i, group) in groups.iter().enumerate() {
            group.iter().for_each(|&at| of[at] = i as i64);
        }
        let count = groups.len() as i64;
        dims[axis] = count;
        let values = pick(t, &dims, |out| {
            for o in 0..outer {
                for group in &groups {
                    let base = (o * length + group[0]) * inner;
                    (base..base + inner).for_each(&mut *out);
                }
            }
        })?;
        let first: Vec<i64> = groups.iter().map(|group| group[0] as i64).collect();
        let times: Vec<i64> = groups.iter().map(|group| group.len() as i64).collect();
        Ok(vec![
            values.into(),
            Tensor::of(&[count], &first).into(),
            Tensor::of(&[length as i64], &of).into(),
            Tensor::of(&[count], &times).into(),
        ])
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        AxisMap::opaque(inputs, outputs)
    }

    fn bind(&self, value: &dyn Fn(&Symbol) -> Option<Dim>) -> Unique {
        Unique { found: self.found.substitute(value), ..self.clone() }
    }
}

/// The best boxes that do not overlap, class by class.
///
/// Operands: boxes `[b, n, 4]` and their scores `[b, c, n]`; then scalars that may be absent: the most
/// boxes for a batch entry and class (0 when absent), the overlap (intersection over union) above which
/// the worse box goes, and the score that boxes must exceed. The result lists batch entry, class and
/// box: `i64[found, 3]`, of equal scores the earlier box first.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NonMaxSuppression {
    /// Boxes are given by centre, width and height rather than by two corners `y, x, y, x`.
    pub centered: bool,
    /// How many.
    pub found: Dim,
}

/// Corners in order: top, left, bottom, right.
fn corners(b: &[f64], centered: bool) -> [f64; 4] {
    if centered {
        let (x, y, w, h) = (b[0], b[1], b[2], b[3]);
        return [y - h / 2.0, x - w / 2.0, y + h / 2.0, x + w / 2.0];
    }
    [b[0].min(b[2]), b[1].min(b[3]), b[0].max(b[2]), b[1].max(b[3])]
}

/// Intersection over union; 0 for boxes without area.
fn overlap(a: [f64; 4], b: [f64; 4]) -> f64 {
    let area = |c: [f64; 4]| (c[2] - c[0]) * (c[3] - c[1]);
    let side = |low: usize| (a[low + 2].min(b[low + 2]) - a[low].max(b[low])).max(0.0);
    let common = side(0) * side(1);
    let (a, b) = (area(a), area(b));
    if a <= 0.0 || b <= 0.0 { 0.0 } else { common / (a + b - common) }
}

impl OpDef for NonMaxSuppression {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let operands = Operands::new(inputs, 2, 5)?;
        let (boxes, scores) = (operands.float(0)?, operands.float(1)?);
        expect_rank(0, boxes, 3, 3)?;
        expect_rank(1, scores, 3, 3)?;
        expect_same_dim(&operands, (0, 0), (1, 0))?;
        expect_same_dim(&operands, (0, 1), (1, 2))?;
        let four = Dim::from(4);
        if super::types::differ(&boxes.shape[2], &four) {
            let got = boxes.shape[2].clone();
            return Err(TypeError::Dim { operand: 0, dim: 2, expected: four, got });
        }
        for operand in 2..5 {
            let Some(t) = operands.optional(operand)? else { continue };
            if t.shape.elements().as_const().is_some_and(|n| n != 1) {
                return Err(attribute("limits", "one element", &t.shape));
            }
        }
        Ok(vec![Fact::tensor(DType::I64, [self.found.clone(), Dim::from(3)])])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        check(self, inputs)?;
        let (boxes, scores) = (inputs.tensor(0)?, inputs.tensor(1)?);
        let number = |i: usize| -> Result<Option<f64>, EvalError> {
            Ok(inputs.optional(i)?.and_then(|t| t.to_f64().first().copied()))
        };
        let most = number(2)?.unwrap_or(0.0).max(0.0) as usize;
        let (limit, least) = (number(3)?.unwrap_or(0.0), number(4)?);
        if !(0.0..=1.0).contains(&limit) {
            let what = format!("the overlap {limit}, not one from 0 to 1");
            return Err(EvalError::Domain { operand: 3, what });
        }
        let (n, classes) = (sizes(boxes.dims())[1], sizes(scores.dims())[1]);
        let (places, scores) = (boxes.to_f64(), scores.to_f64());
        let mut all: Vec<i64> = Vec::new();
        for (row, scores) in scores.chunks(n.max(1)).enumerate() {
            let (batch, class) = (row / classes, row % classes);
            let at = |i: usize| corners(&places[(batch * n + i) * 4..][..4], self.centered);
            let mut order: Vec<usize> =
                (0..n).filter(|&i| least.is_none_or(|least| scores[i] > least)).collect();
            order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
            let mut taken: Vec<usize> = Vec::new();
            for i in order {
                if taken.len() >= most {
                    break;
                }
                if taken.iter().all(|&other| overlap(at(i), at(other)) <= limit) {
                    taken.push(i);
                    all.extend([batch as i64, class as i64, i as i64]);
                }
            }
        }
        one(Tensor::of(&[all.len() as i64 / 3, 3], &all))
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        AxisMap::opaque(inputs, outputs)
    }

    fn bind(&self, value: &dyn Fn(&Symbol) -> Option<Dim>) -> NonMaxSuppression {
        NonMaxSuppression { centered: self.centered, found: self.found.substitute(value) }
    }
}
