//! Reading at positions that a tensor holds.

use super::{
    OpDef,
    elements::{one, pick, sizes, strides, wrap_index},
    results,
    types::{Operands, attribute, expect_axis, expect_rank, expect_same_dim},
};
use crate::{AxisKind, AxisMap, EvalError, Fact, Index, Inputs, TypeError, Work, cost};
use bricolage_tensor::{Datum, Tensor};
use serde::{Deserialize, Serialize};

/// Work of an op that reads as many elements as it writes, plus its positions.
fn reads_what_it_writes(inputs: &[Option<&Fact>], outputs: &[Fact]) -> Option<Work> {
    let out = outputs[0].ty.as_tensor()?;
    let bytes = 2 * cost::byte_len(&outputs[0])? + cost::byte_len(inputs[1]?)?;
    Some(Work { points: out.shape.element_count()?, macs: 0, bytes })
}

/// The elements of an index operand, each wrapped into a dim of `size`.
fn indices(t: &Tensor, size: usize) -> Result<Vec<usize>, EvalError> {
    t.to_i64().into_iter().map(|i| wrap_index(i, size, 1)).collect()
}

/// Slices of operand 0 along a dim, at the positions in operand 1: dim `axis` of the result is
/// replaced by the dims of the positions. Positions below 0 count from the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Gather {
    /// The dim.
    pub axis: usize,
}

impl OpDef for Gather {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let operands = Operands::new(inputs, 2, 2)?;
        let (data, at) = (operands.tensor(0)?, operands.int(1)?);
        expect_axis(self.axis, data.shape.len())?;
        let mut shape = data.shape[..self.axis].to_vec();
        shape.extend_from_slice(&at.shape);
        shape.extend_from_slice(&data.shape[self.axis + 1..]);
        let fact = Fact::tensor(data.dtype, shape);
        let known = match (operands.known(0), operands.known(1)) {
            (Some(data), Some(at)) => {
                let pick = |i: &Option<bricolage_tensor::Dim>| {
                    let i = wrap_index(i.as_ref()?.as_const()?, data.len(), 1).ok()?;
                    data[i].clone()
                };
                at.iter().map(pick).collect()
            }
            _ => Vec::new(),
        };
        Ok(vec![fact.with_known(known)])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (_, dims) = results(self, inputs)?.swap_remove(0);
        let data = inputs.tensor(0)?;
        let shape = sizes(data.dims());
        let at = indices(inputs.tensor(1)?, shape[self.axis])?;
        let outer: usize = shape[..self.axis].iter().product();
        let inner: usize = shape[self.axis + 1..].iter().product();
        one(pick(data, &dims, |out| {
            for o in 0..outer {
                for &i in &at {
                    let base = (o * shape[self.axis] + i) * inner;
                    (base..base + inner).for_each(&mut *out);
                }
            }
        })?)
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let operands = Operands(inputs);
        let (Ok(data), Ok(at)) = (operands.tensor(0), operands.tensor(1)) else {
            return AxisMap::opaque(inputs, outputs);
        };
        let mut map = AxisMap::pointwise(&[], outputs);
        let whole = map.add("g", &data.shape[self.axis], AxisKind::Opaque);
        let rank = at.shape.len();
        let index = (0..data.shape.len()).map(|d| match d.cmp(&self.axis) {
            std::cmp::Ordering::Less => Index::axis(d),
            std::cmp::Ordering::Equal => Index::axis(whole),
            std::cmp::Ordering::Greater => Index::axis(d + rank - 1),
        });
        let positions = (self.axis..self.axis + rank).map(Index::axis);
        map.inputs = vec![Some(index.collect()), Some(positions.collect())];
        map
    }

    fn work(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> Option<Work> {
        reads_what_it_writes(inputs, outputs)
    }
}

/// One element per position: the result has the shape of operand 1, whose elements replace the
/// coordinate along a dim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GatherElements {
    /// The dim.
    pub axis: usize,
}

impl OpDef for GatherElements {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let operands = Operands::new(inputs, 2, 2)?;
        let (data, at) = (operands.tensor(0)?, operands.int(1)?);
        let rank = data.shape.len();
        expect_axis(self.axis, rank)?;
        expect_rank(1, at, rank, rank)?;
        for d in (0..rank).filter(|&d| d != self.axis) {
            let (expected, got) = (data.shape[d].clone(), at.shape[d].clone());
            if (&got - &expected).as_const().is_some_and(|more| more > 0) {
                return Err(TypeError::Dim { operand: 1, dim: d, expected, got });
            }
        }
        Ok(vec![Fact::tensor(data.dtype, at.shape.iter().cloned())])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (_, dims) = results(self, inputs)?.swap_remove(0);
        let data = inputs.tensor(0)?;
        let shape = sizes(data.dims());
        let at = indices(inputs.tensor(1)?, shape[self.axis])?;
        let to = sizes(&dims);
        let from = element_positions(&to, &shape, self.axis, &at);
        one(pick(data, &dims, |out| from.for_each(out))?)
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let Ok(data) = Operands(inputs).tensor(0) else {
            return AxisMap::opaque(inputs, outputs);
        };
        let mut map = AxisMap::pointwise(&[], outputs);
        let whole = map.add("g", &data.shape[self.axis], AxisKind::Opaque);
        let rank = data.shape.len();
        let index = |d| Index::axis(if d == self.axis { whole } else { d });
        map.inputs =
            vec![Some((0..rank).map(index).collect()), Some((0..rank).map(Index::axis).collect())];
        map
    }

    fn work(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> Option<Work> {
        reads_what_it_writes(inputs, outputs)
    }
}

/// For each position of a box of `dims`, the flat position in a tensor of `shape` whose
/// coordinate along `axis` is taken from `at`.
pub(crate) fn element_positions<'a>(
    dims: &'a [usize],
    shape: &[usize],
    axis: usize,
    at: &'a [usize],
) -> impl Iterator<Item = usize> + 'a {
    let own = strides(shape);
    at.iter().enumerate().map(move |(mut flat, &i)| {
        let mut to = i * own[axis];
        for d in (0..dims.len()).rev() {
            if d != axis {
                to += flat % dims[d] * own[d];
            }
            flat /= dims[d];
        }
        to
    })
}

/// Slices of operand 0 at coordinates that form the last dim of operand 1. The first
/// `batch_dims` dims of both go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GatherNd {
    /// Number of leading dims that go together.
    pub batch_dims: usize,
}

/// Number of coordinates in the last dim of an operand.
pub(crate) fn coordinates(operand: usize, operands: &Operands<'_>) -> Result<usize, TypeError> {
    let t = operands.int(operand)?;
    expect_rank(operand, t, 1, usize::MAX)?;
    let last = &t.shape[t.shape.len() - 1];
    let count = last.as_const().and_then(|c| usize::try_from(c).ok());
    count.ok_or_else(|| attribute("indices", "a last dim of known size", last))
}

impl OpDef for GatherNd {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let operands = Operands::new(inputs, 2, 2)?;
        let (data, at) = (operands.tensor(0)?, operands.int(1)?);
        let count = coordinates(1, &operands)?;
        expect_rank(0, data, self.batch_dims + count, usize::MAX)?;
        expect_rank(1, at, self.batch_dims + 1, usize::MAX)?;
        for d in 0..self.batch_dims {
            expect_same_dim(&operands, (0, d), (1, d))?;
        }
        let mut shape = at.shape[..at.shape.len() - 1].to_vec();
        shape.extend_from_slice(&data.shape[self.batch_dims + count..]);
        Ok(vec![Fact::tensor(data.dtype, shape)])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (_, dims) = results(self, inputs)?.swap_remove(0);
        let (data, at) = (inputs.tensor(0)?, inputs.tensor(1)?);
        let (shape, at_shape) = (sizes(data.dims()), sizes(at.dims()));
        let count = at_shape[at_shape.len() - 1];
        let (b, own) = (self.batch_dims, strides(&shape));
        let batches: usize = shape[..b].iter().product();
        let per_batch = at_shape[b..at_shape.len() - 1].iter().product::<usize>();
        let inner: usize = shape[b + count..].iter().product();
        let plane: usize = shape[b..].iter().product();
        let flat = at.to_i64();
        let mut bases = Vec::with_capacity(batches * per_batch);
        for i in 0..batches * per_batch {
            let mut base = i / per_batch * plane;
            for c in 0..count {
                base += wrap_index(flat[i * count + c], shape[b + c], 1)? * own[b + c];
            }
            bases.push(base);
        }
        one(pick(data, &dims, |out| {
            for base in bases {
                (base..base + inner).for_each(&mut *out);
            }
        })?)
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let operands = Operands(inputs);
        let (Ok(data), Ok(at), Ok(count)) =
            (operands.tensor(0), operands.tensor(1), coordinates(1, &operands))
        else {
            return AxisMap::opaque(inputs, outputs);
        };
        let mut map = AxisMap::pointwise(&[], outputs);
        let (b, outer) = (self.batch_dims, at.shape.len() - 1);
        let mut index: Vec<Index> = (0..b).map(Index::axis).collect();
        for d in b..b + count {
            index.push(Index::axis(map.add(format!("g{d}"), &data.shape[d], AxisKind::Opaque)));
        }
        index.extend((b + count..data.shape.len()).map(|d| Index::axis(outer + d - b - count)));
        let mut positions: Vec<Index> = (0..outer).map(Index::axis).collect();
        let c = map.add("c", &at.shape[outer], AxisKind::Opaque);
        positions.push(Index::axis(c));
        map.inputs = vec![Some(index), Some(positions)];
        map
    }

    fn work(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> Option<Work> {
        reads_what_it_writes(inputs, outputs)
    }
}
