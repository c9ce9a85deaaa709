//! Runs engines over seeds, and writes what fails.

use crate::{Case, Engine, Fault, check, generate, reduce};
use bricolage_ir::print;
use std::{
    fs, io,
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
                let fails = |c: &Case| check(&**engine, c).err().is_some_and(|f| f.is_like(&fault));
                let small = reduce(&case, patience, &fails);
                let engine = engine.name().to_owned();
                report.failures.push(Failure { seed, engine, fault, case: small });
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
    /// Writes the reduced graph under `folder`, as text and as ONNX, with inputs, constants and the
    /// command that repeats it; returns where.
    pub fn write(&self, folder: &Path) -> io::Result<PathBuf> {
        let engine: String =
            self.engine.chars().map(|c| if c.is_alphanumeric() { c } else { '-' }).collect();
        let at = folder.join(format!("{}-{engine}", self.seed));
        fs::create_dir_all(&at)?;
        let (text, aside) = print(&self.case.graph);
        let again = command(self.seed);
        fs::write(
            at.join("graph.case"),
            format!(
                "// {}: {}\n// {again}\n{text}",
                self.engine,
                self.fault.to_string().replace('\n', " ")
            ),
        )?;
        let named = |what: &str, all: &[bricolage_tensor::Tensor]| -> Vec<_> {
            all.iter().enumerate().map(|(i, t)| (format!("{what}{i}"), t.clone())).collect()
        };
        let write = |name: &str, tensors: &[(String, bricolage_tensor::Tensor)]| {
            bricolage::npz::write(&at.join(name), tensors)
                .map_err(|e| io::Error::other(e.to_string()))
        };
        write("constants.npz", &named("", &aside))?;
        let ports = self.case.graph.inputs.iter().zip(&self.case.inputs);
        let inputs: Vec<_> =
            ports.map(|(&v, t)| (self.case.graph.value(v).name.to_string(), t.clone())).collect();
        write("inputs.npz", &inputs)?;
        if let Ok(bytes) = bricolage_onnx::export(&self.case.graph) {
            fs::write(at.join("model.onnx"), bytes)?;
        }
        Ok(at)
    }
}
