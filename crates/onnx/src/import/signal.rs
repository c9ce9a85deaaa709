//! Spectra of signals.

use super::at::{At, Fault, Imported, malformed, unsupported};
use crate::tensor::dtype_of;
use bricolage_ir::{
    ValueId,
    ops::{Binary, Cast, Dft, Gather, Iota, Unary},
};
use bricolage_tensor::{DType, Dim, Tensor};
use std::f64::consts::TAU;

/// Largest matrix that is computed at import.
const MOST: i64 = 1 << 26;

/// The one size that operand `i` holds; `None` when it is absent.
fn size(at: &At<'_, '_>, i: usize, what: &str) -> Result<Option<Dim>, Fault> {
    match at.sizes_input(i, what)?.as_deref() {
        None => Ok(None),
        Some([size]) => Ok(Some(size.clone())),
        Some(list) => malformed(format!("needs one number as {what}, found {}", list.len())),
    }
}

fn output_type(at: &mut At<'_, '_>) -> Result<DType, Fault> {
    let number = at.int_or("output_datatype", 1)?;
    match dtype_of(i32::try_from(number).unwrap_or(0)) {
        Ok(dtype) => Ok(dtype),
        Err(fault) => unsupported(format!("attribute `output_datatype`: {fault}")),
    }
}

/// A sum of cosines: `waves[i] * cos(2 pi i n / size)`. A symmetric window ends where it starts, and is a
/// periodic one of one element less.
pub(crate) fn window(at: &mut At<'_, '_>, waves: &[f64]) -> Imported {
    at.all(1, 1)?;
    let Some(len) = size(at, 0, "`size`")? else { return malformed("needs `size`, found none") };
    let to = output_type(at)?;
    let period = if at.flag("periodic", true)? { len.clone() } else { &len - &Dim::from(1) };
    let of = |n: f64, period: f64| -> f64 {
        let waves = waves.iter().enumerate();
        waves.map(|(i, wave)| wave * (TAU * i as f64 * n / period).cos()).sum()
    };
    if let (Some(len), Some(period)) = (len.as_const(), period.as_const()) {
        if !(0..=MOST).contains(&len) {
            return malformed(format!("needs a `size` of 0 to {MOST}, found {len}"));
        }
        // A single element is the peak.
        let value = |n: usize| if period == 0 { 1.0 } else { of(n as f64, period as f64) };
        return Ok(vec![at.tensor_value(Tensor::generate(to, &[len], value))]);
    }
    let count = |start: Dim, len: Dim| Iota { dtype: DType::F64, start, len, step: 1 };
    let n = at.add::<ValueId>(count(Dim::from(0), len), &[])?;
    let period = at.add::<ValueId>(count(period, Dim::from(1)), &[])?;
    let turns = at.add(Binary::Div, &[n, period])?;
    let mut sum = at.scalar(DType::F64, waves[0]);
    for (i, &wave) in waves.iter().enumerate().skip(1) {
        let (factor, wave) = (at.scalar(DType::F64, TAU * i as f64), at.scalar(DType::F64, wave));
        let angle = at.add(Binary::Mul, &[turns, factor])?;
        let cosine = at.add(Unary::Cos, &[angle])?;
        let term = at.add(Binary::Mul, &[cosine, wave])?;
        sum = at.add(Binary::Add, &[sum, term])?;
    }
    at.one(Cast::to(to), &[sum])
}

/// The length of a transform of `x` along `axis` where none is given.
fn whole(at: &At<'_, '_>, x: ValueId, axis: usize, halved: bool) -> Result<Dim, Fault> {
    let here = at.dims(x)?[axis].clone();
    Ok(if halved { (here - Dim::from(1)) * Dim::from(2) } else { here })
}

pub(crate) fn dft(at: &mut At<'_, '_>) -> Imported {
    let x = at.input(0)?;
    let rank = at.rank(x)?;
    let axis = if at.opset < 20 {
        at.at_most(2)?;
        at.int_or("axis", 1)?
    } else {
        at.at_most(3)?;
        match at.ints_input(2, "`axis`")?.as_deref() {
            None => -2,
            Some(&[axis]) => axis,
            Some(list) => return malformed(format!("needs one `axis`, found {}", list.len())),
        }
    };
    let axis = at.axis(axis, rank)?;
    let (inverse, one_sided) = (at.flag("inverse", false)?, at.flag("onesided", false)?);
    let length = match size(at, 1, "`dft_length`")? {
        Some(length) => length,
        None => whole(at, x, axis, inverse && one_sided)?,
    };
    at.one(Dft { axis, length, inverse, one_sided }, &[x])
}

/// The transform of windows of a signal, one after the other.
pub(crate) fn short_time(at: &mut At<'_, '_>) -> Imported {
    at.at_most(4)?;
    let mut x = at.input(0)?;
    let mut dims = at.dims(x)?;
    // ONNX Runtime takes real signals without the dim of parts, and exporters write them so.
    if dims.len() == 2 {
        dims.push(Dim::from(1));
        x = at.reshape(x, dims.clone())?;
    }
    if dims.len() != 3 {
        let got = dims.len();
        return Err(bricolage_ir::TypeError::Rank { operand: 0, min: 2, max: 3, got }.into());
    }
    let step = size(at, 1, "`frame_step`")?.and_then(|d| d.as_const());
    let Some(step) = step.filter(|s| (1..1 << 31).contains(s)) else {
        return unsupported("needs `frame_step` as a 32-bit number above 0");
    };
    let window = at.optional(2);
    let length = match (size(at, 3, "`frame_length`")?, window) {
        (Some(length), _) => length,
        (None, Some(w)) => at.dims(w)?.first().cloned().unwrap_or_default(),
        (None, None) => dims[1].clone(),
    };
    let frames = (&dims[1] - &length).floor_div(&Dim::from(step)) + Dim::from(1);
    let iota =
        |len: &Dim, step| Iota { dtype: DType::I64, start: Dim::from(0), len: len.clone(), step };
    let starts = at.add::<ValueId>(iota(&frames, step), &[])?;
    let starts = at.reshape(starts, vec![frames.clone(), Dim::from(1)])?;
    let offsets = at.add::<ValueId>(iota(&length, 1), &[])?;
    let positions = at.add(Binary::Add, &[starts, offsets])?;
    let mut x = at.add(Gather { axis: 1 }, &[x, positions])?;
    if let Some(w) = window {
        let w = at.reshape(w, vec![length.clone(), Dim::from(1)])?;
        x = at.add(Binary::Mul, &[x, w])?;
    }
    let one_sided = at.flag("onesided", true)?;
    at.one(Dft { axis: 2, length, inverse: false, one_sided }, &[x])
}

/// Triangles over the positions of a spectrum, evenly spaced on the mel scale.
pub(crate) fn mel_weights(at: &mut At<'_, '_>) -> Imported {
    at.all(5, 5)?;
    let mut numbers = Vec::new();
    let names =
        ["`num_mel_bins`", "`dft_length`", "`sample_rate`", "a lower edge", "an upper edge"];
    for (i, name) in names.into_iter().enumerate() {
        let t = at.constant_input(i, name)?;
        numbers.push(t.and_then(|t| t.to_f64().first().copied()).unwrap_or(f64::NAN));
    }
    let to = output_type(at)?;
    let [bins, length, rate, low, high] = numbers[..] else { return malformed("needs 5 operands") };
    let (bins, length) = (bins as i64, length as i64);
    let rows = length / 2 + 1;
    let sane = bins >= 1 && length >= 1 && rate > 0.0 && low >= 0.0 && high > low;
    if !sane || bins.saturating_mul(rows) > MOST {
        return malformed(format!(
            "needs bins and a length above 0 that make at most {MOST} weights, a sample rate above 0, \
             and edges in order, found {bins}, {length}, {rate}, {low} and {high}"
        ));
    }
    let mel = |hertz: f64| 2595.0 * (hertz / 700.0).ln_1p() / f64::ln(10.0);
    let hertz = |mel: f64| 700.0 * (mel / 2595.0 * f64::ln(10.0)).exp_m1();
    let step = (mel(high) - mel(low)) / (bins + 2) as f64;
    let place = |i: i64| {
        let at = (length + 1) as f64 * hertz(mel(low) + i as f64 * step);
        (at / rate).floor() as i64
    };
    let places: Vec<i64> = (0..bins + 2).map(place).collect();
    let weight = |flat: usize| {
        let (row, bin) = (flat as i64 / bins, flat % bins as usize);
        let [left, peak, right] = [0, 1, 2].map(|i| places[bin + i]);
        let share = |part: i64, of: i64| part as f64 / of as f64;
        match row {
            _ if row == peak => 1.0,
            _ if (left..peak).contains(&row) => share(row - left, peak - left),
            _ if (peak..right).contains(&row) => share(right - row, right - peak),
            _ => 0.0,
        }
    };
    Ok(vec![at.tensor_value(Tensor::generate(to, &[rows, bins], weight))])
}
