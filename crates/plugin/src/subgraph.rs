//! The sub-graph that a library is asked to compute, and its bytes.

mod read;
mod write;

/// Version of the description.
pub const VERSION: u32 = 1;
/// For what is missing.
pub const NONE: u32 = u32::MAX;
/// The letters `BCSG`.
const MAGIC: u32 = 0x4753_4342;
/// Bytes of the header.
const HEADER: usize = 104;
/// Where the header keeps each table.
const TENSORS: usize = 32;
const NODES: usize = 40;
const INPUTS: usize = 48;
const OUTPUTS: usize = 56;
const CONSTANTS: usize = 64;
const BINDINGS: usize = 72;
const VALUES: usize = 80;
const OPERANDS: usize = 88;
const SIZES: usize = 96;

/// Element types by their codes, with the bits of an element.
pub const DTYPES: &[(&str, u32)] = &[
    ("f32", 32),
    ("f64", 64),
    ("f16", 16),
    ("bf16", 16),
    ("i8", 8),
    ("i16", 16),
    ("i32", 32),
    ("i64", 64),
    ("u8", 8),
    ("u16", 16),
    ("u32", 32),
    ("u64", 64),
    ("bool", 8),
    ("f8e4m3fn", 8),
    ("f8e4m3fnuz", 8),
    ("f8e5m2", 8),
    ("f8e5m2fnuz", 8),
    ("f8e8m0", 8),
    ("f4e2m1", 4),
    ("i4", 4),
    ("u4", 4),
    ("i2", 2),
    ("u2", 2),
];

/// What a library is asked to compute.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Subgraph {
    /// The entry of the pattern.
    pub entry: String,
    /// Threads that runs will have at most; 0 where that is not known yet.
    pub threads: u32,
    /// What kernels may do to numbers: 0 other orders of summation, 1 Winograd too, 2 fewer bits too.
    pub numerics: u32,
    /// Every value of the sub-graph.
    pub tensors: Vec<Tensor>,
    /// Each after those that it reads; none for a copy from one format to another.
    pub nodes: Vec<Node>,
    /// Tensors that runs read, in order.
    pub inputs: Vec<u32>,
    /// Tensors that runs write, in order.
    pub outputs: Vec<u32>,
    /// Tensors whose elements are known, in order.
    pub constants: Vec<u32>,
    /// What the names of the pattern stand for.
    pub bindings: Vec<Binding>,
}

/// What a tensor is to the sub-graph.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Computed and read inside.
    #[default]
    Inner,
    /// Read by runs, at this place among the inputs.
    Input(u32),
    /// Written by runs, at this place among the outputs.
    Output(u32),
    /// Known, at this place among the constants.
    Constant(u32),
}

/// In which order elements lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// Row-major.
    #[default]
    Plain,
    /// Images, then places, then channels.
    ChannelsLast {
        /// Zeros on each side of every spatial dim.
        halo: u32,
    },
    /// Blocks of channels.
    Blocked {
        /// Channels of a block.
        block: u32,
        /// Zeros on each side of every spatial dim.
        halo: u32,
    },
}

/// One value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tensor {
    /// In the model.
    pub name: String,
    /// What it is to the sub-graph.
    pub role: Role,
    /// Place of its element type in [`DTYPES`].
    pub dtype: u32,
    /// In which order elements lie.
    pub layout: Layout,
    /// Logical dims, outermost first.
    pub dims: Vec<i64>,
    /// Elements between neighbours along each dim; as many as dims.
    pub strides: Vec<i64>,
    /// Bytes, padding included.
    pub bytes: u64,
    /// Address of a constant's elements, or 0.
    pub data: u64,
}

/// One use of an op.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// As pattern files call it.
    pub op: String,
    /// Tensors that it reads; `None` for one that is missing.
    pub operands: Vec<Option<u32>>,
    /// Tensors that it computes.
    pub results: Vec<Option<u32>>,
    /// By the names that pattern files use.
    pub attributes: Vec<(String, Value)>,
}

/// What a name of the pattern stands for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Binding {
    /// The name.
    pub name: String,
    /// The tensor.
    pub tensor: Option<u32>,
    /// The node that computes it, if that is inside.
    pub node: Option<u32>,
    /// Whether it stands for something: not for an operand that is missing or a node that was passed by.
    pub held: bool,
}

/// The value of an attribute.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs)]
pub enum Value {
    /// Nothing, or a float that is no number or not finite.
    #[default]
    Null,
    Bool(bool),
    Int(i64),
    Real(f64),
    Text(String),
    List(Vec<Value>),
    Fields(Vec<(String, Value)>),
}

/// Bytes that are no sub-graph, in a clause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault(pub String);

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Fault {}
