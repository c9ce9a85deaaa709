//! Programs of the dev crate: long runs of the fuzzer, and the backend tests of ONNX.

use crate::test::{ENVIRONMENT, Judges};
use std::{path::Path, process::Command};

/// Runs the fuzzer with these options; with the foreign runtime of the test environment, where that was
/// made.
pub(crate) fn fuzz(root: &Path, options: &[&str]) -> Result<(), String> {
    let mut command = program(root, "fuzz", options);
    let environment = root.join(ENVIRONMENT);
    if std::env::var_os("BRICOLAGE_ONNXRUNTIME").is_none() && environment.exists() {
        command.env("BRICOLAGE_ONNXRUNTIME", environment);
    }
    run(command, "the fuzzer found faults")
}

/// Runs the backend tests of ONNX with these options; makes the test environment where it is missing.
pub(crate) fn conformance(root: &Path, options: &[&str]) -> Result<(), String> {
    let root = &root.canonicalize().map_err(|e| format!("{}: {e}", root.display()))?;
    let mut command = program(root, "conformance", options);
    Judges::make(root)?.tell(&mut command);
    run(command, "tests failed that are not in the list, or passed that are")
}

fn program(root: &Path, name: &str, options: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args([
            "run",
            "--quiet",
            "--release",
            "--package",
            "bricolage-testkit",
            "--bin",
            name,
            "--",
        ])
        .args(options)
        .current_dir(root);
    command
}

/// `fault` says what exit code 1 means.
fn run(mut command: Command, fault: &str) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) if status.code() == Some(1) => Err(fault.to_owned()),
        Ok(status) => Err(format!("it could not be run ({status})")),
        Err(e) => Err(format!("cannot run cargo: {e}")),
    }
}
