//! What a model is, before anything is done to it.

use bricolage_ir::{Graph, Role};
use bricolage_memory::{Held, Schedule, Use, fit};
use bricolage_runtime::ALIGNMENT;
use bricolage_tensor::Type;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// A named value at the border of a model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// Its type, symbolic dims by name.
    pub ty: String,
}

/// Numbers about a model; those that need sizes are absent while a size is symbolic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Inspection {
    /// What is given.
    pub inputs: Vec<Port>,
    /// What comes out.
    pub outputs: Vec<Port>,
    /// Names of the sizes that the model leaves open.
    pub symbols: Vec<String>,
    /// How often each op occurs.
    pub ops: BTreeMap<String, usize>,
    /// Nodes in all.
    pub nodes: usize,
    /// Elements of all constants of float type.
    pub parameters: u64,
    /// Bytes of all constants.
    pub weight_bytes: u64,
    /// Multiply-adds of one run.
    pub macs: Option<u64>,
    /// Bytes of all values that nodes compute, each counted once.
    pub activation_bytes: Option<u64>,
    /// Constants, plus the largest sum of values alive at one step when nodes run in the model's order,
    /// each into memory of its own.
    pub plain_peak_bytes: Option<u64>,
}

/// Looks at a graph without changing it.
pub fn inspect(graph: &Graph) -> Inspection {
    let port = |&v: &bricolage_ir::ValueId| Port {
        name: graph.value(v).name.to_string(),
        ty: graph.fact(v).to_string(),
    };
    let mut ops = BTreeMap::new();
    let mut macs = Some(0u64);
    for id in graph.nodes() {
        let node = graph.node(id);
        *ops.entry(node.op.kind().name().to_owned()).or_insert(0) += 1;
        let work = node.op.work(&graph.facts(&node.inputs), &graph.output_facts(id));
        macs = macs.zip(work.map(|w| w.macs)).and_then(|(a, b)| a.checked_add(b));
    }
    let (mut parameters, mut weight_bytes) = (0, 0);
    for value in graph.values() {
        if let Role::Constant(t) | Role::State(t) = &graph.value(value).role {
            weight_bytes += t.bytes().len() as u64;
            if t.dtype().is_float() {
                parameters += t.len() as u64;
            }
        }
    }
    let schedule = plain_schedule(graph);
    let activations =
        schedule.as_ref().map(|s| s.values.iter().filter(|v| !v.external).map(|v| v.bytes).sum());
    Inspection {
        inputs: graph.inputs.iter().map(port).collect(),
        outputs: graph.outputs.iter().map(port).collect(),
        symbols: graph.symbols().iter().map(|s| s.to_string()).collect(),
        nodes: ops.values().sum(),
        ops,
        parameters,
        weight_bytes,
        macs,
        activation_bytes: activations,
        plain_peak_bytes: schedule.map(|s| weight_bytes + fit(&s, ALIGNMENT).live_peak),
    }
}

/// Every node as a step, in the graph's order; `None` while a size is symbolic.
fn plain_schedule(graph: &Graph) -> Option<Schedule> {
    let mut at = HashMap::new();
    let mut schedule = Schedule::default();
    for value in graph.values() {
        let bytes = match &graph.fact(value).ty {
            Type::Tensor(t) => t.byte_len()?,
            _ => 0,
        };
        let external = graph.producer(value).is_none();
        at.insert(value, schedule.values.len());
        schedule.values.push(Held { bytes, external, view_of: None });
    }
    let end = Use { reads: graph.outputs.iter().map(|v| at[v]).collect(), ..Use::default() };
    for id in graph.order() {
        let node = graph.node(id);
        schedule.steps.push(Use {
            reads: node.inputs.iter().flatten().map(|v| at[v]).collect(),
            writes: node.outputs.iter().map(|v| at[v]).collect(),
            ..Use::default()
        });
    }
    schedule.steps.push(end);
    Some(schedule)
}
