//! Sums of products, blocked for the cache and spread over threads.
//!
//! The blocking is the usual one: a block of each operand is converted and copied so that the
//! innermost loop reads both in order (Goto and van de Geijn, "Anatomy of High-Performance Matrix
//! Multiplication", 2008).

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

/// A number that products are summed in.
pub(crate) trait Number: Copy + Default + Send + Sync {
    /// `self + a * b`.
    fn add_product(self, a: Self, b: Self) -> Self;
    /// `self + other`.
    fn add(self, other: Self) -> Self;
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

const ROWS: usize = 4;
const COLUMNS: usize = 4;
const BLOCK_M: usize = 128;
const BLOCK_N: usize = 128;
const BLOCK_K: usize = 256;
/// Products with fewer multiply-adds run on the calling thread.
const SMALL: usize = 200_000;

/// Computes every product and hands each row of a tile to `store(batch, row, first column, sums)`.
/// `lhs(batch, row, k)` and `rhs(batch, k, column)` read the operands.
pub(crate) fn products<T: Number>(
    sizes: Sizes,
    lhs: impl Fn(usize, usize, usize) -> T + Sync,
    rhs: impl Fn(usize, usize, usize) -> T + Sync,
    store: impl FnMut(usize, usize, usize, &[T]) + Send,
) {
    let Sizes { batches, m, n, k } = sizes;
    let (tall, wide) = (m.div_ceil(BLOCK_M), n.div_ceil(BLOCK_N));
    let tasks = batches * tall * wide;
    if tasks == 0 {
        return;
    }
    let small = batches.saturating_mul(m).saturating_mul(n).saturating_mul(k) < SMALL;
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let threads = if small { 1 } else { cores.min(tasks) };
    let (next, store) = (AtomicUsize::new(0), Mutex::new(store));
    let work = || {
        let mut a = vec![T::default(); BLOCK_M.min(m.next_multiple_of(ROWS)) * BLOCK_K.min(k)];
        let mut b = vec![T::default(); BLOCK_N.min(n.next_multiple_of(COLUMNS)) * BLOCK_K.min(k)];
        let mut tile = vec![T::default(); BLOCK_M.min(m.next_multiple_of(ROWS)) * BLOCK_N];
        loop {
            let task = next.fetch_add(1, Ordering::Relaxed);
            if task >= tasks {
                return;
            }
            let batch = task / (tall * wide);
            let (i0, j0) = (task / wide % tall * BLOCK_M, task % wide * BLOCK_N);
            let (rows, columns) = (BLOCK_M.min(m - i0), BLOCK_N.min(n - j0));
            tile[..rows.next_multiple_of(ROWS) * BLOCK_N].fill(T::default());
            for k0 in (0..k).step_by(BLOCK_K) {
                let depth = BLOCK_K.min(k - k0);
                for (p, panel) in a.chunks_mut(ROWS * depth).take(rows.div_ceil(ROWS)).enumerate() {
                    for r in 0..ROWS {
                        let row = p * ROWS + r;
                        for l in 0..depth {
                            let inside = row < rows;
                            panel[l * ROWS + r] =
                                if inside { lhs(batch, i0 + row, k0 + l) } else { T::default() };
                        }
                    }
                }
                let panels = columns.div_ceil(COLUMNS);
                for (p, panel) in b.chunks_mut(COLUMNS * depth).take(panels).enumerate() {
                    let here = COLUMNS.min(columns - p * COLUMNS);
                    for (l, line) in panel.chunks_mut(COLUMNS).enumerate() {
                        for (c, slot) in line.iter_mut().enumerate() {
                            let column = j0 + p * COLUMNS + c;
                            *slot =
                                if c < here { rhs(batch, k0 + l, column) } else { T::default() };
                        }
                    }
                }
                for pa in 0..rows.div_ceil(ROWS) {
                    let pack_a = &a[pa * ROWS * depth..][..ROWS * depth];
                    for pb in 0..panels {
                        let pack_b = &b[pb * COLUMNS * depth..][..COLUMNS * depth];
                        let sums = micro(pack_a, pack_b);
                        for (r, line) in sums.iter().enumerate() {
                            let at = (pa * ROWS + r) * BLOCK_N + pb * COLUMNS;
                            for (slot, &sum) in tile[at..at + COLUMNS].iter_mut().zip(line) {
                                *slot = slot.add(sum);
                            }
                        }
                    }
                }
            }
            let mut store = store.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            for row in 0..rows {
                store(batch, i0 + row, j0, &tile[row * BLOCK_N..][..columns]);
            }
        }
    };
    if threads == 1 {
        return work();
    }
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
}

#[inline(always)]
fn micro<T: Number>(a: &[T], b: &[T]) -> [[T; COLUMNS]; ROWS] {
    let mut sums = [[T::default(); COLUMNS]; ROWS];
    let (a, b) = (a.as_chunks::<ROWS>().0, b.as_chunks::<COLUMNS>().0);
    for (a, b) in a.iter().zip(b) {
        for r in 0..ROWS {
            for c in 0..COLUMNS {
                sums[r][c] = sums[r][c].add_product(a[r], b[c]);
            }
        }
    }
    sums
}

/// Calls `fill(i, lane)` for every run of `len` elements of `to`, each of them `depth`
/// multiply-adds of work, on all threads when there is enough of it.
pub(crate) fn lanes<S: Send>(
    to: &mut [S],
    len: usize,
    depth: usize,
    fill: impl Fn(usize, &mut [S]) + Sync,
) {
    if to.is_empty() {
        return;
    }
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let small = to.len().saturating_mul(depth) < SMALL;
    let per_thread = (to.len() / len).div_ceil(if small { 1 } else { cores });
    let run = |first: usize, part: &mut [S]| {
        part.chunks_mut(len).enumerate().for_each(|(i, lane)| fill(first + i, lane));
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

/// One sum of products, for checking chosen elements.
pub(crate) fn product_at<T: Number>(
    k: usize,
    lhs: impl Fn(usize) -> T,
    rhs: impl Fn(usize) -> T,
) -> T {
    (0..k).fold(T::default(), |sum, l| sum.add_product(lhs(l), rhs(l)))
}
