//! Regions that are given, as a placement.

use crate::{
    ConversionPrices, Finder, Limits, Offer, Offers, PlaceError, Placed, Price, Problem,
    ProblemError, Solution, place::Covering,
};
use bricolage_ir::Graph;
use std::cell::{Cell, RefCell};

/// The placement of exactly these offers, which cover every node once, with the conversions between them.
/// Its price is not a number where an offer was not measured.
pub(crate) fn arranged(
    graph: &Graph,
    offers: Vec<(Offer, Price)>,
    conversions: &dyn ConversionPrices,
    name: &str,
) -> Result<Placed, PlaceError> {
    let (all, prices): (Vec<Offer>, Vec<Price>) = offers.into_iter().unzip();
    let offers = Offers { order: graph.order(), all, declined: Vec::new() };
    let covering = Covering {
        graph,
        is_over: &|| false,
        offers: &offers,
        prices: &prices,
        conversions,
        news: Cell::new(false),
        refused: RefCell::default(),
    };
    let (mut placed, _) = covering.cover_found_by(&all_of, &|_| true, &[], name)?;
    if prices.contains(&Price::Unmeasured) {
        placed.predicted_ns = f64::NAN;
    }
    Ok(placed)
}

/// Every choice of the problem.
fn all_of(problem: &Problem, _: Limits<'_>, _: &[Vec<usize>]) -> Result<Solution, ProblemError> {
    let all: Vec<usize> = (0..problem.choices.len()).collect();
    let cover = problem.price_of(&all)?;
    Ok(Solution { cover, bound: 0.0, exact: false, finder: Finder::Given, states: 0 })
}
