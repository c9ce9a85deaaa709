//! Programs of the dev crate: long runs of fuzz targets, and the backend tests of ONNX.

use crate::test::{ENVIRONMENT, Judges, VARIABLES};
use std::{fs, path::Path, process::Command};

/// Runs one fuzz target, or each in turn, with the other options; with the foreign libraries of the
/// test environment, where that was made.
pub(crate) fn fuzz(root: &Path, options: &[&str]) -> Result<(), String> {
    let (targets, options) = match options {
        ["--target", name, rest @ ..] => (vec![(*name).to_owned()], rest),
        all => (fuzz_targets(root)?, all),
    };
    let environment = root.join(ENVIRONMENT);
    let mut faulty = Vec::new();
    for name in targets {
        let mut command = program(root, "bricolage-fuzz", &name, options);
        for name in VARIABLES.iter().filter(|v| std::env::var_os(v).is_none()) {
            if environment.exists() {
                command.env(name, &environment);
            }
        }
        if let Err(why) = run(command, "it found something") {
            faulty.push(format!("target {name}: {why}"));
        }
    }
    if faulty.is_empty() { Ok(()) } else { Err(faulty.join("\n")) }
}

/// Names of all fuzz targets, sorted.
fn fuzz_targets(root: &Path) -> Result<Vec<String>, String> {
    let folder = root.join("fuzz/fuzz_targets");
    let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|e| Some(e.file_name().to_str()?.strip_suffix(".rs")?.to_owned()))
        .collect();
    names.sort();
    Ok(names)
}

/// Runs the backend tests of ONNX with these options; makes the test environment where it is missing.
pub(crate) fn conformance(root: &Path, options: &[&str]) -> Result<(), String> {
    let root = &root.canonicalize().map_err(|e| format!("{}: {e}", root.display()))?;
    let mut command = program(root, "bricolage-testkit", "conformance", options);
    Judges::make(root)?.tell(&mut command);
    run(command, "tests failed that are not in the list, or passed that are")
}

/// A program of a package, built for release.
pub(crate) fn program(root: &Path, package: &str, name: &str, options: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(["run", "--quiet", "--release", "--package", package, "--bin", name, "--"])
        .args(options)
        .current_dir(root);
    command
}

/// `fault` says what exit code 1 means.
pub(crate) fn run(mut command: Command, fault: &str) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) if status.code() == Some(1) => Err(fault.to_owned()),
        Ok(status) => Err(format!("it could not be run ({status})")),
        Err(e) => Err(format!("cannot run cargo: {e}")),
    }
}
