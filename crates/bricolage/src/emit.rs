//! From a placement to a plan: an order, a place for every tensor, and packed constants.

use crate::Error;
use bricolage_backend::{Bound, Packed, Registry, Setting};
use bricolage_ir::{Graph, Role, ValueId};
use bricolage_memory::{Fitted, Held, Schedule, Use, fit};
use bricolage_placement::{Form, Placed};
use bricolage_runtime::{
    ALIGNMENT, Action, Buffer, BufferId, Dims, Kernel, KernelSource, Place, Plan, Port, Queue,
    RunStep, Step, Weights,
};
use bricolage_tensor::{Format, Storage, Tensor, TensorType, Type};
use std::{collections::HashMap, sync::Arc};

/// A plan with everything that it needs to run.
pub struct Emitted {
    /// The plan.
    pub plan: Plan,
    /// The kernels, in the order of [`Plan::kernels`].
    pub kernels: Vec<Arc<dyn Kernel>>,
    /// The packed constants.
    pub weights: Weights,
    /// For each region of the placement, the step that computes it; `None` for a view.
    pub step_of_region: Vec<Option<usize>>,
    /// The largest sum of bytes in use at one step, workspace included.
    pub live_peak: u64,
}

/// What happens in one step, before places are known.
struct Draft {
    bound: Option<Bound>,
    reads: Vec<usize>,
    writes: Vec<usize>,
    threads: usize,
    origin: Vec<String>,
}

/// A value in one format.
struct Slot {
    value: ValueId,
    format: Format,
    dims: Vec<i64>,
    view_of: Option<usize>,
}

/// Everything that is collected before memory is fitted.
struct Drafting<'a> {
    graph: &'a Graph,
    /// Of the plan.
    threads: usize,
    slots: Vec<Slot>,
    slot_of: HashMap<(ValueId, Format), usize>,
    drafts: Vec<Draft>,
}

/// Compiles the chosen kernels and lays out memory.
pub fn emit(
    graph: &Graph,
    placed: &Placed,
    registry: &Registry,
    setting: &Setting,
) -> Result<Emitted, Error> {
    let mut d = Drafting {
        graph,
        threads: setting.threads,
        slots: Vec::new(),
        slot_of: HashMap::new(),
        drafts: Vec::new(),
    };
    let mut pending: Vec<_> = placed.conversions.iter().collect();
    let mut step_of_region = Vec::new();
    for region in &placed.regions {
        let candidate = &region.offer.candidate;
        // A conversion is made just before the first step that reads it.
        for (&value, format) in candidate.region.inputs.iter().zip(&candidate.inputs) {
            d.convert(registry, &mut pending, value, format)?;
        }
        let reads = d.slots(&candidate.region.inputs, &candidate.inputs)?;
        match &region.offer.form {
            Form::View => {
                let writes = d.slots(&candidate.region.outputs, &candidate.outputs)?;
                d.slots[writes[0]].view_of = Some(reads[0]);
                step_of_region.push(None);
            }
            Form::Kernel(backend) => {
                let threads = region.offer.threads;
                let setting = Setting { threads, ..*setting };
                let bound =
                    backend.bind(graph, candidate, &setting).map_err(|why| Error::Internal {
                        what: format!(
                            "`{}` proposed `{candidate}` and cannot compile it: {why}",
                            backend.name()
                        ),
                    })?;
                let writes = d.slots(&candidate.region.outputs, &candidate.outputs)?;
                let origin = candidate.region.origin(graph);
                step_of_region.push(Some(d.drafts.len()));
                d.drafts.push(Draft { bound: Some(bound), reads, writes, threads, origin });
            }
        }
    }
    for &output in &graph.outputs {
        let format = Format::plain(tensor_type(graph, output)?.dtype);
        d.convert(registry, &mut pending, output, &format)?;
    }
    d.finish(step_of_region)
}

fn tensor_type(graph: &Graph, value: ValueId) -> Result<&TensorType, Error> {
    match &graph.fact(value).ty {
        Type::Tensor(t) => Ok(t),
        other => Err(Error::Internal {
            what: format!("`{}` is {other}, not a tensor", graph.value(value).name),
        }),
    }
}

impl Drafting<'_> {
    fn slot(&mut self, value: ValueId, format: &Format) -> Result<usize, Error> {
        if let Some(&slot) = self.slot_of.get(&(value, format.clone())) {
            return Ok(slot);
        }
        let ty = tensor_type(self.graph, value)?;
        let dims = ty.shape.as_fixed().ok_or_else(|| Error::Symbolic {
            value: self.graph.value(value).name.to_string(),
            ty: ty.to_string(),
        })?;
        let slot = self.slots.len();
        self.slots.push(Slot { value, format: format.clone(), dims, view_of: None });
        self.slot_of.insert((value, format.clone()), slot);
        Ok(slot)
    }

    fn slots(&mut self, values: &[ValueId], formats: &[Format]) -> Result<Vec<usize>, Error> {
        values.iter().zip(formats).map(|(&v, f)| self.slot(v, f)).collect()
    }

    /// Adds the pending conversion that makes `value` in `format`, and those that it needs.
    fn convert(
        &mut self,
        registry: &Registry,
        pending: &mut Vec<&bricolage_placement::PlacedConversion>,
        value: ValueId,
        format: &Format,
    ) -> Result<(), Error> {
        let Some(at) = pending.iter().position(|c| c.value == value && c.to == *format) else {
            return Ok(());
        };
        let conversion = pending.remove(at);
        self.convert(registry, pending, value, &conversion.from)?;
        let (from, to) = (self.slot(value, &conversion.from)?, self.slot(value, format)?);
        let dims = self.slots[from].dims.clone();
        let backend = registry.get(&conversion.backend).ok();
        let bound = backend.and_then(|b| b.convert(&dims, &conversion.from, format));
        let bound = bound.ok_or_else(|| Error::Internal {
            what: format!(
                "`{}` does not convert {dims:?} from {} to {format}",
                conversion.backend, conversion.from
            ),
        })?;
        self.drafts.push(Draft {
            bound: Some(bound),
            reads: vec![from],
            writes: vec![to],
            threads: self.threads,
            origin: Vec::new(),
        });
        Ok(())
    }

    fn root(&self, mut slot: usize) -> usize {
        while let Some(of) = self.slots[slot].view_of {
            slot = of;
        }
        slot
    }

    fn finish(mut self, step_of_region: Vec<Option<usize>>) -> Result<Emitted, Error> {
        let graph = self.graph;
        let mut weights = WeightsBuilder::default();
        // Where the bytes of each slot's root lie, when they are not in the arena.
        let mut outside: HashMap<usize, Place> = HashMap::new();
        for (i, &input) in graph.inputs.iter().enumerate() {
            let format = Format::plain(tensor_type(graph, input)?.dtype);
            let slot = self.slot(input, &format)?;
            outside.insert(slot, Place::Input(i as u32));
        }
        let mut copies = Vec::new();
        for (i, &output) in graph.outputs.iter().enumerate() {
            let format = Format::plain(tensor_type(graph, output)?.dtype);
            let slot = self.slot(output, &format)?;
            let root = self.root(slot);
            if let Role::Constant(tensor) = &graph.value(self.slots[root].value).role {
                let at = weights.add(&Packed {
                    format,
                    dims: tensor.dims().to_vec(),
                    bytes: tensor.storage().clone(),
                });
                outside.insert(root, Place::Constant(at));
            }
            match outside.get(&root) {
                None => {
                    outside.insert(root, Place::Output(i as u32));
                }
                Some(_) => copies.push((slot, i as u32)),
            }
        }
        let fitted = self.fit(&outside);
        let mut plan = Plan {
            name: graph.name.clone(),
            threads: self.threads as u32,
            inputs: ports(graph, &graph.inputs)?,
            outputs: ports(graph, &graph.outputs)?,
            buffers: Vec::new(),
            kernels: Vec::new(),
            steps: Vec::new(),
            arena: fitted.arena,
            weights: 0,
        };
        for (i, slot) in self.slots.iter().enumerate() {
            let place = match (outside.get(&self.root(i)), fitted.offsets[i]) {
                (Some(&place), _) => place,
                (None, Some(at)) => Place::Arena(at),
                // Never read and never written.
                (None, None) => Place::Arena(0),
            };
            plan.buffers.push(buffer(
                &graph.value(slot.value).name,
                place,
                &slot.dims,
                &slot.format,
            )?);
        }
        let mut kernels: Vec<Arc<dyn Kernel>> = Vec::new();
        let mut kernel_of: HashMap<KernelSource, u32> = HashMap::new();
        for (draft, workspace) in self.drafts.iter().zip(&fitted.workspaces) {
            let Some(bound) = &draft.bound else { continue };
            let mut constant = |p: &Packed| -> BufferId {
                let place = Place::Constant(weights.add(p));
                let strides = p.format.strides(&p.dims).unwrap_or_default();
                let id = BufferId(plan.buffers.len() as u32);
                plan.buffers.push(Buffer {
                    name: String::new(),
                    place,
                    len: p.bytes.len() as u64,
                    dims: p.dims.clone(),
                    strides,
                    format: p.format.clone(),
                });
                id
            };
            let constants: Vec<BufferId> = bound.constants.iter().map(&mut constant).collect();
            let built_in: Vec<BufferId> = bound.built_in.iter().map(&mut constant).collect();
            let source = KernelSource { recipe: bound.kernel.recipe(), built_in };
            let kernel = *kernel_of.entry(source.clone()).or_insert_with(|| {
                kernels.push(bound.kernel.clone());
                plan.kernels.push(source);
                kernels.len() as u32 - 1
            });
            let ids = |slots: &[usize]| slots.iter().map(|&s| BufferId(s as u32)).collect();
            let run = RunStep {
                kernel,
                inputs: ids(&draft.reads),
                outputs: ids(&draft.writes),
                constants,
                workspace: *workspace,
                workspace_len: self.needs(draft).0,
                threads: draft.threads as u32,
                origin: draft.origin.clone(),
            };
            plan.steps.push(Step { action: Action::Run(run), queue: Queue(0), waits: Vec::new() });
        }
        for (slot, output) in copies {
            let s = &self.slots[slot];
            let to = BufferId(plan.buffers.len() as u32);
            plan.buffers.push(buffer(
                &graph.value(s.value).name,
                Place::Output(output),
                &s.dims,
                &s.format,
            )?);
            let action = Action::Copy { from: BufferId(slot as u32), to };
            plan.steps.push(Step { action, queue: Queue(0), waits: Vec::new() });
        }
        plan.weights = weights.len;
        let weights = Weights::new(weights.segments, weights.len);
        Ok(Emitted { plan, kernels, weights, step_of_region, live_peak: fitted.live_peak })
    }

    /// Workspace bytes and in-place pairs of a step.
    fn needs(&self, draft: &Draft) -> (u64, Vec<(usize, usize)>) {
        let Some(bound) = &draft.bound else { return (0, Vec::new()) };
        let dims = |slots: &[usize]| -> Vec<Vec<i64>> {
            slots.iter().map(|&s| self.slots[s].dims.clone()).collect()
        };
        let (inputs, outputs) = (dims(&draft.reads), dims(&draft.writes));
        let dims = Dims { inputs: &inputs, outputs: &outputs };
        let needs = bound.kernel.needs(&dims, draft.threads);
        let pairs = needs
            .in_place
            .iter()
            .filter_map(|&(o, i)| Some((*draft.writes.get(o)?, *draft.reads.get(i)?)));
        (needs.workspace, pairs.collect())
    }

    fn fit(&self, outside: &HashMap<usize, Place>) -> Fitted {
        let values = self.slots.iter().enumerate().map(|(i, s)| Held {
            bytes: s.format.byte_len(&s.dims).unwrap_or(0),
            external: outside.contains_key(&self.root(i)),
            view_of: s.view_of,
        });
        let steps = self.drafts.iter().map(|draft| {
            let (workspace, in_place) = self.needs(draft);
            Use { reads: draft.reads.clone(), writes: draft.writes.clone(), workspace, in_place }
        });
        fit(&Schedule { values: values.collect(), steps: steps.collect() }, ALIGNMENT)
    }
}

fn ports(graph: &Graph, values: &[ValueId]) -> Result<Vec<Port>, Error> {
    let port = |&v: &ValueId| {
        Ok(Port { name: graph.value(v).name.to_string(), ty: tensor_type(graph, v)?.clone() })
    };
    values.iter().map(port).collect()
}

fn buffer(name: &str, place: Place, dims: &[i64], format: &Format) -> Result<Buffer, Error> {
    let (Some(len), Some(strides)) = (format.byte_len(dims), format.strides(dims)) else {
        return Err(Error::Internal {
            what: format!("`{name}` with dims {dims:?} has no format {format}"),
        });
    };
    Ok(Buffer {
        name: name.to_owned(),
        place,
        len,
        dims: dims.to_vec(),
        strides,
        format: format.clone(),
    })
}

/// Alignment that every element type is content with, in bytes.
const ELEMENT_ALIGNMENT: usize = 8;

/// Collects constants; equal bytes at one address are kept once. A model's file may hold elements at any
/// address: those that kernels could not read there are copied.
#[derive(Default)]
struct WeightsBuilder {
    segments: Vec<(u64, Storage)>,
    known: HashMap<(usize, usize), u64>,
    len: u64,
}

impl WeightsBuilder {
    fn add(&mut self, packed: &Packed) -> u64 {
        let identity = (packed.bytes.as_ptr() as usize, packed.bytes.len());
        if let Some(&at) = self.known.get(&identity) {
            return at;
        }
        let at = self.len;
        let bytes = match (packed.bytes.as_ptr() as usize).is_multiple_of(ELEMENT_ALIGNMENT) {
            true => packed.bytes.clone(),
            false => Storage::copy_of(&packed.bytes),
        };
        self.segments.push((at, bytes));
        self.known.insert(identity, at);
        self.len = (at + packed.bytes.len() as u64).next_multiple_of(ALIGNMENT);
        at
    }
}

/// Bytes of all constants of a graph, before packing.
pub fn constant_bytes(graph: &Graph) -> u64 {
    let tensors = graph
        .values()
        .filter_map(|v| graph.constant_of(v))
        .map(|t: &Tensor| t.bytes().len() as u64);
    tensors.sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bricolage_tensor::DType;

    #[test]
    fn constants_lie_where_kernels_can_read_them() {
        let file = Storage::copy_of(&[7; 64]);
        let mut weights = WeightsBuilder::default();
        for start in [0, 1, 4] {
            weights.add(&Packed {
                format: Format::plain(DType::F32),
                dims: vec![8],
                bytes: file.slice(start, 32),
            });
        }
        for (_, bytes) in &weights.segments {
            assert_eq!(bytes.as_ptr() as usize % ELEMENT_ALIGNMENT, 0);
            assert_eq!(bytes[..], file[..32]);
        }
        let shared = &weights.segments[0].1;
        assert_eq!(shared.as_ptr(), file.as_ptr(), "what is aligned is not copied");
    }
}
