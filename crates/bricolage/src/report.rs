//! What was tried and why: written with every artefact, read by `explain`.

use crate::{
    Goal,
    artefact::{Allowed, OpenSizes},
    evolution::Evolution,
    search::Found,
};
use bricolage_backend::Declined;
use bricolage_ir::{Graph, NodeId};
use bricolage_measure::{Machine, Measurement, Ratio};
use bricolage_placement::{Finder, Form, Method, PlacedConversion, PlacedRegion, Price, Wishes};
use bricolage_tensor::Format;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Raised when a field changes its meaning.
pub const SCHEMA_VERSION: u32 = 2;

/// One whole plan that was considered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Contender {
    /// `mixed`, `native alone`, `onnxruntime whole`.
    pub name: String,
    /// Backends that it uses.
    pub backends: Vec<String>,
    /// Measured end to end.
    pub measured: Option<Measurement>,
    /// What its parts cost together; none for a plan of one whole region.
    pub prediction: Option<Prediction>,
    /// Why it could not be used, if it could not.
    pub refused: Option<String>,
    /// Whether it was chosen.
    pub chosen: bool,
    /// Numerics classes of its kernels.
    pub numerics: Vec<String>,
}

/// What a cover costs as the sum of its parts, and how sure it is that no other costs less.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Sum of the measured times of regions and conversions in nanoseconds, and of what the user charges for
    /// backends: a prediction.
    pub sum_ns: f64,
    /// No cover of the same offers has a smaller sum, in nanoseconds.
    pub bound_ns: f64,
    /// By what share of its sum a cover may at most be cheaper; 0 where it is proven to be the cheapest.
    pub gap: f64,
    /// `incumbent`, `sweep`, `programme`, `levels` or `given`: what found the cover.
    pub finder: String,
    /// States and nodes of search trees that were visited.
    pub states: usize,
}

/// Another way to compute nodes of a region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// Name of the backend.
    pub backend: String,
    /// Pattern, variant and formats.
    pub candidate: String,
    /// Nodes of the user's model that it computes.
    pub nodes: Vec<String>,
    /// Threads that it runs on.
    pub threads: usize,
    /// Its measured time in nanoseconds.
    pub median_ns: f64,
    /// How many nanoseconds cheaper it would have to be to be part of a cheapest cover.
    pub lacks_ns: f64,
    /// Whether it lacks exactly that; otherwise at least that.
    pub exact: bool,
}

/// One region of the chosen plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Region {
    /// Nodes of the user's model.
    pub nodes: Vec<String>,
    /// Who computes it; `view` when nothing is computed.
    pub backend: String,
    /// The pattern that matched.
    pub pattern: String,
    /// Which kernel.
    pub kernel: String,
    /// Threads that it runs on.
    pub threads: usize,
    /// Formats in which inputs are read.
    pub inputs: Vec<String>,
    /// Formats in which outputs are made.
    pub outputs: Vec<String>,
    /// What the kernel does to the numbers.
    pub numerics: String,
    /// Measured alone.
    pub measured: Option<Measurement>,
    /// Measured inside the plan, in nanoseconds: the median of runs that were traced.
    pub in_plan_ns: Option<f64>,
    /// The best other way of each backend, what lacks least first.
    pub alternatives: Vec<Alternative>,
}

/// One conversion of the chosen plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Conversion {
    /// Name of the value.
    pub value: String,
    /// Format that it is in.
    pub from: String,
    /// Format that is made.
    pub to: String,
    /// Measured alone, in nanoseconds.
    pub median_ns: Option<f64>,
}

/// Something that was refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// Name of the backend.
    pub backend: String,
    /// Pattern or candidate.
    pub what: String,
    /// Nodes of the user's model.
    pub nodes: Vec<String>,
    /// A clause.
    pub why: String,
}

/// How often a rewrite was applied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Applied {
    /// Name of the rule.
    pub rule: String,
    /// How often.
    pub times: usize,
    /// What it does to the numbers.
    pub numerics: String,
}

/// Bytes, predicted before the run; the arena is exact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// The arena that a session allocates.
    pub arena_bytes: u64,
    /// The largest sum of bytes in use at one step, workspace included.
    pub live_peak_bytes: u64,
    /// Packed constants.
    pub weights_bytes: u64,
    /// Constants of the model before packing.
    pub constants_bytes: u64,
}

/// What came of evaluating every rewrite on data before it was applied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Audited {
    /// Rewrites that gave what was there before.
    pub agreed: usize,
    /// Rewrites that could not be evaluated.
    pub unjudged: usize,
    /// Why the last of those could not.
    pub why: String,
    /// Rules that were left out because they changed a result, each with what shows it.
    pub caught: Vec<String>,
}

impl Audited {
    /// What the user should know of it.
    pub fn warnings(&self) -> Vec<String> {
        let mut all = self.caught.clone();
        if self.unjudged > 0 {
            all.push(format!("{} rewrites could not be evaluated: {}", self.unjudged, self.why));
        }
        all
    }
}

/// Everything about one optimisation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// See [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Version of the program.
    pub bricolage: String,
    /// Path of the model as given.
    pub model: String,
    /// Hash of the model.
    pub model_hash: String,
    /// Where it was measured.
    pub machine: Machine,
    /// Threads.
    pub threads: u32,
    /// Seed.
    pub seed: u64,
    /// How nodes were given to backends.
    #[serde(default)]
    pub placement: Method,
    /// What was wanted of the plan besides that it is fast.
    #[serde(default)]
    pub wishes: Wishes,
    /// What the evolutionary searches of `collage-v1` found, one a stage.
    #[serde(default)]
    pub evolutions: Vec<Evolution>,
    /// What the inputs were on which plans were verified and timed, a line each.
    pub inputs: Vec<String>,
    /// Sizes that are open, and those at which plans were verified and timed; absent when all are fixed.
    #[serde(default)]
    pub sizes: Option<OpenSizes>,
    /// Rules that changed the graph.
    pub rewrites: Vec<Applied>,
    /// What evaluating the rewrites showed; absent when that was not asked for.
    pub audited: Option<Audited>,
    /// Nodes before and after rewriting.
    pub nodes: (usize, usize),
    /// Whole plans, the chosen one among them.
    pub contenders: Vec<Contender>,
    /// Time of the chosen plan over that of the best single backend, paired; absent when the chosen
    /// plan is that single backend's, and where there are several stages.
    pub ratio_to_best_single: Option<Ratio>,
    /// The chosen plan, in the order of execution.
    pub regions: Vec<Region>,
    /// Conversions of the chosen plan.
    pub conversions: Vec<Conversion>,
    /// Patterns that were refused.
    pub declined: Vec<Refusal>,
    /// Candidates that were tried and cannot be used.
    pub refused: Vec<Refusal>,
    /// Offers in all.
    pub offers: usize,
    /// Prices that the database knew.
    pub known: usize,
    /// Prices that were measured.
    pub measured: usize,
    /// Offers for which there was no time.
    pub skipped: usize,
    /// Memory of the chosen plan.
    pub memory: Memory,
    /// How far the outputs may be from the reference, and the share that was used.
    pub allowed: Vec<Allowed>,
    /// Largest error of an output as a share of the allowed one.
    pub error_share: f64,
    /// Things that the user should know.
    pub warnings: Vec<String>,
    /// Seconds from start to artefact.
    pub seconds: f64,
}

impl Report {
    /// A report of an optimisation of which nothing is known yet.
    pub(crate) fn new(model: &Path, hash: &str, goal: &Goal, machine: Machine) -> Report {
        Report {
            audited: None,
            schema_version: SCHEMA_VERSION,
            bricolage: env!("CARGO_PKG_VERSION").to_owned(),
            model: model.display().to_string(),
            model_hash: hash.to_owned(),
            machine,
            threads: goal.threads as u32,
            seed: goal.seed,
            placement: goal.placement,
            wishes: goal.wishes.clone(),
            evolutions: Vec::new(),
            inputs: Vec::new(),
            sizes: None,
            rewrites: Vec::new(),
            nodes: (0, 0),
            contenders: Vec::new(),
            ratio_to_best_single: None,
            regions: Vec::new(),
            conversions: Vec::new(),
            declined: Vec::new(),
            refused: Vec::new(),
            offers: 0,
            known: 0,
            measured: 0,
            skipped: 0,
            memory: Memory::default(),
            allowed: Vec::new(),
            error_share: 0.0,
            warnings: Vec::new(),
            seconds: 0.0,
        }
    }

    /// Adds what was found for a stage, `label` before the names of its plans.
    pub(crate) fn add(&mut self, label: &str, graph: &Graph, found: &Found) {
        let (placed, best) = (&found.placed, &found.best);
        let chosen = &placed.all[best.chosen];
        self.contenders.extend(best.contenders.iter().map(|c| {
            let name = format!("{label}{}", c.name);
            Contender { name, ..c.clone() }
        }));
        if label.is_empty() {
            self.ratio_to_best_single = best.ratio;
        }
        self.evolutions.extend(found.evolution.clone());
        let in_plan = best.in_plan.iter().copied().chain(std::iter::repeat(None));
        let regions = chosen.regions.iter().zip(in_plan);
        self.regions.extend(regions.map(|(r, in_plan)| Region::of(graph, r, in_plan)));
        self.conversions.extend(chosen.conversions.iter().map(|c| Conversion::of(graph, c)));
        let declined = placed.priced.declined().iter();
        self.declined.extend(declined.map(|(backend, d)| Refusal::of(graph, backend, d)));
        self.refused.extend(placed.priced.refused().iter().map(|r| Refusal {
            backend: r.backend.clone(),
            what: r.what.clone(),
            nodes: origins(graph, &r.nodes),
            why: r.why.clone(),
        }));
        self.offers += placed.priced.count();
        self.known += placed.priced.effort().known + best.known;
        self.measured += placed.priced.effort().measured + best.measured;
        self.skipped += placed.priced.effort().skipped;
        self.memory.arena_bytes += best.emitted.plan.arena;
        self.memory.live_peak_bytes += best.emitted.live_peak;
    }
}

impl Applied {
    pub(crate) fn of(a: &bricolage_rewrite::Applied) -> Applied {
        Applied { rule: a.rule.to_owned(), times: a.times, numerics: a.numerics.to_string() }
    }
}

impl Refusal {
    pub(crate) fn of(graph: &Graph, backend: &str, d: &Declined) -> Refusal {
        Refusal {
            backend: backend.to_owned(),
            what: d.pattern.clone(),
            nodes: origins(graph, &[d.node]),
            why: d.why.clone(),
        }
    }
}

impl Prediction {
    pub(crate) fn of(p: &bricolage_placement::Prediction) -> Prediction {
        let finder = match p.finder {
            Finder::Incumbent => "incumbent",
            Finder::Sweep => "sweep",
            Finder::Programme => "programme",
            Finder::Levels => "levels",
            Finder::Given => "given",
        };
        Prediction {
            sum_ns: p.sum_ns,
            bound_ns: p.bound_ns,
            gap: p.gap(),
            finder: finder.to_owned(),
            states: p.states,
        }
    }
}

impl Alternative {
    fn of(graph: &Graph, a: &bricolage_placement::Alternative) -> Alternative {
        Alternative {
            backend: a.backend.clone(),
            candidate: a.candidate.clone(),
            nodes: origins(graph, &a.nodes),
            threads: a.threads,
            median_ns: a.median_ns,
            lacks_ns: a.lacks_ns,
            exact: a.exact,
        }
    }
}

impl Conversion {
    fn of(graph: &Graph, c: &PlacedConversion) -> Conversion {
        Conversion {
            value: graph.value(c.value).name.to_string(),
            from: c.from.to_string(),
            to: c.to.to_string(),
            median_ns: match &c.price {
                Price::Measured(m) => Some(m.median_ns),
                _ => None,
            },
        }
    }
}

impl Region {
    fn of(graph: &Graph, region: &PlacedRegion, in_plan_ns: Option<f64>) -> Region {
        let c = &region.offer.candidate;
        let text = |formats: &[Format]| formats.iter().map(|f| f.to_string()).collect();
        Region {
            nodes: c.region.origin(graph),
            backend: match region.offer.form {
                Form::View => "view".to_owned(),
                Form::Kernel(_) => region.offer.backend().to_owned(),
            },
            pattern: c.pattern.clone(),
            kernel: c.variant.clone(),
            threads: region.offer.threads,
            inputs: text(&c.inputs),
            outputs: text(&c.outputs),
            numerics: c.numerics.to_string(),
            measured: region.measured().cloned(),
            in_plan_ns,
            alternatives: region.alternatives.iter().map(|a| Alternative::of(graph, a)).collect(),
        }
    }
}

fn origins(graph: &Graph, nodes: &[NodeId]) -> Vec<String> {
    let all = nodes.iter().filter_map(|&n| graph.get_node(n)).flat_map(|n| n.origin.iter());
    all.map(|name| name.to_string()).collect()
}
