//! Composite ops as graphs of primitive ones: for backends that lack them, and as the judge of
//! their evaluation.

use crate::{
    Fact, Graph, Op, Origin, Real, TypeError, ValueId,
    ops::{
        Attention, BatchNorm, Binary, Cast, Clip, DepthOrder, DepthToSpace, Dequantize, Expand,
        GroupNorm, Iota, LayerNorm, Lrn, MatMul, Pool, PoolKind, Quantize, Reduce, ReduceKind,
        Reshape, Select, Slice, Softmax, SpaceToDepth, Split, Tile, Transpose, Unary,
    },
    origin,
};
use bricolage_tensor::{DType, Dim, Shape, Tensor, TensorType, Type};

/// A graph of simpler ops that computes the same, or `None` for a primitive op. Its inputs are the
/// operands that are there, in order; its outputs those of the op.
pub fn decompose(op: &Op, inputs: &[Option<&Fact>]) -> Result<Option<Graph>, TypeError> {
    let mut b = Builder { graph: Graph::new(op.kind().name()), origin: origin(op.kind().name()) };
    let mut values: Vec<Option<ValueId>> = Vec::new();
    for (i, fact) in inputs.iter().enumerate() {
        values.push(fact.map(|f| b.graph.input(&format!("x{i}"), f.ty.clone())));
    }
    let Some(Some(x)) = values.first().copied() else { return Ok(None) };
    let at = |i: usize| values.get(i).copied().flatten();
    let outputs = match op {
        Op::Unary(f) => b.unary(*f, x)?.map(|y| vec![y]),
        Op::Binary(Binary::Prelu) => match at(1) {
            Some(slope) => Some(vec![b.prelu(x, slope)?]),
            None => None,
        },
        Op::Clip(op) => Some(vec![b.clip(*op, x)?]),
        Op::Reduce(op) => b.reduce(op, x)?.map(|y| vec![y]),
        Op::Softmax(op) => Some(vec![b.softmax(*op, x)?]),
        Op::BatchNorm(op) => match [at(1), at(2), at(3), at(4)] {
            [Some(scale), Some(bias), Some(mean), Some(variance)] => {
                Some(vec![b.batch_norm(*op, x, [scale, bias, mean, variance])?])
            }
            _ => None,
        },
        Op::LayerNorm(op) => Some(b.layer_norm(*op, x, at(1), at(2))?),
        Op::GroupNorm(op) => Some(vec![b.group_norm(*op, x, at(1), at(2))?]),
        Op::Lrn(op) => Some(vec![b.lrn(*op, x)?]),
        Op::Attention(op) => match (at(1), at(2)) {
            (Some(k), Some(v)) => Some(vec![b.attention(*op, x, k, v, at(3))?]),
            _ => None,
        },
        Op::Split(op) => Some(b.split(op, x)?),
        Op::Tile(op) => Some(vec![b.tile(op, x)?]),
        Op::DepthToSpace(op) => Some(vec![b.depth_to_space(*op, x)?]),
        Op::SpaceToDepth(op) => Some(vec![b.space_to_depth(*op, x)?]),
        Op::Quantize(op) => match at(1) {
            Some(scale) => Some(vec![b.quantize(*op, x, scale, at(2))?]),
            None => None,
        },
        Op::Dequantize(op) => match at(1) {
            Some(scale) => Some(vec![b.dequantize(*op, x, scale, at(2))?]),
            None => None,
        },
        _ => None,
    };
    Ok(outputs.map(|outputs| {
        b.graph.outputs = outputs;
        b.graph
    }))
}

/// Adds nodes that all stand for one op.
struct Builder {
    graph: Graph,
    origin: Origin,
}

type Built = Result<ValueId, TypeError>;

impl Builder {
    fn add(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> Built {
        self.graph.add1(op, inputs, self.origin.clone())
    }

    fn ty(&self, x: ValueId) -> TensorType {
        match &self.graph.fact(x).ty {
            Type::Tensor(t) => t.clone(),
            // Inference accepted the operands before.
            _ => TensorType::fixed(DType::F32, &[]),
        }
    }

    /// A scalar of `x`'s element type.
    fn number(&mut self, x: ValueId, value: f64) -> ValueId {
        let dtype = self.ty(x).dtype;
        self.graph.constant("c", Tensor::from_f64(dtype, &[], &[value]))
    }

    fn with(&mut self, f: Binary, x: ValueId, value: f64) -> Built {
        let c = self.number(x, value);
        self.add(f, &[x, c])
    }

    fn apply(&mut self, functions: &[Unary], x: ValueId) -> Built {
        functions.iter().try_fold(x, |x, &f| self.add(f, &[x]))
    }

    fn reduced(&mut self, kind: ReduceKind, axes: &[usize], keep_dims: bool, x: ValueId) -> Built {
        self.add(Reduce { kind, axes: axes.to_vec(), keep_dims }, &[x])
    }

    fn reshape(&mut self, x: ValueId, to: impl IntoIterator<Item = Dim>) -> Built {
        self.add(Reshape { to: to.into_iter().collect() }, &[x])
    }

    /// `below` where `x` is below 0, else `x`.
    fn below_zero(&mut self, x: ValueId, below: ValueId) -> Built {
        let negative = self.with(Binary::Less, x, 0.0)?;
        self.add(Select, &[negative, below, x])
    }

    fn unary(&mut self, f: Unary, x: ValueId) -> Result<Option<ValueId>, TypeError> {
        use Binary::{Add, Div, Greater, Mul, Sub};
        let y = match f {
            Unary::Rsqrt => self.apply(&[Unary::Sqrt, Unary::Reciprocal], x)?,
            Unary::Sigmoid => {
                let e = self.apply(&[Unary::Neg, Unary::Exp], x)?;
                let sum = self.with(Add, e, 1.0)?;
                self.apply(&[Unary::Reciprocal], sum)?
            }
            Unary::Silu => {
                let gate = self.add(Unary::Sigmoid, &[x])?;
                self.add(Mul, &[x, gate])?
            }
            Unary::Softplus => {
                let e = self.add(Unary::Exp, &[x])?;
                let sum = self.with(Add, e, 1.0)?;
                self.add(Unary::Log, &[sum])?
            }
            Unary::Mish => {
                let gate = self.apply(&[Unary::Softplus, Unary::Tanh], x)?;
                self.add(Mul, &[x, gate])?
            }
            Unary::Softsign => {
                let size = self.add(Unary::Abs, &[x])?;
                let sum = self.with(Add, size, 1.0)?;
                self.add(Div, &[x, sum])?
            }
            Unary::Gelu => {
                let scaled = self.with(Mul, x, std::f64::consts::FRAC_1_SQRT_2)?;
                let erf = self.add(Unary::Erf, &[scaled])?;
                let gate = self.with(Add, erf, 1.0)?;
                let product = self.add(Mul, &[x, gate])?;
                self.with(Mul, product, 0.5)?
            }
            Unary::GeluTanh => {
                let square = self.add(Mul, &[x, x])?;
                let cube = self.add(Mul, &[square, x])?;
                let small = self.with(Mul, cube, 0.044_715)?;
                let sum = self.add(Add, &[x, small])?;
                let inner = self.with(Mul, sum, (2.0 / std::f64::consts::PI).sqrt())?;
                let tanh = self.add(Unary::Tanh, &[inner])?;
                let gate = self.with(Add, tanh, 1.0)?;
                let product = self.add(Mul, &[x, gate])?;
                self.with(Mul, product, 0.5)?
            }
            Unary::Relu => self.with(Binary::Max, x, 0.0)?,
            Unary::LeakyRelu { alpha } => {
                let below = self.with(Mul, x, alpha.get())?;
                self.below_zero(x, below)?
            }
            Unary::ThresholdedRelu { alpha } => {
                let above = self.with(Greater, x, alpha.get())?;
                let zero = self.number(x, 0.0);
                self.add(Select, &[above, x, zero])?
            }
            Unary::Elu { alpha } => {
                let below = self.exp_m1(x, 1.0, alpha.get())?;
                self.below_zero(x, below)?
            }
            Unary::Celu { alpha } => {
                let below = self.exp_m1(x, alpha.get(), alpha.get())?;
                self.below_zero(x, below)?
            }
            Unary::Selu { alpha, gamma } => {
                let below = self.exp_m1(x, 1.0, alpha.get())?;
                let y = self.below_zero(x, below)?;
                self.with(Mul, y, gamma.get())?
            }
            Unary::HardSigmoid { alpha, beta } => {
                let scaled = self.with(Mul, x, alpha.get())?;
                let sum = self.with(Add, scaled, beta.get())?;
                self.unit(sum)?
            }
            Unary::HardSwish => {
                let scaled = self.with(Div, x, 6.0)?;
                let sum = self.with(Add, scaled, 0.5)?;
                let gate = self.unit(sum)?;
                self.add(Mul, &[x, gate])?
            }
            Unary::IsNan => {
                let equal = self.add(Binary::Equal, &[x, x])?;
                self.add(Unary::Not, &[equal])?
            }
            Unary::Trunc => {
                let (size, sign) =
                    (self.apply(&[Unary::Abs, Unary::Floor], x)?, self.add(Unary::Sign, &[x])?);
                self.add(Mul, &[size, sign])?
            }
            Unary::Neg => {
                let zero = self.number(x, 0.0);
                self.add(Sub, &[zero, x])?
            }
            _ => return Ok(None),
        };
        Ok(Some(y))
    }

    /// `scale * (exp(x / by) - 1)`.
    fn exp_m1(&mut self, x: ValueId, by: f64, scale: f64) -> Built {
        let divided = self.with(Binary::Div, x, by)?;
        let e = self.add(Unary::Exp, &[divided])?;
        let difference = self.with(Binary::Sub, e, 1.0)?;
        self.with(Binary::Mul, difference, scale)
    }

    /// `x` within 0 and 1.
    fn unit(&mut self, x: ValueId) -> Built {
        self.add(Clip { min: Some(Real::new(0.0)), max: Some(Real::new(1.0)) }, &[x])
    }

    fn prelu(&mut self, x: ValueId, slope: ValueId) -> Built {
        let below = self.add(Binary::Mul, &[x, slope])?;
        self.below_zero(x, below)
    }

    fn clip(&mut self, op: Clip, x: ValueId) -> Built {
        let low = op.min.map_or(Ok(x), |min| self.with(Binary::Max, x, min.get()))?;
        op.max.map_or(Ok(low), |max| self.with(Binary::Min, low, max.get()))
    }

    fn reduce(&mut self, op: &Reduce, x: ValueId) -> Result<Option<ValueId>, TypeError> {
        let sum = |b: &mut Builder, x| b.reduced(ReduceKind::Sum, &op.axes, op.keep_dims, x);
        Ok(Some(match op.kind {
            ReduceKind::L1 => {
                let size = self.add(Unary::Abs, &[x])?;
                sum(self, size)?
            }
            ReduceKind::SumSquare | ReduceKind::L2 => {
                let square = self.add(Binary::Mul, &[x, x])?;
                let sum = sum(self, square)?;
                // Integers have no square root of their own.
                match (op.kind, self.ty(x).dtype.is_float()) {
                    (ReduceKind::SumSquare, _) => sum,
                    (_, true) => self.add(Unary::Sqrt, &[sum])?,
                    (_, false) => return Ok(None),
                }
            }
            ReduceKind::LogSum => {
                let sum = sum(self, x)?;
                self.add(Unary::Log, &[sum])?
            }
            ReduceKind::LogSumExp => {
                let max = self.reduced(ReduceKind::Max, &op.axes, true, x)?;
                let shifted = self.add(Binary::Sub, &[x, max])?;
                let e = self.add(Unary::Exp, &[shifted])?;
                let total = self.reduced(ReduceKind::Sum, &op.axes, true, e)?;
                let log = self.add(Unary::Log, &[total])?;
                let y = self.add(Binary::Add, &[log, max])?;
                if op.keep_dims { y } else { self.reduced(ReduceKind::Sum, &op.axes, false, y)? }
            }
            ReduceKind::Mean => {
                let shape = self.ty(x).shape;
                let count: Option<i64> = op.axes.iter().map(|&a| shape[a].as_const()).product();
                let Some(count) = count else { return Ok(None) };
                let total = sum(self, x)?;
                self.with(Binary::Div, total, count as f64)?
            }
            _ => return Ok(None),
        }))
    }

    fn softmax(&mut self, op: Softmax, x: ValueId) -> Built {
        let max = self.reduced(ReduceKind::Max, &[op.axis], true, x)?;
        let shifted = self.add(Binary::Sub, &[x, max])?;
        let e = self.add(Unary::Exp, &[shifted])?;
        let sum = self.reduced(ReduceKind::Sum, &[op.axis], true, e)?;
        if !op.log {
            return self.add(Binary::Div, &[e, sum]);
        }
        let log = self.add(Unary::Log, &[sum])?;
        self.add(Binary::Sub, &[shifted, log])
    }

    /// `x` as `[c, 1, ..]`, so that it meets dim 1 of a tensor of this rank.
    fn per_channel(&mut self, x: ValueId, rank: usize) -> Built {
        let channels = self.ty(x).shape[0].clone();
        self.reshape(x, std::iter::once(channels).chain((2..rank).map(|_| Dim::from(1))))
    }

    fn inverse_deviation(&mut self, variance: ValueId, epsilon: Real) -> Built {
        let sum = self.with(Binary::Add, variance, epsilon.get())?;
        self.apply(&[Unary::Sqrt, Unary::Reciprocal], sum)
    }

    fn batch_norm(&mut self, op: BatchNorm, x: ValueId, of: [ValueId; 4]) -> Built {
        let rank = self.ty(x).shape.len();
        let inverse = self.inverse_deviation(of[3], op.epsilon)?;
        let factor = self.add(Binary::Mul, &[of[0], inverse])?;
        let (factor, bias) = (self.per_channel(factor, rank)?, self.per_channel(of[1], rank)?);
        let mean = self.per_channel(of[2], rank)?;
        let centred = self.add(Binary::Sub, &[x, mean])?;
        let scaled = self.add(Binary::Mul, &[centred, factor])?;
        self.add(Binary::Add, &[scaled, bias])
    }

    /// `x` normalised over `axes`, with the mean and the inverse deviation; these are computed in `f32` at least, for
    /// narrower types hold neither squares of small numbers nor usual epsilons.
    fn normalised(
        &mut self,
        x: ValueId,
        axes: &[usize],
        epsilon: Real,
        rms: bool,
    ) -> Result<[ValueId; 3], TypeError> {
        let dtype = self.ty(x).dtype;
        let x = self.cast(x, if dtype == DType::F64 { DType::F64 } else { DType::F32 })?;
        let mean = self.reduced(ReduceKind::Mean, axes, true, x)?;
        let centred = if rms { x } else { self.add(Binary::Sub, &[x, mean])? };
        let squares = self.add(Binary::Mul, &[centred, centred])?;
        let variance = self.reduced(ReduceKind::Mean, axes, true, squares)?;
        let inverse = self.inverse_deviation(variance, epsilon)?;
        let y = self.add(Binary::Mul, &[centred, inverse])?;
        Ok([self.cast(y, dtype)?, mean, inverse])
    }

    fn affine(&mut self, y: ValueId, scale: Option<ValueId>, bias: Option<ValueId>) -> Built {
        let y = scale.map_or(Ok(y), |s| self.add(Binary::Mul, &[y, s]))?;
        bias.map_or(Ok(y), |b| self.add(Binary::Add, &[y, b]))
    }

    fn layer_norm(
        &mut self,
        op: LayerNorm,
        x: ValueId,
        scale: Option<ValueId>,
        bias: Option<ValueId>,
    ) -> Result<Vec<ValueId>, TypeError> {
        let axes: Vec<usize> = (op.axis..self.ty(x).shape.len()).collect();
        let [y, mean, inverse] = self.normalised(x, &axes, op.epsilon, op.rms)?;
        let mut all = vec![self.affine(y, scale, bias)?];
        if op.statistics {
            if !op.rms {
                all.push(mean);
            }
            all.push(inverse);
        }
        Ok(all)
    }

    fn group_norm(
        &mut self,
        op: GroupNorm,
        x: ValueId,
        scale: Option<ValueId>,
        bias: Option<ValueId>,
    ) -> Built {
        let shape = self.ty(x).shape;
        let rest = shape[1..].iter().fold(Dim::from(1), |p, d| &p * d);
        let groups = Dim::from(op.groups);
        let grouped =
            self.reshape(x, [shape[0].clone(), groups.clone(), rest.floor_div(&groups)])?;
        let [y, ..] = self.normalised(grouped, &[2], op.epsilon, false)?;
        let y = self.reshape(y, shape.iter().cloned())?;
        let rank = shape.len();
        let scale = scale.map(|s| self.per_channel(s, rank)).transpose()?;
        let bias = bias.map(|s| self.per_channel(s, rank)).transpose()?;
        self.affine(y, scale, bias)
    }

    fn lrn(&mut self, op: Lrn, x: ValueId) -> Built {
        let shape = self.ty(x).shape;
        let squares = self.add(Binary::Mul, &[x, x])?;
        // A window over channels is an average over a dim of its own, padding counted as 0.
        let rest = shape[2..].iter().fold(Dim::from(1), |p, d| &p * d);
        let flat = [shape[0].clone(), Dim::from(1), shape[1].clone(), rest];
        let flat = self.reshape(squares, flat)?;
        let before = (op.size - 1) / 2;
        let window = Pool {
            kind: PoolKind::Average { count_include_pad: true },
            kernel: vec![op.size, 1],
            strides: vec![1, 1],
            dilations: vec![1, 1],
            pads: vec![(before, op.size - 1 - before), (0, 0)],
            ceil_mode: false,
        };
        let mean = self.add(window, &[flat])?;
        let mean = self.reshape(mean, shape.iter().cloned())?;
        let scaled = self.with(Binary::Mul, mean, op.alpha.get())?;
        let base = self.with(Binary::Add, scaled, op.bias.get())?;
        let divisor = self.with(Binary::Pow, base, op.beta.get())?;
        self.add(Binary::Div, &[x, divisor])
    }

    fn attention(
        &mut self,
        op: Attention,
        q: ValueId,
        k: ValueId,
        v: ValueId,
        mask: Option<ValueId>,
    ) -> Built {
        let (qs, ks) = (self.ty(q).shape, self.ty(k).shape);
        let Some(depth) = qs[3].as_const() else {
            let expected = "the depth of a head as a number".to_owned();
            return Err(TypeError::Attribute { name: "scale", expected, got: qs[3].to_string() });
        };
        let scale = op.scale.map_or(1.0 / (depth as f64).sqrt(), Real::get);
        let share = qs[1].floor_div(&ks[1]);
        let (k, v) = (self.repeat_heads(k, &share)?, self.repeat_heads(v, &share)?);
        let product = MatMul { transpose_lhs: false, transpose_rhs: true };
        let scores = self.add(product, &[q, k])?;
        let mut scores = self.with(Binary::Mul, scores, scale)?;
        let hidden = self.number(q, f64::NEG_INFINITY);
        let mut bias = None;
        if let Some(mask) = mask {
            bias = Some(match self.ty(mask).dtype {
                DType::Bool => {
                    let zero = self.number(q, 0.0);
                    self.add(Select, &[mask, zero, hidden])?
                }
                _ => {
                    let to = self.ty(q).dtype;
                    self.add(Cast::to(to), &[mask])?
                }
            });
        }
        if op.causal {
            let iota = |start: Dim, len: Dim| Iota { dtype: DType::I64, start, len, step: 1 };
            let rows = self.add(iota(&ks[2] - &qs[2], qs[2].clone()), &[])?;
            let rows = self.reshape(rows, [qs[2].clone(), Dim::from(1)])?;
            let columns = self.add(iota(Dim::from(0), ks[2].clone()), &[])?;
            let seen = self.add(Binary::LessEqual, &[columns, rows])?;
            let shown = match bias {
                Some(bias) => bias,
                None => self.number(q, 0.0),
            };
            bias = Some(self.add(Select, &[seen, shown, hidden])?);
        }
        let Some(bias) = bias else {
            let weights = self.add(Softmax { axis: 3, log: false }, &[scores])?;
            return self.add(MatMul::default(), &[weights, v]);
        };
        scores = self.add(Binary::Add, &[scores, bias])?;
        let mut weights = self.add(Softmax { axis: 3, log: false }, &[scores])?;
        let all_see = (&ks[2] - &qs[2]).as_const().is_some_and(|more| more >= 0);
        if mask.is_some() || !all_see {
            // A query that sees no key has no weights.
            let last: Vec<usize> = self.ty(bias).shape.len().checked_sub(1).into_iter().collect();
            let best = self.reduced(ReduceKind::Max, &last, true, bias)?;
            let blind = self.add(Binary::Equal, &[best, hidden])?;
            let zero = self.number(q, 0.0);
            weights = self.add(Select, &[blind, zero, weights])?;
        }
        self.add(MatMul::default(), &[weights, v])
    }

    /// Repeats every head `share` times in place.
    fn repeat_heads(&mut self, x: ValueId, share: &Dim) -> Built {
        if share.as_const() == Some(1) {
            return Ok(x);
        }
        let s = self.ty(x).shape;
        let (b, h) = (s[0].clone(), s[1].clone());
        let apart = [b.clone(), h.clone(), Dim::from(1), s[2].clone(), s[3].clone()];
        let apart = self.reshape(x, apart)?;
        let to = Shape(vec![b.clone(), h.clone(), share.clone(), s[2].clone(), s[3].clone()]);
        let repeated = self.add(Expand { to }, &[apart])?;
        self.reshape(repeated, [b, &h * share, s[2].clone(), s[3].clone()])
    }

    fn cast(&mut self, x: ValueId, to: DType) -> Built {
        if self.ty(x).dtype == to { Ok(x) } else { self.add(Cast::to(to), &[x]) }
    }

    /// A scale or a zero point for elements of `x`, so that it broadcasts to them.
    fn spread(&mut self, v: ValueId, x: ValueId, axis: usize, block: i64) -> Built {
        let (own, shape) = (self.ty(v).shape, self.ty(x).shape);
        if own.is_empty() {
            return Ok(v);
        }
        if block == 0 {
            let after = (axis + 1..shape.len()).map(|_| Dim::from(1));
            return self.reshape(v, std::iter::once(own[0].clone()).chain(after));
        }
        let mut apart = own.0.clone();
        apart.insert(axis + 1, Dim::from(1));
        let v = self.reshape(v, apart.clone())?;
        apart[axis + 1] = Dim::from(block);
        let v = self.add(Expand { to: Shape(apart) }, &[v])?;
        let mut whole = own.0;
        whole[axis] = &whole[axis] * &Dim::from(block);
        let v = self.reshape(v, whole)?;
        // The last block may be shorter.
        let ends = vec![shape[axis].clone()];
        self.add(Slice { axes: vec![axis], starts: vec![Dim::from(0)], ends, steps: vec![1] }, &[v])
    }

    fn quantize(
        &mut self,
        op: Quantize,
        x: ValueId,
        scale: ValueId,
        zero: Option<ValueId>,
    ) -> Built {
        let scale = self.spread(scale, x, op.axis, op.block)?;
        let (numerator, scale) = (self.cast(x, op.precision)?, self.cast(scale, op.precision)?);
        let mut y = self.add(Binary::Div, &[numerator, scale])?;
        if op.to.is_int() {
            y = self.add(Unary::Round, &[y])?;
        }
        if let Some(zero) = zero {
            let wide = if op.precision.bits() < 32 { DType::F32 } else { op.precision };
            let zero = self.spread(zero, x, op.axis, op.block)?;
            let (y_wide, zero) = (self.cast(y, wide)?, self.cast(zero, wide)?);
            y = self.add(Binary::Add, &[y_wide, zero])?;
        }
        self.add(Cast { saturate: op.saturate || op.to.is_int(), ..Cast::to(op.to) }, &[y])
    }

    fn dequantize(
        &mut self,
        op: Dequantize,
        x: ValueId,
        scale: ValueId,
        zero: Option<ValueId>,
    ) -> Built {
        let wide = if op.to.bits() < 32 { DType::F32 } else { op.to };
        let mut y = self.cast(x, wide)?;
        if let Some(zero) = zero {
            let zero = self.spread(zero, x, op.axis, op.block)?;
            let zero = self.cast(zero, wide)?;
            y = self.add(Binary::Sub, &[y, zero])?;
        }
        let scale = self.spread(scale, x, op.axis, op.block)?;
        let scale = self.cast(scale, wide)?;
        let y = self.add(Binary::Mul, &[y, scale])?;
        self.cast(y, op.to)
    }

    fn split(&mut self, op: &Split, x: ValueId) -> Result<Vec<ValueId>, TypeError> {
        let (mut start, mut all) = (Dim::from(0), Vec::new());
        for size in &op.sizes {
            let end = &start + size;
            let slice = Slice {
                axes: vec![op.axis],
                starts: vec![start],
                ends: vec![end.clone()],
                steps: vec![1],
            };
            all.push(self.add(slice, &[x])?);
            start = end;
        }
        Ok(all)
    }

    fn tile(&mut self, op: &Tile, x: ValueId) -> Built {
        let shape = self.ty(x).shape;
        let one = Dim::from(1);
        let apart = self.reshape(x, shape.iter().flat_map(|d| [one.clone(), d.clone()]))?;
        let to = op.repeats.iter().zip(shape.iter()).flat_map(|(r, d)| [r.clone(), d.clone()]);
        let repeated = self.add(Expand { to: to.collect() }, &[apart])?;
        self.reshape(repeated, op.repeats.iter().zip(shape.iter()).map(|(r, d)| r * d))
    }

    fn depth_to_space(&mut self, op: DepthToSpace, x: ValueId) -> Built {
        let (s, b) = (self.ty(x).shape, Dim::from(op.block));
        let c = s[1].floor_div(&(&b * &b));
        let (apart, perm) = match op.order {
            DepthOrder::BlocksFirst => ([b.clone(), b.clone(), c.clone()], vec![0, 3, 4, 1, 5, 2]),
            DepthOrder::ChannelsFirst => {
                ([c.clone(), b.clone(), b.clone()], vec![0, 1, 4, 2, 5, 3])
            }
        };
        let dims = std::iter::once(s[0].clone()).chain(apart).chain([s[2].clone(), s[3].clone()]);
        let apart = self.reshape(x, dims)?;
        let turned = self.add(Transpose { perm }, &[apart])?;
        self.reshape(turned, [s[0].clone(), c, &s[2] * &b, &s[3] * &b])
    }

    fn space_to_depth(&mut self, op: SpaceToDepth, x: ValueId) -> Built {
        let (s, b) = (self.ty(x).shape, Dim::from(op.block));
        let (h, w) = (s[2].floor_div(&b), s[3].floor_div(&b));
        let apart = [s[0].clone(), s[1].clone(), h.clone(), b.clone(), w.clone(), b.clone()];
        let apart = self.reshape(x, apart)?;
        let turned = self.add(Transpose { perm: vec![0, 3, 5, 1, 2, 4] }, &[apart])?;
        self.reshape(turned, [s[0].clone(), &s[1] * &(&b * &b), h, w])
    }
}
