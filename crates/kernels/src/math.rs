//! Vector forms of the transcendental functions, on `N` vectors at once.
//!
//! Each step is done for all `N` vectors before the next one, because a polynomial is a chain of
//! dependent instructions and only independent chains keep the arithmetic units busy.

use crate::simd::Simd;

/// One expression for each of `N` vectors.
macro_rules! each {
    ($q:ident => $e:expr) => {{
        let mut out = [S::zero(); N];
        for $q in 0..N {
            out[$q] = $e;
        }
        out
    }};
}

/// Minimax polynomial of `exp` on +-ln(2)/2 among those that are exactly 1 at 0, highest power first.
const EXP: [f32; 6] = [0.008_290_307, 0.041_897_975, 0.166_676_37, 0.499_991_5, 0.999_999_7, 1.0];
const ERF_CLAMP: f32 = 3.925;
/// `erf(x) / x` in `2 (x / ERF_CLAMP)^2 - 1`, highest power first.
const ERF: [f32; 15] = [
    0.001_832_975_8,
    -0.004_507_110_5,
    0.002_950_194_5,
    -0.003_330_678_7,
    0.013_048_935,
    -0.023_341_084,
    0.030_672_744,
    -0.042_351_607,
    0.058_246_97,
    -0.074_316_86,
    0.090_617_3,
    -0.109_068_766,
    0.133_930_89,
    -0.179_884_76,
    0.360_277_95,
];
const GELU_CLAMP: f32 = 5.5;
/// `(Phi(x) - 1/2) / x` in `2 (x / GELU_CLAMP)^2 - 1`, highest power first.
const GELU: [f32; 15] = [
    5.380_677e-4,
    -1.368_825_4e-3,
    1.023_878_8e-3,
    -1.229_412_6e-3,
    4.236_333e-3,
    -7.674_657_3e-3,
    1.046_865_2e-2,
    -1.467_137_3e-2,
    2.028_797_2e-2,
    -2.611_246_7e-2,
    3.208_174e-2,
    -3.878_726_8e-2,
    4.773_699e-2,
    -6.417_248e-2,
    1.285_519_3e-1,
];
/// Polynomial of the Cephes library's `logf`, highest power first.
const LOG: [f32; 9] = [
    7.037_683_6e-2,
    -1.151_461e-1,
    1.167_699_9e-1,
    -1.242_014_1e-1,
    1.424_932_3e-1,
    -1.666_805_7e-1,
    2.000_071_5e-1,
    -2.499_999_4e-1,
    3.333_333e-1,
];
/// Polynomial of the Cephes library's `tanhf` below 0.625, highest power first.
const TANH: [f32; 5] =
    [-5.704_988_6e-3, 2.063_909e-2, -5.373_971_6e-2, 1.333_144_2e-1, -3.333_328e-1];
/// ln(2) in two parts; a multiple of the first by an exponent is exact.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;

#[inline(always)]
unsafe fn horner<S: Simd, const N: usize, const K: usize>(c: &[f32; K], x: [S::V; N]) -> [S::V; N] {
    let mut sum = [S::splat(c[0]); N];
    for &c in &c[1..] {
        let c = S::splat(c);
        sum = each!(q => S::fma(sum[q], x[q], c));
    }
    sum
}

#[inline(always)]
unsafe fn exp_parts<S: Simd, const N: usize>(t: [S::V; N]) -> ([S::V; N], [S::V; N]) {
    let n = each!(q => S::round(S::mul(t[q], S::splat(std::f32::consts::LOG2_E))));
    let r = each!(q => S::fnma(n[q], S::splat(LN2_HIGH), t[q]));
    let r = each!(q => S::fnma(n[q], S::splat(LN2_LOW), r[q]));
    (horner::<S, N, 6>(&EXP, r), n)
}

/// `e^x` over the whole range: infinity above, gradual underflow below, NaN kept.
#[inline(always)]
pub(crate) unsafe fn exp<S: Simd, const N: usize>(x: [S::V; N]) -> [S::V; N] {
    let t = each!(q => S::min(S::splat(89.0), S::max(S::splat(-104.0), x[q])));
    let (p, n) = exp_parts::<S, N>(t);
    let half = each!(q => S::round(S::mul(n[q], S::splat(0.5))));
    let p = each!(q => S::mul(p[q], S::exp2i(half[q])));
    each!(q => S::mul(p[q], S::exp2i(S::sub(n[q], half[q]))))
}

/// `e^x` for `x <= 0`; 0 below the smallest normal result.
#[inline(always)]
pub(crate) unsafe fn exp_nonpositive<S: Simd, const N: usize>(x: [S::V; N]) -> [S::V; N] {
    let low = S::splat(-87.336_54);
    let t = each!(q => S::max(low, x[q]));
    let (p, n) = exp_parts::<S, N>(t);
    let p = each!(q => S::mul(p[q], S::exp2i(n[q])));
    each!(q => S::andnot(S::lt(x[q], low), p[q]))
}

/// `e^x - 1` without cancellation near 0.
#[inline(always)]
pub(crate) unsafe fn expm1<S: Simd, const N: usize>(x: [S::V; N]) -> [S::V; N] {
    const SERIES: [f32; 7] =
        [1.0 / 40320.0, 1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5];
    let far = exp::<S, N>(x);
    let p = horner::<S, N, 7>(&SERIES, x);
    let near = each!(q => S::fma(S::mul(x[q], x[q]), p[q], x[q]));
    each!(q => S::select(S::lt(abs::<S>(x[q]), S::splat(0.5)), near[q], S::sub(far[q], S::splat(1.0))))
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(crate) unsafe fn sigmoid<S: Simd, const N: usize>(x: [S::V; N]) -> [S::V; N] {
    let e = exp::<S, N>(each!(q => neg::<S>(x[q])));
    each!(q => S::div(S::splat(1.0), S::add(S::splat(1.0), e[q])))
}

/// Hyperbolic tangent, accurate relative to the result.
#[inline(always)]
pub(crate) unsafe fn tanh<S: Simd, const N: usize>(x: [S::V; N]) -> [S::V; N] {
    let sign = S::splat(-0.0);
    let a = each!(q => S::andnot(sign, x[q]));
    let e = exp::<S, N>(each!(q => S::add(a[q], a[q])));
    let far = each!(q => S::sub(
        S::splat(1.0),
        S::div(S::splat(2.0), S::add(e[q], S::splat(1.0)))
    ));
    let z = each!(q => S::mul(x[q], x[q]));
    let p = horner::<S, N, 5>(&TANH, z);
    let near = each!(q => S::fma(S::mul(p[q], z[q]), x[q], x[q]));
    each!(q => {
        let signed = S::or(far[q], S::and(sign, x[q]));
        S::select(S::lt(a[q], S::splat(0.625)), near[q], signed)
    })
}

/// Natural logarithm: -infinity at 0, NaN below.
#[inline(always)]
pub(crate) unsafe fn log<S: Simd, const N: usize>(x: [S::V; N]) -> [S::V; N] {
    let tiny = S::splat(f32::MIN_POSITIVE);
    let small = each!(q => S::lt(x[q], tiny));
    let scaled = each!(q => S::select(small[q], S::mul(x[q], S::splat(8_388_608.0)), x[q]));
    let mut m = [S::zero(); N];
    let mut e = [S::zero(); N];
    for q in 0..N {
        let (mantissa, exponent) = S::frexp(scaled[q]);
        let low = S::lt(mantissa, S::splat(std::f32::consts::FRAC_1_SQRT_2));
        m[q] = S::sub(S::add(mantissa, S::and(low, mantissa)), S::splat(1.0));
        let shift = S::add(S::and(low, S::splat(1.0)), S::and(small[q], S::splat(23.0)));
        e[q] = S::sub(exponent, shift);
    }
    let z = each!(q => S::mul(m[q], m[q]));
    let p = horner::<S, N, 9>(&LOG, m);
    let y = each!(q => S::mul(S::mul(p[q], m[q]), z[q]));
    let y = each!(q => S::fma(e[q], S::splat(LN2_LOW), y[q]));
    let y = each!(q => S::fnma(S::splat(0.5), z[q], y[q]));
    let y = each!(q => S::fma(e[q], S::splat(LN2_HIGH), S::add(m[q], y[q])));
    each!(q => {
        let infinite = S::eq(x[q], S::splat(f32::INFINITY));
        let y = S::select(S::or(infinite, S::nan(x[q])), x[q], y[q]);
        let y = S::select(S::eq(x[q], S::zero()), S::splat(f32::NEG_INFINITY), y);
        S::select(S::lt(x[q], S::zero()), S::splat(f32::NAN), y)
    })
}

/// `ln(1 + x)` for `x >= 0`, accurate relative to the result.
#[inline(always)]
pub(crate) unsafe fn log1p<S: Simd, const N: usize>(x: [S::V; N]) -> [S::V; N] {
    let one = S::splat(1.0);
    let u = each!(q => S::add(x[q], one));
    let l = log::<S, N>(u);
    // What rounding took from `u` is given back in proportion.
    let l = each!(q => S::mul(l[q], S::div(x[q], S::sub(u[q], one))));
    each!(q => S::select(S::eq(u[q], one), x[q], l[q]))
}

/// The error function.
#[inline(always)]
pub(crate) unsafe fn erf<S: Simd, const N: usize>(x: [S::V; N]) -> [S::V; N] {
    let c = each!(q => clamp::<S>(x[q], -ERF_CLAMP, ERF_CLAMP));
    let scale = S::splat(2.0 / (ERF_CLAMP * ERF_CLAMP));
    let u = each!(q => S::fma(S::mul(c[q], c[q]), scale, S::splat(-1.0)));
    let p = horner::<S, N, 15>(&ERF, u);
    each!(q => S::mul(c[q], p[q]))
}

/// `x Phi(x)` with the normal distribution function `Phi`.
#[inline(always)]
pub(crate) unsafe fn gelu<S: Simd, const N: usize>(x: [S::V; N]) -> [S::V; N] {
    let c = each!(q => clamp::<S>(x[q], -GELU_CLAMP, GELU_CLAMP));
    let scale = S::splat(2.0 / (GELU_CLAMP * GELU_CLAMP));
    let u = each!(q => S::fma(S::mul(c[q], c[q]), scale, S::splat(-1.0)));
    let p = horner::<S, N, 15>(&GELU, u);
    // Below the clamp the distribution function is 0 next to 1/2, and what is left of it is noise.
    each!(q => {
        let phi = S::fma(c[q], p[q], S::splat(0.5));
        S::mul(x[q], S::andnot(S::lt(x[q], S::splat(-GELU_CLAMP)), phi))
    })
}

/// `x` with its sign flipped.
#[inline(always)]
pub(crate) unsafe fn neg<S: Simd>(x: S::V) -> S::V {
    S::xor(x, S::splat(-0.0))
}

/// Magnitude of `x`.
#[inline(always)]
pub(crate) unsafe fn abs<S: Simd>(x: S::V) -> S::V {
    S::andnot(S::splat(-0.0), x)
}

/// `x` between two bounds; NaN stays NaN.
#[inline(always)]
pub(crate) unsafe fn clamp<S: Simd>(x: S::V, low: f32, high: f32) -> S::V {
    S::min(S::splat(high), S::max(S::splat(low), x))
}

/// `max(x, 0) + ln(1 + e^-|x|)`.
#[inline(always)]
pub(crate) unsafe fn softplus<S: Simd, const N: usize>(x: [S::V; N]) -> [S::V; N] {
    let mut t = x;
    for v in &mut t {
        *v = S::or(*v, S::splat(-0.0));
    }
    let e = exp::<S, N>(t);
    let mut y = log1p::<S, N>(e);
    for q in 0..N {
        y[q] = S::select(S::nan(x[q]), x[q], S::add(S::max(x[q], S::zero()), y[q]));
    }
    y
}
