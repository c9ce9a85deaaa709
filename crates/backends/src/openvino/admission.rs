//! Which nodes and regions the library computes as they are defined.

use bricolage_backend::Region;
use bricolage_ir::{
    Graph, NodeId, Op, OpKind, ValueId,
    ops::{
        Binary, Coordinates, Interpolation, LayerNorm, PoolKind, ReduceKind, Resize, Rounding,
        Unary,
    },
};
use bricolage_tensor::{DType, Dim, Type};

/// Whether the library computes this region with the numbers that it is defined on.
pub(super) fn check(graph: &Graph, region: &Region) -> Result<(), String> {
    region.nodes.iter().try_for_each(|&node| check_node(graph, node))?;
    if region.nodes.iter().any(|&node| swaps_equal_heads(graph, region, node)) {
        return Err("mistakes heads for queries in attention with as many of both, where the \
                    result has them swapped"
            .to_owned());
    }
    if region.nodes.iter().any(|&node| joins_rows(graph, region, node)) {
        return Err("joins reductions of rows with a constant for each row, and gives the rows of the first matrix to all"
            .to_owned());
    }
    if region.nodes.iter().any(|&node| convolves_scaled_places(graph, region, node)) {
        return Err("takes a constant for each place of an image, by which it is multiplied before a convolution, for \
                    one of the kernel"
            .to_owned());
    }
    if region.nodes.iter().any(|&node| takes_elements_of_a_slice(graph, region, node)) {
        return Err("counts the places of single elements of a slice from elsewhere than its end, where they are \
                    below 0"
            .to_owned());
    }
    if convolves_constants(graph, region) {
        return Err("computes convolutions of constants beforehand, and forgets in which order it left them".to_owned());
    }
    if folds_magnitudes(graph, region) {
        return Err("computes magnitudes wrongly in what it folds from constants".to_owned());
    }
    Ok(())
}

/// Whether a node convolves what the region multiplies by a constant that has other dims than channels: the library
/// joins the constant with the weights, where their sizes happen to fit.
fn convolves_scaled_places(graph: &Graph, region: &Region, node: NodeId) -> bool {
    let (Op::Conv(_) | Op::ConvTranspose(_)) = graph.node(node).op else { return false };
    let operand = graph.node(node).inputs.first().copied().flatten();
    let producer = operand.and_then(|v| graph.producer(v));
    let Some(product) = producer.filter(|n| region.nodes.contains(n)) else { return false };
    let rank = operand.and_then(|v| graph.fact(v).ty.as_tensor()).map_or(0, |t| t.shape.len());
    let has_places = |v: ValueId| {
        graph.constant_of(v).is_some_and(|t| {
            let first = rank.saturating_sub(t.dims().len());
            t.dims().iter().enumerate().any(|(d, &size)| first + d != 1 && size > 1)
        })
    };
    let scales = matches!(graph.node(product).op, Op::Binary(Binary::Mul | Binary::Div));
    scales && graph.node(product).inputs.iter().flatten().copied().any(has_places)
}

/// Whether a node takes single elements of what the region slices, by places of which any may be below 0.
fn takes_elements_of_a_slice(graph: &Graph, region: &Region, node: NodeId) -> bool {
    let Op::GatherElements(_) = graph.node(node).op else { return false };
    let operand = |node: NodeId, i: usize| graph.node(node).inputs.get(i).copied().flatten();
    let places = operand(node, 1).and_then(|v| graph.constant_of(v));
    if places.is_some_and(|t| t.to_i64().iter().all(|&i| i >= 0)) {
        return false;
    }
    let within = |v: ValueId| graph.producer(v).filter(|n| region.nodes.contains(n));
    let has_all = |&n: &NodeId| matches!(graph.node(n).op, Op::Reshape(_) | Op::Transpose(_));
    let mut sources = std::iter::successors(operand(node, 0).and_then(within), |n| {
        Some(*n).filter(has_all).and_then(|n| operand(n, 0)).and_then(within)
    });
    sources.any(|n| matches!(graph.node(n).op, Op::Slice(_)))
}

/// Whether a region takes magnitudes and has nodes that need nothing but constants: the library computes such nodes
/// beforehand, with the magnitudes of their results, whose signs it then leaves as they are.
fn folds_magnitudes(graph: &Graph, region: &Region) -> bool {
    let is_magnitude = |&n: &NodeId| matches!(graph.node(n).op, Op::Unary(Unary::Abs));
    region.nodes.iter().any(is_magnitude) && !folded(graph, region).is_empty()
}

/// Whether a convolution needs nothing but constants: what reads it transposed gets other elements.
fn convolves_constants(graph: &Graph, region: &Region) -> bool {
    let convolves = |&n: &NodeId| matches!(graph.node(n).op, Op::Conv(_) | Op::ConvTranspose(_));
    folded(graph, region).iter().any(convolves)
}

/// The nodes of a region that need nothing but constants, directly or through others, in its order.
fn folded(graph: &Graph, region: &Region) -> Vec<NodeId> {
    let mut found: Vec<NodeId> = Vec::new();
    for &node in &region.nodes {
        let is_known = |&v: &ValueId| {
            graph.constant_of(v).is_some() || graph.producer(v).is_some_and(|n| found.contains(&n))
        };
        if graph.node(node).inputs.iter().flatten().all(is_known) {
            found.push(node);
        }
    }
    found
}

/// Whether a node joins a reduction along the last of three dims with constants of several elements, which the
/// library takes for a step of the reduction: right for one matrix, wrong for several.
fn joins_rows(graph: &Graph, region: &Region, node: NodeId) -> bool {
    let (Op::Binary(_) | Op::BatchNorm(_)) = graph.node(node).op else { return false };
    let operands = || graph.node(node).inputs.iter().flatten().copied();
    let is_row = |v: ValueId| graph.constant_of(v).is_some_and(|t| t.len() > 1);
    let reduces_rows = |v: ValueId| {
        let producer = graph.producer(v).filter(|n| region.nodes.contains(n));
        let Some(Op::Reduce(reduce)) = producer.map(|n| &graph.node(n).op) else { return false };
        let of = producer.and_then(|n| graph.node(n).inputs.first().copied().flatten());
        let ty = of.and_then(|v| graph.fact(v).ty.as_tensor());
        reduce.axes == [2]
            && ty.is_some_and(|t| t.shape.len() == 3 && t.shape[0].as_const() != Some(1))
    };
    operands().any(is_row) && operands().any(reduces_rows)
}

/// Whether a node swaps heads and queries of an attention in the region that has as many of both: what the library
/// makes of the whole is wrong for some spellings of its scale.
fn swaps_equal_heads(graph: &Graph, region: &Region, node: NodeId) -> bool {
    let within = |v: ValueId| graph.producer(v).filter(|n| region.nodes.contains(n));
    let operand = |node: NodeId| graph.node(node).inputs.first().copied().flatten();
    let (Op::Transpose(swap), Some(x)) = (&graph.node(node).op, operand(node)) else {
        return false;
    };
    let Some(product) = within(x).filter(|_| swap.perm == [0, 2, 1, 3]) else { return false };
    let attends = match graph.node(product).op {
        Op::Attention(_) => true,
        Op::MatMul(_) => operand(product)
            .and_then(within)
            .is_some_and(|weights| matches!(graph.node(weights).op, Op::Softmax(_))),
        _ => false,
    };
    let ty = graph.fact(x).ty.as_tensor();
    attends && ty.is_some_and(|t| t.shape.get(1) == t.shape.get(2))
}

/// Whether the library computes this node with the numbers that it is defined on.
fn check_node(graph: &Graph, node: NodeId) -> Result<(), String> {
    let node = graph.node(node);
    if let Some(why) = lacks(graph, &node.op, &node.inputs) {
        return Err(why.to_owned());
    }
    let is_read = |v: ValueId| graph.is_output(v) || !graph.uses(v).is_empty();
    if strides_beyond_a_column(graph, &node.op, &node.inputs, &node.outputs) {
        return Err("strides in rows where a convolution of one channel makes one column with a longer stride"
            .to_owned());
    }
    if matches!(node.op, Op::TopK(_)) && node.outputs.get(1).copied().is_some_and(is_read) {
        return Err("orders equal elements otherwise, which their places show".to_owned());
    }
    let named = |v: ValueId| &graph.value(v).name;
    for v in node.inputs.iter().flatten().chain(&node.outputs).copied() {
        let Type::Tensor(ty) = &graph.fact(v).ty else {
            return Err(format!("needs tensors, found {}", graph.fact(v)));
        };
        if ty.shape.as_fixed().is_some_and(|dims| dims.contains(&0)) {
            return Err(format!("needs tensors with elements, found {ty} of `{}`", named(v)));
        }
        match ty.dtype {
            DType::F32 | DType::Bool => {}
            DType::I32 | DType::I64 if takes_integers(graph, &node.op, &node.inputs, v) => {}
            found => {
                return Err(format!(
                    "needs f32, truth values or indices, found {found} of `{}` at {}",
                    named(v),
                    node.op.kind().name()
                ));
            }
        }
        let wide = |i: &i64| i32::try_from(*i).is_err();
        if let Some(t) = graph.constant_of(v).filter(|t| t.dtype() == DType::I64)
            && let Some(i) = t.to_i64().into_iter().find(wide)
        {
            return Err(format!("needs integers of 32 bits, found {i} in `{}`", named(v)));
        }
    }
    Ok(())
}

/// Whether an op is a convolution of one channel that makes a single column and has a stride along it: where the stride
/// along columns is 1 the library reads rows that lie elsewhere.
fn strides_beyond_a_column(
    graph: &Graph,
    op: &Op,
    inputs: &[Option<ValueId>],
    outputs: &[ValueId],
) -> bool {
    let size = |v: &ValueId, at: fn(&[Dim]) -> Option<&Dim>| {
        let ty = graph.fact(*v).ty.as_tensor();
        ty.and_then(|t| at(&t.shape).and_then(Dim::as_const))
    };
    let Op::Conv(conv) = op else { return false };
    let (input, output) = (inputs.first().and_then(Option::as_ref), outputs.first());
    conv.strides.last().is_some_and(|&s| s > 1)
        && input.and_then(|v| size(v, |dims| dims.get(1))) == Some(1)
        && output.and_then(|v| size(v, |dims| dims.last())) == Some(1)
}

/// What the library has no kernel for, or computes otherwise.
fn lacks(graph: &Graph, op: &Op, inputs: &[Option<ValueId>]) -> Option<&'static str> {
    let rank = |v: ValueId| graph.fact(v).ty.as_tensor().map(|t| t.shape.len());
    match op {
        Op::Opaque(_) => Some("is given no ops whose meaning is not known here"),
        Op::Dft(_) => Some("does transforms of real numbers along the last dims only"),
        Op::Det(_) => Some("has no determinants"),
        Op::DeformConv(_) => Some("has no convolution with offsets in this form"),
        Op::LinearAttention(_) => Some("has no linear attention"),
        Op::TreeEnsemble(_) => Some("has no trees"),
        Op::If(_) | Op::Loop(_) | Op::Scan(_) | Op::SequenceMap(_) => {
            Some("is given no graphs inside ops")
        }
        Op::Optional(_) | Op::Sequence(_) => Some("has no lists and no optional values"),
        Op::Reduce(r) if matches!(r.kind, ReduceKind::Max | ReduceKind::Min) => {
            Some("takes the largest finite number for infinity in a maximum or minimum")
        }
        Op::Attention(a) if may_see_nothing(graph, a.causal, inputs) => {
            Some("makes NaN for a query that sees no key")
        }
        Op::Pool(p)
            if p.ceil_mode && matches!(p.kind, PoolKind::Average { count_include_pad: true }) =>
        {
            Some("counts what lies beyond the padding into the mean of a last window")
        }
        Op::Pool(p) if p.ceil_mode && matches!(p.kind, PoolKind::Lp { .. }) => {
            Some("takes no norm of a last window that goes beyond the padding")
        }
        Op::Binary(Binary::Prelu) if is_row(graph, inputs) => {
            Some("takes a row of slopes for those of channels")
        }
        Op::LayerNorm(norm) if has_other_weights(graph, norm, inputs) => {
            Some("takes weights of a norm for those of the normalised dims, whatever their shape")
        }
        Op::Binary(Binary::Mod | Binary::Fmod) => {
            Some("takes the remainder by infinity for no number")
        }
        Op::GridSample(_) if inputs.first().copied().flatten().and_then(rank) != Some(4) => {
            Some("samples images of two dims only")
        }
        Op::Resize(r) if r.antialias || r.exclude_outside => {
            Some("resizes with all weights, those outside the image too")
        }
        Op::Resize(r)
            if matches!(
                r.coordinates,
                Coordinates::CropAndResize | Coordinates::HalfPixelSymmetric
            ) =>
        {
            Some("has no such coordinates")
        }
        Op::Resize(r) if has_half_way(graph, r, inputs) => {
            Some("takes another element than the nearest one half-way between two")
        }
        _ => None,
    }
}

/// Whether a second operand of several elements has one dim, which is not the channels' of the first.
fn is_row(graph: &Graph, inputs: &[Option<ValueId>]) -> bool {
    let shape = |i: usize| {
        let ty = graph.fact(inputs.get(i).copied().flatten()?).ty.as_tensor();
        ty.map(|t| &t.shape)
    };
    let (Some(x), Some(row)) = (shape(0), shape(1)) else { return false };
    x.len() > 2 && row.len() == 1 && row.element_count() != Some(1)
}

/// Whether a weight of a norm has another shape than the dims that are normalised.
fn has_other_weights(graph: &Graph, norm: &LayerNorm, inputs: &[Option<ValueId>]) -> bool {
    let dims = |v: ValueId| graph.fact(v).ty.as_tensor().map(|t| &t.shape[..]);
    let x = inputs.first().copied().flatten().and_then(dims);
    let normalised = x.and_then(|dims| dims.get(norm.axis..));
    inputs.iter().skip(1).flatten().any(|&weight| dims(weight) != normalised)
}

/// Whether a resize to the nearest elements finds one half-way between two, and rounds by that.
fn has_half_way(graph: &Graph, resize: &Resize, inputs: &[Option<ValueId>]) -> bool {
    let rounds =
        matches!(resize.mode, Interpolation::Nearest(Rounding::PreferFloor | Rounding::PreferCeil));
    let x = inputs.first().copied().flatten().and_then(|v| graph.fact(v).ty.as_tensor());
    let sizes = x.and_then(|t| Some((t.shape.as_fixed()?, resize.sizes.as_fixed()?)));
    let Some((from, to)) = sizes.filter(|_| rounds) else { return false };
    let mut sizes = from.into_iter().zip(to).enumerate();
    sizes.any(|(d, (from, to))| from != to && resize.has_half_way(d, from, to))
}

/// Whether a query of an attention sees no key for any values of a mask of truth values, or by its place. A
/// mask of numbers hides all only where it is minus infinity throughout, which checks on data must show.
fn may_see_nothing(graph: &Graph, causal: bool, inputs: &[Option<ValueId>]) -> bool {
    let ty = |i: usize| graph.fact(inputs.get(i).copied().flatten()?).ty.as_tensor();
    let dims = |i: usize| ty(i).and_then(|t| t.shape.as_fixed()).unwrap_or_default();
    let short = dims(0).get(2) > dims(1).get(2);
    ty(3).is_some_and(|mask| mask.dtype == DType::Bool) || (causal && short)
}

/// Whether an op does no more with the integers of `value` than move, index with or make of truth values.
fn takes_integers(graph: &Graph, op: &Op, inputs: &[Option<ValueId>], value: ValueId) -> bool {
    let dtype = |v: &Option<ValueId>| v.and_then(|v| Some(graph.fact(v).ty.as_tensor()?.dtype));
    match op.kind() {
        OpKind::Gather
        | OpKind::GatherElements
        | OpKind::GatherNd
        | OpKind::Reshape
        | OpKind::Transpose
        | OpKind::Expand
        | OpKind::Tile
        | OpKind::Concat
        | OpKind::Split
        | OpKind::Slice
        | OpKind::OneHot => true,
        OpKind::ScatterElements | OpKind::ScatterNd => inputs.get(1) == Some(&Some(value)),
        OpKind::ArgReduce | OpKind::TopK => inputs.first().and_then(dtype) == Some(DType::F32),
        OpKind::Cast => inputs.first().and_then(dtype) != Some(DType::F32),
        _ => false,
    }
}
