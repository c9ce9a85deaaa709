//! Numbers for each channel that move into the weights of the convolution before them.

use crate::{Outcome, Patch, Rule, Source, look::Look};
use bricolage_ir::{Graph, Node, NodeId, Numerics, Op, OpKind, ValueId, ops::Binary};
use bricolage_tensor::Tensor;

/// One number for each channel of `value`, from a constant that broadcasts over everything else.
fn per_channel(look: Look<'_>, value: ValueId, constant: ValueId) -> Option<Vec<f64>> {
    let dims = look.dims(value)?;
    let tensor = look.0.constant_of(constant)?;
    let channels = *dims.get(1)?;
    if tensor.len() == 1 && tensor.dims().len() <= dims.len() {
        return Some(vec![tensor.to_f64()[0]; channels as usize]);
    }
    let lead = dims.len().checked_sub(tensor.dims().len())?;
    let fits = tensor
        .dims()
        .iter()
        .enumerate()
        .all(|(d, &n)| n == if lead + d == 1 { channels } else { 1 });
    (fits && lead <= 1).then(|| tensor.to_f64())
}

/// Weights and bias of a convolution whose output channel `c` is `scale[c] * before + shift[c]`;
/// `None` when they are not constants.
pub(super) fn scaled_weights(
    look: Look<'_>,
    conv: &Node,
    scale: &[f64],
    shift: &[f64],
) -> Option<(Tensor, Tensor)> {
    let weights = look.0.constant_of(look.operand(conv, 1)?)?;
    let dtype = weights.dtype();
    let bias = match look.operand(conv, 2) {
        None => vec![0.0; scale.len()],
        Some(bias) => look.0.constant_of(bias)?.to_f64(),
    };
    let dims = weights.dims();
    // `[m, c, k..]` for a convolution, `[c, m / groups, k..]` for a transposed one.
    let inner: usize = dims[2..].iter().product::<i64>() as usize;
    let channel_of: Box<dyn Fn(usize) -> usize> = match &conv.op {
        Op::Conv(_) => {
            let each = dims[1] as usize * inner;
            Box::new(move |i| i / each.max(1))
        }
        Op::ConvTranspose(t) => {
            let (rows, per_group) = (dims[0] as usize, dims[1] as usize);
            let rows_per_group = (rows / t.groups.max(1) as usize).max(1);
            Box::new(move |i| {
                let (row, column) =
                    (i / inner.max(1) / per_group.max(1), i / inner.max(1) % per_group.max(1));
                row / rows_per_group * per_group + column
            })
        }
        _ => return None,
    };
    let scaled: Vec<f64> =
        weights.to_f64().iter().enumerate().map(|(i, w)| w * scale[channel_of(i)]).collect();
    let shifted: Vec<f64> =
        bias.iter().zip(scale).zip(shift).map(|((b, s), t)| b * s + t).collect();
    Some((
        Tensor::from_f64(dtype, dims, &scaled),
        Tensor::from_f64(dtype, &[shifted.len() as i64], &shifted),
    ))
}

/// A patch in which the convolution `conv` with new weights gives `output`.
pub(super) fn with_weights(
    look: Look<'_>,
    conv: NodeId,
    after: NodeId,
    output: ValueId,
    weights: (Tensor, Tensor),
) -> Option<Patch> {
    let node = look.0.node(conv);
    let name = look.0.value(look.operand(node, 1)?).name.clone();
    let mut patch = Patch::of(&[conv, after]);
    let w = patch.constant(format!("{name}.folded"), weights.0);
    let b = patch.constant(format!("{name}.bias"), weights.1);
    let x: Source = look.operand(node, 0)?.into();
    let new = patch.add(node.op.clone(), &[x, w, b]);
    patch.replace(output, new);
    Some(patch)
}

/// The convolution that computes `value` and is read only there.
pub(super) fn private_conv(look: Look<'_>, value: ValueId) -> Option<(NodeId, &Node)> {
    let (id, node) = look.node(value)?;
    let conv = matches!(node.op, Op::Conv(_) | Op::ConvTranspose(_));
    (conv && look.is_private(value)).then_some((id, node))
}

fn fold(graph: &Graph, at: NodeId, function: Binary) -> Outcome {
    let (look, node) = (Look(graph), graph.node(at));
    if node.op != Op::Binary(function) {
        return Outcome::NoMatch;
    }
    let output = node.outputs[0];
    let Some(pair) = look.binary(output, function) else { return Outcome::NoMatch };
    let found = look.either(pair, |v| private_conv(look, v).map(|c| (v, c)));
    let Some(((value, (conv, conv_node)), constant)) = found else { return Outcome::NoMatch };
    let Some(numbers) = per_channel(look, value, constant) else {
        return if graph.constant_of(constant).is_some() {
            Outcome::Declined("the constant is not one number for each channel")
        } else {
            Outcome::NoMatch
        };
    };
    let (ones, zeros) = (vec![1.0; numbers.len()], vec![0.0; numbers.len()]);
    let weights = match function {
        Binary::Mul => scaled_weights(look, conv_node, &numbers, &zeros),
        _ => scaled_weights(look, conv_node, &ones, &numbers),
    };
    match weights.and_then(|w| with_weights(look, conv, at, output, w)) {
        Some(patch) => Outcome::Rewrite(patch),
        None => Outcome::Declined("the weights are not constants"),
    }
}

/// `conv(x, w, b) * s` is `conv(x, s w, s b)` for one `s` a channel.
pub(super) struct FoldScaleIntoConv;

impl Rule for FoldScaleIntoConv {
    fn name(&self) -> &'static str {
        "fold-scale-into-conv"
    }

    fn numerics(&self) -> Numerics {
        Numerics::Reassociates
    }

    fn anchors(&self) -> &'static [OpKind] {
        &[OpKind::Binary]
    }

    fn apply(&self, graph: &Graph, at: NodeId) -> Outcome {
        fold(graph, at, Binary::Mul)
    }
}

/// `conv(x, w, b) + t` is `conv(x, w, b + t)` for one `t` a channel.
pub(super) struct FoldBiasIntoConv;

impl Rule for FoldBiasIntoConv {
    fn name(&self) -> &'static str {
        "fold-bias-into-conv"
    }

    fn numerics(&self) -> Numerics {
        Numerics::Reassociates
    }

    fn anchors(&self) -> &'static [OpKind] {
        &[OpKind::Binary]
    }

    fn apply(&self, graph: &Graph, at: NodeId) -> Outcome {
        fold(graph, at, Binary::Add)
    }
}
