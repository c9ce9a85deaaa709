//! What tests of the whole line share: random graphs, engines that compute them, the judge that
//! compares them, the driver of fuzz targets, ONNX models as text, and the backend tests of ONNX.

mod case;
pub mod conformance;
mod covers;
pub mod damage;
pub mod driver;
mod engines;
mod failures;
pub mod generate;
pub mod open;
pub mod prototext;
pub mod watch;
mod workers;

pub use case::{Case, Expected, constants_aside};
pub use engines::{Engine, Fault, Variable, check, engines};
pub use failures::{Failure, Report, run_case};
pub use generate::{Generated, generate, generate_from};
pub use workers::{Workers, ended, serve_if_asked};
