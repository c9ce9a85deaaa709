//! A fixed number of random graphs on every engine; `cargo xtask fuzz` runs as many as wanted.
#![allow(clippy::unwrap_used, clippy::print_stderr)] // a test may panic, and says what it skips

use bricolage_testkit::{command, engines, run_seed};
use std::{collections::HashMap, path::PathBuf, time::Duration};

const SEEDS: u64 = 200;

#[test]
fn engines_agree_on_random_graphs() {
    let named = std::env::var_os("BRICOLAGE_ONNXRUNTIME").map(PathBuf::from);
    let (all, absent) = engines(named.as_deref());
    for why in absent {
        eprintln!("skipped: {why}");
    }
    let mut faults = Vec::new();
    let mut left: HashMap<String, u64> = HashMap::new();
    for seed in 0..SEEDS {
        let report = run_seed(seed, &all, Duration::from_secs(5));
        for (engine, _) in report.unsupported {
            *left.entry(engine).or_default() += 1;
        }
        for failure in report.failures {
            let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/fuzz");
            let at = failure.write(&folder).unwrap();
            faults.push(format!(
                "seed {seed}, {}: {}\n  {}\n  {}",
                failure.engine,
                failure.fault,
                at.display(),
                command(seed)
            ));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    for engine in &all {
        let taken = SEEDS - left.get(engine.name()).copied().unwrap_or(0);
        // ONNX does not say everything, and a foreign runtime does not have everything.
        let least = match engine.name() {
            "exported" => SEEDS / 2,
            "onnxruntime" => 1,
            _ => SEEDS,
        };
        assert!(taken >= least, "{} takes {taken} graphs of {SEEDS}", engine.name());
    }
}
