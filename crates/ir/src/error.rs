//! Why operands do not fit an op, and why an evaluation gave no result.

use bricolage_tensor::{DType, Dim, TensorError, Type};

/// Why a set of operands does not fit an op. Operands and dims count from 0.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TypeError {
    /// Too few or too many operands.
    #[error("needs {} operands, found {got}", span(*.min, *.max))]
    Arity {
        /// Fewest allowed.
        min: usize,
        /// Most allowed.
        max: usize,
        /// Number given.
        got: usize,
    },
    /// A required operand is absent.
    #[error("needs operand {operand}, which is absent")]
    Missing {
        /// Which one.
        operand: usize,
    },
    /// A tensor was needed.
    #[error("needs a tensor as operand {operand}, found {got}")]
    NotTensor {
        /// Which one.
        operand: usize,
        /// Its type.
        got: Type,
    },
    /// Another kind of value was needed.
    #[error("needs {expected} as operand {operand}, found {got}")]
    Kind {
        /// Which one.
        operand: usize,
        /// What was needed.
        expected: String,
        /// Its type.
        got: Type,
    },
    /// Wrong element type.
    #[error("needs {expected} elements in operand {operand}, found {got}")]
    DType {
        /// Which one.
        operand: usize,
        /// What is allowed.
        expected: &'static str,
        /// What it has.
        got: DType,
    },
    /// Two operands must have the same element type.
    #[error("needs operands {} and {} to have one element type, found {} and {}", .operands.0, .operands.1, .got.0, .got.1)]
    DTypeMismatch {
        /// The two operands.
        operands: (usize, usize),
        /// Their element types.
        got: (DType, DType),
    },
    /// Wrong number of dims.
    #[error("needs {} dims in operand {operand}, found {got}", span(*.min, *.max))]
    Rank {
        /// Which one.
        operand: usize,
        /// Fewest allowed.
        min: usize,
        /// Most allowed.
        max: usize,
        /// Number found.
        got: usize,
    },
    /// Two dims must be equal.
    #[error("needs operand {} dim {} to equal operand {} dim {}, found {} and {}", .left.0, .left.1, .right.0, .right.1, .got.0, .got.1)]
    DimMismatch {
        /// Operand and dim.
        left: (usize, usize),
        /// Operand and dim.
        right: (usize, usize),
        /// The two sizes.
        got: (Dim, Dim),
    },
    /// A dim must have a certain size.
    #[error("needs operand {operand} dim {dim} to be {expected}, found {got}")]
    Dim {
        /// Which operand.
        operand: usize,
        /// Which dim.
        dim: usize,
        /// The size needed.
        expected: Dim,
        /// The size found.
        got: Dim,
    },
    /// Two shapes do not broadcast.
    #[error("needs operand {operand} to broadcast with the operands before it, found size {} against {}", .got.0, .got.1)]
    Broadcast {
        /// The operand that does not fit.
        operand: usize,
        /// Its size, and the size so far.
        got: (Dim, Dim),
    },
    /// An axis attribute lies outside the dims.
    #[error("needs an axis below {rank}, found {axis}")]
    Axis {
        /// The attribute.
        axis: usize,
        /// Number of dims.
        rank: usize,
    },
    /// An attribute does not fit.
    #[error("needs attribute `{name}` to be {expected}, found {got}")]
    Attribute {
        /// Its name.
        name: &'static str,
        /// What was needed.
        expected: String,
        /// What was found.
        got: String,
    },
    /// The shape asked for holds another number of elements.
    #[error("needs a shape of {} elements, found {}", .expected, .got)]
    Elements {
        /// Number of elements there are.
        expected: Dim,
        /// Number of elements of the shape asked for.
        got: Dim,
    },
}

/// Why an evaluation gave no result.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EvalError {
    /// The operands do not fit the op.
    #[error(transparent)]
    Type(#[from] TypeError),
    /// A tensor could not be made.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// A size is not known although the operands are.
    #[error("needs a number for `{dim}`, which no input determines")]
    Symbolic {
        /// The size.
        dim: Dim,
    },
    /// An operand is not of the kind needed.
    #[error("needs a {expected} as operand {operand}")]
    Operand {
        /// Which one.
        operand: usize,
        /// What was needed.
        expected: &'static str,
    },
    /// An element has a value that the op does not allow.
    #[error("operand {operand} has {what}")]
    Domain {
        /// Which one.
        operand: usize,
        /// A clause with the value found.
        what: String,
    },
    /// The op has no meaning here, only in a foreign runtime.
    #[error("`{name}` has no reference evaluation: only a foreign backend knows what it means")]
    Foreign {
        /// Domain and name.
        name: String,
    },
    /// The inputs given do not match those of the graph.
    #[error("graph input `{name}` needs {expected}, found {got}")]
    Input {
        /// Name of the input.
        name: String,
        /// Its type.
        expected: String,
        /// What was given.
        got: String,
    },
    /// A node failed.
    #[error("node {origin} ({op}): {error}")]
    Node {
        /// Names in the user's model.
        origin: String,
        /// Name of the op.
        op: &'static str,
        /// Why.
        error: Box<EvalError>,
    },
}

fn span(min: usize, max: usize) -> String {
    match (min, max) {
        (min, max) if min == max => min.to_string(),
        (min, usize::MAX) => format!("at least {min}"),
        (min, max) => format!("{min} to {max}"),
    }
}
