//! Operators on images at positions that are data.

use super::at::{At, Imported, malformed, unsupported};
use bricolage_ir::{
    Real,
    ops::{
        ConvTranspose, DeformConv, Expand, GridMode, GridSample, MatMul, Outside, Pad, PadMode,
        RoiAlign, Scatter, ScatterElements,
    },
};
use bricolage_tensor::{Dim, Shape, Tensor};

/// Most elements of a constant that is computed at import.
const MOST: i64 = 1 << 24;

pub(crate) fn grid_sample(at: &mut At<'_, '_>) -> Imported {
    let all = at.all(2, 2)?;
    let mode = match at.text("mode", "linear")?.as_str() {
        "linear" | "bilinear" => GridMode::Linear,
        "nearest" => GridMode::Nearest,
        "cubic" | "bicubic" => GridMode::Cubic,
        other => return malformed(format!("needs a known `mode`, found `{other}`")),
    };
    let outside = match at.text("padding_mode", "zeros")?.as_str() {
        "zeros" => Outside::Zeros,
        "border" => Outside::Border,
        "reflection" => Outside::Reflection,
        other => return malformed(format!("needs a known `padding_mode`, found `{other}`")),
    };
    let align_corners = at.flag("align_corners", false)?;
    at.one(GridSample { mode, outside, align_corners }, &all)
}

pub(crate) fn roi_align(at: &mut At<'_, '_>) -> Imported {
    let all = at.all(3, 3)?;
    let largest = match at.text("mode", "avg")?.as_str() {
        "avg" => false,
        "max" => true,
        other => return malformed(format!("needs `mode` to be avg or max, found `{other}`")),
    };
    let default = if at.opset < 16 { "output_half_pixel" } else { "half_pixel" };
    let half_pixel = match at.text("coordinate_transformation_mode", default)?.as_str() {
        "half_pixel" => true,
        "output_half_pixel" => false,
        other => {
            let what = format!("needs a known `coordinate_transformation_mode`, found `{other}`");
            return malformed(what);
        }
    };
    let op = RoiAlign {
        largest,
        height: at.int_or("output_height", 1)?,
        width: at.int_or("output_width", 1)?,
        samples: at.int_or("sampling_ratio", 0)?,
        scale: Real::from(at.float("spatial_scale", 1.0)?),
        half_pixel,
    };
    at.one(op, &all)
}

pub(crate) fn deform_conv(at: &mut At<'_, '_>) -> Imported {
    at.at_most(5)?;
    let w = at.input(1)?;
    if at.rank(w)? != 4 {
        return unsupported(format!("needs images of 2 dims, found {}", at.ty(w)?));
    }
    if let Some(kernel) = at.ints("kernel_shape")? {
        let have: Option<Vec<i64>> = at.dims(w)?[2..].iter().map(Dim::as_const).collect();
        if have.as_ref().is_some_and(|have| *have != kernel) {
            return malformed(format!("needs `kernel_shape` to be {have:?}, found {kernel:?}"));
        }
    }
    let two = |found: Option<Vec<i64>>| found.unwrap_or_else(|| vec![1, 1]);
    let (strides, dilations) = (two(at.steps("strides")?), two(at.steps("dilations")?));
    let pads = at.steps("pads")?.unwrap_or_else(|| vec![0; 4]);
    let [top, left, bottom, right] = pads[..] else {
        return malformed(format!("needs 4 `pads`, found {}", pads.len()));
    };
    let op = DeformConv {
        strides,
        dilations,
        pads: vec![(top, bottom), (left, right)],
        groups: at.int_or("group", 1)?,
        offset_groups: at.int_or("offset_group", 1)?,
    };
    let mut inputs = at.inputs.clone();
    while inputs.last().is_some_and(Option::is_none) {
        inputs.pop();
    }
    at.one(op, &inputs)
}

/// Elements back at the places that a pooling took them from, zeros elsewhere.
pub(crate) fn max_unpool(at: &mut At<'_, '_>) -> Imported {
    at.at_most(3)?;
    let (x, places) = (at.input(0)?, at.input(1)?);
    let ty = at.ty(x)?;
    let kernel = at.steps("kernel_shape")?.unwrap_or_default();
    let rank = kernel.len();
    if ty.shape.len() != rank + 2 {
        return malformed(format!(
            "needs {} dims in operand 0, found {}",
            rank + 2,
            ty.shape.len()
        ));
    }
    let strides = at.steps("strides")?.unwrap_or_else(|| vec![1; rank]);
    let pads = at.steps("pads")?.unwrap_or_else(|| vec![0; 2 * rank]);
    if strides.len() != rank || pads.len() != 2 * rank {
        return malformed(format!("needs {rank} `strides` and {} `pads`", 2 * rank));
    }
    let mut dims: Vec<Dim> = ty.shape[..2].to_vec();
    for d in 0..rank {
        let steps = &(&ty.shape[d + 2] - &Dim::from(1)) * &Dim::from(strides[d]);
        dims.push(&steps + &Dim::from(kernel[d] - pads[d] - pads[rank + d]));
    }
    let total = Shape(dims.clone()).elements();
    let zero = at.scalar(ty.dtype, 0.0);
    let empty = at.add(Expand { to: Shape(vec![total]) }, &[zero])?;
    let count = ty.shape.elements();
    let (x, places) = (at.reshape(x, vec![count.clone()])?, at.reshape(places, vec![count])?);
    let op = ScatterElements { axis: 0, reduction: Scatter::Replace };
    let flat = at.add(op, &[empty, places, x])?;
    let mut whole = at.reshape(flat, dims.clone())?;
    if let Some(asked) = at.sizes_input(2, "`output_shape`")? {
        if asked.len() != dims.len() {
            return malformed(format!("needs {} sizes, found {}", dims.len(), asked.len()));
        }
        let after: Vec<Dim> = asked.iter().zip(&dims).map(|(a, d)| a - d).collect();
        let before = vec![Dim::from(0); after.len()];
        whole = at.add(Pad { mode: PadMode::Constant, before, after }, &[whole])?;
    }
    Ok(vec![whole])
}

/// Positions of a regular grid, moved by an affine map: the grid times the map's matrix.
pub(crate) fn affine_grid(at: &mut At<'_, '_>) -> Imported {
    let theta = at.all(2, 2)?[0];
    let size = at.ints_input(1, "`size`")?.unwrap_or_default();
    let align_corners = at.flag("align_corners", false)?;
    let ty = at.ty(theta)?;
    let space = size.get(2..).unwrap_or_default().to_vec();
    let rank = space.len();
    let points = space.iter().try_fold(1i64, |n, &d| n.checked_mul(d).filter(|_| d >= 0));
    let Some(points) = points.filter(|n| *n <= MOST) else {
        return unsupported(format!("needs a grid of at most {MOST} positions, found {size:?}"));
    };
    let place = |i: usize, n: i64| match align_corners {
        true => -1.0 + 2.0 * i as f64 / (n - 1).max(1) as f64,
        false => -1.0 + (2.0 * i as f64 + 1.0) / n as f64,
    };
    // Coordinates of each point, the innermost first, and a 1 for the map's offset.
    let width = rank + 1;
    let grid = Tensor::generate(ty.dtype, &[points, width as i64], |i| {
        let (point, column) = (i / width, i % width);
        if column == rank {
            return 1.0;
        }
        let d = rank - 1 - column;
        let inner: i64 = space[d + 1..].iter().product();
        place(point / inner as usize % space[d] as usize, space[d])
    });
    let grid = at.tensor_value(grid);
    let op = MatMul { transpose_lhs: false, transpose_rhs: true };
    let moved = at.add(op, &[grid, theta])?;
    let mut to = vec![ty.shape.first().cloned().unwrap_or_default()];
    to.extend(space.iter().map(|&d| Dim::from(d)));
    to.push(Dim::from(rank as i64));
    Ok(vec![at.reshape(moved, to)?])
}

/// The images that columns of windows come from: each column a window's elements, all windows of a
/// channel on top of each other. A transposed convolution with one weight of 1 for every place does it.
pub(crate) fn col2im(at: &mut At<'_, '_>) -> Imported {
    let x = at.all(3, 3)?[0];
    let image = at.ints_input(1, "`image_shape`")?.unwrap_or_default();
    let block = at.ints_input(2, "`block_shape`")?.unwrap_or_default();
    let rank = image.len();
    let wide = |n: &&i64| !(0..1 << 31).contains(*n);
    if let Some(n) = image.iter().chain(&block).find(wide) {
        return malformed(format!("needs sizes of at least 0 and of 31 bits, found {n}"));
    }
    let list = |found: Option<Vec<i64>>, default: i64, count: usize| match found {
        Some(list) if list.len() == count => Ok(list),
        Some(list) => malformed(format!("needs {count} numbers, found {}", list.len())),
        None => Ok(vec![default; count]),
    };
    let dilations = list(at.steps("dilations")?, 1, rank)?;
    let strides = list(at.steps("strides")?, 1, rank)?;
    let pads = list(at.steps("pads")?, 0, 2 * rank)?;
    let ty = at.ty(x)?;
    let [n, rows, _] = &ty.shape[..] else { return malformed("needs 3 dims in operand 0") };
    let taps = block.iter().try_fold(1i64, |n, &b| n.checked_mul(b)).unwrap_or(0);
    let Some(rows) = rows.as_const().filter(|r| taps > 0 && r % taps == 0 && block.len() == rank)
    else {
        return unsupported(format!("needs windows of known size, found {rows} and {block:?}"));
    };
    let channels = rows / taps;
    let weights = taps.checked_mul(rows).filter(|&n| n <= MOST);
    if weights.is_none() || strides.iter().chain(&dilations).any(|&n| n < 1) {
        return unsupported(format!("needs at most {MOST} places for {rows} rows of {block:?}"));
    }
    let mut windows = vec![n.clone(), Dim::from(rows)];
    let mut extra = Vec::new();
    for d in 0..rank {
        let reach = dilations[d] * (block[d] - 1) + 1;
        let padded = image[d] + pads[d] + pads[rank + d];
        let count = (padded - reach).div_euclid(strides[d]) + 1;
        if count < 1 {
            return malformed(format!("needs an image of at least {reach}, found {padded}"));
        }
        windows.push(Dim::from(count));
        // Positions that no window reaches.
        extra.push(padded - reach - (count - 1) * strides[d]);
    }
    let columns = at.reshape(x, windows)?;
    let mut dims = vec![rows, 1];
    dims.extend(&block);
    let one = |i: usize| {
        let (row, tap) = (i as i64 / taps, i as i64 % taps);
        if row % taps == tap { 1.0 } else { 0.0 }
    };
    let weights = at.tensor_value(Tensor::generate(ty.dtype, &dims, one));
    let op = ConvTranspose {
        strides,
        dilations,
        pads: (0..rank).map(|d| (pads[d], pads[rank + d])).collect(),
        output_padding: extra,
        groups: channels,
    };
    at.one(op, &[columns, weights])
}
