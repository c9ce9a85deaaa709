//! What is timed.

use crate::harness::{F32, blocked, last};
use bricolage_kernels::{
    AttentionSpec, Binary, ConvAlgorithm, ConvSpec, ConvertSpec, CopySpec, Instruction, Lengths,
    MatMulSpec, NormSpec, PointwiseOperand, PointwiseSpec, PoolOp, PoolSpec, Post, RecurrentCell,
    RecurrentSpec, ReduceOp, ReduceSpec, SoftmaxSpec, Spec, Start, Unary,
};
use bricolage_tensor::{DType, Format};

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
    others(&mut rows);
    recurrent(&mut rows);
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

fn others(rows: &mut Vec<Row>) {
    let mut add = |name: &str,
                   spec: Spec,
                   inputs: Operands,
                   raw: Vec<Vec<i64>>,
                   output: (Vec<i64>, Format)| {
        let elements: i64 = output.0.iter().product();
        let flops = match &spec {
            Spec::Attention(s) => (4 * s.heads * s.queries * s.keys * s.depth) as f64,
            _ => elements as f64,
        };
        rows.push(Row { name: name.into(), flops, spec, inputs, raw, outputs: vec![output] });
    };
    let dims = vec![12, 128, 128];
    let spec = SoftmaxSpec { dims: dims.clone(), axis: 2, log: false };
    add("softmax 12x128x128", Spec::Softmax(spec), vec![(dims.clone(), F32)], vec![], (dims, F32));
    let dims = vec![128, 768];
    for residual in [false, true] {
        let spec = NormSpec {
            dims: dims.clone(),
            axis: 1,
            epsilon: 1e-12,
            rms: false,
            scale: true,
            bias: true,
            residual,
            keep_sum: false,
        };
        let inputs = vec![(dims.clone(), F32); 1 + usize::from(residual)];
        let name = if residual { "add + layer norm 128x768" } else { "layer norm 128x768" };
        add(name, Spec::Norm(spec), inputs, vec![vec![768]; 2], (dims.clone(), F32));
    }
    for (name, dims, format, op) in [
        ("gelu 128x3072", vec![128, 3072], F32, Unary::Gelu),
        ("tanh 128x3072", vec![128, 3072], F32, Unary::Tanh),
        ("silu 128x3072", vec![128, 3072], F32, Unary::Swish { alpha: 1.0 }),
        ("relu 1x256x56x56", vec![1, 256, 56, 56], F32, Unary::Relu),
        ("relu 1x256x56x56 c8+1", vec![1, 256, 56, 56], blocked(1), Unary::Relu),
        ("tiny relu 16", vec![16], F32, Unary::Relu),
    ] {
        let spec = PointwiseSpec {
            dims: dims.clone(),
            format: format.clone(),
            operands: vec![PointwiseOperand { dims: dims.clone(), format: format.clone() }],
            constants: 0,
            body: vec![Instruction::Operand(0), Instruction::Unary(op, 0)],
            outputs: vec![(1, DType::F32)],
        };
        let operand = (dims, format);
        add(name, Spec::Pointwise(spec), vec![operand.clone()], vec![], operand);
    }
    for (name, other) in [
        ("add 1x256x56x56", vec![1, 256, 56, 56]),
        ("add per channel 1x256x56x56", vec![256, 1, 1]),
    ] {
        let dims = vec![1, 256, 56, 56];
        let operand = |dims: &[i64]| PointwiseOperand { dims: dims.to_vec(), format: F32 };
        let spec = PointwiseSpec {
            dims: dims.clone(),
            format: F32,
            operands: vec![operand(&dims), operand(&other)],
            constants: 0,
            body: vec![
                Instruction::Operand(0),
                Instruction::Operand(1),
                Instruction::Binary(Binary::Add, 0, 1),
            ],
            outputs: vec![(2, DType::F32)],
        };
        add(
            name,
            Spec::Pointwise(spec),
            vec![(dims.clone(), F32), (other, F32)],
            vec![],
            (dims, F32),
        );
    }
    for (name, format) in [("c8", blocked(0)), ("nhwc", last(0)), ("plain", F32)] {
        let spec = PoolSpec {
            input: vec![1, 64, 112, 112],
            input_format: format.clone(),
            output_format: format.clone(),
            op: PoolOp::Max,
            kernel: vec![3, 3],
            strides: vec![2, 2],
            dilations: vec![1, 1],
            pads: vec![1; 4],
            ceil: false,
        };
        let input = (spec.input.clone(), format.clone());
        add(
            &format!("max pool 3x3s2 64 112 {name}"),
            Spec::Pool(spec),
            vec![input],
            vec![],
            (vec![1, 64, 56, 56], format.clone()),
        );
        let spec = PoolSpec {
            input: vec![1, 2048, 7, 7],
            input_format: format.clone(),
            output_format: F32,
            op: PoolOp::Average { count_pads: false },
            kernel: vec![7, 7],
            strides: vec![1, 1],
            dilations: vec![1, 1],
            pads: vec![0; 4],
            ceil: false,
        };
        let input = (spec.input.clone(), format.clone());
        add(
            &format!("global average 2048 7 {name}"),
            Spec::Pool(spec),
            vec![input],
            vec![],
            (vec![1, 2048, 1, 1], F32),
        );
        let dims = vec![1, 64, 56, 56];
        for (to_name, to) in [("c8", blocked(1)), ("nhwc", last(1)), ("plain", F32)] {
            let spec = ConvertSpec { dims: dims.clone(), from: format.clone(), to: to.clone() };
            add(
                &format!("convert 64 56 {name} to {to_name}"),
                Spec::Convert(spec),
                vec![(dims.clone(), format.clone())],
                vec![],
                (dims.clone(), to),
            );
        }
    }
    for (name, dims, order) in [
        ("128x12x64 to 12x128x64", vec![128, 12, 64], [1, 0, 2]),
        ("768x768x1", vec![768, 768, 1], [1, 0, 2]),
    ] {
        let spec = CopySpec::transpose(&dims, &F32, &order);
        let output = spec.outputs[0].clone();
        add(&format!("transpose {name}"), Spec::Copy(spec), vec![(dims, F32)], vec![], output);
    }
    for (name, axes) in [("rows", vec![1]), ("columns", vec![0])] {
        let spec = ReduceSpec { dims: vec![1024, 1024], axes, keep_dims: false, op: ReduceOp::Sum };
        add(
            &format!("sum 1024x1024 {name}"),
            Spec::Reduce(spec),
            vec![(vec![1024, 1024], F32)],
            vec![],
            (vec![1024], F32),
        );
    }
    for n in [128, 1024] {
        let spec = AttentionSpec {
            batch: 1,
            heads: 12,
            key_heads: 12,
            queries: n,
            keys: n,
            depth: 64,
            value_depth: 64,
            scale: 0.125,
            mask: None,
            causal: false,
        };
        let dims = vec![1, 12, n, 64];
        add(
            &format!("attention 12x{n}x64"),
            Spec::Attention(spec),
            vec![(dims.clone(), F32); 3],
            vec![],
            (dims, F32),
        );
    }
}

fn recurrent(rows: &mut Vec<Row>) {
    let long = RecurrentCell::Lstm { input_forget: false };
    let gated = RecurrentCell::Gru { linear_before_reset: true };
    for (cell, gates, functions, sizes, both) in [
        (long, 4, 3, [64, 1, 512, 256], true),
        (long, 4, 3, [64, 1, 128, 128], false),
        (long, 4, 3, [64, 16, 512, 256], true),
        (gated, 3, 2, [64, 1, 512, 256], true),
        (RecurrentCell::Simple, 1, 1, [64, 1, 512, 256], false),
    ] {
        let [steps, batch, width, hidden] = sizes;
        let directions = if both { vec![false, true] } else { vec![false] };
        let d = directions.len() as i64;
        let each = match functions {
            1 => vec![Unary::Tanh],
            2 => vec![Unary::Sigmoid, Unary::Tanh],
            _ => vec![Unary::Sigmoid, Unary::Tanh, Unary::Tanh],
        };
        let spec = RecurrentSpec {
            cell,
            directions,
            steps,
            batch,
            width,
            hidden,
            functions: each.repeat(d as usize).into_iter().map(|f| vec![f]).collect(),
            bias: true,
            peepholes: false,
            lengths: Lengths::Whole,
            state: Start::Zero,
            memory: Start::Zero,
            outputs: [true, false, false],
        };
        let (kind, all) = (["", "rnn", "", "gru", "lstm"][gates as usize], gates * hidden);
        let ways = if both { "both ways" } else { "one way" };
        rows.push(Row {
            name: format!("{kind} {ways} {steps} steps of {batch}x{width}, {hidden} units"),
            flops: 2.0 * (d * steps * batch * all * (width + hidden)) as f64,
            spec: Spec::Recurrent(spec),
            inputs: vec![(vec![steps, batch, width], F32)],
            raw: vec![vec![d, all, width], vec![d, all, hidden], vec![d, 2 * all]],
            outputs: vec![(vec![steps, d, batch, hidden], F32)],
        });
    }
}
