//! What one task computes.

use super::{AHEAD_BYTES, MatMul, STRIP_BYTES, pack::PackPanel};
use crate::{
    post::{Phase, Target, run_tile},
    simd::{Body, LANES, Simd},
    tile::{MAX_ROWS, Split, TileArgs, part},
};

/// One task: rows `i0..i1` times panels `j0..j1`.
pub(super) struct Block<'a> {
    pub(super) of: &'a MatMul,
    pub(super) a: *const f32,
    pub(super) a_row: usize,
    /// Packed panels, or null.
    pub(super) b: *const f32,
    /// The right factor where it lies, its row stride, and room for the task's panels of one part of k.
    pub(super) raw: *const f32,
    pub(super) raw_row: usize,
    pub(super) panels_of_part: *mut f32,
    pub(super) c: *mut f32,
    pub(super) c_row: usize,
    pub(super) r: *const f32,
    pub(super) r_row: usize,
    pub(super) bias: *const f32,
    pub(super) row_bias: *const f32,
    pub(super) rows: (usize, usize),
    pub(super) panels: (usize, usize),
    pub(super) block: *mut f32,
}

impl Body for Block<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let of = self.of;
        let (cols, vectors_rows) = (of.tiles.cols(), of.tiles.max_rows());
        let ((i0, i1), (j0, j1)) = (self.rows, self.panels);
        let row_tiles = (i1 - i0).div_ceil(vectors_rows);
        let split = Split::new(i1 - i0, row_tiles);
        let offsets = [0isize];
        let mut args = TileArgs::new();
        args.offsets = offsets.as_ptr();
        args.segments = 1;
        args.w_step = cols;
        let ahead = !self.b.is_null() && of.packed_len() * 4 >= AHEAD_BYTES;
        if !self.row_bias.is_null() {
            for i in i0..i1 {
                let value = *self.row_bias.add(i);
                for j in j0 * cols..(j1 * cols).min(of.n) {
                    let bias = if self.bias.is_null() { 0.0 } else { *self.bias.add(j) };
                    *self.c.add(i * self.c_row + j) = value + bias;
                }
            }
        }
        for kp in 0..of.k_parts {
            let (k0, count) = part(of.k, of.k_parts, kp);
            let last_part = kp + 1 == of.k_parts;
            let phase = Phase {
                first: kp == 0 && self.row_bias.is_null(),
                last: last_part && !of.epilogue.is_late(),
            };
            args.run = count;
            if self.b.is_null() {
                self.pack::<S>(k0, count);
            }
            let (a, a_row) = if self.block.is_null() {
                (self.a.wrapping_add(i0 * self.a_row + k0), self.a_row)
            } else {
                // One line more than the rows need keeps them apart in the cache.
                let row = of.k.div_ceil(of.k_parts) + 16;
                for i in i0..i1 {
                    let from = self.a.add(i * self.a_row + k0);
                    std::ptr::copy_nonoverlapping(from, self.block.add((i - i0) * row), count);
                }
                (self.block as *const f32, row)
            };
            // A strip of panels stays in the second-level cache while all rows pass over it, each row
            // tile from the first; meanwhile the next strip is asked for.
            let strip = (STRIP_BYTES / (4 * count * cols).max(1)).max(1);
            let lines = if ahead { (count * cols / 16).div_ceil(row_tiles).min(48) } else { 0 };
            for s0 in (j0..j1).step_by(strip) {
                let s1 = (s0 + strip).min(j1);
                for t in 0..row_tiles {
                    let (start, rows) = split.part(t);
                    let tile = of.tiles.rows(rows);
                    let mut target = Target {
                        c: [std::ptr::null_mut(); MAX_ROWS],
                        r: [std::ptr::null(); MAX_ROWS],
                        block: LANES,
                        first: 0,
                        count: 0,
                        pad: 0,
                    };
                    for q in 0..rows {
                        args.a[q] = a.wrapping_add((start + q) * a_row);
                        target.c[q] = self.c.wrapping_add((i0 + start + q) * self.c_row);
                        target.r[q] = self.r.wrapping_add((i0 + start + q) * self.r_row);
                    }
                    for j in s0..s1 {
                        (target.first, target.count) = (j * cols, (of.n - j * cols).min(cols));
                        args.w = if self.b.is_null() {
                            self.panels_of_part.add((j - j0) * count * cols)
                        } else {
                            self.b.add((j * of.k + k0) * cols)
                        };
                        if !self.bias.is_null() {
                            args.bias = self.bias.add(j * cols);
                        }
                        let (panel, from) = match (j + strip < j1, last_part) {
                            (true, _) => (j + strip, k0),
                            (false, false) => (j0 + j - s0, k0 + count),
                            (false, true) => (j1 + j - s0, 0),
                        };
                        args.ahead =
                            self.b.wrapping_add((panel * of.k + from) * cols + t * lines * 16);
                        args.ahead_lines = lines;
                        run_tile::<S>(tile, &mut args, rows, cols, &target, &of.epilogue, phase);
                    }
                }
            }
        }
        if of.epilogue.is_late() {
            let (first, end) = (j0 * cols, (j1 * cols).min(of.n));
            for i in i0..i1 {
                let r = self.r.wrapping_add(i * self.r_row + first);
                let c = self.c.add(i * self.c_row + first);
                of.epilogue.apply::<S>(c, r, end - first);
            }
        }
    }
}

impl Block<'_> {
    /// Packs the task's panels for `count` values of k.
    #[inline(always)]
    unsafe fn pack<S: Simd>(&self, k0: usize, count: usize) {
        let of = self.of;
        let cols = of.tiles.cols();
        let (j0, j1) = self.panels;
        let transposed = of.spec.transpose_b;
        // Rows are read whole for all panels; columns lie along k and are read panel by panel.
        let band = if transposed { count } else { 16 };
        let mut k = 0;
        while k < count {
            let size = (count - k).min(band);
            for j in j0..j1 {
                let (along_k, along_n) =
                    if transposed { (1, self.raw_row) } else { (self.raw_row, 1) };
                S::enter(PackPanel {
                    b: self.raw.wrapping_add((k0 + k) * along_k + j * cols * along_n),
                    row: self.raw_row,
                    transposed,
                    k: size,
                    cols,
                    exist: (of.n - j * cols).min(cols),
                    alpha: of.spec.alpha,
                    to: self.panels_of_part.add(((j - j0) * count + k) * cols),
                });
            }
            k += size;
        }
    }
}

/// All rows times columns `columns.0..columns.1`, as sums of rows of B.
pub(super) struct Sums<'a> {
    pub(super) of: &'a MatMul,
    pub(super) a: *const f32,
    pub(super) a_row: usize,
    pub(super) b: *const f32,
    pub(super) b_row: usize,
    pub(super) c: *mut f32,
    pub(super) c_row: usize,
    pub(super) r: *const f32,
    pub(super) r_row: usize,
    pub(super) bias: *const f32,
    pub(super) row_bias: *const f32,
    pub(super) columns: (usize, usize),
}

impl Body for Sums<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let of = self.of;
        let (j0, j1) = self.columns;
        let n = j1 - j0;
        for i in 0..of.m {
            let c = self.c.add(i * self.c_row + j0);
            let start = if self.row_bias.is_null() { 0.0 } else { *self.row_bias.add(i) };
            for j in 0..n {
                let bias = if self.bias.is_null() { 0.0 } else { *self.bias.add(j0 + j) };
                *c.add(j) = start + bias;
            }
        }
        let mut k = 0;
        while k < of.k {
            let count = (of.k - k).min(4);
            let b = self.b.add(k * self.b_row + j0);
            for i in 0..of.m {
                let c = self.c.add(i * self.c_row + j0);
                let mut a = [S::zero(); 4];
                for (q, a) in a.iter_mut().enumerate().take(count) {
                    let value = *self.a.add(i * self.a_row + k + q);
                    *a = S::splat(of.spec.alpha * value);
                }
                let mut j = 0;
                while count == 4 && j + LANES <= n {
                    let mut sum = S::load(c.add(j));
                    for q in 0..4 {
                        sum = S::fma(a[q], S::load(b.add(q * self.b_row + j)), sum);
                    }
                    S::store(c.add(j), sum);
                    j += LANES;
                }
                while j < n {
                    let lanes = (n - j).min(LANES);
                    let mut sum = S::load_part(c.add(j), lanes);
                    for (q, a) in a.iter().enumerate().take(count) {
                        let b = S::load_part(b.add(q * self.b_row + j), lanes);
                        sum = S::fma(*a, b, sum);
                    }
                    S::store_part(c.add(j), sum, lanes);
                    j += lanes;
                }
            }
            k += count;
        }
        for i in 0..of.m {
            let r = self.r.wrapping_add(i * self.r_row + j0);
            of.epilogue.apply::<S>(self.c.add(i * self.c_row + j0), r, n);
        }
    }
}
