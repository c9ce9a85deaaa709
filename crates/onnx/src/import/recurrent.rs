//! Recurrent layers.

use super::at::{At, Fault, Imported, malformed, unsupported};
use bricolage_ir::{
    Real, ValueId,
    ops::{Activation, Cell, Direction, Recurrent},
};
use bricolage_tensor::Dim;

/// The function with this name, its parameters taken from the lists as far as it has some.
fn activation(
    name: &str,
    alphas: &mut impl Iterator<Item = f32>,
    betas: &mut impl Iterator<Item = f32>,
) -> Result<Activation, Fault> {
    let mut alpha = |default: f32| Real::from(alphas.next().unwrap_or(default));
    let mut beta = |default: f32| Real::from(betas.next().unwrap_or(default));
    Ok(match name.to_lowercase().as_str() {
        "sigmoid" => Activation::Sigmoid,
        "tanh" => Activation::Tanh,
        "relu" => Activation::Relu,
        "softsign" => Activation::Softsign,
        "softplus" => Activation::Softplus,
        "affine" => Activation::Affine { alpha: alpha(1.0), beta: beta(0.0) },
        "scaledtanh" => Activation::ScaledTanh { alpha: alpha(1.0), beta: beta(1.0) },
        "hardsigmoid" => Activation::HardSigmoid { alpha: alpha(0.2), beta: beta(0.5) },
        "leakyrelu" => Activation::LeakyRelu { alpha: alpha(0.01) },
        "thresholdedrelu" => Activation::ThresholdedRelu { alpha: alpha(1.0) },
        "elu" => Activation::Elu { alpha: alpha(1.0) },
        _ => return malformed(format!("needs known `activations`, found `{name}`")),
    })
}

pub(crate) fn rnn(at: &mut At<'_, '_>) -> Imported {
    layer(at, Cell::Simple, &["Tanh"], 6)
}

pub(crate) fn gru(at: &mut At<'_, '_>) -> Imported {
    let linear_before_reset = at.flag("linear_before_reset", false)?;
    layer(at, Cell::Gru { linear_before_reset }, &["Sigmoid", "Tanh"], 6)
}

pub(crate) fn lstm(at: &mut At<'_, '_>) -> Imported {
    let input_forget = at.flag("input_forget", false)?;
    layer(at, Cell::Lstm { input_forget }, &["Sigmoid", "Tanh", "Tanh"], 8)
}

fn layer(at: &mut At<'_, '_>, cell: Cell, defaults: &[&str], operands: usize) -> Imported {
    at.at_most(operands)?;
    let direction = match at.text("direction", "forward")?.as_str() {
        "forward" => Direction::Forward,
        "reverse" => Direction::Reverse,
        "bidirectional" => Direction::Both,
        other => return malformed(format!("needs a known `direction`, found `{other}`")),
    };
    let count = direction.count() as usize;
    let names = match at.texts("activations")? {
        Some(names) => names,
        None => defaults.repeat(count).iter().map(|&name| name.to_owned()).collect(),
    };
    if names.len() != cell.functions() * count {
        let (needed, found) = (cell.functions() * count, names.len());
        return malformed(format!("needs {needed} `activations`, found {found}"));
    }
    let mut alphas = at.floats("activation_alpha").unwrap_or_default().into_iter();
    let mut betas = at.floats("activation_beta").unwrap_or_default().into_iter();
    let functions = names.iter().map(|name| activation(name, &mut alphas, &mut betas));
    let activations = functions.collect::<Result<Vec<Activation>, Fault>>()?;
    let clip = match at.has("clip") {
        true => Some(at.float("clip", 0.0)?),
        false => None,
    };
    if let Some(limit) = clip
        && (limit.is_nan() || limit < 0.0)
    {
        return malformed(format!("needs a `clip` of at least 0, found {limit}"));
    }
    let state = at.dims(at.input(2)?)?;
    if let Some(size) = at.int("hidden_size")?
        && let Some(found) = state.get(2).and_then(Dim::as_const)
        && found != size
    {
        return malformed(format!(
            "needs `hidden_size` to be {found} as the weights say, found {size}"
        ));
    }
    // An attribute of the first versions that changes nothing: all outputs are given anyway.
    at.ignore(&["output_sequence"]);
    let batch_first = match at.int_or("layout", 0)? {
        0 => false,
        1 => true,
        other => return unsupported(format!("needs `layout` to be 0 or 1, found {other}")),
    };
    let mut inputs: Vec<Option<ValueId>> = at.inputs.clone();
    while inputs.last().is_some_and(Option::is_none) {
        inputs.pop();
    }
    if batch_first {
        for i in [0, 5, 6] {
            if let Some(Some(value)) = inputs.get(i).copied() {
                inputs[i] = Some(at.transpose(value, &[1, 0, 2])?);
            }
        }
    }
    let op = Recurrent { cell, direction, activations, clip: clip.map(Real::from) };
    let mut outputs = at.add_all(op, &inputs)?;
    if batch_first {
        outputs[0] = at.transpose(outputs[0], &[2, 0, 1, 3])?;
        for output in &mut outputs[1..] {
            *output = at.transpose(*output, &[1, 0, 2])?;
        }
    }
    Ok(outputs)
}
