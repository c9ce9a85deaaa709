//! How far a result may be from the reference, derived from what the arithmetic itself cannot avoid.

use bricolage_tensor::{DType, Tensor};
use std::fmt;

/// Share of the noise floor that is allowed: other orders of summation stay within it.
pub(crate) const FLOORS: f64 = 8.0;
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
    /// [`crate::evaluate_noisy`]. Eight floors are allowed, and for floats four units in the last place of the
    /// largest magnitude. Integers and booleans must therefore be equal unless rounding changes some: what is
    /// quantised may be another integer, and so may the place of the largest of two that are nearly alike.
    pub fn from_floor(reference: &Tensor, noisy: &Tensor) -> Tolerance {
        let floor = Error::between(reference, noisy);
        let ulp = if reference.dtype().is_float() { reference.dtype().epsilon() } else { 0.0 };
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
            DType::I64 => {
                Error::of_integers(&reference.elements::<i64>(), &found.elements::<i64>())
            }
            DType::U64 => {
                Error::of_integers(&reference.elements::<u64>(), &found.elements::<u64>())
            }
            _ => Error::of(&reference.to_f64(), &found.to_f64()),
        }
    }

    /// Of integers that `f64` does not hold.
    fn of_integers<T: Copy + Into<i128>>(reference: &[T], found: &[T]) -> Error {
        let pairs = reference.iter().zip(found).map(|(&a, &b)| (a.into(), b.into()));
        Error::of_differences(pairs.map(|(a, b): (i128, i128)| (a as f64, a.abs_diff(b) as f64)))
    }

    fn of<T: Copy + Into<f64>>(reference: &[T], found: &[T]) -> Error {
        let pairs = reference.iter().zip(found).map(|(&a, &b)| (a.into(), b.into()));
        Error::of_differences(pairs.map(|(a, b): (f64, f64)| {
            let difference = match (a.is_finite(), b.is_finite()) {
                (true, true) => (a - b).abs(),
                _ if a == b || (a.is_nan() && b.is_nan()) => 0.0,
                _ => f64::INFINITY,
            };
            (a, difference)
        }))
    }

    /// Of elements of a reference, each with how far another one is from it.
    fn of_differences(pairs: impl Iterator<Item = (f64, f64)>) -> Error {
        let mut error = Error { max_abs: 0.0, at: 0, relative_l2: 0.0, magnitude: 0.0 };
        let (mut squares, mut total) = (0.0, 0.0);
        for (at, (a, difference)) in pairs.enumerate() {
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

    #[test]
    fn integers_that_rounding_changes_may_differ() {
        let exact = Tensor::of(&[4], &[7u8, 100, 30, 255]);
        let noisy = Tensor::of(&[4], &[7u8, 101, 30, 255]);
        let allowed = Tolerance::from_floor(&exact, &noisy);
        let share = |e: &[u8]| Error::between(&exact, &Tensor::of(&[4], e)).share_of(&allowed);
        assert!(share(&[8, 100, 29, 255]) <= 1.0);
        assert!(share(&[7, 120, 30, 255]) > 1.0);
    }
}
