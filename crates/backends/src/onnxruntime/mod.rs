//! ONNX Runtime, loaded when it is first needed: regions of any ops as sessions, and whole models
//! as its own users run them.
//!
//! A region is written as an ONNX model; its large constants are handed to the session from where
//! they lie. Sessions share one pool per process whose threads do not spin. A plan that is one
//! single region has the processor to itself, so its session has a pool of its own that spins.

mod engine;
mod find;
mod grow;
mod kernel;
mod peer;
#[cfg(test)]
mod tests;

use bricolage_backend::{
    Backend, BackendKind, BackendStatus, Bound, Candidate, Declined, Packed, Peer, Proposals,
    Region, Setting,
};
use bricolage_ir::{Graph, NodeId, Numerics, Op, ValueId};
use bricolage_onnx::{Structure, export_structure};
use bricolage_runtime::{Kernel, Recipe};
use bricolage_tensor::{Format, Type};
use find::Library;
use kernel::{Body, KERNEL, Port};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

const NAME: &str = "onnxruntime";
/// Raised whenever regions are written or run in another way.
const ADAPTER: &str = "2";
/// Variant of a region that shares the processor with other kernels.
const MIXED: &str = "region";
/// Variant of a region that is the whole plan.
const WHOLE: &str = "whole spinning";

/// ONNX Runtime as a backend.
#[derive(Clone, Debug)]
pub struct OnnxRuntime {
    library: Result<Library, String>,
}

impl OnnxRuntime {
    /// Looks for the library, and does not load it.
    ///
    /// `named` is a library file, or a folder that holds it: a Python environment, the wheel's
    /// folder or a release. Where nothing is named, the library is looked for in the Python
    /// environment `environment`, and then where the system's loader looks.
    pub fn find(named: Option<&Path>, environment: Option<&Path>) -> OnnxRuntime {
        let loader_path = std::env::var("LD_LIBRARY_PATH").ok();
        OnnxRuntime { library: find::find(named, environment, loader_path.as_deref()) }
    }

    /// Whether it was found.
    pub fn is_present(&self) -> bool {
        self.library.is_ok()
    }

    fn path(&self) -> Result<PathBuf, String> {
        self.library.as_ref().map(|l| l.path.clone()).map_err(Clone::clone)
    }
}

/// The format of a value at the border of a region.
fn plain(graph: &Graph, value: ValueId) -> Result<Format, String> {
    match &graph.fact(value).ty {
        Type::Tensor(t) if t.shape.as_fixed().is_some() => Ok(Format::plain(t.dtype)),
        _ => Err(format!("needs tensors of constant size, found {}", graph.fact(value))),
    }
}

fn port(graph: &Graph, value: ValueId) -> Result<Port, String> {
    match &graph.fact(value).ty {
        Type::Tensor(t) => {
            let name = graph.value(value).name.to_string();
            let dims =
                t.shape.as_fixed().ok_or_else(|| format!("`{name}` has no constant size"))?;
            Ok(Port { name, dtype: t.dtype, dims })
        }
        _ => Err(format!("`{}` is not a tensor", graph.value(value).name)),
    }
}

/// The region as a model.
fn written(graph: &Graph, region: &Region) -> Result<Structure, String> {
    let mut part = graph.extract(&region.nodes).map_err(|e| e.to_string())?;
    let found = |&v: &ValueId| {
        let name = &graph.value(v).name;
        part.find(name).ok_or_else(|| format!("`{name}` is not made inside its region"))
    };
    let outputs: Result<Vec<ValueId>, String> = region.outputs.iter().map(found).collect();
    part.outputs = outputs?;
    export_structure(&part).map_err(|e| e.to_string())
}

fn offer(
    graph: &Graph,
    region: Region,
    variant: &str,
    setting: &Setting,
) -> Result<Candidate, String> {
    let all = |values: &[ValueId]| -> Result<Vec<Format>, String> {
        values.iter().map(|&v| plain(graph, v)).collect()
    };
    let (inputs, outputs) = (all(&region.inputs)?, all(&region.outputs)?);
    written(graph, &region)?;
    let kinds: Vec<&str> = region.nodes.iter().map(|&n| graph.node(n).op.kind().name()).collect();
    let pattern = if variant == WHOLE { "whole graph".to_owned() } else { kinds.join("+") };
    Ok(Candidate {
        guess_ns: Some(grow::guess_ns(graph, &region, setting.threads)),
        inputs,
        outputs,
        pattern,
        variant: variant.to_owned(),
        numerics: Numerics::Reassociates,
        region,
    })
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
        BackendStatus {
            name: NAME.to_owned(),
            version: self.library.is_ok().then(|| self.version()),
            found: match &self.library {
                Ok(library) => library.path.display().to_string(),
                Err(why) => why.clone(),
            },
            how: "run `pip install onnxruntime` in a virtual environment, and activate it or name \
                  it in BRICOLAGE_ONNXRUNTIME"
                .to_owned(),
            covers: "every op that ONNX can say, alone or in regions of any size; whole models"
                .to_owned(),
        }
    }

    fn is_foreign(&self) -> bool {
        true
    }

    fn propose(&self, graph: &Graph, exit: NodeId, setting: &Setting) -> Proposals {
        let mut proposals = Proposals::default();
        if let Op::Reshape(_) = graph.node(exit).op {
            return proposals;
        }
        for region in grow::regions(graph, exit) {
            let pattern = if region.nodes.len() == 1 { "any" } else { "region" };
            match offer(graph, region, MIXED, setting) {
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
        offer(graph, region.clone(), WHOLE, setting).map_err(|why| Declined {
            node: region.exit(),
            pattern: "whole graph".to_owned(),
            why,
        })
    }

    fn bind(
        &self,
        graph: &Graph,
        candidate: &Candidate,
        setting: &Setting,
    ) -> Result<Bound, String> {
        let library = self.path()?;
        let region = &candidate.region;
        let structure = written(graph, region)?;
        let ports = |values: &[ValueId]| -> Result<Vec<Port>, String> {
            values.iter().map(|&v| port(graph, v)).collect()
        };
        let body = Body {
            model: structure.bytes,
            weights: structure.weights.iter().map(|(name, _)| name.clone()).collect(),
            inputs: ports(&region.inputs)?,
            outputs: ports(&region.outputs)?,
            threads: u32::try_from(setting.threads).map_err(|e| e.to_string())?,
            spinning: candidate.variant == WHOLE,
        };
        let built_in: Vec<Packed> = structure
            .weights
            .iter()
            .map(|(_, t)| Packed {
                format: Format::plain(t.dtype()),
                dims: t.dims().to_vec(),
                bytes: t.storage().clone(),
            })
            .collect();
        let kernel = kernel::Region::new(library, body, built_in.clone())?;
        Ok(Bound { kernel: Arc::new(kernel), constants: Vec::new(), built_in })
    }

    fn open_peer(&self, model: &Path, threads: usize) -> Result<Box<dyn Peer>, String> {
        Ok(Box::new(peer::Model::open(&self.path()?, model, threads)?))
    }

    fn rebuild(&self, recipe: &Recipe, built_in: &[Packed]) -> Result<Arc<dyn Kernel>, String> {
        if recipe.kernel != KERNEL {
            return Err(format!("has no kernel `{}`", recipe.kernel));
        }
        let body: Body = postcard::from_bytes(&recipe.body).map_err(|e| e.to_string())?;
        let kernel = kernel::Region::new(self.path()?, body, built_in.to_vec())?;
        kernel.session()?;
        Ok(Arc::new(kernel))
    }
}
