//! The values of conditions: total, without effects, in checked 64-bit integers.
//!
//! A condition is true, false, not known (a size has no number), or at fault (there is no such attribute,
//! a division by zero, numbers that do not fit, texts added). A fault is as good as false, and stays so
//! under `!`. `&&` gives the least and `||` the greatest of false, fault, not known, true.

use super::{
    constraint::{Clause, Code, Condition, Property, Source, Way},
    matcher::Binding,
    syntax::{Arithmetic, Comparison, Measure, Step},
    value::{Found, Value, arithmetic, compare, count, index, int, of_json, of_tensor},
    view::{View, op_name},
};
use crate::{Policy, Setting};
use bricolage_ir::Role;
use bricolage_tensor::{DType, Shape};
use serde_json::Value as Json;

/// Whether a condition holds; in the order in which `&&` and `||` choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Truth {
    False,
    Fault,
    Unknown,
    True,
}

impl From<bool> for Truth {
    fn from(value: bool) -> Truth {
        if value { Truth::True } else { Truth::False }
    }
}

/// What conditions are asked about.
pub(super) struct Scope<'a> {
    pub(super) view: Option<&'a View<'a>>,
    pub(super) setting: Option<Setting>,
    pub(super) bindings: &'a [Binding],
    /// Nodes of the region.
    pub(super) nodes: usize,
    /// The tensor that is converted.
    pub(super) tensor: Option<(DType, &'a Shape)>,
}

impl Scope<'_> {
    /// Whether a condition holds; if not, the first clause that does not, with the values found.
    pub(super) fn check(&self, condition: &Condition) -> Result<(), String> {
        for clause in &condition.0 {
            let mut faults = Vec::new();
            let truth = self.truth(&clause.code, &mut Vec::new(), &mut faults);
            if truth != Truth::True {
                let found = self.found(clause, truth, faults);
                return Err(format!("needs {}, found {found}", clause.text));
            }
        }
        Ok(())
    }

    /// Whether all clauses hold, as one truth.
    pub(super) fn holds(&self, condition: &Condition) -> Truth {
        let one = |c: &Clause| self.truth(&c.code, &mut Vec::new(), &mut Vec::new());
        condition.0.iter().map(one).min().unwrap_or(Truth::True)
    }

    fn found(&self, clause: &Clause, truth: Truth, faults: Vec<String>) -> String {
        let mut all: Vec<String> = Vec::new();
        for way in &clause.shown {
            if let Ok(value) = self.way(way, &[]) {
                all.push(format!("{} = {value}", way.text));
            }
        }
        for fault in faults {
            if !all.contains(&fault) {
                all.push(fault);
            }
        }
        match (all.is_empty(), truth) {
            (false, _) => all.join(", "),
            (true, Truth::Unknown) => "that it is not known".to_owned(),
            (true, _) => "that it does not hold".to_owned(),
        }
    }

    pub(super) fn truth(
        &self,
        code: &Code,
        locals: &mut Vec<Value>,
        faults: &mut Vec<String>,
    ) -> Truth {
        let result = match code {
            Code::And(parts) => {
                return parts
                    .iter()
                    .map(|p| self.truth(p, locals, faults))
                    .min()
                    .unwrap_or(Truth::True);
            }
            Code::Or(parts) => {
                return parts
                    .iter()
                    .map(|p| self.truth(p, locals, faults))
                    .max()
                    .unwrap_or(Truth::False);
            }
            Code::Not(inner) => {
                return match self.truth(inner, locals, faults) {
                    Truth::True => Truth::False,
                    Truth::False => Truth::True,
                    other => other,
                };
            }
            Code::Every(every, list, body) => match self.way(list, locals) {
                Ok(Value::List(all)) => {
                    let truths = all.into_iter().map(|value| {
                        locals.push(value);
                        let truth = self.truth(body, locals, faults);
                        locals.pop();
                        truth
                    });
                    return match every {
                        true => truths.min().unwrap_or(Truth::True),
                        false => truths.max().unwrap_or(Truth::False),
                    };
                }
                Ok(Value::Unknown(text)) => Ok(Value::Unknown(text)),
                Ok(other) => Err(format!("{other} where a list is needed")),
                Err(why) => Err(why),
            },
            Code::Measure(Measure::Has, way) => Ok(Value::Bool(self.way(way, locals).is_ok())),
            other => self.value(other, locals, faults),
        };
        match result {
            Ok(Value::Bool(value)) => value.into(),
            Ok(Value::Unknown(_)) => Truth::Unknown,
            Ok(other) => {
                faults.push(format!("{other} where a truth value is needed"));
                Truth::Fault
            }
            Err(why) => {
                faults.push(why);
                Truth::Fault
            }
        }
    }

    fn value(&self, code: &Code, locals: &mut Vec<Value>, faults: &mut Vec<String>) -> Found {
        match code {
            Code::Literal(literal) => Ok(literal.into()),
            Code::Way(way) => self.way(way, locals),
            Code::Negative(inner) => match self.value(inner, locals, faults)? {
                Value::Int(n) => int(n.checked_neg(), || format!("-({n})")),
                Value::Real(n) => Ok(Value::Real(-n)),
                Value::Unknown(text) => Ok(Value::Unknown(text)),
                other => Err(format!("{other} where a number is needed")),
            },
            Code::Arithmetic(operation, pair) => {
                let a = self.value(&pair[0], locals, faults)?;
                arithmetic(*operation, a, self.value(&pair[1], locals, faults)?)
            }
            Code::Compare(comparison, pair) => {
                let a = self.value(&pair[0], locals, faults)?;
                compare(*comparison, &a, &self.value(&pair[1], locals, faults)?)
            }
            Code::OneOf(inner, set) => {
                let value = self.value(inner, locals, faults)?;
                let mut unknown = None;
                for literal in set {
                    match compare(Comparison::Equal, &value, &literal.into())? {
                        Value::Bool(false) => {}
                        Value::Unknown(text) => unknown = Some(text),
                        other => return Ok(other),
                    }
                }
                Ok(unknown.map_or(Value::Bool(false), Value::Unknown))
            }
            Code::Within(inner, low, high) => {
                let value = self.value(inner, locals, faults)?;
                let above = compare(Comparison::AtLeast, &value, &low.into())?;
                let below = compare(Comparison::AtMost, &value, &high.into())?;
                Ok(match (above, below) {
                    (Value::Bool(a), Value::Bool(b)) => Value::Bool(a && b),
                    (Value::Bool(_), other) | (other, _) => other,
                })
            }
            Code::Measure(Measure::Product, way) => match self.way(way, locals)? {
                Value::List(all) => all.into_iter().try_fold(Value::Int(1), |product, value| {
                    arithmetic(Arithmetic::Multiply, product, value)
                }),
                Value::Unknown(text) => Ok(Value::Unknown(text)),
                other => Err(format!("{other} where a list is needed")),
            },
            Code::Measure(Measure::Length, way) => match self.way(way, locals)? {
                Value::List(all) => Ok(Value::Int(all.len() as i64)),
                Value::Unknown(text) => Ok(Value::Unknown(text)),
                other => Err(format!("{other} where a list is needed")),
            },
            Code::Aligned(way, by) => {
                let rest =
                    arithmetic(Arithmetic::Remainder, self.way(way, locals)?, Value::Int(*by))?;
                compare(Comparison::Equal, &rest, &Value::Int(0))
            }
            Code::Macs(slot) => self.macs(*slot),
            Code::Same(a, b) => {
                let value = |slot: usize| self.bindings.get(slot).and_then(|b| b.value);
                Ok(Value::Bool(value(*a) == value(*b)))
            }
            logic => match self.truth(logic, locals, faults) {
                Truth::True => Ok(Value::Bool(true)),
                Truth::False => Ok(Value::Bool(false)),
                Truth::Unknown => Ok(Value::Unknown("a condition".to_owned())),
                Truth::Fault => Err(faults.pop().unwrap_or_default()),
            },
        }
    }

    fn way(&self, way: &Way, locals: &[Value]) -> Found {
        if let Source::Attribute(slot, name) = &way.source {
            return self.attribute(*slot, name, way);
        }
        let mut value = match &way.source {
            Source::Slot(slot, property) => self.property(*slot, *property, way)?,
            Source::Held(slot) => match self.bindings.get(*slot).is_some_and(|b| b.held) {
                true => Value::Bool(true),
                false => return Err(format!("no `{}`", way.text)),
            },
            Source::Tensor(property) => {
                let (dtype, shape) = self.tensor.ok_or_else(|| format!("no `{}`", way.text))?;
                of_tensor(dtype, shape, *property).ok_or_else(|| format!("no `{}`", way.text))??
            }
            Source::Local(depth) => {
                let at = locals.len().checked_sub(depth + 1).and_then(|at| locals.get(at));
                at.ok_or_else(|| format!("no `{}`", way.text))?.clone()
            }
            Source::Known(literal) => literal.into(),
            Source::Threads => count(self.setting.map_or(1, |s| s.threads)),
            Source::Policy => Value::Text(
                match self.setting.map(|s| s.policy).unwrap_or_default() {
                    Policy::Strict => "strict",
                    Policy::Default => "default",
                    Policy::Fast => "fast",
                }
                .to_owned(),
            ),
            Source::Nodes => count(self.nodes),
            Source::Attribute(..) => return Err(format!("no `{}`", way.text)),
        };
        for step in &way.steps {
            let (Step::Index(at), Value::List(mut all)) = (step, value) else {
                return Err(format!("no `{}`", way.text));
            };
            let at = index(*at, all.len()).ok_or_else(|| format!("no `{}`", way.text))?;
            value = all.swap_remove(at);
        }
        Ok(value)
    }

    fn attribute(&self, slot: usize, name: &str, way: &Way) -> Found {
        let missing = || format!("no `{}`", way.text);
        let node = self.bindings.get(slot).and_then(|b| b.node).ok_or_else(missing)?;
        let whole = self.view.ok_or_else(missing)?.attributes(node);
        let mut json = whole.get(name).ok_or_else(missing)?;
        for step in &way.steps {
            let next = match (step, json) {
                (Step::Index(at), Json::Array(all)) => index(*at, all.len()).map(|at| &all[at]),
                (Step::Field(field), Json::Object(named)) => named.get(&field.text).or_else(|| {
                    // The parameters of a choice lie under its name.
                    named.values().next().and_then(|inner| inner.get(&field.text))
                }),
                _ => None,
            };
            json = next.ok_or_else(missing)?;
        }
        of_json(json).ok_or_else(missing)
    }

    fn property(&self, slot: usize, property: Property, way: &Way) -> Found {
        let missing = || format!("no `{}`", way.text);
        let binding = self.bindings.get(slot).ok_or_else(missing)?;
        let (Some(id), Some(view)) = (binding.value, self.view) else { return Err(missing()) };
        let graph = view.graph;
        let value = graph.value(id);
        if let Some(tensor) = value.fact.ty.as_tensor()
            && let Some(found) = of_tensor(tensor.dtype, &tensor.shape, property)
        {
            return found;
        }
        let node = || binding.node.or_else(|| graph.producer(id)).ok_or_else(missing);
        Ok(match property {
            Property::IsConst => Value::Bool(matches!(value.role, Role::Constant(_))),
            Property::IsInput => Value::Bool(view.is_given(id)),
            Property::IsOutput => Value::Bool(graph.is_output(id)),
            Property::Uses => count(graph.uses(id).len()),
            Property::Op => Value::Text(op_name(&graph.node(node()?).op)),
            Property::Operands => count(graph.node(node()?).inputs.iter().flatten().count()),
            Property::Output => count(value.producer.ok_or_else(missing)?.1),
            // What is no tensor has no dims.
            _ => return Err(missing()),
        })
    }

    fn macs(&self, slot: usize) -> Found {
        let node = self.bindings.get(slot).and_then(|b| b.node);
        let (Some(node), Some(view)) = (node, self.view) else {
            return Err("no node where `mac` needs one".to_owned());
        };
        let found = view.graph.node(node);
        let (inputs, outputs) = (view.graph.facts(&found.inputs), view.graph.output_facts(node));
        match found.op.work(&inputs, &outputs) {
            Some(work) => int(i64::try_from(work.macs).ok(), || "multiply-adds".to_owned()),
            None => Ok(Value::Unknown("multiply-adds".to_owned())),
        }
    }
}
