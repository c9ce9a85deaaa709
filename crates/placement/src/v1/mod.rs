//! Collage's published two-level method (Jeon et al., *Collage: Seamless Integration of Deep Learning
//! Backends with Automatic Placement*, 2022), on prices measured here: a baseline to compare with.
//!
//! At the op level ([`levels`]) the cheapest cover is sought as if formats were free and every kernel cost
//! a constant more. At the graph level ([`evolve`]) an evolutionary search gives groups of that cover to one
//! graph engine, which merges those that touch ([`Genome`]). What the method does not see is left as
//! it is: formats and conversions, several engines, and that a member may be faster alone.

mod evolution;
mod genome;
mod levels;

pub use evolution::{Evolved, Rates, evolve};
pub use genome::Genome;
pub use levels::{LAUNCH_NS, levels};
