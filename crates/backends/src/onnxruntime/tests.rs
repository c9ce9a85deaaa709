//! Regions against the reference evaluator; only where BRICOLAGE_ONNXRUNTIME names the library.

use super::*;
use bricolage_backend::Policy;
use bricolage_ir::ops::{
    Attention, Binary, Conv, Gather, LayerNorm, MatMul, Select, Softmax, Split, Unary,
};
use bricolage_ir::{Error, Tolerance, evaluate, evaluate_noisy, origin};
use bricolage_runtime::{Cancel, DeviceId, Operand, Queue, Run, RunError, Serial};
use bricolage_tensor::{DType, Datum, Dim, Tensor, TensorType};

const SETTING: Setting = Setting { threads: 1, policy: Policy::Default };

/// The library, or `None` after saying why there is none.
#[allow(clippy::print_stderr)]
fn library() -> Option<OnnxRuntime> {
    let named = std::env::var_os("BRICOLAGE_ONNXRUNTIME").map(PathBuf::from);
    let found = named.as_deref().map(|named| OnnxRuntime::find(Some(named), None));
    if !found.as_ref().is_some_and(OnnxRuntime::is_present) {
        let why = found.map_or_else(
            || "BRICOLAGE_ONNXRUNTIME names no library".to_owned(),
            |f| f.status().found,
        );
        eprintln!("skipped: {why}");
        return None;
    }
    found
}

fn drawn(dtype: DType, dims: &[i64], seed: u64) -> Tensor {
    let mut rng = bricolage_tensor::Rng::new(seed);
    Tensor::generate(dtype, dims, |_| rng.normal())
}

/// A graph with one result and its inputs.
struct Case {
    graph: Graph,
    inputs: Vec<Tensor>,
}

impl Case {
    fn new() -> Case {
        Case { graph: Graph::new("case"), inputs: Vec::new() }
    }
    fn input(&mut self, tensor: Tensor) -> ValueId {
        let name = format!("in{}", self.inputs.len());
        let id = self.graph.input(&name, TensorType::fixed(tensor.dtype(), tensor.dims()));
        self.inputs.push(tensor);
        id
    }
    fn constant(&mut self, tensor: Tensor) -> ValueId {
        self.graph.constant("weights", tensor)
    }
    fn op(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
        self.graph.add1(op, inputs, origin("node")).unwrap()
    }
}

/// Runs a kernel on tensors, into outputs of the given types.
fn run(
    kernel: &dyn Kernel,
    inputs: &[Tensor],
    outputs: &[(DType, Vec<i64>)],
) -> Result<Vec<Tensor>, RunError> {
    struct Memory(Vec<u64>, usize, Format, Vec<i64>, Vec<i64>);
    let memory = |dtype: DType, dims: &[i64], bytes: &[u8]| {
        let format = Format::plain(dtype);
        let len = format.byte_len(dims).unwrap() as usize;
        let mut words = vec![u64::MAX; len.div_ceil(8).max(1)];
        if !bytes.is_empty() {
            // SAFETY: there are at least `len` bytes, as many as in `bytes`.
            unsafe {
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), words.as_mut_ptr().cast(), len)
            };
        }
        let strides = format.strides(dims).unwrap();
        Memory(words, len, format, dims.to_vec(), strides)
    };
    let mut read: Vec<Memory> =
        inputs.iter().map(|t| memory(t.dtype(), t.dims(), t.bytes())).collect();
    let mut written: Vec<Memory> = outputs.iter().map(|(d, dims)| memory(*d, dims, &[])).collect();
    fn operand(m: &mut Memory) -> Operand<'_> {
        let ptr = m.0.as_mut_ptr().cast();
        // SAFETY: the memory lives as long as the operand and is nobody else's.
        unsafe { Operand::new(ptr, m.1, DeviceId(0), &m.3, &m.4, &m.2) }
    }
    let none = Format::plain(DType::U8);
    let mut nothing = [0u8; 64];
    {
        let read: Vec<Operand<'_>> = read.iter_mut().map(operand).collect();
        let written: Vec<Operand<'_>> = written.iter_mut().map(operand).collect();
        // SAFETY: `nothing` outlives the run.
        let workspace =
            unsafe { Operand::new(nothing.as_mut_ptr(), 0, DeviceId(0), &[0], &[1], &none) };
        kernel.run(&mut Run {
            inputs: &read,
            outputs: &written,
            constants: &[],
            workspace,
            pool: &Serial,
            queue: Queue(0),
            cancel: &Cancel::default(),
        })?;
    }
    let tensor = |m: &Memory| {
        // SAFETY: the words hold at least `m.1` bytes.
        let bytes = unsafe { std::slice::from_raw_parts(m.0.as_ptr().cast::<u8>(), m.1) };
        m.2.unpack(&m.3, bytes).unwrap()
    };
    Ok(written.iter().map(tensor).collect())
}

/// Every candidate for the last node equals the reference, bound and rebuilt.
fn check(mut case: Case, outputs: &[ValueId], kinds: &[&str]) {
    let Some(backend) = library() else { return };
    case.graph.outputs = outputs.to_vec();
    let graph = &case.graph;
    let exit = graph.producer(outputs[0]).unwrap();
    let proposals = backend.propose(graph, exit, &SETTING);
    assert!(proposals.declined.is_empty(), "{:?}", proposals.declined);
    let found: Vec<&str> = proposals.candidates.iter().map(|c| c.pattern.as_str()).collect();
    assert_eq!(found, kinds);
    let order = graph.order();
    let boundary = graph.boundary(&order);
    let region = Region {
        nodes: order,
        inputs: boundary.inputs,
        constants: boundary.constants,
        outputs: boundary.outputs,
    };
    let whole = backend.propose_whole(graph, &region, &SETTING).unwrap();
    let data: Vec<Datum> = case.inputs.iter().cloned().map(Datum::from).collect();
    for candidate in proposals.candidates.iter().chain([&whole]) {
        // Inputs of the region, by evaluating everything.
        let mut known = std::collections::HashMap::new();
        bricolage_ir::evaluate_from(
            graph,
            &data,
            &std::collections::HashMap::new(),
            &mut |v, d: &Datum| {
                known.insert(v, d.clone());
            },
        )
        .unwrap();
        for (&v, d) in graph.inputs.iter().zip(&data) {
            known.insert(v, d.clone());
        }
        let part = graph.extract(&candidate.region.nodes).unwrap();
        let inputs: Vec<Datum> = candidate.region.inputs.iter().map(|v| known[v].clone()).collect();
        let exact = evaluate(&part, &inputs).unwrap();
        let noisy = evaluate_noisy(&part, &inputs, &|_| 0.0, 3).unwrap();
        let tensors: Vec<Tensor> = inputs.iter().map(|d| d.as_tensor().unwrap().clone()).collect();
        let types: Vec<(DType, Vec<i64>)> = exact
            .iter()
            .map(|d| d.as_tensor().unwrap())
            .map(|t| (t.dtype(), t.dims().to_vec()))
            .collect();
        let bound = backend.bind(graph, candidate, &SETTING).unwrap();
        let again = backend.rebuild(&bound.kernel.recipe(), &bound.built_in).unwrap();
        assert_eq!(again.recipe(), bound.kernel.recipe());
        assert_eq!(again.name(), "onnxruntime-region");
        for kernel in [&bound.kernel, &again] {
            let results = run(&**kernel, &tensors, &types).unwrap();
            for ((result, exact), noisy) in results.iter().zip(&exact).zip(&noisy) {
                let (exact, noisy) = (exact.as_tensor().unwrap(), noisy.as_tensor().unwrap());
                let allowed = Tolerance::from_floor(exact, noisy);
                let error = Error::between(exact, result);
                assert!(error.share_of(&allowed) <= 1.0, "{candidate}: {error}");
            }
        }
    }
}

#[test]
fn convolution_with_bias_and_activation() {
    let mut case = Case::new();
    let x = case.input(drawn(DType::F32, &[1, 8, 9, 9], 1));
    let w = case.constant(drawn(DType::F32, &[16, 8, 3, 3], 2));
    let b = case.constant(drawn(DType::F32, &[16], 3));
    let conv = case.op(Conv { pads: vec![(1, 1); 2], ..Conv::plain(2) }, &[x, w, b]);
    let relu = case.op(Unary::Relu, &[conv]);
    check(case, &[relu], &["Unary", "Conv+Unary"]);
}

#[test]
fn residual_block_reaches_over_two_convolutions() {
    let mut case = Case::new();
    let x = case.input(drawn(DType::F32, &[1, 8, 9, 9], 1));
    let w = case.constant(drawn(DType::F32, &[8, 8, 3, 3], 2));
    let same = Conv { pads: vec![(1, 1); 2], ..Conv::plain(2) };
    let first = case.op(same.clone(), &[x, w]);
    let relu = case.op(Unary::Relu, &[first]);
    let second = case.op(same, &[relu, w]);
    let sum = case.op(Binary::Add, &[second, x]);
    check(case, &[sum], &["Binary", "Conv+Binary", "Conv+Unary+Conv+Binary"]);
}

#[test]
fn product_with_bias() {
    let mut case = Case::new();
    let x = case.input(drawn(DType::F32, &[7, 33], 1));
    let w = case.constant(drawn(DType::F32, &[33, 20], 2));
    let b = case.constant(drawn(DType::F32, &[20], 3));
    let product = case.op(MatMul { transpose_lhs: false, transpose_rhs: false }, &[x, w]);
    let sum = case.op(Binary::Add, &[product, b]);
    check(case, &[sum], &["Binary", "MatMul+Binary"]);
}

#[test]
fn pointwise_chain_through_booleans() {
    let mut case = Case::new();
    let x = case.input(drawn(DType::F32, &[5, 6], 1));
    let y = case.input(drawn(DType::F32, &[6], 2));
    let less = case.op(Binary::Less, &[x, y]);
    let tanh = case.op(Unary::Tanh, &[x]);
    let pick = case.op(Select, &[less, tanh, y]);
    check(case, &[pick], &["Select", "Binary+Unary+Select"]);
    let mut case = Case::new();
    let x = case.input(drawn(DType::F32, &[5, 6], 1));
    let y = case.input(drawn(DType::F32, &[6], 2));
    let less = case.op(Binary::Less, &[x, y]);
    check(case, &[less], &["Binary"]);
}

#[test]
fn gather_by_64_bit_indices() {
    let mut case = Case::new();
    let table = case.constant(drawn(DType::F32, &[40, 16], 1));
    let at = case.input(Tensor::of(&[2, 3], &[0i64, 39, 7, 7, 12, 1]));
    let rows = case.op(Gather { axis: 0 }, &[table, at]);
    check(case, &[rows], &["Gather"]);
    let mut case = Case::new();
    let table = case.input(Tensor::of(&[4], &[1i64 << 60, -2, 3, 4]));
    let at = case.input(Tensor::of(&[2], &[0i64, 3]));
    let rows = case.op(Gather { axis: 0 }, &[table, at]);
    check(case, &[rows], &["Gather"]);
}

#[test]
fn several_outputs() {
    let mut case = Case::new();
    let x = case.input(drawn(DType::F32, &[2, 7], 1));
    let split = Split { axis: 1, sizes: vec![Dim::from(3), Dim::from(4)] };
    let parts = case.graph.add(split, &[x], origin("parts")).unwrap();
    check(case, &parts, &["Split"]);
}

#[test]
fn attention_and_normalisation() {
    let mut case = Case::new();
    let head = |seed| drawn(DType::F32, &[1, 2, 5, 8], seed);
    let [q, k, v] = [1, 2, 3].map(|seed| case.input(head(seed)));
    let out = case.op(Attention { scale: None, causal: true }, &[q, k, v]);
    check(case, &[out], &["Attention"]);
    let mut case = Case::new();
    let x = case.input(drawn(DType::F32, &[4, 12], 1));
    let y = case.input(drawn(DType::F32, &[4, 12], 2));
    let scale = case.constant(drawn(DType::F32, &[12], 3));
    let sum = case.op(Binary::Add, &[x, y]);
    let norm = LayerNorm {
        axis: 1,
        epsilon: bricolage_ir::Real::new(1e-5),
        rms: false,
        statistics: false,
    };
    let normal = case.op(norm, &[sum, scale]);
    let soft = case.op(Softmax { axis: 1, log: false }, &[normal]);
    check(case, &[soft], &["Softmax", "LayerNorm+Softmax", "Binary+LayerNorm+Softmax"]);
}

#[test]
fn wrong_operands_and_bodies_are_errors() {
    let Some(backend) = library() else { return };
    let mut case = Case::new();
    let x = case.input(drawn(DType::F32, &[3, 4], 1));
    let relu = case.op(Unary::Relu, &[x]);
    case.graph.outputs = vec![relu];
    let exit = case.graph.producer(relu).unwrap();
    let candidate = backend.propose(&case.graph, exit, &SETTING).candidates.remove(0);
    let bound = backend.bind(&case.graph, &candidate, &SETTING).unwrap();
    let wrong = drawn(DType::F32, &[4, 3], 1);
    let error = run(&*bound.kernel, &[wrong], &[(DType::F32, vec![3, 4])]).unwrap_err();
    assert!(matches!(error, RunError::Operand { .. }), "{error}");
    let right = drawn(DType::F32, &[3, 4], 1);
    let error = run(&*bound.kernel, &[right], &[(DType::F64, vec![3, 4])]).unwrap_err();
    assert!(matches!(error, RunError::Operand { .. }), "{error}");
    let mut recipe = bound.kernel.recipe();
    recipe.body.truncate(10);
    assert!(backend.rebuild(&recipe, &[]).is_err());
    let threads = Setting { threads: 2, ..SETTING };
    let bound = backend.bind(&case.graph, &candidate, &threads).unwrap();
    let Err(why) = backend.rebuild(&bound.kernel.recipe(), &[]) else {
        panic!("the pool has one thread")
    };
    assert!(why.contains("needs 2 threads"), "{why}");
}

#[test]
fn a_file_runs_by_itself() {
    let Some(backend) = library() else { return };
    let mut case = Case::new();
    let x = case.input(drawn(DType::F32, &[3, 4], 1));
    let relu = case.op(Unary::Relu, &[x]);
    case.graph.outputs = vec![relu];
    let path = std::env::temp_dir().join(format!("bricolage-peer-{}.onnx", std::process::id()));
    std::fs::write(&path, bricolage_onnx::export(&case.graph).unwrap()).unwrap();
    let peer = backend.open_peer(&path, 1);
    std::fs::remove_file(&path).unwrap();
    let mut peer = peer.unwrap();
    let named = [("in0".to_owned(), case.inputs[0].clone())];
    let found = peer.run(&named).unwrap();
    let exact = evaluate(&case.graph, &[case.inputs[0].clone().into()]).unwrap();
    assert_eq!(found, [("node".to_owned(), exact[0].as_tensor().unwrap().clone())]);
    assert!(peer.sample(&named, 3).unwrap() > std::time::Duration::ZERO);
    let missing = peer.run(&[]).unwrap_err();
    assert_eq!(missing, "needs an input `in0`");
    assert!(backend.open_peer(Path::new("/nowhere.onnx"), 1).is_err());
}
