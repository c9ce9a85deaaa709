//! Times covers of random problems: `covers NODES WIDTH FORMATS SEEDS SECONDS AT_ONCE FIRST`; with choices
//! of several exits where `AT_ONCE` is not 0, from the seed `FIRST` on.

#[path = "../tests/instances/mod.rs"]
mod instances;

use bricolage_placement::{Limits, solve};
use std::time::{Duration, Instant};

#[allow(clippy::print_stdout, reason = "a front end")]
fn main() {
    let given: Vec<usize> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let at = |i: usize, default| given.get(i).copied().unwrap_or(default);
    let (nodes, width, formats) = (at(0, 1000), at(1, 12), at(2, 3));
    let limit = Duration::from_secs(at(4, 60) as u64);
    for seed in at(6, 0) as u64..at(3, 3) as u64 {
        let problem = instances::wide(seed, nodes, width, formats, at(5, 0) > 0);
        let start = Instant::now();
        let is_over = || start.elapsed() > limit;
        match solve(&problem, Limits { is_over: &is_over, ..Limits::default() }, &[]) {
            Ok(s) => println!(
                "seed {seed}, {} choices: {:?}, {:.1} to {}, gap {:.4} %, exact {}, {} states, {:.2?}",
                problem.choices.len(),
                s.finder,
                s.bound,
                s.cover.cost,
                100.0 * s.gap(),
                s.exact,
                s.states,
                start.elapsed()
            ),
            Err(error) => println!("seed {seed}: {error}"),
        }
    }
}
