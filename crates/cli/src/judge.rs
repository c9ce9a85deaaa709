//! How far outputs may be apart where the reference evaluator cannot say, because only a foreign runtime
//! knows what a model means.

use bricolage::target::Outputs;
use bricolage_ir::{Graph, Op, Tolerance, disturb};
use bricolage_tensor::Tensor;

/// Whether the reference evaluator knows every op of a graph.
pub(crate) fn is_known(graph: &Graph) -> bool {
    graph.nodes().all(|n| !matches!(graph.node(n).op, Op::Opaque(_)))
}

/// The inputs of the second run that [`tolerances`] needs.
pub(crate) fn disturbed(tensors: &[Tensor]) -> Vec<Tensor> {
    disturb(tensors, 1)
}

/// From the outputs of two runs of one runtime, the second on [`disturbed`] inputs: what a rounding of
/// the inputs changes, twice, since neither side of a comparison is exact.
pub(crate) fn tolerances(outputs: &Outputs, disturbed: &Outputs) -> Vec<Tolerance> {
    let pairs = outputs.iter().zip(disturbed);
    let one = |((_, a), (_, b)): (&(String, Tensor), &(String, Tensor))| {
        // Sizes that depend on contents may have changed: then nothing but equality is allowed.
        match a.ty() == b.ty() {
            true => Tolerance::from_floor(a, b),
            false => Tolerance::EXACT,
        }
    };
    pairs.map(one).map(twice).collect()
}

/// For two sides of which neither is exact.
pub(crate) fn twice(t: Tolerance) -> Tolerance {
    Tolerance { max_abs: 2.0 * t.max_abs, relative_l2: 2.0 * t.relative_l2 }
}

/// Tells the user what outputs are compared by.
pub(crate) fn tell(target: &str) {
    crate::setup::warn(&[format!(
        "the reference cannot evaluate `{target}`: outputs are compared with its own, and twice what one \
         rounding of its inputs changes is allowed"
    )]);
}
