//! What was chosen for a graph, and what else could have been.

use crate::{Finder, Form, Offer, Price, Solution, solve::gap};
use bricolage_backend::{BackendKind, Region};
use bricolage_ir::{NodeId, Numerics, ValueId};
use bricolage_measure::Measurement;
use bricolage_tensor::Format;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Another way to compute nodes of a region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// Name of the backend.
    pub backend: String,
    /// Pattern, variant and formats.
    pub candidate: String,
    /// What it computes: some of the region's nodes, and maybe others.
    pub nodes: Vec<NodeId>,
    /// Threads that it runs on.
    pub threads: usize,
    /// Its measured time in nanoseconds.
    pub median_ns: f64,
    /// How many nanoseconds cheaper it would have to be to be part of a cheapest cover, conversions and what
    /// would have to change around it included.
    pub lacks_ns: f64,
    /// Whether it lacks exactly that; otherwise it lacks at least that.
    pub exact: bool,
}

/// A region with the way that was chosen for it.
#[derive(Clone)]
pub struct PlacedRegion {
    /// The chosen offer.
    pub offer: Offer,
    /// Its price.
    pub price: Price,
    /// The best other way of each backend, what lacks least first; empty where there was no time to tell.
    pub alternatives: Vec<Alternative>,
}

impl PlacedRegion {
    /// The nodes and the values at their border.
    pub fn region(&self) -> &Region {
        &self.offer.candidate.region
    }

    /// The measured time, if there is one.
    pub fn measured(&self) -> Option<&Measurement> {
        match &self.price {
            Price::Measured(m) => Some(m),
            _ => None,
        }
    }
}

/// A value made in one more format.
#[derive(Clone, Debug, PartialEq)]
pub struct PlacedConversion {
    /// Which value.
    pub value: ValueId,
    /// The format it exists in.
    pub from: Format,
    /// The format that is made.
    pub to: Format,
    /// Name of the backend that makes it.
    pub backend: String,
    /// What it costs.
    pub price: Price,
}

/// What a cover is predicted to cost, and how sure it is that no other costs less.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// Sum of the prices in nanoseconds.
    pub sum_ns: f64,
    /// No cover of the same offers has a smaller sum than this.
    pub bound_ns: f64,
    /// Whether no cheaper cover of these offers exists.
    pub exact: bool,
    /// Who found the cover.
    pub finder: Finder,
    /// States and nodes of search trees that were visited.
    pub states: usize,
}

impl Prediction {
    /// By what share of its sum a cover may at most be cheaper.
    pub fn gap(&self) -> f64 {
        gap(self.sum_ns, self.bound_ns, self.exact)
    }

    /// That of a cover that was known before, where no cover costs less than `bound_ns`.
    pub fn known_before(self, bound_ns: f64) -> Prediction {
        let bound_ns = bound_ns.min(self.sum_ns);
        Prediction { bound_ns, exact: false, finder: Finder::Incumbent, ..self }
    }
}

impl From<&Solution> for Prediction {
    fn from(s: &Solution) -> Prediction {
        let (bound_ns, exact) = (s.bound, s.exact);
        Prediction { sum_ns: s.cover.cost, bound_ns, exact, finder: s.finder, states: s.states }
    }
}

/// A cover of the graph: every node in exactly one region, every value in the formats it is read in.
#[derive(Clone)]
pub struct Placed {
    /// `mixed`, `mixed N`, `BACKEND alone`, `BACKEND whole`, or the name of another method.
    pub name: String,
    /// In an order in which they can run.
    pub regions: Vec<PlacedRegion>,
    /// A format's source before it.
    pub conversions: Vec<PlacedConversion>,
    /// What its parts cost together; `None` for the whole graph as one region, of which nothing is known
    /// before it is measured.
    pub prediction: Option<Prediction>,
}

impl Placed {
    /// The whole graph as one region, at no known price.
    pub fn whole(offer: Offer) -> Placed {
        Placed {
            name: format!("{} whole", offer.backend()),
            regions: vec![PlacedRegion {
                offer,
                price: Price::Unmeasured,
                alternatives: Vec::new(),
            }],
            conversions: Vec::new(),
            prediction: None,
        }
    }

    /// The nodes whose kernels add noise of their own, with its size as a share of the largest magnitude of
    /// their results, as [`bricolage_ir::evaluate_noisy`] takes it.
    pub fn noise(&self) -> Vec<(NodeId, f64)> {
        let one = |region: &PlacedRegion| {
            let error = region.offer.candidate.numerics.error();
            (error > 0.0).then(|| (region.region().exit(), error))
        };
        self.regions.iter().filter_map(one).collect()
    }

    /// The numerics classes of the kernels, each once, the mildest first.
    pub fn numerics(&self) -> Vec<Numerics> {
        let all: BTreeSet<Numerics> =
            self.regions.iter().map(|r| r.offer.candidate.numerics).collect();
        all.into_iter().collect()
    }

    /// Whether no two backends share the work; the reference, which stands in where a backend has no
    /// kernel, is not counted.
    pub fn is_single(&self) -> bool {
        let trusted = |r: &&PlacedRegion| matches!(&r.offer.form, Form::Kernel(b) if b.kind() == BackendKind::Reference);
        let stand_ins: BTreeSet<&str> =
            self.regions.iter().filter(trusted).map(|r| r.offer.backend()).collect();
        self.backends().iter().filter(|b| !stand_ins.contains(b.as_str())).count() <= 1
    }

    /// Names of the backends used, each once, views left out.
    pub fn backends(&self) -> Vec<String> {
        let named = self.regions.iter().filter(|r| !matches!(r.offer.form, Form::View));
        let all: BTreeSet<String> = named.map(|r| r.offer.backend().to_owned()).collect();
        all.into_iter().collect()
    }
}
