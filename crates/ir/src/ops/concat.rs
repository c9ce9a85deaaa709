//! Joining tensors along a dim, and taking them apart.

use super::{
    OpDef,
    elements::{one, packed, sizes, strided, strides, whole_bytes},
    results,
    types::{Operands, attribute, differ, expect_axis, expect_rank, expect_same_dim},
};
use crate::{AxisKind, AxisMap, EvalError, Fact, Index, Inputs, TypeError};
use bricolage_tensor::{DType, Datum, Dim, Storage, Symbol, Tensor};
use serde::{Deserialize, Serialize};

/// Joins one or more operands along a dim, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Concat {
    /// The dim.
    pub axis: usize,
}

impl OpDef for Concat {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let operands = Operands::new(inputs, 1, usize::MAX)?;
        let first = operands.tensor(0)?;
        expect_axis(self.axis, first.shape.len())?;
        let mut shape = first.shape.clone();
        for i in 1..inputs.len() {
            operands.same_dtype(0, i)?;
            let t = operands.tensor(i)?;
            expect_rank(i, t, shape.len(), shape.len())?;
            for d in 0..shape.len() {
                if d == self.axis {
                    shape[d] = &shape[d] + &t.shape[d];
                } else {
                    expect_same_dim(&operands, (0, d), (i, d))?;
                    if shape[d].as_const().is_none() && t.shape[d].as_const().is_some() {
                        shape[d] = t.shape[d].clone();
                    }
                }
            }
        }
        let fact = Fact::tensor(first.dtype, shape.0);
        let mut known = Vec::new();
        for (i, input) in inputs.iter().enumerate() {
            let count = operands.tensor(i)?.shape.element_count();
            match (input.and_then(|f| f.known.as_ref()), count) {
                (Some(all), _) => known.extend(all.iter().cloned()),
                (None, Some(count)) if count <= Fact::MOST_KNOWN as u64 => {
                    known.resize(known.len() + count as usize, None);
                }
                _ => return Ok(vec![fact]),
            }
        }
        Ok(vec![fact.with_known(known)])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (dtype, dims) = results(self, inputs)?.swap_remove(0);
        let width = dtype.bits().div_ceil(8) as usize;
        let whole = sizes(&dims);
        let outer: usize = whole[..self.axis].iter().product();
        let inner = whole[self.axis + 1..].iter().product::<usize>() * width;
        let mut operands = Vec::new();
        for i in 0..inputs.len() {
            operands.push(whole_bytes(inputs.tensor(i)?)?);
        }
        let part = |t: &'_ Tensor| t.dims()[self.axis] as usize * inner;
        let parts: Vec<(&[u8], usize)> = operands.iter().map(|t| (t.bytes(), part(t))).collect();
        let total = whole.iter().product::<usize>() * width;
        let storage = Storage::build(total, |mut to| {
            for o in 0..outer {
                for (bytes, len) in &parts {
                    let (here, rest) = std::mem::take(&mut to).split_at_mut(*len);
                    here.copy_from_slice(&bytes[o * len..][..*len]);
                    to = rest;
                }
            }
        });
        let whole = if dtype.bits() < 8 { DType::U8 } else { dtype };
        one(packed(dtype, &Tensor::new(whole, &dims, storage)?))
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let mut map = AxisMap::pointwise(&[], outputs);
        let mut offset = Dim::from(0);
        for input in inputs {
            let Some(t) = input.and_then(|f| f.ty.as_tensor()) else {
                return AxisMap::opaque(inputs, outputs);
            };
            let mut index: Vec<Index> = (0..t.shape.len()).map(Index::axis).collect();
            index[self.axis].offset = Dim::from(0) - offset.clone();
            map.inputs.push(Some(index));
            offset = offset + t.shape[self.axis].clone();
        }
        map
    }
}

/// Takes an operand apart along a dim: one output per size.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Split {
    /// The dim.
    pub axis: usize,
    /// Sizes of the parts, in order; they add up to the dim.
    pub sizes: Vec<Dim>,
}

impl OpDef for Split {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let operands = Operands::new(inputs, 1, 1)?;
        let t = operands.tensor(0)?;
        expect_axis(self.axis, t.shape.len())?;
        let total = self.sizes.iter().fold(Dim::from(0), |sum, s| &sum + s);
        let negative = self.sizes.iter().any(|s| s.as_const().is_some_and(|s| s < 0));
        if negative || self.sizes.is_empty() || differ(&total, &t.shape[self.axis]) {
            let expected = format!("sizes that add up to {}", t.shape[self.axis]);
            return Err(attribute("sizes", expected, &self.sizes));
        }
        let mut known = operands.known(0).unwrap_or_default();
        let mut facts = Vec::new();
        for size in &self.sizes {
            let mut shape = t.shape.clone();
            shape[self.axis] = size.clone();
            let count = size.as_const().unwrap_or(0) as usize;
            let (here, rest) = known.split_at(count.min(known.len()));
            known = rest;
            facts.push(Fact::tensor(t.dtype, shape.0).with_known(here.to_vec()));
        }
        Ok(facts)
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let t = inputs.tensor(0)?;
        let own: Vec<i64> = strides(&sizes(t.dims())).into_iter().map(|s| s as i64).collect();
        let (mut all, mut start) = (Vec::new(), 0);
        for (_, dims) in results(self, inputs)? {
            all.push(strided(t, &dims, start * own[self.axis], &own)?.into());
            start += dims[self.axis];
        }
        Ok(all)
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let mut map = AxisMap::pointwise(inputs, &outputs[..1]);
        let Some(t) = inputs[0].and_then(|f| f.ty.as_tensor()) else {
            return AxisMap::opaque(inputs, outputs);
        };
        let whole: Vec<Index> = (0..t.shape.len()).map(Index::axis).collect();
        map.axes[self.axis].extent = t.shape[self.axis].clone();
        map.axes[self.axis].kind = AxisKind::Opaque;
        map.inputs[0] = Some(whole.clone());
        let mut offset = Dim::from(0);
        map.outputs.clear();
        for size in &self.sizes {
            let mut index = whole.clone();
            index[self.axis].offset = Dim::from(0) - offset.clone();
            map.outputs.push(index);
            offset = &offset + size;
        }
        map
    }

    fn bind(&self, value: &dyn Fn(&Symbol) -> Option<Dim>) -> Split {
        let sizes = self.sizes.iter().map(|d| d.substitute(value)).collect();
        Split { axis: self.axis, sizes }
    }
}
