//! The register tile: `MR` rows, broadcast, times `NV` vectors of columns. Shared by matrix products,
//! direct convolution and the products inside Winograd's method.

#[cfg(target_arch = "x86_64")]
mod wide;

use crate::{
    Isa,
    simd::{Body, LANES, Simd},
};

/// Most rows of any tile.
pub(crate) const MAX_ROWS: usize = 8;
/// Most columns of any tile.
pub(crate) const MAX_COLS: usize = 4 * LANES;

/// Start from what `c` holds instead of the bias.
pub(crate) const ACCUMULATE: u32 = 1;
/// Add `r` at the end.
pub(crate) const RESIDUAL: u32 = 2;
/// Clamp to `low..=high` at the very end.
pub(crate) const CLAMP: u32 = 4;

/// What one tile computes: `c[m][j] = start + sum a[m][segment + k] w[k][j]`, over segments and `k`.
pub(crate) struct TileArgs {
    /// Rows of the left factor.
    pub(crate) a: [*const f32; MAX_ROWS],
    /// Rows of the result; the vectors of a row are `c_step` apart.
    pub(crate) c: [*mut f32; MAX_ROWS],
    /// Rows of the addend, laid out as `c`.
    pub(crate) r: [*const f32; MAX_ROWS],
    pub(crate) c_step: usize,
    /// Offsets of `segments` contiguous runs of `run` elements in a row of the left factor.
    pub(crate) offsets: *const isize,
    pub(crate) segments: usize,
    pub(crate) run: usize,
    /// The right factor: `NV` vectors for each k, `w_step` elements from one k to the next.
    pub(crate) w: *const f32,
    pub(crate) w_step: usize,
    /// One value a column, or null for 0.
    pub(crate) bias: *const f32,
    pub(crate) flags: u32,
    pub(crate) low: f32,
    pub(crate) high: f32,
    /// Cache lines to ask for at the start.
    pub(crate) ahead: *const f32,
    pub(crate) ahead_lines: usize,
}

impl TileArgs {
    pub(crate) fn new() -> TileArgs {
        TileArgs {
            a: [std::ptr::null(); MAX_ROWS],
            c: [std::ptr::null_mut(); MAX_ROWS],
            r: [std::ptr::null(); MAX_ROWS],
            c_step: LANES,
            offsets: std::ptr::null(),
            segments: 0,
            run: 0,
            w: std::ptr::null(),
            w_step: 0,
            bias: std::ptr::null(),
            flags: 0,
            low: f32::NEG_INFINITY,
            high: f32::INFINITY,
            ahead: std::ptr::null(),
            ahead_lines: 0,
        }
    }
}

/// A compiled tile.
///
/// # Safety
/// The processor has the set it was made for, and the arguments point at valid memory.
pub(crate) type TileFn = unsafe fn(&TileArgs);

/// `AHEAD`: distance in elements at which the right factor is asked for, 0 for not at all. `PACKED`: its
/// columns follow each other, whatever `w_step` says. `RUN`: elements of a run, 0 for what `run` says.
struct Tile<
    'a,
    const MR: usize,
    const NV: usize,
    const AHEAD: usize,
    const PACKED: bool,
    const RUN: usize,
>(&'a TileArgs);

impl<const MR: usize, const NV: usize, const AHEAD: usize, const PACKED: bool, const RUN: usize>
    Body for Tile<'_, MR, NV, AHEAD, PACKED, RUN>
{
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let p = self.0;
        let mut acc = [[S::zero(); NV]; MR];
        if p.flags & ACCUMULATE != 0 {
            for m in 0..MR {
                for v in 0..NV {
                    acc[m][v] = S::load(p.c[m].add(v * p.c_step));
                }
            }
        } else if !p.bias.is_null() {
            for v in 0..NV {
                let bias = S::load(p.bias.add(v * LANES));
                for row in &mut acc {
                    row[v] = bias;
                }
            }
        }
        for i in 0..p.ahead_lines {
            S::prefetch(p.ahead.wrapping_add(16 * i));
        }
        let mut w = p.w;
        let run = if RUN > 0 { RUN } else { p.run };
        let w_step = if PACKED { NV * LANES } else { p.w_step };
        for s in 0..p.segments {
            let offset = *p.offsets.add(s);
            let mut a = [std::ptr::null::<f32>(); MR];
            for m in 0..MR {
                a[m] = p.a[m].offset(offset);
            }
            if const { MR == 4 && NV == 3 && PACKED } {
                acc = same(S::run_4x24(same(acc), same(a), w, run));
                w = w.add(run * w_step);
                continue;
            }
            if const { MR == 6 && NV == 2 && PACKED && AHEAD == 0 } {
                acc = same(S::run_6x16(same(acc), same(a), w, run));
                w = w.add(run * w_step);
                continue;
            }
            // Four values of k a turn, so that few instructions stand beside the products.
            let mut k = 0;
            while k + 4 <= run {
                for q in 0..4 {
                    step::<S, MR, NV, AHEAD>(&mut acc, &a, k + q, w.add(q * w_step));
                }
                w = w.add(4 * w_step);
                k += 4;
            }
            while k < run {
                step::<S, MR, NV, AHEAD>(&mut acc, &a, k, w);
                w = w.add(w_step);
                k += 1;
            }
        }
        finish::<S, MR, NV>(p, acc)
    }
}

/// Adds the products of one `k`, whose columns lie at `w`.
#[inline(always)]
unsafe fn step<S: Simd, const MR: usize, const NV: usize, const AHEAD: usize>(
    acc: &mut [[S::V; NV]; MR],
    a: &[*const f32; MR],
    k: usize,
    w: *const f32,
) {
    if const { AHEAD > 0 } {
        S::prefetch(w.wrapping_add(AHEAD));
    }
    if const { NV < 4 } {
        // Holds the columns and streams the rows.
        let mut b = [S::zero(); NV];
        for v in 0..NV {
            b[v] = S::load(w.add(v * LANES));
        }
        for m in 0..MR {
            let x = S::broadcast(a[m].add(k));
            for v in 0..NV {
                acc[m][v] = S::fma(x, b[v], acc[m][v]);
            }
        }
    } else {
        // Holds the rows and streams the columns: the other order needs a 17th register.
        let mut x = [S::zero(); MR];
        for m in 0..MR {
            x[m] = S::broadcast(a[m].add(k));
        }
        for v in 0..NV {
            let b = S::load(w.add(v * LANES));
            for m in 0..MR {
                acc[m][v] = S::fma(x[m], b, acc[m][v]);
            }
        }
    }
}

/// A value whose type the compiler does not see to be the same.
///
/// # Safety
///
/// `A` and `B` are the same type.
#[inline(always)]
unsafe fn same<A: Copy, B: Copy>(a: A) -> B {
    debug_assert_eq!((size_of::<A>(), align_of::<A>()), (size_of::<B>(), align_of::<B>()));
    std::mem::transmute_copy(&a)
}

#[inline(always)]
unsafe fn finish<S: Simd, const MR: usize, const NV: usize>(
    p: &TileArgs,
    mut acc: [[S::V; NV]; MR],
) {
    if p.flags & RESIDUAL != 0 {
        for m in 0..MR {
            for v in 0..NV {
                acc[m][v] = S::add(acc[m][v], S::load(p.r[m].add(v * p.c_step)));
            }
        }
    }
    if p.flags & CLAMP != 0 {
        let (low, high) = (S::splat(p.low), S::splat(p.high));
        for row in &mut acc {
            for x in row {
                *x = S::min(high, S::max(low, *x));
            }
        }
    }
    for m in 0..MR {
        for v in 0..NV {
            S::store(p.c[m].add(v * p.c_step), acc[m][v]);
        }
    }
}

/// One row: two values of k at a time, for enough independent sums.
struct Row<'a, const NV: usize>(&'a TileArgs);

impl<const NV: usize> Body for Row<'_, NV> {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let p = self.0;
        let mut acc = [[S::zero(); NV]; 2];
        if p.flags & ACCUMULATE != 0 {
            for v in 0..NV {
                acc[0][v] = S::load(p.c[0].add(v * p.c_step));
            }
        } else if !p.bias.is_null() {
            for v in 0..NV {
                acc[0][v] = S::load(p.bias.add(v * LANES));
            }
        }
        let mut w = p.w;
        for s in 0..p.segments {
            let a = p.a[0].offset(*p.offsets.add(s));
            let mut k = 0;
            while k + 2 <= p.run {
                for h in 0..2 {
                    let x = S::broadcast(a.add(k + h));
                    for v in 0..NV {
                        acc[h][v] = S::fma(x, S::load(w.add(v * LANES)), acc[h][v]);
                    }
                    w = w.add(p.w_step);
                }
                k += 2;
            }
            if k < p.run {
                let x = S::broadcast(a.add(k));
                for v in 0..NV {
                    acc[0][v] = S::fma(x, S::load(w.add(v * LANES)), acc[0][v]);
                }
                w = w.add(p.w_step);
            }
        }
        let mut sum = [[S::zero(); NV]; 1];
        for v in 0..NV {
            sum[0][v] = S::add(acc[0][v], acc[1][v]);
        }
        finish::<S, 1, NV>(p, sum)
    }
}

unsafe fn tile<
    S: Simd,
    const MR: usize,
    const NV: usize,
    const AHEAD: usize,
    const PACKED: bool,
    const RUN: usize,
>(
    p: &TileArgs,
) {
    S::enter(Tile::<MR, NV, AHEAD, PACKED, RUN>(p))
}

unsafe fn row<S: Simd, const NV: usize>(p: &TileArgs) {
    S::enter(Row::<NV>(p))
}

/// The tiles of one width, by number of rows less one.
#[derive(Clone, Copy)]
pub(crate) struct Tiles {
    packed: [TileFn; MAX_ROWS],
    /// Asks for weights 2 KiB ahead.
    ahead: [TileFn; MAX_ROWS],
    /// Runs of eight elements.
    eights: [TileFn; MAX_ROWS],
    /// Vectors of columns.
    pub(crate) vectors: usize,
    /// Most rows that keep sums and operands in registers.
    max_rows: usize,
}

/// Tiles from one row up, as many as there are; the tallest stands for the rest, which nobody asks for.
fn up_to(tiles: &[TileFn]) -> [TileFn; MAX_ROWS] {
    std::array::from_fn(|i| tiles[i.min(tiles.len() - 1)])
}

/// The tiles of one row and of others.
macro_rules! tall {
    ($one:expr, $nv:literal, $ahead:literal, $packed:literal, $run:literal, $($rows:literal)*) => {
        up_to(&[$one, $(tile::<S, $rows, $nv, $ahead, $packed, $run>),*])
    };
}

impl Tiles {
    /// The tiles of `vectors` (1 to 4) vectors of columns.
    ///
    /// Panics if the processor lacks the set.
    pub(crate) fn new(isa: Isa, vectors: usize) -> Tiles {
        assert!(isa.is_available(), "kernels are made for available sets only");
        match isa {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => Tiles::of::<crate::simd::Avx2>(vectors),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => wide::tiles(vectors),
            _ => Tiles::of::<crate::simd::Portable>(vectors),
        }
    }

    fn of<S: Simd>(vectors: usize) -> Tiles {
        let one: TileFn = match vectors {
            1 => row::<S, 1>,
            2 => row::<S, 2>,
            3 => row::<S, 3>,
            _ => row::<S, 4>,
        };
        let vectors = vectors.clamp(1, 4);
        let max_rows = [6, 6, 4, 3][vectors - 1];
        let strided = match vectors {
            1 => tall!(one, 1, 0, false, 0, 2 3 4 5 6),
            2 => tall!(one, 2, 0, false, 0, 2 3 4 5 6),
            3 => tall!(one, 3, 0, false, 0, 2 3 4),
            _ => tall!(one, 4, 0, false, 0, 2 3),
        };
        if const { !S::SPECIAL } {
            return Tiles { packed: strided, ahead: strided, eights: strided, vectors, max_rows };
        }
        let packed = match vectors {
            1 => tall!(one, 1, 0, true, 0, 2 3 4 5 6),
            2 => tall!(one, 2, 0, true, 0, 2 3 4 5 6),
            3 => tall!(one, 3, 0, true, 0, 2 3 4),
            _ => tall!(one, 4, 0, true, 0, 2 3),
        };
        let eights = match vectors {
            1 => tall!(one, 1, 0, true, 8, 2 3 4 5 6),
            2 => tall!(one, 2, 0, true, 8, 2 3 4 5 6),
            3 => tall!(one, 3, 0, true, 8, 2 3 4),
            _ => tall!(one, 4, 0, true, 8, 2 3),
        };
        let ahead = match vectors {
            2 => tall!(one, 2, 512, true, 0, 2 3 4 5 6),
            _ => packed,
        };
        Tiles { packed, ahead, eights, vectors, max_rows }
    }

    /// Most rows that keep sums and operands in registers.
    pub(crate) fn max_rows(&self) -> usize {
        self.max_rows
    }

    /// Columns of a tile.
    pub(crate) fn cols(&self) -> usize {
        self.vectors * LANES
    }

    /// The tile of `rows` rows, at most [`Tiles::max_rows`], for a packed right factor.
    pub(crate) fn rows(&self, rows: usize) -> TileFn {
        self.packed[rows - 1]
    }

    /// As [`Tiles::rows`], asking for the right factor ahead where there is such a tile.
    pub(crate) fn rows_ahead(&self, rows: usize) -> TileFn {
        self.ahead[rows - 1]
    }

    /// As [`Tiles::rows`], for runs of eight elements.
    pub(crate) fn rows_eights(&self, rows: usize) -> TileFn {
        self.eights[rows - 1]
    }
}

/// Nearly equal parts of a number, for loops that cannot afford a division each.
#[derive(Clone, Copy)]
pub(crate) struct Split {
    size: usize,
    rest: usize,
}

impl Split {
    #[inline(always)]
    pub(crate) fn new(n: usize, parts: usize) -> Split {
        Split { size: n / parts, rest: n % parts }
    }

    /// Start and size of part `i`.
    #[inline(always)]
    pub(crate) fn part(&self, i: usize) -> (usize, usize) {
        (i * self.size + i.min(self.rest), self.size + usize::from(i < self.rest))
    }
}

/// Start and size of part `i` of `parts` nearly equal parts of `n`.
#[inline(always)]
pub(crate) fn part(n: usize, parts: usize, i: usize) -> (usize, usize) {
    Split::new(n, parts).part(i)
}

/// Start and end of part `i`; see [`part`].
pub(crate) fn part_range(n: usize, parts: usize, i: usize) -> (usize, usize) {
    let (start, size) = part(n, parts, i);
    (start, start + size)
}
