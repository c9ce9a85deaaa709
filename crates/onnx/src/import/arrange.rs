//! Operators that move elements without computing.

use super::at::{At, Imported, malformed, unsupported};
use bricolage_ir::{
    TypeError,
    ops::{Concat, DepthOrder, DepthToSpace, Expand, SpaceToDepth, Split, Tile},
};
use bricolage_tensor::{Dim, Shape};

pub(crate) fn transpose(at: &mut At<'_, '_>) -> Imported {
    let x = at.all(1, 1)?[0];
    let rank = at.rank(x)?;
    let perm = match at.ints("perm")? {
        Some(perm) => at.axes(&perm, rank)?,
        None => (0..rank).rev().collect(),
    };
    Ok(vec![at.transpose(x, &perm)?])
}

/// Sizes broadcast in both directions.
pub(crate) fn expand(at: &mut At<'_, '_>) -> Imported {
    let x = at.all(2, 2)?[0];
    let asked = at.sizes_input(1, "the shape")?.unwrap_or_default();
    let have = at.dims(x)?;
    let rank = asked.len().max(have.len());
    let one = Dim::from(1);
    let pick = |dims: &[Dim], d: usize| {
        d.checked_sub(rank - dims.len()).map_or(one.clone(), |d| dims[d].clone())
    };
    let mut to = Vec::new();
    for d in 0..rank {
        let (a, b) = (pick(&have, d), pick(&asked, d));
        to.push(match (a.as_const(), b.as_const()) {
            _ if a == b => a,
            (_, Some(1)) => a,
            (Some(1), _) | (None, Some(_)) => b,
            (Some(_), None) => a,
            (Some(_), Some(_)) => {
                return Err(TypeError::Broadcast { operand: 1, got: (b, a) }.into());
            }
            // Two names: the shape asked for holds, and the operand must fit.
            (None, None) => b,
        });
    }
    at.one(Expand { to: Shape(to) }, &[x])
}

pub(crate) fn tile(at: &mut At<'_, '_>) -> Imported {
    let x = at.all(2, 2)?[0];
    let repeats = at.sizes_input(1, "`repeats`")?.unwrap_or_default();
    at.one(Tile { repeats }, &[x])
}

pub(crate) fn concat(at: &mut At<'_, '_>) -> Imported {
    let all = at.all(1, usize::MAX)?;
    let rank = at.rank(all[0])?;
    let Some(axis) = at.int("axis")? else {
        return malformed("needs attribute `axis`, found none");
    };
    let axis = at.axis(axis, rank)?;
    at.one(Concat { axis }, &all)
}

pub(crate) fn split(at: &mut At<'_, '_>) -> Imported {
    at.at_most(2)?;
    let x = at.input(0)?;
    let dims = at.dims(x)?;
    let axis = at.int_or("axis", 0)?;
    let axis = at.axis(axis, dims.len())?;
    let parts = at.node.output.len() as i64;
    let count = at.int_or("num_outputs", parts)?;
    if count != parts || parts == 0 {
        return malformed(format!("needs `num_outputs` to be the {parts} outputs, found {count}"));
    }
    let sizes = match at.ints("split")? {
        Some(sizes) => Some(sizes.into_iter().map(Dim::from).collect()),
        None => at.sizes_input(1, "`split`")?,
    };
    let sizes = match sizes {
        Some(sizes) if sizes.len() as i64 != parts => {
            return malformed(format!("needs {parts} sizes as `split`, found {}", sizes.len()));
        }
        Some(sizes) => sizes,
        None => {
            let size = dims[axis].ceil_div(&Dim::from(parts));
            if dims[axis].as_const().is_none() && &size * &Dim::from(parts) != dims[axis] {
                return unsupported(format!(
                    "needs to know whether {parts} divides dim {}",
                    dims[axis]
                ));
            }
            let before = &size * &Dim::from(parts - 1);
            let mut sizes = vec![size; parts as usize - 1];
            sizes.push(&dims[axis] - &before);
            sizes
        }
    };
    at.add_all(Split { axis, sizes }, &[x])
}

pub(crate) fn depth_to_space(at: &mut At<'_, '_>) -> Imported {
    let x = at.all(1, 1)?[0];
    let block = block(at)?;
    let order = match at.text("mode", "DCR")?.as_str() {
        "DCR" => DepthOrder::BlocksFirst,
        "CRD" => DepthOrder::ChannelsFirst,
        other => return malformed(format!("needs `mode` to be DCR or CRD, found `{other}`")),
    };
    at.one(DepthToSpace { block, order }, &[x])
}

pub(crate) fn space_to_depth(at: &mut At<'_, '_>) -> Imported {
    let x = at.all(1, 1)?[0];
    let block = block(at)?;
    match at.text("mode", "DCR")?.as_str() {
        "DCR" => at.one(SpaceToDepth { block }, &[x]),
        "CRD" => {
            let (d, b) = (at.dims(x)?, Dim::from(block));
            let [n, c, h, w] = &d[..] else {
                let got = d.len();
                return Err(
                    bricolage_ir::TypeError::Rank { operand: 0, min: 4, max: 4, got }.into()
                );
            };
            let (tall, wide) = (h.floor_div(&b), w.floor_div(&b));
            let apart =
                vec![n.clone(), c.clone(), tall.clone(), b.clone(), wide.clone(), b.clone()];
            let apart = at.reshape(x, apart)?;
            let turned = at.transpose(apart, &[0, 1, 3, 5, 2, 4])?;
            Ok(vec![at.reshape(turned, vec![n.clone(), c * &(&b * &b), tall, wide])?])
        }
        other => malformed(format!("needs `mode` to be DCR or CRD, found `{other}`")),
    }
}

fn block(at: &mut At<'_, '_>) -> Result<i64, super::at::Fault> {
    match at.int("blocksize")? {
        Some(block) if (1..1 << 15).contains(&block) => Ok(block),
        other => malformed(format!("needs `blocksize` from 1 to 32767, found {other:?}")),
    }
}
