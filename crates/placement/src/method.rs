//! How nodes are given to backends.

use serde::{Deserialize, Serialize};
use std::fmt;

/// How nodes are given to backends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// The cover of least price, formats and conversions in it ([`solve`](crate::solve)), every single backend
    /// beside it, and covers made anew from what plans and merged regions were measured to take.
    #[default]
    Exact,
    /// The first of those covers and every single backend alone: what is quicker to find.
    OpLevel,
    /// The op level of Collage's published method ([`v1`](crate::v1)): a baseline to compare with.
    CollageV1,
    /// Each backend in turn, in the order of registration, takes the largest regions that it can: a
    /// baseline to compare with.
    Greedy,
}

impl Method {
    /// Whether covers are those of least price.
    pub fn is_exact(self) -> bool {
        matches!(self, Method::Exact | Method::OpLevel)
    }

    /// As it is written in flags and reports.
    pub fn name(self) -> &'static str {
        match self {
            Method::Exact => "exact",
            Method::OpLevel => "op-level",
            Method::CollageV1 => "collage-v1",
            Method::Greedy => "greedy",
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
