//! What the model means before anything is rewritten: the last judge of a plan.

use crate::{Error, planned::Verified};
use bricolage_ir::{Error as Difference, Graph, evaluate};
use bricolage_measure::Database;
use bricolage_tensor::Datum;

/// The imported graph with its inputs.
pub(crate) struct Original<'a> {
    graph: &'a Graph,
    inputs: &'a [Datum],
}

impl<'a> Original<'a> {
    pub(crate) fn new(graph: &'a Graph, inputs: &'a [Datum]) -> Original<'a> {
        Original { graph, inputs }
    }

    /// Fails where the outputs of a verified plan are not those of the graph, as the reference evaluates
    /// it. Outputs that were compared before are known by their bits. Gives what could not be judged.
    pub(crate) fn require(
        &self,
        verified: &Verified,
        model: &str,
        database: &Database,
    ) -> Result<Option<String>, Error> {
        let name = name(model, verified);
        if database.note(&name)?.is_some() {
            return Ok(None);
        }
        let outputs = match evaluate(self.graph, self.inputs) {
            Ok(outputs) => outputs,
            Err(e) => {
                let what = "the graph before rewriting was not compared with the plan";
                return Ok(Some(format!("{what}: {e}")));
            }
        };
        let tensors = outputs.iter().filter_map(Datum::as_tensor);
        for ((before, found), allowed) in tensors.zip(&verified.outputs).zip(&verified.allowed) {
            let error = Difference::between(before, found);
            // Neither side is exact: each follows its own graph.
            let twice = allowed.tolerance().plus(allowed.tolerance());
            let share = error.share_of(&twice);
            if share.is_nan() || share > 1.0 {
                let (output, max_abs) = (&allowed.output, twice.max_abs);
                let what = format!("output `{output}`: {error}, allowed {max_abs:.3e}");
                return Err(Error::Rewrite { what });
            }
        }
        database.set_note(&name, "compared")?;
        Ok(None)
    }
}

/// The name under which the database keeps that these outputs were compared.
fn name(model: &str, verified: &Verified) -> String {
    let mut hasher = blake3::Hasher::new();
    hasher.update(model.as_bytes());
    for (tensor, allowed) in verified.outputs.iter().zip(&verified.allowed) {
        hasher.update(allowed.output.as_bytes());
        hasher.update(tensor.ty().to_string().as_bytes()).update(tensor.bytes());
        hasher.update(&allowed.max_abs.to_le_bytes());
    }
    format!("meaning {}", hasher.finalize().to_hex())
}
