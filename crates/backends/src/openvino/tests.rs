//! Regions against the reference evaluator; only where BRICOLAGE_OPENVINO names the library.

use super::*;
use crate::trials::{self, Case, SETTING, check_candidate, drawn, here, run, whole};
use bricolage_ir::ops::{
    Binary, Cast, Conv, Coordinates, Gather, Interpolation, LayerNorm, MatMul, Resize, Rounding,
    Softmax, Transpose, Unary,
};
use bricolage_ir::{Real, ValueId, evaluate};
use bricolage_runtime::RunError;
use bricolage_tensor::{DType, Format, Shape};

fn library() -> Option<OpenVino> {
    here(OpenVino::VARIABLE, |named| OpenVino::find(Some(named), None))
}

/// Every candidate for the last node, and the whole graph, equal the reference, on one thread and on two.
fn check(mut case: Case, outputs: &[ValueId], kinds: &[&str]) {
    let Some(backend) = library() else { return };
    for threads in [1, 2] {
        let setting = Setting { threads, ..SETTING };
        trials::check(&backend, &mut case, outputs, kinds, &setting);
        let all = backend.propose_region(&case.graph, &whole(&case.graph), true, &setting).unwrap();
        check_candidate(&backend, &case, &all, &setting);
    }
}

const PLAIN_PRODUCT: MatMul = MatMul { transpose_lhs: false, transpose_rhs: false };

#[test]
fn convolutions_with_what_follows() {
    let mut case = Case::new();
    let x = case.input(drawn(DType::F32, &[1, 8, 9, 9], 1));
    let w = case.constant(drawn(DType::F32, &[8, 8, 3, 3], 2));
    let b = case.constant(drawn(DType::F32, &[8], 3));
    let same = Conv { pads: vec![(1, 1); 2], ..Conv::plain(2) };
    let first = case.op(same.clone(), &[x, w, b]);
    let relu = case.op(Unary::Relu, &[first]);
    let second = case.op(same, &[relu, w]);
    let sum = case.op(Binary::Add, &[second, x]);
    check(case, &[sum], &["Conv+Binary", "Conv+Unary+Conv+Binary"]);
}

#[test]
fn products_rows_and_lookups() {
    let mut case = Case::new();
    let table = case.constant(drawn(DType::F32, &[40, 16], 1));
    let at = case.input(Tensor::of(&[2, 3], &[0i64, 39, 7, 7, 12, 1]));
    let rows = case.op(Gather { axis: 0 }, &[table, at]);
    let w = case.constant(drawn(DType::F32, &[16, 20], 2));
    let product = case.op(PLAIN_PRODUCT, &[rows, w]);
    let scale = case.constant(drawn(DType::F32, &[20], 3));
    let norm = LayerNorm { axis: 2, epsilon: Real::new(1e-5), rms: false, statistics: false };
    let normal = case.op(norm, &[product, scale]);
    let soft = case.op(Softmax { axis: 2, log: false }, &[normal]);
    check(case, &[soft], &["LayerNorm+Softmax", "Gather+MatMul+LayerNorm+Softmax"]);
}

#[test]
fn pointwise_ops_alone_are_compiled_only_when_asked_for() {
    let Some(backend) = library() else { return };
    let mut case = Case::new();
    let x = case.input(drawn(DType::F32, &[5, 6], 1));
    let tanh = case.op(Unary::Tanh, &[x]);
    trials::check(&backend, &mut case, &[tanh], &[], &SETTING);
    trials::check(&backend.with_single_ops(), &mut case, &[tanh], &["Unary"], &SETTING);
}

#[test]
fn what_it_would_compute_with_other_numbers_is_refused() {
    let found = |case: &Case, node| check_node(&case.graph, node).unwrap_err();
    fn check_node(graph: &Graph, value: ValueId) -> Result<(), String> {
        let node = graph.producer(value).unwrap();
        admission::check(graph, &trials::region(graph, vec![node]))
    }
    let mut case = Case::new();
    let x = case.input(Tensor::of(&[2], &[1i64, 2]));
    let sum = case.op(Binary::Add, &[x, x]);
    assert!(found(&case, sum).contains("found i64 of `in0` at Binary"));
    let float = case.op(Cast::to(DType::F64), &[x]);
    assert!(found(&case, float).contains("found f64"));
    let large = case.constant(Tensor::of(&[2], &[1i64 << 40, 0]));
    let rows = case.op(Gather { axis: 0 }, &[large, x]);
    assert!(found(&case, rows).contains("integers of 32 bits, found 1099511627776"));
    let none = case.input(drawn(DType::F32, &[0, 3], 1));
    let relu = case.op(Unary::Relu, &[none]);
    assert!(found(&case, relu).contains("with elements"));
    for (from, to, refused) in [(13, 8, true), (4, 2, false), (3, 9, false)] {
        let image = case.input(drawn(DType::F32, &[1, 1, from, 3], 1));
        let resize = Resize {
            sizes: Shape::fixed(&[1, 1, to, 3]),
            scales: None,
            mode: Interpolation::Nearest(Rounding::PreferCeil),
            coordinates: Coordinates::Asymmetric,
            exclude_outside: false,
            antialias: false,
            roi: Vec::new(),
            extrapolation: Real::new(0.0),
        };
        let nearest = case.op(resize, &[image]);
        let why = check_node(&case.graph, nearest).err();
        assert_eq!(why.is_some_and(|why| why.contains("half-way")), refused, "{from} to {to}");
    }
}

#[test]
fn magnitudes_are_not_folded() {
    for (of_constant, refused) in [(true, true), (false, false)] {
        let mut case = Case::new();
        let values = drawn(DType::F32, &[3], 1);
        let x = if of_constant { case.constant(values) } else { case.input(values) };
        let less = case.op(Unary::Neg, &[x]);
        let magnitude = case.op(Unary::Abs, &[less]);
        let nodes = [less, magnitude].map(|v| case.graph.producer(v).unwrap());
        let why = admission::check(&case.graph, &trials::region(&case.graph, nodes.to_vec())).err();
        assert_eq!(why.is_some_and(|why| why.contains("magnitudes")), refused);
    }
}

#[test]
fn heads_are_not_taken_for_queries() {
    for (queries, refused) in [(4, true), (5, false)] {
        let mut case = Case::new();
        let dims = [2, 4, queries, 8];
        let [q, k, v] = [1, 2, 3].map(|seed| case.input(drawn(DType::F32, &dims, seed)));
        let half = case.constant(Tensor::of(&[], &[0.5f32]));
        let scaled = case.op(Binary::Mul, &[half, q]);
        let scores = case.op(MatMul { transpose_rhs: true, ..PLAIN_PRODUCT }, &[scaled, k]);
        let weights = case.op(Softmax { axis: 3, log: false }, &[scores]);
        let mix = case.op(PLAIN_PRODUCT, &[weights, v]);
        let swapped = case.op(Transpose { perm: vec![0, 2, 1, 3] }, &[mix]);
        case.graph.outputs = vec![swapped];
        let found = admission::check(&case.graph, &whole(&case.graph));
        assert_eq!(found.is_err_and(|why| why.contains("heads")), refused, "{queries} queries");
        if !refused {
            let kinds = ["MatMul+Transpose", "Binary+MatMul+Softmax+MatMul+Transpose"];
            check(case, &[swapped], &kinds);
        }
    }
}

#[test]
fn integers_that_it_would_cut_are_no_inputs() {
    let Some(backend) = library() else { return };
    let mut case = Case::new();
    let x = case.input(Tensor::of(&[2], &[1i64, -7]));
    let float = case.op(Cast::to(DType::F32), &[x]);
    let backend = backend.with_single_ops();
    trials::check(&backend, &mut case, &[float], &["Cast"], &SETTING);
    let exit = case.graph.producer(float).unwrap();
    let candidate = backend.propose(&case.graph, exit, &SETTING).candidates.remove(0);
    let bound = backend.bind(&case.graph, &candidate, &SETTING).unwrap();
    let large = (Tensor::of(&[2], &[1i64, -1 << 40]), Format::plain(DType::I64));
    let output = (vec![2], Format::plain(DType::F32));
    let error = run(&*bound.kernel, &[], &[large], &[output], 1).unwrap_err();
    assert!(
        matches!(&error, RunError::Domain { why, .. } if why.contains("-1099511627776")),
        "{error}"
    );
}

#[test]
fn a_file_runs_by_itself() {
    let Some(backend) = library() else { return };
    let mut case = Case::new();
    let x = case.input(drawn(DType::F32, &[3, 4], 1));
    let relu = case.op(Unary::Relu, &[x]);
    let product = case.op(Unary::Exp, &[relu]);
    case.graph.outputs = vec![relu, product];
    let path = std::env::temp_dir().join(format!("bricolage-ov-{}.onnx", std::process::id()));
    std::fs::write(&path, bricolage_onnx::export(&case.graph).unwrap()).unwrap();
    let named = [("in0".to_owned(), case.inputs[0].clone())];
    let names: Vec<String> =
        case.graph.outputs.iter().map(|&v| case.graph.value(v).name.to_string()).collect();
    let peer = backend.open_peer(&path, 1, &named, &names);
    let without = backend.open_peer(&path, 1, &[], &names);
    std::fs::remove_file(&path).unwrap();
    let mut peer = peer.unwrap();
    let found = peer.run(&named).unwrap();
    let exact = evaluate(&case.graph, &[case.inputs[0].clone().into()]).unwrap();
    assert_eq!(found[0], (names[0].clone(), exact[0].as_tensor().unwrap().clone()));
    assert_eq!(found[1].0, names[1]);
    assert!(peer.sample(&named, 3).unwrap() > std::time::Duration::ZERO);
    assert_eq!(peer.run(&[]).unwrap_err(), "needs an input `in0`");
    assert!(without.is_err());
    assert!(backend.open_peer(Path::new("/nowhere.onnx"), 1, &named, &names).is_err());
}
