//! Tensors as plain numbers, and copies that move whole elements.

use crate::EvalError;
use bricolage_tensor::{DType, Datum, Storage, Tensor};

/// The elements of a tensor in a form that computes without loss.
#[derive(Clone, Debug)]
pub(crate) enum Elements {
    Float(Vec<f64>),
    /// Wide enough for both `i64` and `u64`.
    Int(Vec<i128>),
}

impl Elements {
    pub(crate) fn of(t: &Tensor) -> Elements {
        match t.dtype() {
            d if d.is_float() => Elements::Float(t.to_f64()),
            DType::U64 => {
                Elements::Int(t.elements::<u64>().iter().map(|&v| i128::from(v)).collect())
            }
            _ => Elements::Int(t.to_i64().into_iter().map(i128::from).collect()),
        }
    }

    /// A tensor of these elements: floats rounded, integers wrapped.
    pub(crate) fn into_tensor(self, dtype: DType, dims: &[i64]) -> Tensor {
        match self {
            Elements::Float(v) => Tensor::from_f64(dtype, dims, &v),
            Elements::Int(v) => ints(dtype, dims, &v),
        }
    }
}

/// Integers wrapped to the width of `dtype`; for `Bool`, whether they differ from 0.
pub(crate) fn ints(dtype: DType, dims: &[i64], values: &[i128]) -> Tensor {
    if dtype == DType::U64 {
        return Tensor::of(dims, &values.iter().map(|&v| v as u64).collect::<Vec<_>>());
    }
    Tensor::from_i64(dtype, dims, &values.iter().map(|&v| v as i64).collect::<Vec<_>>())
}

/// The only result of an evaluation.
pub(crate) fn one(t: Tensor) -> Result<Vec<Datum>, EvalError> {
    Ok(vec![Datum::Tensor(t)])
}

/// Dims as sizes in memory.
pub(crate) fn sizes(dims: &[i64]) -> Vec<usize> {
    dims.iter().map(|&d| d.max(0) as usize).collect()
}

/// Distance in elements between neighbours along each dim of a dense row-major tensor.
pub(crate) fn strides(dims: &[usize]) -> Vec<usize> {
    let mut strides = vec![1usize; dims.len()];
    for d in (0..dims.len().saturating_sub(1)).rev() {
        // Only a tensor without elements can have dims whose product is out of range.
        strides[d] = strides[d + 1].saturating_mul(dims[d + 1].max(1));
    }
    strides
}

/// Strides that read a tensor of `dims` as if broadcast to `to`.
pub(crate) fn broadcast_strides(dims: &[usize], to: &[usize]) -> Vec<usize> {
    let own = strides(dims);
    let lead = to.len() - dims.len();
    (0..to.len()).map(|d| if d < lead || dims[d - lead] == 1 { 0 } else { own[d - lead] }).collect()
}

/// Calls `visit(run, offsets)` for every innermost run of a space of `dims`: `run` counts output
/// elements before it, and `offsets` are those of each operand at its start.
pub(crate) fn for_each_run<const N: usize>(
    dims: &[usize],
    strides: [&[usize]; N],
    mut visit: impl FnMut(usize, [usize; N]),
) {
    if dims.contains(&0) {
        return;
    }
    let Some((&inner, outer)) = dims.split_last() else {
        return visit(0, [0; N]);
    };
    let mut at = vec![0; outer.len()];
    let mut offsets = [0; N];
    let mut done = 0;
    loop {
        visit(done, offsets);
        done += inner;
        let mut d = outer.len();
        loop {
            if d == 0 {
                return;
            }
            d -= 1;
            at[d] += 1;
            for n in 0..N {
                offsets[n] += strides[n][d];
            }
            if at[d] < outer[d] {
                break;
            }
            for n in 0..N {
                offsets[n] -= strides[n][d] * at[d];
            }
            at[d] = 0;
        }
    }
}

/// A tensor of `dims` whose element at each position is element `base + sum(position * step)` of
/// `t`. Every position must lie inside `t`.
pub(crate) fn strided(
    t: &Tensor,
    dims: &[i64],
    base: i64,
    steps: &[i64],
) -> Result<Tensor, EvalError> {
    let shape = sizes(dims);
    pick(t, dims, |out| {
        let (Some((&inner, outer)), Some((&step, steps))) =
            (shape.split_last(), steps.split_last())
        else {
            return out(base as usize);
        };
        let mut at = vec![0usize; outer.len()];
        let mut start = base;
        loop {
            for i in 0..inner as i64 {
                out((start + i * step) as usize);
            }
            let mut d = outer.len();
            loop {
                if d == 0 {
                    return;
                }
                d -= 1;
                at[d] += 1;
                start += steps[d];
                if at[d] < outer[d] {
                    break;
                }
                start -= steps[d] * at[d] as i64;
                at[d] = 0;
            }
        }
    })
}

/// A tensor of `dims` with the elements of `t` that `positions` hands to its argument, in order.
pub(crate) fn pick(
    t: &Tensor,
    dims: &[i64],
    positions: impl FnOnce(&mut dyn FnMut(usize)),
) -> Result<Tensor, EvalError> {
    fn copy<const W: usize>(
        from: &[u8],
        to: &mut [u8],
        positions: impl FnOnce(&mut dyn FnMut(usize)),
    ) {
        let (from, _) = from.as_chunks::<W>();
        let mut to = to.as_chunks_mut::<W>().0.iter_mut();
        positions(&mut |i| {
            if let Some(slot) = to.next() {
                *slot = from[i];
            }
        });
    }
    let empty = Tensor::zeros(t.dtype(), dims)?;
    if empty.is_empty() {
        return Ok(empty);
    }
    if t.dtype().bits() < 8 {
        return Ok(packed(t.dtype(), &pick(&whole_bytes(t)?, dims, positions)?));
    }
    let storage = Storage::build(empty.bytes().len(), |to| match t.dtype().bits() {
        8 => copy::<1>(t.bytes(), to, positions),
        16 => copy::<2>(t.bytes(), to, positions),
        32 => copy::<4>(t.bytes(), to, positions),
        _ => copy::<8>(t.bytes(), to, positions),
    });
    Ok(Tensor::new(t.dtype(), dims, storage)?)
}

/// The tensor with elements of less than a byte as their codes, one a byte; others as they are.
pub(crate) fn whole_bytes(t: &Tensor) -> Result<Tensor, EvalError> {
    match t.dtype().bits() < 8 {
        true => Ok(Tensor::new(DType::U8, t.dims(), Storage::copy_of(&t.codes()))?),
        false => Ok(t.clone()),
    }
}

/// What [`whole_bytes`] was given, with elements of `dtype`.
pub(crate) fn packed(dtype: DType, bytes: &Tensor) -> Tensor {
    match dtype.bits() < 8 {
        true => Tensor::from_codes(dtype, bytes.dims(), bytes.bytes()),
        false => bytes.clone(),
    }
}

/// The position that an index, negative from the end, names in a dim of `size`.
pub(crate) fn wrap_index(index: i64, size: usize, operand: usize) -> Result<usize, EvalError> {
    let at = if index < 0 { index + size as i64 } else { index };
    if (0..size as i64).contains(&at) {
        return Ok(at as usize);
    }
    Err(EvalError::Domain { operand, what: format!("index {index} outside a dim of {size}") })
}
