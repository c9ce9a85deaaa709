//! Draws small graphs that a pattern file may match, to try a library on.
//!
//! A graph is the shape of a pattern with ops, sizes and attributes by chance; whether it is one that the
//! conditions of the pattern hold for is asked of the backend, as for any graph.

use super::{
    load::{Claimed, Shape},
    names::Library,
    shape::{NodePart, Operands, Part},
    syntax::{Direction, File, Leaf, Literal},
    view::{Class, OpSet},
};
use crate::pattern::PatternError;
use bricolage_ir::{
    Graph, Op, OpKind, ValueId,
    ops::{Binary, MatMul, Reduce, ReduceKind, Unary},
    origin,
};
use bricolage_tensor::{DType, Rng, Tensor, TensorType};
use serde_json::Value as Json;
use std::collections::HashMap;

/// Attributes of ops that have some, as text forms write them, for tensors of few dims.
const ATTRIBUTES: &[(OpKind, &[&str])] = &[
    (
        OpKind::MatMul,
        &[
            "(transpose_lhs:false,transpose_rhs:false)",
            "(transpose_lhs:false,transpose_rhs:true)",
            "(transpose_lhs:true,transpose_rhs:false)",
        ],
    ),
    (
        OpKind::Conv,
        &[
            "(strides:[1,1],dilations:[1,1],pads:[(0,0),(0,0)],groups:1)",
            "(strides:[1,1],dilations:[1,1],pads:[(1,1),(1,1)],groups:1)",
            "(strides:[2,1],dilations:[1,2],pads:[(0,1),(2,1)],groups:1)",
            "(strides:[1,1],dilations:[1,1],pads:[(1,1),(1,1)],groups:3)",
        ],
    ),
    (
        OpKind::Pool,
        &[
            "(kind:Max(indices:false),kernel:[2,2],strides:[2,2],dilations:[1,1],pads:[(0,0),(0,0)],ceil_mode:false)",
            "(kind:Average(count_include_pad:false),kernel:[3,2],strides:[1,2],dilations:[1,1],pads:[(1,1),(0,1)],ceil_mode:false)",
            "(kind:Average(count_include_pad:true),kernel:[2,2],strides:[2,2],dilations:[1,1],pads:[(0,0),(0,0)],ceil_mode:false)",
        ],
    ),
    (OpKind::Softmax, &["(axis:1,log:false)", "(axis:2,log:false)", "(axis:0,log:true)"]),
    (
        OpKind::LayerNorm,
        &[
            "(axis:1,epsilon:0.00001,rms:false,statistics:false)",
            "(axis:2,epsilon:0.00001,rms:false,statistics:false)",
            "(axis:1,epsilon:0.001,rms:true,statistics:false)",
        ],
    ),
    (
        OpKind::Reduce,
        &[
            "(kind:Sum,axes:[0],keep_dims:false)",
            "(kind:Mean,axes:[1],keep_dims:true)",
            "(kind:Max,axes:[1,2],keep_dims:false)",
        ],
    ),
    (OpKind::Transpose, &["(perm:[1,0])", "(perm:[0,2,1])", "(perm:[0,2,3,1])"]),
    (OpKind::Concat, &["(axis:0)", "(axis:1)"]),
    (OpKind::Gather, &["(axis:0)", "(axis:1)"]),
    (OpKind::BatchNorm, &["(epsilon:0.00001)"]),
    (OpKind::GroupNorm, &["(groups:1,epsilon:0.00001)", "(groups:2,epsilon:0.00001)"]),
    (OpKind::Attention, &["(scale:None,causal:false)", "(scale:Some(0.5),causal:true)"]),
];
/// Functions of one and of two operands, where any of a class will do.
const UNARY: &[Unary] = &[Unary::Relu, Unary::Sigmoid, Unary::Tanh, Unary::Abs, Unary::Neg];
const BINARY: &[Binary] = &[Binary::Add, Binary::Mul, Binary::Sub, Binary::Max];
/// Sizes of dims; of a graph two are drawn, so that they often fit.
const SIZES: &[i64] = &[1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 33];
/// One graph in this many has tensors without elements.
const EMPTY: usize = 16;
/// Nodes that a rule grows by, at most.
const GROWTH: usize = 3;

/// What a pattern file claims, to draw graphs from.
#[derive(Clone, Debug)]
pub struct Samples(Vec<Claimed>);

impl Samples {
    /// Of a file that names no entry but its patterns and asks nothing of the machine; `name` is used in
    /// messages.
    pub fn of(name: &str, text: &str, entries: &[&str]) -> Result<Samples, PatternError> {
        let entries = entries.iter().map(|&e| e.to_owned()).collect();
        let loaded =
            File::parse(name, text)?.load(name, &Library { entries, ..Library::default() })?;
        Ok(Samples::new(&loaded.claims))
    }

    pub(super) fn new(claims: &[Claimed]) -> Samples {
        Samples(claims.to_vec())
    }

    /// Names of patterns and rules, by their numbers.
    pub fn names(&self) -> Vec<&str> {
        self.0.iter().map(|c| c.name.as_str()).collect()
    }

    /// A graph that the pattern or rule of this number may match, or `None` where what was drawn does not fit
    /// together. Its inputs and constants are what the leaves stand for.
    pub fn draw(&self, number: usize, rng: &mut Rng) -> Option<Graph> {
        let claimed = self.0.get(number)?;
        let mut pick = || SIZES[rng.below(SIZES.len())];
        let mut sizes = [pick(), pick()];
        if rng.below(EMPTY) == 0 {
            sizes[rng.below(2)] = 0;
        }
        let dtype = match rng.below(8) {
            0 => [DType::F64, DType::I32, DType::I64, DType::F16, DType::Bool][rng.below(5)],
            _ => DType::F32,
        };
        let base = (0..1 + rng.below(4)).map(|_| sizes[rng.below(2)]).collect();
        let graph = Graph::new("sample");
        let mut drawer = Drawer { graph, rng, dtype, sizes, base, bound: HashMap::new() };
        let exit = match &claimed.shape {
            Shape::Pattern(part) => drawer.part(part)??,
            Shape::Rule(growth) => {
                let mut exit = drawer.part(&growth.seed)??;
                for _ in 0..drawer.rng.below(GROWTH + 1) {
                    let down = growth.steps.iter().filter(|s| s.direction == Direction::Down);
                    let ops: Vec<OpSet> = down.flat_map(|s| s.ops.iter().copied()).collect();
                    if ops.is_empty() {
                        break;
                    }
                    let set = ops[drawer.rng.below(ops.len())];
                    exit = drawer.apply(set, &[], vec![Some(exit)], true)?;
                }
                exit
            }
        };
        let mut graph = drawer.graph;
        graph.outputs = vec![exit];
        (!graph.inputs.is_empty()).then_some(graph)
    }
}

/// A graph that is being drawn.
struct Drawer<'r> {
    graph: Graph,
    rng: &'r mut Rng,
    dtype: DType,
    sizes: [i64; 2],
    /// Dims of most inputs.
    base: Vec<i64>,
    bound: HashMap<usize, Option<ValueId>>,
}

impl Drawer<'_> {
    /// The value of a part; inside, `None` for an operand that is missing.
    fn part(&mut self, part: &Part) -> Option<Option<ValueId>> {
        match part {
            Part::Leaf(leaf) => Some(Some(self.leaf(*leaf))),
            Part::Same(slot) => self.bound.get(slot).copied(),
            Part::Bind(slot, inner) => {
                let value = self.part(inner)?;
                self.bound.insert(*slot, value);
                Some(value)
            }
            Part::Optional(inner) if self.rng.below(2) == 0 => self.pass(inner),
            Part::Optional(inner) => self.part(inner),
            Part::Any(all) => {
                let one = self.rng.below(all.len());
                self.part(&all[one])
            }
            Part::Node(node) => self.node(node).map(Some),
            Part::Where(_, inner) => self.part(inner),
        }
    }

    /// The value of a part that is left out.
    fn pass(&mut self, part: &Part) -> Option<Option<ValueId>> {
        match part {
            Part::Leaf(_) | Part::Same(_) => Some(None),
            Part::Bind(slot, inner) => {
                let value = self.pass(inner)?;
                self.bound.insert(*slot, value);
                Some(value)
            }
            Part::Optional(inner) | Part::Where(_, inner) => self.pass(inner),
            Part::Any(all) => {
                let one = self.rng.below(all.len());
                self.pass(&all[one])
            }
            Part::Node(node) => match &node.operands {
                Operands::Exact(all) | Operands::Open(all) => self.part(all.first()?),
                Operands::Either(pair) => self.part(&pair[0]),
            },
        }
    }

    fn node(&mut self, node: &NodePart) -> Option<ValueId> {
        let (parts, open): (Vec<&Part>, bool) = match &node.operands {
            Operands::Exact(all) => (all.iter().collect(), false),
            Operands::Open(all) => (all.iter().collect(), true),
            Operands::Either(pair) => (pair.iter().collect(), false),
        };
        let mut operands = parts.iter().map(|p| self.part(p)).collect::<Option<Vec<_>>>()?;
        if matches!(node.operands, Operands::Either(_)) && self.rng.below(2) == 0 {
            operands.reverse();
        }
        let set = node.ops[self.rng.below(node.ops.len())];
        self.apply(set, &node.attributes, operands, open)
    }

    /// A node of one of the ops; where the operands are open, with more of them if it needs those.
    fn apply(
        &mut self,
        set: OpSet,
        attributes: &[(String, Literal)],
        mut operands: Vec<Option<ValueId>>,
        open: bool,
    ) -> Option<ValueId> {
        let op = with(self.op(set, operands.len(), open)?, attributes)?;
        let needed = match &op {
            Op::Unary(_) => 1,
            Op::Binary(_) | Op::MatMul(_) | Op::Conv(_) | Op::Gather(_) => 2,
            Op::Attention(_) | Op::Select(_) => 3,
            _ => 1,
        };
        while open && operands.len() < needed {
            let more = self.leaf(Leaf::Any);
            operands.push(Some(more));
        }
        let name = format!("node{}", self.graph.nodes().count());
        self.graph.add1(op, &operands, origin(&name)).ok()
    }

    fn op(&mut self, set: OpSet, operands: usize, open: bool) -> Option<Op> {
        let unary = operands < 2 && (!open || self.rng.below(2) == 0);
        Some(match set {
            OpSet::Unary(f) => Op::Unary(f),
            OpSet::Binary(f) => Op::Binary(f),
            OpSet::Kind(OpKind::Unary) => Op::Unary(UNARY[self.rng.below(UNARY.len())]),
            OpSet::Kind(OpKind::Binary) => Op::Binary(BINARY[self.rng.below(BINARY.len())]),
            OpSet::Kind(kind) => {
                let texts = ATTRIBUTES.iter().find(|(k, _)| *k == kind);
                let texts = texts.map_or(&["()"][..], |(_, texts)| texts);
                kind.parse(texts[self.rng.below(texts.len())]).ok()?
            }
            OpSet::Class(Class::Elementwise | Class::Broadcast | Class::Injective) if unary => {
                Op::Unary(UNARY[self.rng.below(UNARY.len())])
            }
            OpSet::Class(Class::Elementwise | Class::Broadcast | Class::Injective) => {
                Op::Binary(BINARY[self.rng.below(BINARY.len())])
            }
            OpSet::Class(Class::Reduce) => {
                let axes = vec![self.rng.below(self.base.len())];
                Op::Reduce(Reduce {
                    kind: ReduceKind::Sum,
                    axes,
                    keep_dims: self.rng.below(2) == 0,
                })
            }
            OpSet::Class(Class::Anchor) => {
                Op::MatMul(MatMul { transpose_lhs: false, transpose_rhs: false })
            }
            OpSet::Class(Class::Opaque) => return None,
        })
    }

    fn leaf(&mut self, leaf: Leaf) -> ValueId {
        let dims = match leaf {
            Leaf::Scalar => vec![1; self.rng.below(2)],
            _ => self.dims(matches!(leaf, Leaf::Const)),
        };
        let constant = match leaf {
            Leaf::Const | Leaf::Scalar => true,
            Leaf::Any => self.rng.below(4) == 0,
            Leaf::Var | Leaf::Input => false,
        };
        let name = format!("v{}", self.graph.values().count());
        if !constant {
            return self.graph.input(&name, TensorType::fixed(self.dtype, &dims));
        }
        let rng = &mut *self.rng;
        let tensor = Tensor::generate(self.dtype, &dims, |_| rng.normal());
        self.graph.constant(&name, tensor)
    }

    /// The dims of most tensors, or others that may go with them.
    fn dims(&mut self, constant: bool) -> Vec<i64> {
        let size = |d: &mut Self| d.sizes[d.rng.below(2)];
        match self.rng.below(8) + if constant { 3 } else { 0 } {
            0..=4 => self.base.clone(),
            5 => {
                let base = self.base.clone();
                base.into_iter().map(|d| if self.rng.below(2) == 0 { 1 } else { d }).collect()
            }
            6 | 7 => vec![size(self)],
            8 => vec![size(self), size(self)],
            _ => {
                let rank = [2, self.base.len(), 4][self.rng.below(3)];
                (0..rank).map(|_| [size(self), 3, 1][self.rng.below(3)]).collect()
            }
        }
    }
}

/// The op with attributes as a pattern wants them.
fn with(op: Op, attributes: &[(String, Literal)]) -> Option<Op> {
    if attributes.is_empty() {
        return Some(op);
    }
    let mut json = serde_json::to_value(&op).ok()?;
    let mut inner = json.as_object_mut()?.values_mut().next()?;
    if matches!(op, Op::Unary(_)) {
        inner = inner.as_object_mut()?.values_mut().next()?;
    }
    let fields = inner.as_object_mut()?;
    for (name, value) in attributes {
        let value = match value {
            Literal::Bool(is) => Json::from(*is),
            Literal::Int(number) => Json::from(*number),
            Literal::Real(number) => Json::from(*number),
            Literal::Text(text) => Json::from(text.clone()),
        };
        fields.insert(name.clone(), value);
    }
    serde_json::from_value(json).ok()
}
