//! Names that conditions may use: what stands for a value, and what may be asked of it.

use super::{
    constraint::Condition,
    error::Fault,
    syntax::{Literal, Name},
    view::{OpSet, all_attributes},
};
use std::{cell::OnceCell, collections::BTreeSet};

/// Names that bindings cannot have.
pub(super) const RESERVED: &[&str] =
    &["plan", "dev", "region", "exit", "node", "t", "true", "false"];

/// What a library brings that a file may name.
#[derive(Clone, Debug, Default)]
pub struct Library {
    /// Names of its entries.
    pub entries: Vec<String>,
    /// Facts about the machine by name, for `dev.NAME`.
    pub machine: Vec<(String, Literal)>,
    /// Its version.
    pub version: String,
}

/// A name that stands for a value in a match.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) name: String,
    /// Attributes that its node may have; `None` for those of any op.
    attributes: Option<BTreeSet<String>>,
    /// Whether only constants fit.
    pub(super) constant: bool,
}

/// The names of one pattern, and the faults found on the way.
pub(super) struct Names<'a> {
    pub(super) library: &'a Library,
    pub(super) slots: Vec<Slot>,
    pub(super) faults: Vec<Fault>,
    /// Whether the tensor `t` of a conversion is there, instead of values.
    pub(super) tensor: bool,
    /// Names of elements of lists, innermost last.
    pub(super) locals: Vec<String>,
    /// Parts of the pattern so far.
    pub(super) parts: usize,
    /// Those of every `let` that was put in.
    pub(super) conditions: Vec<Condition>,
    /// Those of all ops.
    attributes: OnceCell<BTreeSet<String>>,
}

impl<'a> Names<'a> {
    pub(super) fn new(library: &'a Library) -> Names<'a> {
        Names {
            library,
            slots: Vec::new(),
            faults: Vec::new(),
            tensor: false,
            locals: Vec::new(),
            parts: 0,
            conditions: Vec::new(),
            attributes: OnceCell::new(),
        }
    }

    pub(super) fn unknown(&mut self, what: &'static str, name: &Name) {
        self.faults.push(Fault::unknown(name.at, what, &name.text));
    }

    pub(super) fn needed(&mut self, at: &Name, needed: &str, found: String) {
        self.faults.push(Fault::needed(at.at, needed, found));
    }

    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.slots.iter().position(|s| s.name == name)
    }

    /// The slot of a name, with what its node may be; `None` for ops that are not known.
    pub(super) fn add(&mut self, name: &str, ops: Option<&[OpSet]>, constant: bool) -> usize {
        let mut attributes = ops.map(|_| BTreeSet::new());
        for op in ops.unwrap_or_default() {
            attributes = match (attributes, op.attributes()) {
                (Some(a), Some(b)) => Some(&a | &b),
                _ => None,
            };
        }
        match self.find(name) {
            Some(slot) => {
                let old = &mut self.slots[slot];
                old.attributes = match (&old.attributes, &attributes) {
                    (Some(a), Some(b)) => Some(a | b),
                    _ => None,
                };
                old.constant &= constant;
                slot
            }
            None => {
                self.slots.push(Slot { name: name.to_owned(), attributes, constant });
                self.slots.len() - 1
            }
        }
    }

    /// Lets nothing that follows name a slot.
    pub(super) fn forget(&mut self, name: &str) {
        self.slots.iter_mut().filter(|s| s.name == name).for_each(|s| s.name.clear());
    }

    pub(super) fn has_attribute(&self, slot: usize, name: &str) -> bool {
        self.is_among(self.slots[slot].attributes.as_ref(), name)
    }

    /// Whether any of the ops has the attribute.
    pub(super) fn is_attribute_of(&self, ops: &[OpSet], name: &str) -> bool {
        ops.iter().any(|op| self.is_among(op.attributes().as_ref(), name))
    }

    fn is_among(&self, attributes: Option<&BTreeSet<String>>, name: &str) -> bool {
        attributes.unwrap_or_else(|| self.attributes.get_or_init(all_attributes)).contains(name)
    }
}
