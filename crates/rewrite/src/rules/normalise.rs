//! Softmax and layer norm from exporters' primitive spellings.

use crate::{Outcome, Patch, Rule, look::Look};
use bricolage_ir::{
    Graph, NodeId, Numerics, Op, OpKind, Real, ValueId,
    ops::{Binary, LayerNorm, ReduceKind, Softmax, Unary},
};
use bricolage_tensor::DType;

/// `exp(x - max(x)) / sum(exp(x - max(x)))` along one dim.
pub(super) struct RecogniseSoftmax;

impl RecogniseSoftmax {
    /// A reduction of this kind along one dim, kept as 1: its operand and the dim.
    fn reduction(look: Look<'_>, value: ValueId, kind: ReduceKind) -> Option<(ValueId, usize)> {
        let (_, node) = look.node(value)?;
        match &node.op {
            Op::Reduce(r) if r.kind == kind && r.keep_dims && r.axes.len() == 1 => {
                Some((look.operand(node, 0)?, r.axes[0]))
            }
            _ => None,
        }
    }
}

impl Rule for RecogniseSoftmax {
    fn name(&self) -> &'static str {
        "recognise-softmax"
    }

    fn numerics(&self) -> Numerics {
        Numerics::Reassociates
    }

    fn anchors(&self) -> &'static [OpKind] {
        &[OpKind::Binary]
    }

    fn apply(&self, graph: &Graph, at: NodeId) -> Outcome {
        let look = Look(graph);
        let output = graph.node(at).outputs[0];
        let Some((above, below)) = look.binary(output, Binary::Div) else {
            return Outcome::NoMatch;
        };
        let Some((summed, axis)) = Self::reduction(look, below, ReduceKind::Sum) else {
            return Outcome::NoMatch;
        };
        let Some(argument) = look.unary(above, Unary::Exp).filter(|_| summed == above) else {
            return Outcome::NoMatch;
        };
        let shifted = look.binary(argument, Binary::Sub).and_then(|(x, max)| {
            let (operand, along) = Self::reduction(look, max, ReduceKind::Max)?;
            (operand == x && along == axis).then_some(x)
        });
        let Some(x) = shifted else {
            return Outcome::Declined(
                "the exponents are not shifted by their maximum, and may overflow",
            );
        };
        let op = Softmax { axis, log: false };
        Outcome::Rewrite(Patch::in_place_of(at, output, op, x))
    }
}

/// `x * r`, `x / s`: the dividend and the divisor, where `r` is `1 / s`.
fn quotient(look: Look<'_>, value: ValueId) -> Option<(ValueId, ValueId)> {
    if let Some((x, root)) = look.binary(value, Binary::Div) {
        return Some((x, look.unary(root, Unary::Sqrt)?));
    }
    let pair = look.binary(value, Binary::Mul)?;
    let inverse_root = |v| {
        look.unary(v, Unary::Rsqrt)
            .or_else(|| look.unary(look.unary(v, Unary::Reciprocal)?, Unary::Sqrt))
            .or_else(|| {
                let (one, root) = look.binary(v, Binary::Div)?;
                look.scalar(one).filter(|n| *n == 1.0)?;
                look.unary(root, Unary::Sqrt)
            })
    };
    look.either(pair, inverse_root).map(|(square, x)| (x, square))
}

/// `mean(y^2) + eps` over trailing dims: `y`, `eps` and the first dim.
fn mean_square(look: Look<'_>, value: ValueId) -> Option<(ValueId, f64, usize)> {
    let (mean, epsilon) = look.with_scalar(value, Binary::Add)?;
    let (square, axis) = look.trailing_mean(mean)?;
    Some((look.square(square)?, epsilon, axis))
}

/// Whether squares of values in range may be out of range, spelled as the graph spells them: a norm that is one op
/// takes them in a wider type. `bf16` has the range of `f32`, in which kernels take them too.
fn overflows(look: Look<'_>, value: ValueId) -> bool {
    look.tensor_type(value).is_some_and(|t| t.dtype == DType::F16)
}

/// Why a norm is left as it is spelled.
const OVERFLOWS: Outcome = Outcome::Declined("squares may overflow in half precision");

/// `(x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps)` over trailing dims.
pub(super) struct RecogniseLayerNorm;

impl Rule for RecogniseLayerNorm {
    fn name(&self) -> &'static str {
        "recognise-layer-norm"
    }

    fn numerics(&self) -> Numerics {
        Numerics::Reassociates
    }

    fn anchors(&self) -> &'static [OpKind] {
        &[OpKind::Binary]
    }

    fn apply(&self, graph: &Graph, at: NodeId) -> Outcome {
        let look = Look(graph);
        let output = graph.node(at).outputs[0];
        let Some((centred, square)) = quotient(look, output) else { return Outcome::NoMatch };
        let Some((squared, epsilon, axis)) = mean_square(look, square) else {
            return Outcome::NoMatch;
        };
        let centre = |v| {
            let (x, mean) = look.binary(v, Binary::Sub)?;
            let (operand, along) = look.trailing_mean(mean)?;
            (operand == x && along == axis).then_some(x)
        };
        let (Some(x), Some(again)) = (centre(centred), centre(squared)) else {
            return Outcome::NoMatch;
        };
        if x != again {
            return Outcome::Declined("the variance is that of another value");
        }
        if overflows(look, squared) {
            return OVERFLOWS;
        }
        let op = LayerNorm { axis, epsilon: Real::new(epsilon), rms: false, statistics: false };
        Outcome::Rewrite(Patch::in_place_of(at, output, op, x))
    }
}

/// `x / sqrt(mean(x^2) + eps)` over trailing dims.
pub(super) struct RecogniseRmsNorm;

impl Rule for RecogniseRmsNorm {
    fn name(&self) -> &'static str {
        "recognise-rms-norm"
    }

    fn numerics(&self) -> Numerics {
        Numerics::Reassociates
    }

    fn anchors(&self) -> &'static [OpKind] {
        &[OpKind::Binary]
    }

    fn apply(&self, graph: &Graph, at: NodeId) -> Outcome {
        let look = Look(graph);
        let output = graph.node(at).outputs[0];
        let Some((x, square)) = quotient(look, output) else { return Outcome::NoMatch };
        let Some((squared, epsilon, axis)) = mean_square(look, square) else {
            return Outcome::NoMatch;
        };
        if squared != x {
            return Outcome::Declined("the mean square is that of another value");
        }
        if overflows(look, squared) {
            return OVERFLOWS;
        }
        let op = LayerNorm { axis, epsilon: Real::new(epsilon), rms: true, statistics: false };
        Outcome::Rewrite(Patch::in_place_of(at, output, op, x))
    }
}

/// The norm that computes `value` for this reader alone, and whether `constant` has the dims that it
/// normalises over.
fn absorb(graph: &Graph, at: NodeId, function: Binary, operand: usize) -> Outcome {
    let (look, output) = (Look(graph), graph.node(at).outputs[0]);
    let Some(pair) = look.binary(output, function) else { return Outcome::NoMatch };
    let norm = |v| {
        let (id, node) = look.node(v)?;
        match &node.op {
            Op::LayerNorm(op)
                if !op.statistics
                    && look.operand(node, operand).is_none()
                    && look.is_private(v) =>
            {
                Some((id, v, *op))
            }
            _ => None,
        }
    };
    let Some(((id, value, op), constant)) = look.either(pair, norm) else {
        return Outcome::NoMatch;
    };
    if graph.constant_of(constant).is_none() {
        return Outcome::NoMatch;
    }
    if operand == 2 && op.rms {
        return Outcome::Declined("a root-mean-square norm has no summand");
    }
    let (Some(dims), Some(shape)) = (look.dims(value), look.dims(constant)) else {
        return Outcome::NoMatch;
    };
    if shape != dims[op.axis..] {
        return Outcome::Declined("the constant does not have the dims that are normalised over");
    }
    let node = graph.node(id);
    let mut operands: Vec<Option<crate::Source>> =
        (0..3).map(|i| look.operand(node, i).map(crate::Source::from)).collect();
    operands[operand] = Some(constant.into());
    while operands.last().is_some_and(Option::is_none) {
        operands.pop();
    }
    let mut patch = Patch::of(&[id, at]);
    let new = patch.add_optional(op, &operands);
    patch.replace(output, new);
    Outcome::Rewrite(patch)
}

/// `layer_norm(x) * scale` is one node.
pub(super) struct AbsorbScale;

impl Rule for AbsorbScale {
    fn name(&self) -> &'static str {
        "absorb-scale"
    }

    fn anchors(&self) -> &'static [OpKind] {
        &[OpKind::Binary]
    }

    fn apply(&self, graph: &Graph, at: NodeId) -> Outcome {
        absorb(graph, at, Binary::Mul, 1)
    }
}

/// `layer_norm(x, scale) + shift` is one node.
pub(super) struct AbsorbShift;

impl Rule for AbsorbShift {
    fn name(&self) -> &'static str {
        "absorb-shift"
    }

    fn anchors(&self) -> &'static [OpKind] {
        &[OpKind::Binary]
    }

    fn apply(&self, graph: &Graph, at: NodeId) -> Outcome {
        absorb(graph, at, Binary::Add, 2)
    }
}
