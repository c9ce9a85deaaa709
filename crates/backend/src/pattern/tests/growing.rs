//! Growth keeps exactly the sets that a plain definition of its steps reaches.

use super::{Dice, compiled, graph, nodes, pattern};
use crate::{
    Policy, Setting,
    pattern::{
        constraint::Condition,
        growth::{Find, GrowStep, Grower, Growth, MOST_SETS},
        matcher::{Match, matches},
        syntax::Direction,
        view::{OpSet, View},
    },
};
use bricolage_ir::{
    Graph, NodeId, Op, ValueId,
    ops::{Binary, Unary},
    origin,
};
use bricolage_tensor::{DType, TensorType};
use proptest::prelude::*;
use std::collections::BTreeSet;

type Set = BTreeSet<NodeId>;

const SETTING: Setting = Setting { threads: 1, policy: Policy::Default };

fn reads(graph: &Graph, reader: NodeId, from: NodeId) -> bool {
    graph.node(reader).inputs.iter().flatten().any(|&v| graph.producer(v) == Some(from))
}

/// Whether a way leads from one node to another, over nodes that `through` allows.
fn leads(graph: &Graph, from: NodeId, to: NodeId, through: &dyn Fn(NodeId) -> bool) -> bool {
    nodes(graph)
        .into_iter()
        .any(|n| reads(graph, n, from) && (n == to || (through(n) && leads(graph, n, to, through))))
}

fn ends(graph: &Graph, node: NodeId) -> bool {
    graph.node(node).outputs.iter().any(|&v| graph.is_output(v))
}

/// Whether every way from the set to an output of the graph passes the node.
fn dominates(graph: &Graph, set: &Set, node: NodeId) -> bool {
    let around = |n: NodeId| n != node;
    let end = |n: NodeId| ends(graph, n);
    let escapes = |from: NodeId| {
        end(from)
            || nodes(graph)
                .into_iter()
                .any(|n| n != node && end(n) && leads(graph, from, n, &around))
    };
    !set.contains(&node)
        && set.iter().all(|&n| !escapes(n))
        && set.iter().any(|&n| leads(graph, n, node, &|_| true))
}

/// Whether one step leads from a set to a larger one.
fn is_step(view: &View<'_>, small: &Set, large: &Set, step: &GrowStep) -> bool {
    let graph = view.graph;
    let added: Vec<NodeId> = large.difference(small).copied().collect();
    if !small.is_subset(large)
        || !added.iter().all(|&n| step.ops.iter().any(|&set| view.is(n, set)))
    {
        return false;
    }
    if step.meet {
        let all: Vec<NodeId> = nodes(graph);
        let meeting = all.iter().copied().find(|&m| {
            let first = |other: NodeId| {
                other == m || !dominates(graph, small, other) || leads(graph, m, other, &|_| true)
            };
            dominates(graph, small, m) && all.iter().all(|&other| first(other))
        });
        let Some(meeting) = meeting else { return false };
        let between = |n: &NodeId| {
            !small.contains(n)
                && small.iter().any(|&s| leads(graph, s, *n, &|_| true))
                && leads(graph, *n, meeting, &|_| true)
        };
        let mut whole: Vec<NodeId> = all.iter().copied().filter(between).collect();
        whole.push(meeting);
        whole.sort_unstable();
        return whole == added;
    }
    let [node] = added[..] else { return false };
    match step.direction {
        Direction::Down => small.iter().any(|&s| reads(graph, node, s)),
        Direction::Up => small.iter().any(|&s| reads(graph, s, node)),
        Direction::Side => small.iter().any(|&s| {
            graph.node(s).inputs.iter().flatten().any(|&v| {
                graph.constant_of(v).is_none()
                    && graph.producer(v).is_none_or(|p| !small.contains(&p))
                    && graph.node(node).inputs.contains(&Some(v))
            })
        }),
    }
}

/// Every set that the rule reaches, by trying all sets of nodes.
fn brute(view: &View<'_>, growth: &Growth, seed: &[NodeId]) -> BTreeSet<Set> {
    let all = nodes(view.graph);
    let mut layer = BTreeSet::from([seed.iter().copied().collect::<Set>()]);
    let mut reached = layer.clone();
    for _ in 0..growth.max_depth {
        let mut next = BTreeSet::new();
        for code in 0..1usize << all.len() {
            let set: Set = all
                .iter()
                .enumerate()
                .filter(|(i, _)| code >> i & 1 == 1)
                .map(|(_, n)| *n)
                .collect();
            if set.len() <= growth.max_nodes
                && !reached.contains(&set)
                && layer
                    .iter()
                    .any(|s| growth.steps.iter().any(|step| is_step(view, s, &set, step)))
            {
                next.insert(set);
            }
        }
        reached.extend(next.iter().cloned());
        layer = next;
    }
    reached
}

fn growth(dice: &mut Dice<'_>) -> Growth {
    let seeds = ["m@mat_mul(...)", "a@add(_, _)", "r@#elementwise(...)", "relu(x@neg(_)?)"];
    let (seed, names) = compiled(&pattern(dice.pick(&seeds))).unwrap();
    let mut steps = Vec::new();
    for _ in 0..1 + dice.roll(3) {
        let direction =
            dice.pick(&[Direction::Down, Direction::Down, Direction::Up, Direction::Side]);
        let ops = dice.pick(&[
            vec![OpSet::class("elementwise").unwrap()],
            vec![OpSet::class("broadcast").unwrap()],
            vec![OpSet::named("add").unwrap(), OpSet::named("relu").unwrap()],
            vec![OpSet::class("broadcast").unwrap(), OpSet::class("anchor").unwrap()],
        ]);
        let meet = direction == Direction::Down && dice.roll(2) == 0;
        steps.push(GrowStep { direction, ops, meet, condition: Condition::default() });
    }
    let (max_nodes, max_depth) = (1 + dice.roll(6), 1 + dice.roll(5));
    Growth { seed, steps, max_nodes, max_depth, slots: names.len() + 1 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn growth_keeps_every_set_that_its_steps_reach(
        bytes in proptest::collection::vec(any::<u8>(), 40..120),
        more in proptest::collection::vec(any::<u8>(), 20..40),
    ) {
        let graph = graph(&mut Dice::new(&bytes), 7);
        let growth = growth(&mut Dice::new(&more));
        let view = View::new(&graph);
        let grower = Grower { view: &view, setting: SETTING, growth: &growth };
        let mut by_exit: BTreeSet<Set> = BTreeSet::new();
        let mut single: BTreeSet<Set> = BTreeSet::new();
        for exit in nodes(&graph) {
            for seed in matches(&view, &growth.seed, growth.slots, exit).all {
                let grown = grower.grow(&seed);
                let sets: BTreeSet<Set> =
                    grown.sets.iter().map(|s| s.iter().copied().collect()).collect();
                prop_assert_eq!(sets.len(), grown.sets.len(), "a set is kept twice");
                let expected = brute(&view, &growth, &seed.nodes);
                if grown.left_out > 0 {
                    prop_assert!(sets.len() == MOST_SETS && sets.is_subset(&expected));
                } else {
                    prop_assert_eq!(&sets, &expected);
                }
                single.extend(sets.into_iter().filter(|s| is_region(&graph, s)));
            }
            for find in grower.ending_at(exit) {
                if let Find::Region(Match { nodes, .. }) = find {
                    prop_assert!(nodes.contains(&exit));
                    by_exit.insert(nodes.into_iter().collect());
                }
            }
        }
        // Asked exit by exit, no region is lost.
        by_exit.retain(|s| is_region(&graph, s));
        prop_assert_eq!(by_exit, single);
    }
}

/// Whether one node alone is read from outside, or by nobody inside.
fn is_region(graph: &Graph, set: &Set) -> bool {
    let read_inside = |n: NodeId| set.iter().any(|&other| reads(graph, other, n));
    let read_outside = |n: NodeId| {
        ends(graph, n) || nodes(graph).into_iter().any(|r| !set.contains(&r) && reads(graph, r, n))
    };
    set.iter().filter(|&&n| !read_inside(n)).count() == 1
        && set.iter().all(|&n| !read_inside(n) || !read_outside(n))
}

/// A rule with one way to grow.
fn rule(seed: &str, direction: Direction, class: &str, meet: bool, max_nodes: usize) -> Growth {
    let (seed, names) = compiled(&pattern(seed)).unwrap();
    let ops = vec![OpSet::class(class).unwrap()];
    let step = GrowStep { direction, ops, meet, condition: Condition::default() };
    Growth { seed, steps: vec![step], max_nodes, max_depth: max_nodes, slots: names.len() + 1 }
}

/// Ways of different lengths from one node to another, with a diamond on the longer way; then what follows.
#[test]
fn growth_to_a_meeting_takes_in_all_ways() {
    let mut graph = Graph::new("ways");
    let x = graph.input("x", TensorType::fixed(DType::F32, &[2]));
    let mut add =
        |op: Op, inputs: &[ValueId], name: &str| graph.add1(op, inputs, origin(name)).unwrap();
    let [neg, relu] = [Unary::Neg, Unary::Relu].map(Op::Unary);
    let plus = Op::Binary(Binary::Add);
    let start = add(neg, &[x], "start");
    let split = add(relu.clone(), &[start], "split");
    let left = add(relu.clone(), &[split], "left");
    let right = add(relu.clone(), &[split], "right");
    let join = add(plus.clone(), &[left, right], "join");
    let last = add(relu.clone(), &[join], "last");
    let meeting = add(plus, &[start, last], "meeting");
    let after = add(relu, &[meeting], "after");
    graph.outputs = vec![after];
    let growth = rule("neg(_)", Direction::Down, "elementwise", true, 8);
    let view = View::new(&graph);
    let grower = Grower { view: &view, setting: SETTING, growth: &growth };
    let exit = graph.producer(start).unwrap();
    let seed = matches(&view, &growth.seed, growth.slots, exit).all.remove(0);
    let sets: BTreeSet<Set> =
        grower.grow(&seed).sets.into_iter().map(|s| s.into_iter().collect()).collect();
    assert_eq!(sets.iter().map(Set::len).collect::<BTreeSet<_>>(), BTreeSet::from([1, 7, 8]));
    assert_eq!(sets, brute(&view, &growth, &seed.nodes));
}

/// A seed is found from an exit as far away as a region is long.
#[test]
fn the_longest_region_is_found_from_its_exit() {
    let mut graph = Graph::new("chain");
    let mut last = graph.input("x", TensorType::fixed(DType::F32, &[2]));
    for i in 0..6 {
        let op = Op::Unary(if i == 0 { Unary::Neg } else { Unary::Relu });
        last = graph.add1(op, &[last], origin("n")).unwrap();
    }
    graph.outputs = vec![last];
    let view = View::new(&graph);
    let exit = graph.producer(last).unwrap();
    for (max_nodes, expected) in [(5, 0), (6, 1)] {
        let growth = rule("neg(_)", Direction::Down, "elementwise", false, max_nodes);
        let grower = Grower { view: &view, setting: SETTING, growth: &growth };
        assert_eq!(grower.ending_at(exit).len(), expected, "{max_nodes} nodes");
    }
}

/// A limit that cuts something off is said, once, where the seed ends.
#[test]
fn more_sets_than_may_be_kept_are_reported() {
    let mut graph = Graph::new("star");
    let x = graph.input("x", TensorType::fixed(DType::F32, &[2]));
    let hub = graph.add1(Op::Unary(Unary::Neg), &[x], origin("hub")).unwrap();
    for i in 0..8 {
        let ray = graph.add1(Op::Unary(Unary::Relu), &[hub], origin(&format!("ray{i}"))).unwrap();
        graph.outputs.push(ray);
    }
    let growth = rule("neg(_)", Direction::Down, "elementwise", false, 9);
    let view = View::new(&graph);
    let grower = Grower { view: &view, setting: SETTING, growth: &growth };
    let exit = graph.producer(hub).unwrap();
    let cuts: Vec<String> = grower
        .ending_at(exit)
        .into_iter()
        .filter_map(|f| if let Find::Cut(why) = f { Some(why) } else { None })
        .collect();
    assert_eq!(cuts.len(), 1);
    assert!(cuts[0].starts_with("keeps 64 sets that grow from a seed, and leaves"), "{}", cuts[0]);
}
