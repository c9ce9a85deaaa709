//! How an op's iteration space meets the dims of its operands.
//!
//! Fission, sharding, layout propagation, cost and loop nests are derived from this one facet.

use crate::Fact;
use bricolage_tensor::{Dim, Type};
use std::{borrow::Cow, ops::Range};

/// How partial results over parts of a reduce axis make the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Combiner {
    /// Their sum.
    Sum,
    /// The largest.
    Max,
    /// The smallest.
    Min,
    /// Their product.
    Product,
    /// Their mean, each weighted by its part of the whole extent.
    Mean,
}

/// What happens along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AxisKind {
    /// Points are independent.
    Parallel,
    /// Points are combined.
    Reduce(Combiner),
    /// Every point may need every other, or the index depends on data.
    Opaque,
}

/// One dimension of the iteration space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Short, unique within the map.
    pub name: Cow<'static, str>,
    /// Number of points.
    pub extent: Dim,
    /// What happens along it.
    pub kind: AxisKind,
}

/// Where along one dim of an operand a point reads or writes: the sum of coefficient times axis,
/// plus the offset. An input index outside its dim reads padding.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// Pairs (axis, coefficient); no axis occurs twice.
    pub terms: Vec<(usize, Dim)>,
    /// Added to the terms.
    pub offset: Dim,
    /// The op takes any slice that covers the positions it needs, also where they are not all
    /// positions of the slice: a window that slides, a slice with steps.
    pub window: bool,
}

impl Index {
    /// The position along the axis itself.
    pub fn axis(axis: usize) -> Index {
        Index { terms: vec![(axis, Dim::from(1))], ..Index::default() }
    }

    /// The same position at every point, as for a broadcast dim.
    pub fn fixed(offset: i64) -> Index {
        Index { offset: Dim::from(offset), ..Index::default() }
    }

    /// The index with `coefficient * axis` added.
    pub fn plus(mut self, axis: usize, coefficient: impl Into<Dim>) -> Index {
        self.terms.push((axis, coefficient.into()));
        self
    }

    /// The index moved by `offset`.
    pub fn shifted(mut self, offset: &Dim) -> Index {
        self.offset = &self.offset + offset;
        self
    }

    /// Whether the index moves along the axis.
    pub fn touches(&self, axis: usize) -> bool {
        self.terms.iter().any(|term| term.0 == axis)
    }

    /// First and last position, both included, while each axis stays within its range.
    fn span(&self, ranges: &[Range<i64>]) -> Option<(i64, i64)> {
        let offset = self.offset.as_const()?;
        let (mut low, mut high) = (offset, offset);
        for (axis, coefficient) in &self.terms {
            let (c, range) = (coefficient.as_const()?, &ranges[*axis]);
            if range.is_empty() {
                return None;
            }
            let (a, b) = (c.checked_mul(range.start)?, c.checked_mul(range.end - 1)?);
            low = low.checked_add(a.min(b))?;
            high = high.checked_add(a.max(b))?;
        }
        Some((low, high))
    }
}

/// The iteration space of an op and the index of every operand dim in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AxisMap {
    /// The dimensions of the space.
    pub axes: Vec<Axis>,
    /// For each input that is there, one index per dim.
    pub inputs: Vec<Option<Vec<Index>>>,
    /// For each output, one index per dim.
    pub outputs: Vec<Vec<Index>>,
    /// Something is applied once after combining (a bias, a square root), so that results over
    /// parts of a reduce axis do not make the whole.
    pub finishes: bool,
}

/// The positions of one operand dim that a part needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// Positions inside the dim.
    pub range: Range<i64>,
    /// Positions needed before the dim starts.
    pub before: i64,
    /// Positions needed after the dim ends.
    pub after: i64,
}

/// One part of an op split along an axis: what it reads and what it writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The axis, as an index into [`AxisMap::axes`].
    pub axis: usize,
    /// The axis's name.
    pub name: Cow<'static, str>,
    /// The points of the axis.
    pub points: Range<i64>,
    /// The slices needed, halo included; `None` for an absent input. A dim whose index does not
    /// move along the axis is whole.
    pub inputs: Vec<Option<Vec<Window>>>,
    /// The slices written.
    pub outputs: Vec<Vec<Range<i64>>>,
}

impl AxisMap {
    /// An empty map for an op with this many inputs and outputs.
    pub fn new(inputs: usize, outputs: usize) -> AxisMap {
        AxisMap {
            inputs: vec![None; inputs],
            outputs: vec![Vec::new(); outputs],
            ..AxisMap::default()
        }
    }

    /// Adds an axis and returns its number.
    pub fn add(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        extent: &Dim,
        kind: AxisKind,
    ) -> usize {
        self.axes.push(Axis { name: name.into(), extent: extent.clone(), kind });
        self.axes.len() - 1
    }

    /// The map of a sum over products: `"mk,kn->mn"`. A letter that the output lacks is summed.
    /// `None` when the signature does not fit the operands.
    pub fn einsum(signature: &str, inputs: &[Option<&Fact>]) -> Option<AxisMap> {
        let (left, right) = signature.split_once("->")?;
        let terms: Vec<&str> = left.split(',').collect();
        let mut map = AxisMap::new(inputs.len(), 1);
        let mut letters: Vec<char> = Vec::new();
        for (operand, term) in terms.iter().enumerate() {
            let Type::Tensor(t) = &(*inputs.get(operand)?)?.ty else { return None };
            if term.chars().count() != t.shape.len() {
                return None;
            }
            let mut index = Vec::new();
            for (letter, dim) in term.chars().zip(t.shape.iter()) {
                let axis = letters.iter().position(|&l| l == letter).unwrap_or_else(|| {
                    letters.push(letter);
                    let kind = if right.contains(letter) {
                        AxisKind::Parallel
                    } else {
                        AxisKind::Reduce(Combiner::Sum)
                    };
                    map.add(letter.to_string(), dim, kind)
                });
                index.push(Index::axis(axis));
            }
            map.inputs[operand] = Some(index);
        }
        for letter in right.chars() {
            let axis = letters.iter().position(|&l| l == letter)?;
            map.outputs[0].push(Index::axis(axis));
        }
        Some(map)
    }

    /// One independent point per output element; inputs broadcast by numpy's rules. An axis for
    /// which it is not known whether an input broadcasts is opaque.
    pub fn pointwise(inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let mut map = AxisMap::new(inputs.len(), outputs.len());
        let shape = match outputs.first().map(|f| &f.ty) {
            Some(Type::Tensor(t)) => &t.shape,
            _ => return map,
        };
        for (d, extent) in shape.iter().enumerate() {
            map.add(format!("d{d}"), extent, AxisKind::Parallel);
        }
        for (operand, fact) in inputs.iter().enumerate() {
            let Some(Type::Tensor(t)) = fact.map(|f| &f.ty) else { continue };
            let lead = shape.len().saturating_sub(t.shape.len());
            let index = t.shape.iter().enumerate().map(|(d, dim)| {
                if *dim == shape[lead + d] {
                    return Index::axis(lead + d);
                }
                if dim.as_const() != Some(1) {
                    map.axes[lead + d].kind = AxisKind::Opaque;
                }
                Index::fixed(0)
            });
            map.inputs[operand] = Some(index.collect());
        }
        map.outputs.fill((0..shape.len()).map(Index::axis).collect());
        map
    }

    /// Nothing is known: every output dim is opaque and every input is needed whole.
    pub fn opaque(inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let mut map = AxisMap::new(inputs.len(), outputs.len());
        let whole = |map: &mut AxisMap, prefix: char, operand: usize, fact: &Fact| match &fact.ty {
            Type::Tensor(t) => {
                let mut index = Vec::new();
                for (d, dim) in t.shape.iter().enumerate() {
                    index.push(Index::axis(map.add(
                        format!("{prefix}{operand}.{d}"),
                        dim,
                        AxisKind::Opaque,
                    )));
                }
                index
            }
            _ => Vec::new(),
        };
        for (i, fact) in inputs.iter().enumerate() {
            if let Some(fact) = fact {
                map.inputs[i] = Some(whole(&mut map, 'i', i, fact));
            }
        }
        for (o, fact) in outputs.iter().enumerate() {
            map.outputs[o] = whole(&mut map, 'o', o, fact);
        }
        map
    }

    /// Axes along which the op may be split without changing its meaning, with extent other than 1.
    pub fn splittable(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.axes.len()).filter(|&axis| self.can_split(axis))
    }

    /// Whether the op may be split along the axis. Parts must be slices of every operand that the
    /// axis touches: it is the outermost axis of one dim, or the op takes a window there. Every
    /// output of a parallel axis is touched.
    pub fn can_split(&self, axis: usize) -> bool {
        if self.axes[axis].extent.as_const() == Some(1) {
            return false;
        }
        let mut read = self.inputs.iter().flatten().flatten().filter(|i| i.touches(axis));
        if !read.all(|i| i.window || self.is_outermost(i, axis)) {
            return false;
        }
        match self.axes[axis].kind {
            AxisKind::Opaque => false,
            AxisKind::Reduce(_) => !self.finishes,
            AxisKind::Parallel => self.outputs.iter().all(|dims| {
                let mut with = dims.iter().filter(|i| i.touches(axis));
                match (with.next(), with.next()) {
                    (Some(i), None) => self.is_outermost(i, axis) && i.offset == Dim::from(0),
                    _ => false,
                }
            }),
        }
    }

    /// Whether steps along `axis` are exactly as long as all other terms of the index together.
    fn is_outermost(&self, index: &Index, axis: usize) -> bool {
        let mut reach = Dim::from(1);
        let mut step = Dim::from(0);
        for (other, coefficient) in &index.terms {
            if *other == axis {
                step = coefficient.clone();
            } else {
                reach = reach + coefficient.clone() * (&self.axes[*other].extent - &Dim::from(1));
            }
        }
        step == reach
    }

    /// What the points `points` of `axis` read and write, for operands of these types. `None` when
    /// a size is symbolic or the range is empty or too long.
    pub fn part(
        &self,
        axis: usize,
        points: Range<i64>,
        inputs: &[Option<&Fact>],
        outputs: &[Fact],
    ) -> Option<Part> {
        let mut ranges = Vec::new();
        for a in &self.axes {
            ranges.push(0..a.extent.as_const()?);
        }
        if points.start < 0 || points.is_empty() || points.end > ranges[axis].end {
            return None;
        }
        ranges[axis] = points.clone();
        let sizes = |fact: &Fact| match &fact.ty {
            Type::Tensor(t) => t.shape.as_fixed(),
            _ => None,
        };
        let mut part = Part {
            axis,
            name: self.axes[axis].name.clone(),
            points,
            inputs: vec![None; inputs.len()],
            outputs: Vec::new(),
        };
        for (operand, index) in self.inputs.iter().enumerate() {
            let (Some(index), Some(fact)) = (index, inputs[operand]) else { continue };
            let sizes = sizes(fact)?;
            let windows = index.iter().zip(&sizes).map(|(i, &size)| match i.touches(axis) {
                true => window(i, &ranges, size),
                false => Some(Window { range: 0..size, before: 0, after: 0 }),
            });
            part.inputs[operand] = Some(windows.collect::<Option<Vec<Window>>>()?);
        }
        for (index, fact) in self.outputs.iter().zip(outputs) {
            let sizes = sizes(fact)?;
            let written = index.iter().zip(&sizes).map(|(i, &size)| {
                if !i.touches(axis) {
                    return Some(0..size);
                }
                match i.span(&ranges) {
                    Some((low, high)) => Some(low.max(0)..(high + 1).min(size)),
                    None => (size == 0).then_some(0..0),
                }
            });
            part.outputs.push(written.collect::<Option<Vec<Range<i64>>>>()?);
        }
        Some(part)
    }
}

fn window(index: &Index, ranges: &[Range<i64>], size: i64) -> Option<Window> {
    let Some((low, high)) = index.span(ranges) else {
        let empty = index.terms.iter().any(|(axis, _)| ranges[*axis].is_empty());
        return empty.then_some(Window { range: 0..0, before: 0, after: 0 });
    };
    let end = high + 1;
    let start = low.clamp(0, size);
    let range = start..end.clamp(start, size);
    let before = (end.min(0) - low).max(0);
    let after = (end - low) - before - (range.end - range.start);
    Some(Window { range, before, after })
}
