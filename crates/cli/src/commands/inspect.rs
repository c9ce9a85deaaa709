//! `inspect`: what a model is.

use super::{SCHEMA_VERSION, print_json};
use crate::{
    args::{Format, Inspect},
    setup::Target,
    units,
};
use bricolage::{Error, inspect};
use std::process::ExitCode;

pub(crate) fn run(a: &Inspect) -> Result<ExitCode, Error> {
    let target = Target::parse(&a.target)?;
    let file = match &target {
        Target::Artefact(folder) => folder.join("model.onnx"),
        Target::Model(path) | Target::On(path, _) => path.clone(),
    };
    let model = bricolage::import(&file)?;
    let graph = bricolage::inputs::bind_shapes(&model.graph, &a.setting.shapes)?;
    let found = inspect(&graph);
    if a.output.format == Format::Json {
        print_json(&serde_json::json!({
            "schema_version": SCHEMA_VERSION,
            "model": file, "hash": model.hash, "opset": model.opset, "producer": model.producer,
            "inspection": found,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    println!("model        {} (opset {}, {})", file.display(), model.opset, model.producer);
    for (word, ports) in [("input", &found.inputs), ("output", &found.outputs)] {
        for port in ports {
            println!("{word:<12} {} {}", port.name, port.ty);
        }
    }
    if !found.symbols.is_empty() {
        println!("open sizes   {}", found.symbols.join(", "));
    }
    println!(
        "parameters   {} in {}",
        units::count(found.parameters),
        units::bytes(found.weight_bytes)
    );
    let known = |n: Option<u64>, unit: fn(u64) -> String| {
        n.map_or_else(|| "depends on open sizes".to_owned(), unit)
    };
    println!("work         {} multiply-adds", known(found.macs, units::count));
    println!("activations  {}", known(found.activation_bytes, units::bytes));
    println!("plain peak   {}", known(found.plain_peak_bytes, units::bytes));
    let mut ops: Vec<(&String, &usize)> = found.ops.iter().collect();
    ops.sort_by_key(|(name, n)| (std::cmp::Reverse(**n), *name));
    let list: Vec<String> = ops.iter().map(|(name, n)| format!("{name} {n}")).collect();
    println!("nodes        {}: {}", found.nodes, list.join(", "));
    Ok(ExitCode::SUCCESS)
}
