//! The one entry: the sweep where a problem has only what it can say, integer programming elsewhere.

use crate::{
    Budget, Cover, Limits, Pin, Problem, ProblemError,
    blocks::{Part, blocks, together},
    programme::programme,
    sweep,
    sweep::ROUNDING,
};

/// Who found a cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Finder {
    /// It was known before.
    Incumbent,
    /// The sweep over the nodes.
    Sweep,
    /// Integer programming, in one block at least.
    Programme,
    /// The dynamic programme of [`v1`](crate::v1), which looks for another price.
    Levels,
    /// A method that looks at no price: the choices were given.
    Given,
}

/// A cover and how it was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// The cover.
    pub cover: Cover,
    /// No cover costs less than this.
    pub bound: f64,
    /// Whether no cheaper cover exists.
    pub exact: bool,
    /// Who found it.
    pub finder: Finder,
    /// States of the sweep and nodes of the search tree visited.
    pub states: usize,
}

impl Solution {
    /// By what share of its price a cover may at most be cheaper.
    pub fn gap(&self) -> f64 {
        gap(self.cover.cost, self.bound, self.exact)
    }
}

/// By what share of `cost` the least price may lie below it.
pub(crate) fn gap(cost: f64, bound: f64, exact: bool) -> f64 {
    match exact || cost <= 0.0 {
        true => 0.0,
        false => (1.0 - bound / cost).max(0.0),
    }
}

/// States that the sweep keeps after each node before integer programming is tried.
const FEW_STATES: usize = 1000;
/// Nodes of the search tree that are tried before the sweep keeps all the states that it may.
const MOST_NODES: usize = 500;

/// Finds the cover of least price.
///
/// The price of a cover is the sum of its choices' prices, of the charges of the backends that it uses,
/// and, for each tensor, of the cheapest conversions from the formats it is made in to all formats it is
/// read in. `incumbents` are choices of covers that are known: the result is never worse than one of
/// them. Deterministic as long as time is not over.
pub fn solve(
    problem: &Problem,
    limits: Limits<'_>,
    incumbents: &[Vec<usize>],
) -> Result<Solution, ProblemError> {
    problem.check()?;
    if problem.is_plain() {
        return plain(problem, limits, incumbents);
    }
    let (open, numbers) = problem.unpinned()?;
    let known = incumbents.iter().filter_map(|choices| problem.price_of(choices).ok());
    let known = known.min_by(|a, b| a.cost.total_cmp(&b.cost));
    let blocks = blocks(&open);
    let (mut finder, mut states) = (Finder::Sweep, 0);
    let mut one = |part: &Problem, own: &[usize]| {
        let swept = match part.is_plain() {
            true => Some(plain(part, limits, &[])?),
            false => part.swept(limits),
        };
        if let Some(swept) = swept.as_ref() {
            states += swept.states;
            if swept.exact && part.is_plain() {
                return Ok(Part::of(swept.cover.clone(), swept.bound));
            }
        }
        let mut first = swept.map(|s| s.cover);
        if let (Some(known), 1) = (&known, blocks.len()) {
            let place = |c: &usize| own.iter().position(|&o| numbers[o] == *c);
            let choices: Option<Vec<usize>> = known.choices.iter().map(place).collect();
            let cover = choices.and_then(|choices| part.price_of(&choices).ok());
            first = first.into_iter().chain(cover).min_by(|a, b| a.cost.total_cmp(&b.cost));
        }
        let solved = programme(part, limits, first, usize::MAX)?;
        finder = Finder::Programme;
        states += solved.nodes;
        let none = || ProblemError::Unsolved { why: "time was over".to_owned() };
        Ok(Part::of(solved.cover.ok_or_else(none)?, solved.bound))
    };
    let found = together(&open, &blocks, &mut one);
    let (cover, bound) = match found {
        Ok(whole) => {
            let choices: Vec<usize> = whole.choices.iter().map(|&c| numbers[c]).collect();
            (Some(problem.price_of(&choices)?), whole.bound)
        }
        Err(ProblemError::Unsolved { .. }) if known.is_some() => (None, 0.0),
        Err(error) => return Err(error),
    };
    let (cover, finder) = match (cover, known) {
        (Some(cover), Some(known)) if known.cost < cover.cost => (known, Finder::Incumbent),
        (Some(cover), _) => (cover, finder),
        (None, Some(known)) => (known, Finder::Incumbent),
        (None, None) => return Err(ProblemError::Unsolved { why: "time was over".to_owned() }),
    };
    let bound = bound.min(cover.cost);
    let exact = bound >= cover.cost - ROUNDING * cover.cost;
    Ok(Solution { cover, bound, exact, finder, states })
}

/// Sweeps with few states; where these were too few integer programming has a try, and then the sweep with all
/// the states that it may keep.
fn plain(
    problem: &Problem,
    limits: Limits<'_>,
    incumbents: &[Vec<usize>],
) -> Result<Solution, ProblemError> {
    let few = Limits { states: limits.states.min(FEW_STATES), ..limits };
    let mut best = sweep(problem, few, incumbents)?;
    if best.exact || (limits.is_over)() {
        return Ok(best);
    }
    let solved = programme(problem, limits, Some(best.cover.clone()), MOST_NODES)?;
    best.states += solved.nodes;
    if let Some(cover) = solved.cover {
        best.take(cover, Finder::Programme);
    }
    best.prove(solved.bound);
    if !best.exact && !(limits.is_over)() {
        let again = sweep(problem, limits, std::slice::from_ref(&best.cover.choices))?;
        best.states += again.states;
        let bound = if again.exact { f64::INFINITY } else { again.bound };
        best.take(again.cover, Finder::Sweep);
        best.prove(bound);
    }
    Ok(best)
}

impl Solution {
    /// Takes a cover if it is cheaper.
    fn take(&mut self, cover: Cover, finder: Finder) {
        if cover.cost < self.cover.cost {
            (self.cover, self.finder) = (cover, finder);
        }
    }

    /// Takes a bound if it is better.
    fn prove(&mut self, bound: f64) {
        self.bound = self.bound.max(bound).min(self.cover.cost);
        self.exact = self.bound >= self.cover.cost * (1.0 - ROUNDING);
    }
}

impl Problem {
    /// The problem without choices that pins rule out, and without the pins where nodes are covered once;
    /// and the numbers here of its choices.
    fn unpinned(&self) -> Result<(Problem, Vec<usize>), ProblemError> {
        let rivals = |i: usize, c: usize| {
            let nodes = &self.choices[i].nodes;
            i != c && self.choices[c].nodes.iter().any(|n| nodes.binary_search(n).is_ok())
        };
        let fits = |i: &usize| {
            self.pins.iter().all(|pin| match pin.chosen {
                true => self.recompute || !rivals(*i, pin.choice),
                false => *i != pin.choice,
            })
        };
        let numbers: Vec<usize> = (0..self.choices.len()).filter(fits).collect();
        let ruled_out = |pin: &&Pin| pin.chosen && numbers.binary_search(&pin.choice).is_err();
        if let Some(pin) = self.pins.iter().find(ruled_out) {
            return Err(ProblemError::Uncoverable { node: self.choices[pin.choice].exit() });
        }
        let mut open = self.with(&numbers);
        if !self.recompute {
            open.pins.clear();
        }
        Ok((open, numbers))
    }

    /// The problem with these choices only, in rising order.
    fn with(&self, numbers: &[usize]) -> Problem {
        let number = |c: usize| numbers.binary_search(&c).ok();
        let pins = self
            .pins
            .iter()
            .filter_map(|pin| Some(Pin { choice: number(pin.choice)?, chosen: pin.chosen }));
        let budgets = self.budgets.iter().map(|budget| Budget {
            uses: budget.uses.iter().filter_map(|&(c, x)| Some((number(c)?, x))).collect(),
            most: budget.most,
        });
        Problem {
            nodes: self.nodes,
            tensors: self.tensors.clone(),
            choices: numbers.iter().map(|&c| self.choices[c].clone()).collect(),
            recompute: self.recompute,
            charges: self.charges.clone(),
            pins: pins.collect(),
            budgets: budgets.collect(),
        }
    }

    /// What the sweep makes of the choices with one exit, as if there were no rules, if that is a cover.
    fn swept(&self, limits: Limits<'_>) -> Option<Solution> {
        let mut numbers: Vec<usize> = (0..self.choices.len()).collect();
        numbers.retain(|&i| {
            !self.has_more_exits(&self.choices[i]) && self.writes_all(&self.choices[i])
        });
        let plain = Problem {
            recompute: false,
            charges: Vec::new(),
            pins: Vec::new(),
            budgets: Vec::new(),
            ..self.with(&numbers)
        };
        let few = Limits { states: limits.states.min(FEW_STATES), ..limits };
        let found = sweep(&plain, few, &[]).ok()?;
        let choices: Vec<usize> = found.cover.choices.iter().map(|&c| numbers[c]).collect();
        Some(Solution { cover: self.price_of(&choices).ok()?, ..found })
    }
}

impl Part {
    fn of(cover: Cover, bound: f64) -> Part {
        Part { choices: cover.choices, cost: cover.cost, bound }
    }
}
