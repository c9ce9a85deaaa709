//! Winograd's minimal filtering for 3x3 windows of stride 1.
//!
//! Per block of tiles: the input transform writes V[xi][tile][channel], one product with U[xi] for each
//! of the `side * side` points xi gives M[xi][tile][channel], and the output transform adds bias,
//! residual and epilogue. U is made when packing, in `f64`.

use super::{Algorithm, Call, Common, ConvSpec};
use crate::{
    Isa, SpecError,
    simd::{Body, LANES, Simd},
    tile::{CLAMP, RESIDUAL, Split, TileArgs, Tiles, part},
    view::{Parts, Shared, spread},
};

/// Elements added between the points' matrices, so that they do not share cache sets.
const SKEW: usize = 16;
/// Bytes of V and M of a block.
const BLOCK_BYTES: usize = 300_000;
/// Fewest tiles of a block: below, U is read too often.
const FEWEST_TILES: usize = 18;
/// Bytes of U from which it is asked for ahead of time.
const AHEAD_BYTES: usize = 2 << 20;

/// The transforms of one tile size.
trait Tile: Copy + Send + Sync {
    /// Outputs, and inputs, along each side.
    const OUT: usize;
    const SIDE: usize;
    unsafe fn input<S: Simd>(d: &[S::V; 8]) -> [S::V; 8];
    unsafe fn output<S: Simd>(d: &[S::V; 8]) -> [S::V; 8];
    /// The filter transform, one row a point.
    fn filter() -> &'static [[f64; 3]];
}

macro_rules! fma {
    ($k:expr, $a:expr, $b:expr) => {
        S::fma(S::splat($k), $a, $b)
    };
}

/// F(2x2, 3x3): points 0, 1, -1, infinity.
#[derive(Clone, Copy)]
struct F2;

impl Tile for F2 {
    const OUT: usize = 2;
    const SIDE: usize = 4;

    #[inline(always)]
    unsafe fn input<S: Simd>(d: &[S::V; 8]) -> [S::V; 8] {
        let z = d[7];
        [S::sub(d[0], d[2]), S::add(d[1], d[2]), S::sub(d[2], d[1]), S::sub(d[1], d[3]), z, z, z, z]
    }

    #[inline(always)]
    unsafe fn output<S: Simd>(d: &[S::V; 8]) -> [S::V; 8] {
        let z = d[7];
        let first = S::add(S::add(d[0], d[1]), d[2]);
        [first, S::sub(S::sub(d[1], d[2]), d[3]), z, z, z, z, z, z]
    }

    fn filter() -> &'static [[f64; 3]] {
        &[[1.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0.0, 0.0, 1.0]]
    }
}

/// F(4x4, 3x3): points 0, 1, -1, 2, -2, infinity.
#[derive(Clone, Copy)]
struct F4;

impl Tile for F4 {
    const OUT: usize = 4;
    const SIDE: usize = 6;

    #[inline(always)]
    unsafe fn input<S: Simd>(d: &[S::V; 8]) -> [S::V; 8] {
        let a = fma!(-4.0, d[2], d[4]);
        let b = fma!(-4.0, d[1], d[3]);
        let c = S::sub(d[4], d[2]);
        let e = S::sub(d[3], d[1]);
        [
            fma!(4.0, d[0], fma!(-5.0, d[2], d[4])),
            S::add(a, b),
            S::sub(a, b),
            fma!(2.0, e, c),
            fma!(-2.0, e, c),
            fma!(4.0, d[1], fma!(-5.0, d[3], d[5])),
            d[7],
            d[7],
        ]
    }

    #[inline(always)]
    unsafe fn output<S: Simd>(d: &[S::V; 8]) -> [S::V; 8] {
        let (s, t) = (S::add(d[1], d[2]), S::sub(d[1], d[2]));
        let (p, q) = (S::add(d[3], d[4]), S::sub(d[3], d[4]));
        let z = d[7];
        [
            S::add(S::add(d[0], s), p),
            fma!(2.0, q, t),
            fma!(4.0, p, s),
            S::add(fma!(8.0, q, t), d[5]),
            z,
            z,
            z,
            z,
        ]
    }

    fn filter() -> &'static [[f64; 3]] {
        const S: f64 = 1.0 / 6.0;
        &[
            [0.25, 0.0, 0.0],
            [-S, -S, -S],
            [-S, S, -S],
            [S / 4.0, S / 2.0, S],
            [S / 4.0, -S / 2.0, S],
            [0.0, 0.0, 1.0],
        ]
    }
}

/// F(6x6, 3x3): points 0, 1, -1, 2, -2, 1/2, -1/2, infinity.
#[derive(Clone, Copy)]
struct F6;

impl Tile for F6 {
    const OUT: usize = 6;
    const SIDE: usize = 8;

    #[inline(always)]
    unsafe fn input<S: Simd>(d: &[S::V; 8]) -> [S::V; 8] {
        let a = S::add(fma!(-4.25, d[4], d[2]), d[6]);
        let b = S::add(fma!(-4.25, d[3], d[1]), d[5]);
        let c = fma!(0.25, d[2], fma!(-1.25, d[4], d[6]));
        let e = fma!(0.5, d[1], fma!(-2.5, d[3], S::add(d[5], d[5])));
        let f = fma!(4.0, d[2], fma!(-5.0, d[4], d[6]));
        let h = fma!(2.0, d[1], fma!(-2.5, d[3], S::mul(S::splat(0.5), d[5])));
        [
            fma!(5.25, S::sub(d[4], d[2]), S::sub(d[0], d[6])),
            S::add(a, b),
            S::sub(a, b),
            S::add(c, e),
            S::sub(c, e),
            S::add(f, h),
            S::sub(f, h),
            fma!(5.25, S::sub(d[3], d[5]), S::sub(d[7], d[1])),
        ]
    }

    #[inline(always)]
    unsafe fn output<S: Simd>(d: &[S::V; 8]) -> [S::V; 8] {
        let (s, t) = (S::add(d[1], d[2]), S::sub(d[1], d[2]));
        let (p, q) = (S::add(d[3], d[4]), S::sub(d[3], d[4]));
        let (u, v) = (S::add(d[5], d[6]), S::sub(d[5], d[6]));
        [
            S::add(S::add(d[0], s), S::add(p, u)),
            fma!(0.5, v, fma!(2.0, q, t)),
            fma!(0.25, u, fma!(4.0, p, s)),
            fma!(0.125, v, fma!(8.0, q, t)),
            fma!(0.0625, u, fma!(16.0, p, s)),
            S::add(d[7], fma!(0.03125, v, fma!(32.0, q, t))),
            d[7],
            d[7],
        ]
    }

    fn filter() -> &'static [[f64; 3]] {
        const A: f64 = -2.0 / 9.0;
        const B: f64 = 1.0 / 90.0;
        const C: f64 = 32.0 / 45.0;
        &[
            [1.0, 0.0, 0.0],
            [A, A, A],
            [A, -A, A],
            [B, 2.0 * B, 4.0 * B],
            [B, -2.0 * B, 4.0 * B],
            [C, C / 2.0, C / 4.0],
            [C, -C / 2.0, C / 4.0],
            [0.0, 0.0, 1.0],
        ]
    }
}

pub(super) struct Winograd {
    common: Common,
    /// Outputs along a tile's side.
    out: usize,
    tiles: [Tiles; 4],
    vectors: usize,
    /// Channels with padding to whole vectors.
    ic: usize,
    oc: usize,
    rows: usize,
    cols: usize,
    block: u32,
    staged: u8,
}

/// Where the parts of one block lie.
#[derive(Clone, Copy)]
struct Plan {
    tiles: usize,
    staged: bool,
}

impl Winograd {
    pub(super) fn new(common: Common, spec: &ConvSpec, tile: u8) -> Result<Winograd, SpecError> {
        let fail = |what: String| SpecError::Unsupported { kind: "Conv", what };
        let g = &common.geometry;
        if !g.fits_winograd() {
            return Err(fail(
                "needs a 3x3 window of stride 1, one group and no plain input for Winograd".into(),
            ));
        }
        if ![2, 4, 6].contains(&tile) {
            return Err(fail(format!("has Winograd tiles of 2, 4 and 6, not {tile}")));
        }
        if tile == 6 && common.isa == Isa::Portable {
            return Err(fail("has no portable Winograd tile of 6".into()));
        }
        let vectors = match spec.knobs.vectors {
            0 if g.output.c <= LANES => 1,
            0 => common.isa.tile_vectors(),
            v @ 1..=4 => usize::from(v),
            v => return Err(fail(format!("has tiles of 1 to 4 vectors, not {v}"))),
        };
        let out = usize::from(tile);
        let isa = common.isa;
        Ok(Winograd {
            out,
            tiles: [1, 2, 3, 4].map(|v| Tiles::new(isa, v)),
            vectors,
            ic: g.input.c.next_multiple_of(LANES),
            oc: g.output.c.next_multiple_of(LANES),
            rows: g.output.h.div_ceil(out),
            cols: g.output.w.div_ceil(out),
            block: spec.knobs.block,
            staged: spec.knobs.staged,
            common,
        })
    }

    fn side(&self) -> usize {
        self.out + 2
    }

    fn points(&self) -> usize {
        self.side() * self.side()
    }

    fn all_tiles(&self) -> usize {
        self.common.geometry.input.n * self.rows * self.cols
    }

    fn plan(&self, threads: usize) -> Plan {
        let all = self.all_tiles();
        let staged = match self.staged {
            0 => threads > 1 && all <= 64,
            choice => choice == 2 && threads > 1,
        };
        let tiles = match self.block as usize {
            0 if staged => all,
            0 => {
                let bytes = self.points() * (self.ic + self.oc) * 4;
                let most = (BLOCK_BYTES / bytes).max(FEWEST_TILES);
                // At least four blocks a thread, as long as they do not get small.
                let share = all.div_ceil(4 * threads).max(FEWEST_TILES);
                most.min(if threads > 1 { share } else { most })
            }
            block => block,
        };
        Plan { tiles: tiles.clamp(1, all.max(1)), staged }
    }

    /// Elements between the points' matrices in V and in M, and of a block's V and M together.
    fn block_len(&self, plan: Plan) -> (usize, usize, usize) {
        let (v, m) = (plan.tiles * self.ic + SKEW, plan.tiles * self.oc + SKEW);
        (v, m, (self.points() * (v + m)).next_multiple_of(16))
    }

    fn panels(&self) -> usize {
        self.oc.div_ceil(self.vectors * LANES)
    }

    fn panel_vectors(&self, panel: usize) -> usize {
        ((self.oc - panel * self.vectors * LANES) / LANES).min(self.vectors)
    }
}

/// Input transform of some tiles.
struct Input<'a, T> {
    of: &'a Winograd,
    call: &'a Call<'a>,
    tiles: (usize, usize),
    /// V of the first tile of the block, and the block's first tile.
    v: *mut f32,
    first: usize,
    step: usize,
    tile: T,
}

impl<T: Tile> Body for Input<'_, T> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let of = self.of;
        let _ = self.tile;
        if const { T::OUT == 6 && !S::SPECIAL } {
            return;
        }
        let x = &self.call.input;
        let (h, w) = (x.dims.h as isize, x.dims.w as isize);
        let (hy, hx) = (x.halo.0 as isize, x.halo.1 as isize);
        let side = T::SIDE as isize;
        let pads = of.common.geometry.pads;
        let mut patch = [0f32; 64 * LANES];
        for t in self.tiles.0..self.tiles.1 {
            let (n, at) = (t / (of.rows * of.cols), t % (of.rows * of.cols));
            let y0 = (at / of.cols * T::OUT) as isize - pads.0 as isize;
            let x0 = (at % of.cols * T::OUT) as isize - pads.1 as isize;
            let to = self.v.add((t - self.first) * of.ic);
            let inside = y0 >= -hy && x0 >= -hx && y0 + side <= h + hy && x0 + side <= w + hx;
            for b in 0..of.ic / LANES {
                let to = to.add(b * LANES);
                if inside && x.whole(b) {
                    let from = x.at(n, y0, x0).wrapping_add(b * x.sb);
                    input_tile::<S, T>(from, x.sh, x.sw, to, self.step);
                    continue;
                }
                // Gather what exists into a zeroed patch.
                let (ya, yb) = (y0.max(0), (y0 + side).min(h));
                let (xa, xb) = (x0.max(0), (x0 + side).min(w));
                patch.fill(0.0);
                let lanes = x.lanes(b);
                for y in ya..yb {
                    for px in xa..xb {
                        let from = x.at(n, y, px).wrapping_add(b * x.sb);
                        let q = ((y - y0) * side + px - x0) as usize * LANES;
                        let value =
                            if x.whole(b) { S::load(from) } else { S::load_part(from, lanes) };
                        S::store(patch.as_mut_ptr().add(q), value);
                    }
                }
                input_tile::<S, T>(patch.as_ptr(), T::SIDE * LANES, LANES, to, self.step);
            }
        }
    }
}

#[inline(always)]
unsafe fn input_tile<S: Simd, T: Tile>(
    from: *const f32,
    row: usize,
    pixel: usize,
    to: *mut f32,
    step: usize,
) {
    let mut t = [[S::zero(); 8]; 8];
    for j in 0..T::SIDE {
        let mut column = [S::zero(); 8];
        for i in 0..T::SIDE {
            column[i] = S::load(from.add(i * row + j * pixel));
        }
        let r = T::input::<S>(&column);
        for i in 0..T::SIDE {
            t[i][j] = r[i];
        }
    }
    for i in 0..T::SIDE {
        let r = T::input::<S>(&t[i]);
        for j in 0..T::SIDE {
            S::store(to.add((i * T::SIDE + j) * step), r[j]);
        }
    }
}

/// The products of one point, for some tiles.
struct Product<'a> {
    of: &'a Winograd,
    tiles: usize,
    v: *const f32,
    m: *mut f32,
    u: *const f32,
    ahead: bool,
}

impl Body for Product<'_> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let of = self.of;
        let offsets = [0isize];
        let mut args = TileArgs::new();
        args.offsets = offsets.as_ptr();
        args.segments = 1;
        args.run = of.ic;
        for panel in 0..of.panels() {
            let tiles = &of.tiles[of.panel_vectors(panel) - 1];
            let first = panel * of.vectors * LANES;
            args.w = self.u.add(first * of.ic);
            args.w_step = tiles.cols();
            let row_tiles = self.tiles.div_ceil(tiles.max_rows());
            let split = Split::new(self.tiles, row_tiles);
            for i in 0..row_tiles {
                let (start, rows) = split.part(i);
                for q in 0..rows {
                    args.a[q] = self.v.add((start + q) * of.ic);
                    args.c[q] = self.m.add((start + q) * of.oc + first);
                }
                // The first row tile reads a panel that is not yet in the first-level cache.
                if self.ahead && i == 0 {
                    tiles.rows_ahead(rows)(&args);
                } else {
                    tiles.rows(rows)(&args);
                }
            }
        }
    }
}

/// Output transform of some tiles.
struct Output<'a, T> {
    of: &'a Winograd,
    call: &'a Call<'a>,
    tiles: (usize, usize),
    m: *const f32,
    first: usize,
    step: usize,
    tile: T,
}

impl<T: Tile> Body for Output<'_, T> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let of = self.of;
        let _ = self.tile;
        if const { T::OUT == 6 && !S::SPECIAL } {
            return;
        }
        let y = &self.call.output;
        let r = self.call.residual.as_ref().unwrap_or(y);
        for t in self.tiles.0..self.tiles.1 {
            let (n, at) = (t / (of.rows * of.cols), t % (of.rows * of.cols));
            let (y0, x0) = (at / of.cols * T::OUT, at % of.cols * T::OUT);
            let h = T::OUT.min(y.dims.h - y0);
            let w = T::OUT.min(y.dims.w - x0);
            let from = self.m.add((t - self.first) * of.oc);
            let to = y.at(n, y0 as isize, x0 as isize);
            let res = r.at(n, y0 as isize, x0 as isize) as *const f32;
            for b in 0..of.oc / LANES {
                let bias = S::load(self.call.constant.add(b * LANES));
                let to = to.wrapping_add(b * y.sb);
                let res = res.wrapping_add(b * r.sb);
                let from = from.add(b * LANES);
                match of.common.epilogue.simple() {
                    Some((flags, low, high)) if y.lanes(b) == LANES => {
                        let whole = h == T::OUT && w == T::OUT;
                        let (h, w) = if whole { (T::OUT, T::OUT) } else { (h, w) };
                        let clamp = (flags & CLAMP != 0).then_some((low, high));
                        let res = (flags & RESIDUAL != 0).then_some((res, r.sh, r.sw));
                        output_tile::<S, T>(
                            from,
                            self.step,
                            bias,
                            clamp,
                            res,
                            to,
                            (y.sh, y.sw),
                            (h, w),
                        );
                    }
                    _ => self.slowly::<S>(from, bias, (to, res), b, (h, w)),
                }
            }
        }
    }
}

impl<T: Tile> Output<'_, T> {
    /// Any epilogue, and channels that are not a whole vector.
    #[inline(always)]
    unsafe fn slowly<S: Simd>(
        &self,
        from: *const f32,
        bias: S::V,
        (to, res): (*mut f32, *const f32),
        b: usize,
        (h, w): (usize, usize),
    ) {
        let y = &self.call.output;
        let r = self.call.residual.as_ref().unwrap_or(y);
        let mut values = [0f32; 36 * LANES];
        let mut addend = [0f32; 36 * LANES];
        let strides = (T::OUT * LANES, LANES);
        let whole = (T::OUT, T::OUT);
        let at = values.as_mut_ptr();
        output_tile::<S, T>(from, self.step, bias, None, None, at, strides, whole);
        let (lanes, exist) = (y.lanes(b), y.whole(b));
        let epilogue = &self.of.common.epilogue;
        if epilogue.adds() {
            for i in 0..h {
                for j in 0..w {
                    let p = res.add(i * r.sh + j * r.sw);
                    let x = if r.whole(b) { S::load(p) } else { S::load_part(p, lanes) };
                    S::store(addend.as_mut_ptr().add((i * T::OUT + j) * LANES), x);
                }
            }
        }
        epilogue.apply::<S>(values.as_mut_ptr(), addend.as_ptr(), T::OUT * T::OUT * LANES);
        for i in 0..h {
            for j in 0..w {
                let p = values.as_ptr().add((i * T::OUT + j) * LANES);
                let q = to.add(i * y.sh + j * y.sw);
                let x = if lanes == LANES { S::load(p) } else { S::load_part(p, lanes) };
                if exist {
                    S::store(q, x);
                } else {
                    S::store_part(q, x, lanes);
                }
            }
        }
    }
}

#[inline(always)]
#[allow(clippy::too_many_arguments)]
unsafe fn output_tile<S: Simd, T: Tile>(
    from: *const f32,
    step: usize,
    bias: S::V,
    clamp: Option<(f32, f32)>,
    residual: Option<(*const f32, usize, usize)>,
    to: *mut f32,
    (row, pixel): (usize, usize),
    (h, w): (usize, usize),
) {
    let mut t = [[S::zero(); 8]; 8];
    for j in 0..T::SIDE {
        let mut column = [S::zero(); 8];
        for i in 0..T::SIDE {
            column[i] = S::load(from.add((i * T::SIDE + j) * step));
        }
        let o = T::output::<S>(&column);
        for i in 0..T::OUT {
            t[i][j] = o[i];
        }
    }
    for i in 0..T::OUT {
        if i < h {
            let o = T::output::<S>(&t[i]);
            for j in 0..T::OUT {
                if j < w {
                    let mut x = S::add(o[j], bias);
                    if let Some((r, row, pixel)) = residual {
                        x = S::add(x, S::load(r.add(i * row + j * pixel)));
                    }
                    if let Some((low, high)) = clamp {
                        x = S::min(S::splat(high), S::max(S::splat(low), x));
                    }
                    S::store(to.add(i * row + j * pixel), x);
                }
            }
        }
    }
}

impl Winograd {
    unsafe fn run_tiles<T: Tile>(&self, call: &Call<'_>, tile: T) {
        let pool = call.run.pool;
        let plan = self.plan(pool.threads());
        let (v_step, m_step, len) = self.block_len(plan);
        let workspace = Shared::new(call.run.workspace.as_mut_ptr().cast::<f32>());
        let u = Shared::new(call.constant.wrapping_add(self.oc.next_multiple_of(16)).cast_mut());
        let (all, points, isa) = (self.all_tiles(), self.points(), self.common.isa);
        let u_step = self.ic * self.oc;
        let ahead = 4 * points * u_step >= AHEAD_BYTES;
        let blocks = all.div_ceil(plan.tiles);
        let work = all * points * u_step;
        call.output.zero_halo();
        let input = |v: *mut f32, first: usize, tiles: (usize, usize)| {
            // SAFETY: each call writes the rows of V of its own tiles.
            unsafe { isa.enter(Input { of: self, call, tiles, v, first, step: v_step, tile }) };
        };
        let product = |v: *mut f32, tiles: usize, xi: usize| {
            let m = v.wrapping_add(points * v_step + xi * m_step);
            let v = v.wrapping_add(xi * v_step) as *const f32;
            let u = u.get().wrapping_add(xi * u_step);
            // SAFETY: each call writes the M of its own point.
            unsafe { isa.enter(Product { of: self, tiles, v, m, u, ahead }) };
        };
        let output = |v: *mut f32, first: usize, tiles: (usize, usize)| {
            let m = v.wrapping_add(points * v_step) as *const f32;
            // SAFETY: each call writes the pixels of its own tiles.
            unsafe { isa.enter(Output { of: self, call, tiles, m, first, step: m_step, tile }) };
        };
        if !plan.staged {
            spread(pool, work, blocks, &|block, thread| {
                if call.run.cancel.is_cancelled() {
                    return;
                }
                let (t0, count) = part(all, blocks, block);
                let v = workspace.get().wrapping_add(thread * len);
                input(v, t0, (t0, t0 + count));
                (0..points).for_each(|xi| product(v, count, xi));
                output(v, t0, (t0, t0 + count));
            });
            return;
        }
        for block in 0..blocks {
            let (t0, count) = part(all, blocks, block);
            let parts = count.min(4 * pool.threads());
            let range = |i: usize| {
                let (start, size) = part(count, parts, i);
                (t0 + start, t0 + start + size)
            };
            let v = workspace;
            spread(pool, work, parts, &|i, _| input(v.get(), t0, range(i)));
            spread(pool, work, points, &|xi, _| product(v.get(), count, xi));
            spread(pool, work, parts, &|i, _| output(v.get(), t0, range(i)));
        }
    }
}

impl Algorithm for Winograd {
    fn variant(&self) -> String {
        format!("winograd-f{}", self.out)
    }

    fn tag(&self) -> String {
        format!("{}-{}", self.variant(), self.vectors * LANES)
    }

    fn workspace(&self, threads: usize) -> u64 {
        let plan = self.plan(threads);
        let blocks = if plan.staged { 1 } else { threads };
        let mut parts = Parts::new();
        parts.add(self.block_len(plan).2 * blocks);
        parts.bytes()
    }

    fn in_place(&self) -> bool {
        true
    }

    fn packed_len(&self) -> usize {
        self.oc.next_multiple_of(16) + self.points() * self.ic * self.oc
    }

    fn pack(&self, weights: &[f32], bias: &[f32], to: &mut [f32]) {
        let g = &self.common.geometry;
        to[..bias.len()].copy_from_slice(bias);
        let u = &mut to[self.oc.next_multiple_of(16)..];
        let filter = match self.out {
            2 => F2::filter(),
            4 => F4::filter(),
            _ => F6::filter(),
        };
        let (side, width) = (self.side(), self.vectors * LANES);
        for o in 0..g.output.c {
            let panel = o / width;
            let cols = self.panel_vectors(panel) * LANES;
            for i in 0..g.input.c {
                let w = &weights[(o * g.input.c + i) * 9..][..9];
                let mut half = [[0f64; 3]; 8];
                for (row, f) in half.iter_mut().zip(filter) {
                    for (x, value) in row.iter_mut().enumerate() {
                        *value = (0..3).map(|y| f[y] * f64::from(w[y * 3 + x])).sum();
                    }
                }
                for y in 0..side {
                    for (x, f) in filter.iter().enumerate() {
                        let value: f64 = (0..3).map(|k| half[y][k] * f[k]).sum();
                        let at = (y * side + x) * self.ic * self.oc;
                        u[at + panel * width * self.ic + i * cols + o % width] = value as f32;
                    }
                }
            }
        }
    }

    unsafe fn run(&self, call: &Call<'_>) {
        match self.out {
            2 => self.run_tiles(call, F2),
            4 => self.run_tiles(call, F4),
            _ => self.run_tiles(call, F6),
        }
    }
}

const _: () = assert!(F6::SIDE * F6::SIDE <= 64 && F6::OUT * F6::OUT <= 36);
