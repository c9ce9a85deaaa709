//! What outputs may be off by, and whether a plan's are.

use super::Contest;
use crate::{
    Emitted, Error, Goal, Temporary,
    artefact::{self, Allowed},
    line,
    worker::{LocalPlan, OpenPlan, RemotePlan},
};
use bricolage_ir::{Error as Difference, NodeId, tolerances};
use bricolage_measure::{Key, Machine};
use bricolage_placement::Placed;
use bricolage_tensor::{Datum, Tensor};
use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    fs,
    path::Path,
};

/// What the outputs may be off by, for each set of kernels that add noise of their own.
pub(crate) type Floors = RefCell<BTreeMap<Vec<(NodeId, u64)>, Vec<Allowed>>>;

/// The nodes whose kernels add noise of their own, with the bits of its size: the key of [`Floors`].
pub(super) fn noisy_nodes(placed: &Placed) -> Vec<(NodeId, u64)> {
    let mut all: Vec<(NodeId, u64)> =
        placed.noise().into_iter().map(|(n, error)| (n, error.to_bits())).collect();
    all.sort_unstable();
    all
}

/// How far each output may be from the reference when nothing but rounding differs, and the noise
/// that the numerics classes of the plan's kernels add.
pub(super) fn allowed(c: &Contest<'_>, placed: &Placed) -> Result<Vec<Allowed>, Error> {
    let noisy_nodes = noisy_nodes(placed);
    if let Some(known) = c.floors.borrow().get(&noisy_nodes) {
        return Ok(known.clone());
    }
    let extra: HashMap<NodeId, f64> =
        noisy_nodes.iter().map(|&(n, error)| (n, f64::from_bits(error))).collect();
    let data: Vec<Datum> = c.tensors.iter().cloned().map(Datum::from).collect();
    let outputs = &c.graph.outputs;
    let reference: Result<Vec<_>, _> = outputs.iter().map(|&v| c.observed.get(v)).collect();
    let reference = reference?;
    let extra = |n| extra.get(&n).copied().unwrap_or(0.0);
    let found = tolerances(c.graph, &data, &reference, &|_| None, &extra, c.cx.goal.seed)?;
    let mut all = Vec::new();
    for ((&output, reference), t) in outputs.iter().zip(&reference).zip(found) {
        if reference.is_some() {
            let output = c.graph.value(output).name.to_string();
            all.push(Allowed { output, max_abs: t.max_abs, relative_l2: t.relative_l2 });
        }
    }
    c.floors.borrow_mut().insert(noisy_nodes, all.clone());
    Ok(all)
}

/// The largest error of an output as a share of the allowed one; more than 1 is a mismatch.
pub(super) fn error_share(
    c: &Contest<'_>,
    outputs: &[Tensor],
    allowed: &[Allowed],
) -> Result<f64, Error> {
    let mut largest: f64 = 0.0;
    for ((&output, found), allowed) in c.graph.outputs.iter().zip(outputs).zip(allowed) {
        let Some(reference) = c.observed.get(output)? else { continue };
        let error = Difference::between(reference, found);
        let share = error.share_of(&allowed.tolerance());
        if share.is_nan() || share > 1.0 {
            return Err(Error::Mismatch {
                what: format!(
                    "output `{}` is wrong: {error}, allowed {:.3e}",
                    allowed.output, allowed.max_abs
                ),
            });
        }
        largest = largest.max(share);
    }
    Ok(largest)
}

/// What is known of a plan that was verified before.
#[derive(serde::Serialize, serde::Deserialize)]
pub(super) struct Verified {
    pub(super) allowed: Vec<Allowed>,
    pub(super) error_share: f64,
    /// Hash of the outputs that were compared with the reference.
    pub(super) outputs: String,
}

/// A hash of types and contents.
pub(super) fn hash_of(outputs: &[Tensor]) -> String {
    let mut hasher = blake3::Hasher::new();
    for tensor in outputs {
        hasher.update(tensor.ty().to_string().as_bytes()).update(tensor.bytes());
    }
    hasher.finalize().to_hex().to_string()
}

/// Opens a plan in a process of its own, or here where there is none.
fn launch(
    c: &Contest<'_>,
    placed: usize,
    emitted: &Emitted,
) -> Result<(Box<dyn OpenPlan>, Option<Temporary>), Error> {
    let Some(command) = &c.cx.worker else {
        let session = line::open(emitted, line::pool(c.cx.goal.threads)?)?;
        return Ok((Box::new(LocalPlan::new(session, c.tensors.to_vec())), None));
    };
    let folder = c.scratch.join(format!("plan-{}-{placed}", std::process::id()));
    let scratch = Temporary::new(folder.clone());
    fs::create_dir_all(&c.scratch).map_err(Error::file("write", &c.scratch))?;
    if folder.exists() {
        let _ = fs::remove_dir_all(&folder);
    }
    save_scratch(emitted, &c.cx.goal, &folder)?;
    let remote = RemotePlan::open(command, c.cx.goal.threads, &folder, c.tensors)?;
    Ok((Box::new(remote), Some(scratch)))
}

/// The outputs of a plan that was chosen: its kernels run here, but for those of others.
pub(super) fn final_outputs(
    c: &Contest<'_>,
    placed: usize,
    emitted: &Emitted,
) -> Result<Vec<Tensor>, Error> {
    let kernels = &emitted.plan.kernels;
    let is_foreign = |name: &str| c.cx.registry.get(name).is_ok_and(|backend| backend.is_foreign());
    if kernels.iter().any(|k| is_foreign(&k.recipe.backend)) {
        let (mut plan, _scratch) = launch(c, placed, emitted)?;
        return Ok(plan.outputs()?.into_iter().map(|(_, t)| t).collect());
    }
    Ok(line::open(emitted, line::pool(c.cx.goal.threads)?)?.run(c.tensors)?)
}

/// A plan that was verified and is open.
pub(crate) struct OpenEntry {
    pub(crate) plan: Box<dyn OpenPlan>,
    /// For each region of the placement, the step that computes it; `None` for a view.
    pub(super) step_of_region: Vec<Option<usize>>,
    /// Where it lies for a worker.
    pub(super) scratch: Option<Temporary>,
}

/// Emits, saves, opens and verifies a plan.
pub(crate) fn open(c: &Contest<'_>, placed: usize, key: &Key) -> Result<OpenEntry, Error> {
    let emitted = line::emit_checked(c.cx.registry, &c.cx.goal, c.graph, &c.placed[placed])?;
    let (mut plan, scratch) = launch(c, placed, &emitted)?;
    let outputs: Vec<Tensor> = plan.outputs()?.into_iter().map(|(_, t)| t).collect();
    let allowed = allowed(c, &c.placed[placed])?;
    let error_share = error_share(c, &outputs, &allowed)?;
    let note =
        serde_json::to_string(&Verified { allowed, error_share, outputs: hash_of(&outputs) })
            .map_err(|e| Error::Internal { what: e.to_string() })?;
    c.database.set_note(&format!("verified {}", blake3::hash(key.0.as_bytes())), &note)?;
    Ok(OpenEntry { plan, step_of_region: emitted.step_of_region, scratch })
}

/// Writes a plan where a worker can open it; it carries no self-test.
pub(crate) fn save_scratch(emitted: &Emitted, goal: &Goal, folder: &Path) -> Result<(), Error> {
    let plan = artefact::StagePlan::only(emitted.plan.clone());
    let contents = artefact::Contents {
        manifest: artefact::Manifest::new(goal, Machine::read()),
        plans: &[plan],
        weights: &emitted.weights,
        inputs: &[],
        outputs: &[],
        model: None,
        report: &(),
    };
    artefact::save(folder, true, contents)
}
