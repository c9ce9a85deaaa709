//! How long and in which order `bench` samples its targets.
//!
//! How fast a process is depends on where its memory came to lie: one model in two processes differs by up to
//! 3 %, for as long as they live. All targets are therefore started anew again and again, each start gives one
//! ratio, and intervals are of those.

use super::lane::{Judged, Lane};
use bricolage::{
    Error,
    worker::{Alone, OpenPlan, RemotePlan},
};
use bricolage_measure::{Measurement, Ratio, Sample};
use bricolage_tensor::Rng;
use std::time::{Duration, Instant};

/// Starts of each target at least, and at most, unless the user says otherwise.
const LEAST: u32 = 8;
const MOST: u32 = 200;
/// A sample repeats the run until it lasts this many seconds: long enough that the other targets'
/// traces in the caches do not count.
const SAMPLE: f64 = 0.04;
/// Samples of a start: as many as fit into so many seconds, within bounds.
const START: f64 = 0.2;
const SAMPLES: std::ops::RangeInclusive<u64> = 2..=5;
/// A ratio is known when its interval is this narrow, as a share of it; sampling ends when all are.
const NARROW: f64 = 0.02;
/// Of a target that is this many times as fast or as slow as the first, less is enough.
const FAR: f64 = 1.25;
const FAR_NARROW: f64 = 0.2;
/// After [`LIMIT`] it goes on, up to [`LONGEST`], while an interval is wider than this.
const WIDE: f64 = 0.04;
/// Time for all samples, unless the user says otherwise.
const LIMIT: Duration = Duration::from_secs(60);
/// Time for all samples where the machine is noisy.
const LONGEST: Duration = Duration::from_secs(600);

/// Samples lanes start by start, until all ratios to the first are known; where the user says how many samples
/// each has, those are spread over as few starts as make an interval.
pub(super) fn sample(
    lanes: &mut [Lane],
    judged: Option<&Judged>,
    seed: u64,
    iterations: Option<u32>,
) -> Result<(), Error> {
    let mut rng = Rng::new(seed);
    let begin = Instant::now();
    let mut known = vec![false; lanes.len()];
    let mut repeats = vec![None; lanes.len()];
    let starts = iterations.map_or(MOST, |all| all.clamp(1, LEAST));
    for start in 0..starts {
        let mut open = Vec::new();
        for (i, lane) in lanes.iter_mut().enumerate().filter(|&(i, _)| !known[i]) {
            let mut plan = lane.start(judged)?;
            plan.pause();
            open.push((i, plan));
        }
        let mut slowest = SAMPLE;
        for (i, plan) in &mut open {
            let often = match repeats[*i] {
                Some(often) => often,
                None => *repeats[*i].insert(calibrate(&lanes[*i], plan)?),
            };
            slowest = slowest.max(once(&lanes[*i], plan, often)? * f64::from(often));
        }
        let count = match iterations.map(u64::from) {
            Some(all) => {
                let until = |start: u32| all * u64::from(start) / u64::from(starts);
                until(start + 1) - until(start)
            }
            None => ((START / slowest) as u64).clamp(*SAMPLES.start(), *SAMPLES.end()),
        };
        let mut samples = vec![Vec::new(); lanes.len()];
        for _ in 0..count {
            rng.shuffle(&mut open);
            for (i, plan) in &mut open {
                samples[*i].push(1e9 * once(&lanes[*i], plan, repeats[*i].unwrap_or(1))?);
            }
        }
        for (lane, samples) in lanes.iter_mut().zip(samples) {
            if let Some(m) = Measurement::of(&samples, 1, false) {
                lane.starts.push(m.median_ns);
                lane.samples.extend(samples);
            }
        }
        if iterations.is_none() && is_enough(lanes, &mut known, start + 1, begin.elapsed()) {
            break;
        }
    }
    Ok(())
}

/// How often a sample repeats the run.
fn calibrate(lane: &Lane, plan: &mut RemotePlan) -> Result<u32, Error> {
    let mut one = f64::INFINITY;
    for _ in 0..3 {
        one = one.min(once(lane, plan, 1)?);
    }
    Ok((SAMPLE / one.max(1e-9)).ceil().clamp(1.0, 1e5) as u32)
}

/// One sample, in seconds a run, with every other process stopped.
fn once(lane: &Lane, plan: &mut RemotePlan, repeats: u32) -> Result<f64, Error> {
    let time = Alone::new(plan)
        .sample(repeats)
        .map_err(|e| Error::Worker(format!("`{}`: {e}", lane.name)))?;
    Ok(time.as_secs_f64() / f64::from(repeats))
}

/// Whether so many starts in so much time say enough. Notes which ratios are known.
fn is_enough(lanes: &[Lane], known: &mut [bool], starts: u32, spent: Duration) -> bool {
    if starts < LEAST && spent < LONGEST {
        return false;
    }
    let is_known =
        |lane: &Lane, narrow| lane.ratio(&lanes[0]).is_some_and(|ratio| is_known(&ratio, narrow));
    for (known, lane) in known.iter_mut().zip(lanes).skip(1) {
        *known |= is_known(lane, NARROW);
    }
    known[1..].iter().all(|&k| k)
        || spent > LONGEST
        || (spent > LIMIT && lanes[1..].iter().all(|lane| is_known(lane, WIDE)))
}

/// Whether a ratio is known well enough: its interval is this narrow, or it is far from one.
fn is_known(ratio: &Ratio, narrow: f64) -> bool {
    let width = (ratio.ci95.1 - ratio.ci95.0) / ratio.median;
    let far = ratio.ci95.0 > FAR || ratio.ci95.1 < 1.0 / FAR;
    width <= if far { narrow.max(FAR_NARROW) } else { narrow }
}
