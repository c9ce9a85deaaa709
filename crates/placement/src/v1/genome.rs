//! What bits mean: which groups of a cover a graph engine computes.

use crate::{
    ConversionPrices, Form, Limits, Offer, PlaceError, Placed, Price, Pricing, Problem,
    arrange::arranged,
    covering::{Covered, Covering},
    offers::offer_jointly,
    quotient::Quotient,
    v1,
};
use bricolage_backend::{Backend, BackendKind, Registry};
use bricolage_ir::NodeId;
use std::{collections::HashMap, sync::Arc};

impl Covering<'_> {
    /// The cover of the op level, and beside it the cover where formats alone are not seen: launches are
    /// free.
    pub(crate) fn by_levels(&self) -> Result<Vec<Covered>, PlaceError> {
        let by = |launch: f64, name: &str| {
            let solver = move |problem: &Problem, limits: Limits<'_>, _: &[Vec<usize>]| {
                v1::levels(problem, launch, limits)
            };
            self.cover_found_by(&solver, &|_| true, &[], name)
        };
        Ok(vec![by(v1::LAUNCH_NS, "op level")?, by(0.0, "layout-blind")?])
    }
}

/// A region of the op level.
struct Group {
    offer: Offer,
    price: Price,
    /// The op level gave it to the engine.
    on_engine: bool,
    /// The bit that gives it to the engine.
    bit: Option<usize>,
}

/// The regions of a cover, and the engine that may get them.
pub struct Genome<'a> {
    pricing: &'a Pricing<'a>,
    conversions: &'a dyn ConversionPrices,
    engine: Arc<dyn Backend>,
    groups: Vec<Group>,
    quotient: Quotient,
    bits: usize,
}

impl<'a> Genome<'a> {
    /// A bit for each region of `placed` that is not on the engine and that the engine takes: the first
    /// graph engine that is registered. `None` where there is none.
    pub fn new(
        pricing: &'a Pricing<'a>,
        registry: &Registry,
        conversions: &'a dyn ConversionPrices,
        placed: &Placed,
    ) -> Option<Genome<'a>> {
        let graph = pricing.graph;
        let engine = registry.iter().find(|b| b.kind() == BackendKind::GraphEngine)?.clone();
        let mut bits = 0;
        let mut groups = Vec::new();
        for region in &placed.regions {
            let offer = region.offer.clone();
            let on_engine = matches!(&offer.form, Form::Kernel(b) if b.name() == engine.name());
            let nodes = &offer.candidate.region.nodes;
            let takes = || offer_jointly(graph, &engine, nodes, &pricing.setting).is_ok();
            let bit = (!on_engine && takes()).then_some(bits);
            bits += usize::from(bit.is_some());
            groups.push(Group { offer, price: region.price.clone(), on_engine, bit });
        }
        let nodes: Vec<Vec<NodeId>> =
            groups.iter().map(|g| g.offer.candidate.region.nodes.clone()).collect();
        let quotient = Quotient::of(graph, &nodes);
        Some(Genome { pricing, conversions, engine, groups, quotient, bits })
    }

    /// How many bits there are.
    pub fn bits(&self) -> usize {
        self.bits
    }

    /// How many regions the cover has.
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Name of the engine.
    pub fn engine(&self) -> &str {
        self.engine.name()
    }

    /// The cover where the engine has the groups whose bits are set besides its own, joined where they touch.
    pub fn express(&self, bits: &[bool]) -> Result<Placed, PlaceError> {
        let graph = self.pricing.graph;
        let given = |g: usize| {
            let group = &self.groups[g];
            group.on_engine || group.bit.is_some_and(|bit| bits.get(bit) == Some(&true))
        };
        let mut quotient = self.quotient.clone();
        quotient.join_neighbours(&given);
        let place_of: HashMap<NodeId, usize> =
            graph.order().into_iter().enumerate().map(|(i, n)| (n, i)).collect();
        let mut offers = Vec::new();
        for members in quotient.groups() {
            if let [only] = members
                && (!given(*only) || self.groups[*only].on_engine)
            {
                let group = &self.groups[*only];
                offers.push((group.offer.clone(), group.price.clone()));
                continue;
            }
            let nodes = members.iter().flat_map(|&g| &self.groups[g].offer.candidate.region.nodes);
            let mut nodes: Vec<NodeId> = nodes.copied().collect();
            nodes.sort_by_key(|n| place_of.get(n));
            let offer = offer_jointly(graph, &self.engine, &nodes, &self.pricing.setting);
            let offer = offer.map_err(|why| PlaceError::Kernel {
                backend: self.engine.name().to_owned(),
                why: format!("does not take {} groups together: {why}", members.len()),
            })?;
            offers.push((offer, Price::Unmeasured));
        }
        Ok(arranged(graph, offers, self.conversions, "collage-v1")?.placed)
    }
}
