//! Covers in words that a later search of the same graph finds again.

use crate::{
    ConversionPrices, Offer, PlaceError, Placed, Priced, Pricing, covering::counted,
    offers::offer_jointly,
};
use bricolage_backend::Registry;
use bricolage_ir::NodeId;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// What was chosen for a region.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chosen {
    /// Name of the backend; `view` for a view.
    backend: String,
    nodes: Vec<u32>,
    /// Hash of the offer's cost key.
    key: String,
}

impl Chosen {
    fn of(offer: &Offer) -> Chosen {
        Chosen {
            backend: offer.backend().to_owned(),
            nodes: offer.candidate.region.nodes.iter().map(|n| n.0).collect(),
            key: blake3::hash(offer.key.0.as_bytes()).to_hex().to_string(),
        }
    }
}

impl Placed {
    /// What was chosen, region by region.
    pub fn chosen(&self) -> Vec<Chosen> {
        self.regions.iter().map(|r| Chosen::of(&r.offer)).collect()
    }
}

impl Priced {
    /// The cover by exactly these choices of an earlier search; `None` where one of them cannot be had any more.
    pub fn place_chosen(
        &mut self,
        p: &Pricing<'_>,
        registry: &Registry,
        conversions: &dyn ConversionPrices,
        all: &[Chosen],
        name: &str,
    ) -> Result<Option<Placed>, PlaceError> {
        let missing = |priced: &Priced| -> Vec<Chosen> {
            let known: Vec<Chosen> = priced.offers.all.iter().map(Chosen::of).collect();
            all.iter().filter(|c| !known.contains(c)).cloned().collect()
        };
        // Runs of neighbours that were made one region are not proposed by themselves.
        let mut joined = Vec::new();
        let here: HashSet<u32> = p.graph.nodes().map(|n| n.0).collect();
        for chosen in missing(self) {
            if !chosen.nodes.iter().all(|n| here.contains(n)) {
                return Ok(None);
            }
            let nodes: Vec<NodeId> = chosen.nodes.iter().map(|&n| NodeId(n)).collect();
            if let Ok(backend) = registry.get(&chosen.backend) {
                joined.extend(offer_jointly(p.graph, backend, &nodes, &p.setting).ok());
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
        let is_chosen = |offer: &Offer| all.contains(&Chosen::of(offer));
        match covering.cover(&is_chosen, &[], name) {
            Ok(covered) => Ok(Some(covered.placed)),
            // One of them was refused since.
            Err(PlaceError::Problem(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
