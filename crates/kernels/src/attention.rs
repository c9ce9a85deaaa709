//! Fused attention: scores of a block of queries with a block of keys, running softmax, and the sum of
//! values, without the matrix of all scores (Milakov and Gimelshein, "Online normalizer calculation for
//! softmax", 2018; Dao et al., "FlashAttention", 2022).

use crate::{
    Isa, NativeKernel, Packed, Spec, SpecError,
    matmul::PackPanel,
    rows::{exp_row, max_row, scale_row},
    simd::{Body, LANES, Simd},
    spec::{no_constants, recipe},
    tile::{ACCUMULATE, MAX_COLS, Split, TileArgs, Tiles},
    view::{Parts, Shared, Want, check, spread},
};
use bricolage_runtime::{Dims, Kernel, Needs, Operand, Recipe, Run, RunError};
use bricolage_tensor::{DType, Format, Tensor};
use serde::{Deserialize, Serialize};

/// `softmax(scale q k^T + mask) v` for every head.
///
/// Inputs: q `f32[batch, heads, queries, depth]`, k `f32[batch, key_heads, keys, depth]`,
/// v `f32[batch, key_heads, keys, value_depth]`, then the mask if there is one, of four dims that
/// broadcast to `[batch, heads, queries, keys]`. Output `f32[batch, heads, queries, value_depth]`. All
/// are plain with the last dim contiguous; other strides are free, so that heads may lie inside rows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttentionSpec {
    /// Batch.
    pub batch: i64,
    /// Heads of queries.
    pub heads: i64,
    /// Heads of keys and values, a divisor of `heads`.
    pub key_heads: i64,
    /// Number of queries.
    pub queries: i64,
    /// Number of keys and values.
    pub keys: i64,
    /// Elements of a query and of a key.
    pub depth: i64,
    /// Elements of a value.
    pub value_depth: i64,
    /// Factor of the scores.
    pub scale: f32,
    /// Dims of a mask that is added to the scores.
    pub mask: Option<Vec<i64>>,
    /// Query i sees keys up to i + keys - queries only.
    pub causal: bool,
}

/// Queries and keys of a block.
const QUERIES: usize = 32;
const KEYS: usize = 256;
/// Columns of a panel.
const COLS: usize = 2 * LANES;

/// A kernel for an [`AttentionSpec`].
pub struct Attention {
    spec: AttentionSpec,
    isa: Isa,
    name: String,
    tiles: Tiles,
    /// Dims of q, k, v, mask and output.
    dims: [Vec<i64>; 5],
}

impl Attention {
    pub(crate) fn new(spec: AttentionSpec, isa: Isa) -> Result<Attention, SpecError> {
        let fail = |what: String| Err(SpecError::Unsupported { kind: "Attention", what });
        let s = &spec;
        let sizes = [s.batch, s.heads, s.key_heads, s.queries, s.keys, s.depth, s.value_depth];
        if sizes.iter().any(|&d| d < 1) || s.heads % s.key_heads != 0 {
            return fail(format!("needs positive sizes and heads in groups, found {sizes:?}"));
        }
        let scores = [s.batch, s.heads, s.queries, s.keys];
        let mask = s.mask.clone().unwrap_or_else(|| vec![1; 4]);
        if mask.len() != 4 || !mask.iter().zip(&scores).all(|(a, b)| *a == 1 || a == b) {
            return fail(format!("cannot broadcast the mask {mask:?} to {scores:?}"));
        }
        let dims = [
            vec![s.batch, s.heads, s.queries, s.depth],
            vec![s.batch, s.key_heads, s.keys, s.depth],
            vec![s.batch, s.key_heads, s.keys, s.value_depth],
            mask,
            vec![s.batch, s.heads, s.queries, s.value_depth],
        ];
        let name = format!("{}-f32-attention", isa.name());
        Ok(Attention { spec, isa, name, tiles: Tiles::new(isa, 2), dims })
    }

    /// Offsets in a thread's workspace: packed keys, packed values, scores, sums; and its length.
    fn parts(&self) -> [usize; 5] {
        let u = |v: i64| v as usize;
        let mut parts = Parts::new();
        let keys = u(self.spec.keys).next_multiple_of(COLS);
        let width = u(self.spec.value_depth).next_multiple_of(COLS);
        let k = parts.add(keys * u(self.spec.depth));
        let v = parts.add(width * u(self.spec.keys));
        let scores = parts.add(QUERIES * (KEYS + COLS));
        let sums = parts.add(QUERIES * width);
        [k, v, scores, sums, parts.bytes() as usize / 4]
    }

    /// Tasks of a head.
    fn splits(&self) -> usize {
        let heads = (self.spec.batch * self.spec.heads) as usize;
        let blocks = (self.spec.queries as usize).div_ceil(QUERIES);
        8usize.div_ceil(heads).min(blocks)
    }
}

/// Queries `rows` of one head.
struct Head<'a> {
    of: &'a Attention,
    q: *const f32,
    k: *const f32,
    v: *const f32,
    mask: *const f32,
    /// Distances between rows of q, k, v, output and mask, and between elements of the mask.
    rows: [usize; 5],
    mask_step: usize,
    out: *mut f32,
    queries: (usize, usize),
    workspace: *mut f32,
}

impl Body for Head<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let s = &self.of.spec;
        let (keys, depth, width) = (s.keys as usize, s.depth as usize, s.value_depth as usize);
        let [k_at, v_at, ..] = self.of.parts();
        let (k, v) = (self.workspace.add(k_at), self.workspace.add(v_at));
        for j in (0..keys).step_by(COLS) {
            S::enter(PackPanel {
                b: self.k.wrapping_add(j * self.rows[1]),
                row: self.rows[1],
                transposed: true,
                k: depth,
                cols: COLS,
                exist: (keys - j).min(COLS),
                alpha: s.scale,
                to: k.add(j * depth),
            });
        }
        for j in (0..width).step_by(COLS) {
            S::enter(PackPanel {
                b: self.v.wrapping_add(j),
                row: self.rows[2],
                transposed: false,
                k: keys,
                cols: COLS,
                exist: (width - j).min(COLS),
                alpha: 1.0,
                to: v.add(j * keys),
            });
        }
        let mut i = self.queries.0;
        while i < self.queries.1 {
            let rows = (self.queries.1 - i).min(QUERIES);
            self.block::<S>(i, rows);
            i += rows;
        }
    }
}

impl Head<'_> {
    #[inline(always)]
    unsafe fn block<S: Simd>(&self, i0: usize, rows: usize) {
        let s = &self.of.spec;
        let (keys, depth, width) = (s.keys as usize, s.depth as usize, s.value_depth as usize);
        let [k_at, v_at, scores_at, sums_at, _] = self.of.parts();
        let (k, v) = (self.workspace.add(k_at), self.workspace.add(v_at));
        let (scores, sums) = (self.workspace.add(scores_at), self.workspace.add(sums_at));
        let sums_row = width.next_multiple_of(COLS);
        let mut max = [f32::NEG_INFINITY; QUERIES];
        let mut total = [0f32; QUERIES];
        // Causal masking: row i sees keys before i + 1 + keys - queries.
        let seen = |i: usize| {
            if s.causal {
                (i + 1 + keys).saturating_sub(s.queries as usize).min(keys)
            } else {
                keys
            }
        };
        let last = seen(i0 + rows - 1);
        let mut j0 = 0;
        let mut first = true;
        while first || j0 < last {
            let count = (last.max(1) - j0).min(KEYS);
            self.product(i0, rows, depth, k.add(j0 * depth), scores, count);
            for r in 0..rows {
                let row = scores.add(r * (KEYS + COLS));
                self.mask_row(row, i0 + r, j0, count, seen(i0 + r));
                let block_max = max_row::<S>(row, count);
                let new = if block_max > max[r] { block_max } else { max[r] };
                // Where nothing is seen yet every exponential is 0, whatever the shift.
                let shift = if new == f32::NEG_INFINITY { 0.0 } else { new };
                if !first && new > max[r] {
                    let factor = (max[r] - shift).exp();
                    total[r] *= factor;
                    let sum = sums.add(r * sums_row);
                    scale_row::<S>(sum, sum, sums_row, factor, 0.0);
                }
                total[r] += exp_row::<S>(row, row, count, 1.0, shift);
                max[r] = new;
            }
            let start = if first { 0 } else { ACCUMULATE };
            let mut args = TileArgs::new();
            let offsets = [0isize];
            args.offsets = offsets.as_ptr();
            (args.segments, args.run, args.w_step, args.flags) = (1, count, COLS, start);
            let row_tiles = rows.div_ceil(self.of.tiles.max_rows());
            let split = Split::new(rows, row_tiles);
            for j in (0..width).step_by(COLS) {
                args.w = v.add(j * keys + j0 * COLS);
                for t in 0..row_tiles {
                    let (r0, size) = split.part(t);
                    for q in 0..size {
                        args.a[q] = scores.add((r0 + q) * (KEYS + COLS));
                        args.c[q] = sums.add((r0 + q) * sums_row + j);
                    }
                    self.of.tiles.rows(size)(&args);
                }
            }
            first = false;
            j0 += count;
        }
        for r in 0..rows {
            let out = self.out.add((i0 + r) * self.rows[3]);
            scale_row::<S>(sums.add(r * sums_row), out, width, 1.0 / total[r], 0.0);
        }
    }

    /// Scores of the block before masking.
    #[inline(always)]
    unsafe fn product(
        &self,
        i0: usize,
        rows: usize,
        depth: usize,
        k: *const f32,
        scores: *mut f32,
        count: usize,
    ) {
        let mut args = TileArgs::new();
        let offsets = [0isize];
        args.offsets = offsets.as_ptr();
        (args.segments, args.run, args.w_step) = (1, depth, COLS);
        let row_tiles = rows.div_ceil(self.of.tiles.max_rows());
        let split = Split::new(rows, row_tiles);
        for j in (0..count).step_by(COLS) {
            args.w = k.add(j * depth);
            for t in 0..row_tiles {
                let (r0, size) = split.part(t);
                for q in 0..size {
                    args.a[q] = self.q.add((i0 + r0 + q) * self.rows[0]);
                    args.c[q] = scores.add((r0 + q) * (KEYS + COLS) + j);
                }
                self.of.tiles.rows(size)(&args);
            }
        }
    }

    /// Adds the mask to a row of scores.
    #[inline(always)]
    unsafe fn mask_row(&self, row: *mut f32, i: usize, j0: usize, count: usize, seen: usize) {
        if !self.mask.is_null() {
            let mask = self.mask.add(i * self.rows[4] + j0 * self.mask_step);
            for j in 0..count {
                *row.add(j) += *mask.add(j * self.mask_step);
            }
        }
        for j in seen.saturating_sub(j0).min(count)..count {
            *row.add(j) = f32::NEG_INFINITY;
        }
    }
}

const _: () = assert!(COLS <= MAX_COLS);

impl Kernel for Attention {
    fn name(&self) -> &str {
        &self.name
    }

    fn needs(&self, _: &Dims<'_>, threads: usize) -> Needs {
        let workspace = (self.parts()[4] * 4 * threads) as u64;
        Needs { workspace, foreign: Some(0), in_place: Vec::new(), deterministic: true }
    }

    fn run(&self, run: &mut Run<'_>) -> Result<(), RunError> {
        let format = Format::plain(DType::F32);
        let want = |i: usize| Want { dims: &self.dims[i], format: &format };
        let inputs = [want(0), want(1), want(2), want(3)];
        let masked = self.spec.mask.is_some();
        let len = self.parts()[4];
        let bytes = (len * 4 * run.pool.threads()) as u64;
        check(&self.name, run, &inputs[..3 + usize::from(masked)], &[want(4)], bytes)?;
        let contiguous = |o: &Operand<'_>| o.strides[3] == 1 || o.dims[3] == 1;
        if !run.inputs[..3].iter().chain(run.outputs).all(contiguous) {
            return Err(RunError::Operand {
                kernel: self.name.clone(),
                what: "needs the last dim of every operand contiguous".into(),
            });
        }
        let s = &self.spec;
        let (heads, splits) = (s.heads as usize, self.splits());
        let shared = s.heads / s.key_heads;
        let at = |o: &Operand<'_>, b: usize, h: usize| {
            let along =
                |d: usize, i: usize| if o.dims[d] == 1 { 0 } else { i * o.strides[d] as usize };
            along(0, b) + along(1, h)
        };
        let pointers: [Shared<f32>; 5] = std::array::from_fn(|i| {
            let operand = if i == 3 {
                run.outputs.first()
            } else {
                run.inputs.get(if i == 4 { 3 } else { i })
            };
            Shared::new(operand.map_or(std::ptr::null_mut(), |o| o.as_mut_ptr().cast()))
        });
        let workspace = Shared::new(run.workspace.as_mut_ptr().cast::<f32>());
        let (inputs, output, cancel) = (run.inputs, &run.outputs[0], run.cancel);
        let queries = s.queries as usize;
        let work = (s.batch * s.heads * s.queries * s.keys * (s.depth + s.value_depth)) as usize;
        spread(run.pool, work, s.batch as usize * heads * splits, &|task, thread| {
            if cancel.is_cancelled() {
                return;
            }
            let (head, split) = (task / splits, task % splits);
            let (b, h) = (head / heads, head % heads);
            let kh = h / shared as usize;
            let mask = inputs.get(3);
            let row = |o: &Operand<'_>| if o.dims[2] == 1 { 0 } else { o.strides[2] as usize };
            // SAFETY: the operands were checked; each task writes queries of its own and uses its
            // thread's part of the workspace.
            unsafe {
                self.isa.enter(Head {
                    of: self,
                    q: pointers[0].get().add(at(&inputs[0], b, h)),
                    k: pointers[1].get().add(at(&inputs[1], b, kh)),
                    v: pointers[2].get().add(at(&inputs[2], b, kh)),
                    mask: mask.map_or(std::ptr::null(), |m| pointers[4].get().add(at(m, b, h))),
                    rows: [
                        row(&inputs[0]),
                        row(&inputs[1]),
                        row(&inputs[2]),
                        row(output),
                        mask.map_or(0, row),
                    ],
                    mask_step: mask
                        .map_or(0, |m| if m.dims[3] == 1 { 0 } else { m.strides[3] as usize }),
                    out: pointers[3].get().add(at(output, b, h)),
                    queries: crate::tile::part_range(queries, splits, split),
                    workspace: workspace.get().add(thread * len),
                });
            }
        });
        if run.cancel.is_cancelled() { Err(RunError::Cancelled) } else { Ok(()) }
    }

    fn recipe(&self) -> Recipe {
        recipe(&self.name, self.isa, self.spec())
    }
}

impl NativeKernel for Attention {
    fn pack(&self, raw: &[Tensor]) -> Result<Vec<Packed>, SpecError> {
        no_constants(&self.name, raw)
    }

    fn spec(&self) -> Spec {
        Spec::Attention(self.spec.clone())
    }
}
