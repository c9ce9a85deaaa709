//! The graph level: an evolutionary search over bits, with the published parameters.

use bricolage_tensor::Rng;
use std::collections::HashMap;

/// What the search does how often.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates {
    /// Individuals of a generation.
    pub population: usize,
    /// Generations, at most.
    pub generations: usize,
    /// Individuals that a parent wins against: the fittest of so many drawn ones becomes a parent.
    pub tournament: usize,
    /// How probably two parents exchange what lies between two points.
    pub crossover: f64,
    /// How probably an individual is changed.
    pub mutation: f64,
    /// How probably each bit of a changed individual is turned.
    pub flip: f64,
    /// Decides everything that is drawn.
    pub seed: u64,
}

impl Default for Rates {
    /// The published ones.
    fn default() -> Rates {
        Rates {
            population: 50,
            generations: 100_000,
            tournament: 5,
            crossover: 0.5,
            mutation: 0.2,
            flip: 0.05,
            seed: 64,
        }
    }
}

/// What the search found.
#[derive(Clone, Debug, PartialEq)]
pub struct Evolved {
    /// The fittest individual of all generations; all zeros where none could be measured.
    pub best: Vec<bool>,
    /// Its cost; infinite where none could be measured.
    pub cost: f64,
    /// Generations that were begun.
    pub generations: usize,
    /// Individuals that were measured, each once.
    pub measured: usize,
}

/// Searches for the bits of least cost, `bits` of them.
///
/// The first generation is all zeros, all ones, and draws; parents are chosen by tournament, children take
/// their places all together, and the fittest ever is kept aside and not among them. `cost` measures an
/// individual, infinite where it cannot be used. Ends when `is_over` says so before a measurement, when all
/// individuals are known, or with the last generation; the first individual is measured in any case.
pub fn evolve(
    bits: usize,
    rates: &Rates,
    cost: &mut dyn FnMut(&[bool]) -> f64,
    is_over: &dyn Fn() -> bool,
) -> Evolved {
    let mut rng = Rng::new(rates.seed);
    let draw = |rng: &mut Rng| (0..bits).map(|_| rng.below(2) == 1).collect();
    let mut population: Vec<Vec<bool>> = vec![vec![false; bits], vec![true; bits]];
    while population.len() < rates.population {
        population.push(draw(&mut rng));
    }
    population.truncate(rates.population.max(1));
    let all = u32::try_from(bits).ok().and_then(|bits| 1usize.checked_shl(bits));
    let mut known: HashMap<Vec<bool>, f64> = HashMap::new();
    let mut found =
        Evolved { best: vec![false; bits], cost: f64::INFINITY, generations: 0, measured: 0 };
    while found.generations < rates.generations.max(1) {
        if found.generations > 0 {
            population = children(&population, &known, rates, &mut rng);
        }
        found.generations += 1;
        for individual in &population {
            if known.contains_key(individual) {
                continue;
            }
            if !known.is_empty() && is_over() {
                return found;
            }
            let cost = cost(individual);
            found.measured += 1;
            known.insert(individual.clone(), cost);
            if cost < found.cost {
                (found.cost, found.best) = (cost, individual.clone());
            }
        }
        if Some(known.len()) == all || is_over() {
            break;
        }
    }
    found
}

/// The next generation.
fn children(
    parents: &[Vec<bool>],
    known: &HashMap<Vec<bool>, f64>,
    rates: &Rates,
    rng: &mut Rng,
) -> Vec<Vec<bool>> {
    let cost = |i: usize| known.get(&parents[i]).copied().unwrap_or(f64::INFINITY);
    let mut children: Vec<Vec<bool>> = (0..parents.len())
        .map(|_| {
            let mut best = rng.below(parents.len());
            for _ in 1..rates.tournament {
                let other = rng.below(parents.len());
                if cost(other) < cost(best) {
                    best = other;
                }
            }
            parents[best].clone()
        })
        .collect();
    for pair in children.chunks_exact_mut(2) {
        if rng.uniform() < rates.crossover
            && let [a, b] = pair
            && a.len() > 1
        {
            let mut ends = [1 + rng.below(a.len()), 1 + rng.below(a.len() - 1)];
            if ends[1] >= ends[0] {
                ends[1] += 1;
            }
            ends.sort_unstable();
            a[ends[0]..ends[1]].swap_with_slice(&mut b[ends[0]..ends[1]]);
        }
    }
    for child in &mut children {
        if rng.uniform() < rates.mutation {
            for bit in child {
                *bit ^= rng.uniform() < rates.flip;
            }
        }
    }
    children
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bits that are not as planted, and one more for each neighbour that differs from both: so that
    /// single turns do not tell everything.
    fn planted(bits: usize) -> impl FnMut(&[bool]) -> f64 {
        let mut rng = Rng::new(7);
        let target: Vec<bool> = (0..bits).map(|_| rng.below(2) == 1).collect();
        move |found: &[bool]| {
            let wrong: Vec<bool> = found.iter().zip(&target).map(|(a, b)| a != b).collect();
            let alone = wrong.windows(2).filter(|w| w[0] != w[1]).count();
            (wrong.iter().filter(|&&w| w).count() * 2 + alone) as f64
        }
    }

    #[test]
    fn a_planted_optimum_is_found() {
        for bits in [1, 2, 9, 19] {
            let rates = Rates { generations: 500, ..Rates::default() };
            let found = evolve(bits, &rates, &mut planted(bits), &|| false);
            assert_eq!(found.cost, 0.0, "{bits} bits after {} generations", found.generations);
            assert_eq!(planted(bits)(&found.best), 0.0);
            let again = evolve(bits, &rates, &mut planted(bits), &|| false);
            assert_eq!(again, found);
        }
    }

    #[test]
    fn seeds_come_first_and_each_individual_is_measured_once() {
        let mut seen: Vec<Vec<bool>> = Vec::new();
        let mut cost = |bits: &[bool]| {
            assert!(!seen.iter().any(|s| s == bits));
            seen.push(bits.to_vec());
            f64::INFINITY
        };
        let rates = Rates { generations: 20, ..Rates::default() };
        let found = evolve(6, &rates, &mut cost, &|| false);
        assert_eq!((found.cost, found.best), (f64::INFINITY, vec![false; 6]));
        assert_eq!(seen[..2], [vec![false; 6], vec![true; 6]]);
        assert_eq!(found.measured, seen.len());
    }

    #[test]
    fn nothing_to_decide_is_measured_once() {
        let found = evolve(0, &Rates::default(), &mut |_| 3.0, &|| true);
        assert_eq!((found.cost, found.measured, found.generations), (3.0, 1, 1));
    }

    #[test]
    fn time_that_is_over_leaves_the_first_individual() {
        let found = evolve(9, &Rates::default(), &mut planted(9), &|| true);
        assert_eq!((found.measured, found.best), (1, vec![false; 9]));
    }
}
