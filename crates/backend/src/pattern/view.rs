//! What patterns ask of a graph: which ops nodes are, in which classes, with which attributes.

use bricolage_ir::{
    AxisKind, AxisMap, Body, Combiner, Fact, Graph, Index, NodeId, Op, OpKind, Scalar, ValueId,
    ops::{Binary, Unary},
};
use bricolage_tensor::Dim;
use serde_json::Value as Json;
use std::{
    cell::{OnceCell, RefCell},
    collections::{BTreeSet, HashMap},
    rc::Rc,
};

/// Ops with something in common; which ops have it follows from their axes and bodies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// A scalar computation at every element of operands of one shape.
    Elementwise,
    /// The same, for operands that broadcast.
    Broadcast,
    /// Every element of a result by itself, whatever it reads.
    Injective,
    /// Elements are combined, and not sums of products.
    Reduce,
    /// Sums of products of two operands.
    Anchor,
    /// An element of a result may need any element of an operand.
    Opaque,
}

pub(super) const CLASSES: &[(&str, Class)] = &[
    ("elementwise", Class::Elementwise),
    ("broadcast", Class::Broadcast),
    ("injective", Class::Injective),
    ("reduce", Class::Reduce),
    ("anchor", Class::Anchor),
    ("opaque", Class::Opaque),
];

/// Ops by one name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum OpSet {
    Kind(OpKind),
    /// A function by its name; its parameters are its attributes.
    Unary(Unary),
    Binary(Binary),
    Class(Class),
}

/// `LayerNorm` as `layer_norm`.
fn snake(name: &str) -> String {
    let mut snake = String::new();
    for (i, c) in name.char_indices() {
        if c.is_ascii_uppercase() && i > 0 {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}

impl OpSet {
    /// The ops of this name: a scalar function, or a kind.
    pub(super) fn named(name: &str) -> Option<OpSet> {
        let unary = || Unary::ALL.iter().find(|f| f.name() == name).map(|f| OpSet::Unary(*f));
        let binary = || {
            let found = Binary::ALL.iter().find(|f| snake(&format!("{f:?}")) == name);
            found.map(|f| OpSet::Binary(*f))
        };
        let kind = || {
            let found = OpKind::ALL.iter().find(|k| snake(k.name()) == name);
            found.map(|k| OpSet::Kind(*k))
        };
        unary().or_else(binary).or_else(kind)
    }

    pub(super) fn class(name: &str) -> Option<OpSet> {
        CLASSES.iter().find(|(word, _)| *word == name).map(|(_, class)| OpSet::Class(*class))
    }

    /// Names of the attributes that its ops may have; `None` for those of any op.
    pub(super) fn attributes(self) -> Option<BTreeSet<String>> {
        match self {
            OpSet::Kind(OpKind::Unary) | OpSet::Class(_) => None,
            OpSet::Kind(kind) => {
                Some(kind.attribute_names().iter().map(|&n| n.to_owned()).collect())
            }
            OpSet::Unary(f) => Some(parameters(f)),
            OpSet::Binary(_) => Some(BTreeSet::new()),
        }
    }

    /// Whether its operands may change places: unknown for a class, whose readers are told which is which.
    pub(super) fn commutes(self) -> bool {
        match self {
            OpSet::Binary(f) => f.commutes(),
            OpSet::Kind(kind) => kind == OpKind::Binary,
            OpSet::Class(_) => true,
            OpSet::Unary(_) => false,
        }
    }
}

/// Names of the parameters of a function.
fn parameters(f: Unary) -> BTreeSet<String> {
    match serde_json::to_value(f) {
        Ok(Json::Object(named)) => {
            named.values().filter_map(Json::as_object).flat_map(|o| o.keys().cloned()).collect()
        }
        _ => BTreeSet::new(),
    }
}

/// The attributes of all ops.
pub(super) fn all_attributes() -> BTreeSet<String> {
    let kinds = OpKind::ALL.iter().flat_map(|k| k.attribute_names()).map(|&n| n.to_owned());
    kinds.chain(Unary::ALL.iter().flat_map(|f| parameters(*f))).collect()
}

/// The name by which patterns call an op.
pub fn op_name(op: &Op) -> String {
    match op {
        Op::Unary(f) => f.name().to_owned(),
        Op::Binary(f) => snake(&format!("{f:?}")),
        other => snake(other.kind().name()),
    }
}

/// Attributes of an op by the names that patterns use; the parameters, of a scalar function.
pub fn attributes(op: &Op) -> Json {
    let whole = serde_json::to_value(op).unwrap_or(Json::Null);
    // The op's kind, and the function's name, are the only key around them.
    let names = if matches!(op, Op::Unary(_) | Op::Binary(_)) { 2 } else { 1 };
    (0..names).fold(whole, |json, _| match json {
        Json::Object(named) => named.into_iter().next().map_or(Json::Null, |(_, v)| v),
        _ => Json::Null,
    })
}

/// A graph, with answers that are looked up again.
pub(super) struct View<'a> {
    pub(super) graph: &'a Graph,
    attributes: RefCell<HashMap<NodeId, Rc<Json>>>,
    classes: RefCell<HashMap<NodeId, Rc<[Class]>>>,
    ranks: OnceCell<HashMap<NodeId, usize>>,
}

impl<'a> View<'a> {
    pub(super) fn new(graph: &'a Graph) -> View<'a> {
        View {
            graph,
            attributes: RefCell::default(),
            classes: RefCell::default(),
            ranks: OnceCell::new(),
        }
    }

    /// The place of a node in the order of the graph.
    pub(super) fn rank(&self, node: NodeId) -> usize {
        let fresh = || self.graph.order().into_iter().enumerate().map(|(i, n)| (n, i)).collect();
        self.ranks.get_or_init(fresh).get(&node).copied().unwrap_or(usize::MAX)
    }

    /// Whether the node is one of the ops.
    pub(super) fn is(&self, node: NodeId, set: OpSet) -> bool {
        let op = &self.graph.node(node).op;
        match set {
            OpSet::Kind(kind) => op.kind() == kind,
            OpSet::Unary(f) => matches!(op, Op::Unary(found) if found.name() == f.name()),
            OpSet::Binary(f) => matches!(op, Op::Binary(found) if *found == f),
            OpSet::Class(class) => self.classes(node).contains(&class),
        }
    }

    /// See [`attributes`].
    pub(super) fn attributes(&self, node: NodeId) -> Rc<Json> {
        let fresh = || Rc::new(attributes(&self.graph.node(node).op));
        self.attributes.borrow_mut().entry(node).or_insert_with(fresh).clone()
    }

    fn classes(&self, node: NodeId) -> Rc<[Class]> {
        let fresh = || {
            let inputs = self.graph.facts(&self.graph.node(node).inputs);
            classes(&self.graph.node(node).op, &inputs, &self.graph.output_facts(node)).into()
        };
        self.classes.borrow_mut().entry(node).or_insert_with(fresh).clone()
    }

    /// Whether a value is an input of the graph or a state.
    pub(super) fn is_given(&self, value: ValueId) -> bool {
        self.graph.producer(value).is_none() && self.graph.constant_of(value).is_none()
    }
}

fn classes(op: &Op, inputs: &[Option<&Fact>], outputs: &[Fact]) -> Vec<Class> {
    let axes = op.axes(inputs, outputs);
    let is_tensor = |f: &Fact| f.ty.as_tensor().is_some();
    let tensors = inputs.iter().flatten().all(|f| is_tensor(f)) && outputs.iter().all(is_tensor);
    if !tensors || axes.axes.iter().any(|a| a.kind == AxisKind::Opaque) {
        return vec![Class::Opaque];
    }
    let body = op.body(inputs);
    if axes.axes.iter().any(|a| matches!(a.kind, AxisKind::Reduce(_))) {
        let sums = axes.axes.iter().any(|a| a.kind == AxisKind::Reduce(Combiner::Sum));
        let products = body.as_ref().is_some_and(is_product);
        return vec![if sums && products { Class::Anchor } else { Class::Reduce }];
    }
    let mut all = vec![Class::Injective];
    if body.is_some() && is_pointwise(&axes) {
        all.push(Class::Broadcast);
        let dims = |f: &&Fact| f.ty.as_tensor().map(|t| t.shape.clone());
        let shape = outputs.first().and_then(|f| dims(&f));
        if inputs.iter().flatten().all(|f| dims(f) == shape) {
            all.push(Class::Elementwise);
        }
    }
    all
}

/// Whether what is combined multiplies elements of two operands.
fn is_product(body: &Body) -> bool {
    fn reads(body: &Body, step: usize, into: &mut BTreeSet<usize>) {
        match body.steps[step] {
            Scalar::Input(operand) => drop(into.insert(operand)),
            Scalar::Unary(_, a) | Scalar::Cast(_, a) => reads(body, a, into),
            Scalar::Binary(_, a, b) => [a, b].into_iter().for_each(|s| reads(body, s, into)),
            Scalar::Select(a, b, c) => [a, b, c].into_iter().for_each(|s| reads(body, s, into)),
            _ => {}
        }
    }
    let mut operands = BTreeSet::new();
    reads(body, body.point, &mut operands);
    body.multiplies() && operands.len() >= 2
}

/// Whether a point writes one element and reads the element of the same place, or of a dim that broadcasts.
fn is_pointwise(axes: &AxisMap) -> bool {
    let rank = axes.outputs.first().map_or(0, Vec::len);
    let own = |dims: &[Index]| {
        let from = rank - dims.len().min(rank);
        dims.len() <= rank
            && dims.iter().enumerate().all(|(d, i)| {
                i.offset == Dim::from(0)
                    && (i.terms.is_empty() || i.terms == [(from + d, Dim::from(1))])
            })
    };
    axes.axes.len() == rank
        && axes.outputs.iter().all(|dims| own(dims))
        && axes.inputs.iter().flatten().all(|dims| own(dims))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_op_has_one_name() {
        let mut names: Vec<String> = Unary::ALL.iter().map(|f| f.name().to_owned()).collect();
        names.extend(Binary::ALL.iter().map(|f| snake(&format!("{f:?}"))));
        names.extend(OpKind::ALL.iter().map(|k| snake(k.name())));
        for name in &names {
            assert_eq!(names.iter().filter(|n| *n == name).count(), 1, "{name}");
            assert!(OpSet::named(name).is_some(), "{name}");
        }
        assert_eq!(OpSet::named("conv2d"), None);
        assert_eq!(OpSet::named("mat_mul"), Some(OpSet::Kind(OpKind::MatMul)));
    }

    #[test]
    fn functions_have_their_parameters_as_attributes() {
        let leaky = OpSet::named("leaky_relu").and_then(OpSet::attributes).unwrap();
        assert_eq!(leaky, BTreeSet::from(["alpha".to_owned()]));
        assert!(all_attributes().contains("epsilon"));
    }

    /// Classes follow from axes and bodies; these are what people call the ops.
    #[test]
    fn ops_are_in_the_classes_that_people_put_them_in() {
        use bricolage_ir::{
            ops::{
                Cast, Concat, Conv, Gather, LayerNorm, MatMul, Reduce, ReduceKind, Select, Softmax,
                Transpose,
            },
            origin,
        };
        use bricolage_tensor::{DType, TensorType};
        let mut graph = Graph::new("classes");
        let mut input = |name: &str, dtype: DType, dims: &[i64]| {
            graph.input(name, TensorType::fixed(dtype, dims))
        };
        let x = input("x", DType::F32, &[3, 3]);
        let row = input("row", DType::F32, &[3]);
        let mask = input("mask", DType::Bool, &[3, 3]);
        let at = input("at", DType::I64, &[2]);
        let (image, filter) =
            (input("image", DType::F32, &[1, 2, 5, 5]), input("filter", DType::F32, &[4, 2, 3, 3]));
        let reduce = |kind| Op::from(Reduce { kind, axes: vec![1], keep_dims: true });
        let pointwise = &["injective", "broadcast", "elementwise"][..];
        let norm = LayerNorm { axis: 1, epsilon: 1e-5.into(), rms: false, statistics: false };
        let cases: Vec<(Op, Vec<ValueId>, &[&str])> = vec![
            (Unary::Relu.into(), vec![x], pointwise),
            (Binary::Add.into(), vec![x, x], pointwise),
            (Select.into(), vec![mask, x, x], pointwise),
            (Cast::to(DType::F64).into(), vec![x], pointwise),
            (Binary::Add.into(), vec![x, row], &pointwise[..2]),
            (Transpose { perm: vec![1, 0] }.into(), vec![x], &pointwise[..1]),
            (Concat { axis: 0 }.into(), vec![x, x], &pointwise[..1]),
            (reduce(ReduceKind::Sum), vec![x], &["reduce"]),
            (reduce(ReduceKind::SumSquare), vec![x], &["reduce"]),
            (reduce(ReduceKind::Max), vec![x], &["reduce"]),
            (MatMul::default().into(), vec![x, x], &["anchor"]),
            (Conv::plain(2).into(), vec![image, filter], &["anchor"]),
            (Softmax { axis: 1, log: false }.into(), vec![x], &["opaque"]),
            (norm.into(), vec![x], &["opaque"]),
            (Gather { axis: 0 }.into(), vec![x, at], &["opaque"]),
        ];
        for (op, inputs, expected) in cases {
            let text = op.to_string();
            let y = graph.add1(op, &inputs, origin("y")).unwrap();
            let view = View::new(&graph);
            let node = graph.producer(y).unwrap();
            let found: Vec<&str> = CLASSES
                .iter()
                .filter(|(name, _)| view.is(node, OpSet::class(name).unwrap()))
                .map(|(name, _)| *name)
                .collect();
            let mut expected = expected.to_vec();
            expected.sort_by_key(|e| CLASSES.iter().position(|(name, _)| name == e));
            assert_eq!(found, expected, "{text}");
        }
    }
}
