//! House rules and chores. `cargo xtask` lists them.

mod generated;
mod models;
mod placement;
mod programs;
#[cfg(feature = "proto")]
mod proto;
mod test;
mod tidy;

use std::{path::PathBuf, process::ExitCode};

const USAGE: &str = "\
cargo xtask tidy             house rules: layers, file sizes, the map, loose ends
cargo xtask test             everything: tidy, format, lints, docs, tests, conformance
cargo xtask test --quick     the same without conformance and without a Python environment
cargo xtask fuzz [--target NAME] [--seconds T] [--executions N] [--seed S] [--start I] [FILE..]
                             the target of this name in fuzz/fuzz_targets, or each in turn; what is found
                             is made small and written to target/fuzz
cargo xtask models [--only NAME] [--fetch-only | --no-times | --times-only] [--program PATH]
                             published models from PyPI and npm on every backend against ONNX Runtime;
                             writes docs/models.md
cargo xtask bench placement [--models A,B] [--threads 1,2] [--time-limit T] [--only-summary]
                             [--program PATH]
                             placement against single backends, greedy placement and Collage's published
                             method, on models of the zoo; goes on where it was stopped, and writes
                             docs/evaluation/placement.md
cargo xtask conformance [--backend B] [--only TEXT]
                             the backend tests of ONNX on every engine, or on one, and what is skipped
cargo xtask generated [--seconds T] [--seed S]
                             models drawn by NNSmith on every engine; those that an engine fails stay in
                             target/generated
cargo run -p xtask --features proto -- proto [--check]
                             generates the ONNX schema's code, or checks that it is current";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["tidy"] => tidy::run(&root),
        ["test"] => test::run(&root, false),
        ["test", "--quick"] => test::run(&root, true),
        ["models", options @ ..] => models::run(&root, options),
        ["bench", "placement", options @ ..] => placement::run(&root, options),
        ["fuzz", options @ ..] => programs::fuzz(&root, options),
        ["generated", options @ ..] => generated::run(&root, options),
        ["conformance", options @ ..] => programs::conformance(&root, options),
        #[cfg(feature = "proto")]
        ["proto"] => proto::generate(&root, false),
        #[cfg(feature = "proto")]
        ["proto", "--check"] => proto::generate(&root, true),
        [] | ["help" | "--help"] => {
            println!("{USAGE}");
            Ok(())
        }
        _ => Err(format!("unknown arguments\n{USAGE}")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}
