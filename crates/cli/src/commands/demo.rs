//! `demo`: the whole product in one command.

use super::{SCHEMA_VERSION, optimize, zoo};
use crate::{
    args::{Demo, Setting},
    commands::bench,
    output::say,
    setup::{self, Target},
    units,
};
use bricolage::{Error, Goal, inspect, temporary};
use bricolage_backend::BackendKind;
use std::{fs, io::Write, process::ExitCode, time::Duration};

const LIMIT: Duration = Duration::from_secs(100);

pub(crate) fn run(a: &Demo) -> Result<ExitCode, Error> {
    fs::create_dir_all(&a.output).map_err(Error::file("write", &a.output))?;
    let model = a.output.join(format!("{}.onnx", a.model));
    let artefact = a.output.join(format!("{}.bricolage", a.model));
    let size = zoo::write(&a.model, 1, a.setting.seed, &model, true)?;
    let found = inspect(&bricolage::import(&model, &[])?.graph);
    say!(
        "1. made {} ({}, {} parameters, {} multiply-adds)",
        model.display(),
        units::bytes(size),
        units::count(found.parameters),
        found.macs.map_or_else(|| "unknown".to_owned(), units::count)
    );
    say!("2. optimise it on the backends that are here");
    let goal = Goal { time_limit: Some(LIMIT), ..setup::goal(&a.setting) };
    let worker = setup::worker_command();
    let (report, interrupted) = optimize::optimize(&model, &artefact, true, &[], goal, worker)?;
    optimize::summary(&report, &artefact);
    say!("3. time the artefact against the backends alone, each in a process of its own");
    let setting = Setting { threads: Some(setup::threads(&a.setting)), ..a.setting.clone() };
    let mut targets = vec![Target::Artefact(artefact.clone())];
    targets.push(Target::On(model.clone(), "native".to_owned()));
    for engine in setup::backends()?.usable.iter().filter(|b| b.kind() == BackendKind::GraphEngine)
    {
        targets.push(Target::On(model.clone(), engine.name().to_owned()));
    }
    let table = bench::table(&targets, &setting, Some(15))?;
    bench::print(&table);
    let path = a.output.join("report.json");
    let text = serde_json::to_string_pretty(&serde_json::json!({
        "schema_version": SCHEMA_VERSION, "optimize": report, "bench": table,
    }))
    .map_err(|e| Error::Internal { what: e.to_string() })?;
    temporary::write_file(&path, |file| file.write_all(text.as_bytes()))
        .map_err(Error::file("write", &path))?;
    say!("4. written {} and {}", artefact.display(), path.display());
    Ok(if interrupted { ExitCode::from(130) } else { ExitCode::SUCCESS })
}
