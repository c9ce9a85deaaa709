//! Whether results are those that a test expects.

use bricolage_tensor::{Datum, Tensor};

/// The largest errors that a test allows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// As a share of the expected element.
    pub(super) relative: f64,
    /// On top.
    pub(super) absolute: f64,
}

/// Where values of any kind differ. Of `random` numbers types and sizes are told, and each element that is
/// not 0 by chance.
pub(super) fn datum_differs(
    got: &Datum,
    want: &Datum,
    limits: Limits,
    random: bool,
) -> Option<String> {
    match (got, want) {
        (Datum::Tensor(got), Datum::Tensor(want)) if random && got.ty() == want.ty() => {
            let both = got.to_f64().into_iter().zip(want.to_f64());
            let both = both.map(|(a, b)| if a == 0.0 || b == 0.0 { (0.0, 0.0) } else { (a, b) });
            let (a, b): (Vec<f64>, Vec<f64>) = both.unzip();
            let tensor = |v: &[f64]| Tensor::from_f64(got.dtype(), got.dims(), v);
            tensor_differs(&tensor(&a), &tensor(&b), limits)
        }
        (Datum::Tensor(got), Datum::Tensor(want)) => tensor_differs(got, want, limits),
        (Datum::Sequence(got), Datum::Sequence(want)) if got.len() == want.len() => {
            let mut pairs = got.iter().zip(want).enumerate();
            pairs.find_map(|(i, (got, want))| {
                let why = datum_differs(got, want, limits, random)?;
                Some(format!("element {i} of the list: {why}"))
            })
        }
        (Datum::Optional(Some(got)), Datum::Optional(Some(want))) => {
            datum_differs(got, want, limits, random)
        }
        (got, want) => (got != want).then(|| format!("{got:?} is not {want:?}")),
    }
}

fn tensor_differs(got: &Tensor, want: &Tensor, limits: Limits) -> Option<String> {
    if got.dtype() != want.dtype() || got.dims() != want.dims() {
        return Some(format!("{} is not {}", got.ty(), want.ty()));
    }
    // The expected results in a half type come from code that rounds every step to it.
    let steps = if want.dtype().bits() == 16 { 4.0 } else { 0.0 };
    let relative = limits.relative.max(steps * want.dtype().epsilon());
    let pairs = got.to_f64().into_iter().zip(want.to_f64());
    let bad = |a: f64, b: f64| {
        let near = (a - b).abs() <= limits.absolute + relative * b.abs();
        !(a == b || (a.is_nan() && b.is_nan()) || near)
    };
    let all: Vec<String> = pairs
        .enumerate()
        .filter(|(_, (a, b))| bad(*a, *b))
        .map(|(i, (a, b))| format!("element {i}: {a} is not {b}"))
        .collect();
    all.first().map(|first| format!("{} differ, {first}", all.len()))
}
