//! The judge of the sweep: every exact cover of a small random graph, priced by its own rules.

mod instances;

use bricolage_placement::{Choice, Limits, Problem, ProblemError, Tensor, sweep};
use instances::{Draw, Extras};
use proptest::prelude::*;

fn random(seed: u64, nodes: usize, formats: usize) -> Problem {
    instances::random(seed, nodes, formats, Extras::default())
}

/// The least price over every exact cover, by picking a choice for the first uncovered node.
fn brute_force(problem: &Problem, covered: u32, chosen: &mut Vec<usize>, best: &mut f64) {
    let Some(first) = (0..problem.nodes).find(|n| covered & (1 << n) == 0) else {
        *best = best.min(price(problem, chosen));
        return;
    };
    for (i, c) in problem.choices.iter().enumerate() {
        let mask = c.nodes.iter().fold(0u32, |m, n| m | 1 << n);
        if mask & (1 << first) != 0 && mask & covered == 0 {
            chosen.push(i);
            brute_force(problem, covered | mask, chosen, best);
            chosen.pop();
        }
    }
}

/// Choices plus, for each tensor, the cheapest set of conversions, grown format by format.
fn price(problem: &Problem, chosen: &[usize]) -> f64 {
    let mut total: f64 = chosen.iter().map(|&c| problem.choices[c].cost).sum();
    for (t, tensor) in problem.tensors.iter().enumerate() {
        let written =
            chosen.iter().flat_map(|&c| &problem.choices[c].writes).find(|w| w.0 == t).map(|w| w.1);
        let Some(have) = tensor.arrives.or(written) else { continue };
        let mut needed: Vec<u8> = chosen
            .iter()
            .flat_map(|&c| &problem.choices[c].reads)
            .filter(|r| r.0 == t)
            .map(|r| r.1)
            .collect();
        needed.extend(tensor.wanted);
        needed.sort_unstable();
        needed.dedup();
        needed.retain(|&f| f != have);
        total += cheapest_growth(tensor, &mut vec![have], &needed);
    }
    total
}

/// Adds one format after another, needed or not, until all needed ones are made.
fn cheapest_growth(tensor: &Tensor, made: &mut Vec<u8>, needed: &[u8]) -> f64 {
    if needed.iter().all(|f| made.contains(f)) {
        return 0.0;
    }
    let mut best = f64::INFINITY;
    for to in (0..tensor.convert.len() as u8).filter(|f| !made.contains(f)).collect::<Vec<_>>() {
        let step = made
            .iter()
            .map(|&from| tensor.convert[usize::from(from)][usize::from(to)])
            .fold(f64::INFINITY, f64::min);
        made.push(to);
        best = best.min(step + cheapest_growth(tensor, made, needed));
        made.pop();
    }
    best
}

/// The cost of the cheapest cover, by trying all; infinite where there is none.
fn least(problem: &Problem) -> f64 {
    let mut best = f64::INFINITY;
    brute_force(problem, 0, &mut Vec::new(), &mut best);
    best
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_sweep_finds_the_optimum(seed: u64, nodes in 1usize..9, formats in 1usize..4) {
        let problem = random(seed, nodes, formats);
        let best = least(&problem);
        match sweep(&problem, Limits::default(), &[]) {
            Ok(solution) => {
                prop_assert!(solution.exact);
                prop_assert!((solution.cover.cost - best).abs() < 1e-9, "{} against {best}", solution.cover.cost);
                prop_assert!((price(&problem, &solution.cover.choices) - best).abs() < 1e-9);
                let listed: f64 = solution.cover.conversions.iter()
                    .map(|c| problem.tensors[c.tensor].convert[usize::from(c.from)][usize::from(c.to)]).sum();
                let chosen: f64 = solution.cover.choices.iter().map(|&c| problem.choices[c].cost).sum();
                prop_assert!((listed + chosen - best).abs() < 1e-9);
            }
            Err(error) => prop_assert!(best.is_infinite(), "{error}, but a cover costs {best}"),
        }
    }

    #[test]
    fn another_choice_never_makes_it_worse(seed: u64, nodes in 2usize..9) {
        let problem = random(seed, nodes, 2);
        let mut fewer = problem.clone();
        fewer.choices.pop();
        if let (Ok(all), Ok(some)) = (sweep(&problem, Limits::default(), &[]), sweep(&fewer, Limits::default(), &[])) {
            prop_assert!(all.cover.cost <= some.cover.cost + 1e-9);
        }
    }
}

#[test]
fn a_long_chain_of_diamonds_stays_linear() {
    // Each diamond: one node, two that read it, one that joins them.
    let states = |diamonds: usize| {
        let reads: Vec<Vec<usize>> = (0..diamonds)
            .flat_map(|d| {
                [vec![4 * d], vec![4 * d + 1], vec![4 * d + 1], vec![4 * d + 2, 4 * d + 3]]
            })
            .collect();
        let problem = instances::with_choices(&mut Draw(7), &reads, 3, 20);
        sweep(&problem, Limits::default(), &[]).unwrap().states
    };
    let (short, long) = (states(25), states(100));
    assert!(long < 6 * short, "{short} states for 100 nodes, {long} for 400");
}

#[test]
fn faults_are_named() {
    let tensor = |producer, consumers: &[usize], wanted| Tensor {
        producer,
        consumers: consumers.to_vec(),
        arrives: producer.is_none().then_some(0),
        wanted,
        convert: vec![vec![0.0]],
    };
    let choice = |nodes: &[usize]| Choice {
        nodes: nodes.to_vec(),
        reads: vec![(nodes[0], 0)],
        writes: vec![(nodes[nodes.len() - 1] + 1, 0)],
        cost: 1.0,
        backend: 0,
    };
    let tensors = vec![
        tensor(None, &[0], None),
        tensor(Some(0), &[1], Some(0)),
        tensor(Some(1), &[], Some(0)),
    ];
    let mut problem =
        Problem { nodes: 2, tensors, choices: vec![choice(&[0])], ..Problem::default() };
    assert_eq!(sweep(&problem, Limits::default(), &[]), Err(ProblemError::Uncoverable { node: 1 }));
    problem.choices.push(choice(&[0, 1]));
    let error = sweep(&problem, Limits::default(), &[]).unwrap_err();
    assert_eq!(error.to_string(), "choice 1: a value inside it is read from outside");
    problem.choices.truncate(1);
    problem.tensors[1].convert = vec![vec![0.0; 17]; 17];
    let error = sweep(&problem, Limits::default(), &[]).unwrap_err();
    assert_eq!(error.to_string(), "tensor 1 needs at most 16 formats, found 17");
}

/// A pyramid: a chain of levels, each read again by a side branch that is joined from the last level
/// back to the first, and all joined values read by the last node.
fn pyramid(seed: u64, levels: usize, formats: usize) -> Problem {
    let mut draw = Draw(seed);
    let mut reads: Vec<Vec<usize>> = (0..levels).map(|n| vec![n]).collect();
    // Side branches, then the way back.
    for n in 0..levels {
        reads.push(vec![n + 1]);
    }
    let mut last = 2 * levels;
    let mut joined = vec![last];
    for n in (1..levels).rev() {
        reads.push(vec![levels + n, last]);
        last = reads.len();
        joined.push(last);
    }
    reads.push(joined);
    instances::with_choices(&mut draw, &reads, formats, 20)
}

/// The choices of least price for the nodes alone, with every value in format 0.
fn one_backend(problem: &mut Problem) -> Vec<usize> {
    let first = problem.choices.len();
    for n in 0..problem.nodes {
        let reads = (0..problem.tensors.len())
            .filter(|&t| problem.tensors[t].consumers.contains(&n))
            .map(|t| (t, 0))
            .collect();
        let choice =
            Choice { nodes: vec![n], reads, writes: vec![(n + 1, 0)], cost: 9.0, backend: 0 };
        problem.choices.push(choice);
    }
    (first..problem.choices.len()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pyramids_are_solved_exactly(seed: u64, levels in 1usize..4) {
        let problem = pyramid(seed, levels, 3);
        let best = least(&problem);
        match sweep(&problem, Limits::default(), &[]) {
            Ok(solution) => {
                prop_assert!(solution.exact);
                prop_assert!((solution.cover.cost - best).abs() < 1e-9, "{} against {best}", solution.cover.cost);
            }
            Err(error) => prop_assert!(best.is_infinite(), "{error}, but a cover costs {best}"),
        }
    }

    #[test]
    fn a_bounded_sweep_is_a_cover_and_never_worse_than_an_incumbent(seed: u64, states in 1usize..40, levels in 2usize..6) {
        let mut problem = pyramid(seed, levels, 3);
        let incumbent = one_backend(&mut problem);
        let known = price(&problem, &incumbent);
        let limits = Limits { states, ..Limits::default() };
        let bounded = sweep(&problem, limits, &[incumbent]).unwrap();
        let full = sweep(&problem, Limits::default(), &[]).unwrap();
        prop_assert!(full.exact);
        prop_assert!(bounded.cover.cost <= known + 1e-9);
        prop_assert!(full.cover.cost <= bounded.cover.cost + 1e-9);
        prop_assert!((price(&problem, &bounded.cover.choices) - bounded.cover.cost).abs() < 1e-9);
        let mut covered: Vec<usize> =
            bounded.cover.choices.iter().flat_map(|&c| problem.choices[c].nodes.clone()).collect();
        covered.sort_unstable();
        prop_assert_eq!(covered, (0..problem.nodes).collect::<Vec<_>>());
        if bounded.exact {
            prop_assert!((full.cover.cost - bounded.cover.cost).abs() < 1e-9);
        }
    }
}

#[test]
fn large_pyramids_stay_bounded() {
    for (seed, levels) in [(1, 6), (2, 12), (3, 24)] {
        let mut problem = pyramid(seed, levels, 3);
        let incumbent = one_backend(&mut problem);
        let known = price(&problem, &incumbent);
        let limits = Limits { states: 300, ..Limits::default() };
        let solution = sweep(&problem, limits, &[incumbent]).unwrap();
        assert!(solution.cover.cost <= known);
        assert!(solution.states <= 300 * problem.nodes + 1, "{} states", solution.states);
    }
}

#[test]
fn when_time_is_over_few_states_are_followed() {
    let mut problem = pyramid(5, 14, 3);
    let incumbent = one_backend(&mut problem);
    let hurried = Limits { is_over: &|| true, ..Limits::default() };
    let quick = sweep(&problem, hurried, std::slice::from_ref(&incumbent)).unwrap();
    assert!(!quick.exact);
    assert!(quick.states <= 500 * problem.nodes, "{} states", quick.states);
    assert!(quick.cover.cost <= price(&problem, &incumbent));
}

#[test]
fn a_cut_that_leads_nowhere_is_taken_back() {
    // The cheap way to make the value is in a format that nobody can read.
    let tensor = |producer: Option<usize>, consumers: &[usize], wanted| Tensor {
        producer,
        consumers: consumers.to_vec(),
        arrives: producer.is_none().then_some(0),
        wanted,
        convert: vec![vec![0.0, f64::INFINITY], vec![f64::INFINITY, 0.0]],
    };
    let choice = |node: usize, read, write, cost| Choice {
        nodes: vec![node],
        reads: vec![(node, read)],
        writes: vec![(node + 1, write)],
        cost,
        backend: 0,
    };
    let problem = Problem {
        nodes: 3,
        tensors: vec![
            tensor(None, &[0], None),
            tensor(Some(0), &[1], None),
            tensor(Some(1), &[2], None),
            tensor(Some(2), &[], Some(0)),
        ],
        choices: vec![
            choice(0, 0, 1, 1.0),
            choice(0, 0, 0, 2.0),
            choice(1, 1, 1, 1.0),
            choice(1, 0, 0, 1.0),
            choice(2, 1, 1, 1.0),
            choice(2, 0, 0, 1.0),
        ],
        ..Problem::default()
    };
    for is_over in [&(|| false) as &dyn Fn() -> bool, &|| true] {
        let solution = sweep(&problem, Limits { states: 1, is_over }, &[]).unwrap();
        assert_eq!(solution.cover.choices, [1, 3, 5]);
    }
}
