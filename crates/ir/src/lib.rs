//! What programs mean: ops with their facets, the graph, its text form, the verifier and the
//! reference evaluation. Knows no file format, no device and no time.

mod axes;
mod body;
mod contract;
mod cost;
mod decompose;
mod error;
mod evaluate;
mod fact;
mod graph;
mod noise;
mod numerics;
pub mod ops;
mod real;
mod table;
mod text;
mod tolerance;
mod verify;

pub use axes::{Axis, AxisKind, AxisMap, Combiner, Index, Part, Window};
pub use body::{Body, Scalar};
pub use cost::Work;
pub use decompose::decompose;
pub use error::{EvalError, TypeError};
pub use evaluate::{
    Evaluation, evaluate, evaluate_at, evaluate_from, learn_sizes, named_inputs, solve_symbols,
};
pub use fact::Fact;
pub use graph::{Boundary, Graph, Node, NodeId, Origin, Role, Use, Value, ValueId, origin};
pub use noise::{disturb, evaluate_noisy, tolerances};
pub use numerics::Numerics;
pub use ops::{Inputs, Op, OpDef, OpKind};
pub use real::Real;
pub use table::{OpTable, Row, missing};
pub use text::{INLINE, ParseError, ParseFault, parse, print};
pub use tolerance::{Error, Tolerance};
pub use verify::{Fault, verify};
