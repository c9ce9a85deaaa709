//! `zoo`: known architectures with seeded weights.

use super::{SCHEMA_VERSION, print_json};
use crate::{
    args::{Format, Zoo},
    output::say,
    units,
};
use bricolage::{Error, temporary};
use std::{io::Write, path::Path, process::ExitCode};

pub(crate) fn run(a: &Zoo) -> Result<ExitCode, Error> {
    if a.name == "list" {
        match a.format.format {
            Format::Json => {
                let all: Vec<_> = bricolage_zoo::list()
                    .iter()
                    .map(|e| serde_json::json!({ "name": e.name, "description": e.description }))
                    .collect();
                print_json(
                    &serde_json::json!({ "schema_version": SCHEMA_VERSION, "models": all }),
                )?;
            }
            Format::Text => {
                for entry in bricolage_zoo::list() {
                    say!("{:<18} {}", entry.name, entry.description);
                }
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    let default = format!("{}.onnx", a.name);
    let path = a.output.as_deref().unwrap_or(Path::new(&default));
    let bytes = write(&a.name, a.batch, a.seed, path, a.overwrite)?;
    match a.format.format {
        Format::Json => print_json(&serde_json::json!({
            "schema_version": SCHEMA_VERSION, "model": a.name, "path": path, "bytes": bytes,
        }))?,
        Format::Text => say!("{} ({})", path.display(), units::bytes(bytes)),
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds a model and writes it, whole or not at all; its size in bytes.
pub(crate) fn write(
    name: &str,
    batch: i64,
    seed: u64,
    path: &Path,
    overwrite: bool,
) -> Result<u64, Error> {
    temporary::require_place(path).map_err(Error::file("write", path))?;
    if path.exists() && !overwrite {
        let why = "it exists; --overwrite replaces it".to_owned();
        return Err(Error::File { action: "write", path: path.to_owned(), why });
    }
    let graph = bricolage_zoo::build(name, batch, seed).map_err(|e| Error::Inputs {
        what: e.to_string(),
        help: "see `bricolage zoo list`".to_owned(),
    })?;
    let bytes = bricolage_onnx::export(&graph)?;
    temporary::write_file(path, |file| file.write_all(&bytes))
        .map_err(Error::file("write", path))?;
    Ok(bytes.len() as u64)
}
