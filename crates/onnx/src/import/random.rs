//! Random numbers. A seed that the model does not give follows from the name of the node.

use super::at::{At, Fault, Imported, Step, malformed};
use bricolage_ir::{
    Real, ValueId,
    ops::{ArgReduce, Binary, Cast, Distribution, Random, Select, Unary},
};
use bricolage_tensor::{DType, Dim, Shape};

/// Seeds are single floats in ONNX: their bits.
fn seed(at: &mut At<'_, '_>) -> Result<u64, Fault> {
    if at.has("seed") {
        return Ok(u64::from(at.float("seed", 0.0)?.to_bits()));
    }
    let hash = blake3::hash(at.base.as_bytes());
    let number = hash.as_bytes()[..3].iter().fold(0u32, |n, &b| n << 8 | u32::from(b));
    Ok(u64::from((number as f32).to_bits()))
}

fn numbers(at: &mut At<'_, '_>, distribution: Distribution, dtype: DType, dims: Vec<Dim>) -> Step {
    let seed = seed(at)?;
    at.add::<ValueId>(Random { distribution, dtype, shape: Shape(dims), seed }, &[])
}

fn distribution(at: &mut At<'_, '_>, normal: bool) -> Result<Distribution, Fault> {
    let mut real = |name, default| at.float(name, default).map(Real::from);
    Ok(match normal {
        true => Distribution::Normal { mean: real("mean", 0.0)?, scale: real("scale", 1.0)? },
        false => Distribution::Uniform { low: real("low", 0.0)?, high: real("high", 1.0)? },
    })
}

pub(crate) fn plain(at: &mut At<'_, '_>, normal: bool) -> Imported {
    at.all(0, 0)?;
    let distribution = distribution(at, normal)?;
    let dtype = at.dtype_attribute("dtype")?.unwrap_or(DType::F32);
    let Some(shape) = at.ints("shape")? else {
        return malformed("needs attribute `shape`, found none");
    };
    if shape.iter().any(|&n| n < 0) {
        return malformed(format!("needs sizes of at least 0, found {shape:?}"));
    }
    let dims = shape.into_iter().map(Dim::from).collect();
    Ok(vec![numbers(at, distribution, dtype, dims)?])
}

pub(crate) fn like(at: &mut At<'_, '_>, normal: bool) -> Imported {
    let x = at.all(1, 1)?[0];
    let distribution = distribution(at, normal)?;
    let ty = at.ty(x)?;
    let dtype = at.dtype_attribute("dtype")?.unwrap_or(ty.dtype);
    Ok(vec![numbers(at, distribution, dtype, ty.shape.0)?])
}

fn unit() -> Distribution {
    Distribution::Uniform { low: Real::new(0.0), high: Real::new(1.0) }
}

/// 1 with the probability that an element is.
pub(crate) fn bernoulli(at: &mut At<'_, '_>) -> Imported {
    let x = at.all(1, 1)?[0];
    let ty = at.ty(x)?;
    let to = at.dtype_attribute("dtype")?.unwrap_or(ty.dtype);
    let drawn = numbers(at, unit(), ty.dtype, ty.shape.0)?;
    let below = at.add(Binary::Less, &[drawn, x])?;
    at.one(Cast::to(to), &[below])
}

/// Elements that are 0 with a probability and larger otherwise, while training; and which are kept.
pub(crate) fn dropout(at: &mut At<'_, '_>) -> Imported {
    let x = at.input(0)?;
    let ty = at.ty(x)?;
    let seed = match at.int("seed")? {
        Some(n) => u64::from((n as f32).to_bits()),
        None => seed(at)?,
    };
    let ratio = match at.optional(1) {
        Some(ratio) => at.add(Cast::to(DType::F32), &[ratio])?,
        None => at.scalar(DType::F32, 0.5),
    };
    let shape = Shape(ty.shape.0.clone());
    let drawn = Random { distribution: unit(), dtype: DType::F32, shape, seed };
    let drawn = at.add::<ValueId>(drawn, &[])?;
    let mut kept = at.add(Binary::GreaterEqual, &[drawn, ratio])?;
    let one = at.scalar(DType::F32, 1.0);
    let share = at.add(Binary::Sub, &[one, ratio])?;
    let share = at.add(Cast::to(ty.dtype), &[share])?;
    let mut scaled = at.add(Binary::Div, &[x, share])?;
    if let Some(training) = at.optional(2) {
        let off = at.add(Unary::Not, &[training])?;
        kept = at.add(Binary::Or, &[kept, off])?;
        scaled = at.add(Select, &[training, scaled, x])?;
    }
    let zero = at.scalar(ty.dtype, 0.0);
    Ok(vec![at.add(Select, &[kept, scaled, zero])?, kept])
}

/// Classes by the logarithms of their weights: the largest after noise of Gumbel's distribution was
/// added to each (Maddison, Tarlow and Minka, *A\* sampling*, 2014).
pub(crate) fn multinomial(at: &mut At<'_, '_>) -> Imported {
    let x = at.all(1, 1)?[0];
    let ty = at.ty(x)?;
    let [batch, classes] = &ty.shape[..] else { return malformed("needs 2 dims in operand 0") };
    let count = at.int_or("sample_size", 1)?;
    if count < 1 {
        return malformed(format!("needs a `sample_size` of at least 1, found {count}"));
    }
    let to = at.dtype_attribute("dtype")?.unwrap_or(DType::I32);
    let drawn =
        numbers(at, unit(), DType::F64, vec![batch.clone(), Dim::from(count), classes.clone()])?;
    let mut noise = drawn;
    for f in [Unary::Log, Unary::Neg, Unary::Log, Unary::Neg] {
        noise = at.add(f, &[noise])?;
    }
    let wide = at.add(Cast::to(DType::F64), &[x])?;
    let rows = at.reshape(wide, vec![batch.clone(), Dim::from(1), classes.clone()])?;
    let scores = at.add(Binary::Add, &[rows, noise])?;
    let best = ArgReduce { largest: true, axis: 2, keep_dims: false, select_last: false };
    let best = at.add(best, &[scores])?;
    at.one(Cast::to(to), &[best])
}
