//! Normalisation with fixed statistics is one multiplication and one addition a channel.

use super::channels::{private_conv, scaled_weights, with_weights};
use crate::{Outcome, Patch, Rule, look::Look};
use bricolage_ir::{Graph, NodeId, Numerics, Op, OpKind, ops::Binary};
use bricolage_tensor::Tensor;

/// Factor and summand of each channel: `gamma / sqrt(var + eps)` and `beta - mean * factor`.
fn factors(graph: &Graph, at: NodeId) -> Option<(Vec<f64>, Vec<f64>)> {
    let node = graph.node(at);
    let Op::BatchNorm(norm) = &node.op else { return None };
    let constant = |i| Some(graph.constant_of(Look(graph).operand(node, i)?)?.to_f64());
    let (gamma, beta, mean, variance) = (constant(1)?, constant(2)?, constant(3)?, constant(4)?);
    let scale: Vec<f64> =
        gamma.iter().zip(&variance).map(|(g, v)| g / (v + norm.epsilon.get()).sqrt()).collect();
    let shift = beta.iter().zip(&mean).zip(&scale).map(|((b, m), s)| b - m * s).collect();
    Some((scale, shift))
}

/// `batch_norm(conv(x, w, b))` is a convolution with scaled weights.
pub(super) struct FoldBatchNorm;

impl Rule for FoldBatchNorm {
    fn name(&self) -> &'static str {
        "fold-batch-norm"
    }

    fn numerics(&self) -> Numerics {
        Numerics::Reassociates
    }

    fn anchors(&self) -> &'static [OpKind] {
        &[OpKind::BatchNorm]
    }

    fn apply(&self, graph: &Graph, at: NodeId) -> Outcome {
        let (look, node) = (Look(graph), graph.node(at));
        let Some((conv, conv_node)) = look.operand(node, 0).and_then(|x| private_conv(look, x))
        else {
            return Outcome::NoMatch;
        };
        let Some((scale, shift)) = factors(graph, at) else {
            return Outcome::Declined("the statistics are not constants");
        };
        let weights = scaled_weights(look, conv_node, &scale, &shift);
        match weights.and_then(|w| with_weights(look, conv, at, node.outputs[0], w)) {
            Some(patch) => Outcome::Rewrite(patch),
            None => Outcome::Declined("the weights are not constants"),
        }
    }
}

/// `batch_norm(x)` is `x * scale + shift`, which fuses with what lies around it.
pub(super) struct SplitBatchNorm;

impl Rule for SplitBatchNorm {
    fn name(&self) -> &'static str {
        "split-batch-norm"
    }

    fn numerics(&self) -> Numerics {
        Numerics::Reassociates
    }

    fn anchors(&self) -> &'static [OpKind] {
        &[OpKind::BatchNorm]
    }

    fn apply(&self, graph: &Graph, at: NodeId) -> Outcome {
        let (look, node) = (Look(graph), graph.node(at));
        let (Some(x), Some((scale, shift))) = (look.operand(node, 0), factors(graph, at)) else {
            return Outcome::Declined("the statistics are not constants");
        };
        let Some(t) = look.tensor_type(x) else { return Outcome::NoMatch };
        let mut dims = vec![1i64; t.shape.len().saturating_sub(1)];
        match dims.first_mut() {
            Some(channels) => *channels = scale.len() as i64,
            None => return Outcome::NoMatch,
        }
        if t.shape[1].as_const() != Some(scale.len() as i64) {
            return Outcome::Declined("the number of channels is open");
        }
        let mut patch = Patch::of(&[at]);
        let name = &node.origin[0];
        let s = patch.constant(format!("{name}.scale"), Tensor::from_f64(t.dtype, &dims, &scale));
        let b = patch.constant(format!("{name}.shift"), Tensor::from_f64(t.dtype, &dims, &shift));
        let scaled = patch.add(Binary::Mul, &[x.into(), s]);
        let shifted = patch.add(Binary::Add, &[scaled, b]);
        patch.replace(node.outputs[0], shifted);
        Outcome::Rewrite(patch)
    }
}
