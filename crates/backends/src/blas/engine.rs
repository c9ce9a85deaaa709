//! The CBLAS interface of a library, told to stay on the thread that calls it.

use crate::library::{Library, Loaded};
use std::{ffi::c_int, path::Path};

const ROW_MAJOR: c_int = 101;
const AS_IT_IS: c_int = 111;
const TRANSPOSED: c_int = 112;

type Gemm = unsafe extern "C" fn(
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    c_int,
    f32,
    *const f32,
    c_int,
    *const f32,
    c_int,
    f32,
    *mut f32,
    c_int,
);
type Gemv = unsafe extern "C" fn(
    c_int,
    c_int,
    c_int,
    c_int,
    f32,
    *const f32,
    c_int,
    *const f32,
    c_int,
    f32,
    *mut f32,
    c_int,
);

/// What libraries put before the names of the interface.
const PREFIXES: [&str; 2] = ["", "scipy_"];

/// The loaded library. Its functions may be called from several threads at a time.
pub(super) struct Engine {
    gemm: Gemm,
    gemv: Gemv,
}

static ENGINE: Loaded<Engine> = Loaded::new();

/// The library at `path`, loaded by the first call.
pub(super) fn engine(path: &Path) -> Result<&'static Engine, String> {
    ENGINE.get(path, Engine::of)
}

impl Engine {
    fn of(library: &Library) -> Result<Engine, String> {
        stay_on_one_thread(library)?;
        let find = |prefix: &str| -> Result<Engine, String> {
            // SAFETY: these are the signatures of CBLAS with integers of 32 bits; libraries with others
            // call them otherwise.
            unsafe {
                Ok(Engine {
                    gemm: library.function(&format!("{prefix}cblas_sgemm"))?,
                    gemv: library.function(&format!("{prefix}cblas_sgemv"))?,
                })
            }
        };
        let mut found = PREFIXES.iter().map(|prefix| find(prefix));
        let first = found.next().unwrap_or_else(|| Err("there are no prefixes".to_owned()));
        found.fold(first, |found, next| found.or_else(|why| next.map_err(|_| why)))
    }

    /// `result += a * b` for a strip of a product, or `result = a * b` for one that begins anew.
    ///
    /// # Safety
    /// The operands have the elements that the strip says, and nobody else uses those of the result.
    pub(super) unsafe fn add_product(&self, strip: &Strip) {
        let Strip { m, n, k, a, lda, ta, b, ldb, tb, result, ldc, anew } = *strip;
        let kept = if anew { 0.0 } else { 1.0 };
        let turned = |t: bool| if t { TRANSPOSED } else { AS_IT_IS };
        // A vector may lie in a column: its elements are then `ld` apart.
        let step = |t: bool, ld: c_int| if t { ld } else { 1 };
        // SAFETY: the caller promises the memory; sizes and strides describe it in row-major order.
        unsafe {
            if m == 1 {
                // `b` as it is has k rows, and a row of results is made of its columns.
                let (rows, columns) = if tb { (n, k) } else { (k, n) };
                (self.gemv)(
                    ROW_MAJOR,
                    turned(!tb),
                    rows,
                    columns,
                    1.0,
                    b,
                    ldb,
                    a,
                    step(ta, lda),
                    kept,
                    result,
                    1,
                );
            } else if n == 1 {
                let (rows, columns) = if ta { (k, m) } else { (m, k) };
                (self.gemv)(
                    ROW_MAJOR,
                    turned(ta),
                    rows,
                    columns,
                    1.0,
                    a,
                    lda,
                    b,
                    step(!tb, ldb),
                    kept,
                    result,
                    ldc,
                );
            } else {
                (self.gemm)(
                    ROW_MAJOR,
                    turned(ta),
                    turned(tb),
                    m,
                    n,
                    k,
                    1.0,
                    a,
                    lda,
                    b,
                    ldb,
                    kept,
                    result,
                    ldc,
                );
            }
        }
    }
}

/// Part of a product in row-major order: `m` rows and `n` columns, each a sum over `k`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Strip {
    pub(super) m: c_int,
    pub(super) n: c_int,
    pub(super) k: c_int,
    pub(super) a: *const f32,
    /// Elements from one row of `a`, as it lies, to the next.
    pub(super) lda: c_int,
    /// Whether `a` lies transposed.
    pub(super) ta: bool,
    pub(super) b: *const f32,
    pub(super) ldb: c_int,
    pub(super) tb: bool,
    pub(super) result: *mut f32,
    pub(super) ldc: c_int,
    /// Whether what the result holds does not count.
    pub(super) anew: bool,
}

/// Our own threads split the work: the library's would be a second pool on the same processors.
fn stay_on_one_thread(library: &Library) -> Result<(), String> {
    type Set = unsafe extern "C" fn(c_int);
    type SetLong = unsafe extern "C" fn(i64);
    type Choose = unsafe extern "C" fn(c_int) -> c_int;
    /// MKL without threads of its own.
    const SEQUENTIAL: c_int = 1;
    // SAFETY: the functions of these names have these signatures in every version of their libraries.
    unsafe {
        for prefix in PREFIXES {
            if let Ok(set) = library.function::<Set>(&format!("{prefix}openblas_set_num_threads")) {
                set(1);
                return Ok(());
            }
        }
        if let Ok(set) = library.function::<SetLong>("bli_thread_set_num_threads") {
            set(1);
            return Ok(());
        }
        if let Ok(choose) = library.function::<Choose>("MKL_Set_Threading_Layer") {
            choose(SEQUENTIAL);
            return Ok(());
        }
    }
    Err("it has no function that sets its threads: it is none of OpenBLAS, BLIS and MKL".to_owned())
}
