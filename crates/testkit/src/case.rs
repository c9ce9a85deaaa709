//! A graph with inputs, and what its results must be.

use crate::Generated;
use bricolage::reduce::Example;
use bricolage_ir::{EvalError, Graph, NodeId, Tolerance, evaluate, parse, tolerances};
use bricolage_tensor::{DType, Datum, Rng, Tensor};

/// Elements of a constant that is drawn, at most.
const MOST_DRAWN: i64 = 1 << 20;

/// A graph with inputs for it, in the graph's order.
#[derive(Clone, Debug)]
pub struct Case {
    /// What is computed.
    pub graph: Graph,
    /// On what.
    pub inputs: Vec<Tensor>,
}

impl From<Generated> for Case {
    fn from(g: Generated) -> Case {
        Case { graph: g.graph, inputs: g.inputs }
    }
}

impl From<Example> for Case {
    fn from(e: Example) -> Case {
        Case { graph: e.graph, inputs: e.inputs }
    }
}

impl From<Case> for Example {
    fn from(c: Case) -> Example {
        Example { graph: c.graph, inputs: c.inputs }
    }
}

/// What the outputs of a graph are and how far an engine's may be from them.
#[derive(Clone, Debug)]
pub struct Expected {
    /// By the reference evaluator, in the graph's order.
    pub outputs: Vec<Tensor>,
    /// By the noise floor.
    pub allowed: Vec<Tolerance>,
}

impl Case {
    /// The case that a text describes: a graph in its text form, whose inputs, and whose constants that
    /// lie aside, are drawn. `Err` with a sentence for a text that is not a graph.
    pub fn parse(text: &str) -> Result<Case, String> {
        let mut rng = Rng::new(11);
        let aside = constants_aside(text, &mut rng)?;
        let graph = parse(text, &aside).map_err(|e| e.to_string())?;
        let mut inputs = Vec::new();
        for &input in &graph.inputs {
            let ty = graph.fact(input).ty.as_tensor();
            let fixed = ty.and_then(|t| Some((t.dtype, t.shape.as_fixed()?)));
            let (dtype, dims) = fixed.ok_or("an input has no fixed sizes")?;
            inputs.push(drawn(dtype, &dims, &mut rng));
        }
        Ok(Case { graph, inputs })
    }

    /// The inputs as the evaluator takes them.
    pub fn data(&self) -> Vec<Datum> {
        self.inputs.iter().cloned().map(Datum::from).collect()
    }

    /// What the reference computes, and what rounding may do to it; `extra` as
    /// [`tolerances`] takes it.
    pub fn expected(&self, extra: &dyn Fn(NodeId) -> f64) -> Result<Expected, EvalError> {
        let data = self.data();
        let outputs = tensors(evaluate(&self.graph, &data)?);
        let reference: Vec<Option<&Tensor>> = outputs.iter().map(Some).collect();
        let allowed = tolerances(&self.graph, &data, &reference, &|_| None, extra, 0)?;
        Ok(Expected { outputs, allowed })
    }
}

/// Drawn constants for those that a graph's text form says lie aside. `Err` with a sentence.
pub fn constants_aside(text: &str, rng: &mut Rng) -> Result<Vec<Tensor>, String> {
    let mut aside = Vec::new();
    for line in text.lines().filter(|l| l.starts_with("constant ")) {
        let Some((head, number)) = line.rsplit_once(" = #") else { continue };
        let ty = head.split_once(": ").map_or("", |(_, ty)| ty);
        let number: usize = number.trim().parse().map_err(|_| format!("no number: {line}"))?;
        let (name, dims) = ty.split_once('[').ok_or_else(|| format!("no type: {line}"))?;
        let dtype = DType::from_name(name).ok_or_else(|| format!("no type: {line}"))?;
        let dims: Result<Vec<i64>, _> =
            dims.trim_end_matches(']').split(',').map(|d| d.trim().parse()).collect();
        let dims = dims.map_err(|_| format!("no sizes: {line}"))?;
        let len = dims.iter().try_fold(1i64, |n, &d| n.checked_mul(d)).unwrap_or(-1);
        if !(0..=MOST_DRAWN).contains(&len) || dims.iter().any(|&d| d < 0) {
            return Err(format!("no sizes to draw: {line}"));
        }
        if number != aside.len() {
            return Err(format!("constants aside come in order: {line}"));
        }
        aside.push(drawn(dtype, &dims, rng));
    }
    Ok(aside)
}

fn drawn(dtype: DType, dims: &[i64], rng: &mut Rng) -> Tensor {
    Tensor::generate(dtype, dims, |_| match dtype {
        DType::Bool => rng.below(2) as f64,
        _ if dtype.is_float() => 0.5 * rng.normal(),
        _ => rng.below(3) as f64,
    })
}

pub(crate) fn tensors(data: Vec<Datum>) -> Vec<Tensor> {
    data.into_iter().filter_map(|d| d.as_tensor().cloned()).collect()
}
