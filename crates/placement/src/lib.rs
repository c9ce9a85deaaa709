//! Covers the graph with measured regions, formats and conversions included.
//!
//! [`price_all`] asks every backend what it offers and prices that by measurement after its results were
//! found right. [`Priced::place`] finds the cover of least price ([`solve`]) and that of every single backend, so
//! that whoever measures whole plans can fall back to those; [`Priced::place_again`] finds the cover of least
//! price by what kernels took inside plans ([`InPlan`]).

mod arrange;
mod blocks;
mod carry;
mod certificate;
mod chosen;
mod conversions;
mod cover;
mod covering;
mod doubts;
mod dual;
mod greedy;
mod in_plan;
mod linear;
mod method;
mod observed;
mod offers;
mod order;
mod ordered;
mod place;
mod placed;
mod pricing;
mod problem;
mod programme;
mod prospects;
mod quotient;
mod refine;
mod solve;
mod stock;
mod stretches;
mod sweep;
mod table;
mod trial;
pub mod v1;
mod wishes;

pub use carry::{Carried, place_guessed};
pub use certificate::{Certificate, certify};
pub use chosen::Chosen;
pub use conversions::{MeasuredConversions, Unpriced};
pub use cover::{Conversion, Cover, CoverError};
pub use doubts::{impossible, least_ns};
pub use in_plan::InPlan;
pub use method::Method;
pub use observed::Observed;
pub use offers::{Form, Offer, Offers, gather, gather_whole};
pub use place::{ConversionPrices, PlaceError, Priced, Refused, price_all};
pub use placed::{Alternative, Placed, PlacedConversion, PlacedRegion, Prediction};
pub use pricing::{Effort, OpenOffer, Price, Pricing, check_offer, price, recorded};
pub use problem::{Budget, Choice, FormatId, Pin, Problem, ProblemError, Tensor};
pub use solve::{Finder, Solution, solve};
pub use sweep::{Limits, sweep};
pub use trial::{Bench, LocalTrial, OpenTrial, Trial, TrialError};
pub use wishes::{Charge, Wish, Wishes, gather_wished};
