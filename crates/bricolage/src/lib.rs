//! Deployment optimiser for trained models.
//!
//! A model and a budget go in; a plan, a proof and a report come out. The straight line is
//! [`optimize`]: import, rewrite, place by measurement, emit, check, verify, save. Every stage is
//! a function of its own.

pub mod artefact;
mod check;
mod claim;
mod contest;
mod draw;
mod dynamic;
mod emit;
mod error;
mod goal;
pub mod inputs;
mod inspect;
mod line;
pub mod npz;
mod proof;
pub mod report;
pub mod target;
pub mod temporary;
mod weights;
pub mod worker;

pub use check::check;
pub use dynamic::DynamicSession;
pub use emit::{Emitted, constant_bytes, emit};
pub use error::{Blame, Error, render};
pub use goal::{Goal, InputShape, Progress};
pub use inspect::{Inspection, Port, inspect};
pub use line::{
    Cx, Outcome, compile_unmeasured, import, import_interface, optimize, place_unmeasured, pool,
    rewrite, save_unmeasured,
};
pub use proof::{Proven, rewrite_proven};
pub use temporary::Temporary;
pub use weights::Weights;
pub use worker::WorkerCommand;
