//! Operators that change or tell the shape alone.

use super::at::{At, Fault, Imported, malformed, unsupported};
use bricolage_ir::ops::{Iota, ShapeOf};
use bricolage_tensor::{DType, Dim, Shape};

/// The sizes asked for, with one unknown following from the number of elements.
fn resolve(have: &[Dim], asked: &[Option<Dim>], zero_copies: bool) -> Result<Vec<Dim>, Fault> {
    let mut to: Vec<Option<Dim>> = Vec::new();
    for (i, dim) in asked.iter().enumerate() {
        to.push(match dim.as_ref().and_then(Dim::as_const) {
            Some(-1) => None,
            Some(0) if zero_copies => match have.get(i) {
                Some(dim) => Some(dim.clone()),
                None => {
                    return malformed(format!(
                        "needs a dim {i} to copy, found {} dims",
                        have.len()
                    ));
                }
            },
            Some(n) if n < 0 => return malformed(format!("needs sizes of at least -1, found {n}")),
            _ => dim.clone(),
        });
    }
    let open = to.iter().filter(|d| d.is_none()).count();
    if open > 1 {
        let inferred = asked.iter().flatten().filter(|d| d.as_const() == Some(-1)).count();
        if inferred > 1 {
            return malformed(format!("needs at most one size of -1, found {inferred}"));
        }
        return unsupported("needs the new shape to follow from constants and input sizes");
    }
    // Dims that stay in place cancel before dividing, so that sizes stay simple.
    let product = |dims: Vec<Dim>| dims.into_iter().fold(Dim::from(1), |p, d| p * d);
    let mut rest: Vec<Dim> = have.to_vec();
    let mut divisors = Vec::new();
    for dim in to.iter().flatten() {
        match rest.iter().position(|r| r == dim) {
            Some(i) => drop(rest.swap_remove(i)),
            None => divisors.push(dim.clone()),
        }
    }
    let (rest, divisor) = (product(rest), product(divisors));
    if open == 1
        && (divisor.as_const() == Some(0) || to.iter().flatten().any(|d| d.as_const() == Some(0)))
    {
        return malformed("needs sizes other than 0 beside -1");
    }
    let inferred = rest.floor_div(&divisor);
    Ok(to.into_iter().map(|d| d.unwrap_or_else(|| inferred.clone())).collect())
}

pub(crate) fn reshape(at: &mut At<'_, '_>) -> Imported {
    let allow_zero = at.flag("allowzero", false)?;
    let all = at.all(2, 2)?;
    let known = match (at.graph.fact(all[1]).known.clone(), at.constant(all[1])) {
        (Some(known), _) => known,
        (None, Some(t)) => t.to_i64().into_iter().map(|v| Some(Dim::from(v))).collect(),
        (None, None) => super::dynamic::unknown_sizes(at, 1)?,
    };
    let have = at.dims(all[0])?;
    let open = |d: &Option<Dim>| d.as_ref().and_then(Dim::as_const).is_none_or(|n| n == -1);
    // Of one size that is not known, it is the number of elements that the others leave.
    if known.iter().filter(|d| d.is_none()).count() > 0
        && known.iter().filter(|d| d.is_none() || open(d)).count() > 1
    {
        return super::dynamic::reshape(at, &known, allow_zero);
    }
    let to = resolve(&have, &known, !allow_zero)?;
    Ok(vec![at.reshape(all[0], to)?])
}

pub(crate) fn flatten(at: &mut At<'_, '_>) -> Imported {
    let x = at.all(1, 1)?[0];
    let dims = at.dims(x)?;
    let axis = at.int_or("axis", 1)?;
    let axis = if axis == dims.len() as i64 { dims.len() } else { at.axis(axis, dims.len())? };
    let product = |dims: &[Dim]| dims.iter().fold(Dim::from(1), |p, d| &p * d);
    Ok(vec![at.reshape(x, vec![product(&dims[..axis]), product(&dims[axis..])])?])
}

pub(crate) fn squeeze(at: &mut At<'_, '_>) -> Imported {
    at.at_most(2)?;
    let x = at.input(0)?;
    let dims = at.dims(x)?;
    let axes = match at.ints_either("axes", 1)? {
        Some(axes) => at.axes(&axes, dims.len())?,
        None if dims.iter().any(|d| d.as_const().is_none()) => {
            return unsupported("needs `axes`, since not every dim has a known size");
        }
        None => (0..dims.len()).filter(|&d| dims[d].as_const() == Some(1)).collect(),
    };
    if let Some(&axis) = axes.iter().find(|&&a| dims[a].as_const().is_some_and(|n| n != 1)) {
        return malformed(format!("needs dim {axis} of operand 0 to be 1, found {}", dims[axis]));
    }
    let kept = (0..dims.len()).filter(|d| !axes.contains(d)).map(|d| dims[d].clone()).collect();
    Ok(vec![at.reshape(x, kept)?])
}

pub(crate) fn unsqueeze(at: &mut At<'_, '_>) -> Imported {
    at.at_most(2)?;
    let x = at.input(0)?;
    let Some(axes) = at.ints_either("axes", 1)? else {
        return malformed("needs `axes`, found none");
    };
    let mut dims = at.dims(x)?;
    let mut axes = at.axes(&axes, dims.len() + axes.len())?;
    axes.sort_unstable();
    for axis in axes {
        dims.insert(axis, Dim::from(1));
    }
    Ok(vec![at.reshape(x, dims)?])
}

pub(crate) fn shape(at: &mut At<'_, '_>) -> Imported {
    let x = at.all(1, 1)?[0];
    let rank = at.rank(x)? as i64;
    let (start, end) = (at.int_or("start", 0)?, at.int_or("end", i64::MAX)?);
    let place = |i: i64| (if i < 0 { i.saturating_add(rank) } else { i }).clamp(0, rank) as usize;
    let (start, end) = (place(start), place(end));
    at.one(ShapeOf { start, end: end.max(start) }, &[x])
}

/// The number of elements is the only member of a range that starts there.
pub(crate) fn size(at: &mut At<'_, '_>) -> Imported {
    let x = at.all(1, 1)?[0];
    let start = Shape(at.dims(x)?).elements();
    let range = Iota { dtype: DType::I64, start, len: Dim::from(1), step: 1 };
    let count = at.add::<bricolage_ir::ValueId>(range, &[])?;
    Ok(vec![at.reshape(count, Vec::new())?])
}
