//! The command line. Here alone is printed, are signals caught and the environment read.
//!
//! Results go to standard output, everything else to standard error. Exit codes: 0 ok, 1 ran but a
//! condition failed, 2 bad input or usage, 3 a bug of ours, 130 interrupted with the best kept.
#![allow(clippy::print_stdout, clippy::print_stderr)] // a command line prints

mod args;
mod commands;
mod interrupt;
mod judge;
mod libraries;
mod output;
mod progress;
mod setup;
mod units;

use args::{Arguments, Verb};
use bricolage::{Blame, Error, render};
use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // A worker ends with the process that it serves.
    if !matches!(arguments.verb, Verb::Worker { .. }) {
        interrupt::install();
    }
    let result = libraries::name(&arguments).and_then(|()| run(&arguments.verb));
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{}", render(&error));
            ExitCode::from(code(&error))
        }
    }
}

fn run(verb: &Verb) -> Result<ExitCode, Error> {
    match verb {
        Verb::Inspect(a) => commands::inspect::run(a),
        Verb::Doctor(a) => commands::doctor::run(a),
        Verb::Backend(a) => commands::backend::run(a),
        Verb::Optimize(a) => commands::optimize::run(a),
        Verb::Run(a) => commands::run::run(a),
        Verb::Bench(a) => commands::bench::run(a),
        Verb::Compare(a) => commands::compare::run(a),
        Verb::Reduce(a) => commands::reduce::run(a),
        Verb::Explain(a) => commands::explain::run(a),
        Verb::ExplainError(a) => commands::explain_error::run(a),
        Verb::Zoo(a) => commands::zoo::run(a),
        Verb::Demo(a) => commands::demo::run(a),
        Verb::Worker { threads, .. } => commands::worker(*threads),
    }
}

fn code(error: &Error) -> u8 {
    match error.blame() {
        Blame::Condition => 1,
        Blame::Input => 2,
        Blame::Internal => 3,
        Blame::Interrupted => 130,
    }
}
