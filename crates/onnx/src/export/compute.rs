//! Ops that compute.

use super::{
    integers,
    writer::{
        At,
        Attr::{Float, Int, Ints, Text},
        Fault, Written,
    },
};
use crate::tensor::number_of;
use bricolage_ir::ops::{
    ArgReduce, BatchNorm, Binary, BitCast, Cast, Clip, Conv, ConvTranspose, Dequantize, Dft,
    Einsum, GroupNorm, LayerNorm, LinearAttention, Lrn, MatMul, Pool, PoolKind, Quantize, Reduce,
    ReduceKind, Softmax, Unary, Update,
};
use bricolage_tensor::{DType, Dim, Powers, Tensor};

pub(crate) fn unary(at: &mut At<'_, '_>, f: &Unary) -> Written {
    let (op, parameters): (&str, &[(&str, _)]) = match *f {
        Unary::Abs => ("Abs", &[]),
        Unary::Neg => ("Neg", &[]),
        Unary::Sign => ("Sign", &[]),
        Unary::Reciprocal => ("Reciprocal", &[]),
        Unary::Sqrt => ("Sqrt", &[]),
        Unary::Exp => ("Exp", &[]),
        Unary::Log => ("Log", &[]),
        Unary::Sin => ("Sin", &[]),
        Unary::Cos => ("Cos", &[]),
        Unary::Tan => ("Tan", &[]),
        Unary::Asin => ("Asin", &[]),
        Unary::Acos => ("Acos", &[]),
        Unary::Atan => ("Atan", &[]),
        Unary::Sinh => ("Sinh", &[]),
        Unary::Cosh => ("Cosh", &[]),
        Unary::Tanh => ("Tanh", &[]),
        Unary::Asinh => ("Asinh", &[]),
        Unary::Acosh => ("Acosh", &[]),
        Unary::Atanh => ("Atanh", &[]),
        Unary::Erf => ("Erf", &[]),
        Unary::Floor => ("Floor", &[]),
        Unary::Ceil => ("Ceil", &[]),
        Unary::Round => ("Round", &[]),
        Unary::Relu => ("Relu", &[]),
        Unary::LeakyRelu { alpha } => ("LeakyRelu", &[("alpha", Float(alpha.get()))]),
        Unary::ThresholdedRelu { alpha } => ("ThresholdedRelu", &[("alpha", Float(alpha.get()))]),
        Unary::Elu { alpha } => ("Elu", &[("alpha", Float(alpha.get()))]),
        Unary::Celu { alpha } if at.dtype(0) == DType::F32 => {
            ("Celu", &[("alpha", Float(alpha.get()))])
        }
        Unary::Selu { alpha, gamma } => {
            ("Selu", &[("alpha", Float(alpha.get())), ("gamma", Float(gamma.get()))])
        }
        Unary::HardSigmoid { alpha, beta } => {
            ("HardSigmoid", &[("alpha", Float(alpha.get())), ("beta", Float(beta.get()))])
        }
        Unary::HardSwish => ("HardSwish", &[]),
        Unary::Sigmoid => ("Sigmoid", &[]),
        Unary::Mish => ("Mish", &[]),
        Unary::Softplus => ("Softplus", &[]),
        Unary::Softsign => ("Softsign", &[]),
        Unary::Gelu => ("Gelu", &[]),
        Unary::GeluTanh => ("Gelu", &[("approximate", Text("tanh"))]),
        Unary::Not => ("Not", &[]),
        Unary::BitNot => ("BitwiseNot", &[]),
        Unary::IsNan => ("IsNaN", &[]),
        Unary::IsInf => ("IsInf", &[]),
        Unary::IsPosInf => ("IsInf", &[("detect_negative", Int(0))]),
        Unary::IsNegInf => ("IsInf", &[("detect_positive", Int(0))]),
        Unary::Identity => ("Identity", &[]),
        _ => return Err(Fault::Decompose),
    };
    at.same(op, parameters)
}

pub(crate) fn binary(at: &mut At<'_, '_>, f: &Binary) -> Written {
    let op = match f {
        Binary::Add => "Add",
        Binary::Sub => "Sub",
        Binary::Mul => "Mul",
        Binary::Div => "Div",
        Binary::Pow => "Pow",
        Binary::Min => "Min",
        Binary::Max => "Max",
        Binary::And => "And",
        Binary::Or => "Or",
        Binary::Xor => "Xor",
        Binary::BitAnd => "BitwiseAnd",
        Binary::BitOr => "BitwiseOr",
        Binary::BitXor => "BitwiseXor",
        Binary::Equal => "Equal",
        Binary::Less => "Less",
        Binary::LessEqual => "LessOrEqual",
        Binary::Greater => "Greater",
        Binary::GreaterEqual => "GreaterOrEqual",
        // ONNX broadcasts the slope to the operand, and not the operand to the slope.
        Binary::Prelu if !at.keeps_dims() => return wide_prelu(at),
        Binary::Prelu => "PRelu",
        Binary::ShiftLeft => return shift(at, "LEFT"),
        Binary::ShiftRight => return shift(at, "RIGHT"),
        Binary::Fmod => return at.same("Mod", &[("fmod", Int(1))]),
        Binary::Mod if at.dtype(0).is_float() => return float_mod(at),
        Binary::Mod => "Mod",
        other => return Err(Fault::None(format!("ONNX has no operator for {other:?}"))),
    };
    at.same(op, &[])
}

fn shift(at: &mut At<'_, '_>, direction: &str) -> Written {
    if at.dtype(0).is_signed_int() {
        at.writer.needs("", 28);
    }
    at.same("BitShift", &[("direction", Text(direction))])
}

/// A slope of more dims than the operand: a choice.
fn wide_prelu(at: &mut At<'_, '_>) -> Written {
    let dtype = at.dtype(0);
    let (x, slope, zero) = (at.input(0), at.input(1), at.scalar(dtype, 0.0));
    let below = at.emit("Less", &[&x, &zero], &[]);
    let product = at.emit("Mul", &[&x, &slope], &[]);
    at.finish("Where", &[&below, &product, &x], &[])
}

/// ONNX has the remainder with the sign of the divisor for integers alone: the other remainder
/// moves by the divisor where the signs differ.
fn float_mod(at: &mut At<'_, '_>) -> Written {
    let dtype = at.dtype(0);
    let (a, b, zero) = (at.input(0), at.input(1), at.scalar(dtype, 0.0));
    let rest = at.emit("Mod", &[&a, &b], &[("fmod", Int(1))]);
    let below = at.emit("Less", &[&rest, &zero], &[]);
    let negative = at.emit("Less", &[&b, &zero], &[]);
    let differ = at.emit("Xor", &[&below, &negative], &[]);
    let exact = at.emit("Equal", &[&rest, &zero], &[]);
    let inexact = at.emit("Not", &[&exact], &[]);
    let moves = at.emit("And", &[&differ, &inexact], &[]);
    let moved = at.emit("Add", &[&rest, &b], &[]);
    at.finish("Where", &[&moves, &moved, &rest], &[])
}

pub(crate) fn clip(at: &mut At<'_, '_>, op: &Clip) -> Written {
    let (x, dtype) = (at.input(0), at.dtype(0));
    let mut bound = |b: Option<bricolage_ir::Real>, up: bool| match b.map(|b| b.get()) {
        None => String::new(),
        Some(b) if dtype.is_float() => at.scalar(dtype, b),
        Some(b) => at.scalar(dtype, if up { b.ceil() } else { b.floor() }),
    };
    let (min, max) = (bound(op.min, true), bound(op.max, false));
    at.finish("Clip", &[&x, &min, &max], &[])
}

pub(super) fn number(dtype: DType) -> Result<i64, Fault> {
    number_of(dtype)
        .map(i64::from)
        .ok_or_else(|| Fault::None(format!("ONNX has no element type {dtype}")))
}

pub(crate) fn cast(at: &mut At<'_, '_>, op: &Cast) -> Written {
    let to = number(op.to)?;
    let mut attributes = vec![("to", Int(to))];
    if op.to.is_int() && op.to.bits() < 8 && at.dtype(0).is_float() {
        return short_integer(at, op, to);
    }
    if op.to.is_narrow_float() && !op.saturate {
        attributes.push(("saturate", Int(0)));
    }
    if op.to == DType::F8E8M0 {
        attributes.push((
            "round_mode",
            Text(match op.powers {
                Powers::Up => "up",
                Powers::Down => "down",
                Powers::Nearest => "nearest",
            }),
        ));
    }
    at.same("Cast", &attributes)
}

pub(crate) fn bit_cast(at: &mut At<'_, '_>, op: &BitCast) -> Written {
    at.writer.needs("", 26);
    let to = number(op.to)?;
    at.same("BitCast", &[("to", Int(to))])
}

pub(crate) fn dft(at: &mut At<'_, '_>, op: &Dft) -> Written {
    let (x, length) = (at.input(0), at.size(&op.length)?);
    let axis = at.constant(&Tensor::of(&[], &[op.axis as i64]));
    let flags = [("inverse", Int(op.inverse.into())), ("onesided", Int(op.one_sided.into()))];
    at.finish("DFT", &[&x, &length, &axis], &flags)
}

pub(crate) fn linear_attention(at: &mut At<'_, '_>, op: &LinearAttention) -> Written {
    let dtype = at.dtype(0);
    if dtype == DType::F64 {
        return Err(Fault::None(format!("ONNX has no LinearAttention of {dtype}")));
    }
    at.writer.needs("", 27);
    let mut operands: Vec<String> = (0..6).map(|i| at.input(i)).collect();
    let rule = match (op.update, at.has(4)) {
        (Update::Add, false) => "linear",
        (Update::Add, true) => "gated",
        (Update::Correct, false) => "delta",
        (Update::Correct, true) => "gated_delta",
    };
    if op.update == Update::Correct && !at.has(5) {
        // The rate that an absent one stands for.
        let rows: Option<Vec<i64>> = at.dims(0)[..2].iter().map(Dim::as_const).collect();
        let Some(rows) = rows else {
            return Err(Fault::None("ONNX needs a rate, and the sizes are symbolic".to_owned()));
        };
        operands[5] = at.constant(&Tensor::generate(dtype, &[rows[0], rows[1], 1], |_| 1.0));
    }
    let operands: Vec<&str> = operands.iter().map(String::as_str).collect();
    at.finish(
        "LinearAttention",
        &operands,
        &[
            ("q_num_heads", Int(op.heads)),
            ("kv_num_heads", Int(op.kv_heads)),
            ("update_rule", Text(rule)),
            ("scale", Float(op.scale.get())),
        ],
    )
}

/// Floats as integers of less than a byte. A reader rounds such to the nearest and wraps: the fraction is
/// dropped before, and what is to saturate is limited.
fn short_integer(at: &mut At<'_, '_>, op: &Cast, to: i64) -> Written {
    let (mut x, mut from) = (at.input(0), at.dtype(0));
    if from.is_narrow_float() {
        from = DType::F32;
        x = at.emit("Cast", &[&x], &[("to", Int(number(from)?))]);
    }
    if op.saturate {
        let ends = Tensor::from_f64(op.to, &[2], &[f64::NEG_INFINITY, f64::INFINITY]).to_f64();
        let (low, high) = (at.scalar(from, ends[0]), at.scalar(from, ends[1]));
        x = at.emit("Clip", &[&x, &low, &high], &[]);
    }
    let whole = at.emit("Cast", &[&x], &[("to", Int(number(DType::I64)?))]);
    at.finish("Cast", &[&whole], &[("to", Int(to))])
}

fn granularity(axis: usize, block: i64) -> Vec<(&'static str, super::writer::Attr<'static>)> {
    let mut attributes = vec![("axis", Int(axis as i64))];
    if block > 0 {
        attributes.push(("block_size", Int(block)));
    }
    attributes
}

pub(crate) fn quantize(at: &mut At<'_, '_>, op: &Quantize) -> Written {
    // ONNX does not quantise doubles.
    if [at.dtype(0), at.dtype(1), op.precision].contains(&DType::F64) {
        return Err(Fault::Decompose);
    }
    let mut attributes = granularity(op.axis, op.block);
    if !at.has(2) {
        attributes.push(("output_dtype", Int(number(op.to)?)));
    }
    if op.to.is_narrow_float() && !op.saturate {
        attributes.push(("saturate", Int(0)));
    }
    if op.precision != at.dtype(1) {
        at.writer.needs("", 23);
        attributes.push(("precision", Int(number(op.precision)?)));
    }
    at.same("QuantizeLinear", &attributes)
}

pub(crate) fn dequantize(at: &mut At<'_, '_>, op: &Dequantize) -> Written {
    if [at.dtype(1), op.to].contains(&DType::F64) {
        return Err(Fault::Decompose);
    }
    let mut attributes = granularity(op.axis, op.block);
    if op.to != at.dtype(1) {
        at.writer.needs("", 23);
        attributes.push(("output_dtype", Int(number(op.to)?)));
    }
    at.same("DequantizeLinear", &attributes)
}

pub(crate) fn reduce(at: &mut At<'_, '_>, op: &Reduce) -> Written {
    let x = at.input(0);
    if op.axes.is_empty() {
        return match op.kind {
            ReduceKind::L1 | ReduceKind::L2 => at.finish("Abs", &[&x], &[]),
            ReduceKind::LogSum => at.finish("Log", &[&x], &[]),
            ReduceKind::SumSquare => at.finish("Mul", &[&x, &x], &[]),
            _ => at.finish("Identity", &[&x], &[]),
        };
    }
    let name = match op.kind {
        ReduceKind::Sum => "ReduceSum",
        ReduceKind::Mean => "ReduceMean",
        ReduceKind::Max => "ReduceMax",
        ReduceKind::Min => "ReduceMin",
        ReduceKind::Product => "ReduceProd",
        ReduceKind::L1 => "ReduceL1",
        ReduceKind::L2 => "ReduceL2",
        ReduceKind::LogSum => "ReduceLogSum",
        ReduceKind::LogSumExp => "ReduceLogSumExp",
        ReduceKind::SumSquare => "ReduceSumSquare",
        other => return Err(Fault::None(format!("ONNX has no reduction for {other:?}"))),
    };
    let extreme = matches!(op.kind, ReduceKind::Max | ReduceKind::Min);
    let short = extreme && matches!(at.dtype(0), DType::I8 | DType::U8 | DType::Bool);
    if !short {
        require_sums(at, name)?;
    }
    let axes: Vec<i64> = op.axes.iter().map(|&a| a as i64).collect();
    let axes = at.ints(&axes);
    at.finish(name, &[&x, &axes], &[("keepdims", Int(op.keep_dims.into()))])
}

/// Fails for integers that ONNX does not sum.
pub(super) fn require_sums(at: &At<'_, '_>, op: &str) -> Result<(), Fault> {
    match at.dtype(0) {
        dtype @ (DType::Bool | DType::I8 | DType::U8 | DType::I16 | DType::U16) => {
            Err(Fault::None(format!("ONNX has no {op} of {dtype}")))
        }
        _ => Ok(()),
    }
}

pub(crate) fn arg_reduce(at: &mut At<'_, '_>, op: &ArgReduce) -> Written {
    at.same(
        if op.largest { "ArgMax" } else { "ArgMin" },
        &[
            ("axis", Int(op.axis as i64)),
            ("keepdims", Int(op.keep_dims.into())),
            ("select_last_index", Int(op.select_last.into())),
        ],
    )
}

pub(crate) fn mat_mul(at: &mut At<'_, '_>, op: &MatMul) -> Written {
    let ranks = [at.dims(0).len(), at.dims(1).len()];
    let turned = [op.transpose_lhs && ranks[0] > 1, op.transpose_rhs && ranks[1] > 1];
    if ranks == [2, 2] && turned != [false, false] && at.dtype(0).is_float() {
        let flags = [("transA", Int(turned[0].into())), ("transB", Int(turned[1].into()))];
        return at.same("Gemm", &flags);
    }
    if turned == [false, false]
        && let Some(written) = integers::mat_mul(at)
    {
        return written;
    }
    let mut operands = [at.input(0), at.input(1)];
    for i in 0..2 {
        if turned[i] {
            let mut perm: Vec<i64> = (0..ranks[i] as i64).collect();
            perm.swap(ranks[i] - 1, ranks[i] - 2);
            operands[i] = at.emit("Transpose", &[&operands[i]], &[("perm", Ints(&perm))]);
        }
    }
    at.finish("MatMul", &[&operands[0], &operands[1]], &[])
}

pub(crate) fn einsum(at: &mut At<'_, '_>, op: &Einsum) -> Written {
    if at.dtype(0) == DType::BF16 {
        at.writer.needs("", 28);
    }
    at.same("Einsum", &[("equation", Text(&op.equation))])
}

pub(super) fn flat(pads: &[(i64, i64)]) -> Vec<i64> {
    pads.iter().map(|p| p.0).chain(pads.iter().map(|p| p.1)).collect()
}

pub(super) fn conv_attributes<'a>(
    op: &'a Conv,
    pads: &'a [i64],
) -> [(&'static str, super::writer::Attr<'a>); 4] {
    [
        ("strides", Ints(&op.strides)),
        ("dilations", Ints(&op.dilations)),
        ("pads", Ints(pads)),
        ("group", Int(op.groups)),
    ]
}

pub(crate) fn conv(at: &mut At<'_, '_>, op: &Conv) -> Written {
    if !at.dtype(0).is_float() {
        return integers::conv(at, op);
    }
    let pads = flat(&op.pads);
    at.same("Conv", &conv_attributes(op, &pads))
}

pub(crate) fn conv_transpose(at: &mut At<'_, '_>, op: &ConvTranspose) -> Written {
    at.same(
        "ConvTranspose",
        &[
            ("strides", Ints(&op.strides)),
            ("dilations", Ints(&op.dilations)),
            ("pads", Ints(&flat(&op.pads))),
            ("output_padding", Ints(&op.output_padding)),
            ("group", Int(op.groups)),
        ],
    )
}

/// Padding and rounding under which also a reader that counts windows in the trailing padding
/// finds as many as there are: up to operator set 21, ONNX does not say that they are left out.
fn ceil_pads(at: &At<'_, '_>, op: &Pool) -> Result<(Vec<(i64, i64)>, bool), Fault> {
    let (image, mut pads) = (at.dims(0), op.pads.clone());
    let (mut whole, mut fits) = (true, true);
    for (d, pad) in pads.iter_mut().enumerate().filter(|_| op.ceil_mode) {
        let Some(size) = image.get(2 + d).and_then(Dim::as_const) else {
            whole = false;
            continue;
        };
        let (stride, reach) = (op.strides[d], (op.kernel[d] - 1) * op.dilations[d] + 1);
        let steps = |pad: (i64, i64)| {
            let room = size + pad.0 + pad.1 - reach;
            (room.div_euclid(stride), (room + stride - 1).div_euclid(stride))
        };
        let mut wanted = steps(*pad).1;
        if wanted * stride >= size + pad.0 {
            // The last window would start in the padding; the one before it ends the operand.
            wanted -= 1;
            pad.1 = (wanted * stride + reach - size - pad.0).max(0);
        }
        whole &= steps(*pad).0 == wanted;
        fits &= steps(*pad).1 == wanted;
    }
    match op.ceil_mode && !whole {
        true if !fits => {
            Err(Fault::None("ONNX counts a window that starts in the padding".to_owned()))
        }
        ceil => Ok((pads, ceil)),
    }
}

pub(crate) fn pool(at: &mut At<'_, '_>, op: &Pool) -> Written {
    let (pads, ceil_mode) = ceil_pads(at, op)?;
    let pads = flat(&pads);
    let mut attributes = vec![
        ("kernel_shape", Ints(&op.kernel)),
        ("strides", Ints(&op.strides)),
        ("dilations", Ints(&op.dilations)),
        ("pads", Ints(&pads)),
        ("ceil_mode", Int(ceil_mode.into())),
    ];
    let name = match op.kind {
        PoolKind::Max { .. } => "MaxPool",
        PoolKind::Average { count_include_pad } => {
            attributes.push(("count_include_pad", Int(count_include_pad.into())));
            "AveragePool"
        }
        PoolKind::Lp { p } => {
            attributes.push(("p", Int(p)));
            "LpPool"
        }
        other => return Err(Fault::None(format!("ONNX has no pooling for {other:?}"))),
    };
    at.same(name, &attributes)
}

pub(crate) fn batch_norm(at: &mut At<'_, '_>, op: &BatchNorm) -> Written {
    at.same("BatchNormalization", &[("epsilon", Float(op.epsilon.get()))])
}

/// A tensor of one number, for dims that are numbers.
fn filled(at: &mut At<'_, '_>, dims: &[Dim], value: f64) -> Result<String, Fault> {
    let dtype = at.dtype(0);
    let dims: Option<Vec<i64>> = dims.iter().map(Dim::as_const).collect();
    match dims {
        Some(dims) => Ok(at.constant(&Tensor::generate(dtype, &dims, |_| value))),
        None => Err(Fault::Decompose),
    }
}

pub(crate) fn layer_norm(at: &mut At<'_, '_>, op: &LayerNorm) -> Written {
    if op.rms {
        return Err(Fault::Decompose);
    }
    let x = at.input(0);
    let scale = match at.has(1) {
        true => at.input(1),
        false => {
            let dims = at.dims(0);
            filled(at, &dims[op.axis..], 1.0)?
        }
    };
    let bias = at.input(2);
    let attributes = [("axis", Int(op.axis as i64)), ("epsilon", Float(op.epsilon.get()))];
    at.finish("LayerNormalization", &[&x, &scale, &bias], &attributes)
}

pub(crate) fn group_norm(at: &mut At<'_, '_>, op: &GroupNorm) -> Written {
    let x = at.input(0);
    let channels = at.dims(0).get(1).cloned().unwrap_or_default();
    let mut operands = [at.input(1), at.input(2)];
    for (operand, value) in operands.iter_mut().zip([1.0, 0.0]) {
        if operand.is_empty() {
            *operand = filled(at, std::slice::from_ref(&channels), value)?;
        }
    }
    let operands = [x.as_str(), &operands[0], &operands[1]];
    let epsilon = ("epsilon", Float(op.epsilon.get()));
    if channels.as_const() == Some(op.groups) {
        return at.finish("InstanceNormalization", &operands, &[epsilon]);
    }
    at.finish("GroupNormalization", &operands, &[epsilon, ("num_groups", Int(op.groups))])
}

pub(crate) fn lrn(at: &mut At<'_, '_>, op: &Lrn) -> Written {
    at.same(
        "LRN",
        &[
            ("size", Int(op.size)),
            ("alpha", Float(op.alpha.get())),
            ("beta", Float(op.beta.get())),
            ("bias", Float(op.bias.get())),
        ],
    )
}

pub(crate) fn softmax(at: &mut At<'_, '_>, op: &Softmax) -> Written {
    at.same(if op.log { "LogSoftmax" } else { "Softmax" }, &[("axis", Int(op.axis as i64))])
}
