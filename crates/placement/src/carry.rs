//! Choices that carry over to the same graph at other sizes, where nothing is measured.

use crate::{
    Form, Offer, Offers, PlaceError, Placed, Price, ProblemError, Unpriced, Wishes,
    covering::{Covering, counted},
    gather, gather_whole,
    offers::last_resort,
};
use bricolage_backend::{BackendKind, Registry, Setting};
use bricolage_ir::{Graph, NodeId};
use bricolage_tensor::Format;
use serde::{Deserialize, Serialize};
use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, HashSet},
    time::Instant,
};

/// What was chosen for a region, in words that hold at other sizes too.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    /// Names of the first result of each node, in order.
    pub nodes: Vec<String>,
    /// Name of the backend; `view` for a view.
    pub backend: String,
    /// The pattern that matched.
    pub pattern: String,
    /// Which kernel.
    pub variant: String,
    /// Whether it leaves the plan's other threads alone.
    pub on_one: bool,
    /// Formats in which inputs are read.
    pub inputs: Vec<Format>,
    /// Formats in which outputs are made.
    pub outputs: Vec<Format>,
}

fn names(graph: &Graph, nodes: &[NodeId]) -> Vec<String> {
    let first =
        |&n: &NodeId| graph.node(n).outputs.first().map(|&v| graph.value(v).name.to_string());
    nodes.iter().filter_map(first).collect()
}

impl Placed {
    /// The choices of this placement of `graph` for so many threads.
    pub fn carried(&self, graph: &Graph, threads: usize) -> Vec<Carried> {
        let one = |offer: &Offer| {
            let c = &offer.candidate;
            Carried {
                nodes: names(graph, &c.region.nodes),
                backend: offer.backend().to_owned(),
                pattern: c.pattern.clone(),
                variant: c.variant.clone(),
                on_one: offer.threads < threads,
                inputs: c.inputs.clone(),
                outputs: c.outputs.clone(),
            }
        };
        self.regions.iter().map(|r| one(&r.offer)).collect()
    }
}

impl Carried {
    /// How well an offer for the same nodes and so many threads follows the choice: not at all, with another kernel,
    /// on other threads, or fully.
    fn fit(&self, offer: &Offer, threads: usize) -> usize {
        let c = &offer.candidate;
        let alike = self.backend == offer.backend()
            && self.pattern == c.pattern
            && self.inputs == c.inputs
            && self.outputs == c.outputs;
        let same = alike && self.variant == c.variant;
        let fully = same && self.on_one == (offer.threads < threads);
        usize::from(alike) + usize::from(same) + usize::from(fully)
    }

    /// Whether the reference was chosen: it is offered where nobody else is.
    fn is_last_resort(&self, registry: &Registry) -> bool {
        registry.get(&self.backend).is_ok_and(|b| b.kind() == BackendKind::Reference)
    }
}

/// Covers a graph by the choices that apply and the rest of it as backends guess; by guesses alone where no
/// cover holds those choices. Nothing is measured or looked up. After `until` few covers are looked at.
pub fn place_guessed(
    graph: &Graph,
    registry: &Registry,
    setting: &Setting,
    carried: &[Carried],
    until: Option<Instant>,
) -> Result<Placed, PlaceError> {
    if let [whole] = carried
        && let Some(offer) = gather_whole(graph, registry, setting).into_iter().find(|o| {
            whole.fit(o, setting.threads) > 0
                && names(graph, &o.candidate.region.nodes) == whole.nodes
        })
    {
        return Ok(Placed::whole(offer));
    }
    let mut offers = gather(graph, registry, setting)?;
    let is_over = || until.is_some_and(|until| Instant::now() >= until);
    let none = Wishes::default();
    let cover = |offers: &Offers| {
        let unmeasured = |o: &Offer| match o.form {
            Form::View => Price::Free,
            Form::Kernel(_) => Price::Unmeasured,
        };
        let prices: Vec<Price> = offers.all.iter().map(unmeasured).collect();
        let costs: Vec<_> = offers.all.iter().zip(&prices).map(|(o, p)| counted(o, p)).collect();
        let covering = Covering {
            graph,
            wishes: &none,
            is_over: &is_over,
            offers,
            prices: &prices,
            costs: &costs,
            conversions: &Unpriced(registry),
            news: Cell::new(false),
            refused: RefCell::default(),
        };
        covering.best(&[], "guessed").map(|covered| covered.placed)
    };
    if carried.is_empty() {
        return cover(&offers);
    }
    let every = offers.all.clone();
    let trusted: HashSet<&[String]> =
        carried.iter().filter(|c| c.is_last_resort(registry)).map(|c| &*c.nodes).collect();
    let mut last = offers.order.clone();
    last.retain(|&n| trusted.contains(&*names(graph, &[n])));
    offers.all.extend(last_resort(graph, registry, setting, &last));
    offers.all = narrowed(graph, &offers.all, carried, setting.threads);
    match cover(&offers) {
        Err(PlaceError::Problem(ProblemError::Uncoverable { .. })) => {
            offers.all = every;
            cover(&offers)
        }
        result => result,
    }
}

/// The offers that follow a choice, and those for nodes without one. Where two choices share a node, the
/// earlier one counts.
fn narrowed(graph: &Graph, offers: &[Offer], carried: &[Carried], threads: usize) -> Vec<Offer> {
    let choice: HashMap<&[String], &Carried> = carried.iter().map(|c| (&*c.nodes, c)).collect();
    let mut best: HashMap<Vec<String>, (usize, usize)> = HashMap::new();
    for (i, offer) in offers.iter().enumerate() {
        let names = names(graph, &offer.candidate.region.nodes);
        let Some(fit) = choice.get(&*names).map(|c| c.fit(offer, threads)).filter(|&fit| fit > 0)
        else {
            continue;
        };
        let entry = best.entry(names).or_insert((fit, i));
        if fit > entry.0 {
            *entry = (fit, i);
        }
    }
    let mut followed: Vec<usize> = best.into_values().map(|(_, i)| i).collect();
    followed.sort_unstable();
    let mut taken: HashSet<NodeId> = HashSet::new();
    followed.retain(|&i| {
        let nodes = &offers[i].candidate.region.nodes;
        let free = nodes.iter().all(|n| !taken.contains(n));
        if free {
            taken.extend(nodes);
        }
        free
    });
    let followed: HashSet<usize> = followed.into_iter().collect();
    let free = |o: &Offer| o.candidate.region.nodes.iter().all(|n| !taken.contains(n));
    let keep = |(i, o): (usize, &Offer)| (followed.contains(&i) || free(o)).then(|| o.clone());
    offers.iter().enumerate().filter_map(keep).collect()
}
