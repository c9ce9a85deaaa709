//! Deployment optimiser for trained models.
//!
//! A model and a budget go in; a plan, a proof and a report come out. The straight line is
//! [`optimize`]: import, rewrite, place by measurement, emit, check, verify, save. Every stage is
//! a function of its own.

pub mod artefact;
pub mod backend_test;
pub mod bisect;
mod check;
mod claim;
pub mod codes;
mod contest;
mod draw;
mod dynamic;
mod emit;
mod error;
mod evolution;
mod goal;
pub mod inputs;
mod inspect;
mod line;
mod loaded;
pub mod npz;
mod opened;
mod original;
mod planned;
pub mod reduce;
pub mod report;
pub mod reproducer;
mod search;
mod stages;
mod survey;
pub mod target;
pub mod temporary;
pub mod worker;

pub use bricolage_placement::{Charge, Method, Wish, Wishes};
pub use bricolage_rewrite::RULES;
pub use bricolage_runtime::Weights;
pub use check::check;
pub use dynamic::DynamicSession;
pub use emit::{Emitted, constant_bytes, emit};
pub use error::{Blame, Error, render};
pub use evolution::Evolution;
pub use goal::{Goal, InputShape, Progress};
pub use inspect::{Inspection, Port, inspect};
pub use line::{
    Cx, Outcome, compile_unmeasured, import, import_interface, optimize, place_unmeasured, pool,
    rewrite, rewrite_audited, save_unmeasured,
};
pub use opened::Opened;
pub use survey::{Offered, Survey, SurveyedNode, survey};
pub use temporary::Temporary;
pub use worker::WorkerCommand;
