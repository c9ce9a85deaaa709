//! Finds the first kernel or conversion of a plan that is wrong: each step is judged on what it was really
//! given, so that an earlier error is not blamed on a later step.

use crate::{Error, artefact, inputs, line, reproducer, target};
use bricolage_backend::Registry;
use bricolage_ir::{Error as Difference, Graph, NodeId, Tolerance, ValueId, evaluate, tolerances};
use bricolage_runtime::{Action, Buffer, Plan, Session};
use bricolage_tensor::{Datum, Tensor};
use std::{
    collections::{HashMap, HashSet},
    path::Path,
};

/// What a plan was found to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Steps that were judged.
    pub judged: usize,
    /// The first wrong one in words, with the folder of what shows it.
    pub wrong: Option<String>,
}

/// Judges each step of a plan of ours for `graph`, which is rewritten, whose values the plan's buffers are
/// named after. What shows a wrong step is saved below `reproducers`.
pub fn steps(
    graph: &Graph,
    session: &mut Session,
    tensors: &[Tensor],
    reproducers: &Path,
) -> Result<Finding, Error> {
    let program = session.program().clone();
    let mut judge = Judge {
        graph,
        plan: program.plan(),
        known: graph.inputs.iter().copied().zip(tensors.iter().cloned()).collect(),
        reproducers,
        judged: 0,
        wrong: None,
    };
    let mut fault = None;
    target::run_session(session, tensors, &mut |step, buffer, bytes| {
        if judge.wrong.is_none() && fault.is_none() {
            fault = judge.step(step, buffer, bytes).err();
        }
    })?;
    match fault {
        Some(error) => Err(error),
        None => Ok(Finding { judged: judge.judged, wrong: judge.wrong }),
    }
}

/// [`steps`] of the plan that a model gets when nothing is measured; the graph is rewritten and fixed.
pub fn model(
    graph: &Graph,
    registry: &Registry,
    goal: &crate::Goal,
    tensors: &[Tensor],
    reproducers: &Path,
) -> Result<Finding, Error> {
    inputs::require_fixed(graph)?;
    let (_, mut session) = line::compile_rewritten(registry, graph, goal)?;
    steps(graph, &mut session, tensors, reproducers)
}

/// [`steps`] of an artefact's plan.
pub fn plan_of(
    folder: &Path,
    registry: &Registry,
    threads: usize,
    tensors: &[Tensor],
    reproducers: &Path,
) -> Result<Finding, Error> {
    let graph = line::import(&artefact::model(folder)?, &[])?.graph;
    let loaded = artefact::load(folder, registry)?;
    let Some(program) = loaded.fixed() else {
        return Err(Error::Inputs {
            what: format!(
                "the sizes of `{}` are open: its steps cannot be judged",
                folder.display()
            ),
            help: "compare the model itself, at these sizes".to_owned(),
        });
    };
    let mut session = Session::open(program.clone(), line::pool(threads)?)?;
    steps(&graph, &mut session, tensors, reproducers)
}

struct Judge<'a> {
    graph: &'a Graph,
    plan: &'a Plan,
    /// What the plan computed so far.
    known: HashMap<ValueId, Tensor>,
    reproducers: &'a Path,
    judged: usize,
    wrong: Option<String>,
}

impl Judge<'_> {
    /// Judges one buffer that a step wrote. What the graph has no value for is inside a region.
    fn step(&mut self, step: usize, buffer: &Buffer, bytes: &[u8]) -> Result<(), Error> {
        let Some(value) = self.graph.find(&buffer.name) else { return Ok(()) };
        let Ok(found) = buffer.format.unpack(&buffer.dims, bytes) else { return Ok(()) };
        if self.graph.fact(value).ty.as_tensor() != Some(&found.ty()) {
            return Ok(());
        }
        self.judged += 1;
        match self.known.get(&value) {
            Some(before) => {
                let error = Difference::between(before, &found);
                if error.max_abs > 0.0 {
                    self.wrong = Some(format!(
                        "step {step}, {}, changes `{}`: {error}",
                        self.work(step),
                        buffer.name
                    ));
                }
            }
            None => {
                self.wrong = self.region(step, value, &found)?;
                self.known.insert(value, found);
            }
        }
        Ok(())
    }

    /// What is wrong with a value, given what the plan computed before it.
    fn region(&self, step: usize, value: ValueId, found: &Tensor) -> Result<Option<String>, Error> {
        let graph = self.graph;
        let mut inside: HashSet<NodeId> = HashSet::new();
        let mut open: Vec<ValueId> = vec![value];
        while let Some(v) = open.pop() {
            let Some(id) = graph.producer(v).filter(|_| !self.known.contains_key(&v)) else {
                continue;
            };
            if inside.insert(id) {
                open.extend(graph.node(id).inputs.iter().flatten());
            }
        }
        let nodes: Vec<NodeId> = graph.order().into_iter().filter(|n| inside.contains(n)).collect();
        let border = graph.boundary(&nodes).inputs;
        let operands: Option<Vec<Tensor>> =
            border.iter().map(|v| self.known.get(v).cloned()).collect();
        let Some(operands) = operands else { return Ok(None) };
        let mut part = graph
            .extract(&nodes)
            .map_err(|e| Error::Internal { what: format!("a region is not well typed: {e}") })?;
        part.outputs = part.find(&graph.value(value).name).into_iter().collect();
        part.remove_dead();
        let data: Vec<Datum> = operands.iter().cloned().map(Datum::from).collect();
        let exact = evaluate(&part, &data)?;
        let exact: Vec<Option<&Tensor>> = exact.iter().map(Datum::as_tensor).collect();
        let class_error = |n| target::class_error(&part, n);
        let allowed = tolerances(&part, &data, &exact, &|_| None, &class_error, 1)?;
        let (Some(Some(exact)), Some(allowed)) = (exact.first(), allowed.first()) else {
            return Ok(None);
        };
        let error = Difference::between(exact, found);
        let share = error.share_of(allowed);
        if share <= 1.0 {
            return Ok(None);
        }
        let what = self.describe(step, value, &error, allowed);
        let place = reproducer::save(self.reproducers, "step", &part, &operands, &what)?;
        Ok(Some(format!("{what}; `{}` shows it", place.display())))
    }

    fn describe(
        &self,
        step: usize,
        value: ValueId,
        error: &Difference,
        allowed: &Tolerance,
    ) -> String {
        format!(
            "step {step}, {}, gives a wrong `{}`: {error}; allowed {:.3e}",
            self.work(step),
            self.graph.value(value).name,
            allowed.max_abs
        )
    }

    /// What a step does, in words.
    fn work(&self, step: usize) -> String {
        match self.plan.steps.get(step).map(|s| &s.action) {
            Some(Action::Run(run)) => {
                let recipe = self.plan.kernels.get(run.kernel as usize).map(|k| &k.recipe);
                let kernel = recipe.map_or_else(String::new, |r| {
                    format!("kernel `{}` of `{}`", r.kernel, r.backend)
                });
                match run.origin.is_empty() {
                    true => format!("a conversion by {kernel}"),
                    false => format!("{kernel} for {}", run.origin.join(", ")),
                }
            }
            Some(Action::Copy { .. }) => "a copy".to_owned(),
            _ => "an unknown action".to_owned(),
        }
    }
}
