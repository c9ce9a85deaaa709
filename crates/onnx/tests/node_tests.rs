//! The node tests of ONNX, as the independent judge of what ops mean.
//!
//! `tests/write_node_tests.py FOLDER` writes them; `BRICOLAGE_NODE_TESTS=FOLDER` names the folder.
#![allow(clippy::unwrap_used)] // outside the test functions too, all is test

use bricolage_ir::{evaluate, named_inputs, verify};
use bricolage_onnx::{ImportError, Stored, export, import, load, read_datum};
use bricolage_tensor::{Datum, Storage, Tensor};
use std::{collections::HashMap, fs, path::Path};

/// Cases that the graph means otherwise, and why.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("test_resize_downsample_scales_cubic_align_corners", ALIGNED),
    ("test_resize_downsample_scales_linear_align_corners", ALIGNED),
];
const ALIGNED: &str = "expected from the unrounded size of the result; onnxruntime and PyTorch, \
                       like the graph, take the size that the result has";

/// Cases whose expected results are sums that cancel, rounded to single precision on the way: each errs by a
/// rounding of the largest, and is compared within that.
const CANCELLED: &[&str] = &["test_dft_inverse", "test_dft_inverse_opset19"];

enum Outcome {
    Passed,
    Unsupported(String),
    Failed(String),
}

/// Cases of random numbers: types and shapes are told, and each element that is not 0 by chance.
fn is_random(folder: &Path) -> bool {
    let Some(name) = folder.file_name() else { return false };
    let name = name.to_string_lossy();
    let drops = name.starts_with("test_training_dropout") && !name.contains("zero_ratio");
    drops || name.starts_with("test_bernoulli")
}

/// The data of a set; the kind of each value stands in the name of its file, a tensor's in none.
fn data(folder: &Path, prefix: &str) -> Result<Vec<Datum>, String> {
    let mut all = Vec::new();
    let kinds = [("", Stored::Tensor), (".seq", Stored::Sequence), (".opt", Stored::Optional)];
    loop {
        let found = kinds.iter().find_map(|(mark, kind)| {
            let path = folder.join(format!("{prefix}_{}{mark}.pb", all.len()));
            Some((fs::read(path).ok()?, *kind))
        });
        let Some((bytes, kind)) = found else { return Ok(all) };
        all.push(read_datum(Storage::copy_of(&bytes), kind).map_err(|e| e.to_string())?);
    }
}

/// Where values of any kind differ.
fn datum_differs(got: &Datum, want: &Datum, limits: (f64, f64), random: bool) -> Option<String> {
    match (got, want) {
        (Datum::Tensor(got), Datum::Tensor(want)) if random && got.ty() == want.ty() => {
            let both = got.to_f64().into_iter().zip(want.to_f64());
            let both = both.map(|(a, b)| if a == 0.0 || b == 0.0 { (0.0, 0.0) } else { (a, b) });
            let (a, b): (Vec<f64>, Vec<f64>) = both.unzip();
            let tensor = |v: &[f64]| Tensor::from_f64(got.dtype(), got.dims(), v);
            differs(&tensor(&a), &tensor(&b), limits)
        }
        (Datum::Tensor(got), Datum::Tensor(want)) => differs(got, want, limits),
        (Datum::Sequence(got), Datum::Sequence(want)) if got.len() == want.len() => {
            let mut pairs = got.iter().zip(want).enumerate();
            pairs.find_map(|(i, (got, want))| {
                let why = datum_differs(got, want, limits, random)?;
                Some(format!("element {i} of the list: {why}"))
            })
        }
        (Datum::Optional(Some(got)), Datum::Optional(Some(want))) => {
            datum_differs(got, want, limits, random)
        }
        (got, want) => (got != want).then(|| format!("{got:?} is not {want:?}")),
    }
}

/// Where the results differ by more than the test's own relative and absolute tolerance.
fn differs(got: &Tensor, want: &Tensor, (rtol, atol): (f64, f64)) -> Option<String> {
    if got.dtype() != want.dtype() || got.dims() != want.dims() {
        return Some(format!("{} is not {}", got.ty(), want.ty()));
    }
    // The expected results in a half type come from code that rounds every step to it.
    let steps = if want.dtype().bits() == 16 { 4.0 } else { 0.0 };
    let rtol = rtol.max(steps * want.dtype().epsilon());
    let pairs = got.to_f64().into_iter().zip(want.to_f64());
    let bad = |a: f64, b: f64| {
        !(a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= atol + rtol * b.abs())
    };
    let all: Vec<String> = pairs
        .enumerate()
        .filter(|(_, (a, b))| bad(*a, *b))
        .map(|(i, (a, b))| format!("element {i}: {a} is not {b}"))
        .collect();
    all.first().map(|first| format!("{} differ, {first}", all.len()))
}

fn tolerance(folder: &Path, want: &Datum) -> (f64, f64) {
    let text = fs::read_to_string(folder.join("tolerance.txt")).unwrap();
    let (rtol, atol) = text.split_once(' ').unwrap();
    let (rtol, mut atol): (f64, f64) = (rtol.parse().unwrap(), atol.parse().unwrap());
    if let Datum::Tensor(want) = want
        && CANCELLED.iter().any(|name| folder.ends_with(name))
    {
        let largest = want.to_f64().iter().fold(0.0, |m: f64, v| m.max(v.abs()));
        atol = atol.max(largest * f64::from(f32::EPSILON) / 2.0);
    }
    (rtol, atol)
}

fn run(folder: &Path, file: &str) -> Outcome {
    let model = match load(&folder.join(file)) {
        Ok(model) => model,
        Err(e) if e.is_unsupported() || matches!(e, ImportError::Input { .. }) => {
            return Outcome::Unsupported(format!("{e}: {}", e.notes().join("; ")));
        }
        Err(e) => return Outcome::Failed(e.to_string()),
    };
    if !model.warnings.is_empty() {
        return Outcome::Failed(model.warnings.join("; "));
    }
    let faults = verify(&model.graph);
    if !faults.is_empty() {
        return Outcome::Failed(format!("{faults:?}"));
    }
    let again = match export(&model.graph).map(|bytes| import(Storage::copy_of(&bytes), None)) {
        Ok(Ok(again)) => again,
        Ok(Err(e)) => return Outcome::Failed(format!("round trip: {e}")),
        Err(e) => return Outcome::Failed(format!("export: {e}")),
    };
    for set in 0.. {
        let data = folder.join(format!("test_data_set_{set}"));
        if !data.is_dir() {
            return if set == 0 { Outcome::Failed("no data".to_owned()) } else { Outcome::Passed };
        }
        let (inputs, outputs) = match (self::data(&data, "input"), self::data(&data, "output")) {
            (Ok(inputs), Ok(outputs)) => (inputs, outputs),
            (Err(e), _) | (_, Err(e)) => return Outcome::Unsupported(e),
        };
        for (what, graph) in [("import", &model.graph), ("round trip", &again.graph)] {
            let names = graph.inputs.iter().map(|&v| graph.value(v).name.to_string());
            let data: HashMap<String, Datum> = names.zip(inputs.iter().cloned()).collect();
            let got = named_inputs(graph, data).and_then(|inputs| evaluate(graph, &inputs));
            let got = match got {
                Ok(got) => got,
                Err(bricolage_ir::EvalError::Node { error, .. })
                    if matches!(*error, bricolage_ir::EvalError::Foreign { .. }) =>
                {
                    return Outcome::Unsupported(error.to_string());
                }
                Err(e) => return Outcome::Failed(format!("{what}: {e}")),
            };
            if got.len() != outputs.len() {
                return Outcome::Failed(format!("{what}: {} outputs", got.len()));
            }
            for (i, (got, want)) in got.iter().zip(&outputs).enumerate() {
                if let Some(why) =
                    datum_differs(got, want, tolerance(folder, want), is_random(folder))
                {
                    return Outcome::Failed(format!("{what}: output {i}: {why}"));
                }
            }
        }
    }
    Outcome::Passed
}

#[test]
fn node_tests_pass() {
    let Ok(folder) = std::env::var("BRICOLAGE_NODE_TESTS") else {
        println!("skipped: BRICOLAGE_NODE_TESTS names no folder of ONNX node tests");
        return;
    };
    let only = std::env::var("BRICOLAGE_NODE_TESTS_ONLY").unwrap_or_default();
    let mut cases: Vec<_> = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    cases.retain(|p| p.join("model.onnx").is_file() && p.to_string_lossy().contains(&only));
    cases.sort();
    let (mut passed, mut unsupported, mut failed) = ([0; 3], Vec::new(), Vec::new());
    for case in &cases {
        let name = case.file_name().unwrap().to_string_lossy().into_owned();
        // Operands that decide a shape must be constant; such cases are tried again with them.
        let mut first = None;
        let mut outcome = None;
        for (i, file) in ["model.onnx", "constants.onnx", "all_constants.onnx"].iter().enumerate() {
            if !case.join(file).is_file() {
                break;
            }
            match run(case, file) {
                Outcome::Passed => {
                    passed[i] += 1;
                    outcome = Some(None);
                }
                Outcome::Failed(why) => outcome = Some(Some(why)),
                Outcome::Unsupported(why) => {
                    first.get_or_insert(why);
                }
            }
            if outcome.is_some() {
                break;
            }
        }
        match (outcome, first) {
            (Some(None), _) if EXCEPTIONS.iter().any(|e| e.0 == name) => {
                failed.push(format!("{name}: passes, and is listed as an exception"));
            }
            (Some(None), _) => {}
            (Some(Some(why)), _) => match EXCEPTIONS.iter().find(|e| e.0 == name) {
                Some((_, why)) => unsupported.push(format!("{name}: {why}")),
                None => failed.push(format!("{name}: {why}")),
            },
            (None, why) => unsupported.push(format!("{name}: {}", why.unwrap_or_default())),
        }
    }
    for line in &unsupported {
        println!("unsupported {line}");
    }
    for line in &failed {
        println!("FAILED {line}");
    }
    let [as_is, constants, all] = passed;
    println!(
        "{} of {} passed ({as_is} as they are, {constants} with constant operands, {all} with \
         constant inputs), {} unsupported",
        as_is + constants + all,
        cases.len(),
        unsupported.len()
    );
    assert!(failed.is_empty(), "{} node tests failed", failed.len());
}
