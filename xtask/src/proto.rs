//! Generates `crates/onnx/src/proto.rs` from the schema in `crates/onnx/proto`.

use std::{fs, path::Path};

/// Writes the generated code, or with `check` fails when it is not current.
pub fn generate(root: &Path, check: bool) -> Result<(), String> {
    let schema = root.join("crates/onnx/proto");
    let files =
        protox::compile([schema.join("onnx.proto")], [&schema]).map_err(|e| e.to_string())?;
    let out = root.join("target/proto");
    fs::create_dir_all(&out).map_err(|e| e.to_string())?;
    prost_build::Config::new()
        .bytes(["."])
        .disable_comments(["."])
        .out_dir(&out)
        .compile_fds(files)
        .map_err(|e| e.to_string())?;
    let body = fs::read_to_string(out.join("onnx.rs")).map_err(|e| e.to_string())?;
    let header = "//! The ONNX schema, generated from `proto/onnx.proto` by `cargo run -p xtask --features proto -- proto`.\n#![allow(missing_docs, clippy::all, clippy::pedantic, rustdoc::all, unreachable_pub)]\n\n";
    let text = format!("{header}{body}");
    let path = root.join("crates/onnx/src/proto.rs");
    match check {
        true if fs::read_to_string(&path).ok().as_deref() != Some(&text) => {
            Err(format!("{} is not current; run the command in its first line", path.display()))
        }
        true => Ok(()),
        false => fs::write(&path, text).map_err(|e| e.to_string()),
    }
}
