//! Rotary position embedding, from primitives.

use super::at::{At, Imported, Step, malformed};
use bricolage_ir::{
    ValueId,
    ops::{Binary, Concat, Gather, Slice},
};
use bricolage_tensor::Dim;

/// Elements `start`, `start + step`, .. below `end` of the last of 4 dims.
fn cut(at: &mut At<'_, '_>, x: ValueId, start: i64, end: i64, step: i64) -> Step {
    let slice = Slice {
        axes: vec![3],
        starts: vec![Dim::from(start)],
        ends: vec![Dim::from(end)],
        steps: vec![step],
    };
    at.add(slice, &[x])
}

pub(crate) fn rotary_embedding(at: &mut At<'_, '_>) -> Imported {
    at.at_most(4)?;
    let (x, mut cos, mut sin) = (at.input(0)?, at.input(1)?, at.input(2)?);
    let interleaved = at.flag("interleaved", false)?;
    let heads = at.int_or("num_heads", 0)?;
    let turned = at.int_or("rotary_embedding_dim", 0)?;
    let whole = at.dims(x)?;
    // Everything happens as [batch, sequence, heads, size].
    let rows = match (whole.len(), heads) {
        (4, _) => at.transpose(x, &[0, 2, 1, 3])?,
        (3, 1..) => {
            let size = whole[2].floor_div(&Dim::from(heads));
            at.reshape(x, vec![whole[0].clone(), whole[1].clone(), Dim::from(heads), size])?
        }
        (rank, heads) => {
            return malformed(format!(
                "needs 4 dims, or 3 and `num_heads`, found {rank} and {heads}"
            ));
        }
    };
    let dims = at.dims(rows)?;
    let size = match (turned, dims[3].as_const()) {
        (0, Some(size)) => size,
        (turned, Some(size)) if (1..=size).contains(&turned) => turned,
        (turned, size) => {
            return malformed(format!(
                "needs `rotary_embedding_dim` within a head of {size:?}, found {turned}"
            ));
        }
    };
    if let Some(positions) = at.optional(3) {
        cos = at.add(Gather { axis: 0 }, &[cos, positions])?;
        sin = at.add(Gather { axis: 0 }, &[sin, positions])?;
    }
    for angle in [&mut cos, &mut sin] {
        let mut d = at.dims(*angle)?;
        if d.len() != 3 || d[2].as_const().is_some_and(|n| n != size / 2) {
            return malformed(format!(
                "needs angles as [batch, sequence, {}], found {d:?}",
                size / 2
            ));
        }
        d.insert(2, Dim::from(1));
        *angle = at.reshape(*angle, d)?;
    }
    let (a, b) = if interleaved {
        (cut(at, rows, 0, size, 2)?, cut(at, rows, 1, size, 2)?)
    } else {
        (cut(at, rows, 0, size / 2, 1)?, cut(at, rows, size / 2, size, 1)?)
    };
    let mut mix = |f: Binary, x: [ValueId; 2], y: [ValueId; 2]| {
        let (left, right) = (at.add(Binary::Mul, &x)?, at.add(Binary::Mul, &y)?);
        at.add(f, &[left, right])
    };
    let mut real = mix(Binary::Sub, [cos, a], [sin, b])?;
    let mut imaginary = mix(Binary::Add, [sin, a], [cos, b])?;
    let mut part = dims[..3].to_vec();
    let mut together = if interleaved {
        let mut pairs = part.clone();
        pairs.extend([Dim::from(size / 2), Dim::from(1)]);
        real = at.reshape(real, pairs.clone())?;
        imaginary = at.reshape(imaginary, pairs)?;
        let both = at.add(Concat { axis: 4 }, &[real, imaginary])?;
        part.push(Dim::from(size));
        at.reshape(both, part)?
    } else {
        at.add(Concat { axis: 3 }, &[real, imaginary])?
    };
    if dims[3].as_const() != Some(size) {
        let rest = cut(at, rows, size, i64::MAX, 1)?;
        together = at.add(Concat { axis: 3 }, &[together, rest])?;
    }
    match whole.len() {
        4 => Ok(vec![at.transpose(together, &[0, 2, 1, 3])?]),
        _ => Ok(vec![at.reshape(together, whole)?]),
    }
}
