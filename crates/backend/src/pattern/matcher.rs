//! Finds every way in which a pattern matches at an exit.
//!
//! All alternatives are followed: each branch of `|`, an optional node with and without, operands of `{}` in
//! both orders. Two parts of a pattern may match the same node. A match may still be no region.

use super::{
    shape::{NodePart, Operands, Part},
    syntax::{Leaf, Literal},
    view::View,
};
use bricolage_ir::{NodeId, ValueId};
use serde_json::Value as Json;

/// Different matches of one pattern at one exit, at most.
pub(super) const MOST_MATCHES: usize = 64;
/// Parts that are compared with values for one pattern at one exit, at most.
const MOST_STEPS: usize = 1 << 16;

/// What a name of a pattern stands for in a match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Binding {
    /// Whether the alternative that matched has the name at all.
    pub(super) seen: bool,
    /// Whether it stands for what its pattern says: not for a missing operand or a node passed by.
    pub(super) held: bool,
    /// The value; of a node passed by, that of its first operand.
    pub(super) value: Option<ValueId>,
    /// The node that computes the value, where the region holds it.
    pub(super) node: Option<NodeId>,
}

/// One way in which a pattern matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Match {
    /// The nodes, sorted.
    pub(super) nodes: Vec<NodeId>,
    /// What the names stand for, by slot.
    pub(super) bindings: Vec<Binding>,
    /// Values from outside, sorted: each operand that a leaf stands for.
    pub(super) leaves: Vec<ValueId>,
    /// Numbers of the conditions that came with its parts, sorted.
    pub(super) conditions: Vec<usize>,
}

/// All matches at one exit.
#[derive(Debug, Default)]
pub(super) struct Matches {
    /// In the order in which alternatives are written.
    pub(super) all: Vec<Match>,
    /// Whether there may be more than the limits allow.
    pub(super) cut: bool,
}

/// Every match of the pattern whose exit is `exit`, which holds that node.
pub(super) fn matches(view: &View<'_>, pattern: &Part, slots: usize, exit: NodeId) -> Matches {
    let Some(&value) = view.graph.node(exit).outputs.first() else { return Matches::default() };
    let mut matcher = Matcher { view, steps: MOST_STEPS, cut: false };
    let empty = Match { bindings: vec![Binding::default(); slots], ..Match::default() };
    let mut found = Matches::default();
    for (one, _) in matcher.part(pattern, Some(value), empty) {
        if one.nodes.contains(&exit) && !found.all.contains(&one) {
            if found.all.len() == MOST_MATCHES {
                matcher.cut = true;
                break;
            }
            found.all.push(one);
        }
    }
    found.cut = matcher.cut;
    found
}

struct Matcher<'a> {
    view: &'a View<'a>,
    steps: usize,
    cut: bool,
}

/// A match so far, and whether what matched last is a node.
type Step = (Match, bool);

impl Matcher<'_> {
    /// Whether another part may be compared.
    fn may_go_on(&mut self) -> bool {
        self.cut |= self.steps == 0;
        self.steps = self.steps.saturating_sub(1);
        !self.cut
    }

    /// Every way to go on from `so_far` with the part at an operand, which may be missing.
    fn part(&mut self, part: &Part, operand: Option<ValueId>, so_far: Match) -> Vec<Step> {
        if !self.may_go_on() {
            return Vec::new();
        }
        match part {
            Part::Leaf(leaf) => match operand.filter(|&v| self.is_leaf(*leaf, v)) {
                Some(value) => vec![(with_leaf(so_far, value), false)],
                None => Vec::new(),
            },
            Part::Same(slot) => {
                let binding = so_far.bindings[*slot];
                match binding.seen && binding.value == operand {
                    true => vec![(so_far, false)],
                    false => Vec::new(),
                }
            }
            Part::Bind(slot, inner) => {
                let mut all = self.part(inner, operand, so_far);
                for (one, is_node) in &mut all {
                    let node =
                        operand.filter(|_| *is_node).and_then(|v| self.view.graph.producer(v));
                    let held = operand.is_some();
                    one.bindings[*slot] = Binding { seen: true, held, value: operand, node };
                }
                all
            }
            Part::Optional(inner) => {
                let mut all = self.part(inner, operand, so_far.clone());
                all.extend(self.pass(inner, operand, so_far));
                all
            }
            Part::Any(parts) => {
                let mut all = Vec::new();
                for part in parts {
                    all.extend(self.part(part, operand, so_far.clone()));
                }
                all
            }
            Part::Node(node) => {
                let all = self.node(node, operand, so_far);
                all.into_iter().map(|one| (one, true)).collect()
            }
            Part::Where(number, inner) => {
                let mut all = self.part(inner, operand, so_far);
                for (one, _) in &mut all {
                    insert(&mut one.conditions, *number);
                }
                all
            }
        }
    }

    /// Every way to go on where the part is left out: the operand is that of its first operand, or missing.
    fn pass(&mut self, part: &Part, operand: Option<ValueId>, so_far: Match) -> Vec<Step> {
        if !self.may_go_on() {
            return Vec::new();
        }
        match part {
            Part::Leaf(_) | Part::Same(_) => match operand {
                Some(_) => Vec::new(),
                None => vec![(so_far, false)],
            },
            Part::Bind(slot, inner) => {
                let mut all = self.pass(inner, operand, so_far);
                for (one, _) in &mut all {
                    one.bindings[*slot] =
                        Binding { seen: true, held: false, value: operand, node: None };
                }
                all
            }
            Part::Optional(inner) | Part::Where(_, inner) => self.pass(inner, operand, so_far),
            Part::Any(parts) => {
                let mut all = Vec::new();
                for part in parts {
                    all.extend(self.pass(part, operand, so_far.clone()));
                }
                all
            }
            Part::Node(node) => {
                let first = match &node.operands {
                    Operands::Exact(all) | Operands::Open(all) => all.first(),
                    Operands::Either(pair) => Some(&pair[0]),
                };
                match first {
                    Some(first) => self.part(first, operand, so_far),
                    None => Vec::new(),
                }
            }
        }
    }

    fn node(&mut self, part: &NodePart, operand: Option<ValueId>, so_far: Match) -> Vec<Match> {
        let graph = self.view.graph;
        let Some(id) = operand.and_then(|v| graph.producer(v)) else { return Vec::new() };
        let fits = part.ops.iter().any(|&set| self.view.is(id, set))
            && part.attributes.iter().all(|(name, value)| self.has_attribute(id, name, value));
        if !fits {
            return Vec::new();
        }
        let mut with = so_far;
        insert(&mut with.nodes, id);
        let inputs = &graph.node(id).inputs;
        let rest = |from: usize| inputs.iter().skip(from).all(Option::is_none);
        match &part.operands {
            Operands::Exact(parts) if !rest(parts.len()) => Vec::new(),
            Operands::Exact(parts) | Operands::Open(parts) => {
                self.operands(parts.iter().zip(0..), inputs, with)
            }
            Operands::Either(_) if !rest(2) => Vec::new(),
            Operands::Either(pair) => {
                let mut all = self.operands(pair.iter().zip([0, 1]), inputs, with.clone());
                all.extend(self.operands(pair.iter().zip([1, 0]), inputs, with));
                all
            }
        }
    }

    /// Every way to go on with parts, each at the operand of its number.
    fn operands<'p>(
        &mut self,
        parts: impl Iterator<Item = (&'p Part, usize)>,
        inputs: &[Option<ValueId>],
        so_far: Match,
    ) -> Vec<Match> {
        let mut all = vec![so_far];
        for (part, at) in parts {
            let operand = inputs.get(at).copied().flatten();
            let steps = all.into_iter().flat_map(|one| self.part(part, operand, one));
            all = steps.map(|(one, _)| one).collect();
        }
        all
    }

    fn is_leaf(&self, leaf: Leaf, value: ValueId) -> bool {
        let constant = self.view.graph.constant_of(value);
        match leaf {
            Leaf::Any => true,
            Leaf::Const => constant.is_some(),
            Leaf::Var => constant.is_none(),
            Leaf::Scalar => constant.is_some_and(|t| t.len() == 1),
            Leaf::Input => self.view.is_given(value),
        }
    }

    fn has_attribute(&self, node: NodeId, name: &str, value: &Literal) -> bool {
        let attributes = self.view.attributes(node);
        match (attributes.get(name), value) {
            (Some(Json::Bool(found)), Literal::Bool(value)) => found == value,
            (Some(Json::Number(found)), Literal::Int(value)) => match found.as_i64() {
                Some(found) => found == *value,
                None => found.as_f64() == Some(*value as f64),
            },
            (Some(Json::Number(found)), Literal::Real(value)) => found.as_f64() == Some(*value),
            (Some(Json::String(found)), Literal::Text(value)) => found == value,
            // A choice with parameters is called by its name.
            (Some(Json::Object(found)), Literal::Text(value)) => found.contains_key(value),
            _ => false,
        }
    }
}

fn with_leaf(mut so_far: Match, value: ValueId) -> Match {
    insert(&mut so_far.leaves, value);
    so_far
}

/// Adds to what is sorted and has each element once.
fn insert<T: Ord>(sorted: &mut Vec<T>, one: T) {
    if let Err(at) = sorted.binary_search(&one) {
        sorted.insert(at, one);
    }
}
