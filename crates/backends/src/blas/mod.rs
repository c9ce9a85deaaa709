//! Products of `f32` matrices by the CBLAS interface of OpenBLAS, BLIS or MKL, loaded when it is first
//! needed. `blas.patterns` says which; the library stays on the thread that calls it, and our threads take
//! strips.

mod engine;
mod kernel;
#[cfg(test)]
mod tests;

use crate::{
    library::{self, Found, Wanted},
    matrices::Matrices,
    native::View,
    proposal::plain,
};
use bricolage_backend::{
    BackendStatus, Bound, Candidate, Packed, Region, Setting,
    pattern::{Bindings, Library, PatternBackend, PatternError, Provider},
};
use bricolage_ir::{Graph, ValueId};
use bricolage_runtime::{Kernel, Recipe};
use kernel::{KERNEL, Product, Source, Spec};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

const NAME: &str = "blas";
const PATTERNS: &str = include_str!("blas.patterns");
/// What every pattern names.
const ENTRY: &str = "sgemm";
/// Raised whenever products are cut or called in another way.
const ADAPTER: &str = "2";

const WANTED: Wanted = Wanted {
    variable: "BRICOLAGE_BLAS",
    files: &["libopenblas.so", "libscipy_openblas.so", "libblis.so", "libmkl_rt.so"],
    folders: &["lib", "scipy_openblas32/lib"],
    packaged: "scipy_openblas32/lib",
    package: "scipy_openblas32",
};

/// A library with the CBLAS interface as a provider of products.
#[derive(Clone, Debug)]
pub struct Blas {
    library: Result<Found, String>,
}

impl Blas {
    /// The environment variable in which the user names the library.
    pub const VARIABLE: &str = WANTED.variable;

    /// Looks for the library, and does not load it; the backend that its pattern file makes of it.
    ///
    /// `named` is a library file, or a folder that holds it: a Python environment or the wheel's folder.
    /// Where nothing is named, the library is looked for in the Python environment `environment`, and then
    /// where the system's loader looks.
    ///
    /// # Errors
    /// When the pattern file does not fit the language, which is a bug.
    pub fn find(
        named: Option<&Path>,
        environment: Option<&Path>,
    ) -> Result<PatternBackend, PatternError> {
        Blas { library: library::find(&WANTED, named, environment) }.backend()
    }

    fn backend(self) -> Result<PatternBackend, PatternError> {
        PatternBackend::load("blas.patterns", PATTERNS, Arc::new(self))
    }

    fn path(&self) -> Result<PathBuf, String> {
        self.library.as_ref().map(|l| l.path.clone()).map_err(Clone::clone)
    }

    fn version(&self) -> String {
        let file = |l: &Found| l.path.file_name().map(|n| n.to_string_lossy().into_owned());
        match &self.library {
            Ok(l) => format!("{} {}/{ADAPTER}", file(l).unwrap_or_default(), l.version),
            Err(_) => format!("absent/{ADAPTER}"),
        }
    }
}

impl Provider for Blas {
    fn library(&self) -> Library {
        Library { entries: vec![ENTRY.to_owned()], machine: Vec::new(), version: self.version() }
    }

    fn status(&self) -> BackendStatus {
        library::status(NAME, &WANTED, &self.library, "scipy-openblas32", "")
    }

    fn is_foreign(&self) -> bool {
        true
    }

    fn guess_ns(&self, _: &str, graph: &Graph, region: &Region, setting: &Setting) -> Option<f64> {
        let view = View { graph, setting: *setting };
        let (matrices, ..) = region.nodes.iter().find_map(|&n| Matrices::of(&view, n).ok())?;
        Some(view.compute_ns(matrices.macs()))
    }

    fn bind(
        &self,
        _: &str,
        graph: &Graph,
        candidate: &Candidate,
        bindings: &Bindings,
        setting: &Setting,
    ) -> Result<Bound, String> {
        let view = View { graph, setting: *setting };
        let product = bindings.node("m").ok_or("needs a product")?;
        let (matrices, a, b) = Matrices::of(&view, product)?;
        let mut constants = Vec::new();
        let mut source = |v: ValueId, dims: Option<&[i64]>| match view.constant(v) {
            Some(tensor) => {
                let shaped = dims.map_or_else(|| Ok(tensor.clone()), |dims| tensor.reshaped(dims));
                constants.push(plain(shaped.map_err(|e| e.to_string())?));
                Ok(Source::Constant(constants.len() - 1))
            }
            None => {
                let place = candidate.region.inputs.iter().position(|&input| input == v);
                place.map(Source::Input).ok_or_else(|| {
                    format!("needs `{}` among the inputs of the region", graph.value(v).name)
                })
            }
        };
        let (a, b) = (source(a, None)?, source(b, None)?);
        let row = [matrices.n];
        let bias = bindings.value("bias").map(|v| source(v, Some(&row))).transpose()?;
        let residual = bindings.value("r").map(|v| source(v, None)).transpose()?;
        let spec = Spec { matrices, a, b, bias, residual };
        let kernel = Arc::new(Product::new(self.path()?, spec)?);
        Ok(Bound { kernel, constants, built_in: Vec::new() })
    }

    fn rebuild(&self, recipe: &Recipe, _: &[Packed]) -> Result<Arc<dyn Kernel>, String> {
        if recipe.kernel != KERNEL {
            return Err(format!("has no kernel `{}`", recipe.kernel));
        }
        let spec: Spec = postcard::from_bytes(&recipe.body).map_err(|e| e.to_string())?;
        let path = self.path()?;
        engine::engine(&path)?;
        Ok(Arc::new(Product::new(path, spec)?))
    }
}
