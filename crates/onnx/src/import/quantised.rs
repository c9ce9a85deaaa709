//! Quantised operators: conversions from and to few bits, and sums of products of such numbers.

use super::{
    at::{At, Fault, Imported, Step, malformed, unsupported},
    contract,
};
use crate::tensor::dtype_of;
use bricolage_ir::{
    Real, ValueId,
    ops::{Binary, Cast, Clip, Dequantize, MatMul, Quantize, Reduce, ReduceKind, Unary},
};
use bricolage_tensor::{DType, Dim};

/// An attribute that holds an element type; 0 and absence mean none.
fn dtype(at: &mut At<'_, '_>, name: &'static str) -> Result<Option<DType>, Fault> {
    match at.int_or(name, 0)? {
        0 => Ok(None),
        number => match dtype_of(i32::try_from(number).unwrap_or(0)) {
            Ok(dtype) => Ok(Some(dtype)),
            Err(fault) => unsupported(format!("attribute `{name}`: {fault}")),
        },
    }
}

/// What decides which elements share a scale.
struct Scales {
    scale: ValueId,
    zero: Option<ValueId>,
    axis: usize,
    block: i64,
}

fn is_one_element(at: &At<'_, '_>, v: ValueId) -> Result<bool, Fault> {
    Ok(at.ty(v)?.shape.element_count() == Some(1))
}

fn scales(at: &mut At<'_, '_>, x: ValueId) -> Result<Scales, Fault> {
    at.at_most(3)?;
    let (mut scale, mut zero) = (at.input(1)?, at.optional(2));
    let (axis, block) = (at.int_or("axis", 1)?, at.int_or("block_size", 0)?);
    let (rank, own) = (at.rank(x)?, at.rank(scale)?);
    if block > 0 {
        let axis = at.axis(axis, rank)?;
        return Ok(Scales { scale, zero, axis, block });
    }
    if own > 0 && is_one_element(at, scale)? {
        scale = at.reshape(scale, Vec::new())?;
    }
    if let Some(z) = zero
        && at.rank(z)? > 0
        && is_one_element(at, z)?
    {
        zero = Some(at.reshape(z, Vec::new())?);
    }
    let axis = match at.rank(scale)? {
        0 => 0,
        1 if rank == 1 => 0,
        1 => at.axis(axis, rank)?,
        found => {
            return malformed(format!(
                "needs `block_size` where the scale has dims like operand 0, found {found} dims"
            ));
        }
    };
    Ok(Scales { scale, zero, axis, block: 0 })
}

fn inputs_of(x: ValueId, of: &Scales) -> Vec<Option<ValueId>> {
    let mut inputs = vec![Some(x), Some(of.scale)];
    inputs.extend(of.zero.map(Some));
    inputs
}

pub(crate) fn quantize(at: &mut At<'_, '_>) -> Imported {
    let x = at.input(0)?;
    let mut of = scales(at, x)?;
    let saturate = at.flag("saturate", true)?;
    let (asked, precision) = (dtype(at, "output_dtype")?, dtype(at, "precision")?);
    let of_zero = of.zero.map(|z| at.ty(z)).transpose()?.map(|t| t.dtype);
    let to = match (asked, of_zero) {
        (Some(a), Some(z)) if a != z => {
            return malformed(format!(
                "needs `output_dtype` to be that of operand 2, {z}, found {a}"
            ));
        }
        (asked, of_zero) => asked.or(of_zero).unwrap_or(DType::U8),
    };
    let of_scale = at.ty(of.scale)?.dtype;
    if !of_scale.is_float() {
        of.scale = at.add(Cast::to(DType::F32), &[of.scale])?;
    }
    let wide = of_scale.is_float() && !of_scale.is_narrow_float();
    let precision = precision.unwrap_or(if wide { of_scale } else { DType::F32 });
    let op = Quantize { to, axis: of.axis, block: of.block, precision, saturate };
    at.one(op, &inputs_of(x, &of))
}

pub(crate) fn dequantize(at: &mut At<'_, '_>) -> Imported {
    let x = at.input(0)?;
    let of = scales(at, x)?;
    let to = match dtype(at, "output_dtype")? {
        Some(to) => to,
        None => at.ty(of.scale)?.dtype,
    };
    at.one(Dequantize { to, axis: of.axis, block: of.block }, &inputs_of(x, &of))
}

/// The result, its scale and its zero point, for the range that the elements of `x` span with 0.
pub(crate) fn dynamic(at: &mut At<'_, '_>) -> Imported {
    let x = at.all(1, 1)?[0];
    let (dtype, axes) = (at.ty(x)?.dtype, (0..at.rank(x)?).collect::<Vec<_>>());
    let zero = at.scalar(dtype, 0.0);
    let mut end = |kind, f| {
        let of_all = at.add(Reduce { kind, axes: axes.clone(), keep_dims: false }, &[x])?;
        at.add(f, &[of_all, zero])
    };
    let high = end(ReduceKind::Max, Binary::Max)?;
    let low = end(ReduceKind::Min, Binary::Min)?;
    let range = at.add(Binary::Sub, &[high, low])?;
    let steps = at.scalar(dtype, 255.0);
    let scale = at.add(Binary::Div, &[range, steps])?;
    let shift = at.add(Binary::Div, &[low, scale])?;
    let shift = at.add(Binary::Sub, &[zero, shift])?;
    let (min, max) = (Some(Real::new(0.0)), Some(Real::new(255.0)));
    let shift = at.add(Clip { min, max }, &[shift])?;
    let shift = at.add(Unary::Round, &[shift])?;
    let shift = at.add(Cast::to(DType::U8), &[shift])?;
    let op = Quantize { to: DType::U8, axis: 0, block: 0, precision: dtype, saturate: true };
    let y = at.add(op, &[x, scale, shift])?;
    Ok(vec![y, scale, shift])
}

/// `x - zero` as `i32`.
fn centred(at: &mut At<'_, '_>, x: ValueId, zero: Option<ValueId>) -> Step {
    let x = at.add(Cast::to(DType::I32), &[x])?;
    let Some(zero) = zero else { return Ok(x) };
    let zero = at.add(Cast::to(DType::I32), &[zero])?;
    at.add(Binary::Sub, &[x, zero])
}

/// A list that has an element per position of a dim with `after` dims behind it; others stay.
fn along(at: &mut At<'_, '_>, v: ValueId, after: usize) -> Step {
    let dims = at.dims(v)?;
    if dims.len() != 1 || is_one_element(at, v)? {
        return Ok(v);
    }
    at.reshape(v, dims.into_iter().chain((0..after).map(|_| Dim::from(1))).collect())
}

fn along_if(
    at: &mut At<'_, '_>,
    v: Option<ValueId>,
    after: usize,
) -> Result<Option<ValueId>, Fault> {
    v.map(|v| along(at, v, after)).transpose()
}

pub(crate) fn mat_mul_integer(at: &mut At<'_, '_>) -> Imported {
    at.at_most(4)?;
    let (a, b) = (at.input(0)?, at.input(1)?);
    let rows = along_if(at, at.optional(2), 1)?;
    let a = centred(at, a, rows)?;
    let b = centred(at, b, at.optional(3))?;
    at.one(MatMul::default(), &[a, b])
}

pub(crate) fn conv_integer(at: &mut At<'_, '_>) -> Imported {
    at.at_most(4)?;
    let (x, w) = (at.input(0)?, at.input(1)?);
    let filters = along_if(at, at.optional(3), at.rank(w)?.saturating_sub(1))?;
    let x = centred(at, x, at.optional(2))?;
    let w = centred(at, w, filters)?;
    Ok(vec![contract::conv_of(at, x, w, None)?])
}

/// `sums * a * b` in few bits, by the scale and the zero point that are operands `i` and `i + 1`.
fn requantized(at: &mut At<'_, '_>, sums: ValueId, [a, b]: [ValueId; 2], i: usize) -> Imported {
    let (mut scale, mut zero) = (at.input(i)?, at.input(i + 1)?);
    for v in [&mut scale, &mut zero] {
        if !is_one_element(at, *v)? {
            return unsupported("needs one scale for all elements of the result");
        }
        *v = at.reshape(*v, Vec::new())?;
    }
    // A half type would not hold the sums.
    let wide = |at: &mut At<'_, '_>, v: ValueId| match at.ty(v)?.dtype {
        DType::F32 => Ok(v),
        _ => at.add(Cast::to(DType::F32), &[v]),
    };
    let (sums, a, b) = (wide(at, sums)?, wide(at, a)?, wide(at, b)?);
    let (factor, scale) = (at.add(Binary::Mul, &[a, b])?, wide(at, scale)?);
    let x = at.add(Binary::Mul, &[sums, factor])?;
    let to = at.ty(zero)?.dtype;
    let op = Quantize { to, axis: 0, block: 0, precision: DType::F32, saturate: true };
    at.one(op, &[x, scale, zero])
}

pub(crate) fn q_linear_mat_mul(at: &mut At<'_, '_>) -> Imported {
    at.at_most(8)?;
    let (a, b) = (at.input(0)?, at.input(3)?);
    let rows = along_if(at, at.optional(2), 1)?;
    let a = centred(at, a, rows)?;
    let b = centred(at, b, at.optional(5))?;
    let sums = at.add(MatMul::default(), &[a, b])?;
    let scale = at.input(1)?;
    let scales = [along(at, scale, 1)?, at.input(4)?];
    requantized(at, sums, scales, 6)
}

pub(crate) fn q_linear_conv(at: &mut At<'_, '_>) -> Imported {
    at.at_most(9)?;
    let (x, w) = (at.input(0)?, at.input(3)?);
    let rank = at.rank(w)?;
    let filters = along_if(at, at.optional(5), rank.saturating_sub(1))?;
    let x = centred(at, x, at.optional(2))?;
    let w = centred(at, w, filters)?;
    let sums = contract::conv_of(at, x, w, at.optional(8))?;
    let scale = at.input(4)?;
    let scales = [at.input(1)?, along(at, scale, rank.saturating_sub(2))?];
    requantized(at, sums, scales, 6)
}
