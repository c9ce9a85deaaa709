//! Damaged models give an answer or an error. Alone in its process: it watches the address space.

use bricolage_testkit::damage;
use std::path::PathBuf;

const SEEDS: u64 = 1500;

#[test]
fn damaged_models_do_no_harm() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/fuzz");
    let (mut faults, mut read) = (Vec::new(), 0);
    for seed in 0..SEEDS {
        match damage::run_seed(seed) {
            Ok(understood) => read += u64::from(understood),
            Err(fault) => {
                let at = fault.write(seed, &folder).map(|p| p.display().to_string());
                faults.push(format!("seed {seed}: {fault}, {at:?}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    // Most damage is seen, and some is none.
    assert!((SEEDS / 20..SEEDS).contains(&read), "{read} of {SEEDS} models were understood");
}
