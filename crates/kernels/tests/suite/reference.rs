//! Naive references in `f64`, written apart from the kernels.
#![allow(dead_code, missing_docs, unreachable_pub)]

use crate::harness::{U, count, indices};
use bricolage_kernels::{ConvSpec, MatMulSpec, Post, Unary};

/// A value and the sum of the magnitudes that went into it.
#[derive(Clone, Copy, Default)]
pub struct Sum {
    pub value: f64,
    pub size: f64,
}

impl Sum {
    pub fn add(&mut self, x: f64) {
        self.value += x;
        self.size += x.abs();
    }
}

/// The function of an ONNX operator.
pub fn unary(op: Unary, x: f64) -> f64 {
    let f = f64::from;
    if x.is_nan() && !matches!(op, Unary::Not | Unary::IsNaN | Unary::IsInf { .. }) {
        return x;
    }
    let logistic = |x: f64| 1.0 / (1.0 + (-x).exp());
    match op {
        Unary::Neg => -x,
        Unary::Abs => x.abs(),
        Unary::Sign => {
            if x == 0.0 || x.is_nan() {
                x
            } else {
                x.signum()
            }
        }
        Unary::Ceil => x.ceil(),
        Unary::Floor => x.floor(),
        Unary::Round => x.round_ties_even(),
        Unary::Trunc => x.trunc(),
        Unary::Sqrt => x.sqrt(),
        Unary::Rsqrt => 1.0 / x.sqrt(),
        Unary::Reciprocal => 1.0 / x,
        Unary::Square => x * x,
        Unary::Exp => x.exp(),
        Unary::Log => x.ln(),
        Unary::Erf => erf(x),
        Unary::Tanh => x.tanh(),
        Unary::Sigmoid => logistic(x),
        Unary::Relu => {
            if x < 0.0 {
                0.0
            } else {
                x
            }
        }
        Unary::LeakyRelu { alpha } => {
            if x < 0.0 {
                f(alpha) * x
            } else {
                x
            }
        }
        Unary::ThresholdedRelu { alpha } => {
            if x <= f(alpha) {
                0.0
            } else {
                x
            }
        }
        Unary::Elu { alpha } => {
            if x < 0.0 {
                f(alpha) * x.exp_m1()
            } else {
                x
            }
        }
        Unary::Celu { alpha } => x.max(0.0) + (f(alpha) * (x / f(alpha)).exp_m1()).min(0.0),
        Unary::Selu { alpha, gamma } => f(gamma) * if x <= 0.0 { f(alpha) * x.exp_m1() } else { x },
        Unary::Clip { min, max } => {
            if x.is_nan() {
                x
            } else {
                x.max(f(min)).min(f(max))
            }
        }
        Unary::HardSigmoid { alpha, beta } => (f(alpha) * x + f(beta)).clamp(0.0, 1.0),
        Unary::HardSwish => x * (x / 6.0 + 0.5).clamp(0.0, 1.0),
        Unary::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
        Unary::Softsign => x / (1.0 + x.abs()),
        Unary::Gelu => 0.5 * x * (1.0 + erf(x / 2f64.sqrt())),
        Unary::GeluTanh => {
            let t = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            0.5 * x * (1.0 + t.tanh())
        }
        Unary::Swish { alpha } => x * logistic(f(alpha) * x),
        Unary::Mish => x * (x.max(0.0) + (-x.abs()).exp().ln_1p()).tanh(),
        Unary::Affine { scale, shift } => f(scale) * x + f(shift),
        Unary::Sin => x.sin(),
        Unary::Cos => x.cos(),
        Unary::Tan => x.tan(),
        Unary::Asin => x.asin(),
        Unary::Acos => x.acos(),
        Unary::Atan => x.atan(),
        Unary::Sinh => x.sinh(),
        Unary::Cosh => x.cosh(),
        Unary::Asinh => x.asinh(),
        Unary::Acosh => x.acosh(),
        Unary::Atanh => x.atanh(),
        Unary::Not => f64::from(u8::from(x == 0.0)),
        Unary::IsNaN => f64::from(u8::from(x.is_nan())),
        Unary::IsInf { negative, positive } => {
            f64::from(u8::from(x.is_infinite() && if x < 0.0 { negative } else { positive }))
        }
        other => panic!("no reference for {other:?}"),
    }
}

/// The error function by its Taylor series, or the continued fraction of its complement.
pub fn erf(x: f64) -> f64 {
    if x.abs() > 6.0 || x.is_nan() {
        return if x.is_nan() { x } else { x.signum() };
    }
    if x.abs() < 2.5 {
        let (mut term, mut sum) = (x, x);
        for n in 1..80 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        return sum * 2.0 / std::f64::consts::PI.sqrt();
    }
    let a = x.abs();
    let mut fraction = a;
    for n in (1..100).rev() {
        fraction = a + f64::from(n) / 2.0 / fraction;
    }
    x.signum() * (1.0 - (-a * a).exp() / (fraction * std::f64::consts::PI.sqrt()))
}

/// Applies an epilogue to a sum of `terms` products; gives the value and how far `f32` may be off:
/// `terms + 2` roundings of the magnitudes, then at most a factor of 1.2 (the steepest slope of the
/// functions used in epilogues) and 2e-6 relative to 1 + |y| a function.
pub fn finish(sum: Sum, terms: usize, residual: Option<f64>, posts: &[Post]) -> (f64, f64) {
    let mut y = sum.value;
    let mut tolerance = (terms + 2) as f64 * U * sum.size;
    for post in posts {
        match post {
            Post::Add => {
                y += residual.unwrap();
                tolerance += U * y.abs() + U * residual.unwrap().abs();
            }
            Post::Unary(op) => {
                y = unary(*op, y);
                tolerance = 1.2 * tolerance + 2e-6 * (1.0 + y.abs());
            }
        }
    }
    (y, tolerance + 1e-30)
}

fn broadcast(index: &[i64], dims: &[i64]) -> usize {
    let skip = index.len() - dims.len();
    dims.iter()
        .zip(&index[skip..])
        .fold(0, |at, (&d, &i)| at * d as usize + if d == 1 { 0 } else { i as usize })
}

#[derive(Default)]
pub struct MatMulData<'a> {
    pub a: &'a [f32],
    pub b: &'a [f32],
    pub bias: &'a [f32],
    pub row_bias: &'a [f32],
    pub residual: &'a [f32],
}

pub fn matmul(spec: &MatMulSpec, d: &MatMulData<'_>) -> (Vec<f64>, Vec<f64>) {
    let batch = spec.batch().unwrap();
    let (m, k, n) = (spec.m as usize, spec.k as usize, spec.n as usize);
    let mut out = Vec::new();
    for index in indices(&batch) {
        let a0 = broadcast(&index, &spec.a_batch) * m * k;
        let b0 = broadcast(&index, &spec.b_batch) * k * n;
        for i in 0..m {
            for j in 0..n {
                let mut sum = Sum::default();
                for p in 0..k {
                    let a = if spec.transpose_a { p * m + i } else { i * k + p };
                    let b = if spec.transpose_b { j * k + p } else { p * n + j };
                    sum.add(
                        f64::from(spec.alpha) * f64::from(d.a[a0 + a]) * f64::from(d.b[b0 + b]),
                    );
                }
                if spec.bias {
                    sum.add(f64::from(d.bias[j]));
                }
                if spec.row_bias {
                    sum.add(f64::from(d.row_bias[i]));
                }
                let residual = d.residual.get(out.len()).map(|&r| f64::from(r));
                out.push(finish(sum, k + 2, residual, &spec.posts));
            }
        }
    }
    out.into_iter().unzip()
}

/// Sums of a convolution before the epilogue, in row-major order of the output.
pub fn conv_sums(spec: &ConvSpec, x: &[f32], w: &[f32], bias: &[f32]) -> Vec<Sum> {
    let dims = spec.output_dims().unwrap();
    let flat = spec.input.len() == 3;
    let four = |d: &[i64]| if flat { [d[0], d[1], 1, d[2]] } else { [d[0], d[1], d[2], d[3]] };
    let two = |d: &[i64], none: i64| if flat { [none, d[0]] } else { [d[0], d[1]] };
    let (i, o) = (four(&spec.input), four(&dims));
    let (k, s) = (two(&spec.kernel, 1), two(&spec.strides, 1));
    let (d, p) = (two(&spec.dilations, 1), two(&spec.pads, 0));
    let p = if flat { [0, spec.pads[0]] } else { p };
    let (ig, og) = (i[1] / spec.groups, o[1] / spec.groups);
    let mut sums = vec![Sum::default(); count(&o)];
    let at = |d: &[i64; 4], n: i64, c: i64, y: i64, x: i64| {
        (((n * d[1] + c) * d[2] + y) * d[3] + x) as usize
    };
    for n in 0..i[0] {
        for oc in 0..o[1] {
            for c in 0..ig {
                let ic = oc / og * ig + c;
                for ky in 0..k[0] {
                    for kx in 0..k[1] {
                        let (first, second, of) =
                            if spec.transposed { (ic, oc % og, og) } else { (oc, c, ig) };
                        let weight = w[(((first * of + second) * k[0] + ky) * k[1] + kx) as usize];
                        if spec.transposed {
                            for iy in 0..i[2] {
                                for ix in 0..i[3] {
                                    let oy = iy * s[0] + ky * d[0] - p[0];
                                    let ox = ix * s[1] + kx * d[1] - p[1];
                                    if (0..o[2]).contains(&oy) && (0..o[3]).contains(&ox) {
                                        let v = x[at(&i, n, ic, iy, ix)];
                                        sums[at(&o, n, oc, oy, ox)]
                                            .add(f64::from(v) * f64::from(weight));
                                    }
                                }
                            }
                            continue;
                        }
                        for oy in 0..o[2] {
                            for ox in 0..o[3] {
                                let iy = oy * s[0] + ky * d[0] - p[0];
                                let ix = ox * s[1] + kx * d[1] - p[1];
                                if (0..i[2]).contains(&iy) && (0..i[3]).contains(&ix) {
                                    let v = x[at(&i, n, ic, iy, ix)];
                                    sums[at(&o, n, oc, oy, ox)]
                                        .add(f64::from(v) * f64::from(weight));
                                }
                            }
                        }
                    }
                }
            }
            if !bias.is_empty() {
                for y in 0..o[2] {
                    for x in 0..o[3] {
                        sums[at(&o, n, oc, y, x)].add(f64::from(bias[oc as usize]));
                    }
                }
            }
        }
    }
    sums
}
