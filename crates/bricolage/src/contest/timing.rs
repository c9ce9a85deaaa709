//! Times of whole plans, of one against another, and of steps inside plans.

use super::{Contest, Entry, Field, verify};
use crate::{Error, Progress, worker::Alone};
use bricolage_measure::{
    Contestant, Measurement, Pairing, Protocol, Ratio, Record, Sample, Verdict, pair, race,
};
use bricolage_placement::InPlan;
use std::time::{Duration, Instant};

/// Runs of one plan that give a few samples, with those that are not counted around them.
const FEW_RUNS: u32 = 15;

/// Verifies the entries that are not open, as far as there is time; the first right one in any case.
pub(super) fn open_all(c: &Contest<'_>, entries: &mut [Entry]) -> Result<(), Error> {
    let total = entries.len();
    let left = || c.deadline.map(|d| d.saturating_duration_since(Instant::now()));
    // One right plan is needed in any case; what another one takes is told by those before it.
    let (mut right, mut longest) = (0, Duration::ZERO);
    for (done, entry) in entries.iter_mut().enumerate() {
        (c.cx.progress)(&Progress { phase: "verify plans", done, total, best_ns: None });
        if entry.open.is_some() {
            right += 1;
        }
        if entry.refused.is_some() || entry.open.is_some() {
            continue;
        }
        // Most of it goes into the noise floor, which plans may share.
        let known = c.floors.borrow().contains_key(&verify::noisy_nodes(&c.placed[entry.placed]));
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
        let opened = verify::open(c, entry.placed, &entry.key);
        longest = longest.max(start.elapsed());
        match opened {
            Ok(opened) => {
                right += 1;
                entry.hold(opened);
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
    Ok(())
}

/// Verifies the entries that are not open, and times all in turn.
pub(super) fn time_all(c: &Contest<'_>, entries: &mut [Entry]) -> Result<(), Error> {
    open_all(c, entries)?;
    let total = entries.len();
    (c.cx.progress)(&Progress { phase: "time plans", done: 0, total, best_ns: None });
    let left =
        c.deadline.map_or(Duration::from_secs(20), |d| d.saturating_duration_since(Instant::now()));
    let deadline = c.deadline.map(|deadline| {
        // Each plan that was opened gets a few samples in any case, and pairs get a quarter.
        let once = |e: &mut Entry| Alone::new(&mut **e.open.as_mut()?).sample(1).ok();
        let runs: Vec<Duration> = entries.iter_mut().filter_map(once).collect();
        let right = runs.len() as u32;
        let least = FEW_RUNS * runs.iter().sum::<Duration>() + right * Duration::from_millis(100);
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

/// One plan over another, pair by pair or known from before. `None` where there is no time, or `warnings`
/// say why.
pub(super) fn compare(
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
            match verify::open(c, entries[i].placed, &entries[i].key) {
                Ok(opened) => entries[i].hold(opened),
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

/// Runs of a plan that tell what its steps take.
const TRACED: usize = 11;
/// A plan that takes this many times as long as the best says nothing about what to choose.
const FAR: f64 = 1.5;

impl Field {
    /// What kernels take inside the plans that are not far behind the best or not timed yet, all traced in turn or
    /// known from before. What cannot be traced is left out.
    pub(crate) fn in_plan(&mut self, c: &Contest<'_>) -> Result<InPlan, Error> {
        let all: Vec<f64> = self.entries.iter().filter_map(median_ns).collect();
        let best = all.into_iter().fold(f64::INFINITY, f64::min);
        let mut known: Vec<Option<Vec<Option<f64>>>> = Vec::new();
        for entry in &self.entries {
            known.push(known_in_plan(c, entry)?);
        }
        let mut tracing: Vec<(usize, Vec<Vec<Duration>>)> = Vec::new();
        for (i, entry) in self.entries.iter_mut().enumerate() {
            let near = median_ns(entry).is_none_or(|ns| ns <= FAR * best);
            let is_out = !near || entry.refused.is_some();
            if is_out || known[i].is_some() || c.placed[entry.placed].prediction.is_none() {
                continue;
            }
            let is_over = c.deadline.is_some_and(|d| Instant::now() >= d);
            if entry.open.is_none() && !c.exhausted && !is_over {
                // Its time was known from before.
                if let Ok(opened) = verify::open(c, entry.placed, &entry.key) {
                    entry.hold(opened);
                }
            }
            if entry.open.is_some() {
                tracing.push((i, Vec::new()));
            }
        }
        (c.cx.progress)(&Progress { phase: "trace plans", done: 0, total: 0, best_ns: None });
        for _ in 0..TRACED {
            for (i, runs) in &mut tracing {
                let is_over = c.deadline.is_some_and(|d| Instant::now() >= d);
                let Some(open) = &mut self.entries[*i].open else { continue };
                if is_over || c.cx.cancel.is_cancelled() {
                    continue;
                }
                if let Ok(spans) = Alone::new(&mut **open).steps() {
                    runs.push(spans);
                }
            }
        }
        for (i, runs) in tracing {
            // Less than half of the runs is what a deadline left.
            if runs.len() <= TRACED / 2 {
                continue;
            }
            let step = |s: usize| {
                let mut all: Vec<Duration> =
                    runs.iter().filter_map(|r| r.get(s).copied()).collect();
                all.sort_unstable();
                all.get(all.len() / 2).map(|d| d.as_nanos() as f64)
            };
            let entry = &self.entries[i];
            let steps = entry.step_of_region.iter();
            let times: Vec<Option<f64>> = steps.map(|s| s.and_then(step)).collect();
            let text = serde_json::to_string(&times)
                .map_err(|e| Error::Internal { what: e.to_string() })?;
            c.database.set_note(&note(entry), &text)?;
            known[i] = Some(times);
        }
        let mut in_plan = InPlan::default();
        for (entry, times) in self.entries.iter().zip(known) {
            if let Some(times) = times {
                in_plan.add(&c.placed[entry.placed], &times);
            }
        }
        Ok(in_plan)
    }
}

fn median_ns(entry: &Entry) -> Option<f64> {
    entry.measured.as_ref().map(|m| m.median_ns)
}

/// What the database knows of the time of regions inside a plan, in nanoseconds.
pub(super) fn known_in_plan(
    c: &Contest<'_>,
    entry: &Entry,
) -> Result<Option<Vec<Option<f64>>>, Error> {
    let text = c.database.note(&note(entry))?;
    Ok(text.and_then(|text| serde_json::from_str(&text).ok()))
}

/// Under which the database keeps what the regions of a plan take inside it.
fn note(entry: &Entry) -> String {
    format!("in plan {}", blake3::hash(entry.key.0.as_bytes()))
}
