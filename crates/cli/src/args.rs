//! Verbs and flags.

use crate::units;
use bricolage::{Charge, InputShape, Wish};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::{path::PathBuf, time::Duration};

const EXIT_CODES: &str = "Exit codes: 0 ok, 1 ran but a condition failed, 2 bad input or usage, \
3 a bug of ours, 130 interrupted with the best so far kept.\n\
Environment: BRICOLAGE_CACHE_DIR, BRICOLAGE_THREADS, BRICOLAGE_ONNXRUNTIME, BRICOLAGE_OPENVINO, BRICOLAGE_BLAS \
and BRICOLAGE_ONEDNN (a library, a wheel's folder or a Python environment), VIRTUAL_ENV (searched for these), \
BRICOLAGE_BACKEND_LIB (as --backend-lib, with `:` between paths), BRICOLAGE_BACKEND_LOG (a file for what such libraries log), \
BRICOLAGE_MNN and BRICOLAGE_NCNN (Python environments of runtimes that `bench`, `run` and `compare` take as MODEL@mnn and MODEL@ncnn).";

/// Finds by measurement the best way to run a trained model on this machine, and proves that the
/// answer is still right.
#[derive(Parser)]
#[command(name = "bricolage", version, after_help = EXIT_CODES)]
pub(crate) struct Arguments {
    /// A library that is a backend of its own, see docs/backends.md; may be repeated.
    #[arg(long = "backend-lib", env = "BRICOLAGE_BACKEND_LIB", value_name = "PATH")]
    #[arg(global = true, value_delimiter = ':', hide_env_values = true)]
    pub(crate) libraries: Vec<PathBuf>,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Says what a model is: inputs, outputs, ops, parameters, work and memory.
    Inspect(Inspect),
    /// Says what this machine is and whether it is quiet enough to measure on.
    Doctor(Output),
    /// Lists backends, or tries one.
    Backend(Backend),
    /// Takes a model to an artefact.
    Optimize(Optimize),
    /// Runs a model or an artefact.
    Run(Run),
    /// Times models and artefacts against each other, in turn.
    Bench(Bench),
    /// Compares the outputs of two models or artefacts.
    Compare(Compare),
    /// Makes a model that fails on a backend as small as it can be.
    Reduce(Reduce),
    /// Says how an artefact came about: what runs where, what it costs, what was refused.
    Explain(Explain),
    /// Says what an error code means and what to do.
    ExplainError(ExplainError),
    /// Writes a model of a known architecture with seeded weights.
    Zoo(Zoo),
    /// Makes a model, optimises it, checks and times it: the whole product in one command.
    Demo(Demo),
    /// Serves another process of this program, with backends from these libraries alone.
    #[command(hide = true)]
    Worker {
        #[arg(long = "library")]
        libraries: Vec<PathBuf>,
        threads: usize,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    #[default]
    Text,
    Json,
}

#[derive(Args, Clone)]
pub(crate) struct Output {
    /// Form of the result.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
}

#[derive(Args, Clone)]
pub(crate) struct Setting {
    /// Threads; by default as many as the machine lets this process use.
    #[arg(long, env = "BRICOLAGE_THREADS", value_parser = units::threads)]
    pub(crate) threads: Option<usize>,
    /// Sizes that the model leaves open: of an input, as NAME:1x3x224x224, or one by its own name, as
    /// NAME:8; may be repeated. A range such as 1..32 may stand for each number: `optimize` then measures
    /// at its upper end and the artefact runs at every size in it.
    #[arg(long = "shape", value_parser = InputShape::parse)]
    pub(crate) shapes: Vec<InputShape>,
    /// Seed of drawn inputs and of the order of measurements.
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    /// Evaluates what can be checked while it is done, which is slow: every rewrite, on the inputs and on
    /// edge values in their place. One that changes a result is left out, saved and reported.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) verify: Vec<Verify>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Verify {
    /// Every rewrite.
    Rewrites,
}

#[derive(Args)]
pub(crate) struct Inspect {
    /// MODEL, MODEL@BACKEND or an artefact.
    pub(crate) target: String,
    #[command(flatten)]
    pub(crate) setting: Setting,
    #[command(flatten)]
    pub(crate) output: Output,
}

#[derive(Args)]
pub(crate) struct Backend {
    #[command(subcommand)]
    pub(crate) verb: BackendVerb,
}

#[derive(Subcommand)]
pub(crate) enum BackendVerb {
    /// Says for each backend whether it is here, where, and how to get it.
    List(Output),
    /// Tries a backend on graphs that its patterns may match, in processes of its own, and says in a line a
    /// check what was found; exit code 1 if a check failed.
    Test(BackendTest),
}

#[derive(Args)]
pub(crate) struct BackendTest {
    /// A library, or the name of a backend.
    pub(crate) backend: String,
    /// Models whose regions are tried too.
    pub(crate) models: Vec<PathBuf>,
    /// Graphs that are drawn for each pattern and number of threads.
    #[arg(long, default_value_t = 24)]
    pub(crate) graphs: usize,
    /// Time for a kernel to be compiled, and for a run of it.
    #[arg(long, value_parser = units::duration, default_value = "20s")]
    pub(crate) kernel_time_limit: Duration,
    #[command(flatten)]
    pub(crate) setting: Setting,
    #[command(flatten)]
    pub(crate) format: Output,
}

impl BackendTest {
    /// The library that is tried, if it is one.
    pub(crate) fn library(&self) -> Option<PathBuf> {
        let path = PathBuf::from(&self.backend);
        (self.backend.contains('/') || path.exists()).then_some(path)
    }
}

#[derive(Args)]
pub(crate) struct Optimize {
    /// MODEL, MODEL@BACKEND, which is MODEL with `--backend BACKEND`, or an artefact, whose model is
    /// optimised again.
    pub(crate) target: String,
    /// The artefact, a folder.
    #[arg(short, long, required_unless_present = "dry_run")]
    pub(crate) output: Option<PathBuf>,
    /// Replaces an artefact that is there.
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Only these backends, besides the reference, which is always the last resort.
    #[arg(long = "backend", value_delimiter = ',')]
    pub(crate) backends: Vec<String>,
    /// How nodes are given to backends.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) placement: Placement,
    /// NODE=BACKEND: this backend computes the node, whatever it costs. May be repeated.
    #[arg(long, value_parser = |text: &str| Wish::parse(text, true))]
    pub(crate) pin: Vec<Wish>,
    /// NODE=BACKEND: this backend does not compute the node. May be repeated.
    #[arg(long, value_parser = |text: &str| Wish::parse(text, false))]
    pub(crate) exclude: Vec<Wish>,
    /// BACKEND=TIME: a plan that uses the backend counts so much longer, so that it must save more than that; as
    /// openvino=500us. May be repeated.
    #[arg(long, value_parser = charge)]
    pub(crate) charge: Vec<Charge>,
    /// The most that the errors of inexact kernels, such as Winograd's, may sum to, each a share of the largest
    /// magnitude of its results; as 2e-5.
    #[arg(long, value_parser = share)]
    pub(crate) error_budget: Option<f64>,
    /// Says what backends offer, what is known of it and how long the search is expected to take; measures and
    /// writes nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// What kernels may do to the numbers.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) numerics: Numerics,
    /// Time for the whole search, as 90s or 2m.
    #[arg(long, value_parser = units::duration)]
    pub(crate) time_limit: Option<Duration>,
    /// Time for a foreign kernel to be compiled, and for a checked run of it, as 5s; one that takes longer is
    /// refused. By default 60 s and 120 s.
    #[arg(long, value_parser = units::duration)]
    pub(crate) kernel_time_limit: Option<Duration>,
    #[command(flatten)]
    pub(crate) setting: Setting,
    #[command(flatten)]
    pub(crate) format: Output,
}

/// Reads `BACKEND=TIME`.
fn charge(text: &str) -> Result<Charge, String> {
    let (backend, time) = text
        .rsplit_once('=')
        .filter(|(backend, _)| !backend.is_empty())
        .ok_or_else(|| format!("`{text}` needs the form BACKEND=TIME"))?;
    let ns = units::duration(time)?.as_nanos() as f64;
    Ok(Charge { backend: backend.to_owned(), ns })
}

/// Reads a share that is not negative.
fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(x) if x.is_finite() && x >= 0.0 => Ok(x),
        _ => Err(format!("`{text}` needs to be a number of 0 or more, as 2e-5")),
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Placement {
    /// The cover of least price, then a contest between whole plans, every single backend among them, and covers
    /// made anew from what plans and merged regions take.
    #[default]
    Exact,
    /// The same without new covers, which is quicker.
    OpLevel,
    /// A baseline to compare with, Collage's published method: a cover that sees no formats, then an evolutionary search that gives parts
    /// of it to the first graph engine, for the rest of the time limit or 18 minutes.
    CollageV1,
    /// A baseline to compare with: backends in the order of `--backend`, each with the largest regions that it takes.
    Greedy,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Numerics {
    /// Other orders of summation only.
    Strict,
    /// Winograd convolution with small tiles as well.
    #[default]
    Default,
    /// Larger tiles and reduced precision as well.
    Fast,
}

#[derive(Args)]
pub(crate) struct Run {
    /// MODEL, MODEL@BACKEND or an artefact.
    pub(crate) target: String,
    /// Inputs by name, as an npz file; drawn from the seed by default.
    #[arg(long)]
    pub(crate) input: Option<PathBuf>,
    /// Where outputs are written by name.
    #[arg(long)]
    pub(crate) output: Option<PathBuf>,
    /// Replaces the output file.
    #[arg(long)]
    pub(crate) overwrite: bool,
    #[command(flatten)]
    pub(crate) setting: Setting,
    #[command(flatten)]
    pub(crate) format: Output,
}

#[derive(Args)]
pub(crate) struct Bench {
    /// MODEL, MODEL@BACKEND or artefacts.
    #[arg(required = true)]
    pub(crate) targets: Vec<String>,
    /// Adds the first model on each of these backends.
    #[arg(long = "backend", value_delimiter = ',')]
    pub(crate) backends: Vec<String>,
    /// Samples of each target; by default as many as a narrow interval takes.
    #[arg(long)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) iterations: Option<u32>,
    #[command(flatten)]
    pub(crate) setting: Setting,
    #[command(flatten)]
    pub(crate) format: Output,
}

#[derive(Args)]
pub(crate) struct Compare {
    /// MODEL, MODEL@BACKEND or an artefact: the reference.
    pub(crate) first: String,
    /// MODEL, MODEL@BACKEND or an artefact.
    pub(crate) second: String,
    /// Inputs by name, as an npz file; drawn from the seed by default.
    #[arg(long)]
    pub(crate) input: Option<PathBuf>,
    /// Names the first rewrite, kernel or conversion of the second that is wrong, each judged on what it
    /// was given.
    #[arg(long)]
    pub(crate) bisect: bool,
    #[command(flatten)]
    pub(crate) setting: Setting,
    #[command(flatten)]
    pub(crate) format: Output,
}

#[derive(Args)]
pub(crate) struct Reduce {
    /// MODEL or MODEL@BACKEND, which differs from the reference or ends in an error.
    pub(crate) target: String,
    /// The ONNX file of the reduced model; its inputs come beside it as npz.
    #[arg(short, long)]
    pub(crate) output: PathBuf,
    /// Replaces the file.
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Inputs by name, as an npz file; drawn from the seed by default.
    #[arg(long)]
    pub(crate) input: Option<PathBuf>,
    /// Time for reducing, as 90s or 2m.
    #[arg(long, value_parser = units::duration, default_value = "2m")]
    pub(crate) time_limit: Duration,
    #[command(flatten)]
    pub(crate) setting: Setting,
}

#[derive(Args)]
pub(crate) struct Explain {
    /// An artefact.
    pub(crate) artefact: PathBuf,
    #[command(flatten)]
    pub(crate) format: Output,
}

#[derive(Args)]
pub(crate) struct ExplainError {
    /// As it stands in brackets after `error`; all codes are listed without one.
    pub(crate) code: Option<String>,
}

#[derive(Args)]
pub(crate) struct Zoo {
    /// `list`, or the name of a model.
    pub(crate) name: String,
    /// The ONNX file.
    #[arg(short, long)]
    pub(crate) output: Option<PathBuf>,
    /// Replaces the file.
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Images or sequences at once.
    #[arg(long, default_value_t = 1)]
    pub(crate) batch: i64,
    /// Seed of the weights.
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) format: Output,
}

#[derive(Args)]
pub(crate) struct Demo {
    /// Folder for the model, the artefact and the report.
    #[arg(short, long, default_value = "bricolage-demo")]
    pub(crate) output: PathBuf,
    /// Which model.
    #[arg(long, default_value = "resnet18")]
    pub(crate) model: String,
    #[command(flatten)]
    pub(crate) setting: Setting,
}
