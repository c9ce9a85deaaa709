//! Packing of factors: panels of the right one, rows of a transposed left one.

use crate::simd::{Body, LANES, Simd};

/// Packs one panel of `cols` columns as `[k][cols]`, times `alpha`, with zeros for missing columns.
///
/// # Safety
/// `b` is valid for the panel with rows `row` apart (columns, when transposed), `to` for `k * cols`.
pub(crate) struct PackPanel {
    pub(crate) b: *const f32,
    pub(crate) row: usize,
    pub(crate) transposed: bool,
    pub(crate) k: usize,
    pub(crate) cols: usize,
    pub(crate) exist: usize,
    pub(crate) alpha: f32,
    pub(crate) to: *mut f32,
}

impl Body for PackPanel {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let PackPanel { b, row, transposed, k, cols, exist, alpha, to } = self;
        let alpha = S::splat(alpha);
        for v in 0..cols / LANES {
            let (first, to) = (v * LANES, to.add(v * LANES));
            let lanes = exist.saturating_sub(first).min(LANES);
            if !transposed {
                let b = b.wrapping_add(first);
                for p in 0..k {
                    let x = match lanes {
                        LANES => S::load(b.add(p * row)),
                        0 => S::zero(),
                        _ => S::load_part(b.add(p * row), lanes),
                    };
                    S::store(to.add(p * cols), S::mul(alpha, x));
                }
                continue;
            }
            let mut p = 0;
            while p < k {
                let count = (k - p).min(LANES);
                let mut rows = [S::zero(); 8];
                for (j, values) in rows.iter_mut().enumerate().take(lanes) {
                    let q = b.add((first + j) * row + p);
                    *values = if count == LANES { S::load(q) } else { S::load_part(q, count) };
                }
                for (i, x) in S::transpose(rows).iter().enumerate().take(count) {
                    S::store(to.add((p + i) * cols), S::mul(alpha, *x));
                }
                p += count;
            }
        }
    }
}

/// Transposes `k` rows of `rows` values (at most 8), `row` apart, into `rows` rows of `k` values.
pub(super) struct TransposeBand {
    pub(super) from: *const f32,
    pub(super) row: usize,
    pub(super) rows: usize,
    pub(super) k: usize,
    pub(super) to: *mut f32,
}

impl Body for TransposeBand {
    type Out = ();

    #[inline(always)]
    unsafe fn run<S: Simd>(self) {
        let TransposeBand { from, row, rows, k, to } = self;
        let mut p = 0;
        while p < k {
            let count = (k - p).min(LANES);
            let mut values = [S::zero(); 8];
            for (i, x) in values.iter_mut().enumerate().take(count) {
                let q = from.add((p + i) * row);
                *x = if rows == LANES { S::load(q) } else { S::load_part(q, rows) };
            }
            for (i, x) in S::transpose(values).iter().enumerate().take(rows) {
                if count == LANES {
                    S::store(to.add(i * k + p), *x);
                } else {
                    S::store_part(to.add(i * k + p), *x, count);
                }
            }
            p += count;
        }
    }
}
