//! Numbers as few bits and a scale.

use super::{
    Binary, OpDef, Unary,
    elements::{one, sizes},
    results,
    types::{Operands, attribute, differ, expect_axis, expect_dtype},
};
use crate::{AxisKind, AxisMap, Body, EvalError, Fact, Index, Inputs, Scalar, TypeError};
use bricolage_tensor::{DType, Datum, Dim, Narrowing, Tensor, TensorType};
use serde::{Deserialize, Serialize};

/// `x / scale + zero_point` in few bits. Operands: `x`, `scale` and perhaps `zero_point`, which has the shape
/// of the scale and the element type of the result; without it, it is 0. The quotient is rounded to
/// `precision`. For an integer type it is then rounded to a whole number, ties to even, and the sum saturates.
///
/// A scale without dims counts for all elements. One of one dim (`block` 0) has an element per position of
/// `axis`; one of as many dims as `x` has one for every `block` neighbours along `axis`, the last block
/// perhaps shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Quantize {
    /// Element type of the result: an integer type of at most 16 bits, or a float type of at most 8.
    pub to: DType,
    /// The dim along which scales differ; of no account for a scale without dims.
    pub axis: usize,
    /// Elements that share a scale; 0 for a scale of at most one dim.
    pub block: i64,
    /// The float type that quotients are rounded to.
    pub precision: DType,
    /// What a float type cannot hold gives its largest number; otherwise infinity or NaN.
    pub saturate: bool,
}

/// `(x - zero_point) * scale`, rounded once. Operands and granularity as those of [`Quantize`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Dequantize {
    /// Element type of the result: a float type.
    pub to: DType,
    /// The dim along which scales differ; of no account for a scale without dims.
    pub axis: usize,
    /// Elements that share a scale; 0 for a scale of at most one dim.
    pub block: i64,
}

fn is_quantised(dtype: DType) -> bool {
    dtype.is_narrow_float() || (dtype.is_int() && dtype.bits() <= 16)
}

/// Fails unless operands 1 and 2 have a shape that says which elements of `x` share a scale.
fn expect_scales(
    operands: &Operands<'_>,
    x: &TensorType,
    axis: usize,
    block: i64,
) -> Result<(), TypeError> {
    let scale = operands.float(1)?;
    if block < 0 {
        return Err(attribute("block", "at least 0", block));
    }
    let expected: Vec<Dim> = match (scale.shape.len(), block) {
        (0, 0) => Vec::new(),
        (_, 0) => {
            expect_axis(axis, x.shape.len())?;
            vec![x.shape[axis].clone()]
        }
        _ => {
            expect_axis(axis, x.shape.len())?;
            let mut all = x.shape.0.clone();
            all[axis] = all[axis].ceil_div(&Dim::from(block));
            all
        }
    };
    for operand in 1..3 {
        let Some(t) = operands.optional(operand)? else { continue };
        if t.shape.len() != expected.len() {
            let (min, got) = (expected.len(), t.shape.len());
            return Err(TypeError::Rank { operand, min, max: min, got });
        }
        for (dim, (expected, got)) in expected.iter().zip(t.shape.iter()).enumerate() {
            if differ(expected, got) {
                let (expected, got) = (expected.clone(), got.clone());
                return Err(TypeError::Dim { operand, dim, expected, got });
            }
        }
    }
    Ok(())
}

/// The element of the scale that counts for each element of `x`.
fn scale_of(dims: &[i64], rank: usize, axis: usize, block: i64) -> impl Fn(usize) -> usize {
    let shape = sizes(dims);
    let inner: usize = shape.iter().skip(axis + 1).product();
    let length = shape.get(axis).copied().unwrap_or(1).max(1);
    let (inner, block) = (inner.max(1), block as usize);
    move |flat| match (rank, block) {
        (0, _) => 0,
        (_, 0) => flat / inner % length,
        _ => {
            let (outer, at) = (flat / inner / length, flat / inner % length);
            (outer * length.div_ceil(block) + at / block) * inner + flat % inner
        }
    }
}

/// Points that are independent, where a block of them reads one scale.
fn block_axes(inputs: &[Option<&Fact>], outputs: &[Fact], axis: usize, block: i64) -> AxisMap {
    let operands = Operands(inputs);
    let (Ok(x), Ok(scale)) = (operands.tensor(0), operands.tensor(1)) else {
        return AxisMap::opaque(inputs, outputs);
    };
    let mut map = AxisMap::pointwise(&[inputs[0]], outputs);
    let of_scale = match (scale.shape.len(), block) {
        (0, _) => Vec::new(),
        (_, 0) => vec![Index::axis(axis)],
        _ => {
            let Some(length) = x.shape[axis].as_const().filter(|n| n % block == 0) else {
                return AxisMap::opaque(inputs, outputs);
            };
            // The axis counts blocks, and another one the elements of a block.
            map.axes[axis].extent = Dim::from(length / block);
            let within = map.add("e", &Dim::from(block), AxisKind::Parallel);
            let element = Index::axis(within).plus(axis, block);
            for index in map.inputs.iter_mut().flatten().chain(&mut map.outputs) {
                index[axis] = element.clone();
            }
            (0..x.shape.len()).map(Index::axis).collect()
        }
    };
    for operand in &inputs[1..] {
        map.inputs.push(operand.map(|_| of_scale.clone()));
    }
    map
}

impl OpDef for Quantize {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let operands = Operands::new(inputs, 2, 3)?;
        let x = operands.tensor(0)?;
        let allowed = |d: DType| (d.is_float() && !d.is_narrow_float()) || d == DType::I32;
        expect_dtype(0, x.dtype, allowed, "float or i32")?;
        if !is_quantised(self.to) {
            return Err(attribute("to", "a quantised type", self.to));
        }
        if !self.precision.is_float() || self.precision.is_narrow_float() {
            return Err(attribute("precision", "a float type of 16 bits or more", self.precision));
        }
        expect_scales(&operands, x, self.axis, self.block)?;
        if let Some(zero) = operands.optional(2)?
            && zero.dtype != self.to
        {
            let got = (self.to, zero.dtype);
            return Err(TypeError::DTypeMismatch { operands: (0, 2), got });
        }
        Ok(vec![Fact::tensor(self.to, x.shape.iter().cloned())])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (_, dims) = results(self, inputs)?.swap_remove(0);
        let (x, scale) = (inputs.tensor(0)?, inputs.tensor(1)?);
        let at = scale_of(&dims, scale.dims().len(), self.axis, self.block);
        let (scales, zeros) = (scale.to_f64(), inputs.optional(2)?.map(Tensor::to_f64));
        let quotients = x.to_f64();
        let quotients: Vec<f64> =
            quotients.iter().enumerate().map(|(i, v)| v / scales[at(i)]).collect();
        let mut values = Tensor::from_f64(self.precision, &dims, &quotients).to_f64();
        for (i, v) in values.iter_mut().enumerate() {
            let whole = if self.to.is_int() { v.round_ties_even() } else { *v };
            *v = whole + zeros.as_ref().map_or(0.0, |z| z[at(i)]);
        }
        let how = Narrowing { saturate: self.saturate, ..Narrowing::default() };
        one(Tensor::from_f64_narrowing(self.to, &dims, &values, how))
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        block_axes(inputs, outputs, self.axis, self.block)
    }

    fn body(&self, inputs: &[Option<&Fact>]) -> Option<Body> {
        let mut steps = vec![Scalar::Input(0), Scalar::Input(1), Scalar::Binary(Binary::Div, 0, 1)];
        if self.to.is_int() {
            steps.push(Scalar::Unary(Unary::Round, 2));
        }
        if inputs.get(2).copied().flatten().is_some() {
            let last = steps.len() - 1;
            steps.extend([Scalar::Input(2), Scalar::Binary(Binary::Add, last, last + 1)]);
        }
        steps.push(Scalar::Cast(self.to, steps.len() - 1));
        Some(Body::of(steps))
    }
}

impl OpDef for Dequantize {
    fn infer(&self, inputs: &[Option<&Fact>]) -> Result<Vec<Fact>, TypeError> {
        let operands = Operands::new(inputs, 2, 3)?;
        let x = operands.tensor(0)?;
        let allowed = |d| is_quantised(d) || d == DType::I32;
        expect_dtype(0, x.dtype, allowed, "quantised or i32")?;
        expect_dtype(0, self.to, |d| d.is_float() && !d.is_narrow_float(), "float")
            .map_err(|_| attribute("to", "a float type of 16 bits or more", self.to))?;
        expect_scales(&operands, x, self.axis, self.block)?;
        if operands.optional(2)?.is_some() {
            operands.same_dtype(0, 2)?;
        }
        Ok(vec![Fact::tensor(self.to, x.shape.iter().cloned())])
    }

    fn eval(&self, inputs: &Inputs<'_>) -> Result<Vec<Datum>, EvalError> {
        let (dtype, dims) = results(self, inputs)?.swap_remove(0);
        let (x, scale) = (inputs.tensor(0)?, inputs.tensor(1)?);
        let at = scale_of(&dims, scale.dims().len(), self.axis, self.block);
        let (scales, zeros) = (scale.to_f64(), inputs.optional(2)?.map(Tensor::to_f64));
        let mut values = x.to_f64();
        for (i, v) in values.iter_mut().enumerate() {
            *v = (*v - zeros.as_ref().map_or(0.0, |z| z[at(i)])) * scales[at(i)];
        }
        one(Tensor::from_f64(dtype, &dims, &values))
    }

    fn axes(&self, inputs: &[Option<&Fact>], outputs: &[Fact]) -> AxisMap {
        block_axes(inputs, outputs, self.axis, self.block)
    }

    fn body(&self, inputs: &[Option<&Fact>]) -> Option<Body> {
        let mut steps = vec![Scalar::Input(0)];
        if inputs.get(2).copied().flatten().is_some() {
            steps.extend([Scalar::Input(2), Scalar::Binary(Binary::Sub, 0, 1)]);
        }
        let x = steps.len() - 1;
        steps.extend([
            Scalar::Input(1),
            Scalar::Binary(Binary::Mul, x, x + 1),
            Scalar::Cast(self.to, x + 2),
        ]);
        Some(Body::of(steps))
    }
}
