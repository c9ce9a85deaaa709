//! Steps on images of one to three spatial dims.

use super::{Growing, real};
use bricolage_ir::{
    Real, ValueId,
    ops::{
        BatchNorm, Conv, ConvTranspose, Coordinates, DepthOrder, DepthToSpace, GroupNorm,
        Interpolation, Lrn, Pool, PoolKind, Reduce, ReduceKind, Resize, Rounding, SpaceToDepth,
    },
};
use bricolage_tensor::{DType, Shape, Tensor};

/// Sizes of a sliding window along every spatial dim.
struct Window {
    kernel: Vec<i64>,
    strides: Vec<i64>,
    dilations: Vec<i64>,
    pads: Vec<(i64, i64)>,
}

fn window(g: &mut Growing, spatial: usize) -> Window {
    let side = g.one_of(&[1, 1, 2, 3, 3, 3, 4, 5, 7]);
    let even = g.chance(0.75);
    let stride = g.one_of(&[1, 1, 1, 2, 2, 3]);
    let dilation = g.one_of(&[1, 1, 1, 1, 2, 3]);
    let padding = g.below(3);
    let mut w = Window { kernel: vec![], strides: vec![], dilations: vec![], pads: vec![] };
    for _ in 0..spatial {
        let k = if even { side } else { g.one_of(&[1, 2, 3, 5]) };
        let d = if even { dilation } else { g.one_of(&[1, 1, 2]) };
        let reach = (k - 1) * d;
        w.kernel.push(k);
        w.strides.push(if even { stride } else { g.one_of(&[1, 2, 3]) });
        w.dilations.push(d);
        w.pads.push(match padding {
            0 => (reach / 2, reach / 2),
            1 => (0, 0),
            _ => (g.between(0, reach.min(3)), g.between(0, reach.min(3))),
        });
    }
    w
}

fn image(g: &mut Growing) -> Option<ValueId> {
    g.pick_float(3..=5)
}

pub(super) fn convolution(g: &mut Growing) -> Option<()> {
    let x = image(g)?;
    let (dims, dtype) = (g.dims(x), g.dtype_of(x));
    let channels = dims[1];
    let groups = match g.below(8) {
        0..=4 => 1,
        5 | 6 => channels,
        _ => g.divisor(channels),
    };
    let wanted = if groups == channels && channels > 1 {
        channels * g.one_of(&[1, 1, 1, 2])
    } else {
        g.channels()
    };
    let filters = wanted.div_euclid(groups).max(1) * groups;
    let w = window(g, dims.len() - 2);
    let mut shape = vec![filters, channels / groups];
    shape.extend(&w.kernel);
    let taps: i64 = shape[1..].iter().product();
    let weight = g.weight(dtype, &shape, 1.0 / (taps as f64).sqrt())?;
    let mut operands = vec![x, weight];
    if g.chance(0.5) {
        operands.push(g.weight(dtype, &[filters], 0.5)?);
    }
    let op = Conv { strides: w.strides, dilations: w.dilations, pads: w.pads, groups };
    let y = g.on(op, &operands)?;
    epilogue(g, y, x)
}

/// What follows a convolution or a product: norm, shift, residual, activation, each or none.
pub(super) fn epilogue(g: &mut Growing, y: ValueId, x: ValueId) -> Option<()> {
    let mut y = y;
    if g.chance(0.2) && (3..=5).contains(&g.dims(y).len()) {
        y = normalise(g, y)?;
    }
    if g.chance(0.15) {
        y = super::elements::shift(g, y)?;
    }
    if g.chance(0.2) {
        let (dims, dtype) = (g.dims(y), g.dtype_of(y));
        let other = if g.dims(x) == dims && g.dtype_of(x) == dtype {
            Some(x)
        } else {
            g.pick(|t| t.dims() == dims && t.dtype() == dtype)
        };
        if let Some(other) = other {
            let pair = if g.chance(0.5) { [y, other] } else { [other, y] };
            y = g.on(bricolage_ir::ops::Binary::Add, &pair)?;
        }
    }
    if g.chance(0.4) {
        super::elements::activate(g, y)?;
    }
    Some(())
}

pub(super) fn transposed_convolution(g: &mut Growing) -> Option<()> {
    let x = image(g)?;
    let (dims, dtype) = (g.dims(x), g.dtype_of(x));
    let channels = dims[1];
    let groups = if g.chance(0.75) { 1 } else { g.divisor(channels) };
    let w = window(g, dims.len() - 2);
    let mut shape = vec![channels, g.one_of(&[1, 2, 3, 4, 8])];
    shape.extend(&w.kernel);
    let filters = shape[1] * groups;
    let spread = 1.0 / ((channels / groups) as f64).sqrt();
    let weight = g.weight(dtype, &shape, spread)?;
    let mut operands = vec![x, weight];
    if g.chance(0.5) {
        operands.push(g.weight(dtype, &[filters], 0.5)?);
    }
    let output_padding =
        w.strides.iter().map(|&s| if s > 1 && g.chance(0.3) { g.between(0, s - 1) } else { 0 });
    let output_padding = output_padding.collect();
    let op = ConvTranspose {
        strides: w.strides,
        dilations: w.dilations,
        pads: w.pads,
        output_padding,
        groups,
    };
    let y = g.on(op, &operands)?;
    epilogue(g, y, x)
}

pub(super) fn pool(g: &mut Growing) -> Option<()> {
    let x = image(g)?;
    let w = window(g, g.dims(x).len() - 2);
    let kind = match g.below(8) {
        0..=2 => PoolKind::Max { indices: false },
        3 => PoolKind::Max { indices: true },
        4 => PoolKind::Lp { p: g.between(1, 3) },
        5 => PoolKind::Average { count_include_pad: true },
        _ => PoolKind::Average { count_include_pad: false },
    };
    let op = Pool {
        kind,
        kernel: w.kernel,
        strides: w.strides,
        dilations: w.dilations,
        pads: w.pads,
        ceil_mode: g.chance(0.3),
    };
    g.on(op, &[x]).map(|_| ())
}

pub(super) fn global_pool(g: &mut Growing) -> Option<()> {
    let x = image(g)?;
    let axes = (2..g.dims(x).len()).collect();
    let kind = g.one_of(&[ReduceKind::Mean, ReduceKind::Mean, ReduceKind::Max]);
    let keep_dims = g.chance(0.6);
    let y = g.on(Reduce { kind, axes, keep_dims }, &[x])?;
    if keep_dims && g.chance(0.4) {
        // Squeeze and excitation.
        let gate = g.on(bricolage_ir::ops::Unary::Sigmoid, &[y])?;
        g.on(bricolage_ir::ops::Binary::Mul, &[x, gate])?;
    }
    Some(())
}

pub(super) fn resize(g: &mut Growing) -> Option<()> {
    let x = g.pick_float(3..=4)?;
    let mut sizes = g.dims(x);
    let mut scales: Vec<Real> = vec![real(1.0); sizes.len()];
    let given = g.chance(0.4);
    for d in 2..sizes.len() {
        match g.below(4) {
            0 => sizes[d] = g.between(1, 14),
            1 => {
                let scale = g.one_of(&[0.5, 0.6, 1.5, 2.5]);
                let size = (sizes[d] as f64 * scale).floor() as i64;
                if size >= 1 {
                    sizes[d] = size;
                    scales[d] = real(scale);
                }
            }
            _ => {
                sizes[d] *= 2;
                scales[d] = real(2.0);
            }
        }
    }
    let dims = g.dims(x);
    let scales = (given
        && (0..dims.len()).all(|d| (dims[d] as f64 * scales[d].get()).floor() as i64 == sizes[d]))
    .then_some(scales);
    let mode = match g.below(5) {
        0 | 1 => Interpolation::Nearest(g.one_of(&[
            Rounding::PreferFloor,
            Rounding::Floor,
            Rounding::Ceil,
            Rounding::PreferCeil,
        ])),
        2 => Interpolation::Cubic(real(-0.75)),
        _ => Interpolation::Linear,
    };
    let coordinates = g.one_of(&[
        Coordinates::HalfPixel,
        Coordinates::PytorchHalfPixel,
        Coordinates::AlignCorners,
        Coordinates::Asymmetric,
    ]);
    let op = Resize {
        sizes: Shape::fixed(&sizes),
        scales,
        mode,
        coordinates,
        exclude_outside: false,
        antialias: false,
        roi: Vec::new(),
        extrapolation: real(0.0),
    };
    g.on(op, &[x]).map(|_| ())
}

fn normalise(g: &mut Growing, x: ValueId) -> Option<ValueId> {
    let channels = g.dims(x)[1];
    let dtype = g.dtype_of(x);
    let scale = g.weight(dtype, &[channels], 0.7)?;
    let shift = g.weight(dtype, &[channels], 0.5)?;
    let mean = g.weight(dtype, &[channels], 0.3)?;
    let variance = positive(g, dtype, &[channels]);
    let epsilon = real(g.one_of(&[1e-5, 1e-3]));
    g.on(BatchNorm { epsilon }, &[x, scale, shift, mean, variance])
}

fn positive(g: &mut Growing, dtype: DType, dims: &[i64]) -> ValueId {
    let values: Vec<f64> =
        g.draw(DType::F64, dims, 0.5).to_f64().iter().map(|v| 0.3 + v.abs()).collect();
    g.constant(Tensor::from_f64(dtype, dims, &values))
}

pub(super) fn batch_norm(g: &mut Growing) -> Option<()> {
    let x = g.pick_float(2..=5)?;
    let y = normalise(g, x)?;
    if g.chance(0.4) {
        super::elements::activate(g, y)?;
    }
    Some(())
}

/// Group and instance normalisation.
pub(super) fn group_norm(g: &mut Growing) -> Option<()> {
    let x = g.pick_float(3..=5)?;
    let channels = g.dims(x)[1];
    let groups = if g.chance(0.4) { channels } else { g.divisor(channels) };
    if !super::is_norm_worth(g.dims(x)[1..].iter().product::<i64>() / groups) {
        return None;
    }
    let mut operands = vec![x];
    let dtype = g.dtype_of(x);
    operands.push(g.weight(dtype, &[channels], 0.7)?);
    operands.push(g.weight(dtype, &[channels], 0.5)?);
    g.on(GroupNorm { groups, epsilon: real(1e-5) }, &operands).map(|_| ())
}

pub(super) fn response_norm(g: &mut Growing) -> Option<()> {
    let x = g.pick_float(3..=4)?;
    let op =
        Lrn { size: g.one_of(&[1, 3, 5]), alpha: real(0.1), beta: real(0.75), bias: real(1.0) };
    g.on(op, &[x]).map(|_| ())
}

pub(super) fn depth_and_space(g: &mut Growing) -> Option<()> {
    let x = g.pick_float(4..=4)?;
    let dims = g.dims(x);
    let block = g.one_of(&[2, 2, 3]);
    if dims[1] % (block * block) == 0 && g.chance(0.7) {
        let order = g.one_of(&[DepthOrder::BlocksFirst, DepthOrder::ChannelsFirst]);
        return g.on(DepthToSpace { block, order }, &[x]).map(|_| ());
    }
    g.on(SpaceToDepth { block }, &[x]).map(|_| ())
}
