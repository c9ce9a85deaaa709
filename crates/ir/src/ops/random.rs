//! Random numbers.

use super::{OpDef, elements::one, results, types::Operands};
use crate::{AxisMap, EvalError, Fact, Inputs, Real, TypeError};
use bricolage_tensor::{DType, Datum, Dim, Rng, Shape, Symbol, Tensor};
use serde::{Deserialize, Serialize};

/// How numbers are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Distribution {
    /// Evenly from `low` up to `high`.
    Uniform {
        /// Lower end.
        low: Real,
        /// Upper end.
        high: Real,
    },
    /// Normally.
    Normal {
        /// Mean.
        mean: Real,
        /// Standard deviation.
        scale: Real,
    },
}

/// Numbers that depend on the seed alone: every run gives the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Random {
    /// How they are distributed.
    pub distribution: Distribution,
    /// Element type, a float.
    pub dtype: DType,
    /// Shape of the result.
    pub shape: Shape,
    /// Which numbers.
    pub seed: u64,
}

impl OpDef for Random {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        Operands::new(inputs, 0, 0)?;
        if !self.dtype.is_float() {
            return Err(super::types::attribute("dtype", "a float type", self.dtype));
        }
        Ok(vec![Fact::tensor(self.dtype, self.shape.iter().cloned())])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (dtype, dims) = results(self, inputs)?.swap_remove(0);
        // Refuses what does not fit in memory.
        let count = Tensor::zeros(dtype, &dims)?.len();
        let mut rng = Rng::new(self.seed);
        let mut next = || match self.distribution {
            Distribution::Uniform { low, high } => {
                low.get() + rng.uniform() * (high.get() - low.get())
            }
            Distribution::Normal { mean, scale } => mean.get() + scale.get() * rng.normal(),
        };
        let values: Vec<f64> = (0..count).map(|_| next()).collect();
        one(Tensor::from_f64(dtype, &dims, &values))
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        AxisMap::opaque(inputs, outputs)
    }

    fn bind(&self, value: &dyn Fn(&Symbol) -> Option<Dim>) -> Random {
        let shape = self.shape.iter().map(|d| d.substitute(value)).collect();
        Random { shape, ..self.clone() }
    }
}
