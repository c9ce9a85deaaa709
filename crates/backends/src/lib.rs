//! One module per backend.
#![allow(unsafe_code)] // operands are raw memory; foreign libraries are called through pointers

mod native;
mod onnxruntime;
mod python;
mod reference;

pub use native::Native;
pub use onnxruntime::OnnxRuntime;
pub use python::PythonPeer;
pub use reference::Reference;
