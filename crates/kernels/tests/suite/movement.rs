//! Kernels that move elements, exactly; pooling and resizing.

use crate::harness::*;
use bricolage_kernels::{
    ConvertSpec, Coordinates, CopySpec, GatherSpec, Isa, PadMode, PoolOp, PoolSpec, ResizeMode,
    ResizeSpec, Rounding, Spec,
};
use bricolage_runtime::{RunError, Serial};
use bricolage_tensor::{DType, Format, Layout, Tensor};
use proptest::prelude::*;

fn dtype() -> impl Strategy<Value = DType> {
    prop::sample::select(vec![DType::U8, DType::F16, DType::F32, DType::I64])
}

fn numbered(dtype: DType, dims: &[i64]) -> Tensor {
    let values: Vec<i64> = (0..count(dims) as i64).map(|i| i % 251).collect();
    Tensor::from_i64(dtype, dims, &values)
}

/// `out[index] = input[source(index)]`, or the fill.
fn expect(
    input: &Tensor,
    out: &[i64],
    fill: i64,
    source: impl Fn(&[i64]) -> Option<Vec<i64>>,
) -> Vec<i64> {
    let values = input.to_i64();
    let at = |index: &[i64]| index.iter().zip(input.dims()).fold(0, |at, (i, n)| at * n + i);
    indices(out).map(|o| source(&o).map_or(fill, |i| values[at(&i) as usize])).collect()
}

fn check(spec: CopySpec, input: &Tensor, wanted: &[i64]) {
    let outputs = spec.outputs.clone();
    let inputs = [(input.clone(), Layout::Plain)];
    run_all(&Spec::Copy(spec), &inputs, &[], &outputs, |what, found| {
        assert_eq!(found[0].to_i64(), wanted, "{what}");
    });
}

fn image(plain: bool) -> BoxedStrategy<Format> {
    let some = prop_oneof![(0..3u8).prop_map(last), (0..3u8).prop_map(blocked)];
    if plain { prop_oneof![2 => some, 1 => Just(F32)].boxed() } else { some.boxed() }
}

proptest! {
    #![proptest_config(config(100))]

    #[test]
    fn transposes(dims in prop::collection::vec(1..20i64, 1..5), order in any::<u32>(), dtype in dtype()) {
        let mut axes: Vec<usize> = (0..dims.len()).collect();
        let mut rng = Rng(u64::from(order));
        for i in (1..axes.len()).rev() {
            axes.swap(i, rng.below(i + 1));
        }
        let x = numbered(dtype, &dims);
        let spec = CopySpec::transpose(&dims, &Format::plain(dtype), &axes);
        let wanted = expect(&x, &spec.outputs[0].0, 0, |o| {
            let mut i = vec![0; o.len()];
            for (k, &a) in axes.iter().enumerate() { i[a] = o[k]; }
            Some(i)
        });
        check(spec, &x, &wanted);
    }

    #[test]
    fn slices(dims in prop::collection::vec(1..12i64, 1..4), seed in any::<u64>(), dtype in dtype()) {
        let mut rng = Rng(seed);
        let (mut starts, mut steps, mut out) = (vec![], vec![], vec![]);
        for &d in &dims {
            let start = rng.below(d as usize) as i64;
            let step = [1, 2, -1, -3][rng.below(4)];
            let room = if step > 0 { (d - 1 - start) / step } else { start / -step };
            starts.push(start);
            steps.push(step);
            out.push(rng.below(room as usize + 2) as i64);
        }
        let x = numbered(dtype, &dims);
        let spec = CopySpec::slice(&dims, &Format::plain(dtype), &starts, &steps, &out);
        let wanted = expect(&x, &out, 0, |o| {
            Some(o.iter().zip(starts.iter().zip(&steps)).map(|(o, (a, s))| a + o * s).collect())
        });
        check(spec, &x, &wanted);
    }

    #[test]
    fn expands_and_tiles(dims in prop::collection::vec(1..6i64, 1..4), times in prop::collection::vec(1..4i64, 3), dtype in dtype()) {
        let x = numbered(dtype, &dims);
        let spec = CopySpec::tile(&dims, &Format::plain(dtype), &times[..dims.len()]);
        let wanted = expect(&x, &spec.outputs[0].0, 0, |o| {
            Some(o.iter().zip(&dims).map(|(o, d)| o % d).collect())
        });
        check(spec, &x, &wanted);
        let mut out: Vec<i64> = dims.iter().map(|&d| if d == 1 { 4 } else { d }).collect();
        out.insert(0, times[0]);
        let spec = CopySpec::expand(&dims, &Format::plain(dtype), &out);
        let wanted = expect(&x, &out, 0, |o| {
            Some(o[1..].iter().zip(&dims).map(|(&o, &d)| if d == 1 { 0 } else { o }).collect())
        });
        check(spec, &x, &wanted);
    }

    #[test]
    fn pads(dims in prop::collection::vec(1..8i64, 1..4), pads in prop::collection::vec(-2..6i64, 6), mode in 0..4u8, dtype in dtype()) {
        let rank = dims.len();
        let (before, after) = (&pads[..rank], &pads[3..3 + rank]);
        let element = Tensor::from_i64(dtype, &[1], &[7]).bytes().to_vec();
        let mode = match mode {
            0 => PadMode::Constant(element),
            1 => PadMode::Edge,
            2 => PadMode::Reflect,
            _ => PadMode::Wrap,
        };
        let x = numbered(dtype, &dims);
        let Some(spec) = CopySpec::pad(&dims, &Format::plain(dtype), before, after, &mode) else {
            assert!((0..rank).any(|d| dims[d] + before[d] + after[d] < 0));
            return Ok(());
        };
        let wanted = expect(&x, &spec.outputs[0].0, 7, |o| {
            o.iter().zip(before.iter().zip(&dims)).map(|(o, (b, &n))| {
                let mut at = o - b;
                if (0..n).contains(&at) { return Some(at); }
                match mode {
                    PadMode::Constant(_) => None,
                    PadMode::Edge => Some(if at < 0 { 0 } else { n - 1 }),
                    PadMode::Wrap => Some(at.rem_euclid(n)),
                    PadMode::Reflect => {
                        // Bounces off the edge elements until it lands inside.
                        while !(0..n).contains(&at) {
                            if n == 1 { at = 0; }
                            else if at < 0 { at = -at; }
                            else { at = 2 * (n - 1) - at; }
                        }
                        Some(at)
                    }
                }
            }).collect()
        });
        check(spec, &x, &wanted);
    }

    #[test]
    fn concatenates_and_splits(
        (n, h, w) in (1..3i64, 1..6i64, 1..6i64), parts in prop::collection::vec(1..10i64, 1..4),
        axis in 0..4usize, format in image(true),
    ) {
        let mut rng = Rng(9);
        let blocked_channels = axis == 1 && matches!(format.layout, Layout::Blocked { .. });
        let halo = matches!(format.layout, Layout::ChannelsLast { halo } | Layout::Blocked { halo, .. } if halo > 0);
        let dims: Vec<Vec<i64>> = parts.iter().enumerate().map(|(i, &p)| {
            let mut d = vec![n, 12, h, w];
            d[axis] = if blocked_channels && i + 1 < parts.len() { 8 * (p % 3 + 1) } else { p };
            d
        }).collect();
        let tensors: Vec<Tensor> = dims.iter().map(|d| rng.tensor(d)).collect();
        let Some(spec) = CopySpec::concat(&dims, &format, axis) else {
            assert!(axis >= 2 && halo);
            return Ok(());
        };
        let whole = spec.outputs[0].0.clone();
        let mut values = vec![0f32; count(&whole)];
        let mut start = 0;
        for t in &tensors {
            let elements = t.elements::<f32>();
            for (i, mut index) in indices(t.dims()).enumerate() {
                index[axis] += start;
                let at = index.iter().zip(&whole).fold(0, |at, (i, n)| at * n + i);
                values[at as usize] = elements[i];
            }
            start += t.dims()[axis];
        }
        let joined = Tensor::of(&whole, &values);
        let inputs: Vec<_> = tensors.iter().map(|t| (t.clone(), format.layout.clone())).collect();
        run_all(&Spec::Copy(spec.clone()), &inputs, &[], &spec.outputs, |what, found| {
            assert_eq!(found[0], joined, "{what}");
        });
        let spec = CopySpec::split(&dims, &format, axis).unwrap();
        let inputs = [(joined, format.layout.clone())];
        run_all(&Spec::Copy(spec.clone()), &inputs, &[], &spec.outputs, |what, found| {
            assert_eq!(found, &tensors, "{what}");
        });
    }

    #[test]
    fn converts_layouts(
        (n, c, h, w) in (1..3i64, 1..20i64, 1..12i64, 1..20i64), from in image(true), to in image(true), flat in any::<bool>(),
    ) {
        let dims = if flat { vec![n, c, w] } else { vec![n, c, h, w] };
        let x = Rng(3).tensor(&dims);
        let spec = ConvertSpec { dims: dims.clone(), from: from.clone(), to: to.clone() };
        run_all(&Spec::Convert(spec), &[(x.clone(), from.layout)], &[], &[(dims, to)], |what, found| {
            assert_eq!(found[0], x, "{what}");
        });
    }

    #[test]
    fn gathers(data in prop::collection::vec(1..7i64, 1..4), axis in 0..3usize, shape in prop::collection::vec(0..5i64, 0..3), dtype in dtype(), wide in any::<bool>(), constant in any::<bool>(), seed in any::<u64>()) {
        let axis = axis % data.len();
        let mut rng = Rng(seed);
        let n = data[axis];
        let list: Vec<i64> = (0..count(&shape)).map(|_| rng.below(2 * n as usize) as i64 - n).collect();
        let index_dtype = if wide { DType::I64 } else { DType::I32 };
        let spec = GatherSpec { data: data.clone(), dtype, constant, axis, indices: shape.clone(), index_dtype };
        let x = numbered(dtype, &data);
        let out = spec.output_dims();
        let wanted = expect(&x, &out, 0, |o| {
            let at = o[axis..axis + shape.len()].iter().zip(&shape).fold(0, |at, (i, n)| at * n + i);
            let mut i = o[..axis].to_vec();
            i.push(list[at as usize].rem_euclid(n));
            i.extend(&o[axis + shape.len()..]);
            Some(i)
        });
        let indices = (Tensor::from_i64(index_dtype, &shape, &list), Layout::Plain);
        let (inputs, raw) = if constant { (vec![indices], vec![x.clone()]) } else { (vec![(x.clone(), Layout::Plain), indices], vec![]) };
        run_all(&Spec::Gather(spec), &inputs, &raw, &[(out, Format::plain(dtype))], |what, found| {
            assert_eq!(found[0].to_i64(), wanted, "{what}");
        });
    }

    #[test]
    fn pooling_is_right(
        (n, c, h, w) in (1..3i64, 1..20i64, 1..10i64, 1..10i64),
        window in [1..4i64, 1..4i64, 1..4i64, 1..4i64, 1..3i64, 1..3i64], pads in [0..2i64, 0..2i64, 0..2i64, 0..2i64],
        op in prop::sample::select(vec![PoolOp::Max, PoolOp::Average { count_pads: false }, PoolOp::Average { count_pads: true }]),
        ceil in any::<bool>(), plain in any::<bool>(), (from, to) in (image(false), image(false)), seed in any::<u64>(),
    ) {
        let [kh, kw, sh, sw, dh, dw] = window;
        let limit = |p: i64, k: i64| p.min(k - 1);
        let pads = vec![limit(pads[0], kh), limit(pads[1], kw), limit(pads[2], kh), limit(pads[3], kw)];
        let (from, to) = if plain { (F32, F32) } else { (from, to) };
        let spec = PoolSpec {
            input: vec![n, c, h, w], input_format: from.clone(), output_format: to.clone(), op,
            kernel: vec![kh, kw], strides: vec![sh, sw], dilations: vec![dh, dw], pads: pads.clone(), ceil,
        };
        let Ok(out) = spec.output_dims() else { return Ok(()) };
        let x = Rng(seed).tensor(&spec.input);
        let values = x.to_f64();
        let mut wanted = Vec::new();
        for o in indices(&out) {
            let (mut best, mut sum, mut inside, mut counted) = (f64::NEG_INFINITY, 0.0, 0, 0);
            for a in 0..kh { for b in 0..kw {
                let (y, x) = (o[2] * sh + a * dh - pads[0], o[3] * sw + b * dw - pads[1]);
                if y < h + pads[2] && x < w + pads[3] { counted += 1; }
                if (0..h).contains(&y) && (0..w).contains(&x) {
                    let v = values[(((o[0] * c + o[1]) * h + y) * w + x) as usize];
                    best = best.max(v);
                    sum += v;
                    inside += 1;
                }
            } }
            wanted.push(match op {
                PoolOp::Max => best,
                PoolOp::Average { count_pads: true } => sum / f64::from(counted),
                _ => sum / f64::from(inside),
            });
        }
        let tolerance: Vec<f64> = wanted.iter().map(|_| if op == PoolOp::Max { 0.0 } else { 12.0 * U * 4.5 }).collect();
        run_all(&Spec::Pool(spec), &[(x, from.layout)], &[], &[(out, to)], |what, found| {
            assert_close(what, &found[0], &wanted, &tolerance);
        });
    }

    #[test]
    fn resizing_is_right(
        (n, c, h, w) in (1..3i64, 1..12i64, 1..7i64, 1..7i64), (oh, ow) in (1..15i64, 1..15i64),
        mode in prop::sample::select(vec![
            ResizeMode::Nearest(Rounding::Floor), ResizeMode::Nearest(Rounding::Ceil), ResizeMode::Nearest(Rounding::HalfDown), ResizeMode::Nearest(Rounding::HalfUp),
            ResizeMode::Linear, ResizeMode::Cubic { coefficient: -0.75, exclude_outside: false }, ResizeMode::Cubic { coefficient: -0.5, exclude_outside: true },
        ]),
        coordinates in prop::sample::select(vec![Coordinates::HalfPixel, Coordinates::HalfPixelSymmetric, Coordinates::PytorchHalfPixel, Coordinates::AlignCorners, Coordinates::Asymmetric]),
        plain in any::<bool>(), (from, to) in (image(false), image(false)), seed in any::<u64>(),
    ) {
        let (from, to) = if plain { (F32, F32) } else { (from, to) };
        let scales = vec![oh as f64 / h as f64, ow as f64 / w as f64];
        let spec = ResizeSpec {
            input: vec![n, c, h, w], input_format: from.clone(), output_format: to.clone(), output: vec![oh, ow],
            scales: scales.clone(), mode, coordinates,
        };
        let x = Rng(seed).tensor(&spec.input);
        let values = x.to_f64();
        // Along one dim: the weight of every input element.
        let weights = |input: i64, output: i64, scale: f64, o: i64| -> Vec<f64> {
            let (i, m, s, o) = (input as f64, output as f64, scale, o as f64);
            let at = match coordinates {
                Coordinates::HalfPixel => (o + 0.5) / s - 0.5,
                Coordinates::HalfPixelSymmetric => i / 2.0 * (1.0 - m / (s * i)) + (o + 0.5) / s - 0.5,
                Coordinates::PytorchHalfPixel => if output > 1 { (o + 0.5) / s - 0.5 } else { 0.0 },
                Coordinates::AlignCorners => if output > 1 { o * (i - 1.0) / (m - 1.0) } else { 0.0 },
                Coordinates::Asymmetric => o / s,
            };
            let mut list = vec![0.0; input as usize];
            let mut add = |p: f64, weight: f64| list[(p as i64).clamp(0, input - 1) as usize] += weight;
            match mode {
                ResizeMode::Nearest(r) => add(match r {
                    Rounding::Floor => at.floor(),
                    Rounding::Ceil => at.ceil(),
                    Rounding::HalfDown => (at - 0.5).ceil(),
                    Rounding::HalfUp => (at + 0.5).floor(),
                }, 1.0),
                ResizeMode::Linear => { add(at.floor(), 1.0 - (at - at.floor())); add(at.floor() + 1.0, at - at.floor()); }
                ResizeMode::Cubic { coefficient, exclude_outside } => {
                    let a = f64::from(coefficient);
                    let keys = |t: f64| { let t = t.abs(); if t <= 1.0 { (a + 2.0) * t.powi(3) - (a + 3.0) * t.powi(2) + 1.0 } else if t < 2.0 { a * t.powi(3) - 5.0 * a * t.powi(2) + 8.0 * a * t - 4.0 * a } else { 0.0 } };
                    let taps: Vec<f64> = (-1..3).map(|k| at.floor() + f64::from(k)).filter(|&p| !exclude_outside || (p >= 0.0 && p < i)).collect();
                    let total: f64 = if exclude_outside { taps.iter().map(|p| keys(at - p)).sum() } else { 1.0 };
                    for p in taps { add(p, keys(at - p) / total); }
                }
            }
            list
        };
        let out = vec![n, c, oh, ow];
        let mut wanted = Vec::new();
        let mut tolerance = Vec::new();
        for o in indices(&out) {
            let (wy, wx) = (weights(h, oh, scales[0], o[2]), weights(w, ow, scales[1], o[3]));
            let (mut sum, mut size) = (0.0, 0.0);
            for (y, a) in wy.iter().enumerate() { for (x, b) in wx.iter().enumerate() {
                let v = a * b * values[((o[0] * c + o[1]) * h + y as i64) as usize * w as usize + x];
                sum += v;
                size += a.abs() * b.abs() * 0.5;
            } }
            wanted.push(sum);
            tolerance.push(24.0 * U * (size + 1.0));
        }
        run_all(&Spec::Resize(spec), &[(x, from.layout)], &[], &[(out, to)], |what, found| {
            assert_close(what, &found[0], &wanted, &tolerance);
        });
    }
}

#[test]
fn an_index_outside_is_an_error() {
    let spec = GatherSpec {
        data: vec![3],
        dtype: DType::F32,
        constant: false,
        axis: 0,
        indices: vec![1],
        index_dtype: DType::I64,
    };
    let kernel = Spec::Gather(spec).build(Isa::detect()).unwrap();
    let inputs = [
        Placed::of(&numbered(DType::F32, &[3]), &Layout::Plain),
        Placed::of(&Tensor::of(&[1], &[3i64]), &Layout::Plain),
    ];
    let outputs = [Placed::garbage(&[1], &F32)];
    let error = execute(&*kernel, &inputs, &[], &outputs, &Serial).unwrap_err();
    assert!(matches!(error, RunError::Domain { .. }), "{error}");
}

#[test]
fn a_single_pixel_may_be_plain() {
    let spec = PoolSpec {
        input: vec![2, 13, 5, 5],
        input_format: blocked(0),
        output_format: F32,
        op: PoolOp::Average { count_pads: false },
        kernel: vec![5, 5],
        strides: vec![1, 1],
        dilations: vec![1, 1],
        pads: vec![0; 4],
        ceil: false,
    };
    let x = Rng(1).tensor(&spec.input);
    let wanted: Vec<f64> = x.to_f64().chunks(25).map(|c| c.iter().sum::<f64>() / 25.0).collect();
    let tolerance = vec![28.0 * U * 0.5; wanted.len()];
    let input = [(x, spec.input_format.layout.clone())];
    run_all(&Spec::Pool(spec), &input, &[], &[(vec![2, 13, 1, 1], F32)], |what, found| {
        assert_close(what, &found[0], &wanted, &tolerance);
    });
}
