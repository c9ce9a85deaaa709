//! Models that only a foreign runtime understands. Those that run one are skipped where
//! BRICOLAGE_ONNXRUNTIME is not set.
#![allow(clippy::unwrap_used)] // a test may panic

mod folder;

use bricolage_ir::{Graph, ops, origin};
use bricolage_tensor::{DType, Dim, TensorType};
use folder::Folder;
use std::fs;

/// `y` is the determinant of `exp(x)`, three times; no type is declared between them.
fn write(f: &Folder, name: &str) {
    let mut g = Graph::new("determinant");
    let x = g.input("x", TensorType::fixed(DType::F32, &[2, 2]));
    let exp = g.add1(ops::Unary::Exp, &[x], origin("exp")).unwrap();
    let det = g.add1(ops::Unary::Abs, &[exp], origin("det")).unwrap();
    let to = [3, 2, 2].into_iter().map(Dim::from).collect();
    g.outputs = vec![g.add1(ops::Expand { to }, &[det], origin("y")).unwrap()];
    let mut bytes = bricolage_onnx::export(&g).unwrap();
    let at = bytes.windows(3).position(|w| w == b"Abs").unwrap();
    bytes[at..at + 3].copy_from_slice(b"Det");
    fs::write(f.0.join(name), bytes).unwrap();
}

#[test]
fn an_import_that_is_needed_says_so_and_one_that_is_not_is_not_asked_for() {
    let f = Folder::new("foreign");
    write(&f, "det.onnx");
    let words = &["cannot import `Det`", "det", "MODEL@onnxruntime"];
    for target in ["det.onnx", "det.onnx@native"] {
        f.fails(&["run", target], 1, words, &[]);
        f.fails(&["bench", target], 1, words, &[]);
    }
    f.fails(&["optimize", "det.onnx", "-o", "x.bricolage"], 1, words, &["x.bricolage"]);
    let absent = &["error[backend::absent]"];
    for verb in ["run", "bench"] {
        f.fails(&[verb, "det.onnx@onnxruntime"], 2, absent, &[]);
    }
}

#[test]
fn a_foreign_runtime_needs_no_import() {
    let Some(library) = std::env::var_os("BRICOLAGE_ONNXRUNTIME") else { return };
    let f = Folder::new("whole");
    write(&f, "det.onnx");
    let peer = "det.onnx@onnxruntime";
    let with = |arguments: &[&str]| {
        f.command(arguments).env("BRICOLAGE_ONNXRUNTIME", &library).output().unwrap()
    };
    for arguments in [
        &["run", peer, "--output", "y.npz"][..],
        &["bench", peer, "--iterations", "3"],
        &["bench", peer, peer, "--iterations", "3"],
        &["compare", peer, peer],
    ] {
        let output = with(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {said}");
        assert!(said.contains("left to `onnxruntime` whole: cannot import `Det`"), "{said}");
        let two = arguments.iter().filter(|a| **a == peer).count() == 2;
        assert_eq!(
            said.contains("outputs are compared with its own"),
            two,
            "{arguments:?}: {said}"
        );
    }
    let found = bricolage::npz::read(&f.0.join("y.npz")).unwrap();
    assert_eq!((found[0].0.as_str(), found[0].1.dims()), ("y", &[3, 2, 2][..]));
    let output = with(&["compare", "det.onnx@native", peer]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot import `Det`"), "{said}");
}
