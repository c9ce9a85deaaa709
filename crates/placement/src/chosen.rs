//! Covers in words that a later search of the same graph finds again.

use crate::{
    Alternative, ConversionPrices, Offer, PlaceError, Placed, PlacedRegion, Priced, Pricing,
    covering::counted, offers::offer_jointly,
};
use bricolage_backend::Registry;
use bricolage_ir::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// A way to compute a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Way {
    /// Name of the backend; `view` for a view.
    backend: String,
    nodes: Vec<NodeId>,
    /// Hash of the offer's cost key.
    key: String,
}

impl Way {
    fn of(offer: &Offer) -> Way {
        Way {
            backend: offer.backend().to_owned(),
            nodes: offer.candidate.region.nodes.clone(),
            key: blake3::hash(offer.key.0.as_bytes()).to_hex().to_string(),
        }
    }
}

/// What was chosen for a region, and what else could have been.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chosen {
    way: Way,
    alternatives: Vec<Alternative>,
}

impl Chosen {
    fn of(region: &PlacedRegion) -> Chosen {
        Chosen { way: Way::of(&region.offer), alternatives: region.alternatives.clone() }
    }
}

impl Placed {
    /// What was chosen, region by region.
    pub fn chosen(&self) -> Vec<Chosen> {
        self.regions.iter().map(Chosen::of).collect()
    }

    /// Whether every region is computed as `chosen` says.
    pub fn is_by(&self, chosen: &[Chosen]) -> bool {
        let is_by = |(region, c): (&PlacedRegion, &Chosen)| Way::of(&region.offer) == c.way;
        self.regions.len() == chosen.len() && self.regions.iter().zip(chosen).all(is_by)
    }

    /// This, where what else could have been is what `chosen` says.
    pub fn with_alternatives(mut self, chosen: &[Chosen]) -> Placed {
        for region in &mut self.regions {
            let way = Way::of(&region.offer);
            if let Some(chosen) = chosen.iter().find(|c| c.way == way) {
                region.alternatives = chosen.alternatives.clone();
            }
        }
        self
    }
}

impl Priced {
    /// The cover by exactly these choices of an earlier search, with what else could have been then; `None` where one of them cannot be had any more.
    pub fn place_chosen(
        &mut self,
        p: &Pricing<'_>,
        registry: &Registry,
        conversions: &dyn ConversionPrices,
        all: &[Chosen],
        name: &str,
    ) -> Result<Option<Placed>, PlaceError> {
        let missing = |priced: &Priced| -> Vec<&Way> {
            let known: Vec<Way> = priced.offers.all.iter().map(Way::of).collect();
            all.iter().map(|c| &c.way).filter(|way| !known.contains(way)).collect()
        };
        // Runs of neighbours that were made one region are not proposed by themselves.
        let mut joined = Vec::new();
        let here: HashSet<NodeId> = p.graph.nodes().collect();
        for way in missing(self) {
            if !way.nodes.iter().all(|n| here.contains(n)) {
                return Ok(None);
            }
            if let Ok(backend) = registry.get(&way.backend) {
                joined.extend(offer_jointly(p.graph, backend, &way.nodes, &p.setting).ok());
            }
        }
        self.add(p, joined)?;
        if !missing(self).is_empty() {
            return Ok(None);
        }
        let known = self.offers.all.iter().zip(&self.prices);
        let costs: Vec<Option<f64>> = known.map(|(o, price)| counted(o, price)).collect();
        let is_over = || p.is_over(p.cover_deadline);
        let covering = self.covering(p, &costs, &is_over, conversions);
        let is_chosen = |offer: &Offer| {
            let way = Way::of(offer);
            all.iter().any(|c| c.way == way)
        };
        match covering.cover(&is_chosen, &[], name) {
            Ok(covered) => Ok(Some(covered.placed.with_alternatives(all))),
            // One of them was refused since.
            Err(PlaceError::Problem(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
