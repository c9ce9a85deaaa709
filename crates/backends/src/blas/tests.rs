//! Products against the reference evaluator; only where BRICOLAGE_BLAS names the library.

use super::*;
use crate::trials::{self, Case, SETTING, drawn, here, run};
use bricolage_ir::ops::{Binary, MatMul, Unary};
use bricolage_runtime::RunError;
use bricolage_tensor::{DType, Format, Rng, Tensor};

fn library() -> Option<Blas> {
    here(Blas::VARIABLE, |named| Blas::find(Some(named), None))
}

/// Dims of a factor of `batch`, `rows` and `columns`.
fn lie(batch: &[i64], rows: i64, columns: i64, turned: bool) -> Vec<i64> {
    let pair = if turned { [columns, rows] } else { [rows, columns] };
    [batch, &pair].concat()
}

/// What follows a product.
#[derive(Clone, Copy, Debug, PartialEq)]
enum After {
    Nothing,
    Bias,
    Sum,
    Both,
}

#[test]
fn products_of_all_forms_are_right_on_one_thread_and_several() {
    let Some(backend) = library() else { return };
    let mut rng = Rng::new(5);
    let sizes = [1, 2, 3, 7, 16, 33, 65, 130];
    let batches: [(&[i64], &[i64]); 6] =
        [(&[], &[]), (&[3], &[]), (&[2, 3], &[2, 3]), (&[2, 1], &[3]), (&[], &[4]), (&[5], &[1])];
    for number in 0..240 {
        let mut size = || sizes[rng.below(sizes.len())];
        let (m, k, n) = (size(), size(), size());
        let (ta, tb) = (rng.below(2) == 1, rng.below(2) == 1);
        let (a_batch, b_batch) = batches[rng.below(batches.len())];
        let after = [After::Nothing, After::Bias, After::Sum, After::Both][rng.below(4)];
        let constant = rng.below(4);
        let mut case = Case::new();
        let factor = |case: &mut Case, dims: Vec<i64>, constant: bool| {
            let tensor = drawn(DType::F32, &dims, number);
            if constant { case.constant(tensor) } else { case.input(tensor) }
        };
        // Two constants would be folded.
        let a = factor(&mut case, lie(a_batch, m, k, ta), constant == 1);
        let b = factor(&mut case, lie(b_batch, k, n, tb), constant >= 2);
        let mut out = case.op(MatMul { transpose_lhs: ta, transpose_rhs: tb }, &[a, b]);
        let dims = case.graph.fact(out).ty.as_tensor().unwrap().shape.as_fixed().unwrap();
        let mut pattern = "matmul".to_owned();
        if matches!(after, After::Bias | After::Both) {
            let bias = case.constant(drawn(DType::F32, &[n], 3));
            out = case.op(Binary::Add, &[out, bias]);
            pattern += "+bias";
        }
        if matches!(after, After::Sum | After::Both) {
            let other = case.input(drawn(DType::F32, &dims, 4));
            out = case.op(Binary::Add, &[other, out]);
            pattern += "+add";
        }
        for threads in 1..=3 {
            let setting = Setting { threads, ..SETTING };
            trials::check(&backend, &mut case, &[out], &[&pattern], &setting);
        }
    }
}

#[test]
fn a_factor_may_be_both_and_the_sum_too() {
    let Some(backend) = library() else { return };
    let mut case = Case::new();
    let x = case.input(drawn(DType::F32, &[40, 40], 1));
    let square = case.op(MatMul { transpose_lhs: false, transpose_rhs: false }, &[x, x]);
    let sum = case.op(Binary::Add, &[square, x]);
    trials::check(&backend, &mut case, &[sum], &["matmul+add"], &SETTING);
}

#[test]
fn only_products_of_floats_are_offered() {
    let backend = Blas { library: Err("not needed".to_owned()) };
    let mut case = Case::new();
    let x = case.input(drawn(DType::F64, &[4, 4], 1));
    let product = case.op(MatMul { transpose_lhs: false, transpose_rhs: false }, &[x, x]);
    let v = case.input(drawn(DType::F32, &[4], 1));
    let none = case.input(drawn(DType::F32, &[4, 0], 1));
    let m = case.input(drawn(DType::F32, &[0, 4], 1));
    let row = case.op(MatMul { transpose_lhs: false, transpose_rhs: false }, &[v, v]);
    let empty = case.op(MatMul { transpose_lhs: false, transpose_rhs: false }, &[none, m]);
    let relu = case.op(Unary::Relu, &[v]);
    let proposed = |v| backend.propose(&case.graph, case.graph.producer(v).unwrap(), &SETTING);
    for (value, words) in [(product, "found f64"), (row, "two dims"), (empty, "with elements")] {
        let found = proposed(value);
        assert!(found.candidates.is_empty());
        assert!(found.declined[0].why.contains(words), "{}", found.declined[0].why);
    }
    assert_eq!(proposed(relu), Proposals::default());
    // An activation in its registers is more than it can do.
    let y = case.input(drawn(DType::F32, &[4, 4], 1));
    let product = case.op(MatMul { transpose_lhs: false, transpose_rhs: false }, &[y, y]);
    let relu = case.op(Unary::Relu, &[product]);
    let exit = case.graph.producer(relu).unwrap();
    assert_eq!(backend.propose(&case.graph, exit, &SETTING), Proposals::default());
}

#[test]
fn wrong_operands_and_bodies_are_errors() {
    let Some(backend) = library() else { return };
    let mut case = Case::new();
    let x = case.input(drawn(DType::F32, &[3, 4], 1));
    let w = case.constant(drawn(DType::F32, &[4, 5], 1));
    let product = case.op(MatMul { transpose_lhs: false, transpose_rhs: false }, &[x, w]);
    case.graph.outputs = vec![product];
    let exit = case.graph.producer(product).unwrap();
    let candidate = backend.propose(&case.graph, exit, &SETTING).candidates.remove(0);
    let bound = backend.bind(&case.graph, &candidate, &SETTING).unwrap();
    let ran = |input: Tensor, output: Vec<i64>, constants: &[Packed]| {
        let plain = Format::plain(DType::F32);
        let (inputs, outputs) = ([(input, plain.clone())], [(output, plain)]);
        run(&*bound.kernel, constants, &inputs, &outputs, 1)
    };
    let right = || drawn(DType::F32, &[3, 4], 1);
    assert!(ran(right(), vec![3, 5], &bound.constants).is_ok());
    for result in [
        ran(drawn(DType::F32, &[4, 4], 1), vec![3, 5], &bound.constants),
        ran(right(), vec![5, 3], &bound.constants),
        ran(right(), vec![3, 5], &[]),
    ] {
        assert!(matches!(result, Err(RunError::Operand { .. })), "{result:?}");
    }
    let mut recipe = bound.kernel.recipe();
    recipe.body.truncate(3);
    assert!(backend.rebuild(&recipe, &[]).is_err());
}
