//! Times every kernel family on one and two threads: best of interleaved rounds, with the rate as a
//! share of the multiply-add peak measured in the same rounds. Arguments select rows by part of name.
#![allow(unsafe_code, clippy::print_stdout, missing_docs, unreachable_pub)]

#[path = "../tests/suite/harness.rs"]
mod harness;
mod rows;

use bricolage_kernels::{Isa, NativeKernel};
use bricolage_runtime::{
    Cancel, DeviceId, Dims, Operand, Pool, PoolOptions, Queue, Run, Serial, ThreadPool,
};
use bricolage_tensor::{DType, Format};
use harness::{Buffer, Placed, Rng, pack};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// One kernel with its memory.
struct Candidate {
    name: String,
    flops: f64,
    kernel: Arc<dyn NativeKernel>,
    inputs: Vec<Placed>,
    constants: Vec<Placed>,
    outputs: Vec<Placed>,
    workspace: Buffer,
    best: [Duration; 2],
}

impl Candidate {
    fn new(row: &rows::Row) -> Candidate {
        let kernel = row.spec.build(Isa::detect()).unwrap_or_else(|e| panic!("{}: {e}", row.name));
        let mut rng = Rng(1);
        let inputs: Vec<Placed> =
            row.inputs.iter().map(|(d, f)| Placed::of(&rng.tensor(d), &f.layout)).collect();
        let raw: Vec<_> = row.raw.iter().map(|d| rng.tensor(d)).collect();
        let constants = pack(&*kernel, &raw);
        let outputs: Vec<Placed> = row.outputs.iter().map(|(d, f)| Placed::garbage(d, f)).collect();
        let dims = |p: &[Placed]| p.iter().map(|p| p.dims.clone()).collect::<Vec<_>>();
        let (ins, outs) = (dims(&inputs), dims(&outputs));
        let bytes = |threads| {
            kernel.needs(&Dims { inputs: &ins, outputs: &outs }, threads).workspace as usize
        };
        Candidate {
            name: row.name.clone(),
            flops: row.flops,
            workspace: Buffer::new(bytes(1).max(bytes(2))),
            kernel,
            inputs,
            constants,
            outputs,
            best: [Duration::MAX; 2],
        }
    }

    fn time(&mut self, pool: &dyn Pool, slot: Duration) {
        let inputs: Vec<Operand<'_>> = self.inputs.iter().map(Placed::operand).collect();
        let outputs: Vec<Operand<'_>> = self.outputs.iter().map(Placed::operand).collect();
        let constants: Vec<Operand<'_>> = self.constants.iter().map(Placed::operand).collect();
        let (len, format) = ([self.workspace.len as i64], Format::plain(DType::U8));
        let bytes = self.workspace.bytes();
        let once = || {
            // SAFETY: the workspace outlives the run and nothing else uses it.
            let workspace = unsafe {
                let start = bytes.as_ptr().cast_mut();
                Operand::new(start, bytes.len(), DeviceId(0), &len, &[1], &format)
            };
            let result = self.kernel.run(&mut Run {
                inputs: &inputs,
                outputs: &outputs,
                constants: &constants,
                workspace,
                pool,
                queue: Queue(0),
                cancel: &Cancel::default(),
            });
            result.unwrap_or_else(|e| panic!("{}: {e}", self.name));
        };
        let start = Instant::now();
        once();
        let batch = (Duration::from_micros(100).as_nanos() / start.elapsed().as_nanos().max(1)) + 1;
        let mut best = Duration::MAX;
        while best == Duration::MAX || start.elapsed() < slot {
            let begin = Instant::now();
            for _ in 0..batch {
                once();
            }
            best = best.min(begin.elapsed() / batch as u32);
        }
        let slot = &mut self.best[pool.threads() - 1];
        *slot = (*slot).min(best);
    }
}

/// Multiply-adds a nanosecond, times 2, of one core.
fn peak() -> f64 {
    // SAFETY: the set is available.
    #[cfg(target_arch = "x86_64")]
    match Isa::detect() {
        Isa::Avx2 => return unsafe { peak_avx2() },
        Isa::Avx512 => return unsafe { peak_avx512() },
        _ => {}
    }
    f64::NAN
}

/// The peak of vectors of so many lanes.
#[cfg(target_arch = "x86_64")]
macro_rules! peak {
    ($name:ident, $features:tt, $lanes:literal, $splat:ident, $fma:ident) => {
        #[target_feature(enable = $features)]
        fn $name() -> f64 {
            use std::arch::x86_64::{$fma, $splat};
            let mut sums = [$splat(1.0); 12];
            let a = std::hint::black_box($splat(0.999));
            let b = std::hint::black_box($splat(0.001));
            let start = Instant::now();
            const STEPS: usize = 40_000;
            for _ in 0..STEPS {
                for s in &mut sums {
                    *s = $fma(*s, a, b);
                }
            }
            std::hint::black_box(sums);
            let time = start.elapsed().as_nanos() as f64;
            (STEPS * sums.len() * 2 * $lanes) as f64 / time
        }
    };
}

#[cfg(target_arch = "x86_64")]
peak!(peak_avx2, "avx2,fma", 8, _mm256_set1_ps, _mm256_fmadd_ps);
#[cfg(target_arch = "x86_64")]
peak!(peak_avx512, "avx512f", 16, _mm512_set1_ps, _mm512_fmadd_ps);

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let rows = rows::all();
    let mut candidates: Vec<Candidate> = rows
        .iter()
        .filter(|r| wanted.is_empty() || wanted.iter().any(|w| r.name.contains(w.as_str())))
        .map(Candidate::new)
        .collect();
    let options = PoolOptions { threads: 2, spin: Duration::from_millis(5), pin: true };
    let pool = ThreadPool::new(&options).expect("the system gives one more thread");
    let mut best_peak = 0f64;
    for _ in 0..10 {
        best_peak = best_peak.max(peak());
        for candidate in &mut candidates {
            candidate.time(&Serial, Duration::from_millis(6));
            candidate.time(&pool, Duration::from_millis(6));
        }
    }
    println!("peak of one core {best_peak:.1} GFLOP/s");
    println!(
        "{:34}{:>10}{:>9}{:>7}{:>10}{:>9}{:>7}",
        "kernel", "1T us", "GFLOP/s", "peak", "2T us", "GFLOP/s", "peak"
    );
    for c in &candidates {
        print!("{:34}", c.name);
        for (i, best) in c.best.iter().enumerate() {
            let rate = c.flops / best.as_nanos() as f64;
            let share = 100.0 * rate / (best_peak * (i + 1) as f64);
            print!("{:10.1}{rate:9.1}{share:6.0}%", best.as_nanos() as f64 / 1e3);
        }
        println!();
    }
}
