//! What every choice lacks to be chosen.

use crate::{
    Limits, Problem, Solution,
    linear::Linear,
    ordered::Ordered,
    stock::Stocks,
    sweep::{advance, begin},
};

/// Steps between states that are kept at the same time, at most.
const MOST_STEPS: usize = 2_000_000;

/// The least price of a cover, and of covers with each choice in them.
#[derive(Clone, Debug, PartialEq)]
pub struct Certificate {
    /// The least price of a cover.
    pub cost: f64,
    /// Of each choice: the least price of a cover that contains it; infinite where there is none.
    pub with: Vec<f64>,
    /// Whether `with` is that price. Otherwise it may be higher than `with` says.
    pub exact: bool,
}

impl Certificate {
    /// How much cheaper a choice would have to be to be part of a cover of least price; at least that much
    /// where the certificate is not exact.
    pub fn lacks(&self, choice: usize) -> f64 {
        (self.with[choice] - self.cost).max(0.0)
    }
}

/// Finds the least price of a cover, of which `solution` is what [`solve`](crate::solve) found, and of covers
/// with each choice: by a sweep to and fro where the problem is plain and the states are few, and otherwise from
/// the prices that a linear programme gives to nodes and tensors.
pub fn certify(problem: &Problem, solution: &Solution, limits: Limits<'_>) -> Certificate {
    if problem.is_plain()
        && let Some(found) = to_and_fro(problem, limits)
        && found.cost.is_finite()
    {
        return found;
    }
    let cost = solution.cover.cost;
    let linear = Linear::new(problem);
    let dual = linear.dual(limits);
    let bound = |column: Option<usize>| match (column, &dual) {
        (None, _) => f64::INFINITY,
        (Some(_), None) => solution.bound,
        (Some(column), Some(dual)) => {
            let bound = (dual.bound + dual.reduced[column].max(0.0)) * linear.unit;
            bound.max(solution.bound)
        }
    };
    let mut with: Vec<f64> = linear.column_of.iter().map(|&column| bound(column)).collect();
    solution.cover.choices.iter().for_each(|&c| with[c] = cost);
    Certificate { cost, with, exact: false }
}

/// A step between two states.
struct Link {
    from: u32,
    to: u32,
    choice: Option<u32>,
    cost: f64,
}

/// The certificate by all states; none where there are too many.
fn to_and_fro(problem: &Problem, limits: Limits<'_>) -> Option<Certificate> {
    let ordered = Ordered::recording(problem);
    let mut stocks = Stocks::new(problem);
    let (mut level, start) = begin(&ordered, &mut stocks);
    let mut reached = vec![start];
    let mut links: Vec<Link> = Vec::new();
    for node in 0..problem.nodes {
        let growing = advance(&ordered, &mut stocks, &level, node as u32);
        level = Vec::new();
        for (deferred, group) in growing {
            let Some(group) = group else { continue };
            let first = reached.len() as u32;
            links.extend(group.steps.iter().map(|(to, step, cost)| Link {
                from: step.parent,
                to: first + to,
                choice: step.choice,
                cost: cost - reached[step.parent as usize],
            }));
            level.push(group.all(deferred, &mut reached));
        }
        if links.len() > MOST_STEPS || (limits.is_over)() {
            return None;
        }
    }
    let mut left = vec![f64::INFINITY; reached.len()];
    for group in level.iter().filter(|g| g.deferred.is_empty()) {
        group.states.iter().for_each(|s| left[s.path as usize] = 0.0);
    }
    let mut with = vec![f64::INFINITY; problem.choices.len()];
    for link in links.iter().rev() {
        let rest = link.cost + left[link.to as usize];
        let from = link.from as usize;
        left[from] = left[from].min(rest);
        if let Some(choice) = link.choice {
            let whole = reached[from] + rest;
            with[choice as usize] = with[choice as usize].min(whole);
        }
    }
    Some(Certificate { cost: start + left[0], with, exact: true })
}
