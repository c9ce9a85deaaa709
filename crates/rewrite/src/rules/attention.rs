//! Scaled dot-product attention from matrix products and a softmax.

use crate::{Outcome, Patch, Rule, Source, look::Look};
use bricolage_ir::{
    Graph, NodeId, Numerics, Op, OpKind, Real, ValueId,
    ops::{Attention, Binary, MatMul, Transpose},
};
use bricolage_tensor::{DType, Dim, Tensor};

/// `softmax(scale * q k^T + mask) v` over four dims: images, heads, positions, channels.
pub(super) struct RecogniseAttention;

/// The scores before the softmax.
struct Scores {
    product: ValueId,
    scale: f64,
    mask: Option<Mask>,
}

enum Mask {
    /// Added to the scores.
    Added(ValueId),
    /// A condition that lets scores through.
    Let(ValueId),
}

fn is_product(look: Look<'_>, value: ValueId) -> bool {
    look.node(value).is_some_and(|(_, n)| matches!(n.op, Op::MatMul(_)))
}

/// `value` with scalings taken off: what is scaled, and by how much.
fn unscaled(look: Look<'_>, mut value: ValueId) -> (ValueId, f64) {
    let mut scale = 1.0;
    while let Some((inner, number)) = look.scaled(value) {
        value = inner;
        scale *= number;
    }
    (value, scale)
}

/// Whether every row of a constant condition lets something through, and what it replaces the rest by
/// vanishes in the softmax.
fn lets_every_row(look: Look<'_>, condition: ValueId, otherwise: ValueId) -> bool {
    let Some(c) = look.0.constant_of(condition) else { return false };
    let row = c.dims().last().copied().unwrap_or(1).max(1) as usize;
    let vanishes = look.scalar(otherwise).is_some_and(|v| v <= -1e4);
    c.dtype() == DType::Bool && vanishes && c.bytes().chunks(row).all(|r| r.contains(&1))
}

fn scores(look: Look<'_>, value: ValueId) -> Option<Scores> {
    let bare = |value, mask| {
        let (product, scale) = unscaled(look, value);
        is_product(look, product).then_some(Scores { product, scale, mask })
    };
    if let Some(found) = bare(value, None) {
        return Some(found);
    }
    if let Some(pair) = look.binary(value, Binary::Add) {
        let scaled_product = |v| bare(v, None);
        let (found, mask) = look.either(pair, scaled_product)?;
        return Some(Scores { mask: Some(Mask::Added(mask)), ..found });
    }
    let (_, node) = look.node(value)?;
    let (Op::Select(_), [Some(condition), Some(then), Some(otherwise)]) =
        (&node.op, &node.inputs[..])
    else {
        return None;
    };
    if !lets_every_row(look, *condition, *otherwise) {
        return None;
    }
    bare(*then, Some(Mask::Let(*condition)))
}

/// Whether a constant mask lets query `i` of `s` see the keys up to `i + t - s` and no others.
fn is_causal(look: Look<'_>, mask: &Mask, product: ValueId) -> bool {
    let (value, visible): (ValueId, fn(f64) -> bool) = match mask {
        Mask::Added(v) => (*v, |x| x == 0.0),
        Mask::Let(v) => (*v, |x| x != 0.0),
    };
    let (Some(tensor), Some(scores)) = (look.0.constant_of(value), look.dims(product)) else {
        return false;
    };
    let [.., s, t] = scores[..] else { return false };
    let (dims, rank) = (tensor.dims(), tensor.dims().len());
    let matrix =
        rank >= 2 && dims[rank - 2..] == [s, t] && dims[..rank - 2].iter().all(|&d| d == 1);
    // What is hidden must vanish in the softmax.
    let hidden = |x: f64| if matches!(mask, Mask::Added(_)) { x <= -1e4 } else { x == 0.0 };
    matrix
        && tensor.to_f64().iter().enumerate().all(|(i, &x)| {
            let (query, key) = (i as i64 / t, i as i64 % t);
            if key <= query + t - s { visible(x) } else { hidden(x) }
        })
}

/// `k` as `[b, h, t, d]` for a product that reads it transposed, or that reads a transpose of it.
fn keys(look: Look<'_>, patch: &mut Patch, product: &MatMul, value: ValueId) -> Option<Source> {
    if product.transpose_rhs {
        return Some(value.into());
    }
    let (_, node) = look.node(value)?;
    let Op::Transpose(t) = &node.op else { return None };
    let x = look.operand(node, 0)?;
    let perm = vec![t.perm[0], t.perm[1], t.perm[3], t.perm[2]];
    Some(if perm == [0, 1, 2, 3] { x.into() } else { patch.add(Transpose { perm }, &[x.into()]) })
}

impl Rule for RecogniseAttention {
    fn name(&self) -> &'static str {
        "recognise-attention"
    }

    fn numerics(&self) -> Numerics {
        Numerics::Reassociates
    }

    fn anchors(&self) -> &'static [OpKind] {
        &[OpKind::MatMul]
    }

    fn apply(&self, graph: &Graph, at: NodeId) -> Outcome {
        let (look, node) = (Look(graph), graph.node(at));
        let Op::MatMul(outer) = &node.op else { return Outcome::NoMatch };
        let (Some(p), Some(v)) = (look.operand(node, 0), look.operand(node, 1)) else {
            return Outcome::NoMatch;
        };
        let Some((softmax_id, softmax)) = look.node(p) else { return Outcome::NoMatch };
        let Op::Softmax(s) = &softmax.op else { return Outcome::NoMatch };
        if s.log || s.axis + 1 != look.rank(p).unwrap_or(0) {
            return Outcome::NoMatch;
        }
        let Some(before) = look.operand(softmax, 0).and_then(|x| scores(look, x)) else {
            return Outcome::NoMatch;
        };
        let Some((product_id, product_node)) = look.node(before.product) else {
            return Outcome::NoMatch;
        };
        let Op::MatMul(inner) = &product_node.op else { return Outcome::NoMatch };
        let (Some(q), Some(k)) = (look.operand(product_node, 0), look.operand(product_node, 1))
        else {
            return Outcome::NoMatch;
        };
        if [q, k, v].iter().any(|&x| look.rank(x) != Some(4)) {
            return Outcome::Declined("the operands do not have four dims");
        }
        if outer.transpose_lhs || outer.transpose_rhs || inner.transpose_lhs {
            return Outcome::Declined("an operand is read transposed");
        }
        if !look.is_private(p) {
            return Outcome::Declined("the probabilities are read elsewhere too");
        }
        let shape = |v| look.tensor_type(v).map(|t| &t.shape);
        // Heads may share their keys and values; nothing else broadcasts.
        let images = |v| shape(v).map(|s| &s[..2]);
        let is_shared = |s: &[Dim]| s[1].as_const() == Some(1) || Some(s) == images(q);
        let fits = images(q) == images(node.outputs[0])
            && images(k) == images(v)
            && images(k).is_some_and(|s| is_shared(s) && images(q).is_some_and(|q| q[0] == s[0]));
        if !fits {
            return Outcome::Declined("the operands have other images or heads than the result");
        }
        if look.operand(softmax, 0).and_then(shape) != shape(before.product) {
            return Outcome::Declined("the mask gives the scores another shape");
        }
        let ((q, q_scale), (k, k_scale)) = (unscaled(look, q), unscaled(look, k));
        let scale = before.scale * q_scale * k_scale;
        let mut patch = Patch::of(&[product_id, softmax_id, at]);
        let Some(k) = keys(look, &mut patch, inner, k) else {
            return Outcome::Declined("the keys are not transposed");
        };
        let mut operands: Vec<Source> = vec![q.into(), k, v.into()];
        let causal = before.mask.as_ref().is_some_and(|mask| is_causal(look, mask, before.product));
        match before.mask {
            None => {}
            Some(_) if causal => {}
            Some(Mask::Added(mask)) => operands.push(mask.into()),
            Some(Mask::Let(condition)) => {
                let Some(c) = graph.constant_of(condition) else { return Outcome::NoMatch };
                // Added, so that kernels need one kind of mask only.
                let added: Vec<f64> = c
                    .to_f64()
                    .iter()
                    .map(|b| if *b == 0.0 { f64::NEG_INFINITY } else { 0.0 })
                    .collect();
                let Some(t) = look.tensor_type(before.product) else { return Outcome::NoMatch };
                let name = graph.value(condition).name.to_string();
                operands.push(patch.constant(name, Tensor::from_f64(t.dtype, c.dims(), &added)));
            }
        }
        let op = Attention { scale: Some(Real::new(scale)), causal };
        let new = patch.add(op, &operands);
        patch.replace(node.outputs[0], new);
        Outcome::Rewrite(patch)
    }
}
