//! Shapes and types of values.

use crate::{DType, Datum, Dim, Symbol};
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
    /// A tensor whose number of dims is not known.
    Unranked(DType),
    /// A tensor of texts.
    Strings(Shape),
    /// An ordered list of values of one type. A size that is no number differs from element to
    /// element and is called [`Type::ANY`].
    Sequence(Box<Type>),
    /// A value of the type, or nothing. Sizes that are no numbers are called [`Type::ANY`].
    Optional(Box<Type>),
}

impl Type {
    /// Name of an unknown size inside the type of a list or of an optional value; it is no symbol,
    /// for it stands for another number everywhere.
    pub const ANY: &'static str = "_";

    /// The type inside a list or an optional value: every size that is no number becomes
    /// [`Type::ANY`].
    pub fn enclosed(&self) -> Type {
        let shape = |shape: &Shape| -> Shape {
            let any = |d: &Dim| d.as_const().map_or_else(|| Dim::symbol(Type::ANY), Dim::from);
            shape.iter().map(any).collect()
        };
        match self {
            Type::Tensor(t) => Type::Tensor(TensorType { dtype: t.dtype, shape: shape(&t.shape) }),
            Type::Strings(s) => Type::Strings(shape(s)),
            Type::Sequence(t) => Type::Sequence(Box::new(t.enclosed())),
            Type::Optional(t) => Type::Optional(Box::new(t.enclosed())),
            Type::Unranked(d) => Type::Unranked(*d),
        }
    }

    /// Every symbol in the sizes, in order of appearance; inside lists there are none.
    pub fn symbols(&self, into: &mut Vec<Symbol>) {
        match self {
            Type::Tensor(t) => t.shape.iter().for_each(|d| d.symbols(into)),
            Type::Strings(shape) => shape.iter().for_each(|d| d.symbols(into)),
            Type::Sequence(_) | Type::Optional(_) | Type::Unranked(_) => {}
        }
    }

    /// The type that values of either type have inside a list or an optional value; `None` where
    /// there is none.
    pub fn join(&self, other: &Type) -> Option<Type> {
        let shape = |a: &Shape, b: &Shape| -> Shape {
            let one = |(a, b): (&Dim, &Dim)| match a.as_const() {
                Some(n) if a == b => Dim::from(n),
                _ => Dim::symbol(Type::ANY),
            };
            a.iter().zip(b.iter()).map(one).collect()
        };
        Some(match (self, other) {
            (Type::Tensor(a), Type::Tensor(b)) if a.dtype == b.dtype => {
                if a.shape.len() != b.shape.len() {
                    return Some(Type::Unranked(a.dtype));
                }
                Type::Tensor(TensorType { dtype: a.dtype, shape: shape(&a.shape, &b.shape) })
            }
            (Type::Tensor(TensorType { dtype, .. }), Type::Unranked(d))
            | (Type::Unranked(d), Type::Tensor(TensorType { dtype, .. }))
            | (Type::Unranked(d), Type::Unranked(dtype))
                if d == dtype =>
            {
                Type::Unranked(*d)
            }
            (Type::Strings(a), Type::Strings(b)) if a.len() == b.len() => {
                Type::Strings(shape(a, b))
            }
            (Type::Sequence(a), Type::Sequence(b)) => Type::Sequence(Box::new(a.join(b)?)),
            (Type::Optional(a), Type::Optional(b)) => Type::Optional(Box::new(a.join(b)?)),
            (Type::Optional(a), b) | (b, Type::Optional(a)) => Type::Optional(Box::new(a.join(b)?)),
            _ => return None,
        })
    }

    /// Whether some value may have both types: kinds and element types are equal, and no size
    /// surely differs. A value that is there may stand for an optional one.
    pub fn meets(&self, other: &Type) -> bool {
        let shape = |a: &Shape, b: &Shape| {
            let same = |(a, b): (&Dim, &Dim)| (a - b).as_const().is_none_or(|n| n == 0);
            a.len() == b.len() && a.iter().zip(b.iter()).all(same)
        };
        match (self, other) {
            (Type::Tensor(a), Type::Tensor(b)) => a.dtype == b.dtype && shape(&a.shape, &b.shape),
            (Type::Tensor(TensorType { dtype, .. }), Type::Unranked(d))
            | (Type::Unranked(d), Type::Tensor(TensorType { dtype, .. }))
            | (Type::Unranked(d), Type::Unranked(dtype)) => d == dtype,
            (Type::Strings(a), Type::Strings(b)) => shape(a, b),
            (Type::Sequence(a), Type::Sequence(b)) | (Type::Optional(a), Type::Optional(b)) => {
                a.meets(b)
            }
            (Type::Optional(a), b) | (b, Type::Optional(a)) => a.meets(b),
            _ => false,
        }
    }

    /// Whether the content may have this type; symbols take any size.
    pub fn admits(&self, datum: &Datum) -> bool {
        match (self, datum) {
            (Type::Sequence(t), Datum::Sequence(all)) => all.iter().all(|d| t.admits(d)),
            (Type::Optional(_), Datum::Optional(None)) => true,
            (Type::Optional(t), Datum::Optional(Some(d))) => t.admits(d),
            (Type::Optional(t), d) => t.admits(d),
            (_, Datum::Optional(_) | Datum::Sequence(_)) => false,
            (ty, d) => d.ty().is_some_and(|d| ty.meets(&d)),
        }
    }

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
            Type::Unranked(d) => write!(f, "{d}[..]"),
            Type::Strings(s) => write!(f, "str{s}"),
            Type::Sequence(t) => write!(f, "seq({t})"),
            Type::Optional(t) => write!(f, "optional({t})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tensor;

    #[test]
    fn types_join_and_meet() {
        let t = |dims: &[i64]| Type::from(TensorType::fixed(DType::F32, dims));
        let any = |text: &str| t(&[2, 3]).join(&t(&[2, 4])).unwrap().to_string() == text;
        assert!(any("f32[2, _]"));
        assert_eq!(t(&[2]).join(&t(&[2, 4])), Some(Type::Unranked(DType::F32)));
        assert_eq!(t(&[2]).join(&Type::Unranked(DType::I64)), None);
        assert_eq!(t(&[2]).join(&Type::Strings(Shape::fixed(&[2]))), None);
        let open = TensorType { dtype: DType::F32, shape: Shape(vec![Dim::symbol("n")]) };
        assert!(Type::from(open.clone()).meets(&t(&[2])) && !t(&[3]).meets(&t(&[2])));
        assert_eq!(Type::from(open).enclosed().to_string(), "f32[_]");
        let optional = Type::Optional(Box::new(t(&[2])));
        assert!(optional.admits(&Tensor::of(&[2], &[0f32; 2]).into()));
        assert!(optional.admits(&Datum::Optional(None)) && !t(&[2]).admits(&Datum::Optional(None)));
    }
}
