//! Ops that move elements or make tensors.

use super::writer::{
    At,
    Attr::{Float, Int, Ints, Text},
    Fault, Written,
};
use crate::proto::NodeProto;
use bricolage_ir::{
    Real,
    ops::{
        Concat, Coordinates, DepthOrder, DepthToSpace, Expand, Gather, GatherElements, GatherNd,
        Interpolation, Iota, OneHot, Opaque, Pad, PadMode, Reshape, Resize, Rounding, Running,
        RunningKind, Scatter, ScatterElements, ScatterNd, ShapeOf, Slice, SpaceToDepth, Split,
        Tile, TopK, Transpose, Trilu,
    },
};
use bricolage_tensor::{DType, Dim, Tensor};
use prost::Message;

/// Longest range that is written out.
const MOST_LISTED: i64 = 1 << 16;

pub(crate) fn reshape(at: &mut At<'_, '_>, op: &Reshape) -> Written {
    let (x, have) = (at.input(0), at.dims(0));
    let empty = op.to.iter().any(|d| d.as_const() == Some(0));
    // A dim that stays in place is 0, one other may be -1.
    let mut open = 0;
    let mut numbers = Vec::new();
    for (i, dim) in op.to.iter().enumerate() {
        numbers.push(match dim.as_const() {
            Some(n) => n,
            None if have.get(i) == Some(dim) => 0,
            None => {
                open += 1;
                -1
            }
        });
    }
    if op.to.as_fixed().is_some() || (open <= 1 && !empty) {
        let shape = at.ints(&numbers);
        return at.finish("Reshape", &[&x, &shape], &[("allowzero", Int(empty.into()))]);
    }
    let shape = at.sizes(&op.to)?;
    at.finish("Reshape", &[&x, &shape], &[("allowzero", Int(1))])
}

pub(crate) fn transpose(at: &mut At<'_, '_>, op: &Transpose) -> Written {
    let perm: Vec<i64> = op.perm.iter().map(|&d| d as i64).collect();
    at.same("Transpose", &[("perm", Ints(&perm))])
}

pub(crate) fn expand(at: &mut At<'_, '_>, op: &Expand) -> Written {
    let (x, have) = (at.input(0), at.dims(0));
    let lead = op.to.len() - have.len();
    // A dim that stays is 1.
    let asked = op.to.iter().enumerate().map(|(d, dim)| match dim.as_const() {
        None if d >= lead && have[d - lead] == *dim => Dim::from(1),
        _ => dim.clone(),
    });
    let asked: Vec<Dim> = asked.collect();
    let shape = at.sizes(&asked)?;
    at.finish("Expand", &[&x, &shape], &[])
}

pub(crate) fn tile(at: &mut At<'_, '_>, op: &Tile) -> Written {
    let (x, repeats) = (at.input(0), at.sizes(&op.repeats)?);
    at.finish("Tile", &[&x, &repeats], &[])
}

pub(crate) fn concat(at: &mut At<'_, '_>, op: &Concat) -> Written {
    at.same("Concat", &[("axis", Int(op.axis as i64))])
}

pub(crate) fn split(at: &mut At<'_, '_>, op: &Split) -> Written {
    let (x, sizes) = (at.input(0), at.sizes(&op.sizes)?);
    at.finish("Split", &[&x, &sizes], &[("axis", Int(op.axis as i64))])
}

pub(crate) fn slice(at: &mut At<'_, '_>, op: &Slice) -> Written {
    if op.axes.is_empty() {
        return at.same("Identity", &[]);
    }
    let x = at.input(0);
    let (starts, ends) = (at.sizes(&op.starts)?, at.sizes(&op.ends)?);
    let axes: Vec<i64> = op.axes.iter().map(|&a| a as i64).collect();
    let (axes, steps) = (at.ints(&axes), at.ints(&op.steps));
    at.finish("Slice", &[&x, &starts, &ends, &axes, &steps], &[])
}

pub(crate) fn pad(at: &mut At<'_, '_>, op: &Pad) -> Written {
    let mode = match op.mode {
        PadMode::Constant => "constant",
        PadMode::Reflect => "reflect",
        PadMode::Edge => "edge",
        PadMode::Wrap => "wrap",
        other => return Err(Fault::None(format!("ONNX has no padding for {other:?}"))),
    };
    let pads: Vec<Dim> = op.before.iter().chain(&op.after).cloned().collect();
    let (x, pads) = (at.input(0), at.sizes(&pads)?);
    let mut fill = at.input(1);
    if at.dims(1).len() == 1 {
        let scalar = at.ints(&[]);
        fill = at.emit("Reshape", &[&fill, &scalar], &[]);
    }
    at.finish("Pad", &[&x, &pads, &fill], &[("mode", Text(mode))])
}

pub(crate) fn gather(at: &mut At<'_, '_>, op: &Gather) -> Written {
    let inputs = positions(at);
    at.finish("Gather", &[&inputs[0], &inputs[1]], &[("axis", Int(op.axis as i64))])
}

/// Operands of a gather, with positions of a type that ONNX takes.
fn positions(at: &mut At<'_, '_>) -> [String; 2] {
    let (data, mut at_positions) = (at.input(0), at.input(1));
    if !matches!(at.dtype(1), DType::I32 | DType::I64) {
        at_positions = at.emit("Cast", &[&at_positions], &[("to", Int(7))]);
    }
    [data, at_positions]
}

pub(crate) fn gather_elements(at: &mut At<'_, '_>, op: &GatherElements) -> Written {
    let inputs = positions(at);
    at.finish("GatherElements", &[&inputs[0], &inputs[1]], &[("axis", Int(op.axis as i64))])
}

/// Coordinates, which ONNX takes as `i64` alone.
fn coordinates(at: &mut At<'_, '_>) -> String {
    let at_positions = at.input(1);
    if at.dtype(1) == DType::I64 {
        return at_positions;
    }
    at.emit("Cast", &[&at_positions], &[("to", Int(7))])
}

pub(crate) fn gather_nd(at: &mut At<'_, '_>, op: &GatherNd) -> Written {
    let (data, places) = (at.input(0), coordinates(at));
    at.finish("GatherND", &[&data, &places], &[("batch_dims", Int(op.batch_dims as i64))])
}

fn reduction(how: Scatter) -> Result<&'static str, Fault> {
    Ok(match how {
        Scatter::Replace => "none",
        Scatter::Add => "add",
        Scatter::Mul => "mul",
        Scatter::Max => "max",
        Scatter::Min => "min",
        other => return Err(Fault::None(format!("ONNX has no scattering by {other:?}"))),
    })
}

pub(crate) fn scatter_elements(at: &mut At<'_, '_>, op: &ScatterElements) -> Written {
    let how = reduction(op.reduction)?;
    let [data, places] = positions(at);
    let updates = at.input(2);
    let attributes = [("axis", Int(op.axis as i64)), ("reduction", Text(how))];
    at.finish("ScatterElements", &[&data, &places, &updates], &attributes)
}

pub(crate) fn scatter_nd(at: &mut At<'_, '_>, op: &ScatterNd) -> Written {
    let how = reduction(op.reduction)?;
    let (data, places, updates) = (at.input(0), coordinates(at), at.input(2));
    at.finish("ScatterND", &[&data, &places, &updates], &[("reduction", Text(how))])
}

pub(crate) fn resize(at: &mut At<'_, '_>, op: &Resize) -> Written {
    let (x, have) = (at.input(0), at.dims(0));
    let (mode, rounding, cubic) = match op.mode {
        Interpolation::Nearest(Rounding::PreferFloor) => ("nearest", "round_prefer_floor", None),
        Interpolation::Nearest(Rounding::PreferCeil) => ("nearest", "round_prefer_ceil", None),
        Interpolation::Nearest(Rounding::Floor) => ("nearest", "floor", None),
        Interpolation::Nearest(Rounding::Ceil) => ("nearest", "ceil", None),
        Interpolation::Linear => ("linear", "round_prefer_floor", None),
        Interpolation::Cubic(a) => ("cubic", "round_prefer_floor", Some(a)),
        other => return Err(Fault::None(format!("ONNX has no interpolation for {other:?}"))),
    };
    let coordinates = match op.coordinates {
        Coordinates::HalfPixel => "half_pixel",
        Coordinates::HalfPixelSymmetric => "half_pixel_symmetric",
        Coordinates::PytorchHalfPixel => "pytorch_half_pixel",
        Coordinates::AlignCorners => "align_corners",
        Coordinates::Asymmetric => "asymmetric",
        Coordinates::CropAndResize => "tf_crop_and_resize",
        other => return Err(Fault::None(format!("ONNX has no coordinates for {other:?}"))),
    };
    let mut attributes = vec![
        ("mode", Text(mode)),
        ("coordinate_transformation_mode", Text(coordinates)),
        ("nearest_mode", Text(rounding)),
        ("antialias", Int(op.antialias.into())),
        ("exclude_outside", Int(op.exclude_outside.into())),
        ("extrapolation_value", Float(op.extrapolation.get())),
    ];
    attributes.extend(cubic.map(|a| ("cubic_coeff_a", Float(a.get()))));
    let singles = |list: &[Real]| -> Vec<f32> { list.iter().map(|r| r.get() as f32).collect() };
    let mut roi = String::new();
    let mut part = vec![1.0; have.len()];
    if op.coordinates == Coordinates::CropAndResize {
        roi = at.constant(&Tensor::of(&[op.roi.len() as i64], &singles(&op.roi)));
        for (d, part) in part.iter_mut().enumerate() {
            *part = op.roi[have.len() + d].get() - op.roi[d].get();
        }
    }
    let Some(scales) = &op.scales else {
        let sizes = at.sizes(&op.sizes)?;
        return at.finish("Resize", &[&x, &roi, "", &sizes], &attributes);
    };
    // ONNX derives the sizes from the scales, rounding down, or to nearest under a policy.
    let follows = have.iter().zip(op.sizes.iter()).zip(scales.iter().zip(&part)).all(
        |((have, size), (scale, part))| match (have.as_const(), size.as_const()) {
            (Some(have), Some(size)) => {
                (have as f32 * (scale.get() * part) as f32).floor() as i64 == size
            }
            _ => true,
        },
    );
    if follows {
        let scales = at.constant(&Tensor::of(&[scales.len() as i64], &singles(scales)));
        return at.finish("Resize", &[&x, &roi, &scales], &attributes);
    }
    let scaled: Vec<usize> = (0..have.len()).filter(|&d| scales[d].get() != 1.0).collect();
    let one_scale = scaled.iter().all(|&d| scales[d] == scales[scaled[0]]);
    let (Some(fixed), true) =
        (have.iter().map(Dim::as_const).collect::<Option<Vec<i64>>>(), one_scale)
    else {
        return Err(Fault::None("ONNX has no form for these sizes and scales".to_owned()));
    };
    let axes: Vec<i64> = scaled.iter().map(|&d| d as i64).collect();
    let least = |d: &usize| (fixed[*d] as f64 * scales[*d].get() - 1e-6).ceil() as i64;
    let sizes = at.ints(&scaled.iter().map(least).collect::<Vec<_>>());
    attributes.push(("keep_aspect_ratio_policy", Text("not_larger")));
    attributes.push(("axes", Ints(&axes)));
    at.finish("Resize", &[&x, &roi, "", &sizes], &attributes)
}

pub(crate) fn depth_to_space(at: &mut At<'_, '_>, op: &DepthToSpace) -> Written {
    let mode = match op.order {
        DepthOrder::BlocksFirst => "DCR",
        DepthOrder::ChannelsFirst => "CRD",
    };
    at.same("DepthToSpace", &[("blocksize", Int(op.block)), ("mode", Text(mode))])
}

pub(crate) fn space_to_depth(at: &mut At<'_, '_>, op: &SpaceToDepth) -> Written {
    at.same("SpaceToDepth", &[("blocksize", Int(op.block))])
}

pub(crate) fn iota(at: &mut At<'_, '_>, op: &Iota) -> Written {
    if let (Some(start), Some(len @ 0..=MOST_LISTED)) = (op.start.as_const(), op.len.as_const()) {
        let numbers: Vec<i64> =
            (0..len).map(|i| start.wrapping_add(i.wrapping_mul(op.step))).collect();
        let list = at.constant(&Tensor::from_i64(op.dtype, &[len], &numbers));
        return at.finish("Identity", &[&list], &[]);
    }
    let limit = &op.start + &(&op.len * &Dim::from(op.step));
    let (start, limit) = (at.size(&op.start)?, at.size(&limit)?);
    let step = at.size(&Dim::from(op.step))?;
    if op.dtype == DType::I64 {
        return at.finish("Range", &[&start, &limit, &step], &[]);
    }
    let wide = at.emit("Range", &[&start, &limit, &step], &[]);
    let to = crate::tensor::number_of(op.dtype).map_or(7, i64::from);
    at.finish("Cast", &[&wide], &[("to", Int(to))])
}

pub(crate) fn shape_of(at: &mut At<'_, '_>, op: &ShapeOf) -> Written {
    at.same("Shape", &[("start", Int(op.start as i64)), ("end", Int(op.end as i64))])
}

pub(crate) fn one_hot(at: &mut At<'_, '_>, op: &OneHot) -> Written {
    let depth = at.size(&op.depth)?;
    let (positions, values) = (at.input(0), at.input(1));
    at.finish("OneHot", &[&positions, &depth, &values], &[("axis", Int(op.axis as i64))])
}

pub(crate) fn trilu(at: &mut At<'_, '_>, op: &Trilu) -> Written {
    let (x, k) = (at.input(0), at.constant(&Tensor::of(&[], &[op.diagonal])));
    at.finish("Trilu", &[&x, &k], &[("upper", Int(op.upper.into()))])
}

pub(crate) fn running(at: &mut At<'_, '_>, op: &Running) -> Written {
    let name = match op.kind {
        RunningKind::Sum => "CumSum",
        RunningKind::Product => "CumProd",
    };
    super::compute::require_sums(at, name)?;
    if op.kind == RunningKind::Product {
        at.writer.needs("", 26);
    }
    let (x, axis) = (at.input(0), at.constant(&Tensor::of(&[], &[op.axis as i64])));
    let flags = [("exclusive", Int(op.exclusive.into())), ("reverse", Int(op.reverse.into()))];
    at.finish(name, &[&x, &axis], &flags)
}

pub(crate) fn top_k(at: &mut At<'_, '_>, op: &TopK) -> Written {
    if at.dtype(0) == DType::BF16 {
        at.writer.needs("", 24);
    }
    let (x, k) = (at.input(0), at.sizes(std::slice::from_ref(&op.k))?);
    let attributes =
        [("axis", Int(op.axis as i64)), ("largest", Int(op.largest.into())), ("sorted", Int(1))];
    at.finish("TopK", &[&x, &k], &attributes)
}

pub(crate) fn opaque(at: &mut At<'_, '_>, op: &Opaque) -> Written {
    let kept = NodeProto::decode(op.attributes.as_slice())
        .map_err(|e| Fault::None(format!("its attributes cannot be read: {e}")))?;
    at.writer.needs(&op.domain, op.opset);
    let inputs = at.inputs.clone();
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    at.finish_in(&op.domain, &op.name, &inputs, kept.attribute)
}
