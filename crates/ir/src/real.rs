//! A real-valued attribute that can be compared and hashed.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// An `f64` with equality and hash by bits; every NaN is the same, 0 and -0 differ.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Real(u64);

impl Real {
    /// The attribute with this value.
    pub const fn new(value: f64) -> Real {
        Real(if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() })
    }

    /// The value.
    pub const fn get(self) -> f64 {
        f64::from_bits(self.0)
    }
}

impl From<f64> for Real {
    fn from(value: f64) -> Real {
        Real::new(value)
    }
}

/// The exact value of the `f32`.
impl From<f32> for Real {
    fn from(value: f32) -> Real {
        Real::new(value.into())
    }
}

impl fmt::Debug for Real {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.get(), f)
    }
}

impl fmt::Display for Real {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.get(), f)
    }
}

impl Serialize for Real {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(self.get())
    }
}

impl<'de> Deserialize<'de> for Real {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Real, D::Error> {
        f64::deserialize(from).map(Real::new)
    }
}
