//! Products against the reference evaluator; only where BRICOLAGE_BLAS names the library.

use super::*;
use crate::trials::{self, Case, SETTING, drawn, here, run};
use bricolage_backend::{Backend, BackendKind, Proposals};
use bricolage_ir::ops::{Binary, MatMul, Unary};
use bricolage_runtime::{Dims, RunError};
use bricolage_tensor::{DType, Format, Rng, Tensor, TensorType};

fn library() -> Option<PatternBackend> {
    here(Blas::VARIABLE, |named| Blas::find(Some(named), None).unwrap())
}

/// The backend where its library is not.
fn absent() -> PatternBackend {
    Blas { library: Err("not needed".to_owned()) }.backend().unwrap()
}

#[test]
fn its_pattern_file_is_the_one_that_the_docs_show() {
    assert!(include_str!("../../../../docs/patterns.md").contains(PATTERNS));
    let backend = absent();
    assert_eq!((backend.name(), backend.kind()), (NAME, BackendKind::Supplement));
    assert_eq!(backend.version(), format!("absent/{ADAPTER}"));
    let status = backend.status();
    assert_eq!((status.version, status.found.as_str()), (None, "not needed"));
    assert_eq!(status.covers, "products of f32 matrices, with a bias and an addition");
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
    let y = case.input(drawn(DType::F32, &[40, 40], 2));
    let square = case.op(MatMul::default(), &[x, x]);
    let sum = case.op(Binary::Add, &[square, x]);
    trials::check(&backend, &mut case, &[sum], &["matmul+add"], &SETTING);
    // Only what is read once may be written over.
    let other = case.op(MatMul::default(), &[x, x]);
    let apart = case.op(Binary::Add, &[y, other]);
    case.graph.outputs = vec![sum, apart];
    for (value, in_place) in [(sum, vec![]), (apart, vec![(0, 1)])] {
        let exit = case.graph.producer(value).unwrap();
        let candidate = backend.propose(&case.graph, exit, &SETTING).candidates.remove(0);
        let bound = backend.bind(&case.graph, &candidate, &SETTING).unwrap();
        let needs = bound.kernel.needs(&Dims { inputs: &[], outputs: &[] }, 1);
        assert_eq!(needs.in_place, in_place);
    }
}

/// A sum of two products is the end of either.
#[test]
fn each_product_of_a_sum_may_take_it() {
    let Some(backend) = library() else { return };
    let mut case = Case::new();
    let x = case.input(drawn(DType::F32, &[4, 6], 1));
    let y = case.input(drawn(DType::F32, &[6, 5], 2));
    let a = case.op(MatMul::default(), &[x, y]);
    let b = case.op(MatMul::default(), &[x, y]);
    let sum = case.op(Binary::Add, &[a, b]);
    trials::check(&backend, &mut case, &[sum], &["matmul+add", "matmul+add"], &SETTING);
}

#[test]
fn candidates_are_called_as_those_of_other_libraries() {
    let backend = absent();
    let mut case = Case::new();
    let x = case.input(drawn(DType::F32, &[3, 4], 1));
    let w = case.constant(drawn(DType::F32, &[4, 5], 1));
    let bias = case.constant(drawn(DType::F32, &[1, 5], 1));
    let r = case.input(drawn(DType::F32, &[3, 5], 1));
    let product = case.op(MatMul::default(), &[x, w]);
    let biased = case.op(Binary::Add, &[product, bias]);
    let summed = case.op(Binary::Add, &[biased, r]);
    case.graph.outputs = vec![summed];
    let exits = [(product, "matmul"), (biased, "matmul+bias"), (summed, "matmul+bias+add")];
    for (value, name) in exits {
        let exit = case.graph.producer(value).unwrap();
        let Proposals { candidates, declined } = backend.propose(&case.graph, exit, &SETTING);
        assert_eq!(declined, []);
        let [candidate] = &candidates[..] else { panic!("{candidates:?}") };
        let inputs = if value == summed { " f32:plain f32:plain" } else { " f32:plain" };
        assert_eq!(candidate.to_string(), format!("{name} sgemm in{inputs} out f32:plain"));
        assert_eq!(candidate.numerics, bricolage_ir::Numerics::Reassociates);
        // Sixty multiply-adds take no longer than the call.
        assert!(candidate.guess_ns.is_some_and(|ns| (1000.0..1010.0).contains(&ns)));
    }
}

/// What a case offers at its last value, and why not more.
fn offered(make: impl FnOnce(&mut Case) -> ValueId) -> (usize, Vec<String>) {
    let mut case = Case::new();
    let value = make(&mut case);
    case.graph.outputs.push(value);
    let exit = case.graph.producer(value).unwrap();
    let found = absent().propose(&case.graph, exit, &SETTING);
    let why = found.declined.iter().map(|d| format!("{}: {}", d.pattern, d.why));
    (found.candidates.len(), why.collect())
}

#[test]
fn refusals_say_what_was_needed_and_found() {
    type Dims<'a> = &'a [i64];
    let product = |case: &mut Case, dtype, a: Dims<'_>, b: Dims<'_>| {
        let a = case.graph.input("a", TensorType::fixed(dtype, a));
        let b = case.graph.input("b", TensorType::fixed(dtype, b));
        case.op(MatMul::default(), &[a, b])
    };
    let long = "needs all(d in a.dims: d <= 2147483647), found a.dims = [2147483648, 4]";
    let deep = "needs a.elements / a.dim[-1] / a.dim[-2] * m.dim[-2] <= 2147483647, found a.elements = \
                8589934592, a.dim[-1] = 4, a.dim[-2] = 32768, m.dim[-2] = 32768";
    let f32 = DType::F32;
    let alone: [(DType, Dims<'_>, Dims<'_>, &str); 5] = [
        (DType::F64, &[4, 4], &[4, 4], "needs `a` as f32:plain, found f64[4, 4]"),
        (f32, &[4], &[4, 3], "needs a.rank >= 2, found a.rank = 1"),
        (f32, &[4, 0], &[0, 4], "needs a.elements > 0, found a.elements = 0"),
        (f32, &[1 << 31, 4], &[4, 4], long),
        (f32, &[1 << 16, 1 << 15, 4], &[4, 4], deep),
    ];
    for (dtype, a, b, why) in alone {
        let found = offered(|case| product(case, dtype, a, b));
        assert_eq!(found, (0, vec![format!("matmul: {why}")]));
    }
    let added: [(Dims<'_>, bool, &str); 4] = [
        (
            &[],
            true,
            "+bias: needs bias.elements == m.dim[-1], found bias.elements = 1, m.dim[-1] = 4",
        ),
        (
            &[4, 1],
            true,
            "+bias: needs bias.dim[-1] == m.dim[-1], found bias.dim[-1] = 1, m.dim[-1] = 4",
        ),
        (&[1, 1, 4], true, "+bias: needs bias.rank <= m.rank, found bias.rank = 3, m.rank = 2"),
        (&[4], false, "+add: needs r.dims == m.dims, found r.dims = [4], m.dims = [4, 4]"),
    ];
    for (dims, constant, why) in added {
        let found = offered(|case| {
            let product = product(case, f32, &[4, 4], &[4, 4]);
            let tensor = drawn(f32, dims, 1);
            let other = if constant { case.constant(tensor) } else { case.input(tensor) };
            case.op(Binary::Add, &[product, other])
        });
        assert_eq!(found, (0, vec![format!("matmul{why}")]));
    }
    let read = offered(|case| {
        let product = product(case, f32, &[4, 4], &[4, 4]);
        case.graph.outputs.push(product);
        let other = case.input(drawn(f32, &[4, 4], 1));
        case.op(Binary::Add, &[product, other])
    });
    assert_eq!(read.0, 0);
    assert!(read.1[0].ends_with("inside the region is read from outside"), "{:?}", read.1);
    // An activation in its registers is more than it can do.
    let relu = |case: &mut Case| {
        let product = product(case, f32, &[4, 4], &[4, 4]);
        case.op(Unary::Relu, &[product])
    };
    assert_eq!(offered(relu), (0, vec![]));
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
