//! Cutting out a box, and padding around one.

use super::{
    OpDef,
    elements::{one, packed, pick, sizes, strided, strides, whole_bytes},
    results,
    types::{Operands, attribute, expect_axis, expect_rank},
};
use crate::{AxisKind, AxisMap, EvalError, Fact, Index, Inputs, Part, TypeError};
use bricolage_tensor::{Datum, Dim, Ranges, Storage, Symbol, Tensor};
use serde::{Deserialize, Serialize};

/// Cuts out a range of each listed dim. Positions below 0 count from the end and are then limited
/// to the dim; a position of at least `i32::MAX` is the end. For a symbolic dim a constant start
/// is taken to lie inside it, and so is a symbolic end.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Slice {
    /// The dims, each at most once.
    pub axes: Vec<usize>,
    /// First positions.
    pub starts: Vec<Dim>,
    /// Positions before which it stops.
    pub ends: Vec<Dim>,
    /// Steps; below 0 they run backwards. Never 0.
    pub steps: Vec<i64>,
}

impl Slice {
    /// First position and number of positions along a listed dim of `size`.
    fn range(&self, i: usize, size: &Dim) -> (Dim, Dim) {
        let (zero, one, step) = (Dim::from(0), Dim::from(1), self.steps[i]);
        let forward = step > 0;
        let from_end = |d: &Dim| match d.as_const() {
            Some(c) if c < 0 => (size + d, true),
            // Sizes are at least 0, and what is below 0 for all others counts from the end.
            None if d.bounds(&Ranges::default()).1 <= 0 => (size + d, true),
            _ => (d.clone(), false),
        };
        let fixed = size.as_const().is_some();
        // Ends allowed: 0..=size forwards, -1..=size-1 backwards.
        let low = if forward { zero.clone() } else { Dim::from(-1) };
        let high = if forward { size.clone() } else { size - &one };
        let limit = |d: Dim, low: &Dim, certain: bool| match (fixed, d.as_const()) {
            (_, Some(c)) if c >= i64::from(i32::MAX) => high.clone(),
            (_, Some(c)) if c <= -i64::from(i32::MAX) => low.clone(),
            (true, Some(_)) => d.larger(low).smaller(&high),
            (true, None) => d,
            (false, _) if certain => d,
            (false, Some(_)) => d.smaller(&high),
            (false, None) => d,
        };
        let resolve = |d: &Dim, low: &Dim, certain: bool| match d.as_const() {
            Some(c) if c <= -i64::from(i32::MAX) => low.clone(),
            _ => {
                let (d, relative) = from_end(d);
                limit(d, low, certain || relative)
            }
        };
        // A start before the first position counts as the first, in both directions.
        let start = resolve(&self.starts[i], &zero, true).smaller(&high);
        let end = resolve(&self.ends[i], &low, false);
        let span = if forward { &end - &start } else { &start - &end };
        let count = span.ceil_div(&Dim::from(step.abs()));
        let count = if count.as_const().is_some() { count.larger(&zero) } else { count };
        (start, count)
    }

    /// The first position that is taken along the `i`th listed dim, of this size; `None` where it is a symbol.
    pub fn first(&self, i: usize, size: i64) -> Option<i64> {
        self.range(i, &Dim::from(size)).0.as_const()
    }

    fn check(&self, rank: usize) -> Result<(), TypeError> {
        let lengths = [self.starts.len(), self.ends.len(), self.steps.len()];
        if lengths.iter().any(|&n| n != self.axes.len()) {
            let expected = format!("{} starts, ends and steps", self.axes.len());
            return Err(attribute("axes", expected, lengths));
        }
        for (i, &axis) in self.axes.iter().enumerate() {
            expect_axis(axis, rank)?;
            if self.axes[..i].contains(&axis) {
                return Err(attribute("axes", "without doubles", &self.axes));
            }
        }
        if self.steps.contains(&0) {
            return Err(attribute("steps", "other than 0", &self.steps));
        }
        Ok(())
    }
}

impl OpDef for Slice {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let operands = Operands::new(inputs, 1, 1)?;
        let t = operands.tensor(0)?;
        self.check(t.shape.len())?;
        let mut shape = t.shape.clone();
        for (i, &axis) in self.axes.iter().enumerate() {
            shape[axis] = self.range(i, &t.shape[axis]).1;
        }
        let mut known = operands.known(0).unwrap_or_default().to_vec();
        if let ([axis], Some([step]), false) =
            (self.axes.as_slice(), self.steps.first_chunk(), known.is_empty())
        {
            let (start, count) = self.range(0, &t.shape[*axis]);
            known = match (start.as_const(), count.as_const()) {
                (Some(start), Some(count)) => (0..count)
                    .map(|i| known.get((start + i * step) as usize).cloned().flatten())
                    .collect(),
                _ => Vec::new(),
            };
        }
        Ok(vec![Fact::tensor(t.dtype, shape.0).with_known(known)])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (_, dims) = results(self, inputs)?.swap_remove(0);
        let t = inputs.tensor(0)?;
        let mut steps: Vec<i64> = strides(&sizes(t.dims())).into_iter().map(|s| s as i64).collect();
        let mut base = 0;
        for (i, &axis) in self.axes.iter().enumerate() {
            let start = self.first(i, t.dims()[axis]);
            let start = start.ok_or_else(|| EvalError::Symbolic { dim: self.starts[i].clone() })?;
            base += start * steps[axis];
            steps[axis] *= self.steps[i];
        }
        one(strided(t, &dims, base, &steps)?)
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let Some(t) = inputs[0].and_then(|f| f.ty.as_tensor()) else {
            return AxisMap::opaque(inputs, outputs);
        };
        let mut map = AxisMap::pointwise(&[], outputs);
        let mut index: Vec<Index> = (0..t.shape.len()).map(Index::axis).collect();
        for (i, &axis) in self.axes.iter().enumerate() {
            let (start, _) = self.range(i, &t.shape[axis]);
            index[axis] = Index {
                window: true,
                ..Index::default().plus(axis, self.steps[i]).shifted(&start)
            };
        }
        map.inputs = vec![Some(index)];
        map
    }

    fn bind(&self, value: &dyn Fn(&Symbol) -> Option<Dim>) -> Slice {
        let bind = |all: &[Dim]| all.iter().map(|d| d.substitute(value)).collect();
        Slice { starts: bind(&self.starts), ends: bind(&self.ends), ..self.clone() }
    }

    fn part(&self, part: &Part) -> Slice {
        let mut slice = self.clone();
        if let Some(i) = self.axes.iter().position(|&a| a == part.axis) {
            // The window holds exactly the positions from the first to the last.
            let ends = i64::from(i32::MAX);
            let forward = self.steps[i] > 0;
            slice.starts[i] = Dim::from(if forward { 0 } else { ends });
            slice.ends[i] = Dim::from(if forward { ends } else { -ends });
        }
        slice
    }
}

/// What padding holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum PadMode {
    /// The fill value.
    Constant,
    /// The operand mirrored at its edge, the edge not repeated.
    Reflect,
    /// The edge.
    Edge,
    /// The operand again from the other side.
    Wrap,
}

/// Adds positions around an operand; a negative number removes them. Operand 1, optional, is a
/// scalar that [`PadMode::Constant`] fills with; 0 when absent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pad {
    /// What padding holds.
    pub mode: PadMode,
    /// Positions added before, per dim.
    pub before: Vec<Dim>,
    /// Positions added after, per dim.
    pub after: Vec<Dim>,
}

impl Pad {
    fn fault(&self, expected: String) -> TypeError {
        let list = |dims: &[Dim]| dims.iter().map(Dim::to_string).collect::<Vec<_>>().join(", ");
        let got = format!("[{}] before and [{}] after", list(&self.before), list(&self.after));
        TypeError::Attribute { name: "pads", expected, got }
    }

    /// Where position `at` of the result reads a dim of `size`; `None` in constant padding.
    fn source(&self, at: i64, before: i64, size: i64) -> Option<i64> {
        let from = at - before;
        if (0..size).contains(&from) {
            return Some(from);
        }
        match self.mode {
            PadMode::Constant => None,
            PadMode::Edge => Some(from.clamp(0, size - 1)),
            PadMode::Wrap => Some(from.rem_euclid(size)),
            PadMode::Reflect if size == 1 => Some(0),
            PadMode::Reflect => {
                let turn = from.rem_euclid(2 * (size - 1));
                Some(if turn < size { turn } else { 2 * (size - 1) - turn })
            }
        }
    }
}

impl OpDef for Pad {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let operands = Operands::new(inputs, 1, 2)?;
        let t = operands.tensor(0)?;
        if let Some(fill) = operands.optional(1)? {
            operands.same_dtype(0, 1)?;
            expect_rank(1, fill, 0, 1)?;
            if fill.shape.element_count().is_some_and(|n| n != 1) {
                let got = fill.shape[0].clone();
                return Err(TypeError::Dim { operand: 1, dim: 0, expected: Dim::from(1), got });
            }
        }
        let rank = t.shape.len();
        if self.before.len() != rank || self.after.len() != rank {
            return Err(self.fault(format!("{rank} numbers before and after")));
        }
        let mut shape = Vec::new();
        for (d, size) in t.shape.iter().enumerate() {
            let padded = size + &(&self.before[d] + &self.after[d]);
            let empty = self.mode != PadMode::Constant && size.as_const() == Some(0);
            if padded.as_const().is_some_and(|p| p < 0) || (empty && padded != *size) {
                return Err(self.fault(format!("fit for dim {d} of size {size}")));
            }
            // A mirror does not reach beyond the far edge.
            let reaches = |by: &Dim| {
                by.as_const() != Some(0) && (by - size).as_const().is_some_and(|more| more >= 0)
            };
            if self.mode == PadMode::Reflect
                && (reaches(&self.before[d]) || reaches(&self.after[d]))
            {
                return Err(self.fault(format!("below the size {size} of dim {d}, to reflect")));
            }
            shape.push(padded);
        }
        Ok(vec![Fact::tensor(t.dtype, shape)])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (dtype, dims) = results(self, inputs)?.swap_remove(0);
        let t = inputs.tensor(0)?;
        // The fill value follows the operand's elements, so that padding is a copy like others.
        let whole = whole_bytes(t)?;
        let mut bytes = whole.bytes().to_vec();
        match inputs.optional(1)? {
            Some(fill) => bytes.extend_from_slice(whole_bytes(fill)?.bytes()),
            None => bytes.resize(bytes.len() + dtype.bits().div_ceil(8) as usize, 0),
        }
        let all = Tensor::new(whole.dtype(), &[t.len() as i64 + 1], Storage::copy_of(&bytes))?;
        let own = strides(&sizes(t.dims()));
        // Where each position reads, per dim; -1 in constant padding.
        let mut sources: Vec<Vec<i64>> = Vec::new();
        for (d, &size) in dims.iter().enumerate() {
            let before = &self.before[d];
            let before =
                before.as_const().ok_or_else(|| EvalError::Symbolic { dim: before.clone() })?;
            let step = own[d] as i64;
            let of = |at| self.source(at, before, t.dims()[d]).map_or(-1, |p| p * step);
            sources.push((0..size).map(of).collect());
        }
        let count = dims.iter().product::<i64>() as usize;
        let shape = sizes(&dims);
        let mut at = vec![0usize; dims.len()];
        let padded = pick(&all, &dims, |out| {
            for _ in 0..count {
                let parts = at.iter().zip(&sources).map(|(&i, s)| usize::try_from(s[i]).ok());
                out(parts.sum::<Option<usize>>().unwrap_or(t.len()));
                for d in (0..at.len()).rev() {
                    at[d] += 1;
                    if at[d] < shape[d] {
                        break;
                    }
                    at[d] = 0;
                }
            }
        })?;
        one(packed(dtype, &padded))
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let Some(t) = inputs[0].and_then(|f| f.ty.as_tensor()) else {
            return AxisMap::opaque(inputs, outputs);
        };
        let mut map = AxisMap::pointwise(&[], outputs);
        map.inputs = vec![None; inputs.len()];
        let mut index = Vec::new();
        for d in 0..t.shape.len() {
            let untouched = self.before[d] == Dim::from(0) && self.after[d] == Dim::from(0);
            if untouched || self.mode == PadMode::Constant {
                let back = Dim::from(0) - self.before[d].clone();
                let window = !untouched;
                index.push(Index { window, ..Index::axis(d).shifted(&back) });
            } else {
                map.axes[d].kind = AxisKind::Opaque;
                let whole = map.add(format!("i{d}"), &t.shape[d], AxisKind::Opaque);
                index.push(Index::axis(whole));
            }
        }
        map.inputs[0] = Some(index);
        if let Some(fill) = inputs.get(1).and_then(|f| f.and_then(|f| f.ty.as_tensor())) {
            map.inputs[1] = Some(vec![Index::fixed(0); fill.shape.len()]);
        }
        map
    }

    fn bind(&self, value: &dyn Fn(&Symbol) -> Option<Dim>) -> Pad {
        let bind = |all: &[Dim]| all.iter().map(|d| d.substitute(value)).collect();
        Pad { mode: self.mode, before: bind(&self.before), after: bind(&self.after) }
    }

    fn part(&self, part: &Part) -> Pad {
        let mut pad = self.clone();
        let windows = part.inputs[0].as_deref().unwrap_or_default();
        if part.axis < windows.len() && self.mode == PadMode::Constant {
            pad.before[part.axis] = Dim::from(windows[part.axis].before);
            pad.after[part.axis] = Dim::from(windows[part.axis].after);
        }
        pad
    }
}
