//! `compare`: the outputs of two targets, and where they part.

use super::{SCHEMA_VERSION, print_json};
use crate::{
    args::{Compare, Format},
    commands::{bench::class_error, run},
    judge,
    output::say,
    setup::{self, Target},
};
use bricolage::{Error, target};
use bricolage_ir::{Error as Difference, Graph, Tolerance, evaluate_from, tolerances};
use bricolage_tensor::{Datum, Tensor};
use serde::Serialize;
use std::{collections::HashMap, process::ExitCode};

#[derive(Serialize)]
struct Row {
    output: String,
    max_abs_error: f64,
    allowed_max_abs: f64,
    relative_l2_error: f64,
    allowed_relative_l2: f64,
    matches: bool,
}

pub(crate) fn run(a: &Compare) -> Result<ExitCode, Error> {
    let (first, second) = (Target::parse(&a.first)?, Target::parse(&a.second)?);
    let graph = first.graph(&a.setting, a.input.as_deref())?;
    let tensors = setup::tensors(&graph, a.input.as_deref(), a.setting.seed)?;
    let bound = bricolage::inputs::bind_to(&graph, &tensors)?;
    let left = run::outputs(&first, &bound, &a.setting, &tensors)?;
    let other =
        bricolage::inputs::bind_to(&second.graph(&a.setting, a.input.as_deref())?, &tensors)?;
    let right = run::outputs(&second, &other, &a.setting, &tensors)?;
    if left.len() != right.len() {
        return Err(Error::Mismatch {
            what: format!("{} outputs against {}", left.len(), right.len()),
        });
    }
    for ((name, x), (_, y)) in left.iter().zip(&right) {
        if x.ty() != y.ty() {
            let what = format!("output `{name}` is {} against {}", x.ty(), y.ty());
            return Err(Error::Mismatch { what });
        }
    }
    let allowed = match [&bound, &other].into_iter().find(|g| judge::is_known(g)) {
        Some(graph) => allowed(graph, &tensors, &left)?,
        None => {
            judge::tell(&first.name());
            let disturbed = judge::disturbed(&tensors)?;
            judge::tolerances(&left, &run::outputs(&first, &bound, &a.setting, &disturbed)?)
        }
    };
    let rows: Vec<Row> = left
        .iter()
        .zip(&right)
        .zip(&allowed)
        .map(|(((name, x), (_, y)), t)| {
            let error = Difference::between(x, y);
            let share = error.share_of(t);
            Row {
                output: name.clone(),
                max_abs_error: error.max_abs,
                allowed_max_abs: t.max_abs,
                relative_l2_error: error.relative_l2,
                allowed_relative_l2: t.relative_l2,
                matches: share <= 1.0,
            }
        })
        .collect();
    let matches = rows.iter().all(|r| r.matches);
    let diverging = if matches || !judge::is_known(&bound) {
        None
    } else {
        first_diverging(&second, &bound, &other, &a.setting, &tensors)?
    };
    match a.format.format {
        Format::Json => print_json(&serde_json::json!({
            "schema_version": SCHEMA_VERSION, "matches": matches, "first_diverging": diverging, "outputs": rows,
        }))?,
        Format::Text => {
            for r in &rows {
                say!(
                    "{} {}: max abs error {:.3e} (allowed {:.3e}), relative l2 error {:.3e} (allowed {:.3e})",
                    if r.matches { "ok      " } else { "MISMATCH" },
                    r.output,
                    r.max_abs_error,
                    r.allowed_max_abs,
                    r.relative_l2_error,
                    r.allowed_relative_l2
                );
            }
            if let Some(value) = &diverging {
                say!("first diverging value: {value}");
            }
        }
    }
    Ok(ExitCode::from(u8::from(!matches)))
}

/// What rounding allows: the difference that it makes in the reference evaluation, twice, since
/// neither side is exact.
fn allowed(
    graph: &Graph,
    tensors: &[Tensor],
    outputs: &target::Outputs,
) -> Result<Vec<Tolerance>, Error> {
    let data: Vec<Datum> = tensors.iter().cloned().map(Datum::from).collect();
    let exact = bricolage_ir::evaluate(graph, &data)?;
    let exact: Vec<Option<&Tensor>> = exact.iter().map(Datum::as_tensor).collect();
    let found = tolerances(graph, &data, &exact, &|_| None, &|n| class_error(graph, n), 1)?;
    let mut all: Vec<Tolerance> = found.into_iter().map(judge::twice).collect();
    all.resize(outputs.len(), Tolerance::EXACT);
    Ok(all)
}

/// The first value of the second target that differs from the reference by more than rounding, as far
/// as our own plans show their values.
fn first_diverging(
    target: &Target,
    graph: &Graph,
    own: &Graph,
    setting: &crate::args::Setting,
    tensors: &[Tensor],
) -> Result<Option<String>, Error> {
    let data: Vec<Datum> = tensors.iter().cloned().map(Datum::from).collect();
    let mut known: HashMap<String, Tensor> = HashMap::new();
    evaluate_from(graph, &data, &HashMap::new(), &mut |v, datum| {
        if let Datum::Tensor(t) = datum {
            known.insert(graph.value(v).name.to_string(), t.clone());
        }
    })?;
    let mut found = None;
    let mut observe = |buffer: &bricolage_runtime::Buffer, bytes: &[u8]| {
        let Some(expected) = known.get(&buffer.name).filter(|_| found.is_none()) else { return };
        let Ok(tensor) = buffer.format.unpack(&buffer.dims, bytes) else { return };
        if tensor.ty() != expected.ty() {
            return;
        }
        let error = Difference::between(expected, &tensor);
        if error.relative_l2.is_nan() || error.relative_l2 > 1e-3 {
            found = Some(format!("`{}`: {error}", buffer.name));
        }
    };
    match target {
        Target::Artefact(folder) => {
            let manifest = bricolage::artefact::manifest(folder)?;
            let threads = setting.threads.unwrap_or(manifest.threads as usize);
            target::run_artefact(folder, &setup::registry(&[])?, threads, tensors, &mut observe)?;
        }
        Target::Model(_) => {
            let registry = setup::registry(&["native".to_owned()])?;
            target::run_graph(own, &registry, &setup::goal(setting), tensors, &mut observe)?;
        }
        Target::On(_, backend) if backend == "native" => {
            let registry = setup::registry(&["native".to_owned()])?;
            target::run_graph(own, &registry, &setup::goal(setting), tensors, &mut observe)?;
        }
        Target::On(..) => return Ok(None),
    }
    Ok(found)
}
