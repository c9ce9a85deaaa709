//! Regions that are given, as a placement.

use crate::{
    ConversionPrices, Finder, Limits, Offer, Offers, PlaceError, Price, Problem, ProblemError,
    Solution, Wishes,
    covering::{Covered, Covering, counted},
};
use bricolage_ir::Graph;
use std::cell::{Cell, RefCell};

/// The placement of exactly these offers, which cover every node once, with the conversions between them.
/// Nothing is predicted of it where an offer was not measured.
pub(crate) fn arranged(
    graph: &Graph,
    offers: Vec<(Offer, Price)>,
    conversions: &dyn ConversionPrices,
    name: &str,
) -> Result<Covered, PlaceError> {
    let (all, prices): (Vec<Offer>, Vec<Price>) = offers.into_iter().unzip();
    let offers = Offers { order: graph.order(), all, declined: Vec::new() };
    let costs: Vec<_> = offers.all.iter().zip(&prices).map(|(o, p)| counted(o, p)).collect();
    let none = Wishes::default();
    let covering = Covering {
        graph,
        wishes: &none,
        is_over: &|| false,
        offers: &offers,
        prices: &prices,
        costs: &costs,
        conversions,
        news: Cell::new(false),
        refused: RefCell::default(),
    };
    let mut covered = covering.cover_found_by(&all_of, &|_| true, &[], name)?;
    if prices.contains(&Price::Unmeasured) {
        covered.placed.prediction = None;
    }
    Ok(covered)
}

/// Every choice of the problem.
fn all_of(problem: &Problem, _: Limits<'_>, _: &[Vec<usize>]) -> Result<Solution, ProblemError> {
    let all: Vec<usize> = (0..problem.choices.len()).collect();
    let cover = problem.price_of(&all)?;
    Ok(Solution { cover, bound: 0.0, exact: false, finder: Finder::Given, states: 0 })
}
