//! BERT (Devlin, Chang, Lee and Toutanova, *BERT: Pre-training of Deep Bidirectional Transformers
//! for Language Understanding*, 2018) and GPT-2 (Radford et al., *Language Models are Unsupervised
//! Multitask Learners*, 2019), with attention and activations in the primitives that exporters
//! write.

use crate::{
    attention,
    net::{Layer, Net},
};
use bricolage_ir::{
    TypeError, ValueId,
    ops::{Binary, Cast, Gather, MatMul, Reduce, ReduceKind, Select, Slice, Split, Unary},
    origin,
};
use bricolage_tensor::{DType, Dim, Tensor};

const TOKENS: i64 = 128;
const LAYERS: usize = 12;
const HEADS: i64 = 12;
const WIDTH: i64 = 768;

fn tokens(net: &mut Net, name: &str) -> ValueId {
    net.input(name, DType::I64, &[TOKENS])
}

fn positions(net: &mut Net, rows: i64, name: &str) -> Layer {
    let at = net
        .graph
        .constant("position_ids", Tensor::of(&[1, TOKENS], &(0..TOKENS).collect::<Vec<_>>()));
    net.embedding(name, [rows, WIDTH], at)
}

pub(crate) fn bert_base(net: &mut Net) -> Result<(), TypeError> {
    let ids = tokens(net, "input_ids");
    let mask = tokens(net, "attention_mask");
    let words = net.embedding("embeddings.word_embeddings", [30522, WIDTH], ids)?;
    let zeros = Tensor::of(&[1, TOKENS], &[0i64; TOKENS as usize]);
    let types = net.graph.constant("token_type_ids", zeros);
    let types = net.embedding("embeddings.token_type_embeddings", [2, WIDTH], types)?;
    let places = positions(net, 512, "embeddings.position_embeddings")?;
    let x = net.sum("embeddings", words, types)?;
    let x = net.sum("embeddings/position", x, places)?;
    let mut x = net.layer_norm("embeddings.LayerNorm", x, 1e-12)?;
    let mask = additive(net, mask)?;
    for layer in 0..LAYERS {
        let name = format!("encoder.layer.{layer}");
        let inner = format!("{name}.attention.self");
        let mut parts = Vec::new();
        for part in ["query", "key", "value"] {
            parts.push(net.dense(&format!("{inner}.{part}"), x, WIDTH)?);
        }
        let raw = attention::scores(net, &inner, [parts[0], parts[1]], HEADS)?;
        let masked = net.sum(&format!("{inner}/mask"), raw, mask)?;
        let context = attention::weighted(net, &inner, masked, parts[2], HEADS)?;
        let y = net.dense(&format!("{name}.attention.output.dense"), context, WIDTH)?;
        let sum = net.sum(&format!("{name}.attention.output"), y, x)?;
        x = net.layer_norm(&format!("{name}.attention.output.LayerNorm"), sum, 1e-12)?;
        let wide = net.dense(&format!("{name}.intermediate.dense"), x, 4 * WIDTH)?;
        let wide = net.gelu(&format!("{name}.intermediate"), wide)?;
        let y = net.dense(&format!("{name}.output.dense"), wide, WIDTH)?;
        let sum = net.sum(&format!("{name}.output"), y, x)?;
        x = net.layer_norm(&format!("{name}.output.LayerNorm"), sum, 1e-12)?;
    }
    let first = net.graph.constant("pooler.first", Tensor::of(&[], &[0i64]));
    let first = net.add("pooler/Gather", Gather { axis: 1 }, &[x, first])?;
    let pooled = net.gemm("pooler.dense", first, WIDTH, 1.0)?;
    let pooled = net.add("pooler/Tanh", Unary::Tanh, &[pooled])?;
    net.output(x, "last_hidden_state");
    net.output(pooled, "pooler_output");
    Ok(())
}

/// 0 where a token counts, the lowest number elsewhere, as `[batch, 1, 1, tokens]`.
fn additive(net: &mut Net, mask: ValueId) -> Layer {
    let mask = net.reshape("mask", mask, &[net.batch, 1, 1, TOKENS])?;
    let cast = Cast::to(DType::F32);
    let mask = net.add("mask/Cast", cast, &[mask])?;
    let (one, lowest) = (net.scalar("mask.one", 1.0), net.scalar("mask.lowest", f32::MIN));
    let hidden = net.add("mask/Sub", Binary::Sub, &[one, mask])?;
    net.add("mask/Mul", Binary::Mul, &[hidden, lowest])
}

/// The encoder of the Collage paper (Jeon et al., *Collage: Seamless Integration of Deep Learning
/// Backends with Automatic Placement*, 2022): no embeddings and no mask, normalisation first, with
/// the deviation of a sample.
pub(crate) fn collage_bert(net: &mut Net) -> Result<(), TypeError> {
    const SIZE: i64 = 256;
    let mut x = net.input("input", DType::F32, &[64, SIZE]);
    for layer in 0..8 {
        let name = format!("transformer_blocks.{layer}");
        let y = sample_norm(net, &format!("{name}.input_sublayer.norm"), x)?;
        let inner = format!("{name}.attention");
        let mut parts = [y; 3];
        for (i, part) in parts.iter_mut().enumerate() {
            *part = net.dense(&format!("{inner}.linear_layers.{i}"), y, SIZE)?;
        }
        let raw = attention::scores(net, &inner, [parts[0], parts[1]], 8)?;
        let context = attention::weighted(net, &inner, raw, parts[2], 8)?;
        let y = net.dense(&format!("{inner}.output_linear"), context, SIZE)?;
        x = net.sum(&inner, x, y)?;
        let y = sample_norm(net, &format!("{name}.output_sublayer.norm"), x)?;
        let wide = net.dense(&format!("{name}.feed_forward.w_1"), y, 4 * SIZE)?;
        let wide = net.relu(&format!("{name}.feed_forward"), wide)?;
        let y = net.dense(&format!("{name}.feed_forward.w_2"), wide, SIZE)?;
        x = net.sum(&format!("{name}.feed_forward"), x, y)?;
    }
    net.output(x, "output");
    Ok(())
}

/// `a (x - mean) / (deviation + epsilon) + b` along the last dim, the variance divided by one less
/// than the count.
fn sample_norm(net: &mut Net, name: &str, x: ValueId) -> Layer {
    let size = net.dims(x)[2];
    let mean = |net: &mut Net, name: String, x| {
        net.add(&name, Reduce { kind: ReduceKind::Mean, axes: vec![2], keep_dims: true }, &[x])
    };
    let middle = mean(net, format!("{name}/ReduceMean"), x)?;
    let apart = net.add(&format!("{name}/Sub"), Binary::Sub, &[x, middle])?;
    let square = net.add(&format!("{name}/Mul"), Binary::Mul, &[apart, apart])?;
    let variance = mean(net, format!("{name}/ReduceMean_1"), square)?;
    let count = net.scalar(&format!("{name}.count"), size as f32);
    let sum = net.add(&format!("{name}/Mul_1"), Binary::Mul, &[variance, count])?;
    let free = net.scalar(&format!("{name}.free"), (size - 1) as f32);
    let variance = net.add(&format!("{name}/Div"), Binary::Div, &[sum, free])?;
    let deviation = net.add(&format!("{name}/Sqrt"), Unary::Sqrt, &[variance])?;
    let scale = net.uniform(&format!("{name}.a_2"), &[size], 0.9, 1.1);
    let scaled = net.add(&format!("{name}/Mul_2"), Binary::Mul, &[scale, apart])?;
    let epsilon = net.scalar(&format!("{name}.eps"), 1e-6);
    let deviation = net.sum(&format!("{name}/eps"), deviation, epsilon)?;
    let ratio = net.add(&format!("{name}/Div_1"), Binary::Div, &[scaled, deviation])?;
    let bias = net.uniform(&format!("{name}.b_2"), &[size], -0.1, 0.1);
    net.sum(name, ratio, bias)
}

pub(crate) fn gpt2(net: &mut Net) -> Result<(), TypeError> {
    let ids = tokens(net, "input_ids");
    let words = net.embedding("transformer.wte", [50257, WIDTH], ids)?;
    let places = positions(net, 1024, "transformer.wpe")?;
    let mut x = net.sum("transformer", words, places)?;
    let (seen, lowest) = causal(net)?;
    for layer in 0..LAYERS {
        let name = format!("transformer.h.{layer}");
        let y = net.layer_norm(&format!("{name}.ln_1"), x, 1e-5)?;
        let all = net.dense(&format!("{name}.attn.c_attn"), y, 3 * WIDTH)?;
        let split = Split { axis: 2, sizes: vec![Dim::from(WIDTH); 3] };
        let parts = net.graph.add(split, &[all], origin(&format!("/{name}.attn/Split")))?;
        let inner = format!("{name}.attn");
        let raw = attention::scores(net, &inner, [parts[0], parts[1]], HEADS)?;
        let masked = net.add(&format!("{inner}/Where"), Select, &[seen, raw, lowest])?;
        let context = attention::weighted(net, &inner, masked, parts[2], HEADS)?;
        let y = net.dense(&format!("{inner}.c_proj"), context, WIDTH)?;
        x = net.sum(&format!("{name}/attn"), y, x)?;
        let y = net.layer_norm(&format!("{name}.ln_2"), x, 1e-5)?;
        let wide = net.dense(&format!("{name}.mlp.c_fc"), y, 4 * WIDTH)?;
        let wide = gelu_tanh(net, &format!("{name}.mlp.act"), wide)?;
        let y = net.dense(&format!("{name}.mlp.c_proj"), wide, WIDTH)?;
        x = net.sum(&format!("{name}/mlp"), x, y)?;
    }
    let x = net.layer_norm("transformer.ln_f", x, 1e-5)?;
    // The table of words also tells how well each fits.
    let table = net.graph.find("transformer.wte.weight").expect("the embedding made it above");
    let table = net.transpose("lm_head", table, &[1, 0])?;
    let logits = net.add("lm_head/MatMul", MatMul::default(), &[x, table])?;
    net.output(logits, "logits");
    Ok(())
}

/// Which keys each query sees, cut from a table for the longest text, and the score of the others.
fn causal(net: &mut Net) -> Result<(ValueId, ValueId), TypeError> {
    const LONGEST: i64 = 1024;
    let table: Vec<bool> = (0..LONGEST * LONGEST).map(|i| i % LONGEST <= i / LONGEST).collect();
    let table = Tensor::of_bool(&[1, 1, LONGEST, LONGEST], &table);
    let table = net.graph.constant("transformer.bias", table);
    let slice = Slice {
        axes: vec![2, 3],
        starts: vec![Dim::from(0); 2],
        ends: vec![Dim::from(TOKENS); 2],
        steps: vec![1; 2],
    };
    let seen = net.add("transformer/Slice", slice, &[table])?;
    Ok((seen, net.scalar("transformer.lowest", f32::MIN)))
}

/// `x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))`.
fn gelu_tanh(net: &mut Net, name: &str, x: ValueId) -> Layer {
    let half = net.scalar(&format!("{name}.half"), 0.5);
    let scaled = net.add(&format!("{name}/Mul"), Binary::Mul, &[x, half])?;
    let three = net.scalar(&format!("{name}.three"), 3.0);
    let cube = net.add(&format!("{name}/Pow"), Binary::Pow, &[x, three])?;
    let factor = net.scalar(&format!("{name}.factor"), 0.044_715);
    let cube = net.add(&format!("{name}/Mul_1"), Binary::Mul, &[cube, factor])?;
    let sum = net.add(&format!("{name}/Add"), Binary::Add, &[x, cube])?;
    let root = net.scalar(&format!("{name}.root"), (2.0 / std::f32::consts::PI).sqrt());
    let inner = net.add(&format!("{name}/Mul_2"), Binary::Mul, &[sum, root])?;
    let tanh = net.add(&format!("{name}/Tanh"), Unary::Tanh, &[inner])?;
    let one = net.scalar(&format!("{name}.one"), 1.0);
    let gate = net.add(&format!("{name}/Add_1"), Binary::Add, &[tanh, one])?;
    net.add(&format!("{name}/Mul_3"), Binary::Mul, &[scaled, gate])
}
