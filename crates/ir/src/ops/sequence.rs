//! Lists of values, and values that may be absent.

use super::{
    OpDef,
    elements::wrap_index,
    types::{Operands, attribute, expect_axis},
};
use crate::{
    AxisMap, EvalError, Fact, Inputs, Op, TypeError,
    graph::bind_type,
    ops::{Concat, Reshape, Slice},
};
use bricolage_tensor::{DType, Datum, Dim, Shape, Symbol, Tensor, TensorType, Type};
use serde::{Deserialize, Serialize};

/// Something done with a list. Positions below 0 count from the end.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Sequence {
    /// The operands in order.
    Construct {
        /// Type of an element, where there is no operand to tell it.
        element: Option<Type>,
    },
    /// The element of operand 0 at the position in operand 1.
    At {
        /// Type of the result.
        ty: Type,
    },
    /// Operand 0 with operand 1 put in before the position in operand 2, or at the end.
    Insert,
    /// Operand 0 without the element at the position in operand 1, or without the last.
    Erase,
    /// The number of elements, `i64[]`.
    Length,
    /// The tensor taken apart along a dim: into pieces of size 1; of the size in operand 1, a scalar,
    /// of which the last may be smaller; or of the sizes in it, `[n]`.
    Split {
        /// The dim.
        axis: usize,
        /// Keeps the dim of pieces of size 1, where operand 1 is absent.
        keep_dims: bool,
    },
    /// The tensors of the list joined along a dim.
    Join {
        /// The dim.
        axis: usize,
        /// Makes the dim.
        new_axis: bool,
        /// Type of the result.
        ty: Type,
    },
}

/// The type of an element of operand `i`, a list.
pub(crate) fn item<'a>(inputs: &[Option<&'a Fact>], i: usize) -> Result<&'a Type, TypeError> {
    match inputs.get(i).copied().flatten().map(|f| &f.ty) {
        None => Err(TypeError::Missing { operand: i }),
        Some(Type::Sequence(t)) => Ok(t),
        Some(other) => {
            let expected = "a list".to_owned();
            Err(TypeError::Kind { operand: i, expected, got: other.clone() })
        }
    }
}

/// The elements of operand `i`, a list.
pub(crate) fn list<'a>(inputs: &Inputs<'a>, i: usize) -> Result<&'a [Datum], EvalError> {
    match inputs.0.get(i).copied().flatten() {
        None => Err(EvalError::Type(TypeError::Missing { operand: i })),
        Some(Datum::Sequence(all)) => Ok(all),
        Some(Datum::Optional(Some(inner))) => match &**inner {
            Datum::Sequence(all) => Ok(all),
            _ => Err(EvalError::Operand { operand: i, expected: "list" }),
        },
        Some(_) => Err(EvalError::Operand { operand: i, expected: "list" }),
    }
}

/// The position in operand `i`, if that is there.
fn position(inputs: &Inputs<'_>, i: usize) -> Result<Option<i64>, EvalError> {
    let Some(t) = inputs.optional(i)? else { return Ok(None) };
    match t.to_i64()[..] {
        [at] => Ok(Some(at)),
        _ => Err(EvalError::Domain { operand: i, what: format!("{} positions", t.len()) }),
    }
}

/// Fails unless operand `i` is absent or a position.
fn expect_position(operands: &Operands<'_>, i: usize) -> Result<(), TypeError> {
    if operands.optional(i)?.is_some() {
        operands.int(i)?;
    }
    Ok(())
}

fn list_of(element: &Type) -> Vec<Fact> {
    vec![Fact::from(Type::Sequence(Box::new(element.enclosed())))]
}

fn joined(i: usize, a: &Type, b: &Type) -> Result<Type, TypeError> {
    let other = || TypeError::Kind { operand: i, expected: a.to_string(), got: b.clone() };
    a.join(b).ok_or_else(other)
}

/// Fails unless the content may have the type that was declared.
fn expect_content(ty: &Type, datum: &Datum) -> Result<(), EvalError> {
    if ty.admits(datum) {
        return Ok(());
    }
    let found = datum.ty().map_or("another kind of value".to_owned(), |t| t.to_string());
    Err(EvalError::Domain { operand: 0, what: format!("content of type {found}, not {ty}") })
}

/// Runs one op on tensors.
pub(crate) fn apply(op: impl Into<Op>, inputs: &[&Datum]) -> Result<Datum, EvalError> {
    let inputs: Vec<Option<&Datum>> = inputs.iter().map(|&d| Some(d)).collect();
    Ok(op.into().eval(&Inputs(&inputs))?.swap_remove(0))
}

fn dims_of(datum: &Datum) -> Result<&[i64], EvalError> {
    match datum {
        Datum::Tensor(t) => Ok(t.dims()),
        Datum::Strings(s) => Ok(s.dims()),
        _ => Err(EvalError::Operand { operand: 0, expected: "tensor" }),
    }
}

fn reshaped(datum: &Datum, dims: &[i64]) -> Result<Datum, EvalError> {
    apply(Reshape { to: Shape::fixed(dims) }, &[datum])
}

impl OpDef for Sequence {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        match self {
            Sequence::Construct { element } => {
                let mut all = element.as_ref().map(Type::enclosed);
                for (i, fact) in inputs.iter().enumerate() {
                    let ty = fact.ok_or(TypeError::Missing { operand: i })?.ty.enclosed();
                    all = Some(match all {
                        Some(all) => joined(i, &all, &ty)?,
                        None => ty,
                    });
                }
                let all = all.ok_or_else(|| attribute("element", "a type", "none"))?;
                Ok(list_of(&all))
            }
            Sequence::At { ty } => {
                let operands = Operands::new(inputs, 2, 2)?;
                operands.int(1)?;
                let element = item(inputs, 0)?;
                if !element.meets(ty) {
                    return Err(attribute("ty", element.to_string(), ty.to_string()));
                }
                Ok(vec![Fact::from(ty.clone())])
            }
            Sequence::Insert => {
                let operands = Operands::new(inputs, 2, 3)?;
                expect_position(&operands, 2)?;
                let new = &inputs[1].ok_or(TypeError::Missing { operand: 1 })?.ty;
                Ok(list_of(&joined(1, item(inputs, 0)?, new)?))
            }
            Sequence::Erase => {
                let operands = Operands::new(inputs, 1, 2)?;
                expect_position(&operands, 1)?;
                Ok(list_of(item(inputs, 0)?))
            }
            Sequence::Length => {
                Operands::new(inputs, 1, 1)?;
                item(inputs, 0)?;
                Ok(vec![Fact::tensor(DType::I64, [])])
            }
            Sequence::Split { axis, keep_dims } => {
                let operands = Operands::new(inputs, 1, 2)?;
                expect_position(&operands, 1)?;
                let any = Dim::symbol(Type::ANY);
                let size = if operands.optional(1)?.is_some() { any } else { Dim::from(1) };
                let cut = |shape: &Shape| -> Result<Shape, TypeError> {
                    expect_axis(*axis, shape.len())?;
                    let mut shape = shape.clone();
                    if !keep_dims && size.as_const().is_some() {
                        shape.remove(*axis);
                    } else {
                        shape[*axis] = size.clone();
                    }
                    Ok(shape)
                };
                let element = match &inputs[0].ok_or(TypeError::Missing { operand: 0 })?.ty {
                    Type::Strings(shape) => Type::Strings(cut(shape)?),
                    _ => {
                        let t = operands.tensor(0)?;
                        Type::Tensor(TensorType { dtype: t.dtype, shape: cut(&t.shape)? })
                    }
                };
                Ok(list_of(&element))
            }
            Sequence::Join { axis, new_axis, ty } => {
                Operands::new(inputs, 1, 1)?;
                let mut needed = item(inputs, 0)?.clone();
                let shape = match &mut needed {
                    Type::Tensor(t) => Some(&mut t.shape),
                    Type::Strings(shape) => Some(shape),
                    _ => None,
                };
                if let Some(shape) = shape {
                    expect_axis(*axis, shape.len() + usize::from(*new_axis))?;
                    let any = Dim::symbol(Type::ANY);
                    match new_axis {
                        true => shape.insert(*axis, any),
                        false => shape[*axis] = any,
                    }
                }
                if !needed.meets(ty) {
                    return Err(attribute("ty", needed.to_string(), ty.to_string()));
                }
                Ok(vec![Fact::from(ty.clone())])
            }
        }
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let one = |datum: Datum| Ok(vec![datum]);
        match self {
            Sequence::Construct { .. } => {
                let missing = |i: usize| EvalError::Type(TypeError::Missing { operand: i });
                let all = inputs.0.iter().enumerate();
                let all = all.map(|(i, d)| d.cloned().ok_or_else(|| missing(i)));
                one(Datum::Sequence(all.collect::<Result<_, _>>()?))
            }
            Sequence::At { ty } => {
                let all = list(inputs, 0)?;
                let at = position(inputs, 1)?.unwrap_or(0);
                let found = &all[wrap_index(at, all.len(), 1)?];
                expect_content(ty, found)?;
                one(found.clone())
            }
            Sequence::Insert => {
                let mut all = list(inputs, 0)?.to_vec();
                let new = inputs.0[1].ok_or(EvalError::Type(TypeError::Missing { operand: 1 }))?;
                let at = match position(inputs, 2)? {
                    // Behind the last element there is one more position.
                    Some(at) if at == all.len() as i64 => all.len(),
                    Some(at) => wrap_index(at, all.len(), 2)?,
                    None => all.len(),
                };
                all.insert(at, new.clone());
                one(Datum::Sequence(all))
            }
            Sequence::Erase => {
                let mut all = list(inputs, 0)?.to_vec();
                let at = position(inputs, 1)?.unwrap_or(-1);
                all.remove(wrap_index(at, all.len(), 1)?);
                one(Datum::Sequence(all))
            }
            Sequence::Length => one(Tensor::of(&[], &[list(inputs, 0)?.len() as i64]).into()),
            Sequence::Split { axis, keep_dims } => self.split(inputs, *axis, *keep_dims),
            Sequence::Join { axis, new_axis, ty } => {
                let all = list(inputs, 0)?;
                if all.is_empty() {
                    return Err(EvalError::Domain { operand: 0, what: "no element".to_owned() });
                }
                let mut parts = Vec::with_capacity(all.len());
                for part in all {
                    let mut dims = dims_of(part)?.to_vec();
                    if *new_axis {
                        expect_axis(*axis, dims.len() + 1)?;
                        dims.insert(*axis, 1);
                    }
                    parts.push(reshaped(part, &dims)?);
                }
                let parts: Vec<&Datum> = parts.iter().collect();
                let whole = apply(Concat { axis: *axis }, &parts)?;
                expect_content(ty, &whole)?;
                one(whole)
            }
        }
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        AxisMap::opaque(inputs, outputs)
    }

    fn bind(&self, value: &dyn Fn(&Symbol) -> Option<Dim>) -> Sequence {
        match self {
            Sequence::At { ty } => Sequence::At { ty: bind_type(ty, value) },
            Sequence::Join { axis, new_axis, ty } => {
                let ty = bind_type(ty, value);
                Sequence::Join { axis: *axis, new_axis: *new_axis, ty }
            }
            other => other.clone(),
        }
    }
}

impl Sequence {
    fn split(
        &self,
        inputs: &Inputs<'_>,
        axis: usize,
        keep_dims: bool,
    ) -> Result<Vec<Datum>, EvalError> {
        let whole = inputs.0.first().copied().flatten();
        let whole = whole.ok_or(EvalError::Type(TypeError::Missing { operand: 0 }))?;
        let dims = dims_of(whole)?;
        expect_axis(axis, dims.len())?;
        let total = dims[axis];
        let pieces = inputs.optional(1)?;
        let sizes = match pieces {
            None => vec![1; total as usize],
            Some(t) if t.dims().is_empty() => {
                let size = t.to_i64()[0];
                if size < 1 {
                    let what = format!("the size {size}, not at least 1");
                    return Err(EvalError::Domain { operand: 1, what });
                }
                (0..total).step_by(size as usize).map(|at| size.min(total - at)).collect()
            }
            Some(t) => t.to_i64(),
        };
        let sum = sizes.iter().try_fold(0i64, |sum, &n| sum.checked_add(n).filter(|_| n >= 0));
        if sum != Some(total) {
            let what = format!("sizes {sizes:?}, which do not add up to {total}");
            return Err(EvalError::Domain { operand: 1, what });
        }
        let (mut all, mut at) = (Vec::new(), 0);
        for size in sizes {
            let slice = Slice {
                axes: vec![axis],
                starts: vec![Dim::from(at)],
                ends: vec![Dim::from(at + size)],
                steps: vec![1],
            };
            at += size;
            let mut piece = apply(slice, &[whole])?;
            if !keep_dims && pieces.is_none() {
                let mut kept = dims.to_vec();
                kept.remove(axis);
                piece = reshaped(&piece, &kept)?;
            }
            all.push(piece);
        }
        Ok(vec![Datum::Sequence(all)])
    }
}

/// Something done with a value that may be absent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Optional {
    /// The operand, if it is there, as an optional value.
    Wrap {
        /// Type of the value, where the operand does not tell it.
        element: Option<Type>,
    },
    /// Whether operand 0 is there and holds something, `bool[]`.
    Has,
    /// What operand 0 holds.
    Get {
        /// Type of the result.
        ty: Type,
    },
}

impl OpDef for Optional {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        Operands::new(inputs, 0, 1)?;
        let operand = inputs.first().copied().flatten().map(|f| &f.ty);
        match self {
            Optional::Wrap { element } => {
                let element = match (operand, element) {
                    (Some(a), Some(b)) => joined(0, b, a)?,
                    (Some(t), None) | (None, Some(t)) => t.clone(),
                    (None, None) => return Err(attribute("element", "a type", "none")),
                };
                Ok(vec![Fact::from(Type::Optional(Box::new(element.enclosed())))])
            }
            Optional::Has => Ok(vec![Fact::tensor(DType::Bool, [])]),
            Optional::Get { ty } => {
                let operand = operand.ok_or(TypeError::Missing { operand: 0 })?;
                if !operand.meets(ty) {
                    return Err(attribute("ty", operand.to_string(), ty.to_string()));
                }
                Ok(vec![Fact::from(ty.clone())])
            }
        }
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let operand = inputs.0.first().copied().flatten();
        let result = match self {
            Optional::Wrap { .. } => Datum::Optional(operand.cloned().map(Box::new)),
            Optional::Has => {
                let has = operand.is_some_and(|d| !matches!(d, Datum::Optional(None)));
                Tensor::of_bool(&[], &[has]).into()
            }
            Optional::Get { .. } => match operand {
                Some(Datum::Optional(Some(inner))) => (**inner).clone(),
                None | Some(Datum::Optional(None)) => {
                    let what = "nothing to take out".to_owned();
                    return Err(EvalError::Domain { operand: 0, what });
                }
                Some(other) => other.clone(),
            },
        };
        if let Optional::Get { ty } = self {
            expect_content(ty, &result)?;
        }
        Ok(vec![result])
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        AxisMap::opaque(inputs, outputs)
    }

    fn bind(&self, value: &dyn Fn(&Symbol) -> Option<Dim>) -> Optional {
        match self {
            Optional::Get { ty } => Optional::Get { ty: bind_type(ty, value) },
            other => other.clone(),
        }
    }
}
