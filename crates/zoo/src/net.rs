//! A graph under construction, layer by layer.

use bricolage_ir::{
    Graph, Op, Real, TypeError, ValueId,
    ops::{
        BatchNorm, Binary, Clip, Concat, Conv, ConvTranspose, Gather, LayerNorm, MatMul, Pool,
        PoolKind, Reduce, ReduceKind, Reshape, Slice, Transpose, Unary,
    },
    origin,
};
use bricolage_tensor::{DType, Dim, Rng, Shape, Storage, Tensor, TensorType};

/// The result of adding a layer.
pub(crate) type Layer = Result<ValueId, TypeError>;

pub(crate) struct Net {
    pub(crate) graph: Graph,
    pub(crate) batch: i64,
    seed: u64,
}

impl Net {
    pub(crate) fn new(name: &str, batch: i64, seed: u64) -> Net {
        Net { graph: Graph::new(name), batch, seed }
    }

    /// Values spread evenly over `low..high`. They depend on the name and the seed alone.
    pub(crate) fn uniform(&mut self, name: &str, dims: &[i64], low: f64, high: f64) -> ValueId {
        // FNV-1a (Fowler, Noll and Vo).
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| {
            (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        let mut rng = Rng::new(hash ^ self.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let count = dims.iter().product::<i64>() as usize;
        let bytes = Storage::build(count * 4, |to| {
            for slot in to.as_chunks_mut::<4>().0 {
                *slot = ((low + (high - low) * rng.uniform()) as f32).to_le_bytes();
            }
        });
        let tensor = Tensor::new(DType::F32, dims, bytes);
        self.graph.constant(name, tensor.expect("four bytes were made per element"))
    }

    /// Weights of variance `gain / inputs`.
    pub(crate) fn weight(&mut self, name: &str, dims: &[i64], inputs: i64, gain: f64) -> ValueId {
        let bound = (3.0 * gain / inputs as f64).sqrt();
        self.uniform(name, dims, -bound, bound)
    }

    pub(crate) fn scalar(&mut self, name: &str, value: f32) -> ValueId {
        self.graph.constant(name, Tensor::of(&[], &[value]))
    }

    /// What the network is given, `[batch, dims ..]`.
    pub(crate) fn input(&mut self, name: &str, dtype: DType, dims: &[i64]) -> ValueId {
        let dims = [&[self.batch], dims].concat();
        self.graph.input(name, TensorType::fixed(dtype, &dims))
    }

    /// The image that the network is given, `[batch, channels, size, size]`.
    pub(crate) fn image(&mut self, channels: i64, size: i64) -> ValueId {
        self.input("input", DType::F32, &[channels, size, size])
    }

    pub(crate) fn output(&mut self, v: ValueId, name: &str) {
        self.graph.rename(v, name);
        self.graph.outputs.push(v);
    }

    /// Adds a node called `/name`.
    pub(crate) fn add(&mut self, name: &str, op: impl Into<Op>, inputs: &[ValueId]) -> Layer {
        self.graph.add1(op, inputs, origin(&format!("/{name}")))
    }

    pub(crate) fn dims(&self, v: ValueId) -> Vec<i64> {
        let shape = self.graph.fact(v).ty.as_tensor().and_then(|t| t.shape.as_fixed());
        shape.expect("every size is a number, since the batch is")
    }

    /// A convolution over windows of equal sides that keeps sizes at stride 1, with a gain of 2 for
    /// a rectifier after it.
    pub(crate) fn conv(
        &mut self,
        name: &str,
        x: ValueId,
        channels: i64,
        window: [i64; 3],
        bias: bool,
    ) -> Layer {
        let (weight, op) = self.window(x, channels, window);
        self.conv_with(name, x, &weight, op, 2.0, bias)
    }

    /// Dims of the weights and the op for windows of equal sides that keep sizes at stride 1.
    pub(crate) fn window(
        &self,
        x: ValueId,
        channels: i64,
        [kernel, stride, groups]: [i64; 3],
    ) -> (Vec<i64>, Conv) {
        let dims = self.dims(x);
        let spatial = dims.len() - 2;
        let weight = [vec![channels, dims[1] / groups], vec![kernel; spatial]].concat();
        let (strides, pads) = (vec![stride; spatial], vec![(kernel / 2, kernel / 2); spatial]);
        (weight, Conv { strides, pads, groups, ..Conv::plain(spatial) })
    }

    /// A convolution with weights of these dims.
    pub(crate) fn conv_with(
        &mut self,
        name: &str,
        x: ValueId,
        weight: &[i64],
        op: Conv,
        gain: f64,
        bias: bool,
    ) -> Layer {
        let inputs = weight[1..].iter().product();
        let mut operands = vec![x, self.weight(&format!("{name}.weight"), weight, inputs, gain)];
        if bias {
            operands.push(self.uniform(&format!("{name}.bias"), &weight[..1], -0.1, 0.1));
        }
        self.add(&format!("{name}/Conv"), op, &operands)
    }

    /// A transposed convolution over square windows.
    pub(crate) fn conv_transpose(
        &mut self,
        name: &str,
        x: ValueId,
        channels: i64,
        [kernel, stride, pad]: [i64; 3],
        gain: f64,
        bias: bool,
    ) -> Layer {
        let dims = self.dims(x);
        // Each result is a sum over the positions whose windows reach it.
        let reach = |size: i64| size.min((kernel + stride - 1) / stride);
        let inputs = dims[1] * reach(dims[2]) * reach(dims[3]);
        let weight = [dims[1], channels, kernel, kernel];
        let mut operands = vec![x, self.weight(&format!("{name}.weight"), &weight, inputs, gain)];
        if bias {
            operands.push(self.uniform(&format!("{name}.bias"), &[channels], -0.1, 0.1));
        }
        let op = ConvTranspose {
            strides: vec![stride; 2],
            dilations: vec![1; 2],
            pads: vec![(pad, pad); 2],
            output_padding: vec![0; 2],
            groups: 1,
        };
        self.add(&format!("{name}/ConvTranspose"), op, &operands)
    }

    /// Normalisation by running statistics; `gain` is the middle of the scales.
    pub(crate) fn batch_norm(&mut self, name: &str, x: ValueId, gain: f64) -> Layer {
        self.batch_norm_with(name, x, gain, 1e-5)
    }

    pub(crate) fn batch_norm_with(
        &mut self,
        name: &str,
        x: ValueId,
        gain: f64,
        epsilon: f64,
    ) -> Layer {
        let c = [self.dims(x)[1]];
        let scale = self.uniform(&format!("{name}.weight"), &c, 0.8 * gain, 1.2 * gain);
        let bias = self.uniform(&format!("{name}.bias"), &c, -0.2, 0.2);
        let mean = self.uniform(&format!("{name}.running_mean"), &c, -0.2, 0.2);
        let variance = self.uniform(&format!("{name}.running_var"), &c, 0.7, 1.3);
        let op = BatchNorm { epsilon: Real::new(epsilon) };
        self.add(&format!("{name}/BatchNormalization"), op, &[x, scale, bias, mean, variance])
    }

    pub(crate) fn relu(&mut self, name: &str, x: ValueId) -> Layer {
        self.add(&format!("{name}/Relu"), Unary::Relu, &[x])
    }

    pub(crate) fn relu6(&mut self, name: &str, x: ValueId) -> Layer {
        let op = Clip { min: Some(Real::new(0.0)), max: Some(Real::new(6.0)) };
        self.add(&format!("{name}/Clip"), op, &[x])
    }

    pub(crate) fn silu(&mut self, name: &str, x: ValueId) -> Layer {
        let gate = self.add(&format!("{name}/Sigmoid"), Unary::Sigmoid, &[x])?;
        self.add(&format!("{name}/Mul"), Binary::Mul, &[x, gate])
    }

    pub(crate) fn sum(&mut self, name: &str, a: ValueId, b: ValueId) -> Layer {
        self.add(&format!("{name}/Add"), Binary::Add, &[a, b])
    }

    pub(crate) fn max_pool(
        &mut self,
        name: &str,
        x: ValueId,
        [kernel, stride, pad]: [i64; 3],
    ) -> Layer {
        let pads = vec![(pad, pad); self.dims(x).len() - 2];
        let kind = PoolKind::Max { indices: false };
        self.pool(&format!("{name}/MaxPool"), kind, x, [kernel, stride], pads)
    }

    /// The mean over square windows, of elements inside the operand.
    pub(crate) fn average_pool(
        &mut self,
        name: &str,
        x: ValueId,
        [kernel, stride, pad]: [i64; 3],
    ) -> Layer {
        let pads = vec![(pad, pad); self.dims(x).len() - 2];
        let kind = PoolKind::Average { count_include_pad: false };
        self.pool(&format!("{name}/AveragePool"), kind, x, [kernel, stride], pads)
    }

    /// Pooling over windows of equal sides.
    pub(crate) fn pool(
        &mut self,
        name: &str,
        kind: PoolKind,
        x: ValueId,
        [kernel, stride]: [i64; 2],
        pads: Vec<(i64, i64)>,
    ) -> Layer {
        let spatial = pads.len();
        let op = Pool {
            kind,
            kernel: vec![kernel; spatial],
            strides: vec![stride; spatial],
            dilations: vec![1; spatial],
            pads,
            ceil_mode: false,
        };
        self.add(name, op, &[x])
    }

    /// The mean of every channel, `[batch, channels, 1 ..]`.
    pub(crate) fn global_average(&mut self, name: &str, x: ValueId) -> Layer {
        let axes = (2..self.dims(x).len()).collect();
        let op = Reduce { kind: ReduceKind::Mean, axes, keep_dims: true };
        self.add(&format!("{name}/GlobalAveragePool"), op, &[x])
    }

    pub(crate) fn concat(&mut self, name: &str, parts: &[ValueId], axis: usize) -> Layer {
        self.add(&format!("{name}/Concat"), Concat { axis }, parts)
    }

    pub(crate) fn transpose(&mut self, name: &str, x: ValueId, perm: &[usize]) -> Layer {
        self.add(&format!("{name}/Transpose"), Transpose { perm: perm.to_vec() }, &[x])
    }

    /// Every `step`-th position of a range of one dim.
    pub(crate) fn slice(
        &mut self,
        name: &str,
        x: ValueId,
        axis: usize,
        [start, end, step]: [i64; 3],
    ) -> Layer {
        let op = Slice {
            axes: vec![axis],
            starts: vec![Dim::from(start)],
            ends: vec![Dim::from(end)],
            steps: vec![step],
        };
        self.add(&format!("{name}/Slice"), op, &[x])
    }

    pub(crate) fn reshape(&mut self, name: &str, x: ValueId, dims: &[i64]) -> Layer {
        self.add(&format!("{name}/Reshape"), Reshape { to: Shape::fixed(dims) }, &[x])
    }

    pub(crate) fn flatten(&mut self, name: &str, x: ValueId) -> Layer {
        let dims = self.dims(x);
        let rest: i64 = dims[1..].iter().product();
        let to: Shape = [dims[0], rest].into_iter().map(Dim::from).collect();
        self.add(&format!("{name}/Flatten"), Reshape { to }, &[x])
    }

    /// A dense layer whose weights lie as `[outputs, inputs]`.
    pub(crate) fn gemm(&mut self, name: &str, x: ValueId, outputs: i64, gain: f64) -> Layer {
        let inputs = self.dims(x)[1];
        let w = self.weight(&format!("{name}.weight"), &[outputs, inputs], inputs, gain);
        let bias = self.uniform(&format!("{name}.bias"), &[outputs], -0.1, 0.1);
        let op = MatMul { transpose_lhs: false, transpose_rhs: true };
        let product = self.add(&format!("{name}/Gemm"), op, &[x, w])?;
        self.add(&format!("{name}/Gemm"), Binary::Add, &[product, bias])
    }

    /// A dense layer over the last dim whose weights lie as `[inputs, outputs]`.
    pub(crate) fn dense(&mut self, name: &str, x: ValueId, outputs: i64) -> Layer {
        let product = self.matmul(name, x, outputs)?;
        let bias = self.uniform(&format!("{name}.bias"), &[outputs], -0.1, 0.1);
        self.add(&format!("{name}/Add"), Binary::Add, &[product, bias])
    }

    /// The same without a bias.
    pub(crate) fn matmul(&mut self, name: &str, x: ValueId, outputs: i64) -> Layer {
        let inputs = self.dims(x).last().copied().unwrap_or(1);
        let w = self.weight(&format!("{name}.weight"), &[inputs, outputs], inputs, 1.0);
        self.add(&format!("{name}/MatMul"), MatMul::default(), &[x, w])
    }

    /// `x * (1 + erf(x / sqrt(2))) / 2`.
    pub(crate) fn gelu(&mut self, name: &str, x: ValueId) -> Layer {
        let root = self.scalar(&format!("{name}.root"), std::f32::consts::SQRT_2);
        let scaled = self.add(&format!("{name}/Div"), Binary::Div, &[x, root])?;
        let erf = self.add(&format!("{name}/Erf"), Unary::Erf, &[scaled])?;
        let one = self.scalar(&format!("{name}.one"), 1.0);
        let sum = self.add(&format!("{name}/Add"), Binary::Add, &[erf, one])?;
        let product = self.add(&format!("{name}/Mul"), Binary::Mul, &[x, sum])?;
        let half = self.scalar(&format!("{name}.half"), 0.5);
        self.add(&format!("{name}/Mul_1"), Binary::Mul, &[product, half])
    }

    pub(crate) fn layer_norm(&mut self, name: &str, x: ValueId, epsilon: f64) -> Layer {
        let dims = self.dims(x);
        let size = [dims[dims.len() - 1]];
        let scale = self.uniform(&format!("{name}.weight"), &size, 0.9, 1.1);
        let bias = self.uniform(&format!("{name}.bias"), &size, -0.1, 0.1);
        let op = LayerNorm {
            axis: dims.len() - 1,
            epsilon: Real::new(epsilon),
            rms: false,
            statistics: false,
        };
        self.add(&format!("{name}/LayerNormalization"), op, &[x, scale, bias])
    }

    /// Rows of a table of `rows` vectors of `size`.
    pub(crate) fn embedding(&mut self, name: &str, [rows, size]: [i64; 2], at: ValueId) -> Layer {
        let table = self.uniform(&format!("{name}.weight"), &[rows, size], -0.1, 0.1);
        self.add(&format!("{name}/Gather"), Gather { axis: 0 }, &[table, at])
    }
}
