//! From prices to placements: the exact cover, and every single backend for comparison.

use crate::{
    Effort, Offers, Placed, Price, Pricing, ProblemError, covering::Covering, gather,
    offers::last_resort, price,
};
use bricolage_backend::{Backend, Declined, Registry};
use bricolage_ir::{EvalError, NodeId, TypeError};
use bricolage_measure::DatabaseError;
use bricolage_tensor::Format;
use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    sync::Arc,
};

/// Why a graph cannot be placed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// No backend takes a node alone.
    #[error("no backend takes node `{node}` ({op}): {}", .reasons.join("; "))]
    Uncovered {
        /// Names in the user's model.
        node: String,
        /// Name of the op.
        op: String,
        /// What each backend said.
        reasons: Vec<String>,
    },
    /// A value has a symbolic or too large size.
    #[error("value `{value}` has no constant size: {ty}")]
    Size {
        /// Name of the value.
        value: String,
        /// Its type.
        ty: String,
    },
    /// The offers do not make a cover.
    #[error(transparent)]
    Problem(#[from] ProblemError),
    /// A kernel that was chosen cannot be compiled or run any more.
    #[error("`{backend}` {why}")]
    Kernel {
        /// Name of the backend.
        backend: String,
        /// A clause.
        why: String,
    },
    /// The cost database failed.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The reference evaluator failed.
    #[error(transparent)]
    Evaluate(#[from] EvalError),
    /// A part of the graph is not well typed.
    #[error(transparent)]
    Type(#[from] TypeError),
}

/// Prices conversions between formats.
pub trait ConversionPrices {
    /// Who converts a tensor with these dims between these formats, in the order in which they are tried.
    fn backends(&self, dims: &[i64], from: &Format, to: &Format) -> Vec<Arc<dyn Backend>>;
    /// The price of a backend's conversion, if it was measured.
    fn known(
        &self,
        backend: &Arc<dyn Backend>,
        dims: &[i64],
        from: &Format,
        to: &Format,
    ) -> Result<Option<Price>, PlaceError>;
    /// Measures a backend's conversion.
    fn measure(
        &self,
        backend: &Arc<dyn Backend>,
        dims: &[i64],
        from: &Format,
        to: &Format,
    ) -> Result<Price, PlaceError>;
}

/// What was tried and cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refused {
    /// Name of the backend.
    pub backend: String,
    /// The candidate, or the conversion.
    pub what: String,
    /// What would have been computed, or whose result would have been converted.
    pub nodes: Vec<NodeId>,
    /// A clause.
    pub why: String,
}

/// What placement found.
pub struct Placements {
    /// The exact cover first, then every single backend that covers the graph.
    pub all: Vec<Placed>,
    /// What was refused by patterns.
    pub declined: Vec<(String, Declined)>,
    /// Offers and conversions that were tried and cannot be used.
    pub refused: Vec<Refused>,
    /// How much was measured.
    pub effort: Effort,
    /// How many offers there were.
    pub offers: usize,
}

/// Everything that the backends offer for a graph, with what is known of its price.
pub struct Priced {
    offers: Offers,
    prices: Vec<Price>,
    effort: Effort,
}

/// Asks every backend what it offers for the graph of `p`, and prices that.
pub fn price_all(p: &Pricing<'_>, registry: &Registry) -> Result<Priced, PlaceError> {
    let mut offers = gather(p.graph, registry, &p.setting)?;
    let (mut prices, mut effort) = price(p, &offers.all)?;
    let short = without_help(&offers, &prices);
    let rescue = last_resort(p.graph, registry, &p.setting, &short);
    if !rescue.is_empty() {
        let (more, extra) = price(p, &rescue)?;
        offers.all.extend(rescue);
        prices.extend(more);
        effort.known += extra.known;
        effort.measured += extra.measured;
        effort.skipped += extra.skipped;
        effort.doubted.extend(extra.doubted);
    }
    Ok(Priced { offers, prices, effort })
}

impl Priced {
    /// Covers the graph of `p`, from which the prices come.
    pub fn place(
        &self,
        p: &Pricing<'_>,
        registry: &Registry,
        conversions: &dyn ConversionPrices,
    ) -> Result<Placements, PlaceError> {
        let Priced { offers, prices, effort } = self;
        let is_over = || p.is_over(p.cover_deadline);
        let covering = Covering {
            graph: p.graph,
            is_over: &is_over,
            offers,
            prices,
            conversions,
            news: Cell::new(false),
            refused: RefCell::default(),
        };
        // A conversion that is measured for one cover may change another.
        let mut all = loop {
            covering.news.set(false);
            let all = covering.all(registry)?;
            if !covering.news.get() || is_over() {
                break all;
            }
        };
        if !is_over() {
            covering.compare(&mut all);
        }
        let refused = offers.all.iter().zip(prices).filter_map(|(offer, price)| match price {
            Price::Refused(why) => {
                let c = &offer.candidate;
                Some(Refused {
                    backend: offer.backend().to_owned(),
                    what: c.to_string(),
                    nodes: c.region.nodes.clone(),
                    why: why.clone(),
                })
            }
            _ => None,
        });
        Ok(Placements {
            all: all.into_iter().map(|covered| covered.placed).collect(),
            refused: refused.chain(covering.refused.take()).collect(),
            effort: effort.clone(),
            offers: offers.all.len(),
            declined: offers.declined.clone(),
        })
    }
}

/// Nodes with offers for them alone of which every one is refused.
fn without_help(offers: &Offers, prices: &[Price]) -> Vec<NodeId> {
    let mut refused: HashMap<NodeId, bool> = HashMap::new();
    for (offer, price) in offers.all.iter().zip(prices) {
        if let [node] = offer.candidate.region.nodes[..] {
            *refused.entry(node).or_insert(true) &= matches!(price, Price::Refused(_));
        }
    }
    offers.order.iter().copied().filter(|n| refused.get(n) == Some(&true)).collect()
}
