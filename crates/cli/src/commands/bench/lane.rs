//! What `bench` times: a target that is started in a process of its own, as often as it takes.

use crate::{
    args::Setting,
    commands::run::output_names,
    setup::{self, Target},
};
use bricolage::{
    Error, Temporary, artefact,
    worker::{OpenPlan, RemotePlan, WorkerCommand},
};
use bricolage_ir::{Error as Difference, Graph, Tolerance};
use bricolage_measure::Ratio;
use bricolage_tensor::Tensor;
use std::path::{Path, PathBuf};

/// A target with what is known of its time.
pub(super) struct Lane {
    pub(super) name: String,
    pub(super) backend: String,
    pub(super) threads: usize,
    source: Source,
    named: Vec<(String, Tensor)>,
    /// Of all starts, in nanoseconds a run.
    pub(super) samples: Vec<f64>,
    /// Median of each start's samples, in nanoseconds a run.
    pub(super) starts: Vec<f64>,
    pub(super) first: Option<Start>,
}

/// What the first start of a target took.
#[derive(Clone, Copy)]
pub(super) struct Start {
    pub(super) load_ns: u64,
    pub(super) first_run_ns: u64,
    pub(super) peak_bytes: u64,
}

enum Source {
    Plan { folder: PathBuf, _scratch: Option<Temporary> },
    Peer { model: PathBuf, outputs: Vec<String> },
}

/// Outputs that others are compared with, and how far they may be from them.
pub(super) struct Judged {
    pub(super) outputs: Vec<(String, Tensor)>,
    pub(super) allowed: Vec<Tolerance>,
}

fn command() -> Result<WorkerCommand, Error> {
    setup::worker_command()
        .ok_or_else(|| Error::Worker("this program cannot find itself".to_owned()))
}

/// Opens a model with a runtime of its own, in a process of its own, at its own best settings.
pub(crate) fn open_peer(
    path: &Path,
    backend: &str,
    threads: usize,
    outputs: &[String],
    inputs: &[(String, Tensor)],
) -> Result<RemotePlan, Error> {
    setup::require(backend)?;
    RemotePlan::open_peer(&command()?, threads, backend, path, inputs, outputs).map_err(|e| {
        let why = match e {
            Error::Worker(why) => why,
            other => other.to_string(),
        };
        Error::Peer { target: format!("{}@{backend}", path.display()), why }
    })
}

impl Lane {
    /// Makes a target ready to be started on `named`, the inputs in the graph's order. `number` tells it from the
    /// other ones.
    pub(super) fn new(
        number: usize,
        target: &Target,
        setting: &Setting,
        graph: &Graph,
        named: Vec<(String, Tensor)>,
    ) -> Result<Lane, Error> {
        let mut threads = setup::threads(setting);
        let (backend, source) = match target {
            Target::Artefact(folder) => {
                let manifest = artefact::manifest(folder)?;
                artefact::require_here(folder, &manifest, &setup::registry(&[])?)?;
                threads = setting.threads.unwrap_or(manifest.threads as usize);
                let backends: Vec<String> = manifest.backends.into_keys().collect();
                (backends.join("+"), Source::Plan { folder: folder.clone(), _scratch: None })
            }
            Target::On(path, backend) if !setup::is_ours(backend) => {
                let outputs = output_names(graph);
                (backend.clone(), Source::Peer { model: path.clone(), outputs })
            }
            Target::Model(_) | Target::On(..) => {
                let backend = match target {
                    Target::On(_, backend) => backend.clone(),
                    _ => "native".to_owned(),
                };
                let registry = setup::registry(std::slice::from_ref(&backend))?;
                let folder = setup::cache_folder()
                    .join("scratch")
                    .join(format!("bench-{}-{number}", std::process::id()));
                let scratch = Some(Temporary::new(folder.clone()));
                let goal = setup::goal(setting);
                bricolage::save_unmeasured(&registry, graph.clone(), &goal, &folder)?;
                (backend, Source::Plan { folder, _scratch: scratch })
            }
        };
        let name = target.name();
        let (samples, starts) = (Vec::new(), Vec::new());
        Ok(Lane { name, backend, threads, source, named, samples, starts, first: None })
    }

    /// Starts it, and checks its outputs where there is something to check them by.
    pub(super) fn start(&mut self, judged: Option<&Judged>) -> Result<RemotePlan, Error> {
        let mut open = self.start_on(&self.named)?;
        if self.first.is_none() {
            if let Source::Plan { _scratch: None, .. } = self.source {
                setup::note_unmeasured(&self.name, open.unmeasured.as_deref());
            }
            let (load_ns, first_run_ns) = (open.load_ns, open.first_run_ns);
            self.first = Some(Start { load_ns, first_run_ns, peak_bytes: open.peak_bytes });
        }
        if let Some(judged) = judged {
            self.verify(&mut open, judged)?;
        }
        Ok(open)
    }

    /// Starts it on other inputs of the same names.
    pub(super) fn start_on(&self, named: &[(String, Tensor)]) -> Result<RemotePlan, Error> {
        match &self.source {
            Source::Plan { folder, .. } => {
                let tensors: Vec<Tensor> = named.iter().map(|(_, t)| t.clone()).collect();
                RemotePlan::open(&command()?, self.threads, folder, &tensors)
            }
            Source::Peer { model, outputs } => {
                open_peer(model, &self.backend, self.threads, outputs, named)
            }
        }
    }

    /// The outputs are right before a time counts.
    fn verify(&self, open: &mut RemotePlan, judged: &Judged) -> Result<(), Error> {
        let found = open.outputs()?;
        for (i, ((name, expected), allowed)) in
            judged.outputs.iter().zip(&judged.allowed).enumerate()
        {
            // Rewriting keeps names; a runtime that renames keeps the order.
            let by_name = found.iter().find(|(n, _)| n == name).or_else(|| found.get(i));
            let Some((_, found)) = by_name else {
                return Err(Error::Mismatch {
                    what: format!("`{}` gives no output `{name}`", self.name),
                });
            };
            let error = Difference::between(expected, found);
            let share = error.share_of(allowed);
            if share.is_nan() || share > 1.0 {
                return Err(Error::Mismatch {
                    what: format!(
                        "`{}`: output `{name}` is wrong: {error}, allowed {:.3e}",
                        self.name, allowed.max_abs
                    ),
                });
            }
        }
        Ok(())
    }

    /// Its time over that of `first`, of the starts that both had.
    pub(super) fn ratio(&self, first: &Lane) -> Option<Ratio> {
        let pairs = self.starts.iter().zip(&first.starts);
        Ratio::of(&pairs.map(|(a, b)| a / b).collect::<Vec<f64>>())
    }
}
