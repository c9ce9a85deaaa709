//! A tagger of bidirectional LSTM layers (Huang, Xu and Yu, *Bidirectional LSTM-CRF Models for
//! Sequence Tagging*, 2015), with a softmax in place of the random field.

use crate::net::{Layer, Net};
use bricolage_ir::{
    TypeError, ValueId,
    ops::{Activation, Cell, Direction, Expand, Recurrent, Softmax},
};
use bricolage_tensor::{DType, Shape};

const TOKENS: i64 = 64;
const HIDDEN: i64 = 256;

pub(crate) fn lstm_tagger(net: &mut Net) -> Result<(), TypeError> {
    let ids = net.input("input_ids", DType::I64, &[TOKENS]);
    let x = net.embedding("embedding", [10_000, 128], ids)?;
    let mut x = net.transpose("lstm", x, &[1, 0, 2])?;
    // Embeddings and states are small; with these gains the gates vary.
    for (layer, gain) in [300.0, 5.0].into_iter().enumerate() {
        x = both_ways(net, &format!("lstm.{layer}"), x, gain)?;
    }
    let x = net.transpose("lstm/batch", x, &[1, 0, 2])?;
    let x = net.dense("classifier", x, 45)?;
    let x = net.add("LogSoftmax", Softmax { axis: 2, log: true }, &[x])?;
    net.output(x, "output");
    Ok(())
}

/// `[tokens, batch, inputs]` to `[tokens, batch, 2 hidden]`.
fn both_ways(net: &mut Net, name: &str, x: ValueId, gain: f64) -> Layer {
    let inputs = net.dims(x)[2];
    let w = net.weight(&format!("{name}.weight_ih"), &[2, 4 * HIDDEN, inputs], inputs, gain);
    let r = net.weight(&format!("{name}.weight_hh"), &[2, 4 * HIDDEN, HIDDEN], HIDDEN, 1.0);
    let bias = net.uniform(&format!("{name}.bias"), &[2, 8 * HIDDEN], -0.1, 0.1);
    let zero = net.scalar(&format!("{name}.zero"), 0.0);
    let op = Expand { to: Shape::fixed(&[2, net.batch, HIDDEN]) };
    let start = net.add(&format!("{name}/Expand"), op, &[zero])?;
    let once = [Activation::Sigmoid, Activation::Tanh, Activation::Tanh];
    let op = Recurrent {
        cell: Cell::Lstm { input_forget: false },
        direction: Direction::Both,
        activations: [once, once].concat(),
        clip: None,
    };
    let operands = [Some(x), Some(w), Some(r), Some(bias), None, Some(start), Some(start)];
    let origin = bricolage_ir::origin(&format!("/{name}/LSTM"));
    let states = net.graph.add1(op, &operands, origin)?;
    let joined = net.transpose(name, states, &[0, 2, 1, 3])?;
    net.reshape(name, joined, &[TOKENS, net.batch, 2 * HIDDEN])
}
