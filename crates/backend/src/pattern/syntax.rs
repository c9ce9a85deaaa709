//! What a pattern file says, before names are looked up. It prints as a text that reads back as the same.

use super::error::Position;
use crate::BackendKind;
use bricolage_ir::Numerics;
use bricolage_tensor::{DType, Layout};

/// A name with its place, which does not count when names are compared.
#[derive(Clone, Debug, Eq)]
pub struct Name {
    /// The name.
    pub text: String,
    /// Where it stands.
    pub at: Position,
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        self.text == other.text
    }
}

/// The name without a place.
impl From<&str> for Name {
    fn from(text: &str) -> Name {
        Name { text: text.to_owned(), at: Position::default() }
    }
}

/// A pattern file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct File {
    /// In the order in which they stand.
    pub declarations: Vec<Declaration>,
}

/// One declaration.
#[derive(Clone, Debug, PartialEq)]
pub enum Declaration {
    /// `backend NAME { .. }`
    Backend(BackendDeclaration),
    /// `let NAME = PATTERN;`
    Let(Let),
    /// `pattern TITLE { .. }`
    Pattern(PatternDeclaration),
    /// `rule TITLE { .. }`
    Rule(RuleDeclaration),
    /// `convert NAME: FORMAT -> FORMAT;`
    Convert(Convert),
    /// `exclude TITLE where CONDITION because TEXT;`
    Exclude(Exclude),
}

/// What the file says about the backend.
#[derive(Clone, Debug, PartialEq)]
pub struct BackendDeclaration {
    /// Name used in flags, recipes and reports.
    pub name: Name,
    /// What sort of provider it is; an op library where nothing is said.
    pub kind: Option<BackendKind>,
    /// The shared library that holds the entries, where it is not built in.
    pub plugin: Option<String>,
    /// The oldest version of the library that fits, and the oldest that no longer does.
    pub version: Option<(String, String)>,
    /// What it covers, for people.
    pub covers: Option<String>,
    /// What its kernels do to the numbers; another order of summation where nothing is said.
    pub numerics: Option<Numerics>,
    /// What must hold of the machine.
    pub requires: Option<Expression>,
}

/// Kinds of backends that files may be about, by their words.
pub(super) const KINDS: &[(&str, BackendKind)] = &[
    ("op_library", BackendKind::OpLibrary),
    ("supplement", BackendKind::Supplement),
    ("graph_engine", BackendKind::GraphEngine),
    ("reference", BackendKind::Reference),
];

/// What kernels do to the numbers, by the words of the language.
pub(super) const NUMERICS: &[(&str, Numerics)] = &[
    ("exact", Numerics::Exact),
    ("reassociates", Numerics::Reassociates),
    ("reduced", Numerics::Reduced),
];

/// A pattern with a name, and places for others.
#[derive(Clone, Debug, PartialEq)]
pub struct Let {
    /// Its name.
    pub name: Name,
    /// Names of the patterns that are put in.
    pub parameters: Vec<Name>,
    /// The pattern.
    pub pattern: Pattern,
    /// What must hold wherever the pattern matches as a part of another.
    pub condition: Option<Expression>,
}

/// Regions of a given shape.
#[derive(Clone, Debug, PartialEq)]
pub struct PatternDeclaration {
    /// Its name: one, or several with `+` between them.
    pub name: Name,
    /// The shape, from its exit.
    pub pattern: Pattern,
    /// What both claim alike.
    pub claim: Claim,
}

/// Regions that grow from a seed.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleDeclaration {
    /// Its name: one, or several with `+` between them.
    pub name: Name,
    /// What regions start with.
    pub seed: Pattern,
    /// How they grow.
    pub grow: Vec<Grow>,
    /// Nodes of a region, at most.
    pub max_nodes: Option<i64>,
    /// Steps of growth, at most.
    pub max_depth: Option<i64>,
    /// What both claim alike.
    pub claim: Claim,
}

/// What is said about regions that were found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Claim {
    /// Conditions that must all hold.
    pub conditions: Vec<Expression>,
    /// Ways to choose formats; one with no entries where nothing is said.
    pub formats: Vec<Vec<(Name, FormatSet)>>,
    /// The kernel; called like the pattern where nothing is said.
    pub entry: Option<Name>,
    /// What the kernel does to the numbers, where it is not what the others do.
    pub numerics: Option<Numerics>,
}

/// A conversion that the backend has a kernel for.
#[derive(Clone, Debug, PartialEq)]
pub struct Convert {
    /// Its name, which is that of its entry.
    pub name: Name,
    /// What is read.
    pub from: FormatSpec,
    /// What is made.
    pub to: FormatSpec,
    /// A condition on the tensor `t`.
    pub condition: Option<Expression>,
}

/// Regions that are not to be tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Exclude {
    /// The pattern or rule.
    pub name: Name,
    /// Which of its regions.
    pub condition: Expression,
    /// Why, for people.
    pub because: String,
}

/// The shape of a value's computation.
#[derive(Clone, Debug, PartialEq)]
pub enum Pattern {
    /// An op over patterns; or a pattern of a `let`, with patterns put in.
    Op(OpPattern),
    /// A name alone: a parameter of a `let`, or a pattern of one without parameters.
    Use(Name),
    /// A value from outside.
    Leaf(Leaf),
    /// `$x`: the value that `x` stands for.
    Same(Name),
    /// `x@..`: gives the value a name.
    Bind(Name, Box<Pattern>),
    /// `..?`: a node that may be passed by, or an operand that may be missing.
    Optional(Box<Pattern>),
    /// `..|..`: any one of several.
    Any(Vec<Pattern>),
}

/// A value from outside of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaf {
    /// `_`: any value.
    Any,
    /// A constant.
    Const,
    /// Any value but a constant.
    Var,
    /// A constant of one element.
    Scalar,
    /// An input of the graph, or a state.
    Input,
}

/// A node.
#[derive(Clone, Debug, PartialEq)]
pub struct OpPattern {
    /// The ops that fit.
    pub ops: Vec<OpName>,
    /// Attributes with the values that they must have.
    pub attributes: Vec<(Name, Literal)>,
    /// The operands.
    pub arguments: Arguments,
}

/// Ops by name.
#[derive(Clone, Debug, PartialEq)]
pub enum OpName {
    /// `relu`
    Op(Name),
    /// `#elementwise`
    Class(Name),
}

/// Operands of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Arguments {
    /// These in this order, and no others.
    Exact(Vec<Pattern>),
    /// `..., ...`: these in this order, and any others.
    Open(Vec<Pattern>),
    /// `{a, b}`: these two in either order.
    Either(Box<[Pattern; 2]>),
}

/// One way for a region to grow.
#[derive(Clone, Debug, PartialEq)]
pub struct Grow {
    /// Where to.
    pub direction: Direction,
    /// The ops that are taken in.
    pub ops: Vec<OpName>,
    /// Whether everything up to where all paths meet is taken in at once.
    pub meet: bool,
    /// What must hold of every `node` that is taken in.
    pub condition: Option<Expression>,
}

/// Where a region grows to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To readers of its results.
    Down,
    /// To nodes that compute its inputs.
    Up,
    /// To other readers of its inputs.
    Side,
}

/// Formats of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum FormatSet {
    /// Row-major, of the value's own element type.
    Any,
    /// The layout of another value.
    SameAs(Name),
    /// One of several.
    OneOf(Vec<FormatSpec>),
}

/// A format, or formats of every element type.
#[derive(Clone, Debug, PartialEq)]
pub struct FormatSpec {
    /// The element type; `None` for any.
    pub dtype: Option<DType>,
    /// How the elements lie.
    pub layout: Layout,
}

/// A number, a text or a truth value.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// An integer.
    Int(i64),
    /// Any other number.
    Real(f64),
    /// A text.
    Text(String),
    /// A truth value.
    Bool(bool),
}

/// A condition, or something that a condition compares.
#[derive(Clone, Debug, PartialEq)]
pub enum Expression {
    /// A literal; numbers are not negative.
    Literal(Literal),
    /// A fact: `x.rank`.
    Path(Path),
    /// `!a`
    Not(Box<Expression>),
    /// `-a`
    Negative(Box<Expression>),
    /// `a + b`
    Arithmetic(Arithmetic, Box<[Expression; 2]>),
    /// `a < b`
    Compare(Comparison, Box<[Expression; 2]>),
    /// `a in {1, 2}`
    OneOf(Box<Expression>, Vec<Literal>),
    /// `a in 1 .. 8`: at least the first and at most the last.
    Within(Box<Expression>, Literal, Literal),
    /// `a && b`
    And(Vec<Expression>),
    /// `a || b`
    Or(Vec<Expression>),
    /// `all(d in x.dims: ..)` or, where the flag is not set, `any(..)`.
    Every(bool, Name, Path, Box<Expression>),
    /// `prod(x.dims)`, `len(x.dims)`, `has(x.attr.axis)`
    Measure(Measure, Path),
    /// `aligned(x.dim[0], 8)`
    Aligned(Path, i64),
    /// `mac(c)`: multiply-adds of a node.
    Macs(Name),
    /// `same(x, y)`: whether two names stand for one value.
    Same(Name, Name),
}

/// A function of what a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// The product of a list.
    Product,
    /// The length of a list.
    Length,
    /// Whether there is anything.
    Has,
}

/// A function of two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    /// Truncates towards 0.
    Divide,
    /// Has the sign of the first number.
    Remainder,
}

/// A comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Comparison {
    Equal,
    Differs,
    Less,
    AtMost,
    Greater,
    AtLeast,
}

/// A way to a fact.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    /// What it starts from: a binding, `node`, `t`, `plan`, `dev`, `region` or a name of `all` and `any`.
    pub root: Name,
    /// Where it goes.
    pub steps: Vec<Step>,
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// `.name`
    Field(Name),
    /// `[2]`; negative numbers count from the end.
    Index(i64),
}
