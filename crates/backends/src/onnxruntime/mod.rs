//! ONNX Runtime.

use bricolage_backend::*;
use bricolage_ir::{Graph, NodeId};
use bricolage_runtime::{Kernel, Recipe};
use std::{path::Path, sync::Arc};

/// ONNX Runtime as a backend.
#[derive(Clone, Debug, Default)]
pub struct OnnxRuntime {}

impl OnnxRuntime {
    /// Looks for the library.
    pub fn find(_: Option<&Path>, _: Option<&Path>) -> OnnxRuntime {
        OnnxRuntime {}
    }
    /// Whether it was found.
    pub fn is_present(&self) -> bool {
        false
    }
}

impl Backend for OnnxRuntime {
    fn name(&self) -> &str {
        "onnxruntime"
    }
    fn kind(&self) -> BackendKind {
        BackendKind::GraphEngine
    }
    fn version(&self) -> String {
        String::new()
    }
    fn status(&self) -> BackendStatus {
        BackendStatus {
            name: "onnxruntime".into(),
            version: None,
            found: "not looked for".into(),
            how: "pip install onnxruntime".into(),
            covers: String::new(),
        }
    }
    fn propose(&self, _: &Graph, _: NodeId, _: &Setting) -> Proposals {
        Proposals::default()
    }
    fn bind(&self, _: &Graph, _: &Candidate, _: &Setting) -> Result<Bound, String> {
        Err("absent".into())
    }
    fn rebuild(&self, _: &Recipe, _: &[Packed]) -> Result<Arc<dyn Kernel>, String> {
        Err("absent".into())
    }
}
