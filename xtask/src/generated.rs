//! Models that a generator by others draws, on every engine.

use crate::{
    programs,
    test::{self, ENVIRONMENT, VARIABLES},
};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// The generator, and the judges that must agree on a model's results.
const PACKAGES: &[&str] = &[
    "nnsmith==0.1.0",
    "z3-solver==4.11.2.0",
    "onnx==1.14.1",
    "onnxruntime==1.17.3",
    "torch==2.2.2",
    "numpy==1.26.4",
];
const FOLDER: &str = "target/generated";
/// Models that are drawn at once.
const BATCH: u64 = 100;
/// Time, unless the user says otherwise.
const SECONDS: u64 = 600;

/// Draws models until time is over and runs each on every engine.
pub(crate) fn run(root: &Path, words: &[&str]) -> Result<(), String> {
    let (mut seconds, mut seed) = (SECONDS, 0);
    for pair in words.chunks(2) {
        let number = |text: &str| text.parse().map_err(|_| format!("`{text}` is no number"));
        match *pair {
            ["--seconds", value] => seconds = number(value)?,
            ["--seed", value] => seed = number(value)?,
            _ => return Err(format!("`generated` does not know `{}`", pair.join(" "))),
        }
    }
    let root = &root.canonicalize().map_err(|e| format!("{}: {e}", root.display()))?;
    let folder = root.join(FOLDER);
    let python = test::python(&folder.join("python"), PACKAGES, &[])?;
    test::environment(root)?;
    let (end, mut models) = (Instant::now() + Duration::from_secs(seconds), 0);
    let mut left = BTreeMap::new();
    let mut faulty = Vec::new();
    while Instant::now() < end {
        let batch = folder.join(format!("models-{seed}"));
        if batch.exists() {
            fs::remove_dir_all(&batch).map_err(|e| format!("{}: {e}", batch.display()))?;
        }
        let tests = batch.join("generated");
        fs::create_dir_all(&tests).map_err(|e| format!("{}: {e}", tests.display()))?;
        draw(root, &python, &batch, seed, &mut left)?;
        let drawn = fs::read_dir(&tests).map_err(|e| format!("{}: {e}", tests.display()))?.count();
        models += drawn;
        if drawn > 0 {
            let mut judge = programs::program(
                root,
                "bricolage-testkit",
                "conformance",
                &["--only", "generated/"],
            );
            judge.env("BRICOLAGE_CONFORMANCE", &batch);
            judge.envs(VARIABLES.iter().map(|v| (v, root.join(ENVIRONMENT))));
            match programs::run(judge, "an engine is wrong") {
                Ok(()) => fs::remove_dir_all(&batch).map_err(|e| e.to_string())?,
                Err(why) => faulty.push(format!("{}: {why}", batch.display())),
            }
        }
        seed += BATCH;
    }
    println!("{models} models; the next seed is {seed}");
    for (why, count) in left {
        println!("left out {count}: {why}");
    }
    if faulty.is_empty() { Ok(()) } else { Err(faulty.join("\n")) }
}

/// Has a batch drawn; counts what was left out, by reason.
fn draw(
    root: &Path,
    python: &Path,
    batch: &Path,
    seed: u64,
    left: &mut BTreeMap<String, u64>,
) -> Result<(), String> {
    let output = Command::new(python)
        .arg(root.join("xtask/src/generated/write_models.py"))
        .arg(batch)
        .args([BATCH.to_string(), seed.to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .map_err(|e| format!("{}: {e}", python.display()))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        return Err(format!("the generator failed: {}", text.lines().last().unwrap_or_default()));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let counts: Value = serde_json::from_str(text.lines().last().unwrap_or_default())
        .map_err(|e| format!("the generator said {text}: {e}"))?;
    for (why, count) in counts.as_object().into_iter().flatten() {
        *left.entry(why.clone()).or_default() += count.as_u64().unwrap_or_default();
    }
    Ok(())
}
