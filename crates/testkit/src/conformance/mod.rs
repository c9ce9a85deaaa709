//! The backend tests of the `onnx` package on every engine: what passes, and what is skipped for a reason.
//!
//! `write_tests.py FOLDER` writes the tests; [`run`] reads them from there.

mod compare;
mod engines;
mod skips;
mod suite;

pub use engines::{Computer, computers};
pub use skips::{Skip, skips};

use crate::{Fault, engines::guarded, workers::ENDED};
use bricolage_ir::{Graph, Tolerance, evaluate, evaluate_noisy};
use compare::{Limits, datum_differs};
use std::{
    cell::OnceCell,
    fmt,
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};
use suite::{KINDS, Loaded, Set, Test, VARIANTS};

/// The list of skips, from this crate's folder.
pub const SKIPS: &str = "../../cases/conformance/skips";

/// Evaluations with rounding that tell what it changes: one may round a scalar, or a sum next to a whole number, as
/// the exact one does.
const DRAWS: u64 = 32;

/// Tests that run at the same time.
const THREADS: usize = 2;

/// What came of all tests.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// How many passed, one a kind of tests and engine.
    pub counts: Vec<Count>,
    /// Skips by their place in the list, each with the number of tests that it let fail.
    pub skipped: Vec<(Skip, usize)>,
    /// What foreign engines did not take of the models that others drew: they failed in words, or ended their
    /// process.
    pub not_taken: Vec<String>,
    /// What failed and is not in the list, what passed although it is, and entries that are no test's.
    pub faults: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fault in &self.faults {
            writeln!(f, "FAILED {fault}")?;
        }
        for count in &self.counts {
            writeln!(f, "{count}")?;
        }
        for what in &self.not_taken {
            writeln!(f, "not taken: {what}")?;
        }
        if !self.not_taken.is_empty() {
            let ends = self.not_taken.iter().filter(|what| what.contains(ENDED)).count();
            let count = self.not_taken.len();
            writeln!(
                f,
                "{count} not taken by foreign engines; {ends} times one ended its process"
            )?;
        }
        for (skip, tests) in &self.skipped {
            writeln!(f, "skipped {tests}, {skip}")?;
        }
        Ok(())
    }
}

/// How many tests of one kind an engine passed.
#[derive(Clone, Debug)]
pub struct Count {
    /// `node tests`, `simple tests` or `light models`.
    pub kind: &'static str,
    /// Name of the engine.
    pub engine: String,
    /// Those that passed as they are, with constant operands, and with constant inputs.
    pub passed: [usize; 3],
    /// How many of them kernels of the engine's own computed in part or whole, where it has any.
    pub own: Option<usize>,
    /// How many there are.
    pub tests: usize,
}

impl Count {
    /// Those that passed.
    pub fn all_passed(&self) -> usize {
        self.passed.iter().sum()
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, engine, passed, tests) =
            (self.kind, &self.engine, self.all_passed(), self.tests);
        let [plain, operands, inputs] = self.passed;
        write!(f, "{kind} {engine}: {passed} of {tests}")?;
        write!(f, " ({plain} as they are")?;
        for (count, what) in
            [(operands, "with constant operands"), (inputs, "with constant inputs")]
        {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        if let Some(own) = self.own {
            write!(f, "; {own} on its own kernels")?;
        }
        f.write_str(")")
    }
}

/// What an engine made of a test.
type Verdict = Result<Passed, Fault>;

/// How a test passed.
struct Passed {
    /// Index into [`VARIANTS`].
    variant: usize,
    /// Whether kernels of the engine's own took part.
    own: bool,
}

/// Runs the tests in `folder` whose names contain `only` on every engine, and holds what fails against the
/// list of skips. `Err` when the folder holds no such test.
pub fn run(
    folder: &Path,
    computers: &[Computer],
    skips: &[Skip],
    only: &str,
) -> Result<Report, String> {
    let tests = suite::tests(folder, only)?;
    let next = AtomicUsize::new(0);
    let verdicts: Mutex<Vec<(usize, Vec<Verdict>)>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let at = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(test) = tests.get(at)
                {
                    let found = judge(test, computers);
                    let all = verdicts.lock();
                    all.unwrap_or_else(PoisonError::into_inner).push((at, found));
                }
            });
        }
    });
    let mut verdicts = verdicts.into_inner().unwrap_or_else(PoisonError::into_inner);
    verdicts.sort_by_key(|(at, _)| *at);
    let mut report = Report::default();
    let mut used = vec![0; skips.len()];
    let mut listed = vec![false; skips.len()];
    for (at, found) in verdicts {
        let test = &tests[at];
        for (computer, verdict) in computers.iter().zip(found) {
            let (name, label) = (computer.name.as_str(), test.label());
            let count = count_of(&mut report.counts, test.kind.words, computer);
            count.tests += 1;
            let skip = skips.iter().position(|s| s.is_about(name, &label));
            if let Some(skip) = skip {
                listed[skip] = true;
            }
            match (verdict, skip) {
                (Ok(passed), skip) => {
                    count.passed[passed.variant] += 1;
                    count.own = count.own.map(|n| n + usize::from(passed.own));
                    if let Some(skip) = skip {
                        let entry = &skips[skip];
                        report
                            .faults
                            .push(format!("{name} {label} passes, and is listed: {entry}"));
                    }
                }
                (Err(_), Some(skip)) => used[skip] += 1,
                (Err(fault), None) => {
                    let says = format!("{name} {label} {}", fault.to_string().replace('\n', " "));
                    // The list can name no drawn model.
                    match test.is_drawn() && computer.is_foreign() && fault.is_theirs() {
                        true => report.not_taken.push(says),
                        false => report.faults.push(says),
                    }
                }
            }
        }
    }
    // Light models come first in time and last in print.
    report.counts.sort_by_key(|c| KINDS.iter().rev().position(|k| k.words == c.kind));
    let asked = |s: &Skip| s.engine == "*" || computers.iter().any(|c| c.name == s.engine);
    for (i, skip) in skips.iter().enumerate().filter(|(_, s)| asked(s)) {
        match (listed[i], only.is_empty()) {
            (true, _) => report.skipped.push((skip.clone(), used[i])),
            (false, true) => report.faults.push(format!("no test is meant by `{skip}`")),
            (false, false) => {}
        }
    }
    Ok(report)
}

/// The count of a kind of tests and an engine, begun where there is none.
fn count_of<'a>(
    counts: &'a mut Vec<Count>,
    kind: &'static str,
    computer: &Computer,
) -> &'a mut Count {
    let engine = &computer.name;
    let at = counts.iter().position(|c| c.kind == kind && c.engine == *engine);
    let at = at.unwrap_or(counts.len());
    if at == counts.len() {
        let own = computer.has_own().then_some(0);
        counts.push(Count {
            kind,
            engine: engine.clone(),
            passed: [0; VARIANTS.len()],
            own,
            tests: 0,
        });
    }
    &mut counts[at]
}

/// What every engine makes of a test: the first variant that passes, or why none does. Where a size must be
/// constant and the model's are not, the next variant is tried.
fn judge(test: &Test, computers: &[Computer]) -> Vec<Verdict> {
    let sets = test.sets();
    let variants: Vec<OnceCell<Option<Loaded>>> =
        VARIANTS.iter().map(|_| OnceCell::new()).collect();
    let one = |computer: &Computer| -> Verdict {
        let sets = sets.as_ref().map_err(|why| Fault::Failed(why.clone()))?;
        let mut first = None;
        for (variant, (file, loaded)) in VARIANTS.iter().zip(&variants).enumerate() {
            let Some(loaded) = loaded.get_or_init(|| test.load(file)) else { break };
            let graphs = || {
                variants.iter().zip(VARIANTS).filter_map(|(variant, file)| {
                    match variant.get_or_init(|| test.load(file)) {
                        Some(Loaded::Graph(graph)) => Some(&**graph),
                        _ => None,
                    }
                })
            };
            let rounding = |set: &Set| graphs().find_map(|graph| rounding_of(graph, set));
            match guarded(|| attempt(test, loaded, sets, computer, &rounding)) {
                Ok(own) => return Ok(Passed { variant, own }),
                Err(Fault::Unsupported(why)) => {
                    first.get_or_insert(why);
                }
                Err(fault) => return Err(fault),
            }
        }
        Err(Fault::Unsupported(first.unwrap_or_else(|| "there is no model".to_owned())))
    };
    computers.iter().map(one).collect()
}

/// How far rounding alone may move each output: a test's own tolerance leaves out that sums may cancel, and that
/// what follows may make a small error large; it is infinite where rounding changes numbers that are no floats, such
/// as the place of the largest of two that are nearly alike. `None` where the graph cannot be evaluated.
fn rounding_of(graph: &Graph, set: &Set) -> Option<Vec<f64>> {
    let inputs = set.inputs(graph).ok()?;
    let outputs = evaluate(graph, &inputs).ok()?;
    let mut far = vec![0.0; outputs.len()];
    for seed in 0..DRAWS {
        let noisy = evaluate_noisy(graph, &inputs, &|_| 0.0, seed).ok()?;
        for ((far, exact), noisy) in far.iter_mut().zip(&outputs).zip(&noisy) {
            *far = match (exact.as_tensor(), noisy.as_tensor()) {
                (Some(exact), Some(noisy)) if exact.dtype().is_float() => {
                    Tolerance::from_floor(exact, noisy).max_abs.max(*far)
                }
                _ if exact == noisy => *far,
                _ => f64::INFINITY,
            };
        }
    }
    Some(far)
}

/// Whether kernels of the engine's own took part in right results for every set; `rounding` as
/// [`rounding_of`] tells it.
fn attempt(
    test: &Test,
    loaded: &Loaded,
    sets: &[Set],
    computer: &Computer,
    rounding: &dyn Fn(&Set) -> Option<Vec<f64>>,
) -> Result<bool, Fault> {
    let graph = match loaded {
        Loaded::Graph(graph) => graph,
        Loaded::Unsupported(why) => return Err(Fault::Unsupported(why.clone())),
        Loaded::Failed(why) => return Err(Fault::Failed(why.clone())),
    };
    let mut own = false;
    for set in sets {
        let inputs = set.inputs(graph).map_err(Fault::Failed)?;
        let computed = computer.compute(graph, &inputs)?;
        let (found, needed) = (computed.outputs.len(), set.outputs.len());
        if found != needed {
            return Err(Fault::Wrong(format!("needed {needed} outputs, found {found}")));
        }
        let limits = test.limits().map_err(Fault::Failed)?;
        let differs = |i: usize, limits| {
            datum_differs(&computed.outputs[i], &set.outputs[i], limits, test.is_random())
        };
        let explained = OnceCell::new();
        for i in 0..found {
            let Some(why) = differs(i, limits) else { continue };
            let explained = explained.get_or_init(|| rounding(set).unwrap_or_default()).get(i);
            let absolute = limits.absolute + explained.copied().unwrap_or(0.0);
            let limits = Limits { absolute, ..limits };
            if differs(i, limits).is_some() {
                // The runtime's own reader knows nothing of ours: whoever reads the fault learns whose it is.
                let by_itself = || {
                    let found = computer.by_itself(&test.file(), graph, &inputs)?;
                    datum_differs(found.get(i)?, &set.outputs[i], limits, test.is_random())
                };
                return Err(match computer.known_fault(graph, &inputs) {
                    Some(known) => Fault::Unsupported(format!("{known}; output {i}: {why}")),
                    None => {
                        let own = if test.is_drawn() { by_itself() } else { None };
                        let own = own.map(|why| format!("; by itself it makes of the file: {why}"));
                        Fault::Wrong(format!("output {i}: {why}{}", own.unwrap_or_default()))
                    }
                });
            }
        }
        own |= computed.own;
    }
    Ok(own)
}
