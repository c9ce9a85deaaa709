//! A backend that is wholly a pattern file: its library computes every entry with the reference evaluator.
#![allow(unsafe_code)] // operands are pointers
#![allow(clippy::unwrap_used)] // a test may panic

use bricolage_backend::{
    Backend, BackendKind, BackendStatus, Bound, Candidate, Packed, Policy, Proposals, Setting,
    pattern::{Bindings, Library, PatternBackend, Provider, syntax::Literal},
};
use bricolage_ir::{
    Graph, NodeId, Op, ValueId, evaluate,
    ops::{Binary, Clip, Conv, LayerNorm, MatMul, Unary},
    origin, parse, print,
};
use bricolage_runtime::{
    Cancel, DeviceId, Dims, Kernel, Needs, Operand, Queue, Recipe, Run, RunError, Serial,
};
use bricolage_tensor::{DType, Datum, Dim, Format, Layout, Rng, Shape, Tensor, TensorType};
use std::sync::Arc;

const FILE: &str = r#"
// What the reference evaluator would be as a library.
backend evaluator {
  kind: op_library;
  version: "1.2" .. "2";
  covers: "convolutions, products and chains, for tests";
  numerics: exact;
  requires: dev.lanes >= 4 && dev.isa in {"avx2", "neon"};
}

let act(x) = relu(x) | sigmoid(x) | clip(x);

pattern conv_act {
  match: y@act(c@conv(x@_, w@const, b@const?))?;
  where: c.attr.groups == 1 && x.rank == 4;
  where: all(s in c.attr.strides: s == 1);
  formats: { x: f32:plain | f32:channels-last; y: same_as x; }
  entry: "conv";
}
exclude conv_act where y.elements < 8 because "a call costs more than the work";

pattern product {
  match: y@add{m@mat_mul(x@_, w@const), b@const}?;
  where: w.rank == 2 && aligned(w.dim[-1], 2);
  formats: { _: f32:plain; }
}

pattern residual_norm {
  match: layer_norm(s@add{a@_, r@_}, g@const?, b@const?);
}

rule chain {
  seed: s@#elementwise(...);
  grow: down #elementwise via postdom;
  grow: up #elementwise while node.op != "sigmoid";
  max_nodes: 6;
  where: region.nodes >= 2;
}

convert relayout: any:plain -> any:channels-last where t.rank == 4;
"#;

const SETTING: Setting = Setting { threads: 1, policy: Policy::Default };

struct Evaluator(Library);

fn library() -> Library {
    Library {
        entries: ["conv", "product", "residual_norm", "chain", "relayout"]
            .map(str::to_owned)
            .to_vec(),
        machine: vec![
            ("lanes".to_owned(), Literal::Int(8)),
            ("isa".to_owned(), Literal::Text("avx2".to_owned())),
        ],
        version: "1.4.2".to_owned(),
    }
}

fn load(file: &str, library: Library) -> Result<PatternBackend, String> {
    PatternBackend::load("e.patterns", file, Arc::new(Evaluator(library)))
        .map_err(|e| e.to_string())
}

/// Evaluates its graph; inputs and outputs are in the graph's own order.
struct Evaluate {
    entry: String,
    graph: Graph,
}

impl Provider for Evaluator {
    fn library(&self) -> Library {
        self.0.clone()
    }

    fn status(&self) -> BackendStatus {
        BackendStatus {
            name: String::new(),
            version: Some(self.0.version.clone()),
            found: "in this test".to_owned(),
            how: "always there".to_owned(),
            covers: String::new(),
        }
    }

    fn bind(
        &self,
        entry: &str,
        graph: &Graph,
        candidate: &Candidate,
        bindings: &Bindings,
        _: &Setting,
    ) -> Result<Bound, String> {
        // An entry is given what its pattern names, and nothing else.
        if entry == "conv" {
            let conv = bindings.node("c").ok_or("needs a convolution")?;
            assert!(matches!(graph.node(conv).op, Op::Conv(_)));
            assert_eq!(bindings.has("b"), graph.node(conv).inputs.len() == 3);
            assert_eq!(bindings.has("y"), candidate.region.nodes.len() == 2);
            assert_eq!(bindings.value("x"), Some(candidate.region.inputs[0]));
        }
        let part = graph.extract(&candidate.region.nodes).map_err(|e| e.to_string())?;
        let (_, aside) = print(&part);
        let plain = |t: &Tensor| Packed {
            format: Format::plain(t.dtype()),
            dims: t.dims().to_vec(),
            bytes: t.storage().clone(),
        };
        let built_in = aside.iter().map(plain).collect();
        let kernel = Arc::new(Evaluate { entry: entry.to_owned(), graph: part });
        Ok(Bound { kernel, constants: Vec::new(), built_in })
    }

    fn convert(&self, entry: &str, dims: &[i64], _: &Format, to: &Format) -> Option<Bound> {
        let mut graph = Graph::new(entry);
        let x = graph.input("x", TensorType::fixed(to.dtype, dims));
        let y = graph.add1(Op::Unary(Unary::Identity), &[x], origin("y")).ok()?;
        graph.outputs = vec![y];
        let kernel = Arc::new(Evaluate { entry: entry.to_owned(), graph });
        Some(Bound { kernel, constants: Vec::new(), built_in: Vec::new() })
    }

    fn rebuild(&self, recipe: &Recipe, built_in: &[Packed]) -> Result<Arc<dyn Kernel>, String> {
        let text = std::str::from_utf8(&recipe.body).map_err(|e| e.to_string())?;
        let tensor = |p: &Packed| Tensor::new(p.format.dtype, &p.dims, p.bytes.clone());
        let aside: Result<Vec<Tensor>, _> = built_in.iter().map(tensor).collect();
        let graph = parse(text, &aside.map_err(|e| e.to_string())?).map_err(|e| e.to_string())?;
        Ok(Arc::new(Evaluate { entry: recipe.kernel.clone(), graph }))
    }
}

impl Kernel for Evaluate {
    fn name(&self) -> &str {
        &self.entry
    }

    fn needs(&self, _: &Dims<'_>, _: usize) -> Needs {
        Needs { deterministic: true, ..Needs::default() }
    }

    fn run(&self, run: &mut Run<'_>) -> Result<(), RunError> {
        let failed = |why: String| RunError::Failed { kernel: self.entry.clone(), why };
        let mut inputs = Vec::new();
        for operand in run.inputs {
            // SAFETY: the caller hands readable memory of this length to every run.
            let bytes = unsafe { std::slice::from_raw_parts(operand.as_ptr(), operand.len()) };
            let tensor =
                operand.format.unpack(operand.dims, bytes).map_err(|e| failed(e.to_string()))?;
            inputs.push(Datum::from(tensor));
        }
        let results = evaluate(&self.graph, &inputs).map_err(|e| failed(e.to_string()))?;
        for (operand, result) in run.outputs.iter().zip(results) {
            let Datum::Tensor(tensor) = result else { return Err(failed("no tensor".to_owned())) };
            let packed =
                operand.format.pack(&tensor).ok_or_else(|| failed("no such format".to_owned()))?;
            assert_eq!(packed.len(), operand.len());
            // SAFETY: the caller hands writable memory of this length, and `packed` is our own.
            unsafe {
                std::ptr::copy_nonoverlapping(packed.as_ptr(), operand.as_mut_ptr(), packed.len())
            };
        }
        Ok(())
    }

    fn recipe(&self) -> Recipe {
        let (text, _) = print(&self.graph);
        Recipe {
            backend: "evaluator".to_owned(),
            kernel: self.entry.clone(),
            body: text.into_bytes(),
        }
    }
}

/// Runs a kernel on tensors, in the formats asked for.
fn run(
    kernel: &dyn Kernel,
    inputs: &[(Tensor, Format)],
    outputs: &[(Vec<i64>, Format)],
) -> Vec<Tensor> {
    let mut packed: Vec<Vec<u8>> =
        inputs.iter().map(|(t, f)| f.pack(t).expect("the format fits").to_vec()).collect();
    let mut results: Vec<Vec<u8>> =
        outputs.iter().map(|(d, f)| vec![0; f.byte_len(d).unwrap() as usize]).collect();
    let strides = |d: &[i64], f: &Format| f.strides(d).unwrap();
    let in_strides: Vec<_> = inputs.iter().map(|(t, f)| strides(t.dims(), f)).collect();
    let out_strides: Vec<_> = outputs.iter().map(|(d, f)| strides(d, f)).collect();
    let host = DeviceId::default();
    // SAFETY: the memory lives until the run has ended, and nobody else touches it.
    let operand = |bytes: &mut Vec<u8>, dims, strides, format| unsafe {
        Operand::new(bytes.as_mut_ptr(), bytes.len(), host, dims, strides, format)
    };
    let ins: Vec<Operand<'_>> = packed
        .iter_mut()
        .zip(inputs)
        .zip(&in_strides)
        .map(|((b, (t, f)), s)| operand(b, t.dims(), s.as_slice(), f))
        .collect();
    let outs: Vec<Operand<'_>> = results
        .iter_mut()
        .zip(outputs)
        .zip(&out_strides)
        .map(|((b, (d, f)), s)| operand(b, d.as_slice(), s.as_slice(), f))
        .collect();
    let bytes = Format::plain(DType::U8);
    let workspace = operand(&mut Vec::new(), &[0], &[1], &bytes);
    let (cancel, queue) = (Cancel::default(), Queue::default());
    kernel
        .run(&mut Run {
            inputs: &ins,
            outputs: &outs,
            constants: &[],
            workspace,
            pool: &Serial,
            queue,
            cancel: &cancel,
        })
        .unwrap();
    outputs.iter().zip(&results).map(|((d, f), b)| f.unpack(d, b).unwrap()).collect()
}

fn numbers(dims: &[i64]) -> Tensor {
    Tensor::generate(DType::F32, dims, |i| ((i * 37) % 17) as f64 / 4.0 - 2.0)
}

/// Nodes by the names of their values.
struct Model {
    graph: Graph,
}

impl Model {
    fn node(&self, name: &str) -> NodeId {
        self.graph.producer(self.graph.find(name).unwrap()).unwrap()
    }

    fn add(&mut self, name: &str, op: impl Into<Op>, inputs: &[Option<ValueId>]) -> ValueId {
        self.graph.add1(op, inputs, origin(name)).unwrap()
    }
}

/// An image through convolutions and a residual block, then rows through a product and a norm.
fn model() -> Model {
    let mut m = Model { graph: Graph::new("model") };
    let x = m.graph.input("x", TensorType::fixed(DType::F32, &[1, 3, 6, 6]));
    let rows = m.graph.input("rows", TensorType::fixed(DType::F32, &[5, 4]));
    let w1 = m.graph.constant("w1", numbers(&[4, 3, 3, 3]));
    let b1 = m.graph.constant("b1", numbers(&[4]));
    let w2 = m.graph.constant("w2", numbers(&[4, 4, 1, 1]));
    let wm = m.graph.constant("wm", numbers(&[4, 4]));
    let bm = m.graph.constant("bm", numbers(&[4]));
    let c1 = m.add("c1", Conv::plain(2), &[Some(x), Some(w1), Some(b1)]);
    let r1 = m.add("r1", Unary::Relu, &[Some(c1)]);
    let c2 = m.add("c2", Conv::plain(2), &[Some(r1), Some(w2)]);
    let sum = m.add("sum", Binary::Add, &[Some(r1), Some(c2)]);
    let limits = Clip { min: Some((-1.0).into()), max: Some(1.0.into()) };
    let clip = m.add("clip", limits, &[Some(sum)]);
    let p = m.add("p", MatMul::default(), &[Some(rows), Some(wm)]);
    let biased = m.add("biased", Binary::Add, &[Some(bm), Some(p)]);
    let added = m.add("added", Binary::Add, &[Some(biased), Some(rows)]);
    let norm = LayerNorm { axis: 1, epsilon: 1e-5.into(), rms: false, statistics: false };
    let normed = m.add("normed", norm, &[Some(added), Some(bm), None]);
    m.graph.outputs = vec![clip, normed];
    m
}

/// Values of the graph when its inputs are `numbers`.
fn values(graph: &Graph, wanted: &[ValueId]) -> Vec<Tensor> {
    let mut asked = graph.clone();
    asked.outputs = wanted.to_vec();
    let inputs: Vec<Datum> = graph
        .inputs
        .iter()
        .map(|&v| numbers(&graph.fact(v).ty.as_tensor().unwrap().shape.as_fixed().unwrap()).into())
        .collect();
    let all = evaluate(&asked, &inputs).unwrap();
    all.iter().map(|d| d.as_tensor().unwrap().clone()).collect()
}

fn summary(graph: &Graph, proposals: &Proposals) -> Vec<String> {
    let one = |c: &Candidate| {
        let nodes: Vec<String> = c
            .region
            .nodes
            .iter()
            .map(|&n| graph.value(graph.node(n).outputs[0]).name.to_string())
            .collect();
        format!("{c} of {}", nodes.join(" "))
    };
    proposals.candidates.iter().map(one).collect()
}

#[test]
fn every_candidate_computes_what_its_region_does() {
    let backend = load(FILE, library()).unwrap();
    assert_eq!((backend.name(), backend.kind()), ("evaluator", BackendKind::OpLibrary));
    let Model { graph } = model();
    let mut patterns = Vec::new();
    for exit in graph.nodes() {
        for candidate in backend.propose(&graph, exit, &SETTING).candidates {
            assert_eq!(candidate.region.exit(), exit);
            let bound = backend.bind(&graph, &candidate, &SETTING).unwrap();
            let given = values(&graph, &candidate.region.inputs);
            let expected = values(&graph, &candidate.region.outputs);
            let inputs: Vec<_> = given.into_iter().zip(candidate.inputs.clone()).collect();
            let dims = expected.iter().map(|t| t.dims().to_vec());
            let outputs: Vec<_> = dims.zip(candidate.outputs.clone()).collect();
            assert_eq!(run(&*bound.kernel, &inputs, &outputs), expected, "{candidate}");
            let again = backend.rebuild(&bound.kernel.recipe(), &bound.built_in).unwrap();
            assert_eq!(run(&*again, &inputs, &outputs), expected, "{candidate}, rebuilt");
            patterns.push(candidate.pattern);
        }
    }
    patterns.sort();
    patterns.dedup();
    assert_eq!(patterns, ["chain", "conv_act", "product", "residual_norm"]);
}

#[test]
fn candidates_are_those_that_the_file_says() {
    let backend = load(FILE, library()).unwrap();
    let m = model();
    let at = |name: &str| summary(&m.graph, &backend.propose(&m.graph, m.node(name), &SETTING));
    let both = |nodes: &str| {
        ["plain", "channels-last"]
            .map(|l| format!("conv_act conv in f32:{l} out f32:{l} of {nodes}"))
            .to_vec()
    };
    // A convolution alone and with its function; the function alone is nobody's.
    assert_eq!(at("c1"), both("c1"));
    assert_eq!(at("r1"), both("c1 r1"));
    assert_eq!(at("p"), ["product product in f32:plain out f32:plain of p"]);
    // The bias comes first, and is found all the same.
    assert_eq!(at("biased"), ["product product in f32:plain out f32:plain of p biased"]);
    // Either operand may be the residual: two ways, told apart by a number.
    let norm = "in f32:plain f32:plain out f32:plain of added normed";
    assert_eq!(
        at("normed"),
        [
            format!("residual_norm residual_norm {norm}"),
            format!("residual_norm residual_norm/2 {norm}")
        ]
    );
    assert_eq!(at("clip"), ["chain chain in f32:plain f32:plain out f32:plain of sum clip"]);
}

#[test]
fn refusals_are_clauses_with_what_was_found() {
    let backend = load(FILE, library()).unwrap();
    let why = |graph: &Graph, exit: NodeId| -> Vec<String> {
        let mut declined = backend.propose(graph, exit, &SETTING).declined;
        // A seed alone is always less than the rule asks for.
        declined.retain(|d| d.pattern != "chain");
        declined.iter().map(|d| format!("{}: {}", d.pattern, d.why)).collect()
    };
    let conv = |shape: Shape, conv: Conv, weights: &[i64], tap: bool| {
        let mut m = Model { graph: Graph::new("one") };
        let x = m.graph.input("x", TensorType { dtype: DType::F32, shape });
        let w = m.graph.constant("w", numbers(weights));
        let c = m.add("c", conv, &[Some(x), Some(w)]);
        let y = m.add("y", Unary::Relu, &[Some(c)]);
        m.graph.outputs = if tap { vec![c, y] } else { vec![y] };
        let exit = m.node("y");
        why(&m.graph, exit)
    };
    let image = Shape::fixed(&[1, 4, 5, 5]);
    assert_eq!(
        conv(image.clone(), Conv { groups: 2, ..Conv::plain(2) }, &[4, 2, 3, 3], false),
        ["conv_act: needs c.attr.groups == 1, found c.attr.groups = 2"]
    );
    assert_eq!(
        conv(image.clone(), Conv { strides: vec![1, 2], ..Conv::plain(2) }, &[4, 4, 3, 3], false),
        ["conv_act: needs all(s in c.attr.strides: s == 1), found c.attr.strides = [1, 2]"]
    );
    assert_eq!(
        conv(image.clone(), Conv::plain(2), &[4, 4, 3, 3], true),
        ["conv_act: value `c` inside the region is read from outside"]
    );
    assert_eq!(
        conv(image, Conv::plain(2), &[1, 4, 4, 4], false),
        ["conv_act: is left out here: a call costs more than the work"]
    );
    let open = Shape(vec![Dim::symbol("n"), Dim::from(4), Dim::from(5), Dim::from(5)]);
    // A size without a number: whether the region is excluded is not known, so it is.
    assert_eq!(
        conv(open, Conv::plain(2), &[4, 4, 3, 3], false),
        [
            "conv_act: may be one to leave out, which is not known here: a call costs more than the work"
        ]
    );
    let mut m = Model { graph: Graph::new("double") };
    let x = m.graph.input("x", TensorType::fixed(DType::F64, &[2, 4]));
    let w = m.graph.constant("w", Tensor::generate(DType::F64, &[4, 2], |i| i as f64));
    let y = m.add("y", MatMul::default(), &[Some(x), Some(w)]);
    m.graph.outputs = vec![y];
    assert_eq!(why(&m.graph, m.node("y")), ["product: needs `x` as f32:plain, found f64[2, 4]"]);
}

#[test]
fn files_and_libraries_must_name_the_same_entries() {
    let mut lacking = library();
    lacking.entries.retain(|e| e != "conv");
    lacking.entries.push("gemm".to_owned());
    assert_eq!(
        load(FILE, lacking).err().unwrap(),
        "e.patterns:3:9: needs a pattern for the library's entry `gemm`, found none\n\
         e.patterns:18:10: needs an entry of the library, found `conv`"
    );
    let old = Library { version: "1.1.9".to_owned(), ..library() };
    assert_eq!(
        load(FILE, old).err().unwrap(),
        "e.patterns:3:9: needs a library of version 1.2 or newer, and older than 2, found `1.1.9`"
    );
}

#[test]
fn a_machine_that_lacks_what_is_required_gets_no_proposals() {
    let narrow = Library {
        machine: vec![
            ("lanes".to_owned(), Literal::Int(2)),
            ("isa".to_owned(), Literal::Text("avx2".to_owned())),
        ],
        ..library()
    };
    let backend = load(FILE, narrow).unwrap();
    assert_eq!(
        backend.status().found,
        "not usable here: needs dev.lanes >= 4, found dev.lanes = 2"
    );
    let m = model();
    assert_eq!(backend.propose(&m.graph, m.node("r1"), &SETTING), Proposals::default());
}

#[test]
fn conversions_are_offered_where_their_condition_holds() {
    let backend = load(FILE, library()).unwrap();
    let last = |dtype| Format { dtype, layout: Layout::ChannelsLast { halo: 0 } };
    let (plain, to) = (Format::plain(DType::F32), last(DType::F32));
    let dims = [1, 3, 4, 5];
    let bound = backend.convert(&dims, &plain, &to).unwrap();
    let x = numbers(&dims);
    assert_eq!(
        run(&*bound.kernel, &[(x.clone(), plain.clone())], &[(dims.to_vec(), to.clone())]),
        [x]
    );
    assert!(backend.convert(&[1, 3, 4], &plain, &to).is_none());
    assert!(backend.convert(&dims, &to, &plain).is_none());
    assert!(backend.convert(&dims, &plain, &last(DType::F64)).is_none());
}

/// What the seed reads from outside may lie inside of what grows from it.
#[test]
fn rules_grow_over_what_their_seed_reads() {
    let file = "backend e {}
        rule up {
          seed: s@relu(x@_);
          grow: up #broadcast while region.nodes < 3;
          formats: { x: f32:plain; }
        }";
    let entries = vec!["up".to_owned()];
    let backend = load(file, Library { entries, ..Library::default() }).unwrap();
    let mut m = Model { graph: Graph::new("chain") };
    let x = m.graph.input("x", TensorType::fixed(DType::F32, &[2, 4]));
    let mut last = x;
    for name in ["a", "b", "c"] {
        last = m.add(name, Unary::Neg, &[Some(last)]);
    }
    let y = m.add("y", Unary::Relu, &[Some(last)]);
    m.graph.outputs = vec![y];
    let found = summary(&m.graph, &backend.propose(&m.graph, m.node("y"), &SETTING));
    let one = |nodes: &str| format!("up up in f32:plain out f32:plain of {nodes}");
    assert_eq!(found, ["y", "c y", "b c y"].map(one));
}

/// An update in place and a node that waits for others are no part of any region.
#[test]
fn nodes_with_other_duties_are_left_alone() {
    let file = "backend e {} pattern p { match: relu(neg(_)); }";
    let entries = vec!["p".to_owned()];
    let backend = load(file, Library { entries, ..Library::default() }).unwrap();
    for waits in [false, true] {
        let mut m = Model { graph: Graph::new("duties") };
        let x = m.graph.input("x", TensorType::fixed(DType::F32, &[2]));
        let (a, other) =
            (m.add("a", Unary::Neg, &[Some(x)]), m.add("other", Unary::Neg, &[Some(x)]));
        let y = m.add("y", Unary::Relu, &[Some(a)]);
        m.graph.outputs = vec![y, other];
        match waits {
            true => m.graph.add_control_edge(m.node("other"), m.node("a")),
            false => m.graph.add_alias(m.node("a"), 0, 0),
        }
        let proposals = backend.propose(&m.graph, m.node("y"), &SETTING);
        assert_eq!(proposals.candidates, []);
        let why = "needs nodes that neither write in place nor wait for others, found that of `a`";
        assert_eq!(proposals.declined[0].why, why);
    }
}

/// A leaf that the region computes is no operand of its kernel.
#[test]
fn leaves_come_from_outside() {
    let file = "backend e {} pattern p { match: add(relu(_), _); }";
    let entries = vec!["p".to_owned()];
    let backend = load(file, Library { entries, ..Library::default() }).unwrap();
    let mut m = Model { graph: Graph::new("twice") };
    let x = m.graph.input("x", TensorType::fixed(DType::F32, &[2]));
    let r = m.add("r", Unary::Relu, &[Some(x)]);
    let y = m.add("y", Binary::Add, &[Some(r), Some(r)]);
    m.graph.outputs = vec![y];
    let proposals = backend.propose(&m.graph, m.node("y"), &SETTING);
    assert_eq!(proposals.candidates, []);
    assert_eq!(
        proposals.declined[0].why,
        "needs `r` from outside, found that the region computes it"
    );
}

/// What a `let` asks for must hold where it is a part of the match, and not where it is passed by.
#[test]
fn conditions_of_parts_hold_where_the_parts_are() {
    let file = "backend e {}
        let even = e@neg(x@_) where e.dim[-1] % 2 == 0;
        let summed = s@add{even, r@var} where s.dims == e.dims;
        pattern even+act { match: relu(even?); entry: \"p\"; }
        pattern sum+act { match: relu(summed); entry: \"p\"; }
        exclude sum+act where r.rank < 2 because \"a row is too short\";";
    let entries = vec!["p".to_owned()];
    let backend = load(file, Library { entries, ..Library::default() }).unwrap();
    let found = |columns: i64, other: &[i64], is_const: bool| -> (Vec<String>, Vec<String>) {
        let mut m = Model { graph: Graph::new("parts") };
        let x = m.graph.input("x", TensorType::fixed(DType::F32, &[2, columns]));
        let r = match is_const {
            true => m.graph.constant("r", numbers(other)),
            false => m.graph.input("r", TensorType::fixed(DType::F32, other)),
        };
        let a = m.add("a", Unary::Neg, &[Some(x)]);
        let b = m.add("b", Unary::Relu, &[Some(a)]);
        let c = m.add("c", Unary::Neg, &[Some(x)]);
        let d = m.add("d", Binary::Add, &[Some(r), Some(c)]);
        let e = m.add("e", Unary::Relu, &[Some(d)]);
        m.graph.outputs = vec![b, e];
        let asked = ["b", "e"].map(|name| backend.propose(&m.graph, m.node(name), &SETTING));
        let candidates = asked.iter().flat_map(|p| &p.candidates);
        let candidates = candidates.map(|c| format!("{} {}", c.pattern, c.region.nodes.len()));
        let declined = asked.iter().flat_map(|p| &p.declined);
        let declined = declined.map(|d| format!("{}: {}", d.pattern, d.why));
        (candidates.collect(), declined.collect())
    };
    let all = ["even+act 2", "even+act 1", "even+act 1", "sum+act 3"].map(str::to_owned);
    assert_eq!(found(4, &[2, 4], false), (all.to_vec(), vec![]));
    // A constant is none of what the sum may have: nothing matches that could be refused.
    assert_eq!(found(4, &[2, 4], true), (all[..3].to_vec(), vec![]));
    let odd = "needs e.dim[-1] % 2 == 0, found e.dim[-1] = 3";
    assert_eq!(
        found(3, &[2, 3], false),
        (all[1..3].to_vec(), ["even+act", "sum+act"].map(|p| format!("{p}: {odd}")).to_vec())
    );
    let larger = "sum+act: needs s.dims == e.dims, found s.dims = [1, 2, 4], e.dims = [2, 4]";
    assert_eq!(found(4, &[1, 2, 4], false), (all[..3].to_vec(), vec![larger.to_owned()]));
    let row = "sum+act: is left out here: a row is too short";
    assert_eq!(found(4, &[4], false), (all[..3].to_vec(), vec![row.to_owned()]));
}

#[test]
fn graphs_are_drawn_that_every_pattern_takes() {
    let backend = load(FILE, library()).unwrap();
    let samples = backend.samples().unwrap();
    assert_eq!(samples.names(), ["conv_act", "product", "residual_norm", "chain"]);
    for (number, name) in samples.names().into_iter().enumerate() {
        let mut rng = Rng::new(7);
        let graphs = (0..4000).filter_map(|_| samples.draw(number, &mut rng));
        let takes = |graph: Graph| {
            let exit = graph.producer(graph.outputs[0]).unwrap();
            let proposed = backend.propose(&graph, exit, &SETTING).candidates;
            proposed.iter().any(|c| c.pattern == name)
        };
        assert!(graphs.map(takes).filter(|taken| *taken).count() >= 3, "{name}");
    }
}
