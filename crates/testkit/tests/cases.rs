//! Graphs on which an engine was once wrong, and such as no drawn graph resembles: `cases/graphs`, each on
//! every engine.
#![allow(clippy::unwrap_used, clippy::print_stderr)] // a test may panic, and says what it skips

use bricolage_testkit::{Case, Fault, Workers, check, ended, engines};
use std::{collections::HashMap, fs, path::PathBuf};

#[test]
fn every_case_is_right_on_every_engine() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../cases/graphs");
    let workers = Workers::of(env!("CARGO_BIN_EXE_conformance").into());
    let (all, absent) = engines(&|name| std::env::var_os(name).map(PathBuf::from), &workers);
    for why in absent {
        eprintln!("skipped: {why}");
    }
    let (mut faults, mut cases) = (Vec::new(), 0);
    let mut taken: HashMap<String, u32> = HashMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let case = Case::parse(&fs::read_to_string(&path).unwrap())
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        cases += 1;
        for engine in &all {
            match check(&**engine, &case) {
                Ok(_) => *taken.entry(engine.name().to_owned()).or_default() += 1,
                Err(Fault::Unsupported(why)) if ended(&why) => {
                    eprintln!("{name}, {}: {why}", engine.name());
                }
                Err(Fault::Unsupported(_)) => {}
                Err(fault) => faults.push(format!("{name}, {}: {fault}", engine.name())),
            }
        }
    }
    assert!(cases > 0);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    for engine in &all {
        let taken = taken.get(engine.name()).copied().unwrap_or(0);
        let least = engine.least_share() * f64::from(cases);
        assert!(
            f64::from(taken) >= least.ceil(),
            "{} takes {taken} cases of {cases}",
            engine.name()
        );
    }
}
