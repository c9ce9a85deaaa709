//! Fixed work that is timed between measurements, to see whether the machine itself has moved.

use crate::{Contestant, Protocol, Repeat, SampleError, Verdict, quantile, race};
use bricolage_runtime::Cancel;
use serde::{Deserialize, Serialize};
use std::{hint::black_box, time::Instant};

/// A move of a fixed piece of work by more than this share voids what was measured meanwhile.
const STEADY: f64 = 0.03;
const STREAM: usize = 4 << 20;
const HISTORY: usize = 32;

/// One compute-bound and one memory-bound piece of fixed work with their past times.
pub struct Sentinel {
    stream: Vec<u64>,
    compute_ns: Vec<f64>,
    memory_ns: Vec<f64>,
}

/// Dependent multiply-adds over a few registers: bound by the processor's clock.
fn compute() -> f32 {
    let mut lanes = [1.0f32; 16];
    for _ in 0..2_000 {
        for lane in &mut lanes {
            *lane = *lane * 0.999_9 + 0.000_1;
        }
    }
    lanes.iter().sum()
}

/// The fastest of a few times of `work`, in nanoseconds.
fn fastest(mut work: impl FnMut()) -> f64 {
    let time = |_| {
        let start = Instant::now();
        work();
        start.elapsed().as_secs_f64() * 1e9
    };
    (0..3).map(time).fold(f64::INFINITY, f64::min)
}

impl Default for Sentinel {
    fn default() -> Sentinel {
        Sentinel::new()
    }
}

impl Sentinel {
    /// Takes the first times.
    pub fn new() -> Sentinel {
        let mut sentinel =
            Sentinel { stream: vec![1; STREAM / 8], compute_ns: Vec::new(), memory_ns: Vec::new() };
        for _ in 0..3 {
            sentinel.is_steady();
        }
        sentinel
    }

    /// Times both pieces again; true when neither moved from its running median.
    pub fn is_steady(&mut self) -> bool {
        let compute_ns = fastest(|| {
            black_box(compute());
        });
        let stream = &self.stream;
        let memory_ns = fastest(|| {
            black_box(stream.iter().fold(0u64, |a, &b| a.wrapping_add(b)));
        });
        let mut steady = true;
        for (history, now) in [(&mut self.compute_ns, compute_ns), (&mut self.memory_ns, memory_ns)]
        {
            let mut sorted = history.clone();
            sorted.sort_by(f64::total_cmp);
            if !sorted.is_empty() {
                let usual = quantile(&sorted, 0.5);
                steady &= (now - usual).abs() <= STEADY * usual;
            }
            history.push(now);
            if history.len() > HISTORY {
                history.remove(0);
            }
        }
        steady
    }
}

/// How restless a machine is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// Spread of the compute sentinel between its tenth and ninetieth percentile, as a share.
    pub compute_spread: f64,
    /// The same of the memory sentinel.
    pub memory_spread: f64,
    /// Trials in which one thing was raced against itself.
    pub aa_trials: u32,
    /// Trials in which the two intervals did not overlap: a difference that is not there.
    pub aa_false: u32,
}

/// Watches the sentinels and races one piece of work against itself `trials` times.
pub fn noise(trials: u32) -> Noise {
    let mut sentinel = Sentinel::new();
    let spread = |history: &[f64]| {
        let mut sorted = history.to_vec();
        sorted.sort_by(f64::total_cmp);
        (quantile(&sorted, 0.9) - quantile(&sorted, 0.1)) / quantile(&sorted, 0.5)
    };
    let protocol = Protocol { warmup: std::time::Duration::from_millis(2), ..Protocol::default() };
    let mut aa_false = 0;
    for trial in 0..trials {
        sentinel.is_steady();
        let contestant = || Contestant {
            sample: Box::new(Repeat(|| -> Result<(), SampleError> {
                black_box(compute());
                Ok(())
            })),
        };
        let protocol = Protocol { seed: u64::from(trial), ..protocol.clone() };
        let verdicts = race(&mut [contestant(), contestant()], &protocol, None, &Cancel::default());
        if let [Verdict::Measured(a), Verdict::Measured(b)] = &verdicts[..] {
            let apart = a.ci95_ns.1 < b.ci95_ns.0 || b.ci95_ns.1 < a.ci95_ns.0;
            aa_false += u32::from(apart);
        }
    }
    Noise {
        compute_spread: spread(&sentinel.compute_ns),
        memory_spread: spread(&sentinel.memory_ns),
        aa_trials: trials,
        aa_false,
    }
}
