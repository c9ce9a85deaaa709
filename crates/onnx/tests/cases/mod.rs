//! Small graphs, at least one for every op, with inputs.

mod further;

use bricolage_ir::{
    Graph, Op, OpKind, Real, ValueId,
    ops::{
        ArgReduce, Attention, BatchNorm, Binary, BitCast, Cast, Clip, Concat, Conv, ConvTranspose,
        Coordinates, DepthOrder, DepthToSpace, Dequantize, Det, Dft, Einsum, Expand, Gather,
        GatherElements, GatherNd, GroupNorm, Interpolation, Iota, LayerNorm, LinearAttention, Lrn,
        MatMul, OneHot, Pad, PadMode, Pool, PoolKind, Quantize, Reduce, ReduceKind, Reshape,
        Resize, Rounding, Running, RunningKind, Scatter, ScatterElements, ScatterNd, Select,
        ShapeOf, Slice, Softmax, SpaceToDepth, Split, Tile, TopK, Transpose, Trilu, Unary, Update,
    },
    origin,
};
use bricolage_tensor::{DType, Datum, Dim, Powers, Rng, Shape, Tensor, TensorType};

/// A graph and inputs for it.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) graph: Graph,
    pub(crate) inputs: Vec<Datum>,
}

/// An operand.
#[derive(Clone)]
enum In {
    /// Drawn evenly from an interval.
    Random(DType, Vec<i64>, f64, f64),
    /// Given for the run.
    Given(Tensor),
    /// Part of the graph.
    Fixed(Tensor),
    Absent,
}

fn f(dims: &[i64]) -> In {
    In::Random(DType::F32, dims.to_vec(), -2.0, 2.0)
}

fn within(dims: &[i64], low: f64, high: f64) -> In {
    In::Random(DType::F32, dims.to_vec(), low, high)
}

fn int(dims: &[i64], low: i64, high: i64) -> In {
    In::Random(DType::I64, dims.to_vec(), low as f64, high as f64)
}

fn fixed(dims: &[i64]) -> In {
    let mut rng = Rng::new(dims.iter().sum::<i64>() as u64);
    In::Fixed(Tensor::generate(DType::F32, dims, |_| 4.0 * rng.uniform() - 2.0))
}

fn longs(dims: &[i64], values: &[i64]) -> In {
    In::Given(Tensor::of(dims, values))
}

fn dims(all: &[i64]) -> Vec<Dim> {
    all.iter().map(|&d| Dim::from(d)).collect()
}

#[derive(Default)]
struct Cases(Vec<Case>);

impl Cases {
    fn add(&mut self, name: &str, op: impl Into<Op>, operands: &[In]) {
        let op = op.into();
        let mut graph = Graph::new(name);
        let mut rng = Rng::new(17 + self.0.len() as u64);
        let (mut values, mut inputs): (Vec<Option<ValueId>>, Vec<Datum>) = (Vec::new(), Vec::new());
        for (i, operand) in operands.iter().enumerate() {
            let (tensor, given) = match operand {
                In::Random(dtype, dims, low, high) => {
                    let whole = !dtype.is_float();
                    let draw = |_| {
                        let v = low + (high - low) * rng.uniform();
                        if whole { v.floor() } else { v }
                    };
                    (Tensor::generate(*dtype, dims, draw), true)
                }
                In::Given(t) => (t.clone(), true),
                In::Fixed(t) => (t.clone(), false),
                In::Absent => {
                    values.push(None);
                    continue;
                }
            };
            values.push(Some(if given {
                let value = graph.input(&format!("x{i}"), tensor.ty());
                inputs.push(tensor.into());
                value
            } else {
                graph.constant(&format!("c{i}"), tensor)
            }));
        }
        let kind = op.kind().name();
        let outputs = graph.add(op, &values, origin("/node"));
        graph.outputs = outputs.unwrap_or_else(|e| panic!("{kind} {name}: {e}"));
        self.0.push(Case { name: format!("{kind}.{name}"), graph, inputs });
    }

    fn functions(&mut self) {
        for &function in Unary::ALL {
            let (low, high) = match function {
                Unary::Sqrt | Unary::Rsqrt | Unary::Log => (0.1, 3.0),
                Unary::Asin | Unary::Acos | Unary::Atanh => (-0.9, 0.9),
                Unary::Acosh => (1.1, 3.0),
                _ => (-3.0, 3.0),
            };
            let operand = match function {
                Unary::Not => In::Random(DType::Bool, vec![3, 4], 0.0, 2.0),
                Unary::BitNot => In::Random(DType::I32, vec![3, 4], -9.0, 9.0),
                Unary::IsNan | Unary::IsInf | Unary::IsPosInf | Unary::IsNegInf => {
                    let values = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1.0];
                    In::Given(Tensor::of(&[4], &values))
                }
                _ => within(&[3, 5], low, high),
            };
            self.add(function.name(), function, &[operand]);
        }
        for &function in Binary::ALL {
            let operands = match function {
                Binary::And | Binary::Or | Binary::Xor => [[2i64, 3].as_slice(), &[3]]
                    .map(|d| In::Random(DType::Bool, d.to_vec(), 0.0, 2.0)),
                Binary::BitAnd | Binary::BitOr | Binary::BitXor => [[2i64, 3].as_slice(), &[3]]
                    .map(|d| In::Random(DType::I32, d.to_vec(), -9.0, 9.0)),
                Binary::ShiftLeft | Binary::ShiftRight => [[2i64, 3].as_slice(), &[3]]
                    .map(|d| In::Random(DType::U32, d.to_vec(), 0.0, 9.0)),
                Binary::Pow => [within(&[2, 3], 0.1, 3.0), f(&[3])],
                Binary::Mod | Binary::Fmod => [f(&[2, 3]), within(&[3], 0.5, 2.0)],
                _ => [f(&[2, 1, 3]), f(&[4, 1])],
            };
            if function == Binary::Prelu {
                self.add("prelu", function, &[f(&[2, 3, 4]), f(&[3, 1])]);
            } else {
                self.add(&format!("{function:?}"), function, &operands);
            }
        }
        self.add("int_mod", Binary::Mod, &[int(&[9], -9, 9), int(&[1], 3, 4)]);
        self.add("int_div", Binary::Div, &[int(&[9], -9, 9), int(&[1], 3, 4)]);
        for (min, max) in [(Some(-0.5), Some(1.0)), (Some(0.0), None), (None, Some(0.5))] {
            let op = Clip { min: min.map(Real::new), max: max.map(Real::new) };
            self.add("bounds", op, &[f(&[3, 5])]);
        }
        let condition = In::Random(DType::Bool, vec![2, 1], 0.0, 2.0);
        self.add("where", Select, &[condition, f(&[2, 3]), f(&[3])]);
        for to in [DType::I32, DType::F16, DType::Bool, DType::F64, DType::U8] {
            self.add(to.name(), Cast::to(to), &[within(&[7], 0.0, 9.0)]);
        }
    }

    fn reductions(&mut self) {
        for &kind in ReduceKind::ALL {
            for (axes, keep_dims) in [(vec![1], true), (vec![0, 2], false), (vec![], false)] {
                let name = format!("{kind:?}");
                self.add(&name, Reduce { kind, axes, keep_dims }, &[within(&[2, 3, 4], 0.2, 2.0)]);
            }
        }
        for largest in [true, false] {
            let op = ArgReduce { largest, axis: 1, keep_dims: largest, select_last: false };
            self.add("arg", op, &[f(&[2, 5, 3])]);
        }
        let last = ArgReduce { largest: true, axis: 0, keep_dims: false, select_last: true };
        self.add("last", last, &[int(&[9], 0, 3)]);
        for log in [false, true] {
            self.add("axis", Softmax { axis: 1, log }, &[f(&[2, 5, 3])]);
        }
        self.add(
            "sum",
            Running { kind: RunningKind::Sum, axis: 1, exclusive: true, reverse: true },
            &[f(&[2, 5])],
        );
        self.add("best", TopK { axis: 1, k: Dim::from(3), largest: true }, &[f(&[2, 7])]);
        self.add("least", TopK { axis: 0, k: Dim::from(2), largest: false }, &[f(&[5, 3])]);
    }

    fn products(&mut self) {
        for (a, b) in
            [(&[2, 3, 4][..], &[4, 5][..]), (&[4], &[4, 5]), (&[2, 4], &[4]), (&[5, 4], &[4, 3])]
        {
            self.add("product", MatMul::default(), &[f(a), f(b)]);
        }
        for (transpose_lhs, transpose_rhs) in [(true, false), (false, true), (true, true)] {
            let op = MatMul { transpose_lhs, transpose_rhs };
            let pick = |t: bool, a: [i64; 2]| if t { [a[1], a[0]] } else { a };
            let (a, b) = (pick(transpose_lhs, [3, 4]), pick(transpose_rhs, [4, 5]));
            self.add("transposed", op, &[f(&a), f(&b)]);
            self.add("batch", op, &[f(&[2, a[0], a[1]]), f(&[2, b[0], b[1]])]);
        }
        self.add("wide", MatMul::default(), &[f(&[3, 20]), fixed(&[20, 20])]);
        self.add("integers", MatMul::default(), &[int(&[2, 3], -5, 5), int(&[3, 2], -5, 5)]);
        for equation in ["bij,bjk->bik", "ij->ji", "i,j->ij", "...ij,...jk->...ik"] {
            let rank3 = equation.starts_with('b') || equation.starts_with('.');
            let operands = match equation {
                "ij->ji" => vec![f(&[3, 4])],
                "i,j->ij" => vec![f(&[3]), f(&[4])],
                _ => vec![f(&[2, 3, 4]), f(&[2, 4, 5])],
            };
            assert_eq!(rank3, operands.len() == 2 && equation.len() > 8);
            self.add("sum", Einsum { equation: equation.to_owned() }, &operands);
        }
        self.add("plain", Conv::plain(2), &[f(&[1, 3, 6, 6]), fixed(&[4, 3, 3, 3]), fixed(&[4])]);
        let conv = Conv {
            strides: vec![2, 1],
            dilations: vec![1, 2],
            pads: vec![(1, 0), (2, 1)],
            groups: 2,
        };
        self.add("all", conv, &[f(&[2, 4, 7, 8]), fixed(&[6, 2, 3, 2])]);
        self.add("one", Conv::plain(1), &[f(&[1, 3, 9]), fixed(&[2, 3, 4])]);
        self.add("three", Conv::plain(3), &[f(&[1, 2, 4, 4, 4]), fixed(&[2, 2, 2, 2, 2])]);
        let up = ConvTranspose {
            strides: vec![2, 3],
            dilations: vec![1, 2],
            pads: vec![(1, 0), (0, 1)],
            output_padding: vec![1, 0],
            groups: 2,
        };
        self.add("all", up, &[f(&[1, 4, 3, 4]), fixed(&[4, 3, 3, 2]), fixed(&[6])]);
    }

    fn windows(&mut self) {
        let pool = |kind, pads, ceil_mode| Pool {
            kind,
            kernel: vec![3, 2],
            strides: vec![2, 2],
            dilations: vec![1, 1],
            pads,
            ceil_mode,
        };
        let kinds = [
            PoolKind::Max { indices: false },
            PoolKind::Max { indices: true },
            PoolKind::Average { count_include_pad: false },
            PoolKind::Average { count_include_pad: true },
            PoolKind::Lp { p: 2 },
        ];
        for kind in kinds {
            self.add("plain", pool(kind, vec![(0, 0); 2], false), &[f(&[2, 3, 7, 8])]);
            self.add("padded", pool(kind, vec![(1, 1), (1, 0)], false), &[f(&[2, 3, 7, 8])]);
            if !matches!(kind, PoolKind::Lp { .. }) {
                self.add("ceil", pool(kind, vec![(0, 0), (1, 1)], true), &[f(&[1, 2, 8, 7])]);
            }
        }
        let dilated = Pool { dilations: vec![2, 3], ..pool(kinds[0], vec![(1, 1); 2], false) };
        self.add("dilated", dilated, &[f(&[1, 2, 9, 9])]);
        self.add(
            "size",
            Lrn { size: 3, alpha: Real::new(0.1), beta: Real::new(0.75), bias: Real::new(1.0) },
            &[f(&[2, 5, 3, 3])],
        );
    }

    fn normalisations(&mut self) {
        let epsilon = Real::new(1e-5);
        let variance = within(&[3], 0.5, 2.0);
        let per = || fixed(&[3]);
        self.add("batch", BatchNorm { epsilon }, &[f(&[2, 3, 4]), per(), per(), per(), variance]);
        let layer = LayerNorm { axis: 1, epsilon, rms: false, statistics: false };
        self.add("plain", layer, &[f(&[3, 8]), fixed(&[8]), fixed(&[8])]);
        self.add("bare", layer, &[f(&[3, 8])]);
        self.add("scale", LayerNorm { axis: 2, ..layer }, &[f(&[2, 3, 8]), fixed(&[8])]);
        self.add("bias", layer, &[f(&[3, 8]), In::Absent, fixed(&[8])]);
        self.add("rms", LayerNorm { rms: true, ..layer }, &[f(&[3, 8]), fixed(&[8])]);
        self.add(
            "statistics",
            LayerNorm { statistics: true, ..layer },
            &[f(&[3, 8]), fixed(&[8]), fixed(&[8])],
        );
        self.add(
            "groups",
            GroupNorm { groups: 2, epsilon },
            &[f(&[2, 6, 4]), fixed(&[6]), fixed(&[6])],
        );
        self.add("instance", GroupNorm { groups: 3, epsilon }, &[f(&[2, 3, 5]), per(), per()]);
        self.add("bare", GroupNorm { groups: 2, epsilon }, &[f(&[2, 4, 5])]);
    }

    fn attention(&mut self) {
        let plain = Attention { scale: None, causal: false };
        let qkv = || [f(&[2, 4, 3, 8]), f(&[2, 2, 5, 8]), f(&[2, 2, 5, 6])];
        self.add("shared", plain, &qkv());
        self.add("causal", Attention { scale: Some(Real::new(0.3)), causal: true }, &qkv());
        let [q, k, v] = qkv();
        self.add("mask", plain, &[q.clone(), k.clone(), v.clone(), f(&[3, 5])]);
        let seen = In::Random(DType::Bool, vec![2, 1, 3, 5], 0.0, 2.0);
        self.add("bool", Attention { causal: true, ..plain }, &[q, k, v, seen]);
    }

    fn quantised(&mut self) {
        let typed = |dtype, dims: &[i64]| In::Random(dtype, dims.to_vec(), -7.0, 8.0);
        let quantize =
            |to, axis, block| Quantize { to, axis, block, precision: DType::F32, saturate: true };
        let scale = |dims: &[i64]| within(dims, 0.1, 1.0);
        let numbers = || f(&[3, 4]);
        self.add("tensor", quantize(DType::U8, 0, 0), &[numbers(), scale(&[])]);
        let zeros = typed(DType::I8, &[4]);
        self.add("axis", quantize(DType::I8, 1, 0), &[numbers(), scale(&[4]), zeros]);
        let zeros = typed(DType::I4, &[3, 2]);
        self.add("block", quantize(DType::I4, 1, 2), &[numbers(), scale(&[3, 2]), zeros]);
        self.add("f8", quantize(DType::F8E4M3FN, 0, 0), &[numbers(), scale(&[])]);
        let wide = Quantize { precision: DType::F64, ..quantize(DType::I16, 0, 0) };
        self.add("precise", wide, &[numbers(), scale(&[])]);
        let dequantize = |axis, block| Dequantize { to: DType::F32, axis, block };
        let codes = typed(DType::I8, &[3, 4]);
        let zeros = typed(DType::I8, &[4]);
        self.add("axis", dequantize(1, 0), &[codes.clone(), scale(&[4]), zeros]);
        self.add("block", dequantize(0, 2), &[typed(DType::U4, &[3, 4]), scale(&[2, 4])]);
        self.add("half", Dequantize { to: DType::F16, ..dequantize(0, 0) }, &[codes, scale(&[])]);
        for dtype in DType::ALL.iter().copied().filter(|d| d.bits() < 8 || d.is_narrow_float()) {
            self.add(dtype.name(), Cast::to(dtype), &[within(&[7], 0.6, 9.0)]);
            let back = In::Random(dtype, vec![7], 0.0, 9.0);
            self.add(&format!("from_{dtype}"), Cast::to(DType::F32), std::slice::from_ref(&back));
            self.add(dtype.name(), Transpose { perm: vec![0] }, std::slice::from_ref(&back));
            self.add(dtype.name(), Gather { axis: 0 }, &[back.clone(), longs(&[3], &[6, 0, -2])]);
            let pad = Pad { mode: PadMode::Constant, before: dims(&[1]), after: dims(&[2]) };
            if dtype != DType::F8E8M0 {
                self.add(dtype.name(), pad, &[back]);
            }
        }
        let nearest = Cast { powers: Powers::Nearest, ..Cast::to(DType::F8E8M0) };
        self.add("nearest", nearest, &[within(&[7], 0.1, 9.0)]);
        let open = Cast { saturate: false, ..Cast::to(DType::F8E5M2) };
        let beyond = [7e4f32, -1e5, 3.3, 5e4, 6e4, f32::INFINITY, 1e-9];
        self.add("open", open, &[In::Given(Tensor::of(&[7], &beyond))]);
        self.add("bits", BitCast { to: DType::I32 }, &[f(&[5])]);
    }

    fn sequences(&mut self) {
        for (exclusive, reverse) in [(false, true), (true, false)] {
            self.add(
                "product",
                Running { kind: RunningKind::Product, axis: 1, exclusive, reverse },
                &[f(&[2, 5])],
            );
        }
        self.add("batch", Det, &[f(&[2, 3, 3])]);
        for (inverse, one_sided, parts) in
            [(false, false, 1), (false, true, 1), (true, false, 2), (true, true, 2)]
        {
            let op = Dft { axis: 1, length: Dim::from(10), inverse, one_sided };
            self.add("transform", op, &[f(&[2, 7, 3, parts])]);
        }
        let op = |update| LinearAttention { heads: 4, kv_heads: 2, update, scale: Real::new(0.5) };
        let qkv = || vec![f(&[2, 3, 12]), f(&[2, 3, 6]), f(&[2, 3, 8])];
        self.add("linear", op(Update::Add), &qkv());
        let state = f(&[2, 2, 3, 4]);
        let gated = [qkv(), vec![state.clone(), f(&[2, 3, 6])]].concat();
        self.add("gated", op(Update::Add), &gated);
        self.add("delta", op(Update::Correct), &qkv());
        let both = [qkv(), vec![state, f(&[2, 3, 2]), f(&[2, 3, 1])]].concat();
        self.add("both", op(Update::Correct), &both);
    }

    fn movements(&mut self) {
        self.add("shape", Reshape { to: Shape::fixed(&[4, 6]) }, &[f(&[2, 3, 4])]);
        self.add("empty", Reshape { to: Shape::fixed(&[0, 6]) }, &[f(&[3, 0])]);
        self.add("perm", Transpose { perm: vec![2, 0, 1] }, &[f(&[2, 3, 4])]);
        self.add("to", Expand { to: Shape::fixed(&[5, 2, 3]) }, &[f(&[2, 1])]);
        self.add("repeats", Tile { repeats: dims(&[2, 1, 3]) }, &[f(&[2, 3, 1])]);
        self.add("axis", Concat { axis: 1 }, &[f(&[2, 3]), f(&[2, 1]), f(&[2, 4])]);
        self.add("sizes", Split { axis: 1, sizes: dims(&[1, 4, 2]) }, &[f(&[2, 7])]);
        let slice = Slice {
            axes: vec![1, 0],
            starts: dims(&[-1, 1]),
            ends: dims(&[-9, 3]),
            steps: vec![-2, 1],
        };
        self.add("steps", slice, &[f(&[4, 6])]);
        let none = Slice { axes: vec![], starts: vec![], ends: vec![], steps: vec![] };
        self.add("none", none, &[f(&[2])]);
        for mode in [PadMode::Constant, PadMode::Reflect, PadMode::Edge, PadMode::Wrap] {
            let op = Pad { mode, before: dims(&[1, 2]), after: dims(&[0, 1]) };
            self.add(&format!("{mode:?}"), op, &[f(&[3, 4])]);
        }
        let pad = Pad { mode: PadMode::Constant, before: dims(&[1, -1]), after: dims(&[0, 2]) };
        self.add("fill", pad.clone(), &[f(&[3, 4]), In::Fixed(Tensor::of(&[], &[7f32]))]);
        self.add("list", pad, &[f(&[3, 4]), In::Fixed(Tensor::of(&[1], &[7f32]))]);
        self.add("axis", Gather { axis: 1 }, &[f(&[3, 4]), longs(&[2, 2], &[0, -1, 2, 3])]);
        let small = In::Random(DType::U8, vec![2], 0.0, 3.0);
        self.add("small", Gather { axis: 0 }, &[f(&[3, 4]), small]);
        self.add("axis", GatherElements { axis: 1 }, &[f(&[2, 4]), longs(&[2, 2], &[0, -1, 2, 3])]);
        self.add("batch", GatherNd { batch_dims: 1 }, &[f(&[2, 3, 4]), longs(&[2, 1], &[2, -1])]);
        self.add(
            "deep",
            GatherNd { batch_dims: 0 },
            &[f(&[2, 3, 4]), longs(&[2, 2], &[1, 2, 0, 0])],
        );
        for reduction in [Scatter::Replace, Scatter::Add, Scatter::Mul, Scatter::Max, Scatter::Min]
        {
            let positions = longs(&[2, 2], &[0, 2, 1, 3]);
            self.add(
                &format!("{reduction:?}"),
                ScatterElements { axis: 1, reduction },
                &[f(&[2, 4]), positions.clone(), f(&[2, 2])],
            );
            self.add(
                &format!("{reduction:?}"),
                ScatterNd { reduction },
                &[f(&[4, 5]), longs(&[2, 1], &[0, 3]), f(&[2, 5])],
            );
        }
        for order in [DepthOrder::BlocksFirst, DepthOrder::ChannelsFirst] {
            self.add("blocks", DepthToSpace { block: 2, order }, &[f(&[1, 8, 2, 3])]);
        }
        self.add("blocks", SpaceToDepth { block: 2 }, &[f(&[1, 2, 4, 6])]);
        self.add("triangle", Trilu { upper: true, diagonal: 1 }, &[f(&[2, 4, 5])]);
        self.add("triangle", Trilu { upper: false, diagonal: -1 }, &[f(&[4, 5])]);
        self.add(
            "range",
            Iota { dtype: DType::I64, start: Dim::from(3), len: Dim::from(5), step: -2 },
            &[],
        );
        let long = Iota { dtype: DType::F32, start: Dim::from(0), len: Dim::from(70_000), step: 1 };
        self.add("long", long, &[]);
        self.add("dims", ShapeOf { start: 1, end: 3 }, &[f(&[2, 3, 4])]);
        let values = In::Fixed(Tensor::of(&[2], &[-1f32, 5.0]));
        self.add(
            "axis",
            OneHot { axis: 1, depth: Dim::from(4) },
            &[longs(&[2, 3], &[0, 3, -1, 2, 1, 0]), values],
        );
    }

    fn resizes(&mut self) {
        let base = Resize {
            sizes: Shape::fixed(&[1, 2, 6, 9]),
            scales: None,
            mode: Interpolation::Linear,
            coordinates: Coordinates::HalfPixel,
            exclude_outside: false,
            antialias: false,
            roi: vec![],
            extrapolation: Real::new(0.0),
        };
        let coordinates = [
            Coordinates::HalfPixel,
            Coordinates::PytorchHalfPixel,
            Coordinates::AlignCorners,
            Coordinates::Asymmetric,
        ];
        let cubic = Interpolation::Cubic(Real::new(-0.75));
        let nearest =
            [Rounding::PreferFloor, Rounding::PreferCeil, Rounding::Floor, Rounding::Ceil];
        for coordinates in coordinates {
            for mode in [Interpolation::Linear, cubic] {
                let op = Resize { mode, coordinates, ..base.clone() };
                self.add(&format!("{coordinates:?}"), op, &[f(&[1, 2, 4, 5])]);
            }
            for rounding in nearest {
                let op =
                    Resize { mode: Interpolation::Nearest(rounding), coordinates, ..base.clone() };
                self.add(&format!("{coordinates:?}.{rounding:?}"), op, &[f(&[1, 2, 4, 5])]);
            }
        }
        let twice = Some([1.0, 1.0, 2.0, 2.0].map(Real::new).to_vec());
        let scaled = Resize { sizes: Shape::fixed(&[1, 2, 8, 10]), scales: twice, ..base.clone() };
        self.add("scales", scaled, &[f(&[1, 2, 4, 5])]);
        let outside = Resize { mode: cubic, exclude_outside: true, ..base.clone() };
        self.add("outside", outside, &[f(&[1, 2, 4, 5])]);
        let smaller =
            Resize { sizes: Shape::fixed(&[1, 2, 3, 4]), antialias: true, ..base.clone() };
        self.add("antialias", smaller, &[f(&[1, 2, 7, 9])]);
        let roi = [0.0, 0.0, 0.2, -0.3, 1.0, 1.0, 0.8, 1.2].map(Real::new).to_vec();
        let crop = Resize {
            coordinates: Coordinates::CropAndResize,
            roi,
            extrapolation: Real::new(9.0),
            ..base
        };
        self.add("crop", crop, &[f(&[1, 2, 4, 5])]);
    }

    /// Sums of products of integers whose operands are differences of few bits, in the forms that import and
    /// folded constants give them.
    fn integers(&mut self) {
        let mut rng = Rng::new(23);
        let mut draw = |dtype, dims: &[i64], low: f64, high: f64| {
            Tensor::generate(dtype, dims, |_| (low + (high - low) * rng.uniform()).floor())
        };
        let image = draw(DType::U8, &[1, 2, 5, 4], 0.0, 256.0);
        let bias = draw(DType::I32, &[3], -900.0, 900.0);
        let small = draw(DType::I32, &[3, 2, 2, 2], -128.0, 128.0);
        let centred = draw(DType::I32, &[3, 2, 2, 2], -255.0, 256.0);
        let filter = draw(DType::I8, &[3, 2, 2, 2], -128.0, 128.0);
        let zeros = draw(DType::I8, &[1], -9.0, 9.0);
        for (name, weights, stored) in
            [("eight", &small, false), ("nine", &centred, false), ("stored", &filter, true)]
        {
            let mut graph = Graph::new(name);
            let node = |name: &str| origin(&format!("/{name}"));
            let x = graph.input("x", image.ty());
            let zero = graph.constant("zero", Tensor::of(&[], &[131i32]));
            let x = graph.add1(Cast::to(DType::I32), &[x], node("cast")).unwrap();
            let x = graph.add1(Binary::Sub, &[x, zero], node("centre")).unwrap();
            let mut w = graph.constant("w", weights.clone());
            if stored {
                let zeros = graph.constant("zeros", zeros.clone());
                let to = Shape::fixed(&[1, 1, 1, 1]);
                let column = graph.add1(Reshape { to }, &[zeros], node("column")).unwrap();
                let column = graph.add1(Cast::to(DType::I32), &[column], node("wide")).unwrap();
                w = graph.add1(Cast::to(DType::I32), &[w], node("weights")).unwrap();
                w = graph.add1(Binary::Sub, &[w, column], node("filter")).unwrap();
            }
            let bias = graph.constant("bias", bias.clone());
            graph.outputs = graph.add(Conv::plain(2), &[x, w, bias], node("conv")).unwrap();
            let inputs = vec![image.clone().into()];
            self.0.push(Case { name: format!("integers.conv.{name}"), graph, inputs });
        }
        let (rows, columns) =
            (image.reshaped(&[10, 4]).unwrap(), draw(DType::I32, &[4, 6], 0.0, 256.0));
        let mut graph = Graph::new("product");
        let a = graph.input("a", rows.ty());
        let a = graph.add1(Cast::to(DType::I32), &[a], origin("/cast")).unwrap();
        let b = graph.constant("b", columns);
        graph.outputs = graph.add(MatMul::default(), &[a, b], origin("/product")).unwrap();
        let inputs = vec![rows.into()];
        self.0.push(Case { name: "integers.product".to_owned(), graph, inputs });
    }

    /// Shapes with symbols, over `x: f32[b, n, 6]` at `b` = 2 and `n` = 3.
    fn symbols(&mut self) {
        let (b, n) = (Dim::symbol("b"), Dim::symbol("n"));
        let six = Dim::from(6);
        let ops: Vec<(&str, Op)> = vec![
            (
                "place",
                Reshape { to: Shape(vec![b.clone(), &n * &Dim::from(2), Dim::from(3)]) }.into(),
            ),
            ("merge", Reshape { to: Shape(vec![&b * &n, six.clone()]) }.into()),
            ("swap", Reshape { to: Shape(vec![n.clone(), b.clone(), six.clone()]) }.into()),
            (
                "expand",
                Expand { to: Shape(vec![&n + &Dim::from(1), b.clone(), n.clone(), six.clone()]) }
                    .into(),
            ),
            ("tile", Tile { repeats: vec![n.clone(), Dim::from(1), b.clone()] }.into()),
            (
                "slice",
                Slice {
                    axes: vec![1, 2],
                    starts: vec![Dim::from(1), b.clone()],
                    ends: vec![n.clone(), six.clone()],
                    steps: vec![1, 2],
                }
                .into(),
            ),
            ("split", Split { axis: 1, sizes: vec![Dim::from(1), &n - &Dim::from(1)] }.into()),
            (
                "pad",
                Pad {
                    mode: PadMode::Constant,
                    before: vec![Dim::from(0), b.clone(), Dim::from(0)],
                    after: vec![Dim::from(0), n.floor_div(&Dim::from(2)), Dim::from(0)],
                }
                .into(),
            ),
            ("top", TopK { axis: 2, k: b.larger(&n), largest: true }.into()),
            ("mean", Reduce { kind: ReduceKind::Mean, axes: vec![1], keep_dims: false }.into()),
        ];
        for (name, op) in ops {
            let mut graph = Graph::new(name);
            let shape = Shape(vec![b.clone(), n.clone(), six.clone()]);
            let x = graph.input("x", TensorType { dtype: DType::F32, shape });
            graph.outputs = graph.add(op, &[x], origin("/node")).unwrap();
            let mut rng = Rng::new(5);
            let x = Tensor::generate(DType::F32, &[2, 3, 6], |_| rng.normal());
            self.0.push(Case { name: format!("symbol.{name}"), graph, inputs: vec![x.into()] });
        }
        let mut graph = Graph::new("range");
        let x = graph.input("x", TensorType { dtype: DType::F32, shape: Shape(vec![n.clone()]) });
        let count = Iota { dtype: DType::F32, start: n.clone(), len: n.clone(), step: 2 };
        let count = graph.add1::<ValueId>(count, &[], origin("/count")).unwrap();
        graph.outputs = graph.add(Binary::Add, &[x, count], origin("/sum")).unwrap();
        let inputs = vec![Tensor::of(&[4], &[1f32, 2.0, 3.0, 4.0]).into()];
        self.0.push(Case { name: "symbol.range".to_owned(), graph, inputs });
    }
}

pub(crate) fn cases() -> Vec<Case> {
    let mut all = Cases::default();
    all.functions();
    all.reductions();
    all.products();
    all.windows();
    all.normalisations();
    all.attention();
    all.quantised();
    all.sequences();
    all.movements();
    all.resizes();
    all.symbols();
    all.integers();
    all.0.extend(further::all());
    let covered: Vec<OpKind> =
        all.0.iter().flat_map(|c| c.graph.nodes().map(|n| c.graph.node(n).op.kind())).collect();
    for kind in OpKind::ALL.iter().filter(|&&k| k != OpKind::Opaque) {
        assert!(covered.contains(kind), "no case for {}", kind.name());
    }
    all.0
}
