//! Patterns over images: convolutions with their epilogues, pooling, resizing.

use super::{
    Proposal,
    chain::{Chain, chains},
    view::{PLAIN, View, blocked, channels_last, with_halo},
};
use bricolage_ir::{
    NodeId, Numerics, Op,
    ops::{Coordinates, Interpolation, PoolKind, ReduceKind, Rounding},
};
use bricolage_kernels::{
    ConvAlgorithm, ConvKnobs, ConvSpec, Coordinates as KernelCoordinates, PoolOp, PoolSpec,
    ResizeMode, ResizeSpec, Rounding as KernelRounding, Spec,
};
use bricolage_tensor::{Format, Tensor};

/// Images with at most this many channels are read where they lie, row-major.
const PLAIN_CHANNELS: i64 = 4;

/// All paddings before, then all after.
fn pads(pairs: &[(i64, i64)]) -> Vec<i64> {
    pairs.iter().map(|p| p.0).chain(pairs.iter().map(|p| p.1)).collect()
}

/// What a convolution node says, before formats and algorithm are chosen.
fn conv_spec(view: &View<'_>, chain: &Chain) -> Option<(ConvSpec, Vec<Tensor>)> {
    let node = view.node(chain.anchor);
    let x = view.operand(node, 0)?;
    let input = view.float_dims(x).filter(|d| matches!(d.len(), 3 | 4))?;
    let weights = view.constant(view.operand(node, 1)?)?;
    let mut raw = vec![weights.clone()];
    if let Some(bias) = view.operand(node, 2) {
        raw.push(view.constant(bias)?.clone());
    }
    let spatial = input.len() - 2;
    let (strides, dilations, pairs, groups, transposed, output_padding) = match &node.op {
        Op::Conv(c) => (&c.strides, &c.dilations, &c.pads, c.groups, false, vec![0; spatial]),
        Op::ConvTranspose(c) => {
            (&c.strides, &c.dilations, &c.pads, c.groups, true, c.output_padding.clone())
        }
        _ => return None,
    };
    let out_channels = if transposed { weights.dims()[1] * groups } else { weights.dims()[0] };
    let spec = ConvSpec {
        input,
        input_format: PLAIN,
        output_format: PLAIN,
        out_channels,
        kernel: weights.dims()[2..].to_vec(),
        strides: strides.clone(),
        dilations: dilations.clone(),
        pads: pads(pairs),
        groups,
        transposed,
        output_padding,
        bias: raw.len() == 2,
        posts: chain.posts.clone(),
        algorithm: ConvAlgorithm::Direct,
        knobs: ConvKnobs::default(),
    };
    Some((spec, raw))
}

fn numerics(algorithm: ConvAlgorithm) -> Numerics {
    match algorithm {
        ConvAlgorithm::Winograd { tile } => Numerics::Winograd(tile),
        _ => Numerics::Reassociates,
    }
}

/// A convolution and up to an addition and activations after it, by every algorithm, in both layouts.
pub(super) fn conv(view: &View<'_>, exit: NodeId) -> Result<Vec<Proposal>, String> {
    let is_anchor = |n: &bricolage_ir::Node| matches!(n.op, Op::Conv(_) | Op::ConvTranspose(_));
    let mut all = Vec::new();
    for chain in chains(view, exit, &is_anchor, &|_, _| false) {
        if !is_anchor(view.node(chain.anchor)) {
            continue;
        }
        conv_chain(view, &chain, exit, &mut all)?;
    }
    Ok(all)
}

fn conv_chain(
    view: &View<'_>,
    chain: &Chain,
    exit: NodeId,
    all: &mut Vec<Proposal>,
) -> Result<(), String> {
    let node = view.node(chain.anchor);
    let Some((base, raw)) = conv_spec(view, chain) else {
        return Err("needs f32 images of one or two spatial dims and constant weights".to_owned());
    };
    if raw[0].is_empty() {
        return Err(format!("needs weights with elements, found dims {:?}", raw[0].dims()));
    }
    let x = view.operand(node, 0).ok_or("has no input")?;
    let output = view.node(exit).outputs[0];
    let halo = view.liked_halo(node);
    let macs = base.input[0] as f64
        * base.out_channels as f64
        * (base.input[1] / base.groups) as f64
        * base.kernel.iter().product::<i64>() as f64
        * view.dims(output).map_or(1.0, |d| d[2..].iter().product::<i64>() as f64);
    for layout in [blocked(0), channels_last(0)] {
        let mut inputs: Vec<Format> =
            if base.input[1] <= PLAIN_CHANNELS { vec![PLAIN] } else { vec![layout.clone()] };
        if halo > 0 && base.input[1] > PLAIN_CHANNELS {
            inputs.push(with_halo(&layout, halo));
        }
        for input in &inputs {
            for &out_halo in &view.liked_halos(output) {
                let mut spec = base.clone();
                spec.input_format = input.clone();
                spec.output_format = with_halo(&layout, out_halo);
                let algorithms = spec.algorithms().map_err(|e| e.to_string())?;
                for (rank, algorithm) in algorithms.into_iter().enumerate() {
                    let winograd = matches!(algorithm, ConvAlgorithm::Winograd { .. });
                    // A depthwise convolution by sums over whole windows is never the faster one, and
                    // Winograd copies its patches and gains nothing from a halo.
                    let pointless = (rank > 0 && base.groups == base.input[1] && base.groups > 1)
                        || (winograd && *input != with_halo(input, 0));
                    if pointless || !view.setting.policy.admits(numerics(algorithm)) {
                        continue;
                    }
                    spec.algorithm = algorithm;
                    let mut operands = vec![(x, input.clone())];
                    if let Some(residual) = chain.residual {
                        operands.push((residual, spec.output_format.clone()));
                    }
                    let guess = view.compute_ns(macs) * (1.0 + 0.3 * rank as f64)
                        + 0.3 * view.movement_ns(&[x, output]);
                    let kind = if base.transposed { "conv-transpose" } else { "conv" };
                    let candidate = view.candidate(
                        chain.nodes.clone(),
                        &operands,
                        &[spec.output_format.clone()],
                        (&chain.name(kind), algorithm.name()),
                        numerics(algorithm),
                        guess,
                    )?;
                    all.push(Proposal {
                        candidate,
                        spec: Spec::Conv(spec.clone()),
                        raw: raw.clone(),
                    });
                }
            }
        }
    }
    Ok(())
}

/// Formats in which an image may lie: all pairs of input and output that a sliding window allows.
fn image_formats(
    view: &View<'_>,
    output: bricolage_ir::ValueId,
    channels: i64,
) -> Vec<(Format, Format)> {
    let mut pairs = vec![(PLAIN, PLAIN)];
    if channels > PLAIN_CHANNELS {
        for layout in [blocked(0), channels_last(0)] {
            for halo in view.liked_halos(output) {
                pairs.push((layout.clone(), with_halo(&layout, halo)));
            }
        }
    }
    pairs
}

/// Maximum and average pooling; means and maxima over all of an image.
pub(super) fn pool(view: &View<'_>, exit: NodeId) -> Result<Vec<Proposal>, String> {
    let node = view.node(exit);
    let x = view.operand(node, 0).ok_or("has no input")?;
    let Some(input) = view.float_dims(x).filter(|d| matches!(d.len(), 3 | 4)) else {
        return match node.op {
            Op::Pool(_) => Err("needs an f32 image of one or two spatial dims".to_owned()),
            _ => Ok(Vec::new()),
        };
    };
    let spatial = input.len() - 2;
    let whole = |op| PoolSpec {
        input: input.clone(),
        input_format: PLAIN,
        output_format: PLAIN,
        op,
        kernel: input[2..].to_vec(),
        strides: vec![1; spatial],
        dilations: vec![1; spatial],
        pads: vec![0; 2 * spatial],
        ceil: false,
    };
    let (base, name) = match &node.op {
        Op::Pool(p) => {
            let op = match p.kind {
                PoolKind::Max { indices: false } => PoolOp::Max,
                PoolKind::Average { count_include_pad } => {
                    PoolOp::Average { count_pads: count_include_pad }
                }
                other => {
                    return Err(format!("needs the largest element or the mean, found {other:?}"));
                }
            };
            let spec = PoolSpec {
                kernel: p.kernel.clone(),
                strides: p.strides.clone(),
                dilations: p.dilations.clone(),
                pads: pads(&p.pads),
                ceil: p.ceil_mode,
                ..whole(op)
            };
            (spec, "pool")
        }
        Op::Reduce(r) => {
            let mut axes = r.axes.clone();
            axes.sort_unstable();
            let op = match r.kind {
                ReduceKind::Mean => PoolOp::Average { count_pads: false },
                ReduceKind::Max => PoolOp::Max,
                _ => return Ok(Vec::new()),
            };
            if !r.keep_dims || !axes.into_iter().eq(2..input.len()) {
                return Ok(Vec::new());
            }
            (whole(op), "global-pool")
        }
        _ => return Ok(Vec::new()),
    };
    let output = node.outputs[0];
    let single = view.dims(output).is_some_and(|d| d[2..].iter().all(|&n| n == 1));
    let mut formats = image_formats(view, output, input[1]);
    if single {
        formats.extend([(blocked(0), PLAIN), (channels_last(0), PLAIN)]);
    }
    let window: i64 = base.kernel.iter().product();
    let mut all = Vec::new();
    for (from, to) in formats {
        let spec =
            PoolSpec { input_format: from.clone(), output_format: to.clone(), ..base.clone() };
        let candidate = view.candidate(
            vec![exit],
            &[(x, from)],
            &[to],
            (name, format!("window {window}")),
            Numerics::Reassociates,
            view.movement_ns(&[x, output]) * 1.5,
        )?;
        all.push(Proposal { candidate, spec: Spec::Pool(spec), raw: Vec::new() });
    }
    Ok(all)
}

/// Resizing of the spatial dims.
pub(super) fn resize(view: &View<'_>, exit: NodeId) -> Result<Vec<Proposal>, String> {
    let node = view.node(exit);
    let Op::Resize(r) = &node.op else { return Ok(Vec::new()) };
    let x = view.operand(node, 0).ok_or("has no input")?;
    let input = view
        .float_dims(x)
        .filter(|d| matches!(d.len(), 3 | 4))
        .ok_or("needs an f32 image of one or two spatial dims")?;
    let output = node.outputs[0];
    let sizes = view.dims(output).ok_or("needs a constant size")?;
    if sizes[..2] != input[..2] || r.antialias {
        return Err("needs batch and channels as they are, and no antialiasing".to_owned());
    }
    let coordinates = match r.coordinates {
        Coordinates::HalfPixel => KernelCoordinates::HalfPixel,
        Coordinates::HalfPixelSymmetric => KernelCoordinates::HalfPixelSymmetric,
        Coordinates::PytorchHalfPixel => KernelCoordinates::PytorchHalfPixel,
        Coordinates::AlignCorners => KernelCoordinates::AlignCorners,
        Coordinates::Asymmetric => KernelCoordinates::Asymmetric,
        other => return Err(format!("does not know the coordinates {other:?}")),
    };
    let mode = match r.mode {
        Interpolation::Nearest(rounding) => ResizeMode::Nearest(match rounding {
            Rounding::PreferFloor => KernelRounding::HalfDown,
            Rounding::PreferCeil => KernelRounding::HalfUp,
            Rounding::Floor => KernelRounding::Floor,
            Rounding::Ceil => KernelRounding::Ceil,
        }),
        Interpolation::Linear if !r.exclude_outside => ResizeMode::Linear,
        Interpolation::Cubic(a) => {
            ResizeMode::Cubic { coefficient: a.get() as f32, exclude_outside: r.exclude_outside }
        }
        other => return Err(format!("does not do {other:?} that leaves out what is outside")),
    };
    let scale = |d: usize| match &r.scales {
        Some(scales) => scales[d].get(),
        None => sizes[d] as f64 / input[d] as f64,
    };
    let mut all = Vec::new();
    for (from, to) in image_formats(view, output, input[1]) {
        let spec = ResizeSpec {
            input: input.clone(),
            input_format: from.clone(),
            output_format: to.clone(),
            output: sizes[2..].to_vec(),
            scales: (2..sizes.len()).map(scale).collect(),
            mode,
            coordinates,
        };
        let candidate = view.candidate(
            vec![exit],
            &[(x, from)],
            &[to],
            ("resize", "interpolate".to_owned()),
            Numerics::Reassociates,
            view.movement_ns(&[x, output]) * 2.0,
        )?;
        all.push(Proposal { candidate, spec: Spec::Resize(spec), raw: Vec::new() });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trials::{Case, SETTING, drawn};
    use bricolage_ir::ops::Conv;
    use bricolage_tensor::DType;

    #[test]
    fn a_convolution_without_channels_or_filters_is_refused() {
        let op = Conv {
            strides: vec![1, 1],
            dilations: vec![1, 1],
            pads: vec![(1, 1), (1, 1)],
            groups: 1,
        };
        for (filters, channels) in [(2, 0), (0, 2), (0, 0)] {
            let mut case = Case::new();
            let x = case.input(drawn(DType::F32, &[1, channels, 4, 4], 1));
            let w = case.constant(drawn(DType::F32, &[filters, channels, 3, 3], 2));
            let y = case.op(op.clone(), &[x, w]);
            let view = View { graph: &case.graph, setting: SETTING };
            let why = case.graph.producer(y).map(|exit| conv(&view, exit)).unwrap().err();
            assert!(why.is_some_and(|why| why.starts_with("needs weights with elements")));
        }
    }
}
