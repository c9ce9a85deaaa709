//! The backend tests of ONNX on every engine, as `cargo xtask conformance` runs them.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test may panic, and says what passes

use bricolage_backends::OpenVino;
use bricolage_testkit::{
    Workers,
    conformance::{SKIPS, computers, run, skips},
};
use std::path::{Path, PathBuf};

/// The share of the node tests that must pass on these.
const LEAST: (f64, [&str; 2]) = (0.98, ["reference", "optimised"]);

#[test]
fn models_give_the_results_that_onnx_expects() {
    let Some(folder) = std::env::var_os("BRICOLAGE_CONFORMANCE") else {
        println!("skipped: BRICOLAGE_CONFORMANCE names no folder of backend tests");
        return;
    };
    let workers = Workers::of(env!("CARGO_BIN_EXE_conformance").into());
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let (mut all, absent) = computers(&variable, &workers);
    for why in absent {
        println!("without {why}");
    }
    // It compiles for minutes: each test a model.
    if let Some(at) = all.iter().position(|c| c.name == OpenVino::NAME) {
        println!("skipped: {}, which `cargo xtask conformance` runs", all.remove(at).name);
    }
    let list = skips(&Path::new(env!("CARGO_MANIFEST_DIR")).join(SKIPS)).unwrap();
    let report = run(Path::new(&folder), &all, &list, "").unwrap();
    println!("{report}");
    assert!(report.faults.is_empty(), "{} faults", report.faults.len());
    for engine in LEAST.1 {
        let count = report.counts.iter().find(|c| c.kind == "node tests" && c.engine == engine);
        let share = count.map(|c| c.all_passed() as f64 / c.tests as f64);
        assert!(share.is_some_and(|s| s >= LEAST.0), "{engine}: {share:?}");
    }
}
