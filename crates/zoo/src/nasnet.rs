//! NASNet-A (Zoph, Vasudevan, Shlens and Le, *Learning Transferable Architectures for Scalable Image
//! Recognition*, 2017): the large network, 6 @ 4032, and the cells of the Collage paper.

use crate::net::{Layer, Net};
use bricolage_ir::{
    TypeError, ValueId,
    ops::{Conv, Pad, PadMode, PoolKind},
};
use bricolage_tensor::{DType, Dim};

/// Filters of the first cells.
const FILTERS: i64 = 168;

pub(crate) fn nasnet_a_large(net: &mut Net) -> Result<(), TypeError> {
    let x = net.image(3, 331);
    let op = Conv { strides: vec![2; 2], ..Conv::plain(2) };
    let x = net.conv_with("conv0.conv", x, &[96, 3, 3, 3], op, 1.0, false)?;
    let first = norm(net, "conv0.bn", x, 1.0)?;
    let h = squeeze(net, "cell_stem_0.conv_1x1", first, FILTERS / 4)?;
    let mut prev = reduction(net, "cell_stem_0", h, first, FILTERS / 4)?;
    let h = squeeze(net, "cell_stem_1.conv_1x1", prev, FILTERS / 2)?;
    let p = shrink(net, "cell_stem_1", first, FILTERS / 2)?;
    let mut x = reduction(net, "cell_stem_1", h, p, FILTERS / 2)?;
    for stage in 0..3 {
        let filters = FILTERS << stage;
        if stage > 0 {
            let name = format!("reduction_cell_{}", stage - 1);
            let p = squeeze(net, &format!("{name}.conv_prev_1x1"), prev, filters)?;
            let h = squeeze(net, &format!("{name}.conv_1x1"), x, filters)?;
            x = reduction(net, &name, h, p, filters)?;
        }
        for i in 0..6 {
            let name = format!("cell_{}", 6 * stage + i);
            let p = match i {
                0 => shrink(net, &name, prev, filters)?,
                _ => squeeze(net, &format!("{name}.conv_prev_1x1"), prev, filters)?,
            };
            let h = squeeze(net, &format!("{name}.conv_1x1"), x, filters)?;
            (prev, x) = (x, normal(net, &name, h, p)?);
        }
    }
    let x = net.relu("act", x)?;
    let x = net.global_average("global_pool", x)?;
    let x = net.flatten("flatten", x)?;
    let x = net.gemm("last_linear", x, 1000, 1.0)?;
    net.output(x, "output");
    Ok(())
}

fn norm(net: &mut Net, name: &str, x: ValueId, gain: f64) -> Layer {
    net.batch_norm_with(name, x, gain, 1e-3)
}

/// Zeros around the spatial dims so that every `stride`-th position has a window; the odd one comes
/// after.
fn around(net: &Net, x: ValueId, [kernel, stride]: [i64; 2]) -> Vec<(i64, i64)> {
    let pads = |size: &i64| {
        let last = (size + stride - 1) / stride - 1;
        let total = (last * stride + kernel - size).max(0);
        (total / 2, total - total / 2)
    };
    net.dims(x)[2..].iter().map(pads).collect()
}

fn max(net: &mut Net, name: &str, x: ValueId, window: [i64; 2]) -> Layer {
    let pads = around(net, x, window);
    net.pool(&format!("{name}/MaxPool"), PoolKind::Max { indices: false }, x, window, pads)
}

fn average(net: &mut Net, name: &str, x: ValueId, window: [i64; 2]) -> Layer {
    let pads = around(net, x, window);
    let kind = PoolKind::Average { count_include_pad: false };
    net.pool(&format!("{name}/AveragePool"), kind, x, window, pads)
}

/// Rectifier and 1x1 convolution, normalised.
fn squeeze(net: &mut Net, name: &str, x: ValueId, channels: i64) -> Layer {
    let x = net.relu(&format!("{name}.act"), x)?;
    let x = net.conv(&format!("{name}.conv"), x, channels, [1, 1, 1], false)?;
    norm(net, &format!("{name}.bn"), x, 0.8)
}

/// Half the size by two grids of every second position, one shifted by one.
fn shrink(net: &mut Net, name: &str, x: ValueId, channels: i64) -> Layer {
    let x = net.relu(&format!("{name}.act"), x)?;
    let by = |h: i64| [0, 0, h, h].map(Dim::from).to_vec();
    let op = Pad { mode: PadMode::Constant, before: by(-1), after: by(1) };
    let shifted = net.add(&format!("{name}.path_2.pad/Pad"), op, &[x])?;
    let mut parts = [x, shifted];
    for (i, part) in (1..).zip(&mut parts) {
        let name = format!("{name}.path_{i}");
        let grid = net.average_pool(&format!("{name}.avgpool"), *part, [1, 2, 0])?;
        *part = net.conv(&format!("{name}.conv"), grid, channels / 2, [1, 1, 1], false)?;
    }
    let x = net.concat(name, &parts, 1)?;
    norm(net, &format!("{name}.final_path_bn"), x, 0.8)
}

/// Two depthwise separable convolutions, each after a rectifier and normalised.
fn separable(net: &mut Net, name: &str, mut x: ValueId, channels: i64, window: [i64; 2]) -> Layer {
    let kernel = window[0];
    for (i, stride, gain) in [(1, window[1], 1.0), (2, 1, 0.7)] {
        x = net.relu(&format!("{name}.act_{i}"), x)?;
        let inputs = net.dims(x)[1];
        let op = Conv {
            strides: vec![stride; 2],
            pads: around(net, x, [kernel, stride]),
            groups: inputs,
            ..Conv::plain(2)
        };
        let deep = format!("{name}.separable_{i}.depthwise_conv2d");
        x = net.conv_with(&deep, x, &[inputs, 1, kernel, kernel], op, 2.0, false)?;
        let point = format!("{name}.separable_{i}.pointwise_conv2d");
        let weight = [channels, inputs, 1, 1];
        x = net.conv_with(&point, x, &weight, Conv::plain(2), 1.0, false)?;
        x = norm(net, &format!("{name}.bn_sep_{i}"), x, gain)?;
    }
    Ok(x)
}

/// The normal cell on what came last, `h`, and before it, `p`, both of as many channels as filters.
fn normal(net: &mut Net, name: &str, h: ValueId, p: ValueId) -> Layer {
    let filters = net.dims(h)[1];
    let at = |i: usize, side: &str| format!("{name}.comb_iter_{i}_{side}");
    let sums = [
        [
            separable(net, &at(0, "left"), h, filters, [5, 1])?,
            separable(net, &at(0, "right"), p, filters, [3, 1])?,
        ],
        [
            separable(net, &at(1, "left"), p, filters, [5, 1])?,
            separable(net, &at(1, "right"), p, filters, [3, 1])?,
        ],
        [average(net, &at(2, "left"), h, [3, 1])?, p],
        [average(net, &at(3, "left"), p, [3, 1])?, average(net, &at(3, "right"), p, [3, 1])?],
        [separable(net, &at(4, "left"), h, filters, [3, 1])?, h],
    ];
    let mut parts = vec![p];
    for (i, [a, b]) in sums.into_iter().enumerate() {
        parts.push(net.sum(&format!("{name}/{i}"), a, b)?);
    }
    net.concat(name, &parts, 1)
}

/// The reduction cell on what came last, `h`, and before it, `p`.
fn reduction(net: &mut Net, name: &str, h: ValueId, p: ValueId, filters: i64) -> Layer {
    let at = |i: usize, side: &str| format!("{name}.comb_iter_{i}_{side}");
    let sum = |net: &mut Net, i: usize, a, b| net.sum(&format!("{name}/{i}"), a, b);
    let a = separable(net, &at(0, "left"), h, filters, [5, 2])?;
    let b = separable(net, &at(0, "right"), p, filters, [7, 2])?;
    let first = sum(net, 0, a, b)?;
    let a = max(net, &at(1, "left"), h, [3, 2])?;
    let b = separable(net, &at(1, "right"), p, filters, [7, 2])?;
    let second = sum(net, 1, a, b)?;
    let a = average(net, &at(2, "left"), h, [3, 2])?;
    let b = separable(net, &at(2, "right"), p, filters, [5, 2])?;
    let third = sum(net, 2, a, b)?;
    let a = average(net, &at(3, "right"), first, [3, 1])?;
    let fourth = sum(net, 3, a, second)?;
    let a = separable(net, &at(4, "left"), first, filters, [3, 1])?;
    let b = max(net, &at(4, "right"), h, [3, 2])?;
    let fifth = sum(net, 4, a, b)?;
    net.concat(name, &[second, third, fourth, fifth], 1)
}

/// Stages of five normal cells with reduction cells between them, as the Collage paper builds them:
/// no normalisation, one separable convolution at a time, 3x3 in every normal cell.
pub(crate) fn collage_nasnet_a(net: &mut Net) -> Result<(), TypeError> {
    let mut x = net.input("input", DType::F32, &[64, 56, 56]);
    let mut prev = x;
    for stage in 0..3 {
        let filters = 64 << stage;
        if stage > 0 {
            x = collage_reduction(net, &format!("reduction_cell_{}", stage - 1), x, prev, filters)?;
            prev = x;
        }
        for i in 0..5 {
            let name = format!("normal_cell_{stage}.{i}");
            (prev, x) = (x, collage_normal(net, &name, x, prev, filters)?);
        }
    }
    net.output(x, "output");
    Ok(())
}

/// A 1x1 convolution with a bias and its rectifier.
fn fit(net: &mut Net, name: &str, x: ValueId, filters: i64) -> Layer {
    let x = net.conv(&format!("{name}.0"), x, filters, [1, 1, 1], true)?;
    net.relu(&format!("{name}.1"), x)
}

fn plain_separable(net: &mut Net, name: &str, x: ValueId, window: [i64; 2]) -> Layer {
    let filters = net.dims(x)[1];
    let [kernel, stride] = window;
    let deep = format!("{name}.depthwise_conv2d");
    let x = net.conv(&deep, x, filters, [kernel, stride, filters], false)?;
    let (weight, op) = net.window(x, filters, [1, 1, 1]);
    net.conv_with(&format!("{name}.pointwise_conv2d"), x, &weight, op, 0.3, false)
}

fn collage_normal(net: &mut Net, name: &str, x: ValueId, prev: ValueId, filters: i64) -> Layer {
    let h = fit(net, &format!("{name}.squeeze"), x, filters)?;
    let p = fit(net, &format!("{name}.fit"), prev, filters)?;
    let node =
        |net: &mut Net, i: usize, x| plain_separable(net, &format!("{name}.nodes.{i}"), x, [3, 1]);
    let mean =
        |net: &mut Net, i: usize, x| net.average_pool(&format!("{name}.pool/{i}"), x, [3, 1, 1]);
    let sums = [
        [node(net, 0, h)?, h],
        [node(net, 1, p)?, node(net, 2, h)?],
        [mean(net, 0, h)?, p],
        [mean(net, 1, p)?, mean(net, 2, p)?],
        [node(net, 3, p)?, node(net, 4, p)?],
    ];
    let mut parts = Vec::new();
    for (i, [a, b]) in sums.into_iter().enumerate() {
        parts.push(net.sum(&format!("{name}/{i}"), a, b)?);
    }
    net.concat(name, &parts, 1)
}

fn collage_reduction(net: &mut Net, name: &str, x: ValueId, prev: ValueId, filters: i64) -> Layer {
    let h = fit(net, &format!("{name}.squeeze"), x, filters)?;
    let p = fit(net, &format!("{name}.fit"), prev, filters)?;
    let sum = |net: &mut Net, i: usize, a, b| net.sum(&format!("{name}/{i}"), a, b);
    let a = plain_separable(net, &format!("{name}.conv7_1"), p, [7, 2])?;
    let b = plain_separable(net, &format!("{name}.conv5_1"), h, [5, 2])?;
    let first = sum(net, 0, a, b)?;
    let a = net.max_pool(&format!("{name}.maxpool/0"), h, [3, 2, 1])?;
    let b = plain_separable(net, &format!("{name}.conv7_2"), p, [7, 2])?;
    let second = sum(net, 1, a, b)?;
    let a = net.average_pool(&format!("{name}.avgpool"), h, [3, 2, 1])?;
    let b = plain_separable(net, &format!("{name}.conv5_2"), p, [5, 2])?;
    let third = sum(net, 2, a, b)?;
    let a = net.max_pool(&format!("{name}.maxpool/1"), h, [3, 2, 1])?;
    let b = plain_separable(net, &format!("{name}.conv3_1"), first, [3, 1])?;
    let fourth = sum(net, 3, a, b)?;
    let a = net.average_pool(&format!("{name}.avgpool_1"), first, [3, 1, 1])?;
    let fifth = sum(net, 4, a, second)?;
    net.concat(name, &[first, second, third, fourth, fifth], 1)
}
