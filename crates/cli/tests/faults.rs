//! Verbs that look for faults: `reduce` and `compare --bisect`.
#![allow(clippy::unwrap_used)] // a test may panic

mod folder;

use bricolage_ir::{Graph, ops, origin};
use bricolage_tensor::{DType, Tensor, TensorType};
use folder::Folder;
use std::{fs, path::Path};

/// Rows of a table between other ops, on either side.
fn lookup(path: &Path) {
    let mut g = Graph::new("lookup");
    let x = g.input("x", TensorType::fixed(DType::F32, &[3, 4]));
    let i = g.input("i", TensorType::fixed(DType::I64, &[2]));
    let mut y = x;
    for k in 0..6 {
        y = g.add1(ops::Unary::Tanh, &[y], origin(&format!("before{k}"))).unwrap();
    }
    y = g.add1(ops::Gather { axis: 0 }, &[y, i], origin("look")).unwrap();
    for k in 0..6 {
        y = g.add1(ops::Unary::Exp, &[y], origin(&format!("after{k}"))).unwrap();
    }
    g.outputs = vec![y];
    fs::write(path, bricolage_onnx::export(&g).unwrap()).unwrap();
}

#[test]
fn a_failing_model_becomes_one_node() {
    let f = Folder::new("reduce");
    lookup(&f.0.join("m.onnx"));
    let x = Tensor::generate(DType::F32, &[3, 4], |i| i as f64 / 8.0);
    let inputs = |at: [i64; 2]| {
        [("x".to_owned(), x.clone()), ("i".to_owned(), Tensor::of(&[2], &at))].to_vec()
    };
    bricolage::npz::write(&f.0.join("bad.npz"), &inputs([1, 7])).unwrap();
    bricolage::npz::write(&f.0.join("good.npz"), &inputs([1, 2])).unwrap();
    let reduce = ["reduce", "m.onnx", "-o", "small.onnx", "--input"];
    let output = f.run(&[&reduce[..], &["bad.npz"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("error[run::failed]") && said.contains("index 7"), "{said}");
    let small = bricolage::import(&f.0.join("small.onnx"), &[]).unwrap().graph;
    assert_eq!(small.nodes().count(), 1);
    f.fails(&["run", "small.onnx", "--input", "small.npz"], 1, &["index 7"], &[]);
    // What agrees with the reference is no failure.
    let output = f.run(&[&reduce[..], &["good.npz", "--overwrite"]].concat());
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stdout).contains("agrees with the reference"));
    f.fails(&[&reduce[..], &["bad.npz"]].concat(), 2, &["--overwrite"], &[]);
    // Nor is a backend that is not here.
    let absent = ["reduce", "m.onnx@onnxruntime", "-o", "none.onnx", "--input", "good.npz"];
    f.fails(&absent, 2, &["error[backend::absent]"], &["none.onnx", "none.npz"]);
}

#[test]
fn every_step_of_a_right_plan_is_judged_right() {
    let f = Folder::new("bisect");
    lookup(&f.0.join("m.onnx"));
    let f_run = |arguments: &[&str]| {
        let output = f.run(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let said = f_run(&["compare", "m.onnx@reference", "m.onnx", "--bisect"]);
    assert!(said.contains("steps give on what they are given"), "{said}");
    f_run(&["optimize", "m.onnx", "-o", "m.bricolage", "--verify", "rewrites", "--threads", "1"]);
    let said = f_run(&["compare", "m.onnx@reference", "m.bricolage", "--bisect"]);
    assert!(said.contains("steps give on what they are given"), "{said}");
}
