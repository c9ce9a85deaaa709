//! Everything that the backends offer for a graph, each with the key under which its cost is known.

use crate::PlaceError;
use bricolage_backend::{Backend, BackendKind, Candidate, Declined, Region, Registry, Setting};
use bricolage_ir::{Graph, NodeId, Numerics, Op, ValueId};
use bricolage_measure::Key;
use bricolage_tensor::{Format, Layout, Type};
use std::{collections::HashMap, sync::Arc};

/// Part of every cost key: raised when trials or gates change what a record means.
const TRIAL_VERSION: u32 = 4;
/// A kernel of our own that is guessed to take no more nanoseconds is offered on one thread as well: to hand work to
/// others and to wait for them takes about one microsecond.
const SHORT_NS: f64 = 5_000.0;

/// How an offer computes its region.
#[derive(Clone)]
pub enum Form {
    /// By a kernel of this backend.
    Kernel(Arc<dyn Backend>),
    /// Not at all: the result is the input's bytes under other dims.
    View,
}

/// A candidate with its origin and its cost key.
#[derive(Clone)]
pub struct Offer {
    /// What is offered.
    pub candidate: Candidate,
    /// Who computes it.
    pub form: Form,
    /// Canonical text of the region: equal for regions that cost the same.
    pub canonical: Arc<str>,
    /// Threads that it runs on: all that there are, or one.
    pub threads: usize,
    /// Under which the cost is stored.
    pub key: Key,
}

impl Offer {
    /// Name of the backend; `view` for a view.
    pub fn backend(&self) -> &str {
        match &self.form {
            Form::Kernel(backend) => backend.name(),
            Form::View => "view",
        }
    }
}

/// All offers for a graph.
pub struct Offers {
    /// Nodes of the graph in topological order.
    pub order: Vec<NodeId>,
    /// In the order of their exits.
    pub all: Vec<Offer>,
    /// What was refused: backend, and why.
    pub declined: Vec<(String, Declined)>,
}

/// The key of a candidate: everything that its time depends on besides the machine.
fn key(canonical: &str, candidate: &Candidate, backend: &dyn Backend, setting: &Setting) -> Key {
    Key(format!(
        "trial {TRIAL_VERSION}\n{} {}\n{candidate}\nthreads {}\n{canonical}",
        backend.name(),
        backend.version(),
        setting.threads
    ))
}

/// Whether one of these offers for a node alone is a view, or there is one of every op library: then
/// each library covers the node without help.
fn is_taken(registry: &Registry, offers: &[Offer]) -> bool {
    let single = |o: &&Offer| o.candidate.region.nodes.len() == 1;
    let from = |name: &str| offers.iter().filter(single).any(|o| o.backend() == name);
    let viewed = offers.iter().filter(single).any(|o| matches!(o.form, Form::View));
    let mut libraries = registry.iter().filter(|b| b.kind() == BackendKind::OpLibrary);
    viewed || (offers.iter().any(|o| single(&o)) && libraries.all(|b| from(b.name())))
}

/// Asks every backend about every node.
///
/// The reference backend is asked only for nodes that an op library, or everybody else, does not take
/// alone: so that a cover always exists, by each library too, and the slow way is taken only where
/// there is no other.
pub fn gather(graph: &Graph, registry: &Registry, setting: &Setting) -> Result<Offers, PlaceError> {
    let order = graph.order();
    let mut offers = Offers { order: order.clone(), all: Vec::new(), declined: Vec::new() };
    let mut texts = Texts::default();
    for &node in &order {
        let before = offers.all.len();
        if let Some(view) = view(graph, node) {
            offers.all.push(view);
        }
        let (trusted, others): (Vec<_>, Vec<_>) =
            registry.iter().partition(|b| b.kind() == BackendKind::Reference);
        for backend in others.into_iter().chain(trusted) {
            if backend.kind() == BackendKind::Reference && is_taken(registry, &offers.all[before..])
            {
                continue;
            }
            ask(graph, node, backend, setting, &mut texts, &mut offers);
        }
        if offers.all[before..].iter().all(|o| o.candidate.region.nodes.len() > 1) {
            let covered_later = offers.declined.iter().filter(|(_, d)| d.node == node);
            let reasons =
                covered_later.map(|(backend, d)| format!("{backend}: {}", d.why)).collect();
            return Err(PlaceError::Uncovered {
                node: graph.node(node).origin.join(", "),
                op: match &graph.node(node).op {
                    Op::Opaque(op) => op.to_string(),
                    op => op.kind().name().to_owned(),
                },
                reasons,
            });
        }
    }
    Ok(offers)
}

/// Canonical texts of regions, by their nodes.
type Texts = HashMap<Vec<NodeId>, Arc<str>>;

/// Adds what a backend offers for regions that start at a node.
fn ask(
    graph: &Graph,
    node: NodeId,
    backend: &Arc<dyn Backend>,
    setting: &Setting,
    texts: &mut Texts,
    offers: &mut Offers,
) {
    let found = backend.propose(graph, node, setting);
    offers.declined.extend(found.declined.into_iter().map(|d| (backend.name().to_owned(), d)));
    let is_short = |c: &Candidate| c.guess_ns.is_some_and(|ns| ns <= SHORT_NS);
    let is_own = backend.kind() == BackendKind::OpLibrary && !backend.is_foreign();
    let alone = Setting { threads: 1, ..*setting };
    let short = match setting.threads > 1 && is_own && found.candidates.iter().any(is_short) {
        true => backend.propose(graph, node, &alone).candidates,
        false => Vec::new(),
    };
    let all = found.candidates.into_iter().map(|c| (c, setting));
    for (candidate, setting) in all.chain(short.into_iter().filter(is_short).map(|c| (c, &alone))) {
        if !setting.policy.admits(candidate.numerics) {
            continue;
        }
        let canonical = texts
            .entry(candidate.region.nodes.clone())
            .or_insert_with(|| Arc::from(graph.canonical(&candidate.region.nodes)))
            .clone();
        offers.all.push(offer_of(backend, candidate, canonical, setting));
    }
}

/// What the reference backend offers for `nodes`: for those whose other offers all proved wrong.
pub(crate) fn last_resort(
    graph: &Graph,
    registry: &Registry,
    setting: &Setting,
    nodes: &[NodeId],
) -> Vec<Offer> {
    let mut offers = Offers { order: Vec::new(), all: Vec::new(), declined: Vec::new() };
    let mut texts = Texts::default();
    for backend in registry.iter().filter(|b| b.kind() == BackendKind::Reference) {
        for &node in nodes {
            ask(graph, node, backend, setting, &mut texts, &mut offers);
        }
    }
    offers.all
}

/// The whole graph as one region of each backend that takes it.
pub fn gather_whole(graph: &Graph, registry: &Registry, setting: &Setting) -> Vec<Offer> {
    let order = graph.order();
    let Some(region) = joint_region(graph, &order) else { return Vec::new() };
    registry
        .iter()
        .filter_map(|backend| {
            let candidate = backend.propose_region(graph, &region, true, setting).ok()?;
            Some(offer_of(backend, candidate, Arc::from("whole"), setting))
        })
        .collect()
}

/// A candidate of this backend as an offer.
fn offer_of(
    backend: &Arc<dyn Backend>,
    candidate: Candidate,
    canonical: Arc<str>,
    setting: &Setting,
) -> Offer {
    let key = key(&canonical, &candidate, &**backend, setting);
    let (form, threads) = (Form::Kernel(backend.clone()), setting.threads);
    Offer { candidate, form, canonical, threads, key }
}

/// These nodes as one region of an engine, which is its own kind of plan where they are the whole graph; or
/// why the engine does not take them. `nodes` are in topological order and wait for no node outside that
/// waits for them.
pub(crate) fn offer_jointly(
    graph: &Graph,
    engine: &Arc<dyn Backend>,
    nodes: &[NodeId],
    setting: &Setting,
) -> Result<Offer, String> {
    let region =
        joint_region(graph, nodes).ok_or_else(|| "nothing reads what they make".to_owned())?;
    let is_whole = nodes.len() == graph.nodes().count();
    let candidate = engine.propose_region(graph, &region, is_whole, setting);
    let canonical = match is_whole {
        true => Arc::from("whole"),
        false => Arc::from(graph.canonical(nodes)),
    };
    Ok(offer_of(engine, candidate.map_err(|declined| declined.why)?, canonical, setting))
}

/// These nodes with everything that is read of them as outputs. `None` when nothing is.
fn joint_region(graph: &Graph, nodes: &[NodeId]) -> Option<Region> {
    if nodes.is_empty() {
        return None;
    }
    let boundary = graph.boundary(nodes);
    if boundary.outputs.is_empty() {
        return None;
    }
    Some(Region {
        nodes: nodes.to_vec(),
        inputs: boundary.inputs,
        constants: boundary.constants,
        outputs: boundary.outputs,
    })
}

/// A reshape of row-major elements moves nothing.
fn view(graph: &Graph, node: NodeId) -> Option<Offer> {
    let Op::Reshape(_) = graph.node(node).op else { return None };
    let region = Region::of(graph, vec![node]).ok()?;
    let (&[input], &[output]) = (&region.inputs[..], &region.outputs[..]) else { return None };
    let plain = |v: ValueId| match &graph.fact(v).ty {
        Type::Tensor(t) => Some(Format::plain(t.dtype)),
        _ => None,
    };
    let (from, to) = (plain(input)?, plain(output)?);
    let candidate = Candidate {
        region,
        pattern: "reshape".to_owned(),
        variant: "view".to_owned(),
        inputs: vec![from],
        outputs: vec![to],
        numerics: Numerics::Exact,
        guess_ns: Some(0.0),
    };
    Some(Offer {
        candidate,
        form: Form::View,
        canonical: Arc::from("view"),
        threads: 1,
        key: Key(String::new()),
    })
}

/// Whether a format may lie on an edge between regions.
pub(crate) fn is_edge_format(format: &Format) -> bool {
    !matches!(format.layout, Layout::Opaque(_))
}
