//! Each backend in turn takes the largest regions that it can, as the execution providers of ONNX Runtime and
//! the heterogeneous mode of OpenVINO do.

use crate::{
    Form, Offer, PlaceError, Price, ProblemError,
    arrange::arranged,
    covering::{Covered, Covering, counted},
    offers::offer_jointly,
    quotient::Quotient,
};
use bricolage_backend::{Backend, BackendKind, Registry, Setting};
use bricolage_ir::NodeId;
use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

/// Nodes that were given away, and those that were not.
struct Share<'a> {
    c: &'a Covering<'a>,
    /// The places of nodes in the order of the offers.
    place_of: HashMap<NodeId, usize>,
    taken: Vec<bool>,
    quotient: Quotient,
    regions: Vec<(Offer, Price)>,
}

impl Covering<'_> {
    /// The cover in which backends come in the order of registration, the reference last. Graph engines take
    /// all nodes that they can, joined where they touch; the others their largest patterns first, and of
    /// those for the same nodes the cheapest.
    pub(crate) fn greedy(
        &self,
        registry: &Registry,
        setting: &Setting,
    ) -> Result<Covered, PlaceError> {
        let order = &self.offers.order;
        let alone: Vec<Vec<NodeId>> = order.iter().map(|&n| vec![n]).collect();
        let mut share = Share {
            c: self,
            place_of: order.iter().enumerate().map(|(i, &n)| (n, i)).collect(),
            taken: vec![false; order.len()],
            quotient: Quotient::of(self.graph, &alone),
            regions: Vec::new(),
        };
        let trusted = |b: &&Arc<dyn Backend>| b.kind() == BackendKind::Reference;
        for backend in registry.iter().filter(|b| !trusted(b)) {
            if backend.kind() == BackendKind::GraphEngine {
                share.joined(backend, setting);
            }
            // An engine gets its patterns where it does not take what is joined.
            share.patterns(&|offer| offer.backend() == backend.name());
        }
        share.patterns(&|offer| matches!(offer.form, Form::View));
        share.patterns(&|offer| matches!(&offer.form, Form::Kernel(b) if trusted(&b)));
        match share.taken.iter().position(|taken| !taken) {
            Some(node) => Err(PlaceError::Problem(ProblemError::Uncoverable { node })),
            None => arranged(self.graph, share.regions, self.conversions, "greedy"),
        }
    }
}

impl Share<'_> {
    /// Gives an engine everything that it takes.
    fn joined(&mut self, engine: &Arc<dyn Backend>, setting: &Setting) {
        let (graph, order) = (self.c.graph, &self.c.offers.order);
        let takes = |i: usize| {
            !self.taken[i] && offer_jointly(graph, engine, &order[i..=i], setting).is_ok()
        };
        let wanted: Vec<bool> = (0..order.len()).map(takes).collect();
        let mut joined = self.quotient.clone();
        joined.join_neighbours(&|i| wanted[i]);
        for group in joined.groups().filter(|group| group.iter().all(|&i| wanted[i])) {
            let nodes: Vec<NodeId> = group.iter().map(|&i| order[i]).collect();
            // Nothing is computed where a view will do.
            let moves = |n: &NodeId| {
                let alone = |o: &&Offer| o.candidate.region.nodes == [*n];
                let mut offers = self.c.offers.all.iter().filter(alone);
                offers.any(|o| matches!(o.form, Form::View))
            };
            if nodes.iter().all(moves) {
                continue;
            }
            let Ok(offer) = offer_jointly(graph, engine, &nodes, setting) else { continue };
            if self.quotient.join(&group.iter().copied().collect()) {
                group.iter().for_each(|&i| self.taken[i] = true);
                self.regions.push((offer, Price::Unmeasured));
            }
        }
    }

    /// Takes offers that are `meant`, the largest first, for nodes that nobody has.
    fn patterns(&mut self, meant: &dyn Fn(&Offer) -> bool) {
        let Covering { offers, prices, .. } = self.c;
        let mut all: Vec<(&Offer, &Price, f64)> = offers
            .all
            .iter()
            .zip(*prices)
            .filter(|(offer, _)| meant(offer))
            .filter_map(|(offer, price)| Some((offer, price, counted(offer, price)?)))
            .collect();
        let nodes = |o: &Offer| o.candidate.region.nodes.len();
        all.sort_by(|a, b| nodes(b.0).cmp(&nodes(a.0)).then(a.2.total_cmp(&b.2)));
        for (offer, price, _) in all {
            let places = offer.candidate.region.nodes.iter().map(|n| self.place_of[n]);
            let places: BTreeSet<usize> = places.collect();
            if places.iter().any(|&i| self.taken[i]) || !self.quotient.join(&places) {
                continue;
            }
            places.iter().for_each(|&i| self.taken[i] = true);
            self.regions.push((offer.clone(), price.clone()));
        }
    }
}
