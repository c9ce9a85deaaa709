//! Lower bounds on covers: what the rows of a linear programme are worth.

use crate::{
    Limits,
    linear::{Linear, Sense},
};
use microlp::{ComparisonOp, OptimizationDirection, SolveOptions};
use std::time::Duration;

/// How often the limits are asked.
pub(crate) const SLICE: Duration = Duration::from_millis(50);

/// What prices of the rows prove, in units of the programme.
pub(crate) struct Dual {
    /// What each column costs beyond what its rows pay.
    pub(crate) reduced: Vec<f64>,
    /// No point costs less.
    pub(crate) bound: f64,
}

impl Linear {
    /// The prices that prove the best bound; none where the solver fails or the limits say that it is over.
    pub(crate) fn dual(&self, limits: Limits<'_>) -> Option<Dual> {
        let mut dual = microlp::Problem::new(OptimizationDirection::Maximize);
        let mut paid = vec![Vec::new(); self.columns.len()];
        let mut variables = Vec::with_capacity(self.rows.len());
        for row in &self.rows {
            let range = match row.sense {
                Sense::AtMost => (f64::NEG_INFINITY, 0.0),
                Sense::AtLeast => (0.0, f64::INFINITY),
                Sense::Exactly => (f64::NEG_INFINITY, f64::INFINITY),
            };
            let price = dual.add_var(row.right, range);
            row.terms.iter().for_each(|&(column, factor)| paid[column].push((price, factor)));
            variables.push(price);
        }
        for (column, terms) in self.columns.iter().zip(paid) {
            dual.add_constraint(terms, ComparisonOp::Le, column.cost);
        }
        let mut options = SolveOptions::default();
        options.time_limit = Some(SLICE);
        let mut outcome = dual.solve_with(options).ok()?;
        while !outcome.is_optimal() {
            if (limits.is_over)() {
                return None;
            }
            outcome = outcome.resume().ok()?;
        }
        let solution = outcome.solution()?;
        Some(self.priced(variables.iter().map(|&v| solution.var_value(v)).collect()))
    }

    /// Prices are not negative where at least, not positive where at most. Lowers them until no column is paid more than it costs, as far as that goes; the rest is paid from
    /// the bound, for a column is at most 1.
    fn priced(&self, prices: Vec<f64>) -> Dual {
        let allowed = |sense: Sense, price: f64| match sense {
            Sense::AtLeast => price.max(0.0),
            Sense::AtMost => price.min(0.0),
            Sense::Exactly => price,
        };
        let mut prices: Vec<f64> =
            self.rows.iter().zip(prices).map(|(row, price)| allowed(row.sense, price)).collect();
        let mut reduced: Vec<f64> = self.columns.iter().map(|c| c.cost).collect();
        for (row, price) in self.rows.iter().zip(&prices) {
            row.terms.iter().for_each(|&(column, factor)| reduced[column] -= factor * price);
        }
        // Sets of formats first: what they lack is taken from the choices that make them.
        for column in (0..reduced.len()).rev() {
            let Some(row) = self.payer[column].filter(|_| reduced[column] < 0.0) else { continue };
            let lower = allowed(self.rows[row].sense, prices[row] + reduced[column]);
            let change = lower - prices[row];
            prices[row] = lower;
            for &(other, factor) in &self.rows[row].terms {
                reduced[other] -= factor * change;
            }
        }
        let paid: f64 = self.rows.iter().zip(&prices).map(|(row, price)| row.right * price).sum();
        let owed: f64 = reduced.iter().map(|r| r.min(0.0)).sum();
        Dual { bound: paid + owed, reduced }
    }
}
