//! A region compiled into a session of the library.

use super::{
    NAME,
    engine::{Options, Session, Source, Value, engine},
};
use bricolage_backend::Packed;
use bricolage_runtime::{Dims, Kernel, Needs, Operand, Recipe, Run, RunError};
use bricolage_tensor::{DType, Format, Tensor};
use ort_sys::GraphOptimizationLevel as Level;
use serde::{Deserialize, Serialize};
use std::{path::PathBuf, sync::OnceLock};

/// What the recipe calls the kernel.
pub(super) const KERNEL: &str = "region/1";

/// From the level that gives the fastest code to the one that changes nothing, with the name of a
/// kernel that was compiled at it.
const LEVELS: &[(Level, &str)] = &[
    (Level::ORT_ENABLE_ALL, "onnxruntime-region"),
    (Level::ORT_ENABLE_EXTENDED, "onnxruntime-region@extended"),
    (Level::ORT_ENABLE_BASIC, "onnxruntime-region@basic"),
    (Level::ORT_DISABLE_ALL, "onnxruntime-region@disabled"),
];

/// A tensor that crosses the region's border.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Port {
    /// Name in the model.
    pub(super) name: String,
    /// Element type.
    pub(super) dtype: DType,
    /// Dims of the tensor.
    pub(super) dims: Vec<i64>,
}

/// The body of a recipe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Body {
    /// ONNX bytes without the large constants.
    pub(super) model: Vec<u8>,
    /// Names of these constants, in the order in which they are built in.
    pub(super) weights: Vec<String>,
    /// In the order of the kernel's operands.
    pub(super) inputs: Vec<Port>,
    /// In the order of the kernel's operands.
    pub(super) outputs: Vec<Port>,
    /// Threads of a run.
    pub(super) threads: u32,
    /// Whether the session has a pool of its own whose threads spin.
    pub(super) spinning: bool,
}

/// A region that the library computes.
pub(super) struct Region {
    library: PathBuf,
    body: Body,
    weights: Vec<Packed>,
    recipe: Recipe,
    /// Compiled when it is first needed, with the name that says at which level.
    session: OnceLock<Result<(Session, &'static str), String>>,
}

impl Region {
    /// A kernel that is not yet compiled.
    pub(super) fn new(
        library: PathBuf,
        body: Body,
        weights: Vec<Packed>,
    ) -> Result<Region, String> {
        if weights.len() != body.weights.len() {
            return Err(format!("needs {} constants, found {}", body.weights.len(), weights.len()));
        }
        let recipe = Recipe {
            backend: NAME.to_owned(),
            kernel: KERNEL.to_owned(),
            body: postcard::to_stdvec(&body).map_err(|e| e.to_string())?,
        };
        Ok(Region { library, body, weights, recipe, session: OnceLock::new() })
    }

    /// The session, compiled at the highest level at which the library takes the model.
    pub(super) fn session(&self) -> Result<&Session, String> {
        let compiled = self.session.get_or_init(|| self.compile());
        compiled.as_ref().map(|(session, _)| session).map_err(Clone::clone)
    }

    fn compile(&self) -> Result<(Session, &'static str), String> {
        let threads = self.body.threads as usize;
        let engine = engine(&self.library, threads)?;
        let names = |ports: &[Port]| ports.iter().map(|p| p.name.clone()).collect::<Vec<_>>();
        let (inputs, outputs) = (names(&self.body.inputs), names(&self.body.outputs));
        let mut first = None;
        for &(level, name) in LEVELS {
            let weight = |(name, packed): (&String, &Packed)| {
                let t = Tensor::new(packed.format.dtype, &packed.dims, packed.bytes.clone());
                t.map(|t| (name.clone(), t)).map_err(|e| e.to_string())
            };
            let weights: Result<Vec<_>, String> =
                self.body.weights.iter().zip(&self.weights).map(weight).collect();
            let source = Source::Bytes(&self.body.model, weights?);
            let spinning = self.body.spinning;
            let options = Options { threads, spinning, level, exact_bytes: true };
            match Session::open(engine, source, Some((&inputs, &outputs)), &options) {
                Ok(session) => return Ok((session, name)),
                Err(why) => first = first.or(Some(why)),
            }
        }
        Err(first.unwrap_or_default())
    }

    fn fault(&self, what: String) -> RunError {
        RunError::Operand { kernel: self.name().to_owned(), what }
    }

    fn values(
        &self,
        session: &Session,
        kind: &str,
        operands: &[Operand<'_>],
        ports: &[Port],
    ) -> Result<Vec<Value>, RunError> {
        if operands.len() != ports.len() {
            let what = format!("needs {} {kind}s, found {}", ports.len(), operands.len());
            return Err(self.fault(what));
        }
        let value = |(operand, port): (&Operand<'_>, &Port)| {
            let wanted = Format::plain(port.dtype);
            if operand.dims != port.dims || *operand.format != wanted {
                return Err(self.fault(format!(
                    "needs {wanted}{:?} for {kind} `{}`, found {}{:?}",
                    port.dims, port.name, operand.format, operand.dims
                )));
            }
            // SAFETY: the session hands memory of this length for the time of the run, writable for
            // outputs; inputs are only read.
            let made = unsafe {
                session.tensor(operand.as_mut_ptr(), operand.len(), port.dtype, &port.dims)
            };
            made.map_err(|why| self.failed(why))
        };
        operands.iter().zip(ports).map(value).collect()
    }

    fn failed(&self, why: String) -> RunError {
        RunError::Failed { kernel: self.name().to_owned(), why }
    }
}

impl Kernel for Region {
    fn name(&self) -> &str {
        match self.session.get() {
            Some(Ok((_, name))) => name,
            _ => LEVELS[0].1,
        }
    }

    fn needs(&self, _: &Dims<'_>, _: usize) -> Needs {
        Needs { workspace: 0, foreign: None, in_place: Vec::new(), deterministic: false }
    }

    fn run(&self, run: &mut Run<'_>) -> Result<(), RunError> {
        if run.cancel.is_cancelled() {
            return Err(RunError::Cancelled);
        }
        let session = self.session().map_err(|why| self.failed(why))?;
        let inputs = self.values(session, "input", run.inputs, &self.body.inputs)?;
        let outputs = self.values(session, "output", run.outputs, &self.body.outputs)?;
        session.run_into(&inputs, &outputs).map_err(|why| self.failed(why))
    }

    fn recipe(&self) -> Recipe {
        self.recipe.clone()
    }
}
