//! A cover problem as a linear programme over sets: a variable says that a choice is chosen, another that a
//! tensor, made in one format, is had in a whole set of formats.
//!
//! The variables for sets (rather than for single conversions) keep the relaxation tight, for the price of
//! a set is the price of the cheapest tree of conversions.

use crate::{FormatId, Problem, problem::MOST_FORMATS};
use std::collections::{BTreeMap, BTreeSet};

/// How a row compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sense {
    AtMost,
    AtLeast,
    Exactly,
}

/// A linear constraint.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// Columns, each once, with their factors.
    pub(crate) terms: Vec<(usize, f64)>,
    pub(crate) sense: Sense,
    pub(crate) right: f64,
}

/// A variable from 0 to 1.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    /// What it costs, in units of [`Linear::unit`].
    pub(crate) cost: f64,
    /// Whether it must be 0 or 1; the others are where these are.
    pub(crate) whole: bool,
}

/// The programme of a problem, without the rows against choices that wait for each other.
pub(crate) struct Linear {
    pub(crate) columns: Vec<Column>,
    pub(crate) rows: Vec<Row>,
    /// The column of each choice that may be chosen.
    pub(crate) column_of: Vec<Option<usize>>,
    /// Of each column, a row that it is in and whose price may be lowered: that of what it covers or of
    /// what it is made from.
    pub(crate) payer: Vec<Option<usize>>,
    /// Nanoseconds, or whatever prices are in, of a cost of 1: the mean price of a choice.
    pub(crate) unit: f64,
    /// Whether no set of formats was left out: otherwise the least cost may be above that of a cover.
    pub(crate) complete: bool,
}

/// Sets of formats of a tensor, at most.
const MOST_SETS: usize = 2048;
/// Formats that a node reads a tensor in, at most, for rows for all sets of them.
const ALL_FORMATS: u32 = 4;

/// All subsets, the largest first.
fn subsets(of: u16) -> impl Iterator<Item = u16> {
    let next = move |set: &u16| (*set != 0).then(|| (set - 1) & of);
    std::iter::successors(Some(of), next)
}

impl Linear {
    pub(crate) fn new(problem: &Problem) -> Linear {
        let pinned_out: BTreeSet<usize> =
            problem.pins.iter().filter(|p| !p.chosen).map(|p| p.choice).collect();
        let admitted = |(i, cost): (usize, f64)| cost.is_finite() && !pinned_out.contains(&i);
        let costs: Vec<f64> = problem.choices.iter().map(|c| c.cost).collect();
        let open: Vec<usize> = (0..costs.len()).filter(|&i| admitted((i, costs[i]))).collect();
        let mean = open.iter().map(|&i| costs[i]).sum::<f64>() / open.len().max(1) as f64;
        let mut linear = Linear {
            columns: Vec::new(),
            rows: Vec::new(),
            payer: Vec::new(),
            column_of: vec![None; costs.len()],
            unit: if mean > 0.0 { mean } else { 1.0 },
            complete: true,
        };
        for &i in &open {
            linear.column_of[i] = Some(linear.column(costs[i], true));
        }
        linear.cover(problem);
        for tensor in 0..problem.tensors.len() {
            linear.tensor(problem, tensor);
        }
        linear.rules(problem);
        linear
    }

    fn column(&mut self, cost: f64, whole: bool) -> usize {
        self.columns.push(Column { cost: cost / self.unit, whole });
        self.payer.push(None);
        self.columns.len() - 1
    }

    fn row(&mut self, terms: Vec<(usize, f64)>, sense: Sense, right: f64) {
        self.rows.push(Row { terms, sense, right });
    }

    /// Every node is covered.
    fn cover(&mut self, problem: &Problem) {
        let mut holding = vec![Vec::new(); problem.nodes];
        for (choice, column) in problem.choices.iter().zip(&self.column_of) {
            let Some(column) = *column else { continue };
            choice.nodes.iter().for_each(|&n| holding[n].push((column, 1.0)));
        }
        let sense = if problem.recompute { Sense::AtLeast } else { Sense::Exactly };
        for terms in holding {
            terms.iter().for_each(|&(column, _): &(usize, f64)| {
                self.payer[column] = Some(self.rows.len());
            });
            self.row(terms, sense, 1.0);
        }
    }

    /// What is read of a tensor is made, or converted from what is made.
    fn tensor(&mut self, problem: &Problem, tensor: usize) {
        let t = &problem.tensors[tensor];
        let mut makers: BTreeMap<FormatId, Vec<usize>> = BTreeMap::new();
        let mut readers: BTreeMap<FormatId, Vec<(usize, usize)>> = BTreeMap::new();
        for (i, choice) in problem.choices.iter().enumerate() {
            let Some(column) = self.column_of[i] else { continue };
            for &(_, f) in choice.writes.iter().filter(|w| w.0 == tensor) {
                makers.entry(f).or_default().push(column);
            }
            for &(_, f) in choice.reads.iter().filter(|r| r.0 == tensor) {
                readers.entry(f).or_default().push((i, column));
            }
        }
        if let Some(f) = t.arrives {
            makers.entry(f).or_default();
        }
        let wanted = t.wanted.map_or(0u16, |f| 1 << f);
        let read = readers.keys().fold(wanted, |all, f| all | 1 << f);
        let made = makers.keys().fold(0u16, |all, f| all | 1 << f);
        if read == 0 || (!problem.recompute && read == made && read.is_power_of_two()) {
            // Whoever covers a reader without the maker leaves the maker to a choice that writes.
            return;
        }
        // Choices that need the tensor in one of some formats and exclude each other. Rows for sets of
        // formats keep a set of formats from serving one reader twice in the relaxation.
        let mut groups: BTreeSet<(u16, Vec<usize>)> = BTreeSet::new();
        let mut twice = false;
        let inside = |n: usize, i: usize| problem.choices[i].nodes.binary_search(&n).is_ok();
        for (&f, readers) in &readers {
            let alone = readers.iter().filter(|&&(i, _)| {
                twice |= problem.choices[i].reads.iter().filter(|r| r.0 == tensor).count() > 1;
                problem.recompute || !t.consumers.iter().any(|&n| inside(n, i))
            });
            groups.extend(alone.map(|&(_, column)| (1 << f, vec![column])));
        }
        for &n in t.consumers.iter().filter(|_| !problem.recompute) {
            let own: Vec<(FormatId, usize)> = readers
                .iter()
                .flat_map(|(&f, all)| all.iter().map(move |&(i, column)| (f, i, column)))
                .filter(|&(_, i, _)| inside(n, i))
                .map(|(f, _, column)| (f, column))
                .collect();
            let formats = own.iter().fold(0u16, |all, o| all | 1 << o.0);
            let most = if formats.count_ones() <= ALL_FORMATS { ALL_FORMATS } else { 2 };
            for set in subsets(formats).filter(|set| (1..=most).contains(&set.count_ones())) {
                let some = own.iter().filter(|o| set & (1 << o.0) != 0).map(|o| o.1);
                let group: BTreeSet<usize> = some.collect();
                groups.insert((set, group.into_iter().collect()));
            }
        }
        let most = if problem.recompute || twice { MOST_FORMATS } else { t.consumers.len() };
        // Sets of formats with their columns.
        let mut had: Vec<(u16, usize)> = Vec::new();
        for (&from, makers) in &makers {
            let sets = self.sets_of(problem, tensor, from, read, most);
            let first = self.columns.len();
            for &(set, price) in &sets {
                let column = self.column(price, problem.recompute);
                self.payer[column] = Some(self.rows.len());
                had.push((set, column));
            }
            let mut terms: Vec<(usize, f64)> =
                (first..self.columns.len()).map(|column| (column, 1.0)).collect();
            terms.extend(makers.iter().map(|&column| (column, -1.0)));
            let right = if t.arrives == Some(from) { 1.0 } else { 0.0 };
            self.row(terms, Sense::AtMost, right);
        }
        let having = |sets: &[(u16, usize)], some: u16| -> Vec<(usize, f64)> {
            sets.iter().filter(|s| s.0 & some != 0).map(|s| (s.1, 1.0)).collect()
        };
        for (formats, group) in groups {
            let mut terms = having(&had, formats);
            terms.extend(group.into_iter().map(|column| (column, -1.0)));
            self.row(terms, Sense::AtLeast, 0.0);
        }
        if wanted != 0 {
            self.row(having(&had, wanted), Sense::AtLeast, 1.0);
        }
    }

    /// Sets of formats in which a tensor made in one may be had, with their prices; none that is in a
    /// larger one of the same price.
    fn sets_of(
        &mut self,
        problem: &Problem,
        tensor: usize,
        from: FormatId,
        read: u16,
        readers: usize,
    ) -> Vec<(u16, f64)> {
        let t = &problem.tensors[tensor];
        let wanted = t.wanted.map_or(0u16, |f| 1 << f);
        let own = 1u16 << from;
        let more = read & !own;
        let mut sets = Vec::new();
        // The smallest first.
        for size in 0..=more.count_ones() {
            for set in subsets(more).filter(|set| set.count_ones() == size) {
                if (set & !wanted).count_ones() as usize > readers {
                    continue;
                }
                if sets.len() == MOST_SETS {
                    self.complete = false;
                    return sets;
                }
                let price = problem.conversions(tensor, own, set).0;
                if price.is_finite() {
                    sets.retain(|&(s, p): &(u16, f64)| s & !(set | own) != 0 || p < price);
                    sets.push((set | own, price));
                }
            }
        }
        sets
    }

    /// Pins, charges and budgets.
    fn rules(&mut self, problem: &Problem) {
        for pin in problem.pins.iter().filter(|p| p.chosen) {
            let terms = self.column_of[pin.choice].iter().map(|&column| (column, 1.0)).collect();
            self.row(terms, Sense::Exactly, 1.0);
        }
        for (backend, &charge) in problem.charges.iter().enumerate().filter(|c| *c.1 > 0.0) {
            let used = self.column(charge, false);
            let mut groups: BTreeSet<Vec<usize>> = BTreeSet::new();
            let mut holding = vec![Vec::new(); problem.nodes];
            for (choice, column) in problem.choices.iter().zip(&self.column_of) {
                let Some(column) = column.filter(|_| choice.backend == backend) else { continue };
                match problem.recompute {
                    true => drop(groups.insert(vec![column])),
                    false => choice.nodes.iter().for_each(|&n| holding[n].push(column)),
                }
            }
            groups.extend(holding);
            for group in groups.into_iter().filter(|g| !g.is_empty()) {
                let mut terms = vec![(used, 1.0)];
                terms.extend(group.into_iter().map(|column| (column, -1.0)));
                self.row(terms, Sense::AtLeast, 0.0);
            }
        }
        for budget in &problem.budgets {
            let used = budget.uses.iter().filter(|u| u.1 > 0.0);
            let terms: Vec<(usize, f64)> =
                used.filter_map(|&(c, amount)| Some((self.column_of[c]?, amount))).collect();
            let largest = terms.iter().map(|t| t.1).fold(0.0, f64::max);
            if largest > 0.0 && budget.most.is_finite() {
                let terms = terms.into_iter().map(|(c, amount)| (c, amount / largest)).collect();
                self.row(terms, Sense::AtMost, budget.most / largest);
            }
        }
    }

    /// Forbids choices that wait for each other to be chosen together, and, where nodes are covered once,
    /// any others that read the same for the same nodes in their places.
    pub(crate) fn forbid_cycle(&mut self, problem: &Problem, cycle: &[usize]) {
        let place = |c: usize| {
            let choice = &problem.choices[c];
            (&choice.nodes, choice.reads.iter().map(|r| r.0).collect::<BTreeSet<usize>>())
        };
        let places: Vec<_> = cycle.iter().map(|&c| place(c)).collect();
        let alike = |i: &usize| match problem.recompute {
            true => cycle.contains(i),
            false => places.contains(&place(*i)),
        };
        let all: Vec<usize> = (0..problem.choices.len()).filter(alike).collect();
        self.forbid(&all, cycle.len());
    }

    /// Forbids that `count` of these choices are chosen.
    pub(crate) fn forbid(&mut self, choices: &[usize], count: usize) {
        let terms = choices.iter().filter_map(|&i| Some((self.column_of[i]?, 1.0))).collect();
        self.row(terms, Sense::AtMost, count as f64 - 1.0);
    }
}
