//! One module per backend.
#![allow(unsafe_code)] // operands are raw memory; foreign libraries are called through pointers

/// Release and a hash of the sources that the time of a built-in kernel depends on.
const BUILT_IN_VERSION: &str = env!("BUILT_IN_VERSION");

mod native;
mod onnxruntime;
mod python;
mod reference;

pub use native::Native;
pub use onnxruntime::OnnxRuntime;
pub use python::PythonPeer;
pub use reference::Reference;
