//! What tests of foreign backends share: small graphs, and every candidate against the reference.

use bricolage_backend::{Backend, Candidate, Packed, Policy, Region, Setting};
use bricolage_ir::{
    Error, Graph, NodeId, Op, Tolerance, ValueId, evaluate, evaluate_from, evaluate_noisy, origin,
};
use bricolage_runtime::{
    Cancel, DeviceId, Dims, Kernel, Operand, PoolOptions, Queue, Run, RunError, ThreadPool,
};
use bricolage_tensor::{DType, Datum, Format, Rng, Tensor, TensorType};
use std::{collections::HashMap, path::PathBuf};

pub(crate) const SETTING: Setting = Setting { threads: 1, policy: Policy::Default };

/// The backend that `find` makes of what `variable` names, or `None` after saying why it is not here.
#[allow(clippy::print_stderr)]
pub(crate) fn here<B: Backend>(variable: &str, find: impl FnOnce(&PathBuf) -> B) -> Option<B> {
    let Some(named) = std::env::var_os(variable).map(PathBuf::from) else {
        eprintln!("skipped: {variable} names no library");
        return None;
    };
    let found = find(&named);
    let status = found.status();
    if status.version.is_none() {
        eprintln!("skipped: {}", status.found);
        return None;
    }
    Some(found)
}

pub(crate) fn drawn(dtype: DType, dims: &[i64], seed: u64) -> Tensor {
    let mut rng = Rng::new(seed);
    Tensor::generate(dtype, dims, |_| rng.normal())
}

/// A graph and its inputs.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) graph: Graph,
    pub(crate) inputs: Vec<Tensor>,
}

impl Case {
    pub(crate) fn new() -> Case {
        Case { graph: Graph::new("case"), inputs: Vec::new() }
    }

    pub(crate) fn input(&mut self, tensor: Tensor) -> ValueId {
        let name = format!("in{}", self.inputs.len());
        let id = self.graph.input(&name, TensorType::fixed(tensor.dtype(), tensor.dims()));
        self.inputs.push(tensor);
        id
    }

    pub(crate) fn constant(&mut self, tensor: Tensor) -> ValueId {
        self.graph.constant("weights", tensor)
    }

    pub(crate) fn op(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
        self.graph.add1(op, inputs, origin("node")).unwrap()
    }
}

/// The whole graph as one region.
pub(crate) fn whole(graph: &Graph) -> Region {
    region(graph, graph.order())
}

/// These nodes as one region.
pub(crate) fn region(graph: &Graph, nodes: Vec<NodeId>) -> Region {
    let boundary = graph.boundary(&nodes);
    let (inputs, constants, outputs) = (boundary.inputs, boundary.constants, boundary.outputs);
    Region { nodes, inputs, constants, outputs }
}

/// A cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line {
    bytes: [u8; 64],
}

/// Memory of an operand.
struct Memory {
    lines: Vec<Line>,
    len: usize,
    format: Format,
    dims: Vec<i64>,
    strides: Vec<i64>,
}

impl Memory {
    /// Full of ones where there are no bytes.
    fn new(format: &Format, dims: &[i64], len: usize, bytes: &[u8]) -> Memory {
        let mut lines = vec![Line { bytes: [0xFF; 64] }; len.div_ceil(64).max(1)];
        // SAFETY: there are at least `len` bytes, as many as in `bytes` where those are any.
        unsafe {
            let to = lines.as_mut_ptr().cast();
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len().min(len));
        }
        let strides = format.strides(dims).unwrap_or_default();
        Memory { lines, len, format: format.clone(), dims: dims.to_vec(), strides }
    }

    fn operand(&mut self) -> Operand<'_> {
        let ptr = self.lines.as_mut_ptr().cast();
        // SAFETY: the memory lives as long as the operand and is nobody else's.
        unsafe { Operand::new(ptr, self.len, DeviceId(0), &self.dims, &self.strides, &self.format) }
    }

    fn tensor(&self) -> Tensor {
        let bytes: Vec<u8> = self.lines.iter().flat_map(|l| l.bytes).take(self.len).collect();
        self.format.unpack(&self.dims, &bytes).unwrap()
    }
}

/// Runs a kernel on tensors, into outputs of the given dims, with as much workspace as it declares.
pub(crate) fn run(
    kernel: &dyn Kernel,
    constants: &[Packed],
    inputs: &[(Tensor, Format)],
    outputs: &[(Vec<i64>, Format)],
    threads: usize,
) -> Result<Vec<Tensor>, RunError> {
    let read = |(t, format): &(Tensor, Format)| {
        let bytes = format.pack(t).unwrap();
        Memory::new(format, t.dims(), bytes.len(), &bytes)
    };
    let written = |(dims, format): &(Vec<i64>, Format)| {
        Memory::new(format, dims, format.byte_len(dims).unwrap() as usize, &[])
    };
    let packed = |p: &Packed| Memory::new(&p.format, &p.dims, p.bytes.len(), &p.bytes);
    let mut read: Vec<Memory> = inputs.iter().map(read).collect();
    let mut written: Vec<Memory> = outputs.iter().map(written).collect();
    let mut packed: Vec<Memory> = constants.iter().map(packed).collect();
    let dims = Dims {
        inputs: &inputs.iter().map(|(t, _)| t.dims().to_vec()).collect::<Vec<_>>(),
        outputs: &outputs.iter().map(|(d, _)| d.clone()).collect::<Vec<_>>(),
    };
    let workspace = kernel.needs(&dims, threads).workspace as usize;
    let mut workspace = Memory::new(&Format::plain(DType::U8), &[], workspace, &[]);
    let pool = ThreadPool::new(&PoolOptions { threads, ..PoolOptions::default() }).unwrap();
    kernel.run(&mut Run {
        inputs: &read.iter_mut().map(Memory::operand).collect::<Vec<_>>(),
        outputs: &written.iter_mut().map(Memory::operand).collect::<Vec<_>>(),
        constants: &packed.iter_mut().map(Memory::operand).collect::<Vec<_>>(),
        workspace: workspace.operand(),
        pool: &pool,
        queue: Queue(0),
        cancel: &Cancel::default(),
    })?;
    Ok(written.iter().map(Memory::tensor).collect())
}

/// Runs of a candidate equal the reference, bound and rebuilt; twice each, for the second finds what the first
/// left behind.
pub(crate) fn check_candidate(
    backend: &dyn Backend,
    case: &Case,
    candidate: &Candidate,
    setting: &Setting,
) {
    let graph = &case.graph;
    let data: Vec<Datum> = case.inputs.iter().cloned().map(Datum::from).collect();
    // Inputs of the region, by evaluating everything.
    let mut known = HashMap::new();
    let mut keep = |v, d: &Datum| {
        known.insert(v, d.clone());
    };
    evaluate_from(graph, &data, &HashMap::new(), &mut keep).unwrap();
    known.extend(graph.inputs.iter().copied().zip(data.iter().cloned()));
    let content = |v: &ValueId| {
        let constant = graph.constant_of(*v).cloned().map(Datum::from);
        constant.unwrap_or_else(|| known[v].clone())
    };
    let part = graph.extract(&candidate.region.nodes).unwrap();
    let named = |v: &ValueId| graph.find(&part.value(*v).name).unwrap();
    let inputs: Vec<Datum> = part.inputs.iter().map(|v| content(&named(v))).collect();
    let exact = evaluate(&part, &inputs).unwrap();
    let noisy = evaluate_noisy(&part, &inputs, &|_| 0.0, 3).unwrap();
    let results = |all: &[Datum]| -> Vec<Tensor> {
        let place = |v: &ValueId| part.outputs.iter().position(|o| named(o) == *v).unwrap();
        let places = candidate.region.outputs.iter().map(place);
        places.map(|at| all[at].as_tensor().unwrap().clone()).collect()
    };
    let (exact, noisy) = (results(&exact), results(&noisy));
    let given = candidate.region.inputs.iter().zip(&candidate.inputs);
    let given: Vec<(Tensor, Format)> =
        given.map(|(v, f)| (content(v).as_tensor().unwrap().clone(), f.clone())).collect();
    let wanted = exact.iter().map(|t| t.dims().to_vec());
    let wanted: Vec<(Vec<i64>, Format)> = wanted.zip(candidate.outputs.iter().cloned()).collect();
    let bound = backend.bind(graph, candidate, setting).unwrap();
    let again = backend.rebuild(&bound.kernel.recipe(), &bound.built_in).unwrap();
    assert_eq!(again.recipe(), bound.kernel.recipe());
    for kernel in [&bound.kernel, &bound.kernel, &again, &again] {
        let found = run(&**kernel, &bound.constants, &given, &wanted, setting.threads).unwrap();
        for ((found, exact), noisy) in found.iter().zip(&exact).zip(&noisy) {
            let allowed = Tolerance::from_floor(exact, noisy);
            let error = Error::between(exact, found);
            assert!(error.share_of(&allowed) <= 1.0, "{candidate}: {error}");
        }
    }
}

/// Every candidate that ends at the node of the first output equals the reference; their patterns are
/// `patterns`.
pub(crate) fn check(
    backend: &dyn Backend,
    case: &mut Case,
    outputs: &[ValueId],
    patterns: &[&str],
    setting: &Setting,
) {
    case.graph.outputs = outputs.to_vec();
    let exit = case.graph.producer(outputs[0]).unwrap();
    let proposals = backend.propose(&case.graph, exit, setting);
    assert!(proposals.declined.is_empty(), "{:?}", proposals.declined);
    let found: Vec<&str> = proposals.candidates.iter().map(|c| c.pattern.as_str()).collect();
    assert_eq!(found, patterns);
    for candidate in &proposals.candidates {
        check_candidate(backend, case, candidate, setting);
    }
}
