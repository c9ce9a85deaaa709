//! The op level: a dynamic programme over the nodes by their distance from the outputs.

use crate::{Choice, CoverError, Finder, Limits, Problem, ProblemError, Solution, Tensor, solve};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

/// What each kernel costs besides its own time, in nanoseconds: the published 0.01 ms.
pub const LAUNCH_NS: f64 = 10_000.0;

/// States of the dynamic programme at a time, at most.
const MOST_STATES: usize = 5_000;

/// The cover of least price as if formats were free and each kernel cost `launch` more; its conversions are
/// paid afterwards, and are in the price that is returned. A choice that costs nothing is no kernel. Choices
/// with several exits are left out.
///
/// Where a format that is read cannot be made, the choices that have the value in other formats than the
/// first are left out and the search is repeated. Where the states of the dynamic programme pass
/// the limit, [`solve`] finds the same optimum.
pub fn levels(
    problem: &Problem,
    launch: f64,
    limits: Limits<'_>,
) -> Result<Solution, ProblemError> {
    problem.check()?;
    let mut plain: BTreeSet<usize> = BTreeSet::new();
    loop {
        let (blind, numbers) = blind(problem, launch, &plain);
        let (chosen, states) = match by_levels(&blind, limits.states.min(MOST_STATES))? {
            Some(found) => found,
            None => {
                let found = solve(&blind, limits, &[])?;
                (found.cover.choices, found.states)
            }
        };
        let chosen: Vec<usize> = chosen.iter().map(|&c| numbers[c]).collect();
        match problem.price_of(&chosen) {
            Ok(cover) => {
                return Ok(Solution {
                    cover,
                    bound: 0.0,
                    exact: false,
                    finder: Finder::Levels,
                    states,
                });
            }
            Err(CoverError::Format { tensor }) if plain.insert(tensor) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The problem with one format for every tensor, and the numbers of its choices in the whole. Of the tensors
/// `plain`, choices have the first format only.
fn blind(problem: &Problem, launch: f64, plain: &BTreeSet<usize>) -> (Problem, Vec<usize>) {
    let one = |tensor: &Tensor| Tensor {
        arrives: tensor.arrives.map(|_| 0),
        wanted: tensor.wanted.map(|_| 0),
        convert: vec![vec![0.0]],
        ..tensor.clone()
    };
    let first = |list: &[(usize, u8)]| list.iter().map(|&(t, _)| (t, 0)).collect();
    let mut blind = Problem {
        nodes: problem.nodes,
        tensors: problem.tensors.iter().map(one).collect(),
        ..Problem::default()
    };
    let mut numbers = Vec::new();
    for (i, choice) in problem.choices.iter().enumerate() {
        let mut values = choice.reads.iter().chain(&choice.writes);
        let converts = values.any(|&(t, f)| f != 0 && plain.contains(&t));
        let usable = choice.cost.is_finite() && problem.writes_all(choice);
        if converts || !usable || problem.has_more_exits(choice) {
            continue;
        }
        numbers.push(i);
        blind.choices.push(Choice {
            nodes: choice.nodes.clone(),
            reads: first(&choice.reads),
            writes: first(&choice.writes),
            cost: choice.cost + if choice.cost > 0.0 { launch } else { 0.0 },
            backend: 0,
        });
    }
    (blind, numbers)
}

/// Nodes that are covered already and not yet passed, a bit each.
type Covered = Vec<u64>;

/// How a state was reached: the one before it, and the choice that was taken.
type Step = (Option<usize>, usize);

/// The cheapest choices that cover every node once, and the states that were visited. `None` when there are
/// more than `most` states at a time.
///
/// Nodes are passed level by level from the outputs. A state is the set of nodes that are covered
/// beyond those passed; the first uncovered node is covered by a choice that holds none before it, so
/// every cover is one path through the states.
fn by_levels(problem: &Problem, most: usize) -> Result<Option<(Vec<usize>, usize)>, ProblemError> {
    let order = by_distance(problem);
    let mut position = vec![0; problem.nodes];
    order.iter().enumerate().for_each(|(at, &n)| position[n] = at);
    let mut starting: Vec<Vec<usize>> = vec![Vec::new(); problem.nodes];
    for (c, choice) in problem.choices.iter().enumerate() {
        if let Some(first) = choice.nodes.iter().map(|&n| position[n]).min() {
            starting[first].push(c);
        }
    }
    let has = |set: &Covered, at: usize| set[at / 64] & (1 << (at % 64)) != 0;
    let none: Covered = vec![0; problem.nodes.div_ceil(64)];
    let mut steps: Vec<Step> = Vec::new();
    let mut states = BTreeMap::from([(none, (0.0, None::<usize>))]);
    for (at, &node) in order.iter().enumerate() {
        let mut next: BTreeMap<Covered, (f64, Option<usize>)> = BTreeMap::new();
        let mut reach = |set: Covered, cost: f64, from: Option<usize>, choice: Option<usize>| {
            let known = next.get(&set).map_or(f64::INFINITY, |k| k.0);
            if cost < known {
                let step = match choice {
                    Some(choice) => {
                        steps.push((from, choice));
                        Some(steps.len() - 1)
                    }
                    None => from,
                };
                next.insert(set, (cost, step));
            }
        };
        for (mut set, (cost, from)) in states {
            if has(&set, at) {
                set[at / 64] &= !(1 << (at % 64));
                reach(set, cost, from, None);
                continue;
            }
            for &c in &starting[at] {
                let choice = &problem.choices[c];
                let mut after = set.clone();
                let free = choice.nodes.iter().map(|&n| position[n]).all(|p| {
                    let free = !has(&set, p);
                    after[p / 64] |= 1 << (p % 64);
                    free
                });
                if free {
                    after[at / 64] &= !(1 << (at % 64));
                    reach(after, cost + choice.cost, from, Some(c));
                }
            }
        }
        if next.is_empty() {
            return Err(ProblemError::Uncoverable { node });
        }
        if next.len() > most {
            return Ok(None);
        }
        states = next;
    }
    let mut chosen = Vec::new();
    let mut at = states.into_values().next().and_then(|(_, step)| step);
    while let Some(step) = at {
        let (from, choice) = steps[step];
        chosen.push(choice);
        at = from;
    }
    Ok(Some((chosen, steps.len())))
}

/// The nodes by the longest way from each to an output, the nearest first.
fn by_distance(problem: &Problem) -> Vec<usize> {
    let mut distance = vec![0usize; problem.nodes];
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); problem.nodes];
    for tensor in &problem.tensors {
        if let Some(producer) = tensor.producer {
            readers[producer].extend(&tensor.consumers);
        }
    }
    // Nodes are numbered in a topological order.
    for node in (0..problem.nodes).rev() {
        let far = readers[node].iter().map(|&reader| distance[reader] + 1).max();
        distance[node] = far.unwrap_or(0);
    }
    let mut order: Vec<usize> = (0..problem.nodes).collect();
    order.sort_by_key(|&n| (distance[n], Reverse(n)));
    order
}
