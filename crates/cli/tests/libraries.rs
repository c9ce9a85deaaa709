//! Backends that are libraries: the samples, and libraries that do one thing wrong each. A fault costs the
//! candidate that it was found with, is said with its reason, and is not tried again.
#![allow(clippy::unwrap_used)] // a test may panic

mod folder;

use bricolage_ir::{Graph, ops, origin};
use bricolage_tensor::{DType, Tensor, TensorType};
use folder::Folder;
use std::{
    fs,
    path::{Path, PathBuf},
    process::Output,
};

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The library that the C compiler makes of a source, with definitions.
fn compile(f: &Folder, name: &str, source: &Path, definitions: &[&str]) -> String {
    let library = format!("lib{name}.so");
    let compiled = std::process::Command::new("cc")
        .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-pthread"])
        .args(definitions)
        .arg(format!("-I{ROOT}/include"))
        .args([source, Path::new("-o"), &f.0.join(&library)])
        .output()
        .expect("this test needs the C compiler `cc`");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    format!("./{library}")
}

fn sample_in_c() -> PathBuf {
    Path::new(ROOT).join("examples/plugins/c/tinymath.c")
}

/// `relu(x w + b)`, and a sum that the samples do not take.
fn model(f: &Folder) {
    let mut g = Graph::new("dense");
    let x = g.input("x", TensorType::fixed(DType::F32, &[6, 8]));
    let w = g.constant("w", Tensor::generate(DType::F32, &[8, 5], |i| (i as f64 * 0.37).sin()));
    let b = g.constant("b", Tensor::generate(DType::F32, &[5], |i| i as f64 - 2.0));
    let product = ops::MatMul { transpose_lhs: false, transpose_rhs: false };
    let product = g.add1(product, &[x, w], origin("fc")).unwrap();
    let sum = g.add1(ops::Binary::Add, &[product, b], origin("bias")).unwrap();
    let relu = g.add1(ops::Unary::Relu, &[sum], origin("relu")).unwrap();
    let tanh = g.add1(ops::Unary::Tanh, &[relu], origin("tanh")).unwrap();
    g.outputs = vec![tanh];
    fs::write(f.0.join("m.onnx"), bricolage_onnx::export(&g).unwrap()).unwrap();
}

/// What a command said, if it ended well.
fn well(output: Output) -> (String, String) {
    let [out, err] =
        [output.stdout, output.stderr].map(|b| String::from_utf8_lossy(&b).into_owned());
    assert!(output.status.success(), "{out}\n{err}");
    (out, err)
}

fn report(f: &Folder, artefact: &str) -> serde_json::Value {
    serde_json::from_str(&well(f.run(&["explain", artefact, "--format", "json"])).0).unwrap()
}

fn used(report: &serde_json::Value) -> Vec<&str> {
    report["regions"].as_array().unwrap().iter().map(|r| r["backend"].as_str().unwrap()).collect()
}

#[test]
fn the_sample_in_c_makes_plans_that_are_kept_and_loaded_again() {
    let f = Folder::new("library-sample");
    model(&f);
    let library = compile(&f, "tinymath", &sample_in_c(), &[]);
    let with = |arguments: &[&str]| f.run(&[arguments, &["--backend-lib", &library]].concat());
    let (list, _) = well(with(&["backend", "list"]));
    assert!(list.contains("tinymath     1.0.0 ("), "{list}");
    assert!(list.contains(&library) && list.contains("relu, and products by a constant"), "{list}");
    let optimize = ["optimize", "m.onnx", "-o", "m.bricolage", "--threads", "2"];
    well(with(&[&optimize[..], &["--backend", "tinymath"]].concat()));
    let report = report(&f, "m.bricolage");
    assert!(used(&report).contains(&"tinymath"), "{report:#}");
    well(with(&["compare", "m.onnx@reference", "m.bricolage"]));
    well(with(&["bench", "m.bricolage", "--iterations", "3"]));
    // In a variable, and beside all other backends.
    let by_variable = |arguments: &[&str]| {
        f.command(arguments).env("BRICOLAGE_BACKEND_LIB", &library).output().unwrap()
    };
    well(by_variable(&["run", "m.bricolage"]));
    well(by_variable(&["optimize", "m.onnx", "-o", "all.bricolage"]));
    // Without it, and with another.
    let needs = ["artefact `m.bricolage`: it needs backend `tinymath` 1.0.0 (", "--backend-lib"];
    f.fails(&["run", "m.bricolage"], 2, &needs, &[]);
    let newer = fs::read_to_string(sample_in_c()).unwrap().replace("1.0.0", "1.1.0");
    fs::write(f.0.join("newer.c"), newer).unwrap();
    let newer = compile(&f, "newer", &f.0.join("newer.c"), &[]);
    let words =
        ["it needs backend `tinymath` 1.0.0 (", "found 1.1.0 (", "optimise the model again"];
    f.fails(&["run", "m.bricolage", "--backend-lib", &newer], 2, &words, &[]);
    // One name, two libraries.
    let both = ["run", "m.onnx", "--backend-lib", &library, "--backend-lib", &newer];
    let words =
        ["error[backend::library]", "libnewer.so", "no other backend has, found `tinymath`"];
    f.fails(&both, 2, &words, &[]);
}

#[test]
fn the_backend_of_the_walk_through_does_what_it_says() {
    let f = Folder::new("library-docs");
    let text = fs::read_to_string(Path::new(ROOT).join("docs/backends.md")).unwrap();
    let (_, rest) = text.split_once("```c\n").unwrap();
    fs::write(f.0.join("affine.c"), rest.split_once("```").unwrap().0).unwrap();
    let library = compile(&f, "affine", &f.0.join("affine.c"), &[]);
    let mut g = Graph::new("scaled");
    let x = g.input("x", TensorType::fixed(DType::F32, &[3, 4, 6]));
    let row = |k: f64| Tensor::generate(DType::F32, &[6], |i| (i as f64 + k).cos());
    let (scale, shift) = (g.constant("scale", row(1.0)), g.constant("shift", row(2.0)));
    let scaled = g.add1(ops::Binary::Mul, &[x, scale], origin("scaled")).unwrap();
    g.outputs = vec![g.add1(ops::Binary::Add, &[scaled, shift], origin("y")).unwrap()];
    fs::write(f.0.join("model.onnx"), bricolage_onnx::export(&g).unwrap()).unwrap();
    let lib = ["--backend-lib", &library];
    let optimize = ["optimize", "model.onnx", "-o", "m.bricolage", "--backend", "affine"];
    well(f.run(&[&optimize[..], &lib].concat()));
    assert_eq!(used(&report(&f, "m.bricolage")), ["affine"]);
    well(f.run(&[&["compare", "model.onnx@reference", "m.bricolage"][..], &lib].concat()));
}

#[test]
fn the_sample_in_rust_makes_plans() {
    let f = Folder::new("library-rust");
    model(&f);
    let target = Path::new(ROOT).join("target/plugins");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = std::process::Command::new(cargo)
        .args(["build", "--release", "--quiet", "--offline", "--manifest-path"])
        .arg(Path::new(ROOT).join("examples/plugins/rust/Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let library = target.join("release/libtinyrust.so");
    let library = library.to_str().unwrap();
    let with = |arguments: &[&str]| f.run(&[arguments, &["--backend-lib", library]].concat());
    well(with(&["optimize", "m.onnx", "-o", "m.bricolage", "--backend", "tinyrust"]));
    let report = report(&f, "m.bricolage");
    assert!(used(&report).contains(&"tinyrust"), "{report:#}");
    well(with(&["compare", "m.onnx@reference", "m.bricolage"]));
}

/// One fault: the search ends well without the candidate, says why, and the next search does not try it.
fn fault(name: &str, words: &str) {
    let f = Folder::new(&format!("library-{}", name.to_lowercase()));
    model(&f);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/libraries/hostile.c");
    let library = compile(&f, "hostile", &source, &[&format!("-DFAULT={name}")]);
    let marks = f.0.join("marks");
    let count = |letters: &str| {
        let text = fs::read_to_string(&marks).unwrap_or_default();
        text.chars().filter(|c| letters.contains(*c)).count()
    };
    let optimize = |limit: &str| {
        let arguments = [
            "optimize",
            "m.onnx",
            "-o",
            "m.bricolage",
            "--overwrite",
            "--backend-lib",
            &library,
            "--kernel-time-limit",
            "2s",
            "--time-limit",
            limit,
        ];
        well(f.command(&arguments).env("BRICOLAGE_TEST_MARKS", &marks).output().unwrap());
        let report = report(&f, "m.bricolage");
        assert!(!used(&report).contains(&"hostile"), "{name}: {report:#}");
        let all: Vec<String> = report["refused"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|r| r["backend"] == "hostile")
            .map(|r| r["why"].as_str().unwrap().to_owned())
            .collect();
        assert!(!all.is_empty() && all.iter().all(|why| why.contains(words)), "{name}: {all:?}");
        assert!(well(f.run(&["explain", "m.bricolage"])).0.contains("  hostile "));
    };
    optimize("60s");
    assert!(count("pcr") > 0);
    well(f.run(&["compare", "m.onnx@reference", "m.bricolage", "--backend-lib", &library]));
    let before = count("cr");
    // More time, so that the search is done again.
    optimize("120s");
    assert_eq!(count("cr"), before, "{name} was tried again");
}

macro_rules! faults {
    ($($test:ident $fault:literal: $words:literal;)*) => {
        $(#[test]
        fn $test() {
            fault($fault, $words);
        })*
    };
}

faults! {
    a_crash_in_plan "CRASH_IN_PLAN": "the process that ran it ended (signal: 6 (SIGABRT)";
    a_crash_in_compile "CRASH_IN_COMPILE": "the process that ran it ended (signal: 6 (SIGABRT)";
    a_crash_in_run "CRASH_IN_RUN": "the process that ran it ended (signal: 6 (SIGABRT)";
    a_crash_in_a_later_run "CRASH_LATER": "the process that ran it ended (signal: 6 (SIGABRT)";
    an_exit_in_run "EXIT_IN_RUN": "the process that ran it ended (exit status: 0)";
    a_plan_that_hangs "HANG_IN_PLAN": "asked what it takes, the process that ran it did not answer within 5 s and was stopped";
    a_compile_that_hangs "HANG_IN_COMPILE": "it did not answer within 2 s and was stopped";
    a_run_that_hangs "HANG_IN_RUN": "it did not answer within 2 s and was stopped";
    a_wrong_result "LIE": "its result is wrong";
    a_write_past_an_output "WRITE_PAST_OUTPUT": "it wrote outside its outputs and its workspace";
    a_write_past_the_workspace "WRITE_PAST_WORKSPACE": "it wrote outside its outputs and its workspace";
    a_write_to_an_input "WRITE_INPUT": "it wrote outside its outputs and its workspace";
    a_workspace_that_was_not_planned "READ_NO_WORKSPACE": "the process that ran it ended (signal: 11 (SIGSEGV)";
    what_a_workspace_held_before "READ_FRESH_WORKSPACE": "its result is wrong";
    runs_that_differ "CHANGE_BETWEEN_RUNS": "two runs on equal inputs differ";
}

/// What `backend test` finds of a library: its lines, and the exit code.
fn tried(f: &Folder, library: &str) -> (String, Option<i32>) {
    let arguments = [
        "backend",
        "test",
        library,
        "--threads",
        "2",
        "--graphs",
        "6",
        "--kernel-time-limit",
        "2s",
    ];
    let output = f.run(&arguments);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(!said.is_empty(), "{complaints}");
    (said, output.status.code())
}

#[test]
fn the_samples_pass_every_check() {
    let f = Folder::new("library-tried");
    let library = compile(&f, "tinymath", &sample_in_c(), &[]);
    let (said, code) = tried(&f, &library);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.lines().all(|l| l.starts_with("ok ") || l.starts_with("  ")), "{said}");
    assert!(said.contains("2 of 2 met by 24 graphs"), "{said}");
}

#[test]
fn a_check_fails_where_a_library_does() {
    let f = Folder::new("library-failing");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/libraries/hostile.c");
    for (fault, check) in [
        ("CRASH_IN_RUN", "processes"),
        ("LIE", "results"),
        ("WRITE_PAST_OUTPUT", "memory"),
        ("CHANGE_BETWEEN_RUNS", "repeats"),
        ("START_THREADS", "threads"),
        ("LEAK", "leaks"),
    ] {
        let library = compile(&f, fault, &source, &[&format!("-DFAULT={fault}")]);
        let (said, code) = tried(&f, &library);
        assert_eq!(code, Some(1), "{fault}: {said}");
        let failed = said.lines().filter(|l| l.starts_with("FAILED"));
        let failed: Vec<&str> = failed.filter_map(|l| l.split_whitespace().nth(1)).collect();
        assert!(failed.contains(&check), "{fault}: {said}");
    }
    let library = compile(&f, "sound", &source, &["-DFAULT=NONE"]);
    let (said, code) = tried(&f, &library);
    assert_eq!(code, Some(0), "{said}");
    f.fails(&["backend", "test", "./nowhere.so"], 2, &["error[backend::library]"], &[]);
    f.fails(&["backend", "test", "nowhere"], 2, &["error[backend::absent]"], &[]);
}

#[test]
fn a_backend_of_ours_is_tried_on_common_shapes_and_on_models() {
    let f = Folder::new("library-ours");
    model(&f);
    let output = f.run(&["backend", "test", "native", "m.onnx", "--threads", "2", "--graphs", "4"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("8 of 8 met"), "{said}");
}

#[test]
fn a_library_that_crashes_when_it_is_loaded_is_an_error_in_words() {
    let f = Folder::new("library-load");
    model(&f);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/libraries/hostile.c");
    let library = compile(&f, "hostile", &source, &["-DFAULT=CRASH_AT_LOAD"]);
    let words = [
        "error[backend::library]",
        "libhostile.so",
        "cannot be loaded: the process that ran it ended",
    ];
    let optimize = ["optimize", "m.onnx", "-o", "x.bricolage", "--backend-lib", &library];
    f.fails(&optimize, 2, &words, &["x.bricolage"]);
    let (list, _) = well(f.run(&["backend", "list", "--backend-lib", &library]));
    assert!(list.contains("libhostile.so absent") && list.contains(words[2]), "{list}");
}
