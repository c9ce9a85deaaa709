//! Windows that slide, and pooling over them.

use super::at::{At, Fault, Imported, Step, malformed, unsupported};
use bricolage_ir::{
    TypeError, ValueId,
    ops::{Binary, Pool, PoolKind, Reduce, ReduceKind, Unary},
};
use bricolage_tensor::{Dim, Tensor};

/// Steps and padding of a window, per spatial dim.
pub(crate) struct Window {
    pub(crate) strides: Vec<i64>,
    pub(crate) dilations: Vec<i64>,
    pub(crate) pads: Vec<(i64, i64)>,
}

/// Pairs from a list of all starts followed by all ends.
pub(crate) fn pads_of(list: &[i64], spatial: usize) -> Result<Vec<(i64, i64)>, Fault> {
    if list.len() != 2 * spatial {
        return malformed(format!("needs {} numbers as `pads`, found {}", 2 * spatial, list.len()));
    }
    Ok((0..spatial).map(|d| (list[d], list[spatial + d])).collect())
}

impl Window {
    /// Reads the attributes; padding that keeps sizes is resolved.
    pub(crate) fn of(at: &mut At<'_, '_>, image: &[Dim], kernel: &[i64]) -> Result<Window, Fault> {
        let spatial = image.len();
        let strides = at.steps("strides")?.unwrap_or(vec![1; spatial]);
        let dilations = at.steps("dilations")?.unwrap_or(vec![1; spatial]);
        let declared = at.steps("pads")?;
        if strides.len() != spatial || dilations.len() != spatial || kernel.len() != spatial {
            return malformed(format!(
                "needs {spatial} strides, dilations and taps, found {strides:?}, {dilations:?} and {kernel:?}"
            ));
        }
        if strides.iter().chain(&dilations).any(|&s| s < 1) {
            return malformed(format!(
                "needs strides and dilations above 0, found {strides:?} and {dilations:?}"
            ));
        }
        let auto = at.text("auto_pad", "NOTSET")?;
        let mut pads = vec![(0, 0); spatial];
        match auto.as_str() {
            "NOTSET" | "" => {
                if let Some(list) = declared {
                    pads = pads_of(&list, spatial)?;
                }
            }
            "VALID" => {}
            "SAME_UPPER" | "SAME_LOWER" => {
                for d in 0..spatial {
                    let stride = Dim::from(strides[d]);
                    let reach = (kernel[d] - 1).saturating_mul(dilations[d]).saturating_add(1);
                    let windows = image[d].ceil_div(&stride) - Dim::from(1);
                    let total = windows * stride + Dim::from(reach) - image[d].clone();
                    let Some(total) = total.as_const() else {
                        return unsupported(format!(
                            "needs dim {} as a number to find the padding",
                            image[d]
                        ));
                    };
                    let total = total.max(0);
                    let (less, more) = (total / 2, total - total / 2);
                    pads[d] = if auto == "SAME_UPPER" { (less, more) } else { (more, less) };
                }
            }
            other => return malformed(format!("needs a known `auto_pad`, found `{other}`")),
        }
        Ok(Window { strides, dilations, pads })
    }
}

fn pool(at: &mut At<'_, '_>, kind: PoolKind, outputs: usize) -> Imported {
    let x = at.all(1, 1)?[0];
    let dims = at.dims(x)?;
    let Some(kernel) = at.steps("kernel_shape")? else {
        return malformed("needs attribute `kernel_shape`, found none");
    };
    if dims.len() != kernel.len() + 2 {
        let max = kernel.len() + 2;
        return Err(TypeError::Rank { operand: 0, min: max, max, got: dims.len() }.into());
    }
    let ceil_mode = at.flag("ceil_mode", false)?;
    let Window { strides, dilations, pads } = Window::of(at, &dims[2..], &kernel)?;
    let mut results =
        at.add_all(Pool { kind, kernel, strides, dilations, pads, ceil_mode }, &[x])?;
    results.truncate(outputs);
    Ok(results)
}

pub(crate) fn max(at: &mut At<'_, '_>) -> Imported {
    let columns_first = at.flag("storage_order", false)?;
    let indices = at.wants(1);
    let mut results = pool(at, PoolKind::Max { indices }, 2)?;
    if columns_first && indices {
        results[1] = columns(at, results[1])?;
    }
    Ok(results)
}

/// Row-major positions in the operand as those where the first spatial dim is the innermost.
fn columns(at: &mut At<'_, '_>, rows: ValueId) -> Step {
    let image: Option<Vec<i64>> = at.dims(at.input(0)?)?[2..].iter().map(Dim::as_const).collect();
    let Some(image) = image else { return unsupported("needs an image of known size") };
    let whole = |at: &mut At<'_, '_>, n: i64| at.tensor_value(Tensor::of(&[], &[n]));
    let plane = whole(at, image.iter().product());
    let mut rest = at.add(Binary::Mod, &[rows, plane])?;
    let mut sum = at.add(Binary::Sub, &[rows, rest])?;
    for (d, &size) in image.iter().enumerate().rev() {
        let (size, step) = (whole(at, size), whole(at, image[..d].iter().product()));
        let place = at.add(Binary::Mod, &[rest, size])?;
        let part = at.add(Binary::Mul, &[place, step])?;
        sum = at.add(Binary::Add, &[sum, part])?;
        rest = at.add(Binary::Div, &[rest, size])?;
    }
    Ok(sum)
}

pub(crate) fn average(at: &mut At<'_, '_>) -> Imported {
    let count_include_pad = at.flag("count_include_pad", false)?;
    pool(at, PoolKind::Average { count_include_pad }, 1)
}

pub(crate) fn lp(at: &mut At<'_, '_>) -> Imported {
    let p = at.int_or("p", 2)?;
    pool(at, PoolKind::Lp { p }, 1)
}

/// Combines all spatial dims.
pub(crate) fn global(at: &mut At<'_, '_>, kind: ReduceKind) -> Imported {
    let x = at.all(1, 1)?[0];
    let axes = (2..at.rank(x)?).collect();
    at.one(Reduce { kind, axes, keep_dims: true }, &[x])
}

pub(crate) fn global_lp(at: &mut At<'_, '_>) -> Imported {
    match at.int_or("p", 2)? {
        1 => global(at, ReduceKind::L1),
        2 => global(at, ReduceKind::L2),
        p if p > 0 => {
            let x = at.all(1, 1)?[0];
            let dtype = at.ty(x)?.dtype;
            let axes = (2..at.rank(x)?).collect();
            let size = at.add(Unary::Abs, &[x])?;
            let (p, inverse) = (at.scalar(dtype, p as f64), at.scalar(dtype, 1.0 / p as f64));
            let power = at.add(Binary::Pow, &[size, p])?;
            let sum = at.add(Reduce { kind: ReduceKind::Sum, axes, keep_dims: true }, &[power])?;
            at.one(Binary::Pow, &[sum, inverse])
        }
        p => malformed(format!("needs `p` above 0, found {p}")),
    }
}
