//! One or more applications of every op, small enough to be evaluated many times.

mod more;

use bricolage_ir::{Fact, Inputs, Op, OpKind, Real, ops::*};
use bricolage_tensor::{DType, Datum, Dim, Shape, Tensor};

pub(crate) struct Sample {
    pub(crate) op: Op,
    pub(crate) inputs: Vec<Option<Datum>>,
}

impl Sample {
    pub(crate) fn refs(&self) -> Vec<Option<&Datum>> {
        self.inputs.iter().map(Option::as_ref).collect()
    }

    pub(crate) fn facts(&self) -> Vec<Option<Fact>> {
        Inputs(&self.refs()).facts()
    }
}

/// Deterministic values of both signs, none twice in a row.
pub(crate) fn ramp(dtype: DType, dims: &[i64]) -> Datum {
    let seed = dims.iter().fold(7i64, |s, d| s * 31 + d) as f64;
    Tensor::generate(dtype, dims, |i| (((i as f64) * 0.7391 + seed).sin() * 977.0).fract() * 2.5)
        .into()
}

fn f(dims: &[i64]) -> Option<Datum> {
    Some(ramp(DType::F64, dims))
}

/// Values above 0.
fn positive(dims: &[i64]) -> Option<Datum> {
    let Some(Datum::Tensor(t)) = f(dims) else { return None };
    let values: Vec<f64> = t.to_f64().iter().map(|v| v.abs() + 0.25).collect();
    Some(Tensor::from_f64(DType::F64, dims, &values).into())
}

fn ints(dims: &[i64], values: &[i64]) -> Option<Datum> {
    Some(Tensor::of(dims, values).into())
}

fn bools(dims: &[i64], values: &[bool]) -> Option<Datum> {
    Some(Tensor::of_bool(dims, values).into())
}

fn truth(dims: &[i64]) -> Option<Datum> {
    let n: i64 = dims.iter().product();
    bools(dims, &(0..n).map(|i| (i * i + i / 3) % 3 == 0).collect::<Vec<_>>())
}

fn small(dims: &[i64]) -> Option<Datum> {
    let n: i64 = dims.iter().product();
    ints(dims, &(0..n).map(|i| (i * 7 + 3) % 11 - 4).collect::<Vec<_>>())
}

fn shape(dims: &[i64]) -> Shape {
    Shape::fixed(dims)
}

fn dims(all: &[i64]) -> Vec<Dim> {
    all.iter().map(|&d| Dim::from(d)).collect()
}

fn conv(strides: [i64; 2], dilations: [i64; 2], pads: [(i64, i64); 2], groups: i64) -> Conv {
    Conv { strides: strides.to_vec(), dilations: dilations.to_vec(), pads: pads.to_vec(), groups }
}

fn pool(kind: PoolKind, ceil_mode: bool) -> Pool {
    Pool {
        kind,
        kernel: vec![3, 2],
        strides: vec![2, 2],
        dilations: vec![1, 2],
        pads: vec![(1, 1), (0, 1)],
        ceil_mode,
    }
}

fn resize(mode: Interpolation, coordinates: Coordinates) -> Resize {
    Resize {
        sizes: shape(&[2, 3, 7, 4]),
        scales: None,
        mode,
        coordinates,
        exclude_outside: false,
        antialias: false,
        roi: Vec::new(),
        extrapolation: Real::new(0.0),
    }
}

/// Functions whose operand must lie in a part of the line.
fn unary_input(function: Unary) -> Option<Datum> {
    let Some(Datum::Tensor(t)) = f(&[4, 3]) else { return None };
    let map = |g: fn(f64) -> f64| {
        let values: Vec<f64> = t.to_f64().into_iter().map(g).collect();
        Some(Tensor::from_f64(DType::F64, &[4, 3], &values).into())
    };
    match function {
        Unary::Log | Unary::Sqrt | Unary::Rsqrt => positive(&[4, 3]),
        Unary::Asin | Unary::Acos | Unary::Atanh => map(|x| x / 3.0),
        Unary::Acosh => map(|x| x.abs() + 1.0),
        Unary::Not => truth(&[4, 3]),
        Unary::BitNot => small(&[4, 3]),
        _ => map(|x| x),
    }
}

pub(crate) fn all() -> Vec<Sample> {
    let mut all: Vec<Sample> = Vec::new();
    let mut add = |op: Op, inputs: Vec<Option<Datum>>| all.push(Sample { op, inputs });
    for &function in Unary::ALL {
        add(function.into(), vec![unary_input(function)]);
    }
    add(Unary::Abs.into(), vec![small(&[5])]);
    for &function in Binary::ALL {
        use Binary::*;
        let (a, b) = match function {
            And | Or | Xor => (truth(&[4, 3]), truth(&[3])),
            BitAnd | BitOr | BitXor | ShiftLeft | ShiftRight => (small(&[4, 3]), small(&[4, 1])),
            Pow => (positive(&[4, 3]), f(&[4, 1])),
            _ => (f(&[2, 4, 3]), f(&[4, 1])),
        };
        add(function.into(), vec![a, b]);
    }
    for function in [Binary::Add, Binary::Div, Binary::Mod, Binary::Pow, Binary::Less] {
        add(function.into(), vec![small(&[4, 3]), ints(&[3], &[2, 3, 1])]);
    }
    let (low, high) = (Some(Real::new(-0.5)), Some(Real::new(1.0)));
    add(Clip { min: low, max: high }.into(), vec![f(&[3, 4])]);
    add(Clip { min: None, max: high }.into(), vec![small(&[6])]);
    add(Select.into(), vec![truth(&[4, 1]), f(&[4, 3]), f(&[3])]);
    add(Cast::to(DType::I32).into(), vec![f(&[4, 3])]);
    add(Cast::to(DType::F16).into(), vec![small(&[4, 3])]);
    for &kind in ReduceKind::ALL {
        let x = if kind == ReduceKind::LogSum { positive(&[3, 4, 5]) } else { f(&[3, 4, 5]) };
        add(Reduce { kind, axes: vec![0, 2], keep_dims: false }.into(), vec![x.clone()]);
        add(Reduce { kind, axes: vec![1], keep_dims: true }.into(), vec![x]);
    }
    let sum = Reduce { kind: ReduceKind::Sum, axes: vec![0], keep_dims: false };
    add(sum.into(), vec![small(&[4, 3])]);
    let arg = ArgReduce { largest: true, axis: 1, keep_dims: true, select_last: false };
    add(arg.into(), vec![f(&[3, 4, 2])]);
    let arg = ArgReduce { largest: false, axis: 0, keep_dims: false, select_last: true };
    add(arg.into(), vec![small(&[5, 2])]);
    let plain = MatMul::default();
    let both = MatMul { transpose_lhs: true, transpose_rhs: true };
    add(plain.into(), vec![f(&[4, 5]), f(&[5, 3])]);
    add(plain.into(), vec![f(&[2, 1, 4, 5]), f(&[3, 5, 2])]);
    add(plain.into(), vec![f(&[5]), f(&[2, 5, 3])]);
    add(plain.into(), vec![f(&[4, 5]), f(&[5])]);
    add(both.into(), vec![f(&[3, 5, 4]), f(&[3, 2, 5])]);
    add(plain.into(), vec![small(&[4, 3]), small(&[3, 2])]);
    for equation in ["bij,bjk->bik", "ij->ji", "ii->i", "i,i->", "...ij,...jk->...ik", "bhid,bhjd"]
    {
        let inputs = match equation {
            "ij->ji" => vec![f(&[4, 3])],
            "ii->i" => vec![f(&[4, 4])],
            "i,i->" => vec![f(&[5]), f(&[5])],
            "bhid,bhjd" => vec![f(&[2, 2, 3, 4]), f(&[2, 2, 5, 4])],
            "...ij,...jk->...ik" => vec![f(&[2, 3, 4]), f(&[1, 4, 2])],
            _ => vec![f(&[2, 3, 4]), f(&[2, 4, 5])],
        };
        add(Einsum { equation: equation.to_owned() }.into(), inputs);
    }
    let x = || f(&[2, 4, 7, 6]);
    let plain = conv([1, 1], [1, 1], [(1, 1), (1, 1)], 1);
    add(plain.clone().into(), vec![x(), f(&[3, 4, 3, 3])]);
    add(plain.into(), vec![x(), f(&[3, 4, 3, 3]), f(&[3])]);
    let strided = conv([2, 3], [2, 1], [(2, 1), (0, 2)], 2);
    add(strided.into(), vec![x(), f(&[6, 2, 2, 3]), f(&[6])]);
    let depthwise = conv([1, 2], [1, 1], [(1, 1), (1, 1)], 4);
    add(depthwise.into(), vec![x(), f(&[4, 1, 3, 3])]);
    add(Conv { pads: vec![(1, 2)], ..Conv::plain(1) }.into(), vec![f(&[2, 3, 8]), f(&[2, 3, 3])]);
    add(Conv::plain(3).into(), vec![f(&[1, 2, 4, 3, 5]), f(&[2, 2, 2, 2, 3])]);
    add(Conv::plain(1).into(), vec![small(&[1, 2, 5]), small(&[2, 2, 2])]);
    let transposed = ConvTranspose {
        strides: vec![2, 1],
        dilations: vec![1, 2],
        pads: vec![(1, 0), (1, 1)],
        output_padding: vec![1, 0],
        groups: 2,
    };
    add(transposed.clone().into(), vec![x(), f(&[4, 3, 3, 2]), f(&[6])]);
    add(ConvTranspose { groups: 1, ..transposed }.into(), vec![x(), f(&[4, 3, 3, 2])]);
    for ceil in [false, true] {
        for kind in [
            PoolKind::Max { indices: false },
            PoolKind::Max { indices: true },
            PoolKind::Average { count_include_pad: false },
            PoolKind::Average { count_include_pad: true },
            PoolKind::Lp { p: 2 },
            PoolKind::Lp { p: 3 },
        ] {
            add(pool(kind, ceil).into(), vec![x()]);
        }
    }
    add(pool(PoolKind::Max { indices: false }, true).into(), vec![small(&[1, 2, 5, 6])]);
    let epsilon = Real::new(1e-5);
    let channels = || vec![f(&[4]), f(&[4]), f(&[4]), positive(&[4])];
    add(BatchNorm { epsilon }.into(), [vec![x()], channels()].concat());
    let norm = |axis, rms, statistics| LayerNorm { axis, epsilon, rms, statistics };
    add(norm(2, false, false).into(), vec![f(&[2, 3, 4]), f(&[4]), f(&[4])]);
    add(norm(1, false, true).into(), vec![f(&[2, 3, 4]), f(&[3, 4]), None]);
    add(norm(2, true, true).into(), vec![f(&[2, 3, 4]), f(&[4])]);
    add(norm(2, true, false).into(), vec![f(&[2, 3, 4])]);
    add(GroupNorm { groups: 2, epsilon }.into(), vec![x(), f(&[4]), f(&[4])]);
    add(GroupNorm { groups: 4, epsilon }.into(), vec![x(), f(&[4])]);
    let real = Real::new;
    let lrn = |size| Lrn { size, alpha: real(0.1), beta: real(0.75), bias: real(1.0) };
    add(lrn(3).into(), vec![f(&[2, 6, 3])]);
    add(lrn(4).into(), vec![f(&[2, 6, 3, 2])]);
    for axis in 0..3 {
        add(Softmax { axis, log: axis == 1 }.into(), vec![f(&[3, 4, 5])]);
    }
    let plain = Attention { scale: None, causal: false };
    let (q, k, v) = (f(&[2, 4, 3, 8]), f(&[2, 4, 5, 8]), f(&[2, 4, 5, 6]));
    add(plain.into(), vec![q.clone(), k.clone(), v.clone()]);
    add(plain.into(), vec![q.clone(), k.clone(), v.clone(), f(&[2, 1, 1, 5])]);
    let masked = bools(&[1, 1, 3, 5], &(0..15).map(|i| i % 4 != 1).collect::<Vec<_>>());
    add(plain.into(), vec![q.clone(), k, v, masked]);
    let causal = Attention { scale: Some(real(0.5)), causal: true };
    add(causal.into(), vec![q, f(&[2, 2, 5, 8]), f(&[2, 2, 5, 6])]);
    for (from, to) in [
        (&[2, 3, 4][..], &[6, 4][..]),
        (&[6, 4], &[2, 3, 4]),
        (&[6, 4], &[2, 12]),
        (&[1, 6], &[6, 1, 1]),
        (&[5, 6, 4], &[5, 8, 3]),
        (&[2, 3, 4], &[24]),
    ] {
        add(Reshape { to: shape(to) }.into(), vec![f(from)]);
    }
    add(Transpose { perm: vec![2, 0, 1] }.into(), vec![f(&[3, 4, 5])]);
    add(Expand { to: shape(&[2, 3, 4]) }.into(), vec![f(&[3, 1])]);
    add(Tile { repeats: dims(&[3, 1, 2]) }.into(), vec![f(&[2, 3, 2])]);
    add(Concat { axis: 1 }.into(), vec![f(&[2, 3, 2]), f(&[2, 1, 2]), f(&[2, 2, 2])]);
    add(Split { axis: 1, sizes: dims(&[1, 3]) }.into(), vec![f(&[3, 4, 2])]);
    let slice = Slice {
        axes: vec![0, 2, 1],
        starts: dims(&[1, -1, 0]),
        ends: dims(&[i64::MAX, -6, 3]),
        steps: vec![2, -2, 1],
    };
    add(slice.into(), vec![f(&[7, 4, 6])]);
    for mode in [PadMode::Constant, PadMode::Reflect, PadMode::Edge, PadMode::Wrap] {
        let pad = Pad { mode, before: dims(&[0, 2, -1]), after: dims(&[0, 1, 3]) };
        add(pad.clone().into(), vec![f(&[3, 4, 5])]);
        if mode == PadMode::Constant {
            add(pad.into(), vec![f(&[3, 4, 5]), f(&[])]);
        }
    }
    add(Gather { axis: 1 }.into(), vec![f(&[3, 5, 2]), ints(&[2, 2], &[4, 0, -1, 2])]);
    add(Gather { axis: 0 }.into(), vec![f(&[4, 3]), ints(&[], &[2])]);
    let at = ints(&[2, 2, 3], &[0, 1, 2, 3, -1, 0, 1, 2, 3, 0, 0, 1]);
    add(GatherElements { axis: 1 }.into(), vec![f(&[2, 4, 3]), at.clone()]);
    add(GatherNd { batch_dims: 0 }.into(), vec![f(&[3, 4, 2]), ints(&[2, 2], &[0, 1, 2, -1])]);
    add(GatherNd { batch_dims: 1 }.into(), vec![f(&[2, 4, 2]), ints(&[2, 2, 1], &[0, 1, 2, 3])]);
    for reduction in [Scatter::Replace, Scatter::Add, Scatter::Mul, Scatter::Max, Scatter::Min] {
        let inputs = vec![f(&[2, 4, 3]), at.clone(), f(&[2, 2, 3])];
        add(ScatterElements { axis: 1, reduction }.into(), inputs);
        let inputs = vec![f(&[4, 3, 2]), ints(&[3, 1], &[1, 3, 1]), f(&[3, 3, 2])];
        add(ScatterNd { reduction }.into(), inputs);
    }
    for rounding in [Rounding::PreferFloor, Rounding::PreferCeil, Rounding::Floor, Rounding::Ceil] {
        let op = resize(Interpolation::Nearest(rounding), Coordinates::Asymmetric);
        add(op.into(), vec![f(&[2, 3, 4, 6])]);
    }
    for coordinates in [
        Coordinates::HalfPixel,
        Coordinates::HalfPixelSymmetric,
        Coordinates::PytorchHalfPixel,
        Coordinates::AlignCorners,
    ] {
        add(resize(Interpolation::Linear, coordinates).into(), vec![f(&[2, 3, 4, 6])]);
    }
    let cubic = resize(Interpolation::Cubic(real(-0.75)), Coordinates::HalfPixel);
    add(cubic.clone().into(), vec![f(&[2, 3, 4, 6])]);
    let smooth = Resize { exclude_outside: true, antialias: true, ..cubic };
    add(smooth.into(), vec![f(&[2, 3, 4, 6])]);
    let roi = [0.0, 0.0, 0.2, -0.4, 1.0, 1.0, 0.9, 1.0].map(real).to_vec();
    let crop = resize(Interpolation::Linear, Coordinates::CropAndResize);
    let crop = Resize { roi, extrapolation: real(9.0), ..crop };
    add(crop.into(), vec![f(&[2, 3, 4, 6])]);
    for order in [DepthOrder::BlocksFirst, DepthOrder::ChannelsFirst] {
        add(DepthToSpace { block: 2, order }.into(), vec![f(&[2, 12, 2, 3])]);
    }
    add(SpaceToDepth { block: 2 }.into(), vec![f(&[2, 3, 4, 6])]);
    let iota = Iota { dtype: DType::I64, start: Dim::from(5), len: Dim::from(6), step: -2 };
    add(iota.into(), vec![]);
    add(ShapeOf { start: 1, end: 3 }.into(), vec![f(&[2, 3, 4])]);
    let hot = OneHot { axis: 1, depth: Dim::from(4) };
    add(hot.into(), vec![ints(&[2, 3], &[0, -1, 3, 2, 9, 1]), f(&[2])]);
    for (upper, diagonal) in [(true, 0), (false, 1), (true, -1)] {
        add(Trilu { upper, diagonal }.into(), vec![f(&[2, 4, 5])]);
    }
    for (exclusive, reverse) in [(false, false), (true, true)] {
        add(
            Running { kind: RunningKind::Sum, axis: 1, exclusive, reverse }.into(),
            vec![f(&[3, 4, 2])],
        );
    }
    for (exclusive, reverse) in [(false, false), (true, true)] {
        add(
            Running { kind: RunningKind::Product, axis: 1, exclusive, reverse }.into(),
            vec![f(&[3, 4, 2])],
        );
        add(
            Running { kind: RunningKind::Product, axis: 0, exclusive, reverse }.into(),
            vec![small(&[4, 3])],
        );
    }
    for (from, to) in
        [(DType::F32, DType::I32), (DType::I8, DType::F8E4M3FN), (DType::I4, DType::U4)]
    {
        add(BitCast { to }.into(), vec![Some(ramp(from, &[4, 3]))]);
    }
    add(BitCast { to: DType::Bool }.into(), vec![Some(ramp(DType::U8, &[5]))]);
    add(Det.into(), vec![f(&[2, 3, 4, 4])]);
    add(Det.into(), vec![f(&[3, 3])]);
    let transform = |length: i64, inverse, one_sided| Dft {
        axis: 1,
        length: Dim::from(length),
        inverse,
        one_sided,
    };
    for (length, inverse, one_sided, parts) in [
        (8, false, false, 2),
        (6, true, false, 2),
        (12, false, true, 1),
        (7, false, false, 1),
        (12, true, true, 2),
        (9, true, true, 2),
        (1, true, true, 2),
    ] {
        add(transform(length, inverse, one_sided).into(), vec![f(&[3, 7, 2, parts])]);
    }
    let recurrent = |update| LinearAttention { heads: 4, kv_heads: 2, update, scale: real(0.5) };
    let qkv = || vec![f(&[2, 3, 12]), f(&[2, 3, 6]), f(&[2, 3, 8])];
    let (state, rate) = (f(&[2, 2, 3, 4]), f(&[2, 3, 2]));
    add(recurrent(Update::Add).into(), qkv());
    add(recurrent(Update::Add).into(), [qkv(), vec![state.clone(), f(&[2, 3, 6])]].concat());
    add(recurrent(Update::Correct).into(), [qkv(), vec![None, None, f(&[2, 3, 1])]].concat());
    let gated = vec![state, f(&[2, 3, 2]), rate];
    add(recurrent(Update::Correct).into(), [qkv(), gated].concat());
    let typed = |dtype, dims: &[i64]| Some(ramp(dtype, dims));
    let quantize =
        |to, axis, block| Quantize { to, axis, block, precision: DType::F64, saturate: true };
    add(quantize(DType::I8, 0, 0).into(), vec![f(&[4, 3]), positive(&[])]);
    let zeros = typed(DType::U4, &[3]);
    add(quantize(DType::U4, 1, 0).into(), vec![f(&[4, 3, 2]), positive(&[3]), zeros]);
    let blocks = quantize(DType::F8E5M2, 1, 2);
    add(blocks.into(), vec![f(&[3, 6, 2]), positive(&[3, 3, 2])]);
    add(quantize(DType::I16, 0, 3).into(), vec![f(&[4, 3]), positive(&[2, 3])]);
    let dequantize = |axis, block| Dequantize { to: DType::F64, axis, block };
    add(dequantize(0, 0).into(), vec![typed(DType::U8, &[4, 3]), positive(&[])]);
    let (x, zeros) = (typed(DType::I2, &[4, 3, 2]), typed(DType::I2, &[3]));
    add(dequantize(1, 0).into(), vec![x, positive(&[3]), zeros]);
    add(dequantize(1, 2).into(), vec![typed(DType::F4E2M1, &[3, 6, 2]), positive(&[3, 3, 2])]);
    let (x, zeros) = (typed(DType::I8, &[4, 3]), typed(DType::I8, &[2, 3]));
    add(dequantize(0, 3).into(), vec![x, positive(&[2, 3]), zeros]);
    add(Concat { axis: 1 }.into(), vec![typed(DType::I4, &[3, 1]), typed(DType::I4, &[3, 2])]);
    add(Transpose { perm: vec![1, 0] }.into(), vec![typed(DType::F4E2M1, &[3, 5])]);
    let pad = Pad { mode: PadMode::Constant, before: dims(&[0, 2]), after: dims(&[1, 0]) };
    add(pad.into(), vec![typed(DType::U2, &[3, 3])]);
    add(Select.into(), vec![truth(&[3, 1]), typed(DType::I4, &[3, 3]), typed(DType::I4, &[3])]);
    add(Cast::to(DType::F8E4M3FNUZ).into(), vec![f(&[4, 3])]);
    let wrapping = Cast { saturate: false, ..Cast::to(DType::I4) };
    add(wrapping.into(), vec![small(&[4, 3])]);
    let near = Cast { powers: bricolage_tensor::Powers::Nearest, ..Cast::to(DType::F8E8M0) };
    add(near.into(), vec![positive(&[4, 3])]);
    for largest in [true, false] {
        add(TopK { axis: 1, k: Dim::from(2), largest }.into(), vec![f(&[3, 5, 2])]);
    }
    let ty = bricolage_tensor::TensorType::fixed(DType::F32, &[2, 3]);
    let foreign = Opaque {
        domain: "com.acme".to_owned(),
        name: "Fancy".to_owned(),
        opset: 1,
        attributes: vec![1, 2, 255],
        outputs: vec![ty.into()],
    };
    add(foreign.into(), vec![f(&[2, 3]), None]);
    more::add_all(&mut add);
    all
}

/// Fails unless every kind has a sample.
pub(crate) fn assert_complete(samples: &[Sample]) {
    let has = |kind: OpKind| samples.iter().any(|s| s.op.kind() == kind);
    let missing: Vec<&str> = OpKind::ALL.iter().filter(|&&k| !has(k)).map(|k| k.name()).collect();
    assert!(missing.is_empty(), "ops without a sample: {missing:?}");
}
