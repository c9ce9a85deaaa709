//! Tensors of texts: a host type that never lies in an arena.

use crate::{Shape, TensorError};
use std::sync::Arc;

/// An immutable dense tensor of texts, row-major, sharing its elements when cloned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strings {
    dims: Vec<i64>,
    elements: Arc<[String]>,
}

impl Strings {
    /// The tensor of these elements; fails when their number does not fit `dims`.
    pub fn new(dims: &[i64], elements: Vec<String>) -> Result<Strings, TensorError> {
        let found = elements.len() as u64;
        match Shape::fixed(dims).element_count() {
            Some(needed) if needed == found => {
                Ok(Strings { dims: dims.to_vec(), elements: elements.into() })
            }
            needed => Err(TensorError::Count { dims: dims.to_vec(), needed, found }),
        }
    }

    /// Dims, outermost first.
    pub fn dims(&self) -> &[i64] {
        &self.dims
    }

    /// The elements, row-major.
    pub fn elements(&self) -> &[String] {
        &self.elements
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_must_fit() {
        let two = || vec!["a".to_owned(), "b".to_owned()];
        assert_eq!(Strings::new(&[2, 1], two()).map(|s| s.elements().len()), Ok(2));
        assert!(matches!(
            Strings::new(&[3], two()),
            Err(TensorError::Count { needed: Some(3), found: 2, .. })
        ));
        assert!(Strings::new(&[-2], two()).is_err());
    }
}
