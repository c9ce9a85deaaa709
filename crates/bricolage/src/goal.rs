//! What is wanted: the budget and the setting of one optimisation.

use bricolage_backend::{Policy, Setting};
use bricolage_placement::{Method, Wishes};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Sizes given by the user for one input, `images:1x3x224x224`, or for one open size by its name,
/// `batch:1..32`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputShape {
    /// Name of the input, or of the open size.
    pub name: String,
    /// For each dim the least and the largest size.
    pub dims: Vec<(i64, i64)>,
}

impl InputShape {
    /// Reads `name:1x3x224x224`, where `low..high` may stand for each number. The name may contain colons;
    /// the last one counts.
    pub fn parse(text: &str) -> Result<InputShape, String> {
        let (name, dims) = text
            .rsplit_once(':')
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| format!("`{text}` needs the form NAME:1x3x224x224 or NAME:1..32"))?;
        let size = |text: &str| match text.split_once("..") {
            Some((low, high)) => Some((low.parse::<i64>().ok()?, high.parse::<i64>().ok()?)),
            None => text.parse().ok().map(|n| (n, n)),
        };
        let dims: Option<Vec<(i64, i64)>> = dims.split('x').map(size).collect();
        let dims = dims.filter(|dims| dims.iter().all(|d| d.0 >= 0)).ok_or_else(|| {
            format!("`{text}` needs sizes like 1x3x224x224 or 1..32x3x224x224 after the name")
        })?;
        if let Some((low, high)) = dims.iter().find(|d| d.0 > d.1) {
            return Err(format!("`{text}` needs the smaller end first, found {low}..{high}"));
        }
        Ok(InputShape { name: name.to_owned(), dims })
    }

    /// These sizes of an input.
    pub fn of(input: &str, dims: &[i64]) -> InputShape {
        InputShape { name: input.to_owned(), dims: dims.iter().map(|&d| (d, d)).collect() }
    }

    /// The sizes where each is a single one.
    pub fn fixed(&self) -> Option<Vec<i64>> {
        self.dims.iter().map(|&(low, high)| (low == high).then_some(low)).collect()
    }
}

/// What the optimiser works towards.
#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    /// Threads that the plan may use.
    pub threads: usize,
    /// What kernels may do to the numbers.
    pub policy: Policy,
    /// How nodes are given to backends.
    pub placement: Method,
    /// What is wanted of a plan besides that it is fast.
    pub wishes: Wishes,
    /// Time for the whole optimisation; measuring stops when it is used up.
    pub time_limit: Option<Duration>,
    /// Decides inputs and the order of measurements.
    pub seed: u64,
    /// Sizes that the model leaves open, and ranges of them.
    pub shapes: Vec<InputShape>,
    /// Whether every rewrite is evaluated on data before it is applied.
    pub audit_rewrites: bool,
}

impl Goal {
    /// The default policy for so many threads, without a limit, with seed 0 and the model's own sizes.
    pub fn new(threads: usize) -> Goal {
        Goal {
            threads,
            wishes: Wishes::default(),
            policy: Policy::Default,
            placement: Method::Exact,
            time_limit: None,
            seed: 0,
            shapes: Vec::new(),
            audit_rewrites: false,
        }
    }

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
        assert_eq!((shape.name.as_str(), &*shape.dims), ("a:b", &[(1, 1), (3, 3), (8, 8)][..]));
        let shape = InputShape::parse("n:1..32x0..0x7").unwrap();
        assert_eq!((shape.name.as_str(), &*shape.dims), ("n", &[(1, 32), (0, 0), (7, 7)][..]));
        for wrong in
            ["x", ":1x2", "x:", "x:1xa", "x:-1", "x:1..", "x:..2", "x:3..2", "x:1..2..3", "x:1...2"]
        {
            assert!(InputShape::parse(wrong).is_err(), "{wrong}");
        }
    }
}
