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
pub(super) const KERNEL: &str = "product/2";
const LABEL: &str = "blas-f32-product";

/// Multiply-adds below which a product is not worth a second thread.
const SPLIT: f64 = 65536.0;
/// Strips begin at multiples of this many rows or columns.
const GRAIN: i64 = 16;

/// Where an operand lies: its number among the inputs of a run, or among the constants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Source {
    Input(usize),
    Constant(usize),
}

/// What is computed: a product, and what is added to it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Spec {
    pub(super) matrices: Matrices,
    /// The left factor.
    pub(super) a: Source,
    /// The right factor.
    pub(super) b: Source,
    /// A row that is added to every row.
    pub(super) bias: Option<Source>,
    /// A tensor of the result's dims that is added; it may be a factor too.
    pub(super) residual: Option<Source>,
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
        let Spec { matrices, a, b, bias, residual } = &self.spec;
        let [left, right] = matrices.factors();
        let result = matrices.result();
        let place = |source: Source, dims: &[i64]| {
            let operand = match source {
                Source::Input(at) => run.inputs.get(at),
                Source::Constant(at) => run.constants.get(at),
            };
            plain_operand(operand, dims).map(|o| Shared::of(Some(o)))
        };
        let added = |source: &Option<Source>, dims: &[i64]| {
            source.map_or(Ok(Shared::of(None)), |source| place(source, dims))
        };
        Ok(Places {
            a: place(*a, &left)?,
            b: place(*b, &right)?,
            bias: added(bias, &[matrices.n])?,
            residual: added(residual, &result)?,
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
        let Spec { a, b, residual, .. } = &self.spec;
        // What is written over while it is a factor would change under the sums.
        let in_place = match residual {
            Some(Source::Input(at)) if ![a, b].contains(&&Source::Input(*at)) => vec![(0, *at)],
            _ => Vec::new(),
        };
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
