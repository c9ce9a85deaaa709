//! Reductions of a plain `f32` tensor over any set of axes.

use crate::{
    Isa, NativeKernel, Packed, Spec, SpecError,
    iterate::{MAX_DIMS, Nest},
    math,
    simd::{Body, LANES, Simd},
    spec::{no_constants, recipe},
    view::{Shared, Want, check, dense, spread},
};
use bricolage_runtime::{Dims, Kernel, Needs, Recipe, Run, RunError};
use bricolage_tensor::{DType, Format, Tensor};
use serde::{Deserialize, Serialize};

/// A reduction of a plain dense tensor.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReduceSpec {
    /// Dims of the input.
    pub dims: Vec<i64>,
    /// Axes that are reduced, counted from the first dim.
    pub axes: Vec<usize>,
    /// Reduced dims stay as 1.
    pub keep_dims: bool,
    /// What is computed.
    pub op: ReduceOp,
}

/// What a reduction computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum ReduceOp {
    Sum,
    Mean,
    Max,
    Min,
    Prod,
    /// Sum of magnitudes.
    L1,
    /// Root of the sum of squares.
    L2,
    SumSquare,
    /// Logarithm of the sum.
    LogSum,
}

impl ReduceSpec {
    /// Dims of the output.
    pub fn output_dims(&self) -> Vec<i64> {
        let dim = |(i, &d): (usize, &i64)| match (self.axes.contains(&i), self.keep_dims) {
            (false, _) => Some(d),
            (true, true) => Some(1),
            (true, false) => None,
        };
        self.dims.iter().enumerate().filter_map(dim).collect()
    }
}

/// A kernel for a [`ReduceSpec`].
pub struct Reduce {
    spec: ReduceSpec,
    isa: Isa,
    name: String,
    output: Vec<i64>,
    /// Kept dims, with strides in input and output; reduced dims, with strides in the input.
    kept: Nest,
    reduced: Nest,
    /// The innermost dim that has a length is reduced.
    rows: bool,
    count: usize,
}

impl Reduce {
    pub(crate) fn new(spec: ReduceSpec, isa: Isa) -> Result<Reduce, SpecError> {
        let fail = |what: String| Err(SpecError::Unsupported { kind: "Reduce", what });
        let rank = spec.dims.len();
        if rank > MAX_DIMS
            || spec.dims.iter().any(|&d| d < 0)
            || spec.axes.iter().any(|&a| a >= rank)
        {
            return fail(format!(
                "needs axes of the dims, found {:?} of {:?}",
                spec.axes, spec.dims
            ));
        }
        let mut kept = (Vec::new(), [[0usize; MAX_DIMS]; 2]);
        let mut reduced = (Vec::new(), [[0usize; MAX_DIMS]; 1]);
        let output = spec.output_dims();
        let (mut stride, mut out_stride) = (1usize, output.iter().product::<i64>() as usize);
        let mut strides = vec![0; rank];
        for d in (0..rank).rev() {
            strides[d] = stride;
            stride *= spec.dims[d] as usize;
        }
        for d in 0..rank {
            let extent = spec.dims[d] as usize;
            if spec.axes.contains(&d) {
                reduced.1[0][reduced.0.len()] = strides[d];
                reduced.0.push(extent);
            } else {
                out_stride = out_stride.checked_div(extent).unwrap_or(0);
                kept.1[0][kept.0.len()] = strides[d];
                kept.1[1][kept.0.len()] = out_stride;
                kept.0.push(extent);
            }
        }
        let innermost = (0..rank).rev().find(|&d| spec.dims[d] != 1);
        let count: usize = reduced.0.iter().product();
        if count == 0 && matches!(spec.op, ReduceOp::Max | ReduceOp::Min | ReduceOp::Mean) {
            return fail(format!("has no value for {:?} over no elements", spec.op));
        }
        Ok(Reduce {
            name: format!("{}-f32-reduce", isa.name()),
            output,
            kept: Nest::new(&kept.0, &kept.1),
            reduced: Nest::new(&reduced.0, &reduced.1),
            rows: innermost.is_none_or(|d| spec.axes.contains(&d)),
            count,
            spec,
            isa,
        })
    }
}

/// One or more accumulators' worth of a reduction's inner step.
#[inline(always)]
unsafe fn start<S: Simd>(op: ReduceOp) -> S::V {
    S::splat(match op {
        ReduceOp::Max => f32::NEG_INFINITY,
        ReduceOp::Min => f32::INFINITY,
        ReduceOp::Prod => 1.0,
        _ => 0.0,
    })
}

#[inline(always)]
unsafe fn step<S: Simd>(op: ReduceOp, acc: S::V, x: S::V) -> S::V {
    match op {
        ReduceOp::Max => S::select(S::nan(acc), acc, S::max(acc, x)),
        ReduceOp::Min => S::select(S::nan(acc), acc, S::min(acc, x)),
        ReduceOp::Prod => S::mul(acc, x),
        ReduceOp::L1 => S::add(acc, math::abs::<S>(x)),
        ReduceOp::L2 | ReduceOp::SumSquare => S::fma(x, x, acc),
        _ => S::add(acc, x),
    }
}

/// As [`step`], for a partial result instead of an element.
#[inline(always)]
unsafe fn join<S: Simd>(op: ReduceOp, a: S::V, b: S::V) -> S::V {
    match op {
        ReduceOp::L1 | ReduceOp::L2 | ReduceOp::SumSquare => S::add(a, b),
        _ => step::<S>(op, a, b),
    }
}

#[inline(always)]
unsafe fn end<S: Simd>(op: ReduceOp, acc: S::V, count: usize) -> S::V {
    match op {
        ReduceOp::Mean => S::div(acc, S::splat(count as f32)),
        ReduceOp::L2 => S::sqrt(acc),
        ReduceOp::LogSum => math::log::<S, 1>([acc])[0],
        _ => acc,
    }
}

/// Output elements `from..to` of row `row` of the kept dims.
struct Part<'a> {
    of: &'a Reduce,
    x: *const f32,
    y: *mut f32,
    row: usize,
    from: usize,
    to: usize,
}

impl Body for Part<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        // A copy of the body for each operation keeps the choice out of the loops.
        match self.of.spec.op {
            ReduceOp::Max => self.go::<S>(ReduceOp::Max),
            ReduceOp::Min => self.go::<S>(ReduceOp::Min),
            ReduceOp::Prod => self.go::<S>(ReduceOp::Prod),
            ReduceOp::L1 => self.go::<S>(ReduceOp::L1),
            ReduceOp::L2 | ReduceOp::SumSquare => self.go::<S>(ReduceOp::SumSquare),
            ReduceOp::Sum | ReduceOp::Mean | ReduceOp::LogSum => self.go::<S>(ReduceOp::Sum),
        }
    }
}

impl Part<'_> {
    #[inline(always)]
    unsafe fn go<S: Simd>(&self, op: ReduceOp) {
        let of = self.of;
        let (_, in_stride) = of.kept.inner_strides(0);
        let (_, out_stride) = of.kept.inner_strides(1);
        let x = self.x.add(of.kept.offset(0, self.row));
        let y = self.y.add(of.kept.offset(1, self.row));
        let (outer, width) = (of.reduced.rows(), of.reduced.width());
        let (_, stride) = of.reduced.inner_strides(0);
        if of.rows {
            for i in self.from..self.to {
                let x = x.add(i * in_stride);
                let mut acc = [start::<S>(op); 4];
                let mut tail = [0f32; LANES];
                S::store(tail.as_mut_ptr(), start::<S>(op));
                for r in 0..outer {
                    let x = x.add(of.reduced.offset(0, r));
                    let mut j = 0;
                    while j + 4 * LANES <= width {
                        for q in 0..4 {
                            acc[q] = step::<S>(op, acc[q], S::load(x.add(j + LANES * q)));
                        }
                        j += 4 * LANES;
                    }
                    while j + LANES <= width {
                        acc[0] = step::<S>(op, acc[0], S::load(x.add(j)));
                        j += LANES;
                    }
                    while j < width {
                        // One element in one lane; the others keep their values.
                        let v = step::<S>(op, S::splat(tail[j % LANES]), S::splat(*x.add(j)));
                        S::store_part(tail.as_mut_ptr().add(j % LANES), v, 1);
                        j += 1;
                    }
                }
                let acc =
                    join::<S>(op, join::<S>(op, acc[0], acc[1]), join::<S>(op, acc[2], acc[3]));
                let acc = join::<S>(op, acc, S::load(tail.as_ptr()));
                let mut lanes = [0f32; LANES];
                S::store(lanes.as_mut_ptr(), acc);
                let mut total = S::splat(lanes[0]);
                for &lane in &lanes[1..] {
                    total = join::<S>(op, total, S::splat(lane));
                }
                let total = end::<S>(of.spec.op, total, of.count);
                S::store_part(y.add(i * out_stride), total, 1);
            }
            return;
        }
        let mut i = self.from;
        while i < self.to {
            let wide = self.to - i >= 4 * LANES;
            let lanes = if wide { 4 * LANES } else { (self.to - i).min(LANES) };
            let mut acc = [start::<S>(op); 4];
            for r in 0..outer {
                let x = x.add(of.reduced.offset(0, r) + i);
                for j in 0..width {
                    let p = x.add(j * stride);
                    if wide {
                        for q in 0..4 {
                            acc[q] = step::<S>(op, acc[q], S::load(p.add(LANES * q)));
                        }
                    } else if lanes == LANES {
                        acc[0] = step::<S>(op, acc[0], S::load(p));
                    } else {
                        acc[0] = step::<S>(op, acc[0], S::load_part(p, lanes));
                    }
                }
            }
            for (q, &acc) in acc.iter().enumerate().take(if wide { 4 } else { 1 }) {
                let value = end::<S>(of.spec.op, acc, of.count);
                S::store_part(y.add(i + LANES * q), value, lanes.min(LANES));
            }
            i += lanes;
        }
    }
}

impl Kernel for Reduce {
    fn name(&self) -> &str {
        &self.name
    }

    fn needs(&self, _: &Dims<'_>, _: usize) -> Needs {
        Needs { workspace: 0, foreign: Some(0), in_place: Vec::new(), deterministic: true }
    }

    fn run(&self, run: &mut Run<'_>) -> Result<(), RunError> {
        let format = Format::plain(DType::F32);
        let input = Want { dims: &self.spec.dims, format: &format };
        check(&self.name, run, &[input], &[Want { dims: &self.output, format: &format }], 0)?;
        dense(&self.name, run)?;
        let x = Shared::new(run.inputs[0].as_mut_ptr().cast::<f32>());
        let y = Shared::new(run.outputs[0].as_mut_ptr().cast::<f32>());
        let (rows, width) = (self.kept.rows(), self.kept.width());
        if rows * width == 0 {
            return Ok(());
        }
        // Parts of a row with about 16384 input elements, in whole vectors.
        let size = ((16 << 10) / self.count.max(1)).next_multiple_of(4 * LANES).min(width).max(1);
        let parts = width.div_ceil(size);
        spread(run.pool, 2 * rows * width * self.count, rows * parts, &|task, _| {
            let (row, part) = (task / parts, task % parts);
            let (from, to) = (part * size, ((part + 1) * size).min(width));
            // SAFETY: the operands were checked; each task writes elements of its own.
            unsafe {
                self.isa.enter(Part { of: self, x: x.get(), y: y.get(), row, from, to });
            }
        });
        Ok(())
    }

    fn recipe(&self) -> Recipe {
        recipe(&self.name, self.isa, self.spec())
    }
}

impl NativeKernel for Reduce {
    fn pack(&self, raw: &[Tensor]) -> Result<Vec<Packed>, SpecError> {
        no_constants(&self.name, raw)
    }

    fn spec(&self) -> Spec {
        Spec::Reduce(self.spec.clone())
    }
}
