//! Why a model could not be read or written.

use bricolage_ir::TypeError;
use bricolage_tensor::TensorError;
use std::{fmt, path::PathBuf};

/// A node that has no meaning here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsupportedNode {
    /// Its name, or that of its first output when it has none.
    pub name: String,
    /// Its operator.
    pub op: String,
    /// The operator's domain; empty for ONNX's own.
    pub domain: String,
    /// Version of the domain's operator set.
    pub opset: i64,
    /// What stands in the way.
    pub reason: String,
}

impl UnsupportedNode {
    /// Domain and operator, as people write it.
    pub fn full_name(&self) -> String {
        full_name(&self.domain, &self.op)
    }
}

impl fmt::Display for UnsupportedNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UnsupportedNode { name, opset, reason, .. } = self;
        write!(f, "node `{name}` ({}, opset {opset}): {reason}", self.full_name())
    }
}

pub(crate) fn full_name(domain: &str, op: &str) -> String {
    if domain.is_empty() { op.to_owned() } else { format!("{domain}.{op}") }
}

/// Why a stored tensor cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorFault {
    /// The bytes do not fit type and dims.
    #[error(transparent)]
    Bytes(#[from] TensorError),
    /// The element type is not known here.
    #[error("needs a numeric or bool element type, found {found}")]
    Element {
        /// Its name in ONNX, or its number.
        found: String,
    },
    /// The numbers lie in a field of too few or too many of them.
    #[error("needs {needed} numbers, found {found}")]
    Count {
        /// Numbers that the dims need.
        needed: u64,
        /// Numbers stored.
        found: u64,
    },
    /// A number does not fit the element type.
    #[error("needs numbers that fit {dtype}, found {found}")]
    Range {
        /// The element type.
        dtype: &'static str,
        /// The number.
        found: i64,
    },
    /// A text is none.
    #[error("needs texts in UTF-8, found {len} other bytes")]
    Text {
        /// Number of bytes.
        len: usize,
    },
    /// Bytes and numbers.
    #[error("needs its elements as bytes or as numbers, found both")]
    Twice,
    /// Part of a tensor.
    #[error("needs the whole tensor, found a segment of one")]
    Segment,
    /// A sparse tensor whose coordinates lie outside it.
    #[error("needs sorted coordinates inside {dims:?}, found {found}")]
    Coordinates {
        /// Dims of the tensor.
        dims: Vec<i64>,
        /// What was found.
        found: String,
    },
    /// The data lie in a file that cannot be used.
    #[error("external data in `{file}`: {why}")]
    External {
        /// The file as the model names it.
        file: String,
        /// What was needed and what was found.
        why: String,
    },
}

/// Why a model could not be imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// A file cannot be read.
    #[error("cannot read `{}`: {error}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// The bytes are no ONNX model.
    #[error("needs an ONNX model, found {len} bytes that are none: {why}")]
    Decode {
        /// Number of bytes.
        len: usize,
        /// Where decoding stopped.
        why: String,
    },
    /// The model has no graph.
    #[error("needs a model with a graph, found {len} bytes without one")]
    NoGraph {
        /// Number of bytes.
        len: usize,
    },
    /// Nothing comes out of the graph.
    #[error("graph `{graph}` needs at least one output, found none")]
    NoOutputs {
        /// Name of the graph.
        graph: String,
    },
    /// The model does not say which operator set it uses.
    #[error("needs the version of the operator set `{domain}`, which the model does not state")]
    NoOpset {
        /// The domain; `ai.onnx` is ONNX's own.
        domain: String,
    },
    /// The operator set is too old or too new.
    #[error("needs operator set {oldest} to {newest} of `{domain}`, found {found}")]
    Opset {
        /// The domain; `ai.onnx` is ONNX's own.
        domain: String,
        /// Version of the model.
        found: i64,
        /// Oldest version that is known.
        oldest: i64,
        /// Newest version that is known.
        newest: i64,
    },
    /// Nodes depend on their own results.
    #[error("needs nodes without cycles, found one through node `{node}`")]
    Cycle {
        /// One of them.
        node: String,
    },
    /// Something reads a value that nothing defines.
    #[error("{reader} reads `{value}`, which nothing defines")]
    UnknownValue {
        /// Who reads it.
        reader: String,
        /// The value.
        value: String,
    },
    /// Two things define one value.
    #[error("needs one definition of `{name}`, found {found}")]
    DuplicateName {
        /// The value.
        name: String,
        /// Both places.
        found: String,
    },
    /// An input or output of the graph without a name.
    #[error("needs a name for every graph {place}, found an empty one")]
    NoName {
        /// `input` or `output`.
        place: &'static str,
    },
    /// A value is declared with one element type and has another.
    #[error("value `{name}` is declared as {declared}, found {found}")]
    Declared {
        /// The value.
        name: String,
        /// What the model declares.
        declared: String,
        /// What follows from the operators.
        found: String,
    },
    /// A stored tensor cannot be used.
    #[error("tensor `{name}`: {fault}")]
    Tensor {
        /// Its name.
        name: String,
        /// Why.
        fault: TensorFault,
    },
    /// The type of a graph input or output cannot be used.
    #[error("graph {place} `{name}` needs {needed}, found {found}")]
    Input {
        /// `input` or `output`.
        place: &'static str,
        /// Its name.
        name: String,
        /// What was needed.
        needed: &'static str,
        /// What was found.
        found: String,
    },
    /// The operands of a node do not fit its operator.
    #[error("node `{node}` ({op}): {error}")]
    Node {
        /// Its name.
        node: String,
        /// Its operator.
        op: String,
        /// What does not fit.
        error: Box<TypeError>,
        /// Name and type of every operand.
        operands: Vec<String>,
    },
    /// A node is written wrongly.
    #[error("node `{node}` ({op}): {what}")]
    Malformed {
        /// Its name.
        node: String,
        /// Its operator.
        op: String,
        /// What was needed and what was found.
        what: String,
    },
    /// A function of the model calls itself.
    #[error("function `{function}` calls itself, directly or through others")]
    Recursion {
        /// Its name.
        function: String,
    },
    /// Functions call each other too deeply.
    #[error("needs at most {limit} functions inside each other, found more at `{function}`")]
    DeepFunctions {
        /// The function.
        function: String,
        /// Most that are allowed.
        limit: usize,
    },
    /// The model has too many nodes, functions replaced and loops typed.
    #[error("needs at most {limit} nodes, those of functions counted at every call, found more")]
    TooManyNodes {
        /// Most that are allowed.
        limit: usize,
    },
    /// A function uses another version of an operator set than the model.
    #[error(
        "function `{function}` needs operator set {found} of `{domain}`, the model has {needed}"
    )]
    FunctionOpset {
        /// The function.
        function: String,
        /// The domain.
        domain: String,
        /// Version of the model.
        needed: i64,
        /// Version of the function.
        found: i64,
    },
    /// Nodes that have no meaning here, all of them.
    #[error("cannot import {}", list(.0))]
    Unsupported(Vec<UnsupportedNode>),
}

/// Operands that notes show.
const OPERANDS: usize = 16;

fn list(nodes: &[UnsupportedNode]) -> String {
    let mut names: Vec<String> = Vec::new();
    for node in nodes {
        let name = format!("`{}`", node.full_name());
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let nodes = nodes.len();
    let plural = if nodes == 1 { "node" } else { "nodes" };
    format!("{} ({nodes} {plural})", names.join(", "))
}

impl ImportError {
    /// The code under which the error is known.
    pub fn code(&self) -> &'static str {
        match self {
            ImportError::File { .. } => "onnx::file",
            ImportError::Decode { .. } => "onnx::not-a-model",
            ImportError::NoGraph { .. } => "onnx::no-graph",
            ImportError::NoOutputs { .. } => "onnx::no-outputs",
            ImportError::NoOpset { .. } => "onnx::no-opset",
            ImportError::Opset { .. } => "onnx::opset",
            ImportError::Cycle { .. } => "onnx::cycle",
            ImportError::UnknownValue { .. } => "onnx::unknown-value",
            ImportError::DuplicateName { .. } => "onnx::duplicate-name",
            ImportError::NoName { .. } => "onnx::no-name",
            ImportError::Declared { .. } => "onnx::declared-type",
            ImportError::Tensor { fault: TensorFault::External { .. }, .. } => {
                "onnx::external-data"
            }
            ImportError::Tensor { .. } => "onnx::tensor",
            ImportError::Input { .. } => "onnx::input-type",
            ImportError::Node { .. } => "type::mismatch",
            ImportError::Malformed { .. } => "onnx::malformed-node",
            ImportError::Recursion { .. } => "onnx::recursion",
            ImportError::DeepFunctions { .. } => "onnx::deep-functions",
            ImportError::TooManyNodes { .. } => "onnx::too-many-nodes",
            ImportError::FunctionOpset { .. } => "onnx::function-opset",
            ImportError::Unsupported(_) => "onnx::unsupported-operator",
        }
    }

    /// Whether the model is sound and only this program is lacking.
    pub fn is_unsupported(&self) -> bool {
        matches!(
            self,
            ImportError::Unsupported(_)
                | ImportError::Opset { .. }
                | ImportError::FunctionOpset { .. }
                | ImportError::Tensor { fault: TensorFault::Element { .. }, .. }
        )
    }

    /// One action that works, where there is one.
    pub fn help(&self) -> Option<String> {
        match self {
            ImportError::Opset { found, oldest, newest, .. } => {
                let to = if found < oldest { oldest } else { newest };
                Some(format!("convert the model with `onnx.version_converter` to opset {to}"))
            }
            ImportError::Input { .. } => {
                Some("declare its rank, and name unknown dims with `dim_param`".to_owned())
            }
            ImportError::Unsupported(_) => Some(
                "give the sizes of the inputs, from which what is not known here may follow, or declare the \
                 output types in the model's value_info, so that a foreign backend can take the nodes whole"
                    .to_owned(),
            ),
            ImportError::Tensor { fault: TensorFault::External { .. }, .. } => {
                Some("keep the data files beside the model, under the names it gives".to_owned())
            }
            _ => None,
        }
    }

    /// Facts that add to the message, one line each.
    pub fn notes(&self) -> Vec<String> {
        match self {
            ImportError::Node { operands, .. } => {
                let mut shown: Vec<String> = operands.iter().take(OPERANDS).cloned().collect();
                if operands.len() > OPERANDS {
                    shown.push(format!("and {} operands more", operands.len() - OPERANDS));
                }
                shown
            }
            ImportError::Unsupported(nodes) => nodes.iter().map(ToString::to_string).collect(),
            _ => Vec::new(),
        }
    }
}

/// Why a graph could not be written as ONNX.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// A node has no form in ONNX.
    #[error("node `{node}` ({op}): {why}")]
    Node {
        /// Its name.
        node: String,
        /// Its op.
        op: &'static str,
        /// Why there is none.
        why: String,
    },
    /// A size depends on a symbol that is no dim of an input.
    #[error("node `{node}`: needs `{symbol}` as a dim of a graph input, found none")]
    Symbol {
        /// Name of the node.
        node: String,
        /// The symbol.
        symbol: String,
    },
    /// A value that survives from run to run.
    #[error("value `{name}` is a state, for which ONNX has no form")]
    State {
        /// Its name.
        name: String,
    },
    /// A model does not declare the weights that it is given.
    #[error("needs a model without its weights: {why}")]
    Structure {
        /// What was found.
        why: String,
    },
    /// The file would be larger than the format allows.
    #[error("needs a model of at most {limit} bytes, found {found}")]
    TooLarge {
        /// Bytes that the file would have.
        found: u64,
        /// The limit of the format.
        limit: u64,
    },
}
