//! Regions against the reference evaluator; only where BRICOLAGE_ONNXRUNTIME names the library.

use super::*;
use crate::trials::{self, Case, SETTING, check_candidate, drawn, here, run, whole};
use bricolage_ir::ops::{
    Attention, Binary, Conv, Gather, LayerNorm, MatMul, Select, Softmax, Split, Unary,
};
use bricolage_ir::{ValueId, evaluate, origin};
use bricolage_runtime::RunError;
use bricolage_tensor::{DType, Dim, Format};

fn library() -> Option<OnnxRuntime> {
    here(OnnxRuntime::VARIABLE, |named| OnnxRuntime::find(Some(named), None))
}

/// Every candidate for the last node, and the whole graph, equal the reference.
fn check(mut case: Case, outputs: &[ValueId], kinds: &[&str]) {
    let Some(backend) = library() else { return };
    trials::check(&backend, &mut case, outputs, kinds, &SETTING);
    let all = backend.propose_region(&case.graph, &whole(&case.graph), true, &SETTING).unwrap();
    check_candidate(&backend, &case, &all, &SETTING);
}

#[test]
fn convolution_with_bias_and_activation() {
    let mut case = Case::new();
    let x = case.input(drawn(DType::F32, &[1, 8, 9, 9], 1));
    let w = case.constant(drawn(DType::F32, &[16, 8, 3, 3], 2));
    let b = case.constant(drawn(DType::F32, &[16], 3));
    let conv = case.op(Conv { pads: vec![(1, 1); 2], ..Conv::plain(2) }, &[x, w, b]);
    let relu = case.op(Unary::Relu, &[conv]);
    check(case, &[relu], &["Unary", "Conv+Unary"]);
}

#[test]
fn residual_block_reaches_over_two_convolutions() {
    let mut case = Case::new();
    let x = case.input(drawn(DType::F32, &[1, 8, 9, 9], 1));
    let w = case.constant(drawn(DType::F32, &[8, 8, 3, 3], 2));
    let same = Conv { pads: vec![(1, 1); 2], ..Conv::plain(2) };
    let first = case.op(same.clone(), &[x, w]);
    let relu = case.op(Unary::Relu, &[first]);
    let second = case.op(same, &[relu, w]);
    let sum = case.op(Binary::Add, &[second, x]);
    check(case, &[sum], &["Binary", "Conv+Binary", "Conv+Unary+Conv+Binary"]);
}

#[test]
fn product_with_bias() {
    let mut case = Case::new();
    let x = case.input(drawn(DType::F32, &[7, 33], 1));
    let w = case.constant(drawn(DType::F32, &[33, 20], 2));
    let b = case.constant(drawn(DType::F32, &[20], 3));
    let product = case.op(MatMul { transpose_lhs: false, transpose_rhs: false }, &[x, w]);
    let sum = case.op(Binary::Add, &[product, b]);
    check(case, &[sum], &["Binary", "MatMul+Binary"]);
}

#[test]
fn pointwise_chain_through_booleans() {
    let mut case = Case::new();
    let x = case.input(drawn(DType::F32, &[5, 6], 1));
    let y = case.input(drawn(DType::F32, &[6], 2));
    let less = case.op(Binary::Less, &[x, y]);
    let tanh = case.op(Unary::Tanh, &[x]);
    let pick = case.op(Select, &[less, tanh, y]);
    check(case, &[pick], &["Select", "Binary+Unary+Select"]);
    let mut case = Case::new();
    let x = case.input(drawn(DType::F32, &[5, 6], 1));
    let y = case.input(drawn(DType::F32, &[6], 2));
    let less = case.op(Binary::Less, &[x, y]);
    check(case, &[less], &["Binary"]);
}

#[test]
fn gather_by_64_bit_indices() {
    let mut case = Case::new();
    let table = case.constant(drawn(DType::F32, &[40, 16], 1));
    let at = case.input(Tensor::of(&[2, 3], &[0i64, 39, 7, 7, 12, 1]));
    let rows = case.op(Gather { axis: 0 }, &[table, at]);
    check(case, &[rows], &["Gather"]);
    let mut case = Case::new();
    let table = case.input(Tensor::of(&[4], &[1i64 << 60, -2, 3, 4]));
    let at = case.input(Tensor::of(&[2], &[0i64, 3]));
    let rows = case.op(Gather { axis: 0 }, &[table, at]);
    check(case, &[rows], &["Gather"]);
}

#[test]
fn several_outputs() {
    let mut case = Case::new();
    let x = case.input(drawn(DType::F32, &[2, 7], 1));
    let split = Split { axis: 1, sizes: vec![Dim::from(3), Dim::from(4)] };
    let parts = case.graph.add(split, &[x], origin("parts")).unwrap();
    check(case, &parts, &["Split"]);
}

#[test]
fn attention_and_normalisation() {
    let mut case = Case::new();
    let head = |seed| drawn(DType::F32, &[1, 2, 5, 8], seed);
    let [q, k, v] = [1, 2, 3].map(|seed| case.input(head(seed)));
    let out = case.op(Attention { scale: None, causal: true }, &[q, k, v]);
    check(case, &[out], &["Attention"]);
    let mut case = Case::new();
    let x = case.input(drawn(DType::F32, &[4, 12], 1));
    let y = case.input(drawn(DType::F32, &[4, 12], 2));
    let scale = case.constant(drawn(DType::F32, &[12], 3));
    let sum = case.op(Binary::Add, &[x, y]);
    let norm = LayerNorm {
        axis: 1,
        epsilon: bricolage_ir::Real::new(1e-5),
        rms: false,
        statistics: false,
    };
    let normal = case.op(norm, &[sum, scale]);
    let soft = case.op(Softmax { axis: 1, log: false }, &[normal]);
    check(case, &[soft], &["Softmax", "LayerNorm+Softmax", "Binary+LayerNorm+Softmax"]);
}

#[test]
fn wrong_operands_and_bodies_are_errors() {
    let Some(backend) = library() else { return };
    let mut case = Case::new();
    let x = case.input(drawn(DType::F32, &[3, 4], 1));
    let relu = case.op(Unary::Relu, &[x]);
    case.graph.outputs = vec![relu];
    let exit = case.graph.producer(relu).unwrap();
    let candidate = backend.propose(&case.graph, exit, &SETTING).candidates.remove(0);
    let bound = backend.bind(&case.graph, &candidate, &SETTING).unwrap();
    let ran = |tensor: Tensor, output: DType| {
        let (input, output) = (Format::plain(tensor.dtype()), Format::plain(output));
        run(&*bound.kernel, &[], &[(tensor, input)], &[(vec![3, 4], output)], 1).unwrap_err()
    };
    let error = ran(drawn(DType::F32, &[4, 3], 1), DType::F32);
    assert!(matches!(error, RunError::Operand { .. }), "{error}");
    let error = ran(drawn(DType::F32, &[3, 4], 1), DType::F64);
    assert!(matches!(error, RunError::Operand { .. }), "{error}");
    let mut recipe = bound.kernel.recipe();
    recipe.body.truncate(10);
    assert!(backend.rebuild(&recipe, &[]).is_err());
    let threads = Setting { threads: 2, ..SETTING };
    let bound = backend.bind(&case.graph, &candidate, &threads).unwrap();
    let Err(why) = backend.rebuild(&bound.kernel.recipe(), &[]) else {
        panic!("the pool has one thread")
    };
    assert!(why.contains("needs 2 threads"), "{why}");
}

#[test]
fn a_file_runs_by_itself() {
    let Some(backend) = library() else { return };
    let mut case = Case::new();
    let x = case.input(drawn(DType::F32, &[3, 4], 1));
    let relu = case.op(Unary::Relu, &[x]);
    case.graph.outputs = vec![relu];
    let path = std::env::temp_dir().join(format!("bricolage-peer-{}.onnx", std::process::id()));
    std::fs::write(&path, bricolage_onnx::export(&case.graph).unwrap()).unwrap();
    let peer = backend.open_peer(&path, 1, &[], &[]);
    std::fs::remove_file(&path).unwrap();
    let mut peer = peer.unwrap();
    let named = [("in0".to_owned(), case.inputs[0].clone())];
    let found = peer.run(&named).unwrap();
    let exact = evaluate(&case.graph, &[case.inputs[0].clone().into()]).unwrap();
    assert_eq!(found, [("node".to_owned(), exact[0].as_tensor().unwrap().clone())]);
    assert!(peer.sample(&named, 3).unwrap() > std::time::Duration::ZERO);
    let missing = peer.run(&[]).unwrap_err();
    assert_eq!(missing, "needs an input `in0`");
    assert!(backend.open_peer(Path::new("/nowhere.onnx"), 1, &[], &[]).is_err());
}
