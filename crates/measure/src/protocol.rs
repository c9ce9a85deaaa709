//! How things are timed: warm-up until stable, interleaved samples, stop when the answer is known.

use crate::{Measurement, Ratio, Sentinel, median_interval};
use bricolage_runtime::Cancel;
use bricolage_tensor::Rng;
use std::time::{Duration, Instant};

/// Why a contestant gave no time, in a clause.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SampleError(pub String);

/// Something that can be run many times, here or in another process.
pub trait Sample {
    /// Runs `iterations` times and returns how long that took.
    fn sample(&mut self, iterations: u32) -> Result<Duration, SampleError>;
}

impl<S: Sample + ?Sized> Sample for &mut S {
    fn sample(&mut self, iterations: u32) -> Result<Duration, SampleError> {
        (**self).sample(iterations)
    }
}

/// Times a closure, the loop around it included.
pub struct Repeat<F>(pub F);

impl<F: FnMut() -> Result<(), SampleError>> Sample for Repeat<F> {
    fn sample(&mut self, iterations: u32) -> Result<Duration, SampleError> {
        let start = Instant::now();
        for _ in 0..iterations {
            self.0()?;
        }
        Ok(start.elapsed())
    }
}

/// One of several ways to do the same thing.
pub struct Contestant<'a> {
    /// What is timed.
    pub sample: Box<dyn Sample + 'a>,
}

/// The limits of a measurement.
#[derive(Clone, Debug, PartialEq)]
pub struct Protocol {
    /// Runs before anything counts, at least. With none, contestants come warm: a first run that
    /// outlasts the warm-up is the first sample.
    pub warmup_runs: u32,
    /// Time before anything counts, at least.
    pub warmup: Duration,
    /// A sample repeats the thing until it lasts this long.
    pub sample: Duration,
    /// Samples of each contestant, at least.
    pub min_samples: u32,
    /// Samples of each contestant, at most.
    pub max_samples: u32,
    /// A contestant is known well enough when half its interval is this share of its median.
    pub precision: f64,
    /// A contestant that is surely slower than this multiple of the best is not sampled further.
    pub dominated: f64,
    /// A contestant whose every sample, be it a single one, is slower than this multiple of every sample
    /// of another is not sampled further.
    pub far: f64,
    /// Time for one contestant once it has [`LEAST`] samples; it is kept with the interval reached by
    /// then.
    pub limit: Duration,
    /// When to stop whatever is known by then.
    pub deadline: Option<Instant>,
    /// One run that does not count before each sample: for contestants that push each other out of
    /// the caches.
    pub rewarm: bool,
    /// Seed of the order of sampling.
    pub seed: u64,
}

/// Samples without which no time limit ends a measurement: a median of fewer is worth nothing.
pub const LEAST: usize = 3;

impl Default for Protocol {
    fn default() -> Protocol {
        Protocol {
            warmup_runs: 3,
            warmup: Duration::from_millis(50),
            sample: Duration::from_micros(200),
            min_samples: 9,
            max_samples: 60,
            precision: 0.01,
            dominated: 1.15,
            far: f64::INFINITY,
            limit: Duration::from_secs(2),
            deadline: None,
            rewarm: false,
            seed: 0,
        }
    }
}

/// What became of a contestant.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It was timed.
    Measured(Measurement),
    /// It failed.
    Failed(SampleError),
    /// The race was stopped before it had a sample, or at its deadline before it had [`LEAST`].
    Stopped,
}

/// State of one contestant during a race.
struct Lane {
    iterations: u32,
    samples: Vec<f64>,
    spent: Duration,
    failed: Option<SampleError>,
    done: bool,
}

impl Lane {
    fn take(&mut self, time: Duration) {
        self.samples.push(time.as_secs_f64() * 1e9 / f64::from(self.iterations));
    }

    fn interval(&self) -> (f64, f64, f64) {
        let mut sorted = self.samples.clone();
        sorted.sort_by(f64::total_cmp);
        median_interval(&sorted)
    }
}

/// Warms up until the last samples are level, and returns how many iterations fill one sample, and a
/// time that is a sample already.
fn warm_up(sample: &mut dyn Sample, p: &Protocol) -> Result<(u32, Option<Duration>), SampleError> {
    let start = Instant::now();
    let mut recent: Vec<f64> = Vec::new();
    loop {
        let time = sample.sample(1)?;
        if p.warmup_runs == 0 && recent.is_empty() && time >= p.warmup.max(p.sample) {
            return Ok((1, Some(time)));
        }
        let one = time.as_secs_f64().max(1e-9);
        recent.push(one);
        let (elapsed, runs) = (start.elapsed(), recent.len() as u32);
        let level = recent.len() < 5 || {
            let last = &recent[recent.len() - 5..];
            let slope = (last[4] - last[0]) / 4.0;
            slope.abs() <= 0.02 * last[2]
        };
        let enough = runs >= p.warmup_runs && elapsed >= p.warmup && level;
        // A thing that never settles, or that is slow, is timed as it is.
        if enough || (elapsed >= 4 * p.warmup && runs >= p.warmup_runs) || elapsed >= p.limit {
            let mut best = recent.split_off(recent.len().saturating_sub(9));
            best.sort_by(f64::total_cmp);
            let typical = best[best.len() / 2];
            let iterations = (p.sample.as_secs_f64() / typical).ceil().clamp(1.0, 1e6);
            return Ok((iterations as u32, None));
        }
    }
}

/// Times all contestants in turn, in an order that changes from round to round, until each is known
/// to the protocol's precision, surely dominated, or out of time or samples, or the deadline has passed.
///
/// With a sentinel, a batch of rounds during which the machine's speed moved is taken again, three
/// times at most; the measurements are then marked noisy.
pub fn race(
    contestants: &mut [Contestant<'_>],
    p: &Protocol,
    mut sentinel: Option<&mut Sentinel>,
    cancel: &Cancel,
) -> Vec<Verdict> {
    let is_late = || p.deadline.is_some_and(|d| Instant::now() >= d);
    let is_over = || cancel.is_cancelled() || is_late();
    let mut lanes: Vec<Lane> = contestants
        .iter_mut()
        .map(|c| {
            let start = Instant::now();
            let warm = if is_over() { Ok((1, None)) } else { warm_up(&mut *c.sample, p) };
            let mut lane = Lane {
                iterations: 1,
                samples: Vec::new(),
                spent: start.elapsed() / 4,
                done: warm.is_err(),
                failed: None,
            };
            match warm {
                Ok((iterations, None)) => lane.iterations = iterations,
                Ok((_, Some(time))) => lane.take(time),
                Err(error) => lane.failed = Some(error),
            }
            lane
        })
        .collect();
    settle(&mut lanes, p);
    let mut rng = Rng::new(p.seed);
    let (mut repeats, mut noisy) = (0, false);
    while lanes.iter().any(|l| !l.done) && !is_over() {
        let before: Vec<usize> = lanes.iter().map(|l| l.samples.len()).collect();
        let batch = if sentinel.is_some() { p.min_samples } else { 1 };
        'batch: for _ in 0..batch {
            let mut order: Vec<usize> = (0..lanes.len()).filter(|&i| !lanes[i].done).collect();
            rng.shuffle(&mut order);
            for i in order {
                let lane = &mut lanes[i];
                let sample = &mut contestants[i].sample;
                let ready = if p.rewarm { sample.sample(1).map(drop) } else { Ok(()) };
                match ready.and_then(|()| sample.sample(lane.iterations)) {
                    Ok(time) => {
                        lane.spent += time;
                        lane.take(time);
                        lane.done = lane.spent >= p.limit && lane.samples.len() >= LEAST;
                    }
                    Err(error) => {
                        lane.failed = Some(error);
                        lane.done = true;
                    }
                }
                if is_over() {
                    break 'batch;
                }
            }
        }
        if let Some(sentinel) = sentinel.as_deref_mut()
            && !sentinel.is_steady()
            && lanes.iter().any(|l| !l.done)
        {
            if repeats < 3 {
                repeats += 1;
                for (lane, kept) in lanes.iter_mut().zip(before) {
                    if !lane.done {
                        lane.samples.truncate(kept);
                    }
                }
                continue;
            }
            noisy = true;
        }
        settle(&mut lanes, p);
    }
    let late = is_late();
    lanes
        .into_iter()
        .map(|lane| match (lane.failed, Measurement::of(&lane.samples, lane.iterations, noisy)) {
            (Some(error), _) => Verdict::Failed(error),
            (None, Some(_)) if late && !lane.done && lane.samples.len() < LEAST => Verdict::Stopped,
            (None, Some(measured)) => Verdict::Measured(measured),
            (None, None) => Verdict::Stopped,
        })
        .collect()
}

/// Ends the lanes whose answer is known.
fn settle(lanes: &mut [Lane], p: &Protocol) {
    let usable = |l: &Lane| l.failed.is_none() && l.samples.len() as u32 >= p.min_samples;
    let best_high =
        lanes.iter().filter(|l| usable(l)).map(|l| l.interval().2).fold(f64::INFINITY, f64::min);
    for lane in lanes.iter_mut().filter(|l| !l.done && usable(l)) {
        let (median, low, high) = lane.interval();
        let half = (high - low) / 2.0;
        lane.done = half <= (p.precision * median).max(500.0_f64.min(0.02 * median))
            || low > p.dominated * best_high
            || lane.samples.len() as u32 >= p.max_samples;
    }
    let slowest = |l: &Lane| l.samples.iter().copied().reduce(f64::max);
    let best = lanes.iter().filter(|l| l.failed.is_none()).filter_map(slowest);
    let far = p.far * best.fold(f64::INFINITY, f64::min);
    for lane in lanes.iter_mut().filter(|l| !l.samples.is_empty()) {
        lane.done |= lane.samples.iter().all(|&s| s > far);
    }
}

/// The limits of a paired comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Pairing {
    /// Pairs, at least.
    pub min_pairs: u32,
    /// Pairs, at most.
    pub max_pairs: u32,
    /// Stop when the interval of the ratio is this narrow, from end to end.
    pub width: f64,
    /// Time for all pairs, at most.
    pub limit: Duration,
    /// One side of a pair repeats the thing until it lasts this long.
    pub sample: Duration,
    /// Seed of the order within the pairs.
    pub seed: u64,
}

impl Default for Pairing {
    fn default() -> Pairing {
        Pairing {
            min_pairs: 9,
            max_pairs: 400,
            width: 0.02,
            limit: Duration::from_secs(10),
            sample: Duration::from_millis(2),
            seed: 0,
        }
    }
}

/// Times two things in turn, the order within each pair drawn at random, and compares pair by pair.
pub fn pair(
    a: &mut dyn Sample,
    b: &mut dyn Sample,
    p: &Pairing,
    cancel: &Cancel,
) -> Result<Ratio, SampleError> {
    let warm = Protocol { sample: p.sample, ..Protocol::default() };
    let ((na, _), (nb, _)) = (warm_up(a, &warm)?, warm_up(b, &warm)?);
    let mut rng = Rng::new(p.seed);
    let mut ratios: Vec<f64> = Vec::new();
    let start = Instant::now();
    loop {
        let (ta, tb) = if rng.below(2) == 0 {
            let ta = a.sample(na)?;
            (ta, b.sample(nb)?)
        } else {
            let tb = b.sample(nb)?;
            (a.sample(na)?, tb)
        };
        let each = |t: Duration, n: u32| t.as_secs_f64().max(1e-12) / f64::from(n);
        ratios.push(each(ta, na) / each(tb, nb));
        let pairs = ratios.len() as u32;
        if pairs < p.min_pairs && !cancel.is_cancelled() {
            continue;
        }
        let ratio = Ratio::of(&ratios).expect("at least one pair was taken");
        let narrow = ratio.ci95.1 - ratio.ci95.0 <= p.width;
        if narrow || pairs >= p.max_pairs || start.elapsed() >= p.limit || cancel.is_cancelled() {
            return Ok(ratio);
        }
    }
}
