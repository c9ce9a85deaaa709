//! Vectors of eight `f32` lanes, written once per instruction set.
//!
//! Every function that is generic over [`Simd`] is `#[inline(always)]`, so that its instructions are
//! compiled inside a function that has the set's features; [`Simd::enter`] is the door into one.

#[cfg(target_arch = "x86_64")]
mod inner;

use serde::{Deserialize, Serialize};

/// Lanes of a vector.
pub(crate) const LANES: usize = 8;

/// The instruction set that a kernel is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Isa {
    /// What the compiler's target has in any case.
    Portable,
    /// x86-64 with AVX2 and FMA.
    Avx2,
    /// x86-64 with AVX-512 F, VL, DQ and BW: twice as many registers, and tiles of sixteen lanes.
    Avx512,
}

impl Isa {
    /// Every instruction set, the plainest first.
    pub const ALL: &'static [Isa] = &[Isa::Portable, Isa::Avx2, Isa::Avx512];

    /// The best set that this processor has.
    pub fn detect() -> Isa {
        let available = Isa::ALL.iter().rev().find(|isa| isa.is_available());
        available.copied().unwrap_or(Isa::Portable)
    }

    /// Whether this processor has the set.
    pub fn is_available(self) -> bool {
        match self {
            Isa::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => {
                Isa::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512bw")
            }
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 | Isa::Avx512 => false,
        }
    }

    /// The name used in kernel names.
    pub const fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
        }
    }

    /// Vectors of columns of the tile that keeps the multipliers busiest where there are enough columns.
    pub(crate) const fn tile_vectors(self) -> usize {
        match self {
            Isa::Portable | Isa::Avx2 => 2,
            Isa::Avx512 => 4,
        }
    }

    /// Runs `body` compiled for this set.
    ///
    /// # Safety
    /// The processor has the set, and `body`'s own contract holds.
    pub(crate) unsafe fn enter<B: Body>(self, body: B) -> B::Out {
        match self {
            Isa::Portable => Portable::enter(body),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => Avx2::enter(body),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => Avx512::enter(body),
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 | Isa::Avx512 => unreachable!("kernels are made for available sets only"),
        }
    }
}

/// Code to compile for each instruction set; `run` is `#[inline(always)]` in every implementation.
pub(crate) trait Body {
    /// What the code gives back.
    type Out;
    /// The code.
    ///
    /// # Safety
    /// As the implementing type says; besides, the processor has the set `S`.
    unsafe fn run<S: Simd>(self) -> Self::Out;
}

/// Operations on vectors of eight `f32`.
///
/// # Safety
/// All functions need a processor that has the set; pointers must be valid for the lanes accessed.
/// `max` and `min` give their second operand when either is NaN.
#[allow(clippy::missing_safety_doc)]
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    type V: Copy;
    /// Whether code made for special cases, and several chains at once, are worth their size.
    const SPECIAL: bool;

    /// Runs `body` in a function of its own that has the set's features.
    unsafe fn enter<B: Body>(body: B) -> B::Out;
    unsafe fn zero() -> Self::V;
    unsafe fn splat(x: f32) -> Self::V;
    unsafe fn load(p: *const f32) -> Self::V;
    unsafe fn store(p: *mut f32, v: Self::V);
    unsafe fn broadcast(p: *const f32) -> Self::V;
    unsafe fn add(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn sub(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn mul(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn div(a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`.
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `c - a * b`.
    unsafe fn fnma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    unsafe fn max(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn min(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn sqrt(a: Self::V) -> Self::V;
    unsafe fn floor(a: Self::V) -> Self::V;
    unsafe fn ceil(a: Self::V) -> Self::V;
    unsafe fn trunc(a: Self::V) -> Self::V;
    /// To the nearest integer, ties to even.
    unsafe fn round(a: Self::V) -> Self::V;
    unsafe fn and(a: Self::V, b: Self::V) -> Self::V;
    /// The bits of `b` that are not in `a`.
    unsafe fn andnot(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn or(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn xor(a: Self::V, b: Self::V) -> Self::V;
    /// All bits set in the lanes where `a < b`.
    unsafe fn lt(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn le(a: Self::V, b: Self::V) -> Self::V;
    unsafe fn eq(a: Self::V, b: Self::V) -> Self::V;
    /// All bits set in the lanes where `a` is NaN.
    unsafe fn nan(a: Self::V) -> Self::V;
    /// `yes` in the lanes where `mask` has its sign bit set.
    unsafe fn select(mask: Self::V, yes: Self::V, no: Self::V) -> Self::V;
    /// 2 to the power of integral `n` in -126..=127.
    unsafe fn exp2i(n: Self::V) -> Self::V;
    /// Splits positive normal `x` into a mantissa in [0.5, 1) and an exponent.
    unsafe fn frexp(x: Self::V) -> (Self::V, Self::V);
    unsafe fn sum(a: Self::V) -> f32;
    unsafe fn max_lane(a: Self::V) -> f32;
    unsafe fn transpose(rows: [Self::V; 8]) -> [Self::V; 8];
    /// Asks for the cache line at `p`, which need not be valid.
    unsafe fn prefetch(p: *const f32);

    /// `sums[m][v] += a[m][k] w[24 k + 8 v..]` over `k < run`, with all sums in registers.
    #[inline(always)]
    unsafe fn run_4x24(
        sums: [[Self::V; 3]; 4],
        a: [*const f32; 4],
        w: *const f32,
        run: usize,
    ) -> [[Self::V; 3]; 4] {
        run_tile::<Self, 4, 3>(sums, a, w, run)
    }

    /// `sums[m][v] += a[m][k] w[16 k + 8 v..]` over `k < run`, with all sums in registers.
    #[inline(always)]
    unsafe fn run_6x16(
        sums: [[Self::V; 2]; 6],
        a: [*const f32; 6],
        w: *const f32,
        run: usize,
    ) -> [[Self::V; 2]; 6] {
        run_tile::<Self, 6, 2>(sums, a, w, run)
    }

    /// The first `n` lanes from memory, zero in the rest.
    #[inline(always)]
    unsafe fn load_part(p: *const f32, n: usize) -> Self::V {
        let mut lanes = [0f32; LANES];
        std::ptr::copy_nonoverlapping(p, lanes.as_mut_ptr(), n.min(LANES));
        Self::load(lanes.as_ptr())
    }

    /// Writes the first `n` lanes.
    #[inline(always)]
    unsafe fn store_part(p: *mut f32, v: Self::V, n: usize) {
        let mut lanes = [0f32; LANES];
        Self::store(lanes.as_mut_ptr(), v);
        std::ptr::copy_nonoverlapping(lanes.as_ptr(), p, n.min(LANES));
    }
}

/// As [`Simd::run_4x24`], for any tile.
#[inline(always)]
unsafe fn run_tile<S: Simd, const MR: usize, const NV: usize>(
    mut sums: [[S::V; NV]; MR],
    a: [*const f32; MR],
    w: *const f32,
    run: usize,
) -> [[S::V; NV]; MR] {
    for k in 0..run {
        for v in 0..NV {
            let b = S::load(w.add(LANES * (NV * k + v)));
            for m in 0..MR {
                sums[m][v] = S::fma(S::broadcast(a[m].add(k)), b, sums[m][v]);
            }
        }
    }
    sums
}

/// AVX2 with FMA.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(crate) struct Avx2;

/// AVX-512 on vectors of eight lanes, of which it has thirty-two; the tile has vectors of sixteen.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(crate) struct Avx512;

#[cfg(target_arch = "x86_64")]
mod lanes_of_256_bits {
    use super::{Avx2, Avx512, Body, Simd, inner};
    use std::arch::x86_64::*;

    /// A set with these features, by the instructions of AVX2.
    macro_rules! set {
        ($set:ident, $features:tt) => {
            impl Simd for $set {
                type V = __m256;
                const SPECIAL: bool = true;

                #[inline(always)]
                unsafe fn enter<B: Body>(body: B) -> B::Out {
                    #[target_feature(enable = $features)]
                    unsafe fn inside<B: Body>(body: B) -> B::Out {
                        body.run::<$set>()
                    }
                    inside(body)
                }
                #[inline(always)]
                unsafe fn zero() -> __m256 {
                    _mm256_setzero_ps()
                }
                #[inline(always)]
                unsafe fn splat(x: f32) -> __m256 {
                    _mm256_set1_ps(x)
                }
                #[inline(always)]
                unsafe fn load(p: *const f32) -> __m256 {
                    _mm256_loadu_ps(p)
                }
                #[inline(always)]
                unsafe fn store(p: *mut f32, v: __m256) {
                    _mm256_storeu_ps(p, v)
                }
                #[inline(always)]
                unsafe fn broadcast(p: *const f32) -> __m256 {
                    _mm256_broadcast_ss(&*p)
                }
                #[inline(always)]
                unsafe fn add(a: __m256, b: __m256) -> __m256 {
                    _mm256_add_ps(a, b)
                }
                #[inline(always)]
                unsafe fn sub(a: __m256, b: __m256) -> __m256 {
                    _mm256_sub_ps(a, b)
                }
                #[inline(always)]
                unsafe fn mul(a: __m256, b: __m256) -> __m256 {
                    _mm256_mul_ps(a, b)
                }
                #[inline(always)]
                unsafe fn div(a: __m256, b: __m256) -> __m256 {
                    _mm256_div_ps(a, b)
                }
                #[inline(always)]
                unsafe fn fma(a: __m256, b: __m256, c: __m256) -> __m256 {
                    _mm256_fmadd_ps(a, b, c)
                }
                #[inline(always)]
                unsafe fn fnma(a: __m256, b: __m256, c: __m256) -> __m256 {
                    _mm256_fnmadd_ps(a, b, c)
                }
                #[inline(always)]
                unsafe fn max(a: __m256, b: __m256) -> __m256 {
                    _mm256_max_ps(a, b)
                }
                #[inline(always)]
                unsafe fn min(a: __m256, b: __m256) -> __m256 {
                    _mm256_min_ps(a, b)
                }
                #[inline(always)]
                unsafe fn sqrt(a: __m256) -> __m256 {
                    _mm256_sqrt_ps(a)
                }
                #[inline(always)]
                unsafe fn floor(a: __m256) -> __m256 {
                    _mm256_floor_ps(a)
                }
                #[inline(always)]
                unsafe fn ceil(a: __m256) -> __m256 {
                    _mm256_ceil_ps(a)
                }
                #[inline(always)]
                unsafe fn trunc(a: __m256) -> __m256 {
                    _mm256_round_ps::<{ _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC }>(a)
                }
                #[inline(always)]
                unsafe fn round(a: __m256) -> __m256 {
                    _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a)
                }
                #[inline(always)]
                unsafe fn and(a: __m256, b: __m256) -> __m256 {
                    _mm256_and_ps(a, b)
                }
                #[inline(always)]
                unsafe fn andnot(a: __m256, b: __m256) -> __m256 {
                    _mm256_andnot_ps(a, b)
                }
                #[inline(always)]
                unsafe fn or(a: __m256, b: __m256) -> __m256 {
                    _mm256_or_ps(a, b)
                }
                #[inline(always)]
                unsafe fn xor(a: __m256, b: __m256) -> __m256 {
                    _mm256_xor_ps(a, b)
                }
                #[inline(always)]
                unsafe fn lt(a: __m256, b: __m256) -> __m256 {
                    _mm256_cmp_ps::<_CMP_LT_OQ>(a, b)
                }
                #[inline(always)]
                unsafe fn le(a: __m256, b: __m256) -> __m256 {
                    _mm256_cmp_ps::<_CMP_LE_OQ>(a, b)
                }
                #[inline(always)]
                unsafe fn eq(a: __m256, b: __m256) -> __m256 {
                    _mm256_cmp_ps::<_CMP_EQ_OQ>(a, b)
                }
                #[inline(always)]
                unsafe fn nan(a: __m256) -> __m256 {
                    _mm256_cmp_ps::<_CMP_UNORD_Q>(a, a)
                }
                #[inline(always)]
                unsafe fn select(mask: __m256, yes: __m256, no: __m256) -> __m256 {
                    _mm256_blendv_ps(no, yes, mask)
                }
                #[inline(always)]
                unsafe fn exp2i(n: __m256) -> __m256 {
                    let biased = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
                    _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
                }
                #[inline(always)]
                unsafe fn frexp(x: __m256) -> (__m256, __m256) {
                    let bits = _mm256_castps_si256(x);
                    let exponent =
                        _mm256_sub_epi32(_mm256_srli_epi32::<23>(bits), _mm256_set1_epi32(126));
                    let mantissa = _mm256_or_si256(
                        _mm256_and_si256(bits, _mm256_set1_epi32(0x007f_ffff)),
                        _mm256_set1_epi32(0x3f00_0000),
                    );
                    (_mm256_castsi256_ps(mantissa), _mm256_cvtepi32_ps(exponent))
                }
                #[inline(always)]
                unsafe fn sum(a: __m256) -> f32 {
                    let x = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
                    let x = _mm_add_ps(x, _mm_movehl_ps(x, x));
                    _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps::<1>(x, x)))
                }
                #[inline(always)]
                unsafe fn max_lane(a: __m256) -> f32 {
                    let x = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps::<1>(a));
                    let x = _mm_max_ps(x, _mm_movehl_ps(x, x));
                    _mm_cvtss_f32(_mm_max_ss(x, _mm_shuffle_ps::<1>(x, x)))
                }
                #[inline(always)]
                unsafe fn transpose(r: [__m256; 8]) -> [__m256; 8] {
                    let a = [
                        _mm256_unpacklo_ps(r[0], r[1]),
                        _mm256_unpackhi_ps(r[0], r[1]),
                        _mm256_unpacklo_ps(r[2], r[3]),
                        _mm256_unpackhi_ps(r[2], r[3]),
                        _mm256_unpacklo_ps(r[4], r[5]),
                        _mm256_unpackhi_ps(r[4], r[5]),
                        _mm256_unpacklo_ps(r[6], r[7]),
                        _mm256_unpackhi_ps(r[6], r[7]),
                    ];
                    let b = [
                        _mm256_shuffle_ps::<0x44>(a[0], a[2]),
                        _mm256_shuffle_ps::<0xee>(a[0], a[2]),
                        _mm256_shuffle_ps::<0x44>(a[1], a[3]),
                        _mm256_shuffle_ps::<0xee>(a[1], a[3]),
                        _mm256_shuffle_ps::<0x44>(a[4], a[6]),
                        _mm256_shuffle_ps::<0xee>(a[4], a[6]),
                        _mm256_shuffle_ps::<0x44>(a[5], a[7]),
                        _mm256_shuffle_ps::<0xee>(a[5], a[7]),
                    ];
                    [
                        _mm256_permute2f128_ps::<0x20>(b[0], b[4]),
                        _mm256_permute2f128_ps::<0x20>(b[1], b[5]),
                        _mm256_permute2f128_ps::<0x20>(b[2], b[6]),
                        _mm256_permute2f128_ps::<0x20>(b[3], b[7]),
                        _mm256_permute2f128_ps::<0x31>(b[0], b[4]),
                        _mm256_permute2f128_ps::<0x31>(b[1], b[5]),
                        _mm256_permute2f128_ps::<0x31>(b[2], b[6]),
                        _mm256_permute2f128_ps::<0x31>(b[3], b[7]),
                    ]
                }
                #[inline(always)]
                unsafe fn prefetch(p: *const f32) {
                    _mm_prefetch::<_MM_HINT_T0>(p.cast())
                }

                #[inline(always)]
                unsafe fn run_4x24(
                    sums: [[__m256; 3]; 4],
                    a: [*const f32; 4],
                    w: *const f32,
                    run: usize,
                ) -> [[__m256; 3]; 4] {
                    inner::run_4x24(sums, a, w, run)
                }
                #[inline(always)]
                unsafe fn run_6x16(
                    sums: [[__m256; 2]; 6],
                    a: [*const f32; 6],
                    w: *const f32,
                    run: usize,
                ) -> [[__m256; 2]; 6] {
                    inner::run_6x16(sums, a, w, run)
                }
            }
        };
    }

    set!(Avx2, "avx2,fma");
    set!(Avx512, "avx2,fma,avx512f,avx512vl,avx512dq,avx512bw");
}

/// Plain Rust on arrays of eight, which compilers turn into the target's own vectors.
#[derive(Clone, Copy)]
pub(crate) struct Portable;

/// An expression for each lane: of one vector, of two, of their bits, or of the lane's number. Written out,
/// because closures over arrays cost the compiler minutes.
macro_rules! lanes {
    ($i:ident => $e:expr) => {
        [
            { const $i: usize = 0; $e },
            { const $i: usize = 1; $e },
            { const $i: usize = 2; $e },
            { const $i: usize = 3; $e },
            { const $i: usize = 4; $e },
            { const $i: usize = 5; $e },
            { const $i: usize = 6; $e },
            { const $i: usize = 7; $e },
        ]
    };
}

fn mask(yes: bool) -> f32 {
    f32::from_bits(if yes { u32::MAX } else { 0 })
}

impl Simd for Portable {
    type V = [f32; 8];
    const SPECIAL: bool = false;

    #[inline(always)]
    unsafe fn enter<B: Body>(body: B) -> B::Out {
        outlined(body)
    }
    #[inline(always)]
    unsafe fn zero() -> [f32; 8] {
        [0.0; 8]
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> [f32; 8] {
        [x; 8]
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> [f32; 8] {
        p.cast::<[f32; 8]>().read_unaligned()
    }
    #[inline(always)]
    unsafe fn store(p: *mut f32, v: [f32; 8]) {
        p.cast::<[f32; 8]>().write_unaligned(v)
    }
    #[inline(always)]
    unsafe fn broadcast(p: *const f32) -> [f32; 8] {
        [*p; 8]
    }
    #[inline(always)]
    unsafe fn add(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        lanes!(I => { let (x, y) = (a[I], b[I]); x + y })
    }
    #[inline(always)]
    unsafe fn sub(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        lanes!(I => { let (x, y) = (a[I], b[I]); x - y })
    }
    #[inline(always)]
    unsafe fn mul(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        lanes!(I => { let (x, y) = (a[I], b[I]); x * y })
    }
    #[inline(always)]
    unsafe fn div(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        lanes!(I => { let (x, y) = (a[I], b[I]); x / y })
    }
    #[inline(always)]
    unsafe fn fma(a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
        lanes!(I => a[I] * b[I] + c[I])
    }
    #[inline(always)]
    unsafe fn fnma(a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
        lanes!(I => c[I] - a[I] * b[I])
    }
    #[inline(always)]
    unsafe fn max(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        lanes!(I => { let (x, y) = (a[I], b[I]); if x > y { x } else { y } })
    }
    #[inline(always)]
    unsafe fn min(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        lanes!(I => { let (x, y) = (a[I], b[I]); if x < y { x } else { y } })
    }
    #[inline(always)]
    unsafe fn sqrt(a: [f32; 8]) -> [f32; 8] {
        lanes!(I => a[I].sqrt())
    }
    #[inline(always)]
    unsafe fn floor(a: [f32; 8]) -> [f32; 8] {
        lanes!(I => a[I].floor())
    }
    #[inline(always)]
    unsafe fn ceil(a: [f32; 8]) -> [f32; 8] {
        lanes!(I => a[I].ceil())
    }
    #[inline(always)]
    unsafe fn trunc(a: [f32; 8]) -> [f32; 8] {
        lanes!(I => a[I].trunc())
    }
    #[inline(always)]
    unsafe fn round(a: [f32; 8]) -> [f32; 8] {
        lanes!(I => a[I].round_ties_even())
    }
    #[inline(always)]
    unsafe fn and(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        lanes!(I => { let (x, y) = (a[I].to_bits(), b[I].to_bits()); f32::from_bits(x & y) })
    }
    #[inline(always)]
    unsafe fn andnot(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        lanes!(I => { let (x, y) = (a[I].to_bits(), b[I].to_bits()); f32::from_bits(!x & y) })
    }
    #[inline(always)]
    unsafe fn or(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        lanes!(I => { let (x, y) = (a[I].to_bits(), b[I].to_bits()); f32::from_bits(x | y) })
    }
    #[inline(always)]
    unsafe fn xor(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        lanes!(I => { let (x, y) = (a[I].to_bits(), b[I].to_bits()); f32::from_bits(x ^ y) })
    }
    #[inline(always)]
    unsafe fn lt(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        lanes!(I => { let (x, y) = (a[I], b[I]); mask(x < y) })
    }
    #[inline(always)]
    unsafe fn le(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        lanes!(I => { let (x, y) = (a[I], b[I]); mask(x <= y) })
    }
    #[inline(always)]
    unsafe fn eq(a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        lanes!(I => { let (x, y) = (a[I], b[I]); mask(x == y) })
    }
    #[inline(always)]
    unsafe fn nan(a: [f32; 8]) -> [f32; 8] {
        lanes!(I => { let x = a[I]; mask(x.is_nan()) })
    }
    #[inline(always)]
    unsafe fn select(mask: [f32; 8], yes: [f32; 8], no: [f32; 8]) -> [f32; 8] {
        lanes!(I => if mask[I].is_sign_negative() { yes[I] } else { no[I] })
    }
    #[inline(always)]
    unsafe fn exp2i(n: [f32; 8]) -> [f32; 8] {
        lanes!(I => { let x = n[I]; f32::from_bits(((x as i32).wrapping_add(127) as u32) << 23) })
    }
    #[inline(always)]
    unsafe fn frexp(x: [f32; 8]) -> ([f32; 8], [f32; 8]) {
        (
            lanes!(I => { let x = x[I]; f32::from_bits(x.to_bits() & 0x007f_ffff | 0x3f00_0000) }),
            lanes!(I => { let x = x[I]; ((x.to_bits() >> 23) as i32 - 126) as f32 }),
        )
    }
    #[inline(always)]
    unsafe fn sum(a: [f32; 8]) -> f32 {
        ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]))
    }
    #[inline(always)]
    unsafe fn max_lane(a: [f32; 8]) -> f32 {
        a.iter().fold(f32::NEG_INFINITY, |m, &x| if m > x { m } else { x })
    }
    #[inline(always)]
    unsafe fn transpose(rows: [[f32; 8]; 8]) -> [[f32; 8]; 8] {
        lanes!(J => {
            const R: usize = J;
            lanes!(I => rows[I][R])
        })
    }
    #[inline(always)]
    unsafe fn prefetch(_: *const f32) {}
}

#[inline(never)]
unsafe fn outlined<B: Body>(body: B) -> B::Out {
    body.run::<Portable>()
}
