//! Patterns with their names looked up: the patterns of `let` are put in, and names of values are slots.

use super::{
    constraint::Condition,
    error::Fault,
    names::{Names, RESERVED},
    syntax::{Arguments, Leaf, Let, Literal, Name, OpName, OpPattern, Pattern},
    view::OpSet,
};
use std::collections::BTreeSet;

/// Parts of a pattern, at most, after those of `let` are put in.
pub(super) const MOST_PARTS: usize = 256;

/// A pattern that looks up no names.
#[derive(Clone, Debug)]
pub(super) enum Part {
    Leaf(Leaf),
    Same(usize),
    Bind(usize, Box<Part>),
    Optional(Box<Part>),
    Any(Vec<Part>),
    Node(NodePart),
    /// A part whose match is asked the condition of this number.
    Where(usize, Box<Part>),
}

/// A node.
#[derive(Clone, Debug)]
pub(super) struct NodePart {
    pub(super) ops: Vec<OpSet>,
    pub(super) attributes: Vec<(String, Literal)>,
    pub(super) operands: Operands,
}

/// Operands of a node.
#[derive(Clone, Debug)]
pub(super) enum Operands {
    Exact(Vec<Part>),
    Open(Vec<Part>),
    Either(Box<[Part; 2]>),
}

/// What names of patterns stand for at one place of a file.
#[derive(Clone, Debug)]
pub(super) struct Places<'a> {
    /// Those of `let`, which see those before them.
    pub(super) lets: &'a [&'a Let],
    /// Parameters, with what is put in and what that sees.
    arguments: Vec<(&'a str, &'a Pattern, &'a Places<'a>)>,
}

impl<'a> Places<'a> {
    pub(super) fn new(lets: &'a [&'a Let]) -> Places<'a> {
        Places { lets, arguments: Vec::new() }
    }
}

const ANYTHING: Pattern = Pattern::Leaf(Leaf::Any);

/// Faults of a `let` that no pattern may ever use.
pub(super) fn check(definition: &Let, before: &[&Let], names: &mut Names<'_>) {
    let outer = Places::new(before);
    let arguments = definition.parameters.iter().map(|p| (p.text.as_str(), &ANYTHING, &outer));
    let places = Places { lets: before, arguments: arguments.collect() };
    for (i, parameter) in definition.parameters.iter().enumerate() {
        if definition.parameters[..i].contains(parameter) {
            names.faults.push(Fault::taken(parameter.at, &parameter.text));
        }
    }
    part(&definition.pattern, &places, names, &mut BTreeSet::new());
    if let Some(condition) = &definition.condition {
        Condition::compile(condition, names);
    }
}

/// A pattern of one node at least, with its names looked up.
pub(super) fn root(
    pattern: &Pattern,
    at: &Name,
    places: &Places<'_>,
    names: &mut Names<'_>,
) -> Option<Part> {
    let part = part(pattern, places, names, &mut BTreeSet::new())?;
    if !has_node(&part) {
        names.needed(at, "an op at the exit of a pattern", "a value from outside".to_owned());
        return None;
    }
    Some(part)
}

fn has_node(part: &Part) -> bool {
    match part {
        Part::Leaf(_) | Part::Same(_) => false,
        Part::Bind(_, inner) | Part::Optional(inner) | Part::Where(_, inner) => has_node(inner),
        Part::Any(all) => all.iter().any(has_node),
        Part::Node(_) => true,
    }
}

/// The pattern with its names looked up; `None` where one is wrong, which the faults say. `bound` holds the
/// names that stand before it, and gets those in it.
fn part(
    pattern: &Pattern,
    places: &Places<'_>,
    names: &mut Names<'_>,
    bound: &mut BTreeSet<String>,
) -> Option<Part> {
    if names.parts > MOST_PARTS {
        return None;
    }
    names.parts += 1;
    match pattern {
        Pattern::Leaf(leaf) => Some(Part::Leaf(*leaf)),
        Pattern::Same(name) => {
            match names.find(&name.text).filter(|_| bound.contains(&name.text)) {
                Some(slot) => Some(Part::Same(slot)),
                None => {
                    names.unknown("the name of a value that stands before", name);
                    None
                }
            }
        }
        Pattern::Bind(name, inner) => {
            let inner = part(inner, places, names, bound);
            if RESERVED.contains(&name.text.as_str()) || !bound.insert(name.text.clone()) {
                names.faults.push(Fault::taken(name.at, &name.text));
                return None;
            }
            // The name is there even where what it stands for is wrong, so that no fault follows from another.
            let ops = inner.as_ref().and_then(ops_of);
            let constant = inner.as_ref().is_some_and(is_constant);
            let slot = names.add(&name.text, ops.as_deref(), constant);
            Some(Part::Bind(slot, Box::new(inner?)))
        }
        Pattern::Optional(inner) => {
            part(inner, places, names, bound).map(|inner| Part::Optional(Box::new(inner)))
        }
        Pattern::Any(all) => {
            let before = bound.clone();
            let mut parts = Vec::new();
            for one in all {
                let mut own = before.clone();
                parts.push(part(one, places, names, &mut own));
                bound.extend(own);
            }
            parts.into_iter().collect::<Option<Vec<Part>>>().map(Part::Any)
        }
        Pattern::Use(name) => named(name, &[], places, names, bound),
        Pattern::Op(op) => {
            if let ([OpName::Op(name)], Arguments::Exact(arguments)) = (&op.ops[..], &op.arguments)
                && op.attributes.is_empty()
                && places.lets.iter().any(|l| l.name == *name)
            {
                return named(name, arguments, places, names, bound);
            }
            node(op, places, names, bound).map(Part::Node)
        }
    }
}

/// A pattern by its name, with patterns put in.
fn named(
    name: &Name,
    arguments: &[Pattern],
    places: &Places<'_>,
    names: &mut Names<'_>,
    bound: &mut BTreeSet<String>,
) -> Option<Part> {
    if let Some((_, argument, seen)) = places.arguments.iter().find(|(n, ..)| *n == name.text)
        && arguments.is_empty()
    {
        return part(argument, seen, names, bound);
    }
    let Some(at) = places.lets.iter().position(|l| l.name == *name) else {
        names.unknown("the name of a pattern or of an op with its operands", name);
        return None;
    };
    let definition = places.lets[at];
    if definition.parameters.len() != arguments.len() {
        let needed = format!("{} patterns for `{name}`", definition.parameters.len());
        names.needed(name, &needed, arguments.len().to_string());
        return None;
    }
    let parameters = definition.parameters.iter().map(|p| p.text.as_str());
    let inner = Places {
        lets: &places.lets[..at],
        arguments: parameters.zip(arguments).map(|(p, a)| (p, a, places)).collect(),
    };
    let part = part(&definition.pattern, &inner, names, bound)?;
    let Some(condition) = &definition.condition else { return Some(part) };
    let condition = Condition::compile(condition, names);
    names.conditions.push(condition);
    Some(Part::Where(names.conditions.len() - 1, Box::new(part)))
}

fn node(
    op: &OpPattern,
    places: &Places<'_>,
    names: &mut Names<'_>,
    bound: &mut BTreeSet<String>,
) -> Option<NodePart> {
    let ops = op_sets(&op.ops, names);
    if let Some(ops) = &ops {
        for (name, _) in &op.attributes {
            if !names.is_attribute_of(ops, &name.text) {
                names.unknown("an attribute of the op", name);
            }
        }
        if let (Arguments::Either(_), Some(at)) =
            (&op.arguments, ops.iter().position(|o| !o.commutes()))
        {
            let (OpName::Op(name) | OpName::Class(name)) = &op.ops[at];
            names.needed(name, "an op whose operands may change places", format!("`{name}`"));
        }
    }
    let mut list = |all: &[Pattern]| -> Option<Vec<Part>> {
        // Every operand is looked at, so that all faults are found.
        let all: Vec<Option<Part>> = all.iter().map(|p| part(p, places, names, bound)).collect();
        all.into_iter().collect()
    };
    let operands = match &op.arguments {
        Arguments::Exact(all) => list(all).map(Operands::Exact),
        Arguments::Open(all) => list(all).map(Operands::Open),
        Arguments::Either(pair) => {
            let both = list(&pair[..]).and_then(|all| <[Part; 2]>::try_from(all).ok());
            both.map(|pair| Operands::Either(Box::new(pair)))
        }
    };
    if names.parts > MOST_PARTS {
        let (OpName::Op(name) | OpName::Class(name)) = &op.ops[0];
        names.faults.push(Fault::limit(name.at, "parts in a pattern", MOST_PARTS));
        return None;
    }
    let attributes = op.attributes.iter().map(|(n, v)| (n.text.clone(), v.clone())).collect();
    Some(NodePart { ops: ops?, attributes, operands: operands? })
}

/// Ops by their names.
pub(super) fn op_sets(ops: &[OpName], names: &mut Names<'_>) -> Option<Vec<OpSet>> {
    let mut all = Vec::new();
    for op in ops {
        let (found, what, name) = match op {
            OpName::Op(name) => (OpSet::named(&name.text), "the name of an op", name),
            OpName::Class(name) => (OpSet::class(&name.text), "a class of ops", name),
        };
        if found.is_none() {
            names.unknown(what, name);
        }
        all.push(found);
    }
    all.into_iter().collect()
}

/// The ops that a part's node may be; `None` where it may be any.
fn ops_of(part: &Part) -> Option<Vec<OpSet>> {
    match part {
        Part::Leaf(_) | Part::Same(_) => None,
        Part::Bind(_, inner) | Part::Optional(inner) | Part::Where(_, inner) => ops_of(inner),
        Part::Any(all) => {
            let all: Option<Vec<Vec<OpSet>>> = all.iter().map(ops_of).collect();
            all.map(|all| all.concat())
        }
        Part::Node(node) => Some(node.ops.clone()),
    }
}

fn is_constant(part: &Part) -> bool {
    match part {
        Part::Leaf(leaf) => matches!(leaf, Leaf::Const | Leaf::Scalar),
        Part::Bind(_, inner) | Part::Optional(inner) | Part::Where(_, inner) => is_constant(inner),
        Part::Any(all) => all.iter().all(is_constant),
        Part::Same(_) | Part::Node(_) => false,
    }
}
