//! A program of this crate as a worker.
#![allow(clippy::unwrap_used)] // a test may panic

use bricolage::{WorkerCommand, worker::Worker};
use bricolage_ir::parse;
use bricolage_tensor::{Datum, Tensor};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

/// More elements than the text of a graph writes out.
const GRAPH: &str = r#"graph "sum"
input %x: f32[20]
constant %c: f32[20] = #0
%y = Binary Mul %x %c : f32[20] from "y"
output %y
"#;

#[test]
fn a_worker_computes_graphs_until_it_is_told_otherwise() {
    let program = env!("CARGO_BIN_EXE_conformance").into();
    let mut worker = Worker::new(WorkerCommand::new(program, vec!["worker".into()]), 1);
    let factors = Tensor::of(&[20], &[2f32; 20]);
    let graph = parse(GRAPH, &[factors]).unwrap();
    let x = Tensor::of(&[20], &[1.5f32; 20]);
    for _ in 0..2 {
        let computed = worker
            .compute(&graph, &[x.clone().into()], &["native", "reference"], PATIENCE)
            .unwrap();
        assert_eq!(computed.outputs, [Datum::from(Tensor::of(&[20], &[3f32; 20]))]);
        assert!(!computed.backends.is_empty());
    }
    let none = worker.compute(&graph, &[x.into()], &["nobody"], PATIENCE);
    assert!(none.unwrap_err().contains("nobody"));
}
