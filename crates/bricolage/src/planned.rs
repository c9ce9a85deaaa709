//! Plans for every stage of a model, searched and verified at the sizes that its inputs tell.

use crate::{
    Cx, DynamicSession, Error, Goal,
    artefact::{Allowed, StagePlan},
    dynamic::Measured,
    inputs, line,
    search::{Found, Subject, search},
    stages::{Cut, Sizes},
};
use bricolage_backend::Registry;
use bricolage_ir::{Error as Difference, Graph, NodeId, evaluate, tolerances};
use bricolage_measure::{Database, Machine};
use bricolage_placement::Observed;
use bricolage_runtime::{ALIGNMENT, Program, Weights};
use bricolage_tensor::{Datum, Tensor};
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Instant,
};

/// A planned stage with its best plan.
pub(crate) struct Planned {
    /// Number of the stage.
    pub(crate) part: usize,
    /// Its sizes.
    pub(crate) class: Vec<i64>,
    /// The stage at these sizes.
    pub(crate) graph: Graph,
    pub(crate) found: Found,
}

/// Plans of all stages.
pub(crate) struct Searched {
    pub(crate) planned: Vec<Planned>,
    /// Every size that was met.
    pub(crate) sizes: Sizes,
    /// What the reference says of the model's outputs; `None` where it was not asked.
    reference: Option<Vec<Datum>>,
}

/// What an artefact promises of its outputs.
pub(crate) struct Verified {
    pub(crate) outputs: Vec<Tensor>,
    pub(crate) allowed: Vec<Allowed>,
    pub(crate) error_share: f64,
}

/// Searches for a plan of each planned stage, on what the reference makes of the stages before it. Each gets
/// a share of the time limit by its number of nodes, the first from `started` on.
pub(crate) fn search_stages(
    cx: &Cx<'_>,
    model: &str,
    cut: &Cut,
    tensors: &[Tensor],
    (database, machine): (&Database, &Machine),
    started: Instant,
) -> Result<Searched, Error> {
    let data: Vec<Datum> = tensors.iter().cloned().map(Datum::from).collect();
    let fixed = inputs::is_fixed(&cut.graph);
    let nodes = |graph: &Graph| graph.nodes().count() as f64;
    let all: f64 = cut.parts.iter().filter(|p| p.planned).map(|p| nodes(&p.graph)).sum();
    // What came before the first search counts as part of it.
    let mut started = Some(started);
    let mut planned = Vec::new();
    let (outputs, sizes) = cut.walk(&data, |i, sizes, data| {
        let part = &cut.parts[i];
        if !part.planned {
            return Ok(evaluate(&part.at(sizes)?, &data)?);
        }
        let graph = match fixed {
            true => part.graph.clone(),
            false => line::rewrite(part.at(sizes)?)?.graph,
        };
        inputs::require_fixed(&graph)?;
        let share = nodes(&part.graph) / all;
        let goal =
            Goal { time_limit: cx.goal.time_limit.map(|l| l.mul_f64(share)), ..cx.goal.clone() };
        let (cache, worker) = (cx.cache.clone(), cx.worker.clone());
        let tensors: Vec<Tensor> = data.iter().filter_map(|d| d.as_tensor().cloned()).collect();
        let observed = Observed::new(&graph, &data);
        let found = search(&Subject {
            cx: &Cx { goal, cache, worker, ..*cx },
            database,
            machine,
            name: &if fixed { model.to_owned() } else { Cut::stage_name(model, i) },
            graph: &graph,
            observed: &observed,
            tensors: &tensors,
            started: started.take().unwrap_or_else(Instant::now),
        })?;
        // A search that measures nothing anew needs no reference, unless a stage follows.
        let results = match fixed {
            true => found.best.outputs.iter().cloned().map(Datum::from).collect(),
            false => observed_outputs(&graph, &observed)?,
        };
        planned.push(Planned { part: i, class: part.class(sizes), graph, found });
        Ok(results)
    })?;
    let reference = (!fixed).then(|| outputs.into_iter().map(|(_, datum)| datum).collect());
    Ok(Searched { planned, sizes, reference })
}

fn observed_outputs(graph: &Graph, observed: &Observed<'_>) -> Result<Vec<Datum>, Error> {
    let one = |&v: &bricolage_ir::ValueId| {
        let content = observed.get(v)?.cloned().map(Datum::from);
        content.ok_or_else(|| Error::Internal {
            what: format!("`{}` of a planned stage is no tensor", graph.value(v).name),
        })
    };
    graph.outputs.iter().map(one).collect()
}

impl Searched {
    /// What to put before a line about a stage.
    pub(crate) fn label(&self, planned: &Planned) -> String {
        match self.planned.len() {
            1 => String::new(),
            _ => format!("stage {}: ", planned.part),
        }
    }

    /// Runs all stages together and compares with the reference. A fixed model was verified as one plan.
    pub(crate) fn verify(
        &self,
        cx: &Cx<'_>,
        cut: &Arc<Cut>,
        tensors: &[Tensor],
        open: bool,
    ) -> Result<Verified, Error> {
        if let ([only], false) = (&self.planned[..], open) {
            let best = &only.found.best;
            return Ok(Verified {
                outputs: best.outputs.clone(),
                allowed: best.allowed.clone(),
                error_share: best.error_share,
            });
        }
        let data: Vec<Datum> = tensors.iter().cloned().map(Datum::from).collect();
        let pool = line::pool(cx.goal.threads)?;
        let programs = self.programs()?;
        let mut session =
            DynamicSession::of(cx.registry.clone(), cut.clone(), cx.goal.clone(), pool, &programs);
        let outputs = session.run(&data)?.into_iter().map(crate::target::tensor_output);
        let outputs: Vec<(String, Tensor)> = outputs.collect::<Result<_, _>>()?;
        let reference: Vec<Option<&Tensor>> =
            self.reference.iter().flatten().map(Datum::as_tensor).collect();
        let noise = self.noise(&cut.graph);
        let extra = |n| noise.get(&n).copied().unwrap_or(0.0);
        let found = tolerances(&cut.graph, &data, &reference, &|_| None, &extra, cx.goal.seed)?;
        let mut error_share =
            self.planned.iter().fold(0.0, |all: f64, p| all.max(p.found.best.error_share));
        let mut allowed = Vec::new();
        for (((name, tensor), reference), t) in outputs.iter().zip(&reference).zip(found) {
            let Some(reference) = reference else { continue };
            // Where noise changes what is found, nothing but equality can be asked for.
            let t = if t.max_abs.is_finite() { t } else { bricolage_ir::Tolerance::EXACT };
            let error = Difference::between(reference, tensor);
            let share = error.share_of(&t);
            if share.is_nan() || share > 1.0 {
                let what = format!("output `{name}` is wrong: {error}, allowed {:.3e}", t.max_abs);
                return Err(Error::Mismatch { what });
            }
            error_share = error_share.max(share);
            let output = name.clone();
            allowed.push(Allowed { output, max_abs: t.max_abs, relative_l2: t.relative_l2 });
        }
        let outputs = outputs.into_iter().map(|(_, tensor)| tensor).collect();
        Ok(Verified { outputs, allowed, error_share })
    }

    /// The noise of the chosen kernels by the nodes of the whole graph that make the same values.
    fn noise(&self, whole: &Graph) -> HashMap<NodeId, f64> {
        let mut by_name: HashMap<&str, f64> = HashMap::new();
        for planned in &self.planned {
            let placed = &planned.found.placed.all[planned.found.best.chosen];
            for (node, error) in placed.noise() {
                for &v in &planned.graph.node(node).outputs {
                    by_name.insert(&planned.graph.value(v).name, error);
                }
            }
        }
        let error = |n: &NodeId| {
            whole.node(*n).outputs.iter().find_map(|&v| by_name.get(&*whole.value(v).name).copied())
        };
        whole.nodes().filter_map(|n| Some((n, error(&n)?))).collect()
    }

    fn programs(&self) -> Result<HashMap<usize, Measured>, Error> {
        let one = |p: &Planned| {
            let emitted = &p.found.best.emitted;
            let (plan, kernels) = (emitted.plan.clone(), emitted.kernels.clone());
            let program = Arc::new(Program::new(plan, kernels, emitted.weights.clone())?);
            Ok((p.part, Measured { class: p.class.clone(), program, carried: p.carried().into() }))
        };
        self.planned.iter().map(one).collect()
    }

    /// The plans as an artefact holds them, and the constants of all, one stage after another.
    pub(crate) fn merge(&self) -> (Vec<StagePlan>, Weights) {
        let (mut plans, mut segments, mut len) = (Vec::new(), Vec::new(), 0u64);
        for p in &self.planned {
            let emitted = &p.found.best.emitted;
            plans.push(StagePlan {
                part: p.part as u32,
                class: p.class.clone(),
                plan: emitted.plan.clone(),
                weights_at: len,
                carried: p.carried(),
            });
            let moved = emitted.weights.segments().iter();
            segments.extend(moved.map(|(at, bytes)| (len + at, bytes.clone())));
            len += emitted.weights.len();
            if self.planned.len() > 1 {
                len = len.next_multiple_of(ALIGNMENT);
            }
        }
        (plans, Weights::new(segments, len))
    }

    /// The backends that plans need, with their versions; of an open model also those of ours, which make
    /// plans for other sizes.
    pub(crate) fn backends(&self, registry: &Registry, open: bool) -> BTreeMap<String, String> {
        let plans = self.planned.iter().flat_map(|p| &p.found.best.emitted.plan.kernels);
        let used = plans.filter_map(|k| registry.get(&k.recipe.backend).ok());
        let ours = registry.iter().filter(|b| open && !b.is_foreign());
        used.chain(ours).map(|b| (b.name().to_owned(), b.version())).collect()
    }
}

impl Planned {
    fn carried(&self) -> Vec<bricolage_placement::Carried> {
        let best = &self.found.best;
        // A fixed model has no other sizes.
        match self.class.is_empty() {
            true => Vec::new(),
            false => {
                let threads = best.emitted.plan.threads as usize;
                self.found.placed.all[best.chosen].carried(&self.graph, threads)
            }
        }
    }
}
