//! One module per backend.
#![allow(unsafe_code)] // operands are raw memory; foreign libraries are called through pointers

/// Release and a hash of the sources that the time of a built-in kernel depends on.
const BUILT_IN_VERSION: &str = env!("BUILT_IN_VERSION");

mod blas;
mod graph_engine;
mod library;
mod matrices;
mod native;
mod onednn;
mod onnxruntime;
mod openvino;
mod plugin;
mod proposal;
mod python;
mod reference;
#[cfg(test)]
mod trials;

pub use blas::Blas;
pub use native::Native;
pub use onednn::OneDnn;
pub use onnxruntime::OnnxRuntime;
pub use openvino::OpenVino;
pub use plugin::{
    Description, InProcess, Planned, PluginError, PluginFault, Scout, load_plugin, log_to,
};
pub use python::PythonPeer;
pub use reference::Reference;

use bricolage_backend::{Backend, pattern::PatternError};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// Every backend that is a library of others; its status has a version where it is here.
///
/// `variable` gives the content of an environment variable in which the user may name one; the others are
/// looked for in the Python environment `environment` and where the system's loader looks.
///
/// # Errors
/// When the pattern file of a built-in backend does not fit the language, which is a bug.
pub fn foreign(
    variable: &dyn Fn(&str) -> Option<PathBuf>,
    environment: Option<&Path>,
) -> Result<Vec<Arc<dyn Backend>>, PatternError> {
    let named = |name| variable(name);
    Ok(vec![
        Arc::new(OnnxRuntime::find(named(OnnxRuntime::VARIABLE).as_deref(), environment)),
        Arc::new(OpenVino::find(named(OpenVino::VARIABLE).as_deref(), environment)),
        Arc::new(Blas::find(named(Blas::VARIABLE).as_deref(), environment)?),
        Arc::new(OneDnn::find(named(OneDnn::VARIABLE).as_deref(), environment)),
    ])
}
