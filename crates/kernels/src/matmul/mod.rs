//! Batched matrix products of `f32`, with the right factor packed into column panels.
//!
//! Loops, outermost first: task (batch, row block, column group), block of k, column panel, row tile;
//! the panel-and-tile scheme of Goto and van de Geijn ("Anatomy of High-Performance Matrix
//! Multiplication", 2008), with rows read in place and the next panel asked for ahead of time.

mod pack;
mod tasks;

pub(crate) use pack::PackPanel;

use crate::{
    Isa, NativeKernel, Packed, Spec, SpecError,
    post::{Epilogue, Post},
    simd::LANES,
    spec::{raw_constants, recipe},
    tile::{Tiles, part},
    view::{Parts, Shared, Want, check, check_operand, spread},
};
use bricolage_runtime::{Dims, Kernel, Needs, Recipe, Run, RunError};
use bricolage_tensor::{DType, Format, Layout, Storage, Tensor};
use pack::TransposeBand;
use serde::{Deserialize, Serialize};
use tasks::{Block, Sums};

/// A batched product `alpha A B + bias`, then an epilogue.
///
/// Inputs: A `f32[a_batch.., m, k]`, then B `f32[b_batch.., k, n]` unless constant, then the residual
/// `f32[batch.., m, n]` if the epilogue adds one. Output `f32[batch.., m, n]`, where `batch` is
/// `a_batch` and `b_batch` broadcast together. All are plain with the last dim contiguous, other
/// strides free. To pack: B if constant, then the column bias `f32[n]`, then the row bias `f32[m]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MatMulSpec {
    /// Leading dims of A.
    pub a_batch: Vec<i64>,
    /// Leading dims of B.
    pub b_batch: Vec<i64>,
    /// Rows of A.
    pub m: i64,
    /// Columns of A and rows of B.
    pub k: i64,
    /// Columns of B.
    pub n: i64,
    /// A comes as `[.., k, m]`.
    pub transpose_a: bool,
    /// B comes as `[.., n, k]`.
    pub transpose_b: bool,
    /// B is packed beforehand.
    pub constant_b: bool,
    /// A bias for each column.
    pub bias: bool,
    /// A bias for each row.
    pub row_bias: bool,
    /// Factor of the product.
    pub alpha: f32,
    /// What follows.
    pub posts: Vec<Post>,
    /// Blocking.
    pub knobs: MatMulKnobs,
}

/// How a matrix product is blocked; 0 leaves the choice to a rule of thumb.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MatMulKnobs {
    /// Vectors of columns of a tile: with AVX2 2 gives 6x16, 3 gives 4x24, 4 gives 3x32; with AVX-512 2 gives
    /// 8x16 and 4 gives 8x32.
    pub vectors: u8,
    /// Values of k summed before the sums are written.
    pub k_block: u32,
    /// Rows that share a panel while it is hot.
    pub m_block: u32,
    /// Columns of one task.
    pub n_block: u32,
    /// 0 by rule, 1 never, 2 always: copy the rows of a block together first.
    pub pack_a: u8,
}

impl MatMulSpec {
    /// `A B` for single matrices, constant B, no bias, no epilogue.
    pub fn new(m: i64, k: i64, n: i64) -> MatMulSpec {
        MatMulSpec {
            a_batch: Vec::new(),
            b_batch: Vec::new(),
            m,
            k,
            n,
            transpose_a: false,
            transpose_b: false,
            constant_b: true,
            bias: false,
            row_bias: false,
            alpha: 1.0,
            posts: Vec::new(),
            knobs: MatMulKnobs::default(),
        }
    }

    /// Leading dims of the output, or `None` when those of A and B do not broadcast.
    pub fn batch(&self) -> Option<Vec<i64>> {
        let rank = self.a_batch.len().max(self.b_batch.len());
        let at = |dims: &[i64], i: usize| (i + dims.len()).checked_sub(rank).map_or(1, |j| dims[j]);
        (0..rank)
            .map(|i| match (at(&self.a_batch, i), at(&self.b_batch, i)) {
                (a, b) if a == b => Some(a),
                (1, b) => Some(b),
                (a, 1) => Some(a),
                _ => None,
            })
            .collect()
    }
}

/// How the right factor reaches the tiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Right {
    /// Packed beforehand.
    Constant,
    /// Packed by each run, for all tasks.
    Packed,
    /// Packed by each task, a part of k at a time, while it stays in the cache.
    PackedByTask,
    /// Read where it lies, row by row: for few rows of A, each element is used too rarely to pack it.
    InPlace,
}

/// A kernel for a [`MatMulSpec`].
pub struct MatMul {
    spec: MatMulSpec,
    isa: Isa,
    name: String,
    tag: String,
    tiles: Tiles,
    epilogue: Epilogue,
    right: Right,
    m: usize,
    k: usize,
    n: usize,
    batch: Vec<i64>,
    /// Dims of A, B and C as operands.
    dims: [Vec<i64>; 3],
    /// Number of different A and B matrices.
    counts: [usize; 2],
    k_parts: usize,
    m_parts: usize,
    /// Panels of one task, or 0 to share them among the threads.
    group: usize,
    pack_a: bool,
    constant_dims: Vec<i64>,
}

/// Columns of a task at most: its part of the result then stays in the second-level cache.
const COLUMNS_OF_A_TASK: usize = 768;
/// Columns that a task packs by itself: with 256 values of k they fit the second-level cache.
const COLUMNS_PACKED_BY_TASK: usize = 192;
/// Rows of A up to which a right factor that is not constant is read in place.
const MOST_ROWS_IN_PLACE: usize = 8;
/// Bytes of the panels that all rows pass over together: a quarter of a second-level cache.
const STRIP_BYTES: usize = 128 << 10;
/// Bytes of the right factor from which the next panel is asked for ahead of time.
const AHEAD_BYTES: usize = 256 << 10;

impl MatMul {
    pub(crate) fn new(spec: MatMulSpec, isa: Isa) -> Result<MatMul, SpecError> {
        let fail = |what: String| SpecError::Unsupported { kind: "MatMul", what };
        let lead = [&spec.a_batch[..], &spec.b_batch];
        let negative = lead.concat().iter().chain([&spec.m, &spec.k, &spec.n]).any(|&d| d < 0);
        if negative || lead.iter().any(|l| l.len() > 6) {
            return Err(fail("needs dims of at least 0 and at most 6 leading ones".into()));
        }
        let batch = spec.batch().ok_or_else(|| {
            let (a, b) = (&spec.a_batch, &spec.b_batch);
            fail(format!("needs leading dims that broadcast, found {a:?} and {b:?}"))
        })?;
        if spec.posts.iter().filter(|p| **p == Post::Add).count() > 1 {
            return Err(fail("adds at most one residual".into()));
        }
        let (m, k, n) = (spec.m as usize, spec.k as usize, spec.n as usize);
        let knobs = spec.knobs;
        let vectors = match knobs.vectors {
            0 => default_vectors(isa, m, n),
            v @ 1..=4 => usize::from(v),
            v => return Err(fail(format!("has tiles of 1 to 4 vectors, not {v}"))),
        };
        let tiles = Tiles::new(isa, vectors);
        let cols = tiles.cols();
        let k_block = match knobs.k_block as usize {
            0 if m <= 3 || (k <= 768 && n <= 768 && spec.constant_b) => k,
            0 => 384,
            block => block,
        };
        let m_block = match knobs.m_block as usize {
            0 if m <= 384 => m,
            0 => 256,
            block => block,
        };
        let m_parts = m.div_ceil(m_block.max(1)).max(1);
        let right = if spec.constant_b {
            Right::Constant
        } else if !spec.transpose_b && m <= MOST_ROWS_IN_PLACE {
            Right::InPlace
        } else if m_parts == 1 {
            Right::PackedByTask
        } else {
            Right::Packed
        };
        let group = knobs.n_block as usize / cols;
        let pack_a = match knobs.pack_a {
            0 => m >= 16 && (m > 384 || (k * 4).is_multiple_of(4096)),
            choice => choice == 2,
        };
        let with = |lead: &[i64], rows: i64, cols: i64, swap: bool| {
            let last = if swap { [cols, rows] } else { [rows, cols] };
            lead.iter().copied().chain(last).collect::<Vec<i64>>()
        };
        let dims = [
            with(&spec.a_batch, spec.m, spec.k, spec.transpose_a),
            with(&spec.b_batch, spec.k, spec.n, spec.transpose_b),
            with(&batch, spec.m, spec.n, false),
        ];
        let count = |d: &[i64]| d.iter().product::<i64>() as usize;
        let counts = [count(&spec.a_batch), count(&spec.b_batch)];
        let mut matmul = MatMul {
            name: format!("{}-f32-matmul-{}x{}", isa.name(), tiles.max_rows(), cols),
            tag: format!("matmul{cols}"),
            epilogue: Epilogue::new(&spec.posts),
            k_parts: k.div_ceil(k_block.max(1)).max(1),
            group,
            constant_dims: Vec::new(),
            m_parts,
            spec,
            isa,
            tiles,
            right,
            m,
            k,
            n,
            batch,
            dims,
            counts,
            pack_a,
        };
        let elements = matmul.constant_len();
        if elements > 0 {
            matmul.constant_dims = vec![elements as i64];
        }
        Ok(matmul)
    }

    fn panels(&self) -> usize {
        self.n.div_ceil(self.tiles.cols())
    }

    /// Elements of one packed matrix.
    fn packed_len(&self) -> usize {
        self.panels() * self.tiles.cols() * self.k
    }

    /// Offsets of the row bias and the matrices in the packed constant, and its length.
    fn constant_parts(&self) -> (usize, usize, usize) {
        let columns = if self.spec.bias { self.panels() * self.tiles.cols() } else { 0 };
        let rows = if self.spec.row_bias { self.m.next_multiple_of(16) } else { 0 };
        let matrices = if self.spec.constant_b { self.counts[1] * self.packed_len() } else { 0 };
        (columns, columns + rows, columns + rows + matrices)
    }

    fn constant_len(&self) -> usize {
        self.constant_parts().2
    }

    /// How the workspace is cut, in elements.
    fn workspace(&self, threads: usize) -> Workspace {
        let k_part = self.k.div_ceil(self.k_parts);
        let mut parts = Parts::new();
        let b = parts.add(match self.right {
            Right::Packed => self.counts[1] * self.packed_len(),
            _ => 0,
        });
        let a = parts.add(if self.spec.transpose_a { self.counts[0] * self.m * self.k } else { 0 });
        let rows = if self.pack_a { self.m.div_ceil(self.m_parts) * (k_part + 16) } else { 0 };
        let panels = match self.right {
            Right::PackedByTask => COLUMNS_PACKED_BY_TASK * k_part,
            _ => 0,
        };
        let panels_at = rows.next_multiple_of(16);
        let each = panels_at + panels.next_multiple_of(16);
        let first = parts.add(each * threads);
        Workspace { b, a, first, each, panels_at, bytes: parts.bytes() }
    }
}

/// Offsets and sizes of a workspace's parts, in elements but for `bytes`.
struct Workspace {
    /// Packed B.
    b: usize,
    /// A in rows.
    a: usize,
    /// The first thread's part, which starts with its block of A, and the size of each.
    first: usize,
    each: usize,
    /// The panels of a task, in its thread's part.
    panels_at: usize,
    bytes: u64,
}

fn default_vectors(isa: Isa, m: usize, n: usize) -> usize {
    match (m, n) {
        (_, 0..=8) => 1,
        (_, 9..=16) => 2,
        (0..=3, _) => 4,
        _ if isa.tile_vectors() == 4 => {
            // The widest tile is worth some empty columns, for the narrow one loads twice as much for each product.
            let (wide, narrow) = (n.next_multiple_of(32), n.next_multiple_of(16));
            if 8 * (wide - narrow) <= narrow { 4 } else { 2 }
        }
        _ => {
            let wide = n.next_multiple_of(24);
            let narrow = n.next_multiple_of(16);
            // The wide tile loads less for each product, and is worth up to 2 % of empty columns.
            if wide < narrow || m == 4 || (m > 4 && 50 * (wide - narrow) <= narrow) { 3 } else { 2 }
        }
    }
}

/// Row stride and offset of matrix `index` of an operand, with leading dims broadcast to `batch`.
fn matrix(batch: &[i64], lead: &[i64], strides: &[i64], mut index: usize) -> usize {
    let mut offset = 0;
    for i in (0..batch.len()).rev() {
        let d = batch[i] as usize;
        let at = index % d;
        index /= d;
        if let Some(j) = (i + lead.len()).checked_sub(batch.len())
            && lead[j] != 1
        {
            offset += at * strides[j] as usize;
        }
    }
    offset
}

/// As [`matrix`], for dense matrices numbered in row-major order.
fn number(batch: &[i64], lead: &[i64], mut index: usize) -> usize {
    let (mut at, mut size) = (0, 1);
    for i in (0..batch.len()).rev() {
        let d = batch[i] as usize;
        if let Some(j) = (i + lead.len()).checked_sub(batch.len()) {
            if lead[j] != 1 {
                at += index % d * size;
            }
            size *= lead[j] as usize;
        }
        index /= d;
    }
    at
}

impl Kernel for MatMul {
    fn name(&self) -> &str {
        &self.name
    }

    fn needs(&self, _: &Dims<'_>, threads: usize) -> Needs {
        let residual = if self.spec.constant_b { 1 } else { 2 };
        // With several parts of k the partial sums would overwrite the residual before it is read.
        let in_place = self.epilogue.adds()
            && !self.epilogue.is_late()
            && self.k_parts == 1
            && !self.spec.row_bias
            && self.right != Right::InPlace;
        Needs {
            workspace: self.workspace(threads).bytes,
            foreign: Some(0),
            in_place: if in_place { vec![(0, residual)] } else { Vec::new() },
            deterministic: true,
        }
    }

    fn run(&self, run: &mut Run<'_>) -> Result<(), RunError> {
        let format = Format::plain(DType::F32);
        let want = |i: usize| Want { dims: &self.dims[i], format: &format };
        let residual = self.epilogue.adds();
        let inputs = [want(0), want(1), want(2), want(2)];
        let wanted = match (self.spec.constant_b, residual) {
            (true, false) => &inputs[..1],
            (true, true) => &[want(0), want(2)],
            (false, false) => &inputs[..2],
            (false, true) => &inputs[..3],
        };
        let cut = self.workspace(run.pool.threads());
        check(&self.name, run, wanted, &[want(2)], cut.bytes)?;
        let rows_apart = run.inputs.iter().chain(run.outputs).all(|o| {
            let last = o.dims.len() - 1;
            o.strides[last] == 1 || o.dims[last] <= 1
        });
        if !rows_apart {
            return Err(RunError::Operand {
                kernel: self.name.clone(),
                what: "needs the last dim of every operand contiguous".into(),
            });
        }
        let mut bias = std::ptr::null();
        let mut row_bias = std::ptr::null();
        let mut packed = std::ptr::null::<f32>();
        if !self.constant_dims.is_empty() {
            let layout = Layout::Opaque(self.tag.as_str().into());
            let format = Format { dtype: DType::F32, layout };
            let want = Want { dims: &self.constant_dims, format: &format };
            let constant = crate::spec::only_constant(&self.name, run)?;
            check_operand(&self.name, "constant", constant, &want)?;
            let (rows, matrices, _) = self.constant_parts();
            let base = constant.as_ptr().cast::<f32>();
            bias = if self.spec.bias { base } else { std::ptr::null() };
            row_bias = if self.spec.row_bias { base.wrapping_add(rows) } else { std::ptr::null() };
            packed = base.wrapping_add(matrices);
        }
        if self.m * self.n * self.batch.iter().product::<i64>() as usize == 0 {
            return Ok(());
        }
        // SAFETY: `check` proved that operands, constants and workspace hold what the spec needs, and
        // the tasks below write disjoint blocks of the output and of the workspace.
        unsafe {
            let workspace = Shared::new(run.workspace.as_mut_ptr().cast::<f32>());
            let (a, c) = (&run.inputs[0], &run.outputs[0]);
            let lead = self.spec.a_batch.len();
            let (mut a_ptr, mut a_row) = (a.as_ptr().cast::<f32>(), a.strides[lead] as usize);
            if self.spec.transpose_a {
                self.transpose_a(run, a_ptr, a_row, workspace.get().wrapping_add(cut.a));
                (a_ptr, a_row) = (workspace.get().wrapping_add(cut.a), self.k);
            }
            let mut in_place = (std::ptr::null::<f32>(), 0);
            if self.right != Right::Constant {
                let b = &run.inputs[1];
                let row = b.strides[self.spec.b_batch.len()] as usize;
                in_place = (b.as_ptr().cast::<f32>(), row);
                packed = workspace.get().wrapping_add(cut.b);
                self.pack_b(run, in_place.0, row, Shared::new(packed.cast_mut()));
            }
            let r = if residual { run.inputs[wanted.len() - 1].as_ptr() } else { std::ptr::null() };
            let r_strides = if residual { run.inputs[wanted.len() - 1].strides } else { c.strides };
            let (panels, batches) = (self.panels(), self.batch.iter().product::<i64>() as usize);
            let most = match (self.group, run.pool.threads()) {
                // As wide as the cache allows, so that A is read seldom.
                (0, 1) => COLUMNS_OF_A_TASK / self.tiles.cols(),
                // Four tasks a thread, so that the threads end together.
                (0, n) => (panels * self.m_parts * batches)
                    .div_ceil(4 * n)
                    .min(COLUMNS_OF_A_TASK / self.tiles.cols()),
                (group, _) => group,
            };
            let most = match self.right {
                Right::PackedByTask => most.min(COLUMNS_PACKED_BY_TASK / self.tiles.cols()),
                _ => most,
            };
            let group_size = most.clamp(1, panels);
            let groups = panels.div_ceil(group_size);
            let rank = self.batch.len();
            let (a_ptr, packed) = (Shared::new(a_ptr.cast_mut()), Shared::new(packed.cast_mut()));
            let (bias, row_bias) =
                (Shared::new(bias as *mut f32), Shared::new(row_bias as *mut f32));
            let in_place = (Shared::new(in_place.0.cast_mut()), in_place.1);
            let (c_ptr, r_ptr) = (Shared::new(c.as_mut_ptr()), Shared::new(r.cast_mut()));
            let (a_strides, c_strides) = (a.strides, c.strides);
            let b_strides = if self.spec.constant_b { &[][..] } else { run.inputs[1].strides };
            let (cols, cancel) = (self.tiles.cols(), run.cancel);
            let body = |task: usize, thread: usize| {
                if cancel.is_cancelled() {
                    return;
                }
                let (task, group) = (task / groups, task % groups);
                let (batch, rows) = (task / self.m_parts, task % self.m_parts);
                let a_at = if self.spec.transpose_a {
                    number(&self.batch, &self.spec.a_batch, batch) * self.m * self.k
                } else {
                    matrix(&self.batch, &self.spec.a_batch, a_strides, batch)
                };
                let b_number = number(&self.batch, &self.spec.b_batch, batch);
                let c_at = matrix(&self.batch, &self.batch, c_strides, batch);
                let r_at = matrix(&self.batch, &self.batch, r_strides, batch);
                let panels = (group * group_size, ((group + 1) * group_size).min(panels));
                let a = a_ptr.get().wrapping_add(a_at) as *const f32;
                let c = c_ptr.get().cast::<f32>().wrapping_add(c_at);
                let r = r_ptr.get().cast::<f32>().wrapping_add(r_at) as *const f32;
                let (c_row, r_row) = (c_strides[rank] as usize, r_strides[rank] as usize);
                let (bias, row_bias) = (bias.get() as *const f32, row_bias.get() as *const f32);
                if self.right == Right::InPlace {
                    let at = matrix(&self.batch, &self.spec.b_batch, b_strides, batch);
                    let b = in_place.0.get().wrapping_add(at) as *const f32;
                    let columns = (panels.0 * cols, (panels.1 * cols).min(self.n));
                    let (of, b_row) = (self, in_place.1);
                    let sums = Sums {
                        of,
                        a,
                        a_row,
                        b,
                        b_row,
                        c,
                        c_row,
                        r,
                        r_row,
                        bias,
                        row_bias,
                        columns,
                    };
                    return self.isa.enter(sums);
                }
                let (i0, rows) = part(self.m, self.m_parts, rows);
                let by_task = self.right == Right::PackedByTask;
                let b = if by_task {
                    std::ptr::null()
                } else {
                    packed.get().wrapping_add(b_number * self.packed_len()) as *const f32
                };
                let raw = if by_task {
                    matrix(&self.batch, &self.spec.b_batch, b_strides, batch)
                } else {
                    0
                };
                let own = workspace.get().wrapping_add(cut.first + thread * cut.each);
                self.isa.enter(Block {
                    of: self,
                    a,
                    a_row,
                    b,
                    raw: in_place.0.get().wrapping_add(raw),
                    raw_row: in_place.1,
                    panels_of_part: own.wrapping_add(cut.panels_at),
                    c,
                    c_row,
                    r,
                    r_row,
                    bias,
                    row_bias,
                    rows: (i0, i0 + rows),
                    panels,
                    block: if self.pack_a { own } else { std::ptr::null_mut() },
                });
            };
            let work = batches * self.m * self.n * self.k;
            spread(run.pool, work, batches * self.m_parts * groups, &body);
        }
        if run.cancel.is_cancelled() { Err(RunError::Cancelled) } else { Ok(()) }
    }

    fn recipe(&self) -> Recipe {
        recipe(&self.name, self.isa, self.spec())
    }
}

impl MatMul {
    /// Writes A as `[a_batch.., m, k]`, dense.
    unsafe fn transpose_a(&self, run: &Run<'_>, a: *const f32, row: usize, to: *mut f32) {
        let (a, to) = (Shared::new(a.cast_mut()), Shared::new(to));
        let strides = run.inputs[0].strides;
        let bands = self.m.div_ceil(LANES);
        spread(run.pool, self.counts[0] * self.m * self.k, self.counts[0] * bands, &|task, _| {
            let (matrix_number, band) = (task / bands, task % bands);
            let at = matrix(&self.spec.a_batch, &self.spec.a_batch, strides, matrix_number);
            let rows = (self.m - band * LANES).min(LANES);
            // SAFETY: each task writes the rows of one band of one matrix.
            unsafe {
                self.isa.enter(TransposeBand {
                    from: a.get().wrapping_add(at + band * LANES),
                    row,
                    rows,
                    k: self.k,
                    to: to.get().wrapping_add((matrix_number * self.m + band * LANES) * self.k),
                });
            }
        });
    }

    /// Packs all of B, unless it is read in place.
    unsafe fn pack_b(&self, run: &Run<'_>, b: *const f32, row: usize, to: Shared<f32>) {
        let cols = self.tiles.cols();
        if self.right != Right::Packed {
            return;
        }
        let panels = self.panels();
        let b = Shared::new(b.cast_mut());
        let strides = run.inputs[1].strides;
        let work = self.counts[1] * panels * cols * self.k;
        if !self.spec.transpose_b {
            // Whole rows at a time: columns of a panel are too short to be read well.
            const BAND: usize = 16;
            let bands = self.k.div_ceil(BAND);
            spread(run.pool, work, self.counts[1] * bands, &|task, _| {
                let (matrix_number, band) = (task / bands, task % bands);
                let at = matrix(&self.spec.b_batch, &self.spec.b_batch, strides, matrix_number);
                let k0 = band * BAND;
                for panel in 0..panels {
                    let row_of_panel = (matrix_number * panels + panel) * self.k + k0;
                    // SAFETY: each task reads rows that exist and writes its rows of every panel.
                    unsafe {
                        self.isa.enter(PackPanel {
                            b: b.get().wrapping_add(at + k0 * row + panel * cols),
                            row,
                            transposed: false,
                            k: (self.k - k0).min(BAND),
                            cols,
                            exist: (self.n - panel * cols).min(cols),
                            alpha: self.spec.alpha,
                            to: to.get().wrapping_add(row_of_panel * cols),
                        });
                    }
                }
            });
            return;
        }
        spread(run.pool, work, self.counts[1] * panels, &|task, _| {
            let (matrix_number, panel) = (task / panels, task % panels);
            let at = matrix(&self.spec.b_batch, &self.spec.b_batch, strides, matrix_number);
            // SAFETY: each task reads columns that exist and writes one packed panel.
            unsafe {
                self.isa.enter(PackPanel {
                    b: b.get().wrapping_add(at + panel * cols * row),
                    row,
                    transposed: true,
                    k: self.k,
                    cols,
                    exist: (self.n - panel * cols).min(cols),
                    alpha: self.spec.alpha,
                    to: to.get().wrapping_add(task * cols * self.k),
                });
            }
        });
    }
}

impl NativeKernel for MatMul {
    fn pack(&self, raw: &[Tensor]) -> Result<Vec<Packed>, SpecError> {
        let mut dims: Vec<&[i64]> = Vec::new();
        if self.spec.constant_b {
            dims.push(&self.dims[1]);
        }
        let (n, m) = ([self.spec.n], [self.spec.m]);
        if self.spec.bias {
            dims.push(&n);
        }
        if self.spec.row_bias {
            dims.push(&m);
        }
        let elements = raw_constants(&self.name, raw, &dims)?;
        let (rows, matrices, len) = self.constant_parts();
        if len == 0 {
            return Ok(Vec::new());
        }
        let mut rest = elements.iter();
        let b = if self.spec.constant_b { rest.next() } else { None };
        let bytes = Storage::build(4 * len, |bytes| {
            let to: &mut [f32] = bytemuck::cast_slice_mut(bytes);
            if self.spec.bias
                && let Some(bias) = rest.next()
            {
                to[..self.n].copy_from_slice(bias);
            }
            if self.spec.row_bias
                && let Some(bias) = rest.next()
            {
                to[rows..rows + self.m].copy_from_slice(bias);
            }
            let Some(b) = b else { return };
            let (cols, size) = (self.tiles.cols(), self.k * self.n);
            for matrix in 0..self.counts[1] {
                for panel in 0..self.panels() {
                    let row = if self.spec.transpose_b { self.k } else { self.n };
                    let step = if self.spec.transpose_b { self.k } else { 1 };
                    let at = matrices + (matrix * self.panels() + panel) * cols * self.k;
                    let to = &mut to[at..at + cols * self.k];
                    // SAFETY: the panel's columns lie inside the matrix, and `to` has room for it.
                    unsafe {
                        self.isa.enter(PackPanel {
                            b: b[matrix * size..][..size]
                                .as_ptr()
                                .wrapping_add(panel * cols * step),
                            row,
                            transposed: self.spec.transpose_b,
                            k: self.k,
                            cols,
                            exist: (self.n - panel * cols).min(cols),
                            alpha: self.spec.alpha,
                            to: to.as_mut_ptr(),
                        });
                    }
                }
            }
        });
        Ok(vec![Packed::opaque(&self.tag, bytes)])
    }

    fn spec(&self) -> Spec {
        Spec::MatMul(self.spec.clone())
    }
}
