//! Placements without measuring: by guesses, or by prices drawn at random, so that candidates that are
//! never the fastest are used too.

use crate::{Case, Fault, engines::last_level_cache};
use bricolage_backend::{Registry, Setting};
use bricolage_ir::NodeId;
use bricolage_measure::{Database, Machine, Measurement, Record};
use bricolage_placement::{
    Bench, Form, LocalTrial, Method, Observed, OpenTrial, Placed, Pricing, Trial, TrialError,
    Unpriced, check_offer, gather, price_all,
};
use bricolage_runtime::{Cancel, Pool};
use bricolage_tensor::Rng;
use std::{
    collections::HashMap,
    sync::Arc,
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

struct Local<'a> {
    registry: &'a Registry,
    pool: Arc<dyn Pool + Send + Sync>,
}

impl Bench for Local<'_> {
    fn open<'a>(&'a self, _: &str, trial: Trial) -> Result<Box<dyn OpenTrial + 'a>, TrialError> {
        Ok(Box::new(LocalTrial::open(trial, self.registry, self.pool.clone())?))
    }
}

/// Runs `f` with a pricing that measures nothing.
fn with_pricing<R>(
    case: &Case,
    registry: &Registry,
    setting: Setting,
    f: impl FnOnce(&Pricing<'_>) -> Result<R, String>,
) -> Result<R, String> {
    let database = Database::in_memory(&Machine::read()).map_err(|e| e.to_string())?;
    let data = case.data();
    let observed = Observed::new(&case.graph, &data);
    let pool = bricolage::pool(setting.threads).map_err(|e| e.to_string())?;
    let now = Instant::now();
    f(&Pricing {
        graph: &case.graph,
        setting,
        wishes: &[],
        database: &database,
        contents: "",
        bench: &Local { registry, pool },
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
        let placed = with_pricing(case, registry, setting, |pricing| {
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

/// Compiles and checks every candidate for itself.
pub(crate) fn candidates(
    case: &Case,
    registry: &Registry,
    setting: Setting,
) -> Result<Vec<Verdict>, Fault> {
    let result = with_pricing(case, registry, setting, |p| {
        let offers = gather(p.graph, registry, &setting).map_err(|e| e.to_string())?;
        let kernels = offers.all.iter().filter(|o| matches!(o.form, Form::Kernel(_)));
        let checked = kernels.map(|offer| {
            let nodes = offer.candidate.region.origin(p.graph).join(" ");
            let what = format!("{} `{}` for {nodes}", offer.backend(), offer.candidate);
            (what, check_offer(p, offer).map_err(|e| e.why))
        });
        Ok(checked.collect())
    });
    result.map_err(Fault::Failed)
}
