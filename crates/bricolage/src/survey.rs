//! What a search would look at, before anything is measured.

use crate::{Cx, Error, inputs, line, report::Refusal, search, stages::Cut};
use bricolage_backend::BackendKind;
use bricolage_ir::{Graph, evaluate};
use bricolage_measure::{Database, Machine};
use bricolage_placement::{Form, Offers, gather_wished, recorded};
use bricolage_tensor::{Datum, Tensor};
use serde::Serialize;
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    path::Path,
};

/// Of [`Survey`].
const SCHEMA_VERSION: u32 = 1;
/// Seconds that a trial is supposed to take on a machine that has made none.
const PACE: f64 = 0.1;

/// What one backend offers.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Offered {
    /// Its version.
    pub version: String,
    /// Candidates.
    pub offers: usize,
    /// Candidates that differ: equal regions cost the same.
    pub distinct: usize,
    /// Of those, how many the cost database knows.
    pub known: usize,
    /// Nodes that it takes in some region.
    pub nodes: usize,
    /// Whether its regions alone cover the graph, as far as nodes tell.
    pub covers: bool,
}

/// A node with the backends that take it in some region.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SurveyedNode {
    /// Its names in the user's model.
    pub names: Vec<String>,
    /// Name of the op.
    pub op: String,
    /// Names of the backends, sorted; `view` where nothing is computed.
    pub backends: Vec<String>,
}

/// What a search would look at.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Survey {
    /// Raised when a field changes its meaning.
    pub schema_version: u32,
    /// Nodes before and after rewriting.
    pub before: usize,
    /// Nodes after rewriting, those of stages that are not planned left out.
    pub nodes: Vec<SurveyedNode>,
    /// By name.
    pub backends: BTreeMap<String, Offered>,
    /// Trials that would be made: candidates that differ and are not known.
    pub trials: usize,
    /// Seconds that a trial took in the last search on this machine; `None` where there was none.
    pub pace_s: Option<f64>,
    /// Seconds that these trials are predicted to take. Whole plans are measured besides.
    pub predicted_s: f64,
    /// Patterns that were refused.
    pub declined: Vec<Refusal>,
}

/// Asks every backend what it offers for the model at `path`; measures nothing. Sizes that the data tells are
/// found by evaluating what comes before them.
pub fn survey(cx: &Cx<'_>, path: &Path) -> Result<Survey, Error> {
    let model = line::import(path, &cx.goal.shapes)?;
    let graph = inputs::bind_shapes(&model.graph, &cx.goal.shapes)?;
    let tensors = inputs::sample_inputs(&graph, cx.goal.seed)?;
    let before = graph.nodes().count();
    let cut = line::cut(&line::rewrite(graph)?.graph)?;
    let database = Database::open(&cx.cache, &Machine::read())?.database;
    let pace_s = search::pace(&database)?;
    let mut found = Survey {
        schema_version: SCHEMA_VERSION,
        before,
        nodes: Vec::new(),
        backends: BTreeMap::new(),
        trials: 0,
        pace_s,
        predicted_s: 0.0,
        declined: Vec::new(),
    };
    for backend in cx.registry.iter() {
        let offered = Offered { version: backend.version(), covers: true, ..Offered::default() };
        found.backends.insert(backend.name().to_owned(), offered);
    }
    let data: Vec<Datum> = tensors.iter().cloned().map(Datum::from).collect();
    if inputs::is_fixed(&cut.graph) {
        found.add(cx, &cut.graph, &tensors, &model.hash, &database)?;
    } else {
        cut.walk(&data, |i, sizes, data| {
            let part = cut.parts[i].at(sizes)?;
            let results = evaluate(&part, &data)?;
            if cut.parts[i].planned {
                let tensors: Vec<Tensor> =
                    data.iter().filter_map(|d| d.as_tensor().cloned()).collect();
                let name = Cut::stage_name(&model.hash, i);
                found.add(cx, &line::rewrite(part)?.graph, &tensors, &name, &database)?;
            }
            Ok(results)
        })?;
    }
    found.predicted_s = found.trials as f64 * pace_s.unwrap_or(PACE);
    Ok(found)
}

impl Survey {
    /// Adds what is offered for a stage.
    fn add(
        &mut self,
        cx: &Cx<'_>,
        graph: &Graph,
        tensors: &[Tensor],
        name: &str,
        database: &Database,
    ) -> Result<(), Error> {
        let contents = search::name_of(cx, name, graph, tensors);
        let offers = gather_wished(graph, cx.registry, &cx.goal.setting(), &cx.goal.wishes)?;
        let mut seen: HashSet<&str> = HashSet::new();
        for offer in offers.all.iter().filter(|o| matches!(o.form, Form::Kernel(_))) {
            let Some(backend) = self.backends.get_mut(offer.backend()) else { continue };
            backend.offers += 1;
            if seen.insert(&offer.key.0) {
                let known = recorded(database, &contents, &offer.key)?.is_some();
                backend.distinct += 1;
                backend.known += usize::from(known);
                self.trials += usize::from(!known);
            }
        }
        self.add_nodes(cx, graph, &offers);
        self.declined.extend(offers.declined.iter().map(|(name, d)| Refusal::of(graph, name, d)));
        Ok(())
    }

    fn add_nodes(&mut self, cx: &Cx<'_>, graph: &Graph, offers: &Offers) {
        let mut takers: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
        for offer in &offers.all {
            for &node in &offer.candidate.region.nodes {
                takers.entry(node).or_default().insert(offer.backend());
            }
        }
        for &node in &offers.order {
            let by = takers.remove(&node).unwrap_or_default();
            for (name, backend) in &mut self.backends {
                backend.nodes += usize::from(by.contains(name.as_str()));
                backend.covers &= by.contains(name.as_str()) || by.contains("view");
            }
            let n = graph.node(node);
            self.nodes.push(SurveyedNode {
                names: n.origin.iter().map(|name| name.to_string()).collect(),
                op: n.op.kind().name().to_owned(),
                backends: by.into_iter().map(str::to_owned).collect(),
            });
        }
        // The reference is asked only where others leave something, and takes everything.
        for backend in cx.registry.iter().filter(|b| b.kind() == BackendKind::Reference) {
            if let Some(offered) = self.backends.get_mut(backend.name()) {
                offered.covers = true;
            }
        }
    }
}
