//! Convolutions against a naive reference.

use crate::harness::*;
use crate::reference::{conv_sums, finish};
use bricolage_kernels::{ConvAlgorithm, ConvKnobs, ConvSpec, Post, Spec, Unary};
use bricolage_tensor::Format;
use proptest::prelude::*;

/// Elements of the tolerance of Winograd's method over one input channel: sums over the points of
/// |A| (sum |B|) (sum |G|) along one dim, the largest over the outputs, for tiles of 2, 4 and 6. They
/// bound how much larger the intermediate values can be than the products they stand for.
fn growth(tile: u8) -> f64 {
    let (a, b, g): (Vec<Vec<f64>>, Vec<f64>, Vec<f64>) = match tile {
        2 => {
            (vec![vec![1., 1., 1., 0.], vec![0., 1., 1., 1.]], vec![2.; 4], vec![1., 1.5, 1.5, 1.])
        }
        4 => (
            (0..4)
                .map(|i| {
                    let p = f64::from(1 << i);
                    let first = if i == 0 { 1. } else { 0. };
                    vec![first, 1., 1., p, p, if i == 3 { 1. } else { 0. }]
                })
                .collect(),
            vec![10., 10., 10., 6., 6., 10.],
            vec![0.25, 0.5, 0.5, 7. / 24., 7. / 24., 1.],
        ),
        _ => (
            (0..6)
                .map(|i| {
                    let (p, h) = (f64::from(1 << i), 1. / f64::from(1 << i));
                    let first = if i == 0 { 1. } else { 0. };
                    vec![first, 1., 1., p, p, h, h, if i == 5 { 1. } else { 0. }]
                })
                .collect(),
            vec![12.5, 10.5, 10.5, 6.25, 6.25, 15., 15., 12.5],
            {
                let (b, c) = (7. / 90., 56. / 45.);
                vec![1., 2. / 3., 2. / 3., b, b, c, c, 1.]
            },
        ),
    };
    let row = |r: &Vec<f64>| -> f64 { r.iter().zip(&b).zip(&g).map(|((a, b), g)| a * b * g).sum() };
    a.iter().map(row).fold(0., f64::max).powi(2)
}

fn check(spec: ConvSpec, seed: u64) {
    let mut rng = Rng(seed);
    let (x, w) = (rng.tensor(&spec.input), rng.tensor(&spec.weight_dims()));
    let bias = rng.tensor(&[spec.out_channels]);
    let dims = spec.output_dims().unwrap();
    let residual = rng.tensor(&dims);
    let mut inputs = vec![(x.clone(), spec.input_format.layout.clone())];
    if spec.posts.contains(&Post::Add) {
        inputs.push((residual.clone(), spec.output_format.layout.clone()));
    }
    let raw = if spec.bias { vec![w.clone(), bias.clone()] } else { vec![w.clone()] };
    let bias = if spec.bias { bias.elements::<f32>().to_vec() } else { vec![] };
    let mut sums = conv_sums(&spec, &x.elements(), &w.elements(), &bias);
    let terms = count(&spec.weight_dims()[1..]) + 1;
    if let ConvAlgorithm::Winograd { tile } = spec.algorithm {
        // Inputs and weights are below 1/2. About 20 roundings in the transforms join those of the sum.
        let most = spec.input[1] as f64 * 0.25 * growth(tile);
        for sum in &mut sums {
            sum.size += most * (spec.input[1] + 24) as f64 / (terms + 2) as f64;
        }
    }
    let values = residual.elements::<f32>();
    let (wanted, tolerance): (Vec<f64>, Vec<f64>) = sums
        .iter()
        .zip(values.iter())
        .map(|(&sum, &r)| finish(sum, terms, Some(f64::from(r)), &spec.posts))
        .unzip();
    let out = [(dims, spec.output_format.clone())];
    run_all(&Spec::Conv(spec), &inputs, &raw, &out, |what, found| {
        assert_close(what, &found[0], &wanted, &tolerance);
    });
}

fn posts() -> impl Strategy<Value = Vec<Post>> {
    prop_oneof![
        Just(vec![]),
        Just(vec![Post::Unary(Unary::Relu)]),
        Just(vec![Post::Add, Post::Unary(Unary::Relu)]),
        Just(vec![Post::Unary(Unary::Clip { min: 0.1, max: 0.6 })]),
        Just(vec![Post::Unary(Unary::Sigmoid)]),
        Just(vec![Post::Unary(Unary::HardSwish), Post::Add]),
    ]
}

fn formats(plain: bool) -> impl Strategy<Value = (Format, Format)> {
    let image = || prop_oneof![(0..4u8).prop_map(last), (0..4u8).prop_map(blocked)];
    let input =
        if plain { prop_oneof![3 => image(), 1 => Just(F32)].boxed() } else { image().boxed() };
    (input, image())
}

fn knobs() -> impl Strategy<Value = ConvKnobs> {
    (0..5u8, prop_oneof![Just(0u32), 1..30u32], 0..4u32, 0..3u8)
        .prop_map(|(v, b, c, s)| ConvKnobs { vectors: v, block: b, channel_parts: c, staged: s })
}

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn direct_is_right(
        (n, groups, i, o) in (1..3i64, 1..4i64, 1..12i64, 1..21i64),
        (h, w) in (1..12i64, 1..12i64),
        window in (1..4i64, 1..5i64, 1..3i64, 1..3i64, 1..3i64),
        pads in [0..3i64, 0..3i64, 0..3i64, 0..3i64],
        (input_format, output_format) in formats(true),
        posts in posts(), knobs in knobs(), bias in any::<bool>(), flat in any::<bool>(), wide in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let (kh, kw, s, t, d) = window;
        let groups = if wide { 1 } else { groups };
        let i = if wide { 5 * i } else { i };
        let spec = ConvSpec {
            input: vec![n, i * groups, h, w], input_format, output_format,
            out_channels: o * groups,
            kernel: vec![kh, kw], strides: vec![s, t], dilations: vec![d, 1],
            pads: pads.to_vec(), groups, transposed: false, output_padding: vec![0, 0], bias, posts,
            algorithm: ConvAlgorithm::Direct, knobs,
        };
        let spec = if flat {
            ConvSpec {
                input: vec![n, i * groups, w], kernel: vec![kw], strides: vec![t], dilations: vec![d],
                pads: vec![pads[0], pads[1]], output_padding: vec![0], ..spec
            }
        } else { spec };
        prop_assume!(spec.output_dims().is_ok());
        check(spec, seed);
    }

    #[test]
    fn transposed_is_right(
        (n, groups, i, o) in (1..3i64, 1..3i64, 1..10i64, 1..10i64),
        (h, w) in (1..7i64, 1..7i64),
        window in (1..4i64, 1..5i64, 1..4i64, 1..3i64, 1..3i64),
        pads in [0..2i64, 0..2i64, 0..2i64, 0..2i64],
        extra in 0..2i64,
        (input_format, output_format) in formats(true),
        posts in posts(), bias in any::<bool>(), seed in any::<u64>(),
    ) {
        let (kh, kw, s, t, d) = window;
        let spec = ConvSpec {
            input: vec![n, i * groups, h, w], input_format, output_format,
            out_channels: o * groups,
            kernel: vec![kh, kw], strides: vec![s, t], dilations: vec![d, 1],
            pads: pads.to_vec(), groups, transposed: true, output_padding: vec![extra.min(s - 1), 0],
            bias, posts, algorithm: ConvAlgorithm::Direct, knobs: ConvKnobs::default(),
        };
        prop_assume!(spec.output_dims().is_ok_and(|d| d.iter().all(|&d| d > 0)));
        check(spec, seed);
    }

    #[test]
    fn winograd_is_right(
        (n, i, o) in (1..3i64, 1..20i64, 1..20i64),
        (h, w) in (1..16i64, 1..16i64),
        pads in [0..3i64, 0..3i64, 0..3i64, 0..3i64],
        (input_format, output_format) in formats(false),
        posts in posts(), knobs in knobs(), bias in any::<bool>(),
        tile in prop_oneof![Just(2u8), Just(4), Just(6)], seed in any::<u64>(),
    ) {
        let spec = ConvSpec {
            input: vec![n, i, h, w], input_format, output_format, out_channels: o,
            kernel: vec![3, 3], strides: vec![1, 1], dilations: vec![1, 1],
            pads: pads.to_vec(), groups: 1, transposed: false, output_padding: vec![0, 0], bias, posts,
            algorithm: ConvAlgorithm::Winograd { tile }, knobs,
        };
        prop_assume!(spec.output_dims().is_ok());
        check(spec, seed);
    }

    #[test]
    fn depthwise_is_right(
        (n, c) in (1..3i64, 2..27i64),
        (h, w) in (1..14i64, 1..14i64),
        window in (prop_oneof![Just(3i64), Just(5), 1..5i64], 1..3i64, 1..3i64),
        pads in [0..3i64, 0..3i64, 0..3i64, 0..3i64],
        (input_format, output_format) in formats(false),
        posts in posts(), knobs in knobs(), bias in any::<bool>(), seed in any::<u64>(),
    ) {
        let (k, s, d) = window;
        let spec = ConvSpec {
            input: vec![n, c, h, w], input_format, output_format, out_channels: c,
            kernel: vec![k, k], strides: vec![s, s], dilations: vec![d, d],
            pads: pads.to_vec(), groups: c, transposed: false, output_padding: vec![0, 0], bias, posts,
            algorithm: ConvAlgorithm::Depthwise, knobs,
        };
        prop_assume!(spec.output_dims().is_ok());
        check(spec, seed);
    }
}

#[test]
fn a_stem_reads_a_plain_image() {
    let spec = ConvSpec::new(&[1, 3, 30, 31], F32, 20, 7, 2, 3, 1);
    let spec = ConvSpec { output_format: blocked(1), bias: true, ..spec_or(spec, F32) };
    check(spec, 1);
}

fn spec_or(spec: Result<ConvSpec, bricolage_kernels::SpecError>, input_format: Format) -> ConvSpec {
    // The constructor uses one format for both sides, and no convolution writes plain images.
    assert!(spec.is_err());
    let spec = ConvSpec::new(&[1, 3, 30, 31], blocked(0), 20, 7, 2, 3, 1).unwrap();
    ConvSpec { input_format, ..spec }
}

#[test]
fn the_rule_of_thumb_knows_the_usual_shapes() {
    let first = |c: i64, hw: i64, k: i64, g: i64| {
        ConvSpec::new(&[1, c, hw, hw], blocked(1), c, k, 1, k / 2, g).unwrap().algorithm
    };
    assert_eq!(first(64, 56, 3, 1), ConvAlgorithm::Winograd { tile: 4 });
    assert_eq!(first(512, 7, 3, 1), ConvAlgorithm::Winograd { tile: 2 });
    assert_eq!(first(256, 56, 1, 1), ConvAlgorithm::Direct);
    assert_eq!(first(144, 56, 3, 144), ConvAlgorithm::Depthwise);
}
