//! Lists and optional values.

use super::at::{At, Fault, Imported, malformed, unsupported};
use bricolage_ir::{
    TypeError, ValueId,
    ops::{Optional, Sequence},
};
use bricolage_tensor::{DType, Dim, Shape, TensorType, Type};

/// The type of an element of a list.
fn element(at: &At<'_, '_>, v: ValueId) -> Result<Type, Fault> {
    match at.any_ty(v) {
        Type::Sequence(t) => Ok((**t).clone()),
        Type::Optional(t) => match &**t {
            Type::Sequence(t) => Ok((**t).clone()),
            other => unsupported(format!("needs a list, found optional({other})")),
        },
        other => unsupported(format!("needs a list, found {other}")),
    }
}

/// The type of something taken out of a list or an optional value: what is declared, where the inside
/// does not tell the number of dims.
fn taken_out(at: &mut At<'_, '_>, inside: &Type) -> Type {
    if let Type::Unranked(_) = inside
        && let Some(declared) = at.declared_output(0)
        && declared.meets(inside)
    {
        return declared;
    }
    at.symbols.open(inside, at.base)
}

pub(crate) fn construct(at: &mut At<'_, '_>) -> Imported {
    let all = at.all(1, usize::MAX)?;
    at.one(Sequence::Construct { element: None }, &all)
}

pub(crate) fn empty(at: &mut At<'_, '_>) -> Imported {
    at.all(0, 0)?;
    let dtype = at.dtype_attribute("dtype")?.unwrap_or(DType::F32);
    let element = Some(Type::Unranked(dtype));
    at.one::<ValueId>(Sequence::Construct { element }, &[])
}

pub(crate) fn item(at: &mut At<'_, '_>) -> Imported {
    let all = at.all(2, 2)?;
    let inside = element(at, all[0])?;
    let ty = taken_out(at, &inside);
    at.one(Sequence::At { ty }, &all)
}

pub(crate) fn insert(at: &mut At<'_, '_>) -> Imported {
    at.at_most(3)?;
    let inputs = trimmed(at);
    at.one(Sequence::Insert, &inputs)
}

pub(crate) fn erase(at: &mut At<'_, '_>) -> Imported {
    at.at_most(2)?;
    let inputs = trimmed(at);
    at.one(Sequence::Erase, &inputs)
}

pub(crate) fn length(at: &mut At<'_, '_>) -> Imported {
    let all = at.all(1, 1)?;
    at.one(Sequence::Length, &all)
}

fn trimmed(at: &At<'_, '_>) -> Vec<Option<ValueId>> {
    let mut inputs = at.inputs.clone();
    while inputs.last().is_some_and(Option::is_none) {
        inputs.pop();
    }
    inputs
}

pub(crate) fn split(at: &mut At<'_, '_>) -> Imported {
    at.at_most(2)?;
    let x = at.input(0)?;
    let axis = at.int_or("axis", 0)?;
    let axis = at.axis(axis, at.rank(x)?)?;
    let keep_dims = at.flag("keepdims", true)?;
    let inputs = trimmed(at);
    at.one(Sequence::Split { axis, keep_dims }, &inputs)
}

pub(crate) fn join(at: &mut At<'_, '_>) -> Imported {
    let all = at.all(1, 1)?;
    let new_axis = at.flag("new_axis", false)?;
    let Some(axis) = at.int("axis")? else {
        return malformed("needs attribute `axis`, found none");
    };
    let inside = element(at, all[0])?;
    let added = usize::from(new_axis);
    let joined = |at: &mut At<'_, '_>, shape: &Shape| -> Result<(usize, Shape), Fault> {
        let axis = at.axis(axis, shape.len() + added)?;
        let mut shape = shape.clone();
        let any = Dim::symbol(Type::ANY);
        match new_axis {
            true => shape.insert(axis, any),
            false => shape[axis] = any,
        }
        Ok((axis, shape))
    };
    let (axis, ty) = match &inside {
        Type::Tensor(t) => {
            let (axis, shape) = joined(at, &t.shape)?;
            (axis, Type::Tensor(TensorType { dtype: t.dtype, shape }))
        }
        Type::Strings(shape) => {
            let (axis, shape) = joined(at, shape)?;
            (axis, Type::Strings(shape))
        }
        // The declared type tells the number of dims.
        other => match at.declared_output(0) {
            Some(Type::Tensor(t)) if Type::Tensor(t.clone()).meets(other) => {
                (at.axis(axis, t.shape.len())?, Type::Tensor(t))
            }
            _ => return unsupported(format!("needs to know the number of dims of {other}")),
        },
    };
    let ty = at.symbols.open(&ty, at.base);
    at.one(Sequence::Join { axis, new_axis, ty }, &all)
}

pub(crate) fn wrap(at: &mut At<'_, '_>) -> Imported {
    at.at_most(1)?;
    let element = at.type_attribute("type")?.map(|t| t.enclosed());
    let inputs = trimmed(at);
    if inputs.is_empty() && element.is_none() {
        return malformed("needs attribute `type` or an operand, found neither");
    }
    at.one(Optional::Wrap { element }, &inputs)
}

pub(crate) fn has(at: &mut At<'_, '_>) -> Imported {
    at.at_most(1)?;
    let inputs = trimmed(at);
    at.one(Optional::Has, &inputs)
}

pub(crate) fn get(at: &mut At<'_, '_>) -> Imported {
    let Some(x) = at.optional(0) else {
        return Err(TypeError::Missing { operand: 0 }.into());
    };
    at.at_most(1)?;
    let ty = match at.any_ty(x).clone() {
        Type::Optional(inside) => taken_out(at, &inside),
        other => other,
    };
    at.one(Optional::Get { ty }, &[x])
}
