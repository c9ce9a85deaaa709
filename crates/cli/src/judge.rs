//! How far outputs may be apart where the reference evaluator cannot say, because only a foreign runtime
//! knows what a model means.

use bricolage::{Error, target::Outputs};
use bricolage_ir::{Graph, Op, Tolerance, disturb};
use bricolage_tensor::Tensor;

/// Whether the reference evaluator knows every op of a graph.
pub(crate) fn is_known(graph: &Graph) -> bool {
    graph.nodes().all(|n| !matches!(graph.node(n).op, Op::Opaque(_)))
}

/// The inputs of the second run that [`tolerances`] needs. Fails where no input has a rounding.
pub(crate) fn disturbed(tensors: &[Tensor]) -> Result<Vec<Tensor>, Error> {
    if tensors.iter().any(|t| t.dtype().is_float()) {
        return Ok(disturb(tensors, 1));
    }
    Err(Error::Inputs {
        what: "the reference cannot evaluate the model and none of its inputs holds floats: nothing tells \
               how far outputs may be apart"
            .to_owned(),
        help: "bench the runtimes one by one".to_owned(),
    })
}

/// From the outputs of two runs of one runtime, the second on [`disturbed`] inputs: twice the tolerance
/// of one side, since neither side of a comparison is exact. A low estimate: a deep model rounds more
/// inside than at its inputs.
pub(crate) fn tolerances(outputs: &Outputs, disturbed: &Outputs) -> Vec<Tolerance> {
    let pairs = outputs.iter().zip(disturbed);
    let one = |((_, a), (_, b)): (&(String, Tensor), &(String, Tensor))| {
        // Sizes that depend on contents may have changed: then nothing but equality is allowed.
        match a.ty() == b.ty() {
            true => Tolerance::from_floor(a, b),
            false => Tolerance::EXACT,
        }
    };
    pairs.map(one).map(|t| t.plus(t)).collect()
}

/// Tells the user what outputs are compared by.
pub(crate) fn tell(target: &str) {
    crate::setup::warn(&[format!(
        "the reference cannot evaluate `{target}`: outputs are compared with its own, and sixteen times what \
         one rounding of its inputs changed is allowed, a low estimate for a deep model"
    )]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_floats_nothing_tells_how_far_outputs_may_be_apart() {
        let (ids, x) = (Tensor::of(&[3], &[1i64, 2, 3]), Tensor::of(&[2], &[0.5f32, 0.25]));
        for none in [&[][..], std::slice::from_ref(&ids)] {
            let Err(error) = disturbed(none) else { panic!("{none:?}") };
            assert!(error.to_string().contains("none of its inputs holds floats"), "{error}");
        }
        let [same, other] = &disturbed(&[ids.clone(), x.clone()]).unwrap()[..] else { panic!() };
        assert!(*same == ids && *other != x);
    }
}
