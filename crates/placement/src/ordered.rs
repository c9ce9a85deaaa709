//! A problem in the order in which the sweep passes its nodes, with what a state must know of the rest.

use crate::{Problem, order::order, stock::Stocks};

/// The problem with its nodes numbered in the order of the sweep.
pub(crate) struct Ordered<'a> {
    pub(crate) problem: &'a Problem,
    pub(crate) by_exit: Vec<Vec<u32>>,
    pub(crate) holding: Vec<Vec<u32>>,
    /// Nodes of each choice, rising.
    pub(crate) nodes: Vec<Vec<u32>>,
    /// Readers of each tensor.
    pub(crate) consumers: Vec<Vec<u32>>,
    /// Of each tensor: exits of the choices that read it, with the set of formats read.
    pub(crate) reads: Vec<Vec<(u32, u16)>>,
    /// The last exit of a choice that holds the node.
    pub(crate) last: Vec<u32>,
    /// A lower bound on what covering the node adds to the price of a cover.
    pub(crate) share: Vec<f64>,
    /// Whether every way to each state is kept.
    pub(crate) records: bool,
}

impl<'a> Ordered<'a> {
    pub(crate) fn new(problem: &'a Problem) -> Ordered<'a> {
        let mut position = vec![0u32; problem.nodes];
        for (i, n) in order(problem).into_iter().enumerate() {
            position[n] = i as u32;
        }
        let place = |nodes: &[usize]| {
            let mut placed: Vec<u32> =
                nodes.iter().filter_map(|&n| position.get(n).copied()).collect();
            placed.sort_unstable();
            placed
        };
        let mut o = Ordered {
            problem,
            by_exit: vec![Vec::new(); problem.nodes],
            holding: vec![Vec::new(); problem.nodes],
            nodes: problem.choices.iter().map(|c| place(&c.nodes)).collect(),
            consumers: problem.tensors.iter().map(|t| place(&t.consumers)).collect(),
            reads: vec![Vec::new(); problem.tensors.len()],
            last: vec![0; problem.nodes],
            share: vec![f64::INFINITY; problem.nodes],
            records: false,
        };
        let mut alone = vec![f64::INFINITY; problem.nodes];
        for (c, nodes) in problem.choices.iter().zip(&o.nodes) {
            if let [n] = nodes[..] {
                alone[n as usize] = alone[n as usize].min(c.cost);
            }
        }
        for (i, c) in problem.choices.iter().enumerate() {
            let exit = position[c.exit()];
            o.by_exit[exit as usize].push(i as u32);
            for &(t, f) in &c.reads {
                match o.reads[t].last_mut() {
                    Some(read) if read.0 == exit => read.1 |= 1 << f,
                    _ => o.reads[t].push((exit, 1 << f)),
                }
            }
            // A choice's price is shared out among its nodes as their prices alone are.
            let weight =
                |n: u32| if alone[n as usize].is_finite() { alone[n as usize] } else { 1.0 };
            let whole: f64 = o.nodes[i].iter().map(|&n| weight(n)).sum();
            for &n in &o.nodes[i] {
                let at = n as usize;
                o.holding[at].push(i as u32);
                o.last[at] = o.last[at].max(exit);
                let part = if whole > 0.0 { c.cost * weight(n) / whole } else { 0.0 };
                o.share[at] = o.share[at].min(part);
            }
        }
        o
    }

    /// The same, with every way to each state kept.
    pub(crate) fn recording(problem: &'a Problem) -> Ordered<'a> {
        Ordered { records: true, ..Ordered::new(problem) }
    }

    /// Whether a node from `next` on, or a deferred node, still reads the tensor.
    pub(crate) fn is_read(&self, tensor: u32, next: u32, deferred: &[u32]) -> bool {
        let mut consumers = self.consumers[tensor as usize].iter();
        consumers.any(|n| *n >= next || deferred.binary_search(n).is_ok())
    }

    /// Whether each deferred node lies in a choice whose exit is still to come and whose passed nodes
    /// are all deferred.
    pub(crate) fn is_completable(&self, deferred: &[u32], next: u32) -> bool {
        deferred.iter().all(|&n| {
            self.holding[n as usize].iter().any(|&c| {
                let nodes = &self.nodes[c as usize];
                let mut passed = nodes.iter().take_while(|&&m| m < next);
                nodes.last().is_some_and(|&exit| exit >= next)
                    && passed.all(|m| deferred.binary_search(m).is_ok())
            })
        })
    }

    /// What choices with an exit from `next` on may want of a tensor.
    pub(crate) fn outlook(&self, stocks: &mut Stocks<'_>, tensor: u32, next: u32) -> usize {
        let t = tensor as usize;
        let to_come = self.reads[t].iter().filter(|r| r.0 >= next);
        let formats = to_come.fold(0, |all, r| all | r.1);
        let open = self.consumers[t].iter().filter(|&&n| self.last[n as usize] >= next);
        stocks.outlook(tensor, formats, open.count() as u32)
    }
}
