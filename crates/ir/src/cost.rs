//! Work of an op, derived from its axes, body and types.

use crate::{AxisKind, AxisMap, Body, Combiner, Fact};
use bricolage_tensor::{Dim, Type};

/// How much there is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Points of the iteration space.
    pub points: u64,
    /// Multiply-adds; 0 for an op that only moves or maps elements.
    pub macs: u64,
    /// Bytes of all operands and results, each counted once.
    pub bytes: u64,
}

impl Work {
    /// The work that follows from the facets; `None` while a size is symbolic, or on overflow.
    pub fn derive(
        axes: &AxisMap,
        body: Option<&Body>,
        inputs: &[Option<&Fact>],
        outputs: &[Fact],
    ) -> Option<Work> {
        let points = axes.axes.iter().try_fold(1u64, |product, axis| {
            product.checked_mul(axis.extent.as_const()?.max(0) as u64)
        })?;
        let sums = axes.axes.iter().any(|a| a.kind == AxisKind::Reduce(Combiner::Sum));
        let macs = if sums && body.is_some_and(Body::multiplies) { points } else { 0 };
        let mut bytes = 0u64;
        for fact in inputs.iter().flatten().copied().chain(outputs) {
            bytes = bytes.checked_add(byte_len(fact)?)?;
        }
        Some(Work { points, macs, bytes })
    }
}

/// Bytes of a dense tensor of this type; `None` while a size is symbolic.
pub(crate) fn byte_len(fact: &Fact) -> Option<u64> {
    match &fact.ty {
        Type::Tensor(t) => t.byte_len(),
        _ => None,
    }
}

/// The product of dims as a number; `None` while one is symbolic.
pub(crate) fn product(dims: &[Dim]) -> Option<u64> {
    dims.iter().try_fold(1u64, |product, d| product.checked_mul(d.as_const()?.max(0) as u64))
}
