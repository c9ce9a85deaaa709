//! Operators whose sizes are data, where they do not follow from constants and input sizes.

use super::at::{At, Fault, Imported, malformed, unsupported};
use bricolage_ir::{
    Graph, NodeId, Op, ValueId,
    ops::{Dynamic, Late},
};
use bricolage_tensor::{Dim, Shape, Symbol, Type};
use std::collections::HashMap;

/// Makes every node that holds a size found by another wait for it, where no value leads there.
pub(crate) fn order_sizes(graph: &mut Graph) {
    let given = graph.symbols();
    let mut finder: HashMap<Symbol, NodeId> = HashMap::new();
    for id in graph.order() {
        for fact in graph.output_facts(id) {
            let shape = match &fact.ty {
                Type::Tensor(t) => &t.shape,
                Type::Strings(shape) => shape,
                _ => continue,
            };
            for symbol in shape.iter().filter_map(Dim::as_symbol) {
                if !given.contains(symbol) {
                    finder.entry(symbol.clone()).or_insert(id);
                }
            }
        }
    }
    if finder.is_empty() {
        return;
    }
    let nodes: Vec<NodeId> = graph.nodes().collect();
    for id in nodes {
        for symbol in graph.node(id).op.symbols() {
            if let Some(&earlier) = finder.get(&symbol).filter(|&&earlier| earlier != id) {
                graph.add_control_edge(earlier, id);
            }
        }
    }
}

/// Whether the elements of operand `i` are known, as far as sizes go.
pub(crate) fn is_known(at: &At<'_, '_>, i: usize) -> bool {
    let Some(v) = at.optional(i) else { return true };
    at.graph.fact(v).as_dims().is_some() || at.constant(v).is_some()
}

/// How many numbers operand `i` holds.
fn count(at: &At<'_, '_>, i: usize) -> Result<usize, Fault> {
    let dims = at.dims(at.input(i)?)?;
    match dims.first().map(Dim::as_const) {
        None => Ok(1),
        Some(Some(n)) if n >= 0 => Ok(n as usize),
        _ => unsupported(format!("needs to know how many numbers operand {i} holds")),
    }
}

fn fresh(at: &mut At<'_, '_>, rank: usize) -> Shape {
    (0..rank).map(|d| at.fresh_dim(&format!("d{d}"))).collect()
}

fn late<V: Copy + Into<Option<ValueId>>>(
    at: &mut At<'_, '_>,
    op: Late,
    shape: Shape,
    inputs: &[V],
) -> Imported {
    at.one(Dynamic { op, shape }, inputs)
}

/// A slice of which bounds are computed; the axes must be known for sizes to be.
pub(crate) fn slice(at: &mut At<'_, '_>) -> Imported {
    let x = at.input(0)?;
    let mut dims = at.dims(x)?;
    let axes = match at.optional(3) {
        Some(v) => at.constant(v).map(|t| t.to_i64()),
        None => Some((0..count(at, 1)? as i64).collect()),
    };
    let axes = match axes {
        Some(axes) => at.axes(&axes, dims.len())?,
        None => (0..dims.len()).collect(),
    };
    for axis in axes {
        dims[axis] = at.fresh_dim(&format!("d{axis}"));
    }
    let inputs = at.inputs.clone();
    late(at, Late::Slice, Shape(dims), &inputs)
}

/// A new shape of which `known` sizes are known.
pub(crate) fn reshape(at: &mut At<'_, '_>, known: &[Option<Dim>], zero_is_size: bool) -> Imported {
    let all = at.all(2, 2)?;
    let have = at.dims(all[0])?;
    let mut shape = Vec::new();
    for (i, dim) in known.iter().enumerate() {
        shape.push(match dim.as_ref().map(|d| (d, d.as_const())) {
            Some((_, Some(0))) if !zero_is_size && i < have.len() => have[i].clone(),
            Some((_, Some(n))) if n < 0 => at.fresh_dim(&format!("d{i}")),
            Some((d, _)) => d.clone(),
            None => at.fresh_dim(&format!("d{i}")),
        });
    }
    late(at, Late::Reshape { zero_is_size }, Shape(shape), &all)
}

/// As many unknown sizes as operand `i` holds numbers.
pub(crate) fn unknown_sizes(at: &At<'_, '_>, i: usize) -> Result<Vec<Option<Dim>>, Fault> {
    Ok(vec![None; count(at, i)?])
}

pub(crate) fn expand(at: &mut At<'_, '_>) -> Imported {
    let all = at.all(2, 2)?;
    let rank = count(at, 1)?.max(at.rank(all[0])?);
    let shape = fresh(at, rank);
    late(at, Late::Expand, shape, &all)
}

pub(crate) fn tile(at: &mut At<'_, '_>) -> Imported {
    let all = at.all(2, 2)?;
    let rank = at.rank(all[0])?;
    let shape = fresh(at, rank);
    late(at, Late::Tile, shape, &all)
}

/// Pads of which sizes are computed; the axes must be known for other sizes to stay.
pub(crate) fn pad(at: &mut At<'_, '_>) -> Imported {
    at.at_most(4)?;
    let x = at.input(0)?;
    let mode = super::slice::pad_mode(at)?;
    let mut dims = at.dims(x)?;
    let axes = match at.optional(3) {
        Some(v) => at.constant(v).map(|t| t.to_i64()),
        None => None,
    };
    let axes = match axes {
        Some(axes) => at.axes(&axes, dims.len())?,
        None => (0..dims.len()).collect(),
    };
    for axis in axes {
        dims[axis] = at.fresh_dim(&format!("d{axis}"));
    }
    let mut inputs = at.inputs.clone();
    while inputs.last().is_some_and(Option::is_none) {
        inputs.pop();
    }
    late(at, Late::Pad(mode), Shape(dims), &inputs)
}

/// The shape in operand 0, filled with a value.
pub(crate) fn fill(at: &mut At<'_, '_>, value: ValueId) -> Imported {
    let to = at.input(0)?;
    let rank = match &at.dims(to)?[..] {
        [_] => count(at, 0)?,
        dims => return malformed(format!("needs a shape of 1 dim, found {} dims", dims.len())),
    };
    let shape = fresh(at, rank);
    late(at, Late::Fill, shape, &[to, value])
}

pub(crate) fn range(at: &mut At<'_, '_>) -> Imported {
    let all = at.all(3, 3)?;
    let shape = fresh(at, 1);
    late(at, Late::Range, shape, &all)
}

/// What is computed where a row for known sizes gives up.
pub(crate) fn or(
    at: &mut At<'_, '_>,
    operands: &[usize],
    known: fn(&mut At<'_, '_>) -> Imported,
    late: fn(&mut At<'_, '_>) -> Imported,
) -> Imported {
    if operands.iter().all(|&i| is_known(at, i)) { known(at) } else { late(at) }
}

/// Whether an op finds sizes of its own.
pub(crate) fn finds_sizes(op: &Op) -> bool {
    matches!(
        op,
        Op::Opaque(_)
            | Op::If(_)
            | Op::Loop(_)
            | Op::Scan(_)
            | Op::Sequence(_)
            | Op::Optional(_)
            | Op::Dynamic(_)
            | Op::NonZero(_)
            | Op::Compress(_)
            | Op::Unique(_)
            | Op::NonMaxSuppression(_)
            | Op::Text(_)
    )
}
