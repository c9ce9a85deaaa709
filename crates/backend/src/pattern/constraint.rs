//! Conditions with their names looked up: compiled once, evaluated for every match.
//!
//! A condition is split at its outer `&&` into clauses, so that a refusal can name the one that failed.

use super::{
    names::{Names, RESERVED},
    syntax::{Arithmetic, Comparison, Expression, Literal, Measure, Name, Path, Step},
};

/// What may be asked of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Property {
    Rank,
    Dims,
    DType,
    Bytes,
    Elements,
    IsConst,
    IsInput,
    IsOutput,
    Uses,
    Op,
    Operands,
    Output,
}

/// Names of properties; those of the first group may be asked of the tensor of a conversion too.
const PROPERTIES: &[(&str, Property)] = &[
    ("rank", Property::Rank),
    ("dim", Property::Dims),
    ("dims", Property::Dims),
    ("dtype", Property::DType),
    ("bytes", Property::Bytes),
    ("elements", Property::Elements),
    ("is_const", Property::IsConst),
    ("is_input", Property::IsInput),
    ("is_output", Property::IsOutput),
    ("uses", Property::Uses),
    ("op", Property::Op),
    ("operands", Property::Operands),
    ("output", Property::Output),
];
const OF_TENSORS: usize = 6;

/// Where a fact is found.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Source {
    /// A property of what a slot holds.
    Slot(usize, Property),
    /// Whether a slot holds anything; only `has` asks.
    Held(usize),
    /// An attribute of the node that a slot holds.
    Attribute(usize, String),
    /// A property of the tensor that is converted.
    Tensor(Property),
    /// An element of a list, by how many `all` and `any` lie around its own.
    Local(usize),
    /// A fact about the machine.
    Known(Literal),
    Threads,
    Policy,
    /// Nodes of the region.
    Nodes,
}

/// A way to a fact.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Way {
    pub(super) source: Source,
    pub(super) steps: Vec<Step>,
    /// The path as it is written.
    pub(super) text: String,
}

/// An expression that looks up no names.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Code {
    Literal(Literal),
    Way(Way),
    Not(Box<Code>),
    Negative(Box<Code>),
    Arithmetic(Arithmetic, Box<[Code; 2]>),
    Compare(Comparison, Box<[Code; 2]>),
    OneOf(Box<Code>, Vec<Literal>),
    Within(Box<Code>, Literal, Literal),
    And(Vec<Code>),
    Or(Vec<Code>),
    Every(bool, Way, Box<Code>),
    Measure(Measure, Way),
    Aligned(Way, i64),
    Macs(usize),
    Same(usize, usize),
}

/// A part of a condition that must hold by itself.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Clause {
    pub(super) code: Code,
    /// As it is written.
    pub(super) text: String,
    /// What a refusal shows the values of.
    pub(super) shown: Vec<Way>,
}

/// A condition.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Condition(pub(super) Vec<Clause>);

impl Condition {
    /// Looks up the names of `expression`, and adds what is wrong to the faults of `names`.
    pub(super) fn compile(expression: &Expression, names: &mut Names<'_>) -> Condition {
        let parts = match expression {
            Expression::And(parts) => parts.as_slice(),
            other => std::slice::from_ref(other),
        };
        let mut clauses = Vec::new();
        for part in parts {
            let Some(code) = code(part, names) else { continue };
            let mut shown = Vec::new();
            ways(&code, &mut shown);
            clauses.push(Clause { code, text: part.to_string(), shown });
        }
        Condition(clauses)
    }

    pub(super) fn extend(&mut self, other: Condition) {
        self.0.extend(other.0);
    }
}

/// The expression without names; `None` where one is wrong, which the faults say.
fn code(expression: &Expression, names: &mut Names<'_>) -> Option<Code> {
    let boxed = |e: &Expression, names: &mut Names<'_>| code(e, names).map(Box::new);
    let pair = |p: &[Expression; 2], names: &mut Names<'_>| {
        let (a, b) = (code(&p[0], names), code(&p[1], names));
        Some(Box::new([a?, b?]))
    };
    let all = |all: &[Expression], names: &mut Names<'_>| {
        // Every part is looked at, so that all faults are found.
        let parts: Vec<Option<Code>> = all.iter().map(|e| code(e, names)).collect();
        parts.into_iter().collect::<Option<Vec<Code>>>()
    };
    Some(match expression {
        Expression::Literal(literal) => Code::Literal(literal.clone()),
        Expression::Path(path) => Code::Way(way(path, names, false)?),
        Expression::Not(inner) => Code::Not(boxed(inner, names)?),
        Expression::Negative(inner) => Code::Negative(boxed(inner, names)?),
        Expression::Arithmetic(operation, p) => Code::Arithmetic(*operation, pair(p, names)?),
        Expression::Compare(comparison, p) => Code::Compare(*comparison, pair(p, names)?),
        Expression::OneOf(inner, set) => Code::OneOf(boxed(inner, names)?, set.clone()),
        Expression::Within(inner, low, high) => {
            Code::Within(boxed(inner, names)?, low.clone(), high.clone())
        }
        Expression::And(parts) => Code::And(all(parts, names)?),
        Expression::Or(parts) => Code::Or(all(parts, names)?),
        Expression::Every(every, name, list, body) => {
            let list = way(list, names, false);
            let taken = names.find(&name.text).is_some()
                || names.locals.contains(&name.text)
                || RESERVED.contains(&name.text.as_str());
            if taken {
                names.faults.push(super::error::Fault::taken(name.at, &name.text));
            }
            names.locals.push(name.text.clone());
            let body = code(body, names);
            names.locals.pop();
            Code::Every(*every, list?, Box::new(body?))
        }
        Expression::Measure(measure, path) => {
            Code::Measure(*measure, way(path, names, *measure == Measure::Has)?)
        }
        Expression::Aligned(path, by) => Code::Aligned(way(path, names, false)?, *by),
        Expression::Macs(name) => Code::Macs(slot(name, names)?),
        Expression::Same(a, b) => {
            let (a, b) = (slot(a, names), slot(b, names));
            Code::Same(a?, b?)
        }
    })
}

fn slot(name: &Name, names: &mut Names<'_>) -> Option<usize> {
    let found = names.find(&name.text);
    if found.is_none() {
        names.unknown("the name of a value of the pattern", name);
    }
    found
}

/// The way that a path goes; `alone` allows a name with no field.
fn way(path: &Path, names: &mut Names<'_>, alone: bool) -> Option<Way> {
    let text = path.to_string();
    let root = path.root.text.as_str();
    let local = names.locals.iter().rev().position(|l| l == root);
    let slot = names.find(root);
    if let Some(depth) = local {
        return Some(Way { source: Source::Local(depth), steps: path.steps.clone(), text });
    }
    let Some(first) = path.steps.first() else {
        return match slot {
            Some(slot) if alone => {
                Some(Way { source: Source::Held(slot), steps: Vec::new(), text })
            }
            Some(_) => {
                names.needed(&path.root, "a field after a name", format!("`{root}` alone"));
                None
            }
            None => {
                names.unknown("the name of a value of the pattern", &path.root);
                None
            }
        };
    };
    let Step::Field(field) = first else {
        names.needed(&path.root, "a field after a name", format!("`{text}`"));
        return None;
    };
    let rest = &path.steps[1..];
    let made =
        |source, steps: &[Step]| Some(Way { source, steps: steps.to_vec(), text: text.clone() });
    match root {
        "plan" => match field.text.as_str() {
            "threads" => return made(Source::Threads, rest),
            "numerics" => return made(Source::Policy, rest),
            _ => names.unknown("`threads` or `numerics`", field),
        },
        "region" => match field.text.as_str() {
            "nodes" => return made(Source::Nodes, rest),
            _ => names.unknown("`nodes`", field),
        },
        "dev" => match names.library.machine.iter().find(|(name, _)| *name == field.text) {
            Some((_, literal)) => return made(Source::Known(literal.clone()), rest),
            None => names.unknown("a fact about the machine that the library gives", field),
        },
        "t" if names.tensor => {
            match PROPERTIES[..OF_TENSORS].iter().find(|(name, _)| *name == field.text) {
                Some((_, property)) => return made(Source::Tensor(*property), rest),
                None => names.unknown("a field of a tensor", field),
            }
        }
        _ => {
            let Some(slot) = slot else {
                names.unknown("the name of a value of the pattern", &path.root);
                return None;
            };
            if field.text == "attr" {
                return attribute(slot, path, names, text);
            }
            match PROPERTIES.iter().find(|(name, _)| *name == field.text) {
                Some((_, property)) => return made(Source::Slot(slot, *property), rest),
                None => names.unknown("a field of a value", field),
            }
        }
    }
    None
}

fn attribute(slot: usize, path: &Path, names: &mut Names<'_>, text: String) -> Option<Way> {
    let Some(Step::Field(name)) = path.steps.get(1) else {
        names.needed(&path.root, "the name of an attribute after `attr`", format!("`{text}`"));
        return None;
    };
    if !names.has_attribute(slot, &name.text) {
        names.unknown("an attribute of the op", name);
        return None;
    }
    let source = Source::Attribute(slot, name.text.clone());
    Some(Way { source, steps: path.steps[2..].to_vec(), text })
}

/// The facts that an expression asks for, each once; elements of lists are none.
fn ways(code: &Code, into: &mut Vec<Way>) {
    let mut add = |way: &Way| {
        if !matches!(way.source, Source::Local(_)) && !into.contains(way) {
            into.push(way.clone());
        }
    };
    match code {
        Code::Literal(_) | Code::Macs(_) | Code::Same(..) => {}
        Code::Way(way) | Code::Measure(_, way) | Code::Aligned(way, _) => add(way),
        Code::Not(inner) | Code::Negative(inner) => ways(inner, into),
        Code::OneOf(inner, _) | Code::Within(inner, ..) => ways(inner, into),
        Code::Arithmetic(_, pair) | Code::Compare(_, pair) => {
            pair.iter().for_each(|part| ways(part, into));
        }
        Code::And(parts) | Code::Or(parts) => parts.iter().for_each(|part| ways(part, into)),
        Code::Every(_, list, body) => {
            add(list);
            ways(body, into);
        }
    }
}
