//! A random graph, chosen by the bytes, on every engine against the reference.
#![cfg_attr(feature = "libfuzzer", no_main)]

use bricolage_fuzz::{fresh_choices, seed_and_choices};
use bricolage_testkit::{
    Case, Engine, Workers, damage,
    driver::{Target, nothing_known},
    ended, engines, generate_from, run_case,
};
use std::{
    path::{Path, PathBuf},
    sync::{LazyLock, Mutex, PoisonError},
    time::Duration,
};

const TARGET: Target = Target {
    name: "graphs",
    run: target,
    known: nothing_known,
    fresh: fresh_choices,
    damage: damage::bytes,
    explain,
    notes,
};

bricolage_fuzz::entry!(TARGET);

/// With the foreign libraries that variables name, each in workers.
#[allow(clippy::print_stderr)] // whoever reads results must know what they lack
static ENGINES: LazyLock<Vec<Box<dyn Engine>>> = LazyLock::new(|| {
    // A test is a program that serves nobody.
    let program = option_env!("CARGO_BIN_EXE_graphs").map(PathBuf::from);
    let program = program.map_or_else(std::env::current_exe, Ok);
    let program = program.unwrap_or_else(|e| panic!("this program is not found: {e}"));
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let (all, absent) = engines(&variable, &Workers::of(program));
    for why in absent {
        eprintln!("without {why}");
    }
    all
});

fn case(data: &[u8]) -> Case {
    let (seed, choices) = seed_and_choices(data);
    generate_from(seed, choices).into()
}

/// Where foreign code crashed or hung, which costs its answer.
static ENDS: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn notes() -> Vec<String> {
    let mut all = ENDS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    all.push(format!("{} times foreign code ended its process", all.len()));
    all
}

/// Every engine that takes the graph computes it right; always true.
fn target(data: &[u8]) -> bool {
    let report = run_case(&case(data), &ENGINES);
    let ends = report.unsupported.into_iter().filter(|(_, why)| ended(why));
    ENDS.lock().unwrap_or_else(PoisonError::into_inner).extend(ends.map(|(engine, why)| {
        let bytes: String = data.iter().map(|b| format!("{b:02x}")).collect();
        format!("{engine}: {why}: on the bytes {bytes}")
    }));
    if let Some(failure) = report.failures.first() {
        panic!("{}: {}", failure.engine, failure.fault);
    }
    true
}

/// Reduces the graph.
fn explain(data: &[u8], folder: &Path) -> Option<String> {
    let failure = run_case(&case(data), &ENGINES).failures.into_iter().next()?;
    let reduced = failure.reduced(&ENGINES, Duration::from_secs(20));
    let nodes = reduced.case.graph.nodes().count();
    Some(match reduced.write(folder) {
        Ok(()) => format!("{}, {} nodes: {}", reduced.engine, nodes, folder.display()),
        Err(e) => e.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn engines_agree_on_chosen_graphs() {
        TARGET.smoke(60, 60);
    }

    /// Graphs by seeds alone, and that each engine takes most of them.
    #[test]
    fn engines_agree_on_random_graphs() {
        const SEEDS: u64 = 200;
        let mut faults = Vec::new();
        let mut left: HashMap<String, u64> = HashMap::new();
        for seed in 0..SEEDS {
            let report = run_case(&case(&seed.to_le_bytes()), &ENGINES);
            for (engine, _) in report.unsupported {
                *left.entry(engine).or_default() += 1;
            }
            let failures = report.failures.iter();
            faults.extend(failures.map(|f| format!("seed {seed}, {}: {}", f.engine, f.fault)));
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
        for engine in ENGINES.iter() {
            let taken = SEEDS - left.get(engine.name()).copied().unwrap_or(0);
            let least = engine.least_share() * SEEDS as f64;
            assert!(
                taken as f64 >= least.ceil(),
                "{} takes {taken} graphs of {SEEDS}",
                engine.name()
            );
        }
    }
}
