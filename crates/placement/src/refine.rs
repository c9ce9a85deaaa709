//! The second look: offers that could be part of the best cover, all timed in turn.
//!
//! The speed of a machine drifts by more, from one minute to the next, than close candidates differ,
//! and covers compare candidates of different regions. So everything that could be chosen is timed
//! in the same minutes, sample by sample in turn.

use crate::{Offer, OpenTrial, PlaceError, Pricing};
use bricolage_measure::{Contestant, Protocol, Record, Verdict, race};
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// An offer that is slower than this multiple of the best for its region is not looked at again.
const CONTESTED: f64 = 1.3;
/// Bytes of trials that are open at the same time; one trial at least.
const OPEN_BYTES: u64 = 1 << 30;

/// The limits of the second measurement: the same for everybody, for they are compared.
fn protocol(seed: u64, deadline: Option<Instant>) -> Protocol {
    Protocol {
        deadline,
        warmup_runs: 2,
        warmup: Duration::ZERO,
        sample: Duration::from_micros(300),
        min_samples: 21,
        max_samples: 21,
        precision: 0.0,
        dominated: f64::INFINITY,
        far: f64::INFINITY,
        limit: Duration::from_millis(150),
        rewarm: true,
        seed,
    }
}

/// Times again, until nothing that could be chosen is left: `records` and the database get the new
/// times. Returns the offers that were timed.
pub(crate) fn refine(
    p: &Pricing<'_>,
    offers: &[Offer],
    records: &mut [Option<Record>],
) -> Result<Vec<usize>, PlaceError> {
    let mut timed = Vec::new();
    loop {
        let waiting = contested(offers, records);
        if waiting.is_empty() {
            return Ok(timed);
        }
        let total = waiting.len();
        let mut next = waiting.into_iter().peekable();
        while next.peek().is_some() {
            if p.is_over(p.deadline) {
                return Ok(timed);
            }
            (p.progress)("measure close offers", total - next.len(), total);
            let (mut batch, mut bytes) = (Vec::new(), 0);
            while let Some(&i) = next.peek()
                && (bytes < OPEN_BYTES)
                && !p.is_over(p.deadline)
            {
                next.next();
                match p.open(&offers[i]) {
                    Ok(open) => {
                        bytes += open.bytes;
                        batch.push((i, open.trial));
                    }
                    // The machine lacks what trials need.
                    Err(why) if why.momentary => return Ok(timed),
                    Err(why) => {
                        let record = Record::Refused(why.why);
                        p.keep(&offers[i].key, &record)?;
                        records[i] = Some(record);
                    }
                }
            }
            timed.extend(time_batch(p, offers, records, batch)?);
        }
    }
}

/// Offers close to the best one for their region that were not yet timed in turn.
fn contested(offers: &[Offer], records: &[Option<Record>]) -> Vec<usize> {
    let mut best: HashMap<&str, f64> = HashMap::new();
    let median = |i: usize| match &records[i] {
        Some(Record::Measured { measurement, refined, .. }) => {
            Some((measurement.median_ns, *refined))
        }
        _ => None,
    };
    for (i, offer) in offers.iter().enumerate() {
        if let Some((ns, _)) = median(i) {
            let best = best.entry(&offer.canonical).or_insert(f64::INFINITY);
            *best = best.min(ns);
        }
    }
    let close = |&i: &usize| {
        median(i)
            .is_some_and(|(ns, refined)| !refined && ns <= CONTESTED * best[&*offers[i].canonical])
    };
    (0..offers.len()).filter(close).collect()
}

fn time_batch(
    p: &Pricing<'_>,
    offers: &[Offer],
    records: &mut [Option<Record>],
    mut batch: Vec<(usize, Box<dyn OpenTrial + '_>)>,
) -> Result<Vec<usize>, PlaceError> {
    let protocol = protocol(batch.len() as u64, p.deadline);
    let verdicts = {
        let mut contestants: Vec<Contestant<'_>> = batch
            .iter_mut()
            .map(|(_, trial)| Contestant { sample: Box::new(&mut **trial) })
            .collect();
        race(&mut contestants, &protocol, None, p.cancel)
    };
    let mut timed = Vec::new();
    for ((i, _), verdict) in batch.into_iter().zip(verdicts) {
        let new = match (verdict, &records[i]) {
            (_, _) if p.cancel.is_cancelled() => continue,
            (
                Verdict::Measured(measurement),
                Some(Record::Measured { error_share, workspace, .. }),
            ) => Record::Measured {
                measurement,
                error_share: *error_share,
                workspace: *workspace,
                // What the deadline cut short is timed again by a search that has the time.
                refined: !p.is_over(p.deadline),
            },
            (Verdict::Measured(_) | Verdict::Stopped, _) => continue,
            (Verdict::Failed(why), _) => Record::Refused(why.0),
        };
        p.keep(&offers[i].key, &new)?;
        records[i] = Some(new);
        timed.push(i);
    }
    Ok(timed)
}
