//! Sums of products, blocked for the cache and the registers and spread over threads.
//!
//! The blocking is the usual one: a block of each operand is converted and copied so that the
//! innermost loop reads both in order (Goto and van de Geijn, "Anatomy of High-Performance Matrix
//! Multiplication", 2008). The order of the additions depends on the sizes alone: neither on the
//! number of threads nor on the instructions that the processor has.

use std::sync::{
    Mutex, OnceLock,
    atomic::{AtomicUsize, Ordering},
};

/// A number that products are summed in.
pub(crate) trait Number: Copy + Default + Send + Sync {
    /// `self + a * b`.
    fn add_product(self, a: Self, b: Self) -> Self;
    /// `self + other`.
    fn add(self, other: Self) -> Self;

    /// Adds the products of the strips `a` and `b`, each `depth` lines long, to `tiles`: those of
    /// the first strip of `b` with every strip of `a`, then those of the second.
    fn add_block(
        depth: usize,
        a: &[[Self; ROWS]],
        b: &[[Self; COLUMNS]],
        tiles: &mut [Tile<Self>],
    ) {
        add_block(depth, a, b, tiles, add_plain);
    }

    /// Adds `factor` times each term to the sum at its place.
    fn add_scaled(sums: &mut [Self], factor: Self, terms: &[Self]) {
        add_scaled(sums, factor, terms);
    }
}

impl Number for f64 {
    #[inline(always)]
    fn add_product(self, a: f64, b: f64) -> f64 {
        self + a * b
    }

    #[inline(always)]
    fn add(self, other: f64) -> f64 {
        self + other
    }

    fn add_block(depth: usize, a: &[[f64; ROWS]], b: &[[f64; COLUMNS]], tiles: &mut [Tile<f64>]) {
        #[cfg(target_arch = "x86_64")]
        if let Some(simd) = pulp::x86::V3::try_new() {
            return simd.vectorize(
                #[inline(always)]
                || add_block(depth, a, b, tiles, |a, b, tile| add_fused(simd, a, b, tile)),
            );
        }
        add_block(depth, a, b, tiles, add_plain);
    }

    fn add_scaled(sums: &mut [f64], factor: f64, terms: &[f64]) {
        #[cfg(target_arch = "x86_64")]
        if let Some(simd) = pulp::x86::V3::try_new() {
            return simd.vectorize(
                #[inline(always)]
                || add_scaled(sums, factor, terms),
            );
        }
        add_scaled(sums, factor, terms);
    }
}

/// Modulo 2^64, so exact for every integer type once wrapped to its width.
impl Number for i64 {
    #[inline(always)]
    fn add_product(self, a: i64, b: i64) -> i64 {
        self.wrapping_add(a.wrapping_mul(b))
    }

    #[inline(always)]
    fn add(self, other: i64) -> i64 {
        self.wrapping_add(other)
    }
}

/// Sizes of a batch of products `[m, k] x [k, n]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) batches: usize,
    pub(crate) m: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
}

/// Rows and columns whose sums stay in registers: 12 vectors of four `f64`.
pub(crate) const ROWS: usize = 6;
pub(crate) const COLUMNS: usize = 8;
/// Most rows, columns and terms of a block.
const BLOCK_M: usize = 132;
const BLOCK_N: usize = 240;
const BLOCK_K: usize = 256;
/// Products with fewer multiply-adds run on the calling thread.
const SMALL: usize = 500_000;

type Tile<T> = [[T; COLUMNS]; ROWS];

/// Where a strip of an operand goes: `W` lanes, which are rows of the left operand or columns of
/// the right one, side by side for each term of the sum.
pub(crate) struct Strip<'a, T, const W: usize> {
    /// The row or column of lane 0.
    pub(crate) first: usize,
    /// Lanes that are there; the others stay zero.
    pub(crate) lanes: usize,
    /// The term of line 0.
    pub(crate) term: usize,
    /// One line per term.
    pub(crate) lines: &'a mut [[T; W]],
}

impl<T: Number, const W: usize> Strip<'_, T, W> {
    /// Fills the strip from an operand whose neighbouring lanes lie `lane_step` elements apart and
    /// whose neighbouring terms `term_step`.
    pub(crate) fn fill<S: Copy + Into<T>>(
        &mut self,
        operand: &[S],
        lane_step: usize,
        term_step: usize,
    ) {
        let start = self.first * lane_step + self.term * term_step;
        if lane_step == 1 && self.lanes == W {
            for (l, line) in self.lines.iter_mut().enumerate() {
                let from = &operand[start + l * term_step..][..W];
                line.iter_mut().zip(from).for_each(|(slot, &v)| *slot = v.into());
            }
            return;
        }
        if term_step == 1 && self.lanes == W && !self.lines.is_empty() {
            let depth = self.lines.len();
            let rows: [&[S]; W] =
                std::array::from_fn(|lane| &operand[start + lane * lane_step..][..depth]);
            for (l, line) in self.lines.iter_mut().enumerate() {
                line.iter_mut().zip(&rows).for_each(|(slot, row)| *slot = row[l].into());
            }
            return;
        }
        for lane in 0..self.lanes {
            let from = operand[start + lane * lane_step..].iter().step_by(term_step);
            self.lines.iter_mut().zip(from).for_each(|(line, &v)| line[lane] = v.into());
        }
    }
}

/// All sums, row-major in each batch, as `round(batch, row, sum)` gives them. `lhs(batch, strip)`
/// fills a strip of rows of the left operand, `rhs` one of columns of the right operand.
pub(crate) fn products<T: Number, S: Copy + Default + Send>(
    sizes: Sizes,
    lhs: impl Fn(usize, &mut Strip<'_, T, ROWS>) + Sync,
    rhs: impl Fn(usize, &mut Strip<'_, T, COLUMNS>) + Sync,
    round: impl Fn(usize, usize, T) -> S + Sync,
) -> Vec<S> {
    let Sizes { batches, m, n, k } = sizes;
    let mut results = vec![S::default(); batches * m * n];
    if results.is_empty() {
        return results;
    }
    let small = batches.saturating_mul(m).saturating_mul(n).saturating_mul(k) < SMALL;
    let threads = if small { 1 } else { cores() };
    let (block_m, block_n) = blocks(sizes, threads);
    let (tall, wide) = (m.div_ceil(block_m), n.div_ceil(block_n));
    let tasks = batches * tall * wide;
    let (next, store) = (AtomicUsize::new(0), Mutex::new(&mut results));
    let work = || {
        let (strips_a, strips_b) = (block_m / ROWS, block_n / COLUMNS);
        let mut a = vec![[T::default(); ROWS]; strips_a * BLOCK_K.min(k)];
        let mut b = vec![[T::default(); COLUMNS]; strips_b * BLOCK_K.min(k)];
        let mut tiles = vec![[[T::default(); COLUMNS]; ROWS]; strips_a * strips_b];
        let mut rounded = vec![S::default(); block_m * block_n];
        loop {
            let task = next.fetch_add(1, Ordering::Relaxed);
            if task >= tasks {
                return;
            }
            let batch = task / (tall * wide);
            let (i0, j0) = (task / wide % tall * block_m, task % wide * block_n);
            let (rows, columns) = (block_m.min(m - i0), block_n.min(n - j0));
            let (strips_a, strips_b) = (rows.div_ceil(ROWS), columns.div_ceil(COLUMNS));
            let tiles = &mut tiles[..strips_a * strips_b];
            tiles.fill([[T::default(); COLUMNS]; ROWS]);
            for k0 in (0..k).step_by(BLOCK_K) {
                let depth = BLOCK_K.min(k - k0);
                let (a, b) = (&mut a[..strips_a * depth], &mut b[..strips_b * depth]);
                strips(a, depth, k0, i0, rows, |strip| lhs(batch, strip));
                strips(b, depth, k0, j0, columns, |strip| rhs(batch, strip));
                T::add_block(depth, a, b, tiles);
            }
            for (row, line) in rounded.chunks_mut(columns).take(rows).enumerate() {
                for (sb, slots) in line.chunks_mut(COLUMNS).enumerate() {
                    let sums = &tiles[sb * strips_a + row / ROWS][row % ROWS];
                    for (slot, &sum) in slots.iter_mut().zip(sums) {
                        *slot = round(batch, i0 + row, sum);
                    }
                }
            }
            let mut store = store.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            for (row, line) in rounded.chunks(columns).take(rows).enumerate() {
                let at = (batch * m + i0 + row) * n + j0;
                store[at..at + columns].copy_from_slice(line);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(tasks) {
            scope.spawn(work);
        }
        work();
    });
    results
}

/// Rows and columns of a block: few enough for the cache, and for every thread to have work.
fn blocks(sizes: Sizes, threads: usize) -> (usize, usize) {
    let even = |len: usize, parts: usize, width: usize| len.div_ceil(parts).next_multiple_of(width);
    let (mut tall, mut wide) = (sizes.m.div_ceil(BLOCK_M), sizes.n.div_ceil(BLOCK_N));
    loop {
        let block = (even(sizes.m, tall, ROWS), even(sizes.n, wide, COLUMNS));
        let enough = threads == 1 || sizes.batches * tall * wide >= 2 * threads;
        if enough || (block.0 <= 4 * ROWS && block.1 <= 4 * COLUMNS) {
            return block;
        }
        if block.0 > block.1 || block.1 <= 4 * COLUMNS { tall *= 2 } else { wide *= 2 }
    }
}

/// Lets `fill` fill every strip of a block that starts at lane `first` and term `term`.
fn strips<T: Number, const W: usize>(
    block: &mut [[T; W]],
    depth: usize,
    term: usize,
    first: usize,
    lanes: usize,
    fill: impl Fn(&mut Strip<'_, T, W>),
) {
    for (s, lines) in block.chunks_mut(depth).enumerate() {
        let here = W.min(lanes - s * W);
        if here < W {
            lines.fill([T::default(); W]);
        }
        fill(&mut Strip { first: first + s * W, lanes: here, term, lines });
    }
}

#[inline(always)]
fn add_scaled<T: Number>(sums: &mut [T], factor: T, terms: &[T]) {
    sums.iter_mut().zip(terms).for_each(|(sum, &term)| *sum = sum.add_product(factor, term));
}

#[inline(always)]
fn add_block<T: Number>(
    depth: usize,
    a: &[[T; ROWS]],
    b: &[[T; COLUMNS]],
    tiles: &mut [Tile<T>],
    add: impl Fn(&[[T; ROWS]], &[[T; COLUMNS]], &mut Tile<T>),
) {
    for (b, tiles) in b.chunks(depth).zip(tiles.chunks_mut(a.len() / depth)) {
        for (a, tile) in a.chunks(depth).zip(tiles) {
            add(a, b, tile);
        }
    }
}

/// Adds the product of two strips to the tile, summed from zero first.
#[inline(always)]
fn add_plain<T: Number>(a: &[[T; ROWS]], b: &[[T; COLUMNS]], tile: &mut Tile<T>) {
    let mut sums = [[T::default(); COLUMNS]; ROWS];
    for (a, b) in a.iter().zip(b) {
        for r in 0..ROWS {
            for c in 0..COLUMNS {
                sums[r][c] = sums[r][c].add_product(a[r], b[c]);
            }
        }
    }
    for (line, sums) in tile.iter_mut().zip(&sums) {
        line.iter_mut().zip(sums).for_each(|(slot, &sum)| *slot = slot.add(sum));
    }
}

/// [`add_plain`], each product rounded together with its addition. Products of `f32` are exact in
/// `f64`, so that for them nothing differs.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn add_fused(
    simd: pulp::x86::V3,
    a: &[[f64; ROWS]],
    b: &[[f64; COLUMNS]],
    tile: &mut [[f64; COLUMNS]; ROWS],
) {
    type Line = [pulp::f64x4; COLUMNS / 4];
    let mut sums = [[simd.splat_f64x4(0.0); COLUMNS / 4]; ROWS];
    for (a, b) in a.iter().zip(b) {
        let b: Line = pulp::cast(*b);
        for r in 0..ROWS {
            let a = simd.splat_f64x4(a[r]);
            for c in 0..COLUMNS / 4 {
                sums[r][c] = simd.mul_add_f64x4(a, b[c], sums[r][c]);
            }
        }
    }
    for (line, sums) in tile.iter_mut().zip(&sums) {
        let mut total: Line = pulp::cast(*line);
        for (total, &sum) in total.iter_mut().zip(sums) {
            *total = simd.add_f64x4(*total, sum);
        }
        *line = pulp::cast(total);
    }
}

/// Calls `fill(scratch, i, lane)` for every run of `len` elements of `to`, each of them `depth`
/// multiply-adds of work, on all threads when there is enough of it; every thread has a scratch.
pub(crate) fn lanes<S: Send, W>(
    to: &mut [S],
    len: usize,
    depth: usize,
    scratch: impl Fn() -> W + Sync,
    fill: impl Fn(&mut W, usize, &mut [S]) + Sync,
) {
    if to.is_empty() {
        return;
    }
    let small = to.len().saturating_mul(depth) < SMALL;
    let per_thread = (to.len() / len).div_ceil(if small { 1 } else { cores() });
    let run = |first: usize, part: &mut [S]| {
        let mut scratch = scratch();
        part.chunks_mut(len).enumerate().for_each(|(i, lane)| fill(&mut scratch, first + i, lane));
    };
    std::thread::scope(|scope| {
        let mut parts = to.chunks_mut(per_thread * len).enumerate();
        let mine = parts.next();
        for (i, part) in parts {
            let run = &run;
            scope.spawn(move || run(i * per_thread, part));
        }
        if let Some((_, part)) = mine {
            run(0, part);
        }
    });
}

/// Threads worth running; asking the system takes longer than a small product.
fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, |n| n.get()))
}

/// One sum of products, for checking chosen elements.
pub(crate) fn product_at<T: Number>(
    k: usize,
    lhs: impl Fn(usize) -> T,
    rhs: impl Fn(usize) -> T,
) -> T {
    (0..k).fold(T::default(), |sum, l| sum.add_product(lhs(l), rhs(l)))
}
