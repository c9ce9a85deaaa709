//! Fits a schedule into memory: who lives when, who may share bytes, and where everything lies.
//!
//! The predicted peak is exact: [`Fitted::arena`] is the size of the arena that a session
//! allocates, and [`Fitted::live_peak`] the largest sum of bytes alive at one step.

mod offsets;
mod schedule;

pub use offsets::{Block, Offsets, assign_offsets, live_peak};
pub use schedule::{Fitted, Held, Schedule, Use, fit};
