//! What tests of the whole line share: random graphs, engines that compute them, the judge that
//! compares them, and damaged models.

mod case;
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
