//! Long runs of the fuzzer; `cargo xtask fuzz` starts it.
#![allow(clippy::print_stdout, clippy::print_stderr)] // a front end prints

use bricolage_testkit::{damage, engines, run_seed};
use std::{
    collections::BTreeMap,
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

const USAGE: &str = "\
fuzz [--seeds N] [--start S] [--seconds T] [--import]
  --seeds N     graphs to try (1000; with --seconds as many as there is time for)
  --start S     the first seed (0)
  --seconds T   stop after so long
  --import      damaged models instead of graphs";

struct Options {
    seeds: u64,
    start: u64,
    seconds: Option<u64>,
    import: bool,
}

fn options() -> Option<Options> {
    let mut o = Options { seeds: 0, start: 0, seconds: None, import: false };
    let mut seeds = None;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || words.next()?.parse::<u64>().ok();
        match word.as_str() {
            "--seeds" => seeds = Some(number()?),
            "--start" => o.start = number()?,
            "--seconds" => o.seconds = Some(number()?),
            "--import" => o.import = true,
            _ => return None,
        }
    }
    o.seeds = seeds.unwrap_or(if o.seconds.is_some() { u64::MAX } else { 1000 });
    Some(o)
}

fn main() -> ExitCode {
    let Some(options) = options() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/fuzz");
    let deadline = options.seconds.and_then(|s| Instant::now().checked_add(Duration::from_secs(s)));
    let is_over = || deadline.is_some_and(|d| Instant::now() >= d);
    // Panics are caught and reported with their seed.
    std::panic::set_hook(Box::new(|_| {}));
    let failures = if options.import {
        import(&options, &folder, &is_over)
    } else {
        graphs(&options, &folder, &is_over)
    };
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn graphs(options: &Options, folder: &std::path::Path, is_over: &dyn Fn() -> bool) -> usize {
    let named = std::env::var_os("BRICOLAGE_ONNXRUNTIME").map(PathBuf::from);
    let (all, absent) = engines(named.as_deref());
    for why in absent {
        println!("without {why}");
    }
    let (mut failures, mut done, mut nodes, mut worst) = (0, 0, 0, (0.0, 0));
    let mut unsupported: BTreeMap<String, usize> = BTreeMap::new();
    for seed in (options.start..).take(options.seeds as usize) {
        if is_over() {
            break;
        }
        let report = run_seed(seed, &all, Duration::from_secs(20));
        done += 1;
        nodes += report.nodes;
        if report.share > worst.0 {
            worst = (report.share, seed);
        }
        for (engine, _) in report.unsupported {
            *unsupported.entry(engine).or_default() += 1;
        }
        for failure in report.failures {
            failures += 1;
            println!("seed {seed}, {}: {}", failure.engine, failure.fault);
            println!("  {}", bricolage_testkit::command(seed));
            match failure.write(folder) {
                Ok(at) => println!(
                    "  reduced to {} nodes: {}",
                    failure.case.graph.nodes().count(),
                    at.display()
                ),
                Err(e) => println!("  cannot write it: {e}"),
            }
        }
    }
    println!("{done} graphs, {nodes} nodes, {failures} failures");
    println!("largest error {:.2} of the allowed one, seed {}", worst.0, worst.1);
    for (engine, times) in unsupported {
        println!("{engine} does not take {times} of them");
    }
    failures
}

fn import(options: &Options, folder: &std::path::Path, is_over: &dyn Fn() -> bool) -> usize {
    let (mut failures, mut done, mut read) = (0, 0, 0);
    for seed in (options.start..).take(options.seeds as usize) {
        if is_over() {
            break;
        }
        done += 1;
        match damage::run_seed(seed) {
            Ok(understood) => read += usize::from(understood),
            Err(fault) => {
                failures += 1;
                println!("seed {seed}: {fault}");
                println!("  cargo xtask fuzz --import --start {seed} --seeds 1");
                match fault.write(seed, folder) {
                    Ok(at) => println!("  {}", at.display()),
                    Err(e) => println!("  cannot write it: {e}"),
                }
            }
        }
    }
    println!("{done} damaged models, {read} of them still read, {failures} failures");
    failures
}
