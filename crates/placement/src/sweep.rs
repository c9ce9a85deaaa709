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
    Conversion, Cover, FormatId, Problem, ProblemError,
    order::order,
    stock::{Stock, Stocks},
};
use std::collections::{BTreeMap, HashMap};

/// When the sweep gives up exactness.
#[derive(Clone, Copy)]
pub struct Limits<'a> {
    /// States kept after each node; beyond that only the most promising stay and the result is not
    /// exact.
    pub states: usize,
    /// Asked after each node; when it says yes, the sweep goes on with few states.
    pub is_over: &'a dyn Fn() -> bool,
}

impl Default for Limits<'_> {
    fn default() -> Self {
        Limits { states: 20_000, is_over: &|| false }
    }
}

/// States kept after each node when time is over.
const HASTY_STATES: usize = 500;

/// States that each state is compared with to find one that dominates it.
const RIVALS: usize = 96;

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

struct Step {
    parent: u32,
    choice: Option<u32>,
}

/// A state without what it shares with its group: the stocks of the live tensors, one each.
struct State {
    stocks: Box<[Stock]>,
    cost: f64,
    path: u32,
}

/// States that have the same nodes open, and therefore the same tensors alive.
struct Group {
    /// Nodes left for a later exit, rising.
    deferred: Vec<u32>,
    /// Tensors that are still needed, rising.
    tensors: Vec<u32>,
    states: Vec<State>,
}

/// A group that is being filled: the cheapest way to each state.
struct Growing {
    tensors: Vec<u32>,
    outlooks: Vec<usize>,
    states: HashMap<Box<[Stock]>, (f64, Step)>,
}

/// The problem with its nodes numbered in the order of the sweep.
struct Ordered<'a> {
    problem: &'a Problem,
    by_exit: Vec<Vec<u32>>,
    holding: Vec<Vec<u32>>,
    /// Nodes of each choice, rising.
    nodes: Vec<Vec<u32>>,
    /// Readers of each tensor.
    consumers: Vec<Vec<u32>>,
    /// Of each tensor: exits of the choices that read it, with the set of formats read.
    reads: Vec<Vec<(u32, u16)>>,
    /// The last exit of a choice that holds the node.
    last: Vec<u32>,
    /// A lower bound on what covering the node adds to the price of a cover.
    share: Vec<f64>,
}

impl<'a> Ordered<'a> {
    fn new(problem: &'a Problem) -> Ordered<'a> {
        let mut position = vec![0u32; problem.nodes];
        for (i, n) in order(problem).into_iter().enumerate() {
            position[n] = i as u32;
        }
        let place = |nodes: &[usize]| {
            let mut placed: Vec<u32> =
                nodes.iter().filter_map(|&n| position.get(n).copied()).collect();
            placed.sort_unstable();
            placed
        };
        let mut o = Ordered {
            problem,
            by_exit: vec![Vec::new(); problem.nodes],
            holding: vec![Vec::new(); problem.nodes],
            nodes: problem.choices.iter().map(|c| place(&c.nodes)).collect(),
            consumers: problem.tensors.iter().map(|t| place(&t.consumers)).collect(),
            reads: vec![Vec::new(); problem.tensors.len()],
            last: vec![0; problem.nodes],
            share: vec![f64::INFINITY; problem.nodes],
        };
        let mut alone = vec![f64::INFINITY; problem.nodes];
        for (c, nodes) in problem.choices.iter().zip(&o.nodes) {
            if let [n] = nodes[..] {
                alone[n as usize] = alone[n as usize].min(c.cost);
            }
        }
        for (i, c) in problem.choices.iter().enumerate() {
            let exit = position[c.exit()];
            o.by_exit[exit as usize].push(i as u32);
            for &(t, f) in &c.reads {
                match o.reads[t].last_mut() {
                    Some(read) if read.0 == exit => read.1 |= 1 << f,
                    _ => o.reads[t].push((exit, 1 << f)),
                }
            }
            // A choice's price is shared out among its nodes as their prices alone are.
            let weight =
                |n: u32| if alone[n as usize].is_finite() { alone[n as usize] } else { 1.0 };
            let whole: f64 = o.nodes[i].iter().map(|&n| weight(n)).sum();
            for &n in &o.nodes[i] {
                let at = n as usize;
                o.holding[at].push(i as u32);
                o.last[at] = o.last[at].max(exit);
                let part = if whole > 0.0 { c.cost * weight(n) / whole } else { 0.0 };
                o.share[at] = o.share[at].min(part);
            }
        }
        o
    }

    /// Whether a node from `next` on, or a deferred node, still reads the tensor.
    fn is_read(&self, tensor: u32, next: u32, deferred: &[u32]) -> bool {
        let mut consumers = self.consumers[tensor as usize].iter();
        consumers.any(|n| *n >= next || deferred.binary_search(n).is_ok())
    }

    /// Whether each deferred node lies in a choice whose exit is still to come and whose passed nodes
    /// are all deferred.
    fn is_completable(&self, deferred: &[u32], next: u32) -> bool {
        deferred.iter().all(|&n| {
            self.holding[n as usize].iter().any(|&c| {
                let nodes = &self.nodes[c as usize];
                let mut passed = nodes.iter().take_while(|&&m| m < next);
                nodes.last().is_some_and(|&exit| exit >= next)
                    && passed.all(|m| deferred.binary_search(m).is_ok())
            })
        })
    }

    /// What choices with an exit from `next` on may want of a tensor.
    fn outlook(&self, stocks: &mut Stocks<'_>, tensor: u32, next: u32) -> usize {
        let t = tensor as usize;
        let to_come = self.reads[t].iter().filter(|r| r.0 >= next);
        let formats = to_come.fold(0, |all, r| all | r.1);
        let open = self.consumers[t].iter().filter(|&&n| self.last[n as usize] >= next);
        stocks.outlook(tensor, formats, open.count() as u32)
    }

    /// The group with these nodes open before `next`; none when it cannot be completed.
    fn open<'g>(
        &self,
        groups: &'g mut BTreeMap<Vec<u32>, Option<Growing>>,
        stocks: &mut Stocks<'_>,
        deferred: &[u32],
        candidates: impl Iterator<Item = u32>,
        next: u32,
    ) -> Option<&'g mut Growing> {
        if !groups.contains_key(deferred) {
            let group = self.is_completable(deferred, next).then(|| {
                let mut tensors: Vec<u32> =
                    candidates.filter(|&t| self.is_read(t, next, deferred)).collect();
                tensors.sort_unstable();
                let outlooks = tensors.iter().map(|&t| self.outlook(stocks, t, next)).collect();
                Growing { tensors, outlooks, states: HashMap::new() }
            });
            groups.insert(deferred.to_vec(), group);
        }
        groups.get_mut(deferred)?.as_mut()
    }
}

impl Growing {
    fn offer(&mut self, stocks: &mut Stocks<'_>, row: &mut [Stock], cost: f64, step: Step) {
        for ((stock, &t), &outlook) in row.iter_mut().zip(&self.tensors).zip(&self.outlooks) {
            let class = stocks.class(outlook, t, *stock);
            *stock = stocks.stock(outlook, class);
        }
        match self.states.get_mut(&*row) {
            Some(known) if known.0 <= cost => {}
            Some(known) => *known = (cost, step),
            None => {
                self.states.insert(row.into(), (cost, step));
            }
        }
    }
}

/// Finds the cover of least price.
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
    let ordered = Ordered::new(problem);
    let mut stocks = Stocks::new(problem);
    let (mut patience, mut visited) = (1, 0);
    let known = incumbents.iter().map(|choices| cover_of(problem, choices.clone()));
    let known = known.min_by(|a, b| a.cost.total_cmp(&b.cost)).filter(|c| c.cost.is_finite());
    loop {
        let (found, cut) = pass(&ordered, &mut stocks, limits, patience, &mut visited);
        match (found, known.clone()) {
            (Ok(cover), Some(known)) if cut && known.cost < cover.cost => {
                return Ok(Solution { cover: known, exact: false, states: visited });
            }
            (Ok(cover), _) => return Ok(Solution { cover, exact: !cut, states: visited }),
            (Err(_), Some(cover)) if cut => {
                return Ok(Solution { cover, exact: false, states: visited });
            }
            // The states that were cut may have been the only ones that lead to a cover.
            (Err(_), None) if cut => patience *= 4,
            (Err(error), _) => return Err(error),
        }
    }
}

/// One sweep with `patience` times the states that the limits allow, and whether states were cut.
fn pass(
    o: &Ordered<'_>,
    stocks: &mut Stocks<'_>,
    limits: Limits<'_>,
    patience: usize,
    visited: &mut usize,
) -> (Result<Cover, ProblemError>, bool) {
    let problem = o.problem;
    let limit = limits.states.max(1) * patience;
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
    let mut paths = vec![Step { parent: u32::MAX, choice: None }];
    let mut level = vec![Group {
        deferred: Vec::new(),
        tensors: alive.iter().map(|a| a.0).collect(),
        states: vec![State { stocks: alive.iter().map(|a| a.1).collect(), cost: start, path: 0 }],
    }];
    let (mut cut, mut hasty) = (false, false);
    for node in 0..problem.nodes {
        let next = node as u32 + 1;
        let mut growing: BTreeMap<Vec<u32>, Option<Growing>> = BTreeMap::new();
        for group in &level {
            leave(o, stocks, group, node as u32, &mut growing);
            for &index in &o.by_exit[node] {
                exit(o, stocks, group, index, next, &mut growing);
            }
        }
        hasty = hasty || (limits.is_over)();
        let most = if hasty { limit.min(HASTY_STATES * patience) } else { limit };
        let (kept, dropped) = keep(o, stocks, growing, most, &mut paths);
        cut |= dropped;
        level = kept;
        *visited += level.iter().map(|g| g.states.len()).sum::<usize>();
        if level.is_empty() {
            let at = problem.choices.iter().zip(&o.nodes);
            let here = at.filter(|(_, nodes)| nodes.last() == Some(&(node as u32)));
            let named = here.map(|(c, _)| c.exit()).next().unwrap_or(node);
            return (Err(ProblemError::Uncoverable { node: named }), cut);
        }
    }
    let complete = level.iter().filter(|g| g.deferred.is_empty()).flat_map(|g| &g.states);
    let Some(best) = complete.min_by(|a, b| a.cost.total_cmp(&b.cost)) else {
        return (Err(ProblemError::Uncoverable { node: problem.nodes.saturating_sub(1) }), cut);
    };
    let mut path = best.path;
    let mut choices = Vec::new();
    while path != u32::MAX {
        let step = &paths[path as usize];
        choices.extend(step.choice.map(|c| c as usize));
        path = step.parent;
    }
    (Ok(cover_of(problem, choices)), cut)
}

/// Leaves a node for a later exit.
fn leave(
    o: &Ordered<'_>,
    stocks: &mut Stocks<'_>,
    group: &Group,
    node: u32,
    growing: &mut BTreeMap<Vec<u32>, Option<Growing>>,
) {
    let mut deferred = group.deferred.clone();
    deferred.push(node);
    let alive = group.tensors.iter().copied();
    let Some(target) = o.open(growing, stocks, &deferred, alive, node + 1) else { return };
    let mut row = Vec::new();
    for state in &group.states {
        row.clear();
        row.extend_from_slice(&state.stocks);
        let step = Step { parent: state.path, choice: None };
        target.offer(stocks, &mut row, state.cost, step);
    }
}

/// Lets a choice compute its nodes; its exit is the node before `next`.
fn exit(
    o: &Ordered<'_>,
    stocks: &mut Stocks<'_>,
    group: &Group,
    index: u32,
    next: u32,
    growing: &mut BTreeMap<Vec<u32>, Option<Growing>>,
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
    let Some(target) = o.open(growing, stocks, &deferred, alive, next) else { return };
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
            target.offer(stocks, &mut after, cost, step);
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

/// Drops dominated states, then the least promising ones beyond `limit`; tells whether there were
/// such.
fn keep(
    o: &Ordered<'_>,
    stocks: &mut Stocks<'_>,
    growing: BTreeMap<Vec<u32>, Option<Growing>>,
    limit: usize,
    paths: &mut Vec<Step>,
) -> (Vec<Group>, bool) {
    let mut cut = false;
    let mut bounds = Vec::new();
    let mut judged = Vec::new();
    for (deferred, group) in growing {
        let Some(group) = group else { continue };
        let open: f64 = deferred.iter().map(|&n| o.share[n as usize]).sum();
        let rows = group.states.into_iter().map(|(row, (cost, step))| {
            let all = row.iter().zip(&group.tensors).zip(&group.outlooks);
            let classes: Vec<usize> =
                all.map(|((&stock, &t), &outlook)| stocks.class(outlook, t, stock)).collect();
            let ahead = classes.iter().zip(&group.outlooks);
            let ahead: f64 = ahead.map(|(&class, &outlook)| stocks.least(outlook, class)).sum();
            Judged { bound: cost + open + ahead, cost, classes, stocks: row, step }
        });
        let mut rows: Vec<Judged> = rows.filter(|r| r.bound.is_finite()).collect();
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
                cut = true;
                break;
            }
            kept.push(row);
        }
        bounds.extend(kept.iter().map(|k| k.bound));
        judged.push((deferred, group.tensors, kept));
    }
    let mut last = f64::INFINITY;
    if bounds.len() > limit {
        cut = true;
        bounds.sort_by(f64::total_cmp);
        last = bounds[limit - 1];
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
    (level, cut)
}

/// The cover by these choices with its conversions and its price; infinite where a format cannot be
/// made.
fn cover_of(problem: &Problem, mut choices: Vec<usize>) -> Cover {
    choices.sort_by_key(|&c| problem.choices[c].exit());
    let (conversions, converting) = conversions_of(problem, &choices);
    let cost = choices.iter().map(|&c| problem.choices[c].cost).sum::<f64>() + converting;
    Cover { choices, conversions, cost }
}

/// The cheapest conversions for everything that `choices` read and the outputs want, with their
/// price.
fn conversions_of(problem: &Problem, choices: &[usize]) -> (Vec<Conversion>, f64) {
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
    let (mut all, mut price) = (Vec::new(), 0.0);
    for (t, (have, &needed)) in have.iter().zip(&needed).enumerate() {
        if let Some(have) = *have {
            let (more, conversions) = problem.conversions(t, have, needed);
            all.extend(conversions);
            price += more;
        }
    }
    (all, price)
}
