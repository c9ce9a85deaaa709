//! Graph to graph, same meaning: rules, the patches they return, and the driver.
//!
//! Laws for writers of rules:
//! 1. A rule never mutates. It looks at one node and what lies around it and returns a [`Patch`],
//!    or says why it does not although it could ([`Outcome::Declined`]).
//! 2. A patch gives values of the very types of those that it replaces; the driver checks that.
//! 3. A rule makes the graph simpler by an order that ends: fewer nodes, or nodes of a form that no
//!    rule leads away from. Two rules that undo each other are one bug.
//! 4. A rule names what it does to the numbers.
//! 5. A rule has a case file in `cases/rewrites` with a graph before and after, and a refusal.

mod audit;
mod driver;
mod look;
mod patch;
mod rule;
mod rules;

pub use audit::{Audit, Caught};
pub use driver::{Applied, Rewritten, run, run_audited, simplify, simplify_audited};
pub use patch::{Patch, RewriteError, Source};
pub use rule::{Outcome, Rule};
pub use rules::RULES;
