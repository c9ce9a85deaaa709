//! Spectra, determinants, running products and recurrent attention against their definitions.
#![allow(clippy::unwrap_used)] // a panic is how a test fails, also in the functions that tests share

use bricolage_ir::{Inputs, Op, Real, ops::*};
use bricolage_tensor::{DType, Datum, Dim, Rng, Tensor};
use std::f64::consts::TAU;

fn run(op: impl Into<Op>, inputs: &[Option<&Tensor>]) -> Vec<Tensor> {
    let data: Vec<Option<Datum>> = inputs.iter().map(|t| t.map(|t| t.clone().into())).collect();
    let refs: Vec<Option<&Datum>> = data.iter().map(Option::as_ref).collect();
    let results = op.into().eval(&Inputs(&refs)).unwrap();
    results.iter().map(|d| d.as_tensor().unwrap().clone()).collect()
}

fn normal(dims: &[i64], seed: u64) -> Tensor {
    let mut rng = Rng::new(seed);
    Tensor::generate(DType::F64, dims, |_| rng.normal())
}

/// Sums of at most 2^6 products of numbers below 2^3.
fn assert_close(found: &[f64], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (i, (a, b)) in found.iter().zip(expected).enumerate() {
        assert!((a - b).abs() < 2f64.powi(-38), "{what}: element {i}: {a} is not {b}");
    }
}

/// Element `k` of the transform of complex numbers, straight from the definition.
fn term(x: &[(f64, f64)], k: usize, sign: f64) -> (f64, f64) {
    let n = x.len() as f64;
    x.iter().enumerate().fold((0.0, 0.0), |(re, im), (i, &(a, b))| {
        let angle = sign * TAU * k as f64 * i as f64 / n;
        let (c, s) = (angle.cos(), angle.sin());
        (re + a * c - b * s, im + a * s + b * c)
    })
}

fn dft(length: i64, inverse: bool, one_sided: bool) -> Dft {
    Dft { axis: 0, length: Dim::from(length), inverse, one_sided }
}

#[test]
fn transforms_are_those_of_the_definition() {
    for length in 1..=33usize {
        // Shorter operands are padded, longer ones cut.
        for given in [length, length / 2 + 1, length + 3] {
            let x = normal(&[given as i64, 2], length as u64);
            let v = x.to_f64();
            let mut padded: Vec<(f64, f64)> = v.chunks(2).map(|c| (c[0], c[1])).collect();
            padded.resize(length, (0.0, 0.0));
            let what = format!("{given} of {length}");
            for (inverse, sign) in [(false, -1.0), (true, 1.0)] {
                let by = if inverse { length as f64 } else { 1.0 };
                let expected: Vec<f64> = (0..length)
                    .map(|k| term(&padded, k, sign))
                    .flat_map(|(re, im)| [re / by, im / by])
                    .collect();
                let found = run(dft(length as i64, inverse, false), &[Some(&x)]).remove(0);
                assert_close(&found.to_f64(), &expected, &what);
            }
        }
    }
}

#[test]
fn half_of_a_real_spectrum_is_enough() {
    for length in 1..=24i64 {
        let x = normal(&[length, 1], 3);
        let half = run(dft(length, false, true), &[Some(&x)]).remove(0);
        assert_eq!(half.dims(), [length / 2 + 1, 2]);
        let whole = run(dft(length, false, false), &[Some(&x)]).remove(0);
        assert_close(&half.to_f64(), &whole.to_f64()[..half.len()], "the first half");
        let back = run(dft(length, true, true), &[Some(&half)]).remove(0);
        assert_eq!(back.dims(), x.dims());
        assert_close(&back.to_f64(), &x.to_f64(), "there and back");
    }
}

#[test]
fn determinants_are_sums_over_permutations() {
    fn by_minors(m: &[f64], n: usize) -> f64 {
        if n == 1 {
            return m[0];
        }
        let minor = |column: usize| -> Vec<f64> {
            (1..n)
                .flat_map(|r| (0..n).filter(|c| *c != column).map(move |c| m[r * n + c]))
                .collect()
        };
        let sign = |c: usize| if c.is_multiple_of(2) { 1.0 } else { -1.0 };
        (0..n).map(|c| sign(c) * m[c] * by_minors(&minor(c), n - 1)).sum()
    }
    for n in 1..=5usize {
        let x = normal(&[3, n as i64, n as i64], n as u64);
        let expected: Vec<f64> = x.to_f64().chunks(n * n).map(|m| by_minors(m, n)).collect();
        assert_close(&run(Det, &[Some(&x)])[0].to_f64(), &expected, "minors");
    }
    let singular = Tensor::of(&[2, 2], &[1f32, 2.0, 2.0, 4.0]);
    assert_eq!(run(Det, &[Some(&singular)])[0].to_f64(), [0.0]);
    let swapped = Tensor::of(&[2, 2], &[0f32, 1.0, 1.0, 0.0]);
    assert_eq!(run(Det, &[Some(&swapped)])[0].to_f64(), [-1.0]);
}

#[test]
fn products_run_both_ways() {
    let x = Tensor::of(&[4], &[2i32, 3, 4, 5]);
    for (exclusive, reverse, expected) in [
        (false, false, [2, 6, 24, 120]),
        (true, false, [1, 2, 6, 24]),
        (false, true, [120, 60, 20, 5]),
        (true, true, [60, 20, 5, 1]),
    ] {
        let found =
            run(Running { kind: RunningKind::Product, axis: 0, exclusive, reverse }, &[Some(&x)])
                .remove(0);
        assert_eq!(found.to_i64(), expected);
    }
    let wraps = Tensor::of(&[2], &[i32::MAX, 2]);
    let op = Running { kind: RunningKind::Product, axis: 0, exclusive: false, reverse: false };
    assert_eq!(run(op, &[Some(&wraps)])[0].to_i64()[1], -2);
}

/// Without decay, the state adds up all keys and values so far: what attention without a softmax does.
#[test]
fn plain_updates_are_unnormalised_attention() {
    let (t, dk, dv) = (5usize, 3usize, 2usize);
    let (q, k) = (normal(&[1, t as i64, 2 * dk as i64], 1), normal(&[1, t as i64, dk as i64], 2));
    let v = normal(&[1, t as i64, dv as i64], 3);
    let (qs, ks, vs) = (q.to_f64(), k.to_f64(), v.to_f64());
    let mut expected = Vec::new();
    for i in 0..t {
        for head in 0..2 {
            for j in 0..dv {
                let mut sum = 0.0;
                for p in 0..=i {
                    let score: f64 =
                        (0..dk).map(|d| qs[(i * 2 + head) * dk + d] * ks[p * dk + d]).sum();
                    sum += score * vs[p * dv + j];
                }
                expected.push(0.5 * sum);
            }
        }
    }
    let op = LinearAttention { heads: 2, kv_heads: 1, update: Update::Add, scale: Real::new(0.5) };
    let whole = run(op, &[Some(&q), Some(&k), Some(&v)]);
    assert_close(&whole[0].to_f64(), &expected, "attention");
    // Decays by a factor of e^g at every step weigh a value of `n` steps ago by e^(g n).
    let decay = Tensor::generate(DType::F64, &[1, t as i64, 1], |_| -0.3);
    let gated = run(op, &[Some(&q), Some(&k), Some(&v), None, Some(&decay)]);
    let last = t - 1;
    let mut state = vec![0.0; dk * dv];
    for p in 0..t {
        for d in 0..dk {
            for j in 0..dv {
                state[d * dv + j] +=
                    (-0.3 * (last - p) as f64).exp() * ks[p * dk + d] * vs[p * dv + j];
            }
        }
    }
    assert_close(&gated[1].to_f64(), &state, "state");
}

/// A rate of 1 and keys of length 1 make the state give back the last value for its key.
#[test]
fn corrections_store_the_value_of_a_key() {
    let (dk, dv) = (4i64, 3i64);
    let key = normal(&[1, 1, dk], 5);
    let length = key.to_f64().iter().map(|v| v * v).sum::<f64>().sqrt();
    let key = Tensor::generate(DType::F64, &[1, 1, dk], |i| key.to_f64()[i] / length);
    let (value, past) = (normal(&[1, 1, dv], 6), normal(&[1, 1, dk, dv], 7));
    let op =
        LinearAttention { heads: 1, kv_heads: 1, update: Update::Correct, scale: Real::new(1.0) };
    let rate = Tensor::of(&[1, 1, 1], &[1f64]);
    let found = run(op, &[Some(&key), Some(&key), Some(&value), Some(&past), None, Some(&rate)]);
    assert_close(&found[0].to_f64(), &value.to_f64(), "what was stored");
    let none = Tensor::of(&[1, 1, 1], &[0f64]);
    let found = run(op, &[Some(&key), Some(&key), Some(&value), Some(&past), None, Some(&none)]);
    assert_close(&found[1].to_f64(), &past.to_f64(), "a rate of 0");
}
