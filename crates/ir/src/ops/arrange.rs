//! Moving elements without computing: transposing, repeating, and blocks of space and depth.

use super::{
    OpDef,
    elements::{broadcast_strides, one, sizes, strided, strides},
    reshape::lengths,
    results,
    types::{Operands, attribute, broadcast, differ, expect_rank},
};
use crate::{AxisKind, AxisMap, EvalError, Fact, Index, Inputs, Part, TypeError};
use bricolage_tensor::{Datum, Dim, Shape, Symbol, Type};
use serde::{Deserialize, Serialize};

/// Reorders dims: dim `d` of the result is dim `perm[d]` of the operand.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Transpose {
    /// Every dim once.
    pub perm: Vec<usize>,
}

impl OpDef for Transpose {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let operands = Operands::new(inputs, 1, 1)?;
        let t = operands.tensor(0)?;
        let mut sorted = self.perm.clone();
        sorted.sort_unstable();
        if !sorted.into_iter().eq(0..t.shape.len()) {
            return Err(attribute(
                "perm",
                format!("each of {} dims once", t.shape.len()),
                &self.perm,
            ));
        }
        let fact = Fact::tensor(t.dtype, self.perm.iter().map(|&d| t.shape[d].clone()));
        Ok(vec![fact.with_known(operands.known(0).unwrap_or_default().to_vec())])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (_, dims) = results(self, inputs)?.swap_remove(0);
        let t = inputs.tensor(0)?;
        let own = strides(&sizes(t.dims()));
        let steps: Vec<i64> = self.perm.iter().map(|&d| own[d] as i64).collect();
        one(strided(t, &dims, 0, &steps)?)
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let mut map = AxisMap::pointwise(&[], outputs);
        let mut input = vec![Index::default(); self.perm.len()];
        for (to, &from) in self.perm.iter().enumerate() {
            input[from] = Index::axis(to);
        }
        map.inputs = inputs.iter().map(|_| Some(input.clone())).collect();
        map
    }
}

/// Repeats dims of 1 up to a shape, by numpy's rules.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Expand {
    /// The shape of the result.
    pub to: Shape,
}

impl OpDef for Expand {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let operands = Operands::new(inputs, 1, 1)?;
        let t = operands.tensor(0)?;
        expect_rank(0, t, 0, self.to.len())?;
        let whole = broadcast(&[(0, &self.to), (0, &t.shape)])?;
        if whole.iter().zip(self.to.iter()).any(|(a, b)| differ(a, b)) {
            return Err(attribute(
                "to",
                format!("a shape that {} broadcasts to", t.shape),
                &self.to,
            ));
        }
        let fact = Fact::tensor(t.dtype, self.to.iter().cloned());
        let count = self.to.element_count().filter(|&n| n <= Fact::MOST_KNOWN as u64);
        let known = match (operands.known(0), count) {
            (Some([one]), Some(count)) => vec![one.clone(); count as usize],
            (Some(all), _) => all.to_vec(),
            _ => Vec::new(),
        };
        Ok(vec![fact.with_known(known)])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (_, dims) = results(self, inputs)?.swap_remove(0);
        let t = inputs.tensor(0)?;
        let steps = broadcast_strides(&sizes(t.dims()), &sizes(&dims));
        let steps: Vec<i64> = steps.into_iter().map(|s| s as i64).collect();
        one(strided(t, &dims, 0, &steps)?)
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        AxisMap::pointwise(inputs, outputs)
    }

    fn bind(&self, value: &dyn Fn(&Symbol) -> Option<Dim>) -> Expand {
        Expand { to: self.to.iter().map(|d| d.substitute(value)).collect() }
    }

    fn part(&self, part: &Part) -> Expand {
        Expand { to: lengths(part) }
    }
}

/// Repeats the whole tensor along each dim.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Tile {
    /// How often, per dim.
    pub repeats: Vec<Dim>,
}

impl OpDef for Tile {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let t = Operands::new(inputs, 1, 1)?.tensor(0)?;
        let negative = |d: &Dim| d.as_const().is_some_and(|d| d < 0);
        if self.repeats.len() != t.shape.len() || self.repeats.iter().any(negative) {
            let expected = format!("{} numbers of at least 0", t.shape.len());
            return Err(attribute("repeats", expected, &self.repeats));
        }
        let dims = t.shape.iter().zip(&self.repeats).map(|(d, r)| d * r);
        Ok(vec![Fact::tensor(t.dtype, dims)])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (_, dims) = results(self, inputs)?.swap_remove(0);
        let t = inputs.tensor(0)?;
        let shape = sizes(t.dims());
        // Each dim is split into repeats, which do not move, and the dim itself.
        let (mut split, mut steps) = (Vec::new(), Vec::new());
        for ((&size, own), out) in shape.iter().zip(strides(&shape)).zip(&dims) {
            split.extend([*out / (size as i64).max(1), size as i64]);
            steps.extend([0, own as i64]);
        }
        one(strided(t, &split, 0, &steps)?.reshaped(&dims)?)
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let Some(Type::Tensor(t)) = inputs[0].map(|f| &f.ty) else {
            return AxisMap::opaque(inputs, outputs);
        };
        let mut map = AxisMap::new(1, 1);
        let mut input = Vec::new();
        for (d, (dim, repeat)) in t.shape.iter().zip(&self.repeats).enumerate() {
            let own = map.add(format!("d{d}"), dim, AxisKind::Parallel);
            let mut index = Index::axis(own);
            if repeat.as_const() != Some(1) {
                let r = map.add(format!("r{d}"), repeat, AxisKind::Parallel);
                index = index.plus(r, dim.clone());
            }
            map.outputs[0].push(index);
            input.push(Index::axis(own));
        }
        map.inputs[0] = Some(input);
        map
    }

    fn bind(&self, value: &dyn Fn(&Symbol) -> Option<Dim>) -> Tile {
        Tile { repeats: self.repeats.iter().map(|d| d.substitute(value)).collect() }
    }

    fn part(&self, part: &Part) -> Tile {
        let mut repeats = self.repeats.clone();
        if let Some(d) = part.name.strip_prefix('r').and_then(|d| d.parse::<usize>().ok()) {
            repeats[d] = Dim::from(part.points.end - part.points.start);
        }
        Tile { repeats }
    }
}

/// Order of channels in [`DepthToSpace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DepthOrder {
    /// Block row, block column, channel.
    BlocksFirst,
    /// Channel, block row, block column.
    ChannelsFirst,
}

/// Spreads blocks of channels over space: `[n, c * b * b, h, w]` to `[n, c, h * b, w * b]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DepthToSpace {
    /// The side `b` of a block.
    pub block: i64,
    /// How channels are ordered in the operand.
    pub order: DepthOrder,
}

/// Gathers blocks of space into channels: `[n, c, h * b, w * b]` to `[n, b * b * c, h, w]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SpaceToDepth {
    /// The side `b` of a block.
    pub block: i64,
}

/// The six axes `n c h b w b'` of both ops, and the indices of the deep and of the wide tensor.
fn block_axes(wide: &[Dim], block: i64, order: DepthOrder) -> (AxisMap, Vec<Index>, Vec<Index>) {
    let mut map = AxisMap::new(1, 1);
    let b = Dim::from(block);
    let mut add = |name: &'static str, extent: &Dim| map.add(name, extent, AxisKind::Parallel);
    let (n, c) = (add("n", &wide[0]), add("c", &wide[1]));
    let (h, y) = (add("h", &wide[2].floor_div(&b)), add("y", &b));
    let (w, x) = (add("w", &wide[3].floor_div(&b)), add("x", &b));
    let depth = match order {
        DepthOrder::BlocksFirst => Index::axis(c).plus(x, wide[1].clone()).plus(y, &wide[1] * &b),
        DepthOrder::ChannelsFirst => Index::axis(x).plus(y, block).plus(c, block * block),
    };
    let deep = vec![Index::axis(n), depth, Index::axis(h), Index::axis(w)];
    let rows = Index::axis(y).plus(h, block);
    let columns = Index::axis(x).plus(w, block);
    (map, deep, vec![Index::axis(n), Index::axis(c), rows, columns])
}

/// Reads `t` along the dims of `view` in the order `perm`.
fn permuted(
    t: &bricolage_tensor::Tensor,
    view: &[i64],
    perm: &[usize],
    dims: &[i64],
) -> Result<Vec<Datum>, EvalError> {
    let own = strides(&sizes(view));
    let split: Vec<i64> = perm.iter().map(|&d| view[d]).collect();
    let steps: Vec<i64> = perm.iter().map(|&d| own[d] as i64).collect();
    one(strided(t, &split, 0, &steps)?.reshaped(dims)?)
}

fn expect_block(block: i64, dims: &[(usize, &Dim, i64)]) -> Result<(), TypeError> {
    if block < 1 {
        return Err(attribute("block", "above 0", block));
    }
    for (dim, size, by) in dims {
        if size.as_const().is_some_and(|s| s % by != 0) {
            return Err(attribute(
                "block",
                format!("one that {by} follows from and divides dim {dim} of {size}"),
                block,
            ));
        }
    }
    Ok(())
}

impl OpDef for DepthToSpace {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let t = Operands::new(inputs, 1, 1)?.tensor(0)?;
        expect_rank(0, t, 4, 4)?;
        expect_block(self.block, &[(1, &t.shape[1], self.block * self.block)])?;
        let b = Dim::from(self.block);
        let channels = t.shape[1].floor_div(&(&b * &b));
        let dims = [t.shape[0].clone(), channels, &t.shape[2] * &b, &t.shape[3] * &b];
        Ok(vec![Fact::tensor(t.dtype, dims)])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (_, dims) = results(self, inputs)?.swap_remove(0);
        let t = inputs.tensor(0)?;
        let (d, b) = (t.dims(), self.block);
        match self.order {
            DepthOrder::BlocksFirst => {
                permuted(t, &[d[0], b, b, dims[1], d[2], d[3]], &[0, 3, 4, 1, 5, 2], &dims)
            }
            DepthOrder::ChannelsFirst => {
                permuted(t, &[d[0], dims[1], b, b, d[2], d[3]], &[0, 1, 4, 2, 5, 3], &dims)
            }
        }
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let Some(wide) = outputs[0].ty.as_tensor() else {
            return AxisMap::opaque(inputs, outputs);
        };
        let (mut map, deep, wide) = block_axes(&wide.shape, self.block, self.order);
        map.inputs[0] = Some(deep);
        map.outputs[0] = wide;
        map
    }
}

impl OpDef for SpaceToDepth {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let t = Operands::new(inputs, 1, 1)?.tensor(0)?;
        expect_rank(0, t, 4, 4)?;
        expect_block(self.block, &[(2, &t.shape[2], self.block), (3, &t.shape[3], self.block)])?;
        let b = Dim::from(self.block);
        let dims = [
            t.shape[0].clone(),
            &t.shape[1] * &(&b * &b),
            t.shape[2].floor_div(&b),
            t.shape[3].floor_div(&b),
        ];
        Ok(vec![Fact::tensor(t.dtype, dims)])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (_, dims) = results(self, inputs)?.swap_remove(0);
        let t = inputs.tensor(0)?;
        let (d, b) = (t.dims(), self.block);
        permuted(t, &[d[0], d[1], dims[2], b, dims[3], b], &[0, 3, 5, 1, 2, 4], &dims)
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        let Some(Type::Tensor(t)) = inputs[0].map(|f| &f.ty) else {
            return AxisMap::opaque(inputs, outputs);
        };
        let (mut map, deep, wide) = block_axes(&t.shape, self.block, DepthOrder::BlocksFirst);
        map.inputs[0] = Some(wide);
        map.outputs[0] = deep;
        map
    }
}
