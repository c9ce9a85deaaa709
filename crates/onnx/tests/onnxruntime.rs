//! onnxruntime as the judge of exported models: `BRICOLAGE_TEST_PYTHON` names a Python with the
//! packages `onnx` and `onnxruntime`.
#![allow(clippy::unwrap_used)] // outside the test functions too, all is test

mod cases;

use bricolage_ir::{Op, evaluate, named_inputs};
use bricolage_onnx::{export, export_structure, load, read_tensor, write_tensor};
use bricolage_tensor::{Datum, Storage};
use cases::Case;
use std::{collections::HashMap, fs, path::Path, process::Command};

/// Cases for which onnxruntime gives other results, and why it is not followed.
const EXCEPTIONS: &[(&str, &str)] =
    &[("TreeEnsemble.Sum.Logistic", "takes the number of the logistic function for softmax")];

/// Models of the node tests, when they are there.
fn node_tests() -> Vec<Case> {
    let Ok(folder) = std::env::var("BRICOLAGE_CONFORMANCE") else { return Vec::new() };
    let mut all = Vec::new();
    for entry in fs::read_dir(Path::new(&folder).join("node")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let Ok(model) = load(&path.join("model.onnx")) else { continue };
        let mut data = HashMap::new();
        for (i, &input) in model.graph.inputs.iter().enumerate() {
            let bytes = fs::read(path.join(format!("test_data_set_0/input_{i}.pb")));
            let Ok(bytes) = bytes else { continue };
            let Ok(t) = read_tensor(Storage::copy_of(&bytes)) else { continue };
            data.insert(model.graph.value(input).name.to_string(), Datum::from(t));
        }
        if let Ok(inputs) = named_inputs(&model.graph, data) {
            all.push(Case { name, graph: model.graph, inputs });
        }
    }
    all
}

fn write(case: &Case, folder: &Path) -> bool {
    // Every runtime draws random numbers of its own.
    if case.graph.nodes().any(|n| matches!(case.graph.node(n).op, Op::Random(_))) {
        return false;
    }
    let Ok(results) = evaluate(&case.graph, &case.inputs) else { return false };
    // The judge reads tensors alone.
    if results.iter().any(|d| d.as_tensor().is_none()) {
        return false;
    }
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("model.onnx"), export(&case.graph).unwrap()).unwrap();
    let structure = export_structure(&case.graph).unwrap();
    if !structure.weights.is_empty() {
        fs::write(folder.join("structure.onnx"), structure.bytes).unwrap();
        for (i, (name, t)) in structure.weights.iter().enumerate() {
            fs::write(folder.join(format!("weight_{i}.pb")), write_tensor(name, t)).unwrap();
        }
    }
    for (prefix, data) in [("input", &case.inputs), ("output", &results)] {
        for (i, datum) in data.iter().enumerate() {
            let bytes = write_tensor("", datum.as_tensor().unwrap());
            fs::write(folder.join(format!("{prefix}_{i}.pb")), bytes).unwrap();
        }
    }
    true
}

#[test]
fn exported_models_run_elsewhere_with_the_same_results() {
    let Ok(python) = std::env::var("BRICOLAGE_TEST_PYTHON") else {
        println!("skipped: BRICOLAGE_TEST_PYTHON names no Python with onnx and onnxruntime");
        return;
    };
    let folder = std::env::temp_dir().join(format!("bricolage-judge-{}", std::process::id()));
    let mut written = 0;
    for (i, case) in cases::cases().iter().chain(&node_tests()).enumerate() {
        written += usize::from(write(case, &folder.join(format!("{i:04}.{}", case.name))));
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/judge.py");
    let output = Command::new(python).arg(script).arg(&folder).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), written);
    let absent = lines.iter().filter(|l| l.ends_with(" absent")).count();
    let excused = |l: &str| EXCEPTIONS.iter().any(|(name, _)| l.contains(name));
    let failed: Vec<&&str> =
        lines.iter().filter(|l| l.contains(" FAILED ") && !excused(l)).collect();
    println!(
        "{written} models, {absent} that onnxruntime has no kernel for, {} differ",
        failed.len()
    );
    for line in lines.iter().filter(|l| l.ends_with(" absent")) {
        println!("{line}");
    }
    for line in &failed {
        println!("{line}");
    }
    fs::remove_dir_all(&folder).unwrap();
    assert!(failed.is_empty());
}
