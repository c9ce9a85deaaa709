//! From prices to placements: the exact cover, and every single backend for comparison.

use crate::{
    Effort, InPlan, Method, Offer, Offers, Placed, Price, Pricing, ProblemError, Wishes,
    covering::{Covering, counted},
    gather_whole, gather_wished,
    offers::last_resort,
    price,
    stretches::{offer_merged, offer_stretches},
};
use bricolage_backend::{Backend, Declined, Registry};
use bricolage_ir::{EvalError, NodeId, TypeError};
use bricolage_measure::DatabaseError;
use bricolage_tensor::Format;
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeSet, HashMap},
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
    /// A wish of the user cannot be granted.
    #[error("{what}: {why}")]
    Wish {
        /// The wish in words.
        what: String,
        /// A clause.
        why: String,
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

/// Everything that the backends offer for a graph, with what is known of its price.
pub struct Priced {
    pub(crate) offers: Offers,
    pub(crate) prices: Vec<Price>,
    effort: Effort,
    /// Conversions that were tried and cannot be used.
    refused: BTreeSet<Refused>,
}

/// Asks every backend what it offers for the graph of `p`, and prices that.
pub fn price_all(p: &Pricing<'_>, registry: &Registry) -> Result<Priced, PlaceError> {
    let offers = gather_wished(p.graph, registry, &p.setting, p.wishes)?;
    let (prices, effort) = price(p, &offers.all)?;
    let mut priced = Priced { offers, prices, effort, refused: BTreeSet::new() };
    let short = without_help(&priced.offers, &priced.prices);
    priced.add(p, last_resort(p.graph, registry, &p.setting, &short))?;
    Ok(priced)
}

impl Priced {
    /// Covers the graph of `p`, from which the prices come: by a method that [is exact](Method::is_exact) the exact cover first, then
    /// every single backend that covers the graph; by the others what they make.
    pub fn place(
        &mut self,
        p: &Pricing<'_>,
        registry: &Registry,
        conversions: &dyn ConversionPrices,
        method: Method,
    ) -> Result<Vec<Placed>, PlaceError> {
        if !method.is_exact() {
            p.wishes.refused_by(method)?;
        }
        let known = self.offers.all.iter().zip(&self.prices);
        let costs: Vec<Option<f64>> = known.map(|(o, price)| counted(o, price)).collect();
        let is_over = || p.is_over(p.cover_deadline);
        let covering = self.covering(p, &costs, &is_over, conversions);
        // A conversion that is measured for one cover may change another.
        let mut all = loop {
            covering.news.set(false);
            let all = match method {
                Method::Exact | Method::OpLevel => covering.all(registry).map_err(|error| {
                    let wishes = Wishes { error: None, ..p.wishes.clone() };
                    let without = Covering {
                        wishes: &wishes,
                        news: Cell::new(false),
                        refused: RefCell::default(),
                        ..covering
                    };
                    p.wishes.refused_budget(error, || without.best(&[], "mixed").is_ok())
                })?,
                Method::CollageV1 => covering.by_levels()?,
                Method::Greedy => vec![covering.greedy(registry, &p.setting)?],
            };
            if !covering.news.get() || is_over() {
                break all;
            }
        };
        if method.is_exact() && !is_over() {
            covering.compare(&mut all);
        }
        let refused = covering.refused.take();
        self.refused.extend(refused);
        Ok(all.into_iter().map(|covered| covered.placed).collect())
    }

    /// Prices what these engines offer for long stretches of the graph. How many offers are new.
    pub fn widen(
        &mut self,
        p: &Pricing<'_>,
        engines: &[Arc<dyn Backend>],
    ) -> Result<usize, PlaceError> {
        let all = engines.iter().flat_map(|e| offer_stretches(p.graph, e, &p.setting)).collect();
        self.add(p, all)
    }

    /// The cheapest cover where kernels take what `in_plan` says of them. Neighbours in it that one engine
    /// computes are offered as one region as well, until no cheaper cover comes of that.
    pub fn place_again(
        &mut self,
        p: &Pricing<'_>,
        conversions: &dyn ConversionPrices,
        in_plan: &InPlan,
        name: &str,
    ) -> Result<Placed, PlaceError> {
        let is_over = || p.is_over(p.cover_deadline);
        loop {
            let known = self.offers.all.iter().zip(&self.prices);
            let cost = |(o, price)| in_plan.cost(o, price).or_else(|| counted(o, price));
            let costs: Vec<Option<f64>> = known.map(cost).collect();
            let covering = self.covering(p, &costs, &is_over, conversions);
            let mut best = covering.best(&[], name)?;
            covering.compare(std::slice::from_mut(&mut best));
            let refused = covering.refused.take();
            self.refused.extend(refused);
            let merged = offer_merged(p.graph, &best.placed, &p.setting);
            if is_over() || self.add(p, merged)? == 0 {
                return Ok(best.placed);
            }
        }
    }

    /// The whole graph as one region of each backend that takes it, as far as wishes allow.
    pub fn wholes(&self, p: &Pricing<'_>, registry: &Registry) -> Vec<Placed> {
        let mut all = gather_whole(p.graph, registry, &p.setting);
        all.retain(|offer| p.wishes.admit(p.graph, offer));
        all.into_iter().map(Placed::whole).filter(|w| p.wishes.allow_error_of(w)).collect()
    }

    /// What was refused by patterns: backend, and why.
    pub fn declined(&self) -> &[(String, Declined)] {
        &self.offers.declined
    }

    /// Offers and conversions that were tried and cannot be used.
    pub fn refused(&self) -> Vec<Refused> {
        let refused = self.offers.all.iter().zip(&self.prices);
        let refused = refused.filter_map(|(offer, price)| match price {
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
        refused.chain(self.refused.iter().cloned()).collect()
    }

    /// How much was measured.
    pub fn effort(&self) -> &Effort {
        &self.effort
    }

    /// How many offers there are.
    pub fn count(&self) -> usize {
        self.offers.all.len()
    }

    /// Prices offers, those aside that are there already. How many are new.
    pub(crate) fn add(
        &mut self,
        p: &Pricing<'_>,
        mut more: Vec<Offer>,
    ) -> Result<usize, PlaceError> {
        let same = |a: &Offer, b: &Offer| {
            a.key == b.key && a.candidate.region.nodes == b.candidate.region.nodes
        };
        more.retain(|new| {
            let known = self.offers.all.iter().any(|old| same(old, new));
            !known && p.wishes.admit(p.graph, new)
        });
        if more.is_empty() {
            return Ok(0);
        }
        let (prices, effort) = price(p, &more)?;
        let count = more.len();
        self.offers.all.extend(more);
        self.prices.extend(prices);
        self.effort.known += effort.known;
        self.effort.measured += effort.measured;
        self.effort.skipped += effort.skipped;
        self.effort.doubted.extend(effort.doubted);
        Ok(count)
    }

    pub(crate) fn covering<'a>(
        &'a self,
        p: &Pricing<'a>,
        costs: &'a [Option<f64>],
        is_over: &'a dyn Fn() -> bool,
        conversions: &'a dyn ConversionPrices,
    ) -> Covering<'a> {
        Covering {
            graph: p.graph,
            wishes: p.wishes,
            is_over,
            offers: &self.offers,
            prices: &self.prices,
            costs,
            conversions,
            news: Cell::new(false),
            refused: RefCell::default(),
        }
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
