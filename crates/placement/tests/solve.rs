//! The judge of the optimisers: every set of choices of a small random problem, priced by its own rules.

mod instances;

use bricolage_placement::{
    Certificate, Finder, Limits, Problem, ProblemError, Solution, certify, solve, sweep,
};
use instances::{Extras, random};

/// What a set of choices costs as a cover; infinite where it is none.
fn price(problem: &Problem, chosen: &[usize]) -> f64 {
    let choices = || chosen.iter().map(|&c| &problem.choices[c]);
    for n in 0..problem.nodes {
        let times = choices().filter(|c| c.nodes.contains(&n)).count();
        if times == 0 || (times > 1 && !problem.recompute) {
            return f64::INFINITY;
        }
    }
    let pinned = problem.pins.iter().all(|p| chosen.contains(&p.choice) == p.chosen);
    let within = problem.budgets.iter().all(|b| {
        let used: f64 = b.uses.iter().filter(|u| chosen.contains(&u.0)).map(|u| u.1).sum();
        used <= b.most
    });
    if !pinned || !within || !runs(problem, chosen) {
        return f64::INFINITY;
    }
    let mut total: f64 = choices().map(|c| c.cost).sum();
    for (b, charge) in problem.charges.iter().enumerate() {
        if choices().any(|c| c.backend == b) {
            total += charge;
        }
    }
    for (t, tensor) in problem.tensors.iter().enumerate() {
        let mut made: Vec<u8> =
            choices().flat_map(|c| &c.writes).filter(|w| w.0 == t).map(|w| w.1).collect();
        made.extend(tensor.arrives);
        let mut needed: Vec<u8> =
            choices().flat_map(|c| &c.reads).filter(|r| r.0 == t).map(|r| r.1).collect();
        needed.extend(tensor.wanted);
        total += growth(&tensor.convert, &mut made, &needed);
    }
    total
}

/// Whether the choices can run one after the other, each when all makers of what it reads have run.
fn runs(problem: &Problem, chosen: &[usize]) -> bool {
    let mut waiting: Vec<usize> = chosen.to_vec();
    loop {
        let is_made_later = |t: usize| {
            waiting.iter().any(|&w| problem.choices[w].writes.iter().any(|made| made.0 == t))
        };
        let next = waiting
            .iter()
            .position(|&c| problem.choices[c].reads.iter().all(|&(t, _)| !is_made_later(t)));
        match next {
            Some(next) => drop(waiting.swap_remove(next)),
            None => return waiting.is_empty(),
        }
    }
}

/// Adds one format after another, needed or not, until all needed ones are made.
fn growth(convert: &[Vec<f64>], made: &mut Vec<u8>, needed: &[u8]) -> f64 {
    if needed.iter().all(|f| made.contains(f)) {
        return 0.0;
    }
    let mut best = f64::INFINITY;
    for to in (0..convert.len() as u8).filter(|f| !made.contains(f)).collect::<Vec<_>>() {
        let steps = made.iter().map(|&from| convert[usize::from(from)][usize::from(to)]);
        let step = steps.fold(f64::INFINITY, f64::min);
        made.push(to);
        best = best.min(step + growth(convert, made, needed));
        made.pop();
    }
    best
}

/// Prices every set of choices that may be a cover.
fn every(problem: &Problem, see: &mut dyn FnMut(&[usize], f64)) {
    fn from(
        problem: &Problem,
        next: usize,
        times: &mut [usize],
        chosen: &mut Vec<usize>,
        see: &mut dyn FnMut(&[usize], f64),
    ) {
        // Nodes that no later choice covers must be covered.
        let Some(choice) = problem.choices.get(next) else {
            if times.iter().all(|&t| t > 0) {
                see(chosen, price(problem, chosen));
            }
            return;
        };
        from(problem, next + 1, times, chosen, see);
        if problem.recompute || choice.nodes.iter().all(|&n| times[n] == 0) {
            choice.nodes.iter().for_each(|&n| times[n] += 1);
            chosen.push(next);
            from(problem, next + 1, times, chosen, see);
            chosen.pop();
            choice.nodes.iter().for_each(|&n| times[n] -= 1);
        }
    }
    from(problem, 0, &mut vec![0; problem.nodes], &mut Vec::new(), see);
}

fn least(problem: &Problem) -> f64 {
    let mut best = f64::INFINITY;
    every(problem, &mut |_, price| best = best.min(price));
    best
}

fn is_near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-6
}

/// The solution is the optimum, priced right, and says so.
fn judge(what: &str, problem: &Problem, best: f64, found: &Result<Solution, ProblemError>) {
    match found {
        Ok(solution) => {
            let cost = solution.cover.cost;
            assert!(is_near(cost, best), "{what}: {cost} against {best}");
            assert!(solution.exact && is_near(solution.bound, best), "{what}: {solution:?}");
            let chosen = &solution.cover.choices;
            assert!(is_near(price(problem, chosen), best), "{what}: {chosen:?}");
        }
        Err(ProblemError::Uncoverable { .. }) => {
            assert!(best.is_infinite(), "{what}: no cover, but one costs {best}");
        }
        Err(error) => panic!("{what}: {error}"),
    }
}

/// The same problem with a budget that nothing exceeds, so that it is not left to the sweep.
fn budgeted(problem: &Problem) -> Problem {
    let mut budgeted = problem.clone();
    budgeted.budgets.push(bricolage_placement::Budget { uses: vec![(0, 1.0)], most: 1e6 });
    budgeted
}

#[test]
fn brute_force_sweep_and_programme_agree() {
    let (mut plain, mut coverable, mut by_programme) = (0, 0, 0);
    for seed in 0..2400u64 {
        let has = |bit: u64| seed & bit != 0;
        let recompute = seed % 5 == 4;
        let extras = Extras {
            exits: if has(1) { 3 } else { 0 },
            recompute,
            charges: has(2),
            pins: has(4),
            budgets: has(8),
        };
        let size = seed as usize / 16;
        let nodes = if recompute { 1 + size % 3 } else { 1 + size % 6 };
        let problem = random(seed, nodes, 1 + size % 3, extras);
        let best = least(&problem);
        coverable += usize::from(best.is_finite());
        let what = format!("seed {seed}");
        let found = solve(&problem, Limits::default(), &[]);
        by_programme += usize::from(found.as_ref().is_ok_and(|s| s.finder == Finder::Programme));
        judge(&what, &problem, best, &found);
        if problem.is_plain() {
            plain += 1;
            judge(&what, &problem, best, &sweep(&problem, Limits::default(), &[]));
        }
        judge(&what, &problem, best, &solve(&budgeted(&problem), Limits::default(), &[]));
        // So few states that bounds from the linear programme decide.
        let few = Limits { states: 1 + size % 4, ..Limits::default() };
        judge(&what, &problem, best, &solve(&problem, few, &[]));
    }
    // All three are judged often enough.
    assert!(
        plain > 100 && coverable > 1000 && by_programme > 500,
        "{plain} {coverable} {by_programme}"
    );
}

#[test]
fn a_backend_more_never_makes_it_worse() {
    for seed in 0..200 {
        let extras = Extras { exits: 3, charges: true, ..Extras::default() };
        let problem = random(seed, 6, 2, extras);
        let mut last = f64::INFINITY;
        for backends in 1..=3 {
            let mut fewer = problem.clone();
            fewer.choices.retain(|c| c.backend < backends);
            if let Ok(solution) = solve(&fewer, Limits::default(), &[]) {
                let cost = solution.cover.cost;
                assert!(cost <= last + 1e-6, "seed {seed}: {cost} with {backends}, {last} before");
                last = cost;
            } else {
                assert!(last.is_infinite(), "seed {seed}: no cover with {backends} backends");
            }
        }
    }
}

/// The least price with each choice, by trying all.
fn least_with(problem: &Problem) -> Vec<f64> {
    let mut with = vec![f64::INFINITY; problem.choices.len()];
    every(problem, &mut |chosen, price| {
        chosen.iter().for_each(|&c| with[c] = with[c].min(price));
    });
    with
}

fn certificate_of(problem: &Problem) -> Result<Certificate, ProblemError> {
    let solution = solve(problem, Limits::default(), &[])?;
    Ok(certify(problem, &solution, Limits::default()))
}

#[test]
fn what_a_choice_lacks_is_what_brute_force_says() {
    let mut choices = 0;
    for seed in 0..300 {
        let problem = random(seed, 1 + seed as usize % 7, 1 + seed as usize % 3, Extras::default());
        let with = least_with(&problem);
        let Ok(certificate) = certificate_of(&problem) else {
            assert!(least(&problem).is_infinite(), "seed {seed}");
            continue;
        };
        assert!(certificate.exact);
        assert!(is_near(certificate.cost, least(&problem)), "seed {seed}");
        for (c, (&own, &with)) in certificate.with.iter().zip(&with).enumerate() {
            assert!(own == with || is_near(own, with), "seed {seed}, choice {c}: {own}, {with}");
            choices += 1;
        }
        assert_chosen_when_cheaper(seed, &problem, &certificate);
    }
    assert!(choices > 2000, "{choices}");
}

/// A choice that is made a little cheaper than by what it lacks is chosen; a little less, and it is not.
fn assert_chosen_when_cheaper(seed: u64, problem: &Problem, certificate: &Certificate) {
    for c in 0..problem.choices.len() {
        let lacks = certificate.lacks(c);
        if lacks <= 0.0 || lacks + 0.5 > problem.choices[c].cost {
            continue;
        }
        for (by, chosen) in [(lacks + 0.5, true), (lacks - 0.5, false)] {
            let mut cheaper = problem.clone();
            cheaper.choices[c].cost -= by;
            let cover = solve(&cheaper, Limits::default(), &[]).expect("it had a cover").cover;
            assert_eq!(cover.choices.contains(&c), chosen, "seed {seed}, choice {c} by {by}");
        }
    }
}

#[test]
fn what_a_choice_lacks_at_least_is_no_more_than_brute_force_says() {
    let (mut told, mut choices) = (0, 0);
    for seed in 0..150 {
        let extras = Extras { exits: 3, charges: seed % 2 == 0, ..Extras::default() };
        let problem = random(seed, 1 + seed as usize % 6, 1 + seed as usize % 3, extras);
        let with = least_with(&problem);
        let Ok(certificate) = certificate_of(&problem) else { continue };
        for (c, (&own, &with)) in certificate.with.iter().zip(&with).enumerate() {
            assert!(own <= with + 1e-6, "seed {seed}, choice {c}: {own} above {with}");
            assert!(own >= certificate.cost - 1e-6, "seed {seed}, choice {c}");
            choices += 1;
            told += usize::from(own > certificate.cost + 1e-6);
        }
    }
    assert!(2 * told > choices, "{told} of {choices} choices lack something");
}

/// Choices that each could run, but wait for each other.
#[test]
fn choices_that_wait_for_each_other_are_not_chosen_together() {
    let tensor =
        |producer: Option<usize>, consumers: &[usize], wanted| bricolage_placement::Tensor {
            producer,
            consumers: consumers.to_vec(),
            arrives: producer.is_none().then_some(0),
            wanted,
            convert: vec![vec![0.0]],
        };
    let choice = |nodes: &[usize], reads: &[usize], writes: &[usize], cost| {
        let plain = |list: &[usize]| list.iter().map(|&t| (t, 0)).collect();
        bricolage_placement::Choice {
            nodes: nodes.to_vec(),
            reads: plain(reads),
            writes: plain(writes),
            cost,
            backend: 0,
        }
    };
    // Two chains of two nodes: 0 then 2, and 1 then 3.
    let problem = Problem {
        nodes: 4,
        tensors: vec![
            tensor(None, &[0, 1], None),
            tensor(Some(0), &[2], None),
            tensor(Some(1), &[3], None),
            tensor(Some(2), &[], Some(0)),
            tensor(Some(3), &[], Some(0)),
        ],
        choices: vec![
            choice(&[0, 3], &[0, 2], &[1, 4], 4.0),
            choice(&[1, 2], &[0, 1], &[2, 3], 5.0),
            choice(&[0], &[0], &[1], 4.0),
            choice(&[1], &[0], &[2], 4.0),
            choice(&[2], &[1], &[3], 4.0),
            choice(&[3], &[2], &[4], 5.0),
        ],
        ..Problem::default()
    };
    let error = problem.price_of(&[0, 1]).unwrap_err();
    assert!(error.to_string().starts_with("choices wait for each other: "), "{error}");
    let solution = solve(&problem, Limits::default(), &[]).unwrap();
    assert!(is_near(solution.cover.cost, least(&problem)));
    assert!(is_near(solution.cover.cost, 12.0), "{solution:?}");
    assert_eq!(solution.finder, Finder::Programme);
    let error = sweep(&problem, Limits::default(), &[]).unwrap_err();
    assert_eq!(error.to_string(), "choice 0: it has several exits");
}

#[test]
fn wide_problems_are_proven_optimal() {
    for (nodes, width, at_once) in [(300, 8, false), (150, 12, false), (150, 8, true)] {
        let problem = instances::wide(3, nodes, width, 3, at_once);
        let solution = solve(&problem, Limits::default(), &[]).unwrap();
        assert!(solution.exact, "{nodes} nodes, width {width}: gap {}", solution.gap());
    }
}

#[test]
fn alike_blocks_are_solved_once_and_put_together() {
    // A chain of the same layer: three readers of one value, computed alone or at once, and their sum.
    let layers = 60;
    let mut problem = Problem { nodes: 4 * layers, ..Problem::default() };
    let convert = vec![vec![0.0, 3.0], vec![3.0, 0.0]];
    for t in 0..=4 * layers {
        // Of each layer's four values the last goes on.
        let next = |n: usize| (n < 4 * layers).then_some(n);
        let consumers: Vec<usize> = match t % 4 {
            0 => (t..t + 3).filter_map(next).collect(),
            r => next(t + 3 - r).into_iter().collect(),
        };
        problem.tensors.push(bricolage_placement::Tensor {
            producer: t.checked_sub(1),
            arrives: (t == 0).then_some(0),
            wanted: consumers.is_empty().then_some(0),
            consumers,
            convert: convert.clone(),
        });
    }
    let choice = |nodes: Vec<usize>, reads, writes, cost| bricolage_placement::Choice {
        nodes,
        reads,
        writes,
        cost,
        backend: 0,
    };
    for first in (0..4 * layers).step_by(4) {
        for i in 0..3 {
            for f in 0..2u8 {
                let cost = 4.0 + f64::from(f);
                let node = first + i;
                problem.choices.push(choice(
                    vec![node],
                    vec![(first, f)],
                    vec![(node + 1, f)],
                    cost,
                ));
            }
        }
        let three = (first..first + 3).collect();
        let writes = (first + 1..first + 4).map(|t| (t, 1)).collect();
        problem.choices.push(choice(three, vec![(first, 1)], writes, 6.0));
        for f in 0..2u8 {
            let reads = (first + 1..first + 4).map(|t| (t, f)).collect();
            problem.choices.push(choice(vec![first + 3], reads, vec![(first + 4, f)], 2.0));
        }
    }
    let solution = solve(&problem, Limits::default(), &[]).unwrap();
    assert!(solution.exact);
    // In format 1 throughout, and converted at both ends.
    assert!(is_near(solution.cover.cost, 8.0 * layers as f64 + 6.0), "{}", solution.cover.cost);
    assert!(is_near(price(&problem, &solution.cover.choices), solution.cover.cost));
    assert_eq!(solution.finder, Finder::Programme);
}

#[test]
fn few_states_and_many_agree() {
    for seed in 0..60 {
        let problem = instances::wide(seed, 40 + seed as usize, 7, 3, false);
        let many = sweep(&problem, Limits::default(), &[]).expect("it has a cover");
        let few = Limits { states: 8, ..Limits::default() };
        let few = solve(&problem, few, &[]).expect("it has a cover");
        assert!(many.exact && few.exact, "seed {seed}: {} {}", many.gap(), few.gap());
        assert!(is_near(many.cover.cost, few.cover.cost), "seed {seed}: {many:?} {few:?}");
    }
}
