//! Recurrent layers with constant weights.

use super::{
    Proposal, scalar,
    view::{PLAIN, View},
};
use bricolage_backend::Region;
use bricolage_ir::{
    Node, NodeId, Numerics, Op, Real,
    ops::{self, Activation, Cell},
};
use bricolage_kernels::{Lengths, RecurrentCell, RecurrentSpec, Spec, Start, Unary};
use bricolage_tensor::{DType, Format, Tensor};

/// Bytes a nanosecond at which a step reads weights that do not fit the second-level cache.
const WEIGHTS_BYTES_PER_NS: f64 = 25.0;

/// The kernels' functions that, one after the other, are one of the graph's.
fn functions(activation: Activation) -> Option<Vec<Unary>> {
    use ops::Unary as F;
    let affine = |scale: Real, shift: f32| Unary::Affine { scale: scale.get() as f32, shift };
    let single = match activation {
        Activation::Sigmoid => F::Sigmoid,
        Activation::Tanh => F::Tanh,
        Activation::Relu => F::Relu,
        Activation::Softsign => F::Softsign,
        Activation::Softplus => F::Softplus,
        Activation::HardSigmoid { alpha, beta } => F::HardSigmoid { alpha, beta },
        Activation::LeakyRelu { alpha } => F::LeakyRelu { alpha },
        Activation::ThresholdedRelu { alpha } => F::ThresholdedRelu { alpha },
        Activation::Elu { alpha } => F::Elu { alpha },
        Activation::Affine { alpha, beta } => return Some(vec![affine(alpha, beta.get() as f32)]),
        Activation::ScaledTanh { alpha, beta } => {
            return Some(vec![affine(beta, 0.0), Unary::Tanh, affine(alpha, 0.0)]);
        }
        _ => return None,
    };
    scalar::unary(single).map(|f| vec![f])
}

/// The state before the first step, and the constant that it is made from.
fn start(view: &View<'_>, node: &Node, operand: usize) -> Result<(Start, Option<Tensor>), String> {
    let Some(value) = view.operand(node, operand) else { return Ok((Start::Zero, None)) };
    match view.constant(value) {
        None => Ok((Start::Operand, None)),
        Some(t) if t.to_f64().iter().all(|&v| v == 0.0) => Ok((Start::Zero, None)),
        Some(t) => Ok((Start::Constant, Some(t.clone()))),
    }
}

/// A layer of any cell, with constant weights and biases.
pub(super) fn recurrent(view: &View<'_>, exit: NodeId) -> Result<Vec<Proposal>, String> {
    let node = view.node(exit);
    let Op::Recurrent(op) = &node.op else { return Ok(Vec::new()) };
    let value = |i: usize| view.operand(node, i);
    let (Some(x), Some(_), Some(r)) = (value(0), value(1), value(2)) else {
        return Err("lacks an operand".to_owned());
    };
    let sizes = view.float_dims(x).ok_or("needs f32 elements")?;
    let state_dims = view.dims(r).ok_or("needs weights of fixed sizes")?;
    if view.constant(x).is_some() {
        return Err("needs sequences that are no constant".to_owned());
    }
    let constant = |i: usize| -> Result<Option<Tensor>, String> {
        let Some(value) = value(i) else { return Ok(None) };
        let tensor = view.constant(value).ok_or("needs constant weights, biases and peepholes")?;
        Ok(Some(tensor.clone()))
    };
    let (bias, peepholes) = (constant(3)?, constant(7)?);
    let (state, first_state) = start(view, node, 5)?;
    let (memory, first_cell) = start(view, node, 6)?;
    let weights = [constant(1)?, constant(2)?];
    let (steps, batch, width, hidden) = (sizes[0], sizes[1], sizes[2], state_dims[2]);

    let mut inputs = vec![(x, PLAIN)];
    let lengths = match value(4) {
        None => Lengths::Whole,
        Some(v) => match (view.constant(v), view.dtype(v)) {
            (Some(t), _) if t.to_i64().iter().all(|&l| l == steps) => Lengths::Whole,
            (Some(t), _) => Lengths::Constant(t.to_i64()),
            (None, Some(dtype @ (DType::I32 | DType::I64))) => {
                inputs.push((v, Format::plain(dtype)));
                Lengths::Operand(dtype)
            }
            (None, found) => {
                let found = found.map_or("none".to_owned(), |d| d.to_string());
                return Err(format!("needs lengths of i32 or i64, found {found}"));
            }
        },
    };
    for (kind, i) in [(state, 5), (memory, 6)] {
        inputs.extend(value(i).filter(|_| kind == Start::Operand).map(|v| (v, PLAIN)));
    }

    let each = op.cell.functions();
    let mut list = Vec::new();
    for (i, &activation) in op.activations.iter().enumerate() {
        let mut all =
            functions(activation).ok_or_else(|| format!("has no kernel for {activation:?}"))?;
        // What a cell gives is not limited.
        if let Some(limit) = op.clip.map(|c| c.get() as f32).filter(|_| i % each < 2) {
            all.insert(0, Unary::Clip { min: -limit, max: limit });
        }
        list.push(all);
    }
    let region = Region::of(view.graph, vec![exit]).map_err(|e| e.to_string())?;
    let mut outputs = [false; 3];
    for (wanted, value) in outputs.iter_mut().zip(&node.outputs) {
        *wanted = region.outputs.contains(value);
    }
    let back = match op.direction {
        ops::Direction::Forward => vec![false],
        ops::Direction::Reverse => vec![true],
        ops::Direction::Both => vec![false, true],
    };
    let rows = (back.len() as i64 * op.cell.gates() * hidden) as f64;
    let by_work = (steps * batch) as f64 * rows * (width + hidden) as f64;
    let by_weights = steps as f64 * rows * 4.0 * hidden as f64 / WEIGHTS_BYTES_PER_NS;
    let spec = RecurrentSpec {
        cell: match op.cell {
            Cell::Simple => RecurrentCell::Simple,
            Cell::Gru { linear_before_reset } => RecurrentCell::Gru { linear_before_reset },
            Cell::Lstm { input_forget } => RecurrentCell::Lstm { input_forget },
        },
        directions: back,
        steps,
        batch,
        width,
        hidden,
        functions: list,
        bias: bias.is_some(),
        peepholes: peepholes.is_some(),
        lengths,
        state,
        memory,
        outputs,
    };
    let results = vec![PLAIN; region.outputs.len()];
    let candidate = view.candidate(
        vec![exit],
        &inputs,
        &results,
        ("recurrent", "packed".to_owned()),
        Numerics::Reassociates,
        view.compute_ns(by_work) + by_weights / view.setting.threads.min(2) as f64,
    )?;
    let raw = weights.into_iter().chain([bias, peepholes, first_state, first_cell]);
    Ok(vec![Proposal { candidate, spec: Spec::Recurrent(spec), raw: raw.flatten().collect() }])
}
