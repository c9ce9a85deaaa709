//! The matcher finds exactly what brute force finds: every assignment of nodes to every choice of
//! alternatives is tried.

use super::{Dice, compiled, graph, nodes, pattern};
use crate::pattern::{
    matcher::{Binding, Match, matches},
    syntax::{Arguments, Leaf, Name, OpName, OpPattern, Pattern},
    view::{OpSet, View},
};
use bricolage_ir::{
    Graph, NodeId, Op, ValueId,
    ops::{Binary, Unary},
    origin,
};
use bricolage_tensor::{DType, TensorType};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// A pattern without choices.
#[derive(Clone, Debug)]
struct Tree {
    what: What,
    /// Names of this place, and whether a node that they name was left out.
    names: Vec<(String, bool)>,
}

#[derive(Clone, Debug)]
enum What {
    Leaf(Leaf),
    Absent,
    Same(String),
    Node { ops: Vec<OpSet>, operands: Vec<Tree>, open: bool },
}

fn sets(ops: &[OpName]) -> Vec<OpSet> {
    ops.iter()
        .map(|op| match op {
            OpName::Op(name) => OpSet::named(&name.text).unwrap(),
            OpName::Class(name) => OpSet::class(&name.text).unwrap(),
        })
        .collect()
}

fn bare(what: What) -> Vec<Tree> {
    vec![Tree { what, names: Vec::new() }]
}

fn named(mut trees: Vec<Tree>, name: &Name, left_out: bool) -> Vec<Tree> {
    trees.iter_mut().for_each(|t| t.names.push((name.text.clone(), left_out)));
    trees
}

/// Every choice of alternatives.
fn expand(p: &Pattern) -> Vec<Tree> {
    match p {
        Pattern::Leaf(leaf) => bare(What::Leaf(*leaf)),
        Pattern::Same(name) => bare(What::Same(name.text.clone())),
        Pattern::Bind(name, inner) => named(expand(inner), name, false),
        Pattern::Optional(inner) => [expand(inner), left_out(inner)].concat(),
        Pattern::Any(all) => all.iter().flat_map(expand).collect(),
        Pattern::Use(_) => unreachable!("patterns here use no others"),
        Pattern::Op(op) => {
            let (lists, open) = match &op.arguments {
                Arguments::Exact(all) => (vec![all.clone()], false),
                Arguments::Open(all) => (vec![all.clone()], true),
                Arguments::Either(pair) => {
                    let [a, b] = (**pair).clone();
                    (vec![vec![a.clone(), b.clone()], vec![b, a]], false)
                }
            };
            let mut all = Vec::new();
            for list in lists {
                let mut rows: Vec<Vec<Tree>> = vec![Vec::new()];
                for operand in list {
                    let trees = expand(&operand);
                    rows = rows
                        .iter()
                        .flat_map(|r| {
                            trees.iter().map(|t| [&r[..], std::slice::from_ref(t)].concat())
                        })
                        .collect();
                }
                for operands in rows {
                    all.extend(bare(What::Node { ops: sets(&op.ops), operands, open }));
                }
            }
            all
        }
    }
}

/// Every choice where the pattern is left out.
fn left_out(p: &Pattern) -> Vec<Tree> {
    match p {
        Pattern::Leaf(_) | Pattern::Same(_) => bare(What::Absent),
        Pattern::Bind(name, inner) => named(left_out(inner), name, true),
        Pattern::Optional(inner) => left_out(inner),
        Pattern::Any(all) => all.iter().flat_map(left_out).collect(),
        Pattern::Use(_) => unreachable!("patterns here use no others"),
        Pattern::Op(op) => match &op.arguments {
            Arguments::Exact(all) | Arguments::Open(all) => {
                all.first().map(expand).unwrap_or_default()
            }
            Arguments::Either(pair) => expand(&pair[0]),
        },
    }
}

fn places(tree: &Tree) -> usize {
    match &tree.what {
        What::Node { operands, .. } => 1 + operands.iter().map(places).sum::<usize>(),
        _ => 0,
    }
}

/// What a tree stands for when its nodes are `assigned`, in the order of the text.
#[derive(Default)]
struct Guess {
    nodes: BTreeSet<NodeId>,
    leaves: BTreeSet<ValueId>,
    names: BTreeMap<String, Binding>,
    equal: Vec<(String, Option<ValueId>)>,
}

fn fits(
    view: &View<'_>,
    tree: &Tree,
    value: Option<ValueId>,
    assigned: &mut std::slice::Iter<'_, NodeId>,
    guess: &mut Guess,
) -> bool {
    let graph = view.graph;
    let mut node = None;
    let right = match &tree.what {
        What::Absent => value.is_none(),
        What::Same(name) => {
            guess.equal.push((name.clone(), value));
            true
        }
        What::Leaf(leaf) => value.is_some_and(|v| {
            guess.leaves.insert(v);
            let constant = graph.constant_of(v);
            match leaf {
                Leaf::Any => true,
                Leaf::Const => constant.is_some(),
                Leaf::Var => constant.is_none(),
                Leaf::Scalar => constant.is_some_and(|t| t.len() == 1),
                Leaf::Input => graph.inputs.contains(&v),
            }
        }),
        What::Node { ops, operands, open } => {
            let id = *assigned.next().expect("one node is assigned to each place");
            node = Some(id);
            guess.nodes.insert(id);
            let inputs = &graph.node(id).inputs;
            value.is_some_and(|v| graph.node(id).outputs.contains(&v))
                && ops.iter().any(|&set| view.is(id, set))
                && (*open || inputs.iter().skip(operands.len()).all(Option::is_none))
                && operands.iter().enumerate().all(|(i, operand)| {
                    fits(view, operand, inputs.get(i).copied().flatten(), assigned, guess)
                })
        }
    };
    for (name, left_out) in &tree.names {
        let held = value.is_some() && !left_out;
        let node = node.filter(|_| !left_out);
        guess.names.insert(name.clone(), Binding { seen: true, held, value, node });
    }
    right
}

fn brute(view: &View<'_>, p: &Pattern, names: &[String], exit: NodeId) -> BTreeSet<Match> {
    let graph = view.graph;
    let all = nodes(graph);
    let mut found = BTreeSet::new();
    for tree in expand(p) {
        let count = places(&tree);
        for code in 0..all.len().pow(count as u32) {
            let assigned: Vec<NodeId> =
                (0..count).map(|i| all[code / all.len().pow(i as u32) % all.len()]).collect();
            let mut guess = Guess::default();
            let value = graph.node(exit).outputs.first().copied();
            let right = fits(view, &tree, value, &mut assigned.iter(), &mut guess)
                && guess.nodes.contains(&exit)
                && guess
                    .equal
                    .iter()
                    .all(|(n, v)| guess.names.get(n).is_some_and(|b| b.value == *v));
            if right {
                found.insert(Match {
                    nodes: guess.nodes.into_iter().collect(),
                    leaves: guess.leaves.into_iter().collect(),
                    bindings: names
                        .iter()
                        .map(|n| guess.names.get(n).copied().unwrap_or_default())
                        .collect(),
                    conditions: Vec::new(),
                });
            }
        }
    }
    found
}

fn compare(graph: &Graph, p: &Pattern) -> Result<usize, TestCaseError> {
    let Some((part, names)) = compiled(p) else { return Ok(0) };
    let view = View::new(graph);
    let mut count = 0;
    for exit in nodes(graph) {
        let found = matches(&view, &part, names.len(), exit);
        let expected = brute(&view, p, &names, exit);
        if found.cut {
            continue;
        }
        count += expected.len();
        let all: BTreeSet<Match> = found.all.iter().cloned().collect();
        prop_assert_eq!(all.len(), found.all.len(), "a match is given twice");
        prop_assert_eq!(all, expected, "{} at {:?}", p, exit);
    }
    Ok(count)
}

/// A pattern of at most `ops` nodes; `bound` holds the names that stand before. Dice that have run out make nodes as
/// long as there may be any, so this ends.
fn random(dice: &mut Dice<'_>, ops: &mut usize, bound: &mut Vec<String>) -> Pattern {
    let kind = dice.roll(10);
    if kind == 8 && *ops > 0 {
        let before = bound.clone();
        let first = random(dice, ops, bound);
        let mut own = before;
        let second = random(dice, ops, &mut own);
        bound.extend(own.into_iter().filter(|n| !bound.contains(n)).collect::<Vec<_>>());
        return Pattern::Any(vec![first, second]);
    }
    let bind = dice.roll(2) == 0;
    let mut made = if *ops > 0 && kind < 7 {
        *ops -= 1;
        let name = dice.pick(&["relu", "neg", "add", "sub", "mul", "mat_mul", "layer_norm"]);
        let wide = matches!(name, "add" | "sub" | "mul" | "mat_mul");
        let mut names = vec![OpName::Op(Name::from(name))];
        if dice.roll(4) == 0 {
            names =
                vec![OpName::Class(Name::from(dice.pick(&["elementwise", "broadcast", "anchor"])))];
        } else if wide && dice.roll(4) == 0 {
            names.push(OpName::Op(Name::from("mul")));
        }
        let commutes = sets(&names).iter().all(|s| s.commutes());
        let arguments = match dice.roll(4) {
            0 => Arguments::Open(vec![random(dice, ops, bound)]),
            1 | 2 if commutes => {
                let first = random(dice, ops, bound);
                Arguments::Either(Box::new([first, random(dice, ops, bound)]))
            }
            _ => {
                let count = if name == "layer_norm" { 3 } else { 1 + usize::from(wide) };
                Arguments::Exact((0..count).map(|_| random(dice, ops, bound)).collect())
            }
        };
        Pattern::Op(OpPattern { ops: names, attributes: Vec::new(), arguments })
    } else if kind == 9 && !bound.is_empty() {
        return Pattern::Same(Name::from(dice.pick(bound).as_str()));
    } else {
        Pattern::Leaf(dice.pick(&[
            Leaf::Any,
            Leaf::Any,
            Leaf::Any,
            Leaf::Const,
            Leaf::Var,
            Leaf::Scalar,
            Leaf::Input,
        ]))
    };
    if bind {
        let name = format!("v{}", bound.len());
        if !bound.contains(&name) {
            bound.push(name.clone());
            made = Pattern::Bind(Name::from(name.as_str()), Box::new(made));
        }
    }
    if dice.roll(4) == 0 { Pattern::Optional(Box::new(made)) } else { made }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_matcher_finds_what_brute_force_finds(
        bytes in proptest::collection::vec(any::<u8>(), 40..160),
        more in proptest::collection::vec(any::<u8>(), 40..80),
    ) {
        let graph = graph(&mut Dice::new(&bytes), 7);
        let p = random(&mut Dice::new(&more), &mut 4, &mut Vec::new());
        prop_assume!(expand(&p).len() <= 100);
        compare(&graph, &p)?;
    }
}

#[test]
fn random_patterns_end_when_the_dice_have_run_out() {
    let (mut ops, mut bound) = (4, Vec::new());
    let p = random(&mut Dice::new(&[8]), &mut ops, &mut bound);
    assert!(matches!(p, Pattern::Any(_)));
    assert_eq!(ops, 0);
}

/// Patterns that random graphs surely match somewhere: diamonds, chains, optional nodes and operands.
#[test]
fn patterns_of_every_construct_match_as_often_as_brute_force_says() {
    let texts = [
        "add{mat_mul(x@var, w@const), b@_}?",
        "y@relu/neg(add{m@mat_mul(x@_, w@_), r@_}?)",
        "add(r@relu(x@_), $r) | mul{relu(x@_), $x}",
        "relu(x@_)? | add{x@neg(_)?, y@(const | input | relu(_))}",
        "layer_norm(x@add{a@_, b@_}?, s@const?, c@const?)",
        "#elementwise(a@#anchor(...), ...)",
        "#broadcast{a@#elementwise(_, ...)?, b@scalar}",
        "sub(a@#elementwise(x@_, ...), $x) | sub(a@_, b@#broadcast(c@_, ...))",
    ];
    for text in texts {
        let p = pattern(text);
        let mut count = 0;
        for seed in 0..400u32 {
            let bytes: Vec<u8> = (0..120u32)
                .map(|i| ((seed * 7919 + i * 104_729) ^ (seed * i)).to_le_bytes())
                .map(|b| b[0] ^ b[1])
                .collect();
            count += compare(&graph(&mut Dice::new(&bytes), 6), &p).unwrap();
        }
        assert!(count > 0, "{text} matched nothing");
    }
}

/// `x` is read by two nodes that one node reads: both ways round, and not where they read different values.
#[test]
fn the_arms_of_a_diamond_start_at_one_value() {
    let mut graph = Graph::new("diamond");
    let ty = TensorType::fixed(DType::F32, &[2, 2]);
    let (x, other) = (graph.input("x", ty.clone()), graph.input("other", ty));
    let mut add =
        |op: Op, inputs: &[ValueId], name: &str| graph.add1(op, inputs, origin(name)).unwrap();
    let up = add(Op::Unary(Unary::Relu), &[x], "up");
    let down = add(Op::Unary(Unary::Neg), &[x], "down");
    let far = add(Op::Unary(Unary::Neg), &[other], "far");
    let meet = add(Op::Binary(Binary::Mul), &[down, up], "meet");
    let miss = add(Op::Binary(Binary::Mul), &[up, far], "miss");
    graph.outputs = vec![meet, miss];
    let diamond = pattern("mul{a@relu(x@_), b@neg($x)}");
    assert_eq!(compare(&graph, &diamond).unwrap(), 1);
    assert_eq!(compare(&graph, &pattern("mul{a@relu(x@_), b@neg(y@_)}")).unwrap(), 2);
    let (part, names) = compiled(&diamond).unwrap();
    let found = matches(&View::new(&graph), &part, names.len(), graph.producer(meet).unwrap());
    assert_eq!(found.all[0].leaves, [x]);
    assert_eq!(found.all[0].nodes.len(), 3);
}
