//! Sums of products of integers that come from at most eight bits.

use super::{
    compute::{conv_attributes, flat, number},
    writer::{
        At,
        Attr::{self, Int},
        Fault, Written,
    },
};
use bricolage_ir::{
    Graph, Op, ValueId,
    ops::{Binary, Conv},
};
use bricolage_tensor::{DType, Dim, Tensor};

/// Nodes that are looked through.
const STEPS: usize = 8;

/// An operand that is the difference of eight bits and a zero point of the same type.
struct Eight {
    value: String,
    /// The zero point and its dims.
    zero: Option<(String, Vec<Dim>)>,
}

/// The value that a conversion to `i32` reads, if that has eight bits.
fn converted(graph: &Graph, v: ValueId) -> Option<(ValueId, DType)> {
    let node = graph.node(graph.producer(v)?);
    let from = node.inputs.first().copied().flatten()?;
    let dtype = graph.fact(from).ty.as_tensor()?.dtype;
    let eight = matches!(dtype, DType::I8 | DType::U8);
    matches!(&node.op, Op::Cast(c) if c.to == DType::I32 && eight).then_some((from, dtype))
}

/// A constant of `i32` in eight bits: `dtype`, or whichever type holds it.
fn constant(graph: &Graph, v: ValueId, dtype: Option<DType>) -> Option<Tensor> {
    let t = graph.constant_of(v).filter(|t| t.dtype() == DType::I32)?;
    let (numbers, mut types) = (t.to_i64(), [DType::I8, DType::U8].into_iter());
    types.find_map(|d| {
        let narrow = Tensor::from_i64(d, t.dims(), &numbers);
        (dtype.is_none_or(|wanted| wanted == d) && narrow.to_i64() == numbers).then_some(narrow)
    })
}

/// Operand `i` in eight bits, if it comes from there.
fn eight_bits(at: &mut At<'_, '_>, i: usize) -> Option<Eight> {
    let graph = at.graph();
    let v = at.operand(i)?;
    let name = |v: ValueId| graph.value(v).name.to_string();
    if let Some(t) = constant(graph, v, None) {
        return Some(Eight { value: at.constant(&t), zero: None });
    }
    if let Some((from, _)) = converted(graph, v) {
        return Some(Eight { value: name(from), zero: None });
    }
    let node = graph.node(graph.producer(v)?);
    let (&Op::Binary(Binary::Sub), &[Some(x), Some(zero)]) = (&node.op, &node.inputs[..]) else {
        return None;
    };
    let (value, dtype) = match (converted(graph, x), constant(graph, x, None)) {
        (Some((from, dtype)), _) => (name(from), dtype),
        (None, Some(t)) => (at.constant(&t), t.dtype()),
        (None, None) => return None,
    };
    let dims = graph.fact(zero).ty.as_tensor()?.shape.0.clone();
    let zero = match (converted(graph, zero), constant(graph, zero, Some(dtype))) {
        (Some((from, of)), _) if of == dtype => name(from),
        (None, Some(t)) => at.constant(&t),
        _ => return None,
    };
    // The difference has the dims of what is centred.
    let whole = &graph.fact(v).ty.as_tensor()?.shape;
    let same = graph.fact(x).ty.as_tensor()?.shape == *whole;
    same.then_some(Eight { value, zero: Some((zero, dims)) })
}

/// The zero point as a list along dim `axis` of its operand, or as one number; `None` if it is neither.
fn zero_point(at: &mut At<'_, '_>, of: &Eight, rank: usize, axis: Option<usize>) -> Option<String> {
    let Some((name, dims)) = &of.zero else { return Some(String::new()) };
    let lead = rank.checked_sub(dims.len())?;
    let along: Vec<usize> =
        (0..dims.len()).filter(|&d| dims[d].as_const() != Some(1)).map(|d| d + lead).collect();
    let to: Vec<i64> = match (&along[..], axis) {
        ([], _) => Vec::new(),
        ([d], Some(axis)) if *d == axis => vec![-1],
        _ => return None,
    };
    if dims.len() == to.len() {
        return Some(name.clone());
    }
    let shape = at.ints(&to);
    Some(at.emit("Reshape", &[name, &shape], &[]))
}

fn both(at: &mut At<'_, '_>, axes: [Option<usize>; 2]) -> Option<[String; 4]> {
    if at.dtype(0) != DType::I32 {
        return None;
    }
    let ranks = [at.dims(0).len(), at.dims(1).len()];
    let (a, b) = (eight_bits(at, 0)?, eight_bits(at, 1)?);
    let zero_a = zero_point(at, &a, ranks[0], axes[0])?;
    let zero_b = zero_point(at, &b, ranks[1], axes[1])?;
    Some([a.value, b.value, zero_a, zero_b])
}

/// As ONNX's product of eight bits, where the operands come from there.
pub(super) fn mat_mul(at: &mut At<'_, '_>) -> Option<Written> {
    let rank = at.dims(1).len();
    if at.dims(0).len() < 2 || rank < 2 {
        return None;
    }
    let operands = both(at, [None, Some(rank - 1)])?;
    Some(at.finish("MatMulInteger", &operands.each_ref().map(String::as_str), &[]))
}

/// As ONNX's convolution of eight bits, or where the operands are differences that were computed before, as
/// one of `f64`, in which sums of such products are exact.
pub(super) fn conv(at: &mut At<'_, '_>, op: &Conv) -> Written {
    let (dtype, pads) = (at.dtype(0), flat(&op.pads));
    let attributes: &[(&str, Attr<'_>)] = &conv_attributes(op, &pads);
    // Readers know no zero point per filter, though ONNX has it.
    if let Some(operands) = both(at, [None, None]) {
        let operands = operands.each_ref().map(String::as_str);
        if !at.has(2) {
            return at.finish("ConvInteger", &operands, attributes);
        }
        let sums = at.emit("ConvInteger", &operands, attributes);
        let mut column = vec![-1];
        column.extend(op.strides.iter().map(|_| 1));
        let (bias, column) = (at.input(2), at.ints(&column));
        let bias = at.emit("Reshape", &[&bias, &column], &[]);
        return at.finish("Add", &[&sums, &bias], &[]);
    }
    let large = |i: &usize| at.has(*i) && !is_below(at, *i, if *i < 2 { 9 } else { 32 });
    if let Some(operand) = (0..3).find(large) {
        let why = format!("ONNX has no convolution of {dtype}, and operand {operand} may be large");
        return Err(Fault::None(why));
    }
    let wide = Int(number(DType::F64)?);
    let mut operands = Vec::new();
    for i in 0..3 {
        let name = at.input(i);
        operands.push(if at.has(i) { at.emit("Cast", &[&name], &[("to", wide)]) } else { name });
    }
    let operands: Vec<&str> = operands.iter().map(String::as_str).collect();
    let sums = at.emit("Conv", &operands, attributes);
    at.finish("Cast", &[&sums], &[("to", Int(number(dtype)?))])
}

/// Whether the elements of operand `i`, integers, are surely below `2^bits` in size: its type holds no larger,
/// it is constant, or it is a conversion or a difference of such.
fn is_below(at: &At<'_, '_>, i: usize, bits: u32) -> bool {
    at.operand(i).is_some_and(|v| is_value_below(at.graph(), v, bits, STEPS))
}

fn is_value_below(graph: &Graph, v: ValueId, bits: u32, steps: usize) -> bool {
    let dtype = graph.fact(v).ty.as_tensor().map(|t| t.dtype);
    if dtype.is_none_or(|d| !d.is_int()) || steps == 0 || bits == 0 {
        return false;
    }
    if dtype.is_some_and(|d| d.bits() <= u64::from(bits)) {
        return true;
    }
    if let Some(t) = graph.constant_of(v) {
        return t.to_i64().iter().all(|v| v.unsigned_abs() < 1 << bits);
    }
    let Some(producer) = graph.producer(v) else { return false };
    let node = graph.node(producer);
    let all =
        |bits| node.inputs.iter().flatten().all(|&v| is_value_below(graph, v, bits, steps - 1));
    match &node.op {
        Op::Cast(_) | Op::Reshape(_) | Op::Transpose(_) | Op::Expand(_) => all(bits),
        // A difference may have one bit more than what it is of.
        Op::Binary(Binary::Sub) => all(bits - 1),
        _ => false,
    }
}
