//! The C interface of backends that are libraries of their own, for hosts and for libraries in Rust.
//!
//! `include/bricolage_backend.h` says what every field means and holds the same for C; the tests of this crate
//! keep the two alike. [`Subgraph`] is what a library is asked to compute, as a value and as the bytes that the
//! header describes.

mod interface;
mod subgraph;

pub use interface::{
    ABI, Backend, Body, CANCELLED, Compile, DETERMINISTIC, DOMAIN, Destroy, FAILED, Find, Host, OK,
    Plan, PlanFn, REFUSED, RunFn, SYMBOL,
};
pub use subgraph::{
    Binding, DTYPES, Fault, Layout, NONE, Node, Role, Subgraph, Tensor, VERSION, Value,
};
