//! `inspect`: what a model is.

use super::{SCHEMA_VERSION, print_json};
use crate::{
    args::{Format, Inspect},
    output::say,
    setup::{self, Target},
    units,
};
use bricolage::{Error, artefact, inspect};
use std::process::ExitCode;

pub(crate) fn run(a: &Inspect) -> Result<ExitCode, Error> {
    let target = Target::parse(&a.target)?;
    let file = match &target {
        Target::Artefact(folder) => artefact::model(folder)?,
        Target::Model(path) | Target::On(path, _) => path.clone(),
    };
    let model = bricolage::import(&file, &a.setting.shapes)?;
    setup::warn(&model.warnings);
    let graph = bricolage::inputs::bind_shapes(&model.graph, &target.shapes(&a.setting)?)?;
    let found = inspect(&graph);
    if a.output.format == Format::Json {
        print_json(&serde_json::json!({
            "schema_version": SCHEMA_VERSION,
            "model": file, "hash": model.hash, "opset": model.opset, "producer": model.producer,
            "inspection": found,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    say!("model        {} (opset {}, {})", file.display(), model.opset, model.producer);
    for (word, ports) in [("input", &found.inputs), ("output", &found.outputs)] {
        for port in ports {
            say!("{word:<12} {} {}", port.name, port.ty);
        }
    }
    if !found.symbols.is_empty() {
        let range = |s: &String| {
            let known = graph.ranges.0.iter().find(|(symbol, _)| *symbol.0 == **s);
            known.map_or_else(|| s.clone(), |(_, (low, high))| format!("{s} {low}..{high}"))
        };
        say!("open sizes   {}", found.symbols.iter().map(range).collect::<Vec<_>>().join(", "));
    }
    say!("parameters   {} in {}", units::count(found.parameters), units::bytes(found.weight_bytes));
    let known = |n: Option<u64>, unit: fn(u64) -> String| {
        n.map_or_else(|| "depends on open sizes".to_owned(), unit)
    };
    say!("work         {} multiply-adds", known(found.macs, units::count));
    say!("activations  {}", known(found.activation_bytes, units::bytes));
    say!("plain peak   {}", known(found.plain_peak_bytes, units::bytes));
    let mut ops: Vec<(&String, &usize)> = found.ops.iter().collect();
    ops.sort_by_key(|(name, n)| (std::cmp::Reverse(**n), *name));
    let list: Vec<String> = ops.iter().map(|(name, n)| format!("{name} {n}")).collect();
    say!("nodes        {}: {}", found.nodes, list.join(", "));
    Ok(ExitCode::SUCCESS)
}
