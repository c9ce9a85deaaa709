//! How far a result may be from the reference, derived from what the arithmetic itself cannot avoid.

use bricolage_tensor::{DType, Tensor};
use std::fmt;

/// Share of the noise floor that is allowed: other orders of summation stay within it.
const FLOORS: f64 = 8.0;
/// Units in the last place of the largest magnitude that are allowed on top.
const ULPS: f64 = 4.0;

/// The largest allowed errors of one tensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Of any element, absolute.
    pub max_abs: f64,
    /// Of the whole, as the 2-norm of the error over the 2-norm of the reference.
    pub relative_l2: f64,
}

impl Tolerance {
    /// Nothing but equality.
    pub const EXACT: Tolerance = Tolerance { max_abs: 0.0, relative_l2: 0.0 };

    /// Derived from the noise floor: the difference that rounding alone makes, as simulated by
    /// [`crate::evaluate_noisy`]. Eight floors and four units in the last place of the largest
    /// magnitude are allowed; integers and booleans must be equal.
    pub fn from_floor(reference: &Tensor, noisy: &Tensor) -> Tolerance {
        if !reference.dtype().is_float() {
            return Tolerance::EXACT;
        }
        let floor = Error::between(reference, noisy);
        let ulp = reference.dtype().epsilon();
        Tolerance {
            max_abs: FLOORS * floor.max_abs + ULPS * ulp * floor.magnitude,
            relative_l2: FLOORS * floor.relative_l2 + ULPS * ulp,
        }
    }

    /// The larger of each of the two bounds.
    pub fn max(self, other: Tolerance) -> Tolerance {
        Tolerance {
            max_abs: self.max_abs.max(other.max_abs),
            relative_l2: self.relative_l2.max(other.relative_l2),
        }
    }

    /// What two results may differ by, each of which may be off by one of these.
    pub fn plus(self, other: Tolerance) -> Tolerance {
        Tolerance {
            max_abs: self.max_abs + other.max_abs,
            relative_l2: self.relative_l2 + other.relative_l2,
        }
    }

    /// At least `share` of the largest magnitude of the reference: the bound of a numerics class.
    pub fn or_share_of(self, reference: &Tensor, share: f64) -> Tolerance {
        if !reference.dtype().is_float() {
            return self;
        }
        let magnitude = match reference.dtype() {
            DType::F32 => magnitude(&reference.elements::<f32>()),
            _ => magnitude(&reference.to_f64()),
        };
        Tolerance {
            max_abs: self.max_abs.max(share * magnitude),
            relative_l2: self.relative_l2.max(share),
        }
    }
}

/// How far a result is from the reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Error {
    /// Largest absolute difference; infinite when dims, or the places of non-finite elements, differ.
    pub max_abs: f64,
    /// Row-major index of the element with the largest difference.
    pub at: usize,
    /// 2-norm of the difference over the 2-norm of the reference; the former when the latter is 0.
    pub relative_l2: f64,
    /// Largest finite magnitude of the reference.
    pub magnitude: f64,
}

impl Error {
    /// Compares element by element. NaN equals NaN, and infinities of one sign are equal.
    pub fn between(reference: &Tensor, found: &Tensor) -> Error {
        let wrong = |at| Error {
            max_abs: f64::INFINITY,
            at,
            relative_l2: f64::INFINITY,
            magnitude: magnitude(&reference.to_f64()),
        };
        if reference.dims() != found.dims() || reference.dtype() != found.dtype() {
            return wrong(0);
        }
        match reference.dtype() {
            DType::F32 => Error::of(&reference.elements::<f32>(), &found.elements::<f32>()),
            DType::I64 | DType::U64 => {
                let mut pairs = reference.to_i64().into_iter().zip(found.to_i64());
                let differ = pairs.position(|(a, b)| a != b);
                differ.map_or_else(|| Error { max_abs: 0.0, relative_l2: 0.0, ..wrong(0) }, wrong)
            }
            _ => Error::of(&reference.to_f64(), &found.to_f64()),
        }
    }

    fn of<T: Copy + Into<f64>>(reference: &[T], found: &[T]) -> Error {
        let mut error = Error { max_abs: 0.0, at: 0, relative_l2: 0.0, magnitude: 0.0 };
        let (mut squares, mut total) = (0.0, 0.0);
        for (at, (&a, &b)) in reference.iter().zip(found).enumerate() {
            let (a, b): (f64, f64) = (a.into(), b.into());
            let difference = match (a.is_finite(), b.is_finite()) {
                (true, true) => (a - b).abs(),
                _ if a == b || (a.is_nan() && b.is_nan()) => 0.0,
                _ => f64::INFINITY,
            };
            if difference > error.max_abs {
                error.max_abs = difference;
                error.at = at;
            }
            squares += difference * difference;
            if a.is_finite() {
                total += a * a;
                error.magnitude = error.magnitude.max(a.abs());
            }
        }
        error.relative_l2 = squares.sqrt() / if total > 0.0 { total.sqrt() } else { 1.0 };
        error
    }

    /// The larger of the two errors as a share of what is allowed: at most 1 when the result is right. Where any
    /// error is allowed, an infinite one is too.
    pub fn share_of(&self, allowed: &Tolerance) -> f64 {
        let share = |error: f64, allowed: f64| match error == 0.0 || allowed == f64::INFINITY {
            true => 0.0,
            false => error / allowed,
        };
        share(self.max_abs, allowed.max_abs).max(share(self.relative_l2, allowed.relative_l2))
    }
}

fn magnitude<T: Copy + Into<f64>>(elements: &[T]) -> f64 {
    let finite = elements.iter().map(|&v| v.into()).filter(|v| v.is_finite());
    finite.fold(0.0, |m, v| m.max(v.abs()))
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "max abs error {:.3e} at element {}, relative l2 error {:.3e}, largest magnitude {:.3e}",
            self.max_abs, self.at, self.relative_l2, self.magnitude
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_shares_of_what_is_allowed() {
        let reference = Tensor::of(&[3], &[1f32, -2.0, 4.0]);
        let noisy = Tensor::of(&[3], &[1f32, -2.0, 4.000_01]);
        let allowed = Tolerance::from_floor(&reference, &noisy);
        assert!(Error::between(&reference, &noisy).share_of(&allowed) < 0.2);
        let wrong = Tensor::of(&[3], &[1f32, -2.1, 4.0]);
        let error = Error::between(&reference, &wrong);
        assert!(error.share_of(&allowed) > 1.0 && error.at == 1);
    }

    #[test]
    fn nothing_is_asked_where_noise_makes_no_number() {
        let (number, none) = (Tensor::of(&[1], &[1f32]), Tensor::of(&[1], &[f32::NAN]));
        let allowed = Tolerance::from_floor(&number, &none);
        assert_eq!(Error::between(&number, &none).share_of(&allowed), 0.0);
    }

    #[test]
    fn non_finite_elements_must_agree() {
        let reference = Tensor::of(&[3], &[f32::NAN, f32::INFINITY, 1.0]);
        let error = |e: &[f32]| Error::between(&reference, &Tensor::of(&[3], e)).max_abs;
        assert_eq!(error(&[f32::NAN, f32::INFINITY, 1.0]), 0.0);
        assert_eq!(error(&[f32::NAN, f32::NEG_INFINITY, 1.0]), f64::INFINITY);
        assert_eq!(error(&[0.0, f32::INFINITY, 1.0]), f64::INFINITY);
    }

    #[test]
    fn integers_are_equal_or_wrong() {
        let a = Tensor::of(&[1], &[i64::MAX]);
        let b = Tensor::of(&[1], &[i64::MAX - 1]);
        assert!(Error::between(&a, &b).share_of(&Tolerance::from_floor(&a, &a)) > 1.0);
        assert_eq!(Error::between(&a, &a).share_of(&Tolerance::EXACT), 0.0);
    }
}
