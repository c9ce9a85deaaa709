//! The typed graph: values and nodes in arenas, every node with its origin in the user's model.

use crate::{Fact, Op, TypeError};
use bricolage_tensor::{Dim, Ranges, Symbol, Tensor, Type};
use serde::{Deserialize, Serialize};
use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, HashMap, HashSet},
    fmt::Write,
    sync::Arc,
};

/// A node of one graph; never reused after the node is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeId(pub u32);

/// A value of one graph; never reused after the value is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ValueId(pub u32);

/// Names of the nodes in the user's model that a node stands for.
pub type Origin = Arc<[Arc<str>]>;

/// The origin with one name.
pub fn origin(name: &str) -> Origin {
    Arc::from([Arc::from(name)])
}

/// Where a value comes from and how long it lives.
#[derive(Clone, Debug, PartialEq)]
pub enum Role {
    /// Given anew for every run.
    Input,
    /// Never changes.
    Constant(Tensor),
    /// Survives from run to run, starting with this content.
    State(Tensor),
    /// Computed by a node.
    Activation,
}

/// Names and contents of constants.
type Lifted = Vec<(Arc<str>, Tensor)>;

/// What a graph computes with.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// Unique within the graph.
    pub name: Arc<str>,
    /// Type and known elements.
    pub fact: Fact,
    /// Where it comes from.
    pub role: Role,
    /// The node that computes it, and as which of its outputs.
    pub producer: Option<(NodeId, usize)>,
}

/// One use of an op.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// What is computed.
    pub op: Op,
    /// Operands; `None` for an optional one that is absent.
    pub inputs: Vec<Option<ValueId>>,
    /// Results.
    pub outputs: Vec<ValueId>,
    /// Never empty.
    pub origin: Origin,
    /// Pairs (output, input) that must share memory: an update in place.
    pub aliases: Vec<(usize, usize)>,
    /// Nodes that must have run before, besides the producers of the inputs.
    pub after: Vec<NodeId>,
}

/// One operand position that reads a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Use {
    /// The reader.
    pub node: NodeId,
    /// Which of its operands.
    pub operand: usize,
}

/// Values that cross the border of a set of nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Boundary {
    /// Read but not computed inside, constants excluded, in the order of first use.
    pub inputs: Vec<ValueId>,
    /// Constants read inside, in the order of first use.
    pub constants: Vec<ValueId>,
    /// Computed inside and read outside, or an output of the graph.
    pub outputs: Vec<ValueId>,
}

/// A program: nodes over values, with the values that come in and go out.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// Name of the model.
    pub name: String,
    /// Values given for every run, in order; made by [`Graph::input`].
    pub inputs: Vec<ValueId>,
    /// Values returned by every run, in order.
    pub outputs: Vec<ValueId>,
    /// Known intervals of symbols.
    pub ranges: Ranges,
    nodes: Vec<Option<Node>>,
    values: Vec<Option<Value>>,
    uses: Vec<Vec<Use>>,
    names: HashMap<Arc<str>, ValueId>,
    control_edges: usize,
}

impl Graph {
    /// An empty graph.
    pub fn new(name: impl Into<String>) -> Graph {
        Graph { name: name.into(), ..Graph::default() }
    }

    /// Adds a value given for every run.
    pub fn input(&mut self, name: &str, ty: impl Into<Type>) -> ValueId {
        let id = self.add_value(name, Fact::from(ty.into()), Role::Input, None);
        self.inputs.push(id);
        id
    }

    /// Adds a value that never changes.
    pub fn constant(&mut self, name: &str, tensor: Tensor) -> ValueId {
        self.add_value(name, Fact::of(&tensor), Role::Constant(tensor), None)
    }

    /// Adds a value that survives from run to run, starting with `tensor`.
    pub fn state(&mut self, name: &str, tensor: Tensor) -> ValueId {
        let fact = Fact::from(tensor.ty());
        self.add_value(name, fact, Role::State(tensor), None)
    }

    /// Adds a node and its outputs, named after the origin, typed by inference.
    pub fn add<V: Copy + Into<Option<ValueId>>>(
        &mut self,
        op: impl Into<Op>,
        inputs: &[V],
        origin: Origin,
    ) -> Result<Vec<ValueId>, TypeError> {
        let inputs: Vec<Option<ValueId>> = inputs.iter().map(|&v| v.into()).collect();
        self.insert(op.into(), inputs, origin, &[])
    }

    /// [`Graph::add`] with names for the outputs; a name in use gets a suffix.
    pub fn add_named<V: Copy + Into<Option<ValueId>>>(
        &mut self,
        op: impl Into<Op>,
        inputs: &[V],
        origin: Origin,
        names: &[Arc<str>],
    ) -> Result<Vec<ValueId>, TypeError> {
        let inputs: Vec<Option<ValueId>> = inputs.iter().map(|&v| v.into()).collect();
        self.insert(op.into(), inputs, origin, names)
    }

    fn insert(
        &mut self,
        op: Op,
        inputs: Vec<Option<ValueId>>,
        origin: Origin,
        names: &[Arc<str>],
    ) -> Result<Vec<ValueId>, TypeError> {
        let facts = op.infer(&self.facts(&inputs))?;
        let id = NodeId(self.nodes.len() as u32);
        let base: Arc<str> = origin.last().cloned().unwrap_or_else(|| Arc::from(op.kind().name()));
        let mut outputs = Vec::with_capacity(facts.len());
        for (i, fact) in facts.into_iter().enumerate() {
            let name = names.get(i).unwrap_or(&base);
            outputs.push(self.add_value(name, fact, Role::Activation, Some((id, i))));
        }
        for (operand, value) in inputs.iter().enumerate() {
            if let Some(value) = value {
                self.uses[value.0 as usize].push(Use { node: id, operand });
            }
        }
        let aliases = Vec::new();
        let after = Vec::new();
        let node = Node { op, inputs, outputs: outputs.clone(), origin, aliases, after };
        self.nodes.push(Some(node));
        Ok(outputs)
    }

    /// [`Graph::add`] for an op with one output, or for the first of several.
    pub fn add1<V: Copy + Into<Option<ValueId>>>(
        &mut self,
        op: impl Into<Op>,
        inputs: &[V],
        origin: Origin,
    ) -> Result<ValueId, TypeError> {
        self.add(op, inputs, origin).map(|outputs| outputs[0])
    }

    fn add_value(
        &mut self,
        name: &str,
        fact: Fact,
        role: Role,
        producer: Option<(NodeId, usize)>,
    ) -> ValueId {
        let id = ValueId(self.values.len() as u32);
        let name = self.free_name(name, id);
        self.names.insert(name.clone(), id);
        self.values.push(Some(Value { name, fact, role, producer }));
        self.uses.push(Vec::new());
        id
    }

    fn free_name(&self, name: &str, id: ValueId) -> Arc<str> {
        if !name.is_empty() && !self.names.contains_key(name) {
            return Arc::from(name);
        }
        let mut candidate = format!("{name}.{}", id.0);
        while self.names.contains_key(candidate.as_str()) {
            candidate.push('_');
        }
        Arc::from(candidate)
    }

    /// The node. Panics when it was removed.
    pub fn node(&self, id: NodeId) -> &Node {
        self.get_node(id).expect("the caller holds a node that was not removed")
    }

    /// The value. Panics when it was removed.
    pub fn value(&self, id: ValueId) -> &Value {
        self.get_value(id).expect("the caller holds a value that was not removed")
    }

    /// The node, unless it was removed or never existed.
    pub fn get_node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.0 as usize)?.as_ref()
    }

    /// The value, unless it was removed or never existed.
    pub fn get_value(&self, id: ValueId) -> Option<&Value> {
        self.values.get(id.0 as usize)?.as_ref()
    }

    /// The value of this name.
    pub fn find(&self, name: &str) -> Option<ValueId> {
        self.names.get(name).copied()
    }

    /// What is known about the value.
    pub fn fact(&self, id: ValueId) -> &Fact {
        &self.value(id).fact
    }

    /// The node that computes the value.
    pub fn producer(&self, id: ValueId) -> Option<NodeId> {
        self.value(id).producer.map(|(node, _)| node)
    }

    /// The content, if the value is a constant.
    pub fn constant_of(&self, id: ValueId) -> Option<&Tensor> {
        match &self.value(id).role {
            Role::Constant(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// Where the value is read; being an output of the graph is not a use.
    pub fn uses(&self, id: ValueId) -> &[Use] {
        &self.uses[id.0 as usize]
    }

    /// Whether the value is an output of the graph.
    pub fn is_output(&self, id: ValueId) -> bool {
        self.outputs.contains(&id)
    }

    /// All nodes, in the order of insertion.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        (0..self.nodes.len() as u32).map(NodeId).filter(|&id| self.get_node(id).is_some())
    }

    /// All values, in the order of insertion.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = ValueId> + '_ {
        (0..self.values.len() as u32).map(ValueId).filter(|&id| self.get_value(id).is_some())
    }

    /// What is known about operands.
    pub fn facts(&self, values: &[Option<ValueId>]) -> Vec<Option<&Fact>> {
        values.iter().map(|v| v.map(|v| self.fact(v))).collect()
    }

    /// What is known about the node's outputs.
    pub fn output_facts(&self, node: NodeId) -> Vec<Fact> {
        self.node(node).outputs.iter().map(|&v| self.fact(v).clone()).collect()
    }

    fn output_names(&self, node: NodeId) -> Vec<Arc<str>> {
        self.node(node).outputs.iter().map(|&v| self.value(v).name.clone()).collect()
    }

    /// Every node after those that it depends on, by insertion where there is a choice. Nodes on
    /// a cycle are left out; the verifier reports them.
    pub fn order(&self) -> Vec<NodeId> {
        let mut waits = vec![0usize; self.nodes.len()];
        let mut readers: Vec<Vec<NodeId>> = vec![Vec::new(); self.nodes.len()];
        for id in self.nodes() {
            let node = self.node(id);
            let producers =
                node.inputs.iter().flatten().filter_map(|&v| self.get_value(v)?.producer);
            let before = producers.map(|(n, _)| n).chain(node.after.iter().copied());
            for earlier in before.filter(|&n| self.get_node(n).is_some()) {
                waits[id.0 as usize] += 1;
                readers[earlier.0 as usize].push(id);
            }
        }
        let free = self.nodes().filter(|n| waits[n.0 as usize] == 0).map(Reverse);
        let mut ready: BinaryHeap<Reverse<NodeId>> = free.collect();
        let mut order = Vec::new();
        while let Some(Reverse(id)) = ready.pop() {
            order.push(id);
            for &reader in &readers[id.0 as usize] {
                waits[reader.0 as usize] -= 1;
                if waits[reader.0 as usize] == 0 {
                    ready.push(Reverse(reader));
                }
            }
        }
        order
    }

    /// Makes every reader of `old`, and the outputs of the graph, read `new` instead.
    pub fn replace_uses(&mut self, old: ValueId, new: ValueId) {
        if old == new {
            return;
        }
        let moved = std::mem::take(&mut self.uses[old.0 as usize]);
        for u in &moved {
            let node = self.nodes[u.node.0 as usize].as_mut();
            node.expect("use lists name live nodes").inputs[u.operand] = Some(new);
        }
        self.uses[new.0 as usize].extend(moved);
        for output in self.outputs.iter_mut().filter(|o| **o == old) {
            *output = new;
        }
    }

    /// Infers again what follows from `value`, of which more or less is known than its readers were told.
    pub fn infer_after(&mut self, value: ValueId) -> Result<(), TypeError> {
        let mut open = vec![value];
        while let Some(value) = open.pop() {
            let readers: HashSet<NodeId> = self.uses(value).iter().map(|u| u.node).collect();
            for id in readers {
                let node = self.node(id);
                let facts = node.op.infer(&self.facts(&node.inputs))?;
                let outputs = node.outputs.clone();
                for (fact, output) in facts.into_iter().zip(outputs) {
                    let value = self.values[output.0 as usize].as_mut();
                    let value = value.expect("a live node's outputs live");
                    if value.fact != fact {
                        value.fact = fact;
                        open.push(output);
                    }
                }
            }
        }
        Ok(())
    }

    /// Makes one operand of a node read `value`.
    pub fn set_input(&mut self, at: Use, value: Option<ValueId>) {
        let node = self.nodes[at.node.0 as usize].as_mut();
        let old = &mut node.expect("the caller holds a live node").inputs[at.operand];
        if let Some(old) = std::mem::replace(old, value) {
            self.uses[old.0 as usize].retain(|u| *u != at);
        }
        if let Some(value) = value {
            self.uses[value.0 as usize].push(at);
        }
    }

    /// Makes `node` wait for `earlier`.
    pub fn add_control_edge(&mut self, earlier: NodeId, node: NodeId) {
        let node = self.nodes[node.0 as usize].as_mut();
        let after = &mut node.expect("the caller holds a live node").after;
        if !after.contains(&earlier) {
            after.push(earlier);
            self.control_edges += 1;
        }
    }

    /// Makes an output of the node share the memory of one of its inputs.
    pub fn add_alias(&mut self, node: NodeId, output: usize, input: usize) {
        let node = self.nodes[node.0 as usize].as_mut();
        node.expect("the caller holds a live node").aliases.push((output, input));
    }

    /// Replaces the origin of a node.
    pub fn set_origin(&mut self, node: NodeId, origin: Origin) {
        let node = self.nodes[node.0 as usize].as_mut();
        node.expect("the caller holds a live node").origin = origin;
    }

    /// Removes a node and its outputs. Panics when an output is still used.
    pub fn remove_node(&mut self, id: NodeId) {
        let node = self.nodes[id.0 as usize].take().expect("the caller holds a live node");
        for &output in &node.outputs {
            let used = !self.uses(output).is_empty() || self.is_output(output);
            assert!(!used, "output `{}` of a removed node is still used", self.value(output).name);
            self.drop_value(output);
        }
        for (operand, value) in node.inputs.iter().enumerate() {
            if let Some(value) = value {
                self.uses[value.0 as usize].retain(|u| *u != Use { node: id, operand });
            }
        }
        self.control_edges -= node.after.len();
        if self.control_edges > 0 {
            for other in self.nodes.iter_mut().flatten() {
                let before = other.after.len();
                other.after.retain(|&n| n != id);
                self.control_edges -= before - other.after.len();
            }
        }
    }

    fn drop_value(&mut self, id: ValueId) {
        if let Some(value) = self.values[id.0 as usize].take() {
            self.names.remove(&value.name);
        }
    }

    /// Removes nodes that no output depends on, then constants that nothing reads. Nodes that
    /// update a state in place are kept. Returns how many nodes went.
    pub fn remove_dead(&mut self) -> usize {
        let mut live: HashSet<NodeId> = HashSet::new();
        let mut todo: Vec<NodeId> = Vec::new();
        todo.extend(self.outputs.iter().filter_map(|&v| self.producer(v)));
        todo.extend(self.nodes().filter(|&n| !self.node(n).aliases.is_empty()));
        while let Some(id) = todo.pop() {
            if live.insert(id) {
                let node = self.node(id);
                todo.extend(node.inputs.iter().flatten().filter_map(|&v| self.producer(v)));
                todo.extend(&node.after);
            }
        }
        let dead: Vec<NodeId> =
            self.order().into_iter().rev().filter(|n| !live.contains(n)).collect();
        for &id in &dead {
            self.remove_node(id);
        }
        let outputs: HashSet<ValueId> = self.outputs.iter().copied().collect();
        let unread: Vec<ValueId> = self
            .values()
            .filter(|&v| matches!(self.value(v).role, Role::Constant(_)))
            .filter(|&v| self.uses(v).is_empty() && !outputs.contains(&v))
            .collect();
        for id in unread {
            self.drop_value(id);
        }
        dead.len()
    }

    /// Removes what only `value` needs, if nothing reads it: its node, then what that alone reads. What
    /// was dead before stays.
    pub fn remove_unread(&mut self, value: ValueId) {
        let mut todo = vec![value];
        while let Some(value) = todo.pop() {
            let free = |v: ValueId| self.uses(v).is_empty() && !self.is_output(v);
            let Some(found) = self.get_value(value).filter(|_| free(value)) else { continue };
            let Some((id, _)) = found.producer else {
                if matches!(found.role, Role::Constant(_)) {
                    self.drop_value(value);
                }
                continue;
            };
            let node = self.node(id);
            let awaited = self.control_edges > 0
                && self.nodes.iter().flatten().any(|other| other.after.contains(&id));
            if node.aliases.is_empty() && !awaited && node.outputs.iter().all(|&v| free(v)) {
                todo.extend(node.inputs.iter().flatten());
                self.remove_node(id);
            }
        }
    }

    /// Names a value; a name in use gets a suffix. Returns the name given.
    pub fn rename(&mut self, id: ValueId, name: &str) -> Arc<str> {
        if &*self.value(id).name == name {
            return self.value(id).name.clone();
        }
        let name = self.free_name(name, id);
        let value = self.values[id.0 as usize].as_mut().expect("the caller holds a live value");
        self.names.remove(&value.name);
        value.name = name.clone();
        self.names.insert(name.clone(), id);
        name
    }

    /// The graph with symbols replaced where `value` knows them, all types inferred anew. Ids
    /// are those of a fresh graph; names stay.
    pub fn bind(&self, value: &dyn Fn(&Symbol) -> Option<Dim>) -> Result<Graph, TypeError> {
        self.rebuild(value, usize::MAX).map(|(graph, _)| graph)
    }

    /// The graph with every constant of more than `most` elements as a further input, and these
    /// constants in the order of their inputs, with their names.
    pub fn lift(&self, most: usize) -> Result<(Graph, Lifted), TypeError> {
        self.rebuild(&|_| None, most)
    }

    fn rebuild(
        &self,
        value: &dyn Fn(&Symbol) -> Option<Dim>,
        most: usize,
    ) -> Result<(Graph, Lifted), TypeError> {
        let (mut lifted, mut lifted_inputs) = (Vec::new(), Vec::new());
        let mut to = Graph::new(self.name.clone());
        let known = |s: &Symbol| value(s).is_some();
        to.ranges.0 = self.ranges.0.clone().into_iter().filter(|(s, _)| !known(s)).collect();
        let mut map: HashMap<ValueId, ValueId> = HashMap::new();
        for id in self.values() {
            let v = self.value(id);
            let new = match &v.role {
                Role::Input => {
                    let fact = Fact::from(bind_type(&v.fact.ty, value));
                    to.add_value(&v.name, fact, Role::Input, None)
                }
                Role::Constant(t) if t.len() > most => {
                    lifted.push((v.name.clone(), t.clone()));
                    let new = to.add_value(&v.name, Fact::from(t.ty()), Role::Input, None);
                    lifted_inputs.push(new);
                    new
                }
                Role::Constant(t) => to.constant(&v.name, t.clone()),
                Role::State(t) => to.state(&v.name, t.clone()),
                Role::Activation => continue,
            };
            map.insert(id, new);
        }
        to.inputs = self.inputs.iter().filter_map(|v| map.get(v).copied()).collect();
        to.inputs.extend(lifted_inputs);
        let mut nodes: HashMap<NodeId, NodeId> = HashMap::new();
        for id in self.order() {
            let node = self.node(id);
            let inputs: Vec<Option<ValueId>> =
                node.inputs.iter().map(|v| v.and_then(|v| map.get(&v).copied())).collect();
            let new = NodeId(to.nodes.len() as u32);
            let outputs = to.insert(
                node.op.bind(value),
                inputs,
                node.origin.clone(),
                &self.output_names(id),
            )?;
            map.extend(node.outputs.iter().copied().zip(outputs));
            for &(output, input) in &node.aliases {
                to.add_alias(new, output, input);
            }
            for earlier in node.after.iter().filter_map(|n| nodes.get(n)) {
                to.add_control_edge(*earlier, new);
            }
            nodes.insert(id, new);
        }
        to.outputs = self.outputs.iter().filter_map(|v| map.get(v).copied()).collect();
        Ok((to, lifted))
    }

    /// Every symbol in the types of inputs, sorted.
    pub fn symbols(&self) -> BTreeSet<Symbol> {
        let mut all = Vec::new();
        for &input in &self.inputs {
            self.fact(input).ty.symbols(&mut all);
        }
        all.into_iter().collect()
    }

    /// The values that cross the border of `nodes`.
    pub fn boundary(&self, nodes: &[NodeId]) -> Boundary {
        let inside: HashSet<NodeId> = nodes.iter().copied().collect();
        let mut boundary = Boundary::default();
        let mut seen = HashSet::new();
        for &id in nodes {
            for &value in self.node(id).inputs.iter().flatten() {
                let from_inside = self.producer(value).is_some_and(|p| inside.contains(&p));
                if !from_inside && seen.insert(value) {
                    match self.value(value).role {
                        Role::Constant(_) => boundary.constants.push(value),
                        _ => boundary.inputs.push(value),
                    }
                }
            }
        }
        for &value in nodes.iter().flat_map(|&n| &self.node(n).outputs) {
            let read = self.uses(value).iter().any(|u| !inside.contains(&u.node));
            if read || self.is_output(value) {
                boundary.outputs.push(value);
            }
        }
        boundary
    }

    /// The nodes as a graph of their own, in the order given, which must respect dependencies.
    /// Inputs and outputs are those of [`Graph::boundary`], in its order; names stay.
    pub fn extract(&self, nodes: &[NodeId]) -> Result<Graph, TypeError> {
        let boundary = self.boundary(nodes);
        let mut to = Graph::new(self.name.clone());
        to.ranges = self.ranges.clone();
        let mut map: HashMap<ValueId, ValueId> = HashMap::new();
        for &id in &boundary.inputs {
            let v = self.value(id);
            let new = match &v.role {
                Role::State(t) => to.state(&v.name, t.clone()),
                _ => {
                    // Sizes computed outside stay known inside.
                    let new = to.add_value(&v.name, v.fact.clone(), Role::Input, None);
                    to.inputs.push(new);
                    new
                }
            };
            map.insert(id, new);
        }
        for &id in &boundary.constants {
            let v = self.value(id);
            if let Role::Constant(t) = &v.role {
                map.insert(id, to.constant(&v.name, t.clone()));
            }
        }
        let mut ids: HashMap<NodeId, NodeId> = HashMap::new();
        for &id in nodes {
            let node = self.node(id);
            let inputs: Vec<Option<ValueId>> =
                node.inputs.iter().map(|v| v.and_then(|v| map.get(&v).copied())).collect();
            let new = NodeId(to.nodes.len() as u32);
            let outputs =
                to.insert(node.op.clone(), inputs, node.origin.clone(), &self.output_names(id))?;
            map.extend(node.outputs.iter().copied().zip(outputs));
            for &(output, input) in &node.aliases {
                to.add_alias(new, output, input);
            }
            for earlier in node.after.iter().filter_map(|n| ids.get(n)) {
                to.add_control_edge(*earlier, new);
            }
            ids.insert(id, new);
        }
        to.outputs = boundary.outputs.iter().filter_map(|v| map.get(v).copied()).collect();
        Ok(to)
    }

    /// A text that is equal for two sets of nodes of the same structure in the same order: ops
    /// with all attributes, types, roles and known sizes; values are numbered by first appearance,
    /// and constants count by type alone.
    pub fn canonical(&self, nodes: &[NodeId]) -> String {
        let mut text = String::new();
        let mut numbers: HashMap<ValueId, usize> = HashMap::new();
        let place: HashMap<NodeId, usize> =
            nodes.iter().enumerate().map(|(i, &n)| (n, i)).collect();
        for &id in nodes {
            let node = self.node(id);
            text.push_str(&node.op.to_string());
            for value in &node.inputs {
                match value {
                    None => text.push_str(" _"),
                    Some(v) => self.number(*v, &mut numbers, &mut text),
                }
            }
            text.push_str(" ->");
            for &v in &node.outputs {
                self.number(v, &mut numbers, &mut text);
            }
            for (output, input) in &node.aliases {
                let _ = write!(text, " alias {output} {input}");
            }
            let mut after: Vec<usize> =
                node.after.iter().filter_map(|n| place.get(n).copied()).collect();
            after.sort_unstable();
            for earlier in after {
                let _ = write!(text, " after {earlier}");
            }
            text.push('\n');
        }
        text.push_str("outputs");
        for v in self.boundary(nodes).outputs {
            self.number(v, &mut numbers, &mut text);
        }
        text
    }

    fn number(&self, v: ValueId, numbers: &mut HashMap<ValueId, usize>, text: &mut String) {
        let next = numbers.len();
        // Writing to a string cannot fail.
        if let Some(n) = numbers.get(&v) {
            let _ = write!(text, " %{n}");
            return;
        }
        numbers.insert(v, next);
        let value = self.value(v);
        let role = match value.role {
            Role::Constant(_) => "constant ",
            Role::State(_) => "state ",
            Role::Input | Role::Activation => "",
        };
        let _ = write!(text, " %{next}: {role}{}", value.fact.ty);
        if let (Some(known), "") = (&value.fact.known, role) {
            text.push_str(" = [");
            for k in known {
                let _ = match k {
                    Some(k) => write!(text, "{k}, "),
                    None => write!(text, "?, "),
                };
            }
            text.push(']');
        }
    }
}

/// The type with symbols replaced where `value` knows them.
pub(crate) fn bind_type(ty: &Type, value: &dyn Fn(&Symbol) -> Option<Dim>) -> Type {
    match ty {
        Type::Tensor(t) => {
            let mut t = t.clone();
            for dim in t.shape.iter_mut() {
                *dim = dim.substitute(value);
            }
            Type::Tensor(t)
        }
        Type::Strings(shape) => {
            Type::Strings(shape.iter().map(|dim| dim.substitute(value)).collect())
        }
        // Sizes inside are numbers, or stand for another one in each element.
        other => other.clone(),
    }
}
