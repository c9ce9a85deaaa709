//! A fixed number of random graphs on every engine; `cargo xtask fuzz` runs as many as wanted.
#![allow(clippy::unwrap_used, clippy::print_stderr)] // a test may panic, and says what it skips

use bricolage_testkit::{command, engines, run_seed};
use std::{path::PathBuf, time::Duration};

const SEEDS: u64 = 200;

#[test]
fn engines_agree_on_random_graphs() {
    let named = std::env::var_os("BRICOLAGE_ONNXRUNTIME").map(PathBuf::from);
    let (all, absent) = engines(named.as_deref());
    for why in absent {
        eprintln!("skipped: {why}");
    }
    let mut faults = Vec::new();
    for seed in 0..SEEDS {
        for failure in run_seed(seed, &all, Duration::from_secs(5)).failures {
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
}
