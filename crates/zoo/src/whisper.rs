//! The encoder of Whisper (Radford, Kim, Xu, Brockman, McLeavey and Sutskever, *Robust Speech
//! Recognition via Large-Scale Weak Supervision*, 2022), in its tiny size.

use crate::{attention, net::Net};
use bricolage_ir::TypeError;
use bricolage_tensor::{DType, Tensor};

const WIDTH: i64 = 384;
const HEADS: i64 = 6;

pub(crate) fn whisper_encoder(net: &mut Net) -> Result<(), TypeError> {
    let x = net.input("input_features", DType::F32, &[80, 3000]);
    let x = net.conv("conv1", x, WIDTH, [3, 1, 1], true)?;
    let x = net.gelu("conv1", x)?;
    let x = net.conv("conv2", x, WIDTH, [3, 2, 1], true)?;
    let x = net.gelu("conv2", x)?;
    let x = net.transpose("permute", x, &[0, 2, 1])?;
    let places = sinusoids(net.dims(x)[1]);
    let places = net.graph.constant("embed_positions.sinusoids", places);
    let mut x = net.sum("embed_positions", x, places)?;
    for layer in 0..4 {
        let name = format!("layers.{layer}");
        let inner = format!("{name}.self_attn");
        let y = net.layer_norm(&format!("{name}.self_attn_layer_norm"), x, 1e-5)?;
        let q = net.dense(&format!("{inner}.q_proj"), y, WIDTH)?;
        let k = net.matmul(&format!("{inner}.k_proj"), y, WIDTH)?;
        let v = net.dense(&format!("{inner}.v_proj"), y, WIDTH)?;
        let scores = attention::scores(net, &inner, [q, k], HEADS)?;
        let y = attention::weighted(net, &inner, scores, v, HEADS)?;
        let y = net.dense(&format!("{inner}.out_proj"), y, WIDTH)?;
        x = net.sum(&inner, x, y)?;
        let y = net.layer_norm(&format!("{name}.final_layer_norm"), x, 1e-5)?;
        let wide = net.dense(&format!("{name}.fc1"), y, 4 * WIDTH)?;
        let wide = net.gelu(&format!("{name}.activation_fn"), wide)?;
        let y = net.dense(&format!("{name}.fc2"), wide, WIDTH)?;
        x = net.sum(&name, x, y)?;
    }
    let x = net.layer_norm("layer_norm", x, 1e-5)?;
    net.output(x, "last_hidden_state");
    Ok(())
}

/// Sines, then cosines, of positions at falling frequencies, `[tokens, width]`.
fn sinusoids(tokens: i64) -> Tensor {
    let half = WIDTH / 2;
    let step = 10_000f64.ln() / (half - 1) as f64;
    let at = |i: usize| {
        let (token, column) = (i as i64 / WIDTH, i as i64 % WIDTH);
        let angle = token as f64 * (-step * (column % half) as f64).exp();
        if column < half { angle.sin() } else { angle.cos() }
    };
    Tensor::generate(DType::F32, &[tokens, WIDTH], at)
}
