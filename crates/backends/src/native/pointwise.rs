//! Chains and small graphs of scalar functions as one kernel.

use super::{
    Proposal, scalar,
    view::{PLAIN, View, blocked, channels_last, with_halo},
};
use bricolage_backend::Region;
use bricolage_ir::{Node, NodeId, Numerics, Op, ValueId};
use bricolage_kernels::{Instruction, PointwiseOperand, PointwiseSpec, Spec, Unary};
use bricolage_tensor::{DType, Format, Tensor};
use std::collections::{HashMap, hash_map::Entry};

/// Nodes of a region, at most.
const MOST_NODES: usize = 24;
/// Regions offered for one exit: it alone, and the regions grown to these sizes.
const SIZES: &[usize] = &[1, 2, 4, 8, MOST_NODES];

fn is_kernel_type(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::Bool)
}

/// Whether one instruction computes the node.
fn is_pointwise(view: &View<'_>, node: &Node) -> bool {
    let typed = node
        .inputs
        .iter()
        .flatten()
        .chain(&node.outputs)
        .all(|&v| view.dtype(v).is_some_and(is_kernel_type));
    let known = match &node.op {
        Op::Unary(f) => scalar::unary(*f).is_some(),
        Op::Binary(f) => scalar::binary(*f).is_some(),
        Op::Clip(_) | Op::Select(_) | Op::Cast(_) => true,
        _ => false,
    };
    typed && known && node.aliases.is_empty() && node.after.is_empty()
}

/// Regions that end at the exit, each the one before with more of what only it reads.
fn regions(view: &View<'_>, exit: NodeId) -> Vec<Vec<NodeId>> {
    let dims = view.dims(view.node(exit).outputs[0]);
    let mut region = vec![exit];
    let mut all = vec![region.clone()];
    while region.len() < MOST_NODES {
        let grown =
            region.iter().flat_map(|&n| view.node(n).inputs.iter().flatten()).find_map(|&v| {
                let producer = view.graph.producer(v)?;
                let inside = view.graph.uses(v).iter().all(|u| region.contains(&u.node))
                    && !view.graph.is_output(v);
                let fits = !region.contains(&producer)
                    && inside
                    && view.dims(v) == dims
                    && is_pointwise(view, view.node(producer));
                fits.then_some(producer)
            });
        let Some(grown) = grown else { break };
        region.push(grown);
        if SIZES.contains(&region.len()) {
            all.push(region.clone());
        }
    }
    if all.last() != Some(&region) {
        all.push(region);
    }
    all
}

/// The program of a region, its operands in the order of first use, and the constants among them.
struct Program {
    body: Vec<Instruction>,
    result: u16,
    inputs: Vec<ValueId>,
    constants: Vec<(ValueId, Tensor)>,
}

fn program(view: &View<'_>, nodes: &[NodeId]) -> Option<Program> {
    let mut p = Program { body: Vec::new(), result: 0, inputs: Vec::new(), constants: Vec::new() };
    let inside = |v: ValueId| view.graph.producer(v).is_some_and(|n| nodes.contains(&n));
    let outer: Vec<ValueId> = nodes
        .iter()
        .flat_map(|&n| view.node(n).inputs.iter().flatten().copied())
        .filter(|&v| !inside(v))
        .collect();
    for v in outer {
        match view.constant(v) {
            None if !p.inputs.contains(&v) => p.inputs.push(v),
            Some(t) if view.scalar(v).is_none() && !p.constants.iter().any(|c| c.0 == v) => {
                p.constants.push((v, t.clone()));
            }
            _ => {}
        }
    }
    let mut numbers: HashMap<ValueId, u16> = HashMap::new();
    for (i, &v) in p.inputs.iter().chain(p.constants.iter().map(|c| &c.0)).enumerate() {
        p.body.push(Instruction::Operand(i as u16));
        numbers.insert(v, i as u16);
    }
    for &id in nodes {
        let node = view.node(id);
        let mut arguments = Vec::new();
        for &v in node.inputs.iter().flatten() {
            if let Entry::Vacant(entry) = numbers.entry(v) {
                p.body.push(Instruction::Constant(view.scalar(v)?));
                entry.insert(p.body.len() as u16 - 1);
            }
            arguments.push(numbers[&v]);
        }
        let instruction = match (&node.op, &arguments[..]) {
            (Op::Cast(_), &[a]) => {
                let (from, to) = (view.dtype(node.inputs[0]?)?, view.dtype(node.outputs[0])?);
                match (from, to) {
                    // All but 0 is true: not of not.
                    (DType::F32, DType::Bool) => {
                        p.body.push(Instruction::Unary(Unary::Not, a));
                        Instruction::Unary(Unary::Not, p.body.len() as u16 - 1)
                    }
                    _ => {
                        numbers.insert(node.outputs[0], a);
                        p.result = a;
                        continue;
                    }
                }
            }
            (Op::Binary(f), &[a, b]) => Instruction::Binary(scalar::binary(*f)?, a, b),
            (Op::Select(_), &[c, a, b]) => Instruction::Select(c, a, b),
            (_, &[a]) => Instruction::Unary(scalar::function(node)?, a),
            _ => return None,
        };
        p.body.push(instruction);
        p.result = p.body.len() as u16 - 1;
        numbers.insert(node.outputs[0], p.result);
    }
    Some(p)
}

/// Regions of scalar functions, in every layout.
pub(super) fn pointwise(view: &View<'_>, exit: NodeId) -> Result<Vec<Proposal>, String> {
    let node = view.node(exit);
    if !is_pointwise(view, node) {
        return match node.op {
            Op::Unary(_) | Op::Binary(_) | Op::Clip(_) | Op::Select(_) | Op::Cast(_) => {
                Err("needs f32 and bool elements and a function that kernels have".to_owned())
            }
            _ => Ok(Vec::new()),
        };
    }
    let output = node.outputs[0];
    let dims = view.dims(output).ok_or("needs a constant size")?;
    let dtype = view.dtype(output).ok_or("needs a tensor")?;
    let mut all = Vec::new();
    for nodes in regions(view, exit) {
        let nodes = Region::in_order(view.graph, nodes);
        let Some(p) = program(view, &nodes) else {
            return Err("needs constants that kernels read".to_owned());
        };
        if p.inputs.is_empty() {
            return Err("needs an operand that is no constant".to_owned());
        }
        let mut formats = vec![PLAIN];
        let image = matches!(dims.len(), 3 | 4) && dims[1] >= 8 && dtype == DType::F32;
        if image && p.inputs.iter().any(|&v| view.float_dims(v).as_ref() == Some(&dims)) {
            for layout in [blocked(0), channels_last(0)] {
                for halo in view.liked_halos(output) {
                    formats.push(with_halo(&layout, halo));
                }
            }
        }
        for format in formats {
            all.push(proposal(view, &nodes, &p, &dims, dtype, &format)?);
        }
    }
    Ok(all)
}

fn proposal(
    view: &View<'_>,
    nodes: &[NodeId],
    p: &Program,
    dims: &[i64],
    dtype: DType,
    format: &Format,
) -> Result<Proposal, String> {
    let mut operands = Vec::new();
    let mut inputs = Vec::new();
    for &v in &p.inputs {
        let (own, element) =
            (view.dims(v).ok_or("needs a constant size")?, view.dtype(v).ok_or("needs tensors")?);
        // Whole images come in the layout of the result; what broadcasts comes row-major.
        let layout = if own == dims && element == DType::F32 {
            with_halo(format, 0).layout
        } else {
            PLAIN.layout
        };
        let f = Format { dtype: element, layout };
        operands.push(PointwiseOperand { dims: own, format: f.clone() });
        inputs.push((v, f));
    }
    for (_, t) in &p.constants {
        operands
            .push(PointwiseOperand { dims: t.dims().to_vec(), format: Format::plain(t.dtype()) });
    }
    let spec = PointwiseSpec {
        dims: dims.to_vec(),
        format: format.clone(),
        operands,
        constants: p.constants.len(),
        body: p.body.clone(),
        outputs: vec![(p.result, dtype)],
    };
    let result = Format { dtype, layout: format.layout.clone() };
    let exit = nodes[nodes.len() - 1];
    let mut moved = p.inputs.clone();
    moved.push(view.node(exit).outputs[0]);
    let candidate = view.candidate(
        nodes.to_vec(),
        &inputs,
        &[result],
        ("pointwise", format!("{} steps", p.body.len())),
        Numerics::Reassociates,
        view.movement_ns(&moved),
    )?;
    let raw = p.constants.iter().map(|c| c.1.clone()).collect();
    Ok(Proposal { candidate, spec: Spec::Pointwise(spec), raw })
}
