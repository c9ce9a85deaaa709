//! The formats in which the values at the border of a region may come and go.

use super::{
    error::Fault,
    matcher::Match,
    names::Names,
    syntax::{FormatSet, FormatSpec, Name},
};
use crate::Region;
use bricolage_ir::{Graph, ValueId};
use bricolage_tensor::{DType, Format, Layout};
use std::collections::BTreeSet;

/// Choices of formats for one region, at most.
pub(super) const MOST_CHOICES: usize = 64;

/// Formats by the slots of values; what is not named is row-major.
#[derive(Clone, Debug, Default)]
pub(super) struct Formats {
    named: Vec<(usize, Allowed)>,
    /// Formats of values that have no name here: `_`.
    others: Option<Allowed>,
}

#[derive(Clone, Debug)]
enum Allowed {
    Any,
    SameAs(usize),
    OneOf(Vec<FormatSpec>),
}

/// Formats of all inputs and of all outputs of a region.
pub(super) type Choice = (Vec<Format>, Vec<Format>);

impl Formats {
    pub(super) fn compile(written: &[(Name, FormatSet)], names: &mut Names<'_>) -> Formats {
        let mut formats = Formats::default();
        let mut seen = BTreeSet::new();
        let follows = |name: &str| {
            written.iter().any(|(n, set)| n.text == name && matches!(set, FormatSet::SameAs(_)))
        };
        for (name, set) in written {
            if !seen.insert(name.text.as_str()) {
                names.faults.push(Fault::taken(name.at, &name.text));
                continue;
            }
            let allowed = match set {
                FormatSet::Any => Some(Allowed::Any),
                FormatSet::OneOf(all) => Some(Allowed::OneOf(all.clone())),
                FormatSet::SameAs(other) => match names.find(&other.text) {
                    None => {
                        names.unknown("the name of a value of the pattern", other);
                        None
                    }
                    Some(_) if follows(&other.text) => {
                        let needed = "a value with formats of its own";
                        names.needed(other, needed, format!("`{other}`, which follows another"));
                        None
                    }
                    Some(slot) => Some(Allowed::SameAs(slot)),
                },
            };
            if name.text == "_" {
                formats.others = allowed;
                continue;
            }
            match names.find(&name.text) {
                None => names.unknown("the name of a value of the pattern", name),
                Some(slot) if names.slots[slot].constant => {
                    let needed = "a value that is read or made at run time";
                    names.needed(name, needed, format!("the constant `{name}`"));
                }
                Some(slot) => formats.named.extend(allowed.map(|a| (slot, a))),
            }
        }
        formats
    }

    /// Every choice for a region, or what is needed that its values lack.
    pub(super) fn choices(
        &self,
        graph: &Graph,
        region: &Region,
        found: &Match,
        names: &[String],
    ) -> Result<Vec<Choice>, String> {
        let border: Vec<ValueId> = region.inputs.iter().chain(&region.outputs).copied().collect();
        let named = |v: ValueId| {
            self.named.iter().filter(move |(slot, _)| found.bindings[*slot].value == Some(v))
        };
        let mut rows: Vec<Row<'_>> = Vec::new();
        for &v in &border {
            let tensor = graph.fact(v).ty.as_tensor();
            let known = tensor.and_then(|t| Some((t.dtype, t.shape.as_fixed()?)));
            let Some((dtype, dims)) = known else {
                let value = &graph.value(v).name;
                return Err(format!(
                    "needs tensors of constant size, found `{value}` as {}",
                    graph.fact(v)
                ));
            };
            let mut allowed: Vec<&Allowed> = named(v).map(|(_, a)| a).collect();
            if allowed.is_empty() {
                allowed.extend(&self.others);
            }
            let row = Row { value: v, dtype, dims, allowed };
            if row.own().is_empty() {
                let known = &*graph.value(v).name;
                let name = named(v).next().map_or(known, |(slot, _)| names[*slot].as_str());
                return Err(format!("needs `{name}` as {}, found {}", row.wanted(), graph.fact(v)));
            }
            rows.push(row);
        }
        // Layouts that no other value decides, in all ways.
        let mut choices: Vec<Vec<Format>> = vec![Vec::new()];
        for row in &rows {
            let own = row.own();
            choices = choices
                .into_iter()
                .flat_map(|c| {
                    own.iter().map(move |f| [c.as_slice(), std::slice::from_ref(f)].concat())
                })
                .collect();
            if choices.len() > MOST_CHOICES {
                return Err(format!("has more than {MOST_CHOICES} choices of formats"));
            }
        }
        let mut all: Vec<Choice> = Vec::new();
        for mut choice in choices {
            let settled = rows.iter().enumerate().all(|(i, row)| {
                row.allowed.iter().all(|a| match a {
                    Allowed::SameAs(slot) => {
                        let leader = found.bindings[*slot].value;
                        let at = rows.iter().position(|r| Some(r.value) == leader);
                        let layout = at.map_or(Layout::Plain, |at| choice[at].layout.clone());
                        let format = Format { dtype: row.dtype, layout };
                        let fits = row.fits(&format);
                        if row.follows() {
                            choice[i] = format.clone();
                        }
                        fits && choice[i] == format
                    }
                    _ => true,
                })
            });
            let (inputs, outputs) = choice.split_at(region.inputs.len());
            let choice = (inputs.to_vec(), outputs.to_vec());
            if settled && !all.contains(&choice) {
                all.push(choice);
            }
        }
        if all.is_empty() {
            return Err("needs formats that fit each other, found none".to_owned());
        }
        Ok(all)
    }
}

/// A value at the border.
struct Row<'a> {
    value: ValueId,
    dtype: DType,
    dims: Vec<i64>,
    /// What each of its names allows.
    allowed: Vec<&'a Allowed>,
}

impl Row<'_> {
    /// Whether other values decide its format.
    fn follows(&self) -> bool {
        !self.allowed.is_empty() && self.allowed.iter().all(|a| matches!(a, Allowed::SameAs(_)))
    }

    fn fits(&self, format: &Format) -> bool {
        format.byte_len(&self.dims).is_some()
            && (format.layout == Layout::Plain || format.dtype.bits() >= 8)
    }

    /// The formats that fit it and that all its names allow, those apart that follow another value.
    fn own(&self) -> Vec<Format> {
        let of = |allowed: &Allowed| -> Option<Vec<Format>> {
            Some(match allowed {
                Allowed::SameAs(_) => return None,
                Allowed::Any => vec![Format::plain(self.dtype)],
                Allowed::OneOf(all) => {
                    let fitting = all.iter().filter(|f| f.dtype.is_none_or(|d| d == self.dtype));
                    let formats =
                        fitting.map(|f| Format { dtype: self.dtype, layout: f.layout.clone() });
                    formats.filter(|f| self.fits(f)).collect()
                }
            })
        };
        let mut sets = self.allowed.iter().filter_map(|a| of(a));
        let mut own = sets.next().unwrap_or_else(|| vec![Format::plain(self.dtype)]);
        for set in sets {
            own.retain(|f| set.contains(f));
        }
        own
    }

    fn wanted(&self) -> String {
        let one = |allowed: &&Allowed| match allowed {
            Allowed::OneOf(all) => {
                all.iter().map(FormatSpec::to_string).collect::<Vec<_>>().join(" or ")
            }
            _ => "row-major elements".to_owned(),
        };
        self.allowed.iter().map(one).collect::<Vec<_>>().join(" and ")
    }
}
