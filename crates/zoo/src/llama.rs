//! A decoder block of Llama (Touvron et al., *LLaMA: Open and Efficient Foundation Language Models*,
//! 2023) with keys and values shared by groups of heads (Ainslie et al., *GQA: Training Generalized
//! Multi-Query Transformer Models from Multi-Head Checkpoints*, 2023).

use crate::{
    attention,
    net::{Layer, Net},
};
use bricolage_ir::{
    TypeError, ValueId,
    ops::{Binary, Cast, Expand, MatMul, Reduce, ReduceKind, Unary},
};
use bricolage_tensor::{DType, Shape, Tensor};

const TOKENS: i64 = 128;
const WIDTH: i64 = 1024;
const HEADS: i64 = 16;
/// Heads of keys and values.
const SHARED: i64 = 4;
/// Numbers per head.
const SIZE: i64 = WIDTH / HEADS;
const INNER: i64 = 2816;

pub(crate) fn llama_block(net: &mut Net) -> Result<(), TypeError> {
    let x = net.input("hidden_states", DType::F32, &[TOKENS, WIDTH]);
    let angles = rotary(net)?;
    let y = rms_norm(net, "input_layernorm", x)?;
    let q = net.matmul("self_attn.q_proj", y, WIDTH)?;
    let k = net.matmul("self_attn.k_proj", y, SHARED * SIZE)?;
    let v = net.matmul("self_attn.v_proj", y, SHARED * SIZE)?;
    let q = attention::split(net, "self_attn/query", q, HEADS, [0, 2, 1, 3])?;
    let k = attention::split(net, "self_attn/key", k, SHARED, [0, 2, 1, 3])?;
    let v = attention::split(net, "self_attn/value", v, SHARED, [0, 2, 1, 3])?;
    let q = rotated(net, "self_attn/query", q, angles)?;
    let k = rotated(net, "self_attn/key", k, angles)?;
    let k = repeated(net, "self_attn/key", k)?;
    let v = repeated(net, "self_attn/value", v)?;
    let k = net.transpose("self_attn/key/last", k, &[0, 1, 3, 2])?;
    let scores = attention::products(net, "self_attn", [q, k])?;
    let later = |i: usize| {
        let (query, key) = (i as i64 / TOKENS, i as i64 % TOKENS);
        if key > query { f64::from(f32::MIN) } else { 0.0 }
    };
    let mask = Tensor::generate(DType::F32, &[1, 1, TOKENS, TOKENS], later);
    let mask = net.graph.constant("causal_mask", mask);
    let scores = net.sum("self_attn/mask", scores, mask)?;
    let y = attention::mixed(net, "self_attn", scores, v)?;
    let y = net.matmul("self_attn.o_proj", y, WIDTH)?;
    let x = net.sum("self_attn", x, y)?;
    let y = rms_norm(net, "post_attention_layernorm", x)?;
    let gate = net.matmul("mlp.gate_proj", y, INNER)?;
    let gate = net.silu("mlp.act_fn", gate)?;
    let wide = net.matmul("mlp.up_proj", y, INNER)?;
    let wide = net.add("mlp/Mul", Binary::Mul, &[gate, wide])?;
    let y = net.matmul("mlp.down_proj", wide, WIDTH)?;
    let x = net.sum("mlp", x, y)?;
    net.output(x, "output");
    Ok(())
}

/// `w x / sqrt(mean(x^2) + epsilon)` along the last dim.
fn rms_norm(net: &mut Net, name: &str, x: ValueId) -> Layer {
    let two = net.scalar(&format!("{name}.two"), 2.0);
    let square = net.add(&format!("{name}/Pow"), Binary::Pow, &[x, two])?;
    let op = Reduce { kind: ReduceKind::Mean, axes: vec![2], keep_dims: true };
    let mean = net.add(&format!("{name}/ReduceMean"), op, &[square])?;
    let epsilon = net.scalar(&format!("{name}.eps"), 1e-5);
    let sum = net.sum(name, mean, epsilon)?;
    let root = net.add(&format!("{name}/Sqrt"), Unary::Sqrt, &[sum])?;
    let inverse = net.add(&format!("{name}/Reciprocal"), Unary::Reciprocal, &[root])?;
    let scaled = net.add(&format!("{name}/Mul"), Binary::Mul, &[x, inverse])?;
    let weight = net.uniform(&format!("{name}.weight"), &[WIDTH], 0.9, 1.1);
    net.add(&format!("{name}/Mul_1"), Binary::Mul, &[weight, scaled])
}

/// Cosines and sines of every position's angles, `[1, 1, tokens, size]` each (Su et al., *RoFormer:
/// Enhanced Transformer with Rotary Position Embedding*, 2021).
fn rotary(net: &mut Net) -> Result<[ValueId; 2], TypeError> {
    let half = SIZE / 2;
    let frequency = |i: usize| 10_000f64.powf(-(i as f64) / half as f64);
    let table = Tensor::generate(DType::F32, &[1, half, 1], frequency);
    let table = net.graph.constant("rotary_emb.inv_freq", table);
    let places: Vec<i64> = (0..TOKENS).collect();
    let places = net.graph.constant("position_ids", Tensor::of(&[1, 1, TOKENS], &places));
    let places = net.add("rotary_emb/Cast", Cast::to(DType::F32), &[places])?;
    let angles = net.add("rotary_emb/MatMul", MatMul::default(), &[table, places])?;
    let angles = net.transpose("rotary_emb", angles, &[0, 2, 1])?;
    let angles = net.concat("rotary_emb", &[angles, angles], 2)?;
    let mut both = [angles; 2];
    for (to, (name, f)) in both.iter_mut().zip([("Cos", Unary::Cos), ("Sin", Unary::Sin)]) {
        let x = net.add(&format!("rotary_emb/{name}"), f, &[angles])?;
        *to = net.reshape(&format!("rotary_emb/{name}"), x, &[1, 1, TOKENS, SIZE])?;
    }
    Ok(both)
}

/// Pairs of numbers, half a head apart, turned by the angles.
fn rotated(net: &mut Net, name: &str, x: ValueId, [cos, sin]: [ValueId; 2]) -> Layer {
    let straight = net.add(&format!("{name}/Mul"), Binary::Mul, &[x, cos])?;
    let low = net.slice(&format!("{name}/low"), x, 3, [0, SIZE / 2, 1])?;
    let high = net.slice(&format!("{name}/high"), x, 3, [SIZE / 2, SIZE, 1])?;
    let high = net.add(&format!("{name}/Neg"), Unary::Neg, &[high])?;
    let across = net.concat(name, &[high, low], 3)?;
    let across = net.add(&format!("{name}/Mul_1"), Binary::Mul, &[across, sin])?;
    net.sum(name, straight, across)
}

/// Every head once for each of the queries' heads that share it.
fn repeated(net: &mut Net, name: &str, x: ValueId) -> Layer {
    let batch = net.batch;
    let x = net.reshape(&format!("{name}/Unsqueeze"), x, &[batch, SHARED, 1, TOKENS, SIZE])?;
    let to = Shape::fixed(&[batch, SHARED, HEADS / SHARED, TOKENS, SIZE]);
    let x = net.add(&format!("{name}/Expand"), Expand { to }, &[x])?;
    net.reshape(&format!("{name}/joined"), x, &[batch, HEADS, TOKENS, SIZE])
}
