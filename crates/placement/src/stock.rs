//! The formats in which a live tensor exists, and what that is worth to those that read it later.

use crate::{FormatId, Problem};
use std::collections::HashMap;

/// The format that a tensor was made in and the formats it was converted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Stock {
    pub(crate) have: FormatId,
    pub(crate) made: u16,
}

/// Sets of formats beyond which stocks are told apart by their formats alone.
const MAX_SETS: usize = 256;

/// What may still be read of a tensor.
struct Outlook {
    /// Every set of formats that its remaining readers may need together; none when there are too
    /// many.
    sets: Vec<u16>,
    /// The class of each stock that was met.
    known: Vec<(Stock, usize)>,
    classes: Vec<Class>,
}

/// Stocks that are worth the same.
struct Class {
    /// Stands for all of them.
    stock: Stock,
    /// What each set costs in addition.
    more: Vec<f64>,
    least: f64,
    /// `behind[b]`: how much more than from class `b` the rest can cost at most.
    behind: Vec<f64>,
}

/// Prices of conversion sets and the worth of stocks, computed once each.
pub(crate) struct Stocks<'a> {
    problem: &'a Problem,
    prices: HashMap<(u32, FormatId, u16), f64>,
    outlook_of: HashMap<(u32, u16, u32), usize>,
    outlooks: Vec<Outlook>,
}

impl<'a> Stocks<'a> {
    pub(crate) fn new(problem: &'a Problem) -> Stocks<'a> {
        Stocks { problem, prices: HashMap::new(), outlook_of: HashMap::new(), outlooks: Vec::new() }
    }

    fn price(&mut self, tensor: u32, have: FormatId, needed: u16) -> f64 {
        let needed = needed & !(1 << have);
        if needed == 0 {
            return 0.0;
        }
        let at = (tensor, have, needed);
        let problem = self.problem;
        let compute = || problem.conversions(tensor as usize, 1 << have, needed).0;
        *self.prices.entry(at).or_insert_with(compute)
    }

    /// What the formats of `set` cost in addition; infinite where one cannot be made.
    pub(crate) fn more(&mut self, tensor: u32, stock: Stock, set: u16) -> f64 {
        let with = (stock.made | set) & !(1 << stock.have);
        if with == stock.made & !(1 << stock.have) {
            return 0.0;
        }
        self.price(tensor, stock.have, with) - self.price(tensor, stock.have, stock.made)
    }

    /// What at most `readers` further readers may want of a tensor, each in one of `formats`.
    pub(crate) fn outlook(&mut self, tensor: u32, formats: u16, readers: u32) -> usize {
        let readers = readers.min(formats.count_ones());
        *self.outlook_of.entry((tensor, formats, readers)).or_insert_with(|| {
            let wanted = self.problem.tensors[tensor as usize].wanted.map_or(0, |f| 1 << f);
            let mut sets: Vec<u16> = Vec::new();
            // Every subset that is not empty, by counting down through the bits of `formats`.
            let mut set = formats;
            while set != 0 && sets.len() <= MAX_SETS {
                if set.count_ones() <= readers {
                    sets.push(set | wanted);
                }
                set = (set - 1) & formats;
            }
            if sets.len() > MAX_SETS {
                sets.clear();
            }
            self.outlooks.push(Outlook { sets, known: Vec::new(), classes: Vec::new() });
            self.outlooks.len() - 1
        })
    }

    /// The class of a stock of a tensor under an outlook.
    pub(crate) fn class(&mut self, outlook: usize, tensor: u32, stock: Stock) -> usize {
        if let Some(found) = self.outlooks[outlook].known.iter().find(|k| k.0 == stock) {
            return found.1;
        }
        let sets = std::mem::take(&mut self.outlooks[outlook].sets);
        let more: Vec<f64> = sets.iter().map(|&set| self.more(tensor, stock, set)).collect();
        let o = &mut self.outlooks[outlook];
        o.sets = sets;
        let same = |c: &Class| !more.is_empty() && c.more == more;
        let class = o.classes.iter().position(same).unwrap_or_else(|| {
            let least = more.iter().copied().fold(f64::INFINITY, f64::min);
            let least = if more.is_empty() { 0.0 } else { least };
            let mut behind: Vec<f64> =
                o.classes.iter().map(|b| most_behind(&more, &b.more)).collect();
            behind.push(0.0);
            for a in &mut o.classes {
                let gap = most_behind(&a.more, &more);
                a.behind.push(gap);
            }
            o.classes.push(Class { stock, more, least, behind });
            o.classes.len() - 1
        });
        o.known.push((stock, class));
        class
    }

    /// The stock that stands for a class.
    pub(crate) fn stock(&self, outlook: usize, class: usize) -> Stock {
        self.outlooks[outlook].classes[class].stock
    }

    /// The least that the remaining readers of a tensor cost in conversions.
    pub(crate) fn least(&self, outlook: usize, class: usize) -> f64 {
        self.outlooks[outlook].classes[class].least
    }

    /// How much more conversions can cost from class `a` than from class `b`, whatever is read;
    /// negative where they always cost less.
    pub(crate) fn behind(&self, outlook: usize, a: usize, b: usize) -> f64 {
        self.outlooks[outlook].classes[a].behind[b]
    }
}

fn most_behind(a: &[f64], b: &[f64]) -> f64 {
    if a.is_empty() {
        return f64::INFINITY;
    }
    let gaps = a.iter().zip(b).filter(|(a, b)| a.is_finite() || b.is_finite());
    gaps.map(|(a, b)| a - b).fold(f64::NEG_INFINITY, f64::max)
}
