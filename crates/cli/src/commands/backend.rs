//! `backend list` and `backend test`.

use super::{SCHEMA_VERSION, print_json};
use crate::{
    args::{Backend, BackendTest, BackendVerb, Format, Output},
    interrupt::Graceful,
    libraries,
    output::say,
    progress::Display,
    setup::{self, Target},
};
use bricolage::{
    Error, Progress, WorkerCommand,
    backend_test::{self, Subject, Verdict},
    inputs,
};
use bricolage_backend::BackendStatus;
use bricolage_ir::Graph;
use std::{path::PathBuf, process::ExitCode};

/// Presence of every known backend.
pub(crate) fn statuses() -> Result<Vec<BackendStatus>, Error> {
    let backends = setup::backends()?;
    let mut all: Vec<BackendStatus> = backends.usable.iter().map(|b| b.status()).collect();
    all.extend(backends.absent);
    all.extend(backends.broken.iter().map(libraries::unusable));
    all.extend(setup::peers().iter().map(|p| p.status()));
    Ok(all)
}

pub(crate) fn run(a: &Backend) -> Result<ExitCode, Error> {
    match &a.verb {
        BackendVerb::List(output) => list(output),
        BackendVerb::Test(test) => try_out(test),
    }
}

fn list(output: &Output) -> Result<ExitCode, Error> {
    let all = statuses()?;
    match output.format {
        Format::Json => {
            print_json(&serde_json::json!({ "schema_version": SCHEMA_VERSION, "backends": all }))?
        }
        Format::Text => {
            for status in all {
                let version = status.version.unwrap_or_else(|| "absent".to_owned());
                say!("{:<12} {version}", status.name);
                say!("    {}", status.found);
                say!("    get it: {}", status.how);
                say!("    covers: {}", status.covers);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn try_out(a: &BackendTest) -> Result<ExitCode, Error> {
    let registry = setup::registry(&[])?;
    let library = a.library().map(|path| libraries::name_of(&path)).transpose()?.flatten();
    let name = library.unwrap_or_else(|| a.backend.clone());
    setup::require_placeable(&name)?;
    let model = |path: &PathBuf| {
        let graph = Target::Model(path.clone()).graph(&a.setting, None)?;
        let graph = bricolage::rewrite(graph)?.graph;
        inputs::require_fixed(&graph)?;
        Ok(graph)
    };
    let models: Vec<Graph> = a.models.iter().map(model).collect::<Result<_, Error>>()?;
    let worker = setup::worker_command()
        .ok_or_else(|| Error::Worker("this program cannot find itself".to_owned()))?;
    let graceful = Graceful::new();
    let display = Display::new();
    let checks = backend_test::run(&Subject {
        registry: &registry,
        backend: &name,
        worker: WorkerCommand { kernel_limit: Some(a.kernel_time_limit), ..worker },
        scratch: setup::cache_folder().join("scratch"),
        threads: setup::threads(&a.setting).max(2),
        graphs: a.graphs,
        seed: a.setting.seed,
        models: &models,
        cancel: graceful.cancel(),
        progress: &|phase, done, total| {
            display.show(&Progress { phase, done, total, best_ns: None })
        },
    });
    display.finish();
    let checks = checks?;
    let failed = checks.iter().any(|c| c.verdict == Verdict::Failed);
    match a.format.format {
        Format::Json => print_json(
            &serde_json::json!({ "schema_version": SCHEMA_VERSION, "backend": name, "checks": checks }),
        )?,
        Format::Text => {
            for check in checks {
                let verdict = match check.verdict {
                    Verdict::Passed => "ok",
                    Verdict::Failed => "FAILED",
                    Verdict::Untried => "open",
                };
                say!("{verdict:<7} {:<12} {}", check.name, check.said);
                for fault in check.faults {
                    say!("            {fault}");
                }
            }
        }
    }
    Ok(ExitCode::from(u8::from(failed)))
}
