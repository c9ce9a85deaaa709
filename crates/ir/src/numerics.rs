//! What a computation may do to the numbers.

use serde::{Deserialize, Serialize};
use std::fmt;

/// How far a kernel's or a rule's arithmetic departs from the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Numerics {
    /// The same operations in the same order, or none at all.
    Exact,
    /// The same operations in another order, in the element type of the values.
    Reassociates,
    /// Winograd convolution with output tiles of this size: sums of transformed products.
    Winograd(u8),
    /// Arithmetic in fewer bits than the element type has.
    Reduced,
}

impl Numerics {
    /// The error that kernels of the class are expected to make beyond that of plain sums, as a share
    /// of the largest magnitude of the result: for Winograd the worst seen with 32 to 512 channels on
    /// uniformly random data, rounded up; for [`Numerics::Reduced`] a bound that no kernel uses yet. A
    /// gate allows eight times as much.
    pub fn error(self) -> f64 {
        match self {
            Numerics::Exact | Numerics::Reassociates => 0.0,
            Numerics::Winograd(2) => 1e-6,
            Numerics::Winograd(4) => 1e-5,
            Numerics::Winograd(_) => 2e-5,
            Numerics::Reduced => 6e-4,
        }
    }
}

impl fmt::Display for Numerics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Numerics::Exact => f.write_str("exact"),
            Numerics::Reassociates => f.write_str("reassociates"),
            Numerics::Winograd(tile) => write!(f, "winograd-f{tile}"),
            Numerics::Reduced => f.write_str("reduced"),
        }
    }
}
