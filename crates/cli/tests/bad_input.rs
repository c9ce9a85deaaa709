//! Bad input gives a clear error, the right exit code and nothing half-written; never a panic.
#![allow(clippy::unwrap_used)] // a test may panic

mod folder;

use folder::{Folder, model};
use std::{
    fs,
    process::{Command, Stdio},
};

#[test]
fn files_that_are_no_models() {
    let f = Folder::new("files");
    model(&f.0);
    let whole = fs::read(f.0.join("small.onnx")).unwrap();
    fs::write(f.0.join("cut.onnx"), &whole[..whole.len() / 2]).unwrap();
    fs::write(f.0.join("empty.onnx"), b"").unwrap();
    let noise: Vec<u8> =
        (0..4096u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::write(f.0.join("noise.onnx"), noise).unwrap();
    for verb in ["inspect", "run"] {
        for file in ["cut.onnx", "empty.onnx", "noise.onnx"] {
            f.fails(&[verb, file], 2, &["error[onnx::"], &[]);
        }
        f.fails(&[verb, "absent.onnx"], 2, &["absent.onnx", "no such file"], &[]);
    }
    f.fails(
        &["optimize", "cut.onnx", "-o", "out.bricolage"],
        2,
        &["error[onnx::"],
        &["out.bricolage"],
    );
}

#[test]
fn inputs_that_do_not_fit() {
    let f = Folder::new("inputs");
    model(&f.0);
    let npz = |name: &str, tensors: &[(String, bricolage_tensor::Tensor)]| {
        bricolage::npz::write(&f.0.join(name), tensors).unwrap();
    };
    let floats = |dims: &[i64]| {
        bricolage_tensor::Tensor::generate(bricolage_tensor::DType::F32, dims, |i| i as f64)
    };
    npz("good.npz", &[("x".into(), floats(&[2, 4]))]);
    npz("name.npz", &[("z".into(), floats(&[2, 4]))]);
    npz("rank.npz", &[("x".into(), floats(&[8]))]);
    npz("dim.npz", &[("x".into(), floats(&[2, 5]))]);
    npz("type.npz", &[("x".into(), bricolage_tensor::Tensor::of(&[2, 4], &[0i64; 8]))]);
    npz("more.npz", &[("x".into(), floats(&[2, 4])), ("z".into(), floats(&[1]))]);
    fs::write(f.0.join("text.npz"), "this is text").unwrap();
    let good = f.run(&["run", "small.onnx", "--input", "good.npz", "--output", "y.npz"]);
    assert!(good.status.success(), "{}", String::from_utf8_lossy(&good.stderr));
    assert_eq!(bricolage::npz::read(&f.0.join("y.npz")).unwrap()[0].1.dims(), [2, 3]);
    let cases: &[(&str, &[&str])] = &[
        ("name.npz", &["input `x` is missing"]),
        ("rank.npz", &["`x`", "found f32[8]"]),
        ("dim.npz", &["`x`", "found f32[2, 5]"]),
        ("type.npz", &["`x`", "found i64[2, 4]"]),
        ("more.npz", &["no input `z`"]),
        ("text.npz", &["text.npz"]),
        ("absent.npz", &["absent.npz"]),
    ];
    for (file, words) in cases {
        f.fails(&["run", "small.onnx", "--input", file, "--output", "z.npz"], 2, words, &["z.npz"]);
    }
    f.fails(&["run", "small.onnx"], 2, &["--shape"], &[]);
    f.fails(
        &["run", "small.onnx", "--input", "good.npz", "--output", "y.npz"],
        2,
        &["--overwrite"],
        &[],
    );
    f.fails(&["inspect", "small.onnx", "--shape", "q:1x2"], 2, &["no input `q`"], &[]);
    f.fails(&["inspect", "small.onnx", "--shape", "x:1"], 2, &["`x`"], &[]);
    for rows in ["1152921504606846976", "100000000000"] {
        let shape = format!("x:{rows}x4");
        f.fails(&["run", "small.onnx", "--shape", &shape], 2, &["`x`", "bytes of memory"], &[]);
    }
}

#[test]
fn outputs_that_cannot_be_written_and_backends_that_are_absent() {
    let f = Folder::new("outputs");
    model(&f.0);
    f.fails(
        &["optimize", "small.onnx", "-o", "no/such/folder/x.bricolage", "--shape", "x:1x4"],
        2,
        &["cannot write"],
        &["no"],
    );
    f.fails(
        &[
            "optimize",
            "small.onnx",
            "-o",
            "x.bricolage",
            "--backend",
            "onnxruntime",
            "--shape",
            "x:1x4",
        ],
        2,
        &["onnxruntime"],
        &["x.bricolage"],
    );
    f.fails(
        &["optimize", "small.onnx", "-o", "x.bricolage", "--backend", "nonsense"],
        2,
        &["nonsense"],
        &["x.bricolage"],
    );
    f.fails(&["optimize", "small.onnx", "-o", "x.bricolage"], 2, &["--shape"], &["x.bricolage"]);
    f.fails(&["explain", "small.onnx"], 2, &["small.onnx"], &[]);
    f.fails(&["zoo", "alexnet"], 2, &["alexnet", "resnet18"], &[]);
    f.fails(&["zoo", "resnet18", "-o", "no/such/folder/x.onnx"], 2, &["no/such/folder"], &["no"]);
    f.fails(&["run", "small.onnx@nonsense", "--shape", "x:1x4"], 2, &["nonsense"], &[]);
}

#[test]
fn results_that_nobody_reads_or_that_do_not_fit() {
    let start = |to: Stdio| {
        Command::new(env!("CARGO_BIN_EXE_bricolage"))
            .args(["zoo", "list"])
            .stdout(to)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut unread = start(Stdio::piped());
    drop(unread.stdout.take());
    let full = start(fs::File::options().write(true).open("/dev/full").unwrap().into());
    for (child, code, words) in [(unread, 0, ""), (full, 1, "cannot write to standard output")] {
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(words) && !said.contains("panicked"), "{said}");
    }
}

#[test]
fn targets_are_what_their_own_files_say() {
    let f = Folder::new("targets");
    model(&f.0);
    fs::write(f.0.join("random.onnx"), [7; 100]).unwrap();
    let small = fs::read(f.0.join("small.onnx")).unwrap();
    // Another constant, so another function of the same type.
    let at = small.windows(4).position(|w| w == 5f32.to_le_bytes()).unwrap();
    let mut other = small.clone();
    other[at..at + 4].copy_from_slice(&100f32.to_le_bytes());
    fs::write(f.0.join("other.onnx"), other).unwrap();
    let shape = ["--shape", "x:2x4"];
    f.fails(
        &[&["compare", "small.onnx", "random.onnx"], &shape[..]].concat(),
        2,
        &["ONNX model"],
        &[],
    );
    for second in ["other.onnx", "other.onnx@reference"] {
        let output = f.run(&[&["compare", "small.onnx", second], &shape[..]].concat());
        assert_eq!(output.status.code(), Some(1), "{second}");
    }
    f.fails(
        &[&["bench", "small.onnx", "random.onnx"], &shape[..]].concat(),
        2,
        &["ONNX model"],
        &[],
    );
    f.fails(&["bench", "small.onnx", "--iterations", "0"], 2, &["0"], &[]);
}

#[test]
fn nothing_but_results_is_replaced() {
    let f = Folder::new("replaced");
    model(&f.0);
    let shape = ["--shape", "x:2x4"];
    let run = ["run", "small.onnx", "--overwrite", "--output"];
    f.fails(&[&run[..], &["small.onnx"], &shape[..]].concat(), 2, &["small.onnx"], &[]);
    f.fails(&[&run[..], &["/dev/null"], &shape[..]].concat(), 2, &["regular file"], &[]);
    let optimize = ["optimize", "small.onnx", "--time-limit", "5s", "-o", "s.bricolage"];
    assert!(f.run(&[&optimize[..], &shape[..]].concat()).status.success());
    assert!(f.run(&["explain", "s.bricolage"]).status.success());
    fs::write(f.0.join("s.bricolage/notes.txt"), "mine").unwrap();
    f.fails(&[&optimize[..], &["--overwrite"], &shape[..]].concat(), 2, &["notes.txt"], &[]);
    assert!(f.0.join("s.bricolage/notes.txt").exists());
}

#[test]
fn verbs_report_json() {
    let f = Folder::new("json");
    model(&f.0);
    let json = |arguments: &[&str]| -> serde_json::Value {
        let output = f.run(arguments);
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let inspected = json(&["inspect", "small.onnx", "--format", "json"]);
    assert_eq!(inspected["schema_version"], 1);
    assert_eq!(inspected["inspection"]["parameters"], 12);
    assert_eq!(inspected["inspection"]["symbols"][0], "n");
    let optimised = json(&[
        "optimize",
        "small.onnx",
        "-o",
        "s.bricolage",
        "--shape",
        "x:2x4",
        "--threads",
        "1",
        "--format",
        "json",
    ]);
    assert_eq!(optimised["schema_version"], 2);
    assert!(optimised["contenders"].as_array().unwrap().iter().any(|c| c["chosen"] == true));
    assert_eq!(json(&["explain", "s.bricolage", "--format", "json"])["schema_version"], 2);
    let run = json(&["run", "s.bricolage", "--format", "json"]);
    assert_eq!(run["outputs"][0]["dims"], serde_json::json!([2, 3]));
    let compared = json(&[
        "compare",
        "small.onnx@reference",
        "s.bricolage",
        "--shape",
        "x:2x4",
        "--format",
        "json",
    ]);
    assert_eq!(compared["matches"], true);
    let bench =
        json(&["bench", "s.bricolage", "--iterations", "5", "--threads", "1", "--format", "json"]);
    assert_eq!(bench["targets"][0]["runs"], 5);
    assert!(bench["targets"][0]["median_ns"].as_f64().unwrap() > 0.0);
}
