//! What the user wants of single nodes, whatever it costs.

use crate::{Form, Offer, Offers, PlaceError, gather, offers::last_resort};
use bricolage_backend::{Declined, Registry, Setting};
use bricolage_ir::{Graph, NodeId};
use serde::{Deserialize, Serialize};

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
    pub(crate) fn admits(&self, graph: &Graph, offer: &Offer) -> bool {
        let Form::Kernel(backend) = &offer.form else { return true };
        (backend.name() == self.backend) == self.pinned
            || !offer.candidate.region.nodes.iter().any(|&n| self.is_of(graph, n))
    }

    pub(crate) fn refused(&self, why: impl Into<String>) -> PlaceError {
        let Wish { node, backend, .. } = self.clone();
        PlaceError::Wish { node, backend, why: why.into() }
    }
}

/// Whether wishes name nodes that are in the graph, and backends.
fn check(graph: &Graph, registry: &Registry, wishes: &[Wish]) -> Result<(), PlaceError> {
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
    wishes: &[Wish],
) -> Result<Offers, PlaceError> {
    check(graph, registry, wishes)?;
    let mut offers = gather(graph, registry, setting)?;
    offers.all.retain(|offer| wishes.iter().all(|w| w.admits(graph, offer)));
    let takes = |all: &[Offer], n| all.iter().any(|o| o.candidate.region.nodes.contains(&n));
    let mut left = offers.order.clone();
    left.retain(|&n| !takes(&offers.all, n));
    let mut more = last_resort(graph, registry, setting, &left);
    more.retain(|offer| wishes.iter().all(|w| w.admits(graph, offer)));
    offers.all.extend(more);
    for wish in wishes {
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
