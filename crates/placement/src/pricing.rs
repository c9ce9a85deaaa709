//! What each offer costs: from the database, or measured after its results were found right.

use crate::{Bench, Form, Observed, Offer, OpenTrial, PlaceError, Trial, TrialError, refine};
use bricolage_backend::Setting;
use bricolage_ir::{Error, Graph, Tolerance, ValueId, evaluate_noisy};
use bricolage_measure::{Contestant, Database, Measurement, Protocol, Record, Verdict, race};
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
    /// What is known from before.
    pub database: &'a Database,
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
    /// Asks to stop measuring.
    pub cancel: &'a Cancel,
    /// Told before each group of measurements: what is done, groups done, groups in all.
    pub progress: &'a dyn Fn(&'static str, usize, usize),
}

impl Pricing<'_> {
    /// Whether `deadline` has passed or a stop was asked for.
    pub(crate) fn is_over(&self, deadline: Option<Instant>) -> bool {
        deadline.is_some_and(|d| Instant::now() >= d) || self.cancel.is_cancelled()
    }
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Prices that the database knew.
    pub known: usize,
    /// Prices that were measured or refused anew.
    pub measured: usize,
    /// Offers that there was no time for.
    pub skipped: usize,
}

/// The limits of the first measurement of an offer, which tells who is far from the best.
fn protocol(seed: u64) -> Protocol {
    Protocol {
        warmup: Duration::from_millis(2),
        min_samples: 5,
        max_samples: 9,
        precision: 0.05,
        limit: Duration::from_millis(200),
        seed,
        ..Protocol::default()
    }
}

/// Prices every offer, measuring those that the database does not know; offers for equal regions
/// race against each other, the largest regions first.
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
        match p.database.get(&offer.key)? {
            Some(record) => {
                effort.known += 1;
                records[i] = Some(record);
            }
            None => groups.entry(&offer.canonical).or_default().push(i),
        }
    }
    let mut waiting: Vec<Vec<usize>> = groups.into_values().collect();
    waiting.sort_by_key(|g| (std::cmp::Reverse(region_work(p.graph, &offers[g[0]])), g[0]));
    let total = waiting.len();
    let mut news: HashSet<usize> = HashSet::new();
    for (done, group) in waiting.into_iter().enumerate() {
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
            p.database.put(&offers[i].key, &record)?;
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

/// Points of the iteration spaces of a region's nodes.
fn region_work(graph: &Graph, offer: &Offer) -> u64 {
    let work = offer.candidate.region.nodes.iter().filter_map(|&n| {
        let node = graph.node(n);
        node.op.work(&graph.facts(&node.inputs), &graph.output_facts(n))
    });
    work.map(|w| w.points).sum()
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
    let inputs: Result<Vec<Datum>, String> =
        region.inputs.iter().map(|&v| content(v).map(Datum::from)).collect();
    let results: Result<Vec<Tensor>, String> = region.outputs.iter().map(|&v| content(v)).collect();
    let results = results?;
    let part = p.graph.extract(&region.nodes).map_err(|e| e.to_string())?;
    let noisy = evaluate_noisy(&part, &inputs?, &|_| 0.0, 1).map_err(|e| e.to_string())?;
    // `extract` lists outputs in the order of the boundary; the region may keep fewer.
    let names: Vec<&str> = part.outputs.iter().map(|&v| &*part.value(v).name).collect();
    let floors = region.outputs.iter().zip(&results).map(|(&v, reference)| {
        let name = &*p.graph.value(v).name;
        let noisy = names.iter().position(|n| *n == name).and_then(|at| noisy[at].as_tensor());
        Tolerance::from_floor(reference, noisy.unwrap_or(reference))
    });
    let floors = floors.collect();
    Ok(Expected { results, floors })
}

/// Checks and times offers for equal regions. `None` where the race was stopped.
fn measure_group(p: &Pricing<'_>, offers: &[&Offer]) -> Vec<Option<Record>> {
    let expected = match expected(p, offers[0]) {
        Ok(expected) => expected,
        Err(why) => return offers.iter().map(|_| Some(Record::Refused(why.clone()))).collect(),
    };
    let mut records: Vec<Option<Record>> = vec![None; offers.len()];
    let mut open: Vec<(usize, Box<dyn OpenTrial + '_>, f64, u64)> = Vec::new();
    for (i, offer) in offers.iter().enumerate() {
        match admit(p, offer, &expected) {
            Ok((trial, share, workspace)) => open.push((i, trial, share, workspace)),
            Err(why) => records[i] = Some(Record::Refused(why.0)),
        }
    }
    let verdicts = {
        let mut contestants: Vec<Contestant<'_>> = open
            .iter_mut()
            .map(|(_, trial, ..)| Contestant { sample: Box::new(&mut **trial) })
            .collect();
        race(&mut contestants, &protocol(offers.len() as u64), None, p.cancel)
    };
    for ((i, _, error_share, workspace), verdict) in open.into_iter().zip(verdicts) {
        records[i] = match verdict {
            Verdict::Measured(measurement) => {
                Some(Record::Measured { measurement, error_share, workspace, refined: false })
            }
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
    let (trial, needs) = trial(p, offer)?;
    let mut open = p.bench.open(offer.backend(), trial)?;
    let first = open.results()?;
    let mut share: f64 = 0.0;
    for ((reference, found), floor) in expected.results.iter().zip(&first).zip(&expected.floors) {
        let allowed = floor.or_share_of(reference, 8.0 * offer.candidate.numerics.error());
        let error = Error::between(reference, found);
        let this = error.share_of(&allowed);
        if this.is_nan() || this > 1.0 {
            return Err(TrialError(format!(
                "its result is wrong: {error}, allowed {:.3e}",
                allowed.max_abs
            )));
        }
        share = share.max(this);
    }
    if needs.deterministic && open.results()? != first {
        return Err(TrialError(
            "two runs on equal inputs differ, though it is declared deterministic".to_owned(),
        ));
    }
    Ok((open, share, needs.workspace))
}

/// A trial of an offer on the reference inputs, and what its kernel needs.
pub(crate) fn trial(p: &Pricing<'_>, offer: &Offer) -> Result<(Trial, Needs), TrialError> {
    let Form::Kernel(backend) = &offer.form else {
        return Err(TrialError("a view has no kernel".to_owned()));
    };
    let candidate = &offer.candidate;
    let bound = backend.bind(p.graph, candidate, &p.setting).map_err(TrialError)?;
    let content = |v: ValueId| {
        let content = p.observed.get(v).map_err(|e| TrialError(e.to_string()))?;
        content.ok_or_else(|| TrialError("the reference has no content for it".to_owned()))
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
    let threads = p.setting.threads;
    let needs = bound.kernel.needs(&Dims { inputs: &input_dims, outputs: &output_dims }, threads);
    let trial = Trial::new(&bound, &inputs, &outputs, threads, p.last_level_cache)?;
    Ok((trial, needs))
}
