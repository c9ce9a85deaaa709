//! Products of `f32` matrices by the CBLAS interface of OpenBLAS, BLIS or MKL, loaded when it is first
//! needed. The library stays on the thread that calls it; our threads take strips.

mod engine;
mod kernel;
#[cfg(test)]
mod tests;

use crate::{
    library::{self, Found, Wanted},
    matrices::Matrices,
    native::{Chain, PLAIN, View, chains, is_column_bias},
    proposal::{self, Proposal},
};
use bricolage_backend::{
    Backend, BackendKind, BackendStatus, Bound, Candidate, Packed, Proposals, Setting,
};
use bricolage_ir::{Graph, Node, NodeId, Numerics, Op};
use bricolage_kernels::Post;
use bricolage_runtime::{Kernel, Recipe};
use kernel::{KERNEL, Product, Spec};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

const NAME: &str = "blas";
/// Raised whenever products are cut or called in another way.
const ADAPTER: &str = "1";

const WANTED: Wanted = Wanted {
    variable: "BRICOLAGE_BLAS",
    files: &["libopenblas.so", "libscipy_openblas.so", "libblis.so", "libmkl_rt.so"],
    folders: &["lib", "scipy_openblas32/lib"],
    packaged: "scipy_openblas32/lib",
    package: "scipy_openblas32",
};

/// A library with the CBLAS interface as a backend.
#[derive(Clone, Debug)]
pub struct Blas {
    library: Result<Found, String>,
}

impl Blas {
    /// The environment variable in which the user names the library.
    pub const VARIABLE: &str = WANTED.variable;

    /// Looks for the library, and does not load it.
    ///
    /// `named` is a library file, or a folder that holds it: a Python environment or the wheel's folder.
    /// Where nothing is named, the library is looked for in the Python environment `environment`, and then
    /// where the system's loader looks.
    pub fn find(named: Option<&Path>, environment: Option<&Path>) -> Blas {
        Blas { library: library::find(&WANTED, named, environment) }
    }

    fn path(&self) -> Result<PathBuf, String> {
        self.library.as_ref().map(|l| l.path.clone()).map_err(Clone::clone)
    }
}

/// Every product that ends at `exit`, with up to a bias and an addition after it.
fn proposals(view: &View<'_>, exit: NodeId) -> Result<Vec<Proposal<Spec>>, String> {
    let is_anchor = |n: &Node| matches!(n.op, Op::MatMul(_));
    let found = chains(view, exit, &is_anchor, &|p, c| is_column_bias(view, p, c));
    let added = found.iter().filter(|c| c.posts.iter().all(|p| *p == Post::Add));
    added.map(|chain| product(view, chain)).collect()
}

fn product(view: &View<'_>, chain: &Chain) -> Result<Proposal<Spec>, String> {
    let (matrices, a, b) = Matrices::of(view, chain.anchor)?;
    let (mut inputs, mut constants) = (Vec::new(), Vec::new());
    for v in [a, b] {
        match view.constant(v) {
            Some(t) => constants.push(t.clone()),
            None => inputs.push((v, PLAIN)),
        }
    }
    if let Some(bias) = chain.bias.and_then(|v| view.constant(v)) {
        constants.push(bias.reshaped(&[matrices.n]).map_err(|e| e.to_string())?);
    }
    inputs.extend(chain.residual.map(|r| (r, PLAIN)));
    let candidate = view.candidate(
        chain.nodes.clone(),
        &inputs,
        &[PLAIN],
        (&chain.name("matmul"), "sgemm".to_owned()),
        Numerics::Reassociates,
        view.compute_ns(matrices.macs()),
    )?;
    let spec = Spec {
        matrices,
        constant: [a, b].map(|v| view.constant(v).is_some()),
        bias: chain.bias.is_some(),
        residual: chain.residual.is_some(),
    };
    Ok(Proposal { candidate, spec, constants })
}

impl Backend for Blas {
    fn name(&self) -> &str {
        NAME
    }

    fn kind(&self) -> BackendKind {
        BackendKind::Supplement
    }

    fn version(&self) -> String {
        let file = |l: &Found| l.path.file_name().map(|n| n.to_string_lossy().into_owned());
        match &self.library {
            Ok(l) => format!("{} {}/{ADAPTER}", file(l).unwrap_or_default(), l.version),
            Err(_) => format!("absent/{ADAPTER}"),
        }
    }

    fn status(&self) -> BackendStatus {
        let covers = "products of f32 matrices, with a bias and an addition";
        library::status(NAME, &WANTED, &self.library, "scipy-openblas32", covers)
    }

    fn is_foreign(&self) -> bool {
        true
    }

    fn propose(&self, graph: &Graph, exit: NodeId, setting: &Setting) -> Proposals {
        let view = View { graph, setting: *setting };
        proposal::answer(proposals(&view, exit), exit, "matmul")
    }

    fn bind(
        &self,
        graph: &Graph,
        candidate: &Candidate,
        setting: &Setting,
    ) -> Result<Bound, String> {
        let view = View { graph, setting: *setting };
        let all = proposals(&view, candidate.region.exit())?;
        let (spec, constants) = proposal::parts(all, candidate)?;
        Ok(Bound {
            kernel: Arc::new(Product::new(self.path()?, spec)?),
            constants,
            built_in: Vec::new(),
        })
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
