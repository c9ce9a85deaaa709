//! The graph level of `collage-v1`: whole plans bred and timed until time is over.

use crate::{
    Error, Progress, contest,
    search::{Placements, Subject},
    worker::{Alone, OpenPlan},
};
use bricolage_measure::Sample;
use bricolage_placement::{
    ConversionPrices, Placed, Pricing,
    v1::{Evolved, Genome, Rates, evolve},
};
use serde::{Deserialize, Serialize};
use std::{
    cell::{Cell, RefCell},
    time::{Duration, Instant},
};

/// Time for the graph level where the goal has no limit: the published default of 0.3 hours.
const BUDGET: Duration = Duration::from_secs(1080);
/// An individual's time is the mean of so many samples of so many runs.
const SAMPLES: u32 = 3;
const RUNS: u32 = 20;
/// A sample of slow runs is shorter, and is one run at least.
const SAMPLE: Duration = Duration::from_millis(200);

/// What the evolutionary search of `collage-v1` found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evolution {
    /// The graph engine that it could give regions to; none where none was registered, and the op level's
    /// cover is the result.
    pub engine: Option<String>,
    /// Regions of the op level.
    pub groups: usize,
    /// Regions that it could give to the engine: it searched among 2 to the power of this.
    pub genes: usize,
    /// Generations that were begun.
    pub generations: usize,
    /// Whole plans that were verified and timed, or failed.
    pub individuals: usize,
    /// Those that could not be used.
    pub failed: usize,
    /// Why the last of those could not.
    pub why: Option<String>,
    /// Price of the op level's cover in nanoseconds, its conversions paid.
    pub op_level_predicted_ns: f64,
    /// Price of the cover that is cheapest while conversions are not seen, these then paid.
    pub layout_blind_ns: f64,
    /// Mean time of the op level's plan, the engine's regions joined.
    pub op_level_ns: Option<f64>,
    /// Mean time with everything that the engine takes on the engine.
    pub engine_ns: Option<f64>,
    /// Mean time of the fastest individual.
    pub best_ns: Option<f64>,
    /// Seconds after which that one was found.
    pub best_after_s: f64,
    /// Seconds in all.
    pub seconds: f64,
}

/// A search that ended, as the database keeps it.
#[derive(Serialize, Deserialize)]
struct Ended {
    /// Seconds that it was given.
    given: f64,
    best: Vec<bool>,
    evolution: Evolution,
}

/// Breeds plans from the first of `placed`, and leaves the fastest in its place alone. A search that ended
/// with as much time, from the same cover, is not repeated.
pub(crate) fn run(
    s: &Subject<'_>,
    pricing: &Pricing<'_>,
    conversions: &dyn ConversionPrices,
    placed: &mut Placements,
    floors: &contest::Floors,
) -> Result<Evolution, Error> {
    let start = Instant::now();
    let [op_level, blind] = &placed.all[..] else {
        let what = format!("the op level made {} covers, not 2", placed.all.len());
        return Err(Error::Internal { what });
    };
    let mut evolution = Evolution {
        engine: None,
        groups: op_level.regions.len(),
        genes: 0,
        generations: 0,
        individuals: 0,
        failed: 0,
        why: None,
        op_level_predicted_ns: sum_ns(op_level),
        layout_blind_ns: sum_ns(blind),
        op_level_ns: None,
        engine_ns: None,
        best_ns: None,
        best_after_s: 0.0,
        seconds: 0.0,
    };
    let Some(genome) = Genome::new(pricing, s.cx.registry, conversions, op_level) else {
        placed.all.truncate(1);
        return Ok(evolution);
    };
    (evolution.engine, evolution.genes) = (Some(genome.engine().to_owned()), genome.bits());
    let given = s.cx.goal.time_limit.unwrap_or(BUDGET);
    let deadline = match s.cx.goal.time_limit {
        Some(_) => s.started.checked_add(given),
        None => start.checked_add(given),
    };
    let note = {
        let op_level = contest::key(&s.contest(&placed.all, floors, false), op_level);
        let text = format!("{}\nengine {}\n{:?}", op_level.0, genome.engine(), rates(s));
        format!("evolution {}", blake3::hash(text.as_bytes()))
    };
    let known = s.database.note(&note)?;
    let known = known.and_then(|text| serde_json::from_str::<Ended>(&text).ok());
    if let Some(ended) = known.filter(|e| e.given >= given.as_secs_f64()) {
        placed.all = vec![express(&genome, &ended.best, op_level)];
        return Ok(ended.evolution);
    }
    let breeding = Breeding { s, genome: &genome, floors, start, state: RefCell::default() };
    // The fastest is opened and timed once more in the end.
    let longest = Cell::new(Duration::ZERO);
    let is_over = || {
        let end = Instant::now() + 3 * longest.get();
        s.cx.cancel.is_cancelled() || deadline.is_some_and(|d| end >= d)
    };
    let mut cost = |bits: &[bool]| {
        let begun = Instant::now();
        let ns = breeding.cost(bits);
        longest.set(longest.get().max(begun.elapsed()));
        ns
    };
    let Evolved { best, cost: best_ns, generations, .. } =
        evolve(genome.bits(), &rates(s), &mut cost, &is_over);
    let state = breeding.state.into_inner();
    evolution = Evolution {
        generations,
        individuals: state.individuals,
        failed: state.failed,
        why: state.why,
        op_level_ns: state.op_level_ns,
        engine_ns: state.engine_ns,
        best_ns: Some(best_ns).filter(|ns| ns.is_finite()),
        best_after_s: state.best_after_s,
        seconds: start.elapsed().as_secs_f64(),
        ..evolution
    };
    let plan = express(&genome, &best, op_level);
    if !s.cx.cancel.is_cancelled() {
        let ended = Ended { given: given.as_secs_f64(), best, evolution: evolution.clone() };
        let text =
            serde_json::to_string(&ended).map_err(|e| Error::Internal { what: e.to_string() })?;
        s.database.set_note(&note, &text)?;
    }
    placed.all = vec![plan];
    Ok(evolution)
}

fn sum_ns(placed: &Placed) -> f64 {
    placed.prediction.map_or(f64::NAN, |p| p.sum_ns)
}

fn rates(s: &Subject<'_>) -> Rates {
    let published = Rates::default();
    Rates { seed: published.seed.wrapping_add(s.cx.goal.seed), ..published }
}

/// The plan of an individual; the op level's where it has none.
fn express(genome: &Genome<'_>, bits: &[bool], op_level: &Placed) -> Placed {
    genome.express(bits).unwrap_or_else(|_| op_level.clone())
}

/// What is known of individuals so far.
#[derive(Default)]
struct State {
    individuals: usize,
    failed: usize,
    why: Option<String>,
    op_level_ns: Option<f64>,
    engine_ns: Option<f64>,
    best_ns: Option<f64>,
    best_after_s: f64,
}

struct Breeding<'a> {
    s: &'a Subject<'a>,
    genome: &'a Genome<'a>,
    floors: &'a contest::Floors,
    start: Instant,
    state: RefCell<State>,
}

impl Breeding<'_> {
    /// Mean time of an individual's plan in nanoseconds; infinite where it cannot be used.
    fn cost(&self, bits: &[bool]) -> f64 {
        let mut state = self.state.borrow_mut();
        let (done, best_ns) = (state.individuals, state.best_ns);
        let phase = "breed plans";
        (self.s.cx.progress)(&Progress { phase, done, total: 0, best_ns });
        state.individuals += 1;
        let ns = match self.time(bits) {
            Ok(ns) => ns,
            Err(error) => {
                state.failed += 1;
                state.why = Some(error.to_string());
                return f64::INFINITY;
            }
        };
        if bits.iter().all(|b| !b) {
            state.op_level_ns = Some(ns);
        }
        if bits.iter().all(|&b| b) {
            state.engine_ns = Some(ns);
        }
        if state.best_ns.is_none_or(|best| ns < best) {
            state.best_ns = Some(ns);
            state.best_after_s = self.start.elapsed().as_secs_f64();
        }
        ns
    }

    /// Opens, verifies and times a plan.
    fn time(&self, bits: &[bool]) -> Result<f64, Error> {
        let placed = [self.genome.express(bits)?];
        let contest = self.s.contest(&placed, self.floors, false);
        let mut open = contest::open(&contest, 0, &contest::key(&contest, &placed[0]))?;
        mean(&mut *open.plan)
    }
}

/// Mean time of a run in nanoseconds.
fn mean(plan: &mut dyn OpenPlan) -> Result<f64, Error> {
    let mut alone = Alone::new(plan);
    let fault = |e: bricolage_measure::SampleError| Error::Worker(e.0);
    let once = alone.sample(1).map_err(fault)?.max(Duration::from_nanos(1));
    let runs = (SAMPLE.as_secs_f64() / once.as_secs_f64()).clamp(1.0, f64::from(RUNS)) as u32;
    let mut spent = Duration::ZERO;
    for _ in 0..SAMPLES {
        spent += alone.sample(runs).map_err(fault)?;
    }
    Ok(spent.as_nanos() as f64 / f64::from(SAMPLES * runs))
}
