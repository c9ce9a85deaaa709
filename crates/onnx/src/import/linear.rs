//! Operators of models that attend by a state.

use super::at::{At, Imported, malformed, unsupported};
use bricolage_ir::{
    Real,
    ops::{Binary, Concat, Conv, LinearAttention, Pad, PadMode, Slice, Unary, Update},
};
use bricolage_tensor::Dim;

pub(crate) fn attention(at: &mut At<'_, '_>) -> Imported {
    at.at_most(6)?;
    let q = at.input(0)?;
    let (heads, kv_heads) = (at.int_or("q_num_heads", 0)?, at.int_or("kv_num_heads", 0)?);
    let rule = at.text("update_rule", "gated_delta")?;
    at.ignore(&["chunk_size"]);
    let (update, gated) = match rule.as_str() {
        "linear" => (Update::Add, false),
        "gated" => (Update::Add, true),
        "delta" => (Update::Correct, false),
        "gated_delta" => (Update::Correct, true),
        other => return malformed(format!("needs a known `update_rule`, found `{other}`")),
    };
    let rated = update == Update::Correct;
    if at.optional(4).is_some() != gated || at.optional(5).is_some() != rated {
        return malformed(format!(
            "needs a decay where `update_rule` says gated and a rate where it says delta, and no \
             others, found `{rule}`"
        ));
    }
    if heads < 1 {
        return malformed(format!("needs `q_num_heads` above 0, found {heads}"));
    }
    let scale = match (at.float("scale", 0.0)?, at.dims(q)?.get(2).and_then(Dim::as_const)) {
        (scale, _) if scale != 0.0 => f64::from(scale),
        (_, Some(width)) => 1.0 / ((width / heads) as f64).sqrt(),
        _ => return unsupported("needs the size of a head as a number"),
    };
    let op = LinearAttention { heads, kv_heads, update, scale: Real::new(scale) };
    let inputs = at.inputs.clone();
    at.add_all(op, &inputs)
}

/// Depthwise convolution over the past, and the last positions that it read.
pub(crate) fn causal_conv(at: &mut At<'_, '_>) -> Imported {
    at.at_most(4)?;
    let (x, w) = (at.input(0)?, at.input(1)?);
    let filter = at.dims(w)?;
    let [Some(groups), _, Some(taps)] = [0, 1, 2].map(|d| filter.get(d).and_then(Dim::as_const))
    else {
        return unsupported("needs a filter of known size");
    };
    let activation = match at.text("activation", "none")?.as_str() {
        "none" => None,
        "silu" | "swish" => Some(Unary::Silu),
        other => {
            return malformed(format!(
                "needs `activation` to be none, silu or swish, found `{other}`"
            ));
        }
    };
    let earlier = Dim::from(taps - 1);
    let long = match at.optional(3) {
        Some(past) => at.add(Concat { axis: 2 }, &[past, x])?,
        None => {
            let (zero, none) = (Dim::from(0), vec![Dim::from(0); 3]);
            let before = vec![zero.clone(), zero, earlier.clone()];
            at.add(Pad { mode: PadMode::Constant, before, after: none }, &[x])?
        }
    };
    let mut inputs = vec![long, w];
    inputs.extend(at.optional(2));
    let mut y = at.add(Conv { groups, ..Conv::plain(1) }, &inputs)?;
    if let Some(f) = activation {
        y = at.add(f, &[y])?;
    }
    let length = at.dims(long)?[2].clone();
    let starts = vec![&length - &earlier];
    let last = Slice { axes: vec![2], starts, ends: vec![length], steps: vec![1] };
    Ok(vec![y, at.add(last, &[long])?])
}

/// `swish(a) * b`.
pub(crate) fn swiglu(at: &mut At<'_, '_>) -> Imported {
    let all = at.all(2, 2)?;
    let alpha = at.float("alpha", 1.0)?;
    let gate = super::elementwise::swished(at, all[0], alpha)?;
    at.one(Binary::Mul, &[gate, all[1]])
}
