//! Models that only a foreign runtime understands. Those that run one are skipped where
//! BRICOLAGE_ONNXRUNTIME is not set.
#![allow(clippy::unwrap_used)] // a test may panic

mod folder;

use folder::Folder;
use std::fs;

fn number(mut n: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while n >= 128 {
        bytes.push(n as u8 | 128);
        n >>= 7;
    }
    bytes.push(n as u8);
    bytes
}

/// A field of a protobuf message that holds bytes, a text or a message.
fn field(tag: u64, content: impl AsRef<[u8]>) -> Vec<u8> {
    let content = content.as_ref();
    [&number(tag << 3 | 2)[..], &number(content.len() as u64), content].concat()
}

/// A field that holds a number.
fn count(tag: u64, n: u64) -> Vec<u8> {
    [number(tag << 3), number(n)].concat()
}

/// `y` is the absolute inverse of `exp(x)`; no type is declared between them.
fn write(f: &Folder, name: &str) {
    let node = |op: &str, domain: &str, from: &str, to: &str| {
        let parts = [field(1, from), field(2, to), field(3, to), field(4, op), field(7, domain)];
        field(1, parts.concat())
    };
    let port = |tag: u64, name: &str| {
        let dim = field(1, count(1, 2));
        let tensor = [count(1, 1), field(2, [dim.clone(), dim].concat())].concat();
        field(tag, [field(1, name), field(2, field(1, tensor))].concat())
    };
    let graph = [
        node("Exp", "", "x", "exp"),
        node("Inverse", "com.microsoft", "exp", "inverse"),
        node("Abs", "", "inverse", "y"),
        field(2, "inverse"),
        port(11, "x"),
        port(12, "y"),
    ];
    let opset =
        |domain: &str, version: u64| field(8, [field(1, domain), count(2, version)].concat());
    let model = [count(1, 8), field(7, graph.concat()), opset("", 17), opset("com.microsoft", 1)];
    fs::write(f.0.join(name), model.concat()).unwrap();
}

#[test]
fn an_import_that_is_needed_says_so_and_one_that_is_not_is_not_asked_for() {
    let f = Folder::new("foreign");
    write(&f, "inverse.onnx");
    let words = &["cannot import `com.microsoft.Inverse`", "inverse", "MODEL@onnxruntime"];
    for target in ["inverse.onnx", "inverse.onnx@native"] {
        f.fails(&["run", target], 1, words, &[]);
        f.fails(&["bench", target], 1, words, &[]);
    }
    f.fails(&["optimize", "inverse.onnx", "-o", "x.bricolage"], 1, words, &["x.bricolage"]);
    let absent = &["error[backend::absent]"];
    for verb in ["run", "bench"] {
        f.fails(&[verb, "inverse.onnx@onnxruntime"], 2, absent, &[]);
    }
}

#[test]
fn a_foreign_runtime_needs_no_import() {
    let Some(library) = std::env::var_os("BRICOLAGE_ONNXRUNTIME") else { return };
    let f = Folder::new("whole");
    write(&f, "inverse.onnx");
    let peer = "inverse.onnx@onnxruntime";
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
        assert!(
            said.contains("left to `onnxruntime` whole: cannot import `com.microsoft.Inverse`"),
            "{said}"
        );
        let two = arguments.iter().filter(|a| **a == peer).count() == 2;
        assert_eq!(
            said.contains("outputs are compared with its own"),
            two,
            "{arguments:?}: {said}"
        );
    }
    let found = bricolage::npz::read(&f.0.join("y.npz")).unwrap();
    assert_eq!((found[0].0.as_str(), found[0].1.dims()), ("y", &[2, 2][..]));
    let output = with(&["compare", "inverse.onnx@native", peer]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot import `com.microsoft.Inverse`"), "{said}");
}
