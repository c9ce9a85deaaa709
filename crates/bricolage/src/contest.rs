//! Whole plans against each other: verified, timed in turn, and the best single backend kept unless
//! a mix is faster beyond noise.

use crate::{
    Cx, Emitted, Error, Goal, Progress, Temporary,
    artefact::{self, Allowed},
    inputs, line, report,
    worker::{Alone, OpenPlan, RemotePlan},
};
use bricolage_ir::{Error as Difference, Graph, NodeId, tolerances};
use bricolage_measure::{
    Contestant, Database, Key, Machine, Measurement, Pairing, Protocol, Ratio, Record, Sample,
    SampleError, Verdict, pair, race,
};
use bricolage_placement::{Form, Observed, Placed, PlacedConversion, impossible, least_ns};
use bricolage_tensor::{Datum, Tensor};
use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// What whole plans are compared on.
pub(crate) struct Contest<'a> {
    pub(crate) cx: &'a Cx<'a>,
    /// Names the model, and the stage of it.
    pub(crate) name: &'a str,
    pub(crate) graph: &'a Graph,
    pub(crate) observed: &'a Observed<'a>,
    pub(crate) tensors: &'a [Tensor],
    pub(crate) database: &'a Database,
    pub(crate) deadline: Option<Instant>,
    /// An earlier search with as much time ended: what it had no time for is left as it is.
    pub(crate) exhausted: bool,
    pub(crate) scratch: PathBuf,
    pub(crate) placed: &'a [Placed],
    pub(crate) floors: Floors,
}

/// What the outputs may be off by, for each set of kernels that add noise of their own.
pub(crate) type Floors = RefCell<BTreeMap<Vec<(NodeId, u64)>, Vec<Allowed>>>;

/// The plan that was chosen.
pub(crate) struct Best {
    /// Index into the placements.
    pub(crate) chosen: usize,
    pub(crate) emitted: Emitted,
    pub(crate) outputs: Vec<Tensor>,
    pub(crate) allowed: Vec<Allowed>,
    pub(crate) error_share: f64,
    pub(crate) contenders: Vec<report::Contender>,
    pub(crate) ratio: Option<Ratio>,
    pub(crate) known: usize,
    pub(crate) measured: usize,
    pub(crate) warnings: Vec<String>,
}

struct LocalPlan {
    session: bricolage_runtime::Session,
    inputs: Vec<Tensor>,
}

impl Sample for LocalPlan {
    fn sample(&mut self, iterations: u32) -> Result<Duration, SampleError> {
        let start = Instant::now();
        for _ in 0..iterations {
            self.session.run(&self.inputs).map_err(|e| SampleError(e.to_string()))?;
        }
        Ok(start.elapsed())
    }
}

impl OpenPlan for LocalPlan {
    fn outputs(&mut self) -> Result<Vec<(String, Tensor)>, Error> {
        let tensors = self.session.run(&self.inputs)?;
        let names = self.session.program().plan().outputs.iter().map(|p| p.name.clone());
        Ok(names.zip(tensors).collect())
    }
}

/// Everything that decides a plan, as text: the key of its end-to-end time.
fn key(c: &Contest<'_>, placed: &Placed) -> Key {
    let mut text = format!(
        "plan 1\nbricolage {}\nmodel {}\nthreads {} seed {}\n",
        env!("CARGO_PKG_VERSION"),
        c.name,
        c.cx.goal.threads,
        c.cx.goal.seed
    );
    text.push_str(&inputs::contents_name(c.graph, c.tensors));
    for region in &placed.regions {
        let nodes: Vec<u32> = region.region().nodes.iter().map(|n| n.0).collect();
        let version = match &region.offer.form {
            Form::Kernel(backend) => backend.version(),
            Form::View => String::new(),
        };
        text.push_str(&format!(
            "{} {version} {} {nodes:?}\n",
            region.offer.backend(),
            region.offer.candidate
        ));
    }
    for conversion in &placed.conversions {
        let PlacedConversion { value, from, to, backend, .. } = conversion;
        text.push_str(&format!("{} {from} {to} {backend}\n", value.0));
    }
    Key(text)
}

/// The nodes whose kernels add noise of their own, with the bits of its size: the key of [`Floors`].
fn noisy_nodes(placed: &Placed) -> Vec<(NodeId, u64)> {
    let mut all: Vec<(NodeId, u64)> =
        placed.noise().into_iter().map(|(n, error)| (n, error.to_bits())).collect();
    all.sort_unstable();
    all
}

/// How far each output may be from the reference when nothing but rounding differs, and the noise
/// that the numerics classes of the plan's kernels add.
fn allowed(c: &Contest<'_>, placed: &Placed) -> Result<Vec<Allowed>, Error> {
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
fn error_share(c: &Contest<'_>, outputs: &[Tensor], allowed: &[Allowed]) -> Result<f64, Error> {
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
struct Verified {
    allowed: Vec<Allowed>,
    error_share: f64,
    /// Hash of the outputs that were compared with the reference.
    outputs: String,
}

/// A hash of types and contents.
fn hash_of(outputs: &[Tensor]) -> String {
    let mut hasher = blake3::Hasher::new();
    for tensor in outputs {
        hasher.update(tensor.ty().to_string().as_bytes()).update(tensor.bytes());
    }
    hasher.finalize().to_hex().to_string()
}

/// One plan in the contest.
struct Entry {
    placed: usize,
    key: Key,
    open: Option<Box<dyn OpenPlan>>,
    measured: Option<Measurement>,
    refused: Option<String>,
    _scratch: Option<Temporary>,
}

/// Verifies and times every plan that the database does not know, and chooses.
pub(crate) fn run(c: &Contest<'_>) -> Result<Best, Error> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut same: BTreeMap<usize, usize> = BTreeMap::new();
    let (mut known, mut warnings) = (0, Vec::new());
    let nodes: Vec<NodeId> = c.graph.nodes().collect();
    let least = least_ns(c.graph, &nodes, &[], c.cx.goal.threads);
    for (i, placed) in c.placed.iter().enumerate() {
        let key = key(c, placed);
        if let Some(at) = entries.iter().position(|e| e.key == key) {
            same.insert(i, at);
            continue;
        }
        let (mut measured, mut refused) = (None, None);
        let mut record = c.database.get(&key)?;
        if let Some(Record::Measured { measurement, .. }) = &record
            && let Some(why) = impossible(measurement, least)
        {
            let name = &placed.name;
            warnings.push(format!("a time in the cost database cannot be: plan `{name}`: {why}"));
            record = None;
        }
        match record {
            Some(Record::Measured { measurement, refined, .. }) if refined || c.exhausted => {
                measured = Some(measurement);
            }
            Some(Record::Refused(why)) => refused = Some(why),
            // What a deadline cut short is timed again by a search with more time.
            Some(Record::Measured { .. }) | None => {}
        }
        known += usize::from(measured.is_some() || refused.is_some());
        same.insert(i, entries.len());
        entries.push(Entry { placed: i, key, open: None, measured, refused, _scratch: None });
    }
    let news = entries.len() - known;
    if news > 0 && entries.len() > 1 || entries.iter().all(|e| e.measured.is_none()) {
        // Times are compared within one run only: all are taken again when one is new.
        time_all(c, &mut entries)?;
    }
    let mut best = choose(c, entries, &same, known, news)?;
    best.warnings.splice(0..0, warnings);
    Ok(best)
}

/// Runs of one plan that give a few samples, with those that are not counted around them.
const FEW_RUNS: u32 = 15;

fn time_all(c: &Contest<'_>, entries: &mut [Entry]) -> Result<(), Error> {
    let total = entries.len();
    let left = || c.deadline.map(|d| d.saturating_duration_since(Instant::now()));
    // One right plan is needed in any case; what another one takes is told by those before it.
    let (mut right, mut longest) = (0, Duration::ZERO);
    for (done, entry) in entries.iter_mut().enumerate() {
        (c.cx.progress)(&Progress { phase: "verify plans", done, total, best_ns: None });
        if entry.refused.is_some() {
            continue;
        }
        // Most of it goes into the noise floor, which plans may share.
        let known = c.floors.borrow().contains_key(&noisy_nodes(&c.placed[entry.placed]));
        let expected = if known { Duration::ZERO } else { longest };
        let why = match left() {
            _ if right == 0 => None,
            _ if c.cx.cancel.is_cancelled() => {
                Some("the search was stopped before it was verified")
            }
            Some(left) if left <= expected => Some("there was no time to verify it"),
            _ => None,
        };
        if let Some(why) = why {
            entry.refused = Some(why.to_owned());
            continue;
        }
        let start = Instant::now();
        let opened = open(c, entry.placed, &entry.key);
        longest = longest.max(start.elapsed());
        match opened {
            Ok((plan, scratch)) => {
                right += 1;
                entry.open = Some(plan);
                entry._scratch = scratch;
            }
            Err(error) => {
                let why = error.to_string();
                if !error.is_momentary() {
                    c.database.put(&entry.key, &Record::Refused(why.clone()))?;
                }
                (entry.refused, entry.measured) = (Some(why), None);
            }
        }
    }
    (c.cx.progress)(&Progress { phase: "time plans", done: 0, total, best_ns: None });
    let left = left().unwrap_or(Duration::from_secs(20));
    let deadline = c.deadline.map(|deadline| {
        // Each plan that was opened gets a few samples in any case, and pairs get a quarter.
        let runs = entries.iter_mut().filter_map(|e| e.open.as_mut()?.sample(1).ok());
        let least = FEW_RUNS * runs.sum::<Duration>() + right * Duration::from_millis(100);
        let left = deadline.saturating_duration_since(Instant::now());
        Instant::now() + least.max(left - left / 4)
    });
    let protocol = Protocol {
        deadline,
        warmup: Duration::from_millis(100).min(left / (4 * total.max(1) as u32)),
        sample: Duration::from_millis(1),
        min_samples: 11,
        max_samples: 101,
        precision: 0.005,
        limit: (left / total.max(1) as u32)
            .clamp(Duration::from_millis(100), Duration::from_secs(3)),
        seed: c.cx.goal.seed,
        ..Protocol::default()
    };
    let mut members: Vec<usize> = Vec::new();
    let mut contestants: Vec<Contestant<'_>> = Vec::new();
    for (i, entry) in entries.iter_mut().enumerate() {
        if let Some(open) = &mut entry.open {
            members.push(i);
            contestants.push(Contestant { sample: Box::new(Alone::new(&mut **open)) });
        }
    }
    let verdicts = race(&mut contestants, &protocol, None, c.cx.cancel);
    drop(contestants);
    let late = deadline.is_some_and(|d| Instant::now() >= d);
    let mut timed: Vec<Option<Measurement>> = entries.iter().map(|_| None).collect();
    for (i, verdict) in members.into_iter().zip(verdicts) {
        match verdict {
            Verdict::Measured(measurement) => {
                let record = Record::Measured {
                    measurement: measurement.clone(),
                    error_share: 0.0,
                    workspace: 0,
                    refined: !late,
                };
                if !c.cx.cancel.is_cancelled() {
                    c.database.put(&entries[i].key, &record)?;
                }
                timed[i] = Some(measurement);
            }
            Verdict::Stopped => {}
            Verdict::Failed(_) if c.cx.cancel.is_cancelled() => {}
            Verdict::Failed(why) => {
                (entries[i].refused, entries[i].measured) = (Some(why.0), None);
            }
        }
    }
    if timed.iter().any(Option::is_some) {
        // What an earlier run found is no match for what this one finds.
        for (entry, timed) in entries.iter_mut().zip(timed) {
            entry.measured = timed;
        }
    }
    Ok(())
}

/// Opens a plan in a process of its own, or here where there is none.
fn launch(
    c: &Contest<'_>,
    placed: usize,
    emitted: &Emitted,
) -> Result<(Box<dyn OpenPlan>, Option<Temporary>), Error> {
    let Some(command) = &c.cx.worker else {
        let session = line::open(emitted, line::pool(c.cx.goal.threads)?)?;
        return Ok((Box::new(LocalPlan { session, inputs: c.tensors.to_vec() }), None));
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
fn final_outputs(c: &Contest<'_>, placed: usize, emitted: &Emitted) -> Result<Vec<Tensor>, Error> {
    let kernels = &emitted.plan.kernels;
    let is_foreign = |name: &str| c.cx.registry.get(name).is_ok_and(|backend| backend.is_foreign());
    if kernels.iter().any(|k| is_foreign(&k.recipe.backend)) {
        let (mut plan, _scratch) = launch(c, placed, emitted)?;
        return Ok(plan.outputs()?.into_iter().map(|(_, t)| t).collect());
    }
    Ok(line::open(emitted, line::pool(c.cx.goal.threads)?)?.run(c.tensors)?)
}

/// Emits, saves, opens and verifies a plan.
fn open(
    c: &Contest<'_>,
    placed: usize,
    key: &Key,
) -> Result<(Box<dyn OpenPlan>, Option<Temporary>), Error> {
    let emitted = line::emit_checked(c.cx.registry, &c.cx.goal, c.graph, &c.placed[placed])?;
    let (mut plan, scratch) = launch(c, placed, &emitted)?;
    let outputs: Vec<Tensor> = plan.outputs()?.into_iter().map(|(_, t)| t).collect();
    let allowed = allowed(c, &c.placed[placed])?;
    let error_share = error_share(c, &outputs, &allowed)?;
    let note =
        serde_json::to_string(&Verified { allowed, error_share, outputs: hash_of(&outputs) })
            .map_err(|e| Error::Internal { what: e.to_string() })?;
    c.database.set_note(&format!("verified {}", blake3::hash(key.0.as_bytes())), &note)?;
    Ok((plan, scratch))
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

/// Plans whose medians are within this ratio are compared pair by pair.
const CLOSE: f64 = 1.15;

/// The best single backend, unless a mix is faster beyond noise.
fn choose(
    c: &Contest<'_>,
    mut entries: Vec<Entry>,
    same: &BTreeMap<usize, usize>,
    known: usize,
    news: usize,
) -> Result<Best, Error> {
    let median = |e: &Entry| e.measured.as_ref().map(|m| m.median_ns);
    let single = |i: &usize| same.iter().any(|(&p, &e)| e == *i && c.placed[p].is_single());
    let by_time = |only: &dyn Fn(&usize) -> bool| {
        let mut all: Vec<(usize, f64)> = (0..entries.len())
            .filter(|i| only(i))
            .filter_map(|i| Some((i, median(&entries[i])?)))
            .collect();
        all.sort_by(|a, b| a.1.total_cmp(&b.1));
        all
    };
    let (singles, mixes) = (by_time(&single), by_time(&|i| !single(i)));
    let mut best_single = singles.first().map(|s| s.0);
    let best_mix = mixes.first().map(|m| m.0);
    let mut warnings = Vec::new();
    if let [(first, a), (second, b), ..] = singles[..]
        && b <= CLOSE * a
        && !c.cx.cancel.is_cancelled()
        && let Some(ratio) = compare(c, &mut entries, second, first, &mut warnings)?
        && ratio.is_faster()
    {
        best_single = Some(second);
        let name = |e: usize| &c.placed[entries[e].placed].name;
        warnings.push(format!(
            "`{}` comes before `{}`: in pairs it took {:.3} ({:.3} to {:.3}) of the other's time, \
             which outweighs the medians",
            name(second),
            name(first),
            ratio.median,
            ratio.ci95.0,
            ratio.ci95.1
        ));
    }
    let mut chosen = match (best_single, best_mix) {
        (Some(s), _) => s,
        (None, Some(m)) => m,
        // Nothing was timed: prices favour the first plan, if it is right.
        (None, None) => entries.iter().position(|e| e.refused.is_none()).unwrap_or(0),
    };
    let mut ratio = None;
    if let (Some(s), Some(m)) = (best_single, best_mix) {
        let ahead = median(&entries[m]) < median(&entries[s]);
        if ahead && !c.cx.cancel.is_cancelled() {
            ratio = compare(c, &mut entries, m, s, &mut warnings)?;
        }
        // Without pairs the race must tell: the intervals lie apart.
        let apart = match (&entries[m].measured, &entries[s].measured) {
            (Some(m), Some(s)) => m.ci95_ns.1 < s.ci95_ns.0,
            _ => false,
        };
        if ahead && ratio.map_or(apart, |r| r.is_faster()) {
            chosen = m;
        }
    }
    let placed = entries[chosen].placed;
    if let Some(why) = &entries[chosen].refused
        && entries[chosen].measured.is_none()
    {
        return Err(match c.cx.cancel.is_cancelled() {
            true => Error::Interrupted,
            false => Error::Mismatch {
                what: format!(
                    "no plan could be used; `{}` of {}: {why}",
                    c.placed[placed].name,
                    c.placed[placed].backends().join(", ")
                ),
            },
        });
    }
    let contenders = (0..c.placed.len())
        .map(|p| {
            let entry = &entries[same[&p]];
            report::Contender {
                name: c.placed[p].name.clone(),
                backends: c.placed[p].backends(),
                measured: entry.measured.clone(),
                predicted_ns: Some(c.placed[p].predicted_ns).filter(|ns| ns.is_finite()),
                refused: entry.refused.clone(),
                chosen: same[&p] == chosen,
                numerics: c.placed[p].numerics().iter().map(|n| n.to_string()).collect(),
            }
        })
        .collect();
    for entry in &entries {
        if let Some(why) = &entry.refused {
            warnings.push(format!("plan `{}` was left out: {why}", c.placed[entry.placed].name));
        }
    }
    let key = entries[chosen].key.clone();
    drop(entries);
    let emitted = line::emit_checked(c.cx.registry, &c.cx.goal, c.graph, &c.placed[placed])?;
    let outputs = final_outputs(c, placed, &emitted)?;
    let note = c.database.note(&format!("verified {}", blake3::hash(key.0.as_bytes())))?;
    let verified = note.and_then(|n| serde_json::from_str::<Verified>(&n).ok());
    // Other bits than those that were compared are compared themselves.
    let (allowed, error_share) = match verified.filter(|v| v.outputs == hash_of(&outputs)) {
        Some(verified) => (verified.allowed, verified.error_share),
        None => {
            let allowed = allowed(c, &c.placed[placed])?;
            let share = error_share(c, &outputs, &allowed)?;
            (allowed, share)
        }
    };
    Ok(Best {
        chosen: placed,
        emitted,
        outputs,
        allowed,
        error_share,
        contenders,
        ratio,
        known,
        measured: if c.cx.cancel.is_cancelled() { 0 } else { news },
        warnings,
    })
}

/// One plan over another, pair by pair or known from before. `None` where there is no time, or `warnings`
/// say why.
fn compare(
    c: &Contest<'_>,
    entries: &mut [Entry],
    plan: usize,
    other: usize,
    warnings: &mut Vec<String>,
) -> Result<Option<Ratio>, Error> {
    let name = format!(
        "ratio {}",
        blake3::hash(format!("{}\n{}", entries[plan].key.0, entries[other].key.0).as_bytes())
    );
    let names = [plan, other].map(|e| &c.placed[entries[e].placed].name);
    let fault = |why: String| format!("`{}` and `{}` were not compared: {why}", names[0], names[1]);
    if entries[plan].open.is_none() || entries[other].open.is_none() {
        let known = c.database.note(&name)?;
        let known = known.and_then(|text| serde_json::from_str(&text).ok());
        if known.is_some() || c.exhausted {
            return Ok(known);
        }
    }
    let left =
        c.deadline.map_or(Duration::from_secs(20), |d| d.saturating_duration_since(Instant::now()));
    // Each side of a pair is run twice, once to warm up.
    let once = |e: &Entry| e.measured.as_ref().map_or(0.0, |m| m.median_ns);
    let least = 2.0 * (once(&entries[plan]) + once(&entries[other]));
    if left.as_nanos() as f64 <= f64::from(Pairing::default().min_pairs) * least {
        return Ok(None);
    }
    for i in [plan, other] {
        if entries[i].open.is_none() {
            match open(c, entries[i].placed, &entries[i].key) {
                Ok((open, scratch)) => {
                    (entries[i].open, entries[i]._scratch) = (Some(open), scratch)
                }
                Err(error) => {
                    warnings.push(fault(error.to_string()));
                    return Ok(None);
                }
            }
        }
    }
    (c.cx.progress)(&Progress { phase: "compare plans", done: 0, total: 1, best_ns: None });
    let pairing = Pairing {
        limit: left.clamp(Duration::from_millis(300), Duration::from_secs(30)),
        seed: c.cx.goal.seed,
        ..Pairing::default()
    };
    let [a, b] = entries.get_disjoint_mut([plan, other]).map_err(|e| Error::Internal {
        what: format!("a plan cannot be compared with itself: {e}"),
    })?;
    let (Some(a), Some(b)) = (&mut a.open, &mut b.open) else { return Ok(None) };
    let result = pair(&mut Alone::new(&mut **a), &mut Alone::new(&mut **b), &pairing, c.cx.cancel);
    match result {
        // Few pairs prove nothing: the comparison was stopped.
        Ok(ratio) if ratio.pairs < pairing.min_pairs => Ok(None),
        Ok(ratio) => {
            let text = serde_json::to_string(&ratio)
                .map_err(|e| Error::Internal { what: e.to_string() })?;
            c.database.set_note(&name, &text)?;
            Ok(Some(ratio))
        }
        Err(error) => {
            warnings.push(fault(error.to_string()));
            Ok(None)
        }
    }
}
