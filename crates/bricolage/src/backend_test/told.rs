//! What was found of a backend, gathered into checks.

use serde::Serialize;
use std::collections::BTreeMap;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It holds.
    Passed,
    /// It does not hold.
    Failed,
    /// Nothing, or not everything, could be tried.
    Untried,
}

/// One thing that a backend must keep to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// One word.
    pub name: &'static str,
    /// How it ended.
    pub verdict: Verdict,
    /// What was tried and found.
    pub said: String,
    /// What went wrong, the first few.
    pub faults: Vec<String>,
}

/// Faults of a check that are kept.
const FAULTS: usize = 5;

/// The faults of one check.
#[derive(Default)]
struct Faults {
    first: Vec<String>,
    count: usize,
}

impl Faults {
    fn add(&mut self, fault: String) {
        self.count += 1;
        if self.first.len() < FAULTS {
            self.first.push(fault);
        }
    }
}

/// Everything that was found so far.
pub(super) struct Told {
    patterns: Vec<(String, usize)>,
    own_threads: Option<u32>,
    refusals: BTreeMap<String, usize>,
    right: usize,
    extremes: usize,
    agreed: usize,
    disagreed: usize,
    /// Largest error as a share of the allowed one.
    share: f64,
    stopped: usize,
    threads_seen: usize,
    threads_lent: usize,
    grown: Option<(u64, usize)>,
    wrong: Faults,
    wrong_extremes: Faults,
    outside: Faults,
    differing: Faults,
    lost: Faults,
    unstopped: Faults,
    threads: Faults,
    leaks: Faults,
}

/// What a reason of a refusal is about.
enum Kind {
    Outside,
    Differing,
    Lost,
    Wrong,
}

/// In a reason that is about the padding of a layout.
const PADDING: &str = "in the padding";

fn kind(why: &str) -> Kind {
    match why {
        _ if why.contains("wrote outside") || why.contains(PADDING) => Kind::Outside,
        _ if why.contains("two runs on equal inputs differ") => Kind::Differing,
        _ if why.contains("the process that ran it") || why.contains("it did not answer") => {
            Kind::Lost
        }
        _ => Kind::Wrong,
    }
}

impl Told {
    pub(super) fn new(patterns: &[&str], own_threads: Option<u32>) -> Told {
        Told {
            patterns: patterns.iter().map(|&p| (p.to_owned(), 0)).collect(),
            own_threads,
            refusals: BTreeMap::new(),
            right: 0,
            extremes: 0,
            agreed: 0,
            disagreed: 0,
            share: 0.0,
            stopped: 0,
            threads_seen: 0,
            threads_lent: 0,
            grown: None,
            wrong: Faults::default(),
            wrong_extremes: Faults::default(),
            outside: Faults::default(),
            differing: Faults::default(),
            lost: Faults::default(),
            unstopped: Faults::default(),
            threads: Faults::default(),
            leaks: Faults::default(),
        }
    }

    /// Graphs were found that the pattern takes.
    pub(super) fn met(&mut self, pattern: usize, graphs: usize) {
        self.patterns[pattern].1 += graphs;
    }

    pub(super) fn refused(&mut self, why: String) {
        // A process that ended is no refusal.
        match kind(&why) {
            Kind::Lost => self.lost.add(why),
            _ => *self.refusals.entry(why).or_default() += 1,
        }
    }

    /// Keeps a fault that is not about numbers; gives one that is back.
    fn fault(&mut self, what: &str, why: String) -> Option<String> {
        let said = format!("{what}: {why}");
        match kind(&why) {
            Kind::Outside => self.outside.add(said),
            Kind::Differing => self.differing.add(said),
            Kind::Lost => self.lost.add(said),
            Kind::Wrong => return Some(said),
        }
        None
    }

    pub(super) fn result(&mut self, what: &str, found: Result<f64, String>) {
        match found {
            Ok(share) => {
                self.right += 1;
                self.share = self.share.max(share);
            }
            Err(why) => {
                if let Some(said) = self.fault(what, why) {
                    self.wrong.add(said);
                }
            }
        }
    }

    pub(super) fn extreme(&mut self, what: &str, found: Result<f64, String>) {
        match found {
            Ok(_) => self.extremes += 1,
            Err(why) => {
                if let Some(said) = self.fault(what, why) {
                    self.wrong_extremes.add(said);
                }
            }
        }
    }

    pub(super) fn not_numbers(&mut self, what: &str, found: Result<f64, String>) {
        match found {
            Ok(_) => self.agreed += 1,
            // Zeros of padding that met what is no number are none any more.
            Err(why) if why.contains(PADDING) => self.disagreed += 1,
            Err(why) => self.disagreed += usize::from(self.fault(what, why).is_some()),
        }
    }

    pub(super) fn stopped(&mut self, what: &str, found: Result<(), String>) {
        match found {
            Ok(()) => self.stopped += 1,
            Err(why) => self.unstopped.add(format!("{what}: {why}")),
        }
    }

    pub(super) fn threads(&mut self, seen: Option<usize>, lent: usize) {
        let Some(seen) = seen else { return };
        self.threads_seen = self.threads_seen.max(seen);
        self.threads_lent = self.threads_lent.max(lent);
        if let Some(own) = self.own_threads
            && seen > lent + own as usize
            && self.threads.count == 0
        {
            self.threads
                .add(format!("needs at most {lent} lent and {own} of its own, found {seen}"));
        }
    }

    pub(super) fn grown(&mut self, what: &str, bytes: u64, rounds: usize, most: u64) {
        let (known, all) = self.grown.unwrap_or_default();
        self.grown = Some((known.max(bytes), all + rounds));
        if bytes > most {
            self.leaks.add(format!("{what}: {bytes} bytes over {rounds} kernels"));
        }
    }

    /// One check a line.
    pub(super) fn checks(self) -> Vec<Check> {
        let check = |name, faults: Faults, tried: usize, said: String| {
            let verdict = match (faults.count, tried) {
                (0, 0) => Verdict::Untried,
                (0, _) => Verdict::Passed,
                _ => Verdict::Failed,
            };
            let said = match faults.count {
                0 => said,
                count => format!("{said}; {count} faults"),
            };
            Check { name, verdict, said, faults: faults.first }
        };
        let graphs: usize = self.patterns.iter().map(|(_, n)| n).sum();
        let unmet: Vec<&str> =
            self.patterns.iter().filter(|(_, n)| *n == 0).map(|(p, _)| p.as_str()).collect();
        let tried = self.right
            + self.wrong.count
            + self.outside.count
            + self.differing.count
            + self.lost.count;
        let mut patterns = format!(
            "{} of {} met by {graphs} graphs that were drawn",
            self.patterns.len() - unmet.len(),
            self.patterns.len()
        );
        if !unmet.is_empty() {
            patterns +=
                &format!("; not met: {} (name a model that has such regions)", unmet.join(", "));
        }
        let refusals = self.refusals.iter().map(|(why, n)| format!("{why} ({n}x)"));
        let refusals: Vec<String> = refusals.take(FAULTS).collect();
        let (grown, rounds) = self.grown.unwrap_or_default();
        let own = match self.own_threads {
            Some(own) => format!("{own} of its own declared"),
            None => "it does not declare its own".to_owned(),
        };
        let verdict = match () {
            () if graphs == 0 && tried == 0 => Verdict::Failed,
            () if !unmet.is_empty() => Verdict::Untried,
            () => Verdict::Passed,
        };
        let processes =
            if self.lost.count == 0 { "none ended or hung" } else { "some ended or hung" };
        let threads_told = if self.own_threads.is_some() { self.threads_seen } else { 0 };
        vec![
            Check { name: "patterns", verdict, said: patterns, faults: Vec::new() },
            Check {
                name: "refusals",
                verdict: Verdict::Passed,
                said: format!("{} in words", self.refusals.values().sum::<usize>()),
                faults: refusals,
            },
            check("processes", self.lost, tried, processes.to_owned()),
            check(
                "results",
                self.wrong,
                tried,
                format!(
                    "{} kernels, rebuilt from what a plan holds, agree with the reference; largest error {:.1} % of \
                     what rounding allows",
                    self.right,
                    100.0 * self.share
                ),
            ),
            check(
                "extremes",
                self.wrong_extremes,
                self.extremes,
                format!("{} agree on zeros, numbers next to zero and large ones", self.extremes),
            ),
            check(
                "non-numbers",
                Faults::default(),
                self.agreed + self.disagreed,
                format!(
                    "{} of {} give NaN and infinities where the reference does; no other is asked for",
                    self.agreed,
                    self.agreed + self.disagreed
                ),
            ),
            check(
                "memory",
                self.outside,
                tried,
                "red zones, inputs and padding looked at after each run".to_owned(),
            ),
            check(
                "repeats",
                self.differing,
                tried,
                "runs of what is declared deterministic compared".to_owned(),
            ),
            check(
                "threads",
                self.threads,
                threads_told,
                format!("{} seen, {} lent, {own}", self.threads_seen, self.threads_lent),
            ),
            check(
                "leaks",
                self.leaks,
                rounds,
                format!("at most {} KiB more after {rounds} kernels", grown / 1024),
            ),
            check(
                "stops",
                self.unstopped,
                self.stopped,
                format!("{} runs that were asked to stop ended", self.stopped),
            ),
        ]
    }
}
