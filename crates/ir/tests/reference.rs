//! Evaluation against definitions written out as plain loops, and against published values.
#![allow(clippy::unwrap_used)] // a panic is how a test fails, also in the functions that tests share

use bricolage_ir::{
    Error, Graph, Inputs, Op, Real, Tolerance, ValueId, evaluate, evaluate_noisy, ops::*, origin,
    tolerances,
};
use bricolage_tensor::{DType, Datum, Dim, Shape, Tensor, TensorType};

fn run(op: impl Into<Op>, inputs: &[&Tensor]) -> Vec<Tensor> {
    let data: Vec<Datum> = inputs.iter().map(|&t| t.clone().into()).collect();
    let refs: Vec<Option<&Datum>> = data.iter().map(Some).collect();
    let results = op.into().eval(&Inputs(&refs)).unwrap();
    results.iter().map(|d| d.as_tensor().unwrap().clone()).collect()
}

fn wave(dims: &[i64], seed: f64) -> Tensor {
    Tensor::generate(DType::F32, dims, |i| ((i as f64 * 1.37 + seed).sin() * 53.0).fract())
}

/// One rounding to `f32` of a sum that differs only in its order in `f64`.
fn assert_close(found: &Tensor, expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (i, (a, b)) in found.to_f64().iter().zip(expected).enumerate() {
        let unit = if found.dtype() == DType::F32 { 2f64.powi(-24) } else { 2f64.powi(-40) };
        assert!((a - b).abs() <= unit * (b.abs() + 1e-6), "element {i}: {a} is not {b}");
    }
}

/// Every block edge of the blocked product is crossed.
#[test]
fn matrix_products_equal_plain_loops() {
    for (m, n, k) in
        [(1, 1, 1), (3, 5, 7), (6, 8, 256), (133, 241, 257), (130, 3, 600), (2, 300, 5)]
    {
        let (a, b) = (wave(&[m, k], 0.1), wave(&[k, n], 0.2));
        let (x, y) = (a.to_f64(), b.to_f64());
        let (mu, nu, ku) = (m as usize, n as usize, k as usize);
        let expected: Vec<f64> = (0..mu * nu)
            .map(|f| (0..ku).map(|l| x[f / nu * ku + l] * y[l * nu + f % nu]).sum())
            .collect();
        assert_close(&run(MatMul::default(), &[&a, &b])[0], &expected);
        let at = run(Transpose { perm: vec![1, 0] }, &[&a]).remove(0);
        let bt = run(Transpose { perm: vec![1, 0] }, &[&b]).remove(0);
        let both = MatMul { transpose_lhs: true, transpose_rhs: true };
        assert_close(&run(both, &[&at, &bt])[0], &expected);
    }
}

#[test]
fn integer_products_wrap_exactly() {
    let a = Tensor::of(&[1, 2], &[i64::MAX, 3]);
    let b = Tensor::of(&[2, 1], &[2i64, 1]);
    assert_eq!(
        run(MatMul::default(), &[&a, &b])[0].to_i64(),
        [i64::MAX.wrapping_mul(2).wrapping_add(3)]
    );
    let a = Tensor::of(&[1, 2], &[200u8, 100]);
    let b = Tensor::of(&[2, 1], &[2u8, 1]);
    assert_eq!(run(MatMul::default(), &[&a, &b])[0].to_i64(), [500 % 256]);
}

struct Case {
    x: [i64; 4],
    w: [i64; 4],
    strides: [i64; 2],
    dilations: [i64; 2],
    pads: [(i64, i64); 2],
    groups: i64,
}

const CASES: &[Case] = &[
    Case {
        x: [2, 3, 9, 8],
        w: [5, 3, 3, 3],
        strides: [1, 1],
        dilations: [1, 1],
        pads: [(1, 1), (1, 1)],
        groups: 1,
    },
    Case {
        x: [1, 4, 10, 7],
        w: [6, 2, 2, 3],
        strides: [2, 3],
        dilations: [2, 1],
        pads: [(0, 2), (1, 0)],
        groups: 2,
    },
    Case {
        x: [2, 6, 5, 5],
        w: [6, 1, 3, 3],
        strides: [2, 1],
        dilations: [1, 2],
        pads: [(1, 1), (2, 2)],
        groups: 6,
    },
    Case {
        x: [1, 64, 14, 14],
        w: [140, 64, 1, 1],
        strides: [1, 1],
        dilations: [1, 1],
        pads: [(0, 0), (0, 0)],
        groups: 1,
    },
    Case {
        x: [1, 3, 20, 20],
        w: [8, 3, 7, 7],
        strides: [2, 2],
        dilations: [1, 1],
        pads: [(3, 3), (3, 3)],
        groups: 1,
    },
];

#[test]
fn convolutions_equal_plain_loops() {
    for case in CASES {
        let (x, w) = (wave(&case.x, 0.3), wave(&case.w, 0.4));
        let bias = wave(&[case.w[0]], 0.5);
        let op = Conv {
            strides: case.strides.to_vec(),
            dilations: case.dilations.to_vec(),
            pads: case.pads.to_vec(),
            groups: case.groups,
        };
        let found = run(op, &[&x, &w, &bias]).remove(0);
        let (xs, ws, bs) = (x.to_f64(), w.to_f64(), bias.to_f64());
        let [_, c, h, wd] = case.x;
        let [m, cg, kh, kw] = case.w;
        let out = found.dims().to_vec();
        let mut expected = Vec::new();
        for n in 0..out[0] {
            for o in 0..m {
                for y in 0..out[2] {
                    for z in 0..out[3] {
                        let mut sum = bs[o as usize];
                        for i in 0..cg {
                            let channel = o / (m / case.groups) * cg + i;
                            for p in 0..kh {
                                for q in 0..kw {
                                    let r = y * case.strides[0] + p * case.dilations[0]
                                        - case.pads[0].0;
                                    let s = z * case.strides[1] + q * case.dilations[1]
                                        - case.pads[1].0;
                                    if r >= 0 && r < h && s >= 0 && s < wd {
                                        sum += xs[(((n * c + channel) * h + r) * wd + s) as usize]
                                            * ws[(((o * cg + i) * kh + p) * kw + q) as usize];
                                    }
                                }
                            }
                        }
                        expected.push(sum);
                    }
                }
            }
        }
        assert_close(&found, &expected);
    }
}

/// The transpose is written as the scatter that defines it.
#[test]
fn transposed_convolutions_equal_a_scatter() {
    for case in CASES {
        let x = wave(&case.x, 0.3);
        // Filters lie as [input channels, output channels per group, ..].
        let [_, c, h, wd] = case.x;
        let (m, [kh, kw]) = (2i64, [case.w[2], case.w[3]]);
        let w = wave(&[c, m, kh, kw], 0.4);
        let op = ConvTranspose {
            strides: case.strides.to_vec(),
            dilations: case.dilations.to_vec(),
            pads: case.pads.to_vec(),
            output_padding: vec![0, case.strides[1] - 1],
            groups: case.groups,
        };
        let found = run(op, &[&x, &w]).remove(0);
        let out = found.dims().to_vec();
        assert_eq!(out[1], m * case.groups);
        let (xs, ws) = (x.to_f64(), w.to_f64());
        let mut expected = vec![0.0; found.len()];
        for n in 0..case.x[0] {
            for i in 0..c {
                for o in 0..m {
                    let channel = i / (c / case.groups) * m + o;
                    for (y, z) in (0..h).flat_map(|y| (0..wd).map(move |z| (y, z))) {
                        for (p, q) in (0..kh).flat_map(|p| (0..kw).map(move |q| (p, q))) {
                            let r = y * case.strides[0] + p * case.dilations[0] - case.pads[0].0;
                            let s = z * case.strides[1] + q * case.dilations[1] - case.pads[1].0;
                            if r >= 0 && r < out[2] && s >= 0 && s < out[3] {
                                expected[(((n * out[1] + channel) * out[2] + r) * out[3] + s)
                                    as usize] += xs[(((n * c + i) * h + y) * wd + z) as usize]
                                    * ws[(((i * m + o) * kh + p) * kw + q) as usize];
                            }
                        }
                    }
                }
            }
        }
        assert_close(&found, &expected);
    }
}

fn resize(
    sizes: &[i64],
    scales: Option<&[f64]>,
    mode: Interpolation,
    coordinates: Coordinates,
) -> Resize {
    Resize {
        sizes: Shape::fixed(sizes),
        scales: scales.map(|s| s.iter().map(|&s| Real::new(s)).collect()),
        mode,
        coordinates,
        exclude_outside: false,
        antialias: false,
        roi: Vec::new(),
        extrapolation: Real::new(0.0),
    }
}

/// Values from the definition of the ONNX operator.
#[test]
fn resizing_gives_published_values() {
    let square = Tensor::of(&[1, 1, 2, 2], &[1f32, 2.0, 3.0, 4.0]);
    let up = Some(&[1.0, 1.0, 2.0, 2.0][..]);
    let linear = resize(&[1, 1, 4, 4], up, Interpolation::Linear, Coordinates::HalfPixel);
    assert_close(
        &run(linear, &[&square])[0],
        &[1.0, 1.25, 1.75, 2.0, 1.5, 1.75, 2.25, 2.5, 2.5, 2.75, 3.25, 3.5, 3.0, 3.25, 3.75, 4.0],
    );
    let corners = resize(&[1, 1, 4, 4], up, Interpolation::Linear, Coordinates::AlignCorners);
    let third = 1.0 / 3.0;
    let row = |start: f64| (0..4).map(move |i| start + f64::from(i) * third);
    let expected: Vec<f64> = (0..4).flat_map(|r| row(1.0 + 2.0 * f64::from(r) * third)).collect();
    assert_close(&run(corners, &[&square])[0], &expected);
    let up = Some(&[1.0, 1.0, 2.0, 3.0][..]);
    let nearest = Interpolation::Nearest(Rounding::PreferFloor);
    let nearest = resize(&[1, 1, 4, 6], up, nearest, Coordinates::HalfPixel);
    let (low, high) = ([1.0, 1.0, 1.0, 2.0, 2.0, 2.0], [3.0, 3.0, 3.0, 4.0, 4.0, 4.0]);
    assert_close(&run(nearest, &[&square])[0], &[low, low, high, high].concat());
    let wide = Tensor::generate(DType::F32, &[1, 1, 4, 4], |i| i as f64 + 1.0);
    let up = Some(&[1.0, 1.0, 2.0, 2.0][..]);
    let cubic = Interpolation::Cubic(Real::new(-0.75));
    let cubic = resize(&[1, 1, 8, 8], up, cubic, Coordinates::HalfPixel);
    let found = run(cubic, &[&wide]).remove(0).to_f64();
    let first = [
        0.472_656_25,
        0.769_531_25,
        1.246_093_75,
        1.875,
        2.281_25,
        2.910_156_25,
        3.386_718_75,
        3.683_593_75,
    ];
    for (a, b) in found.iter().zip(first) {
        assert!((a - b).abs() < 1e-6, "{a} is not {b}");
    }
    let down = Some(&[1.0, 1.0, 0.6, 0.6][..]);
    let eight = Tensor::generate(DType::F32, &[1, 1, 2, 4], |i| i as f64 + 1.0);
    let linear = resize(&[1, 1, 1, 2], down, Interpolation::Linear, Coordinates::HalfPixel);
    let found = run(linear, &[&eight]).remove(0).to_f64();
    for (a, b) in found.iter().zip([2.666_666_5, 4.333_333_3]) {
        assert!((a - b).abs() < 1e-6, "{a} is not {b}");
    }
}

#[test]
fn movement_gives_published_values() {
    let t = |dims: &[i64], v: &[f32]| Tensor::of(dims, v);
    let one = |op: Op, inputs: &[&Tensor]| run(op, inputs).remove(0).to_f64();
    let data = t(&[2, 2], &[1.0, 2.0, 3.0, 4.0]);
    let at = Tensor::of(&[2, 2], &[0i64, 0, 1, 0]);
    assert_eq!(one(GatherElements { axis: 1 }.into(), &[&data, &at]), [1.0, 1.0, 4.0, 3.0]);
    let cube = t(&[2, 2, 2], &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    let at = Tensor::of(&[2, 1], &[1i64, 0]);
    assert_eq!(one(GatherNd { batch_dims: 1 }.into(), &[&cube, &at]), [2.0, 3.0, 4.0, 5.0]);
    let line = t(&[1, 5], &[1.0, 2.0, 3.0, 4.0, 5.0]);
    let at = Tensor::of(&[1, 2], &[1i64, 3]);
    let updates = t(&[1, 2], &[1.5, 2.5]);
    let scatter = ScatterElements { axis: 1, reduction: Scatter::Replace };
    assert_eq!(one(scatter.into(), &[&line, &at, &updates]), [1.0, 1.5, 3.0, 2.5, 5.0]);
    let eight = t(&[8], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
    let at = Tensor::of(&[4, 1], &[4i64, 3, 1, 7]);
    let updates = t(&[4], &[9.0, 10.0, 11.0, 12.0]);
    let scatter = ScatterNd { reduction: Scatter::Replace };
    let expected = [1.0, 11.0, 3.0, 10.0, 9.0, 6.0, 7.0, 12.0];
    assert_eq!(one(scatter.into(), &[&eight, &at, &updates]), expected);
    let pad = |mode, before: [i64; 2], after: [i64; 2]| Pad {
        mode,
        before: before.map(Dim::from).to_vec(),
        after: after.map(Dim::from).to_vec(),
    };
    let rows = t(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(
        one(pad(PadMode::Reflect, [0, 2], [0, 1]).into(), &[&rows]),
        [3.0, 2.0, 1.0, 2.0, 3.0, 2.0, 6.0, 5.0, 4.0, 5.0, 6.0, 5.0]
    );
    assert_eq!(
        one(pad(PadMode::Wrap, [0, 1], [0, 1]).into(), &[&rows]),
        [3.0, 1.0, 2.0, 3.0, 1.0, 6.0, 4.0, 5.0, 6.0, 4.0]
    );
    let cum = Running { kind: RunningKind::Sum, axis: 0, exclusive: true, reverse: true };
    assert_eq!(
        one(cum.into(), &[&t(&[5], &[1.0, 2.0, 3.0, 4.0, 5.0])]),
        [14.0, 12.0, 9.0, 5.0, 0.0]
    );
    let deep = Tensor::generate(DType::F32, &[1, 8, 1, 1], |i| i as f64);
    let spread = |order| DepthToSpace { block: 2, order };
    let expected = [0.0, 2.0, 4.0, 6.0, 1.0, 3.0, 5.0, 7.0];
    assert_eq!(one(spread(DepthOrder::BlocksFirst).into(), &[&deep]), expected);
    let expected: Vec<f64> = (0..8).map(f64::from).collect();
    assert_eq!(one(spread(DepthOrder::ChannelsFirst).into(), &[&deep]), expected);
    let top =
        run(TopK { axis: 0, k: Dim::from(2), largest: true }, &[&t(&[4], &[1.0, 3.0, 3.0, 2.0])]);
    assert_eq!((top[0].to_f64(), top[1].to_i64()), (vec![3.0, 3.0], vec![1, 2]));
}

#[test]
fn pools_follow_the_ceiling_rule() {
    let pool = |kind, kernel, stride, pad, ceil_mode| Pool {
        kind,
        kernel: vec![kernel],
        strides: vec![stride],
        dilations: vec![1],
        pads: vec![pad],
        ceil_mode,
    };
    let x = Tensor::generate(DType::F32, &[1, 1, 6], |i| i as f64 + 1.0);
    let max = PoolKind::Max { indices: true };
    let found = run(pool(max, 3, 2, (0, 0), true), &[&x]);
    assert_eq!((found[0].to_f64(), found[1].to_i64()), (vec![3.0, 5.0, 6.0], vec![2, 4, 5]));
    assert_eq!(run(pool(max, 3, 2, (0, 0), false), &[&x])[0].to_f64(), [3.0, 5.0]);
    let mean = |count_include_pad| PoolKind::Average { count_include_pad };
    assert_eq!(run(pool(mean(true), 3, 2, (1, 0), false), &[&x])[0].to_f64(), [1.0, 3.0, 5.0]);
    assert_eq!(run(pool(mean(false), 3, 2, (1, 0), false), &[&x])[0].to_f64(), [1.5, 3.0, 5.0]);
    // The last window would start in trailing padding: it does not count.
    let short = Tensor::generate(DType::F32, &[1, 1, 2], |i| i as f64 + 1.0);
    assert_eq!(run(pool(mean(false), 1, 2, (0, 1), true), &[&short])[0].to_f64(), [1.0]);
}

#[test]
fn halves_round_once_and_to_even() {
    let x = Tensor::of(&[4], &[0.5f32, 1.5, 2.5, -0.5]);
    assert_eq!(run(Unary::Round, &[&x])[0].to_f64(), [0.0, 2.0, 2.0, 0.0]);
    let wide = Tensor::of(&[3], &[2049.0f32, 2051.0, 65520.0]);
    let half = run(Cast::to(DType::F16), &[&wide]).remove(0);
    assert_eq!(half.to_f64(), [2048.0, 2052.0, f64::INFINITY]);
    let big = Tensor::of(&[2], &[300.7f32, -1.0]);
    let saturated = run(Cast::to(DType::U8), &[&big]).remove(0);
    let wrapped = run(Cast { saturate: false, ..Cast::to(DType::U8) }, &[&big]).remove(0);
    assert_eq!((saturated.to_i64(), wrapped.to_i64()), (vec![255, 0], vec![44, 255]));
    let rows = Tensor::of(&[1, 3], &[f32::NEG_INFINITY, 1000.0, 1000.0]);
    assert_eq!(run(Softmax { axis: 1, log: false }, &[&rows])[0].to_f64(), [0.0, 0.5, 0.5]);
}

/// The specification clamps the start of a backward slice to the last and the first position.
#[test]
fn a_backward_slice_starts_inside() {
    let x = Tensor::generate(DType::F32, &[2, 2], |i| i as f64);
    let slice = |start: i64, end: i64| Slice {
        axes: vec![0],
        starts: vec![start.into()],
        ends: vec![end.into()],
        steps: vec![-1],
    };
    assert_eq!(run(slice(-3, -1000), &[&x])[0].to_f64(), [0.0, 1.0]);
    assert_eq!(run(slice(9, -1000), &[&x])[0].to_f64(), [2.0, 3.0, 0.0, 1.0]);
    assert_eq!(run(slice(0, 0), &[&x])[0].dims(), [0, 2]);
}

/// A softmax of large numbers in `f32`: the rounded difference from the largest is an error of the
/// exponent, and the sum that divides errs with its length.
#[test]
fn a_plain_softmax_is_within_the_noise() {
    let x = Tensor::generate(DType::F32, &[4, 4096], |i| 60.0 * ((i * 37 % 4099) as f64 / 4099.0));
    let mut g = Graph::new("softmax");
    let v = g.input("x", TensorType::fixed(DType::F32, &[4, 4096]));
    let y = g.add1(Softmax { axis: 1, log: false }, &[v], origin("softmax")).unwrap();
    g.outputs = vec![y];
    let exact = evaluate(&g, &[x.clone().into()]).unwrap();
    let noisy = evaluate_noisy(&g, &[x.clone().into()], &|_| 0.0, 1).unwrap();
    let (exact, noisy) = (exact[0].as_tensor().unwrap(), noisy[0].as_tensor().unwrap());
    let mut plain = Vec::new();
    for row in x.elements::<f32>().chunks(4096) {
        let most = row.iter().copied().fold(f32::MIN, f32::max);
        let powers: Vec<f32> = row.iter().map(|v| (v - most).exp()).collect();
        let sum: f32 = powers.iter().sum();
        plain.extend(powers.iter().map(|p| p / sum));
    }
    let error = Error::between(exact, &Tensor::of(&[4, 4096], &plain));
    assert!(error.share_of(&Tolerance::from_floor(exact, noisy)) <= 1.0, "{error}");
}

/// A remainder by a sum that nearly cancels: where another rounding makes the sum 0, there is no number, and so
/// nothing is asked; where the sum cannot be 0, all is.
#[test]
fn a_remainder_by_what_may_be_nothing_is_not_asked_for() {
    let tolerance = |shift: f32| {
        let mut g = Graph::new("remainder");
        let x = g.input("x", TensorType::fixed(DType::BF16, &[64]));
        let constant = |g: &mut Graph, name: &str, v: f64| {
            g.constant(name, Tensor::from_f64(DType::BF16, &[], &[v]))
        };
        let (scale, shift) =
            (constant(&mut g, "scale", 1.5), constant(&mut g, "shift", f64::from(shift)));
        let y = g.add1(Binary::Mul, &[x, scale], origin("mul")).unwrap();
        let y = g.add1(Binary::Add, &[y, shift], origin("add")).unwrap();
        let y = g.add1(Binary::Fmod, &[y, y], origin("fmod")).unwrap();
        g.outputs = vec![y];
        // 1.5 times this is 1.5078125 with one rounding.
        let data = [Datum::from(Tensor::generate(DType::BF16, &[64], |_| 1.0078125))];
        let exact = evaluate(&g, &data).unwrap();
        let reference = [exact[0].as_tensor()];
        tolerances(&g, &data, &reference, &|_| None, &|_| 0.0, 0).unwrap()[0]
    };
    assert_eq!(tolerance(-1.5).max_abs, f64::INFINITY);
    assert!(tolerance(1.5).max_abs.is_finite());
}

/// A sum whose terms cancel errs as one whose terms do not, also where it is the only result.
#[test]
fn a_single_sum_that_cancels_is_as_noisy_as_its_terms() {
    let mut g = Graph::new("sum");
    let x = g.input("x", TensorType::fixed(DType::F32, &[16]));
    let sum = Reduce { kind: ReduceKind::Sum, axes: vec![0], keep_dims: false };
    let y = g.add1(sum, &[x], origin("sum")).unwrap();
    g.outputs = vec![y];
    let terms: Vec<f32> =
        (0..16).map(|i| if i % 2 == 0 { 1.1 + i as f32 } else { -(0.08 + i as f32) }).collect();
    let plain: f32 = terms.iter().sum();
    let data = [Datum::from(Tensor::of(&[16], &terms))];
    let exact = evaluate(&g, &data).unwrap();
    let reference = [exact[0].as_tensor()];
    for seed in 0..20 {
        let allowed = tolerances(&g, &data, &reference, &|_| None, &|_| 0.0, seed).unwrap()[0];
        // Half an ulp of the largest term.
        assert!(allowed.max_abs > 4.7e-7, "{allowed:?}");
        let found = Error::between(reference[0].unwrap(), &Tensor::of(&[], &[plain]));
        assert!(found.share_of(&allowed) <= 1.0, "{found}, {allowed:?}");
    }
}

/// After a clamp few elements may be left, and each of them may by chance meet next to no noise: what is allowed is
/// then drawn several times, as it is for a tensor of few elements.
#[test]
fn elements_that_are_0_do_not_count_as_noisy() {
    let mut g = Graph::new("clamp");
    let x = g.input("x", TensorType::fixed(DType::F32, &[512]));
    let scale = g.constant("scale", Tensor::of(&[], &[1.1f32]));
    let shift = g.constant("shift", Tensor::of(&[], &[-3.3f32]));
    let y = g.add1(Binary::Mul, &[x, scale], origin("mul")).unwrap();
    let y = g.add1(Binary::Add, &[y, shift], origin("add")).unwrap();
    let y = g.add1(Unary::Relu, &[y], origin("relu")).unwrap();
    g.outputs = vec![y];
    let content = Tensor::generate(DType::F32, &[512], |i| if i == 7 { 3.0001 } else { 1.0 });
    let data = [Datum::from(content)];
    let exact = evaluate(&g, &data).unwrap();
    let reference = [exact[0].as_tensor()];
    let all =
        |seed| tolerances(&g, &data, &reference, &|_| None, &|_| 0.0, seed).unwrap()[0].max_abs;
    // The sum is near 1e-4, and its terms were rounded at 3.3: of single draws 45 in 100 round as the exact one does.
    let none = (0..200).map(all).filter(|&allowed| allowed < 1.2e-7).count();
    assert!(none < 30, "{none} of 200");
}

/// What lies below the normal numbers is 0 to many kernels, and a test for 0 tells that.
#[test]
fn numbers_below_the_normal_ones_may_be_0() {
    let mut g = Graph::new("below");
    let x = g.input("x", TensorType::fixed(DType::F32, &[2]));
    let y = g.add1(Unary::Exp, &[x], origin("exp")).unwrap();
    let y = g.add1(Cast::to(DType::Bool), &[y], origin("cast")).unwrap();
    g.outputs = vec![y];
    let data = [Datum::from(Tensor::of(&[2], &[-90f32, -80.0]))];
    let exact = evaluate(&g, &data).unwrap();
    let noisy = evaluate_noisy(&g, &data, &|_| 0.0, 0).unwrap();
    let truths = |all: &[Datum]| all[0].as_tensor().unwrap().to_f64();
    assert_eq!(truths(&exact), [1.0, 1.0]);
    assert_eq!(truths(&noisy), [0.0, 1.0]);
}

/// A mask as exporters write it: what the cast gives is 0 or 1 to the last bit, so that its huge factor
/// moves nothing where it is 0.
#[test]
fn an_exact_mask_has_no_noise() {
    let mut g = Graph::new("mask");
    let scores = g.input("scores", TensorType::fixed(DType::F32, &[2, 4]));
    let mask = g.input("mask", TensorType::fixed(DType::I64, &[4]));
    let number = |g: &mut Graph, name: &str, v: f32| g.constant(name, Tensor::of(&[], &[v]));
    let (one, low) = (number(&mut g, "one", 1.0), number(&mut g, "low", f32::MIN));
    let mask = g.add1(Cast::to(DType::F32), &[mask], origin("cast")).unwrap();
    let hidden = g.add1(Binary::Sub, &[one, mask], origin("sub")).unwrap();
    let shift = g.add1(Binary::Mul, &[hidden, low], origin("mul")).unwrap();
    let y = g.add1(Binary::Add, &[scores, shift], origin("add")).unwrap();
    let y = g.add1(Softmax { axis: 1, log: false }, &[y], origin("softmax")).unwrap();
    g.outputs = vec![y];
    let scores = Tensor::generate(DType::F32, &[2, 4], |i| i as f64 / 4.0);
    let mask = Tensor::from_i64(DType::I64, &[4], &[1, 1, 0, 1]);
    let data = [Datum::from(scores), Datum::from(mask)];
    let exact = evaluate(&g, &data).unwrap();
    let noisy = evaluate_noisy(&g, &data, &|_| 0.0, 1).unwrap();
    let tolerance =
        Tolerance::from_floor(exact[0].as_tensor().unwrap(), noisy[0].as_tensor().unwrap());
    assert!(tolerance.max_abs < 1e-5, "{tolerance:?}");
}

/// The logarithm of a sum near 1 is near 0, but the sum was rounded where it was near 1.
#[test]
fn logarithms_of_sums_err_by_a_share_of_the_sum() {
    let mut g = Graph::new("logarithm");
    let x = g.input("x", TensorType::fixed(DType::F32, &[64, 2]));
    let y = g.add1(Softmax { axis: 1, log: true }, &[x], origin("softmax")).unwrap();
    g.outputs = vec![y];
    let x = Tensor::generate(DType::F32, &[64, 2], |i| if i % 2 == 0 { 0.0 } else { -14.0 });
    let data = [Datum::from(x)];
    let exact = evaluate(&g, &data).unwrap().swap_remove(0);
    let noisy = evaluate_noisy(&g, &data, &|_| 0.0, 1).unwrap().swap_remove(0);
    // The larger of the two logarithms alone: its magnitude is 8e-7.
    let first = |t: &Tensor| Tensor::of(&[1], &[t.elements::<f32>()[0]]);
    let own =
        Error::between(&first(exact.as_tensor().unwrap()), &first(noisy.as_tensor().unwrap()));
    assert!((1e-9..1e-6).contains(&own.max_abs), "{own}");
}

/// `0.17 x - 0.51` of an input of so many elements: next to 0 where `x` is next to 3.
fn nearly_cancelled(g: &mut Graph, elements: i64) -> ValueId {
    let x = g.input("x", TensorType::fixed(DType::F32, &[elements]));
    let number = |g: &mut Graph, name: &str, v: f32| g.constant(name, Tensor::of(&[], &[v]));
    let (times, plus) = (number(g, "times", 0.17), number(g, "plus", -0.51));
    let y = g.add1(Binary::Mul, &[x, times], origin("mul")).unwrap();
    g.add1(Binary::Add, &[y, plus], origin("add")).unwrap()
}

/// One element survives, and it is the sum of a product that most draws would leave as it is.
#[test]
fn a_lonely_element_meets_noise_in_every_draw() {
    let mut g = Graph::new("lonely");
    let y = nearly_cancelled(&mut g, 8);
    let y = g.add1(Unary::Relu, &[y], origin("relu")).unwrap();
    g.outputs = vec![y];
    let data = [Datum::from(Tensor::generate(DType::F32, &[8], |i| i as f64 - 4.0 + 1e-3))];
    let exact = evaluate(&g, &data).unwrap();
    let reference = [exact[0].as_tensor()];
    // A rounding of the product, which is near 0.51, is one of the difference, which is near 2e-4.
    let product = f64::from(f32::EPSILON) / 4.0;
    for seed in 0..64 {
        let all = tolerances(&g, &data, &reference, &|_| None, &|_| 0.0, seed).unwrap();
        assert!((8.0 * product..64.0 * product).contains(&all[0].max_abs), "{seed}: {:?}", all[0]);
    }
}

/// A sum of squares may be a million times smaller than others, and is none the less no less than 0: its logarithm is
/// a number.
#[test]
fn sums_of_squares_err_by_a_share_of_their_own() {
    let mut g = Graph::new("spectrum");
    let x = g.input("x", TensorType::fixed(DType::F32, &[64, 16]));
    let squares = Reduce { kind: ReduceKind::SumSquare, axes: vec![1], keep_dims: true };
    let y = g.add1(squares, &[x], origin("squares")).unwrap();
    let weights = Tensor::generate(DType::F32, &[1, 3], |i| i as f64 + 1.0);
    let weights = g.constant("weights", weights);
    let y = g.add1(MatMul::default(), &[y, weights], origin("product")).unwrap();
    let y = g.add1(Unary::Log, &[y], origin("log")).unwrap();
    g.outputs = vec![y];
    let x = |i: usize| if i < 16 { 1e-3 } else { 1e3 };
    let data = [Datum::from(Tensor::generate(DType::F32, &[64, 16], x))];
    let exact = evaluate(&g, &data).unwrap();
    let reference = [exact[0].as_tensor()];
    let all = tolerances(&g, &data, &reference, &|_| None, &|_| 0.0, 1).unwrap();
    assert!((1e-7..1e-4).contains(&all[0].max_abs), "{:?}", all[0]);
}

/// Errors of several operands may by chance cancel in the one sum that what follows makes much of.
#[test]
fn a_pole_of_a_sum_meets_noise_in_some_draw() {
    let mut g = Graph::new("pole of a sum");
    let x = g.input("x", TensorType::fixed(DType::F32, &[256, 3]));
    let erf = g.add1(Unary::Erf, &[x], origin("erf")).unwrap();
    let weights = g.constant("weights", Tensor::of(&[3, 1], &[1.0f32, 0.93, -0.87]));
    let sum = g.add1(MatMul::default(), &[erf, weights], origin("product")).unwrap();
    let y = g.add1(Unary::Reciprocal, &[sum], origin("reciprocal")).unwrap();
    g.outputs = vec![y];
    // Row 7 sums to about 0.01, all others to more than 1.
    let x = |i: usize| match (i / 3, i % 3) {
        (7, 0) => 0.5,
        (7, 1) => -0.54,
        (7, _) => 0.0,
        (row, _) => 1.5 + row as f64 / 256.0,
    };
    let data = [Datum::from(Tensor::generate(DType::F32, &[256, 3], x))];
    let exact = evaluate(&g, &data).unwrap();
    let pole = exact[0].as_tensor().unwrap().to_f64()[7];
    // Half a unit in the last place of both operands, times the square of the pole.
    let error = 2.0 * f64::from(f32::EPSILON) / 4.0 * pole * pole;
    for seed in 0..2048 {
        let reference = [exact[0].as_tensor()];
        let all = tolerances(&g, &data, &reference, &|_| None, &|_| 0.0, seed).unwrap();
        assert!((error..256.0 * error).contains(&all[0].max_abs), "{seed}: {:?}", all[0]);
    }
}

/// The reciprocal of what is next to 0 has all of the error of the whole tensor.
#[test]
fn an_element_with_all_of_the_error_is_drawn_more_than_once() {
    let mut g = Graph::new("pole");
    let y = nearly_cancelled(&mut g, 1024);
    let one = g.constant("one", Tensor::of(&[], &[1f32]));
    let y = g.add1(Binary::Div, &[one, y], origin("div")).unwrap();
    g.outputs = vec![y];
    let x = |i: usize| if i == 7 { 3.001 } else { i as f64 + 10.0 };
    let data = [Datum::from(Tensor::generate(DType::F32, &[1024], x))];
    let exact = evaluate(&g, &data).unwrap();
    let pole = exact[0].as_tensor().unwrap().to_f64()[7];
    // Half a unit in the last place of the product, times the square of the pole.
    let error = f64::from(f32::EPSILON) / 4.0 * pole * pole;
    for seed in 0..64 {
        let reference = [exact[0].as_tensor()];
        let all = tolerances(&g, &data, &reference, &|_| None, &|_| 0.0, seed).unwrap();
        assert!((error..64.0 * error).contains(&all[0].max_abs), "{seed}: {:?}", all[0]);
    }
}
