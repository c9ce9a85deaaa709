//! What each offer costs: from the database, or measured after its results were found right.

use crate::{
    Bench, Form, Observed, Offer, OpenTrial, PlaceError, Trial, TrialError, Wishes, impossible,
    least_ns, prospects::Prospects, refine,
};
use bricolage_backend::Setting;
use bricolage_ir::{Error, Graph, NodeId, Tolerance, ValueId, tolerances};
use bricolage_measure::{
    Contestant, Database, DatabaseError, Key, Measurement, Protocol, Record, Verdict, race,
};
use bricolage_runtime::{Cancel, Dims, Needs};
use bricolage_tensor::{Datum, Tensor};
use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

/// Everything that pricing works with.
pub struct Pricing<'a> {
    /// What is placed.
    pub graph: &'a Graph,
    /// What candidates are for.
    pub setting: Setting,
    /// What the user wants of a plan besides that it is fast.
    pub wishes: &'a Wishes,
    /// What is known from before.
    pub database: &'a Database,
    /// Names the model and its inputs: a time holds for any contents, a refusal only for these.
    pub contents: &'a str,
    /// Runs kernels.
    pub bench: &'a dyn Bench,
    /// Reference contents.
    pub observed: &'a Observed<'a>,
    /// Bytes of the largest cache.
    pub last_level_cache: u64,
    /// When to stop pricing offers that nothing is known of.
    pub first_deadline: Option<Instant>,
    /// When to stop measuring.
    pub deadline: Option<Instant>,
    /// When to stop looking for the cheapest cover: from then on few states are followed.
    pub cover_deadline: Option<Instant>,
    /// Asks to stop measuring.
    pub cancel: &'a Cancel,
    /// Told before each group of measurements: what is done, groups done, groups in all.
    pub progress: &'a dyn Fn(&'static str, usize, usize),
}

impl<'a> Pricing<'a> {
    /// Whether `deadline` has passed or a stop was asked for.
    pub(crate) fn is_over(&self, deadline: Option<Instant>) -> bool {
        deadline.is_some_and(|d| Instant::now() >= d) || self.cancel.is_cancelled()
    }

    /// What is known of an offer: its time in any model, or its refusal in this one. A time that cannot
    /// be goes to `doubted`, and is not known.
    fn known(
        &self,
        offer: &Offer,
        doubted: &mut Vec<String>,
    ) -> Result<Option<Record>, DatabaseError> {
        let record = recorded(self.database, self.contents, &offer.key)?;
        if let Some(Record::Measured { measurement, .. }) = &record {
            let region = &offer.candidate.region;
            let least = least_ns(self.graph, &region.nodes, &region.outputs, offer.threads);
            if let Some(why) = impossible(measurement, least) {
                let (backend, nodes) = (offer.backend(), region.origin(self.graph).join(", "));
                doubted.push(format!("{backend} `{}` of {nodes}: {why}", offer.candidate));
                return Ok(None);
            }
        }
        Ok(record)
    }

    /// Keeps what was found of a key.
    pub(crate) fn keep(&self, key: &Key, record: &Record) -> Result<(), DatabaseError> {
        match record {
            Record::Measured { .. } => self.database.put(key, record),
            Record::Refused(_) => self.database.put(&refusal(key, self.contents), record),
        }
    }

    /// Compiles an offer and opens a trial of it on the reference inputs.
    pub fn open(&self, offer: &Offer) -> Result<OpenOffer<'a>, TrialError> {
        let Form::Kernel(backend) = &offer.form else {
            return Err(TrialError::new("a view has no kernel".to_owned()));
        };
        let candidate = &offer.candidate;
        let threads = offer.threads;
        let setting = Setting { threads, ..self.setting };
        let bound = backend.bind(self.graph, candidate, &setting).map_err(TrialError::new)?;
        let content = |v: ValueId| {
            let content = self.observed.get(v).map_err(|e| TrialError::new(e.to_string()))?;
            content.ok_or_else(|| TrialError::new("the reference has no content for it".to_owned()))
        };
        let mut inputs = Vec::new();
        for (&v, format) in candidate.region.inputs.iter().zip(&candidate.inputs) {
            inputs.push((content(v)?.clone(), format.clone()));
        }
        let mut outputs = Vec::new();
        for (&v, format) in candidate.region.outputs.iter().zip(&candidate.outputs) {
            outputs.push((content(v)?.dims().to_vec(), format.clone()));
        }
        let input_dims: Vec<Vec<i64>> = inputs.iter().map(|(t, _)| t.dims().to_vec()).collect();
        let output_dims: Vec<Vec<i64>> = outputs.iter().map(|(d, _)| d.clone()).collect();
        let needs =
            bound.kernel.needs(&Dims { inputs: &input_dims, outputs: &output_dims }, threads);
        let trial = Trial::new(&bound, &inputs, &outputs, threads, self.last_level_cache)?;
        // The arena is there twice: in use, and as it was before.
        let bytes = 2 * trial.plan.arena + trial.plan.weights + needs.workspace;
        let trial = self.bench.open(backend.name(), trial)?;
        Ok(OpenOffer { trial, bytes, needs })
    }
}

/// What a database holds of a key: a time in any model, or else a refusal on these contents.
pub fn recorded(
    database: &Database,
    contents: &str,
    key: &Key,
) -> Result<Option<Record>, DatabaseError> {
    match database.get(key)? {
        Some(record) => Ok(Some(record)),
        None => database.get(&refusal(key, contents)),
    }
}

/// The key of a refusal.
fn refusal(key: &Key, contents: &str) -> Key {
    Key(format!("{}\ncontents {contents}", key.0))
}

/// An offer that is open for running.
pub struct OpenOffer<'a> {
    /// Runs it.
    pub trial: Box<dyn OpenTrial + 'a>,
    /// Bytes that it holds while it is open, roughly.
    pub bytes: u64,
    /// What its kernel declares.
    pub needs: Needs,
}

/// What is known of an offer.
#[derive(Clone, Debug, PartialEq)]
pub enum Price {
    /// Measured, here and now or before.
    Measured(Measurement),
    /// It costs nothing.
    Free,
    /// It cannot be used.
    Refused(String),
    /// There was no time to measure it.
    Unmeasured,
}

/// How many records were found and how many were measured anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Prices that the database knew.
    pub known: usize,
    /// Prices that were measured or refused anew.
    pub measured: usize,
    /// Offers that there was no time for.
    pub skipped: usize,
    /// Times in the database that cannot be, each with the offer, its nodes and why; they are taken anew.
    pub doubted: Vec<String>,
}

/// The limits of the first measurement of an offer, which tells who is far from the best.
fn protocol(seed: u64, deadline: Option<Instant>) -> Protocol {
    Protocol {
        deadline,
        // Its results were just checked.
        warmup_runs: 0,
        warmup: Duration::from_millis(2),
        far: 1.5,
        min_samples: 5,
        max_samples: 9,
        precision: 0.05,
        limit: Duration::from_millis(50),
        seed,
        ..Protocol::default()
    }
}

/// Prices every offer, measuring those that the database does not know; offers for equal regions
/// race against each other.
pub fn price(p: &Pricing<'_>, offers: &[Offer]) -> Result<(Vec<Price>, Effort), PlaceError> {
    let mut records: Vec<Option<Record>> = vec![None; offers.len()];
    let mut effort = Effort::default();
    let mut by_key: HashMap<&str, Vec<usize>> = HashMap::new();
    let mut groups: HashMap<&str, Vec<usize>> = HashMap::new();
    for (i, offer) in offers.iter().enumerate() {
        if matches!(offer.form, Form::View) {
            continue;
        }
        let same = by_key.entry(offer.key.0.as_str()).or_default();
        same.push(i);
        if same.len() > 1 {
            continue;
        }
        match p.known(offer, &mut effort.doubted)? {
            Some(record) => {
                effort.known += 1;
                records[i] = Some(record);
            }
            None => groups.entry(&offer.canonical).or_default().push(i),
        }
    }
    let prospects = Prospects::new(p.graph, offers);
    let mut waiting: Vec<Vec<usize>> = groups.into_values().collect();
    waiting.sort_by_cached_key(|group| prospects.rank(group[0]));
    let total = waiting.len();
    let mut news: HashSet<usize> = HashSet::new();
    for (done, mut group) in waiting.into_iter().enumerate() {
        for &i in &group {
            if let Some(why) = prospects.hopeless(&records, i) {
                let record = Record::Refused(why);
                p.keep(&offers[i].key, &record)?;
                records[i] = Some(record);
            }
        }
        group.retain(|&i| records[i].is_none());
        if group.is_empty() {
            continue;
        }
        if p.is_over(p.first_deadline) {
            effort.skipped += group.len();
            continue;
        }
        (p.progress)("measure regions", done, total);
        let members: Vec<&Offer> = group.iter().map(|&i| &offers[i]).collect();
        for (&i, record) in group.iter().zip(measure_group(p, &members)) {
            let Some(record) = record else {
                effort.skipped += 1;
                continue;
            };
            news.insert(i);
            p.keep(&offers[i].key, &record)?;
            records[i] = Some(record);
        }
    }
    news.extend(refine::refine(p, offers, &mut records)?);
    effort.measured = news.len();
    let mut prices: Vec<Price> = offers
        .iter()
        .zip(records)
        .map(|(offer, record)| match (&offer.form, record) {
            (Form::View, _) => Price::Free,
            (Form::Kernel(_), None) => Price::Unmeasured,
            (Form::Kernel(_), Some(record)) => Price::from(record),
        })
        .collect();
    for same in by_key.values() {
        for &i in &same[1..] {
            prices[i] = prices[same[0]].clone();
        }
    }
    Ok((prices, effort))
}

impl From<Record> for Price {
    fn from(record: Record) -> Price {
        match record {
            Record::Measured { measurement, .. } => Price::Measured(measurement),
            Record::Refused(why) => Price::Refused(why),
        }
    }
}

/// What the results of a region must be, and how far they may be from it.
struct Expected {
    results: Vec<Tensor>,
    floors: Vec<Tolerance>,
}

fn expected(p: &Pricing<'_>, offer: &Offer) -> Result<Expected, String> {
    let region = &offer.candidate.region;
    let content = |v| {
        let content = p.observed.get(v).map_err(|e| e.to_string())?;
        content.cloned().ok_or_else(|| "the reference has no content for it".to_owned())
    };
    let results: Result<Vec<Tensor>, String> = region.outputs.iter().map(|&v| content(v)).collect();
    let results = results?;
    let part = p.graph.extract(&region.nodes).map_err(|e| e.to_string())?;
    let exact = |v: ValueId| content(p.graph.find(&part.value(v).name)?).ok();
    // A constant that the kernel reads as an operand is one of the part, and no input of it.
    let input = |&v: &ValueId| {
        let name = &part.value(v).name;
        let value = p.graph.find(name).ok_or_else(|| format!("`{name}` is not in the graph"))?;
        content(value).map(Datum::from)
    };
    let inputs = part.inputs.iter().map(input).collect::<Result<Vec<Datum>, String>>()?;
    // `extract` lists outputs in the order of the boundary; the region may keep fewer.
    let names: Vec<&str> = region.outputs.iter().map(|&v| &*p.graph.value(v).name).collect();
    let places: Vec<Option<usize>> = part
        .outputs
        .iter()
        .map(|&v| names.iter().position(|n| *n == &*part.value(v).name))
        .collect();
    let wanted: Vec<Option<&Tensor>> = places.iter().map(|at| at.map(|at| &results[at])).collect();
    let found = tolerances(&part, &inputs, &wanted, &exact, &|_| 0.0, 1);
    let mut floors = vec![Tolerance::EXACT; results.len()];
    for (at, tolerance) in places.iter().zip(found.map_err(|e| e.to_string())?) {
        if let Some(at) = at {
            floors[*at] = tolerance;
        }
    }
    Ok(Expected { results, floors })
}

/// Compiles an offer, runs it on the reference inputs and compares its results: its error as a share of
/// the allowed one, or why it cannot be used.
pub fn check_offer(p: &Pricing<'_>, offer: &Offer) -> Result<f64, TrialError> {
    let expected = expected(p, offer).map_err(TrialError::new)?;
    admit(p, offer, &expected).map(|(_, share, _)| share)
}

/// Checks and times offers for equal regions. `None` where there was no time, or the race was stopped.
fn measure_group(p: &Pricing<'_>, offers: &[&Offer]) -> Vec<Option<Record>> {
    // Equal regions compute different values: each offer is checked against those of its own.
    let mut all: HashMap<&[NodeId], Result<Expected, String>> = HashMap::new();
    let mut records: Vec<Option<Record>> = vec![None; offers.len()];
    let mut open: Vec<(usize, Box<dyn OpenTrial + '_>, f64, u64)> = Vec::new();
    for (i, offer) in offers.iter().enumerate() {
        if p.is_over(p.first_deadline) {
            break;
        }
        let nodes = &offer.candidate.region.nodes;
        let expected = match all.entry(nodes).or_insert_with(|| expected(p, offer)) {
            Ok(expected) => expected,
            Err(why) => {
                records[i] = Some(Record::Refused(why.clone()));
                continue;
            }
        };
        match admit(p, offer, expected) {
            Ok((trial, share, workspace)) => open.push((i, trial, share, workspace)),
            Err(why) if why.momentary => {}
            Err(why) => records[i] = Some(Record::Refused(why.why)),
        }
    }
    let verdicts = {
        let mut contestants: Vec<Contestant<'_>> = open
            .iter_mut()
            .map(|(_, trial, ..)| Contestant { sample: Box::new(&mut **trial) })
            .collect();
        let protocol = protocol(offers.len() as u64, p.first_deadline);
        race(&mut contestants, &protocol, None, p.cancel)
    };
    for ((i, _, error_share, workspace), verdict) in open.into_iter().zip(verdicts) {
        records[i] = match verdict {
            Verdict::Measured(measurement) => {
                Some(Record::Measured { measurement, error_share, workspace, refined: false })
            }
            Verdict::Stopped => None,
            Verdict::Failed(_) if p.cancel.is_cancelled() => None,
            Verdict::Failed(why) => Some(Record::Refused(why.0)),
        };
    }
    records
}

/// Compiles an offer, runs it twice on the reference inputs and compares; its error as a share of
/// the allowed one, and its workspace in bytes.
fn admit<'a>(
    p: &Pricing<'a>,
    offer: &Offer,
    expected: &Expected,
) -> Result<(Box<dyn OpenTrial + 'a>, f64, u64), TrialError> {
    let OpenOffer { trial: mut open, needs, .. } = p.open(offer)?;
    let first = open.results()?;
    let mut share: f64 = 0.0;
    for ((reference, found), floor) in expected.results.iter().zip(&first).zip(&expected.floors) {
        let allowed = floor.or_share_of(reference, 8.0 * offer.candidate.numerics.error());
        let error = Error::between(reference, found);
        let this = error.share_of(&allowed);
        if this.is_nan() || this > 1.0 {
            return Err(TrialError::new(format!(
                "its result is wrong: {error}, allowed {:.3e}",
                allowed.max_abs
            )));
        }
        share = share.max(this);
    }
    if needs.deterministic && open.results()? != first {
        return Err(TrialError::new(
            "two runs on equal inputs differ, though it is declared deterministic".to_owned(),
        ));
    }
    Ok((open, share, needs.workspace))
}
