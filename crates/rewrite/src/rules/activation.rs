//! Activations from exporters' primitive spellings.

use crate::{Outcome, Patch, Rule, look::Look};
use bricolage_ir::{
    Graph, NodeId, Numerics, Op, OpKind, ValueId,
    ops::{Binary, Unary},
};
use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI};

/// A patch in which `function(x)` gives the output of `at`.
fn recognised(graph: &Graph, at: NodeId, x: ValueId, function: Unary) -> Outcome {
    let output = graph.node(at).outputs[0];
    if !Look(graph).same_type(x, output) {
        return Outcome::Declined("the operand is broadcast");
    }
    Outcome::Rewrite(Patch::in_place_of(at, output, function, x))
}

/// The operands of the product that `at` computes.
fn product(graph: &Graph, at: NodeId) -> Option<(ValueId, ValueId)> {
    let node = graph.node(at);
    let pair = Look(graph).binary(node.outputs[0], Binary::Mul)?;
    Look(graph).is_float(pair.0).then_some(pair)
}

/// `x * sigmoid(x)`.
pub(super) struct RecogniseSilu;

impl Rule for RecogniseSilu {
    fn name(&self) -> &'static str {
        "recognise-silu"
    }

    fn numerics(&self) -> Numerics {
        Numerics::Reassociates
    }

    fn anchors(&self) -> &'static [OpKind] {
        &[OpKind::Binary]
    }

    fn apply(&self, graph: &Graph, at: NodeId) -> Outcome {
        let look = Look(graph);
        let found = product(graph, at)
            .and_then(|pair| look.either(pair, |v| look.unary(v, Unary::Sigmoid)));
        match found {
            Some((inner, x)) if inner == x => recognised(graph, at, x, Unary::Silu),
            _ => Outcome::NoMatch,
        }
    }
}

/// `x * clip(x + 3, 0, 6) / 6`, in any grouping, and `x * hard_sigmoid(x)` with slope one sixth.
pub(super) struct RecogniseHardSwish;

impl RecogniseHardSwish {
    /// `clip(x + 3, 0, 6)`: the operand.
    fn ramp(look: Look<'_>, value: ValueId) -> Option<ValueId> {
        let (_, node) = look.node(value)?;
        let Op::Clip(clip) = &node.op else { return None };
        let limits =
            clip.min.is_some_and(|b| b.get() == 0.0) && clip.max.is_some_and(|b| b.get() == 6.0);
        if limits { look.with_number(look.operand(node, 0)?, Binary::Add, 3.0) } else { None }
    }

    /// `clip(x + 3, 0, 6) / 6`: the operand.
    fn gate(look: Look<'_>, value: ValueId) -> Option<ValueId> {
        if let Some((ramp, factor)) = look.scaled(value)
            && look.is_close(value, factor, 1.0 / 6.0)
        {
            return Self::ramp(look, ramp);
        }
        let (_, node) = look.node(value)?;
        match &node.op {
            Op::Unary(Unary::HardSigmoid { alpha, beta })
                if look.is_close(value, alpha.get(), 1.0 / 6.0)
                    && look.is_close(value, beta.get(), 0.5) =>
            {
                look.operand(node, 0)
            }
            _ => None,
        }
    }
}

impl Rule for RecogniseHardSwish {
    fn name(&self) -> &'static str {
        "recognise-hard-swish"
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
        if let Some(pair) = product(graph, at)
            && let Some((inner, x)) = look.either(pair, |v| Self::gate(look, v))
            && inner == x
        {
            return recognised(graph, at, x, Unary::HardSwish);
        }
        if let Some((whole, factor)) = look.scaled(output)
            && look.is_close(output, factor, 1.0 / 6.0)
            && let Some(pair) = look.binary(whole, Binary::Mul)
            && let Some((inner, x)) = look.either(pair, |v| Self::ramp(look, v))
            && inner == x
        {
            return recognised(graph, at, x, Unary::HardSwish);
        }
        Outcome::NoMatch
    }
}

/// The factors of a product, nested products and scalings taken apart, and the number among them.
fn factors(look: Look<'_>, value: ValueId, depth: usize, into: &mut Vec<ValueId>) -> f64 {
    if depth > 0 {
        if let Some((inner, number)) = look.scaled(value) {
            return number * factors(look, inner, depth - 1, into);
        }
        if let Some((a, b)) = look.binary(value, Binary::Mul) {
            return factors(look, a, depth - 1, into) * factors(look, b, depth - 1, into);
        }
    }
    into.push(value);
    1.0
}

/// `x * (1 + f) / 2` in any grouping: `x` and `f`.
fn half_of_one_plus(graph: &Graph, at: NodeId) -> Option<(ValueId, ValueId)> {
    let look = Look(graph);
    let output = graph.node(at).outputs[0];
    if !look.is_float(output) {
        return None;
    }
    let mut all = Vec::new();
    let number = factors(look, output, 3, &mut all);
    let [a, b] = all[..] else { return None };
    if !look.is_close(output, number, 0.5) {
        return None;
    }
    let (f, x) = look.either((a, b), |v| look.with_number(v, Binary::Add, 1.0))?;
    Some((x, f))
}

/// `x * (1 + erf(x / sqrt(2))) / 2`.
pub(super) struct RecogniseGelu;

impl Rule for RecogniseGelu {
    fn name(&self) -> &'static str {
        "recognise-gelu"
    }

    fn numerics(&self) -> Numerics {
        Numerics::Reassociates
    }

    fn anchors(&self) -> &'static [OpKind] {
        &[OpKind::Binary]
    }

    fn apply(&self, graph: &Graph, at: NodeId) -> Outcome {
        let look = Look(graph);
        let Some((x, f)) = half_of_one_plus(graph, at) else { return Outcome::NoMatch };
        let Some(inner) = look.unary(f, Unary::Erf) else { return Outcome::NoMatch };
        match look.scaled(inner) {
            Some((operand, factor)) if operand == x && look.is_close(x, factor, FRAC_1_SQRT_2) => {
                recognised(graph, at, x, Unary::Gelu)
            }
            _ => Outcome::Declined("the error function is not of x / sqrt(2)"),
        }
    }
}

/// `x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2`.
pub(super) struct RecogniseGeluTanh;

impl RecogniseGeluTanh {
    /// `x^3`: the operand.
    fn cube(look: Look<'_>, value: ValueId) -> Option<ValueId> {
        if let Some(x) = look.with_number(value, Binary::Pow, 3.0) {
            return Some(x);
        }
        let mut all = Vec::new();
        let number = factors(look, value, 3, &mut all);
        match all[..] {
            [a, b, c] if a == b && b == c && number == 1.0 => Some(a),
            // `x^2 * x`, the square spelled as a power.
            [a, b] if number == 1.0 => {
                let (x, other) = look.either((a, b), |v| look.square(v))?;
                (x == other).then_some(x)
            }
            _ => None,
        }
    }

    /// `x + 0.044715 x^3`, or `x * (1 + 0.044715 x^2)`.
    fn inner(look: Look<'_>, value: ValueId, x: ValueId) -> bool {
        let scaled_cube = |v| {
            let (inner, number) = look.scaled(v)?;
            (look.is_close(x, number, 0.044715) && Self::cube(look, inner) == Some(x)).then_some(())
        };
        if let Some(pair) = look.binary(value, Binary::Add)
            && let Some(((), other)) = look.either(pair, scaled_cube)
        {
            return other == x;
        }
        let scaled_square = |v| {
            let one_plus = look.with_number(v, Binary::Add, 1.0)?;
            let (inner, number) = look.scaled(one_plus)?;
            (look.is_close(x, number, 0.044715) && look.square(inner) == Some(x)).then_some(())
        };
        let pair = look.binary(value, Binary::Mul);
        pair.and_then(|p| look.either(p, scaled_square)).is_some_and(|((), other)| other == x)
    }
}

impl Rule for RecogniseGeluTanh {
    fn name(&self) -> &'static str {
        "recognise-gelu-tanh"
    }

    fn numerics(&self) -> Numerics {
        Numerics::Reassociates
    }

    fn anchors(&self) -> &'static [OpKind] {
        &[OpKind::Binary]
    }

    fn apply(&self, graph: &Graph, at: NodeId) -> Outcome {
        let look = Look(graph);
        let Some((x, f)) = half_of_one_plus(graph, at) else { return Outcome::NoMatch };
        let Some(argument) = look.unary(f, Unary::Tanh) else { return Outcome::NoMatch };
        match look.scaled(argument) {
            Some((inner, number))
                if look.is_close(x, number, FRAC_2_PI.sqrt()) && Self::inner(look, inner, x) =>
            {
                recognised(graph, at, x, Unary::GeluTanh)
            }
            _ => Outcome::Declined("the argument of tanh is not that of gelu"),
        }
    }
}
