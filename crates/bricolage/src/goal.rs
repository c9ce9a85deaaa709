//! What is wanted: the budget and the setting of one optimisation.

use bricolage_backend::{Policy, Setting};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Sizes given by the user for one input: `images:1x3x224x224`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputShape {
    /// Name of the input.
    pub input: String,
    /// All of its dims.
    pub dims: Vec<i64>,
}

impl InputShape {
    /// Reads `name:1x3x224x224`. The name may contain colons; the last one counts.
    pub fn parse(text: &str) -> Result<InputShape, String> {
        let (input, dims) = text
            .rsplit_once(':')
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| format!("`{text}` needs the form NAME:1x3x224x224"))?;
        let dims: Result<Vec<i64>, _> = dims.split('x').map(str::parse::<i64>).collect();
        match dims {
            Ok(dims) if dims.iter().all(|&d| d >= 0) => {
                Ok(InputShape { input: input.to_owned(), dims })
            }
            _ => Err(format!("`{text}` needs sizes like 1x3x224x224 after the name")),
        }
    }
}

/// What the optimiser works towards.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// Threads that the plan may use.
    pub threads: usize,
    /// What kernels may do to the numbers.
    pub policy: Policy,
    /// Time for the whole optimisation; measuring stops when it is used up.
    pub time_limit: Option<Duration>,
    /// Decides inputs and the order of measurements.
    pub seed: u64,
    /// Sizes of inputs that the model leaves open.
    pub shapes: Vec<InputShape>,
    /// Whether every rewrite is evaluated on data before it is applied.
    pub audit_rewrites: bool,
}

impl Goal {
    /// What backends need to know of it.
    pub fn setting(&self) -> Setting {
        Setting { threads: self.threads, policy: self.policy }
    }
}

/// Where an optimisation stands.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// What is being done.
    pub phase: &'static str,
    /// Parts done.
    pub done: usize,
    /// Parts in all; 0 when that is not known.
    pub total: usize,
    /// Time of the best whole plan measured so far, in nanoseconds.
    pub best_ns: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_are_read() {
        let shape = InputShape::parse("a:b:1x3x8").unwrap();
        assert_eq!((shape.input.as_str(), shape.dims.as_slice()), ("a:b", &[1, 3, 8][..]));
        for wrong in ["x", ":1x2", "x:", "x:1xa", "x:-1"] {
            assert!(InputShape::parse(wrong).is_err(), "{wrong}");
        }
    }
}
