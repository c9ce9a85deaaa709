//! Layer normalisation and its variant without the mean.

use crate::{
    Isa, NativeKernel, Packed, Spec, SpecError,
    pointwise::PointwiseOperand,
    simd::{Body, LANES, Simd},
    spec::{pack_as_they_are, recipe},
    view::{Shared, Want, check, check_operand, dense, spread},
};
use bricolage_runtime::{Dims, Kernel, Needs, Recipe, Run, RunError};
use bricolage_tensor::{DType, Format, Tensor};
use serde::{Deserialize, Serialize};

/// `(x - mean) / sqrt(variance + epsilon) scale + bias` over the last dims of a plain dense `f32` tensor.
///
/// Inputs: x, then the residual if there is one. Outputs: the result, then the sum if it is kept. To
/// pack: the scale, then the bias, as far as there are, each of the normalised dims.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NormSpec {
    /// Dims of input and output.
    pub dims: Vec<i64>,
    /// First of the dims that are normalised together.
    pub axis: usize,
    /// Added to the variance.
    pub epsilon: f32,
    /// Divide by the root of the mean square, without taking the mean away.
    pub rms: bool,
    /// Whether there is a scale.
    pub scale: bool,
    /// Whether there is a bias.
    pub bias: bool,
    /// Normalise the sum of x and a residual.
    pub residual: bool,
    /// Write that sum as second output.
    pub keep_sum: bool,
}

/// A kernel for a [`NormSpec`].
pub struct Norm {
    spec: NormSpec,
    isa: Isa,
    name: String,
    rows: usize,
    n: usize,
    constants: Vec<PointwiseOperand>,
}

impl Norm {
    pub(crate) fn new(spec: NormSpec, isa: Isa) -> Result<Norm, SpecError> {
        let fail = |what: String| Err(SpecError::Unsupported { kind: "Norm", what });
        if spec.axis > spec.dims.len() || spec.dims.iter().any(|&d| d < 0) {
            return fail(format!(
                "needs an axis of the dims, found {} of {:?}",
                spec.axis, spec.dims
            ));
        }
        if spec.keep_sum && !spec.residual {
            return fail("keeps a sum only where there is a residual".into());
        }
        let product = |d: &[i64]| d.iter().product::<i64>() as usize;
        let operand = PointwiseOperand {
            dims: spec.dims[spec.axis..].to_vec(),
            format: Format::plain(DType::F32),
        };
        let count = usize::from(spec.scale) + usize::from(spec.bias);
        let what = if spec.rms { "rms-norm" } else { "layer-norm" };
        Ok(Norm {
            rows: product(&spec.dims[..spec.axis]),
            n: product(&spec.dims[spec.axis..]),
            constants: vec![operand; count],
            name: format!("{}-f32-{what}", isa.name()),
            spec,
            isa,
        })
    }
}

struct Rows<'a> {
    of: &'a Norm,
    x: *const f32,
    residual: *const f32,
    y: *mut f32,
    sum: *mut f32,
    scale: *const f32,
    bias: *const f32,
    rows: (usize, usize),
}

impl Body for Rows<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let n = self.of.n;
        for row in self.rows.0..self.rows.1 {
            let at = row * n;
            let y = self.y.add(at);
            let x = if self.residual.is_null() {
                self.x.add(at)
            } else {
                // The sum is kept where it is asked for, else where the result will be.
                let to = if self.sum.is_null() { y } else { self.sum.add(at) };
                add::<S>(self.x.add(at), self.residual.add(at), to, n);
                to as *const f32
            };
            let mean = if self.of.spec.rms { 0.0 } else { sum::<S, false>(x, n, 0.0) / n as f32 };
            let variance = sum::<S, true>(x, n, mean) / n as f32;
            let factor = 1.0 / (variance + self.of.spec.epsilon).sqrt();
            self.finish::<S>(x, y, mean, factor);
        }
    }
}

impl Rows<'_> {
    #[inline(always)]
    unsafe fn finish<S: Simd>(&self, x: *const f32, y: *mut f32, mean: f32, factor: f32) {
        let n = self.of.n;
        let (mean, factor) = (S::splat(mean), S::splat(factor));
        let mut i = 0;
        while i < n {
            let count = (n - i).min(LANES);
            let load = |p: *const f32| {
                if count == LANES { S::load(p.add(i)) } else { S::load_part(p.add(i), count) }
            };
            let mut v = S::mul(S::sub(load(x), mean), factor);
            if !self.scale.is_null() {
                v = S::mul(v, load(self.scale));
            }
            if !self.bias.is_null() {
                v = S::add(v, load(self.bias));
            }
            if count == LANES {
                S::store(y.add(i), v);
            } else {
                S::store_part(y.add(i), v, count);
            }
            i += count;
        }
    }
}

#[inline(always)]
unsafe fn add<S: Simd>(a: *const f32, b: *const f32, to: *mut f32, n: usize) {
    let mut i = 0;
    while i + LANES <= n {
        S::store(to.add(i), S::add(S::load(a.add(i)), S::load(b.add(i))));
        i += LANES;
    }
    while i < n {
        *to.add(i) = *a.add(i) + *b.add(i);
        i += 1;
    }
}

/// Sum of `x - shift` along a row, or of its squares.
#[inline(always)]
unsafe fn sum<S: Simd, const SQUARE: bool>(x: *const f32, n: usize, shift: f32) -> f32 {
    let shifts = S::splat(shift);
    let mut sums = [S::zero(); 4];
    let mut i = 0;
    while i + 4 * LANES <= n {
        for q in 0..4 {
            let v = S::sub(S::load(x.add(i + LANES * q)), shifts);
            sums[q] = if const { SQUARE } { S::fma(v, v, sums[q]) } else { S::add(sums[q], v) };
        }
        i += 4 * LANES;
    }
    let mut total = S::sum(S::add(S::add(sums[0], sums[1]), S::add(sums[2], sums[3])));
    while i < n {
        let v = *x.add(i) - shift;
        total += if const { SQUARE } { v * v } else { v };
        i += 1;
    }
    total
}

impl Kernel for Norm {
    fn name(&self) -> &str {
        &self.name
    }

    fn needs(&self, _: &Dims<'_>, _: usize) -> Needs {
        let mut in_place = vec![(0, 0)];
        if self.spec.residual && !self.spec.keep_sum {
            in_place.push((0, 1));
        }
        Needs { workspace: 0, foreign: Some(0), in_place, deterministic: true }
    }

    fn run(&self, run: &mut Run<'_>) -> Result<(), RunError> {
        let spec = &self.spec;
        let format = Format::plain(DType::F32);
        let want = || Want { dims: &spec.dims, format: &format };
        let two = [want(), want()];
        let inputs = 1 + usize::from(spec.residual);
        check(&self.name, run, &two[..inputs], &two[..1 + usize::from(spec.keep_sum)], 0)?;
        dense(&self.name, run)?;
        if run.constants.len() != self.constants.len() {
            let (needed, found) = (self.constants.len(), run.constants.len());
            return Err(RunError::Operand {
                kernel: self.name.clone(),
                what: format!("needs {needed} constants, found {found}"),
            });
        }
        for (operand, want) in run.constants.iter().zip(&self.constants) {
            let want = Want { dims: &want.dims, format: &want.format };
            check_operand(&self.name, "a constant", operand, &want)?;
        }
        if self.rows * self.n == 0 {
            return Ok(());
        }
        let pointer = |o: Option<&bricolage_runtime::Operand<'_>>| {
            Shared::new(o.map_or(std::ptr::null_mut(), |o| o.as_mut_ptr().cast::<f32>()))
        };
        let (x, residual) = (pointer(run.inputs.first()), pointer(run.inputs.get(1)));
        let (y, sum) = (pointer(run.outputs.first()), pointer(run.outputs.get(1)));
        let scale = pointer(run.constants.first().filter(|_| spec.scale));
        let bias = pointer(run.constants.last().filter(|_| spec.bias));
        let rows_of_a_task = (8192 / self.n).max(1);
        let work = 6 * self.rows * self.n;
        spread(run.pool, work, self.rows.div_ceil(rows_of_a_task), &|task, _| {
            let first = task * rows_of_a_task;
            // SAFETY: the operands were checked; each task writes rows of its own.
            unsafe {
                self.isa.enter(Rows {
                    of: self,
                    x: x.get(),
                    residual: residual.get(),
                    y: y.get(),
                    sum: sum.get(),
                    scale: scale.get(),
                    bias: bias.get(),
                    rows: (first, (first + rows_of_a_task).min(self.rows)),
                });
            }
        });
        Ok(())
    }

    fn recipe(&self) -> Recipe {
        recipe(&self.name, self.isa, self.spec())
    }
}

impl NativeKernel for Norm {
    fn pack(&self, raw: &[Tensor]) -> Result<Vec<Packed>, SpecError> {
        pack_as_they_are(&self.name, raw, &self.constants)
    }

    fn spec(&self) -> Spec {
        Spec::Norm(self.spec.clone())
    }
}
