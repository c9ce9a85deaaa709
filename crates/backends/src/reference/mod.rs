//! The reference evaluator as a backend: trusted, total and slow.
//!
//! A kernel is the text form of its region; large constants are built in beside it.

use crate::BUILT_IN_VERSION;
use bricolage_backend::{
    Backend, BackendKind, BackendStatus, Bound, Candidate, Declined, Packed, Proposals, Region,
    Setting,
};
use bricolage_ir::{Graph, NodeId, Numerics, Op, ValueId, evaluate, parse, print};
use bricolage_runtime::{Dims, Kernel, Needs, Operand, Recipe, Run, RunError};
use bricolage_tensor::{Datum, Format, Storage, Tensor, Type};
use std::sync::Arc;

const NAME: &str = "reference";
const KERNEL: &str = "evaluate/1";

/// The trusted backend.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reference;

fn plain(graph: &Graph, value: ValueId) -> Option<Format> {
    match &graph.fact(value).ty {
        Type::Tensor(t) if t.shape.as_fixed().is_some() => Some(Format::plain(t.dtype)),
        _ => None,
    }
}

fn offer(graph: &Graph, region: Region) -> Result<Candidate, String> {
    let all = |values: &[ValueId]| -> Result<Vec<Format>, String> {
        let one = |&v: &ValueId| {
            plain(graph, v)
                .ok_or_else(|| format!("needs tensors of constant size, found {}", graph.fact(v)))
        };
        values.iter().map(one).collect()
    };
    Ok(Candidate {
        inputs: all(&region.inputs)?,
        outputs: all(&region.outputs)?,
        region,
        pattern: "any".to_owned(),
        variant: KERNEL.to_owned(),
        numerics: Numerics::Exact,
        guess_ns: Some(1e9),
    })
}

impl Backend for Reference {
    fn name(&self) -> &str {
        NAME
    }

    fn kind(&self) -> BackendKind {
        BackendKind::Reference
    }

    fn version(&self) -> String {
        BUILT_IN_VERSION.to_owned()
    }

    fn status(&self) -> BackendStatus {
        BackendStatus {
            name: NAME.to_owned(),
            version: Some(self.version()),
            found: "built in".to_owned(),
            how: "always there".to_owned(),
            covers: "every op, slowly; used where no other backend has a kernel".to_owned(),
        }
    }

    fn propose(&self, graph: &Graph, exit: NodeId, _: &Setting) -> Proposals {
        let mut proposals = Proposals::default();
        let mut decline = |why: String| {
            proposals.declined.push(Declined { node: exit, pattern: "any".to_owned(), why });
        };
        if let Op::Opaque(_) = graph.node(exit).op {
            decline("only a foreign backend knows what this operator means".to_owned());
            return proposals;
        }
        match Region::of(graph, vec![exit]).map_err(|e| e.to_string()).and_then(|r| offer(graph, r))
        {
            Ok(candidate) => proposals.candidates.push(candidate),
            Err(why) => decline(why),
        }
        proposals
    }

    fn bind(&self, graph: &Graph, candidate: &Candidate, _: &Setting) -> Result<Bound, String> {
        let part = graph.extract(&candidate.region.nodes).map_err(|e| e.to_string())?;
        // The kernel's operands are the region's, in its order, whatever `extract` found first.
        let order = |values: &[ValueId], of: &[ValueId]| -> Result<Vec<u32>, String> {
            let at = |v: &ValueId| {
                let name = &graph.value(*v).name;
                let found = of.iter().position(|&o| part.value(o).name == *name);
                found
                    .map(|i| i as u32)
                    .ok_or_else(|| format!("`{name}` is not at the border of its region"))
            };
            values.iter().map(at).collect()
        };
        let inputs = order(&candidate.region.inputs, &part.inputs)?;
        let outputs = order(&candidate.region.outputs, &part.outputs)?;
        let (text, aside) = print(&part);
        let body = postcard::to_stdvec(&(&text, &inputs, &outputs)).map_err(|e| e.to_string())?;
        let recipe = Recipe { backend: NAME.to_owned(), kernel: KERNEL.to_owned(), body };
        let built_in = aside
            .iter()
            .map(|t| Packed {
                format: Format::plain(t.dtype()),
                dims: t.dims().to_vec(),
                bytes: t.storage().clone(),
            })
            .collect();
        let kernel = Evaluate { graph: part, inputs, outputs, recipe };
        Ok(Bound { kernel: Arc::new(kernel), constants: Vec::new(), built_in })
    }

    fn convert(&self, dims: &[i64], from: &Format, to: &Format) -> Option<Bound> {
        if from.dtype != to.dtype || from.byte_len(dims).is_none() || to.byte_len(dims).is_none() {
            return None;
        }
        let kernel = Convert { from: from.clone(), to: to.clone() };
        Some(Bound { kernel: Arc::new(kernel), constants: Vec::new(), built_in: Vec::new() })
    }

    fn rebuild(&self, recipe: &Recipe, built_in: &[Packed]) -> Result<Arc<dyn Kernel>, String> {
        match recipe.kernel.as_str() {
            KERNEL => {
                let (text, inputs, outputs): (String, Vec<u32>, Vec<u32>) =
                    postcard::from_bytes(&recipe.body).map_err(|e| e.to_string())?;
                let aside: Result<Vec<Tensor>, _> = built_in
                    .iter()
                    .map(|p| Tensor::new(p.format.dtype, &p.dims, p.bytes.clone()))
                    .collect();
                let graph =
                    parse(&text, &aside.map_err(|e| e.to_string())?).map_err(|e| e.to_string())?;
                let within = |all: &[u32], len: usize| all.iter().all(|&i| (i as usize) < len);
                if !within(&inputs, graph.inputs.len()) || !within(&outputs, graph.outputs.len()) {
                    return Err("its operands are not those of its graph".to_owned());
                }
                Ok(Arc::new(Evaluate { graph, inputs, outputs, recipe: recipe.clone() }))
            }
            CONVERT => {
                let (from, to) = postcard::from_bytes(&recipe.body).map_err(|e| e.to_string())?;
                Ok(Arc::new(Convert { from, to }))
            }
            other => Err(format!("has no kernel `{other}`")),
        }
    }
}

/// The bytes of an operand.
fn bytes<'a>(operand: &'a Operand<'_>) -> &'a [u8] {
    // SAFETY: the session hands readable memory of this length to every run.
    unsafe { std::slice::from_raw_parts(operand.as_ptr(), operand.len()) }
}

/// Copies `from` into the memory of an operand that the kernel writes.
fn fill(kernel: &str, operand: &Operand<'_>, from: &[u8]) -> Result<(), RunError> {
    if from.len() != operand.len() {
        let what = format!("needs an output of {} bytes, found {}", from.len(), operand.len());
        return Err(RunError::Operand { kernel: kernel.to_owned(), what });
    }
    // SAFETY: the session hands writable memory of this length, and `from` is memory of our own.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), operand.as_mut_ptr(), from.len()) };
    Ok(())
}

/// Evaluates a sub-graph.
struct Evaluate {
    graph: Graph,
    /// Position in the graph's inputs of each operand.
    inputs: Vec<u32>,
    /// Position in the graph's outputs of each result.
    outputs: Vec<u32>,
    recipe: Recipe,
}

impl Kernel for Evaluate {
    fn name(&self) -> &str {
        "reference-evaluate"
    }

    fn needs(&self, _: &Dims<'_>, _: usize) -> Needs {
        Needs { workspace: 0, foreign: None, in_place: Vec::new(), deterministic: true }
    }

    fn run(&self, run: &mut Run<'_>) -> Result<(), RunError> {
        let wrong = |what: String| RunError::Operand { kernel: self.name().to_owned(), what };
        let mut data: Vec<Option<Datum>> = vec![None; self.graph.inputs.len()];
        for (operand, &at) in run.inputs.iter().zip(&self.inputs) {
            let tensor =
                Tensor::new(operand.format.dtype, operand.dims, Storage::copy_of(bytes(operand)))
                    .map_err(|e| wrong(e.to_string()))?;
            data[at as usize] = Some(tensor.into());
        }
        let data: Option<Vec<Datum>> = data.into_iter().collect();
        let data = data.ok_or_else(|| wrong("needs every input of its graph".to_owned()))?;
        let results = evaluate(&self.graph, &data)
            .map_err(|e| RunError::Domain { kernel: self.name().to_owned(), why: e.to_string() })?;
        for (operand, &at) in run.outputs.iter().zip(&self.outputs) {
            let tensor = results[at as usize]
                .as_tensor()
                .ok_or_else(|| wrong("makes something other than a tensor".to_owned()))?;
            fill(self.name(), operand, tensor.bytes())?;
        }
        Ok(())
    }

    fn recipe(&self) -> Recipe {
        self.recipe.clone()
    }
}

const CONVERT: &str = "convert/1";

/// Moves elements one by one.
struct Convert {
    from: Format,
    to: Format,
}

impl Kernel for Convert {
    fn name(&self) -> &str {
        "reference-convert"
    }

    fn needs(&self, dims: &Dims<'_>, _: usize) -> Needs {
        let bytes = |f: &Format| dims.inputs.first().and_then(|d| f.byte_len(d));
        let foreign = bytes(&self.to).zip(bytes(&Format::plain(self.to.dtype))).map(|(a, b)| a + b);
        Needs { workspace: 0, foreign, in_place: Vec::new(), deterministic: true }
    }

    fn run(&self, run: &mut Run<'_>) -> Result<(), RunError> {
        let wrong = |what: String| RunError::Operand { kernel: self.name().to_owned(), what };
        let (from, to) = (&run.inputs[0], &run.outputs[0]);
        let tensor = self.from.unpack(from.dims, bytes(from)).map_err(|e| wrong(e.to_string()))?;
        let packed =
            self.to.pack(&tensor).ok_or_else(|| wrong(format!("cannot make {}", self.to)))?;
        fill(self.name(), to, &packed)
    }

    fn recipe(&self) -> Recipe {
        let body = postcard::to_stdvec(&(&self.from, &self.to)).expect("formats are plain data");
        Recipe { backend: NAME.to_owned(), kernel: CONVERT.to_owned(), body }
    }
}
