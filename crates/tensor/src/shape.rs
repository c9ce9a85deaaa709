//! Shapes and types of values.

use crate::{DType, Dim};
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    ops::{Deref, DerefMut},
};

/// The dims of a tensor, outermost first; empty for a scalar.
#[derive(Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Shape(pub Vec<Dim>);

impl Shape {
    /// A shape of constants.
    pub fn fixed(dims: &[i64]) -> Shape {
        Shape(dims.iter().map(|&d| Dim::from(d)).collect())
    }

    /// All dims as numbers, or `None` when one is symbolic.
    pub fn as_fixed(&self) -> Option<Vec<i64>> {
        self.0.iter().map(Dim::as_const).collect()
    }

    /// The product of all dims as an expression.
    pub fn elements(&self) -> Dim {
        self.0.iter().fold(Dim::from(1), |product, d| product * d.clone())
    }

    /// The number of elements; `None` when a dim is symbolic or negative, or the product overflows.
    pub fn element_count(&self) -> Option<u64> {
        self.0
            .iter()
            .try_fold(1u64, |product, d| product.checked_mul(u64::try_from(d.as_const()?).ok()?))
    }
}

impl Deref for Shape {
    type Target = Vec<Dim>;
    fn deref(&self) -> &Vec<Dim> {
        &self.0
    }
}

impl DerefMut for Shape {
    fn deref_mut(&mut self) -> &mut Vec<Dim> {
        &mut self.0
    }
}

impl FromIterator<Dim> for Shape {
    fn from_iter<I: IntoIterator<Item = Dim>>(dims: I) -> Shape {
        Shape(dims.into_iter().collect())
    }
}

/// As text: people read it in messages.
impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, dim) in self.0.iter().enumerate() {
            write!(f, "{}{dim}", if i == 0 { "" } else { ", " })?;
        }
        f.write_str("]")
    }
}

/// Element type and shape of a tensor.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TensorType {
    /// Type of one element.
    pub dtype: DType,
    /// Dims, outermost first.
    pub shape: Shape,
}

impl TensorType {
    /// A tensor type with constant dims.
    pub fn fixed(dtype: DType, dims: &[i64]) -> TensorType {
        TensorType { dtype, shape: Shape::fixed(dims) }
    }

    /// Bytes of a dense tensor; `None` when the shape is symbolic or the size overflows.
    pub fn byte_len(&self) -> Option<u64> {
        self.dtype.byte_len(self.shape.element_count()?)
    }
}

impl fmt::Display for TensorType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.dtype, self.shape)
    }
}

/// The type of a value in a graph.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Type {
    /// A tensor; the only kind that lives in an arena.
    Tensor(TensorType),
    /// An ordered list of values of one type.
    Sequence(Box<Type>),
    /// A value of the type, or nothing.
    Optional(Box<Type>),
}

impl Type {
    /// The tensor type, if it is one.
    pub fn as_tensor(&self) -> Option<&TensorType> {
        match self {
            Type::Tensor(t) => Some(t),
            _ => None,
        }
    }
}

impl From<TensorType> for Type {
    fn from(t: TensorType) -> Type {
        Type::Tensor(t)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Tensor(t) => t.fmt(f),
            Type::Sequence(t) => write!(f, "seq({t})"),
            Type::Optional(t) => write!(f, "optional({t})"),
        }
    }
}
