//! What a backend promises: which regions it can compute, in which formats, and the kernels that do.
//!
//! A backend never times itself and never chooses: it proposes candidates and refuses in words.
//! Which candidate is used is decided by measurement.

mod candidate;
pub mod pattern;
mod policy;
mod region;
mod registry;

pub use candidate::{Bound, Candidate, Declined, Packed, Proposals, Setting};
pub use policy::Policy;
pub use region::{Region, RegionError};
pub use registry::{Backend, BackendKind, BackendStatus, Peer, Registry, UnknownBackend};
