//! The exact cover of least price, by one sweep over the nodes in topological order.
//!
//! A state holds the nodes that were passed and left for a later exit, and for each value that is
//! still needed the format in which it was made and the formats it was converted to. Because a
//! choice has one exit, every cover is one path through the states, and states that no remaining
//! choice can complete are dropped at once: on series-parallel graphs their number stays linear.

use crate::{Conversion, Cover, FormatId, Problem, ProblemError};
use std::collections::{BTreeMap, HashMap};

/// When the sweep gives up exactness.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// States kept after each node; beyond that only the cheapest stay and the result is not exact.
    pub states: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { states: 50_000 }
    }
}

/// A cover and how it was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// The cover.
    pub cover: Cover,
    /// Whether no cheaper cover exists.
    pub exact: bool,
    /// States visited.
    pub states: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct State {
    /// Nodes left for a later exit, rising.
    deferred: Vec<u32>,
    /// Values that are still needed: tensor, format it was made in, formats it is converted to.
    live: Vec<(u32, FormatId, u16)>,
}

struct Step {
    cost: f64,
    parent: u32,
    choice: Option<u32>,
}

/// Finds the cover of least price.
///
/// The price of a cover is the sum of its choices' prices and, for each tensor, of the cheapest
/// conversions from the format it was made in to all formats it is read in. Deterministic.
pub fn sweep(problem: &Problem, limits: Limits) -> Result<Solution, ProblemError> {
    problem.check()?;
    let mut by_exit: Vec<Vec<u32>> = vec![Vec::new(); problem.nodes];
    let mut holding: Vec<Vec<u32>> = vec![Vec::new(); problem.nodes];
    for (i, c) in problem.choices.iter().enumerate() {
        by_exit[c.exit()].push(i as u32);
        for &n in &c.nodes {
            holding[n].push(i as u32);
        }
    }
    let mut prices = ConversionPrices::default();
    let start = State {
        deferred: Vec::new(),
        live: (0..problem.tensors.len())
            .filter_map(|t| problem.tensors[t].arrives.map(|f| (t as u32, f, 0)))
            .filter(|&(t, ..)| {
                problem.tensors[t as usize].wanted.is_some() || is_read(problem, t, 0, &[])
            })
            .collect(),
    };
    // Paths: every kept state of every level, with the choice that led to it.
    let mut paths: Vec<Step> = vec![Step { cost: 0.0, parent: u32::MAX, choice: None }];
    let mut level: BTreeMap<State, u32> = BTreeMap::from([(start, 0)]);
    let (mut exact, mut visited) = (true, 1);
    for (node, exits) in by_exit.iter().enumerate() {
        let mut next: HashMap<State, Step> = HashMap::new();
        for (state, &path) in &level {
            let cost = paths[path as usize].cost;
            let mut offer = |state: State, cost: f64, choice: Option<u32>| {
                let step = Step { cost, parent: path, choice };
                match next.entry(state) {
                    std::collections::hash_map::Entry::Occupied(mut e) => {
                        if cost < e.get().cost {
                            e.insert(step);
                        }
                    }
                    std::collections::hash_map::Entry::Vacant(e) => {
                        e.insert(step);
                    }
                }
            };
            // Leave the node for a later exit.
            let mut waiting = state.clone();
            waiting.deferred.push(node as u32);
            if is_completable(problem, &holding, &waiting.deferred, node + 1) {
                offer(waiting, cost, None);
            }
            // Or make it the exit of a choice.
            for &index in exits {
                if let Some((after, extra)) =
                    apply(problem, &holding, state, index, node, &mut prices)
                {
                    offer(after, cost + extra, Some(index));
                }
            }
        }
        if next.is_empty() {
            return Err(ProblemError::Uncoverable { node });
        }
        let mut kept: Vec<(State, Step)> = next.into_iter().collect();
        kept.sort_by(|a, b| a.1.cost.total_cmp(&b.1.cost).then_with(|| a.0.cmp(&b.0)));
        if kept.len() > limits.states {
            kept.truncate(limits.states);
            exact = false;
        }
        visited += kept.len();
        level = BTreeMap::new();
        for (state, step) in kept {
            level.insert(state, paths.len() as u32);
            paths.push(step);
        }
    }
    // What is still live is an output; its conversion to the wanted format is priced last.
    let mut best: Option<(f64, u32, &State)> = None;
    for (state, &path) in &level {
        let mut cost = paths[path as usize].cost;
        for &(t, have, made) in &state.live {
            if let Some(wanted) = problem.tensors[t as usize].wanted {
                cost += prices.more(problem, t, have, made, wanted);
            }
        }
        if cost.is_finite()
            && state.deferred.is_empty()
            && best.is_none_or(|(least, ..)| cost < least)
        {
            best = Some((cost, path, state));
        }
    }
    let Some((cost, mut path, _)) = best else {
        return Err(ProblemError::Uncoverable { node: problem.nodes.saturating_sub(1) });
    };
    let mut choices = Vec::new();
    while path != u32::MAX {
        let step = &paths[path as usize];
        choices.extend(step.choice.map(|c| c as usize));
        path = step.parent;
    }
    choices.reverse();
    let conversions = conversions_of(problem, &choices);
    Ok(Solution { cover: Cover { choices, conversions, cost }, exact, states: visited })
}

/// The state after `index` has computed its nodes, and what that costs; `None` when it does not fit.
fn apply(
    problem: &Problem,
    holding: &[Vec<u32>],
    state: &State,
    index: u32,
    node: usize,
    prices: &mut ConversionPrices,
) -> Option<(State, f64)> {
    let choice = &problem.choices[index as usize];
    let inner = &choice.nodes[..choice.nodes.len() - 1];
    if !inner.iter().all(|&n| state.deferred.binary_search(&(n as u32)).is_ok()) {
        return None;
    }
    let deferred: Vec<u32> = state
        .deferred
        .iter()
        .copied()
        .filter(|&n| inner.binary_search(&(n as usize)).is_err())
        .collect();
    let mut cost = choice.cost;
    let mut live = state.live.clone();
    for &(tensor, format) in &choice.reads {
        let entry = live.iter_mut().find(|(t, ..)| *t as usize == tensor)?;
        cost += prices.more(problem, entry.0, entry.1, entry.2, format);
        if entry.1 != format {
            entry.2 |= 1 << format;
        }
    }
    if !cost.is_finite() || !is_completable(problem, holding, &deferred, node + 1) {
        return None;
    }
    live.extend(choice.writes.iter().map(|&(t, f)| (t as u32, f, 0)));
    // An output that no node reads any more is settled, so that many of them do not pile up.
    live.retain(|&(t, have, made)| {
        let read = is_read(problem, t, node + 1, &deferred);
        if let (false, Some(wanted)) = (read, problem.tensors[t as usize].wanted) {
            cost += prices.more(problem, t, have, made, wanted);
        }
        read
    });
    live.sort_unstable();
    cost.is_finite().then_some((State { deferred, live }, cost))
}

/// Whether a node from `next` on, or a deferred node, still reads the tensor.
fn is_read(problem: &Problem, tensor: u32, next: usize, deferred: &[u32]) -> bool {
    let mut consumers = problem.tensors[tensor as usize].consumers.iter();
    consumers.any(|&n| n >= next || deferred.binary_search(&(n as u32)).is_ok())
}

/// Whether each deferred node lies in a choice whose exit is still to come and whose passed nodes
/// are all deferred.
fn is_completable(problem: &Problem, holding: &[Vec<u32>], deferred: &[u32], next: usize) -> bool {
    deferred.iter().all(|&n| {
        holding[n as usize].iter().any(|&c| {
            let choice = &problem.choices[c as usize];
            choice.exit() >= next
                && choice
                    .nodes
                    .iter()
                    .take_while(|&&m| m < next)
                    .all(|&m| deferred.binary_search(&(m as u32)).is_ok())
        })
    })
}

/// Prices of conversion sets, computed once each.
#[derive(Default)]
struct ConversionPrices(HashMap<(u32, FormatId, u16), f64>);

impl ConversionPrices {
    fn of(&mut self, problem: &Problem, tensor: u32, have: FormatId, needed: u16) -> f64 {
        if needed & !(1 << have) == 0 {
            return 0.0;
        }
        *self
            .0
            .entry((tensor, have, needed))
            .or_insert_with(|| problem.conversions(tensor as usize, have, needed).0)
    }

    /// What one more format costs.
    fn more(
        &mut self,
        problem: &Problem,
        tensor: u32,
        have: FormatId,
        made: u16,
        format: FormatId,
    ) -> f64 {
        let with = made | 1 << format;
        if format == have || with == made {
            return 0.0;
        }
        self.of(problem, tensor, have, with) - self.of(problem, tensor, have, made)
    }
}

/// The cheapest conversions for everything that `choices` read and the outputs want.
fn conversions_of(problem: &Problem, choices: &[usize]) -> Vec<Conversion> {
    let mut have: Vec<Option<FormatId>> = problem.tensors.iter().map(|t| t.arrives).collect();
    let mut needed: Vec<u16> =
        problem.tensors.iter().map(|t| t.wanted.map_or(0, |f| 1 << f)).collect();
    for &c in choices {
        for &(t, f) in &problem.choices[c].writes {
            have[t] = Some(f);
        }
        for &(t, f) in &problem.choices[c].reads {
            needed[t] |= 1 << f;
        }
    }
    let made = have.iter().zip(&needed).enumerate();
    made.filter_map(|(t, (have, &needed))| have.map(|have| problem.conversions(t, have, needed).1))
        .flatten()
        .collect()
}
