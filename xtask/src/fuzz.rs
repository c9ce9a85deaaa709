//! Long runs of the fuzzer.

use std::{path::Path, process::Command};

/// Runs the fuzzer with these options; with the foreign runtime of the test environment, where that was
/// made.
pub(crate) fn run(root: &Path, options: &[&str]) -> Result<(), String> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args([
            "run",
            "--quiet",
            "--release",
            "--package",
            "bricolage-testkit",
            "--bin",
            "fuzz",
            "--",
        ])
        .args(options)
        .current_dir(root);
    let environment = root.join(crate::test::ENVIRONMENT);
    if std::env::var_os("BRICOLAGE_ONNXRUNTIME").is_none() && environment.exists() {
        command.env("BRICOLAGE_ONNXRUNTIME", environment);
    }
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) if status.code() == Some(1) => Err("the fuzzer found faults".to_owned()),
        Ok(status) => Err(format!("the fuzzer failed ({status})")),
        Err(e) => Err(format!("cannot run cargo: {e}")),
    }
}
