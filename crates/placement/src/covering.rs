//! Covers of priced offers: the cheapest of all, and that of every single backend.

use crate::{
    Alternative, ConversionPrices, Form, Limits, Offer, Offers, PlaceError, Placed,
    PlacedConversion, PlacedRegion, Price, Problem, ProblemError, Refused, Solution, Wishes,
    certify, solve,
    table::{Measured, Table},
};
use bricolage_backend::{Backend, BackendKind, Registry};
use bricolage_ir::{Graph, NodeId};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, hash_map::Entry},
    sync::Arc,
};

/// What an offer counts for in the sum, in nanoseconds, as long as nothing is known but its price. An offer that was not measured counts its
/// backend's guess, doubled.
pub(crate) fn counted(offer: &Offer, price: &Price) -> Option<f64> {
    match price {
        Price::Measured(m) => Some(m.median_ns),
        Price::Free => Some(0.0),
        Price::Refused(_) => None,
        Price::Unmeasured => Some(2.0 * offer.candidate.guess_ns.unwrap_or(1e9)),
    }
}

/// What chooses among the choices of a problem, within limits; incumbents are choices of known covers.
pub(crate) type Solver =
    dyn Fn(&Problem, Limits<'_>, &[Vec<usize>]) -> Result<Solution, ProblemError>;

/// What covers are made of.
pub(crate) struct Covering<'a> {
    pub(crate) graph: &'a Graph,
    pub(crate) wishes: &'a Wishes,
    /// Whether to stop looking for the cheapest cover.
    pub(crate) is_over: &'a dyn Fn() -> bool,
    pub(crate) offers: &'a Offers,
    pub(crate) prices: &'a [Price],
    /// What each offer counts for in the sum, in nanoseconds; `None` where it cannot be used.
    pub(crate) costs: &'a [Option<f64>],
    pub(crate) conversions: &'a dyn ConversionPrices,
    /// Whether a conversion was measured for one of the covers.
    pub(crate) news: Cell<bool>,
    /// Conversions that cannot be used.
    pub(crate) refused: RefCell<BTreeSet<Refused>>,
}

/// A cover with the problem that it solves.
#[derive(Clone)]
pub(crate) struct Covered {
    pub(crate) placed: Placed,
    /// Indices of the offers of its regions.
    chosen: Vec<usize>,
    /// Indices of the offers that are the problem's choices.
    choices: Vec<usize>,
    problem: Problem,
    solution: Solution,
}

impl Covering<'_> {
    /// The cheapest cover of all, and that of each backend that covers the graph.
    pub(crate) fn all(&self, registry: &Registry) -> Result<Vec<Covered>, PlaceError> {
        let offers = self.offers;
        let mut single = Vec::new();
        let mut incumbents = Vec::new();
        // The name of a backend to which every offer belongs.
        let mut only = None;
        let makes_plans = |b: &&Arc<dyn Backend>| {
            !matches!(b.kind(), BackendKind::Reference | BackendKind::Supplement)
        };
        for backend in registry.iter().filter(makes_plans) {
            let name = backend.name();
            let alone = |offer: &Offer| match &offer.form {
                Form::Kernel(b) => b.name() == name || b.kind() == BackendKind::Reference,
                Form::View => true,
            };
            if offers.all.iter().all(alone) {
                // Where all is the reference's, no backend gives the plan its name.
                if offers.all.iter().any(|o| o.backend() == name) {
                    only = Some(name);
                }
                continue;
            }
            let title = format!("{name} alone");
            match self.cover(&alone, &[], &title) {
                Ok(covered) => {
                    incumbents.push(covered.chosen.clone());
                    single.push(covered);
                }
                // A backend that does not cover the graph is no incumbent.
                Err(PlaceError::Problem(ProblemError::Uncoverable { .. })) => {}
                Err(error) => return Err(error),
            }
        }
        let mixed = self.best(&incumbents, "mixed")?;
        let same = only.map(|name| {
            let mut same = mixed.clone();
            same.placed.name = format!("{name} alone");
            same
        });
        Ok([mixed].into_iter().chain(same).chain(single).collect())
    }

    /// The cheapest cover by any offers.
    pub(crate) fn best(
        &self,
        incumbents: &[Vec<usize>],
        name: &str,
    ) -> Result<Covered, PlaceError> {
        self.cover(&|_| true, incumbents, name)
    }

    /// The cheapest cover by offers that `allowed` admits, with every conversion in it measured; no worse than
    /// `incumbents`, given by the indices of their offers.
    pub(crate) fn cover(
        &self,
        allowed: &dyn Fn(&Offer) -> bool,
        incumbents: &[Vec<usize>],
        name: &str,
    ) -> Result<Covered, PlaceError> {
        self.cover_found_by(&solve, allowed, incumbents, name)
    }

    /// [`Covering::cover`], where `solver` decides what is chosen.
    pub(crate) fn cover_found_by(
        &self,
        solver: &Solver,
        allowed: &dyn Fn(&Offer) -> bool,
        incumbents: &[Vec<usize>],
        name: &str,
    ) -> Result<Covered, PlaceError> {
        let &Covering { offers, prices, .. } = self;
        // What was not measured is chosen only where nothing is known.
        let measured = |&(offer, price): &(&Offer, &Price)| {
            allowed(offer) && matches!(price, Price::Measured(_))
        };
        let known = offers.all.iter().zip(prices).filter(measured);
        let known: HashSet<NodeId> =
            known.flat_map(|(offer, _)| offer.candidate.region.nodes.iter().copied()).collect();
        let needed = |offer: &Offer, price: &Price| {
            *price != Price::Unmeasured
                || offer.candidate.region.nodes.iter().any(|n| !known.contains(n))
        };
        let by_known = |offer: &Offer, price: &Price| allowed(offer) && needed(offer, price);
        match self.cover_by(solver, &by_known, incumbents, name) {
            // Known regions overlap so that they leave something out.
            Err(PlaceError::Problem(ProblemError::Uncoverable { .. })) => {
                self.cover_by(solver, &|offer, _| allowed(offer), incumbents, name)
            }
            result => result,
        }
    }

    fn cover_by(
        &self,
        solver: &Solver,
        admitted: &dyn Fn(&Offer, &Price) -> bool,
        incumbents: &[Vec<usize>],
        name: &str,
    ) -> Result<Covered, PlaceError> {
        let &Covering { graph, is_over, offers, prices, conversions, .. } = self;
        let mut table = Table::new(graph, offers, self.wishes);
        let mut picked = Vec::new();
        for (i, (offer, price)) in offers.all.iter().zip(prices).enumerate() {
            if let (true, Some(cost)) = (admitted(offer, price), self.costs[i])
                && table.push(offer, cost)
            {
                picked.push(i);
            }
        }
        let mut measured = Measured::new();
        let number = |offer: &usize| picked.binary_search(offer).ok();
        let known = incumbents.iter().filter_map(|all| all.iter().map(number).collect());
        let known: Vec<Vec<usize>> = known.collect();
        let limits = Limits { is_over, ..Limits::default() };
        loop {
            let refused = table.price_conversions(graph, conversions, &measured)?;
            self.refused.borrow_mut().extend(refused);
            let solution = solver(&table.problem, limits, &known)?;
            let mut anew = false;
            for c in &solution.cover.conversions {
                let Some(backend) = table.converter(c.tensor, c.from, c.to) else { continue };
                let at = (c.tensor, c.from, c.to, backend.name().to_owned());
                if let Entry::Vacant(entry) = measured.entry(at) {
                    let (dims, from, to) = table.conversion(c.tensor, c.from, c.to);
                    let known = conversions.known(backend, dims, from, to)?;
                    anew |= known.is_none();
                    let price = match known {
                        Some(price) => price,
                        None => conversions.measure(backend, dims, from, to)?,
                    };
                    entry.insert(price);
                }
            }
            if anew {
                self.news.set(true);
                continue;
            }
            let chosen: Vec<usize> = solution.cover.choices.iter().map(|&c| picked[c]).collect();
            let region = |&i: &usize| PlacedRegion {
                offer: offers.all[i].clone(),
                price: prices[i].clone(),
                alternatives: Vec::new(),
            };
            let placed_conversions = solution.cover.conversions.iter().filter_map(|c| {
                let (_, from, to) = table.conversion(c.tensor, c.from, c.to);
                let backend = table.converter(c.tensor, c.from, c.to)?.name().to_owned();
                let price = measured[&(c.tensor, c.from, c.to, backend.clone())].clone();
                let (value, from, to) = (table.values[c.tensor], from.clone(), to.clone());
                Some(PlacedConversion { value, from, to, backend, price })
            });
            let placed = Placed {
                name: name.to_owned(),
                regions: chosen.iter().map(region).collect(),
                conversions: placed_conversions.collect(),
                prediction: Some((&solution).into()),
            };
            let problem = table.problem;
            return Ok(Covered { placed, chosen, choices: picked, problem, solution });
        }
    }

    /// Tells of every region of these covers, the first of which is the cheapest, what the best other way of each backend lacks to be part
    /// of a cheapest cover.
    pub(crate) fn compare(&self, all: &mut [Covered]) {
        let Some(cheapest) = all.first() else { return };
        let limits = Limits { is_over: self.is_over, ..Limits::default() };
        let certificate = certify(&cheapest.problem, &cheapest.solution, limits);
        // Of each node, the offers that compute it, with what they lack.
        let mut ways: HashMap<NodeId, Vec<(usize, f64)>> = HashMap::new();
        for (choice, &i) in cheapest.choices.iter().enumerate() {
            let lacks = certificate.lacks(choice);
            if let (true, Price::Measured(_)) = (lacks.is_finite(), &self.prices[i]) {
                for &node in &self.offers.all[i].candidate.region.nodes {
                    ways.entry(node).or_default().push((i, lacks));
                }
            }
        }
        for covered in all {
            for (region, &chosen) in covered.placed.regions.iter_mut().zip(&covered.chosen) {
                let nodes = &region.offer.candidate.region.nodes;
                let others = nodes.iter().filter_map(|n| ways.get(n)).flatten();
                let mut best: BTreeMap<&str, (usize, f64)> = BTreeMap::new();
                for &(i, lacks) in others.filter(|(i, _)| *i != chosen) {
                    let best = best.entry(self.offers.all[i].backend()).or_insert((i, lacks));
                    if lacks < best.1 {
                        *best = (i, lacks);
                    }
                }
                let mut all: Vec<Alternative> = best
                    .into_values()
                    .filter_map(|(i, lacks)| self.alternative(i, lacks, certificate.exact))
                    .collect();
                all.sort_by(|a, b| a.lacks_ns.total_cmp(&b.lacks_ns));
                region.alternatives = all;
            }
        }
    }

    fn alternative(&self, i: usize, lacks_ns: f64, exact: bool) -> Option<Alternative> {
        let (offer, Price::Measured(m)) = (&self.offers.all[i], &self.prices[i]) else {
            return None;
        };
        Some(Alternative {
            backend: offer.backend().to_owned(),
            candidate: offer.candidate.to_string(),
            nodes: offer.candidate.region.nodes.clone(),
            threads: offer.threads,
            median_ns: m.median_ns,
            lacks_ns,
            exact,
        })
    }
}
