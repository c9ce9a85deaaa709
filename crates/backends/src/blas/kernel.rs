//! Products in strips, one a task of our threads.

use super::{
    NAME,
    engine::{Strip, engine},
};
use crate::matrices::{Matrices, Shared, piece, plain_operand};
use bricolage_runtime::{Dims, Kernel, Needs, Recipe, Run, RunError};
use serde::{Deserialize, Serialize};
use std::{ffi::c_int, path::PathBuf, slice};

/// What the recipe calls the kernel.
pub(super) const KERNEL: &str = "product/1";
const LABEL: &str = "blas-f32-product";

/// Multiply-adds below which a product is not worth a second thread.
const SPLIT: f64 = 65536.0;
/// Strips begin at multiples of this many rows or columns.
const GRAIN: i64 = 16;

/// What is computed: a product, and what is added to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Spec {
    pub(super) matrices: Matrices,
    /// Whether the factors are constants, which come before the bias.
    pub(super) constant: [bool; 2],
    /// Whether a constant row is added to every row.
    pub(super) bias: bool,
    /// Whether a tensor of the result's dims is added, the last input.
    pub(super) residual: bool,
}

/// A product that the library computes.
pub(super) struct Product {
    library: PathBuf,
    spec: Spec,
    /// With as few matrices as there can be.
    merged: Matrices,
    pairs: Vec<(usize, usize)>,
    recipe: Recipe,
}

/// Where the operands of a run lie.
struct Places {
    a: Shared,
    b: Shared,
    bias: Shared,
    residual: Shared,
    result: Shared,
}

impl Product {
    pub(super) fn new(library: PathBuf, spec: Spec) -> Result<Product, String> {
        spec.matrices.check()?;
        let body = postcard::to_stdvec(&spec).map_err(|e| e.to_string())?;
        let recipe = Recipe { backend: NAME.to_owned(), kernel: KERNEL.to_owned(), body };
        let merged = spec.matrices.merged();
        let pairs = merged.pairs();
        Ok(Product { library, spec, merged, pairs, recipe })
    }

    fn places(&self, run: &Run<'_>) -> Result<Places, String> {
        let Spec { matrices, constant, bias, residual } = &self.spec;
        let (mut inputs, mut constants) = (run.inputs.iter(), run.constants.iter());
        let [a, b] = matrices.factors();
        let result = matrices.result();
        let mut take = |is_constant: bool, dims: &[i64]| {
            let next = if is_constant { constants.next() } else { inputs.next() };
            plain_operand(next, dims).map(|o| Shared::of(Some(o)))
        };
        let none = Shared::of(None);
        Ok(Places {
            a: take(constant[0], &a)?,
            b: take(constant[1], &b)?,
            bias: if *bias { take(true, &[matrices.n])? } else { none },
            residual: if *residual { take(false, &result)? } else { none },
            result: Shared::of(Some(plain_operand(run.outputs.first(), &result)?)),
        })
    }

    /// The strip of matrix `product` of the result, with what is added already there.
    ///
    /// # Safety
    /// The places have the elements that the spec says, and the strip of the result is the caller's alone.
    unsafe fn strip(
        &self,
        places: &Places,
        product: i64,
        rows: (i64, i64),
        columns: (i64, i64),
    ) -> Strip {
        let Matrices { m, n, k, ta, tb, .. } = self.merged;
        let Places { a, b, bias, residual, result } = places;
        let width = (columns.1 - columns.0) as usize;
        let anew = bias.is_none() && residual.is_none();
        let (left, right) = self.pairs[product as usize];
        let small = |size: i64| c_int::try_from(size).unwrap_or(c_int::MAX);
        // SAFETY: all elements lie inside their matrices.
        unsafe {
            for row in (rows.0..rows.1).filter(|_| !anew) {
                let at = (product * m + row) * n + columns.0;
                let to = slice::from_raw_parts_mut(result.at(at), width);
                let bias =
                    (!bias.is_none()).then(|| slice::from_raw_parts(bias.at(columns.0), width));
                if residual.is_none() {
                    bias.iter().for_each(|bias| to.copy_from_slice(bias));
                    continue;
                }
                let from = residual.at(at);
                if from != to.as_mut_ptr() {
                    to.copy_from_slice(slice::from_raw_parts(from, width));
                }
                if let Some(bias) = bias {
                    to.iter_mut().zip(bias).for_each(|(to, bias)| *to += bias);
                }
            }
            Strip {
                m: small(rows.1 - rows.0),
                n: small(columns.1 - columns.0),
                k: small(k),
                a: a.at(left as i64 * m * k + rows.0 * if ta { 1 } else { k }),
                lda: small(if ta { m } else { k }),
                ta,
                b: b.at(right as i64 * k * n + columns.0 * if tb { k } else { 1 }),
                ldb: small(if tb { k } else { n }),
                tb,
                result: result.at((product * m + rows.0) * n + columns.0),
                ldc: small(n),
                anew,
            }
        }
    }
}

impl Kernel for Product {
    fn name(&self) -> &str {
        LABEL
    }

    fn needs(&self, _: &Dims<'_>, _: usize) -> Needs {
        let residual = self.spec.constant.iter().filter(|c| !**c).count();
        let in_place = if self.spec.residual { vec![(0, residual)] } else { Vec::new() };
        Needs { workspace: 0, foreign: None, in_place, deterministic: true }
    }

    fn run(&self, run: &mut Run<'_>) -> Result<(), RunError> {
        if run.cancel.is_cancelled() {
            return Err(RunError::Cancelled);
        }
        let kernel = || LABEL.to_owned();
        let engine =
            engine(&self.library).map_err(|why| RunError::Failed { kernel: kernel(), why })?;
        let places =
            self.places(run).map_err(|what| RunError::Operand { kernel: kernel(), what })?;
        let products = self.pairs.len() as i64;
        let threads = run.pool.threads() as i64;
        let parts =
            if self.merged.macs() < SPLIT { 1 } else { (threads + products - 1) / products };
        let Matrices { m, n, .. } = self.merged;
        let task = |task: usize, _: usize| {
            let (product, part) = (task as i64 / parts, task as i64 % parts);
            let (first, end) = piece(m.max(n), parts, part, GRAIN);
            let (rows, columns) =
                if n >= m { ((0, m), (first, end)) } else { ((first, end), (0, n)) };
            if first < end {
                // SAFETY: the operands were found to have the dims of the spec, and no two tasks have the
                // same strip.
                unsafe {
                    let strip = self.strip(&places, product, rows, columns);
                    engine.add_product(&strip);
                }
            }
        };
        run.pool.run((products * parts) as usize, &task);
        Ok(())
    }

    fn recipe(&self) -> Recipe {
        self.recipe.clone()
    }
}
