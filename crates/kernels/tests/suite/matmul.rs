//! Matrix products against a naive reference.

use crate::harness::*;
use crate::reference::{MatMulData, matmul};
use bricolage_kernels::{MatMulKnobs, MatMulSpec, Post, Spec, Unary};
use bricolage_tensor::{Layout, Tensor};
use proptest::prelude::*;

fn check(spec: MatMulSpec, seed: u64) {
    let mut rng = Rng(seed);
    let dims = |lead: &[i64], r: i64, c: i64, swap: bool| -> Vec<i64> {
        let last = if swap { [c, r] } else { [r, c] };
        lead.iter().copied().chain(last).collect()
    };
    let a = rng.tensor(&dims(&spec.a_batch, spec.m, spec.k, spec.transpose_a));
    let b = rng.tensor(&dims(&spec.b_batch, spec.k, spec.n, spec.transpose_b));
    let out = dims(&spec.batch().unwrap(), spec.m, spec.n, false);
    let (bias, row_bias) = (rng.tensor(&[spec.n]), rng.tensor(&[spec.m]));
    let residual = rng.tensor(&out);
    let adds = spec.posts.contains(&Post::Add);
    let mut inputs = vec![(a.clone(), Layout::Plain)];
    let mut raw = Vec::new();
    if spec.constant_b {
        raw.push(b.clone());
    } else {
        inputs.push((b.clone(), Layout::Plain));
    }
    if adds {
        inputs.push((residual.clone(), Layout::Plain));
    }
    let mut constant = |used: bool, t: &Tensor| {
        if used {
            raw.push(t.clone());
        }
    };
    constant(spec.bias, &bias);
    constant(spec.row_bias, &row_bias);
    let addend = residual.elements::<f32>();
    let (wanted, tolerance) = matmul(
        &spec,
        &MatMulData {
            a: &a.elements(),
            b: &b.elements(),
            bias: &bias.elements(),
            row_bias: &row_bias.elements(),
            residual: if adds { &addend[..] } else { &[] },
        },
    );
    run_all(&Spec::MatMul(spec), &inputs, &raw, &[(out, F32)], |what, found| {
        assert_close(what, &found[0], &wanted, &tolerance);
    });
}

fn posts() -> impl Strategy<Value = Vec<Post>> {
    prop_oneof![
        Just(vec![]),
        Just(vec![Post::Unary(Unary::Relu)]),
        Just(vec![Post::Add, Post::Unary(Unary::Clip { min: 0.1, max: 0.7 })]),
        Just(vec![Post::Unary(Unary::Gelu)]),
        Just(vec![Post::Unary(Unary::Relu), Post::Add]),
        Just(vec![Post::Add, Post::Unary(Unary::Swish { alpha: 1.0 })]),
    ]
}

fn batches() -> impl Strategy<Value = (Vec<i64>, Vec<i64>)> {
    prop_oneof![
        4 => Just((vec![], vec![])),
        1 => Just((vec![3], vec![3])),
        1 => Just((vec![2, 3], vec![3])),
        1 => Just((vec![2, 1], vec![1, 3])),
        1 => Just((vec![], vec![2])),
    ]
}

proptest! {
    #![proptest_config(config(150))]

    #[test]
    fn products_are_right(
        (m, k, n) in (1..40i64, 1..70i64, 1..60i64),
        (a_batch, b_batch) in batches(),
        flags in any::<[bool; 5]>(),
        posts in posts(),
        knobs in (0..5u8, prop_oneof![Just(0u32), 1..40u32], prop_oneof![Just(0u32), 1..20u32], 0..50u32, 0..3u8),
        scaled in any::<bool>(),
        seed in any::<u64>(),
    ) {
        check(MatMulSpec {
            a_batch, b_batch, m, k, n,
            transpose_a: flags[0], transpose_b: flags[1], constant_b: flags[2],
            bias: flags[3], row_bias: flags[4],
            alpha: if scaled { 0.125 } else { 1.0 },
            posts,
            knobs: MatMulKnobs { vectors: knobs.0, k_block: knobs.1, m_block: knobs.2, n_block: knobs.3, pack_a: knobs.4 },
        }, seed);
    }
}

#[test]
fn blocks_larger_than_the_caches_are_right() {
    check(MatMulSpec { bias: true, ..MatMulSpec::new(130, 800, 100) }, 1);
    check(MatMulSpec::new(400, 1024, 50), 2);
    check(MatMulSpec::new(1, 300, 1000), 3);
    check(MatMulSpec { constant_b: false, ..MatMulSpec::new(60, 700, 410) }, 5);
    check(MatMulSpec { constant_b: false, transpose_b: true, ..MatMulSpec::new(30, 530, 410) }, 6);
    check(MatMulSpec { constant_b: false, ..MatMulSpec::new(500, 300, 100) }, 7);
    check(MatMulSpec { constant_b: false, ..MatMulSpec::new(2, 100, 333) }, 4);
}

#[test]
fn empty_products_are_right() {
    check(MatMulSpec { bias: true, ..MatMulSpec::new(3, 0, 5) }, 1);
    check(MatMulSpec::new(0, 4, 5), 2);
    check(MatMulSpec { constant_b: false, ..MatMulSpec::new(3, 0, 5) }, 3);
}

#[test]
fn impossible_products_are_refused_with_numbers() {
    let spec = MatMulSpec { a_batch: vec![2], b_batch: vec![3], ..MatMulSpec::new(1, 1, 1) };
    let error = Spec::MatMul(spec).build(bricolage_kernels::Isa::Portable).err().unwrap();
    assert_eq!(error.to_string(), "`MatMul` needs leading dims that broadcast, found [2] and [3]");
}
