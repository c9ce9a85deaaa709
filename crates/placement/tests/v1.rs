//! The judge of the published method's op level: every exact cover of a small random graph, priced as that
//! method prices it.

mod instances;

use bricolage_placement::{Choice, Limits, Problem, ProblemError, sweep, v1};
use instances::{Draw, Extras};
use proptest::prelude::*;

/// A choice as the method prices it: formats are free, and a kernel costs a launch.
fn price(choice: &Choice, launch: f64) -> f64 {
    choice.cost + if choice.cost > 0.0 { launch } else { 0.0 }
}

/// Whether anything but the last node of a choice is read outside it.
fn has_more_exits(problem: &Problem, choice: &Choice) -> bool {
    let inside = |n: &usize| choice.nodes.contains(n);
    problem.tensors.iter().any(|t| {
        let read = t.wanted.is_some() || !t.consumers.iter().all(inside);
        t.producer.is_some_and(|n| inside(&n) && n != choice.exit()) && read
    })
}

/// The least price over every exact cover, by picking a choice for the first uncovered node.
fn least(problem: &Problem, launch: f64, covered: u32, cost: f64) -> f64 {
    let Some(first) = (0..problem.nodes).find(|n| covered & (1 << n) == 0) else { return cost };
    let mut best = f64::INFINITY;
    for choice in &problem.choices {
        let mask = choice.nodes.iter().fold(0u32, |m, n| m | 1 << n);
        if mask & (1 << first) != 0 && mask & covered == 0 && !has_more_exits(problem, choice) {
            let cost = cost + price(choice, launch);
            best = best.min(least(problem, launch, covered | mask, cost));
        }
    }
    best
}

/// Sets what cannot be converted to a large price.
fn convertible(mut problem: Problem) -> Problem {
    for tensor in &mut problem.tensors {
        let prices = tensor.convert.iter_mut().flatten();
        prices.filter(|p| p.is_infinite()).for_each(|p| *p = 1e6);
    }
    problem
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_programme_finds_its_own_optimum(seed: u64, nodes in 1usize..9, launch in 0u8..30, states in 1usize..40) {
        let launch = f64::from(launch);
        let extras = Extras { exits: (seed % 3) as usize, ..Extras::default() };
        let problem = convertible(instances::random(seed, nodes, 3, extras));
        let best = least(&problem, launch, 0, 0.0);
        // Few states: another solver finds the same.
        for limits in [Limits::default(), Limits { states, ..Limits::default() }] {
            let found = v1::levels(&problem, launch, limits).unwrap();
            let chosen = found.cover.choices.iter().map(|&c| price(&problem.choices[c], launch));
            let chosen: f64 = chosen.sum();
            prop_assert!((chosen - best).abs() < 1e-9, "{chosen} against {best}");
            prop_assert!(!found.exact);
        }
    }

    #[test]
    fn its_covers_are_valid_and_never_below_the_optimum(seed: u64, nodes in 1usize..12, formats in 1usize..4, launch in 0u8..30) {
        let problem = instances::random(seed, nodes, formats, Extras::default());
        match (v1::levels(&problem, f64::from(launch), Limits::default()), sweep(&problem, Limits::default(), &[])) {
            (Ok(found), Ok(optimum)) => {
                prop_assert_eq!(&problem.price_of(&found.cover.choices), &Ok(found.cover.clone()));
                prop_assert!(found.cover.cost >= optimum.cover.cost - 1e-9);
                if formats == 1 && launch == 0 {
                    prop_assert!((found.cover.cost - optimum.cover.cost).abs() < 1e-9);
                }
            }
            // What cannot be converted is not seen, and leaving it out may leave nothing.
            (Err(_), _) => prop_assert!(formats > 1),
            (Ok(_), Err(error)) => prop_assert!(false, "a cover was found where there is none: {error}"),
        }
    }
}

#[test]
fn formats_that_cannot_be_made_are_left_out() {
    let mut problem = instances::with_choices(&mut Draw(1), &[vec![0], vec![1]], 2, 20);
    for tensor in &mut problem.tensors {
        tensor.convert = vec![vec![0.0, f64::INFINITY], vec![f64::INFINITY, 0.0]];
    }
    let choice = |node: usize, read, write, cost| Choice {
        nodes: vec![node],
        reads: vec![(node, read)],
        writes: vec![(node + 1, write)],
        cost,
        backend: 0,
    };
    // The cheapest of each node do not fit together.
    problem.choices = vec![choice(0, 0, 1, 1.0), choice(0, 0, 0, 2.0), choice(1, 0, 0, 3.0)];
    let found = v1::levels(&problem, 5.0, Limits::default()).unwrap();
    assert_eq!(found.cover.choices, [1, 2]);
    problem.choices.remove(1);
    let error = v1::levels(&problem, 5.0, Limits::default()).unwrap_err();
    assert_eq!(error, ProblemError::Uncoverable { node: 0 });
}

#[test]
fn wide_graphs_are_left_to_the_other_solver() {
    // Chains of two between one node and another: three states each, all at once.
    let wide = |chains: usize| {
        let mut reads = vec![vec![0]];
        reads.extend((0..chains).map(|_| vec![1]));
        reads.extend((0..chains).map(|c| vec![2 + c]));
        reads.push((0..chains).map(|c| 2 + chains + c).collect());
        instances::with_choices(&mut Draw(3), &reads, 1, 200)
    };
    for chains in [2, 6, 16] {
        let problem = wide(chains);
        let found = v1::levels(&problem, 0.0, Limits::default()).unwrap();
        let optimum = sweep(&problem, Limits::default(), &[]).unwrap();
        assert!((found.cover.cost - optimum.cover.cost).abs() < 1e-9, "{chains} chains");
    }
}
