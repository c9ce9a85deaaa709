//! Questions that rules ask about a graph.

use bricolage_ir::{
    Graph, Node, NodeId, Op, ValueId,
    ops::{Binary, ReduceKind, Unary},
};
use bricolage_tensor::{DType, TensorType, Type};

/// A graph with the questions.
#[derive(Clone, Copy)]
pub(crate) struct Look<'a>(pub(crate) &'a Graph);

impl<'a> Look<'a> {
    /// The node that computes `value`.
    pub(crate) fn node(self, value: ValueId) -> Option<(NodeId, &'a Node)> {
        let id = self.0.producer(value)?;
        Some((id, self.0.node(id)))
    }

    /// Operand `i` of a node, if it is there.
    pub(crate) fn operand(self, node: &Node, i: usize) -> Option<ValueId> {
        node.inputs.get(i).copied().flatten()
    }

    pub(crate) fn tensor_type(self, value: ValueId) -> Option<&'a TensorType> {
        self.0.fact(value).ty.as_tensor()
    }

    /// Number of dims.
    pub(crate) fn rank(self, value: ValueId) -> Option<usize> {
        self.tensor_type(value).map(|t| t.shape.len())
    }

    pub(crate) fn dims(self, value: ValueId) -> Option<Vec<i64>> {
        self.tensor_type(value)?.shape.as_fixed()
    }

    pub(crate) fn is_float(self, value: ValueId) -> bool {
        self.tensor_type(value).is_some_and(|t| t.dtype.is_float())
    }

    pub(crate) fn same_type(self, a: ValueId, b: ValueId) -> bool {
        let ty = |v: ValueId| -> &Type { &self.0.fact(v).ty };
        ty(a) == ty(b)
    }

    /// Whether one node alone reads the value, once, and it is no output.
    pub(crate) fn is_private(self, value: ValueId) -> bool {
        self.0.uses(value).len() == 1 && !self.0.is_output(value)
    }

    /// The operand of the unary function that computes `value`.
    pub(crate) fn unary(self, value: ValueId, function: Unary) -> Option<ValueId> {
        let (_, node) = self.node(value)?;
        if node.op == Op::Unary(function) { self.operand(node, 0) } else { None }
    }

    /// The operands of the binary function that computes `value`.
    pub(crate) fn binary(self, value: ValueId, function: Binary) -> Option<(ValueId, ValueId)> {
        let (_, node) = self.node(value)?;
        if node.op != Op::Binary(function) {
            return None;
        }
        Some((self.operand(node, 0)?, self.operand(node, 1)?))
    }

    /// The number that every element of a constant is.
    pub(crate) fn scalar(self, value: ValueId) -> Option<f64> {
        let tensor = self.0.constant_of(value)?;
        if tensor.is_empty() || tensor.len() > 1 << 16 {
            return None;
        }
        let elements = tensor.to_f64();
        elements.iter().all(|v| *v == elements[0]).then(|| elements[0])
    }

    /// A binary function of a value and a constant number: the value, and the number. Commutative
    /// functions take either order, others the number second.
    pub(crate) fn with_scalar(self, value: ValueId, function: Binary) -> Option<(ValueId, f64)> {
        let (a, b) = self.binary(value, function)?;
        let commutes = matches!(function, Binary::Add | Binary::Mul);
        match (self.scalar(b), self.scalar(a)) {
            (Some(number), _) if self.same_type(a, value) => Some((a, number)),
            (_, Some(number)) if commutes && self.same_type(b, value) => Some((b, number)),
            _ => None,
        }
    }

    /// [`Look::with_scalar`] when the number is `expected`, to the precision of the type.
    pub(crate) fn with_number(
        self,
        value: ValueId,
        function: Binary,
        expected: f64,
    ) -> Option<ValueId> {
        let (other, number) = self.with_scalar(value, function)?;
        self.is_close(value, number, expected).then_some(other)
    }

    /// The two operands in either order for which `first` holds of one: that one, and the other.
    pub(crate) fn either<T>(
        self,
        pair: (ValueId, ValueId),
        first: impl Fn(ValueId) -> Option<T>,
    ) -> Option<(T, ValueId)> {
        let (a, b) = pair;
        first(a).map(|t| (t, b)).or_else(|| first(b).map(|t| (t, a)))
    }

    /// `value` scaled by a number: multiplied by it, or divided by its inverse.
    pub(crate) fn scaled(self, value: ValueId) -> Option<(ValueId, f64)> {
        self.with_scalar(value, Binary::Mul)
            .or_else(|| self.with_scalar(value, Binary::Div).map(|(v, n)| (v, 1.0 / n)))
    }

    /// The operand of the mean over trailing dims, kept as 1, and the first of those dims.
    pub(crate) fn trailing_mean(self, value: ValueId) -> Option<(ValueId, usize)> {
        let (_, node) = self.node(value)?;
        let Op::Reduce(r) = &node.op else { return None };
        let x = self.operand(node, 0)?;
        let rank = self.rank(x)?;
        let mut axes = r.axes.clone();
        axes.sort_unstable();
        let first = *axes.first()?;
        let trailing = axes.iter().copied().eq(first..rank);
        (r.kind == ReduceKind::Mean && r.keep_dims && trailing).then_some((x, first))
    }

    /// `x * x`, `x ^ 2`: the operand.
    pub(crate) fn square(self, value: ValueId) -> Option<ValueId> {
        match self.binary(value, Binary::Mul) {
            Some((a, b)) if a == b => Some(a),
            _ => self.with_number(value, Binary::Pow, 2.0),
        }
    }

    /// Whether two numbers are one number, written to the precision in which `of` computes: that of an
    /// `f32`, or of an `f64`.
    pub(crate) fn is_close(self, of: ValueId, a: f64, b: f64) -> bool {
        let double = self.tensor_type(of).is_some_and(|t| t.dtype == DType::F64);
        let share = if double { 1e-14 } else { 1e-5 };
        (a - b).abs() <= share * b.abs().max(1e-30)
    }
}
