//! Operators that make tensors from attributes, sizes or constants.

use super::at::{At, Imported, malformed, unsupported};
use crate::tensor::{dtype_of, from_sparse};
use bricolage_ir::{
    Op, ValueId,
    ops::{Binary, Expand, Iota, OneHot, Running, RunningKind, Text, TopK, Trilu},
};
use bricolage_tensor::{DType, Dim, Shape, Tensor};

/// Largest constant that is computed at import.
const MOST: usize = 1 << 24;

pub(crate) fn constant(at: &mut At<'_, '_>) -> Imported {
    at.all(0, 0)?;
    if let Some(t) = at.text_tensor("value")? {
        let (dims, elements) = (t.dims().to_vec(), t.elements().to_vec());
        return at.one::<ValueId>(Text::Constant { dims, elements }, &[]);
    }
    let tensor = if let Some(t) = at.tensor("value")? {
        t
    } else if at.has("value_float") {
        Tensor::of(&[], &[at.float("value_float", 0.0)?])
    } else if let Some(list) = at.floats("value_floats") {
        Tensor::of(&[list.len() as i64], &list)
    } else if let Some(i) = at.int("value_int")? {
        Tensor::of(&[], &[i])
    } else if let Some(list) = at.ints("value_ints")? {
        Tensor::of(&[list.len() as i64], &list)
    } else if at.has("sparse_value") {
        let sparse = at.node.attribute.iter().find_map(|a| a.sparse_tensor.as_ref());
        match sparse {
            Some(t) => from_sparse(t, at.external).map_err(super::at::Fault::Tensor)?,
            None => return malformed("needs a sparse tensor as attribute `sparse_value`"),
        }
    } else if at.has("value_string") || at.has("value_strings") {
        return texts(at);
    } else {
        return malformed("needs a value, found none");
    };
    Ok(vec![at.tensor_value(tensor)])
}

fn texts(at: &mut At<'_, '_>) -> Imported {
    let op = match at.texts("value_strings")? {
        Some(elements) => Text::Constant { dims: vec![elements.len() as i64], elements },
        None => Text::Constant { dims: Vec::new(), elements: vec![at.text("value_string", "")?] },
    };
    at.one::<ValueId>(op, &[])
}

pub(crate) fn constant_of_shape(at: &mut At<'_, '_>) -> Imported {
    at.all(1, 1)?;
    if !super::dynamic::is_known(at, 0) {
        let value = at.tensor("value")?.unwrap_or_else(|| Tensor::of(&[1], &[0f32]));
        let value = at.tensor_value(value);
        return super::dynamic::fill(at, value);
    }
    let to = at.sizes_input(0, "the shape")?.unwrap_or_default();
    if let Some(n) = to.iter().filter_map(Dim::as_const).find(|&n| n < 0) {
        return malformed(format!("needs sizes of at least 0, found {n}"));
    }
    let value = at.tensor("value")?.unwrap_or_else(|| Tensor::of(&[1], &[0f32]));
    if value.len() != 1 {
        return malformed(format!("needs one element as `value`, found {}", value.len()));
    }
    let scalar = value.reshaped(&[]).map_err(|e| super::at::Fault::Tensor(e.into()))?;
    let scalar = at.tensor_value(scalar);
    at.one(Expand { to: Shape(to) }, &[scalar])
}

pub(crate) fn range(at: &mut At<'_, '_>) -> Imported {
    at.ignore(&["stash_type"]);
    let all = at.all(3, 3)?;
    let dtype = at.ty(all[0])?.dtype;
    for (i, &v) in all.iter().enumerate() {
        let got = at.ty(v)?.dtype;
        if got != dtype {
            let got = (dtype, got);
            return Err(bricolage_ir::TypeError::DTypeMismatch { operands: (0, i), got }.into());
        }
    }
    let whole: Option<Vec<Dim>> = match dtype.is_float() {
        true => all.iter().map(|&v| whole_number(at, v)).collect(),
        false => None,
    };
    if dtype.is_float() && whole.as_ref().is_none_or(|w| w.iter().all(|d| d.as_const().is_some())) {
        let mut numbers = Vec::new();
        for i in 0..3 {
            let t = at.constant_input(i, "a bound")?;
            numbers.extend(t.and_then(|t| t.to_f64().first().copied()));
        }
        let [start, limit, step] = numbers[..] else { return malformed("needs scalars") };
        let count = ((limit - start) / step).ceil();
        if count.is_nan() || count > MOST as f64 {
            return unsupported(format!("needs a range of at most {MOST} numbers, found {count}"));
        }
        let count = count.max(0.0) as i64;
        let t = Tensor::generate(dtype, &[count], |i| start + i as f64 * step);
        return Ok(vec![at.tensor_value(t)]);
    }
    let mut bounds = whole.unwrap_or_default();
    for i in bounds.len()..3 {
        let list = at.sizes_input(i, "a bound")?.unwrap_or_default();
        let [bound] = &list[..] else { return malformed(format!("needs a scalar as operand {i}")) };
        bounds.push(bound.clone());
    }
    let [start, limit, step] = &bounds[..] else { return malformed("needs three bounds") };
    let Some(step) = step.as_const().filter(|s| *s != 0 && s.unsigned_abs() < 1 << 31) else {
        return malformed(format!("needs a 32-bit step other than 0, found {step}"));
    };
    let span = if step > 0 { limit - start } else { start - limit };
    let len = span.ceil_div(&Dim::from(step.abs()));
    let len = if len.as_const().is_some() { len.larger(&Dim::from(0)) } else { len };
    at.one::<ValueId>(Iota { dtype, start: start.clone(), len, step }, &[])
}

/// The scalar of float type that is a whole number or a size that was converted, as a size.
fn whole_number(at: &At<'_, '_>, mut value: ValueId) -> Option<Dim> {
    if let Some(t) = at.constant(value) {
        let number = t.to_f64().first().copied()?;
        // Up to there every whole number is one of the type.
        let whole = number.fract() == 0.0 && number.abs() <= 1.0 / t.dtype().epsilon();
        return whole.then(|| Dim::from(number as i64));
    }
    loop {
        if let Some(known) = at.graph.fact(value).as_dims() {
            let [only] = &known[..] else { return None };
            return Some(only.clone());
        }
        let node = at.graph.node(at.graph.producer(value)?);
        let keeps = match &node.op {
            // The types that hold every size that a model has.
            Op::Cast(c) => matches!(c.to, DType::F32 | DType::F64 | DType::I32 | DType::I64),
            op => matches!(op, Op::Reshape(_) | Op::Unary(bricolage_ir::ops::Unary::Identity)),
        };
        value = node.inputs.first().copied().flatten().filter(|_| keeps)?;
    }
}

/// Ones on a diagonal: where the row plus `k` is the column.
pub(crate) fn eye_like(at: &mut At<'_, '_>) -> Imported {
    let x = at.all(1, 1)?[0];
    let ty = at.ty(x)?;
    let k = at.int_or("k", 0)?;
    let number = at.int("dtype")?.and_then(|n| i32::try_from(n).ok());
    let dtype = match number.map(dtype_of) {
        Some(Err(fault)) => return unsupported(fault.to_string()),
        Some(Ok(dtype)) => dtype,
        None => ty.dtype,
    };
    let [rows, columns] = &ty.shape[..] else { return malformed("needs 2 dims in operand 0") };
    let mut line = |start: i64, len: &Dim| {
        let iota = Iota { dtype: DType::I64, start: Dim::from(start), len: len.clone(), step: 1 };
        at.add::<ValueId>(iota, &[])
    };
    let (down, across) = (line(k, rows)?, line(0, columns)?);
    let down = at.reshape(down, vec![rows.clone(), Dim::from(1)])?;
    let equal = at.add(Binary::Equal, &[down, across])?;
    at.one(bricolage_ir::ops::Cast::to(dtype), &[equal])
}

/// Coordinates of the elements of a constant that differ from 0.
pub(crate) fn non_zero(at: &mut At<'_, '_>) -> Imported {
    let x = at.all(1, 1)?[0];
    let Some(t) = at.constant(x).filter(|t| t.len() <= MOST) else {
        return super::found::non_zero(at);
    };
    let dims = t.dims().to_vec();
    let places: Vec<i64> =
        (0..).zip(t.to_f64()).filter(|(_, v)| *v != 0.0).map(|(i, _)| i).collect();
    let mut rows = Vec::new();
    for d in 0..dims.len() {
        let inner: i64 = dims[d + 1..].iter().product();
        rows.extend(places.iter().map(|p| p / inner % dims[d]));
    }
    let t = Tensor::of(&[dims.len() as i64, places.len() as i64], &rows);
    Ok(vec![at.tensor_value(t)])
}

pub(crate) fn one_hot(at: &mut At<'_, '_>) -> Imported {
    let all = at.all(3, 3)?;
    let rank = at.rank(all[0])?;
    let axis = at.int_or("axis", -1)?;
    let axis = at.axis(axis, rank + 1)?;
    let depth = at.sizes_input(1, "`depth`")?.unwrap_or_default();
    let [depth] = &depth[..] else { return malformed("needs a scalar as `depth`") };
    at.one(OneHot { axis, depth: depth.clone() }, &[all[0], all[2]])
}

pub(crate) fn trilu(at: &mut At<'_, '_>) -> Imported {
    at.at_most(2)?;
    let x = at.input(0)?;
    let upper = at.flag("upper", true)?;
    let diagonal = at.ints_input(1, "`k`")?.and_then(|k| k.first().copied()).unwrap_or(0);
    at.one(Trilu { upper, diagonal }, &[x])
}

/// Operand 0, the dim that operand 1 names, and whether the element itself counts and whether from the end.
pub(crate) fn running(at: &mut At<'_, '_>, kind: RunningKind) -> Imported {
    let x = at.all(2, 2)?[0];
    let axis = at.ints_input(1, "`axis`")?.unwrap_or_default();
    let [axis] = axis[..] else { return malformed("needs a scalar as `axis`") };
    let axis = at.axis(axis, at.rank(x)?)?;
    let exclusive = at.flag("exclusive", false)?;
    let reverse = at.flag("reverse", false)?;
    at.one(Running { kind, axis, exclusive, reverse }, &[x])
}

pub(crate) fn top_k(at: &mut At<'_, '_>) -> Imported {
    let x = at.input(0)?;
    let axis = at.int_or("axis", -1)?;
    let axis = at.axis(axis, at.rank(x)?)?;
    let largest = at.flag("largest", true)?;
    // Sorted results are right where any order would do.
    at.ignore(&["sorted"]);
    let k = if at.opset < 10 {
        Dim::from(at.int_or("k", 0)?)
    } else {
        at.at_most(2)?;
        match at.sizes_input(1, "`k`")?.as_deref() {
            Some([k]) => k.clone(),
            _ => return malformed("needs one number as `k`"),
        }
    };
    at.add_all(TopK { axis, k, largest }, &[x])
}
