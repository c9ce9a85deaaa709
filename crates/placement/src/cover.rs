//! What a set of choices costs as a cover, and whether it is one.

use crate::{FormatId, Problem};
use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, VecDeque},
};

/// A tensor in one more format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conversion {
    /// Which tensor.
    pub tensor: usize,
    /// Format that exists already.
    pub from: FormatId,
    /// Format that is made.
    pub to: FormatId,
}

/// Choices that cover every node, and the conversions between them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cover {
    /// Indices of choices in an order in which they can run: of those that can, the one with the first
    /// exit.
    pub choices: Vec<usize>,
    /// Conversions, a format's source before it.
    pub conversions: Vec<Conversion>,
    /// Sum of the prices, charges of backends included.
    pub cost: f64,
}

/// Why a set of choices is not a cover.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CoverError {
    /// A choice is not there, named twice, or has no finite price.
    #[error("choice {choice} is not there, named twice, or has no finite price")]
    Choice {
        /// Index of the choice.
        choice: usize,
    },
    /// A node is not covered as often as it must be.
    #[error("node {node} needs to be covered once, found {times} times")]
    Node {
        /// Index of the node.
        node: usize,
        /// How often it is covered.
        times: usize,
    },
    /// A tensor cannot be had in a format that is read.
    #[error("tensor {tensor} cannot be had in every format that is read")]
    Format {
        /// Index of the tensor.
        tensor: usize,
    },
    /// Choices wait for each other.
    #[error("choices wait for each other: {}", list(.choices))]
    Cycle {
        /// Indices of choices; each waits for the one before it, the first for the last.
        choices: Vec<usize>,
    },
    /// A pin is not respected.
    #[error("choice {choice} is pinned otherwise")]
    Pin {
        /// Index of the choice.
        choice: usize,
    },
    /// A budget is spent.
    #[error("budget {budget} allows {most}, found {used}")]
    Budget {
        /// Index of the budget.
        budget: usize,
        /// What it allows.
        most: f64,
        /// What the choices use.
        used: f64,
    },
}

fn list(choices: &[usize]) -> String {
    choices.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

/// How far over a budget a cover may be, as a share of it: the rounding of the sum.
const BUDGET_ROUNDING: f64 = 1e-9;

impl Problem {
    /// The cover by these choices, with its conversions and its price, or why they are none.
    ///
    /// A tensor that several choices make is had in all their formats, and all of them run before any
    /// choice that reads it.
    pub fn price_of(&self, choices: &[usize]) -> Result<Cover, CoverError> {
        self.check_choices(choices)?;
        self.check_limits(choices)?;
        let order = self.order_of(choices)?;
        let mut have: Vec<u16> =
            self.tensors.iter().map(|t| t.arrives.map_or(0, |f| 1 << f)).collect();
        let mut needed: Vec<u16> =
            self.tensors.iter().map(|t| t.wanted.map_or(0, |f| 1 << f)).collect();
        let mut backends = BTreeSet::new();
        let mut cost = 0.0;
        for choice in order.iter().map(|&c| &self.choices[c]) {
            choice.writes.iter().for_each(|&(t, f)| have[t] |= 1 << f);
            choice.reads.iter().for_each(|&(t, f)| needed[t] |= 1 << f);
            backends.insert(choice.backend);
            cost += choice.cost;
        }
        let (mut conversions, mut converting) = (Vec::new(), 0.0);
        for (tensor, (&have, &needed)) in have.iter().zip(&needed).enumerate() {
            if needed & !have != 0 {
                let (price, more) = match have {
                    0 => (f64::INFINITY, Vec::new()),
                    _ => self.conversions(tensor, have, needed),
                };
                if price.is_infinite() {
                    return Err(CoverError::Format { tensor });
                }
                conversions.extend(more);
                converting += price;
            }
        }
        let charged = backends.iter().filter_map(|&b| self.charges.get(b));
        let cost = cost + converting + charged.sum::<f64>();
        Ok(Cover { choices: order, conversions, cost })
    }

    /// Whether the choices exist and cover the nodes.
    fn check_choices(&self, choices: &[usize]) -> Result<(), CoverError> {
        let mut times = vec![0; self.nodes];
        let mut chosen = vec![false; self.choices.len()];
        for &c in choices {
            match self.choices.get(c) {
                Some(choice) if !chosen[c] && choice.cost.is_finite() => {
                    chosen[c] = true;
                    choice.nodes.iter().for_each(|&n| times[n] += 1);
                }
                _ => return Err(CoverError::Choice { choice: c }),
            }
        }
        let fits = |&times: &usize| times == 1 || (self.recompute && times > 0);
        match times.iter().position(|t| !fits(t)) {
            Some(node) => Err(CoverError::Node { node, times: times[node] }),
            None => Ok(()),
        }
    }

    /// Whether pins and budgets are respected.
    fn check_limits(&self, choices: &[usize]) -> Result<(), CoverError> {
        if let Some(pin) = self.pins.iter().find(|p| choices.contains(&p.choice) != p.chosen) {
            return Err(CoverError::Pin { choice: pin.choice });
        }
        for (budget, b) in self.budgets.iter().enumerate() {
            let used: f64 = b.uses.iter().filter(|u| choices.contains(&u.0)).map(|u| u.1).sum();
            if used > b.most + BUDGET_ROUNDING * b.most.abs() {
                return Err(CoverError::Budget { budget, most: b.most, used });
            }
        }
        Ok(())
    }

    /// An order in which the choices can run: of those that can, the one with the first exit.
    fn order_of(&self, choices: &[usize]) -> Result<Vec<usize>, CoverError> {
        let after = self.waiting(choices);
        let mut waits = vec![0; choices.len()];
        after.iter().flatten().for_each(|&i| waits[i] += 1);
        let exit = |i: usize| self.choices[choices[i]].exit();
        let mut ready: BinaryHeap<Reverse<(usize, usize)>> = BinaryHeap::new();
        ready.extend((0..choices.len()).filter(|&i| waits[i] == 0).map(|i| Reverse((exit(i), i))));
        let mut order = Vec::with_capacity(choices.len());
        while let Some(Reverse((_, i))) = ready.pop() {
            order.push(choices[i]);
            for &next in &after[i] {
                waits[next] -= 1;
                if waits[next] == 0 {
                    ready.push(Reverse((exit(next), next)));
                }
            }
        }
        if order.len() == choices.len() {
            return Ok(order);
        }
        let choices = self.cycles(choices).into_iter().next().unwrap_or_default();
        Err(CoverError::Cycle { choices })
    }

    /// Of each choice, by its place in `choices`, those that wait for it, each once.
    fn waiting(&self, choices: &[usize]) -> Vec<BTreeSet<usize>> {
        let mut readers: Vec<Vec<usize>> = vec![Vec::new(); self.tensors.len()];
        for (i, &c) in choices.iter().enumerate() {
            self.choices[c].reads.iter().for_each(|&(t, _)| readers[t].push(i));
        }
        let after = |&c: &usize| {
            self.choices[c].writes.iter().flat_map(|&(t, _)| readers[t].iter().copied()).collect()
        };
        choices.iter().map(after).collect()
    }

    /// Shortest cycles of choices that wait for each other; each choice that is in any is in one of
    /// these.
    pub(crate) fn cycles(&self, choices: &[usize]) -> Vec<Vec<usize>> {
        let after = self.waiting(choices);
        let mut found: Vec<Vec<usize>> = Vec::new();
        let mut done = vec![false; choices.len()];
        for start in 0..choices.len() {
            if done[start] {
                continue;
            }
            let mut from = vec![None; choices.len()];
            let mut queue = VecDeque::from([start]);
            while let Some(at) = queue.pop_front()
                && from[start].is_none()
            {
                for &next in &after[at] {
                    if from[next].is_none() {
                        from[next] = Some(at);
                        queue.push_back(next);
                    }
                }
            }
            let mut cycle = Vec::new();
            let mut at = from[start];
            while let Some(i) = at {
                done[i] = true;
                cycle.push(choices[i]);
                at = if i == start { None } else { from[i] };
            }
            if !cycle.is_empty() {
                cycle.reverse();
                found.push(cycle);
            }
        }
        found
    }

    /// The cheapest conversions that make every format of the set `needed` from those of the set
    /// `have`, which is not empty, through other formats where that is cheaper: a directed Steiner tree (Dreyfus and Wagner, *The
    /// Steiner problem in graphs*, 1971).
    pub(crate) fn conversions(
        &self,
        tensor: usize,
        have: u16,
        needed: u16,
    ) -> (f64, Vec<Conversion>) {
        let mut prices = Cow::Borrowed(&self.tensors[tensor].convert);
        let formats = prices.len();
        let needed = needed & !have;
        let goals: Vec<usize> = (0..formats).filter(|&f| needed & (1 << f) != 0).collect();
        if goals.is_empty() {
            return (0.0, Vec::new());
        }
        // All that exist already are as good as one.
        let start = have.trailing_zeros() as usize;
        if !have.is_power_of_two() {
            for f in (0..formats).filter(|&f| have & (1 << f) != 0) {
                prices.to_mut()[start][f] = 0.0;
            }
        }
        let (far, hop) = shortest_paths(&prices);
        // tree[set][root]: price, and the branching point with one half of the set below it.
        let mut tree = vec![vec![(f64::INFINITY, 0, 0); formats]; 1 << goals.len()];
        for set in 1usize..1 << goals.len() {
            let below: Vec<(f64, usize)> = (0..formats)
                .map(|at| match set.is_power_of_two() {
                    true if goals[set.trailing_zeros() as usize] == at => (0.0, 0),
                    true => (f64::INFINITY, 0),
                    false => (1..set)
                        .filter(|half| half & set == *half)
                        .map(|half| (tree[half][at].0 + tree[set ^ half][at].0, half))
                        .fold((f64::INFINITY, 0), |a, b| if b.0 < a.0 { b } else { a }),
                })
                .collect();
            for root in 0..formats {
                for at in 0..formats {
                    let price = far[root][at] + below[at].0;
                    if price < tree[set][root].0 {
                        tree[set][root] = (price, at, below[at].1);
                    }
                }
            }
        }
        let mut found = Vec::new();
        let mut open = vec![((1usize << goals.len()) - 1, start)];
        let price = tree[open[0].0][open[0].1].0;
        if price.is_infinite() {
            return (price, found);
        }
        while let Some((set, mut root)) = open.pop() {
            let (_, branch, half) = tree[set][root];
            while root != branch {
                let to = hop[root][branch];
                let step = Conversion { tensor, from: root as FormatId, to: to as FormatId };
                let exists = have & (1 << to) != 0;
                if !exists && !found.iter().any(|c: &Conversion| c.to == step.to) {
                    found.push(step);
                }
                root = to;
            }
            if half != 0 {
                open.extend([(half, branch), (set ^ half, branch)]);
            }
        }
        (price, found)
    }
}

/// Distances between all pairs, and the first step on the way (Floyd and Warshall).
fn shortest_paths(prices: &[Vec<f64>]) -> (Vec<Vec<f64>>, Vec<Vec<usize>>) {
    let n = prices.len();
    let mut far = prices.to_vec();
    let mut hop: Vec<Vec<usize>> = vec![(0..n).collect(); n];
    for (i, row) in far.iter_mut().enumerate() {
        row[i] = 0.0;
    }
    for via in 0..n {
        for from in 0..n {
            for to in 0..n {
                let price = far[from][via] + far[via][to];
                if price < far[from][to] {
                    far[from][to] = price;
                    hop[from][to] = hop[from][via];
                }
            }
        }
    }
    (far, hop)
}
