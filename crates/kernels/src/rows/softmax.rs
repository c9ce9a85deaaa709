//! Softmax and its logarithm along one axis.

use crate::{
    Isa, NativeKernel, Packed, Spec, SpecError, math,
    simd::{Body, LANES, Simd},
    spec::{no_constants, recipe},
    view::{Shared, Want, check, dense, spread},
};
use bricolage_runtime::{Dims, Kernel, Needs, Recipe, Run, RunError};
use bricolage_tensor::{DType, Format, Tensor};
use serde::{Deserialize, Serialize};

/// `e^(x - max) / sum`, or its logarithm, along one axis of a plain dense `f32` tensor.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SoftmaxSpec {
    /// Dims of input and output.
    pub dims: Vec<i64>,
    /// The axis, counted from the first dim.
    pub axis: usize,
    /// The logarithm instead.
    pub log: bool,
}

/// A kernel for a [`SoftmaxSpec`].
pub struct Softmax {
    spec: SoftmaxSpec,
    isa: Isa,
    name: String,
    outer: usize,
    n: usize,
    inner: usize,
}

impl Softmax {
    pub(crate) fn new(spec: SoftmaxSpec, isa: Isa) -> Result<Softmax, SpecError> {
        if spec.axis >= spec.dims.len() || spec.dims.iter().any(|&d| d < 0) {
            let (axis, dims) = (spec.axis, &spec.dims);
            let what = format!("needs an axis of the dims, found {axis} of {dims:?}");
            return Err(SpecError::Unsupported { kind: "Softmax", what });
        }
        let product = |d: &[i64]| d.iter().product::<i64>() as usize;
        let (outer, inner) =
            (product(&spec.dims[..spec.axis]), product(&spec.dims[spec.axis + 1..]));
        let name = format!("{}-f32-{}softmax", isa.name(), if spec.log { "log-" } else { "" });
        Ok(Softmax { n: spec.dims[spec.axis] as usize, outer, inner, spec, isa, name })
    }
}

/// Largest element of a row.
#[inline(always)]
pub(crate) unsafe fn max_row<S: Simd>(p: *const f32, n: usize) -> f32 {
    let mut m = [S::splat(f32::NEG_INFINITY); 4];
    let mut i = 0;
    while i + 4 * LANES <= n {
        for q in 0..4 {
            m[q] = S::max(S::load(p.add(i + LANES * q)), m[q]);
        }
        i += 4 * LANES;
    }
    while i + LANES <= n {
        m[0] = S::max(S::load(p.add(i)), m[0]);
        i += LANES;
    }
    let mut max = S::max_lane(S::max(S::max(m[0], m[1]), S::max(m[2], m[3])));
    while i < n {
        max = max.max(*p.add(i));
        i += 1;
    }
    max
}

/// `y = e^(scale x - shift)` along a row, for `scale x <= shift`; gives the sum. `y` may be `x`, or
/// null when only the sum is asked for.
#[inline(always)]
pub(crate) unsafe fn exp_row<S: Simd>(
    x: *const f32,
    y: *mut f32,
    n: usize,
    scale: f32,
    shift: f32,
) -> f32 {
    let (scale, shift) = (S::splat(scale), S::splat(shift));
    let mut sums = [S::zero(); 4];
    let mut i = 0;
    while i + 4 * LANES <= n {
        let mut t = [S::zero(); 4];
        for q in 0..4 {
            t[q] = S::sub(S::mul(S::load(x.add(i + LANES * q)), scale), shift);
        }
        let e = math::exp_nonpositive::<S, 4>(t);
        for q in 0..4 {
            if !y.is_null() {
                S::store(y.add(i + LANES * q), e[q]);
            }
            sums[q] = S::add(sums[q], e[q]);
        }
        i += 4 * LANES;
    }
    let mut tail = 0.0;
    while i < n {
        let count = (n - i).min(LANES);
        let x = if count == LANES { S::load(x.add(i)) } else { S::load_part(x.add(i), count) };
        let [e] = math::exp_nonpositive::<S, 1>([S::sub(S::mul(x, scale), shift)]);
        if count == LANES {
            if !y.is_null() {
                S::store(y.add(i), e);
            }
            sums[0] = S::add(sums[0], e);
        } else {
            let mut lanes = [0f32; LANES];
            S::store(lanes.as_mut_ptr(), e);
            for (j, &e) in lanes.iter().enumerate().take(count) {
                if !y.is_null() {
                    *y.add(i + j) = e;
                }
                tail += e;
            }
        }
        i += count;
    }
    S::sum(S::add(S::add(sums[0], sums[1]), S::add(sums[2], sums[3]))) + tail
}

/// `y = scale x + shift` along a row.
#[inline(always)]
pub(crate) unsafe fn scale_row<S: Simd>(
    x: *const f32,
    y: *mut f32,
    n: usize,
    scale: f32,
    shift: f32,
) {
    let (s, t) = (S::splat(scale), S::splat(shift));
    let mut i = 0;
    while i + LANES <= n {
        S::store(y.add(i), S::fma(S::load(x.add(i)), s, t));
        i += LANES;
    }
    if i < n {
        S::store_part(y.add(i), S::fma(S::load_part(x.add(i), n - i), s, t), n - i);
    }
}

/// `y = (x - first) - second` along a row.
#[inline(always)]
unsafe fn shift_row<S: Simd>(x: *const f32, y: *mut f32, n: usize, first: f32, second: f32) {
    let (a, b) = (S::splat(first), S::splat(second));
    let mut i = 0;
    while i + LANES <= n {
        S::store(y.add(i), S::sub(S::sub(S::load(x.add(i)), a), b));
        i += LANES;
    }
    if i < n {
        let part = S::load_part(x.add(i), n - i);
        S::store_part(y.add(i), S::sub(S::sub(part, a), b), n - i);
    }
}

/// Rows `rows` of a contiguous axis.
struct Rows<'a> {
    of: &'a Softmax,
    x: *const f32,
    y: *mut f32,
    rows: (usize, usize),
}

impl Body for Rows<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let n = self.of.n;
        for row in self.rows.0..self.rows.1 {
            let (x, y) = (self.x.add(row * n), self.y.add(row * n));
            let max = max_row::<S>(x, n);
            if self.of.spec.log {
                let sum = exp_row::<S>(x, std::ptr::null_mut(), n, 1.0, max);
                // The difference is exact or nearly so; the sum of both shifts would not be.
                shift_row::<S>(x, y, n, max, sum.ln());
            } else {
                let sum = exp_row::<S>(x, y, n, 1.0, max);
                scale_row::<S>(y, y, n, 1.0 / sum, 0.0);
            }
        }
    }
}

/// Up to eight neighbouring columns of a strided axis.
struct Columns<'a> {
    of: &'a Softmax,
    x: *const f32,
    y: *mut f32,
    lanes: usize,
}

impl Body for Columns<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let Columns { of, x, y, lanes } = self;
        let load = |p: *const f32| {
            if lanes == LANES { S::load(p) } else { S::load_part(p, lanes) }
        };
        let store = |p: *mut f32, v: S::V| {
            if lanes == LANES { S::store(p, v) } else { S::store_part(p, v, lanes) }
        };
        let mut max = S::splat(f32::NEG_INFINITY);
        for i in 0..of.n {
            max = S::max(load(x.add(i * of.inner)), max);
        }
        let mut sum = S::zero();
        for i in 0..of.n {
            let [e] = math::exp_nonpositive::<S, 1>([S::sub(load(x.add(i * of.inner)), max)]);
            sum = S::add(sum, e);
            if !of.spec.log {
                store(y.add(i * of.inner), e);
            }
        }
        if of.spec.log {
            let [log] = math::log::<S, 1>([sum]);
            for i in 0..of.n {
                let difference = S::sub(load(x.add(i * of.inner)), max);
                store(y.add(i * of.inner), S::sub(difference, log));
            }
        } else {
            let scale = S::div(S::splat(1.0), sum);
            for i in 0..of.n {
                let p = y.add(i * of.inner);
                store(p, S::mul(load(p), scale));
            }
        }
    }
}

impl Kernel for Softmax {
    fn name(&self) -> &str {
        &self.name
    }

    fn needs(&self, _: &Dims<'_>, _: usize) -> Needs {
        Needs { workspace: 0, foreign: Some(0), in_place: vec![(0, 0)], deterministic: true }
    }

    fn run(&self, run: &mut Run<'_>) -> Result<(), RunError> {
        let format = Format::plain(DType::F32);
        let want = || Want { dims: &self.spec.dims, format: &format };
        check(&self.name, run, &[want()], &[want()], 0)?;
        dense(&self.name, run)?;
        let x = Shared::new(run.inputs[0].as_mut_ptr().cast::<f32>());
        let y = Shared::new(run.outputs[0].as_mut_ptr().cast::<f32>());
        let (n, inner) = (self.n, self.inner);
        if self.outer * n * inner == 0 {
            return Ok(());
        }
        // An exponential costs about twenty multiply-adds.
        let work = 20 * self.outer * n * inner;
        if inner == 1 {
            let rows_of_a_task = (4096 / n).max(1);
            spread(run.pool, work, self.outer.div_ceil(rows_of_a_task), &|task, _| {
                let first = task * rows_of_a_task;
                let rows = (first, (first + rows_of_a_task).min(self.outer));
                // SAFETY: the operands were checked; each task writes rows of its own.
                unsafe { self.isa.enter(Rows { of: self, x: x.get(), y: y.get(), rows }) };
            });
            return Ok(());
        }
        let chunks = inner.div_ceil(LANES);
        spread(run.pool, work, self.outer * chunks, &|task, _| {
            let (outer, chunk) = (task / chunks, task % chunks);
            let at = outer * n * inner + chunk * LANES;
            let lanes = (inner - chunk * LANES).min(LANES);
            let (x, y) = (x.get().wrapping_add(at), y.get().wrapping_add(at));
            // SAFETY: as above, with columns.
            unsafe { self.isa.enter(Columns { of: self, x, y, lanes }) };
        });
        Ok(())
    }

    fn recipe(&self) -> Recipe {
        recipe(&self.name, self.isa, self.spec())
    }
}

impl NativeKernel for Softmax {
    fn pack(&self, raw: &[Tensor]) -> Result<Vec<Packed>, SpecError> {
        no_constants(&self.name, raw)
    }

    fn spec(&self) -> Spec {
        Spec::Softmax(self.spec.clone())
    }
}
