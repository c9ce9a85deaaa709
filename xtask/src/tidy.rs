//! The house rules that a machine can check.

use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Crates by layer; a crate depends on crates of lower layers only.
const LAYERS: &[(&str, u32)] = &[
    ("bricolage-tensor", 0),
    ("bricolage-search", 0),
    ("bricolage-plugin", 0),
    ("bricolage-ir", 1),
    ("bricolage-runtime", 1),
    ("bricolage-onnx", 2),
    ("bricolage-rewrite", 2),
    ("bricolage-backend", 2),
    ("bricolage-measure", 2),
    ("bricolage-emit", 2),
    ("bricolage-codegen", 3),
    ("bricolage-kernels", 3),
    ("bricolage-compress", 3),
    ("bricolage-zoo", 3),
    ("bricolage-backends", 4),
    ("bricolage-placement", 4),
    ("bricolage-memory", 4),
    ("bricolage", 5),
    ("bricolage-explore", 6),
    ("bricolage-report", 6),
    ("bricolage-cli", 7),
    ("bricolage-testkit", 8),
    ("bricolage-fuzz", 9),
    ("xtask", 9),
];

/// No file is longer.
const MOST_LINES: usize = 800;
/// Files that programs write.
const GENERATED: &[&str] = &["crates/onnx/src/proto.rs"];

/// Checks everything and lists all faults.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let mut faults = Vec::new();
    layers(root, &mut faults)?;
    map(root, &mut faults)?;
    files(root, &mut faults)?;
    if faults.is_empty() {
        println!("tidy: ok");
        return Ok(());
    }
    Err(format!("tidy found {} faults\n  {}", faults.len(), faults.join("\n  ")))
}

fn metadata(root: &Path) -> Result<Value, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()
        .map_err(|e| format!("cannot run cargo: {e}"))?;
    serde_json::from_slice(&output.stdout).map_err(|e| format!("cargo metadata: {e}"))
}

/// Dependencies point down, and every crate has a layer.
fn layers(root: &Path, faults: &mut Vec<String>) -> Result<(), String> {
    let layer: BTreeMap<&str, u32> = LAYERS.iter().copied().collect();
    let metadata = metadata(root)?;
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(&own) = layer.get(name) else {
            faults.push(format!("crate {name} has no layer in xtask/src/tidy.rs"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            // Tests may look at anything.
            if dependency["kind"].as_str() == Some("dev") {
                continue;
            }
            let other = dependency["name"].as_str().unwrap_or_default();
            if let Some(&below) = layer.get(other)
                && below >= own
            {
                faults.push(format!("{name} (layer {own}) depends on {other} (layer {below})"));
            }
        }
    }
    Ok(())
}

/// The map names every crate.
fn map(root: &Path, faults: &mut Vec<String>) -> Result<(), String> {
    let path = root.join("ARCHITECTURE.md");
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    for entry in fs::read_dir(root.join("crates")).map_err(|e| e.to_string())?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.path().is_dir() && !text.contains(&format!("`{name}`")) {
            faults.push(format!("ARCHITECTURE.md does not name the crate `{name}`"));
        }
    }
    Ok(())
}

/// Sizes, names and loose ends of source files.
fn files(root: &Path, faults: &mut Vec<String>) -> Result<(), String> {
    // Spelled in two parts, so that this file does not find itself.
    let loose = [concat!("tod", "o!("), concat!("unimplement", "ed!("), concat!("db", "g!(")];
    let vague = ["utils.rs", "util.rs", "helpers.rs", "common_utils.rs", "misc.rs"];
    let mut sources = Vec::new();
    for folder in ["crates", "fuzz", "xtask"] {
        collect(&root.join(folder), &mut sources);
    }
    sources.sort();
    for path in sources {
        let name = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        let text = fs::read_to_string(&path).map_err(|e| format!("{name}: {e}"))?;
        let generated = GENERATED.iter().any(|g| name.ends_with(g));
        let lines = text.lines().count();
        if lines > MOST_LINES && !generated {
            faults.push(format!("{name} has {lines} lines, at most {MOST_LINES} are allowed"));
        }
        if path.file_name().is_some_and(|f| vague.iter().any(|v| f == *v)) {
            faults.push(format!("{name} is named after nothing that it does"));
        }
        for (number, line) in text.lines().enumerate() {
            for word in loose {
                if line.contains(word) && !generated {
                    faults.push(format!("{name}:{} contains {word}", number + 1));
                }
            }
        }
    }
    Ok(())
}

fn collect(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            if path.file_name().is_some_and(|n| n != "target") {
                collect(&path, into);
            }
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(path);
        }
    }
}
