//! What the user allows kernels to do to the numbers.

use bricolage_ir::Numerics;
use serde::{Deserialize, Serialize};

/// What the user allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Policy {
    /// Other orders of summation only.
    Strict,
    /// Winograd with tiles of 2 and 4 as well.
    #[default]
    Default,
    /// Larger tiles and reduced precision as well, within the accuracy budget.
    Fast,
}

impl Policy {
    /// Whether a kernel of this class may be used.
    pub fn admits(self, numerics: Numerics) -> bool {
        match numerics {
            Numerics::Exact | Numerics::Reassociates => true,
            Numerics::Winograd(tile) => {
                self == Policy::Fast || (self == Policy::Default && tile <= 4)
            }
            Numerics::Reduced => self == Policy::Fast,
        }
    }
}
