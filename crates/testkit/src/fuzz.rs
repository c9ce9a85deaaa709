//! Runs engines over seeds, and writes what fails.

use crate::{Case, Engine, Fault, check, generate};
use bricolage::{Error, reduce, reproducer};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// A seed on which an engine is wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Decides the graph.
    pub seed: u64,
    /// Name of the engine.
    pub engine: String,
    /// What was wrong with the whole graph.
    pub fault: Fault,
    /// The smallest graph that fails alike.
    pub case: Case,
}

/// What came of one seed.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What failed.
    pub failures: Vec<Failure>,
    /// Engines that do not take the graph, with the reason.
    pub unsupported: Vec<(String, String)>,
    /// Largest error as a share of what is allowed.
    pub share: f64,
    /// Nodes of the graph.
    pub nodes: usize,
}

/// Generates the graph of a seed, has every engine compute it and reduces what fails, for at most
/// `patience` each.
pub fn run_seed(seed: u64, engines: &[Box<dyn Engine>], patience: Duration) -> Report {
    let case = Case::from(generate(seed));
    let mut report = Report { nodes: case.graph.nodes().count(), ..Report::default() };
    for engine in engines {
        match check(&**engine, &case) {
            Ok(share) => report.share = report.share.max(share),
            Err(Fault::Unsupported(why)) => {
                report.unsupported.push((engine.name().to_owned(), why));
            }
            Err(fault) => {
                let fails = |e: &reduce::Example| {
                    let fault_of = check(&**engine, &Case::from(e.clone())).err();
                    fault_of.is_some_and(|f| f.is_like(&fault))
                };
                let case = reduce::reduce(&case.clone().into(), patience, &fails).into();
                let engine = engine.name().to_owned();
                report.failures.push(Failure { seed, engine, fault, case });
            }
        }
    }
    report
}

/// The command that runs the seed again.
pub fn command(seed: u64) -> String {
    format!("cargo xtask fuzz --start {seed} --seeds 1")
}

impl Failure {
    /// Writes the reduced graph under `folder` with its inputs and the command that repeats it; returns
    /// where.
    pub fn write(&self, folder: &Path) -> Result<PathBuf, Error> {
        let engine: String =
            self.engine.chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
        let at = folder.join(format!("{}-{engine}", self.seed));
        let found = format!("{}: {}\n{}", self.engine, self.fault, command(self.seed));
        reproducer::write(&at, &self.case.graph, &self.case.inputs, &found)?;
        Ok(at)
    }
}
