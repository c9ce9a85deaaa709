//! What backends share that compile regions of any size, written as ONNX models.

mod grow;
mod kernel;

use bricolage_backend::{Candidate, Packed, Region, Setting};
use bricolage_ir::{Graph, Numerics, ValueId};
use bricolage_onnx::{Structure, export_structure};
use bricolage_tensor::{DType, Format, Type};
use serde::{Deserialize, Serialize};

pub(crate) use grow::{ends_chain, has_anchor, region_around, regions};
pub(crate) use kernel::{Compiled, Refusal, RegionKernel};

/// Variant of a region that shares the processor with other kernels.
pub(crate) const MIXED: &str = "region";
/// Nodes of the largest region whose pattern names its ops.
const MOST_NAMED: usize = 24;
/// Pattern of a region that is the whole plan.
pub(crate) const WHOLE: &str = "whole graph";

/// A tensor that crosses the region's border.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Port {
    /// Name in the model.
    pub(crate) name: String,
    /// Element type.
    pub(crate) dtype: DType,
    /// Dims of the tensor.
    pub(crate) dims: Vec<i64>,
}

/// The body of a recipe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Body {
    /// ONNX bytes without the large constants.
    pub(crate) model: Vec<u8>,
    /// Names of these constants, in the order in which they are built in.
    pub(crate) weights: Vec<String>,
    /// In the order of the kernel's operands.
    pub(crate) inputs: Vec<Port>,
    /// In the order of the kernel's operands.
    pub(crate) outputs: Vec<Port>,
    /// Threads of a run.
    pub(crate) threads: u32,
    /// Whether the region is the whole plan, and so has the processor to itself.
    pub(crate) alone: bool,
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

/// The candidate that computes `region`, if it can be written as a model. One of [`MIXED`]'s variant is
/// named after its ops or by their number, any other is the [`WHOLE`].
pub(crate) fn offer(
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
    let kinds = region.nodes.iter().map(|&n| graph.node(n).op.kind().name());
    let pattern = match region.nodes.len() {
        _ if variant != MIXED => WHOLE.to_owned(),
        count if count > MOST_NAMED => format!("{count} nodes"),
        _ => kinds.collect::<Vec<_>>().join("+"),
    };
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

/// What a candidate's kernel is made from: the body of its recipe, and its large constants.
pub(crate) fn parts(
    graph: &Graph,
    candidate: &Candidate,
    setting: &Setting,
) -> Result<(Body, Vec<Packed>), String> {
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
        alone: candidate.variant != MIXED,
    };
    let built_in = structure.weights.iter().map(|(_, t)| Packed {
        format: Format::plain(t.dtype()),
        dims: t.dims().to_vec(),
        bytes: t.storage().clone(),
    });
    Ok((body, built_in.collect()))
}
