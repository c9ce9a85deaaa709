//! Single ops: the best native kernel against ONNX Runtime's own session, pair by pair.
//!
//! `cargo bench -p bricolage-cli --bench single_ops -- [THREADS ..] [PART OF A NAME ..]` with the `onnxruntime` wheel in
//! the active Python environment. The peer runs in a process of its own, with its own spinning
//! threads, and is stopped while the native kernel runs. Native operands lie in the format in which
//! its kernel is fastest; both sides read the same constants again and again.
#![allow(clippy::print_stdout, clippy::print_stderr)] // a benchmark prints
#![allow(clippy::unwrap_used)] // so that a broken benchmark stops

use bricolage::worker::{Alone, Benches, OpenPlan, RemotePlan, WorkerCommand};
use bricolage_backend::{Policy, Registry, Setting};
use bricolage_backends::{Native, Reference};
use bricolage_ir::{Graph, Op, ops, origin};
use bricolage_measure::{Database, Machine, Pairing, pair};
use bricolage_placement::{Observed, Price, Pricing, Wishes, gather, price};
use bricolage_runtime::Cancel;
use bricolage_tensor::{DType, Datum, Rng, Tensor, TensorType};
use std::{path::PathBuf, sync::Arc, time::Duration};

/// One op on constants of these dims, and the ratio to the peer that it should not exceed.
struct Row {
    name: &'static str,
    op: Op,
    inputs: &'static [&'static [i64]],
    constants: &'static [&'static [i64]],
    limit: f64,
}

fn conv(stride: i64, pad: i64, groups: i64) -> Op {
    let pads = vec![(pad, pad); 2];
    ops::Conv { strides: vec![stride; 2], pads, groups, ..ops::Conv::plain(2) }.into()
}

fn rows() -> Vec<Row> {
    let row = |name, op: Op, input, constant, limit| Row {
        name,
        op,
        inputs: input,
        constants: constant,
        limit,
    };
    let product = || Op::from(ops::MatMul::default());
    vec![
        row("matmul 256x256x256", product(), &[&[256, 256]], &[&[256, 256]], 1.1),
        row("matmul 1024x1024x1024", product(), &[&[1024, 1024]], &[&[1024, 1024]], 1.1),
        row("matmul 128x768x768", product(), &[&[128, 768]], &[&[768, 768]], 1.1),
        row("matmul 128x768x3072", product(), &[&[128, 768]], &[&[768, 3072]], 1.1),
        row("matmul 128x3072x768", product(), &[&[128, 3072]], &[&[3072, 768]], 1.1),
        row("matrix-vector 1x768x3072", product(), &[&[1, 768]], &[&[768, 3072]], 0.8),
        row(
            "conv 3x3 64-64 at 56",
            conv(1, 1, 1),
            &[&[1, 64, 56, 56]],
            &[&[64, 64, 3, 3], &[64]],
            0.7,
        ),
        row(
            "conv 3x3 256-256 at 14",
            conv(1, 1, 1),
            &[&[1, 256, 14, 14]],
            &[&[256, 256, 3, 3], &[256]],
            0.7,
        ),
        row(
            "conv 3x3 512-512 at 7",
            conv(1, 1, 1),
            &[&[1, 512, 7, 7]],
            &[&[512, 512, 3, 3], &[512]],
            1.1,
        ),
        row(
            "conv 1x1 256-64 at 56",
            conv(1, 0, 1),
            &[&[1, 256, 56, 56]],
            &[&[64, 256, 1, 1], &[64]],
            1.1,
        ),
        row(
            "conv 1x1 64-256 at 56",
            conv(1, 0, 1),
            &[&[1, 64, 56, 56]],
            &[&[256, 64, 1, 1], &[256]],
            1.1,
        ),
        row(
            "conv 1x1 2048-512 at 7",
            conv(1, 0, 1),
            &[&[1, 2048, 7, 7]],
            &[&[512, 2048, 1, 1], &[512]],
            1.1,
        ),
        row(
            "conv 7x7/2 3-64 at 224",
            conv(2, 3, 1),
            &[&[1, 3, 224, 224]],
            &[&[64, 3, 7, 7], &[64]],
            1.1,
        ),
        row(
            "depthwise 3x3 144 at 56",
            conv(1, 1, 144),
            &[&[1, 144, 56, 56]],
            &[&[144, 1, 3, 3], &[144]],
            0.8,
        ),
        row(
            "depthwise 3x3/2 240 at 28",
            conv(2, 1, 240),
            &[&[1, 240, 28, 28]],
            &[&[240, 1, 3, 3], &[240]],
            0.8,
        ),
    ]
}

fn graph(row: &Row) -> Graph {
    let mut rng = Rng::new(1);
    let mut g = Graph::new(row.name);
    let mut operands = Vec::new();
    for (i, dims) in row.inputs.iter().enumerate() {
        operands.push(g.input(&format!("x{i}"), TensorType::fixed(DType::F32, dims)));
    }
    for (i, dims) in row.constants.iter().enumerate() {
        let content = Tensor::generate(DType::F32, dims, |_| rng.normal());
        operands.push(g.constant(&format!("w{i}"), content));
    }
    let y = g.add1(row.op.clone(), &operands, origin("op")).unwrap();
    g.outputs = vec![y];
    g
}

fn main() {
    let available = std::thread::available_parallelism().map_or(1, |n| n.get());
    let (threads, words): (Vec<_>, Vec<_>) = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with('-'))
        .partition(|a| a.parse().is_ok_and(|n: usize| n <= available));
    let threads: Vec<usize> = threads.iter().filter_map(|a| a.parse().ok()).collect();
    let chosen =
        |row: &Row| words.is_empty() || words.iter().any(|w| row.name.contains(w.as_str()));
    let program = PathBuf::from(env!("CARGO_BIN_EXE_bricolage"));
    let command = WorkerCommand::new(program, vec!["worker".into()]);
    let folder = std::env::temp_dir().join(format!("bricolage-single-ops-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    println!("| op | threads | native kernel | native us | peer us | ratio (95 %) | at most |");
    println!("|---|---|---|---|---|---|---|");
    for threads in if threads.is_empty() { vec![1, 2] } else { threads } {
        for row in rows().iter().filter(|row| chosen(row)) {
            println!("{}", line(row, threads, &command, &folder));
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

fn line(row: &Row, threads: usize, command: &WorkerCommand, folder: &std::path::Path) -> String {
    let graph = graph(row);
    let tensors = bricolage::inputs::sample_inputs(&graph, 1).unwrap();
    let data: Vec<Datum> = tensors.iter().cloned().map(Datum::from).collect();
    let registry = Registry::new(vec![Arc::new(Native::default()), Arc::new(Reference)]);
    let setting = Setting { threads, policy: Policy::Default };
    let pool = bricolage::pool(threads).unwrap();
    let bench = Benches::new(&registry, pool, None, folder.to_owned());
    let machine = Machine::read();
    let pricing = Pricing {
        graph: &graph,
        setting,
        wishes: &Wishes::default(),
        database: &Database::in_memory(&machine).unwrap(),
        contents: "",
        bench: &bench,
        observed: &Observed::new(&graph, &data),
        // The constants are not rotated, for the peer's are not.
        last_level_cache: 0,
        first_deadline: None,
        deadline: None,
        cover_deadline: None,
        cancel: &Cancel::default(),
        progress: &|_, _, _| {},
    };
    let offers = gather(&graph, &registry, &setting).unwrap().all;
    let (prices, _) = price(&pricing, &offers).unwrap();
    let median = |i: &usize| match &prices[*i] {
        Price::Measured(m) => m.median_ns,
        _ => f64::INFINITY,
    };
    let best = (0..offers.len()).min_by(|a, b| median(a).total_cmp(&median(b))).unwrap();
    let mut native = pricing.open(&offers[best]).unwrap().trial;

    let path = folder.join("op.onnx");
    std::fs::write(&path, bricolage_onnx::export(&graph).unwrap()).unwrap();
    let inputs: Vec<(String, Tensor)> =
        graph.inputs.iter().map(|&v| graph.value(v).name.to_string()).zip(tensors).collect();
    let outputs = [graph.value(graph.outputs[0]).name.to_string()];
    let opened = RemotePlan::open_peer(command, threads, "onnxruntime", &path, &inputs, &outputs);
    let mut peer = match opened {
        Ok(peer) => peer,
        Err(error) => {
            return format!("| {} | {threads} | not compared: {error} | | | | |", row.name);
        }
    };
    let pairing = Pairing {
        limit: Duration::from_secs(8),
        max_pairs: 301,
        width: 0.01,
        sample: Duration::from_millis(5),
        ..Pairing::default()
    };
    let peer: &mut dyn OpenPlan = &mut peer;
    let mut times = (Vec::new(), Vec::new());
    let ratio = {
        let mut native = Kept(&mut *native, &mut times.0);
        let mut alone = Alone::new(peer);
        let mut peer = Kept(&mut alone, &mut times.1);
        pair(&mut native, &mut peer, &pairing, &Cancel::default()).unwrap()
    };
    format!(
        "| {} | {threads} | {} | {:.0} | {:.0} | {:.3} ({:.3} to {:.3}) | {} |",
        row.name,
        offers[best].candidate.variant,
        middle(times.0),
        middle(times.1),
        ratio.median,
        ratio.ci95.0,
        ratio.ci95.1,
        row.limit
    )
}

/// Runs once before each sample, and keeps the microseconds of each run.
struct Kept<'a, S: ?Sized>(&'a mut S, &'a mut Vec<f64>);

impl<S: bricolage_measure::Sample + ?Sized> bricolage_measure::Sample for Kept<'_, S> {
    fn sample(&mut self, iterations: u32) -> Result<Duration, bricolage_measure::SampleError> {
        // The other side ran last, and the threads of this one sleep.
        self.0.sample(iterations)?;
        let time = self.0.sample(iterations)?;
        self.1.push(time.as_secs_f64() * 1e6 / f64::from(iterations));
        Ok(time)
    }
}

fn middle(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}
