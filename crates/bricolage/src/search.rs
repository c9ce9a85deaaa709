//! The search for the best plan of one graph of fixed sizes: offers priced by measurement, covers, and a
//! contest between whole plans.

use crate::{
    Cx, Error, Evolution, Progress, constant_bytes, contest, evolution, inputs, line,
    worker::{Benches, Worker},
};
use bricolage_ir::Graph;
use bricolage_measure::{Database, Machine, MeasuringLock};
use bricolage_placement::{
    Chosen, MeasuredConversions, Method, Observed, Placed, Priced, Pricing, price_all,
};
use bricolage_tensor::Tensor;
use std::{
    cell::RefCell,
    collections::BTreeSet,
    rc::Rc,
    time::{Duration, Instant},
};

/// What is searched for.
pub(crate) struct Subject<'a> {
    pub(crate) cx: &'a Cx<'a>,
    pub(crate) database: &'a Database,
    pub(crate) machine: &'a Machine,
    /// Names the model, and the stage of it.
    pub(crate) name: &'a str,
    pub(crate) graph: &'a Graph,
    pub(crate) observed: &'a Observed<'a>,
    pub(crate) tensors: &'a [Tensor],
    pub(crate) started: Instant,
}

/// Whole plans, and what they are made of.
pub(crate) struct Placements {
    /// By an exact method the cheapest cover, every single backend that covers the graph, and what came of
    /// measuring those; by the others what they make.
    pub(crate) all: Vec<Placed>,
    pub(crate) priced: Priced,
}

/// What was found.
pub(crate) struct Found {
    pub(crate) placed: Placements,
    pub(crate) best: contest::Best,
    pub(crate) evolution: Option<Evolution>,
    pub(crate) warnings: Vec<String>,
}

/// Finds the best plan within the time limit of the goal.
pub(crate) fn search(s: &Subject<'_>) -> Result<Found, Error> {
    let cx = s.cx;
    let search = name_of(cx, s.name, s.graph, s.tensors);
    let limit = cx.goal.time_limit.map_or(f64::INFINITY, |l| l.as_secs_f64());
    let ended = s.database.note(&search)?.and_then(|text| text.parse::<f64>().ok());
    let exhausted = ended.is_some_and(|before| limit <= before);
    let (placed, evolution, best, doubted) = plans(s, &search, exhausted)?;
    if !cx.cancel.is_cancelled() && !exhausted {
        s.database.set_note(&search, &limit.to_string())?;
    }
    let mut warnings = best.warnings.clone();
    let effort = placed.priced.effort();
    let doubted = effort.doubted.iter().chain(&doubted);
    warnings.extend(doubted.map(|d| format!("a time in the cost database cannot be: {d}")));
    if effort.skipped > 0 {
        let (skipped, all) = (effort.skipped, placed.priced.count());
        warnings.push(match exhausted {
            true => format!(
                "an earlier search with as much time ended without {skipped} of {all} offers; one \
                 with a longer limit measures them"
            ),
            false => format!("there was no time to measure {skipped} of {all} offers"),
        });
    }
    Ok(Found { placed, best, evolution, warnings })
}

impl<'a> Subject<'a> {
    /// The contest between these plans.
    pub(crate) fn contest(
        &self,
        placed: &'a [Placed],
        floors: &'a contest::Floors,
        exhausted: bool,
    ) -> contest::Contest<'a> {
        let cx = self.cx;
        contest::Contest {
            cx,
            name: self.name,
            graph: self.graph,
            observed: self.observed,
            tensors: self.tensors,
            database: self.database,
            deadline: cx.goal.time_limit.and_then(|limit| {
                let saving = saving_time(limit, self.graph);
                self.started.checked_add(limit.saturating_sub(saving))
            }),
            exhausted,
            scratch: cx.cache.join("scratch"),
            placed,
            floors,
        }
    }
}

/// The name under which the database keeps how many seconds a search of this graph that ended was given: a search
/// with no more time has nothing left to do.
pub(crate) fn name_of(cx: &Cx<'_>, name: &str, graph: &Graph, tensors: &[Tensor]) -> String {
    let mut text = format!(
        "{name}\n{} threads, {:?}, seed {}\n",
        cx.goal.threads, cx.goal.policy, cx.goal.seed
    );
    if cx.goal.placement != Method::Exact {
        text.push_str(&format!("{}\n", cx.goal.placement));
    }
    for wish in cx.goal.wishes.in_words() {
        text.push_str(&format!("{wish}\n"));
    }
    text.push_str(&inputs::contents_name(graph, tensors));
    for backend in cx.registry.iter() {
        text.push_str(&format!("{} {}\n", backend.name(), backend.version()));
    }
    format!("search {}", blake3::hash(text.as_bytes()))
}

/// Under which the database keeps what a trial took in the last search that made some.
const PACE: &str = "seconds of a trial";
/// Trials that tell what one takes.
const PACE_TRIALS: usize = 20;

/// Seconds that a trial took in the last search on this machine, if there was one.
pub(crate) fn pace(database: &Database) -> Result<Option<f64>, Error> {
    Ok(database.note(PACE)?.and_then(|text| text.parse().ok()))
}

/// What [`plans`] found: placements, what an evolution found, the best, and doubted times of conversions.
type Contested = (Placements, Option<Evolution>, contest::Best, BTreeSet<String>);

/// Prices all offers, unless that was done, covers the graph, and has the plans compete: the best mix, each
/// backend alone, each engine's whole graph; or what the goal's other method makes of it.
fn plans(s: &Subject<'_>, contents: &str, exhausted: bool) -> Result<Contested, Error> {
    let &Subject { cx, graph, observed, started, .. } = s;
    let setting = cx.goal.setting();
    let scratch = cx.cache.join("scratch");
    let worker = cx
        .worker
        .clone()
        .map(|command| Rc::new(RefCell::new(Worker::new(command, setting.threads))));
    let search = match (exhausted, cx.goal.time_limit) {
        (false, Some(limit)) => Some(search_time(limit, graph, observed)),
        _ => None,
    };
    // Of all time, 0.85, 0.7 and 0.5 where the rest is enough for whole plans.
    let until = |share: f64| match (exhausted, search) {
        (true, _) => Some(started),
        (false, search) => search.and_then(|s| started.checked_add(s.mul_f64(share / 0.7))),
    };
    let deadline = until(0.7);
    let bench = Benches::new(cx.registry, line::pool(setting.threads)?, worker, scratch);
    bench.set_deadline(deadline);
    let pricing = Pricing {
        graph,
        setting,
        wishes: &cx.goal.wishes,
        database: s.database,
        contents,
        bench: &bench,
        observed,
        last_level_cache: s.machine.last_level_cache(),
        first_deadline: until(0.5),
        deadline,
        // A cover of what is known takes no measuring: a search that is repeated has time for it again.
        cover_deadline: match (exhausted, cx.goal.time_limit) {
            (true, limit) => limit.and_then(|l| started.checked_add(l.mul_f64(0.85))),
            (false, _) => until(0.85),
        },
        cancel: cx.cancel,
        progress: &|phase, done, total| {
            (cx.progress)(&Progress { phase, done, total, best_ns: None })
        },
    };
    let conversions = MeasuredConversions::new(&pricing, cx.registry);
    let begun = Instant::now();
    let placed = price_all(&pricing, cx.registry).and_then(|mut priced| {
        let trials = priced.effort().measured;
        if trials >= PACE_TRIALS {
            let pace = begun.elapsed().as_secs_f64() / trials as f64;
            s.database.set_note(PACE, &pace.to_string())?;
        }
        let all = priced.place(&pricing, cx.registry, &conversions, cx.goal.placement)?;
        Ok(Placements { all, priced })
    });
    let mut placed = placed.map_err(|error| {
        // Where the model itself cannot be evaluated, no kernel could be right.
        match graph.outputs.iter().find_map(|&v| observed.get(v).err()) {
            Some(fault) => Error::from(fault),
            None => Error::from(error),
        }
    })?;
    let floors = contest::Floors::default();
    let mut field = contest::Field::default();
    let mut evolution = None;
    match cx.goal.placement {
        Method::Exact | Method::OpLevel => {
            for whole in placed.priced.wholes(&pricing, cx.registry) {
                // The engine's own optimiser beats its single ops put together; those are no contender.
                let names: Vec<String> =
                    whole.backends().iter().map(|b| format!("{b} alone")).collect();
                placed.all.retain(|p| !names.contains(&p.name));
                placed.all.push(whole);
            }
            if exhausted {
                recall(s, &pricing, &conversions, &mut placed)?;
            }
            field.enter(&s.contest(&placed.all, &floors, exhausted))?;
            if !exhausted && cx.goal.placement == Method::Exact {
                let limit = cx.goal.time_limit;
                let deadline = limit.and_then(|l| started.checked_add(l.mul_f64(REFINING)));
                bench.set_deadline(deadline);
                let pricing = Pricing {
                    first_deadline: deadline,
                    deadline,
                    cover_deadline: deadline,
                    ..pricing
                };
                let more = MeasuredConversions::new(&pricing, cx.registry);
                refine(s, &pricing, &more, &mut placed, (&mut field, &floors))?;
                conversions.doubted.borrow_mut().extend(more.doubted.take());
            }
        }
        Method::Greedy => field.enter(&s.contest(&placed.all, &floors, exhausted))?,
        Method::CollageV1 => {
            evolution = Some(evolution::run(s, &pricing, &conversions, &mut placed, &floors)?);
            field.enter(&s.contest(&placed.all, &floors, exhausted))?;
        }
    }
    let best = field.choose(&s.contest(&placed.all, &floors, exhausted))?;
    Ok((placed, evolution, best, conversions.doubted.take()))
}

/// Share of the time limit after which nothing more is measured for another plan.
const REFINING: f64 = 0.8;
/// Covers that are made anew from what plans showed, at most.
const ROUNDS: usize = 10;
/// Covers in a row that brought nothing, after which no more are made.
const PATIENCE: usize = 2;
/// A cover brought something where it takes less than this share of what the best one before it took.
const BETTER: f64 = 0.99;
/// An engine whose own plan of the whole graph takes this many times as long as the best plan is not offered
/// long stretches of the graph.
const ENGINE_FAR: f64 = 1.5;

/// Measures what kernels take inside the plans so far and what engines that do well take for long stretches
/// of the graph, and makes the cheapest cover of that, until that is a plan that is known or a few of them were no
/// better than those before; then all are timed. A plan that is slower than it was predicted tells what its kernels
/// take inside it, and the next cover knows: no plan has to be ruled out by itself.
fn refine(
    s: &Subject<'_>,
    pricing: &Pricing<'_>,
    conversions: &MeasuredConversions<'_>,
    placed: &mut Placements,
    (field, floors): (&mut contest::Field, &contest::Floors),
) -> Result<(), Error> {
    let is_over = || {
        let late = pricing.deadline.is_some_and(|d| Instant::now() >= d);
        late || s.cx.cancel.is_cancelled()
    };
    let (mut least_ns, mut in_vain) = (f64::INFINITY, 0);
    for round in 0..ROUNDS {
        if is_over() {
            break;
        }
        let in_plan = field.in_plan(&s.contest(&placed.all, floors, false))?;
        in_vain = if in_plan.least_ns() < BETTER * least_ns { 0 } else { in_vain + 1 };
        least_ns = least_ns.min(in_plan.least_ns());
        if in_vain == PATIENCE {
            break;
        }
        if round == 0 {
            let all = (0..placed.all.len()).filter_map(|i| field.median_ns(i));
            let best = all.fold(f64::INFINITY, f64::min);
            let near = |i: usize| field.median_ns(i).is_some_and(|ns| ns <= ENGINE_FAR * best);
            let wholes = placed.all.iter().enumerate().filter(|(_, p)| p.prediction.is_none());
            let engines = wholes.filter(|(i, _)| near(*i)).flat_map(|(_, p)| p.backends());
            let engines: Vec<_> =
                engines.filter_map(|b| s.cx.registry.get(&b).ok().cloned()).collect();
            placed.priced.widen(pricing, &engines)?;
        }
        let name = format!("mixed {}", round + 2);
        let again = placed.priced.place_again(pricing, conversions, &in_plan, &name)?;
        if field.has(&s.contest(&placed.all, floors, false), &again) {
            break;
        }
        placed.all.push(again);
        field.enter_untimed(&s.contest(&placed.all, floors, false))?;
    }
    field.enter(&s.contest(&placed.all, floors, false))?;
    if s.cx.cancel.is_cancelled() {
        return Ok(());
    }
    // What there was no time to verify and time is left to a search with more.
    let covers = placed.all.iter().enumerate().filter(|(_, p)| p.prediction.is_some());
    let timed = covers.filter(|(i, _)| field.median_ns(*i).is_some());
    let timed: Vec<(&str, Vec<Chosen>)> = timed.map(|(_, p)| (&*p.name, p.chosen())).collect();
    let text =
        serde_json::to_string(&timed).map_err(|e| Error::Internal { what: e.to_string() })?;
    Ok(s.database.set_note(&covers_of(pricing.contents), &text)?)
}

/// Under which the database keeps the covers that a search timed, by their names, with what else could have been.
fn covers_of(search: &str) -> String {
    format!("covers {search}")
}

/// Takes the covers that an earlier search timed for those made now: what it measured since the first of them
/// may tell in favour of others, which only a longer search times.
fn recall(
    s: &Subject<'_>,
    pricing: &Pricing<'_>,
    conversions: &MeasuredConversions<'_>,
    placed: &mut Placements,
) -> Result<(), Error> {
    let known = s.database.note(&covers_of(pricing.contents))?;
    let known = known.and_then(|text| serde_json::from_str(&text).ok());
    let known: Vec<(String, Vec<Chosen>)> = known.unwrap_or_default();
    let bound_ns = placed.all.iter().find_map(|p| p.prediction).map_or(0.0, |p| p.bound_ns);
    let mut recalled = Vec::new();
    for (name, chosen) in known {
        if let Some(same) = placed.all.iter().find(|p| p.is_by(&chosen)) {
            recalled.push(Placed { name, ..same.clone().with_alternatives(&chosen) });
            continue;
        }
        let (registry, priced) = (s.cx.registry, &mut placed.priced);
        let again = priced.place_chosen(pricing, registry, conversions, &chosen, &name)?;
        recalled.extend(again.map(|cover| Placed {
            prediction: cover.prediction.map(|p| p.known_before(bound_ns)),
            ..cover
        }));
    }
    if !recalled.is_empty() {
        placed.all.retain(|p| p.prediction.is_none());
        recalled.append(&mut placed.all);
        placed.all = recalled;
    }
    Ok(())
}

/// How much of the time limit goes into measuring regions. The rest is for whole plans: each is opened,
/// verified and timed, and each kind of noise floor that they have takes about twice as long as the
/// reference evaluation, which is needed in any case.
fn search_time(limit: Duration, graph: &Graph, observed: &Observed<'_>) -> Duration {
    const FLOORS: u32 = 3;
    const PLANS: Duration = Duration::from_secs(2);
    let start = Instant::now();
    if let Some(&output) = graph.outputs.first() {
        // Who needs the content meets the error.
        let _ = observed.get(output);
    }
    // The graph before rewriting is evaluated once as well.
    let plans = PLANS + (2 * FLOORS + 1) * start.elapsed();
    limit.saturating_sub(plans).clamp(limit.mul_f64(0.25), limit.mul_f64(0.7))
}

/// What is left of the time limit for saving: kernels are compiled, and weights packed, hashed and written.
fn saving_time(limit: Duration, graph: &Graph) -> Duration {
    const BYTES_A_SECOND: f64 = 100e6;
    let weights = constant_bytes(graph) as f64;
    Duration::from_secs_f64(weights / BYTES_A_SECOND).min(limit.mul_f64(0.1))
}

/// Between two attempts to get the machine's lock.
const RETRY: Duration = Duration::from_millis(50);

/// Waits for other measuring processes, and says so.
pub(crate) fn lock(
    cx: &Cx<'_>,
    warnings: &mut Vec<String>,
) -> Result<Option<MeasuringLock>, Error> {
    let start = Instant::now();
    let mut waits = false;
    loop {
        match MeasuringLock::try_take(&cx.cache) {
            Ok(Some(lock)) => {
                if waits {
                    warnings.push(format!(
                        "waited {:.1} s for another measuring process, besides the time limit",
                        start.elapsed().as_secs_f64()
                    ));
                }
                return Ok(Some(lock));
            }
            Ok(None) if cx.cancel.is_cancelled() => return Err(Error::Interrupted),
            Ok(None) => {
                waits = true;
                let phase = "wait for another measuring process";
                (cx.progress)(&Progress { phase, done: 0, total: 0, best_ns: None });
                std::thread::sleep(RETRY);
            }
            Err(e) => {
                warnings.push(format!("measured without the machine's lock: {e}"));
                return Ok(None);
            }
        }
    }
}
