//! Tries a backend on graphs that its patterns may match, and says in one line a check what was found.
//!
//! Every kernel is made and run in a worker process, rebuilt there from what a plan would hold, between red
//! zones and on memory that holds nothing useful; its results are compared with the reference.

mod told;

pub use told::{Check, Verdict};

use crate::{
    Error, inputs, line,
    worker::{Benches, Worker, WorkerCommand},
};
use bricolage_backend::{
    Backend, Candidate, Policy, Registry, Setting,
    pattern::{Samples, op_name},
};
use bricolage_ir::Graph;
use bricolage_measure::{Database, Key, Machine};
use bricolage_placement::{Form, Observed, Offer, Pricing, Wishes, check_offer};
use bricolage_runtime::Cancel;
use bricolage_tensor::{DType, Datum, Rng, Tensor};
use std::{
    cell::RefCell,
    fs,
    path::PathBuf,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};
use told::Told;

/// What backends without a pattern file are tried on.
const SHAPES: &str = r#"
backend shapes {}
let act(x) = relu(x) | sigmoid(x) | tanh(x);
let product(x, w) = mat_mul(x, w);
pattern elementwise { match: act(add/sub/mul/max(a@_, b@_)?); }
pattern dense { match: act(add{product(x@_, w@const), b@const}?)?; }
pattern products { match: add{product(x@_, w@_), r@_}?; }
pattern convolution { match: relu(conv(x@_, w@const, b@const?))?; }
pattern pooling { match: pool(x@_); }
pattern normalised { match: softmax(x@_) | layer_norm(x@_, g@const?, b@const?); }
pattern reduced { match: reduce(x@_); }
pattern moved { match: transpose(x@_) | concat(x@_, y@_); }
"#;
const SHAPE_NAMES: &[&str] = &[
    "elementwise",
    "dense",
    "products",
    "convolution",
    "pooling",
    "normalised",
    "reduced",
    "moved",
];

/// Graphs that are drawn for one that a pattern takes, at most.
const DRAWS: usize = 4000;
/// Kernels that are made and given back to see whether memory grows, and the time for that.
const ROUNDS: usize = 1000;
const ROUNDS_TIME: Duration = Duration::from_secs(10);
/// Bytes that resident memory may grow by meanwhile: what an allocator keeps.
const GROWTH: u64 = 1 << 20;
/// Candidates of a model that are tried, at most.
const MODEL_CANDIDATES: usize = 200;

/// What is tried, and how.
pub struct Subject<'a> {
    /// Holds the backend.
    pub registry: &'a Registry,
    /// Its name.
    pub backend: &'a str,
    /// Starts workers that have the backend.
    pub worker: WorkerCommand,
    /// Where files for workers are written.
    pub scratch: PathBuf,
    /// Threads of the runs on several.
    pub threads: usize,
    /// Graphs of each pattern, for each number of threads.
    pub graphs: usize,
    /// Decides what is drawn.
    pub seed: u64,
    /// Rewritten graphs of fixed sizes, whose regions are tried too.
    pub models: &'a [Graph],
    /// Asks to stop.
    pub cancel: &'a Cancel,
    /// Told what is tried, and how many of how many.
    pub progress: &'a dyn Fn(&'static str, usize, usize),
}

/// What inputs hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Values {
    /// What suits the graph.
    Ordinary,
    /// Zeros of both signs, numbers next to zero and large ones.
    Extreme,
    /// What is no number, infinities.
    NotNumbers,
}

/// A graph with what a backend offers for it.
struct Case {
    graph: Graph,
    candidates: Vec<Candidate>,
}

/// One number of threads with its worker.
struct Bench<'a> {
    subject: &'a Subject<'a>,
    backend: Arc<dyn Backend>,
    setting: Setting,
    worker: Rc<RefCell<Worker>>,
    benches: Benches<'a>,
    database: Database,
}

/// Tries the backend; the checks in the order in which they are told.
///
/// # Errors
/// When there is no such backend, workers cannot be started, or the user stopped it.
pub fn run(subject: &Subject<'_>) -> Result<Vec<Check>, Error> {
    let absent = |e: bricolage_backend::UnknownBackend| Error::Backend {
        what: e.to_string(),
        help: "see `bricolage backend list`".to_owned(),
    };
    let backend = subject.registry.get(subject.backend).map_err(absent)?.clone();
    let samples = match backend.samples() {
        Some(samples) => samples,
        None => Samples::of("shapes", SHAPES, SHAPE_NAMES)
            .map_err(|e| Error::Internal { what: e.to_string() })?,
    };
    fs::create_dir_all(&subject.scratch).map_err(Error::file("write", &subject.scratch))?;
    let names = samples.names();
    let mut told = Told::new(&names, backend.own_threads());
    let mut counts = vec![1, subject.threads];
    counts.dedup();
    for threads in counts {
        let bench = Bench::new(subject, backend.clone(), threads)?;
        for number in 0..names.len() {
            (subject.progress)("try patterns", number, names.len());
            let cases = bench.draw(&samples, number)?;
            told.met(number, cases.len());
            for (i, case) in cases.iter().enumerate() {
                bench.try_case(case, Values::Ordinary, &mut told)?;
                let others = [Values::Extreme, Values::NotNumbers];
                bench.try_case(case, others[i % 2], &mut told)?;
            }
            if let Some(case) = cases.first() {
                bench.stop(case, &mut told);
                bench.repeat(case, &mut told)?;
            }
        }
        for (i, graph) in subject.models.iter().enumerate() {
            (subject.progress)("try regions of models", i, subject.models.len());
            bench.try_case(&bench.of_model(graph), Values::Ordinary, &mut told)?;
        }
    }
    Ok(told.checks())
}

impl<'a> Bench<'a> {
    fn new(
        subject: &'a Subject<'a>,
        backend: Arc<dyn Backend>,
        threads: usize,
    ) -> Result<Bench<'a>, Error> {
        let worker = Rc::new(RefCell::new(Worker::new(subject.worker.clone(), threads)));
        let pool = line::pool(1)?;
        let benches =
            Benches::new(subject.registry, pool, Some(worker.clone()), subject.scratch.clone())
                .apart();
        let setting = Setting { threads, policy: Policy::Default };
        let database = Database::in_memory(&Machine::read())?;
        Ok(Bench { subject, backend, setting, worker, benches, database })
    }

    fn is_stopped(&self) -> Result<(), Error> {
        match self.subject.cancel.is_cancelled() {
            true => Err(Error::Interrupted),
            false => Ok(()),
        }
    }

    /// Graphs for which the backend offers something.
    fn draw(&self, samples: &Samples, number: usize) -> Result<Vec<Case>, Error> {
        let mut rng = Rng::new(self.subject.seed.wrapping_mul(1000) + number as u64);
        let mut cases = Vec::new();
        for _ in 0..DRAWS {
            self.is_stopped()?;
            if cases.len() == self.subject.graphs {
                break;
            }
            let Some(graph) = samples.draw(number, &mut rng) else { continue };
            let Some(exit) = graph.outputs.first().and_then(|&v| graph.producer(v)) else {
                continue;
            };
            let candidates = self.backend.propose(&graph, exit, &self.setting).candidates;
            if !candidates.is_empty() {
                cases.push(Case { graph, candidates });
            }
        }
        Ok(cases)
    }

    fn of_model(&self, graph: &Graph) -> Case {
        let exits = graph.order().into_iter();
        let all = exits.flat_map(|n| self.backend.propose(graph, n, &self.setting).candidates);
        Case { graph: graph.clone(), candidates: all.take(MODEL_CANDIDATES).collect() }
    }

    /// Does something with prices on inputs that hold `values`; `None` where the reference cannot evaluate the
    /// graph on them.
    fn with_pricing<T>(
        &self,
        graph: &Graph,
        values: Values,
        body: impl FnOnce(&Pricing<'_>, bool) -> T,
    ) -> Option<T> {
        let drawn = inputs::sample_inputs(graph, self.subject.seed).ok()?;
        let data: Vec<Datum> = drawn.iter().map(|t| Datum::from(filled(t, values))).collect();
        let observed = Observed::new(graph, &data);
        let mut is_finite = true;
        for &v in &graph.outputs {
            let content = observed.get(v).ok()??;
            is_finite &=
                !content.dtype().is_float() || content.to_f64().iter().all(|x| x.is_finite());
        }
        let pricing = Pricing {
            wishes: &Wishes::default(),
            graph,
            setting: self.setting,
            database: &self.database,
            contents: "",
            bench: &self.benches,
            observed: &observed,
            last_level_cache: 0,
            first_deadline: None,
            deadline: None,
            cover_deadline: None,
            cancel: self.subject.cancel,
            progress: &|_, _, _| {},
        };
        Some(body(&pricing, is_finite))
    }

    fn offer(&self, candidate: &Candidate) -> Offer {
        Offer {
            candidate: candidate.clone(),
            form: Form::Kernel(self.backend.clone()),
            canonical: Arc::from(""),
            threads: self.setting.threads,
            key: Key(String::new()),
        }
    }

    /// Makes every kernel that is offered for a graph, runs it and compares.
    fn try_case(&self, case: &Case, values: Values, told: &mut Told) -> Result<(), Error> {
        self.is_stopped()?;
        let graph = &case.graph;
        let kept: Vec<&Candidate> = case
            .candidates
            .iter()
            .filter(|c| match self.backend.bind(graph, c, &self.setting) {
                Ok(_) => true,
                Err(why) => {
                    told.refused(why);
                    false
                }
            })
            .collect();
        self.with_pricing(graph, values, |pricing, is_finite| {
            let values = if is_finite { values } else { Values::NotNumbers };
            for candidate in kept {
                let found = check_offer(pricing, &self.offer(candidate)).map_err(|e| e.why);
                let of = graph_line(graph);
                let what = format!("{candidate} on {} threads, for {of}", self.setting.threads);
                match values {
                    Values::Ordinary => told.result(&what, found),
                    Values::Extreme => told.extreme(&what, found),
                    Values::NotNumbers => told.not_numbers(&what, found),
                }
                told.threads(self.count_threads(), self.setting.threads);
            }
        });
        Ok(())
    }

    /// Asks a run to stop early.
    fn stop(&self, case: &Case, told: &mut Told) {
        self.with_pricing(&case.graph, Values::Ordinary, |pricing, _| {
            for candidate in &case.candidates {
                if let Ok(mut open) = pricing.open(&self.offer(candidate)) {
                    told.stopped(&candidate.to_string(), open.trial.stopped().map_err(|e| e.why));
                }
            }
        });
    }

    /// Makes, runs and gives back one kernel many times.
    fn repeat(&self, case: &Case, told: &mut Told) -> Result<(), Error> {
        let Some(candidate) = case.candidates.first() else { return Ok(()) };
        let start = Instant::now();
        let (mut before, mut rounds) = (None, 0);
        let grown = self.with_pricing(&case.graph, Values::Ordinary, |pricing, _| {
            for round in 0..ROUNDS {
                if self.subject.cancel.is_cancelled() || start.elapsed() > ROUNDS_TIME {
                    break;
                }
                // What fails was told when it was tried.
                let mut open = pricing.open(&self.offer(candidate)).ok()?;
                open.trial.results().ok()?;
                drop(open);
                rounds = round;
                if round == ROUNDS / 5 {
                    before = self.resident_bytes();
                }
            }
            Some(self.resident_bytes()?.saturating_sub(before?))
        });
        self.is_stopped()?;
        if let Some(grown) = grown.flatten() {
            told.grown(&candidate.to_string(), grown, rounds - ROUNDS / 5, GROWTH);
        }
        Ok(())
    }

    /// Threads of the worker, where the system tells.
    fn count_threads(&self) -> Option<usize> {
        let id = self.worker.borrow().id()?;
        Some(fs::read_dir(format!("/proc/{id}/task")).ok()?.count())
    }

    /// Resident bytes of the worker, where the system tells.
    fn resident_bytes(&self) -> Option<u64> {
        let id = self.worker.borrow().id()?;
        let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
    }
}

/// The ops of a small graph and its inputs, in a line.
fn graph_line(graph: &Graph) -> String {
    const SHOWN: usize = 6;
    let ops = graph.nodes().take(SHOWN).map(|n| op_name(&graph.node(n).op));
    let inputs = graph.inputs.iter().take(SHOWN).map(|&v| graph.fact(v).ty.to_string());
    format!("{} of {}", ops.collect::<Vec<_>>().join(", "), inputs.collect::<Vec<_>>().join(", "))
}

/// An input of floats with other values; any other as it is.
fn filled(tensor: &Tensor, values: Values) -> Tensor {
    let all: &[f64] = match values {
        Values::Ordinary => return tensor.clone(),
        Values::Extreme => &[1e4, 1.0, 1e-40, -0.0, -1e4, 1e-38, 0.0, -1e-42],
        Values::NotNumbers => &[f64::NAN, 1.0, f64::INFINITY, -2.0, f64::NEG_INFINITY, 0.0, 0.5],
    };
    match tensor.dtype() {
        DType::F32 | DType::F64 | DType::F16 | DType::BF16 => {
            Tensor::generate(tensor.dtype(), tensor.dims(), |i| all[i % all.len()])
        }
        _ => tensor.clone(),
    }
}
