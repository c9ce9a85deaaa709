//! What kernels take inside whole plans, where other kernels run before them, instead of what they take alone.

use crate::{Offer, Placed, Price};
use std::collections::{BTreeMap, HashMap};

/// Times below this many nanoseconds say little: the clock and the step around the kernel weigh as much.
const SHORT_NS: f64 = 2_000.0;

/// Times of kernels inside plans that ran.
#[derive(Clone, Debug, Default)]
pub struct InPlan {
    /// Times in nanoseconds by cost key.
    times: HashMap<String, Vec<f64>>,
    /// Of each backend, times inside plans over times alone.
    ratios: BTreeMap<String, Vec<f64>>,
    /// Of each plan, the times of its regions together in nanoseconds.
    totals: Vec<f64>,
}

impl InPlan {
    /// Adds what the regions of a plan took inside it, in nanoseconds; `None` for one that is no step.
    pub fn add(&mut self, placed: &Placed, times: &[Option<f64>]) {
        self.totals.push(times.iter().flatten().sum());
        for (region, time) in placed.regions.iter().zip(times) {
            let (Some(alone), &Some(time)) = (region.measured(), time) else { continue };
            self.times.entry(region.offer.key.0.clone()).or_default().push(time);
            if alone.median_ns >= SHORT_NS {
                let ratios = self.ratios.entry(region.offer.backend().to_owned()).or_default();
                ratios.push(time / alone.median_ns);
            }
        }
    }

    /// What the regions of the best of the plans took together, in nanoseconds; infinite without any plan.
    pub fn least_ns(&self) -> f64 {
        self.totals.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// How many times as long a backend's kernels take inside plans as alone, by the median; `None` where none
    /// ran inside a plan.
    pub fn ratio(&self, backend: &str) -> Option<f64> {
        self.ratios.get(backend).and_then(|all| median(all))
    }

    /// What a measured offer takes inside a plan, in nanoseconds: what it took, else the least that it may be
    /// expected to, which is what it takes alone times what that comes to for the luckier quarter of the kernels
    /// of its backend, or of all backends together.
    ///
    /// So a cover holds what may turn out to be better, until that was seen inside a plan too: optimism in the face
    /// of uncertainty, as in Auer et al., "Finite-time analysis of the multiarmed bandit problem" (2002).
    pub(crate) fn cost(&self, offer: &Offer, price: &Price) -> Option<f64> {
        let Price::Measured(alone) = price else { return None };
        if let Some(time) = self.times.get(&offer.key.0).and_then(|all| median(all)) {
            return Some(time);
        }
        let own = self.ratios.get(offer.backend()).and_then(|own| part_of_the_way(own, 4));
        let all =
            || part_of_the_way(&self.ratios.values().flatten().copied().collect::<Vec<_>>(), 4);
        Some(alone.median_ns * own.or_else(all).unwrap_or(1.0))
    }
}

fn median(all: &[f64]) -> Option<f64> {
    part_of_the_way(all, 2)
}

/// The value with one in so many of all below it.
fn part_of_the_way(all: &[f64], parts: usize) -> Option<f64> {
    let mut all = all.to_vec();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / parts).copied()
}

#[cfg(test)]
mod tests {
    use super::part_of_the_way;

    #[test]
    fn parts_of_the_way_are_told_by_rank() {
        let all = [5.0, 1.0, 4.0, 2.0, 3.0];
        assert_eq!([4, 2].map(|parts| part_of_the_way(&all, parts)), [Some(2.0), Some(3.0)]);
        assert_eq!(part_of_the_way(&[7.0], 4), Some(7.0));
        assert_eq!(part_of_the_way(&[], 2), None);
    }
}
