//! Softmax, normalisation, reductions and attention.

use crate::harness::*;
use bricolage_kernels::{AttentionSpec, NormSpec, ReduceOp, ReduceSpec, SoftmaxSpec, Spec};
use bricolage_tensor::{Layout, Tensor};
use proptest::prelude::*;

/// Positions of every line along `axis`.
fn lines(dims: &[i64], axis: usize) -> Vec<Vec<usize>> {
    let inner = count(&dims[axis + 1..]);
    let n = dims[axis] as usize;
    let mut all = Vec::new();
    for outer in 0..count(&dims[..axis]) {
        for i in 0..inner {
            all.push((0..n).map(|k| (outer * n + k) * inner + i).collect());
        }
    }
    all
}

fn softmax(x: &[f64], log: bool) -> Vec<f64> {
    let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = x.iter().map(|v| (v - max).exp()).sum();
    x.iter().map(|v| if log { v - max - sum.ln() } else { (v - max).exp() / sum }).collect()
}

#[test]
fn softmax_of_one_element_is_exact() {
    // Neighbouring elements along the axis, and columns side by side.
    for (dims, axis) in [(vec![5i64, 1], 1), (vec![2, 1, 11], 1), (vec![1, 3], 0)] {
        let x = [-3.5f32, 0.0, 1e-30, 7.25, 20000.0].into_iter().cycle();
        let x = Tensor::of(&dims, &x.take(count(&dims)).collect::<Vec<f32>>());
        for (log, wanted) in [(false, 1f32), (true, 0.0)] {
            let spec = Spec::Softmax(SoftmaxSpec { dims: dims.clone(), axis, log });
            let inputs = [(x.clone(), Layout::Plain)];
            run_all(&spec, &inputs, &[], &[(dims.clone(), F32)], |what, found| {
                assert!(found[0].elements::<f32>().iter().all(|&y| y == wanted), "{what}");
            });
        }
    }
}

#[test]
fn a_large_shift_costs_no_digits_of_the_logarithm() {
    // Exact in f32: elements that differ by 1 far from 0.
    for dims in [vec![1i64, 9], vec![9, 2]] {
        let axis = usize::from(dims[0] == 1);
        let inner = if axis == 1 { 1 } else { 2 };
        let x: Vec<f32> = (0..count(&dims)).map(|i| 1e6 + (i / inner) as f32).collect();
        let small: Vec<f64> = (0..9).map(f64::from).collect();
        let line = softmax(&small, true);
        let wanted: Vec<f64> = (0..x.len()).map(|i| line[i / inner]).collect();
        let tolerance: Vec<f64> = wanted.iter().map(|y| 25.0 * U * (1.0 + y.abs())).collect();
        let spec = Spec::Softmax(SoftmaxSpec { dims: dims.clone(), axis, log: true });
        let inputs = [(Tensor::of(&dims, &x), Layout::Plain)];
        run_all(&spec, &inputs, &[], &[(dims.clone(), F32)], |what, found| {
            assert_close(what, &found[0], &wanted, &tolerance);
        });
    }
}

proptest! {
    #![proptest_config(config(80))]

    #[test]
    fn softmax_is_right(
        dims in prop::collection::vec(1..50i64, 1..4), axis in 0..3usize, log in any::<bool>(),
        spread in prop_oneof![Just(1f32), Just(30.0), Just(200.0)], masked in any::<bool>(), seed in any::<u64>(),
    ) {
        let axis = axis % dims.len();
        let mut rng = Rng(seed);
        let mut x: Vec<f32> = rng.floats(&dims).iter().map(|v| v * spread).collect();
        if masked {
            for line in lines(&dims, axis) {
                for &i in &line[1..] {
                    if rng.below(3) == 0 {
                        x[i] = f32::NEG_INFINITY;
                    }
                }
            }
        }
        let mut wanted = vec![0.0; x.len()];
        for line in lines(&dims, axis) {
            let values: Vec<f64> = line.iter().map(|&i| f64::from(x[i])).collect();
            for (&i, y) in line.iter().zip(softmax(&values, log)) {
                wanted[i] = y;
            }
        }
        // The argument of an exponential is rounded once to f32, which moves the result by that much;
        // then a sum of n terms.
        let n = dims[axis] as f64;
        let tolerance: Vec<f64> = wanted.iter().map(|y| {
            let relative = (2.0 * f64::from(spread) + n + 16.0) * U;
            if log { relative * (1.0 + y.abs().min(1e30)) } else { relative * y + 1.2e-38 }
        }).collect();
        let spec = Spec::Softmax(SoftmaxSpec { dims: dims.clone(), axis, log });
        let inputs = [(Tensor::of(&dims, &x), Layout::Plain)];
        run_all(&spec, &inputs, &[], &[(dims.clone(), F32)], |what, found| {
            assert_close(what, &found[0], &wanted, &tolerance);
        });
    }

    #[test]
    fn norm_is_right(
        dims in prop::collection::vec(1..40i64, 1..4), axis in 0..3usize,
        flags in any::<[bool; 5]>(), offset in prop_oneof![Just(0f32), Just(3.0)], seed in any::<u64>(),
    ) {
        let axis = axis % dims.len();
        let [rms, scale, bias, residual, keep_sum] = flags;
        let spec = NormSpec {
            dims: dims.clone(), axis, epsilon: 1e-5, rms, scale, bias, residual,
            keep_sum: keep_sum && residual,
        };
        let mut rng = Rng(seed);
        let x: Vec<f32> = rng.floats(&dims).iter().map(|v| v + offset).collect();
        let r = rng.floats(&dims);
        let (g, b) = (rng.tensor(&dims[axis..]), rng.tensor(&dims[axis..]));
        let n = count(&dims[axis..]);
        let mut wanted = Vec::new();
        let mut tolerance = Vec::new();
        let mut sums = Vec::new();
        for (row, chunk) in x.chunks(n).enumerate() {
            let v: Vec<f64> = chunk.iter().enumerate()
                .map(|(i, &v)| f64::from(v) + if residual { f64::from(r[row * n + i]) } else { 0.0 }).collect();
            sums.extend(v.iter().copied());
            let most = v.iter().fold(0f64, |m, v| m.max(v.abs()));
            let mean = if rms { 0.0 } else { v.iter().sum::<f64>() / n as f64 };
            let variance = v.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n as f64;
            let factor = 1.0 / (variance + 1e-5).sqrt();
            for (i, v) in v.iter().enumerate() {
                let s = if scale { f64::from(g.elements::<f32>()[i]) } else { 1.0 };
                let t = if bias { f64::from(b.elements::<f32>()[i]) } else { 0.0 };
                let y = (v - mean) * factor;
                wanted.push(y * s + t);
                // The mean is off by up to n/2 roundings of the largest value, and the variance by the
                // square of that and as many roundings of its own.
                let shift = (n as f64 / 2.0 + 4.0) * U * most;
                let drift = (n as f64 / 2.0 + 8.0) * U + shift * shift * factor * factor;
                tolerance.push(((shift * factor + y.abs() * (drift + shift * factor)) * s.abs() + 4.0 * U * (y * s).abs() + U * t.abs()) * 1.01 + 1e-9);
            }
        }
        let mut inputs = vec![(Tensor::of(&dims, &x), Layout::Plain)];
        if residual {
            inputs.push((Tensor::of(&dims, &r), Layout::Plain));
        }
        let mut raw = Vec::new();
        if scale { raw.push(g.clone()); }
        if bias { raw.push(b.clone()); }
        let outputs = vec![(dims.clone(), F32); 1 + usize::from(spec.keep_sum)];
        run_all(&Spec::Norm(spec), &inputs, &raw, &outputs, |what, found| {
            assert_close(what, &found[0], &wanted, &tolerance);
            if let Some(sum) = found.get(1) {
                let tolerance: Vec<f64> = sums.iter().map(|s| U * s.abs()).collect();
                assert_close(what, sum, &sums, &tolerance);
            }
        });
    }

    #[test]
    fn reductions_are_right(
        dims in prop::collection::vec(1..20i64, 1..5), bits in 0..16u8, keep_dims in any::<bool>(),
        op in prop::sample::select(vec![
            ReduceOp::Sum, ReduceOp::Mean, ReduceOp::Max, ReduceOp::Min, ReduceOp::Prod, ReduceOp::L1,
            ReduceOp::L2, ReduceOp::SumSquare, ReduceOp::LogSum,
        ]),
        wide in any::<bool>(), seed in any::<u64>(),
    ) {
        let mut dims = dims;
        if wide {
            let last = dims.len() - 1;
            dims[last] *= 9;
        }
        let axes: Vec<usize> = (0..dims.len()).filter(|d| bits >> d & 1 == 1).collect();
        let spec = ReduceSpec { dims: dims.clone(), axes: axes.clone(), keep_dims, op };
        let mut rng = Rng(seed);
        let base = if op == ReduceOp::Prod { 1.0 } else if op == ReduceOp::LogSum { 0.6 } else { 0.0 };
        let x: Vec<f32> = rng.floats(&dims).iter().map(|v| v * if op == ReduceOp::Prod { 0.1 } else { 1.0 } + base).collect();
        let out = ReduceSpec { keep_dims: true, ..spec.clone() }.output_dims();
        let mut groups: Vec<Vec<f64>> = vec![Vec::new(); count(&out)];
        for (i, index) in indices(&dims).enumerate() {
            let at = index.iter().zip(&out).fold(0, |at, (&i, &n)| at * n as usize + if n == 1 { 0 } else { i as usize });
            groups[at].push(f64::from(x[i]));
        }
        let (wanted, tolerance): (Vec<f64>, Vec<f64>) = groups.iter().map(|g| {
            let n = g.len() as f64;
            let magnitude: f64 = g.iter().map(|v| v.abs()).sum();
            let sum: f64 = g.iter().sum();
            let squares: f64 = g.iter().map(|v| v * v).sum();
            let e = (n + 4.0) * U;
            match op {
                ReduceOp::Sum => (sum, e * magnitude),
                ReduceOp::Mean => (sum / n, e * magnitude / n),
                ReduceOp::Max => (g.iter().copied().fold(f64::NEG_INFINITY, f64::max), 0.0),
                ReduceOp::Min => (g.iter().copied().fold(f64::INFINITY, f64::min), 0.0),
                ReduceOp::Prod => { let p: f64 = g.iter().product(); (p, e * p.abs()) }
                ReduceOp::L1 => (magnitude, e * magnitude),
                ReduceOp::L2 => (squares.sqrt(), e * squares.sqrt()),
                ReduceOp::SumSquare => (squares, e * squares),
                _ => (sum.ln(), e * magnitude / sum + 4.0 * U * sum.ln().abs() + 1e-7),
            }
        }).unzip();
        let outputs = [(spec.output_dims(), F32)];
        let inputs = [(Tensor::of(&dims, &x), Layout::Plain)];
        run_all(&Spec::Reduce(spec), &inputs, &[], &outputs, |what, found| {
            assert_close(what, &found[0], &wanted, &tolerance);
        });
    }

    #[test]
    fn attention_is_right(
        (batch, key_heads, share) in (1..3i64, 1..3i64, 1..3i64),
        (queries, keys) in prop_oneof![(1..70i64, 1..70i64), (1..40i64, 250..600i64)],
        (depth, value_depth) in (1..20i64, 1..40i64),
        mask in prop::option::of(0..16u8), causal in any::<bool>(), seed in any::<u64>(),
    ) {
        let heads = key_heads * share;
        let scores = [batch, heads, queries, keys];
        let mask = mask.map(|bits| (0..4).map(|d| if bits >> d & 1 == 1 { 1 } else { scores[d] }).collect::<Vec<i64>>());
        let spec = AttentionSpec {
            batch, heads, key_heads, queries, keys, depth, value_depth, scale: 0.7,
            mask: mask.clone(), causal: causal && keys >= queries,
        };
        let mut rng = Rng(seed);
        let q = rng.tensor(&[batch, heads, queries, depth]);
        let k = rng.tensor(&[batch, key_heads, keys, depth]);
        let v = rng.tensor(&[batch, key_heads, keys, value_depth]);
        let mut m = rng.floats(mask.as_deref().unwrap_or(&[1, 1, 1, 1]));
        for (i, m) in m.iter_mut().enumerate() {
            // Never a whole row: the first key stays visible.
            if i % 7 == 3 && (i as i64) % keys != 0 && mask.as_ref().is_some_and(|d| d[3] == keys) {
                *m = f32::NEG_INFINITY;
            }
        }
        let mut inputs: Vec<_> = [&q, &k, &v].into_iter().map(|t| (t.clone(), Layout::Plain)).collect();
        if let Some(d) = &mask {
            inputs.push((Tensor::of(d, &m), Layout::Plain));
        }
        let (qs, ks, vs) = (q.to_f64(), k.to_f64(), v.to_f64());
        let mut wanted = Vec::new();
        for b in 0..batch { for h in 0..heads { for i in 0..queries {
            let kh = b * key_heads + h / share;
            let mut row = Vec::new();
            for j in 0..keys {
                let dot: f64 = (0..depth).map(|d| {
                    qs[(((b * heads + h) * queries + i) * depth + d) as usize] * ks[((kh * keys + j) * depth + d) as usize]
                }).sum();
                let mut s = dot * f64::from(0.7f32);
                if let Some(d) = &mask {
                    let at = [b, h, i, j].iter().zip(d).fold(0, |at, (&i, &n)| at * n + if n == 1 { 0 } else { i });
                    s += f64::from(m[at as usize]);
                }
                if spec.causal && j > i + keys - queries { s = f64::NEG_INFINITY; }
                row.push(s);
            }
            let p = softmax(&row, false);
            for d in 0..value_depth {
                wanted.push((0..keys).map(|j| p[j as usize] * vs[((kh * keys + j) * value_depth + d) as usize]).sum::<f64>());
            }
        } } }
        // Scores are off by depth + 8 roundings of at most 0.7 depth / 4 + 1/2, and so, relatively, is each
        // weight; then sums over the keys of values below 1/2, in blocks that are rescaled.
        let relative = (depth as f64 + 8.0) * (0.175 * depth as f64 + 0.5) + 2.0 * keys as f64 + 40.0;
        let tolerance = vec![relative * U * 0.5; wanted.len()];
        let outputs = [(vec![batch, heads, queries, value_depth], F32)];
        run_all(&Spec::Attention(spec), &inputs, &[], &outputs, |what, found| {
            assert_close(what, &found[0], &wanted, &tolerance);
        });
    }
}
