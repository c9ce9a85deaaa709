//! What a value holds at run time.

use crate::{Shape, Strings, Tensor, Type};

/// The content of a value: a tensor, texts, a list, or something that may be absent.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Datum {
    /// A tensor.
    Tensor(Tensor),
    /// A tensor of texts.
    Strings(Strings),
    /// Values in order.
    Sequence(Vec<Datum>),
    /// A value, or nothing.
    Optional(Option<Box<Datum>>),
}

impl Datum {
    /// The tensor, if it is one.
    pub fn as_tensor(&self) -> Option<&Tensor> {
        match self {
            Datum::Tensor(t) => Some(t),
            _ => None,
        }
    }

    /// The type with constant dims. `None` where the content does not tell it: an empty list, or
    /// an absent value; a list has the type of all its elements together ([`Type::join`]).
    pub fn ty(&self) -> Option<Type> {
        match self {
            Datum::Tensor(t) => Some(Type::Tensor(t.ty())),
            Datum::Strings(s) => Some(Type::Strings(Shape::fixed(s.dims()))),
            Datum::Sequence(all) => {
                let mut types = all.iter().map(Datum::ty);
                let first = types.next()??;
                let all = types.try_fold(first, |all, ty| all.join(&ty?))?;
                Some(Type::Sequence(Box::new(all)))
            }
            Datum::Optional(inner) => Some(Type::Optional(Box::new(inner.as_ref()?.ty()?))),
        }
    }
}

impl From<Strings> for Datum {
    fn from(s: Strings) -> Datum {
        Datum::Strings(s)
    }
}

impl From<Tensor> for Datum {
    fn from(t: Tensor) -> Datum {
        Datum::Tensor(t)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_tells_its_type() {
        let t: Datum = Tensor::of(&[2], &[1f32, 2.0]).into();
        assert_eq!(t.ty().map(|t| t.to_string()).as_deref(), Some("f32[2]"));
        let list = Datum::Sequence(vec![t.clone(), t]);
        assert_eq!(list.ty().map(|t| t.to_string()).as_deref(), Some("seq(f32[2])"));
        let other: Datum = Tensor::of(&[1], &[1f32]).into();
        let mixed =
            Datum::Sequence(vec![other.clone(), other, Tensor::of(&[2], &[0f32; 2]).into()]);
        assert_eq!(mixed.ty().map(|t| t.to_string()).as_deref(), Some("seq(f32[_])"));
        assert_eq!(Datum::Optional(None).ty(), None);
        assert!(list.as_tensor().is_none());
    }
}
