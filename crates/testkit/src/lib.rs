//! What tests of the whole line share: random graphs, engines that compute them, the judge that
//! compares them, damaged models, ONNX models as text, and the backend tests of ONNX.

mod case;
pub mod conformance;
mod covers;
pub mod damage;
mod engines;
mod fuzz;
pub mod generate;
pub mod prototext;

pub use case::{Case, Expected};
pub use engines::{Engine, Fault, check, engines};
pub use fuzz::{Failure, Report, command, run_seed};
pub use generate::{Generated, generate};
