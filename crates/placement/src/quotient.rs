//! Groups of nodes that become regions of several exits, and never wait for each other in a circle.

use bricolage_ir::{Graph, NodeId};
use std::collections::{BTreeSet, HashMap};

/// Disjoint groups of nodes, by number, and who reads whom: a graph without cycles.
#[derive(Clone, Debug)]
pub(crate) struct Quotient {
    /// Of each group: those that read it. Nothing for a group that was joined with another one.
    after: Vec<BTreeSet<usize>>,
    /// Of each group: the numbers that it was joined from, its own among them; nothing where it was joined
    /// with another one.
    members: Vec<Vec<usize>>,
}

impl Quotient {
    /// A group for each of these sets of nodes. Each has a single exit, so that no circle is among them.
    pub(crate) fn of(graph: &Graph, groups: &[Vec<NodeId>]) -> Quotient {
        let numbered = groups.iter().enumerate();
        let group_of: HashMap<NodeId, usize> =
            numbered.flat_map(|(g, nodes)| nodes.iter().map(move |&n| (n, g))).collect();
        let readers = |(g, nodes): (usize, &Vec<NodeId>)| {
            let made = nodes.iter().flat_map(|&n| &graph.node(n).outputs);
            let uses = made.flat_map(|&v| graph.uses(v));
            uses.filter_map(|u| group_of.get(&u.node).copied()).filter(|&to| to != g).collect()
        };
        Quotient::new(groups.iter().enumerate().map(readers).collect())
    }

    fn new(after: Vec<BTreeSet<usize>>) -> Quotient {
        let members = (0..after.len()).map(|g| vec![g]).collect();
        Quotient { after, members }
    }

    /// The numbers that were joined, group by group, in rising order of the first.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &[usize]> {
        self.members.iter().map(Vec::as_slice).filter(|members| !members.is_empty())
    }

    /// Makes one group of these, unless another one would then read it and be read by it.
    pub(crate) fn join(&mut self, set: &BTreeSet<usize>) -> bool {
        let outside = |g: &usize| !set.contains(g);
        let mut open: Vec<usize> =
            set.iter().flat_map(|&g| &self.after[g]).copied().filter(outside).collect();
        let mut seen: BTreeSet<usize> = open.iter().copied().collect();
        while let Some(group) = open.pop() {
            for &next in &self.after[group] {
                if set.contains(&next) {
                    return false;
                }
                if seen.insert(next) {
                    open.push(next);
                }
            }
        }
        let Some(&first) = set.first() else { return true };
        for &group in set.iter().skip(1) {
            let (after, members) =
                (std::mem::take(&mut self.after[group]), std::mem::take(&mut self.members[group]));
            self.after[first].extend(after);
            self.members[first].extend(members);
        }
        self.members[first].sort_unstable();
        self.after[first].retain(|g| !set.contains(g));
        for (group, after) in self.after.iter_mut().enumerate() {
            let before = after.len();
            after.retain(|g| !set.contains(g));
            if after.len() < before && group != first {
                after.insert(first);
            }
        }
        true
    }

    /// Joins groups that are `wanted` with those that read them and are wanted too, as far as that goes.
    pub(crate) fn join_neighbours(&mut self, wanted: &dyn Fn(usize) -> bool) {
        loop {
            let mut joined = false;
            for group in 0..self.after.len() {
                if !wanted(group) {
                    continue;
                }
                let mut at = 0;
                while let Some(&next) = self.after[group].iter().nth(at) {
                    if wanted(next) && self.join(&BTreeSet::from([group, next])) {
                        // The lower of both has the readers now.
                        (joined, at) = (true, 0);
                    } else {
                        at += 1;
                    }
                }
            }
            if !joined {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quotient(edges: &[(usize, usize)], groups: usize) -> Quotient {
        let after = |g| edges.iter().filter(|e| e.0 == g).map(|e| e.1).collect();
        Quotient::new((0..groups).map(after).collect())
    }

    fn groups(q: &Quotient) -> Vec<Vec<usize>> {
        q.groups().map(<[usize]>::to_vec).collect()
    }

    #[test]
    fn neighbours_are_joined_around_what_is_not_wanted() {
        // 0 feeds 1 and 2, which 3 joins; 1 is not wanted.
        let diamond = [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)];
        let mut all = quotient(&diamond, 5);
        all.join_neighbours(&|_| true);
        assert_eq!(groups(&all), [[0, 1, 2, 3, 4]]);
        let mut some = quotient(&diamond, 5);
        some.join_neighbours(&|g| g != 1);
        assert_eq!(groups(&some), [vec![0, 2], vec![1], vec![3, 4]]);
        let mut none = quotient(&diamond, 5);
        none.join_neighbours(&|_| false);
        assert_eq!(groups(&none).len(), 5);
    }

    #[test]
    fn groups_that_would_wait_for_each_other_are_not_joined() {
        // Two chains: {0, 3} and {1, 2} have no path inside, and each reads the other.
        let mut q = quotient(&[(0, 1), (2, 3)], 4);
        assert!(q.join(&BTreeSet::from([0, 3])));
        assert!(!q.join(&BTreeSet::from([1, 2])));
        assert_eq!(groups(&q), [vec![0, 3], vec![1], vec![2]]);
    }
}
