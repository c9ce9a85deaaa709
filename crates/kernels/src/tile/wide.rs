//! The register tile of AVX-512: two vectors of eight columns that follow each other are one of sixteen.

use super::{ACCUMULATE, CLAMP, RESIDUAL, TileArgs, TileFn, Tiles, row, up_to};
use crate::simd::{Avx512, LANES};
use std::arch::x86_64::*;

/// Columns of a vector.
const WIDE: usize = 2 * LANES;
/// Sums that keep both multipliers busy: each takes four cycles.
const SUMS: usize = 8;

/// Elements ahead at which a tile that asks for its right factor does so.
const AHEAD: usize = 512;

/// The tiles of 1 to 8 rows and some vectors of sixteen columns.
macro_rules! tall {
    ($one:expr, $wide:literal, $asks:literal, $run:literal) => {
        up_to(&[
            $one,
            tile::<2, $wide, $asks, $run>,
            tile::<3, $wide, $asks, $run>,
            tile::<4, $wide, $asks, $run>,
            tile::<5, $wide, $asks, $run>,
            tile::<6, $wide, $asks, $run>,
            tile::<7, $wide, $asks, $run>,
            tile::<8, $wide, $asks, $run>,
        ])
    };
}

/// The tiles of `vectors` (1 to 4) vectors of eight columns: those of an odd number are as with AVX2.
pub(super) fn tiles(vectors: usize) -> Tiles {
    let (two, four): (TileFn, TileFn) = (row::<Avx512, 2>, row::<Avx512, 4>);
    match vectors {
        2 => Tiles {
            packed: tall!(two, 1, false, 0),
            ahead: tall!(two, 1, true, 0),
            eights: tall!(two, 1, false, 8),
            vectors,
            max_rows: 8,
        },
        4 => Tiles {
            packed: tall!(four, 2, false, 0),
            ahead: tall!(four, 2, true, 0),
            eights: tall!(four, 2, false, 8),
            vectors,
            max_rows: 8,
        },
        _ => Tiles::of::<Avx512>(vectors),
    }
}

/// `MR` rows times `NW` vectors of sixteen columns that follow each other in the right factor. `ASKS`: whether that
/// is asked for ahead. `RUN`: elements of a run, 0 for what `run` says.
///
/// # Safety
/// The processor has the set, and the arguments point at valid memory.
#[target_feature(enable = "avx512f,avx512dq")]
unsafe fn tile<const MR: usize, const NW: usize, const ASKS: bool, const RUN: usize>(p: &TileArgs) {
    let mut acc = [[_mm512_setzero_ps(); NW]; MR];
    // Every other value of k, where the sums are too few.
    let mut odd = acc;
    if p.flags & ACCUMULATE != 0 {
        for m in 0..MR {
            for v in 0..NW {
                acc[m][v] = load(p.c[m].add(2 * v * p.c_step), p.c_step);
            }
        }
    } else if !p.bias.is_null() {
        for v in 0..NW {
            let bias = _mm512_loadu_ps(p.bias.add(v * WIDE));
            for row in &mut acc {
                row[v] = bias;
            }
        }
    }
    for i in 0..p.ahead_lines {
        _mm_prefetch::<_MM_HINT_T0>(p.ahead.wrapping_add(16 * i).cast());
    }
    let mut w = p.w;
    let run = if RUN > 0 { RUN } else { p.run };
    for s in 0..p.segments {
        let offset = *p.offsets.add(s);
        let mut a = [std::ptr::null::<f32>(); MR];
        for m in 0..MR {
            a[m] = p.a[m].offset(offset);
        }
        let mut k = 0;
        while k + 4 <= run {
            step::<MR, NW, ASKS>(&mut acc, &a, k, w);
            let second = if const { MR * NW < SUMS } { &mut odd } else { &mut acc };
            step::<MR, NW, ASKS>(second, &a, k + 1, w.add(NW * WIDE));
            step::<MR, NW, ASKS>(&mut acc, &a, k + 2, w.add(2 * NW * WIDE));
            let second = if const { MR * NW < SUMS } { &mut odd } else { &mut acc };
            step::<MR, NW, ASKS>(second, &a, k + 3, w.add(3 * NW * WIDE));
            w = w.add(4 * NW * WIDE);
            k += 4;
        }
        while k < run {
            step::<MR, NW, ASKS>(&mut acc, &a, k, w);
            w = w.add(NW * WIDE);
            k += 1;
        }
    }
    if const { MR * NW < SUMS } {
        for m in 0..MR {
            for v in 0..NW {
                acc[m][v] = _mm512_add_ps(acc[m][v], odd[m][v]);
            }
        }
    }
    finish(p, acc);
}

/// Adds the products of one `k`, whose columns lie at `w`.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
unsafe fn step<const MR: usize, const NW: usize, const ASKS: bool>(
    acc: &mut [[__m512; NW]; MR],
    a: &[*const f32; MR],
    k: usize,
    w: *const f32,
) {
    let mut b = [_mm512_setzero_ps(); NW];
    for v in 0..NW {
        if const { ASKS } {
            _mm_prefetch::<_MM_HINT_T0>(w.wrapping_add(AHEAD + v * WIDE).cast());
        }
        b[v] = _mm512_loadu_ps(w.add(v * WIDE));
    }
    for m in 0..MR {
        let x = _mm512_set1_ps(*a[m].add(k));
        for v in 0..NW {
            acc[m][v] = _mm512_fmadd_ps(x, b[v], acc[m][v]);
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
unsafe fn finish<const MR: usize, const NW: usize>(p: &TileArgs, mut acc: [[__m512; NW]; MR]) {
    if p.flags & RESIDUAL != 0 {
        for m in 0..MR {
            for v in 0..NW {
                let addend = load(p.r[m].add(2 * v * p.c_step), p.c_step);
                acc[m][v] = _mm512_add_ps(acc[m][v], addend);
            }
        }
    }
    if p.flags & CLAMP != 0 {
        let (low, high) = (_mm512_set1_ps(p.low), _mm512_set1_ps(p.high));
        for row in &mut acc {
            for x in row {
                *x = _mm512_min_ps(high, _mm512_max_ps(low, *x));
            }
        }
    }
    for m in 0..MR {
        for v in 0..NW {
            let to = p.c[m].add(2 * v * p.c_step);
            if p.c_step == LANES {
                _mm512_storeu_ps(to, acc[m][v]);
            } else {
                _mm256_storeu_ps(to, _mm512_castps512_ps256(acc[m][v]));
                _mm256_storeu_ps(to.add(p.c_step), _mm512_extractf32x8_ps::<1>(acc[m][v]));
            }
        }
    }
}

/// Sixteen lanes, of which the second eight lie `step` elements after the first.
#[inline]
#[target_feature(enable = "avx512f,avx512dq")]
unsafe fn load(p: *const f32, step: usize) -> __m512 {
    if step == LANES {
        return _mm512_loadu_ps(p);
    }
    let (low, high) = (_mm256_loadu_ps(p), _mm256_loadu_ps(p.add(step)));
    _mm512_insertf32x8::<1>(_mm512_castps256_ps512(low), high)
}
