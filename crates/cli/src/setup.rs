//! What commands share: backends, the cache folder, targets and the worker command.

use crate::{
    args::{Setting, Verify},
    libraries,
};
use bricolage::{
    Error, Goal, InputShape, WorkerCommand, artefact, inputs, report::Audited, reproducer,
};
use bricolage_backend::{Backend, BackendStatus, Registry};
use bricolage_backends::{Native, PluginError, PythonPeer, Reference, foreign};
use bricolage_ir::Graph;
use bricolage_runtime::{available_threads, kind_of};
use bricolage_tensor::{Datum, Tensor};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Every backend, present or not.
pub(crate) struct Backends {
    /// Those that can be used.
    pub(crate) usable: Registry,
    /// What the others say of themselves.
    pub(crate) absent: Vec<BackendStatus>,
    /// Libraries that the user named and that are no backends.
    pub(crate) broken: Vec<PluginError>,
}

/// The path in an environment variable that is set and not empty.
pub(crate) fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from)
}

/// Looks for backends.
pub(crate) fn backends() -> Result<Backends, Error> {
    let environment = variable("VIRTUAL_ENV");
    let mut all: Vec<Arc<dyn Backend>> = vec![Arc::new(Native::default())];
    let mut absent = Vec::new();
    let found = foreign(&variable, environment.as_deref())
        .map_err(|e| Error::Internal { what: e.to_string() })?;
    let taken = || {
        let ours = ["native", "reference", "view"].map(str::to_owned);
        let peers = peers().into_iter().map(|p| p.name().to_owned());
        ours.into_iter().chain(found.iter().map(|b| b.name().to_owned())).chain(peers).collect()
    };
    let named = libraries::loaded(taken);
    let broken = named.iter().filter_map(|n| n.as_ref().err()).cloned().collect();
    for backend in found.iter().chain(named.iter().flatten()) {
        let status = backend.status();
        match status.version {
            Some(_) => all.push(backend.clone()),
            None => absent.push(status),
        }
    }
    all.push(Arc::new(Reference));
    Ok(Backends { usable: Registry::new(all), absent, broken })
}

/// Runtimes that run whole models for comparison, present or not.
pub(crate) fn peers() -> Vec<PythonPeer> {
    PythonPeer::all(&variable)
}

/// The backends of these names and the reference; all that can be used when there are no names.
pub(crate) fn registry(names: &[String]) -> Result<Registry, Error> {
    let backends = backends()?;
    if let Some(error) = backends.broken.into_iter().next() {
        return Err(error.into());
    }
    if names.is_empty() {
        return Ok(backends.usable);
    }
    let mut wanted: Vec<String> = names.to_vec();
    if let Some(status) = backends.absent.into_iter().find(|s| wanted.contains(&s.name)) {
        return Err(not_here(status));
    }
    if !wanted.iter().any(|n| n == "reference") {
        wanted.push("reference".to_owned());
    }
    backends.usable.only(&wanted).map_err(|e| Error::Backend {
        what: e.to_string(),
        help: "see `bricolage backend list`".to_owned(),
    })
}

/// Fails when no backend and no peer that is here has this name.
pub(crate) fn require(name: &str) -> Result<(), Error> {
    let Some(status) = peers().iter().find(|p| p.name() == name).map(|p| p.status()) else {
        return registry(&[name.to_owned()]).map(|_| ());
    };
    match status.version {
        Some(_) => Ok(()),
        None => Err(not_here(status)),
    }
}

fn not_here(status: BackendStatus) -> Error {
    Error::Backend {
        what: format!("backend `{}` is not here: {}", status.name, status.found),
        help: status.how,
    }
}

/// Fails when this backend is not here, or only runs whole models for comparison.
pub(crate) fn require_placeable(name: &str) -> Result<(), Error> {
    if peers().iter().any(|p| p.name() == name) {
        return Err(Error::Backend {
            what: format!("`{name}` runs whole models for comparison and is no part of plans"),
            help: "see `bricolage backend list`".to_owned(),
        });
    }
    registry(&[name.to_owned()]).map(|_| ())
}

/// Warnings shown at once.
const WARNINGS: usize = 8;

/// Prints warnings, the first of many.
pub(crate) fn warn(all: &[String]) {
    for warning in all.iter().take(WARNINGS) {
        eprintln!("warning: {warning}");
    }
    if all.len() > WARNINGS {
        eprintln!("warning: and {} more", all.len() - WARNINGS);
    }
}

/// The rewritten graph, each rewrite evaluated on these inputs; says what that showed.
pub(crate) fn rewrite_audited(graph: Graph, tensors: &[Tensor]) -> Result<(Graph, Audited), Error> {
    let data: Vec<Datum> = tensors.iter().cloned().map(Datum::from).collect();
    let folder = reproducer::folder(&cache_folder());
    let (rewritten, audited) = bricolage::rewrite_audited(graph, bricolage::RULES, &data, &folder)?;
    warn(&audited.warnings());
    eprintln!("{} rewrites gave on data what was there before", audited.agreed);
    Ok((rewritten.graph, audited))
}

/// Says that a target ran at sizes that it was not measured at.
pub(crate) fn note_unmeasured(target: &str, unmeasured: Option<&str>) {
    if let Some(what) = unmeasured {
        eprintln!("note: `{target}` at {what}");
    }
}

/// Where costs are kept.
pub(crate) fn cache_folder() -> PathBuf {
    variable("BRICOLAGE_CACHE_DIR")
        .or_else(|| variable("XDG_CACHE_HOME").map(|c| c.join("bricolage")))
        .or_else(|| variable("HOME").map(|h| h.join(".cache/bricolage")))
        .unwrap_or_else(|| std::env::temp_dir().join("bricolage-cache"))
}

/// This program as a worker with the backends that this process has.
pub(crate) fn worker_command() -> Option<WorkerCommand> {
    let mut command = bare_worker_command()?;
    for path in libraries::paths() {
        command.arguments.extend(["--library".into(), path.into_os_string()]);
    }
    Some(command)
}

/// This program as a worker that loads no library of the user's by itself.
pub(crate) fn bare_worker_command() -> Option<WorkerCommand> {
    let program = std::env::current_exe().ok()?;
    Some(WorkerCommand::new(program, vec!["worker".into()]))
}

pub(crate) fn threads(setting: &Setting) -> usize {
    setting.threads.unwrap_or_else(|| available_threads().threads)
}

/// The goal that the flags name.
pub(crate) fn goal(setting: &Setting) -> Goal {
    Goal {
        seed: setting.seed,
        shapes: setting.shapes.clone(),
        audit_rewrites: setting.verify.contains(&Verify::Rewrites),
        ..Goal::new(threads(setting))
    }
}

/// Whether a backend runs plans of ours, and not whole models by itself.
pub(crate) fn is_ours(backend: &str) -> bool {
    matches!(backend, "native" | "reference")
}

/// A model, a model on one backend, or an artefact.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    Model(PathBuf),
    On(PathBuf, String),
    Artefact(PathBuf),
}

impl Target {
    /// What the text names; a path that exists is taken whole, also with an `@` in it.
    pub(crate) fn parse(text: &str) -> Result<Target, Error> {
        let path = Path::new(text);
        let fault = match fs::metadata(path) {
            Ok(m) if m.is_dir() => {
                artefact::require_artefact(path)?;
                return Ok(Target::Artefact(path.to_owned()));
            }
            Ok(_) => return Ok(Target::Model(path.to_owned())),
            Err(fault) => fault,
        };
        let Some((model, backend)) = text.rsplit_once('@').filter(|_| kind_of(path).is_none())
        else {
            return Err(Error::file("read", path)(fault));
        };
        let model = Path::new(model);
        if fs::metadata(model).map_err(Error::file("read", model))?.is_dir() {
            let why = "it is a folder, and a backend is named after a model's file".to_owned();
            return Err(Error::File { action: "read", path: model.to_owned(), why });
        }
        Ok(Target::On(model.to_owned(), backend.to_owned()))
    }

    pub(crate) fn path(&self) -> &Path {
        match self {
            Target::Model(p) | Target::On(p, _) | Target::Artefact(p) => p,
        }
    }

    /// The sizes that the user gives, after the ranges that an artefact has.
    pub(crate) fn shapes(&self, setting: &Setting) -> Result<Vec<InputShape>, Error> {
        let mut shapes = match self {
            Target::Artefact(folder) => artefact::manifest(folder)?.shapes(),
            Target::Model(_) | Target::On(..) => Vec::new(),
        };
        shapes.extend(setting.shapes.iter().cloned());
        Ok(shapes)
    }

    /// The graph of the target's model, sizes bound as far as `shapes` say, for inputs from a file where
    /// there is one. For a model that only a runtime of its own understands, a graph with the model's
    /// inputs and outputs.
    pub(crate) fn graph(&self, setting: &Setting, input: Option<&Path>) -> Result<Graph, Error> {
        let (path, runtime) = match self {
            Target::Artefact(folder) => {
                let graph = bricolage::import(&artefact::model(folder)?, &[])?.graph;
                return match artefact::manifest(folder)?.sizes {
                    Some(_) => inputs::bind_shapes(&graph, &self.shapes(setting)?),
                    None => Ok(graph),
                };
            }
            Target::Model(path) => (path, None),
            Target::On(path, backend) => (path, Some(backend).filter(|b| !is_ours(b))),
        };
        let mut sizes = setting.shapes.clone();
        for (input, tensor) in input.map_or(Ok(Vec::new()), bricolage::npz::read)? {
            sizes.push(InputShape::of(&input, tensor.dims()));
        }
        let graph = match (bricolage::import(path, &sizes), runtime) {
            (Ok(model), _) => {
                warn(&model.warnings);
                model.graph
            }
            (Err(Error::Import { error, .. }), Some(backend)) if error.is_unsupported() => {
                warn(&[format!("`{}` is left to `{backend}` whole: {error}", path.display())]);
                bricolage::import_interface(path)?
            }
            (Err(error), _) => return Err(error),
        };
        inputs::bind_shapes(&graph, &setting.shapes)
    }

    /// As the user names it.
    pub(crate) fn name(&self) -> String {
        match self {
            Target::On(path, backend) => format!("{}@{backend}", path.display()),
            other => other.path().display().to_string(),
        }
    }
}

/// The inputs for a graph: from a file, or drawn; in the graph's order.
pub(crate) fn tensors(
    graph: &Graph,
    input: Option<&Path>,
    seed: u64,
) -> Result<Vec<Tensor>, Error> {
    match input {
        Some(path) => inputs::match_inputs(graph, bricolage::npz::read(path)?),
        None => {
            let drawn = inputs::sample_inputs(graph, seed)?;
            for line in inputs::describe_draws(graph) {
                eprintln!("drawn {line}");
            }
            Ok(drawn)
        }
    }
}
