//! Random cover problems, the same for a seed.

#![allow(dead_code, reason = "each test and example uses some of them")]

use bricolage_placement::{Budget, Choice, Pin, Problem, Tensor};

/// A seeded stream of small numbers.
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    /// A number below `n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % n
    }
}

/// What is drawn besides choices with one exit.
#[derive(Clone, Copy, Default)]
pub(crate) struct Extras {
    /// Choices with several exits: any set of up to this many nodes; none below 2.
    pub(crate) exits: usize,
    pub(crate) recompute: bool,
    pub(crate) charges: bool,
    pub(crate) pins: bool,
    pub(crate) budgets: bool,
}

/// A random DAG: each node reads one or two tensors made shortly before.
pub(crate) fn random(seed: u64, nodes: usize, formats: usize, extras: Extras) -> Problem {
    let mut draw = Draw(seed);
    let mut reads: Vec<Vec<usize>> = Vec::new();
    for n in 0..nodes {
        let mut from: Vec<usize> =
            (0..1 + draw.below(2)).map(|_| n.saturating_sub(draw.below(3))).collect();
        from.sort_unstable();
        from.dedup();
        reads.push(from);
    }
    let mut problem = with_choices(&mut draw, &reads, formats, 20);
    if extras.exits > 1 {
        for _ in 0..nodes {
            let count = 2 + draw.below(extras.exits - 1);
            let mut set: Vec<usize> = (0..count).map(|_| draw.below(nodes)).collect();
            set.sort_unstable();
            set.dedup();
            push(&mut problem, &mut draw, &reads, set, formats, 20);
        }
    }
    if extras.recompute {
        problem.recompute = true;
        for n in 0..nodes {
            // What a choice computes and another one reads it may keep to itself.
            let mut set: Vec<usize> = reads[n].iter().filter_map(|t| t.checked_sub(1)).collect();
            set.push(n);
            push(&mut problem, &mut draw, &reads, set, formats, 20);
            if let Some(last) = problem.choices.last_mut() {
                last.writes.retain(|w| w.0 == n + 1);
            }
        }
    }
    let backends = 3;
    if extras.charges {
        problem.charges = (0..backends).map(|_| draw.below(30) as f64).collect();
        problem.choices.iter_mut().for_each(|c| c.backend = draw.below(backends));
    }
    if extras.pins {
        for _ in 0..1 + draw.below(2) {
            let choice = draw.below(problem.choices.len());
            problem.pins.push(Pin { choice, chosen: draw.below(2) == 0 });
        }
    }
    if extras.budgets {
        for _ in 0..1 + draw.below(2) {
            let uses = (0..problem.choices.len()).map(|c| (c, draw.below(10) as f64)).collect();
            let most = (draw.below(5) * nodes) as f64;
            problem.budgets.push(Budget { uses, most });
        }
    }
    problem
}

/// A random DAG of at most `width` values alive at a time, and mostly as many; where `at_once`, all readers of
/// a value can be computed by one choice.
pub(crate) fn wide(
    seed: u64,
    nodes: usize,
    width: usize,
    formats: usize,
    at_once: bool,
) -> Problem {
    let mut draw = Draw(seed);
    let mut open = vec![0];
    let mut reads: Vec<Vec<usize>> = Vec::new();
    for n in 0..nodes {
        let mut from: Vec<usize> = (0..1 + draw.below(2)).map(|_| draw.below(open.len())).collect();
        from.sort_unstable();
        from.dedup();
        reads.push(from.iter().map(|&i| open[i]).collect());
        for i in from.into_iter().rev() {
            if open.len() >= width || draw.below(3) == 0 {
                open.swap_remove(i);
            }
        }
        open.push(n + 1);
    }
    reads.iter_mut().for_each(|r| r.sort_unstable());
    let mut problem = with_choices(&mut draw, &reads, formats, 1000);
    for t in (0..=nodes).filter(|_| at_once) {
        let readers = problem.tensors[t].consumers.clone();
        if readers.len() > 1 && !readers.iter().any(|&n| depends(&reads, n, &readers)) {
            push(&mut problem, &mut draw, &reads, readers, formats, 1000);
        }
    }
    problem
}

/// Whether a node needs the result of one of these.
fn depends(reads: &[Vec<usize>], node: usize, on: &[usize]) -> bool {
    let first = on.iter().copied().min().unwrap_or(node);
    let mut open = vec![node];
    let mut seen = vec![false; node + 1];
    while let Some(n) = open.pop() {
        for from in reads[n].iter().filter_map(|t| t.checked_sub(1)).filter(|&n| n >= first) {
            if on.contains(&from) {
                return true;
            }
            if !std::mem::replace(&mut seen[from], true) {
                open.push(from);
            }
        }
    }
    false
}

/// Node `n` makes tensor `n + 1`; tensor 0 is the input of the graph.
pub(crate) fn with_choices(
    draw: &mut Draw,
    reads: &[Vec<usize>],
    formats: usize,
    prices: usize,
) -> Problem {
    let nodes = reads.len();
    let convert = |draw: &mut Draw| -> Vec<Vec<f64>> {
        (0..formats)
            .map(|from| {
                (0..formats)
                    .map(|to| match draw.below(8) {
                        _ if from == to => 0.0,
                        0 if prices < 100 => f64::INFINITY,
                        n => (n * prices) as f64 / 20.0,
                    })
                    .collect()
            })
            .collect()
    };
    let tensors: Vec<Tensor> = (0..=nodes)
        .map(|t| {
            let consumers: Vec<usize> = (0..nodes).filter(|&n| reads[n].contains(&t)).collect();
            let output = t > 0 && consumers.is_empty();
            Tensor {
                producer: t.checked_sub(1),
                arrives: (t == 0).then_some(0),
                wanted: output.then_some(0),
                consumers,
                convert: convert(draw),
            }
        })
        .collect();
    let mut problem = Problem { nodes, tensors, ..Problem::default() };
    for n in 0..nodes {
        for _ in 0..2 {
            push(&mut problem, draw, reads, vec![n], formats, prices);
        }
        // Grow a region upwards through values that nobody else reads.
        let mut region = vec![n];
        for _ in 0..3 {
            let grown = region
                .iter()
                .flat_map(|&m| reads[m].iter().filter_map(|t| t.checked_sub(1)))
                .find(|p| {
                    !region.contains(p)
                        && problem.tensors[p + 1].consumers.iter().all(|c| region.contains(c))
                });
            let Some(grown) = grown else { break };
            region.push(grown);
            region.sort_unstable();
            push(&mut problem, draw, reads, region.clone(), formats, prices);
        }
    }
    problem
}

/// A choice for these nodes that writes everything that is read outside them.
fn push(
    problem: &mut Problem,
    draw: &mut Draw,
    reads: &[Vec<usize>],
    nodes: Vec<usize>,
    formats: usize,
    prices: usize,
) {
    let mut inputs: Vec<usize> = nodes.iter().flat_map(|&n| reads[n].iter().copied()).collect();
    inputs.sort_unstable();
    inputs.dedup();
    inputs.retain(|t| t.checked_sub(1).is_none_or(|p| !nodes.contains(&p)));
    let reads = inputs.into_iter().map(|t| (t, draw.below(formats) as u8)).collect();
    let outside = |n: &usize| {
        let tensor = &problem.tensors[n + 1];
        tensor.wanted.is_some() || tensor.consumers.iter().any(|c| !nodes.contains(c))
    };
    let exits: Vec<usize> = nodes.iter().copied().filter(outside).collect();
    let writes = exits.into_iter().map(|n| (n + 1, draw.below(formats) as u8)).collect();
    let cost = draw.below(prices) as f64;
    problem.choices.push(Choice { nodes, reads, writes, cost, backend: 0 });
}
