//! In which topological order the sweep passes the nodes: few values alive, few nodes left open.

use crate::Problem;
use std::collections::BTreeSet;

/// Nodes with what must come before them.
struct Precedence {
    before: Vec<BTreeSet<usize>>,
    after: Vec<BTreeSet<usize>>,
    /// Of every value, the nodes that make and read it, and how many times its formats multiply the
    /// states, as a logarithm.
    values: Vec<(Vec<usize>, f64)>,
    /// Of each node, the values that it touches.
    touched: Vec<Vec<usize>>,
}

impl Precedence {
    fn new(problem: &Problem) -> Precedence {
        let mut p = Precedence {
            before: vec![BTreeSet::new(); problem.nodes],
            after: vec![BTreeSet::new(); problem.nodes],
            values: Vec::new(),
            touched: vec![Vec::new(); problem.nodes],
        };
        for tensor in &problem.tensors {
            for &reader in tensor.consumers.iter().filter(|&&n| n < problem.nodes) {
                if let Some(maker) = tensor.producer.filter(|&m| m < reader) {
                    p.link(maker, reader);
                }
            }
            let ends = tensor.producer.iter().chain(&tensor.consumers).copied();
            let mut ends: Vec<usize> = ends.filter(|&n| n < problem.nodes).collect();
            ends.dedup();
            for &n in &ends {
                p.touched[n].push(p.values.len());
            }
            p.values.push((ends, (tensor.convert.len().max(1) as f64).ln()));
        }
        for choice in &problem.choices {
            for &n in &choice.nodes[..choice.nodes.len() - 1] {
                p.link(n, choice.exit());
            }
        }
        p
    }

    fn link(&mut self, first: usize, then: usize) {
        self.before[then].insert(first);
        self.after[first].insert(then);
    }

    /// An order in which each step is the one after which the values alive weigh least; from the
    /// last node to the first where `backward`.
    fn greedy(&self, backward: bool) -> Vec<usize> {
        let nodes = self.before.len();
        let (before, after) = match backward {
            false => (&self.before, &self.after),
            true => (&self.after, &self.before),
        };
        let mut waits: Vec<usize> = before.iter().map(BTreeSet::len).collect();
        let mut ready: Vec<usize> = (0..nodes).filter(|&n| waits[n] == 0).collect();
        let mut left: Vec<usize> = self.values.iter().map(|(ends, _)| ends.len()).collect();
        let mut opened = vec![usize::MAX; nodes];
        let mut order = Vec::with_capacity(nodes);
        // What a step adds to the weight; of equals the one that became ready last.
        let growth = |n: usize, left: &[usize]| -> f64 {
            let step = self.touched[n].iter().map(|&v| {
                let (ends, weight) = &self.values[v];
                let was = left[v] < ends.len();
                let is = left[v] > 1;
                weight * (f64::from(u8::from(is)) - f64::from(u8::from(was)))
            });
            step.sum()
        };
        while !ready.is_empty() {
            let key = |n: usize| (growth(n, &left), std::cmp::Reverse(opened[n].wrapping_add(1)));
            let mut best = 0;
            for i in 1..ready.len() {
                let (a, b) = (key(ready[i]), key(ready[best]));
                let earlier =
                    if backward { ready[i] > ready[best] } else { ready[i] < ready[best] };
                if a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)).is_lt()
                    || (a.0 == b.0 && a.1 == b.1 && earlier)
                {
                    best = i;
                }
            }
            let n = ready.swap_remove(best);
            for &v in &self.touched[n] {
                left[v] -= 1;
            }
            for &next in &after[n] {
                waits[next] -= 1;
                if waits[next] == 0 {
                    opened[next] = order.len();
                    ready.push(next);
                }
            }
            order.push(n);
        }
        if backward {
            order.reverse();
        }
        order
    }

    /// An estimate of the states that an order leads to.
    fn states(&self, problem: &Problem, order: &[usize]) -> f64 {
        let mut position = vec![0; order.len()];
        for (i, &n) in order.iter().enumerate() {
            position[n] = i;
        }
        let mut change = vec![0.0; order.len() + 1];
        let mut span = |first: usize, last: usize, weight: f64| {
            change[first] += weight;
            change[last] -= weight;
        };
        for (ends, weight) in &self.values {
            let at = |n: &usize| position[*n];
            if let (Some(a), Some(b)) = (ends.iter().map(at).min(), ends.iter().map(at).max()) {
                span(a, b, *weight);
            }
        }
        let mut open: Vec<usize> = position.clone();
        for choice in &problem.choices {
            for &n in &choice.nodes {
                open[n] = open[n].max(position[choice.exit()]);
            }
        }
        for n in 0..order.len() {
            span(position[n], open[n], std::f64::consts::LN_2);
        }
        let mut weight = 0.0;
        let levels = change.iter().map(|step| {
            weight += step;
            f64::exp(weight)
        });
        levels.sum()
    }
}

/// A topological order of the nodes, in which inner nodes of a choice come before its exit: of a
/// few, the one with the least states to be expected.
pub(crate) fn order(problem: &Problem) -> Vec<usize> {
    let precedence = Precedence::new(problem);
    let mut best: Vec<usize> = (0..problem.nodes).collect();
    let mut least = precedence.states(problem, &best);
    for backward in [false, true] {
        let order = precedence.greedy(backward);
        let states = precedence.states(problem, &order);
        if order.len() == problem.nodes && states < least {
            (best, least) = (order, states);
        }
    }
    best
}
