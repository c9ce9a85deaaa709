//! ONNX bytes to and from the graph; the only crate that knows protobuf and opsets.
//!
//! Import is one table per operator domain ([`load`], [`import`]), export one table over the op
//! kinds ([`export`]). Weights stay in the mapped files. What a model takes and gives can be read
//! without understanding it ([`load_interface`]).

mod data;
mod error;
mod export;
mod import;
mod proto;
mod tensor;

pub use data::{Stored, read_datum};
pub use error::{ExportError, ImportError, TensorFault, UnsupportedNode};
pub use export::{Structure, export, export_structure, inline};
pub use import::{Model, NEWEST_OPSET, OLDEST_OPSET, import, load, load_interface, load_sized};
pub use tensor::{read_tensor, write_tensor};
