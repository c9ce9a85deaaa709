//! Whole plans against each other: verified, timed in turn, and the best single backend kept unless
//! a mix is faster beyond noise.

mod timing;
mod verify;

pub(crate) use verify::{Floors, open, save_scratch};

use crate::{
    Cx, Emitted, Error, Temporary, artefact::Allowed, inputs, line, report, worker::OpenPlan,
};
use bricolage_ir::{Graph, NodeId};
use bricolage_measure::{Database, Key, Measurement, Ratio, Record};
use bricolage_placement::{Form, Observed, Placed, PlacedConversion, impossible, least_ns};
use bricolage_tensor::Tensor;
use std::{path::PathBuf, time::Instant};

/// What whole plans are compared on.
pub(crate) struct Contest<'a> {
    pub(crate) cx: &'a Cx<'a>,
    /// Names the model, and the stage of it.
    pub(crate) name: &'a str,
    pub(crate) graph: &'a Graph,
    pub(crate) observed: &'a Observed<'a>,
    pub(crate) tensors: &'a [Tensor],
    pub(crate) database: &'a Database,
    pub(crate) deadline: Option<Instant>,
    /// An earlier search with as much time ended: what it had no time for is left as it is.
    pub(crate) exhausted: bool,
    pub(crate) scratch: PathBuf,
    pub(crate) placed: &'a [Placed],
    pub(crate) floors: &'a Floors,
}

/// The plan that was chosen.
pub(crate) struct Best {
    /// Index into the placements.
    pub(crate) chosen: usize,
    pub(crate) emitted: Emitted,
    pub(crate) outputs: Vec<Tensor>,
    pub(crate) allowed: Vec<Allowed>,
    pub(crate) error_share: f64,
    pub(crate) contenders: Vec<report::Contender>,
    /// What its regions take inside it, in nanoseconds; empty where it was not traced.
    pub(crate) in_plan: Vec<Option<f64>>,
    pub(crate) ratio: Option<Ratio>,
    pub(crate) known: usize,
    pub(crate) measured: usize,
    pub(crate) warnings: Vec<String>,
}

/// Everything that decides a plan, as text: the key of its end-to-end time.
pub(crate) fn key(c: &Contest<'_>, placed: &Placed) -> Key {
    let mut text = format!(
        "plan 1\nbricolage {}\nmodel {}\nthreads {} seed {}\n",
        env!("CARGO_PKG_VERSION"),
        c.name,
        c.cx.goal.threads,
        c.cx.goal.seed
    );
    text.push_str(&inputs::contents_name(c.graph, c.tensors));
    for region in &placed.regions {
        let nodes: Vec<u32> = region.region().nodes.iter().map(|n| n.0).collect();
        let version = match &region.offer.form {
            Form::Kernel(backend) => backend.version(),
            Form::View => String::new(),
        };
        text.push_str(&format!(
            "{} {version} {} {nodes:?}\n",
            region.offer.backend(),
            region.offer.candidate
        ));
    }
    for conversion in &placed.conversions {
        let PlacedConversion { value, from, to, backend, .. } = conversion;
        text.push_str(&format!("{} {from} {to} {backend}\n", value.0));
    }
    Key(text)
}

/// One plan in the contest.
struct Entry {
    placed: usize,
    key: Key,
    open: Option<Box<dyn OpenPlan>>,
    /// For each region, the step of the open plan that computes it.
    step_of_region: Vec<Option<usize>>,
    measured: Option<Measurement>,
    refused: Option<String>,
    _scratch: Option<Temporary>,
}

impl Entry {
    /// Keeps the plan open.
    fn hold(&mut self, opened: verify::OpenEntry) {
        self.open = Some(opened.plan);
        self.step_of_region = opened.step_of_region;
        self._scratch = opened.scratch;
    }
}

/// The plans that entered a contest. Plans may enter while it goes on; those that are open stay so.
#[derive(Default)]
pub(crate) struct Field {
    entries: Vec<Entry>,
    /// For each placement, its entry: placements may be the same plan.
    entry_of: Vec<usize>,
    known: usize,
    measured: usize,
    warnings: Vec<String>,
}

impl Field {
    /// Enters the placements of the contest that have not entered yet. Where the time of one is not known, all
    /// are verified and timed in turn, unless the search is exhausted and another one is known.
    pub(crate) fn enter(&mut self, c: &Contest<'_>) -> Result<(), Error> {
        let news = self.admit(c)?;
        let is_timed = |e: &Entry| e.measured.is_some();
        if c.exhausted && self.entries.iter().any(is_timed) {
            return Ok(());
        }
        self.measured += news;
        let entries = &mut self.entries;
        if entries.iter().any(|e| !is_timed(e) && e.refused.is_none()) {
            // Times are compared within one run only: all are taken again when one is new.
            timing::time_all(c, entries)?;
        }
        Ok(())
    }

    /// Enters the placements of the contest that have not entered yet, and verifies them; they are timed when
    /// others [enter](Field::enter).
    pub(crate) fn enter_untimed(&mut self, c: &Contest<'_>) -> Result<(), Error> {
        self.measured += self.admit(c)?;
        timing::open_all(c, &mut self.entries)
    }

    /// Takes placements that are new as entries, with what the database knows of them. How many it does not know.
    fn admit(&mut self, c: &Contest<'_>) -> Result<usize, Error> {
        let nodes: Vec<NodeId> = c.graph.nodes().collect();
        let least = least_ns(c.graph, &nodes, &[], c.cx.goal.threads);
        let mut news = 0;
        for i in self.entry_of.len()..c.placed.len() {
            let key = key(c, &c.placed[i]);
            if let Some(at) = self.entries.iter().position(|e| e.key == key) {
                self.entry_of.push(at);
                continue;
            }
            let (mut measured, mut refused) = (None, None);
            let mut record = c.database.get(&key)?;
            if let Some(Record::Measured { measurement, .. }) = &record
                && let Some(why) = impossible(measurement, least)
            {
                let name = &c.placed[i].name;
                self.warnings
                    .push(format!("a time in the cost database cannot be: plan `{name}`: {why}"));
                record = None;
            }
            match record {
                Some(Record::Measured { measurement, refined, .. }) if refined || c.exhausted => {
                    measured = Some(measurement);
                }
                Some(Record::Refused(why)) => refused = Some(why),
                // What a deadline cut short is timed again by a search with more time.
                Some(Record::Measured { .. }) | None => {}
            }
            match measured.is_some() || refused.is_some() {
                true => self.known += 1,
                false => news += 1,
            }
            self.entry_of.push(self.entries.len());
            self.entries.push(Entry {
                placed: i,
                key,
                open: None,
                step_of_region: Vec::new(),
                measured,
                refused,
                _scratch: None,
            });
        }
        Ok(news)
    }

    /// Whether the placement is one of the plans that entered.
    pub(crate) fn has(&self, c: &Contest<'_>, placed: &Placed) -> bool {
        let key = key(c, placed);
        self.entries.iter().any(|e| e.key == key)
    }

    /// The median time of a placement's plan in nanoseconds, if it was timed.
    pub(crate) fn median_ns(&self, placed: usize) -> Option<f64> {
        let entry = self.entry_of.get(placed).and_then(|&e| self.entries.get(e))?;
        entry.measured.as_ref().map(|m| m.median_ns)
    }
}

/// Plans whose medians are within this ratio are compared pair by pair.
const CLOSE: f64 = 1.3;
/// Mixes that are compared with the best single backend, at most.
const MOST_MIXES: usize = 3;

impl Field {
    /// The best single backend, unless a mix is faster beyond noise.
    pub(crate) fn choose(self, c: &Contest<'_>) -> Result<Best, Error> {
        let Field { mut entries, entry_of, known, measured: news, mut warnings } = self;
        let charge = |e: &Entry| c.cx.goal.wishes.charge(&c.placed[e.placed].backends());
        // With what the user charges for its backends.
        let median = |e: &Entry| e.measured.as_ref().map(|m| m.median_ns + charge(e));
        let is_less = |entries: &[Entry], r: &Ratio, a: usize, b: usize| {
            let other = entries[b].measured.as_ref().map_or(0.0, |m| m.median_ns);
            r.ci95.1 * other + charge(&entries[a]) < other + charge(&entries[b])
        };
        let mut singles = vec![false; entries.len()];
        for (placed, &entry) in c.placed.iter().zip(&entry_of) {
            singles[entry] |= placed.is_single();
        }
        let single = |i: &usize| singles[*i];
        let by_time = |only: &dyn Fn(&usize) -> bool| {
            let mut all: Vec<(usize, f64)> = (0..entries.len())
                .filter(|i| only(i))
                .filter_map(|i| Some((i, median(&entries[i])?)))
                .collect();
            all.sort_by(|a, b| a.1.total_cmp(&b.1));
            all
        };
        let (singles, mixes) = (by_time(&single), by_time(&|i| !single(i)));
        let mut best_single = singles.first().map(|s| s.0);
        if let [(first, a), (second, b), ..] = singles[..]
            && b <= CLOSE * a
            && !c.cx.cancel.is_cancelled()
            && let Some(ratio) = timing::compare(c, &mut entries, second, first, &mut warnings)?
            && is_less(&entries, &ratio, second, first)
        {
            best_single = Some(second);
            let name = |e: usize| &c.placed[entries[e].placed].name;
            warnings.push(format!(
            "`{}` comes before `{}`: in pairs it took {:.3} ({:.3} to {:.3}) of the other's time, \
             which outweighs the medians",
            name(second),
            name(first),
            ratio.median,
            ratio.ci95.0,
            ratio.ci95.1
        ));
        }
        let mut chosen = match (best_single, mixes.first()) {
            (Some(s), _) => s,
            (None, Some(&(m, _))) => m,
            // Nothing was timed: prices favour the first plan, if it is right.
            (None, None) => entries.iter().position(|e| e.refused.is_none()).unwrap_or(0),
        };
        let mut ratio = None;
        // The fastest mix first: those behind it have a try where it is not faster beyond noise. Medians tell only
        // who is worth it, for a machine may have been slower for one of the two.
        for &(m, _) in mixes.iter().take(MOST_MIXES) {
            let times = |s| median(&entries[m]).zip(median(&entries[s]));
            let is_close = |&s: &usize| times(s).is_some_and(|(m, s)| m <= CLOSE * s);
            let Some(s) = best_single.filter(is_close) else { break };
            let paired = match c.cx.cancel.is_cancelled() {
                false => timing::compare(c, &mut entries, m, s, &mut warnings)?,
                true => None,
            };
            // Without pairs the race must tell: the intervals lie apart.
            let apart = match (&entries[m].measured, &entries[s].measured) {
                (Some(a), Some(b)) => {
                    a.ci95_ns.1 + charge(&entries[m]) < b.ci95_ns.0 + charge(&entries[s])
                }
                _ => false,
            };
            ratio = ratio.or(paired);
            if paired.map_or(apart, |r| is_less(&entries, &r, m, s)) {
                (chosen, ratio) = (m, paired);
                break;
            }
        }
        let placed = entries[chosen].placed;
        if let Some(why) = &entries[chosen].refused
            && entries[chosen].measured.is_none()
        {
            return Err(match c.cx.cancel.is_cancelled() {
                true => Error::Interrupted,
                false => Error::Mismatch {
                    what: format!(
                        "no plan could be used; `{}` of {}: {why}",
                        c.placed[placed].name,
                        c.placed[placed].backends().join(", ")
                    ),
                },
            });
        }
        let contenders = (0..c.placed.len())
            .map(|p| {
                let entry = &entries[entry_of[p]];
                report::Contender {
                    name: c.placed[p].name.clone(),
                    backends: c.placed[p].backends(),
                    measured: entry.measured.clone(),
                    prediction: c.placed[p].prediction.as_ref().map(report::Prediction::of),
                    refused: entry.refused.clone(),
                    chosen: entry_of[p] == chosen,
                    numerics: c.placed[p].numerics().iter().map(|n| n.to_string()).collect(),
                }
            })
            .collect();
        for (at, entry) in entries.iter().enumerate() {
            if let Some(why) = &entry.refused {
                // Placements may be the same plan.
                let named = c.placed.iter().zip(&entry_of).filter(|&(_, &e)| e == at);
                let names: Vec<&str> = named.map(|(p, _)| &*p.name).collect();
                warnings.push(format!("plan `{}` was left out: {why}", names.join("`, `")));
            }
        }
        let in_plan = timing::known_in_plan(c, &entries[chosen])?.unwrap_or_default();
        let key = entries[chosen].key.clone();
        let shown = entries[chosen].open.as_mut().and_then(|open| {
            open.resume();
            open.outputs().ok()
        });
        drop(entries);
        let emitted = line::emit_checked(c.cx.registry, &c.cx.goal, c.graph, &c.placed[placed])?;
        let outputs = match shown {
            Some(outputs) => outputs.into_iter().map(|(_, t)| t).collect(),
            None => verify::final_outputs(c, placed, &emitted)?,
        };
        let note = c.database.note(&format!("verified {}", blake3::hash(key.0.as_bytes())))?;
        let verified = note.and_then(|n| serde_json::from_str::<verify::Verified>(&n).ok());
        // Other bits than those that were compared are compared themselves.
        let (allowed, error_share) =
            match verified.filter(|v| v.outputs == verify::hash_of(&outputs)) {
                Some(verified) => (verified.allowed, verified.error_share),
                None => {
                    let allowed = verify::allowed(c, &c.placed[placed])?;
                    let share = verify::error_share(c, &outputs, &allowed)?;
                    (allowed, share)
                }
            };
        Ok(Best {
            chosen: placed,
            emitted,
            outputs,
            allowed,
            error_share,
            contenders,
            in_plan,
            ratio,
            known,
            measured: if c.cx.cancel.is_cancelled() { 0 } else { news },
            warnings,
        })
    }
}
