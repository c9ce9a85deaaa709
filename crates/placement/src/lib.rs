//! Covers the graph with measured regions, formats and conversions included.
//!
//! [`place`] asks every backend what it offers, prices the offers by measurement after their
//! results were found right, and finds the cover of least price ([`sweep`]); the cover of every
//! single backend is kept beside it, so that whoever measures whole plans can fall back to it.

mod carry;
mod conversions;
mod doubts;
mod observed;
mod offers;
mod order;
mod place;
mod pricing;
mod problem;
mod prospects;
mod refine;
mod stock;
mod sweep;
mod trial;

pub use carry::{Carried, place_guessed};
pub use conversions::{MeasuredConversions, Unpriced};
pub use doubts::{impossible, least_ns};
pub use observed::Observed;
pub use offers::{Form, Offer, Offers, gather, gather_whole};
pub use place::{
    ConversionPrices, PlaceError, Placed, PlacedConversion, PlacedRegion, Placements, Refused,
    RunnerUp, place,
};
pub use pricing::{Effort, OpenOffer, Price, Pricing, check_offer, price};
pub use problem::{Choice, Conversion, Cover, FormatId, Problem, ProblemError, Tensor};
pub use sweep::{Limits, Solution, sweep};
pub use trial::{Bench, LocalTrial, OpenTrial, Trial, TrialError};
