//! Sampling at another resolution.

use super::{
    at::{At, Fault, Imported, malformed, unsupported},
    table::real,
};
use bricolage_ir::{
    Real,
    ops::{Coordinates, Interpolation, Resize, Rounding},
};
use bricolage_tensor::{Dim, Shape};

/// `floor(size * scale)`, also of a symbolic size where the scale is whole or the inverse of a
/// whole number.
fn scaled(size: &Dim, scale: f64) -> Result<Dim, Fault> {
    if let Some(n) = size.as_const() {
        // The product is of single precision, as the scales are.
        return Ok(Dim::from((n as f32 * scale as f32).floor() as i64));
    }
    let inverse = 1.0 / scale;
    if scale >= 1.0 && scale.fract() == 0.0 {
        Ok(size * &Dim::from(scale as i64))
    } else if inverse.fract() == 0.0 && inverse < 1e9 {
        Ok(size.floor_div(&Dim::from(inverse as i64)))
    } else {
        unsupported(format!("needs dim {size} as a number to scale it by {scale}"))
    }
}

/// Spreads a list given for `axes` over all dims.
fn spread<T: Clone>(
    list: Vec<T>,
    axes: &[usize],
    rank: usize,
    fill: &[T],
) -> Result<Vec<T>, Fault> {
    if list.len() != axes.len() {
        return malformed(format!("needs {} sizes or scales, found {}", axes.len(), list.len()));
    }
    let mut all: Vec<T> = fill[..rank].to_vec();
    for (&axis, value) in axes.iter().zip(list) {
        all[axis] = value;
    }
    Ok(all)
}

fn scales_of(list: Vec<f64>) -> Result<Vec<f64>, Fault> {
    match list.iter().find(|s| s.is_nan() || **s <= 0.0) {
        Some(s) => malformed(format!("needs scales above 0, found {s}")),
        None => Ok(list),
    }
}

pub(crate) fn resize(at: &mut At<'_, '_>) -> Imported {
    let old = at.opset < 11;
    at.at_most(if old { 2 } else { 4 })?;
    let x = at.input(0)?;
    let dims = at.dims(x)?;
    let rank = dims.len();
    let coordinates =
        at.text("coordinate_transformation_mode", if old { "asymmetric" } else { "half_pixel" })?;
    let coordinates = match coordinates.as_str() {
        "half_pixel" => Coordinates::HalfPixel,
        "half_pixel_symmetric" => Coordinates::HalfPixelSymmetric,
        "pytorch_half_pixel" => Coordinates::PytorchHalfPixel,
        "align_corners" => Coordinates::AlignCorners,
        "asymmetric" => Coordinates::Asymmetric,
        "tf_crop_and_resize" => Coordinates::CropAndResize,
        other => {
            return unsupported(format!("`coordinate_transformation_mode` `{other}` is not known"));
        }
    };
    let rounding =
        match at.text("nearest_mode", if old { "floor" } else { "round_prefer_floor" })?.as_str() {
            "round_prefer_floor" => Rounding::PreferFloor,
            "round_prefer_ceil" => Rounding::PreferCeil,
            "floor" => Rounding::Floor,
            "ceil" => Rounding::Ceil,
            other => return malformed(format!("needs a known `nearest_mode`, found `{other}`")),
        };
    let cubic = at.float("cubic_coeff_a", -0.75)?;
    let mode = match at.text("mode", "nearest")?.as_str() {
        "nearest" => Interpolation::Nearest(rounding),
        "linear" => Interpolation::Linear,
        "cubic" => Interpolation::Cubic(real(cubic)),
        other => return malformed(format!("needs a known `mode`, found `{other}`")),
    };
    let axes = match at.ints("axes")? {
        Some(axes) => at.axes(&axes, rank)?,
        None => (0..rank).collect(),
    };
    let exclude_outside = at.flag("exclude_outside", false)?;
    let antialias = at.flag("antialias", false)?;
    let extrapolation = real(at.float("extrapolation_value", 0.0)?);
    let policy = at.text("keep_aspect_ratio_policy", "stretch")?;
    let mut roi = Vec::new();
    if coordinates == Coordinates::CropAndResize {
        let given = at.constant_input(1, "`roi`")?.map(|t| t.to_f64()).unwrap_or_default();
        if given.len() != 2 * axes.len() {
            return malformed(format!(
                "needs {} numbers as `roi`, found {}",
                2 * axes.len(),
                given.len()
            ));
        }
        let (starts, ends) = given.split_at(axes.len());
        roi = spread(starts.to_vec(), &axes, rank, &vec![0.0; rank])?;
        roi.extend(spread(ends.to_vec(), &axes, rank, &vec![1.0; rank])?);
    }
    let roi: Vec<Real> = roi.into_iter().map(Real::new).collect();
    let given = at.constant_input(if old { 1 } else { 2 }, "`scales`")?.filter(|t| !t.is_empty());
    let (sizes, scales) = match given {
        Some(t) => {
            let scales = scales_of(spread(t.to_f64(), &axes, rank, &vec![1.0; rank])?)?;
            let mut sizes = Vec::new();
            for (d, (dim, &scale)) in dims.iter().zip(&scales).enumerate() {
                let part = match coordinates {
                    Coordinates::CropAndResize => crop(&roi, d, rank),
                    _ => 1.0,
                };
                sizes.push(scaled(dim, scale * part)?);
            }
            (sizes, Some(scales.into_iter().map(Real::new).collect::<Vec<_>>()))
        }
        None => {
            let Some(sizes) = at.sizes_input(3, "`sizes`")? else {
                return malformed("needs `scales` or `sizes`, found neither");
            };
            if policy == "stretch" {
                (spread(sizes, &axes, rank, &dims)?, None)
            } else {
                let (sizes, scale) = keep_ratio(&policy, &dims, &sizes, &axes)?;
                let scales = spread(
                    vec![Real::new(scale); axes.len()],
                    &axes,
                    rank,
                    &vec![Real::new(1.0); rank],
                )?;
                (spread(sizes, &axes, rank, &dims)?, Some(scales))
            }
        }
    };
    let sizes = Shape(sizes);
    at.one(
        Resize { sizes, scales, mode, coordinates, exclude_outside, antialias, roi, extrapolation },
        &[x],
    )
}

/// The part of a dim that the region of interest covers.
fn crop(roi: &[Real], d: usize, rank: usize) -> f64 {
    roi[rank + d].get() - roi[d].get()
}

/// One scale for all axes, such that no size exceeds, or none falls below, what was asked for.
fn keep_ratio(
    policy: &str,
    dims: &[Dim],
    asked: &[Dim],
    axes: &[usize],
) -> Result<(Vec<Dim>, f64), Fault> {
    let mut ratios = Vec::new();
    for (&axis, size) in axes.iter().zip(asked) {
        match (size.as_const(), dims[axis].as_const()) {
            (Some(size), Some(have)) if have > 0 => {
                ratios.push((size as f64 / have as f64, have as f64))
            }
            _ => return unsupported("needs sizes as numbers to keep the aspect ratio"),
        }
    }
    let all = ratios.iter().map(|r| r.0);
    let scale = match policy {
        "not_larger" => all.fold(f64::INFINITY, f64::min),
        "not_smaller" => all.fold(0.0, f64::max),
        other => {
            return malformed(format!("needs a known `keep_aspect_ratio_policy`, found `{other}`"));
        }
    };
    let sizes = ratios.iter().map(|r| Dim::from((r.1 * scale).round() as i64)).collect();
    Ok((sizes, scale))
}

/// Repeats or interpolates with plain coordinates.
pub(crate) fn upsample(at: &mut At<'_, '_>) -> Imported {
    let x = at.input(0)?;
    let dims = at.dims(x)?;
    let mode = match at.text("mode", "nearest")?.as_str() {
        "nearest" => Interpolation::Nearest(Rounding::Floor),
        "linear" | "bilinear" => Interpolation::Linear,
        other => return malformed(format!("needs a known `mode`, found `{other}`")),
    };
    let scales = match at.floats("scales") {
        Some(list) => list.into_iter().map(f64::from).collect(),
        None => at.constant_input(1, "`scales`")?.map(|t| t.to_f64()).unwrap_or_default(),
    };
    let scales = scales_of(scales)?;
    if scales.len() != dims.len() {
        return malformed(format!("needs {} scales, found {}", dims.len(), scales.len()));
    }
    let sizes = dims.iter().zip(&scales).map(|(d, &s)| scaled(d, s)).collect::<Result<_, _>>()?;
    at.one(
        Resize {
            sizes: Shape(sizes),
            scales: Some(scales.into_iter().map(Real::new).collect()),
            mode,
            coordinates: Coordinates::Asymmetric,
            exclude_outside: false,
            antialias: false,
            roi: Vec::new(),
            extrapolation: Real::new(0.0),
        },
        &[x],
    )
}
