//! What numbers an input is worth measuring with, by what the graph does with it.
//!
//! Floats are normal. Integers and booleans mean something: rows of a table, what a mask shows, a divisor.
//! Every use is followed through ops that keep, move, convert, shift or compare elements.

use bricolage_ir::{
    Graph, NodeId, Op, ValueId,
    ops::{Binary, Unary},
};
use bricolage_tensor::{DType, Dim, Rng, Tensor};
use std::{collections::HashSet, fmt};

/// How the elements of an input are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draw {
    /// Normal with mean 0 and variance 1.
    Normal,
    /// Whole numbers from the first to before the second, all as likely.
    Whole(i64, i64),
    /// Ones: a mask that hides nothing.
    Ones,
    /// Zeros: a mask, of which ones hide, that hides nothing.
    Zeros,
}

/// Bounds for integers of which nothing is known but that they are numbers: varied, and small enough for
/// exponents and counts.
const SMALL: i64 = 16;
/// What is added to scores, or multiplied with a mask, to hide them, is at most this.
const HIDES: f64 = -1e3;

impl Draw {
    /// For an input of a graph with fixed sizes.
    pub fn of(graph: &Graph, input: ValueId) -> Draw {
        let dtype = match graph.fact(input).ty.as_tensor() {
            Some(t) if !t.dtype.is_float() => t.dtype,
            _ => return Draw::Normal,
        };
        let mut purpose = Purpose::default();
        purpose.follow(graph, input);
        let mask = match (purpose.mask, purpose.ones_hide && !purpose.ones_show) {
            (true, true) => Some(Draw::Zeros),
            // Which way a boolean is meant is known only where it leads to a score; eight bits in a
            // product alone may be an image.
            (true, false)
                if purpose.ones_show || !matches!(dtype, DType::Bool | DType::U8 | DType::I8) =>
            {
                Some(Draw::Ones)
            }
            _ => None,
        };
        let first = i64::from(purpose.divides || purpose.counts).max(purpose.from);
        match (purpose.rows, mask) {
            (Some(rows), _) => Draw::Whole(first, rows.max(first + 1)),
            (None, Some(mask)) => mask,
            _ if dtype == DType::Bool || purpose.unknown => Draw::Whole(0, 2),
            // Eight bits hold images and quantised numbers.
            _ if dtype == DType::U8 => Draw::Whole(first, 256),
            _ if dtype == DType::I8 => Draw::Whole(first, 128),
            _ => Draw::Whole(first, SMALL + first),
        }
    }

    /// A tensor drawn like this.
    pub fn tensor(self, dtype: DType, dims: &[i64], rng: &mut Rng) -> Tensor {
        Tensor::generate(dtype, dims, |_| match self {
            Draw::Normal => rng.normal(),
            Draw::Whole(from, to) => from as f64 + rng.below((to - from) as usize) as f64,
            Draw::Ones => 1.0,
            Draw::Zeros => 0.0,
        })
    }
}

impl fmt::Display for Draw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Draw::Normal => write!(f, "normal, mean 0, variance 1"),
            Draw::Whole(from, to) => write!(f, "whole numbers {from} to {}", to - 1),
            Draw::Ones => write!(f, "ones, a mask that hides nothing"),
            Draw::Zeros => write!(f, "zeros, a mask that hides nothing"),
        }
    }
}

/// What an input is used for.
#[derive(Clone, Copy, Debug, Default)]
struct Purpose {
    /// The smallest number of rows that it picks from.
    rows: Option<i64>,
    /// The first row from the end that it may pick, if that is more than 0.
    from: i64,
    /// It says what counts.
    mask: bool,
    /// A one in it hides a score.
    ones_hide: bool,
    /// A one in it shows a score.
    ones_show: bool,
    /// Integers are divided by it.
    divides: bool,
    /// It says how many of something there are.
    counts: bool,
    /// A node without meaning here reads it.
    unknown: bool,
}

/// A value that still says what an element of the input is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Trace {
    value: ValueId,
    /// The most that was added to the element.
    offset: i64,
    /// The least that was added to it.
    least: i64,
    /// Whether a one in the input is more here than a zero is.
    rises: bool,
}

impl Purpose {
    fn follow(&mut self, graph: &Graph, input: ValueId) {
        let mut open = vec![Trace { value: input, offset: 0, least: 0, rises: true }];
        let mut seen: HashSet<Trace> = open.iter().copied().collect();
        while let Some(at) = open.pop() {
            for reader in graph.uses(at.value) {
                let Some(next) = self.through(graph, at, reader.node, reader.operand) else {
                    continue;
                };
                for &value in &graph.node(reader.node).outputs {
                    let next = Trace { value, ..next };
                    if seen.insert(next) {
                        open.push(next);
                    }
                }
            }
        }
    }

    /// Notes one use; what goes on to the node's results, if they still say what the element is.
    fn through(&mut self, graph: &Graph, at: Trace, node: NodeId, operand: usize) -> Option<Trace> {
        let op = &graph.node(node).op;
        let operands = &graph.node(node).inputs;
        let dtype = |v: ValueId| graph.fact(v).ty.as_tensor().map(|t| t.dtype);
        let constant = |i: usize| known(graph, operands.get(i).copied().flatten()?);
        match op {
            Op::Gather(g) if operand == 1 => self.picks(graph, at, node, g.axis, 1),
            Op::GatherElements(g) if operand == 1 => self.picks(graph, at, node, g.axis, 1),
            Op::ScatterElements(s) if operand == 1 => self.picks(graph, at, node, s.axis, 1),
            Op::GatherNd(g) if operand == 1 => {
                self.picks(graph, at, node, g.batch_dims, coordinates(graph, at.value));
            }
            Op::ScatterNd(_) if operand == 1 => {
                self.picks(graph, at, node, 0, coordinates(graph, at.value));
            }
            Op::OneHot(o) if operand == 0 => self.pick(o.depth.as_const(), at),
            Op::Opaque(_) => self.unknown = true,
            Op::Attention(_) if operand == 3 => {
                self.mask = true;
                if dtype(at.value) == Some(DType::Bool) {
                    self.hides(!at.rises);
                }
            }
            Op::Select(_) if operand == 0 => {
                self.mask = true;
                for (side, taken) in [(1, at.rises), (2, !at.rises)] {
                    if constant(side).is_some_and(|t| lowest(&t)) {
                        self.hides(taken);
                    }
                }
            }
            Op::Cast(c) => {
                self.mask |= c.to == DType::Bool;
                return Some(at);
            }
            Op::Unary(Unary::Not) => {
                self.mask = true;
                return Some(Trace { rises: !at.rises, ..at });
            }
            Op::Unary(Unary::Identity)
            | Op::Reshape(_)
            | Op::Transpose(_)
            | Op::Expand(_)
            | Op::Tile(_)
            | Op::Slice(_)
            | Op::Split(_)
            | Op::Concat(_)
            | Op::Trilu(_) => return Some(at),
            Op::Pad(_) | Op::Gather(_) | Op::GatherElements(_) | Op::GatherNd(_)
                if operand == 0 =>
            {
                return Some(at);
            }
            Op::Select(_) => return Some(at),
            Op::Binary(f) => {
                let other = constant(1 - operand);
                return self.arithmetic(*f, at, operand, other.as_ref(), dtype(at.value)?);
            }
            _ => {}
        }
        None
    }

    /// A function of the element and `other`, if that is constant.
    fn arithmetic(
        &mut self,
        f: Binary,
        at: Trace,
        operand: usize,
        other: Option<&Tensor>,
        dtype: DType,
    ) -> Option<Trace> {
        let least = || other.map(|t| t.to_f64().into_iter().fold(f64::INFINITY, f64::min));
        let largest = || other.map(|t| t.to_f64().into_iter().fold(f64::NEG_INFINITY, f64::max));
        let all = |wanted: f64| other.is_some_and(|t| t.to_f64().iter().all(|&v| v == wanted));
        match f {
            Binary::Add if !dtype.is_float() => {
                let (offset, least) = (largest()? as i64, least()? as i64);
                let offset = at.offset.saturating_add(offset);
                Some(Trace { offset, least: at.least.saturating_add(least), ..at })
            }
            Binary::Sub if operand == 0 && !dtype.is_float() => {
                let (offset, least) = (least()? as i64, largest()? as i64);
                let offset = at.offset.saturating_sub(offset);
                Some(Trace { offset, least: at.least.saturating_sub(least), ..at })
            }
            // What a mask leaves out.
            Binary::Sub if operand == 1 && all(1.0) => {
                self.mask = true;
                Some(Trace { rises: !at.rises, ..at })
            }
            // 0 where the mask shows, on its way to a large factor.
            Binary::Sub if operand == 0 && all(1.0) => {
                self.mask = true;
                None
            }
            Binary::Mul if largest().is_some_and(|v| v <= HIDES) => {
                self.mask = true;
                self.hides(at.rises);
                None
            }
            Binary::Mul if other.is_none() && dtype.is_float() => {
                self.mask = true;
                None
            }
            Binary::Div | Binary::Mod | Binary::Fmod if operand == 1 && !dtype.is_float() => {
                self.divides = true;
                None
            }
            Binary::And | Binary::Or | Binary::Xor => {
                self.mask = true;
                Some(at)
            }
            f if f.compares() && (all(0.0) || all(0.5) || all(1.0)) => {
                let bound = least()?;
                let holds = |v: f64| match (f, operand) {
                    (Binary::Equal, _) => v == bound,
                    (Binary::Less, 0) | (Binary::Greater, 1) => v < bound,
                    (Binary::Greater, 0) | (Binary::Less, 1) => v > bound,
                    (Binary::LessEqual, 0) | (Binary::GreaterEqual, 1) => v <= bound,
                    _ => v >= bound,
                };
                let (zero, one) = match at.rises {
                    true => (holds(0.0), holds(1.0)),
                    false => (holds(1.0), holds(0.0)),
                };
                self.mask |= zero != one;
                (zero != one).then_some(Trace { rises: one, ..at })
            }
            // One of several is meant.
            Binary::Equal if least()? >= 0.0 && least() < largest() => {
                self.pick(Some(largest()? as i64 + 1), at);
                None
            }
            // So many of several are meant: one of them at least.
            f if f.compares() && least()? >= 0.0 && least() < largest() => {
                self.pick(Some(largest()? as i64 + 2), at);
                self.counts = true;
                None
            }
            _ => None,
        }
    }

    fn hides(&mut self, ones: bool) {
        match ones {
            true => self.ones_hide = true,
            false => self.ones_show = true,
        }
    }

    /// Picks along `count` dims of the node's first operand from `axis` on.
    fn picks(&mut self, graph: &Graph, at: Trace, node: NodeId, axis: usize, count: usize) {
        let data = graph.node(node).inputs.first().copied().flatten();
        let shape = data.and_then(|v| graph.fact(v).ty.as_tensor()).map(|t| &t.shape);
        for dim in shape.iter().flat_map(|s| s.iter().skip(axis).take(count)) {
            self.pick(dim.as_const(), at);
        }
    }

    /// Picks one of so many rows, by their numbers or from the end by negative ones.
    fn pick(&mut self, rows: Option<i64>, at: Trace) {
        let Some(all) = rows else { return };
        let rows = all.saturating_sub(at.offset);
        self.rows = Some(self.rows.map_or(rows, |known| known.min(rows)));
        let from = all.saturating_add(at.least).saturating_neg();
        // Room for one row, whatever a graph adds.
        self.from = self.from.max(from.min(i64::MAX - 1));
    }
}

/// Longest row of numbers that is written out.
const LONGEST: i64 = 1 << 20;

/// The elements of a value that does not depend on inputs, in some order, some perhaps repeated.
fn known(graph: &Graph, mut value: ValueId) -> Option<Tensor> {
    loop {
        if let Some(t) = graph.constant_of(value) {
            return Some(t.clone());
        }
        let node = graph.node(graph.producer(value)?);
        match &node.op {
            // In a float type a number is what it was, but for a rounding.
            Op::Cast(c) if c.to.is_float() => value = node.inputs.first().copied().flatten()?,
            Op::Reshape(_) | Op::Expand(_) | Op::Tile(_) | Op::Transpose(_) => {
                value = node.inputs.first().copied().flatten()?;
            }
            Op::Iota(iota) => {
                let (start, len) = (iota.start.as_const()?, iota.len.as_const()?);
                let step = iota.step;
                return (0..=LONGEST).contains(&len).then(|| {
                    Tensor::generate(iota.dtype, &[len], |i| (start + i as i64 * step) as f64)
                });
            }
            _ => return None,
        }
    }
}

/// How many coordinates each position in the value has.
fn coordinates(graph: &Graph, value: ValueId) -> usize {
    let shape = graph.fact(value).ty.as_tensor().map(|t| &t.shape);
    let last = shape.and_then(|s| s.last()).and_then(Dim::as_const);
    last.and_then(|n| usize::try_from(n).ok()).unwrap_or(1)
}

/// Whether a constant hides what it is added to or put in place of.
fn lowest(t: &Tensor) -> bool {
    t.dtype().is_float() && !t.is_empty() && t.to_f64().iter().all(|&v| v <= HIDES)
}
