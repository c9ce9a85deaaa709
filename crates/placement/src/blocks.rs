//! Cuts a problem where at most one value whose format matters passes, and puts the covers of the blocks
//! together by a shortest path over that value's formats.

use crate::{Choice, FormatId, Pin, Problem, ProblemError, Tensor};
use std::{collections::HashMap, ops::Range};

/// Consecutive nodes of a problem.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Block {
    pub(crate) nodes: Range<usize>,
    /// The tensor that comes from before it, if its format matters.
    pub(crate) entry: Option<usize>,
    /// The tensor that is left for those after it, if its format matters.
    pub(crate) exit: Option<usize>,
}

/// What a block was solved to; choices are those of its own problem.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) choices: Vec<usize>,
    pub(crate) cost: f64,
    /// No cover costs less.
    pub(crate) bound: f64,
}

/// A cover of all blocks.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) choices: Vec<usize>,
    /// No cover costs less.
    pub(crate) bound: f64,
}

/// Nodes of a block that is not cut from its neighbours where a format matters.
const LARGE: usize = 150;

/// Solves the problem of a block; with the numbers that its choices have in the whole.
pub(crate) type Solve<'a> = dyn FnMut(&Problem, &[usize]) -> Result<Part, ProblemError> + 'a;

/// A block's problem that was solved, and what to, if there is a cover.
type Known = (Problem, Option<Part>);

/// The blocks of a problem: one only where charges or budgets count over all.
pub(crate) fn blocks(problem: &Problem) -> Vec<Block> {
    let mut cuts: Vec<(usize, Option<usize>)> = Vec::new();
    let counts_over_all = problem.charges.iter().any(|&c| c > 0.0) || !problem.budgets.is_empty();
    if !counts_over_all {
        // Of each place before a node: what lies on both sides of it.
        let mut spanning = vec![0; problem.nodes + 1];
        for choice in &problem.choices {
            (choice.nodes[0] + 1..=choice.exit()).for_each(|place| spanning[place] += 1);
        }
        let mut passing: Vec<Vec<usize>> = vec![Vec::new(); problem.nodes + 1];
        for (t, tensor) in problem.tensors.iter().enumerate() {
            let last = tensor.consumers.iter().copied().max();
            // A value with one format says nothing.
            if let Some(last) = last.filter(|_| tensor.convert.len() > 1) {
                let first = tensor.producer.or(tensor.consumers.iter().copied().min());
                let first = first.unwrap_or(last);
                (first + 1..=last).for_each(|place| passing[place].push(t));
            }
        }
        for place in 1..problem.nodes {
            let since = cuts.last().map_or(0, |cut| cut.0);
            let cut = match passing[place][..] {
                [] => Some(None),
                [t] => {
                    let tensor = &problem.tensors[t];
                    let made = tensor.producer.is_some_and(|p| p >= since);
                    let later = tensor.consumers.iter().all(|&n| n >= place);
                    (made && later && !problem.recompute).then_some(Some(t))
                }
                _ => None,
            };
            if let (0, Some(cut)) = (spanning[place], cut) {
                cuts.push((place, cut));
            }
        }
    }
    cuts.push((problem.nodes, None));
    let mut start = (0, None);
    let block = |end: (usize, Option<usize>)| {
        let begin = std::mem::replace(&mut start, end);
        Block { nodes: begin.0..end.0, entry: begin.1, exit: end.1 }
    };
    let cut = cuts.into_iter().map(block);
    let mut blocks: Vec<Block> = Vec::new();
    for next in cut {
        match blocks.last_mut() {
            // Solving it for every format costs more than a larger one.
            Some(last) if last.exit.is_some() && last.nodes.len().max(next.nodes.len()) > LARGE => {
                (last.nodes.end, last.exit) = (next.nodes.end, next.exit);
            }
            _ => blocks.push(next),
        }
    }
    blocks
}

/// Solves every block for all formats of the values between, alike ones once, and takes the best.
pub(crate) fn together(
    problem: &Problem,
    blocks: &[Block],
    solve: &mut Solve<'_>,
) -> Result<Whole, ProblemError> {
    let mut known: HashMap<(usize, usize, u64), Vec<Known>> = HashMap::new();
    let mut failed = None;
    // Of each format of the value between: the best so far, and a bound.
    let mut best: Vec<Option<(f64, Vec<usize>, f64)>> = vec![Some((0.0, Vec::new(), 0.0))];
    for block in blocks {
        let exits = block.exit.map_or(1, |t| problem.tensors[t].convert.len());
        let mut next: Vec<Option<(f64, Vec<usize>, f64)>> = vec![None; exits];
        for (entry, before) in best.iter().enumerate() {
            let Some((cost, choices, bound)) = before else { continue };
            for (exit, after) in next.iter_mut().enumerate() {
                let (part, numbers) = problem.part(block, entry as FormatId, exit as FormatId);
                let sum: f64 = part.choices.iter().map(|c| c.cost).sum();
                let key = (part.nodes, part.choices.len(), sum.to_bits());
                let alike = known.entry(key).or_default();
                let solved = match alike.iter().find(|k| k.0 == part) {
                    Some(found) => found.1.clone(),
                    None => {
                        let solved = match solve(&part, &numbers) {
                            Ok(solved) => Some(solved),
                            // There may be a cover by way of another format.
                            Err(ProblemError::Uncoverable { node }) => {
                                let node = node + block.nodes.start;
                                failed.get_or_insert(ProblemError::Uncoverable { node });
                                None
                            }
                            Err(error) => return Err(error),
                        };
                        alike.push((part, solved.clone()));
                        solved
                    }
                };
                let Some(solved) = solved else { continue };
                let bound = bound + solved.bound;
                let least = after.as_ref().map_or(f64::INFINITY, |a| a.2).min(bound);
                match after {
                    Some(known) if known.0 <= cost + solved.cost => known.2 = least,
                    _ => {
                        let mut all = choices.clone();
                        all.extend(solved.choices.iter().map(|&c| numbers[c]));
                        *after = Some((cost + solved.cost, all, least));
                    }
                }
            }
        }
        if next.iter().all(Option::is_none) {
            let node = block.nodes.end.saturating_sub(1);
            return Err(failed.unwrap_or(ProblemError::Uncoverable { node }));
        }
        best = next;
    }
    let node = problem.nodes.saturating_sub(1);
    let best = best.pop().flatten().ok_or(ProblemError::Uncoverable { node });
    let (_, choices, bound) = best?;
    Ok(Whole { choices, bound })
}

impl Problem {
    /// The problem of a block whose entry arrives, and whose exit is to be made, in these formats; and the
    /// numbers here of its choices.
    pub(crate) fn part(
        &self,
        block: &Block,
        entry: FormatId,
        exit: FormatId,
    ) -> (Problem, Vec<usize>) {
        let own = &block.nodes;
        let here = |n: &usize| own.contains(n);
        let mut number = vec![None; self.tensors.len()];
        let mut part = Problem {
            nodes: own.len(),
            recompute: self.recompute,
            charges: self.charges.clone(),
            ..Problem::default()
        };
        for (t, tensor) in self.tensors.iter().enumerate() {
            let made = tensor.producer.is_some_and(|n| own.contains(&n));
            let idle = tensor.producer.is_none() && tensor.consumers.is_empty() && own.start == 0;
            if !made && !idle && !tensor.consumers.iter().any(here) {
                continue;
            }
            number[t] = Some(part.tensors.len());
            let read_later = tensor.consumers.iter().any(|n| *n >= own.end);
            let leaves = block.exit == Some(t);
            let formats = tensor.convert.len();
            part.tensors.push(Tensor {
                producer: tensor.producer.filter(here).map(|n| n - own.start),
                consumers: tensor
                    .consumers
                    .iter()
                    .filter(|n| here(n))
                    .map(|n| n - own.start)
                    .collect(),
                arrives: match tensor.producer {
                    Some(_) if made => None,
                    Some(_) => Some(if block.entry == Some(t) { entry } else { 0 }),
                    None => tensor.arrives,
                },
                wanted: match leaves || (made && read_later) {
                    true => Some(if leaves { exit } else { 0 }),
                    false => tensor.wanted,
                },
                convert: match leaves {
                    true => identity(formats),
                    false => tensor.convert.clone(),
                },
            });
        }
        let mut numbers = Vec::new();
        for (i, choice) in self.choices.iter().enumerate() {
            if !here(&choice.nodes[0]) {
                continue;
            }
            let renumbered = |list: &[(usize, FormatId)]| {
                list.iter().filter_map(|&(t, f)| Some((number[t]?, f))).collect()
            };
            numbers.push(i);
            part.choices.push(Choice {
                nodes: choice.nodes.iter().map(|n| n - own.start).collect(),
                reads: renumbered(&choice.reads),
                writes: renumbered(&choice.writes),
                cost: choice.cost,
                backend: choice.backend,
            });
        }
        let pins = self.pins.iter().filter_map(|pin| {
            let choice = numbers.binary_search(&pin.choice).ok()?;
            Some(Pin { choice, ..*pin })
        });
        part.pins = pins.collect();
        if own.len() == self.nodes {
            part.budgets = self.budgets.clone();
        }
        (part, numbers)
    }
}

/// Prices of conversions where there are none.
fn identity(formats: usize) -> Vec<Vec<f64>> {
    let price = |from, to| if from == to { 0.0 } else { f64::INFINITY };
    (0..formats).map(|from| (0..formats).map(|to| price(from, to)).collect()).collect()
}
