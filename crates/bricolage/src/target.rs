//! Running whatever a user names: a model, a model on one backend, or an artefact.

use crate::{DynamicSession, Error, Goal, Opened, artefact, inputs, line};
use bricolage_backend::{BackendKind, Registry};
use bricolage_ir::{Graph, NodeId, Numerics, Op, evaluate};
use bricolage_runtime::{Buffer, Session};
use bricolage_tensor::{Datum, Tensor};
use std::path::Path;

/// The outputs of a run by name.
pub type Outputs = Vec<(String, Tensor)>;

/// Called with the number of each step and each buffer that it writes.
pub type Observe<'a> = &'a mut dyn FnMut(usize, &Buffer, &[u8]);

/// The error of Winograd kernels where they may be used, 3x3 windows of stride 1: a share of the largest
/// result.
pub fn class_error(graph: &Graph, node: NodeId) -> f64 {
    let node = graph.node(node);
    let window = node.inputs.get(1).copied().flatten();
    let window = window.and_then(|w| graph.fact(w).ty.as_tensor()?.shape.as_fixed());
    match (&node.op, window) {
        (Op::Conv(c), Some(w))
            if c.groups == 1 && w[2..] == [3, 3] && c.strides.iter().all(|&s| s == 1) =>
        {
            Numerics::Winograd(4).error()
        }
        _ => 0.0,
    }
}

pub(crate) fn run_session(
    session: &mut Session,
    tensors: &[Tensor],
    observe: Observe<'_>,
) -> Result<Outputs, Error> {
    let program = session.program().clone();
    let ports = &program.plan().outputs;
    let mut words: Vec<Vec<u64>> = ports
        .iter()
        .map(|p| vec![0; (p.ty.byte_len().unwrap_or(0) as usize).div_ceil(8)])
        .collect();
    {
        let given: Vec<&[u8]> = tensors.iter().map(Tensor::bytes).collect();
        let mut taken: Vec<&mut [u8]> = words
            .iter_mut()
            .zip(ports)
            .map(|(w, p)| {
                &mut bytemuck::cast_slice_mut::<u64, u8>(w)[..p.ty.byte_len().unwrap_or(0) as usize]
            })
            .collect();
        session.run_observed(&given, &mut taken, None, observe)?;
    }
    let tensor = |(w, p): (&Vec<u64>, &bricolage_runtime::Port)| {
        let bytes = &bytemuck::cast_slice::<u64, u8>(w)[..p.ty.byte_len().unwrap_or(0) as usize];
        let dims = p.ty.shape.as_fixed().unwrap_or_default();
        let tensor = Tensor::new(p.ty.dtype, &dims, bricolage_tensor::Storage::copy_of(bytes))
            .map_err(|e| Error::Internal { what: e.to_string() })?;
        Ok((p.name.clone(), tensor))
    };
    words.iter().zip(ports).map(tensor).collect()
}

/// Runs an artefact once, after its self-test; says in words when the sizes are not those that it was measured
/// at. Of an artefact of open sizes no buffers are shown.
pub fn run_artefact(
    folder: &Path,
    registry: &Registry,
    threads: usize,
    tensors: &[Tensor],
    observe: Observe<'_>,
) -> Result<(Outputs, Option<String>), Error> {
    let loaded = artefact::load(folder, registry)?;
    let pool = line::pool(threads)?;
    loaded.self_test(pool.clone())?;
    match Opened::new(&loaded, pool)? {
        Opened::Fixed(mut session) => Ok((run_session(&mut session, tensors, observe)?, None)),
        mut open => Ok((open.run(tensors)?, open.unmeasured())),
    }
}

/// An output of a run, which must be a tensor.
pub(crate) fn tensor_output((name, datum): (String, Datum)) -> Result<(String, Tensor), Error> {
    match datum {
        Datum::Tensor(t) => Ok((name, t)),
        _ => Err(Error::Inputs {
            what: format!("output `{name}` is no tensor, and only tensors can be taken out"),
            help: String::new(),
        }),
    }
}

/// Whether graphs are evaluated as they are, neither rewritten nor planned.
pub fn is_reference_alone(registry: &Registry) -> bool {
    registry.iter().all(|b| b.kind() == BackendKind::Reference)
}

/// Runs a graph once with `registry`'s backends, nothing measured: the reference alone evaluates the
/// graph as it is, others run the rewritten graph, as [`run_rewritten`] does.
pub fn run_graph(
    graph: &Graph,
    registry: &Registry,
    goal: &Goal,
    tensors: &[Tensor],
    observe: Observe<'_>,
) -> Result<Outputs, Error> {
    let graph = inputs::bind_to(graph, tensors)?;
    if is_reference_alone(registry) {
        let data: Vec<Datum> = tensors.iter().cloned().map(Datum::from).collect();
        let results = evaluate(&graph, &data)?;
        let names = graph.outputs.iter().map(|&v| graph.value(v).name.to_string());
        return names.zip(results).map(tensor_output).collect();
    }
    run_rewritten(line::rewrite(graph)?.graph, registry, goal, tensors, observe)
}

/// Runs a graph that is rewritten and bound to the inputs once, nothing measured; stage by stage where the
/// graph itself tells sizes: the stages' buffers are not shown.
pub fn run_rewritten(
    graph: Graph,
    registry: &Registry,
    goal: &Goal,
    tensors: &[Tensor],
    observe: Observe<'_>,
) -> Result<Outputs, Error> {
    if !inputs::is_fixed(&graph) {
        let data: Vec<Datum> = tensors.iter().cloned().map(Datum::from).collect();
        let results = DynamicSession::of_rewritten(registry, graph, goal)?.run(&data)?;
        return results.into_iter().map(tensor_output).collect();
    }
    let (_, mut session) = line::compile_rewritten(registry, &graph, goal)?;
    run_session(&mut session, tensors, observe)
}
