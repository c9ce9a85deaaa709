//! A region compiled by a library.

use super::{Body, Port};
use bricolage_backend::{Bound, Packed};
use bricolage_runtime::{Dims, Kernel, Needs, Operand, Recipe, Run, RunError};
use bricolage_tensor::{Format, Tensor};
use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
};

/// What the recipe calls the kernel.
const KERNEL: &str = "region/1";

/// A model that a library has compiled. Runs may overlap.
pub(crate) trait Compiled: Sized + Send + Sync + 'static {
    /// Name of the backend.
    const BACKEND: &'static str;
    /// Name of the kernel until it is compiled.
    const NAME: &'static str;

    /// Compiles `body`, whose large constants are `weights`; also gives the name of the kernel.
    fn compile(
        library: &std::path::Path,
        body: &Body,
        weights: &[(String, Tensor)],
    ) -> Result<(Self, &'static str), String>;

    /// Runs on operands that fit the ports of `body`.
    ///
    /// # Safety
    /// The operands' memory is readable for the time of the run, and that of outputs writable.
    unsafe fn run(
        &self,
        body: &Body,
        inputs: &[Operand<'_>],
        outputs: &[Operand<'_>],
    ) -> Result<(), Refusal>;
}

/// Why a compiled region did not run.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Elements of the inputs are such that the library would compute something else.
    Domain(String),
    /// The library failed.
    Failed(String),
}

impl From<String> for Refusal {
    fn from(why: String) -> Refusal {
        Refusal::Failed(why)
    }
}

/// A region that a library computes.
pub(crate) struct RegionKernel<C> {
    library: PathBuf,
    body: Body,
    weights: Vec<Packed>,
    recipe: Recipe,
    /// Compiled when it is first needed, with the kernel's name.
    compiled: OnceLock<Result<(C, &'static str), String>>,
}

impl<C: Compiled> RegionKernel<C> {
    /// A kernel that is not yet compiled.
    pub(crate) fn new(
        library: PathBuf,
        body: Body,
        weights: Vec<Packed>,
    ) -> Result<RegionKernel<C>, String> {
        if weights.len() != body.weights.len() {
            return Err(format!("needs {} constants, found {}", body.weights.len(), weights.len()));
        }
        let recipe = Recipe {
            backend: C::BACKEND.to_owned(),
            kernel: KERNEL.to_owned(),
            body: postcard::to_stdvec(&body).map_err(|e| e.to_string())?,
        };
        Ok(RegionKernel { library, body, weights, recipe, compiled: OnceLock::new() })
    }

    /// A kernel that is not yet compiled, with the constants that it was made for.
    pub(crate) fn bound(
        library: PathBuf,
        body: Body,
        built_in: Vec<Packed>,
    ) -> Result<Bound, String> {
        let kernel = RegionKernel::<C>::new(library, body, built_in.clone())?;
        Ok(Bound { kernel: Arc::new(kernel), constants: Vec::new(), built_in })
    }

    /// The kernel of a recipe, compiled.
    pub(crate) fn rebuilt(
        library: PathBuf,
        recipe: &Recipe,
        built_in: &[Packed],
    ) -> Result<Arc<dyn Kernel>, String> {
        if recipe.kernel != KERNEL {
            return Err(format!("has no kernel `{}`", recipe.kernel));
        }
        let body: Body = postcard::from_bytes(&recipe.body).map_err(|e| e.to_string())?;
        let kernel = RegionKernel::<C>::new(library, body, built_in.to_vec())?;
        kernel.compiled()?;
        Ok(Arc::new(kernel))
    }

    fn compiled(&self) -> Result<&C, String> {
        let compile = || {
            let weight = |(name, packed): (&String, &Packed)| {
                let t = Tensor::new(packed.format.dtype, &packed.dims, packed.bytes.clone());
                t.map(|t| (name.clone(), t)).map_err(|e| e.to_string())
            };
            let weights: Result<Vec<_>, String> =
                self.body.weights.iter().zip(&self.weights).map(weight).collect();
            C::compile(&self.library, &self.body, &weights?)
        };
        let compiled = self.compiled.get_or_init(compile);
        compiled.as_ref().map(|(compiled, _)| compiled).map_err(Clone::clone)
    }

    fn check(&self, kind: &str, operands: &[Operand<'_>], ports: &[Port]) -> Result<(), RunError> {
        let fault = |what| Err(RunError::Operand { kernel: self.name().to_owned(), what });
        if operands.len() != ports.len() {
            return fault(format!("needs {} {kind}s, found {}", ports.len(), operands.len()));
        }
        for (operand, port) in operands.iter().zip(ports) {
            let wanted = Format::plain(port.dtype);
            if operand.dims != port.dims || *operand.format != wanted {
                return fault(format!(
                    "needs {wanted}{:?} for {kind} `{}`, found {}{:?}",
                    port.dims, port.name, operand.format, operand.dims
                ));
            }
        }
        Ok(())
    }
}

impl<C: Compiled> Kernel for RegionKernel<C> {
    fn name(&self) -> &str {
        match self.compiled.get() {
            Some(Ok((_, name))) => name,
            _ => C::NAME,
        }
    }

    fn needs(&self, _: &Dims<'_>, _: usize) -> Needs {
        Needs { workspace: 0, foreign: None, in_place: Vec::new(), deterministic: false }
    }

    fn run(&self, run: &mut Run<'_>) -> Result<(), RunError> {
        if run.cancel.is_cancelled() {
            return Err(RunError::Cancelled);
        }
        let kernel = || self.name().to_owned();
        let compiled = self.compiled().map_err(|why| RunError::Failed { kernel: kernel(), why })?;
        self.check("input", run.inputs, &self.body.inputs)?;
        self.check("output", run.outputs, &self.body.outputs)?;
        // SAFETY: the session hands memory of the operands' lengths for the time of the run, writable for
        // outputs.
        unsafe { compiled.run(&self.body, run.inputs, run.outputs) }.map_err(|why| match why {
            Refusal::Domain(why) => RunError::Domain { kernel: kernel(), why },
            Refusal::Failed(why) => RunError::Failed { kernel: kernel(), why },
        })
    }

    fn recipe(&self) -> Recipe {
        self.recipe.clone()
    }
}
