//! Changes as values: what a rule wants to add, and which values it replaces.

use bricolage_ir::{Graph, NodeId, Op, Origin, Role, TypeError, ValueId};
use bricolage_tensor::Tensor;
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// An operand of a new node, or a replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A value of the graph.
    Value(ValueId),
    /// A constant of the patch.
    Constant(usize),
    /// The first output of a node of the patch.
    New(usize),
}

impl From<ValueId> for Source {
    fn from(value: ValueId) -> Source {
        Source::Value(value)
    }
}

#[derive(Debug)]
struct NewNode {
    op: Op,
    inputs: Vec<Option<Source>>,
}

/// Constants and nodes to add, and values to replace by them.
#[derive(Debug, Default)]
pub struct Patch {
    constants: Vec<(String, Tensor)>,
    nodes: Vec<NewNode>,
    replaced: Vec<(ValueId, Source)>,
    stands_for: Vec<NodeId>,
}

/// Why a patch cannot be applied: always a bug in a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RewriteError {
    /// A replacement has another type.
    #[error("rule `{rule}` changes the type of `{value}` from {before} to {after}")]
    MeaningChanged {
        /// Name of the rule.
        rule: &'static str,
        /// Name of the value.
        value: String,
        /// Its type.
        before: String,
        /// The type of its replacement.
        after: String,
    },
    /// A new node is not well typed.
    #[error("rule `{rule}` makes a node that is not well typed: {error}")]
    Type {
        /// Name of the rule.
        rule: &'static str,
        /// Why.
        error: TypeError,
    },
    /// The graph breaks a promise after the rewrites.
    #[error("the graph is not sound after `{rule}`: {fault}")]
    Unsound {
        /// Name of the last rule that was applied.
        rule: &'static str,
        /// The first fault.
        fault: String,
    },
    /// Rules go on replacing each other's work.
    #[error("rules have no end: `{rule}` was still applied after {rounds} rounds")]
    Endless {
        /// Name of the last rule that was applied.
        rule: &'static str,
        /// Rounds over the graph.
        rounds: usize,
    },
}

impl Patch {
    /// A patch in which `op` of `x` takes the place of the node `at`, which computes `output`.
    pub fn in_place_of(at: NodeId, output: ValueId, op: impl Into<Op>, x: ValueId) -> Patch {
        let mut patch = Patch::of(&[at]);
        let new = patch.add(op, &[x.into()]);
        patch.replace(output, new);
        patch
    }

    /// A patch whose new nodes stand for these nodes and keep their origins.
    pub fn of(nodes: &[NodeId]) -> Patch {
        Patch { stands_for: nodes.to_vec(), ..Patch::default() }
    }

    /// A patch that replaces `old` by a value that exists.
    pub fn forward(node: NodeId, old: ValueId, by: ValueId) -> Patch {
        let mut patch = Patch::of(&[node]);
        patch.replace(old, by);
        patch
    }

    /// Adds a constant.
    pub fn constant(&mut self, name: impl Into<String>, tensor: Tensor) -> Source {
        self.constants.push((name.into(), tensor));
        Source::Constant(self.constants.len() - 1)
    }

    /// Adds a node, and gives its first output.
    pub fn add(&mut self, op: impl Into<Op>, inputs: &[Source]) -> Source {
        self.add_optional(op, &inputs.iter().map(|&s| Some(s)).collect::<Vec<_>>())
    }

    /// [`Patch::add`] with operands that may be absent.
    pub fn add_optional(&mut self, op: impl Into<Op>, inputs: &[Option<Source>]) -> Source {
        self.nodes.push(NewNode { op: op.into(), inputs: inputs.to_vec() });
        Source::New(self.nodes.len() - 1)
    }

    /// Has every reader of `old` read `by` instead.
    pub fn replace(&mut self, old: ValueId, by: impl Into<Source>) {
        self.replaced.push((old, by.into()));
    }

    /// Whether an output of the graph would lose its own name: it is replaced by an input, a
    /// constant of the graph or another output.
    pub(crate) fn takes_a_name(&self, graph: &Graph) -> bool {
        self.replaced.iter().any(|&(old, by)| match by {
            Source::Value(v) => {
                graph.is_output(old)
                    && (graph.value(v).role != Role::Activation || graph.is_output(v))
            }
            _ => false,
        })
    }

    /// Adds the constants and the nodes of the patch to `to`, where `value` stands for a value of the
    /// graph that it was made for. The values that take the replaced ones' places, in order.
    fn build(
        &self,
        to: &mut Graph,
        origin: &Origin,
        value: &dyn Fn(ValueId) -> ValueId,
    ) -> Result<Vec<ValueId>, TypeError> {
        let constants: Vec<ValueId> =
            self.constants.iter().map(|(name, tensor)| to.constant(name, tensor.clone())).collect();
        let mut made: Vec<ValueId> = Vec::new();
        let resolve = |source: Source, made: &[ValueId]| match source {
            Source::Value(v) => value(v),
            Source::Constant(i) => constants[i],
            Source::New(i) => made[i],
        };
        for node in &self.nodes {
            let inputs: Vec<Option<ValueId>> =
                node.inputs.iter().map(|s| s.map(|s| resolve(s, &made))).collect();
            made.push(to.add1(node.op.clone(), &inputs, origin.clone())?);
        }
        Ok(self.replaced.iter().map(|&(_, by)| resolve(by, &made)).collect())
    }

    /// Applies the patch; on an error the graph may hold unused new nodes and is otherwise as before.
    pub(crate) fn apply(&self, graph: &mut Graph, rule: &'static str) -> Result<(), RewriteError> {
        let origin = self.origin(graph);
        let news = self
            .build(graph, &origin, &|v| v)
            .map_err(|error| RewriteError::Type { rule, error })?;
        for (&(old, by), new) in self.replaced.iter().zip(news) {
            let (before, after) = (&graph.fact(old).ty, &graph.fact(new).ty);
            if before != after {
                return Err(RewriteError::MeaningChanged {
                    rule,
                    value: graph.value(old).name.to_string(),
                    before: before.to_string(),
                    after: after.to_string(),
                });
            }
            let (name, output) = (graph.value(old).name.clone(), graph.is_output(old));
            let learned = graph.fact(old).known != graph.fact(new).known;
            graph.replace_uses(old, new);
            if learned {
                graph.infer_after(new).map_err(|error| RewriteError::Type { rule, error })?;
            }
            if output || matches!(by, Source::New(_)) {
                graph.rename(old, &format!("{name}.replaced"));
                graph.rename(new, &name);
            }
        }
        Ok(())
    }

    /// The nodes between what the patch reads and what it replaces, in the graph's order.
    pub(crate) fn replaced_nodes(&self, graph: &Graph) -> Vec<NodeId> {
        let mut inside: HashSet<NodeId> = HashSet::new();
        let mut open: Vec<NodeId> = self.replaced().filter_map(|v| graph.producer(v)).collect();
        while let Some(id) = open.pop() {
            if inside.insert(id) {
                let operands = graph.node(id).inputs.iter().flatten();
                let makers = operands.filter_map(|&v| graph.producer(v));
                open.extend(makers.filter(|n| self.stands_for.contains(n)));
            }
        }
        graph.order().into_iter().filter(|n| inside.contains(n)).collect()
    }

    /// What the patch puts in place as a graph of its own, whose outputs stand for the replaced values
    /// in order, and the values of `graph` that are its inputs, in order.
    pub(crate) fn as_graph(&self, graph: &Graph) -> Result<(Graph, Vec<ValueId>), TypeError> {
        let mut to = Graph::new(graph.name.clone());
        to.ranges = graph.ranges.clone();
        let (mut operands, mut map) = (Vec::new(), HashMap::new());
        let read = self.nodes.iter().flat_map(|n| n.inputs.iter().flatten());
        for &source in read.chain(self.replaced.iter().map(|(_, by)| by)) {
            let Source::Value(v) = source else { continue };
            map.entry(v).or_insert_with(|| match &graph.value(v).role {
                Role::Constant(t) => to.constant(&graph.value(v).name, t.clone()),
                _ => {
                    operands.push(v);
                    to.input(&graph.value(v).name, graph.fact(v).ty.clone())
                }
            });
        }
        to.outputs = self.build(&mut to, &self.origin(graph), &|v| map[&v])?;
        Ok((to, operands))
    }

    /// The values that nothing reads once the patch is applied.
    pub(crate) fn replaced(&self) -> impl Iterator<Item = ValueId> {
        self.replaced.iter().map(|&(old, _)| old)
    }

    fn origin(&self, graph: &Graph) -> Origin {
        let mut names: Vec<Arc<str>> = Vec::new();
        for &node in &self.stands_for {
            for name in graph.node(node).origin.iter() {
                if !names.contains(name) {
                    names.push(name.clone());
                }
            }
        }
        names.into()
    }
}
