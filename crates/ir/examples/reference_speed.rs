//! Prints how many multiply-adds a second the reference evaluation reaches on typical shapes.
#![allow(clippy::print_stdout)] // printing is what this program is for

use bricolage_ir::{Fact, Inputs, Op, ops::*};
use bricolage_tensor::{DType, Datum, Tensor};
use std::time::Instant;

fn main() {
    let conv = |stride, pad| -> Op {
        Conv { strides: vec![stride; 2], pads: vec![(pad, pad); 2], ..Conv::plain(2) }.into()
    };
    let depthwise = Conv { pads: vec![(1, 1); 2], groups: 96, ..Conv::plain(2) };
    let matmul = || Op::from(MatMul::default());
    let cases: [(&str, Op, &[&[i64]]); 9] = [
        ("conv 7x7/2 3-64 at 224", conv(2, 3), &[&[1, 3, 224, 224], &[64, 3, 7, 7]]),
        ("conv 3x3 64-64 at 56", conv(1, 1), &[&[1, 64, 56, 56], &[64, 64, 3, 3]]),
        ("conv 1x1 64-256 at 56", conv(1, 0), &[&[1, 64, 56, 56], &[256, 64, 1, 1]]),
        ("conv 3x3 256-256 at 14", conv(1, 1), &[&[1, 256, 14, 14], &[256, 256, 3, 3]]),
        ("conv 1x1 2048-512 at 7", conv(1, 0), &[&[1, 2048, 7, 7], &[512, 2048, 1, 1]]),
        ("depthwise 3x3 96 at 112", depthwise.into(), &[&[1, 96, 112, 112], &[96, 1, 3, 3]]),
        ("matmul 128x768x3072", matmul(), &[&[128, 768], &[768, 3072]]),
        ("matmul 12x128x64x128", matmul(), &[&[12, 128, 64], &[12, 64, 128]]),
        ("matmul 1x2048x1000", matmul(), &[&[1, 2048], &[2048, 1000]]),
    ];
    for (name, op, dims) in cases {
        let data: Vec<Datum> = dims
            .iter()
            .map(|d| Tensor::generate(DType::F32, d, |i| (i as f64 * 0.37).sin()).into())
            .collect();
        let refs: Vec<Option<&Datum>> = data.iter().map(Some).collect();
        let facts = Inputs(&refs).facts();
        let facts: Vec<Option<&Fact>> = facts.iter().map(Option::as_ref).collect();
        let outputs = op.infer(&facts).expect("the shapes above fit");
        let macs = op.work(&facts, &outputs).expect("the shapes above are fixed").macs;
        let mut best = f64::INFINITY;
        for _ in 0..5 {
            let start = Instant::now();
            op.eval(&Inputs(&refs)).expect("the operands above fit");
            best = best.min(start.elapsed().as_secs_f64());
        }
        let rate = macs as f64 / best / 1e9;
        println!(
            "{name:26} {:9.1} M multiply-adds, {:7.2} ms, {rate:.2} G/s",
            macs as f64 / 1e6,
            best * 1e3
        );
    }
}
