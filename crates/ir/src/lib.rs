//! What programs mean: ops with their facets, the graph, its text form, the verifier and the
//! reference evaluation. Knows no file format, no device and no time.

mod axes;
mod body;
mod contract;
mod cost;
mod error;
mod fact;
mod graph;
mod noise;
pub mod ops;
mod real;
mod table;
mod tolerance;

pub use axes::{Axis, AxisKind, AxisMap, Combiner, Index, Part, Window};
pub use body::{Body, Scalar};
pub use cost::Work;
pub use error::{EvalError, TypeError};
pub use fact::Fact;
pub use graph::{Boundary, Graph, Node, NodeId, Origin, Role, Use, Value, ValueId, origin};
pub use noise::evaluate_noisy;
pub use ops::{Inputs, Op, OpDef, OpKind};
pub use real::Real;
pub use table::{OpTable, Row, missing};
pub use tolerance::{Error, Tolerance};
