//! Convolutions of random attributes against their definition, on whole numbers, so that every sum is
//! exact and the results must be equal.
#![allow(clippy::unwrap_used)] // a panic is how a test fails, also in the functions that tests share

use bricolage_ir::{Inputs, Op, ops::*};
use bricolage_tensor::{DType, Datum, Rng, Tensor};
use proptest::prelude::*;

/// A convolution, its spatial attributes from the outermost dim inwards.
#[derive(Clone, Debug)]
struct Case {
    images: i64,
    groups: i64,
    /// Channels of a group, input and output.
    channels: (i64, i64),
    spatial: Vec<Spatial>,
    dtype: DType,
}

#[derive(Clone, Copy, Debug)]
struct Spatial {
    size: i64,
    taps: i64,
    stride: i64,
    dilation: i64,
    pads: (i64, i64),
}

fn spatial() -> impl Strategy<Value = Spatial> {
    (1..12i64, 1..4i64, 1..4i64, 1..3i64, (0..3i64, 0..3i64)).prop_map(
        |(room, taps, stride, dilation, pads)| {
            let size = (room + (taps - 1) * dilation - pads.0 - pads.1).max(1);
            Spatial { size, taps, stride, dilation, pads }
        },
    )
}

fn cases() -> impl Strategy<Value = Case> {
    let channels = prop_oneof![(Just(1i64), 1..3i64), (1..9i64, 1..15i64)];
    let dtype = prop_oneof![Just(DType::F32), Just(DType::F64), Just(DType::I32)];
    (1..3i64, 1..4i64, channels, proptest::collection::vec(spatial(), 1..4), dtype)
        .prop_map(|(images, groups, channels, spatial, dtype)| Case {
            images,
            groups,
            channels,
            spatial,
            dtype,
        })
        .prop_filter("a window must fit", |case| {
            case.spatial.iter().all(|s| s.size + s.pads.0 + s.pads.1 > (s.taps - 1) * s.dilation)
        })
}

impl Case {
    fn of<T>(&self, f: fn(&Spatial) -> T) -> Vec<T> {
        self.spatial.iter().map(f).collect()
    }
}

fn whole(dtype: DType, dims: &[i64], seed: u64) -> Tensor {
    let mut rng = Rng::new(seed);
    Tensor::generate(dtype, dims, |_| rng.below(17) as f64 - 8.0)
}

fn run(op: impl Into<Op>, inputs: &[&Tensor]) -> Tensor {
    let data: Vec<Datum> = inputs.iter().map(|&t| t.clone().into()).collect();
    let refs: Vec<Option<&Datum>> = data.iter().map(Some).collect();
    op.into().eval(&Inputs(&refs)).unwrap()[0].as_tensor().unwrap().clone()
}

/// All positions of a box, the last dim fastest.
fn positions(dims: &[i64]) -> Vec<Vec<i64>> {
    dims.iter().fold(vec![Vec::new()], |all, &d| {
        all.iter().flat_map(|p| (0..d).map(move |i| [&p[..], &[i]].concat())).collect()
    })
}

fn flat(dims: &[i64], at: &[i64]) -> usize {
    dims.iter().zip(at).fold(0, |flat, (d, i)| flat * d + i) as usize
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn convolutions_equal_their_definition(case in cases()) {
        let Case { images, groups, channels: (c, m), .. } = case;
        let xd = [vec![images, groups * c], case.of(|s| s.size)].concat();
        let wd = [vec![groups * m, c], case.of(|s| s.taps)].concat();
        let (x, w) = (whole(case.dtype, &xd, 1), whole(case.dtype, &wd, 2));
        let bias = whole(case.dtype, &[groups * m], 3);
        let op = Conv {
            strides: case.of(|s| s.stride),
            dilations: case.of(|s| s.dilation),
            pads: case.of(|s| s.pads),
            groups,
        };
        let found = run(op, &[&x, &w, &bias]);
        let (xs, ws, bs) = (x.to_f64(), w.to_f64(), bias.to_f64());
        let mut expected = Vec::new();
        for at in positions(found.dims()) {
            let mut sum = bs[at[1] as usize];
            for tap in positions(&wd[1..]) {
                let mut from = vec![at[0], at[1] / m * c + tap[0]];
                from.extend(case.spatial.iter().zip(at[2..].iter().zip(&tap[1..])).map(
                    |(s, (o, k))| o * s.stride + k * s.dilation - s.pads.0,
                ));
                if from.iter().zip(&xd).all(|(i, d)| (0..*d).contains(i)) {
                    sum += xs[flat(&xd, &from)] * ws[flat(&wd, &[&[at[1]], &tap[..]].concat())];
                }
            }
            expected.push(sum);
        }
        prop_assert_eq!(found.to_f64(), expected);
    }

    #[test]
    fn transposed_convolutions_equal_their_definition(case in cases()) {
        let Case { images, groups, channels: (c, m), .. } = case;
        let fits = |s: &Spatial| (s.size - 1) * s.stride + (s.taps - 1) * s.dilation + 1;
        prop_assume!(case.spatial.iter().all(|s| fits(s) > s.pads.0 + s.pads.1));
        let xd = [vec![images, groups * c], case.of(|s| s.size)].concat();
        let wd = [vec![groups * c, m], case.of(|s| s.taps)].concat();
        let (x, w) = (whole(case.dtype, &xd, 4), whole(case.dtype, &wd, 5));
        let op = ConvTranspose {
            strides: case.of(|s| s.stride),
            dilations: case.of(|s| s.dilation),
            pads: case.of(|s| s.pads),
            output_padding: case.of(|s| s.stride - 1),
            groups,
        };
        let found = run(op, &[&x, &w]);
        let (xs, ws, yd) = (x.to_f64(), w.to_f64(), found.dims());
        let mut expected = vec![0.0; found.len()];
        for from in positions(&xd) {
            for tap in positions(&wd[1..]) {
                let mut at = vec![from[0], from[1] / c * m + tap[0]];
                at.extend(case.spatial.iter().zip(from[2..].iter().zip(&tap[1..])).map(
                    |(s, (i, k))| i * s.stride + k * s.dilation - s.pads.0,
                ));
                if at.iter().zip(yd).all(|(i, d)| (0..*d).contains(i)) {
                    expected[flat(yd, &at)] +=
                        xs[flat(&xd, &from)] * ws[flat(&wd, &[&[from[1]], &tap[..]].concat())];
                }
            }
        }
        prop_assert_eq!(found.to_f64(), expected);
    }

    /// The two halves of a product of more multiply-adds than one thread takes meet every edge.
    #[test]
    fn products_equal_their_definition(
        m in 1..200usize, n in 1..300usize, k in 1..600usize,
        transpose_lhs: bool, transpose_rhs: bool, integer: bool,
    ) {
        let dtype = if integer { DType::I64 } else { DType::F32 };
        let dims = |rows, columns, turned| match turned {
            true => [columns as i64, rows as i64],
            false => [rows as i64, columns as i64],
        };
        let a = whole(dtype, &dims(m, k, transpose_lhs), 6);
        let b = whole(dtype, &dims(k, n, transpose_rhs), 7);
        let found = run(MatMul { transpose_lhs, transpose_rhs }, &[&a, &b]).to_i64();
        let (xs, ys) = (a.to_i64(), b.to_i64());
        let at = |i: usize, l: usize| if transpose_lhs { xs[l * m + i] } else { xs[i * k + l] };
        let bt = |l: usize, j: usize| if transpose_rhs { ys[j * k + l] } else { ys[l * n + j] };
        let mut expected = vec![0; m * n];
        for (i, row) in expected.chunks_mut(n).enumerate() {
            for l in 0..k {
                row.iter_mut().enumerate().for_each(|(j, sum)| *sum += at(i, l) * bt(l, j));
            }
        }
        prop_assert_eq!(found, expected);
    }
}
