//! Moves along sequences whose lengths are data.

use super::at::{At, Fault, Imported, malformed};
use bricolage_ir::{
    ValueId,
    ops::{Binary, Concat, Expand, GatherNd, Iota, Scatter, ScatterNd, Select},
};
use bricolage_tensor::{DType, Dim, Shape, Tensor};

fn iota(at: &mut At<'_, '_>, start: &Dim, len: &Dim) -> Result<ValueId, Fault> {
    let op = Iota { dtype: DType::I64, start: start.clone(), len: len.clone(), step: 1 };
    at.add::<ValueId>(op, &[])
}

/// The order of dims that puts `axis` after the first, and back.
fn second(rank: usize, axis: usize) -> (Vec<usize>, Vec<usize>) {
    let mut perm: Vec<usize> = (0..rank).collect();
    perm.remove(axis);
    perm.insert(1, axis);
    let back = (0..rank).map(|d| perm.iter().position(|&p| p == d).unwrap_or(d)).collect();
    (perm, back)
}

/// Writes an update into a cache from a position on that every image has its own of.
pub(crate) fn tensor_scatter(at: &mut At<'_, '_>) -> Imported {
    at.at_most(3)?;
    let (cache, update) = (at.input(0)?, at.input(1)?);
    let rank = at.rank(cache)?;
    let axis = at.int_or("axis", -2)?;
    let axis = at.axis(axis, rank)?;
    if axis == 0 || at.rank(update)? != rank {
        return malformed(
            "needs two operands of as many dims, and an axis other than that of images",
        );
    }
    let circular = match at.text("mode", "linear")?.as_str() {
        "linear" => false,
        "circular" => true,
        other => {
            return malformed(format!("needs `mode` to be linear or circular, found `{other}`"));
        }
    };
    let (perm, back) = second(rank, axis);
    let moved = axis != 1;
    let turn = |at: &mut At<'_, '_>, v| if moved { at.transpose(v, &perm) } else { Ok(v) };
    let (cache, update) = (turn(at, cache)?, turn(at, update)?);
    let dims = at.dims(update)?;
    let (images, length, one) = (dims[0].clone(), dims[1].clone(), Dim::from(1));
    let zero = Dim::from(0);
    let mut positions = iota(at, &zero, &length)?;
    if let Some(first) = at.optional(2) {
        let first = at.reshape(first, vec![images.clone(), one.clone()])?;
        positions = at.add(Binary::Add, &[first, positions])?;
    }
    if circular {
        let room = at.dims(cache)?[1].clone();
        let room = iota(at, &room, &one)?;
        positions = at.add(Binary::Mod, &[positions, room])?;
    }
    let image = iota(at, &zero, &images)?;
    let image = at.reshape(image, vec![images.clone(), one.clone()])?;
    let mut coordinates = Vec::new();
    for v in [image, positions] {
        let to = Shape(vec![images.clone(), length.clone()]);
        let spread = at.add(Expand { to }, &[v])?;
        coordinates.push(at.reshape(spread, vec![images.clone(), length.clone(), one.clone()])?);
    }
    let coordinates = at.add(Concat { axis: 2 }, &coordinates)?;
    let op = ScatterNd { reduction: Scatter::Replace };
    let written = at.add(op, &[cache, coordinates, update])?;
    Ok(vec![if moved { at.transpose(written, &back)? } else { written }])
}

/// Reverses the first positions of every sequence, as many as operand 1 says.
pub(crate) fn reverse_sequence(at: &mut At<'_, '_>) -> Imported {
    let all = at.all(2, 2)?;
    let (x, lengths) = (all[0], all[1]);
    let rank = at.rank(x)?;
    let axes = [at.int_or("batch_axis", 1)?, at.int_or("time_axis", 0)?];
    let swapped = match axes {
        [0, 1] => false,
        [1, 0] => true,
        _ => {
            return malformed(format!(
                "needs `batch_axis` and `time_axis` to be 0 and 1 or 1 and 0, found {axes:?}"
            ));
        }
    };
    if rank < 2 {
        return Err(bricolage_ir::TypeError::Rank {
            operand: 0,
            min: 2,
            max: usize::MAX,
            got: rank,
        }
        .into());
    }
    let mut perm: Vec<usize> = (0..rank).collect();
    perm.swap(0, 1);
    let x = if swapped { at.transpose(x, &perm)? } else { x };
    let dims = at.dims(x)?;
    let (images, steps, one) = (dims[0].clone(), dims[1].clone(), Dim::from(1));
    let time = iota(at, &Dim::from(0), &steps)?;
    let lengths = at.reshape(lengths, vec![images.clone(), one.clone()])?;
    let inside = at.add(Binary::Less, &[time, lengths])?;
    let minus = at.tensor_value(Tensor::of(&[], &[1i64]));
    let last = at.add(Binary::Sub, &[lengths, minus])?;
    let mirrored = at.add(Binary::Sub, &[last, time])?;
    let from = at.add(Select, &[inside, mirrored, time])?;
    let from = at.reshape(from, vec![images, steps, one])?;
    let y = at.add(GatherNd { batch_dims: 1 }, &[x, from])?;
    Ok(vec![if swapped { at.transpose(y, &perm)? } else { y }])
}
