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
fn paths_are_said_to_be_what_they_are() {
    let f = Folder::new("paths");
    model(&f.0);
    std::os::unix::fs::symlink("circle", f.0.join("circle")).unwrap();
    std::os::unix::fs::symlink("nothing", f.0.join("dangling")).unwrap();
    fs::create_dir(f.0.join("dir")).unwrap();
    let shape = ["--shape", "x:1x4"];
    for (path, kind) in [
        ("circle", "a symbolic link that leads in a circle"),
        ("dangling", "a symbolic link to nothing"),
        ("dir", "a folder"),
        ("nothing", "there is no such file or folder"),
        ("no/file", "there is no folder `no`"),
    ] {
        for verb in ["inspect", "run", "bench", "explain"] {
            f.fails(&[verb, path], 2, &[path, kind], &[]);
        }
        let on = format!("{path}@native");
        f.fails(&["run", &on], 2, &[path, kind], &[]);
        f.fails(&["compare", "small.onnx", path, "--shape", "x:1x4"], 2, &[path, kind], &[]);
        f.fails(&["optimize", path, "-o", "x.bricolage"], 2, &[path, kind], &["x.bricolage"]);
        f.fails(&[&["run", "small.onnx", "--input", path], &shape[..]].concat(), 2, &[kind], &[]);
        // Outputs.
        if path != "nothing" {
            let run = ["run", "small.onnx", "--overwrite", "--output", path];
            f.fails(&[&run[..], &shape].concat(), 2, &[path, kind], &[]);
            f.fails(&["zoo", "resnet18", "--overwrite", "-o", path], 2, &[path, kind], &[]);
            for more in [&[][..], &["--overwrite"]] {
                let optimize = ["optimize", "small.onnx", "-o", path];
                f.fails(&[&optimize[..], more, &shape].concat(), 2, &[path, kind], &[]);
            }
        }
    }
    let inside = ["optimize", "small.onnx", "-o", "circle/x.bricolage"];
    f.fails(&[&inside[..], &shape].concat(), 2, &["leads in a circle"], &[]);
    let inside = ["run", "small.onnx", "--output", "small.onnx/y.npz"];
    f.fails(&[&inside[..], &shape].concat(), 2, &["`small.onnx` is no folder"], &[]);
    f.fails(&["explain", "small.onnx"], 2, &["it is a file, and an artefact is a folder"], &[]);
    assert_eq!(fs::read_dir(f.0.join("dir")).unwrap().count(), 0);
}

#[test]
fn a_graph_without_outputs_is_named() {
    let f = Folder::new("outputless");
    let mut g = Graph::new("mute");
    let x = g.input("x", TensorType::fixed(DType::F32, &[1]));
    g.add1(ops::Unary::Relu, &[x], origin("y")).unwrap();
    write(&f, "mute.onnx", &g);
    let words = &["graph `mute`", "at least one output"];
    for verb in ["inspect", "run", "bench"] {
        f.fails(&[verb, "mute.onnx"], 2, words, &[]);
    }
    f.fails(&["optimize", "mute.onnx", "-o", "x.bricolage"], 2, words, &["x.bricolage"]);
}

#[test]
fn an_empty_output_has_no_least_element() {
    let f = Folder::new("empty");
    let mut g = Graph::new("empty");
    let x = g.input("x", TensorType::fixed(DType::F32, &[0, 4]));
    g.outputs = vec![g.add1(ops::Unary::Relu, &[x], origin("y")).unwrap()];
    write(&f, "empty.onnx", &g);
    let said = f.run(&["run", "empty.onnx"]).stdout;
    assert_eq!(String::from_utf8_lossy(&said), "y f32[0, 4] empty\n");
    let said = f.run(&["run", "empty.onnx", "--format", "json"]).stdout;
    let said: serde_json::Value = serde_json::from_slice(&said).unwrap();
    for field in ["min", "max", "mean"] {
        assert!(said["outputs"][0][field].is_null(), "{said}");
    }
}

#[test]
fn sizes_that_a_model_has_may_be_given() {
    let f = Folder::new("given");
    let mut g = Graph::new("fixed");
    let x = g.input("x", TensorType::fixed(DType::F32, &[2, 4]));
    let symbol = [Dim::symbol("n"), Dim::from(4)].into_iter().collect();
    let z = g.input("z", TensorType { dtype: DType::F32, shape: symbol });
    g.outputs = vec![g.add1(ops::Binary::Add, &[x, z], origin("y")).unwrap()];
    write(&f, "fixed.onnx", &g);
    for (code, shapes) in [
        (0, &["--shape", "x:2x4", "--shape", "z:2x4"][..]),
        (0, &["--shape", "z:1x4"]),
        (2, &["--shape", "x:3x4", "--shape", "z:2x4"]),
    ] {
        let output = f.run(&[&["run", "fixed.onnx"], shapes].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{shapes:?}: {said}");
    }
    // Only a node without meaning here has the size.
    let mut g = Graph::new("unknown");
    let x = g.input("x", TensorType::fixed(DType::F32, &[2]));
    let shape = [Dim::symbol("rows")].into_iter().collect();
    let op = ops::Opaque {
        domain: "com.example".to_owned(),
        name: "Unknown".to_owned(),
        opset: 1,
        attributes: Vec::new(),
        outputs: vec![TensorType { dtype: DType::F32, shape }.into()],
    };
    g.outputs = vec![g.add1(op, &[x], origin("y")).unwrap()];
    write(&f, "unknown.onnx", &g);
    let words = &["`y` is f32[rows]", "no input has such a size"];
    f.fails(&["run", "unknown.onnx"], 2, words, &[]);
    f.fails(&["optimize", "unknown.onnx", "-o", "x.bricolage"], 2, words, &["x.bricolage"]);
}

#[test]
fn a_changed_artefact_is_refused_by_every_verb() {
    let f = Folder::new("changed");
    model(&f.0);
    let made = f.run(&["optimize", "small.onnx@native", "-o", "s.bricolage", "--shape", "x:2x4"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    for name in ["report.json", "model.onnx", "weights.bin", "manifest.json"] {
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
        ("small.onnx@mnn", "y.bricolage", &[], "no part of plans"),
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
    for backend in ["onnxruntime", "openvino", "blas", "onednn", "nonsense"] {
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
