//! House rules and chores. `cargo xtask` lists them.

#[cfg(feature = "proto")]
mod proto;

use std::{path::PathBuf, process::ExitCode};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        #[cfg(feature = "proto")]
        ["proto"] => proto::generate(&root, false),
        #[cfg(feature = "proto")]
        ["proto", "--check"] => proto::generate(&root, true),
        _ => Err(format!(
            "usage: cargo xtask tidy | test | proto [--check]; root {}",
            root.display()
        )),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}
