//! ONNX Runtime, loaded when it is first needed: regions of any ops as sessions, and whole models
//! as its own users run them.
//!
//! A region is written as an ONNX model; its large constants are handed to the session from where
//! they lie. Sessions share one pool per process whose threads do not spin. A plan that is one
//! single region has the processor to itself, so its session has a pool of its own that spins.

mod engine;
mod kernel;
mod peer;
#[cfg(test)]
mod tests;

use crate::{
    graph_engine::{self, MIXED, RegionKernel, WHOLE},
    library::{self, Found, Wanted},
};
use bricolage_backend::{
    Backend, BackendKind, BackendStatus, Bound, Candidate, Declined, Packed, Peer, Proposals,
    Region, Setting,
};
use bricolage_ir::{Graph, NodeId, Op};
use bricolage_runtime::{Kernel, Recipe};
use bricolage_tensor::Tensor;
use engine::Session;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

const NAME: &str = "onnxruntime";
/// Raised whenever regions are written or run in another way.
const ADAPTER: &str = "2";
/// Variant of a region that is the whole plan.
const SPINNING: &str = "whole spinning";

const WANTED: Wanted = Wanted {
    variable: "BRICOLAGE_ONNXRUNTIME",
    files: &["libonnxruntime.so"],
    folders: &["capi", "onnxruntime/capi", "lib"],
    packaged: "onnxruntime/capi",
    package: "onnxruntime",
};

/// ONNX Runtime as a backend.
#[derive(Clone, Debug)]
pub struct OnnxRuntime {
    library: Result<Found, String>,
}

impl OnnxRuntime {
    /// The environment variable in which the user names the library.
    pub const VARIABLE: &str = WANTED.variable;

    /// Looks for the library, and does not load it.
    ///
    /// `named` is a library file, or a folder that holds it: a Python environment, the wheel's
    /// folder or a release. Where nothing is named, the library is looked for in the Python
    /// environment `environment`, and then where the system's loader looks.
    pub fn find(named: Option<&Path>, environment: Option<&Path>) -> OnnxRuntime {
        OnnxRuntime { library: library::find(&WANTED, named, environment) }
    }

    fn path(&self) -> Result<PathBuf, String> {
        self.library.as_ref().map(|l| l.path.clone()).map_err(Clone::clone)
    }
}

impl Backend for OnnxRuntime {
    fn name(&self) -> &str {
        NAME
    }

    fn kind(&self) -> BackendKind {
        BackendKind::GraphEngine
    }

    fn version(&self) -> String {
        let library = self.library.as_ref().map_or("absent", |l| l.version.as_str());
        format!("{library}/{ADAPTER}")
    }

    fn status(&self) -> BackendStatus {
        let covers = "every op that ONNX can say, alone or in regions of any size; whole models";
        library::status(NAME, &WANTED, &self.library, "onnxruntime", covers)
    }

    fn is_foreign(&self) -> bool {
        true
    }

    fn propose(&self, graph: &Graph, exit: NodeId, setting: &Setting) -> Proposals {
        let mut proposals = Proposals::default();
        if let Op::Reshape(_) = graph.node(exit).op {
            return proposals;
        }
        for region in graph_engine::regions(graph, exit) {
            let pattern = if region.nodes.len() == 1 { "any" } else { "region" };
            match graph_engine::offer(graph, region, MIXED, setting) {
                Ok(candidate) => proposals.candidates.push(candidate),
                Err(why) => proposals.declined.push(Declined {
                    node: exit,
                    pattern: pattern.to_owned(),
                    why,
                }),
            }
        }
        proposals
    }

    fn propose_whole(
        &self,
        graph: &Graph,
        region: &Region,
        setting: &Setting,
    ) -> Result<Candidate, Declined> {
        graph_engine::offer(graph, region.clone(), SPINNING, setting).map_err(|why| Declined {
            node: region.exit(),
            pattern: WHOLE.to_owned(),
            why,
        })
    }

    fn propose_region(
        &self,
        graph: &Graph,
        region: &Region,
        setting: &Setting,
    ) -> Result<Candidate, Declined> {
        graph_engine::offer(graph, region.clone(), MIXED, setting).map_err(|why| Declined {
            node: region.exit(),
            pattern: "region".to_owned(),
            why,
        })
    }

    fn bind(
        &self,
        graph: &Graph,
        candidate: &Candidate,
        setting: &Setting,
    ) -> Result<Bound, String> {
        let (body, built_in) = graph_engine::parts(graph, candidate, setting)?;
        RegionKernel::<Session>::bound(self.path()?, body, built_in)
    }

    fn open_peer(
        &self,
        model: &Path,
        threads: usize,
        _: &[(String, Tensor)],
        _: &[String],
    ) -> Result<Box<dyn Peer>, String> {
        Ok(Box::new(peer::Model::open(&self.path()?, model, threads)?))
    }

    fn rebuild(&self, recipe: &Recipe, built_in: &[Packed]) -> Result<Arc<dyn Kernel>, String> {
        RegionKernel::<Session>::rebuilt(self.path()?, recipe, built_in)
    }
}
