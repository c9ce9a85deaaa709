//! Times the reference evaluation on typical shapes, best of interleaved rounds. Arguments select
//! rows by part of name.
#![allow(clippy::print_stdout)] // printing is what this program is for

use bricolage_ir::{Fact, Inputs, Op, ops::*};
use bricolage_tensor::{DType, Datum, Tensor};
use std::time::{Duration, Instant};

/// An op with operands of these dims.
type Row = (&'static str, Op, &'static [&'static [i64]]);

fn rows() -> Vec<Row> {
    let conv = |stride, pad, groups| -> Op {
        let (strides, pads) = (vec![stride; 2], vec![(pad, pad); 2]);
        Conv { strides, pads, groups, ..Conv::plain(2) }.into()
    };
    let transpose = ConvTranspose {
        strides: vec![2; 2],
        dilations: vec![1; 2],
        pads: vec![(0, 0); 2],
        output_padding: vec![0; 2],
        groups: 1,
    };
    let matmul = |transpose_rhs| Op::from(MatMul { transpose_lhs: false, transpose_rhs });
    vec![
        ("conv 7x7/2 3-64 at 224", conv(2, 3, 1), &[&[1, 3, 224, 224], &[64, 3, 7, 7]]),
        ("conv 3x3 64-64 at 128", conv(1, 1, 1), &[&[1, 64, 128, 128], &[64, 64, 3, 3]]),
        ("conv 3x3 64-64 at 56", conv(1, 1, 1), &[&[1, 64, 56, 56], &[64, 64, 3, 3]]),
        ("conv 3x3/2 128-128 at 56", conv(2, 1, 1), &[&[1, 128, 56, 56], &[128, 128, 3, 3]]),
        ("conv 3x3 256-256 at 14", conv(1, 1, 1), &[&[1, 256, 14, 14], &[256, 256, 3, 3]]),
        ("conv 3x3 512-512 at 14", conv(1, 1, 1), &[&[1, 512, 14, 14], &[512, 512, 3, 3]]),
        ("conv 1x1 64-256 at 56", conv(1, 0, 1), &[&[1, 64, 56, 56], &[256, 64, 1, 1]]),
        ("conv 1x1 2048-512 at 7", conv(1, 0, 1), &[&[1, 2048, 7, 7], &[512, 2048, 1, 1]]),
        ("conv 1x1 480-20 at 1", conv(1, 0, 1), &[&[1, 480, 1, 1], &[20, 480, 1, 1]]),
        ("grouped 3x3 32x4-4 at 56", conv(1, 1, 32), &[&[1, 128, 56, 56], &[128, 4, 3, 3]]),
        ("depthwise 3x3 96 at 112", conv(1, 1, 96), &[&[1, 96, 112, 112], &[96, 1, 3, 3]]),
        ("depthwise 3x3/2 96 at 112", conv(2, 1, 96), &[&[1, 96, 112, 112], &[96, 1, 3, 3]]),
        ("depthwise 5x5 480 at 14", conv(1, 2, 480), &[&[1, 480, 14, 14], &[480, 1, 5, 5]]),
        ("transpose 2x2/2 128-64 at 64", transpose.into(), &[&[1, 128, 64, 64], &[128, 64, 2, 2]]),
        ("matmul 128x768x3072", matmul(false), &[&[128, 768], &[768, 3072]]),
        ("matmul 128x768x3072^T", matmul(true), &[&[128, 768], &[3072, 768]]),
        ("matmul 12x128x64x128", matmul(false), &[&[12, 128, 64], &[12, 64, 128]]),
        ("matmul 1x2048x1000", matmul(false), &[&[1, 2048], &[2048, 1000]]),
        ("matmul 1x4096x4096^T", matmul(true), &[&[1, 4096], &[4096, 4096]]),
    ]
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let mut candidates: Vec<(Row, Vec<Datum>, Duration)> = Vec::new();
    for row in rows() {
        if wanted.is_empty() || wanted.iter().any(|w| row.0.contains(w.as_str())) {
            let wave = |d: &&[i64]| {
                Datum::from(Tensor::generate(DType::F32, d, |i| (i as f64 * 0.37).sin()))
            };
            let data = row.2.iter().map(wave).collect();
            candidates.push((row, data, Duration::MAX));
        }
    }
    for _ in 0..5 {
        for ((_, op, _), data, best) in &mut candidates {
            let refs: Vec<Option<&Datum>> = data.iter().map(Some).collect();
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(10) {
                let begin = Instant::now();
                op.eval(&Inputs(&refs)).expect("the operands above fit");
                *best = (*best).min(begin.elapsed());
            }
        }
    }
    println!("{:30}{:>8}{:>10}{:>8}", "op", "M MAC", "ms", "G MAC/s");
    for ((name, op, _), data, best) in &candidates {
        let refs: Vec<Option<&Datum>> = data.iter().map(Some).collect();
        let facts = Inputs(&refs).facts();
        let facts: Vec<Option<&Fact>> = facts.iter().map(Option::as_ref).collect();
        let outputs = op.infer(&facts).expect("the shapes above fit");
        let macs = op.work(&facts, &outputs).expect("the shapes above are fixed").macs as f64;
        let (ms, rate) = (best.as_secs_f64() * 1e3, macs / best.as_nanos() as f64);
        println!("{name:30}{:8.1}{ms:10.2}{rate:8.2}", macs / 1e6);
    }
}
