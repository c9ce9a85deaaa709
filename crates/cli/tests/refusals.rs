//! What is refused before anything is measured, with the same exit code by every verb.
#![allow(clippy::unwrap_used)] // a test may panic

mod folder;

use bricolage_ir::{Graph, ops, origin};
use bricolage_tensor::{DType, Dim, Tensor, TensorType};
use folder::{Folder, model};
use std::{fs, process::Command};

fn write(f: &Folder, name: &str, graph: &Graph) {
    fs::write(f.0.join(name), bricolage_onnx::export(graph).unwrap()).unwrap();
}

#[test]
fn pipes_are_not_opened() {
    let f = Folder::new("pipes");
    model(&f.0);
    assert!(Command::new("mkfifo").arg(f.0.join("pipe")).status().unwrap().success());
    let words = &["pipe", "needs a regular file, found a pipe"];
    f.fails(&["inspect", "pipe"], 2, words, &[]);
    f.fails(&["run", "pipe@native"], 2, words, &[]);
    f.fails(&["optimize", "pipe", "-o", "x.bricolage"], 2, words, &["x.bricolage"]);
    f.fails(&["run", "small.onnx", "--input", "pipe", "--shape", "x:1x4"], 2, words, &[]);
    f.fails(&["zoo", "resnet18", "-o", "pipe", "--overwrite"], 2, &["regular file"], &[]);
}

#[test]
fn a_changed_artefact_is_refused_by_every_verb() {
    let f = Folder::new("changed");
    model(&f.0);
    let made = f.run(&["optimize", "small.onnx@native", "-o", "s.bricolage", "--shape", "x:2x4"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    for name in ["report.json", "model.onnx", "weights.bin"] {
        let path = f.0.join("s.bricolage").join(name);
        let whole = fs::read(&path).unwrap();
        let mut changed = whole.clone();
        let at = changed.iter().rposition(|b| *b == b'1').unwrap_or(0);
        changed[at] ^= 1;
        fs::write(&path, changed).unwrap();
        for verb in ["inspect", "explain", "run", "bench"] {
            f.fails(&[verb, "s.bricolage"], 2, &["artefact::unusable", name, "was changed"], &[]);
        }
        f.fails(&["compare", "s.bricolage", "s.bricolage"], 2, &[name, "was changed"], &[]);
        f.fails(
            &["optimize", "s.bricolage", "-o", "t.bricolage"],
            2,
            &[name, "was changed"],
            &["t.bricolage"],
        );
        fs::write(&path, whole).unwrap();
    }
    assert!(f.run(&["inspect", "s.bricolage"]).status.success());
}

#[test]
fn optimize_takes_what_other_verbs_take() {
    let f = Folder::new("targets-of-optimize");
    model(&f.0);
    let shape = ["--shape", "x:2x4"];
    let with = |target: &'static str, output: &'static str, more: &[&'static str]| {
        [&["optimize", target, "-o", output][..], more, &shape].concat()
    };
    let used = |artefact: &str| -> Vec<String> {
        let output = f.run(&["explain", artefact, "--format", "json"]);
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let regions = report["regions"].as_array().unwrap();
        regions.iter().map(|r| r["backend"].as_str().unwrap().to_owned()).collect()
    };
    assert!(f.run(&with("small.onnx@reference", "r.bricolage", &[])).status.success());
    assert_eq!(used("r.bricolage"), ["reference"]);
    assert!(f.run(&with("r.bricolage", "n.bricolage", &["--backend", "native"])).status.success());
    assert_eq!(used("n.bricolage"), ["native"]);
    let both = with("small.onnx@native", "x.bricolage", &["--backend", "native"]);
    assert!(f.run(&both).status.success());
    let cases: &[(&'static str, &'static str, &[&'static str], &str)] = &[
        ("small.onnx@native", "y.bricolage", &["--backend", "reference"], "contradict"),
        ("small.onnx@openvino", "y.bricolage", &[], "no part of plans"),
        ("n.bricolage", "n.bricolage/y.bricolage", &[], "lies inside"),
    ];
    for (target, output, more, words) in cases {
        f.fails(&with(target, output, more), 2, &[words], &[output]);
    }
}

#[test]
fn absent_backends_and_unknown_operators_have_one_code_each() {
    let f = Folder::new("codes");
    model(&f.0);
    let small = fs::read(f.0.join("small.onnx")).unwrap();
    let at = small.windows(6).position(|w| w == b"MatMul").unwrap();
    let mut strange = small.clone();
    strange[at..at + 6].copy_from_slice(b"MatMux");
    fs::write(f.0.join("strange.onnx"), strange).unwrap();
    let shape = ["--shape", "x:2x4"];
    for backend in ["onnxruntime", "openvino", "nonsense"] {
        let target = format!("small.onnx@{backend}");
        for arguments in [
            vec!["run", &*target],
            vec!["bench", &*target],
            vec!["bench", "small.onnx", "--backend", backend],
            vec!["compare", "small.onnx@native", &*target],
            vec!["optimize", &*target, "-o", "x.bricolage"],
            vec!["optimize", "small.onnx", "--backend", backend, "-o", "x.bricolage"],
        ] {
            let all = [&arguments[..], &shape].concat();
            f.fails(&all, 2, &["error[backend::absent]", backend], &["x.bricolage"]);
        }
    }
    // Its results have a declared type, so that a foreign backend might take it.
    assert!(f.run(&["inspect", "strange.onnx"]).status.success());
    for arguments in [
        vec!["run", "strange.onnx@native"],
        vec!["run", "strange.onnx@reference"],
        vec!["bench", "strange.onnx"],
        vec!["compare", "small.onnx", "strange.onnx"],
        vec!["optimize", "strange.onnx", "-o", "x.bricolage"],
    ] {
        let all = [&arguments[..], &shape].concat();
        f.fails(&all, 1, &["only a foreign backend"], &["x.bricolage"]);
    }
}

#[test]
fn brain_floats_come_back_as_they_were_written() {
    let f = Folder::new("bf16");
    let mut g = Graph::new("bf16");
    let x = g.input("x", TensorType::fixed(DType::BF16, &[2, 4]));
    g.outputs = vec![g.add1(ops::Unary::Relu, &[x], origin("y")).unwrap()];
    write(&f, "b.onnx", &g);
    let ok = |arguments: &[&str]| {
        let output = f.run(arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let given = Tensor::generate(DType::BF16, &[2, 4], |i| i as f64 - 3.5);
    bricolage::npz::write(&f.0.join("x.npz"), &[("x".to_owned(), given)]).unwrap();
    ok(&["optimize", "b.onnx", "-o", "b.bricolage"]);
    for target in ["b.onnx@reference", "b.bricolage"] {
        ok(&["run", target, "--input", "x.npz", "--output", "y.npz", "--overwrite"]);
        let found = bricolage::npz::read(&f.0.join("y.npz")).unwrap();
        let expected = Tensor::generate(DType::BF16, &[2, 4], |i| (i as f64 - 3.5).max(0.0));
        assert_eq!(found[0].1, expected, "{target}");
    }
}

#[test]
fn sizes_that_no_memory_holds_are_refused_at_once() {
    let f = Folder::new("memory");
    let mut g = Graph::new("wide");
    let x = g.input("x", TensorType::fixed(DType::F32, &[1]));
    // Nothing but one value between small ones is large.
    let pad = ops::Pad {
        mode: ops::PadMode::Constant,
        before: vec![Dim::from(0)],
        after: vec![Dim::from(1 << 40)],
    };
    let wide = g.add1(pad, &[x], origin("wide")).unwrap();
    let sum = ops::Reduce { kind: ops::ReduceKind::Sum, axes: vec![0], keep_dims: false };
    g.outputs = vec![g.add1(sum, &[wide], origin("y")).unwrap()];
    write(&f, "wide.onnx", &g);
    let words = &["`wide`", "bytes of memory"];
    for verb in ["run", "bench"] {
        for target in ["wide.onnx", "wide.onnx@native", "wide.onnx@reference"] {
            f.fails(&[verb, target], 2, words, &[]);
        }
    }
    f.fails(&["optimize", "wide.onnx", "-o", "x.bricolage"], 2, words, &["x.bricolage"]);
}

#[test]
fn what_cannot_be_computed_names_node_value_and_size() {
    let f = Folder::new("domain");
    let mut g = Graph::new("divide");
    let x = g.input("x", TensorType::fixed(DType::I64, &[2]));
    let (a, b) = (
        g.constant("a", Tensor::of(&[2], &[4i64, 6])),
        g.constant("b", Tensor::of(&[2], &[2i64, 0])),
    );
    let c = g.add1(ops::Binary::Div, &[a, b], origin("quotient")).unwrap();
    g.outputs = vec![g.add1(ops::Binary::Add, &[x, c], origin("y")).unwrap()];
    write(&f, "divide.onnx", &g);
    let mut g = Graph::new("pick");
    let x = g.input("x", TensorType::fixed(DType::F32, &[3, 4]));
    let at = g.constant("at", Tensor::of(&[2], &[1i64, 7]));
    g.outputs = vec![g.add1(ops::Gather { axis: 0 }, &[x, at], origin("pick")).unwrap()];
    write(&f, "pick.onnx", &g);
    assert!(f.run(&["inspect", "divide.onnx"]).status.success());
    for (file, words) in
        [("divide.onnx", ["quotient", "divisor of 0"]), ("pick.onnx", ["pick", "index 7"])]
    {
        let reference = format!("{file}@reference");
        for arguments in
            [&["run", file][..], &["run", &*reference], &["optimize", file, "-o", "x.bricolage"]]
        {
            f.fails(arguments, 1, &words, &["x.bricolage"]);
        }
    }
}
