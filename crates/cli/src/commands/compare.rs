//! `compare`: the outputs of two targets, and where they part.

use super::{SCHEMA_VERSION, print_json};
use crate::{
    args::{Compare, Format},
    commands::{reduce, run},
    judge,
    output::say,
    setup::{self, Target},
};
use bricolage::{Error, bisect, reduce::Example, reproducer, target};
use bricolage_ir::{Error as Difference, Graph, Tolerance, evaluate_from, tolerances};
use bricolage_tensor::{Datum, Tensor};
use serde::Serialize;
use std::{collections::HashMap, process::ExitCode, time::Duration};

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
    let broken_by = if a.bisect { Some(bisect(&second, &other, a, &tensors)?) } else { None };
    match a.format.format {
        Format::Json => print_json(&serde_json::json!({
            "schema_version": SCHEMA_VERSION, "matches": matches, "first_diverging": diverging, "outputs": rows,
            "bisect": broken_by,
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
            for line in broken_by.iter().flatten() {
                say!("{line}");
            }
        }
    }
    Ok(ExitCode::from(u8::from(!matches)))
}

/// The first rewrite, kernel or conversion of a target that is wrong, in lines; where a runtime of its own
/// runs the whole model, the smallest part that it gets wrong.
fn bisect(
    target: &Target,
    graph: &Graph,
    a: &Compare,
    tensors: &[Tensor],
) -> Result<Vec<String>, Error> {
    let reproducers = reproducer::folder(&setup::cache_folder());
    let backend = match target {
        Target::Artefact(folder) => {
            let threads = bricolage::artefact::manifest(folder)?.threads as usize;
            let threads = a.setting.threads.unwrap_or(threads);
            let registry = setup::registry(&[])?;
            let found = bisect::plan_of(folder, &registry, threads, tensors, &reproducers)?;
            return Ok(vec![steps(found)]);
        }
        other => reduce::backend(other)?,
    };
    let registry = if setup::is_ours(&backend) {
        setup::registry(std::slice::from_ref(&backend))?
    } else {
        return foreign(graph, &backend, a, tensors);
    };
    if target::is_reference_alone(&registry) {
        return Ok(vec!["the reference is what others are judged by".to_owned()]);
    }
    let (rewritten, audited) = setup::rewrite_audited(graph.clone(), tensors)?;
    if !audited.caught.is_empty() {
        return Ok(audited.caught);
    }
    let mut lines = vec![format!("{} rewrites give what was there before", audited.agreed)];
    let goal = setup::goal(&a.setting);
    lines.push(steps(bisect::model(&rewritten, &registry, &goal, tensors, &reproducers)?));
    Ok(lines)
}

fn steps(found: bisect::Finding) -> String {
    found.wrong.unwrap_or_else(|| {
        format!(
            "{} steps give on what they are given what the reference gives: small errors add up, or the \
             inputs differ",
            found.judged
        )
    })
}

fn foreign(
    graph: &Graph,
    backend: &str,
    a: &Compare,
    tensors: &[Tensor],
) -> Result<Vec<String>, Error> {
    let whole = Example { graph: graph.clone(), inputs: tensors.to_vec() };
    let Some(failure) = reduce::failure(&whole, backend, &a.setting)? else {
        return Ok(vec![format!(
            "`{backend}` agrees with the reference on the graph as it is read"
        )]);
    };
    let small = reduce::smallest(&whole, &failure, backend, &a.setting, BISECTION);
    let what = format!("`{backend}` fails on {}: {failure}", origins(&small.graph));
    let folder = reproducer::folder(&setup::cache_folder());
    let place = reproducer::save(&folder, backend, &small.graph, &small.inputs, &what)?;
    Ok(vec![format!("{what}; `{}` shows it", place.display())])
}

/// Time for finding the part of a model that a foreign runtime gets wrong.
const BISECTION: Duration = Duration::from_secs(120);

fn origins(graph: &Graph) -> String {
    let mut names: Vec<&str> = Vec::new();
    for name in graph.nodes().flat_map(|n| graph.node(n).origin.iter()) {
        if !names.contains(&&**name) {
            names.push(name);
        }
    }
    names.join(", ")
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
    let found = tolerances(graph, &data, &exact, &|_| None, &|n| target::class_error(graph, n), 1)?;
    let mut all: Vec<Tolerance> = found.into_iter().map(|t| t.plus(t)).collect();
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
    let mut observe = |_, buffer: &bricolage_runtime::Buffer, bytes: &[u8]| {
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
