//! `reduce`: the smallest model that still fails as a model does.

use super::bench;
use crate::{
    args::Reduce,
    output::say,
    setup::{self, Target},
};
use bricolage::{
    Error, Temporary, inputs, reduce,
    reduce::Example,
    target,
    temporary::{require_place, write_file},
};
use bricolage_ir::{Error as Difference, Graph, evaluate, tolerances};
use bricolage_tensor::{Datum, Tensor};
use std::{
    io::Write as _,
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitCode,
    time::Duration,
};

/// How a backend fails on a graph.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Failure {
    /// An output differs from the reference; in words.
    Wrong(String),
    /// An error with this code; in words.
    Error(&'static str, String),
    /// A panic.
    Panic,
}

impl Failure {
    /// Whether two failures may have one cause.
    fn is_like(&self, other: &Failure) -> bool {
        match (self, other) {
            (Failure::Error(a, _), Failure::Error(b, _)) => a == b,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::Wrong(what) => write!(f, "{what}"),
            Failure::Error(code, what) => write!(f, "error[{code}]: {what}"),
            Failure::Panic => write!(f, "it panics"),
        }
    }
}

pub(crate) fn run(a: &Reduce) -> Result<ExitCode, Error> {
    let target = Target::parse(&a.target)?;
    let backend = backend(&target)?;
    require_place(&a.output).map_err(Error::file("write", &a.output))?;
    if a.output.exists() && !a.overwrite {
        let why = "it exists; --overwrite replaces it".to_owned();
        return Err(Error::File { action: "write", path: a.output.clone(), why });
    }
    let graph = target.graph(&a.setting, a.input.as_deref())?;
    let tensors = setup::tensors(&graph, a.input.as_deref(), a.setting.seed)?;
    let example = Example { graph: inputs::bind_to(&graph, &tensors)?, inputs: tensors };
    let Some(failure) = failure(&example, &backend, &a.setting)? else {
        say!("nothing to reduce: `{}` agrees with the reference on these inputs", target.name());
        return Ok(ExitCode::from(1));
    };
    eprintln!("the whole fails: {failure}");
    let small = smallest(&example, &failure, &backend, &a.setting, a.time_limit);
    let bytes = bricolage_onnx::export(&small.graph)?;
    write_file(&a.output, |file| file.write_all(&bytes))
        .map_err(Error::file("write", &a.output))?;
    let shown = self::failure(&small, &backend, &a.setting)?;
    let inputs = a.output.with_extension("npz");
    let named = super::run::name_inputs(&small.graph, &small.inputs);
    bricolage::npz::write(&inputs, &named)?;
    say!(
        "{} of {} nodes fail alike: {}",
        small.graph.nodes().count(),
        example.graph.nodes().count(),
        shown.map_or_else(|| "not every time".to_owned(), |f| f.to_string())
    );
    say!("written    {} and its inputs {}", a.output.display(), inputs.display());
    Ok(ExitCode::SUCCESS)
}

/// The smallest part of an example that fails alike, as far as `limit` goes.
pub(crate) fn smallest(
    example: &Example,
    failure: &Failure,
    backend: &str,
    setting: &crate::args::Setting,
    limit: Duration,
) -> Example {
    let fails = |e: &Example| {
        let found = self::failure(e, backend, setting);
        found.is_ok_and(|f| f.is_some_and(|f| f.is_like(failure)))
    };
    reduce::reduce(example, limit, &fails)
}

/// The backend that a target names.
pub(crate) fn backend(target: &Target) -> Result<String, Error> {
    match target {
        Target::Model(_) => Ok("native".to_owned()),
        Target::On(_, backend) => Ok(backend.clone()),
        Target::Artefact(folder) => Err(Error::Inputs {
            what: format!("`{}` is an artefact; a model is reduced", folder.display()),
            help: "name the model, or use `compare --bisect`".to_owned(),
        }),
    }
}

/// How a backend fails on an example, if it does. Fails itself where the backend is not here, and where the
/// reference cannot tell whether outputs are right.
pub(crate) fn failure(
    example: &Example,
    backend: &str,
    setting: &crate::args::Setting,
) -> Result<Option<Failure>, Error> {
    let outputs = match catch_unwind(AssertUnwindSafe(|| outputs(example, backend, setting))) {
        Ok(Ok(outputs)) => outputs,
        Ok(Err(error)) if error.is_momentary() => return Err(error),
        Ok(Err(error)) => return Ok(Some(Failure::Error(error.code(), error.to_string()))),
        Err(_) => return Ok(Some(Failure::Panic)),
    };
    let graph = &example.graph;
    let data = example.data();
    let exact = evaluate(graph, &data)?;
    let exact: Vec<Option<&Tensor>> = exact.iter().map(Datum::as_tensor).collect();
    let class_error = |n| target::class_error(graph, n);
    let allowed = tolerances(graph, &data, &exact, &|_| None, &class_error, 1)?;
    for (((name, found), exact), allowed) in outputs.iter().zip(exact).zip(&allowed) {
        let Some(exact) = exact else { continue };
        let error = Difference::between(exact, found);
        let share = error.share_of(&allowed.plus(*allowed));
        if share.is_nan() || share > 1.0 {
            let allowed = 2.0 * allowed.max_abs;
            return Ok(Some(Failure::Wrong(format!("`{name}`: {error}; allowed {allowed:.3e}"))));
        }
    }
    Ok(None)
}

fn outputs(
    example: &Example,
    backend: &str,
    setting: &crate::args::Setting,
) -> Result<target::Outputs, Error> {
    let (graph, tensors): (&Graph, &[Tensor]) = (&example.graph, &example.inputs);
    if setup::is_ours(backend) {
        return super::run::on_ours(graph, backend, setting, tensors);
    }
    let scratch = setup::cache_folder().join("scratch");
    std::fs::create_dir_all(&scratch).map_err(Error::file("write", &scratch))?;
    let file = scratch.join(format!("part-{}.onnx", std::process::id()));
    let file = Temporary::new(file);
    let bytes = bricolage_onnx::export(graph)?;
    std::fs::write(file.path(), bytes).map_err(Error::file("write", file.path()))?;
    let named = super::run::name_inputs(graph, tensors);
    let (threads, outputs) = (setup::threads(setting), super::run::output_names(graph));
    let mut open = bench::open_peer(file.path(), backend, threads, &outputs, &named)?;
    bricolage::worker::OpenPlan::outputs(&mut open)
}
