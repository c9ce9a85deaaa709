//! Sums of products: matrix products and convolutions.

use super::{
    at::{At, Fault, Imported, Step, malformed, unsupported},
    pool::{Window, pads_of},
};
use bricolage_ir::{
    ValueId,
    ops::{Binary, Conv, ConvTranspose, Det, Einsum, MatMul},
};
use bricolage_tensor::Dim;

pub(crate) fn mat_mul(at: &mut At<'_, '_>) -> Imported {
    let all = at.all(2, 2)?;
    at.one(MatMul::default(), &all)
}

pub(crate) fn einsum(at: &mut At<'_, '_>) -> Imported {
    let equation = at.text("equation", "")?;
    let all = at.all(1, usize::MAX)?;
    at.one(Einsum { equation }, &all)
}

pub(crate) fn det(at: &mut At<'_, '_>) -> Imported {
    let all = at.all(1, 1)?;
    at.one(Det, &all)
}

/// `v * factor`, or `v` itself for a factor of 1.
pub(crate) fn scaled(at: &mut At<'_, '_>, v: ValueId, factor: f32) -> Step {
    if factor == 1.0 {
        return Ok(v);
    }
    let dtype = at.ty(v)?.dtype;
    if !dtype.is_float() && factor.fract() != 0.0 {
        return unsupported(format!("needs a whole factor for {dtype}, found {factor}"));
    }
    let factor = at.scalar(dtype, factor.into());
    at.add(Binary::Mul, &[v, factor])
}

/// `alpha * a b + beta * c`.
pub(crate) fn gemm(at: &mut At<'_, '_>) -> Imported {
    at.at_most(3)?;
    let (a, b) = (at.input(0)?, at.input(1)?);
    let (alpha, beta) = (at.float("alpha", 1.0)?, at.float("beta", 1.0)?);
    let transpose_lhs = at.flag("transA", false)?;
    let transpose_rhs = at.flag("transB", false)?;
    for (operand, v) in [(0, a), (1, b)] {
        let got = at.rank(v)?;
        if got != 2 {
            return Err(bricolage_ir::TypeError::Rank { operand, min: 2, max: 2, got }.into());
        }
    }
    let product = at.add(MatMul { transpose_lhs, transpose_rhs }, &[a, b])?;
    let product = scaled(at, product, alpha)?;
    match at.optional(2) {
        Some(_) if beta == 0.0 => Ok(vec![product]),
        Some(c) => {
            let c = scaled(at, c, beta)?;
            at.one(Binary::Add, &[product, c])
        }
        None => Ok(vec![product]),
    }
}

/// What both kinds of convolution share: the spatial sizes of the image and of the filter.
fn filter(at: &mut At<'_, '_>, x: ValueId, w: ValueId) -> Result<(Vec<Dim>, Vec<i64>), Fault> {
    let (x, w) = (at.dims(x)?, at.dims(w)?);
    if w.len() < 3 || w.len() != x.len() {
        let (min, got) = (w.len().max(3), x.len());
        return Err(bricolage_ir::TypeError::Rank { operand: 0, min, max: min, got }.into());
    }
    let kernel: Option<Vec<i64>> = w[2..].iter().map(Dim::as_const).collect();
    let Some(kernel) = kernel else { return unsupported("needs a filter of known size") };
    if let Some(declared) = at.steps("kernel_shape")?
        && declared != kernel
    {
        return malformed(format!(
            "needs `kernel_shape` to be that of the filter, {kernel:?}, found {declared:?}"
        ));
    }
    Ok((x[2..].to_vec(), kernel))
}

pub(crate) fn conv(at: &mut At<'_, '_>) -> Imported {
    at.at_most(3)?;
    let (x, w) = (at.input(0)?, at.input(1)?);
    Ok(vec![conv_of(at, x, w, at.optional(2))?])
}

/// The convolution that the node's attributes describe.
pub(crate) fn conv_of(at: &mut At<'_, '_>, x: ValueId, w: ValueId, bias: Option<ValueId>) -> Step {
    let (image, kernel) = filter(at, x, w)?;
    let Window { strides, dilations, pads } = Window::of(at, &image, &kernel)?;
    let groups = at.int_or("group", 1)?;
    let mut inputs = vec![x, w];
    inputs.extend(bias);
    at.add(Conv { strides, dilations, pads, groups }, &inputs)
}

pub(crate) fn conv_transpose(at: &mut At<'_, '_>) -> Imported {
    at.at_most(3)?;
    let (x, w) = (at.input(0)?, at.input(1)?);
    let (image, kernel) = filter(at, x, w)?;
    let spatial = image.len();
    let strides = at.steps("strides")?.unwrap_or(vec![1; spatial]);
    let dilations = at.steps("dilations")?.unwrap_or(vec![1; spatial]);
    let mut output_padding = at.steps("output_padding")?.unwrap_or(vec![0; spatial]);
    let asked = at.steps("output_shape")?;
    for list in [&strides, &dilations, &output_padding].into_iter().chain(asked.as_ref()) {
        if list.len() != spatial && list.len() != spatial + 2 {
            return malformed(format!("needs {spatial} numbers per spatial list, found {list:?}"));
        }
    }
    let groups = at.int_or("group", 1)?;
    let auto = at.text("auto_pad", "NOTSET")?;
    let declared = at.steps("pads")?;
    let mut pads = match (auto.as_str(), declared) {
        ("NOTSET" | "", Some(pads)) => pads_of(&pads, spatial)?,
        ("NOTSET" | "" | "VALID" | "SAME_UPPER" | "SAME_LOWER", _) => vec![(0, 0); spatial],
        (other, _) => return malformed(format!("needs a known `auto_pad`, found `{other}`")),
    };
    let same = auto.starts_with("SAME");
    if asked.is_some() || same {
        let asked = asked.map(|a| a[a.len() - spatial..].to_vec());
        for d in 0..spatial {
            let (stride, extra) = (Dim::from(strides[d]), Dim::from(output_padding[d]));
            let reach = Dim::from((kernel[d] - 1).saturating_mul(dilations[d]).saturating_add(1));
            let size = match &asked {
                Some(asked) => Dim::from(asked[d]),
                None => &image[d] * &stride,
            };
            let whole = (&image[d] - &Dim::from(1)) * stride + extra + reach;
            let Some(total) = (whole - size).as_const() else {
                return unsupported("needs input sizes as numbers to find the padding");
            };
            // What the windows do not reach is added at the end.
            output_padding[d] += (-total).max(0);
            let total = total.max(0);
            let (less, more) = (total / 2, total - total / 2);
            pads[d] = if auto == "SAME_UPPER" { (less, more) } else { (more, less) };
        }
    }
    let inputs = at.inputs.clone();
    at.one(ConvTranspose { strides, dilations, pads, output_padding, groups }, &inputs)
}
