//! Checks that the ops' inference shares.

use crate::{Fact, TypeError};
use bricolage_tensor::{DType, Dim, Shape, TensorType, Type};

/// The operands under inference.
#[derive(Clone, Copy)]
pub(crate) struct Operands<'a>(pub(crate) &'a [Option<&'a Fact>]);

impl<'a> Operands<'a> {
    /// The operands, of which there must be `min` to `max`.
    pub(crate) fn new(
        inputs: &'a [Option<&'a Fact>],
        min: usize,
        max: usize,
    ) -> Result<Operands<'a>, TypeError> {
        if inputs.len() < min || inputs.len() > max {
            return Err(TypeError::Arity { min, max, got: inputs.len() });
        }
        Ok(Operands(inputs))
    }

    /// Operand `i`, which must be a tensor.
    pub(crate) fn tensor(&self, i: usize) -> Result<&'a TensorType, TypeError> {
        self.optional(i)?.ok_or(TypeError::Missing { operand: i })
    }

    /// Operand `i`, which must be a tensor or absent.
    pub(crate) fn optional(&self, i: usize) -> Result<Option<&'a TensorType>, TypeError> {
        match self.0.get(i).copied().flatten().map(|f| &f.ty) {
            None => Ok(None),
            Some(Type::Tensor(t)) => Ok(Some(t)),
            Some(other) => Err(TypeError::NotTensor { operand: i, got: other.clone() }),
        }
    }

    /// Operand `i` with float elements.
    pub(crate) fn float(&self, i: usize) -> Result<&'a TensorType, TypeError> {
        let t = self.tensor(i)?;
        expect_dtype(i, t.dtype, DType::is_float, "float")?;
        Ok(t)
    }

    /// Operand `i` with integer elements.
    pub(crate) fn int(&self, i: usize) -> Result<&'a TensorType, TypeError> {
        let t = self.tensor(i)?;
        expect_dtype(i, t.dtype, DType::is_int, "integer")?;
        Ok(t)
    }

    /// Operand `i` with numbers for elements.
    pub(crate) fn number(&self, i: usize) -> Result<&'a TensorType, TypeError> {
        let t = self.tensor(i)?;
        expect_dtype(i, t.dtype, |d| d != DType::Bool, "number")?;
        Ok(t)
    }

    /// Fails unless the two operands have one element type.
    pub(crate) fn same_dtype(&self, a: usize, b: usize) -> Result<(), TypeError> {
        let got = (self.tensor(a)?.dtype, self.tensor(b)?.dtype);
        if got.0 == got.1 {
            Ok(())
        } else {
            Err(TypeError::DTypeMismatch { operands: (a, b), got })
        }
    }

    /// Known elements of operand `i`.
    pub(crate) fn known(&self, i: usize) -> Option<&'a [Option<Dim>]> {
        self.0.get(i).copied().flatten()?.known.as_deref()
    }
}

pub(crate) fn expect_dtype(
    operand: usize,
    got: DType,
    allowed: fn(DType) -> bool,
    expected: &'static str,
) -> Result<(), TypeError> {
    if allowed(got) { Ok(()) } else { Err(TypeError::DType { operand, expected, got }) }
}

pub(crate) fn expect_rank(
    operand: usize,
    t: &TensorType,
    min: usize,
    max: usize,
) -> Result<(), TypeError> {
    let got = t.shape.len();
    if (min..=max).contains(&got) {
        Ok(())
    } else {
        Err(TypeError::Rank { operand, min, max, got })
    }
}

pub(crate) fn expect_axis(axis: usize, rank: usize) -> Result<(), TypeError> {
    if axis < rank { Ok(()) } else { Err(TypeError::Axis { axis, rank }) }
}

/// An attribute fault.
pub(crate) fn attribute(
    name: &'static str,
    expected: impl Into<String>,
    got: impl std::fmt::Debug,
) -> TypeError {
    TypeError::Attribute { name, expected: expected.into(), got: format!("{got:?}") }
}

/// Whether the two sizes differ for all values of their symbols.
pub(crate) fn differ(a: &Dim, b: &Dim) -> bool {
    (a - b).as_const().is_some_and(|difference| difference != 0)
}

/// Fails when dim `left` of one operand surely differs from dim `right` of another.
pub(crate) fn expect_same_dim(
    operands: &Operands<'_>,
    left: (usize, usize),
    right: (usize, usize),
) -> Result<(), TypeError> {
    let a = &operands.tensor(left.0)?.shape[left.1];
    let b = &operands.tensor(right.0)?.shape[right.1];
    if differ(a, b) {
        return Err(TypeError::DimMismatch { left, right, got: (a.clone(), b.clone()) });
    }
    Ok(())
}

/// The size that dim `dim` of an operand and that of those before it broadcast to. A symbolic size against a
/// constant other than 1 is taken to equal it; of two symbolic ones the larger counts.
pub(crate) fn broadcast_dim(operand: usize, have: &Dim, dim: &Dim) -> Result<Dim, TypeError> {
    Ok(match (have.as_const(), dim.as_const()) {
        _ if have == dim => have.clone(),
        (_, Some(1)) | (Some(_), None) if have.as_const() != Some(1) => have.clone(),
        (Some(1), _) | (None, Some(_)) => dim.clone(),
        (None, None) => have.larger(dim),
        (Some(_), _) => {
            return Err(TypeError::Broadcast { operand, got: (dim.clone(), have.clone()) });
        }
    })
}

/// The shape that all operands broadcast to by numpy's rules.
pub(crate) fn broadcast(shapes: &[(usize, &[Dim])]) -> Result<Shape, TypeError> {
    let rank = shapes.iter().map(|s| s.1.len()).max().unwrap_or(0);
    let mut to = vec![Dim::from(1); rank];
    for &(operand, shape) in shapes {
        let lead = rank - shape.len();
        for (have, dim) in to[lead..].iter_mut().zip(shape.iter()) {
            *have = broadcast_dim(operand, have, dim)?;
        }
    }
    Ok(Shape(to))
}
