//! The judge of plans: replays a plan symbolically and knows nothing of how it was made.
//!
//! Memory is a set of byte ranges, each holding one value in one format. A step may only read a
//! range that still holds what the placement says it reads; what it writes, and its workspace,
//! takes the place of whatever those bytes held. This proves that every read of the graph's inputs
//! and activations sees the right value and that nothing alive is overwritten; constants are not
//! followed. It does not prove that kernels compute what they should: trials do that.

use bricolage_ir::{Graph, Role, ValueId};
use bricolage_placement::{Form, Placed, PlacedConversion};
use bricolage_runtime::{Action, BufferId, Dims, Kernel, Place, Plan};
use bricolage_tensor::{Format, Type};
use std::{collections::HashMap, sync::Arc};

/// A block of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Space {
    Arena,
    Input(u32),
    Output(u32),
}

/// The content of a range: a value, written in this format.
#[derive(Clone, Debug, PartialEq)]
struct Held {
    start: u64,
    end: u64,
    value: ValueId,
    format: Format,
}

/// A value in a format.
type Named = (ValueId, Format);

#[derive(Default)]
struct Memory {
    spaces: HashMap<Space, Vec<Held>>,
    /// A view is the same bytes as what it is a view of.
    view_of: HashMap<Named, Named>,
}

impl Memory {
    /// What the bytes of a value in a format were written as.
    fn root(&self, value: ValueId, format: &Format) -> Named {
        let mut named = (value, format.clone());
        while let Some(of) = self.view_of.get(&named) {
            named = of.clone();
        }
        named
    }

    /// The bytes now hold nothing that may be read.
    fn clobber(&mut self, space: Space, start: u64, end: u64) {
        if start < end {
            self.spaces.entry(space).or_default().retain(|h| h.end <= start || end <= h.start);
        }
    }

    fn write(&mut self, space: Space, start: u64, end: u64, value: ValueId, format: &Format) {
        self.clobber(space, start, end);
        let (value, format) = self.root(value, format);
        self.spaces.entry(space).or_default().push(Held { start, end, value, format });
    }

    fn holds(&self, space: Space, start: u64, end: u64, value: ValueId, format: &Format) -> bool {
        let (value, format) = self.root(value, format);
        let wanted = Held { start, end, value, format };
        self.spaces.get(&space).is_some_and(|all| all.contains(&wanted))
    }
}

/// Where a buffer lies; `None` for a constant, which nothing writes.
fn location(plan: &Plan, id: BufferId) -> Option<(Space, u64, u64)> {
    let b = plan.buffer(id);
    match b.place {
        Place::Arena(at) => Some((Space::Arena, at, at + b.len)),
        Place::Input(i) => Some((Space::Input(i), 0, b.len)),
        Place::Output(i) => Some((Space::Output(i), 0, b.len)),
        _ => None,
    }
}

fn overlap(a: (Space, u64, u64), b: (Space, u64, u64)) -> bool {
    a.0 == b.0 && a.1 < b.2 && b.1 < a.2
}

/// Replays `plan` against what `placed` says must happen. Returns the first fault, in words.
pub fn check(
    graph: &Graph,
    placed: &Placed,
    plan: &Plan,
    kernels: &[Arc<dyn Kernel>],
) -> Result<(), String> {
    let mut memory = Memory::default();
    let plain = |v: ValueId| match &graph.fact(v).ty {
        Type::Tensor(t) => Ok(Format::plain(t.dtype)),
        other => Err(format!("`{}` is {other}, not a tensor", graph.value(v).name)),
    };
    for region in placed.regions.iter().filter(|r| matches!(r.offer.form, Form::View)) {
        let c = &region.offer.candidate;
        let (from, to) = (c.region.inputs[0], c.region.outputs[0]);
        memory.view_of.insert((to, c.outputs[0].clone()), (from, c.inputs[0].clone()));
    }
    for (i, &input) in graph.inputs.iter().enumerate() {
        let ty = plan.inputs.get(i).ok_or("the plan has fewer inputs than the graph")?;
        let len = ty.ty.byte_len().ok_or("an input has no constant size")?;
        memory.write(Space::Input(i as u32), 0, len, input, &plain(input)?);
    }
    let mut steps = plan.steps.iter().enumerate();
    let mut conversions: Vec<_> = placed.conversions.iter().collect();
    for region in &placed.regions {
        let candidate = &region.offer.candidate;
        let border = &candidate.region;
        if let Form::View = region.offer.form {
            continue;
        }
        let origin = border.origin(graph);
        loop {
            let (index, step) =
                steps.next().ok_or_else(|| format!("no step computes {}", origin.join(", ")))?;
            let Action::Run(run) = &step.action else {
                return Err(format!("step {index} copies where a region was expected"));
            };
            let fault = |what: String| format!("step {index}: {what}");
            let (reads, writes) = if run.origin.is_empty() {
                let at = conversions
                    .iter()
                    .position(|c| {
                        let format =
                            |id: &[BufferId]| id.first().map(|&b| plan.buffer(b).format.clone());
                        let reads = run.inputs.first().map(|&id| &plan.buffer(id).name);
                        reads.is_some_and(|name| **name == *graph.value(c.value).name)
                            && format(&run.inputs).as_ref() == Some(&c.from)
                            && format(&run.outputs).as_ref() == Some(&c.to)
                    })
                    .ok_or_else(|| {
                        fault("it converts what the placement does not convert".to_owned())
                    })?;
                let c = conversions.remove(at);
                (vec![(c.value, c.from.clone())], vec![(c.value, c.to.clone())])
            } else {
                let pair = |values: &[ValueId], formats: &[Format]| {
                    values.iter().copied().zip(formats.iter().cloned()).collect::<Vec<_>>()
                };
                (pair(&border.inputs, &candidate.inputs), pair(&border.outputs, &candidate.outputs))
            };
            replay(plan, kernels, run, &reads, &writes, graph, &mut memory).map_err(fault)?;
            if !run.origin.is_empty() {
                if run.origin != origin {
                    return Err(format!(
                        "step {index} computes {:?}, expected {origin:?}",
                        run.origin
                    ));
                }
                break;
            }
        }
    }
    for (index, step) in steps {
        match &step.action {
            Action::Copy { from, to } => {
                let Some(target) = location(plan, *to) else {
                    return Err(format!("step {index} writes a constant"));
                };
                let held: Vec<Held> = match location(plan, *from) {
                    Some(source) => {
                        let all = memory.spaces.get(&source.0);
                        all.into_iter()
                            .flatten()
                            .filter(|h| (h.start, h.end) == (source.1, source.2))
                            .cloned()
                            .collect()
                    }
                    None => constants_named(graph, &plan.buffer(*from).name)
                        .map(|v| Ok(Held { start: 0, end: 0, value: v, format: plain(v)? }))
                        .collect::<Result<_, String>>()?,
                };
                memory.clobber(target.0, target.1, target.2);
                for h in held {
                    memory.spaces.entry(target.0).or_default().push(Held {
                        start: target.1,
                        end: target.2,
                        ..h
                    });
                }
            }
            Action::Run(run) if run.origin.is_empty() && !conversions.is_empty() => {
                // The one whose value lies where the step reads, in the format that it writes.
                let made = |c: &&PlacedConversion| {
                    let [from, to] = [&run.inputs[..], &run.outputs[..]].map(|ids| ids.first());
                    let lies = from.and_then(|&id| location(plan, id)).is_some_and(
                        |(space, start, end)| memory.holds(space, start, end, c.value, &c.from),
                    );
                    lies && to.is_some_and(|&id| plan.buffer(id).format == c.to)
                };
                let at = conversions.iter().position(made).unwrap_or(0);
                let c = conversions.remove(at);
                let (reads, writes) = ([(c.value, c.from.clone())], [(c.value, c.to.clone())]);
                replay(plan, kernels, run, &reads, &writes, graph, &mut memory)
                    .map_err(|what| format!("step {index}: {what}"))?;
            }
            _ => return Err(format!("step {index} computes what the placement does not contain")),
        }
    }
    for (i, &output) in graph.outputs.iter().enumerate() {
        let len = plan
            .outputs
            .get(i)
            .and_then(|p| p.ty.byte_len())
            .ok_or("an output has no constant size")?;
        if !memory.holds(Space::Output(i as u32), 0, len, output, &plain(output)?) {
            return Err(format!(
                "output {i} does not hold `{}` at the end",
                graph.value(output).name
            ));
        }
    }
    Ok(())
}

fn constants_named<'a>(graph: &'a Graph, name: &'a str) -> impl Iterator<Item = ValueId> + 'a {
    graph.find(name).into_iter().filter(|&v| matches!(graph.value(v).role, Role::Constant(_)))
}

/// One step: its inputs are intact, its outputs overlap nothing that it still reads, and take their places.
fn replay(
    plan: &Plan,
    kernels: &[Arc<dyn Kernel>],
    run: &bricolage_runtime::RunStep,
    reads: &[(ValueId, Format)],
    writes: &[(ValueId, Format)],
    graph: &Graph,
    memory: &mut Memory,
) -> Result<(), String> {
    if run.inputs.len() != reads.len() || run.outputs.len() != writes.len() {
        return Err(format!(
            "needs {} inputs and {} outputs, found {} and {}",
            reads.len(),
            writes.len(),
            run.inputs.len(),
            run.outputs.len()
        ));
    }
    for (&id, (value, format)) in run.inputs.iter().zip(reads) {
        let intact = location(plan, id)
            .is_some_and(|(space, start, end)| memory.holds(space, start, end, *value, format));
        if !intact {
            return Err(format!(
                "reads `{}` where it is not, or no longer",
                graph.value(*value).name
            ));
        }
    }
    let dims = |ids: &[BufferId]| -> Vec<Vec<i64>> {
        ids.iter().map(|&b| plan.buffer(b).dims.clone()).collect()
    };
    let (inputs, outputs) = (dims(&run.inputs), dims(&run.outputs));
    let kernel = kernels.get(run.kernel as usize).ok_or("its kernel is missing")?;
    let needs = kernel.needs(&Dims { inputs: &inputs, outputs: &outputs }, run.threads as usize);
    if needs.workspace > run.workspace_len {
        return Err(format!(
            "needs {} bytes of workspace, found {}",
            needs.workspace, run.workspace_len
        ));
    }
    let workspace = (Space::Arena, run.workspace, run.workspace + run.workspace_len);
    let mut touched = Vec::new();
    for (o, &id) in run.outputs.iter().enumerate() {
        let target = location(plan, id).ok_or("writes a constant")?;
        for (i, &input) in run.inputs.iter().enumerate() {
            let Some(source) = location(plan, input) else { continue };
            let allowed = needs.in_place.contains(&(o, i)) && source.1 == target.1;
            if overlap(source, target) && !allowed {
                return Err(format!(
                    "output {o} overlaps input {i}, which its kernel does not allow"
                ));
            }
            if run.workspace_len > 0 && overlap(source, workspace) {
                return Err(format!("the workspace overlaps input {i}"));
            }
        }
        if touched.iter().any(|&other| overlap(other, target)) || overlap(workspace, target) {
            return Err(format!("output {o} overlaps another output or the workspace"));
        }
        touched.push(target);
    }
    memory.clobber(workspace.0, workspace.1, workspace.2);
    for (&(space, start, end), (value, format)) in touched.iter().zip(writes) {
        memory.write(space, start, end, *value, format);
    }
    Ok(())
}
