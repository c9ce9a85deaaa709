//! Depthwise convolution: a tile of output pixels times eight channels, the weights read from memory.
//!
//! Where the input has no halo wide enough, the rows of one block of channels are first copied to a
//! zero-padded band in the thread's workspace, which stays in the second-level cache.

use super::{Algorithm, Call, Common, ConvSpec};
use crate::{
    SpecError,
    simd::{Body, LANES, Simd},
    tile::{CLAMP, RESIDUAL},
    view::{Image, Kind, Parts, Shared, spread},
};

/// Elements of a thread's band of the input.
const BAND_ELEMENTS: usize = 32 << 10;
/// Output columns of a tile.
const WIDE: usize = 4;

pub(super) struct Depthwise {
    common: Common,
    /// Output rows of a band.
    band: usize,
    /// The halo of the input covers the padding.
    halo: bool,
}

impl Depthwise {
    pub(super) fn new(common: Common, spec: &ConvSpec) -> Result<Depthwise, SpecError> {
        let g = &common.geometry;
        if !g.fits_depthwise() {
            let what = "needs one filter a channel and no plain input for the depthwise algorithm";
            return Err(SpecError::Unsupported { kind: "Conv", what: what.into() });
        }
        let reach = |k: usize, d: usize, o: usize, s: usize, p: usize, i: usize| {
            p.max(((o - 1) * s + d * (k - 1) + 1).saturating_sub(p + i))
        };
        let y = reach(g.kernel.0, g.dilations.0, g.output.h, g.strides.0, g.pads.0, g.input.h);
        let x = reach(g.kernel.1, g.dilations.1, g.output.w, g.strides.1, g.pads.1, g.input.w);
        let halo = y <= g.halo.0 && x <= g.halo.1;
        let mut depthwise = Depthwise { band: 1, halo, common };
        let g = &depthwise.common.geometry;
        let row = depthwise.columns() * LANES;
        let fit = (BAND_ELEMENTS / row).saturating_sub(depthwise.rows_of(1)) / g.strides.0 + 1;
        let most = match spec.knobs.block {
            0 if halo => g.output.h.div_ceil(4).max(4),
            0 => fit,
            rows => rows as usize,
        };
        // Even, so that tiles of two rows fit.
        depthwise.band = most.next_multiple_of(2).min(g.output.h.max(1));
        Ok(depthwise)
    }

    /// Columns of a copied band.
    fn columns(&self) -> usize {
        let g = &self.common.geometry;
        (g.output.w - 1) * g.strides.1 + g.dilations.1 * (g.kernel.1 - 1) + 1
    }

    /// Input rows that `rows` output rows read.
    fn rows_of(&self, rows: usize) -> usize {
        let g = &self.common.geometry;
        (rows - 1) * g.strides.0 + g.dilations.0 * (g.kernel.0 - 1) + 1
    }

    fn window(&self) -> usize {
        self.common.geometry.kernel.0 * self.common.geometry.kernel.1
    }

    fn band_len(&self) -> usize {
        (self.rows_of(self.band) * self.columns() * LANES).next_multiple_of(16)
    }
}

/// Rows of input and output of one band, in elements from one row or pixel to the next.
#[derive(Clone, Copy)]
struct Strip {
    input: *const f32,
    in_row: usize,
    in_pixel: usize,
    output: *mut f32,
    residual: *const f32,
    out_row: usize,
    out_pixel: usize,
    weights: *const f32,
    bias: *const f32,
    /// Channels that exist.
    lanes: usize,
    /// Whether the output has room for a whole vector.
    whole: bool,
}

/// Output rows `y0..y1` of channel blocks `blocks`.
struct Band<'a> {
    of: &'a Depthwise,
    call: &'a Call<'a>,
    n: usize,
    rows: (usize, usize),
    blocks: (usize, usize),
    scratch: *mut f32,
}

impl Body for Band<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let g = &self.of.common.geometry;
        if const { !S::SPECIAL } {
            return self.strips::<S, 0, 0>();
        }
        match (g.kernel, g.strides, g.dilations) {
            ((3, 3), (1, 1), (1, 1)) => self.strips::<S, 3, 1>(),
            ((3, 3), (2, 2), (1, 1)) => self.strips::<S, 3, 2>(),
            ((5, 5), (1, 1), (1, 1)) => self.strips::<S, 5, 1>(),
            ((5, 5), (2, 2), (1, 1)) => self.strips::<S, 5, 2>(),
            _ => self.strips::<S, 0, 0>(),
        }
    }
}

impl Band<'_> {
    /// Windows of K x K with stride T; K = 0 for any.
    #[inline(always)]
    unsafe fn strips<S: Simd, const K: usize, const T: usize>(&self) {
        let of = self.of;
        let g = &of.common.geometry;
        let (x, y) = (&self.call.input, &self.call.output);
        let r = self.call.residual.as_ref().unwrap_or(y);
        let (y0, y1) = self.rows;
        let strip = |b: usize| {
            let at = |image: &Image, y: isize, x: isize| {
                image.at(self.n, y, x).wrapping_add(b * image.sb)
            };
            let top = (y0 * g.strides.0) as isize - g.pads.0 as isize;
            Strip {
                input: at(x, top, -(g.pads.1 as isize)),
                in_row: x.sh,
                in_pixel: x.sw,
                output: at(y, y0 as isize, 0),
                residual: at(r, y0 as isize, 0),
                out_row: y.sh,
                out_pixel: y.sw,
                weights: self
                    .call
                    .constant
                    .wrapping_add(g.input.c.next_multiple_of(16) + b * of.window() * LANES),
                bias: self.call.constant.wrapping_add(b * LANES),
                lanes: y.lanes(b),
                whole: y.whole(b),
            }
        };
        let direct = of.halo && self.call.input.whole(self.blocks.1 - 1);
        if const { K != 0 } && direct && self.blocks.1 - self.blocks.0 > 1 {
            // Channels-last: all channels of a pixel tile before the next one.
            let mut row = 0;
            while row < y1 - y0 {
                let rows = if y1 - y0 - row >= 2 { 2 } else { 1 };
                let mut column = 0;
                while column < g.output.w {
                    let wide = g.output.w - column >= WIDE;
                    let mut s = strip(self.blocks.0);
                    for _ in self.blocks.0..self.blocks.1 {
                        match (rows, wide) {
                            (2, true) => self.tile::<S, K, T, 2, WIDE>(&s, row, column, r),
                            (2, false) => self.tile::<S, K, T, 2, 1>(&s, row, column, r),
                            (_, true) => self.tile::<S, K, T, 1, WIDE>(&s, row, column, r),
                            (_, false) => self.tile::<S, K, T, 1, 1>(&s, row, column, r),
                        }
                        s.input = s.input.wrapping_add(x.sb);
                        s.output = s.output.wrapping_add(y.sb);
                        s.residual = s.residual.wrapping_add(r.sb);
                        s.weights = s.weights.wrapping_add(of.window() * LANES);
                        s.bias = s.bias.wrapping_add(LANES);
                    }
                    column += if wide { WIDE } else { 1 };
                }
                let blocks = self.blocks.1 - self.blocks.0;
                self.finish::<S>(&strip(self.blocks.0), (row, row + rows), blocks, r);
                row += rows;
            }
            return;
        }
        for b in self.blocks.0..self.blocks.1 {
            let mut s = strip(b);
            if !(of.halo && x.whole(b)) {
                self.copy::<S>(b);
                s.input = self.scratch;
                s.in_row = of.columns() * LANES;
                s.in_pixel = LANES;
            }
            let mut row = 0;
            while row < y1 - y0 {
                if const { K == 0 } {
                    for column in 0..g.output.w {
                        self.any::<S>(&s, row, column, r);
                    }
                    self.finish::<S>(&s, (row, row + 1), 1, r);
                    row += 1;
                    continue;
                }
                let two = y1 - y0 - row >= 2;
                let mut column = 0;
                while column + WIDE <= g.output.w {
                    if two {
                        self.tile::<S, K, T, 2, WIDE>(&s, row, column, r);
                    } else {
                        self.tile::<S, K, T, 1, WIDE>(&s, row, column, r);
                    }
                    column += WIDE;
                }
                while column < g.output.w {
                    if two {
                        self.tile::<S, K, T, 2, 1>(&s, row, column, r);
                    } else {
                        self.tile::<S, K, T, 1, 1>(&s, row, column, r);
                    }
                    column += 1;
                }
                let rows = if two { 2 } else { 1 };
                self.finish::<S>(&s, (row, row + rows), 1, r);
                row += rows;
            }
        }
    }

    /// Flags and bounds of what the tiles of whole vectors do after their sums.
    #[inline(always)]
    fn in_tile(&self) -> (u32, f32, f32) {
        self.of.common.epilogue.simple().unwrap_or((0, f32::NEG_INFINITY, f32::INFINITY))
    }

    /// The epilogue over rows of `blocks` blocks from `s` on whose sums are written, unless the tiles
    /// applied it.
    #[inline(always)]
    unsafe fn finish<S: Simd>(&self, s: &Strip, rows: (usize, usize), blocks: usize, r: &Image) {
        let (epilogue, width) = (&self.of.common.epilogue, self.of.common.geometry.output.w);
        if !epilogue.is_late() || s.lanes < LANES {
            return;
        }
        let y = &self.call.output;
        // Blocks that lie apart, and vectors of a pixel that follow each other.
        let (apart, together) = if y.kind == Kind::Last { (1, blocks) } else { (blocks, 1) };
        for row in rows.0..rows.1 {
            for b in 0..apart {
                let x = s.output.wrapping_add(row * s.out_row + b * y.sb);
                let res = s.residual.wrapping_add(row * r.sh + b * r.sb);
                if together == 1 {
                    epilogue.apply_vectors::<S>((x, s.out_pixel), (res, r.sw), width);
                    continue;
                }
                for i in 0..width {
                    let (x, r) = (x.wrapping_add(i * s.out_pixel), res.wrapping_add(i * r.sw));
                    epilogue.apply::<S>(x, r, together * LANES);
                }
            }
        }
    }

    /// Copies the rows that the band reads, with zeros around.
    #[inline(always)]
    unsafe fn copy<S: Simd>(&self, b: usize) {
        let of = self.of;
        let g = &of.common.geometry;
        let x = &self.call.input;
        let (rows, columns) = (of.rows_of(self.rows.1 - self.rows.0), of.columns());
        let left = g.pads.1.min(columns);
        let inside = x.dims.w.min(columns - left);
        let lanes = x.lanes(b);
        for row in 0..rows {
            let y = (self.rows.0 * g.strides.0 + row) as isize - g.pads.0 as isize;
            let to = self.scratch.add(row * columns * LANES);
            if y < 0 || y >= x.dims.h as isize {
                std::ptr::write_bytes(to, 0, columns * LANES);
                continue;
            }
            let from = x.at(self.n, y, 0).wrapping_add(b * x.sb);
            for i in 0..left {
                S::store(to.add(i * LANES), S::zero());
            }
            for i in 0..inside {
                let p = from.add(i * x.sw);
                let value = if x.whole(b) { S::load(p) } else { S::load_part(p, lanes) };
                S::store(to.add((left + i) * LANES), value);
            }
            for i in left + inside..columns {
                S::store(to.add(i * LANES), S::zero());
            }
        }
    }

    #[inline(always)]
    unsafe fn tile<
        S: Simd,
        const K: usize,
        const T: usize,
        const ROWS: usize,
        const COLUMNS: usize,
    >(
        &self,
        s: &Strip,
        row: usize,
        column: usize,
        r: &Image,
    ) {
        let input = s.input.wrapping_add(row * T * s.in_row + column * T * s.in_pixel);
        let mut acc = [[S::load(s.bias); COLUMNS]; ROWS];
        for iy in 0..(ROWS - 1) * T + K {
            let line = input.wrapping_add(iy * s.in_row);
            let mut d = [S::zero(); 16];
            for i in 0..(COLUMNS - 1) * T + K {
                d[i] = S::load(line.wrapping_add(i * s.in_pixel));
            }
            for q in 0..ROWS {
                if iy >= q * T && iy < q * T + K {
                    let ky = iy - q * T;
                    for kx in 0..K {
                        let w = S::load(s.weights.add((ky * K + kx) * LANES));
                        for i in 0..COLUMNS {
                            acc[q][i] = S::fma(d[i * T + kx], w, acc[q][i]);
                        }
                    }
                }
            }
        }
        if s.lanes == LANES {
            let (flags, low, high) = self.in_tile();
            let (low, high) =
                if flags & CLAMP != 0 { (low, high) } else { (f32::NEG_INFINITY, f32::INFINITY) };
            let (low, high) = (S::splat(low), S::splat(high));
            if flags & RESIDUAL != 0 {
                let res = s.residual.wrapping_add(row * r.sh + column * r.sw);
                for q in 0..ROWS {
                    for i in 0..COLUMNS {
                        let p = res.wrapping_add(q * r.sh + i * r.sw);
                        acc[q][i] = S::add(acc[q][i], S::load(p));
                    }
                }
            }
            let to = s.output.wrapping_add(row * s.out_row + column * s.out_pixel);
            for q in 0..ROWS {
                for i in 0..COLUMNS {
                    let x = S::min(high, S::max(low, acc[q][i]));
                    S::store(to.wrapping_add(q * s.out_row + i * s.out_pixel), x);
                }
            }
            return;
        }
        for q in 0..ROWS {
            for i in 0..COLUMNS {
                self.put::<S>(s, row + q, column + i, r, acc[q][i]);
            }
        }
    }

    /// One output of any window.
    #[inline(always)]
    unsafe fn any<S: Simd>(&self, s: &Strip, row: usize, column: usize, r: &Image) {
        let g = &self.of.common.geometry;
        let mut sum = S::load(s.bias);
        for ky in 0..g.kernel.0 {
            for kx in 0..g.kernel.1 {
                let y = row * g.strides.0 + ky * g.dilations.0;
                let x = column * g.strides.1 + kx * g.dilations.1;
                let w = S::load(s.weights.add((ky * g.kernel.1 + kx) * LANES));
                sum = S::fma(S::load(s.input.wrapping_add(y * s.in_row + x * s.in_pixel)), w, sum);
            }
        }
        self.put::<S>(s, row, column, r, sum);
    }

    /// Epilogue and store of one vector.
    #[inline(always)]
    unsafe fn put<S: Simd>(&self, s: &Strip, row: usize, column: usize, r: &Image, mut x: S::V) {
        let to = s.output.wrapping_add(row * s.out_row + column * s.out_pixel);
        let res = s.residual.wrapping_add(row * r.sh + column * r.sw);
        let epilogue = &self.of.common.epilogue;
        if s.lanes == LANES {
            let (flags, low, high) = self.in_tile();
            if flags & RESIDUAL != 0 {
                x = S::add(x, S::load(res));
            }
            if flags & CLAMP != 0 {
                x = S::min(S::splat(high), S::max(S::splat(low), x));
            }
            return S::store(to, x);
        }
        let mut values = [0f32; LANES];
        let mut addend = [0f32; LANES];
        S::store(values.as_mut_ptr(), x);
        if epilogue.adds() {
            std::ptr::copy_nonoverlapping(res, addend.as_mut_ptr(), s.lanes);
        }
        epilogue.apply::<S>(values.as_mut_ptr(), addend.as_ptr(), LANES);
        values[s.lanes..].fill(0.0);
        let count = if s.whole { LANES } else { s.lanes };
        std::ptr::copy_nonoverlapping(values.as_ptr(), to, count);
    }
}

impl Algorithm for Depthwise {
    fn variant(&self) -> String {
        let (h, w) = self.common.geometry.kernel;
        format!("depthwise-{h}x{w}")
    }

    fn tag(&self) -> String {
        self.variant()
    }

    fn workspace(&self, threads: usize) -> u64 {
        let g = &self.common.geometry;
        let tail = g.input_kind == Kind::Last && !g.input.c.is_multiple_of(LANES);
        let mut parts = Parts::new();
        if !self.halo || tail {
            parts.add(self.band_len() * threads);
        }
        parts.bytes()
    }

    fn in_place(&self) -> bool {
        true
    }

    fn packed_len(&self) -> usize {
        let c = self.common.geometry.input.c;
        c.next_multiple_of(16) + c.next_multiple_of(LANES) * self.window()
    }

    fn pack(&self, weights: &[f32], bias: &[f32], to: &mut [f32]) {
        let c = self.common.geometry.input.c;
        to[..bias.len()].copy_from_slice(bias);
        let (window, base) = (self.window(), c.next_multiple_of(16));
        for channel in 0..c {
            for k in 0..window {
                let at = base + (channel / LANES * window + k) * LANES + channel % LANES;
                to[at] = weights[channel * window + k];
            }
        }
    }

    unsafe fn run(&self, call: &Call<'_>) {
        let g = &self.common.geometry;
        let workspace = Shared::new(call.run.workspace.as_mut_ptr().cast::<f32>());
        let blocks = g.output.blocks();
        let bands = g.output.h.div_ceil(self.band);
        // Channels-last rows hold all channels, so a task takes them all.
        let together = self.halo && call.input.kind == Kind::Last;
        let whole_blocks = g.input.c / LANES;
        let chunks = match together {
            true if 0 < whole_blocks && whole_blocks < blocks => 2,
            true => 1,
            false => blocks,
        };
        call.output.zero_halo();
        let work = g.output.n * g.output.c * g.output.h * g.output.w * self.window();
        spread(call.run.pool, work, g.output.n * chunks * bands, &|task, thread| {
            if call.run.cancel.is_cancelled() {
                return;
            }
            let (task, chunk) = (task / chunks, task % chunks);
            let (n, band) = (task / bands, task % bands);
            let blocks = match (together, chunk) {
                (true, 0) if whole_blocks > 0 => (0, whole_blocks),
                (true, _) => (whole_blocks, blocks),
                (false, b) => (b, b + 1),
            };
            if blocks.0 == blocks.1 {
                return;
            }
            let y = band * self.band;
            let rows = (y, (y + self.band).min(g.output.h));
            let scratch = workspace.get().wrapping_add(thread * self.band_len());
            // SAFETY: each task writes rows and channels of its own.
            unsafe { self.common.isa.enter(Band { of: self, call, n, rows, blocks, scratch }) };
        });
    }
}
