//! What the user wants of single nodes and of whole plans, whatever it costs.

use crate::{
    Form, Method, Offer, Offers, PlaceError, Placed, ProblemError, gather, offers::last_resort,
};
use bricolage_backend::{Declined, Registry, Setting};
use bricolage_ir::{Graph, NodeId};
use serde::{Deserialize, Serialize};
use std::fmt;

/// That a backend must, or must not, compute a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    /// Name of the node in the user's model.
    pub node: String,
    /// Name of the backend.
    pub backend: String,
    /// Whether the backend must compute the node; otherwise it must not.
    pub pinned: bool,
}

impl Wish {
    /// Reads `NODE=BACKEND`. The name of a node may contain `=`; the last one counts.
    pub fn parse(text: &str, pinned: bool) -> Result<Wish, String> {
        match text.rsplit_once('=') {
            Some((node, backend)) if !node.is_empty() && !backend.is_empty() => {
                Ok(Wish { node: node.to_owned(), backend: backend.to_owned(), pinned })
            }
            _ => Err(format!("`{text}` needs the form NODE=BACKEND")),
        }
    }

    fn is_of(&self, graph: &Graph, node: NodeId) -> bool {
        graph.node(node).origin.iter().any(|name| **name == *self.node)
    }

    /// Whether an offer may be used. A view computes nothing.
    fn admits(&self, graph: &Graph, offer: &Offer) -> bool {
        let Form::Kernel(backend) = &offer.form else { return true };
        (backend.name() == self.backend) == self.pinned
            || !offer.candidate.region.nodes.iter().any(|&n| self.is_of(graph, n))
    }

    fn refused(&self, why: impl Into<String>) -> PlaceError {
        PlaceError::Wish { what: self.to_string(), why: why.into() }
    }
}

impl fmt::Display for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wish { node, backend, pinned } = self;
        write!(f, "node `{node}` {} `{backend}`", if *pinned { "on" } else { "not on" })
    }
}

/// What it counts to use a backend at all, besides what its kernels take: what it must save at least.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Charge {
    /// Name of the backend.
    pub backend: String,
    /// Nanoseconds of a run; finite and not negative.
    pub ns: f64,
}

/// Everything that the user wants of a plan besides that it is fast.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Wishes {
    /// Of single nodes.
    pub nodes: Vec<Wish>,
    /// What backends count that a plan has a region of, each at most once.
    pub charges: Vec<Charge>,
    /// The most that kernels' own errors may sum to, each a share of the largest magnitude of its results
    /// ([`bricolage_ir::Numerics::error`]).
    pub error: Option<f64>,
}

impl Wishes {
    /// Whether an offer may be used.
    pub(crate) fn admit(&self, graph: &Graph, offer: &Offer) -> bool {
        self.nodes.iter().all(|w| w.admits(graph, offer))
    }

    /// Whether the kernels' own errors of a plan may be as large as they are.
    pub(crate) fn allow_error_of(&self, placed: &Placed) -> bool {
        let errors = placed.regions.iter().map(|r| r.offer.candidate.numerics.error());
        self.error.is_none_or(|most| errors.sum::<f64>() <= most)
    }

    /// What it counts to use these backends, in nanoseconds.
    pub fn charge(&self, backends: &[String]) -> f64 {
        let used = self.charges.iter().filter(|c| backends.contains(&c.backend));
        used.map(|c| c.ns).sum()
    }

    /// Each in words.
    pub fn in_words(&self) -> Vec<String> {
        let nodes = self.nodes.iter().map(Wish::to_string);
        let charges = self
            .charges
            .iter()
            .map(|Charge { backend, ns }| format!("charge of {ns} ns for `{backend}`"));
        let error = self.error.map(|e| format!("error budget of {e}"));
        nodes.chain(charges).chain(error).collect()
    }

    /// An error of covering, which is the budget's where there is a cover without it.
    pub(crate) fn refused_budget(
        &self,
        error: PlaceError,
        coverable_without: impl FnOnce() -> bool,
    ) -> PlaceError {
        match (&error, self.error) {
            (PlaceError::Problem(ProblemError::Uncoverable { .. }), Some(most))
                if coverable_without() =>
            {
                let what = format!("error budget of {most}");
                let why = "the kernels that may be used err by more in every plan".to_owned();
                PlaceError::Wish { what, why }
            }
            _ => error,
        }
    }

    /// That a method of placement does not look at them, where there are some.
    pub(crate) fn refused_by(&self, method: Method) -> Result<(), PlaceError> {
        match self.in_words().into_iter().next() {
            Some(what) => Err(PlaceError::Wish {
                what,
                why: format!("placement `{method}` grants no wishes"),
            }),
            None => Ok(()),
        }
    }
}

/// Whether wishes name nodes that are in the graph, and backends.
fn check(graph: &Graph, registry: &Registry, wishes: &Wishes) -> Result<(), PlaceError> {
    for (i, charge) in wishes.charges.iter().enumerate() {
        let what = format!("charge for `{}`", charge.backend);
        if let Err(error) = registry.get(&charge.backend) {
            return Err(PlaceError::Wish { what, why: error.to_string() });
        }
        if wishes.charges[..i].iter().any(|c| c.backend == charge.backend) {
            return Err(PlaceError::Wish { what, why: "it is given twice".to_owned() });
        }
    }
    let wishes = &wishes.nodes;
    for wish in wishes {
        if let Err(error) = registry.get(&wish.backend) {
            return Err(wish.refused(error.to_string()));
        }
        if !graph.nodes().any(|n| wish.is_of(graph, n)) {
            return Err(wish.refused("no node of this name is left after rewriting"));
        }
        let rival = |w: &&Wish| w.node == wish.node && w.pinned && wish.pinned;
        if let Some(rival) = wishes.iter().filter(rival).find(|w| w.backend != wish.backend) {
            return Err(wish.refused(format!("it is pinned to `{}` as well", rival.backend)));
        }
    }
    Ok(())
}

/// [`gather`], less what wishes forbid; the reference takes a node that this leaves to nobody, where it may.
pub fn gather_wished(
    graph: &Graph,
    registry: &Registry,
    setting: &Setting,
    wishes: &Wishes,
) -> Result<Offers, PlaceError> {
    check(graph, registry, wishes)?;
    let mut offers = gather(graph, registry, setting)?;
    offers.all.retain(|offer| wishes.admit(graph, offer));
    let takes = |all: &[Offer], n| all.iter().any(|o| o.candidate.region.nodes.contains(&n));
    let mut left = offers.order.clone();
    left.retain(|&n| !takes(&offers.all, n));
    let mut more = last_resort(graph, registry, setting, &left);
    more.retain(|offer| wishes.admit(graph, offer));
    offers.all.extend(more);
    for wish in &wishes.nodes {
        for node in graph.nodes().filter(|&n| wish.is_of(graph, n)) {
            if takes(&offers.all, node) {
                continue;
            }
            let of_this = |d: &&(String, Declined)| d.0 == wish.backend && d.1.node == node;
            let said = offers.declined.iter().filter(of_this).map(|(_, d)| d.why.as_str());
            let said = said.collect::<Vec<_>>().join("; ");
            return Err(wish.refused(match (wish.pinned, said.is_empty()) {
                (false, _) => "no other backend takes it",
                (true, true) => "it does not offer to compute it",
                (true, false) => &said,
            }));
        }
    }
    Ok(offers)
}
