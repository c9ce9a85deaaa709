//! The backend tests of ONNX on every engine; `cargo xtask conformance` starts it.
#![allow(clippy::print_stdout, clippy::print_stderr)] // a front end prints

use bricolage_testkit::{
    Workers,
    conformance::{SKIPS, computers, run, skips},
    serve_if_asked,
};
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

const USAGE: &str = "\
conformance [--backend B] [--only TEXT]
  --backend B   on one engine
  --only TEXT   tests with this in kind and name, such as node/test_adam";

fn options() -> Option<(Option<String>, String)> {
    let (mut backend, mut only) = (None, String::new());
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--backend" => backend = Some(words.next()?),
            "--only" => only = words.next()?,
            _ => return None,
        }
    }
    Some((backend, only))
}

fn main() -> ExitCode {
    if let Some(code) = serve_if_asked() {
        return code;
    }
    let Some((backend, only)) = options() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match tell(backend.as_deref(), &only) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}

/// Prints everything; the number of faults.
fn tell(backend: Option<&str>, only: &str) -> Result<usize, String> {
    let workers = Workers::of_this_program().map_err(|e| e.to_string())?;
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let (mut all, absent) = computers(&variable, &workers);
    for why in absent {
        println!("without {why}");
    }
    if let Some(wanted) = backend {
        let names: Vec<&str> = all.iter().map(|c| c.name.as_str()).collect();
        let known = format!("there is no engine `{wanted}`; known are {}", names.join(", "));
        all.retain(|c| c.name == wanted);
        if all.is_empty() {
            return Err(known);
        }
    }
    let folder = std::env::var_os("BRICOLAGE_CONFORMANCE").map(PathBuf::from);
    let folder = folder.ok_or("BRICOLAGE_CONFORMANCE names no folder of tests")?;
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join(SKIPS);
    // Panics are caught and reported with their test.
    std::panic::set_hook(Box::new(|_| {}));
    let report = run(&folder, &all, &skips(&list)?, only)?;
    print!("{report}");
    Ok(report.faults.len())
}
