//! Ops that only a foreign runtime knows.

use super::OpDef;
use crate::{AxisMap, EvalError, Fact, Inputs, TypeError, graph::bind_type};
use bricolage_tensor::{Datum, Dim, Symbol, Type};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A node of the user's model without meaning here; a capable foreign backend may take it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Opaque {
    /// Operator domain.
    pub domain: String,
    /// Operator name.
    pub name: String,
    /// Version of the domain's operator set.
    pub opset: i64,
    /// Attributes as the model's format has them.
    pub attributes: Vec<u8>,
    /// Declared types of the results.
    pub outputs: Vec<Type>,
}

impl fmt::Display for Opaque {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // ONNX's own domain is the empty one.
        let dot = if self.domain.is_empty() { "" } else { "." };
        write!(f, "{}{dot}{} of opset {}", self.domain, self.name, self.opset)
    }
}

impl OpDef for Opaque {
    fn infer(&self, _: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        Ok(self.outputs.iter().cloned().map(Fact::from).collect())
    }

    fn eval(&self, _: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        Err(EvalError::Foreign { name: self.to_string() })
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        AxisMap::opaque(inputs, outputs)
    }

    fn bind(&self, value: &dyn Fn(&Symbol) -> Option<Dim>) -> Opaque {
        let outputs = self.outputs.iter().map(|t| bind_type(t, value)).collect();
        Opaque { outputs, ..self.clone() }
    }
}
