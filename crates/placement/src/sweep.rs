//! The exact cover of least price, by one sweep over the nodes in topological order.
//!
//! A state holds the nodes that were passed and left for a later exit, and for each value that is
//! still needed the format in which it was made and the formats it was converted to. Because a
//! choice has one exit, every cover is one path through the states, and states that no remaining
//! choice can complete are dropped at once: on series-parallel graphs their number stays linear.
//!
//! Three reductions keep the optimum: the nodes are passed in an order with few values alive; formats
//! that are worth the same to all remaining readers are one; and a state is dropped when another one
//! with the same open nodes is cheaper by more than its formats can be behind, whatever is read later.
//! Beyond a limit only the states of least price plus lower bound stay: the result says so.

use crate::{
    Cover, Finder, FormatId, Problem, ProblemError, Solution,
    ordered::Ordered,
    stock::{Stock, Stocks},
};
use std::collections::{BTreeMap, HashMap};

/// When exactness is given up.
#[derive(Clone, Copy)]
pub struct Limits<'a> {
    /// States that the sweep keeps after each node; beyond that only the most promising stay, and the sweep
    /// alone is not exact.
    pub states: usize,
    /// Asked after each node, and every 50 ms of integer programming; when it says yes, the sweep goes on with
    /// few states, and integer programming ends with what it has.
    pub is_over: &'a dyn Fn() -> bool,
}

impl Default for Limits<'_> {
    fn default() -> Self {
        Limits { states: 20_000, is_over: &|| false }
    }
}

/// How far a bound may be from a price and still be called the same, as a share of it: the rounding of sums.
pub(crate) const ROUNDING: f64 = 1e-9;

/// States kept after each node when time is over.
const HASTY_STATES: usize = 500;

/// States that each state is compared with to find one that dominates it.
const RIVALS: usize = 96;

/// How a state was reached.
#[derive(Clone, Copy)]
pub(crate) struct Step {
    /// The state before it, by its place among all.
    pub(crate) parent: u32,
    /// The choice that was taken, if one was.
    pub(crate) choice: Option<u32>,
}

/// A state without what it shares with its group: the stocks of the live tensors, one each.
pub(crate) struct State {
    stocks: Box<[Stock]>,
    cost: f64,
    /// Its place among all states.
    pub(crate) path: u32,
}

/// States that have the same nodes open, and therefore the same tensors alive.
pub(crate) struct Group {
    /// Nodes left for a later exit, rising.
    pub(crate) deferred: Vec<u32>,
    /// Tensors that are still needed, rising.
    tensors: Vec<u32>,
    pub(crate) states: Vec<State>,
}

/// A group that is being filled: the cheapest way to each state.
pub(crate) struct Growing {
    tensors: Vec<u32>,
    outlooks: Vec<usize>,
    states: HashMap<Box<[Stock]>, Reached>,
    /// Every way to each state, with the price there, where they are recorded.
    pub(crate) steps: Vec<(u32, Step, f64)>,
}

/// The cheapest way to a state.
struct Reached {
    /// Its place in the group.
    place: u32,
    cost: f64,
    step: Step,
}

/// The groups after a node, by the nodes left open; none for those that cannot be completed.
pub(crate) type Level = BTreeMap<Vec<u32>, Option<Growing>>;

impl Growing {
    fn offer(
        &mut self,
        o: &Ordered<'_>,
        stocks: &mut Stocks<'_>,
        row: &mut [Stock],
        cost: f64,
        step: Step,
    ) {
        for ((stock, &t), &outlook) in row.iter_mut().zip(&self.tensors).zip(&self.outlooks) {
            let class = stocks.class(outlook, t, *stock);
            *stock = stocks.stock(outlook, class);
        }
        let place = match self.states.get_mut(&*row) {
            Some(known) => {
                if cost < known.cost {
                    (known.cost, known.step) = (cost, step);
                }
                known.place
            }
            None => {
                let place = self.states.len() as u32;
                self.states.insert(row.into(), Reached { place, cost, step });
                place
            }
        };
        if o.records {
            self.steps.push((place, step, cost));
        }
    }

    /// The group with all its states, numbered after those whose prices are in `prices`.
    pub(crate) fn all(self, deferred: Vec<u32>, prices: &mut Vec<f64>) -> Group {
        let first = prices.len();
        prices.resize(first + self.states.len(), f64::INFINITY);
        let numbered = self.states.into_iter().map(|(stocks, reached)| {
            let path = first + reached.place as usize;
            prices[path] = reached.cost;
            State { stocks, cost: reached.cost, path: path as u32 }
        });
        let states = numbered.collect();
        Group { deferred, tensors: self.tensors, states }
    }
}

/// Finds the cover of least price of a problem that [is plain](Problem::is_plain); charges, pins and budgets
/// of others are not looked at, and choices with several exits refused.
///
/// The price of a cover is the sum of its choices' prices and, for each tensor, of the cheapest
/// conversions from the format it was made in to all formats it is read in. `incumbents` are choices
/// of covers that are known: the result is never worse than one of them. Deterministic as long as
/// time is not over.
pub fn sweep(
    problem: &Problem,
    limits: Limits<'_>,
    incumbents: &[Vec<usize>],
) -> Result<Solution, ProblemError> {
    problem.check()?;
    if let Some(choice) = problem.choices.iter().position(|c| problem.has_more_exits(c)) {
        return Err(ProblemError::Choice { choice, why: "it has several exits" });
    }
    let ordered = Ordered::new(problem);
    let mut stocks = Stocks::new(problem);
    let (mut patience, mut visited) = (1, 0);
    let known = incumbents.iter().filter_map(|choices| problem.price_of(choices).ok());
    let known = known.min_by(|a, b| a.cost.total_cmp(&b.cost));
    let worst = known.as_ref().map_or(f64::INFINITY, |c| c.cost * (1.0 + ROUNDING));
    loop {
        let (found, least) = pass(&ordered, &mut stocks, limits, patience, worst, &mut visited);
        let (cover, finder) = match (found, known.clone()) {
            (Ok(cover), Some(known)) if known.cost < cover.cost => (known, Finder::Incumbent),
            (Ok(cover), _) => (cover, Finder::Sweep),
            (Err(_), Some(known)) => (known, Finder::Incumbent),
            // The states that were cut may have been the only ones that lead to a cover.
            (Err(_), None) if least.is_finite() => {
                patience *= 4;
                continue;
            }
            (Err(error), None) => return Err(error),
        };
        let (bound, exact) = (least.min(cover.cost), least >= cover.cost);
        return Ok(Solution { cover, bound, exact, finder, states: visited });
    }
}

/// One sweep with `patience` times the states that the limits allow, and what covers by way of the states
/// that were cut cost at least: infinite where none was. States that lead to nothing but covers above `worst`
/// are not followed.
fn pass(
    o: &Ordered<'_>,
    stocks: &mut Stocks<'_>,
    limits: Limits<'_>,
    patience: usize,
    worst: f64,
    visited: &mut usize,
) -> (Result<Cover, ProblemError>, f64) {
    let problem = o.problem;
    let limit = limits.states.max(1) * patience;
    let mut paths = vec![Step { parent: u32::MAX, choice: None }];
    let (mut level, _) = begin(o, stocks);
    let (mut least, mut hasty) = (f64::INFINITY, false);
    for node in 0..problem.nodes {
        let growing = advance(o, stocks, &level, node as u32);
        hasty = hasty || (limits.is_over)();
        let most = if hasty { limit.min(HASTY_STATES * patience) } else { limit };
        let rest: f64 = o.share[node + 1..].iter().sum();
        let worst = if worst.is_finite() { worst - rest } else { worst };
        let (kept, dropped) = keep(o, stocks, growing, most, worst, &mut paths);
        least = least.min(dropped + rest);
        level = kept;
        *visited += level.iter().map(|g| g.states.len()).sum::<usize>();
        if level.is_empty() {
            let at = problem.choices.iter().zip(&o.nodes);
            let here = at.filter(|(_, nodes)| nodes.last() == Some(&(node as u32)));
            let named = here.map(|(c, _)| c.exit()).next().unwrap_or(node);
            return (Err(ProblemError::Uncoverable { node: named }), least);
        }
    }
    let complete = level.iter().filter(|g| g.deferred.is_empty()).flat_map(|g| &g.states);
    let Some(best) = complete.min_by(|a, b| a.cost.total_cmp(&b.cost)) else {
        return (Err(ProblemError::Uncoverable { node: problem.nodes.saturating_sub(1) }), least);
    };
    let mut path = best.path;
    let mut choices = Vec::new();
    while path != u32::MAX {
        let step = &paths[path as usize];
        choices.extend(step.choice.map(|c| c as usize));
        path = step.parent;
    }
    (problem.price_of(&choices).map_err(ProblemError::from), least)
}

/// The state before the first node, and its price.
pub(crate) fn begin(o: &Ordered<'_>, stocks: &mut Stocks<'_>) -> (Vec<Group>, f64) {
    let problem = o.problem;
    let arriving = (0..problem.tensors.len() as u32).filter_map(|t| {
        let arrives = problem.tensors[t as usize].arrives?;
        Some((t, Stock { have: arrives, made: 0 }))
    });
    let (alive, settled): (Vec<_>, Vec<_>) = arriving.partition(|&(t, _)| o.is_read(t, 0, &[]));
    let mut start = 0.0;
    for (t, stock) in settled {
        if let Some(wanted) = problem.tensors[t as usize].wanted {
            start += stocks.more(t, stock, 1 << wanted);
        }
    }
    let first = State { stocks: alive.iter().map(|a| a.1).collect(), cost: start, path: 0 };
    let tensors = alive.iter().map(|a| a.0).collect();
    (vec![Group { deferred: Vec::new(), tensors, states: vec![first] }], start)
}

/// The states after a node: it is left for a later exit, or a choice computes it.
pub(crate) fn advance(
    o: &Ordered<'_>,
    stocks: &mut Stocks<'_>,
    level: &[Group],
    node: u32,
) -> Level {
    let mut growing = Level::new();
    for group in level {
        leave(o, stocks, group, node, &mut growing);
        for &index in &o.by_exit[node as usize] {
            exit(o, stocks, group, index, node + 1, &mut growing);
        }
    }
    growing
}

/// The group with these nodes open before `next`; none when it cannot be completed.
fn open<'g>(
    o: &Ordered<'_>,
    groups: &'g mut Level,
    stocks: &mut Stocks<'_>,
    deferred: &[u32],
    candidates: impl Iterator<Item = u32>,
    next: u32,
) -> Option<&'g mut Growing> {
    if !groups.contains_key(deferred) {
        let group = o.is_completable(deferred, next).then(|| {
            let mut tensors: Vec<u32> =
                candidates.filter(|&t| o.is_read(t, next, deferred)).collect();
            tensors.sort_unstable();
            let outlooks = tensors.iter().map(|&t| o.outlook(stocks, t, next)).collect();
            Growing { tensors, outlooks, states: HashMap::new(), steps: Vec::new() }
        });
        groups.insert(deferred.to_vec(), group);
    }
    groups.get_mut(deferred)?.as_mut()
}

/// Leaves a node for a later exit.
fn leave(o: &Ordered<'_>, stocks: &mut Stocks<'_>, group: &Group, node: u32, growing: &mut Level) {
    let mut deferred = group.deferred.clone();
    deferred.push(node);
    let alive = group.tensors.iter().copied();
    let Some(target) = open(o, growing, stocks, &deferred, alive, node + 1) else { return };
    let mut row = Vec::new();
    for state in &group.states {
        row.clear();
        row.extend_from_slice(&state.stocks);
        let step = Step { parent: state.path, choice: None };
        target.offer(o, stocks, &mut row, state.cost, step);
    }
}

/// Lets a choice compute its nodes; its exit is the node before `next`.
fn exit(
    o: &Ordered<'_>,
    stocks: &mut Stocks<'_>,
    group: &Group,
    index: u32,
    next: u32,
    growing: &mut Level,
) {
    let choice = &o.problem.choices[index as usize];
    let nodes = &o.nodes[index as usize];
    let inner = &nodes[..nodes.len() - 1];
    if !inner.iter().all(|n| group.deferred.binary_search(n).is_ok()) || !choice.cost.is_finite() {
        return;
    }
    let reads: Option<Vec<(usize, FormatId)>> = choice
        .reads
        .iter()
        .map(|&(t, f)| Some((group.tensors.binary_search(&(t as u32)).ok()?, f)))
        .collect();
    let Some(reads) = reads else { return };
    let mut deferred = group.deferred.clone();
    deferred.retain(|n| inner.binary_search(n).is_err());
    // What was alive, then what is new.
    let mut before = group.tensors.clone();
    before.extend(choice.writes.iter().map(|w| w.0 as u32));
    let alive = before.iter().copied();
    let Some(target) = open(o, growing, stocks, &deferred, alive, next) else { return };
    // Where each live tensor comes from. An output that no node reads any more is settled, so that
    // many of them do not pile up.
    let from = |t: &u32| before.iter().position(|b| b == t);
    let Some(from) = target.tensors.iter().map(from).collect::<Option<Vec<usize>>>() else {
        return;
    };
    let settled = before.iter().enumerate().filter_map(|(i, &t)| {
        let wanted = o.problem.tensors[t as usize].wanted?;
        target.tensors.binary_search(&t).is_err().then_some((i, t, wanted))
    });
    let settled: Vec<(usize, u32, FormatId)> = settled.collect();
    let (mut row, mut after) = (Vec::new(), Vec::new());
    for state in &group.states {
        let mut cost = state.cost + choice.cost;
        row.clear();
        row.extend_from_slice(&state.stocks);
        row.extend(choice.writes.iter().map(|&(_, have)| Stock { have, made: 0 }));
        for &(slot, format) in &reads {
            cost += stocks.more(before[slot], row[slot], 1 << format);
            if row[slot].have != format {
                row[slot].made |= 1 << format;
            }
        }
        for &(slot, t, wanted) in &settled {
            cost += stocks.more(t, row[slot], 1 << wanted);
        }
        if cost.is_finite() {
            after.clear();
            after.extend(from.iter().map(|&i| row[i]));
            let step = Step { parent: state.path, choice: Some(index) };
            target.offer(o, stocks, &mut after, cost, step);
        }
    }
}

/// A state that is to be judged.
struct Judged {
    /// Its price, and the least that open nodes and live tensors add to it.
    bound: f64,
    cost: f64,
    classes: Vec<usize>,
    stocks: Box<[Stock]>,
    step: Step,
}

/// Drops dominated states and those above `worst`, then the least promising ones beyond `limit`; tells the least bound of those.
fn keep(
    o: &Ordered<'_>,
    stocks: &mut Stocks<'_>,
    growing: Level,
    limit: usize,
    worst: f64,
    paths: &mut Vec<Step>,
) -> (Vec<Group>, f64) {
    let mut dropped = f64::INFINITY;
    let mut bounds = Vec::new();
    let mut judged = Vec::new();
    for (deferred, group) in growing {
        let Some(group) = group else { continue };
        let open: f64 = deferred.iter().map(|&n| o.share[n as usize]).sum();
        let rows = group.states.into_iter().map(|(row, Reached { cost, step, .. })| {
            let all = row.iter().zip(&group.tensors).zip(&group.outlooks);
            let classes: Vec<usize> =
                all.map(|((&stock, &t), &outlook)| stocks.class(outlook, t, stock)).collect();
            let ahead = classes.iter().zip(&group.outlooks);
            let ahead: f64 = ahead.map(|(&class, &outlook)| stocks.least(outlook, class)).sum();
            Judged { bound: cost + open + ahead, cost, classes, stocks: row, step }
        });
        let mut rows: Vec<Judged> =
            rows.filter(|r| r.bound.is_finite() && r.bound <= worst).collect();
        rows.sort_by(|a, b| a.bound.total_cmp(&b.bound).then_with(|| a.stocks.cmp(&b.stocks)));
        let mut kept: Vec<Judged> = Vec::new();
        for row in rows {
            let is_dominated = kept.iter().take(RIVALS).any(|rival| {
                let mut cost = rival.cost;
                for ((&a, &b), &outlook) in
                    rival.classes.iter().zip(&row.classes).zip(&group.outlooks)
                {
                    if a != b {
                        cost += stocks.behind(outlook, a, b);
                    }
                }
                cost <= row.cost
            });
            if is_dominated {
                continue;
            }
            if kept.len() == limit {
                dropped = dropped.min(row.bound);
                break;
            }
            kept.push(row);
        }
        bounds.extend(kept.iter().map(|k| k.bound));
        judged.push((deferred, group.tensors, kept));
    }
    let mut last = f64::INFINITY;
    if bounds.len() > limit {
        bounds.sort_by(f64::total_cmp);
        last = bounds[limit - 1];
        dropped = dropped.min(last);
    }
    let mut room = limit;
    let mut level = Vec::new();
    for (deferred, tensors, kept) in judged {
        let mut states = Vec::new();
        for k in kept.into_iter().take_while(|k| k.bound <= last) {
            // Ties at the limit.
            if room == 0 {
                break;
            }
            room -= 1;
            states.push(State { stocks: k.stocks, cost: k.cost, path: paths.len() as u32 });
            paths.push(k.step);
        }
        if !states.is_empty() {
            level.push(Group { deferred, tensors, states });
        }
    }
    (level, dropped)
}
