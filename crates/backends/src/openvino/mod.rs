//! OpenVINO's engine for the processor, loaded when it is first needed: regions around products and
//! convolutions as compiled models, and whole models as its own users run them.
//!
//! A region is written as an ONNX model with its constants in it. Compiling takes tens of milliseconds, so
//! single pointwise ops are not offered. The engine computes with integers of 32 bits and floats of single
//! precision whatever the model says; so regions hold `f32`, truth values, and integers that are no more
//! than moved or used as indices.

mod admission;
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

const NAME: &str = "openvino";
/// Raised whenever regions are written or run in another way.
const ADAPTER: &str = "1";
/// Variant of a region that is the whole plan.
const ALONE: &str = "whole";
/// Nodes of the largest region offered, the whole graph aside.
const MOST: usize = 24;

const WANTED: Wanted = Wanted {
    variable: "BRICOLAGE_OPENVINO",
    files: &["libopenvino_c.so"],
    folders: &["libs", "openvino/libs", "lib", "runtime/lib/intel64", "runtime/lib/aarch64"],
    packaged: "openvino/libs",
    package: "openvino",
};

/// OpenVINO as a backend.
#[derive(Clone, Debug)]
pub struct OpenVino {
    library: Result<Found, String>,
    single_ops: bool,
}

impl OpenVino {
    /// Name used in flags and reports.
    pub const NAME: &str = NAME;
    /// The environment variable in which the user names the library.
    pub const VARIABLE: &str = WANTED.variable;

    /// Looks for the library, and does not load it.
    ///
    /// `named` is the file of the C interface, or a folder that holds it: a Python environment, the wheel's
    /// folder or a release. Where nothing is named, the library is looked for in the Python environment
    /// `environment`, and then where the system's loader looks.
    pub fn find(named: Option<&Path>, environment: Option<&Path>) -> OpenVino {
        OpenVino { library: library::find(&WANTED, named, environment), single_ops: false }
    }

    /// The same, offering every op by itself too: compiling those takes longer than they ever save, but
    /// shows what the library makes of each.
    pub fn with_single_ops(self) -> OpenVino {
        OpenVino { single_ops: true, ..self }
    }

    fn path(&self) -> Result<PathBuf, String> {
        self.library.as_ref().map(|l| l.path.clone()).map_err(Clone::clone)
    }
}

fn offer(
    graph: &Graph,
    region: Region,
    variant: &str,
    setting: &Setting,
) -> Result<Candidate, String> {
    admission::check(graph, &region)?;
    graph_engine::offer(graph, region, variant, setting)
}

impl Backend for OpenVino {
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
        let covers =
            "f32 regions around products and convolutions, up to the whole graph; whole models";
        library::status(NAME, &WANTED, &self.library, "openvino", covers)
    }

    fn is_foreign(&self) -> bool {
        true
    }

    fn propose(&self, graph: &Graph, exit: NodeId, setting: &Setting) -> Proposals {
        let mut proposals = Proposals::default();
        if let Op::Reshape(_) = graph.node(exit).op {
            return proposals;
        }
        let mut regions = graph_engine::regions(graph, exit);
        if graph_engine::ends_chain(graph, exit) {
            regions.extend(graph_engine::region_around(graph, exit, MOST));
        }
        let mut seen: Vec<Region> = Vec::new();
        for region in regions {
            let wanted = self.single_ops || graph_engine::has_anchor(graph, &region);
            if !wanted || seen.contains(&region) {
                continue;
            }
            seen.push(region.clone());
            match offer(graph, region, MIXED, setting) {
                Ok(candidate) => proposals.candidates.push(candidate),
                Err(why) => proposals.declined.push(Declined {
                    node: exit,
                    pattern: "region".to_owned(),
                    why,
                }),
            }
        }
        proposals
    }

    fn propose_region(
        &self,
        graph: &Graph,
        region: &Region,
        is_whole: bool,
        setting: &Setting,
    ) -> Result<Candidate, Declined> {
        let (variant, pattern) = if is_whole { (ALONE, WHOLE) } else { (MIXED, "region") };
        offer(graph, region.clone(), variant, setting).map_err(|why| Declined {
            node: region.exit(),
            pattern: pattern.to_owned(),
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
        inputs: &[(String, Tensor)],
        outputs: &[String],
    ) -> Result<Box<dyn Peer>, String> {
        Ok(Box::new(peer::Model::open(&self.path()?, model, threads, inputs, outputs)?))
    }

    fn rebuild(&self, recipe: &Recipe, built_in: &[Packed]) -> Result<Arc<dyn Kernel>, String> {
        RegionKernel::<Session>::rebuilt(self.path()?, recipe, built_in)
    }
}
