//! Steps that move elements or make them from nothing.

use super::Growing;
use bricolage_ir::{
    Op, ValueId,
    ops::{
        Binary, Cast, Concat, Expand, Gather, GatherElements, GatherNd, Iota, OneHot, Pad, PadMode,
        Reshape, Scatter, ScatterElements, ScatterNd, Select, ShapeOf, Slice, Split, Tile,
        Transpose, Trilu,
    },
};
use bricolage_tensor::{DType, Dim, Shape, Tensor};

/// Whether results hold nothing but elements of operands.
pub(super) fn keeps_elements(op: &Op) -> bool {
    matches!(
        op,
        Op::Reshape(_)
            | Op::Transpose(_)
            | Op::Expand(_)
            | Op::Tile(_)
            | Op::Concat(_)
            | Op::Split(_)
            | Op::Slice(_)
            | Op::Pad(_)
            | Op::Gather(_)
            | Op::GatherElements(_)
            | Op::GatherNd(_)
            | Op::Select(_)
            | Op::Clip(_)
            | Op::Trilu(_)
            | Op::TopK(_)
    )
}

fn any(g: &mut Growing, ranks: std::ops::RangeInclusive<usize>) -> Option<ValueId> {
    g.pick(|t| ranks.contains(&t.dims().len()))
}

fn dims_of(all: &[i64]) -> Vec<Dim> {
    all.iter().map(|&d| Dim::from(d)).collect()
}

fn indices(g: &mut Growing, dims: &[i64], low: i64, high: i64) -> ValueId {
    let dtype = g.one_of(&[DType::I64, DType::I64, DType::I32]);
    let values: Vec<i64> =
        (0..dims.iter().product::<i64>()).map(|_| g.between(low, high)).collect();
    g.constant(Tensor::from_i64(dtype, dims, &values))
}

/// Flatten, squeeze, unsqueeze, a split dim, or any other shape of as many elements.
pub(super) fn reshape(g: &mut Growing) -> Option<()> {
    let x = any(g, 0..=5)?;
    let mut dims = g.dims(x);
    let rank = dims.len();
    match g.below(5) {
        0 if rank >= 2 => {
            let at = g.below(rank - 1);
            let last = at + 1 + g.below(rank - 1 - at);
            let merged = dims[at..=last].iter().product();
            dims.splice(at..=last, [merged]);
        }
        1 => dims.retain(|&d| d != 1),
        2 if rank < 5 => {
            let at = g.below(rank + 1);
            dims.insert(at, 1);
        }
        3 if (1..5).contains(&rank) => {
            let at = g.below(rank);
            let part = g.divisor(dims[at]);
            dims.splice(at..=at, [part, g.contents[&x].dims()[at] / part]);
        }
        _ => {
            let mut left: i64 = dims.iter().product();
            dims.clear();
            while left > 1 && dims.len() < 3 {
                let part = g.divisor(left);
                dims.push(part);
                left /= part;
            }
            dims.push(left);
        }
    }
    g.on(Reshape { to: Shape::fixed(&dims) }, &[x]).map(|_| ())
}

pub(super) fn transpose(g: &mut Growing) -> Option<()> {
    let x = any(g, 1..=5)?;
    let rank = g.dims(x).len();
    let mut perm: Vec<usize> = (0..rank).collect();
    if g.chance(0.5) && rank >= 2 {
        let at = g.below(rank - 1);
        perm.swap(at, at + 1);
    } else {
        g.rng.shuffle(&mut perm);
    }
    g.on(Transpose { perm }, &[x]).map(|_| ())
}

pub(super) fn expand(g: &mut Growing) -> Option<()> {
    let x = g.pick(|t| t.dims().contains(&1) || t.dims().len() < 4)?;
    let mut dims: Vec<i64> = g.dims(x);
    for d in &mut dims {
        if *d == 1 && g.chance(0.6) {
            *d = g.between(1, 4);
        }
    }
    if dims.len() < 4 && g.chance(0.4) {
        dims.insert(0, g.between(1, 3));
    }
    g.on(Expand { to: Shape::fixed(&dims) }, &[x]).map(|_| ())
}

pub(super) fn tile(g: &mut Growing) -> Option<()> {
    let x = any(g, 1..=4)?;
    let repeats: Vec<i64> = g.dims(x).iter().map(|_| g.one_of(&[1, 1, 2, 3])).collect();
    g.on(Tile { repeats: dims_of(&repeats) }, &[x]).map(|_| ())
}

pub(super) fn concat(g: &mut Growing) -> Option<()> {
    let x = any(g, 1..=5)?;
    let (dims, dtype) = (g.dims(x), g.dtype_of(x));
    let axis = if dims.len() > 2 && g.chance(0.6) { 1 } else { g.below(dims.len()) };
    let mut parts = vec![x];
    for _ in 0..g.between(1, 3) {
        let fits = |t: &Tensor| {
            t.dtype() == dtype
                && t.dims().len() == dims.len()
                && (0..dims.len()).all(|d| d == axis || t.dims()[d] == dims[d])
        };
        let other = match g.pick(fits) {
            Some(other) if g.chance(0.7) => other,
            _ => {
                let mut shape = dims.clone();
                shape[axis] = g.between(1, 5);
                g.weight(dtype, &shape, 1.0)?
            }
        };
        parts.push(other);
    }
    g.rng.shuffle(&mut parts);
    g.on(Concat { axis }, &parts).map(|_| ())
}

pub(super) fn split(g: &mut Growing) -> Option<()> {
    let x = g.pick(|t| t.dims().iter().any(|&d| d > 1))?;
    let dims = g.dims(x);
    let wide: Vec<usize> = (0..dims.len()).filter(|&d| dims[d] > 1).collect();
    let axis = g.one_of(&wide);
    let mut sizes = Vec::new();
    let mut left = dims[axis];
    if left % 2 == 0 && g.chance(0.5) {
        sizes = vec![left / 2; 2];
    } else {
        while left > 0 && sizes.len() < 3 {
            let part = g.between(1, left);
            sizes.push(part);
            left -= part;
        }
        if left > 0 {
            sizes.push(left);
        }
    }
    g.on(Split { axis, sizes: dims_of(&sizes) }, &[x]).map(|_| ())
}

pub(super) fn slice(g: &mut Growing) -> Option<()> {
    let x = any(g, 1..=5)?;
    let dims = g.dims(x);
    let mut axes: Vec<usize> = (0..dims.len()).filter(|_| g.chance(0.5)).collect();
    if axes.is_empty() {
        axes.push(g.below(dims.len()));
    }
    g.rng.shuffle(&mut axes);
    let (mut starts, mut ends, mut steps) = (Vec::new(), Vec::new(), Vec::new());
    for &axis in &axes {
        let size = dims[axis];
        let step = g.one_of(&[1, 1, 1, 2, 3, -1, -2]);
        let (a, b) = (g.between(0, size - 1), g.between(0, size - 1));
        let (low, high) = (a.min(b), a.max(b));
        let (start, end) = if step > 0 { (low, high + 1) } else { (high, low - 1) };
        // From the end as often as not; before the first element only as far down as can be.
        let from_end = |at: i64| if at < 0 { i64::MIN } else { at - size };
        starts.push(if g.chance(0.3) { from_end(start) } else { start });
        ends.push(match end {
            -1 => i64::MIN,
            end if end >= size => g.one_of(&[end, i64::MAX, size + 3]),
            end if g.chance(0.3) => from_end(end),
            end => end,
        });
        steps.push(step);
    }
    let op = Slice { axes, starts: dims_of(&starts), ends: dims_of(&ends), steps };
    g.on(op, &[x]).map(|_| ())
}

pub(super) fn pad(g: &mut Growing) -> Option<()> {
    let x = g.pick(|t| t.dtype() != DType::Bool && (1..=5).contains(&t.dims().len()))?;
    let (dims, dtype) = (g.dims(x), g.dtype_of(x));
    let mode = g.one_of(&[
        PadMode::Constant,
        PadMode::Constant,
        PadMode::Reflect,
        PadMode::Edge,
        PadMode::Wrap,
    ]);
    let mut amounts = || -> Vec<i64> {
        let most = |g: &mut Growing, d: i64| match mode {
            PadMode::Constant if g.chance(0.1) => -g.between(0, d / 2),
            PadMode::Reflect => g.between(0, (d - 1).min(2)),
            PadMode::Wrap => g.between(0, d.min(2)),
            _ => g.between(0, 2),
        };
        dims.iter().map(|&d| if g.chance(0.5) { most(g, d) } else { 0 }).collect()
    };
    let (before, after) = (dims_of(&amounts()), dims_of(&amounts()));
    let mut operands = vec![x];
    if mode == PadMode::Constant && g.chance(0.4) {
        operands.push(g.constant(Tensor::from_f64(dtype, &[], &[1.5])));
    }
    g.on(Pad { mode, before, after }, &operands).map(|_| ())
}

pub(super) fn gather(g: &mut Growing) -> Option<()> {
    let x = any(g, 1..=4)?;
    let axis = g.below(g.dims(x).len());
    let size = g.dims(x)[axis];
    if g.chance(0.3)
        && let Some(at) = g.pick(|t| {
            t.dtype().is_int()
                && matches!(t.dtype(), DType::I32 | DType::I64)
                && t.to_i64().iter().all(|&i| -size <= i && i < size)
        })
    {
        return g.on(Gather { axis }, &[x, at]).map(|_| ());
    }
    let shape: Vec<i64> = match g.below(4) {
        0 => Vec::new(),
        1 => vec![g.between(1, 3), g.between(1, 3)],
        _ => vec![g.between(1, 5)],
    };
    let at = indices(g, &shape, -size, size - 1);
    g.on(Gather { axis }, &[x, at]).map(|_| ())
}

pub(super) fn gather_elements(g: &mut Growing) -> Option<()> {
    let x = any(g, 1..=4)?;
    let mut dims = g.dims(x);
    if g.chance(0.4) {
        let depth = 1 + g.below(dims.len().min(2));
        let rows = g.between(1, 4);
        let mut flat = Vec::new();
        for _ in 0..rows {
            flat.extend(dims[..depth].iter().map(|&d| g.between(-d, d - 1)));
        }
        let at = g.constant(Tensor::of(&[rows, depth as i64], &flat));
        return g.on(GatherNd { batch_dims: 0 }, &[x, at]).map(|_| ());
    }
    let axis = g.below(dims.len());
    let size = dims[axis];
    dims[axis] = g.between(1, 4);
    let at = indices(g, &dims, -size, size - 1);
    g.on(GatherElements { axis }, &[x, at]).map(|_| ())
}

pub(super) fn scatter(g: &mut Growing) -> Option<()> {
    let x = g.pick_float(1..=4)?;
    let (dims, dtype) = (g.dims(x), g.dtype_of(x));
    let mut reduction = g.one_of(&[
        Scatter::Replace,
        Scatter::Replace,
        Scatter::Add,
        Scatter::Mul,
        Scatter::Max,
        Scatter::Min,
    ]);
    if g.chance(0.5) {
        // Of several updates of one element, which one counts is not promised elsewhere: rows once each.
        let mut rows: Vec<i64> = (0..dims[0]).collect();
        g.rng.shuffle(&mut rows);
        rows.truncate(1 + g.below(rows.len()));
        let at = g.constant(Tensor::of(&[rows.len() as i64, 1], &rows));
        let mut shape = dims.clone();
        shape[0] = rows.len() as i64;
        let updates = g.weight(dtype, &shape, 1.0)?;
        return g.on(ScatterNd { reduction }, &[x, at, updates]).map(|_| ());
    }
    let axis = g.below(dims.len());
    let mut shape = dims.clone();
    shape[axis] = g.between(1, 3);
    let at = indices(g, &shape, 0, dims[axis] - 1);
    if reduction == Scatter::Replace && shape[axis] > 1 {
        reduction = Scatter::Add;
    }
    let updates = g.weight(dtype, &shape, 1.0)?;
    g.on(ScatterElements { axis, reduction }, &[x, at, updates]).map(|_| ())
}

pub(super) fn one_hot(g: &mut Growing) -> Option<()> {
    let dims = [g.between(1, 5)];
    let at = indices(g, &dims, -3, 5);
    let values = g.constant(Tensor::of(&[2], &[0.0f32, 1.0]));
    let axis = g.below(2);
    g.on(OneHot { axis, depth: Dim::from(4) }, &[at, values]).map(|_| ())
}

pub(super) fn triangle(g: &mut Growing) -> Option<()> {
    let x = any(g, 2..=4)?;
    let op = Trilu { upper: g.chance(0.5), diagonal: g.between(-2, 2) };
    let y = g.on(op, &[x])?;
    if g.dtype_of(y) == DType::Bool {
        let (a, b) = (g.number(DType::F32, 0.0), g.number(DType::F32, -2.0));
        g.on(Select, &[y, a, b])?;
    }
    Some(())
}

/// Numbers of positions, or a value's own sizes, and what is computed from them.
pub(super) fn positions(g: &mut Growing) -> Option<()> {
    if g.chance(0.5) {
        let x = any(g, 1..=5)?;
        let end = g.dims(x).len();
        let start = g.below(end);
        let y = g.on(ShapeOf { start, end }, &[x])?;
        let two = g.constant(Tensor::of(&[], &[2i64]));
        return g.on(Binary::Mul, &[y, two]).map(|_| ());
    }
    let x = g.pick_float(1..=4)?;
    let len = *g.dims(x).last()?;
    let op = Iota {
        dtype: g.one_of(&[DType::I64, DType::F32, DType::I32]),
        start: Dim::from(g.between(-2, 3)),
        len: Dim::from(len),
        step: g.one_of(&[1, 2, -1]),
    };
    let at = g.on(op, &[])?;
    let to = g.dtype_of(x);
    let at = g.on(Cast::to(to), &[at])?;
    g.on(Binary::Add, &[x, at]).map(|_| ())
}
