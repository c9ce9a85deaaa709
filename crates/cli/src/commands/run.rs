//! `run`: one run of a model or an artefact.

use super::{SCHEMA_VERSION, print_json};
use crate::{
    args::{Format, Run},
    output::say,
    setup::{self, Target},
};
use bricolage::{Error, npz, target, temporary, worker::OpenPlan};
use bricolage_tensor::Tensor;
use std::{path::Path, process::ExitCode};

pub(crate) fn run(a: &Run) -> Result<ExitCode, Error> {
    let target = Target::parse(&a.target)?;
    if let Some(path) = &a.output {
        temporary::require_place(path).map_err(Error::file("write", path))?;
        if path.exists() && !a.overwrite {
            let why = "it exists; --overwrite replaces it".to_owned();
            return Err(Error::File { action: "write", path: path.clone(), why });
        }
    }
    if let Some(path) = &a.output
        && let (Ok(to), Ok(from)) = (path.canonicalize(), target.path().canonicalize())
        && to.starts_with(&from)
    {
        let why = format!("it belongs to `{}`, which is run", from.display());
        return Err(Error::File { action: "write", path: path.clone(), why });
    }
    if let (Some(to), Some(from)) = (&a.output, &a.input)
        && let (Ok(to_real), Ok(from_real)) = (to.canonicalize(), from.canonicalize())
        && to_real == from_real
    {
        let why = "the inputs are read from it".to_owned();
        return Err(Error::File { action: "write", path: to.clone(), why });
    }
    let graph = target.graph(&a.setting, a.input.as_deref())?;
    let tensors = setup::tensors(&graph, a.input.as_deref(), a.setting.seed)?;
    let outputs = outputs(&target, &graph, &a.setting, &tensors)?;
    if let Some(path) = &a.output {
        npz::write(path, &outputs)?;
    }
    match a.format.format {
        Format::Json => {
            let all: Vec<_> = outputs.iter().map(|(name, t)| summary_json(name, t)).collect();
            print_json(&serde_json::json!({ "schema_version": SCHEMA_VERSION, "outputs": all }))?;
        }
        Format::Text => {
            for (name, tensor) in &outputs {
                say!("{}", summary(name, tensor));
            }
            if let Some(path) = &a.output {
                say!("written to {}", path.display());
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The outputs of one run of a target on tensors in the graph's order.
pub(crate) fn outputs(
    target: &Target,
    graph: &bricolage_ir::Graph,
    setting: &crate::args::Setting,
    tensors: &[Tensor],
) -> Result<target::Outputs, Error> {
    let observe = &mut |_, _: &bricolage_runtime::Buffer, _: &[u8]| {};
    match target {
        Target::Artefact(folder) => {
            let manifest = bricolage::artefact::manifest(folder)?;
            let threads = setting.threads.unwrap_or(manifest.threads as usize);
            let registry = setup::registry(&[])?;
            let (outputs, unmeasured) =
                target::run_artefact(folder, &registry, threads, tensors, observe)?;
            setup::note_unmeasured(&target.name(), unmeasured.as_deref());
            Ok(outputs)
        }
        Target::Model(_) => on_ours(graph, "native", setting, tensors),
        Target::On(path, backend) => on_backend(path, backend, graph, setting, tensors),
    }
}

/// A graph on a backend of ours, nothing measured.
pub(crate) fn on_ours(
    graph: &bricolage_ir::Graph,
    backend: &str,
    setting: &crate::args::Setting,
    tensors: &[Tensor],
) -> Result<target::Outputs, Error> {
    let registry = setup::registry(&[backend.to_owned()])?;
    let goal = setup::goal(setting);
    let observe = &mut |_, _: &bricolage_runtime::Buffer, _: &[u8]| {};
    if !goal.audit_rewrites || target::is_reference_alone(&registry) {
        return target::run_graph(graph, &registry, &goal, tensors, observe);
    }
    let bound = bricolage::inputs::bind_to(graph, tensors)?;
    let (rewritten, _) = setup::rewrite_audited(bound, tensors)?;
    target::run_rewritten(rewritten, &registry, &goal, tensors, observe)
}

/// A model on one backend: compiled by us for our own, run whole by a runtime of its own.
fn on_backend(
    path: &Path,
    backend: &str,
    graph: &bricolage_ir::Graph,
    setting: &crate::args::Setting,
    tensors: &[Tensor],
) -> Result<target::Outputs, Error> {
    if setup::is_ours(backend) {
        return on_ours(graph, backend, setting, tensors);
    }
    let named = name_inputs(graph, tensors);
    let (threads, outputs) = (setup::threads(setting), output_names(graph));
    let mut open = super::bench::open_peer(path, backend, threads, &outputs, &named)?;
    open.outputs()
}

/// Tensors in the graph's order with the names of its inputs.
pub(crate) fn name_inputs(
    graph: &bricolage_ir::Graph,
    tensors: &[Tensor],
) -> Vec<(String, Tensor)> {
    let names = graph.inputs.iter().map(|&v| graph.value(v).name.to_string());
    names.zip(tensors.iter().cloned()).collect()
}

/// Names of what a graph gives, in its order.
pub(crate) fn output_names(graph: &bricolage_ir::Graph) -> Vec<String> {
    graph.outputs.iter().map(|&v| graph.value(v).name.to_string()).collect()
}

/// Least, largest and mean element; NaN where there is no number, `None` without elements.
fn numbers(tensor: &Tensor) -> Option<(f64, f64, f64)> {
    let all = tensor.to_f64();
    let least = all.iter().copied().reduce(f64::min)?;
    let largest = all.iter().copied().reduce(f64::max)?;
    Some((least, largest, all.iter().sum::<f64>() / all.len() as f64))
}

fn summary(name: &str, tensor: &Tensor) -> String {
    let ty = tensor.ty();
    match numbers(tensor) {
        Some((least, largest, mean)) => {
            format!("{name} {ty} min {least:.6} max {largest:.6} mean {mean:.6}")
        }
        None => format!("{name} {ty} empty"),
    }
}

fn summary_json(name: &str, tensor: &Tensor) -> serde_json::Value {
    let numbers = numbers(tensor);
    serde_json::json!({
        "name": name, "dtype": tensor.dtype().name(), "dims": tensor.dims(),
        "min": numbers.map(|n| n.0), "max": numbers.map(|n| n.1), "mean": numbers.map(|n| n.2),
    })
}
