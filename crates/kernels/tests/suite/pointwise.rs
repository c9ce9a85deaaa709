//! Pointwise programs: every function against `f64`, and every way to broadcast, exactly.

use crate::{harness::*, reference};
use bricolage_kernels::{Binary, Instruction, PointwiseOperand, PointwiseSpec, Spec, Unary};
use bricolage_tensor::{DType, Format, Layout, Tensor};
use proptest::prelude::*;

/// Every function, with how many units in the last place and how far absolutely it may be off.
fn unaries() -> Vec<(Unary, f64, f64)> {
    vec![
        (Unary::Neg, 0., 0.),
        (Unary::Abs, 0., 0.),
        (Unary::Sign, 0., 0.),
        (Unary::Ceil, 0., 0.),
        (Unary::Floor, 0., 0.),
        (Unary::Round, 0., 0.),
        (Unary::Trunc, 0., 0.),
        (Unary::Sqrt, 1., 0.),
        (Unary::Rsqrt, 2., 0.),
        (Unary::Reciprocal, 1., 0.),
        (Unary::Square, 1., 0.),
        (Unary::Exp, 5., 1e-44),
        (Unary::Log, 3., 1e-7),
        (Unary::Erf, 12., 1e-45),
        (Unary::Tanh, 6., 0.),
        (Unary::Sigmoid, 6., 1.2e-38),
        (Unary::Relu, 0., 0.),
        (Unary::LeakyRelu { alpha: 0.1 }, 1., 0.),
        (Unary::ThresholdedRelu { alpha: 1.5 }, 0., 0.),
        (Unary::Elu { alpha: 1.3 }, 8., 0.),
        (Unary::Celu { alpha: 0.7 }, 10., 0.),
        (Unary::Selu { alpha: 1.673_263_2, gamma: 1.050_701 }, 8., 0.),
        (Unary::Clip { min: -1.0, max: 2.0 }, 0., 0.),
        (Unary::HardSigmoid { alpha: 0.2, beta: 0.5 }, 2., 1.2e-7),
        (Unary::HardSwish, 4., 4e-7),
        (Unary::Softplus, 12., 1.2e-38),
        (Unary::Softsign, 2., 0.),
        (Unary::Gelu, 3., 7e-7),
        (Unary::GeluTanh, 8., 2e-6),
        (Unary::Swish { alpha: 1.0 }, 8., 1e-36),
        (Unary::Swish { alpha: 1.7 }, 8., 2e-6),
        (Unary::Mish, 10., 1e-36),
        (Unary::Affine { scale: 2.5, shift: -1.0 }, 2., 2.4e-7),
        (Unary::Sin, 2., 0.),
        (Unary::Cos, 2., 0.),
        (Unary::Tan, 2., 0.),
        (Unary::Asin, 2., 0.),
        (Unary::Acos, 2., 0.),
        (Unary::Atan, 2., 0.),
        (Unary::Sinh, 2., 0.),
        (Unary::Cosh, 2., 0.),
        (Unary::Asinh, 2., 0.),
        (Unary::Acosh, 2., 0.),
        (Unary::Atanh, 2., 0.),
        (Unary::Not, 0., 0.),
        (Unary::IsNaN, 0., 0.),
        (Unary::IsInf { negative: true, positive: true }, 0., 0.),
        (Unary::IsInf { negative: false, positive: true }, 0., 0.),
    ]
}

fn arguments() -> Vec<f32> {
    let mut list = vec![
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        f32::MIN_POSITIVE,
        1e-42,
        1e30,
        -1e30,
        88.0,
        89.5,
        -87.0,
        -95.0,
        -104.5,
        1e-20,
        -1e-20,
    ];
    for i in -4000..4000 {
        list.push(i as f32 * 0.005 + 0.000_37);
        list.push((i as f32 * 0.02).exp2().copysign(i as f32));
    }
    list
}

#[test]
fn functions_are_accurate() {
    let x = arguments();
    let tensor = Tensor::of(&[x.len() as i64], &x);
    let mut wrong = Vec::new();
    for (op, ulps, absolute) in unaries() {
        let spec = unary_spec(op, &[x.len() as i64], F32);
        let wanted: Vec<f64> = x.iter().map(|&x| reference::unary(op, f64::from(x))).collect();
        let tolerance: Vec<f64> = wanted
            .iter()
            .map(|w| {
                // The smallest number is the distance between the ones next to 0.
                ulps * 2.0 * U * w.abs() + absolute + f64::from(f32::from_bits(1))
            })
            .collect();
        let wanted: Vec<f64> = wanted
            .iter()
            .map(|&w| if w.abs() > f64::from(f32::MAX) { f64::from(w as f32) } else { w })
            .collect();
        let inputs = [(tensor.clone(), Layout::Plain)];
        run_all(&spec, &inputs, &[], &[(tensor.dims().to_vec(), F32)], |what, found| {
            let found = found[0].elements::<f32>();
            for (i, (&f, (&w, &t))) in found.iter().zip(wanted.iter().zip(&tolerance)).enumerate() {
                let f = f64::from(f);
                let same = f == w || (f.is_nan() && w.is_nan()) || (w == 0.0 && f == 0.0);
                if !same && ((f - w).abs() > t || (f - w).is_nan()) {
                    wrong.push(format!("{what}: at {} {f:e}, needed {w:e} +- {t:e}", x[i]));
                    break;
                }
            }
        });
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn functions_of_zero_are_exact() {
    let tensor = Tensor::of(&[9], &[0f32; 9]);
    for (op, wanted) in [
        (Unary::Exp, 1f32),
        (Unary::Sigmoid, 0.5),
        (Unary::Tanh, 0.0),
        (Unary::Elu { alpha: 1.3 }, 0.0),
        (Unary::Swish { alpha: 1.0 }, 0.0),
    ] {
        let spec = unary_spec(op, &[9], F32);
        run_all(
            &spec,
            &[(tensor.clone(), Layout::Plain)],
            &[],
            &[(vec![9], F32)],
            |what, found| {
                assert!(found[0].elements::<f32>().iter().all(|&y| y == wanted), "{what}");
            },
        );
    }
}

fn unary_spec(op: Unary, dims: &[i64], format: Format) -> Spec {
    Spec::Pointwise(PointwiseSpec {
        dims: dims.to_vec(),
        operands: vec![PointwiseOperand { dims: dims.to_vec(), format: format.clone() }],
        format,
        constants: 0,
        body: vec![Instruction::Operand(0), Instruction::Unary(op, 0)],
        outputs: vec![(1, DType::F32)],
    })
}

const BINARIES: &[Binary] = &[
    Binary::Add,
    Binary::Sub,
    Binary::Mul,
    Binary::Div,
    Binary::Pow,
    Binary::Mod,
    Binary::Rem,
    Binary::Min,
    Binary::Max,
    Binary::PRelu,
    Binary::Equal,
    Binary::Less,
    Binary::LessOrEqual,
    Binary::Greater,
    Binary::GreaterOrEqual,
    Binary::And,
    Binary::Or,
    Binary::Xor,
];

fn binary(op: Binary, x: f32, y: f32) -> f32 {
    let truth = |b: bool| f32::from(u8::from(b));
    match op {
        Binary::Add => x + y,
        Binary::Sub => x - y,
        Binary::Mul => x * y,
        Binary::Div => x / y,
        Binary::Pow => x.powf(y),
        Binary::Mod => {
            let r = f64::from(x).rem_euclid(f64::from(y).abs());
            (if y < 0.0 && r > 0.0 { r + f64::from(y) } else { r }) as f32
        }
        Binary::Rem => x % y,
        Binary::Min if x.is_nan() || y.is_nan() => f32::NAN,
        Binary::Max if x.is_nan() || y.is_nan() => f32::NAN,
        Binary::Min => x.min(y),
        Binary::Max => x.max(y),
        Binary::PRelu => {
            if x < 0.0 {
                x * y
            } else {
                x
            }
        }
        Binary::Equal => truth(x == y),
        Binary::Less => truth(x < y),
        Binary::LessOrEqual => truth(x <= y),
        Binary::Greater => truth(x > y),
        Binary::GreaterOrEqual => truth(x >= y),
        Binary::And => truth(x != 0.0 && y != 0.0),
        Binary::Or => truth(x != 0.0 || y != 0.0),
        Binary::Xor => truth((x != 0.0) != (y != 0.0)),
        other => panic!("no reference for {other:?}"),
    }
}

#[test]
fn functions_of_two_values_are_exact() {
    let values = [0.0, -0.0, 1.0, -1.0, 2.0, -3.0, 0.25, 7.0, f32::NAN, f32::INFINITY, 1e10];
    let (mut x, mut y) = (Vec::new(), Vec::new());
    for &a in &values {
        for &b in &values {
            x.push(a);
            y.push(b);
        }
    }
    let dims = vec![x.len() as i64];
    let operand = || PointwiseOperand { dims: dims.clone(), format: F32 };
    for &op in BINARIES {
        let spec = Spec::Pointwise(PointwiseSpec {
            dims: dims.clone(),
            format: F32,
            operands: vec![operand(), operand()],
            constants: 0,
            body: vec![
                Instruction::Operand(0),
                Instruction::Operand(1),
                Instruction::Binary(op, 0, 1),
            ],
            outputs: vec![(2, DType::F32)],
        });
        let inputs =
            [(Tensor::of(&dims, &x), Layout::Plain), (Tensor::of(&dims, &y), Layout::Plain)];
        run_all(&spec, &inputs, &[], &[(dims.clone(), F32)], |what, found| {
            for (i, &f) in found[0].elements::<f32>().iter().enumerate() {
                let w = binary(op, x[i], y[i]);
                let infinite = matches!(op, Binary::Mod) && (y[i].is_infinite() || y[i] == 0.0);
                assert!(
                    f == w || (f.is_nan() && w.is_nan()) || infinite,
                    "{op:?}({}, {}) is {f}, needed {w}: {what}",
                    x[i],
                    y[i]
                );
            }
        });
    }
}

/// The dims with some set to 1 and some leading ones dropped.
fn shrink(dims: &[i64], bits: u8, keep_rank: bool) -> Vec<i64> {
    let mut out: Vec<i64> =
        dims.iter().enumerate().map(|(d, &n)| if bits >> d & 1 == 1 { 1 } else { n }).collect();
    while !keep_rank && out.len() > 1 && out[0] == 1 {
        out.remove(0);
    }
    out
}

proptest! {
    #![proptest_config(config(200))]

    #[test]
    fn operands_broadcast_in_every_layout(
        dims in prop::collection::vec(1..12i64, 1..5),
        c in 1..20i64,
        layout in 0..3u8, halo in 0..3u8,
        bits in any::<[u8; 3]>(), plain in any::<[bool; 3]>(), constants in 0..3usize,
        condition in any::<bool>(), write_bool in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let mut dims = dims;
        let format = match layout {
            1 | 2 if dims.len() >= 3 => {
                dims[1] = c;
                if layout == 1 { last(halo) } else { blocked(halo) }
            }
            _ => F32,
        };
        let image = format != F32;
        let mut rng = Rng(seed);
        let mut operands = Vec::new();
        let mut values = Vec::new();
        for k in 0..3 {
            let bits = if bits[k] & 64 != 0 { 0 } else { bits[k] };
            let own = image && !(plain[k] || k >= 3 - constants);
            let dims = shrink(&dims, bits, own);
            let bool = k == 0 && condition && !own;
            let dtype = if bool { DType::Bool } else { DType::F32 };
            // Small integers keep every sum and product exact.
            let list: Vec<f64> = (0..count(&dims)).map(|_| rng.below(if bool { 2 } else { 9 }) as f64).collect();
            values.push(Tensor::from_f64(dtype, &dims, &list));
            let layout = if own { format.layout.clone() } else { Layout::Plain };
            operands.push(PointwiseOperand { dims, format: Format { dtype, layout } });
        }
        let bool_out = write_bool && !image;
        let spec = PointwiseSpec {
            dims: dims.clone(), format: format.clone(), operands: operands.clone(), constants,
            body: vec![
                Instruction::Operand(0), Instruction::Operand(1), Instruction::Operand(2),
                Instruction::Constant(3.0), Instruction::Binary(Binary::Mul, 1, 3),
                Instruction::Binary(Binary::Add, 4, 2), Instruction::Select(0, 5, 1),
                Instruction::Binary(Binary::Less, 1, 2),
            ],
            outputs: if bool_out { vec![(6, DType::F32), (7, DType::Bool)] } else { vec![(6, DType::F32)] },
        };
        let at = |k: usize, index: &[i64]| {
            let d = values[k].dims();
            let skip = index.len() - d.len();
            let flat = d.iter().zip(&index[skip..]).fold(0, |at, (&n, &i)| at * n as usize + if n == 1 { 0 } else { i as usize });
            values[k].to_f64()[flat]
        };
        let mut wanted = [Vec::new(), Vec::new()];
        for index in indices(&dims) {
            let (p, q, r) = (at(0, &index), at(1, &index), at(2, &index));
            wanted[0].push(if p != 0.0 { 3.0 * q + r } else { q });
            wanted[1].push(f64::from(u8::from(q < r)));
        }
        let inputs: Vec<_> = values[..3 - constants].iter().zip(&operands)
            .map(|(t, o)| (t.clone(), o.format.layout.clone())).collect();
        let mut outputs = vec![(dims.clone(), format.clone())];
        if bool_out {
            outputs.push((dims.clone(), Format::plain(DType::Bool)));
        }
        run_all(&Spec::Pointwise(spec), &inputs, &values[3 - constants..], &outputs, |what, found| {
            for (f, w) in found.iter().zip(&wanted) {
                assert_eq!(&f.to_f64(), w, "{what}");
            }
        });
    }
}

#[test]
fn long_rows_are_split_among_threads() {
    let dims = [100_003];
    let mut rng = Rng(5);
    let x = rng.tensor(&dims);
    let spec = unary_spec(Unary::Affine { scale: 2.0, shift: 0.0 }, &dims, F32);
    run_all(&spec, &[(x.clone(), Layout::Plain)], &[], &[(dims.to_vec(), F32)], |_, found| {
        let doubled = x.to_f64().iter().map(|v| 2.0 * v).collect::<Vec<_>>();
        assert_eq!(found[0].to_f64(), doubled);
    });
}
