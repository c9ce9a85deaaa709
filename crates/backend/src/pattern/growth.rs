//! Grows regions from a seed: breadth first, one step at a time, keeping every set on the way.

use super::{
    constraint::Condition,
    evaluate::{Scope, Truth},
    matcher::{Binding, Match, matches},
    shape::Part,
    syntax::Direction,
    view::{OpSet, View},
};
use crate::{Region, Setting};
use bricolage_ir::{NodeId, ValueId};
use std::collections::{HashSet, VecDeque};

/// Sets that grow from one seed, at most.
pub(super) const MOST_SETS: usize = 64;

/// How regions grow.
#[derive(Clone, Debug)]
pub(super) struct Growth {
    pub(super) seed: Part,
    pub(super) steps: Vec<GrowStep>,
    pub(super) max_nodes: usize,
    pub(super) max_depth: usize,
    /// Number of slots, the last of which is that of `node`.
    pub(super) slots: usize,
}

/// One way to grow.
#[derive(Clone, Debug)]
pub(super) struct GrowStep {
    pub(super) direction: Direction,
    pub(super) ops: Vec<OpSet>,
    pub(super) meet: bool,
    /// What must hold of the node that is taken in.
    pub(super) condition: Condition,
}

/// What grew from one seed.
#[derive(Debug, Default)]
pub(super) struct Grown {
    /// Sets of nodes, each sorted, the seed's first.
    pub(super) sets: Vec<Vec<NodeId>>,
    /// Sets that were found and are more than may be kept; what would grow from them was not looked for.
    pub(super) left_out: usize,
}

/// A region that grew, or a limit that cut something off.
pub(super) enum Find {
    /// Nodes, with the bindings of the seed; a rule has no leaves.
    Region(Match),
    /// More than the limits allow, in words.
    Cut(String),
}

/// Grows regions of one graph.
pub(super) struct Grower<'a> {
    pub(super) view: &'a View<'a>,
    pub(super) setting: Setting,
    pub(super) growth: &'a Growth,
}

impl Grower<'_> {
    /// Every set that grows from a seed and whose exit is `exit`. A limit is reported where the seed ends.
    pub(super) fn ending_at(&self, exit: NodeId) -> Vec<Find> {
        let mut finds = Vec::new();
        let mut known = HashSet::new();
        for start in Region::in_order(self.view.graph, self.above(exit)) {
            let seeds = matches(self.view, &self.growth.seed, self.growth.slots, start);
            if seeds.cut && start == exit {
                finds.push(Find::Cut("has more matches of its seed than are followed".to_owned()));
            }
            for seed in &seeds.all {
                let grown = self.grow(seed);
                if grown.left_out > 0 && start == exit {
                    finds.push(Find::Cut(format!(
                        "keeps {MOST_SETS} sets that grow from a seed, and leaves {} more out",
                        grown.left_out
                    )));
                }
                for nodes in grown.sets {
                    if self.exit_of(&nodes) == Some(exit) && known.insert(nodes.clone()) {
                        // What was outside of the seed may be inside now.
                        let leaves = Vec::new();
                        finds.push(Find::Region(Match { nodes, leaves, ..seed.clone() }));
                    }
                }
            }
        }
        finds
    }

    /// Nodes that may lie in a region with this exit: near enough, and read by nothing else.
    fn above(&self, exit: NodeId) -> Vec<NodeId> {
        let graph = self.view.graph;
        let producers = |node: NodeId| {
            let inputs = graph.node(node).inputs.iter().flatten();
            inputs.filter_map(|&v| graph.producer(v)).collect::<Vec<NodeId>>()
        };
        let mut near = HashSet::from([exit]);
        let mut queue = VecDeque::from([(exit, 0)]);
        while let Some((node, distance)) = queue.pop_front() {
            if distance + 1 < self.growth.max_nodes {
                for producer in producers(node) {
                    if near.insert(producer) {
                        queue.push_back((producer, distance + 1));
                    }
                }
            }
        }
        let mut inside = HashSet::from([exit]);
        let mut open = vec![exit];
        while let Some(node) = open.pop() {
            for producer in producers(node) {
                let closed = graph.node(producer).outputs.iter().all(|&v| {
                    !graph.is_output(v) && graph.uses(v).iter().all(|u| inside.contains(&u.node))
                });
                if closed && near.contains(&producer) && inside.insert(producer) {
                    open.push(producer);
                }
            }
        }
        inside.into_iter().collect()
    }

    /// The only node of a set that no other one reads.
    fn exit_of(&self, nodes: &[NodeId]) -> Option<NodeId> {
        let graph = self.view.graph;
        let mut last = nodes.iter().copied().filter(|&n| {
            let outputs = &graph.node(n).outputs;
            !outputs.iter().any(|&v| graph.uses(v).iter().any(|u| nodes.contains(&u.node)))
        });
        let exit = last.next();
        exit.filter(|_| last.next().is_none())
    }

    /// Every set that grows from a match of the seed.
    pub(super) fn grow(&self, seed: &Match) -> Grown {
        let mut grown = Grown { sets: vec![seed.nodes.clone()], left_out: 0 };
        let mut known: HashSet<Vec<NodeId>> = HashSet::from([seed.nodes.clone()]);
        let mut queue = VecDeque::from([(seed.nodes.clone(), 0)]);
        while let Some((set, depth)) = queue.pop_front() {
            if depth == self.growth.max_depth {
                continue;
            }
            for step in &self.growth.steps {
                for added in self.additions(&set, step, seed) {
                    let mut larger = set.clone();
                    larger.extend(added);
                    larger.sort_unstable();
                    if larger.len() > self.growth.max_nodes || !known.insert(larger.clone()) {
                        continue;
                    }
                    if grown.sets.len() == MOST_SETS {
                        grown.left_out += 1;
                        continue;
                    }
                    grown.sets.push(larger.clone());
                    queue.push_back((larger, depth + 1));
                }
            }
        }
        grown
    }

    /// What one step may add to a set: nodes that are not in it.
    fn additions(&self, set: &[NodeId], step: &GrowStep, seed: &Match) -> Vec<Vec<NodeId>> {
        let graph = self.view.graph;
        if step.meet {
            return self.up_to_meeting(set, step, seed).into_iter().collect();
        }
        let readers = |values: Vec<ValueId>| -> Vec<NodeId> {
            values.into_iter().flat_map(|v| graph.uses(v).iter().map(|u| u.node)).collect()
        };
        let mut found = match step.direction {
            Direction::Down => self.readers(set),
            Direction::Up => {
                let inputs = set.iter().flat_map(|&n| graph.node(n).inputs.iter().flatten());
                inputs.filter_map(|&v| graph.producer(v)).collect()
            }
            Direction::Side => readers(graph.boundary(set).inputs),
        };
        found.sort_unstable();
        found.dedup();
        found.retain(|n| !set.contains(n) && self.takes(*n, set.len(), step, seed));
        found.into_iter().map(|n| vec![n]).collect()
    }

    /// Nodes outside of a set that read what it computes.
    fn readers(&self, set: &[NodeId]) -> Vec<NodeId> {
        let graph = self.view.graph;
        let outputs = set.iter().flat_map(|&n| &graph.node(n).outputs);
        let mut all: Vec<NodeId> =
            outputs.flat_map(|&v| graph.uses(v).iter().map(|u| u.node)).collect();
        all.sort_unstable();
        all.dedup();
        all.retain(|n| !set.contains(n));
        all
    }

    /// All nodes on the ways from a set to the first node that all of them pass, and that node.
    fn up_to_meeting(&self, set: &[NodeId], step: &GrowStep, seed: &Match) -> Option<Vec<NodeId>> {
        let graph = self.view.graph;
        let mut whole = set.to_vec();
        loop {
            let leaves =
                whole.iter().any(|&n| graph.node(n).outputs.iter().any(|&v| graph.is_output(v)));
            if leaves || whole.len() >= self.growth.max_nodes {
                return None;
            }
            let readers = self.readers(&whole);
            let next = readers.iter().copied().min_by_key(|&n| self.view.rank(n))?;
            if !self.takes(next, whole.len(), step, seed) {
                return None;
            }
            whole.push(next);
            if readers.len() == 1 {
                return Some(whole.split_off(set.len()));
            }
        }
    }

    /// Whether a step takes a node into a region of `size` nodes.
    fn takes(&self, node: NodeId, size: usize, step: &GrowStep, seed: &Match) -> bool {
        if !step.ops.iter().any(|&set| self.view.is(node, set)) {
            return false;
        }
        let mut bindings = seed.bindings.clone();
        if let Some(slot) = bindings.last_mut() {
            let value = self.view.graph.node(node).outputs.first().copied();
            *slot = Binding { seen: true, held: true, value, node: Some(node) };
        }
        let scope = Scope {
            view: Some(self.view),
            setting: Some(self.setting),
            bindings: &bindings,
            nodes: size,
            tensor: None,
        };
        scope.holds(&step.condition) == Truth::True
    }
}
