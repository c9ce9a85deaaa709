//! All kernels of this crate, one row each.

use crate::{
    AttentionSpec, ConvAlgorithm, ConvSpec, ConvertSpec, CopySpec, GatherSpec, Instruction, Isa,
    Lengths, MatMulSpec, NormSpec, PointwiseOperand, PointwiseSpec, PoolOp, PoolSpec,
    RecurrentCell, RecurrentSpec, ReduceOp, ReduceSpec, ResizeSpec, SoftmaxSpec, Spec, Start,
    Unary,
};
use crate::{Coordinates, ResizeMode};
use bricolage_tensor::{DType, Format, Layout};

/// One kernel: what it is called, which sets it is compiled for, and a small example.
pub struct Row {
    /// Name without the instruction set and the tile; unique.
    pub name: &'static str,
    /// The kind of its spec, as [`Spec::kind`] says.
    pub kind: &'static str,
    /// Instruction sets that it is compiled for.
    pub isas: &'static [Isa],
    /// How it may differ from exact arithmetic.
    pub numerics: Numerics,
    /// A small spec of it.
    pub example: fn() -> Spec,
}

/// How a kernel's results may differ from those of exact arithmetic rounded once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numerics {
    /// Not at all.
    Exact,
    /// By the order of sums and the rounding of elementary functions.
    Reassociates,
    /// By intermediate values larger than the result.
    Approximates,
}

const fn f32_in(layout: Layout) -> Format {
    Format { dtype: DType::F32, layout }
}

const PLAIN: Format = Format::plain(DType::F32);
const BLOCKED: Format = f32_in(Layout::Blocked { block: 8, halo: 1 });

fn conv(groups: i64, algorithm: ConvAlgorithm) -> Spec {
    let spec = ConvSpec::new(&[1, 8, 6, 6], BLOCKED, 8, 3, 1, 1, groups);
    Spec::Conv(ConvSpec { algorithm, ..spec.expect("the example is a convolution") })
}

fn pool(op: PoolOp) -> Spec {
    Spec::Pool(PoolSpec {
        input: vec![1, 8, 6, 6],
        input_format: BLOCKED,
        output_format: BLOCKED,
        op,
        kernel: vec![2, 2],
        strides: vec![2, 2],
        dilations: vec![1, 1],
        pads: vec![0; 4],
        ceil: false,
    })
}

fn softmax(log: bool) -> Spec {
    Spec::Softmax(SoftmaxSpec { dims: vec![3, 10], axis: 1, log })
}

fn norm(rms: bool) -> Spec {
    Spec::Norm(NormSpec {
        dims: vec![3, 10],
        axis: 1,
        epsilon: 1e-5,
        rms,
        scale: true,
        bias: false,
        residual: false,
        keep_sum: false,
    })
}

fn recurrent(cell: RecurrentCell, functions: &[Unary]) -> Spec {
    Spec::Recurrent(RecurrentSpec {
        cell,
        directions: vec![false],
        steps: 3,
        batch: 2,
        width: 4,
        hidden: 5,
        functions: functions.iter().map(|&f| vec![f]).collect(),
        bias: true,
        peepholes: false,
        lengths: Lengths::Whole,
        state: Start::Zero,
        memory: Start::Zero,
        outputs: [true, true, false],
    })
}

/// All rows.
pub const REGISTRY: &[Row] = &[
    Row {
        name: "matmul",
        kind: "MatMul",
        isas: Isa::ALL,
        numerics: Numerics::Reassociates,
        example: || Spec::MatMul(MatMulSpec::new(5, 7, 9)),
    },
    Row {
        name: "conv-direct",
        kind: "Conv",
        isas: Isa::ALL,
        numerics: Numerics::Reassociates,
        example: || conv(1, ConvAlgorithm::Direct),
    },
    Row {
        name: "conv-transposed",
        kind: "Conv",
        isas: Isa::ALL,
        numerics: Numerics::Reassociates,
        example: || match conv(1, ConvAlgorithm::Direct) {
            Spec::Conv(spec) => Spec::Conv(ConvSpec { transposed: true, ..spec }),
            other => other,
        },
    },
    Row {
        name: "conv-winograd-f2",
        kind: "Conv",
        isas: Isa::ALL,
        numerics: Numerics::Approximates,
        example: || conv(1, ConvAlgorithm::Winograd { tile: 2 }),
    },
    Row {
        name: "conv-winograd-f4",
        kind: "Conv",
        isas: Isa::ALL,
        numerics: Numerics::Approximates,
        example: || conv(1, ConvAlgorithm::Winograd { tile: 4 }),
    },
    Row {
        name: "conv-winograd-f6",
        kind: "Conv",
        isas: &[Isa::Avx2, Isa::Avx512],
        numerics: Numerics::Approximates,
        example: || conv(1, ConvAlgorithm::Winograd { tile: 6 }),
    },
    Row {
        name: "conv-depthwise",
        kind: "Conv",
        isas: Isa::ALL,
        numerics: Numerics::Reassociates,
        example: || conv(8, ConvAlgorithm::Depthwise),
    },
    Row {
        name: "pointwise",
        kind: "Pointwise",
        isas: Isa::ALL,
        numerics: Numerics::Reassociates,
        example: || {
            Spec::Pointwise(PointwiseSpec {
                dims: vec![2, 5],
                format: PLAIN,
                operands: vec![PointwiseOperand { dims: vec![2, 5], format: PLAIN }],
                constants: 0,
                body: vec![Instruction::Operand(0), Instruction::Unary(Unary::Relu, 0)],
                outputs: vec![(1, DType::F32)],
            })
        },
    },
    Row {
        name: "pool-max",
        kind: "Pool",
        isas: Isa::ALL,
        numerics: Numerics::Exact,
        example: || pool(PoolOp::Max),
    },
    Row {
        name: "pool-average",
        kind: "Pool",
        isas: Isa::ALL,
        numerics: Numerics::Reassociates,
        example: || pool(PoolOp::Average { count_pads: false }),
    },
    Row {
        name: "softmax",
        kind: "Softmax",
        isas: Isa::ALL,
        numerics: Numerics::Reassociates,
        example: || softmax(false),
    },
    Row {
        name: "log-softmax",
        kind: "Softmax",
        isas: Isa::ALL,
        numerics: Numerics::Reassociates,
        example: || softmax(true),
    },
    Row {
        name: "layer-norm",
        kind: "Norm",
        isas: Isa::ALL,
        numerics: Numerics::Reassociates,
        example: || norm(false),
    },
    Row {
        name: "rms-norm",
        kind: "Norm",
        isas: Isa::ALL,
        numerics: Numerics::Reassociates,
        example: || norm(true),
    },
    Row {
        name: "reduce",
        kind: "Reduce",
        isas: Isa::ALL,
        numerics: Numerics::Reassociates,
        example: || {
            Spec::Reduce(ReduceSpec {
                dims: vec![3, 4],
                axes: vec![0],
                keep_dims: false,
                op: ReduceOp::Sum,
            })
        },
    },
    Row {
        name: "copy",
        kind: "Copy",
        isas: Isa::ALL,
        numerics: Numerics::Exact,
        example: || Spec::Copy(CopySpec::transpose(&[3, 4], &PLAIN, &[1, 0])),
    },
    Row {
        name: "convert",
        kind: "Convert",
        isas: Isa::ALL,
        numerics: Numerics::Exact,
        example: || Spec::Convert(ConvertSpec { dims: vec![1, 9, 3, 3], from: PLAIN, to: BLOCKED }),
    },
    Row {
        name: "gather",
        kind: "Gather",
        isas: Isa::ALL,
        numerics: Numerics::Exact,
        example: || {
            Spec::Gather(GatherSpec {
                data: vec![4, 3],
                dtype: DType::F32,
                constant: false,
                axis: 0,
                indices: vec![2],
                index_dtype: DType::I64,
            })
        },
    },
    Row {
        name: "resize",
        kind: "Resize",
        isas: Isa::ALL,
        numerics: Numerics::Reassociates,
        example: || {
            Spec::Resize(ResizeSpec {
                input: vec![1, 8, 3, 3],
                input_format: BLOCKED,
                output_format: BLOCKED,
                output: vec![6, 6],
                scales: vec![2.0, 2.0],
                mode: ResizeMode::Linear,
                coordinates: Coordinates::HalfPixel,
            })
        },
    },
    Row {
        name: "attention",
        kind: "Attention",
        isas: Isa::ALL,
        numerics: Numerics::Reassociates,
        example: || {
            Spec::Attention(AttentionSpec {
                batch: 1,
                heads: 2,
                key_heads: 1,
                queries: 3,
                keys: 5,
                depth: 8,
                value_depth: 8,
                scale: 0.5,
                mask: None,
                causal: false,
            })
        },
    },
    Row {
        name: "rnn",
        kind: "Recurrent",
        isas: Isa::ALL,
        numerics: Numerics::Reassociates,
        example: || recurrent(RecurrentCell::Simple, &[Unary::Tanh]),
    },
    Row {
        name: "gru",
        kind: "Recurrent",
        isas: Isa::ALL,
        numerics: Numerics::Reassociates,
        example: || {
            recurrent(
                RecurrentCell::Gru { linear_before_reset: true },
                &[Unary::Sigmoid, Unary::Tanh],
            )
        },
    },
    Row {
        name: "lstm",
        kind: "Recurrent",
        isas: Isa::ALL,
        numerics: Numerics::Reassociates,
        example: || {
            recurrent(
                RecurrentCell::Lstm { input_forget: false },
                &[Unary::Sigmoid, Unary::Tanh, Unary::Tanh],
            )
        },
    },
];
