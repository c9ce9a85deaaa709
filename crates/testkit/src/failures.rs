//! Runs engines on a case, and writes what fails.

use crate::{Case, Engine, Fault, check};
use bricolage::{Error, reduce, reproducer};
use std::{path::Path, time::Duration};

/// A case on which an engine is wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Name of the engine.
    pub engine: String,
    /// What was wrong.
    pub fault: Fault,
    /// The graph.
    pub case: Case,
}

/// What came of one case.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What failed.
    pub failures: Vec<Failure>,
    /// Engines that do not take the graph, with the reason.
    pub unsupported: Vec<(String, String)>,
}

/// Has every engine compute a case.
pub fn run_case(case: &Case, engines: &[Box<dyn Engine>]) -> Report {
    let mut report = Report::default();
    for engine in engines {
        match check(&**engine, case) {
            Ok(_) => {}
            Err(Fault::Unsupported(why)) => {
                report.unsupported.push((engine.name().to_owned(), why));
            }
            Err(fault) => {
                let engine = engine.name().to_owned();
                report.failures.push(Failure { engine, fault, case: case.clone() });
            }
        }
    }
    report
}

impl Failure {
    /// With the smallest graph that fails alike, as found in so long.
    pub fn reduced(self, engines: &[Box<dyn Engine>], patience: Duration) -> Failure {
        let Some(engine) = engines.iter().find(|e| e.name() == self.engine) else { return self };
        let fails = |e: &reduce::Example| {
            let fault = check(&**engine, &Case::from(e.clone())).err();
            fault.is_some_and(|f| f.is_like(&self.fault))
        };
        let case = reduce::reduce(&self.case.clone().into(), patience, &fails).into();
        Failure { case, ..self }
    }

    /// Writes the graph with its inputs to `folder`, which is made.
    pub fn write(&self, folder: &Path) -> Result<(), Error> {
        let found = format!("{}: {}", self.engine, self.fault);
        reproducer::write(folder, &self.case.graph, &self.case.inputs, &found)
    }
}
