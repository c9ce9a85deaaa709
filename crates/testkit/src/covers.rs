//! Placements without measuring: by guesses, or by prices drawn at random, so that candidates that are
//! never the fastest are used too.

use crate::{Case, Fault, Workers, engines::last_level_cache, workers::PATIENCE};
use bricolage::worker::{self, Benches, Worker};
use bricolage_backend::{Registry, Setting};
use bricolage_ir::NodeId;
use bricolage_measure::{Database, Machine, Measurement, Record};
use bricolage_placement::{
    Form, Method, Observed, Offer, Placed, Pricing, Unpriced, Wishes, check_offer, gather,
    price_all,
};
use bricolage_runtime::Cancel;
use bricolage_tensor::Rng;
use std::{
    cell::RefCell,
    collections::HashMap,
    rc::Rc,
    time::{Duration, Instant},
};

/// Who decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The backends' guesses.
    Guessed,
    /// Chance.
    Random,
}

/// How covers of random prices are found, one after another.
const RANDOM_COVERS: [Method; 5] =
    [Method::Exact, Method::Exact, Method::Exact, Method::CollageV1, Method::Greedy];

/// Runs `f` with a pricing that measures nothing, whose trials of foreign kernels are in `worker`.
fn with_pricing<R>(
    case: &Case,
    registry: &Registry,
    setting: Setting,
    worker: Option<&Rc<RefCell<Worker>>>,
    f: impl FnOnce(&Pricing<'_>) -> Result<R, String>,
) -> Result<R, String> {
    let database = Database::in_memory(&Machine::read()).map_err(|e| e.to_string())?;
    let data = case.data();
    let observed = Observed::new(&case.graph, &data);
    let pool = bricolage::pool(setting.threads).map_err(|e| e.to_string())?;
    let now = Instant::now();
    let bench = Benches::new(registry, pool, worker.cloned(), std::env::temp_dir());
    bench.set_deadline(now.checked_add(PATIENCE));
    f(&Pricing {
        graph: &case.graph,
        setting,
        wishes: &Wishes::default(),
        database: &database,
        contents: "",
        bench: &bench,
        observed: &observed,
        last_level_cache: last_level_cache(),
        first_deadline: Some(now),
        deadline: Some(now),
        cover_deadline: now.checked_add(Duration::from_millis(200)),
        cancel: &Cancel::default(),
        progress: &|_, _, _| {},
    })
}

/// Covers of the case's graph.
pub(crate) fn covers(
    case: &Case,
    registry: &Registry,
    setting: Setting,
    choice: Choice,
) -> Result<Vec<Placed>, String> {
    let methods = if choice == Choice::Random { &RANDOM_COVERS[..] } else { &[Method::Exact][..] };
    let mut all = Vec::new();
    for (round, &method) in methods.iter().enumerate() {
        let placed = with_pricing(case, registry, setting, None, |pricing| {
            if choice == Choice::Random {
                draw_prices(pricing, registry, round as u64)?;
            }
            let priced = price_all(pricing, registry);
            let placed =
                priced.and_then(|mut p| p.place(pricing, registry, &Unpriced(registry), method));
            placed.map_err(|e| e.to_string())
        })?;
        all.extend(placed.into_iter().next());
    }
    Ok(all)
}

/// Puts a random time of every offer into the database.
fn draw_prices(p: &Pricing<'_>, registry: &Registry, seed: u64) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    for offer in gather(p.graph, registry, &p.setting).map_err(|e| e.to_string())?.all {
        if matches!(offer.form, Form::View) {
            continue;
        }
        // More nodes may take longer, so that large regions do not always win.
        let share = offer.candidate.region.nodes.len() as f64;
        let ns = 100.0 * share * (2.0 * rng.normal()).exp();
        let Some(measurement) = Measurement::of(&[ns, ns, ns], 1, false) else { continue };
        let record =
            Record::Measured { measurement, error_share: 0.0, workspace: 0, refined: true };
        p.database.put(&offer.key, &record).map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// The noise that the kernels of a placement add, by node.
pub(crate) fn noise_of(placed: &Placed) -> impl Fn(NodeId) -> f64 + use<> {
    let noise: HashMap<NodeId, f64> = placed.noise().into_iter().collect();
    move |node| noise.get(&node).copied().unwrap_or(0.0)
}

/// A candidate in words, and its error as a share of the allowed one.
type Verdict = (String, Result<f64, String>);

/// Compiles and checks every candidate for itself; foreign ones in one of `workers`, up to one that ends it.
pub(crate) fn candidates(
    case: &Case,
    registry: &Registry,
    setting: Setting,
    workers: Option<&Workers>,
) -> Result<Vec<Verdict>, Fault> {
    let gathered = |p: &Pricing<'_>| {
        let offers = gather(p.graph, registry, &setting).map_err(|e| e.to_string())?;
        let is_kernel = |o: &Offer| matches!(o.form, Form::Kernel(_));
        Ok(verdicts(p, &offers.all.into_iter().filter(is_kernel).collect::<Vec<_>>()))
    };
    tried(case, registry, setting, workers, gathered)
}

/// Compiles and checks a backend's candidate for the whole graph, the same way.
pub(crate) fn whole(
    case: &Case,
    registry: &Registry,
    setting: Setting,
    workers: &Workers,
    offer: &Offer,
) -> Result<Vec<Verdict>, Fault> {
    let one = |p: &Pricing<'_>| Ok(verdicts(p, std::slice::from_ref(offer)));
    tried(case, registry, setting, Some(workers), one)
}

fn tried(
    case: &Case,
    registry: &Registry,
    setting: Setting,
    workers: Option<&Workers>,
    f: impl FnOnce(&Pricing<'_>) -> Result<Vec<Verdict>, String>,
) -> Result<Vec<Verdict>, Fault> {
    let with =
        |worker: Option<&Rc<RefCell<Worker>>>| with_pricing(case, registry, setting, worker, f);
    let verdicts = match workers {
        Some(workers) => workers.with(setting.threads, |worker| with(Some(worker))),
        None => with(None),
    };
    verdicts.map_err(Fault::Failed)
}

fn verdicts(p: &Pricing<'_>, offers: &[Offer]) -> Vec<Verdict> {
    let mut all = Vec::new();
    for offer in offers {
        let nodes = offer.candidate.region.origin(p.graph).join(" ");
        let what = format!("{} `{}` for {nodes}", offer.backend(), offer.candidate);
        let verdict = check_offer(p, offer).map_err(|e| e.why);
        let ended = verdict.as_ref().is_err_and(|why| worker::ended(why));
        all.push((what, verdict));
        if ended {
            break;
        }
    }
    all
}
