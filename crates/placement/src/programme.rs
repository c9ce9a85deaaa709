//! The cover of least price by integer programming: choices with several exits, nodes computed more than
//! once, charges, pins and budgets.
//!
//! Choices with several exits may wait for each other. Pairs are forbidden beforehand, longer cycles only where
//! an optimum without these rows chose them; the dual bound of each round holds for the problem.

use crate::{
    Cover, CoverError, Limits, Problem, ProblemError,
    dual::SLICE,
    linear::{Linear, Sense},
};
use microlp::{
    ComparisonOp, Error, OptimizationDirection, ResumeOptions, SolveOptions, SolveOutcome, Variable,
};
use std::collections::BTreeSet;

/// A cover this much below the best, as a share of it, is not looked for.
const PRECISION: f64 = 1e-9;

/// What a programme was solved to.
pub(crate) struct Solved {
    /// The best cover found, if any was.
    pub(crate) cover: Option<Cover>,
    /// No cover costs less.
    pub(crate) bound: f64,
    /// Nodes of the search tree.
    pub(crate) nodes: usize,
}

/// Looks for a cheaper cover than `known` until there is none or the limits say that it is over; through so
/// many nodes of the search tree at most between rows against cycles.
pub(crate) fn programme(
    problem: &Problem,
    limits: Limits<'_>,
    known: Option<Cover>,
    most_nodes: usize,
) -> Result<Solved, ProblemError> {
    let mut linear = Linear::new(problem);
    for pair in problem.entangled() {
        linear.forbid_cycle(problem, &pair);
    }
    let mut solved = Solved { cover: known, bound: 0.0, nodes: 0 };
    loop {
        let round = match round(&linear, limits, solved.cover.as_ref(), most_nodes) {
            Ok(round) => round,
            Err(Error::Infeasible) if solved.cover.is_none() => {
                let node = problem.nodes.saturating_sub(1);
                return Err(ProblemError::Uncoverable { node });
            }
            // What is known breaks no rule, so that it is the best within the solver's precision.
            Err(Error::Infeasible) => {
                solved.bound = solved.cover.as_ref().map_or(0.0, |c| c.cost);
                return Ok(solved);
            }
            Err(_) if solved.cover.is_some() => return Ok(solved),
            Err(error) => return Err(ProblemError::Unsolved { why: error.to_string() }),
        };
        solved.nodes += round.nodes;
        if linear.complete {
            solved.bound = solved.bound.max(round.bound * linear.unit);
        }
        let Some(choices) = round.choices else { return Ok(solved) };
        let priced = problem.price_of(&choices);
        let cover = priced.clone().ok().or_else(|| problem.untangled(choices.clone()));
        if let Some(cover) = cover
            && solved.cover.as_ref().is_none_or(|known| cover.cost < known.cost)
        {
            solved.cover = Some(cover);
        }
        match priced {
            Ok(_) => {
                let cost = solved.cover.as_ref().map_or(f64::INFINITY, |c| c.cost);
                solved.bound = solved.bound.min(cost);
                if round.finished && linear.complete {
                    solved.bound = cost;
                }
                return Ok(solved);
            }
            Err(CoverError::Cycle { .. }) => {
                for cycle in problem.cycles(&choices) {
                    linear.forbid_cycle(problem, &cycle);
                }
            }
            // Within the solver's precision, not within ours.
            Err(_) => linear.forbid(&choices, choices.len()),
        }
        if (limits.is_over)() || !round.finished {
            return Ok(solved);
        }
    }
}

impl Problem {
    /// Pairs of choices that wait for each other, one for all that compute the same nodes.
    fn entangled(&self) -> Vec<[usize; 2]> {
        let mut readers: Vec<Vec<usize>> = vec![Vec::new(); self.tensors.len()];
        for (i, choice) in self.choices.iter().enumerate() {
            choice.reads.iter().for_each(|&(t, _)| readers[t].push(i));
        }
        let mut seen = BTreeSet::new();
        let mut pairs = Vec::new();
        for (i, choice) in self.choices.iter().enumerate().filter(|(_, c)| self.has_more_exits(c)) {
            let later = choice.writes.iter().flat_map(|&(t, _)| &readers[t]);
            for &j in later.filter(|&&j| j != i) {
                let other = &self.choices[j];
                let waits = other.writes.iter().any(|w| choice.reads.iter().any(|r| r.0 == w.0));
                if waits && seen.insert([&choice.nodes, &other.nodes]) {
                    pairs.push([i, j]);
                }
            }
        }
        pairs
    }

    /// A cover by these choices, those with several exits that wait for others taken apart into nodes, each by
    /// the cheapest choice for it alone.
    fn untangled(&self, mut choices: Vec<usize>) -> Option<Cover> {
        loop {
            let cycle = match self.price_of(&choices) {
                Ok(cover) => return Some(cover),
                Err(CoverError::Cycle { choices }) => choices,
                Err(_) => return None,
            };
            let apart = cycle.into_iter().find(|&c| self.has_more_exits(&self.choices[c]))?;
            choices.retain(|&c| c != apart);
            for node in &self.choices[apart].nodes {
                let alone = self.choices.iter().enumerate().filter(|(_, c)| c.nodes == [*node]);
                let cheapest = alone.min_by(|a, b| a.1.cost.total_cmp(&b.1.cost))?;
                choices.push(cheapest.0);
            }
        }
    }
}

/// What the solver said of a programme.
struct Round {
    choices: Option<Vec<usize>>,
    /// In units of the programme.
    bound: f64,
    finished: bool,
    nodes: usize,
}

fn round(
    linear: &Linear,
    limits: Limits<'_>,
    known: Option<&Cover>,
    most_nodes: usize,
) -> Result<Round, Error> {
    let (programme, variables) = stated(linear);
    let mut options = SolveOptions::default();
    options.time_limit = Some(SLICE);
    options.tolerances.prune_epsilon = PRECISION;
    options.warm_start = known.map(|cover| {
        let columns = linear.column_of.iter().enumerate();
        let columns = columns.filter_map(|(i, column)| Some((i, (*column)?)));
        let value = |i: usize| f64::from(u8::from(cover.choices.contains(&i)));
        columns.map(|(i, column)| (variables[column], value(i))).collect()
    });
    let mut resume = ResumeOptions::default();
    resume.time_limit = Some(SLICE);
    let mut outcome = programme.solve_with(options)?;
    let spent = |outcome: &SolveOutcome| outcome.stats().nodes_solved as usize > most_nodes;
    while !outcome.is_optimal() && !(limits.is_over)() && !spent(&outcome) {
        outcome = outcome.resume_with(resume.clone())?;
    }
    let stats = outcome.stats();
    let choices = outcome.solution().map(|solution| {
        let columns = linear.column_of.iter().enumerate();
        let chosen = columns.filter(|(_, column)| {
            column.is_some_and(|column| solution.var_value(variables[column]) > 0.5)
        });
        chosen.map(|(i, _)| i).collect()
    });
    let bound = match &outcome {
        SolveOutcome::Solution(solution) if outcome.is_optimal() => solution.objective(),
        _ => stats.best_bound.unwrap_or(0.0),
    };
    let finished = outcome.is_optimal();
    Ok(Round { choices, bound, finished, nodes: stats.nodes_solved as usize })
}

/// The programme in the solver's words.
fn stated(linear: &Linear) -> (microlp::Problem, Vec<Variable>) {
    let mut programme = microlp::Problem::new(OptimizationDirection::Minimize);
    let variables: Vec<Variable> = linear
        .columns
        .iter()
        .map(|column| match column.whole {
            true => programme.add_integer_var(column.cost, (0, 1)),
            false => programme.add_var(column.cost, (0.0, 1.0)),
        })
        .collect();
    for row in &linear.rows {
        let terms = row.terms.iter().map(|&(column, factor)| (variables[column], factor));
        let sense = match row.sense {
            Sense::AtMost => ComparisonOp::Le,
            Sense::AtLeast => ComparisonOp::Ge,
            Sense::Exactly => ComparisonOp::Eq,
        };
        programme.add_constraint(terms, sense, row.right);
    }
    (programme, variables)
}
