//! What was tried and why: written with every artefact, read by `explain`.

use crate::artefact::Allowed;
use bricolage_measure::{Machine, Measurement, Ratio};
use serde::{Deserialize, Serialize};

/// Raised when a field changes its meaning.
pub const SCHEMA_VERSION: u32 = 1;

/// One whole plan that was considered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Contender {
    /// `mixed`, `native alone`, `onnxruntime whole`.
    pub name: String,
    /// Backends that it uses.
    pub backends: Vec<String>,
    /// Measured end to end.
    pub measured: Option<Measurement>,
    /// Sum of its parts' times in nanoseconds: a prediction; none for a plan of one whole region.
    pub predicted_ns: Option<f64>,
    /// Why it could not be used, if it could not.
    pub refused: Option<String>,
    /// Whether it was chosen.
    pub chosen: bool,
    /// Numerics classes of its kernels.
    pub numerics: Vec<String>,
}

/// The next best way to compute a region.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunnerUp {
    /// Name of the backend.
    pub backend: String,
    /// Pattern, variant and formats.
    pub candidate: String,
    /// Its measured time in nanoseconds.
    pub median_ns: f64,
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
    /// Formats in which inputs are read.
    pub inputs: Vec<String>,
    /// Formats in which outputs are made.
    pub outputs: Vec<String>,
    /// What the kernel does to the numbers.
    pub numerics: String,
    /// Measured alone.
    pub measured: Option<Measurement>,
    /// The next best way.
    pub runner_up: Option<RunnerUp>,
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
    /// What the inputs were on which plans were verified and timed, a line each.
    pub inputs: Vec<String>,
    /// Rules that changed the graph.
    pub rewrites: Vec<Applied>,
    /// What evaluating the rewrites showed; absent when that was not asked for.
    pub audited: Option<Audited>,
    /// Nodes before and after rewriting.
    pub nodes: (usize, usize),
    /// Whole plans, the chosen one among them.
    pub contenders: Vec<Contender>,
    /// Time of the chosen plan over that of the best single backend, paired; absent when the chosen
    /// plan is that single backend's.
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
    /// Whether the cover is the cheapest of these offers.
    pub exact: bool,
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
