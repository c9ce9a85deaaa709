//! What an entry is told of a match.

use super::matcher::Binding;
use bricolage_ir::{NodeId, ValueId};

/// What the names of a pattern stand for in one region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bindings {
    named: Vec<(String, Binding)>,
}

impl Bindings {
    /// Names with what each stands for.
    pub(super) fn new(names: &[String], found: Vec<Binding>) -> Bindings {
        Bindings { named: names.iter().cloned().zip(found).collect() }
    }

    /// The value of this name; of a node that was passed by, the value of its first operand.
    pub fn value(&self, name: &str) -> Option<ValueId> {
        self.find(name)?.value
    }

    /// The node of this name, if the region holds it.
    pub fn node(&self, name: &str) -> Option<NodeId> {
        self.find(name)?.node
    }

    /// Whether the name stands for something: not for a missing operand or a node that was passed by.
    pub fn has(&self, name: &str) -> bool {
        self.find(name).is_some_and(|b| b.held)
    }

    /// All names, in the order in which they stand in the file, with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Option<ValueId>)> {
        self.named.iter().map(|(name, b)| (name.as_str(), b.value))
    }

    fn find(&self, name: &str) -> Option<Binding> {
        self.named.iter().find(|(n, _)| n == name).map(|(_, b)| *b)
    }
}
