//! The inner loops of the two tallest tiles for AVX2, in assembly.
//!
//! Twelve sums, two or three columns and a row take nearly all sixteen registers; the compiler's order of
//! the same instructions needs one more. Four values of k a turn leave fewer instructions beside the
//! products, which counts where two threads share a core.

use std::arch::{asm, x86_64::__m256};

/// One value of k of a tile of 6 rows and 2 vectors: `$w` and `$a` are offsets in bytes.
macro_rules! step_6x16 {
    ($w0:literal, $w1:literal, $a:literal) => {
        concat!(
            "vmovups {b0}, ymmword ptr [{w} + ",
            $w0,
            "]\n",
            "vmovups {b1}, ymmword ptr [{w} + ",
            $w1,
            "]\n",
            "vbroadcastss {x}, dword ptr [{a0} + 4*{k} + ",
            $a,
            "]\n",
            "vfmadd231ps {s00}, {x}, {b0}\n",
            "vfmadd231ps {s01}, {x}, {b1}\n",
            "vbroadcastss {x}, dword ptr [{a1} + 4*{k} + ",
            $a,
            "]\n",
            "vfmadd231ps {s10}, {x}, {b0}\n",
            "vfmadd231ps {s11}, {x}, {b1}\n",
            "vbroadcastss {x}, dword ptr [{a2} + 4*{k} + ",
            $a,
            "]\n",
            "vfmadd231ps {s20}, {x}, {b0}\n",
            "vfmadd231ps {s21}, {x}, {b1}\n",
            "vbroadcastss {x}, dword ptr [{a3} + 4*{k} + ",
            $a,
            "]\n",
            "vfmadd231ps {s30}, {x}, {b0}\n",
            "vfmadd231ps {s31}, {x}, {b1}\n",
            "vbroadcastss {x}, dword ptr [{a4} + 4*{k} + ",
            $a,
            "]\n",
            "vfmadd231ps {s40}, {x}, {b0}\n",
            "vfmadd231ps {s41}, {x}, {b1}\n",
            "vbroadcastss {x}, dword ptr [{a5} + 4*{k} + ",
            $a,
            "]\n",
            "vfmadd231ps {s50}, {x}, {b0}\n",
            "vfmadd231ps {s51}, {x}, {b1}\n",
        )
    };
}

/// One value of k of a tile of 4 rows and 3 vectors.
macro_rules! step_4x24 {
    ($w0:literal, $w1:literal, $w2:literal, $a:literal) => {
        concat!(
            "vmovups {b0}, ymmword ptr [{w} + ",
            $w0,
            "]\n",
            "vmovups {b1}, ymmword ptr [{w} + ",
            $w1,
            "]\n",
            "vmovups {b2}, ymmword ptr [{w} + ",
            $w2,
            "]\n",
            "vbroadcastss {x}, dword ptr [{a0} + 4*{k} + ",
            $a,
            "]\n",
            "vfmadd231ps {s00}, {x}, {b0}\n",
            "vfmadd231ps {s01}, {x}, {b1}\n",
            "vfmadd231ps {s02}, {x}, {b2}\n",
            "vbroadcastss {x}, dword ptr [{a1} + 4*{k} + ",
            $a,
            "]\n",
            "vfmadd231ps {s10}, {x}, {b0}\n",
            "vfmadd231ps {s11}, {x}, {b1}\n",
            "vfmadd231ps {s12}, {x}, {b2}\n",
            "vbroadcastss {x}, dword ptr [{a2} + 4*{k} + ",
            $a,
            "]\n",
            "vfmadd231ps {s20}, {x}, {b0}\n",
            "vfmadd231ps {s21}, {x}, {b1}\n",
            "vfmadd231ps {s22}, {x}, {b2}\n",
            "vbroadcastss {x}, dword ptr [{a3} + 4*{k} + ",
            $a,
            "]\n",
            "vfmadd231ps {s30}, {x}, {b0}\n",
            "vfmadd231ps {s31}, {x}, {b1}\n",
            "vfmadd231ps {s32}, {x}, {b2}\n",
        )
    };
}

/// `sums[m][v] += a[m][k] w[16 k + 8 v..]` over `k < run`.
///
/// # Safety
/// The processor has AVX2 and FMA; `a` and `w` point at `run` values and `run` times 16.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn run_6x16(
    sums: [[__m256; 2]; 6],
    a: [*const f32; 6],
    w: *const f32,
    run: usize,
) -> [[__m256; 2]; 6] {
    let mut s = sums;
    let fours = run & !3;
    asm!(
        "test {k}, {k}",
        "jz 3f",
        ".p2align 5",
        "2:",
        step_6x16!("0", "32", "0"),
        step_6x16!("64", "96", "4"),
        step_6x16!("128", "160", "8"),
        step_6x16!("192", "224", "12"),
        "add {w}, 256",
        "add {k}, 4",
        "jnz 2b",
        "3:",
        "test {rest}, {rest}",
        "jz 5f",
        "4:",
        step_6x16!("0", "32", "0"),
        "add {w}, 64",
        "inc {k}",
        "dec {rest}",
        "jnz 4b",
        "5:",
        w = inout(reg) w => _,
        k = inout(reg) (fours as isize).wrapping_neg() => _,
        rest = inout(reg) run & 3 => _,
        a0 = in(reg) a[0].add(fours),
        a1 = in(reg) a[1].add(fours),
        a2 = in(reg) a[2].add(fours),
        a3 = in(reg) a[3].add(fours),
        a4 = in(reg) a[4].add(fours),
        a5 = in(reg) a[5].add(fours),
        b0 = out(ymm_reg) _,
        b1 = out(ymm_reg) _,
        x = out(ymm_reg) _,
        s00 = inout(ymm_reg) s[0][0],
        s01 = inout(ymm_reg) s[0][1],
        s10 = inout(ymm_reg) s[1][0],
        s11 = inout(ymm_reg) s[1][1],
        s20 = inout(ymm_reg) s[2][0],
        s21 = inout(ymm_reg) s[2][1],
        s30 = inout(ymm_reg) s[3][0],
        s31 = inout(ymm_reg) s[3][1],
        s40 = inout(ymm_reg) s[4][0],
        s41 = inout(ymm_reg) s[4][1],
        s50 = inout(ymm_reg) s[5][0],
        s51 = inout(ymm_reg) s[5][1],
        options(nostack, readonly),
    );
    s
}

/// `sums[m][v] += a[m][k] w[24 k + 8 v..]` over `k < run`.
///
/// # Safety
/// The processor has AVX2 and FMA; `a` and `w` point at `run` values and `run` times 24.
#[inline]
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn run_4x24(
    sums: [[__m256; 3]; 4],
    a: [*const f32; 4],
    w: *const f32,
    run: usize,
) -> [[__m256; 3]; 4] {
    let mut s = sums;
    let fours = run & !3;
    asm!(
        "test {k}, {k}",
        "jz 3f",
        ".p2align 5",
        "2:",
        step_4x24!("0", "32", "64", "0"),
        step_4x24!("96", "128", "160", "4"),
        step_4x24!("192", "224", "256", "8"),
        step_4x24!("288", "320", "352", "12"),
        "add {w}, 384",
        "add {k}, 4",
        "jnz 2b",
        "3:",
        "test {rest}, {rest}",
        "jz 5f",
        "4:",
        step_4x24!("0", "32", "64", "0"),
        "add {w}, 96",
        "inc {k}",
        "dec {rest}",
        "jnz 4b",
        "5:",
        w = inout(reg) w => _,
        k = inout(reg) (fours as isize).wrapping_neg() => _,
        rest = inout(reg) run & 3 => _,
        a0 = in(reg) a[0].add(fours),
        a1 = in(reg) a[1].add(fours),
        a2 = in(reg) a[2].add(fours),
        a3 = in(reg) a[3].add(fours),
        b0 = out(ymm_reg) _,
        b1 = out(ymm_reg) _,
        b2 = out(ymm_reg) _,
        x = out(ymm_reg) _,
        s00 = inout(ymm_reg) s[0][0],
        s01 = inout(ymm_reg) s[0][1],
        s02 = inout(ymm_reg) s[0][2],
        s10 = inout(ymm_reg) s[1][0],
        s11 = inout(ymm_reg) s[1][1],
        s12 = inout(ymm_reg) s[1][2],
        s20 = inout(ymm_reg) s[2][0],
        s21 = inout(ymm_reg) s[2][1],
        s22 = inout(ymm_reg) s[2][2],
        s30 = inout(ymm_reg) s[3][0],
        s31 = inout(ymm_reg) s[3][1],
        s32 = inout(ymm_reg) s[3][2],
        options(nostack, readonly),
    );
    s
}
