//! Recurrent layers of every kind on every engine, and that our kernels take them.
#![allow(clippy::unwrap_used)] // a test may panic

use bricolage_backend::{Backend, Policy, Setting};
use bricolage_backends::Native;
use bricolage_ir::{
    Graph, Op, Real, ValueId,
    ops::{Activation, Cell, Direction, Recurrent},
    origin,
};
use bricolage_tensor::{DType, Rng, Tensor, TensorType};
use bricolage_testkit::{Case, Workers, check, engines};

/// A layer that `rng` decides, with two or three inputs.
fn draw(rng: &mut Rng) -> Case {
    let cell = [
        Cell::Simple,
        Cell::Gru { linear_before_reset: false },
        Cell::Gru { linear_before_reset: true },
        Cell::Lstm { input_forget: false },
        Cell::Lstm { input_forget: true },
    ][rng.below(5)];
    let direction = [Direction::Forward, Direction::Reverse, Direction::Both][rng.below(3)];
    let (steps, batch) = (1 + rng.below(5) as i64, 1 + rng.below(5) as i64);
    let (width, hidden) = (1 + rng.below(20) as i64, 1 + rng.below(40) as i64);
    let (d, rows) = (direction.count(), cell.gates() * hidden);
    let lstm = matches!(cell, Cell::Lstm { .. });

    let mut g = Graph::new("layer");
    let mut inputs = Vec::new();
    let mut operands: Vec<Option<ValueId>> = Vec::new();
    let float = |rng: &mut Rng, dims: &[i64], spread: f64| {
        Tensor::generate(DType::F32, dims, |_| spread * rng.normal().clamp(-3.0, 3.0))
    };
    let mut input = |g: &mut Graph, name: &str, tensor: Tensor| {
        let value = g.input(name, TensorType::fixed(tensor.dtype(), tensor.dims()));
        inputs.push(tensor);
        value
    };
    let x = float(rng, &[steps, batch, width], 1.0);
    operands.push(Some(input(&mut g, "x", x)));
    for (name, dims, fan) in [("w", [d, rows, width], width), ("r", [d, rows, hidden], hidden)] {
        let tensor = float(rng, &dims, 1.0 / (fan as f64).sqrt());
        operands.push(Some(g.constant(name, tensor)));
    }
    let bias = float(rng, &[d, 2 * rows], 0.5);
    operands.push((rng.below(3) > 0).then(|| g.constant("b", bias)));
    let lengths: Vec<i32> = (0..batch).map(|_| rng.below(steps as usize + 1) as i32).collect();
    let lengths = Tensor::of(&[batch], &lengths);
    operands.push(match rng.below(3) {
        0 => None,
        1 => Some(g.constant("lengths", lengths)),
        _ => Some(input(&mut g, "lengths", lengths)),
    });
    for name in ["h", "c"].into_iter().take(1 + usize::from(lstm)) {
        let tensor = float(rng, &[d, batch, hidden], 0.5);
        operands.push(match rng.below(3) {
            0 => None,
            1 => Some(g.constant(name, tensor)),
            _ => Some(input(&mut g, name, tensor)),
        });
    }
    if lstm && rng.below(2) == 0 {
        let tensor = float(rng, &[d, 3 * hidden], 0.5);
        operands.push(Some(g.constant("p", tensor)));
    }
    let real = |v: f32| Real::from(v);
    let all = [
        Activation::Sigmoid,
        Activation::Tanh,
        Activation::Relu,
        Activation::Softsign,
        Activation::Softplus,
        Activation::Affine { alpha: real(0.5), beta: real(0.25) },
        Activation::ScaledTanh { alpha: real(0.75), beta: real(0.5) },
        Activation::HardSigmoid { alpha: real(0.2), beta: real(0.5) },
        Activation::LeakyRelu { alpha: real(0.01) },
        Activation::Elu { alpha: real(1.0) },
    ];
    let once = match cell {
        Cell::Simple => vec![Activation::Tanh],
        Cell::Gru { .. } => vec![Activation::Sigmoid, Activation::Tanh],
        Cell::Lstm { .. } => vec![Activation::Sigmoid, Activation::Tanh, Activation::Tanh],
    };
    let usual = rng.below(2) == 0;
    let activations = once.repeat(d as usize);
    let activations =
        activations.into_iter().map(|f| if usual { f } else { all[rng.below(all.len())] });
    let op = Recurrent {
        cell,
        direction,
        activations: activations.collect(),
        clip: (rng.below(4) == 0).then(|| real(0.75)),
    };
    let outputs = g.add(op, &operands, origin("layer")).unwrap();
    // Not all results are always wanted.
    let wanted = 1 + rng.below((1 << outputs.len()) - 1);
    g.outputs =
        outputs.into_iter().enumerate().filter(|o| wanted >> o.0 & 1 == 1).map(|o| o.1).collect();
    Case { graph: g, inputs }
}

#[test]
fn our_kernels_compute_every_kind_of_layer() {
    let mut rng = Rng::new(23);
    let (all, _) = engines(&|_| None, &Workers::of(env!("CARGO_BIN_EXE_conformance").into()));
    for number in 0..120 {
        let case = draw(&mut rng);
        let g = &case.graph;
        let is_layer = |n: &bricolage_ir::NodeId| matches!(g.node(*n).op, Op::Recurrent(_));
        let node = g.nodes().find(is_layer).unwrap();
        let setting = Setting { threads: 1, policy: Policy::Default };
        let proposals = Native::default().propose(g, node, &setting);
        let why: Vec<String> = proposals.declined.iter().map(|d| d.why.clone()).collect();
        assert_eq!(proposals.candidates.len(), 1, "layer {number}: {why:?}");
        // Foreign ones that the system has take what they like.
        for engine in all.iter().filter(|e| e.least_share() >= 0.5) {
            let result = check(&**engine, &case);
            let text = || bricolage_ir::print(g).0;
            assert!(result.is_ok(), "layer {number}, {}: {result:?}\n{}", engine.name(), text());
        }
    }
}
