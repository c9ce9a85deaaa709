//! A kernel of a library.

use super::{
    Planned, ask,
    services::{Failure, Services},
    table::{Handle, Table},
};
use bricolage_backend::Packed;
use bricolage_plugin::{Role, Subgraph};
use bricolage_runtime::{Dims, Kernel, Needs, Operand, Recipe, Run, RunError};
use bricolage_tensor::Format;
use serde::{Deserialize, Serialize};
use std::{ffi::c_void, path::PathBuf, ptr, sync::OnceLock};

/// What the recipe calls the kernel.
pub(super) const KERNEL: &str = "library/1";

/// The body of a recipe.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Body {
    /// Of the library, as in cost keys.
    pub(super) version: String,
    pub(super) planned: Planned,
    /// As the interface describes it, without addresses.
    pub(super) subgraph: Vec<u8>,
}

/// A kernel that is compiled when it is first needed.
pub(super) struct Compiled {
    /// Before the constants, whose memory it may use until it is dropped.
    ready: OnceLock<Result<Handle, String>>,
    _built_in: Vec<Packed>,
    name: String,
    library: PathBuf,
    subgraph: Subgraph,
    planned: Planned,
    inputs: Vec<(Vec<i64>, Format)>,
    outputs: Vec<(Vec<i64>, Format)>,
    recipe: Recipe,
}

impl Compiled {
    /// A kernel for the sub-graph of `body`, which may come from a file.
    pub(super) fn new(
        backend: &str,
        library: PathBuf,
        body: &Body,
        built_in: Vec<Packed>,
    ) -> Result<Compiled, String> {
        let mut subgraph = Subgraph::decode(&body.subgraph).map_err(|e| e.to_string())?;
        if built_in.len() != subgraph.constants.len() {
            let (needed, found) = (subgraph.constants.len(), built_in.len());
            return Err(format!("needs {needed} constants, found {found}"));
        }
        let ports = |list: &[u32]| -> Result<Vec<(Vec<i64>, Format)>, String> {
            let tensors = list.iter().map(|&t| &subgraph.tensors[t as usize]);
            tensors.map(|t| Ok((t.dims.clone(), ask::format(t)?))).collect()
        };
        let (inputs, outputs) = (ports(&subgraph.inputs)?, ports(&subgraph.outputs)?);
        for t in &mut subgraph.tensors {
            let format = ask::format(t)?;
            t.data = 0;
            if let Role::Constant(place) = t.role {
                let given = &built_in[place as usize];
                if (&given.format, &given.dims) != (&format, &t.dims)
                    || given.bytes.len() as u64 != t.bytes
                {
                    return Err(format!(
                        "needs constant {place} as {format}{:?}, found {}{:?} of {} bytes",
                        t.dims,
                        given.format,
                        given.dims,
                        given.bytes.len()
                    ));
                }
                t.data = given.bytes.as_ptr().addr() as u64;
            }
        }
        let encoded = postcard::to_stdvec(body).map_err(|e| e.to_string())?;
        Ok(Compiled {
            ready: OnceLock::new(),
            name: format!("{backend}-{}", subgraph.entry),
            recipe: Recipe {
                backend: backend.to_owned(),
                kernel: KERNEL.to_owned(),
                body: encoded,
            },
            planned: body.planned.clone(),
            _built_in: built_in,
            library,
            subgraph,
            inputs,
            outputs,
        })
    }

    /// Loads the library and compiles.
    pub(super) fn compile(&self) -> Result<&Handle, String> {
        let make = || {
            let (table, _) = Table::open(&self.library).map_err(|e| e.to_string())?;
            // The addresses in it are those of constants that live longer than the handle.
            table.compile(&self.subgraph)
        };
        self.ready.get_or_init(make).as_ref().map_err(Clone::clone)
    }

    fn pointers<T>(
        &self,
        what: &str,
        given: &[Operand<'_>],
        wanted: &[(Vec<i64>, Format)],
        pointer: impl Fn(&Operand<'_>) -> T,
    ) -> Result<Vec<T>, RunError> {
        let wrong = |what: String| RunError::Operand { kernel: self.name.clone(), what };
        if given.len() != wanted.len() {
            return Err(wrong(format!("needs {} {what}, found {}", wanted.len(), given.len())));
        }
        for (operand, (dims, format)) in given.iter().zip(wanted) {
            let bytes = format.byte_len(dims).unwrap_or(u64::MAX);
            if operand.dims != dims || operand.format != format || (operand.len() as u64) < bytes {
                let found = format!("{}{:?}", operand.format, operand.dims);
                return Err(wrong(format!("needs {what} {format}{dims:?}, found {found}")));
            }
        }
        Ok(given.iter().map(pointer).collect())
    }
}

impl Kernel for Compiled {
    fn name(&self) -> &str {
        &self.name
    }

    fn needs(&self, _: &Dims<'_>, _: usize) -> Needs {
        Needs {
            workspace: self.planned.workspace,
            foreign: None,
            in_place: Vec::new(),
            deterministic: self.planned.deterministic,
        }
    }

    fn run(&self, run: &mut Run<'_>) -> Result<(), RunError> {
        if run.cancel.is_cancelled() {
            return Err(RunError::Cancelled);
        }
        let kernel = || self.name.clone();
        let inputs =
            self.pointers("inputs", run.inputs, &self.inputs, |o| o.as_ptr().cast::<c_void>())?;
        let outputs = self
            .pointers("outputs", run.outputs, &self.outputs, |o| o.as_mut_ptr().cast::<c_void>())?;
        if (run.workspace.len() as u64) < self.planned.workspace {
            let what = format!(
                "needs a workspace of {} bytes, found {}",
                self.planned.workspace,
                run.workspace.len()
            );
            return Err(RunError::Operand { kernel: kernel(), what });
        }
        let handle = self.compile().map_err(|why| RunError::Failed { kernel: kernel(), why })?;
        let workspace = match self.planned.workspace {
            0 => ptr::null_mut(),
            _ => run.workspace.as_mut_ptr().cast::<c_void>(),
        };
        let services = Services::new(run.pool, Some(run.cancel));
        // SAFETY: the operands were found to be those of the sub-graph, and belong to this run by the contract
        // of `Operand`.
        let ran = unsafe { handle.run(&services, &inputs, &outputs, workspace) };
        ran.map_err(|failure| match failure {
            Failure::Cancelled => RunError::Cancelled,
            Failure::Domain(why) => RunError::Domain { kernel: kernel(), why },
            Failure::Other(why) => RunError::Failed { kernel: kernel(), why },
        })
    }

    fn recipe(&self) -> Recipe {
        self.recipe.clone()
    }
}
