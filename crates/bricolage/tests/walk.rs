//! A thousand random shapes through an artefact: right answers, nothing measured, memory flat.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test may panic, and this one is a benchmark too

use bricolage::{Cx, DynamicSession, Goal, InputShape, Progress, artefact, optimize, pool};
use bricolage_backend::{Policy, Registry};
use bricolage_backends::{Native, Reference};
use bricolage_ir::{Error, Graph, ValueId, evaluate, ops, origin, solve_symbols, tolerances};
use bricolage_runtime::Cancel;
use bricolage_tensor::{DType, Datum, Dim, Rng, Shape, Tensor, TensorType};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

/// Runs in which caches fill and the allocator finds its size.
const WARM_UP: usize = 250;
/// All runs of a walk.
const RUNS: usize = 1000;
/// Bytes by which resident memory may grow with each run after the warm-up. A program that stayed would be
/// tens of thousands.
const SLOPE: f64 = 1024.0;

struct Random(Rng);

impl Random {
    fn tensor(&mut self, dims: &[i64], scale: f64) -> Tensor {
        Tensor::generate(DType::F32, dims, |_| scale * self.0.normal())
    }
}

fn product() -> ops::MatMul {
    ops::MatMul { transpose_lhs: false, transpose_rhs: false }
}

fn input(g: &mut Graph, shape: Vec<Dim>) -> ValueId {
    g.input("x", TensorType { dtype: DType::F32, shape: Shape(shape) })
}

/// One layer of a transformer over `[batch, length, 16]` with two heads.
fn encoder() -> Graph {
    let mut random = Random(Rng::new(11));
    let (batch, length) = (Dim::symbol("batch"), Dim::symbol("length"));
    let mut g = Graph::new("encoder");
    let x = input(&mut g, vec![batch.clone(), length.clone(), Dim::from(16)]);
    let mut dense = |g: &mut Graph, name: &str, x, [from, to]: [i64; 2]| {
        let w = g.constant(&format!("{name}.w"), random.tensor(&[from, to], 0.25));
        let b = g.constant(&format!("{name}.b"), random.tensor(&[to], 0.25));
        let y = g.add1(product(), &[x, w], origin(&format!("{name}/MatMul"))).unwrap();
        g.add1(ops::Binary::Add, &[y, b], origin(&format!("{name}/Add"))).unwrap()
    };
    let parts = ["q", "k", "v"].map(|name| {
        let y = dense(&mut g, name, x, [16, 16]);
        let to = Shape(vec![batch.clone(), length.clone(), Dim::from(2), Dim::from(8)]);
        let y = g.add1(ops::Reshape { to }, &[y], origin(&format!("{name}/apart"))).unwrap();
        let perm = if name == "k" { vec![0, 2, 3, 1] } else { vec![0, 2, 1, 3] };
        g.add1(ops::Transpose { perm }, &[y], origin(&format!("{name}/heads"))).unwrap()
    });
    let [q, k, v] = parts;
    let scores = g.add1(product(), &[q, k], origin("scores")).unwrap();
    let weights =
        g.add1(ops::Softmax { axis: 3, log: false }, &[scores], origin("softmax")).unwrap();
    let mixed = g.add1(product(), &[weights, v], origin("mixed")).unwrap();
    let rows = g.add1(ops::Transpose { perm: vec![0, 2, 1, 3] }, &[mixed], origin("rows")).unwrap();
    let to = Shape(vec![batch, length, Dim::from(16)]);
    let context = g.add1(ops::Reshape { to }, &[rows], origin("context")).unwrap();
    let sum = g.add1(ops::Binary::Add, &[context, x], origin("residual")).unwrap();
    let wide = dense(&mut g, "wide", sum, [16, 32]);
    let wide = g.add1(ops::Unary::Relu, &[wide], origin("relu")).unwrap();
    let narrow = dense(&mut g, "narrow", wide, [32, 16]);
    g.outputs = vec![g.add1(ops::Binary::Add, &[narrow, sum], origin("out")).unwrap()];
    g
}

/// Convolutions over `[1, 3, height, width]`, a box and two scores for every other pixel, and the boxes that
/// are left when those that overlap a better one are dropped.
fn detector() -> Graph {
    let mut random = Random(Rng::new(12));
    let (height, width) = (Dim::symbol("height"), Dim::symbol("width"));
    let mut g = Graph::new("detector");
    let x = input(&mut g, vec![Dim::from(1), Dim::from(3), height.clone(), width.clone()]);
    let w = g.constant("stem.w", random.tensor(&[8, 3, 3, 3], 0.3));
    let stem = ops::Conv { pads: vec![(1, 1); 2], strides: vec![2, 2], ..ops::Conv::plain(2) };
    let y = g.add1(stem, &[x, w], origin("stem")).unwrap();
    let y = g.add1(ops::Unary::Relu, &[y], origin("relu")).unwrap();
    let two = Dim::from(2);
    let cells = &height.ceil_div(&two) * &width.ceil_div(&two);
    let mut head = |name: &str, channels: i64| {
        let w = g.constant(&format!("{name}.w"), random.tensor(&[channels, 8, 1, 1], 0.5));
        let y = g.add1(ops::Conv::plain(2), &[y, w], origin(name)).unwrap();
        let to = Shape(vec![Dim::from(1), Dim::from(channels), cells.clone()]);
        g.add1(ops::Reshape { to }, &[y], origin(&format!("{name}/flat"))).unwrap()
    };
    let (boxes, scores) = (head("boxes", 4), head("scores", 2));
    let boxes = g.add1(ops::Transpose { perm: vec![0, 2, 1] }, &[boxes], origin("rows")).unwrap();
    let scores = g.add1(ops::Unary::Sigmoid, &[scores], origin("sigmoid")).unwrap();
    let most = g.constant("most", Tensor::of(&[], &[5i64]));
    let overlap = g.constant("overlap", Tensor::of(&[], &[0.3f32]));
    let least = g.constant("least", Tensor::of(&[], &[0.6f32]));
    let found = ops::NonMaxSuppression { centered: false, found: Dim::symbol("found") };
    let picked = g.add1(found, &[boxes, scores, most, overlap, least], origin("picked")).unwrap();
    let column = g.constant("column", Tensor::of(&[], &[2i64]));
    let at = g.add1(ops::Gather { axis: 1 }, &[picked, column], origin("at")).unwrap();
    let to = Shape(vec![cells, Dim::from(4)]);
    let flat = g.add1(ops::Reshape { to }, &[boxes], origin("flat")).unwrap();
    let kept = g.add1(ops::Gather { axis: 0 }, &[flat, at], origin("kept")).unwrap();
    let scale = g.constant("scale", Tensor::of(&[4], &[8f32, 8.0, 8.0, 8.0]));
    let kept = g.add1(ops::Binary::Mul, &[kept, scale], origin("scaled")).unwrap();
    g.outputs = vec![picked, kept];
    g
}

fn resident() -> f64 {
    let pages: f64 = fs::read_to_string("/proc/self/statm")
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap();
    4096.0 * pages
}

/// Growth by the step, by least squares.
fn slope(of: &[f64]) -> f64 {
    let n = of.len() as f64;
    let (x, y) = ((n - 1.0) / 2.0, of.iter().sum::<f64>() / n);
    let (mut cross, mut square) = (0.0, 0.0);
    for (i, value) in of.iter().enumerate() {
        cross += (i as f64 - x) * (value - y);
        square += (i as f64 - x).powi(2);
    }
    cross / square
}

/// How far the largest output of a run is from the reference, as a share of what rounding allows.
fn share(graph: &Graph, x: &Datum, found: &[(String, Datum)]) -> f64 {
    let data = std::slice::from_ref(x);
    let wanted = evaluate(graph, data).unwrap();
    let wanted: Vec<Option<&Tensor>> = wanted.iter().map(Datum::as_tensor).collect();
    let sizes = solve_symbols(graph, data).unwrap();
    let fixed = graph.bind(&|s| sizes.get(s).map(|&n| Dim::from(n))).unwrap();
    let allowed = tolerances(&fixed, data, &wanted, &|_| None, &|_| 0.0, 1).unwrap();
    let shares = wanted.iter().zip(found).zip(&allowed).map(|((wanted, (_, found)), allowed)| {
        Error::between(wanted.unwrap(), found.as_tensor().unwrap()).share_of(allowed)
    });
    shares.fold(0.0, |all: f64, s| if s.is_nan() { f64::INFINITY } else { all.max(s) })
}

struct Walk<'a> {
    graph: Graph,
    shapes: &'a [&'a str],
    dims: fn(&mut Rng) -> Vec<i64>,
}

fn optimised(folder: &Path, walk: &Walk<'_>) -> PathBuf {
    let model = folder.join(format!("{}.onnx", walk.graph.name));
    fs::write(&model, bricolage_onnx::export(&walk.graph).unwrap()).unwrap();
    let out = folder.join(format!("{}.bricolage", walk.graph.name));
    let cancel = Cancel::default();
    let shapes = walk.shapes.iter().map(|s| InputShape::parse(s).unwrap()).collect();
    let cx = Cx {
        registry: &registry(),
        cache: folder.join("cache"),
        worker: None,
        goal: Goal { policy: Policy::Strict, seed: 3, shapes, ..Goal::new(1) },
        rules: bricolage::RULES,
        progress: &|_: &Progress| {},
        cancel: &cancel,
    };
    let report = optimize(&cx, &model, &out, true).unwrap().report;
    assert!(report.measured > 0 && report.error_share <= 1.0);
    out
}

fn registry() -> Registry {
    Registry::new(vec![Arc::new(Native::default()), Arc::new(Reference)])
}

fn database(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let files = fs::read_dir(folder.join("cache")).unwrap().map(|e| e.unwrap().path());
    let mut all: Vec<_> =
        files.filter(|p| p.is_file()).map(|p| (p.clone(), fs::read(p).unwrap())).collect();
    all.sort();
    all
}

fn walk(folder: &Path, walk: &Walk<'_>) {
    let loaded = artefact::load(&optimised(folder, walk), &registry()).unwrap();
    loaded.self_test(pool(1).unwrap()).unwrap();
    let before = database(folder);
    let mut session = DynamicSession::open(&loaded, pool(1).unwrap()).unwrap();
    let (mut rng, mut sizes, mut ns) = (Rng::new(5), Vec::new(), 0);
    for step in 0..RUNS {
        let dims = (walk.dims)(&mut rng);
        let x = Datum::from(Tensor::generate(DType::F32, &dims, |_| rng.normal()));
        let start = Instant::now();
        let found = session.run(std::slice::from_ref(&x)).unwrap();
        ns += start.elapsed().as_nanos();
        let share = share(&walk.graph, &x, &found);
        assert!(share <= 1.0, "{} step {step}, dims {dims:?}: {share}", walk.graph.name);
        sizes.push(resident());
    }
    let grown = slope(&sizes[WARM_UP..]);
    let programs = session.classes();
    println!(
        "{}: {RUNS} runs of {:.2} ms, {programs} programs kept, arenas of {} bytes, constants of {}; \
         resident {:.1} MiB after {WARM_UP} runs, {:.1} MiB at the end, {grown:.0} bytes a run",
        walk.graph.name,
        ns as f64 / 1e6 / RUNS as f64,
        session.arena_bytes(),
        session.constant_bytes(),
        sizes[WARM_UP] / 1048576.0,
        sizes[RUNS - 1] / 1048576.0,
    );
    assert!(grown < SLOPE, "{}: {grown} bytes a run", walk.graph.name);
    assert!(database(folder) == before, "a run touched the database");
}

/// Both walks in one test: resident memory is that of the process.
#[test]
fn memory_is_flat_over_a_thousand_shapes() {
    let folder = std::env::temp_dir().join(format!("bricolage-walk-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    walk(
        &folder,
        &Walk {
            graph: encoder(),
            shapes: &["batch:1..4", "length:1..24"],
            dims: |rng| vec![1 + rng.below(4) as i64, 1 + rng.below(24) as i64, 16],
        },
    );
    walk(
        &folder,
        &Walk {
            graph: detector(),
            shapes: &["x:1x3x8..24x8..24"],
            dims: |rng| vec![1, 3, 8 + rng.below(17) as i64, 8 + rng.below(17) as i64],
        },
    );
    fs::remove_dir_all(&folder).unwrap();
}
