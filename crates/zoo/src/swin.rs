//! The Swin Transformer (Liu et al., *Swin Transformer: Hierarchical Vision Transformer using Shifted
//! Windows*, 2021), in its tiny size.

use crate::{
    attention,
    net::{Layer, Net},
};
use bricolage_ir::{
    TypeError, ValueId,
    ops::{Conv, Gather},
};
use bricolage_tensor::Tensor;

/// Side of a window.
const WINDOW: i64 = 7;
/// How far every second block shifts its windows.
const SHIFT: i64 = WINDOW / 2;
const EPSILON: f64 = 1e-5;

pub(crate) fn swin_t(net: &mut Net) -> Result<(), TypeError> {
    let x = net.image(3, 224);
    let op = Conv { strides: vec![4; 2], ..Conv::plain(2) };
    let x = net.conv_with("features.0.0", x, &[96, 3, 4, 4], op, 1.0, true)?;
    let x = net.transpose("features.0.1", x, &[0, 2, 3, 1])?;
    let mut x = net.layer_norm("features.0.2", x, EPSILON)?;
    for (stage, (count, heads)) in [(2, 3), (2, 6), (6, 12), (2, 24)].into_iter().enumerate() {
        if stage > 0 {
            x = merge(net, &format!("features.{}", 2 * stage), x)?;
        }
        for i in 0..count {
            let name = format!("features.{}.{i}", 2 * stage + 1);
            x = block(net, &name, x, heads, if i % 2 == 0 { 0 } else { SHIFT })?;
        }
    }
    let x = net.layer_norm("norm", x, EPSILON)?;
    let x = net.transpose("permute", x, &[0, 3, 1, 2])?;
    let x = net.global_average("avgpool", x)?;
    let x = net.flatten("flatten", x)?;
    let x = net.gemm("head", x, 1000, 1.0)?;
    net.output(x, "output");
    Ok(())
}

/// Dims of a feature map: batch, height, width, channels.
fn map(net: &Net, x: ValueId) -> [i64; 4] {
    let dims = net.dims(x);
    [dims[0], dims[1], dims[2], dims[3]]
}

/// Four neighbours as one position of twice the channels.
fn merge(net: &mut Net, name: &str, x: ValueId) -> Layer {
    let [_, height, width, channels] = map(net, x);
    let mut parts = [x; 4];
    for (part, [row, column]) in parts.iter_mut().zip([[0, 0], [1, 0], [0, 1], [1, 1]]) {
        let name = format!("{name}/{row}{column}");
        let rows = net.slice(&format!("{name}/rows"), x, 1, [row, height, 2])?;
        *part = net.slice(&name, rows, 2, [column, width, 2])?;
    }
    let x = net.concat(name, &parts, 3)?;
    let x = net.layer_norm(&format!("{name}.norm"), x, EPSILON)?;
    net.matmul(&format!("{name}.reduction"), x, 2 * channels)
}

fn block(net: &mut Net, name: &str, x: ValueId, heads: i64, shift: i64) -> Layer {
    let [_, _, _, channels] = map(net, x);
    let y = net.layer_norm(&format!("{name}.norm1"), x, EPSILON)?;
    let y = windows(net, &format!("{name}.attn"), y, heads, shift)?;
    let x = net.sum(&format!("{name}.attn"), x, y)?;
    let y = net.layer_norm(&format!("{name}.norm2"), x, EPSILON)?;
    let wide = net.dense(&format!("{name}.mlp.0"), y, 4 * channels)?;
    let wide = net.gelu(&format!("{name}.mlp.1"), wide)?;
    let y = net.dense(&format!("{name}.mlp.3"), wide, channels)?;
    net.sum(&format!("{name}.mlp"), x, y)
}

/// Attention within windows of a feature map, rolled by `shift` where there is more than one.
fn windows(net: &mut Net, name: &str, x: ValueId, heads: i64, shift: i64) -> Layer {
    let [batch, height, width, channels] = map(net, x);
    let shift = if height <= WINDOW { 0 } else { shift };
    let x = roll(net, &format!("{name}/roll"), x, shift)?;
    let (rows, columns) = (height / WINDOW, width / WINDOW);
    let (count, size) = (rows * columns, WINDOW * WINDOW);
    let apart = [batch, rows, WINDOW, columns, WINDOW, channels];
    let x = net.reshape(&format!("{name}/apart"), x, &apart)?;
    let x = net.transpose(&format!("{name}/apart"), x, &[0, 1, 3, 2, 4, 5])?;
    let x = net.reshape(&format!("{name}/windows"), x, &[batch * count, size, channels])?;
    let all = net.dense(&format!("{name}.qkv"), x, 3 * channels)?;
    let [q, k, v] = attention::unpack(net, name, all, heads)?;
    let k = net.transpose(&format!("{name}/key"), k, &[0, 1, 3, 2])?;
    let scores = attention::products(net, name, [q, k])?;
    let bias = places(net, name, heads)?;
    let mut scores = net.sum(&format!("{name}/bias"), scores, bias)?;
    if shift > 0 {
        let masked = format!("{name}/mask");
        scores = net.reshape(&masked, scores, &[batch, count, heads, size, size])?;
        let mask = mask(height, width, shift);
        let mask = Tensor::of(&[1, count, 1, size, size], &mask);
        let mask = net.graph.constant(&format!("{name}.mask"), mask);
        scores = net.sum(&masked, scores, mask)?;
        let joined = [batch * count, heads, size, size];
        scores = net.reshape(&format!("{masked}/joined"), scores, &joined)?;
    }
    let x = attention::mixed(net, name, scores, v)?;
    let x = net.dense(&format!("{name}.proj"), x, channels)?;
    let apart = [batch, rows, columns, WINDOW, WINDOW, channels];
    let x = net.reshape(&format!("{name}/joined"), x, &apart)?;
    let x = net.transpose(&format!("{name}/joined"), x, &[0, 1, 3, 2, 4, 5])?;
    let x = net.reshape(&format!("{name}/map"), x, &[batch, height, width, channels])?;
    roll(net, &format!("{name}/back"), x, if shift > 0 { -shift } else { 0 })
}

/// The map with `shift` rows and columns moved from its start to its end; below 0, from its end.
fn roll(net: &mut Net, name: &str, mut x: ValueId, shift: i64) -> Layer {
    if shift == 0 {
        return Ok(x);
    }
    for axis in [1, 2] {
        let size = net.dims(x)[axis];
        let first = shift.rem_euclid(size);
        let name = format!("{name}/{axis}");
        let end = net.slice(&format!("{name}/end"), x, axis, [first, size, 1])?;
        let start = net.slice(&format!("{name}/start"), x, axis, [0, first, 1])?;
        x = net.concat(&name, &[end, start], axis)?;
    }
    Ok(x)
}

/// A number for every pair of positions of a window, by how far they are apart, `[1, heads, 49, 49]`.
fn places(net: &mut Net, name: &str, heads: i64) -> Layer {
    let (side, size) = (2 * WINDOW - 1, WINDOW * WINDOW);
    let apart = |pair: i64| {
        let (q, k) = (pair / size, pair % size);
        let down = q / WINDOW - k / WINDOW + WINDOW - 1;
        down * side + q % WINDOW - k % WINDOW + WINDOW - 1
    };
    let index: Vec<i64> = (0..size * size).map(apart).collect();
    let index = Tensor::of(&[size * size], &index);
    let index = net.graph.constant(&format!("{name}.relative_position_index"), index);
    let table = format!("{name}.relative_position_bias_table");
    let table = net.uniform(&table, &[side * side, heads], -0.5, 0.5);
    let name = format!("{name}.relative_position_bias");
    let x = net.add(&format!("{name}/Gather"), Gather { axis: 0 }, &[table, index])?;
    let x = net.reshape(&name, x, &[size, size, heads])?;
    let x = net.transpose(&name, x, &[2, 0, 1])?;
    net.reshape(&format!("{name}/Unsqueeze"), x, &[1, heads, size, size])
}

/// -100 for pairs of positions that are neighbours only since the map was rolled, elsewhere 0, as
/// `[windows, 49, 49]`.
fn mask(height: i64, width: i64, shift: i64) -> Vec<f32> {
    let part = |at: i64, size: i64| i64::from(at >= size - WINDOW) + i64::from(at >= size - shift);
    let (columns, size) = (width / WINDOW, WINDOW * WINDOW);
    let region = |window: i64, at: i64| {
        let row = window / columns * WINDOW + at / WINDOW;
        let column = window % columns * WINDOW + at % WINDOW;
        (part(row, height), part(column, width))
    };
    let count = height / WINDOW * columns;
    let mut all = Vec::with_capacity((count * size * size) as usize);
    for window in 0..count {
        for pair in 0..size * size {
            let same = region(window, pair / size) == region(window, pair % size);
            all.push(if same { 0.0 } else { -100.0 });
        }
    }
    all
}
