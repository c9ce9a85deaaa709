//! What inference knows about a value.

use bricolage_tensor::{DType, Dim, Tensor, TensorType, Type};
use std::fmt;

/// A value's type and, for a small tensor of sizes or indices, as much of its content as is known.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fact {
    /// The type.
    pub ty: Type,
    /// Elements of an integer or boolean tensor of at most one dim and [`Fact::MOST_KNOWN`]
    /// elements, where at least one is known.
    pub known: Option<Vec<Option<Dim>>>,
}

impl Fact {
    /// Larger tensors have no known elements.
    pub const MOST_KNOWN: usize = 1024;

    /// A tensor of which only the type is known.
    pub fn tensor(dtype: DType, dims: impl IntoIterator<Item = Dim>) -> Fact {
        Fact::from(TensorType { dtype, shape: dims.into_iter().collect() })
    }

    /// The tensor with this content.
    pub fn of(tensor: &Tensor) -> Fact {
        let fact = Fact::from(tensor.ty());
        let content = !tensor.dtype().is_float()
            && tensor.dtype() != DType::U64
            && tensor.dims().len() <= 1
            && tensor.len() <= Fact::MOST_KNOWN;
        if !content {
            return fact;
        }
        fact.with_known(tensor.to_i64().into_iter().map(|v| Some(Dim::from(v))).collect())
    }

    /// The same type with these elements, dropped where the type or the number does not allow them.
    pub fn with_known(mut self, known: Vec<Option<Dim>>) -> Fact {
        self.known = None;
        if let Type::Tensor(t) = &self.ty {
            let fits = t.shape.len() <= 1
                && !t.dtype.is_float()
                && known.len() <= Fact::MOST_KNOWN
                && t.shape.element_count() == Some(known.len() as u64);
            if fits && known.iter().any(Option::is_some) {
                self.known = Some(known);
            }
        }
        self
    }

    /// All elements, if every one is a known number.
    pub fn as_numbers(&self) -> Option<Vec<i64>> {
        self.known.as_ref()?.iter().map(|d| d.as_ref()?.as_const()).collect()
    }

    /// All elements, if every one is a known expression.
    pub fn as_dims(&self) -> Option<Vec<Dim>> {
        self.known.as_ref()?.iter().cloned().collect()
    }
}

impl From<TensorType> for Fact {
    fn from(t: TensorType) -> Fact {
        Fact { ty: Type::Tensor(t), known: None }
    }
}

impl From<Type> for Fact {
    fn from(ty: Type) -> Fact {
        Fact { ty, known: None }
    }
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.ty.fmt(f)
    }
}
