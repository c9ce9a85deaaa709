//! Times one fork and join of the thread pool with empty tasks, the caller included among the threads.
#![allow(clippy::print_stdout)] // printing is what this program is for

use bricolage_runtime::{Pool, PoolOptions, ThreadPool};
use std::{hint::black_box, time::Instant};

/// Forks in a sample.
const FORKS: u32 = 10_000;

fn main() {
    println!("threads    best ns  median ns   worst ns");
    for threads in 1..=std::thread::available_parallelism().map_or(1, |n| n.get()) {
        let pool = ThreadPool::new(&PoolOptions { threads, ..PoolOptions::default() });
        let pool = pool.expect("this machine has that many processors");
        let mut samples: Vec<f64> = (0..101)
            .map(|_| {
                let start = Instant::now();
                for _ in 0..FORKS {
                    pool.run(threads, &|task, thread| {
                        black_box((task, thread));
                    });
                }
                start.elapsed().as_nanos() as f64 / f64::from(FORKS)
            })
            .collect();
        samples.sort_by(f64::total_cmp);
        let (best, middle, worst) = (samples[0], samples[samples.len() / 2], samples[100]);
        println!("{threads:7} {best:10.0} {middle:10.0} {worst:10.0}");
    }
}
