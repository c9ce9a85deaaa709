//! What is timed.

use crate::harness::{F32, blocked, last};
use bricolage_kernels::{ConvAlgorithm, ConvSpec, MatMulSpec, Post, Spec, Unary};
use bricolage_tensor::Format;

pub type Operands = Vec<(Vec<i64>, Format)>;

pub struct Row {
    pub name: String,
    /// Floating-point operations, or 0 when a rate means nothing.
    pub flops: f64,
    pub spec: Spec,
    pub inputs: Operands,
    pub raw: Vec<Vec<i64>>,
    pub outputs: Operands,
}

pub fn all() -> Vec<Row> {
    let mut rows = Vec::new();
    matmuls(&mut rows);
    convs(&mut rows);
    rows
}

fn matmuls(rows: &mut Vec<Row>) {
    for (m, k, n) in [
        (64, 64, 64),
        (256, 256, 256),
        (1024, 1024, 1024),
        (128, 768, 768),
        (128, 768, 3072),
        (128, 3072, 768),
        (1, 768, 3072),
        (4, 768, 3072),
    ] {
        for constant_b in [true, false] {
            let spec = MatMulSpec { constant_b, ..MatMulSpec::new(m, k, n) };
            let mut inputs = vec![(vec![m, k], F32)];
            if !constant_b {
                inputs.push((vec![k, n], F32));
            }
            rows.push(Row {
                name: format!(
                    "matmul {m}x{k}x{n} {}",
                    if constant_b { "const" } else { "dynamic" }
                ),
                flops: 2.0 * (m * k * n) as f64,
                spec: Spec::MatMul(spec),
                inputs,
                raw: if constant_b { vec![vec![k, n]] } else { vec![] },
                outputs: vec![(vec![m, n], F32)],
            });
        }
    }
    for (name, posts) in
        [("relu", vec![Post::Unary(Unary::Relu)]), ("gelu", vec![Post::Unary(Unary::Gelu)])]
    {
        rows.push(Row {
            name: format!("matmul 128x768x3072 bias+{name}"),
            flops: 2.0 * (128 * 768 * 3072) as f64,
            spec: Spec::MatMul(MatMulSpec { bias: true, posts, ..MatMulSpec::new(128, 768, 3072) }),
            inputs: vec![(vec![128, 768], F32)],
            raw: vec![vec![768, 3072], vec![3072]],
            outputs: vec![(vec![128, 3072], F32)],
        });
    }
    let spec = MatMulSpec {
        a_batch: vec![12],
        b_batch: vec![12],
        constant_b: false,
        ..MatMulSpec::new(128, 64, 128)
    };
    rows.push(Row {
        name: "matmul 12x128x64x128 dynamic".into(),
        flops: 2.0 * (12 * 128 * 64 * 128) as f64,
        spec: Spec::MatMul(spec),
        inputs: vec![(vec![12, 128, 64], F32), (vec![12, 64, 128], F32)],
        raw: vec![],
        outputs: vec![(vec![12, 128, 128], F32)],
    });
}

fn convs(rows: &mut Vec<Row>) {
    // Channels in and out, image side, window, stride, groups.
    for (i, o, hw, k, s, g) in [
        (64, 64, 56, 3, 1, 1),
        (128, 128, 28, 3, 1, 1),
        (256, 256, 14, 3, 1, 1),
        (512, 512, 7, 3, 1, 1),
        (64, 64, 224, 3, 1, 1),
        (128, 256, 28, 3, 2, 1),
        (256, 64, 56, 1, 1, 1),
        (64, 256, 56, 1, 1, 1),
        (2048, 512, 7, 1, 1, 1),
        (1024, 256, 14, 1, 1, 1),
        (24, 144, 56, 1, 1, 1),
        (144, 24, 56, 1, 1, 1),
        (3, 64, 224, 7, 2, 1),
        (3, 32, 224, 3, 2, 1),
        (144, 144, 56, 3, 1, 144),
        (240, 240, 28, 3, 2, 240),
        (240, 240, 28, 5, 1, 240),
    ] {
        let stem = i == 3;
        for (layout, format) in [("c8", blocked as fn(u8) -> Format), ("nhwc", last)] {
            for halo in [1u8, 0] {
                if halo > 0 && (k == 1 || stem) {
                    continue;
                }
                let halo = if halo > 0 { (k / 2) as u8 } else { 0 };
                let out = format(0);
                let dims = vec![1, i, hw, hw];
                let spec = ConvSpec {
                    input_format: if stem { F32 } else { format(halo) },
                    bias: true,
                    posts: vec![Post::Unary(Unary::Relu)],
                    ..ConvSpec::new(&dims, out.clone(), o, k, s, k / 2, g)
                        .expect("the rows are convolutions that exist")
                };
                for algorithm in spec.algorithms().expect("as above") {
                    if g > 1 && algorithm == ConvAlgorithm::Direct || stem && halo > 0 {
                        continue;
                    }
                    let spec = ConvSpec { algorithm, ..spec.clone() };
                    let output = spec.output_dims().expect("as above");
                    let area = (output[2] * output[3]) as f64;
                    rows.push(Row {
                        name: format!(
                            "conv{k}s{s} {i}-{o} {hw} {layout}+{halo} {}",
                            algorithm.name()
                        ),
                        flops: 2.0 * area * (o * i / g * k * k) as f64,
                        inputs: vec![(dims.clone(), spec.input_format.clone())],
                        raw: vec![spec.weight_dims(), vec![o]],
                        outputs: vec![(output, out.clone())],
                        spec: Spec::Conv(spec),
                    });
                }
            }
        }
    }
}
