//! OpenVINO's engine for the processor, loaded when it is first needed: regions around products and
//! convolutions as compiled models, and whole models as its own users run them.
//!
//! A region is written as an ONNX model with its constants in it. Compiling takes tens of milliseconds, so
//! single pointwise ops are not offered. The engine computes with integers of 32 bits and floats of single
//! precision whatever the model says; so regions hold `f32`, truth values, and integers that are no more
//! than moved or used as indices.

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
use bricolage_ir::{
    Graph, NodeId, Op, OpKind, ValueId,
    ops::{Binary, Coordinates, Interpolation, PoolKind, ReduceKind, Resize, Rounding},
};
use bricolage_runtime::{Kernel, Recipe};
use bricolage_tensor::{DType, Tensor, Type};
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
    region.nodes.iter().try_for_each(|&n| check(graph, n))?;
    graph_engine::offer(graph, region, variant, setting)
}

/// Whether the library computes this node with the numbers that it is defined on.
fn check(graph: &Graph, node: NodeId) -> Result<(), String> {
    let node = graph.node(node);
    if let Some(why) = lacks(graph, &node.op, &node.inputs) {
        return Err(why.to_owned());
    }
    let is_read = |v: ValueId| graph.is_output(v) || !graph.uses(v).is_empty();
    if matches!(node.op, Op::TopK(_)) && node.outputs.get(1).copied().is_some_and(is_read) {
        return Err("orders equal elements otherwise, which their places show".to_owned());
    }
    let named = |v: ValueId| &graph.value(v).name;
    for v in node.inputs.iter().flatten().chain(&node.outputs).copied() {
        let Type::Tensor(ty) = &graph.fact(v).ty else {
            return Err(format!("needs tensors, found {}", graph.fact(v)));
        };
        if ty.shape.as_fixed().is_some_and(|dims| dims.contains(&0)) {
            return Err(format!("needs tensors with elements, found {ty} of `{}`", named(v)));
        }
        match ty.dtype {
            DType::F32 | DType::Bool => {}
            DType::I32 | DType::I64 if takes_integers(graph, &node.op, &node.inputs, v) => {}
            found => {
                return Err(format!(
                    "needs f32, truth values or indices, found {found} of `{}` at {}",
                    named(v),
                    node.op.kind().name()
                ));
            }
        }
        let wide = |i: &i64| i32::try_from(*i).is_err();
        if let Some(t) = graph.constant_of(v).filter(|t| t.dtype() == DType::I64)
            && let Some(i) = t.to_i64().into_iter().find(wide)
        {
            return Err(format!("needs integers of 32 bits, found {i} in `{}`", named(v)));
        }
    }
    Ok(())
}

/// What the library has no kernel for, or computes otherwise.
fn lacks(graph: &Graph, op: &Op, inputs: &[Option<ValueId>]) -> Option<&'static str> {
    let rank = |v: ValueId| graph.fact(v).ty.as_tensor().map(|t| t.shape.len());
    match op {
        Op::Opaque(_) => Some("is given no ops whose meaning is not known here"),
        Op::Dft(_) => Some("does transforms of real numbers along the last dims only"),
        Op::Det(_) => Some("has no determinants"),
        Op::DeformConv(_) => Some("has no convolution with offsets in this form"),
        Op::LinearAttention(_) => Some("has no linear attention"),
        Op::TreeEnsemble(_) => Some("has no trees"),
        Op::If(_) | Op::Loop(_) | Op::Scan(_) | Op::SequenceMap(_) => {
            Some("is given no graphs inside ops")
        }
        Op::Optional(_) | Op::Sequence(_) => Some("has no lists and no optional values"),
        Op::Reduce(r) if matches!(r.kind, ReduceKind::Max | ReduceKind::Min) => {
            Some("takes the largest finite number for infinity in a maximum or minimum")
        }
        Op::Attention(a) if may_see_nothing(graph, a.causal, inputs) => {
            Some("makes NaN for a query that sees no key")
        }
        Op::Pool(p)
            if p.ceil_mode && matches!(p.kind, PoolKind::Average { count_include_pad: true }) =>
        {
            Some("counts what lies beyond the padding into the mean of a last window")
        }
        Op::Binary(Binary::Fmod) => Some("takes the remainder by infinity for no number"),
        Op::GridSample(_) if inputs.first().copied().flatten().and_then(rank) != Some(4) => {
            Some("samples images of two dims only")
        }
        Op::Resize(r) if r.antialias || r.exclude_outside => {
            Some("resizes with all weights, those outside the image too")
        }
        Op::Resize(r)
            if matches!(
                r.coordinates,
                Coordinates::CropAndResize | Coordinates::HalfPixelSymmetric
            ) =>
        {
            Some("has no such coordinates")
        }
        Op::Resize(r) if has_half_way(graph, r, inputs) => {
            Some("takes another element than the nearest one half-way between two")
        }
        _ => None,
    }
}

/// Whether a resize to the nearest elements finds one half-way between two, and rounds by that.
fn has_half_way(graph: &Graph, resize: &Resize, inputs: &[Option<ValueId>]) -> bool {
    let rounds =
        matches!(resize.mode, Interpolation::Nearest(Rounding::PreferFloor | Rounding::PreferCeil));
    let x = inputs.first().copied().flatten().and_then(|v| graph.fact(v).ty.as_tensor());
    let sizes = x.and_then(|t| Some((t.shape.as_fixed()?, resize.sizes.as_fixed()?)));
    let Some((from, to)) = sizes.filter(|_| rounds) else { return false };
    let mut sizes = from.into_iter().zip(to).enumerate();
    sizes.any(|(d, (from, to))| from != to && resize.has_half_way(d, from, to))
}

/// Whether a query of an attention sees no key for any values of a mask of truth values, or by its place. A
/// mask of numbers hides all only where it is minus infinity throughout, which checks on data must show.
fn may_see_nothing(graph: &Graph, causal: bool, inputs: &[Option<ValueId>]) -> bool {
    let ty = |i: usize| graph.fact(inputs.get(i).copied().flatten()?).ty.as_tensor();
    let dims = |i: usize| ty(i).and_then(|t| t.shape.as_fixed()).unwrap_or_default();
    let short = dims(0).get(2) > dims(1).get(2);
    ty(3).is_some_and(|mask| mask.dtype == DType::Bool) || (causal && short)
}

/// Whether an op does no more with the integers of `value` than move, index with or make of truth values.
fn takes_integers(graph: &Graph, op: &Op, inputs: &[Option<ValueId>], value: ValueId) -> bool {
    let dtype = |v: &Option<ValueId>| v.and_then(|v| Some(graph.fact(v).ty.as_tensor()?.dtype));
    match op.kind() {
        OpKind::Gather
        | OpKind::GatherElements
        | OpKind::GatherNd
        | OpKind::Reshape
        | OpKind::Transpose
        | OpKind::Expand
        | OpKind::Tile
        | OpKind::Concat
        | OpKind::Split
        | OpKind::Slice
        | OpKind::OneHot => true,
        OpKind::ScatterElements | OpKind::ScatterNd => inputs.get(1) == Some(&Some(value)),
        OpKind::ArgReduce | OpKind::TopK => inputs.first().and_then(dtype) == Some(DType::F32),
        OpKind::Cast => inputs.first().and_then(dtype) != Some(DType::F32),
        _ => false,
    }
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
