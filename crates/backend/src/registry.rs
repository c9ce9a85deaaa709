//! The backends of this run, in the order in which they were registered; the order decides nothing but what the
//! baselines of placement give to whom.

use crate::{Bound, Candidate, Declined, Packed, Proposals, Region, Setting, pattern::Samples};
use bricolage_ir::{Graph, NodeId};
use bricolage_runtime::{Kernel, Rebuild, Recipe};
use bricolage_tensor::{Format, Tensor};
use serde::Serialize;
use std::{path::Path, sync::Arc, time::Duration};

/// What sort of provider a backend is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum BackendKind {
    /// Trusted, total and slow.
    Reference,
    /// Kernels for single ops and small fusions.
    OpLibrary,
    /// Kernels for a few ops, used beside a library that has the others: makes no plan by itself.
    Supplement,
    /// Takes sub-graphs of any size and optimises them itself.
    GraphEngine,
}

/// Whether a backend can be used here, and how to get it where it cannot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BackendStatus {
    /// Name used in flags and reports.
    pub name: String,
    /// Version, if it is present.
    pub version: Option<String>,
    /// Where it was found, or why it was not.
    pub found: String,
    /// How to get it.
    pub how: String,
    /// What it covers.
    pub covers: String,
}

/// A model that a runtime runs whole, at the runtime's own best settings: for comparison.
pub trait Peer: Send {
    /// Runs on named inputs and returns all outputs by name, in the model's order.
    fn run(&mut self, inputs: &[(String, Tensor)]) -> Result<Vec<(String, Tensor)>, String>;

    /// The time of `iterations` runs on named inputs, without what `run` does around the runtime:
    /// naming inputs and copying outputs.
    fn sample(&mut self, inputs: &[(String, Tensor)], iterations: u32) -> Result<Duration, String>;

    /// Largest resident size in bytes of the runtime's process, where that is not this one; else 0.
    fn peak_bytes(&self) -> u64 {
        0
    }
}

/// A provider of kernels.
pub trait Backend: Send + Sync {
    /// Name used in flags, recipes and reports.
    fn name(&self) -> &str;

    /// What sort of provider it is.
    fn kind(&self) -> BackendKind;

    /// Changes whenever its kernels may have changed; part of every cost key.
    fn version(&self) -> String;

    /// Presence, version and coverage.
    fn status(&self) -> BackendStatus;

    /// Whether it is compiled and first run in a process of its own.
    fn is_foreign(&self) -> bool {
        false
    }

    /// Threads of its own that it keeps at most, besides those that kernels are lent; `None` where it does
    /// not say.
    fn own_threads(&self) -> Option<u32> {
        None
    }

    /// What its pattern file claims, to draw graphs from; `None` where it has no such file.
    fn samples(&self) -> Option<Samples> {
        None
    }

    /// Every candidate whose exit is `exit`. `order` holds the graph's nodes in topological order.
    fn propose(&self, graph: &Graph, exit: NodeId, setting: &Setting) -> Proposals;

    /// A candidate for exactly this region, of any size, if the backend takes it. Unlike what
    /// [`Backend::propose`] offers it may have several exits. Where it is the whole graph, no other kernel runs
    /// beside it.
    fn propose_region(
        &self,
        graph: &Graph,
        region: &Region,
        is_whole: bool,
        setting: &Setting,
    ) -> Result<Candidate, Declined> {
        let _ = (graph, is_whole, setting);
        Err(Declined {
            node: region.exit(),
            pattern: "region".to_owned(),
            why: format!("`{}` takes only the regions that it proposes", self.name()),
        })
    }

    /// Compiles a candidate that this backend proposed for `graph`, or says in a clause why it cannot.
    fn bind(
        &self,
        graph: &Graph,
        candidate: &Candidate,
        setting: &Setting,
    ) -> Result<Bound, String>;

    /// A kernel that copies a tensor with these dims from one format to another, if it has one.
    fn convert(&self, dims: &[i64], from: &Format, to: &Format) -> Option<Bound> {
        let _ = (dims, from, to);
        None
    }

    /// Opens an ONNX file as the runtime's own users would, on `threads` threads with everything
    /// that makes it fast, for inputs like these; `outputs` names the model's outputs. Or says in a clause
    /// why it cannot.
    fn open_peer(
        &self,
        model: &Path,
        threads: usize,
        inputs: &[(String, Tensor)],
        outputs: &[String],
    ) -> Result<Box<dyn Peer>, String> {
        let _ = (model, threads, inputs, outputs);
        Err(format!("`{}` does not run whole models by itself", self.name()))
    }

    /// Rebuilds a kernel of this backend from its recipe and the constants that were built in.
    fn rebuild(&self, recipe: &Recipe, built_in: &[Packed]) -> Result<Arc<dyn Kernel>, String>;
}

/// A backend was asked for that is not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no backend `{name}`; known are {known}")]
pub struct UnknownBackend {
    /// The name asked for.
    pub name: String,
    /// Names of all registered backends.
    pub known: String,
}

/// The backends that may be used.
#[derive(Clone, Default)]
pub struct Registry {
    backends: Vec<Arc<dyn Backend>>,
}

impl Registry {
    /// A registry of these backends.
    pub fn new(backends: Vec<Arc<dyn Backend>>) -> Registry {
        Registry { backends }
    }

    /// All backends, in the order of registration.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Backend>> {
        self.backends.iter()
    }

    /// The backend of this name.
    pub fn get(&self, name: &str) -> Result<&Arc<dyn Backend>, UnknownBackend> {
        self.backends.iter().find(|b| b.name() == name).ok_or_else(|| UnknownBackend {
            name: name.to_owned(),
            known: self
                .backends
                .iter()
                .map(|b| format!("`{}`", b.name()))
                .collect::<Vec<_>>()
                .join(", "),
        })
    }

    /// Only the backends of these names, in this order.
    pub fn only(&self, names: &[String]) -> Result<Registry, UnknownBackend> {
        let picked: Result<Vec<_>, _> = names.iter().map(|n| self.get(n).cloned()).collect();
        Ok(Registry { backends: picked? })
    }
}

impl Rebuild for Registry {
    fn rebuild(
        &self,
        recipe: &Recipe,
        built_in: &[bricolage_runtime::Constant],
    ) -> Result<Arc<dyn Kernel>, String> {
        let backend = self.get(&recipe.backend).map_err(|e| e.to_string())?;
        let packed: Vec<Packed> = built_in
            .iter()
            .map(|c| Packed {
                format: c.format.clone(),
                dims: c.dims.clone(),
                bytes: c.bytes.clone(),
            })
            .collect();
        backend.rebuild(recipe, &packed)
    }
}
