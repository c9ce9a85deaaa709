//! Writing at positions that a tensor holds.

use super::{
    Binary, OpDef,
    elements::{Elements, one, sizes, strides, wrap_index},
    gather::{coordinates, element_positions},
    results,
    types::{Operands, differ, expect_axis, expect_rank},
};
use crate::{AxisKind, AxisMap, EvalError, Fact, Index, Inputs, TypeError};
use bricolage_tensor::{DType, Datum};
use serde::{Deserialize, Serialize};

/// How an update meets the element that it is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Scatter {
    /// Replaces it; of several updates of one element, the last counts.
    Replace,
    /// Is added.
    Add,
    /// Is multiplied.
    Mul,
    /// The larger counts.
    Max,
    /// The smaller counts.
    Min,
}

impl Scatter {
    fn function(self) -> Option<Binary> {
        match self {
            Scatter::Replace => None,
            Scatter::Add => Some(Binary::Add),
            Scatter::Mul => Some(Binary::Mul),
            Scatter::Max => Some(Binary::Max),
            Scatter::Min => Some(Binary::Min),
        }
    }

    /// Writes `updates` at `positions` of `data`, in order.
    fn apply(
        self,
        dtype: DType,
        dims: &[i64],
        data: Elements,
        updates: Elements,
        positions: impl Iterator<Item = usize>,
    ) -> Result<Vec<Datum>, EvalError> {
        let result = match (data, updates) {
            (Elements::Float(mut to), Elements::Float(from)) => {
                for (at, value) in positions.zip(from) {
                    to[at] = self.function().map_or(value, |f| f.at(to[at], value));
                }
                Elements::Float(to)
            }
            (Elements::Int(mut to), Elements::Int(from)) => {
                for (at, value) in positions.zip(from) {
                    let met = self.function().and_then(|f| f.at_int(to[at], value, dtype.bits()));
                    to[at] = met.unwrap_or(value);
                }
                Elements::Int(to)
            }
            _ => {
                return Err(EvalError::Operand {
                    operand: 2,
                    expected: "tensor of the data's type",
                });
            }
        };
        one(result.into_tensor(dtype, dims))
    }
}

/// Operand 0 with elements of operand 2 written where operand 1 says: both have one shape, and
/// the elements of operand 1 replace the coordinate along a dim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ScatterElements {
    /// The dim.
    pub axis: usize,
    /// How updates meet elements.
    pub reduction: Scatter,
}

impl OpDef for ScatterElements {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let operands = Operands::new(inputs, 3, 3)?;
        let (data, at, updates) = (operands.tensor(0)?, operands.int(1)?, operands.tensor(2)?);
        operands.same_dtype(0, 2)?;
        let rank = data.shape.len();
        expect_axis(self.axis, rank)?;
        expect_rank(1, at, rank, rank)?;
        expect_rank(2, updates, rank, rank)?;
        for d in 0..rank {
            let (expected, got) = (at.shape[d].clone(), updates.shape[d].clone());
            if differ(&expected, &got) {
                return Err(TypeError::Dim { operand: 2, dim: d, expected, got });
            }
            let (most, got) = (data.shape[d].clone(), got);
            if d != self.axis && (&got - &most).as_const().is_some_and(|more| more > 0) {
                return Err(TypeError::Dim { operand: 1, dim: d, expected: most, got });
            }
        }
        Ok(vec![Fact::from(data.clone())])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (dtype, dims) = results(self, inputs)?.swap_remove(0);
        let (data, at, updates) = (inputs.tensor(0)?, inputs.tensor(1)?, inputs.tensor(2)?);
        let shape = sizes(&dims);
        let wrap = |i| wrap_index(i, shape[self.axis], 1);
        let rows = at.to_i64().into_iter().map(wrap).collect::<Result<Vec<usize>, _>>()?;
        let box_dims = sizes(at.dims());
        let positions = element_positions(&box_dims, &shape, self.axis, &rows);
        self.reduction.apply(dtype, &dims, Elements::of(data), Elements::of(updates), positions)
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let operands = Operands(inputs);
        let (Ok(data), Ok(at)) = (operands.tensor(0), operands.tensor(1)) else {
            return AxisMap::opaque(inputs, outputs);
        };
        let mut map = AxisMap::pointwise(&inputs[..1], outputs);
        let mut index = Vec::new();
        for d in 0..data.shape.len() {
            // Where updates cover the dim, a slice of it takes a slice of them.
            if d != self.axis && at.shape[d] == data.shape[d] {
                index.push(Index::axis(d));
            } else {
                map.axes[d].kind = AxisKind::Opaque;
                index.push(Index::axis(map.add(format!("u{d}"), &at.shape[d], AxisKind::Opaque)));
            }
        }
        map.inputs.extend([Some(index.clone()), Some(index)]);
        map
    }
}

/// Operand 0 with slices of operand 2 written at the coordinates that form the last dim of
/// operand 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ScatterNd {
    /// How updates meet elements.
    pub reduction: Scatter,
}

impl OpDef for ScatterNd {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let operands = Operands::new(inputs, 3, 3)?;
        let (data, at, updates) = (operands.tensor(0)?, operands.int(1)?, operands.tensor(2)?);
        operands.same_dtype(0, 2)?;
        let count = coordinates(1, &operands)?;
        expect_rank(0, data, count, usize::MAX)?;
        let outer = &at.shape[..at.shape.len() - 1];
        let expected: Vec<_> = outer.iter().chain(&data.shape[count..]).cloned().collect();
        expect_rank(2, updates, expected.len(), expected.len())?;
        for (dim, (expected, got)) in expected.into_iter().zip(updates.shape.iter()).enumerate() {
            if differ(&expected, got) {
                return Err(TypeError::Dim { operand: 2, dim, expected, got: got.clone() });
            }
        }
        Ok(vec![Fact::from(data.clone())])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (dtype, dims) = results(self, inputs)?.swap_remove(0);
        let (data, at, updates) = (inputs.tensor(0)?, inputs.tensor(1)?, inputs.tensor(2)?);
        let shape = sizes(&dims);
        let (own, flat) = (strides(&shape), at.to_i64());
        let count = at.dims()[at.dims().len() - 1] as usize;
        let inner: usize = shape[count..].iter().product();
        let rows = updates.len().checked_div(inner).unwrap_or(0);
        let mut bases = Vec::new();
        for row in 0..rows {
            let mut base = 0;
            for c in 0..count {
                base += wrap_index(flat[row * count + c], shape[c], 1)? * own[c];
            }
            bases.push(base);
        }
        let positions = bases.into_iter().flat_map(|base| base..base + inner);
        self.reduction.apply(dtype, &dims, Elements::of(data), Elements::of(updates), positions)
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let operands = Operands(inputs);
        let (Ok(data), Ok(at), Ok(count)) =
            (operands.tensor(0), operands.tensor(1), coordinates(1, &operands))
        else {
            return AxisMap::opaque(inputs, outputs);
        };
        let mut map = AxisMap::pointwise(&inputs[..1], outputs);
        for axis in &mut map.axes[..count] {
            axis.kind = AxisKind::Opaque;
        }
        let mut positions = Vec::new();
        for (d, dim) in at.shape.iter().enumerate() {
            positions.push(Index::axis(map.add(format!("u{d}"), dim, AxisKind::Opaque)));
        }
        let mut written = positions[..positions.len() - 1].to_vec();
        written.extend((count..data.shape.len()).map(Index::axis));
        map.inputs.extend([Some(positions), Some(written)]);
        map
    }
}
