//! Primitives against the reference evaluator; only where BRICOLAGE_ONEDNN names the library.

use super::*;
use crate::trials::{self, Case, SETTING, drawn, here};
use bricolage_ir::{
    Real,
    ops::{self, Binary, Clip, MatMul},
};
use bricolage_tensor::{DType, Rng};

fn library() -> Option<OneDnn> {
    here(OneDnn::VARIABLE, |named| OneDnn::find(Some(named), None))
}

/// Adds up to an addition and up to two limits; the name of the pattern.
fn follow(case: &mut Case, rng: &mut Rng, out: &mut ValueId, pattern: &str) -> String {
    let mut pattern = pattern.to_owned();
    let dims = case.graph.fact(*out).ty.as_tensor().unwrap().shape.as_fixed().unwrap();
    for step in 0..3 {
        match (step, rng.below(2)) {
            (1, 1) => {
                let other = case.input(drawn(DType::F32, &dims, 4));
                *out = case.op(Binary::Add, &[*out, other]);
                pattern += "+add";
            }
            (0, 1) => {
                *out = case.op(ops::Unary::Relu, &[*out]);
                pattern += "+relu";
            }
            (2, 1) => {
                let limit = |v: f32| Some(Real::from(v));
                *out = case.op(Clip { min: limit(-0.5), max: limit(1.5) }, &[*out]);
                pattern += "+activation";
            }
            _ => {}
        }
    }
    pattern
}

#[test]
fn convolutions_of_all_forms_are_right_on_one_thread_and_several() {
    let Some(backend) = library() else { return };
    let mut rng = Rng::new(11);
    for number in 0..120 {
        let mut case = Case::new();
        let groups = [1, 1, 1, 2, 8][rng.below(5)];
        let (channels, filters) = match groups {
            1 => ([1, 3, 8, 20][rng.below(4)], [1, 5, 16, 24][rng.below(4)]),
            // One filter a channel, or two.
            8 => (8, 8 * (1 + rng.below(2) as i64)),
            _ => (2 * [1, 8][rng.below(2)], 2 * [3, 8][rng.below(2)]),
        };
        let filter = [[1, 1], [3, 3], [5, 1], [2, 3]][rng.below(4)];
        let (images, high, wide) =
            (1 + rng.below(3) as i64, 5 + rng.below(9) as i64, 5 + rng.below(9) as i64);
        let op = ops::Conv {
            strides: (0..2).map(|_| 1 + rng.below(3) as i64).collect(),
            dilations: vec![1 + rng.below(2) as i64, 1],
            pads: (0..2).map(|_| (rng.below(4) as i64, rng.below(4) as i64)).collect(),
            groups,
        };
        let x = case.input(drawn(DType::F32, &[images, channels, high, wide], number));
        let dims = [filters, channels / groups, filter[0], filter[1]];
        let w = case.constant(drawn(DType::F32, &dims, number + 1));
        let mut operands = vec![x, w];
        if rng.below(2) == 1 {
            operands.push(case.constant(drawn(DType::F32, &[filters], 3)));
        }
        // A window may be larger than the image.
        let Ok(mut out) = case.graph.add1(op, &operands, bricolage_ir::origin("conv")) else {
            continue;
        };
        let pattern = follow(&mut case, &mut rng, &mut out, "conv");
        for threads in 1..=3 {
            let setting = Setting { threads, ..SETTING };
            trials::check(&backend, &mut case, &[out], &[&pattern], &setting);
        }
    }
}

#[test]
fn products_of_all_forms_are_right_on_one_thread_and_several() {
    let Some(backend) = library() else { return };
    let mut rng = Rng::new(12);
    let sizes = [1, 3, 8, 33, 70];
    let batches: [(&[i64], &[i64]); 5] =
        [(&[], &[]), (&[3], &[]), (&[2, 3], &[2, 3]), (&[2, 1], &[3]), (&[5], &[1])];
    for number in 0..120 {
        let mut size = || sizes[rng.below(sizes.len())];
        let (m, k, n) = (size(), size(), size());
        let (ta, tb) = (rng.below(2) == 1, rng.below(2) == 1);
        let (a_batch, b_batch) = batches[rng.below(batches.len())];
        let constant = rng.below(2) == 1 && b_batch.iter().all(|&d| d == 1);
        let lie = |batch: &[i64], rows: i64, columns: i64, turned: bool| {
            [batch, &if turned { [columns, rows] } else { [rows, columns] }].concat()
        };
        let mut case = Case::new();
        let a = case.input(drawn(DType::F32, &lie(a_batch, m, k, ta), number));
        let right = drawn(DType::F32, &lie(b_batch, k, n, tb), number + 1);
        let b = if constant { case.constant(right) } else { case.input(right) };
        let mut out = case.op(MatMul { transpose_lhs: ta, transpose_rhs: tb }, &[a, b]);
        let mut pattern = "matmul".to_owned();
        if rng.below(2) == 1 {
            let bias = case.constant(drawn(DType::F32, &[n], 3));
            out = case.op(Binary::Add, &[out, bias]);
            pattern += "+bias";
        }
        let pattern = follow(&mut case, &mut rng, &mut out, &pattern);
        for threads in 1..=3 {
            let setting = Setting { threads, ..SETTING };
            trials::check(&backend, &mut case, &[out], &[&pattern], &setting);
        }
    }
}

#[test]
fn what_it_has_no_primitive_for_is_refused_in_words() {
    let backend = OneDnn { library: Err("not needed".to_owned()) };
    let mut case = Case::new();
    let x = case.input(drawn(DType::F32, &[1, 4, 9], 1));
    let w = case.constant(drawn(DType::F32, &[4, 4, 3], 1));
    let line = case.op(ops::Conv::plain(1), &[x, w]);
    let y = case.input(drawn(DType::F32, &[1, 4, 9, 9], 1));
    let v = case.input(drawn(DType::F32, &[4, 4, 3, 3], 1));
    let dynamic = case.op(ops::Conv::plain(2), &[y, v]);
    let double = case.input(drawn(DType::F64, &[4, 4], 1));
    let product = case.op(MatMul { transpose_lhs: false, transpose_rhs: false }, &[double, double]);
    for (value, words) in
        [(line, "two spatial dims"), (dynamic, "constant weights"), (product, "found f64")]
    {
        let exit = case.graph.producer(value).unwrap();
        let found = backend.propose(&case.graph, exit, &SETTING);
        assert!(found.candidates.is_empty());
        assert!(found.declined[0].why.contains(words), "{}", found.declined[0].why);
    }
}

#[test]
fn wrong_bodies_are_errors() {
    let Some(backend) = library() else { return };
    let mut case = Case::new();
    let x = case.input(drawn(DType::F32, &[1, 4, 5, 5], 1));
    let w = case.constant(drawn(DType::F32, &[4, 4, 3, 3], 1));
    let out = case.op(ops::Conv::plain(2), &[x, w]);
    case.graph.outputs = vec![out];
    let exit = case.graph.producer(out).unwrap();
    let candidate = backend.propose(&case.graph, exit, &SETTING).candidates.remove(0);
    let bound = backend.bind(&case.graph, &candidate, &SETTING).unwrap();
    assert!(backend.rebuild(&bound.kernel.recipe(), &[]).is_err());
    let mut recipe = bound.kernel.recipe();
    recipe.body.truncate(3);
    assert!(backend.rebuild(&recipe, &bound.built_in).is_err());
    let short =
        Packed { bytes: bricolage_tensor::Storage::copy_of(&[0; 8]), ..bound.built_in[0].clone() };
    assert!(backend.rebuild(&bound.kernel.recipe(), &[short]).is_err());
}
