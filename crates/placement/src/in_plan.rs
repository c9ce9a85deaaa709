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
}

impl InPlan {
    /// Adds what the regions of a plan took inside it, in nanoseconds; `None` for one that is no step.
    pub fn add(&mut self, placed: &Placed, times: &[Option<f64>]) {
        for (region, time) in placed.regions.iter().zip(times) {
            let (Some(alone), &Some(time)) = (region.measured(), time) else { continue };
            self.times.entry(region.offer.key.0.clone()).or_default().push(time);
            if alone.median_ns >= SHORT_NS {
                let ratios = self.ratios.entry(region.offer.backend().to_owned()).or_default();
                ratios.push(time / alone.median_ns);
            }
        }
    }

    /// How many times as long a backend's kernels take inside plans as alone, by the median; `None` where none
    /// ran inside a plan.
    pub fn ratio(&self, backend: &str) -> Option<f64> {
        self.ratios.get(backend).and_then(|all| median(all))
    }

    /// What a measured offer is expected to take inside a plan, in nanoseconds: what it took, else what it
    /// takes alone times what that comes to for its backend, or for all backends together.
    pub(crate) fn cost(&self, offer: &Offer, price: &Price) -> Option<f64> {
        let Price::Measured(alone) = price else { return None };
        if let Some(time) = self.times.get(&offer.key.0).and_then(|all| median(all)) {
            return Some(time);
        }
        let all = || median(&self.ratios.values().flatten().copied().collect::<Vec<_>>());
        Some(alone.median_ns * self.ratio(offer.backend()).or_else(all).unwrap_or(1.0))
    }
}

fn median(all: &[f64]) -> Option<f64> {
    let mut all = all.to_vec();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied()
}
