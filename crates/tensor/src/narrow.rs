//! Floats of at most eight bits, by the codes that stand for them.
//!
//! E4M3FN and E5M2: Micikevicius et al., "FP8 Formats for Deep Learning", 2022. The variants without
//! negative zero (FNUZ): Noune et al., "8-bit Numerical Formats for Deep Neural Networks", 2022. E2M1 and
//! E8M0: Open Compute Project, "Microscaling Formats (MX) Specification", 2023.

use crate::DType;

/// How numbers meet a float type of at most eight bits that does not hold them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Narrowing {
    /// What is too large gives the largest number of its sign; otherwise infinity, or NaN where the type
    /// has none. F4E2M1 has neither and always saturates.
    pub saturate: bool,
    /// Which of its neighbours in F8E8M0 a number becomes.
    pub powers: Powers,
}

impl Default for Narrowing {
    /// Saturating, and up to the next power of two: what ONNX casts do unless told otherwise.
    fn default() -> Narrowing {
        Narrowing { saturate: true, powers: Powers::Up }
    }
}

/// Which power of two a number between two of them becomes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
pub enum Powers {
    /// The larger.
    #[default]
    Up,
    /// The smaller.
    Down,
    /// The nearer; the larger of two that are as near.
    Nearest,
}

/// What the codes that are no plain numbers stand for.
#[derive(Clone, Copy, PartialEq)]
enum Specials {
    /// The largest exponent holds infinity (mantissa 0) and NaN.
    Ieee,
    /// NaN is all ones under either sign; there is no infinity.
    OnesAreNan,
    /// NaN is the code of negative zero; there is no infinity.
    NoNegativeZero,
    /// All codes are numbers.
    None,
}

/// How the codes of a type with a sign, an exponent and a mantissa are made up.
struct Coding {
    exponent: u32,
    mantissa: u32,
    bias: i32,
    specials: Specials,
}

const fn coding(dtype: DType) -> Option<Coding> {
    let (exponent, mantissa, bias, specials) = match dtype {
        DType::F8E4M3FN => (4, 3, 7, Specials::OnesAreNan),
        DType::F8E4M3FNUZ => (4, 3, 8, Specials::NoNegativeZero),
        DType::F8E5M2 => (5, 2, 15, Specials::Ieee),
        DType::F8E5M2FNUZ => (5, 2, 16, Specials::NoNegativeZero),
        DType::F4E2M1 => (2, 1, 1, Specials::None),
        _ => return None,
    };
    Some(Coding { exponent, mantissa, bias, specials })
}

impl Coding {
    /// The code of the sign alone.
    fn sign(&self) -> u8 {
        1 << (self.exponent + self.mantissa)
    }

    /// The code of the largest finite number.
    fn largest(&self) -> u8 {
        let all = self.sign() - 1;
        match self.specials {
            Specials::Ieee => all - (1 << self.mantissa),
            Specials::OnesAreNan => all - 1,
            Specials::NoNegativeZero | Specials::None => all,
        }
    }

    fn decode(&self, code: u8) -> f64 {
        let (sign, magnitude) = (code & self.sign(), code & (self.sign() - 1));
        if self.specials == Specials::NoNegativeZero && code == self.sign() {
            return f64::NAN;
        }
        let size = if magnitude > self.largest() {
            match self.specials {
                Specials::Ieee if magnitude == self.largest() + 1 => f64::INFINITY,
                _ => f64::NAN,
            }
        } else {
            let fraction = magnitude & ((1 << self.mantissa) - 1);
            let exponent = i32::from(magnitude >> self.mantissa);
            let hidden = if exponent == 0 { 0 } else { 1 << self.mantissa };
            let scale = exponent.max(1) - self.bias - self.mantissa as i32;
            f64::from(fraction | hidden) * 2f64.powi(scale)
        };
        if sign == 0 { size } else { -size }
    }

    fn encode(&self, value: f64, saturate: bool) -> u8 {
        let sign = if value.is_sign_negative() { self.sign() } else { 0 };
        if value.is_nan() {
            return match self.specials {
                // Quiet, as the type's own operations make it.
                Specials::Ieee => sign | (self.sign() - (1 << (self.mantissa - 1))),
                Specials::OnesAreNan => sign | (self.sign() - 1),
                Specials::NoNegativeZero => self.sign(),
                Specials::None => 0,
            };
        }
        // The exponent of the lowest bit that a number of this size keeps. Codes of one sign are in the
        // order of the numbers, so that rounding up into the next exponent is adding one to the code.
        let lowest = 1 - self.bias;
        let exponent = if value == 0.0 { lowest } else { exponent_of(value).max(lowest) };
        let steps = value.abs() / 2f64.powi(exponent - self.mantissa as i32);
        let code = steps.round_ties_even() + f64::from((exponent - lowest) << self.mantissa);
        let too_large = code.is_nan() || code > f64::from(self.largest());
        let magnitude = match (too_large, self.specials) {
            (false, _) => code as u8,
            (true, _) if saturate => self.largest(),
            (true, Specials::Ieee) => self.largest() + 1,
            (true, Specials::OnesAreNan) => self.sign() - 1,
            (true, Specials::NoNegativeZero) => return self.sign(),
            (true, Specials::None) => self.largest(),
        };
        match (magnitude, self.specials) {
            (0, Specials::NoNegativeZero) => 0,
            _ => sign | magnitude,
        }
    }
}

/// The largest `e` with `2^e` at most the size of `value`, which is not 0; for infinity, one more than
/// that of the largest number.
fn exponent_of(value: f64) -> i32 {
    let bits = value.abs().to_bits();
    match (bits >> 52) as i32 {
        0 => -1011 - bits.leading_zeros() as i32,
        biased => biased - 1023,
    }
}

/// The number that a code of a float type of at most eight bits stands for; NaN for other types. Bits above
/// those of the type are ignored.
pub fn decode_float(dtype: DType, code: u8) -> f64 {
    match coding(dtype) {
        Some(coding) => coding.decode(code),
        None if dtype == DType::F8E8M0 && code != u8::MAX => 2f64.powi(i32::from(code) - 127),
        None => f64::NAN,
    }
}

/// The code of the number nearest to `value`, ties to even, in a float type of at most eight bits. NaN
/// becomes 0 in F4E2M1, which has none, as do negative numbers in F8E8M0 NaN; its least number stands for 0
/// where `how` saturates, and NaN otherwise. 0 for other types.
pub fn encode_float(dtype: DType, value: f64, how: Narrowing) -> u8 {
    match coding(dtype) {
        Some(coding) => coding.encode(value, how.saturate),
        None if dtype == DType::F8E8M0 => encode_power(value, how),
        None => 0,
    }
}

fn encode_power(value: f64, how: Narrowing) -> u8 {
    const NAN: u8 = u8::MAX;
    if value.is_nan() || value < 0.0 {
        return NAN;
    }
    let beyond = |code| if how.saturate { code } else { NAN };
    if value == 0.0 {
        return beyond(0);
    }
    if value.is_infinite() {
        return beyond(NAN - 1);
    }
    let exponent = exponent_of(value);
    let below = 2f64.powi(exponent);
    let up = match how.powers {
        Powers::Up => value > below,
        Powers::Down => false,
        Powers::Nearest => value >= 1.5 * below,
    };
    match exponent + i32::from(up) + 127 {
        ..0 => beyond(0),
        code @ 0..=254 => code as u8,
        _ => beyond(NAN - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPES: [DType; 6] = [
        DType::F8E4M3FN,
        DType::F8E4M3FNUZ,
        DType::F8E5M2,
        DType::F8E5M2FNUZ,
        DType::F8E8M0,
        DType::F4E2M1,
    ];

    fn codes(dtype: DType) -> impl Iterator<Item = u8> {
        0..=((1u16 << dtype.bits()) - 1) as u8
    }

    /// All codes as `ml_dtypes` reads them, one type a line.
    const TABLE: &str = include_str!("narrow.txt");

    #[test]
    fn codes_stand_for_the_numbers_of_the_table() {
        for dtype in TYPES {
            let line = TABLE.lines().find_map(|l| l.strip_prefix(&format!("{dtype}: "))).unwrap();
            let expected: Vec<f64> = line.split(' ').map(|w| w.parse().unwrap()).collect();
            assert_eq!(expected.len(), 1 << dtype.bits());
            for (code, expected) in codes(dtype).zip(expected) {
                let found = decode_float(dtype, code);
                let same = found.to_bits() == expected.to_bits();
                assert!(same || (found.is_nan() && expected.is_nan()), "{dtype} {code}: {found}");
            }
        }
    }

    #[test]
    fn every_number_keeps_its_code() {
        for dtype in TYPES {
            for code in codes(dtype) {
                let value = decode_float(dtype, code);
                for saturate in [true, false] {
                    for powers in [Powers::Up, Powers::Down, Powers::Nearest] {
                        let back = encode_float(dtype, value, Narrowing { saturate, powers });
                        let again = decode_float(dtype, back);
                        let same = value.is_nan() && again.is_nan();
                        let most = value.is_infinite() && saturate && again.is_finite();
                        assert!(
                            same || most || back == code,
                            "{dtype} {code}: {value} gives {back}"
                        );
                    }
                }
            }
        }
    }

    /// From first principles: of the two numbers around one in the middle or near it, the nearer, and of
    /// two as near that with the even code.
    #[test]
    fn numbers_between_codes_go_to_the_nearer() {
        for dtype in TYPES.into_iter().filter(|d| *d != DType::F8E8M0) {
            let half = 1u8 << (dtype.bits() - 1);
            let encode = |v| encode_float(dtype, v, Narrowing::default());
            for code in 0..half - 1 {
                let (low, high) = (decode_float(dtype, code), decode_float(dtype, code + 1));
                if !high.is_finite() {
                    break;
                }
                let middle = (low + high) / 2.0;
                let even = if code % 2 == 0 { code } else { code + 1 };
                let (below, above) = (middle.next_down(), middle.next_up());
                assert_eq!([encode(below), encode(middle), encode(above)], [code, even, code + 1]);
                let negative = |code| match (code, coding(dtype).unwrap().specials) {
                    (0, Specials::NoNegativeZero) => 0,
                    _ => half | code,
                };
                assert_eq!(
                    [encode(-below), encode(-middle), encode(-above)],
                    [negative(code), negative(even), negative(code + 1)]
                );
            }
        }
    }

    #[test]
    fn what_is_too_large_saturates_or_not() {
        let loose = Narrowing { saturate: false, powers: Powers::Up };
        for (dtype, most, tie, beyond) in [
            (DType::F8E4M3FN, 448.0, 464.0f64, f64::NAN),
            (DType::F8E4M3FNUZ, 240.0, 248.0, f64::NAN),
            (DType::F8E5M2, 57344.0, 61440.0, f64::INFINITY),
            (DType::F8E5M2FNUZ, 57344.0, 61440.0, f64::NAN),
            (DType::F4E2M1, 6.0, 7.0, 6.0),
        ] {
            let number = |v, how| decode_float(dtype, encode_float(dtype, v, how));
            assert_eq!(number(tie.next_down(), loose), most);
            for v in [tie.next_up(), 1e30, f64::MAX, f64::INFINITY] {
                assert_eq!(number(v, Narrowing::default()), most, "{dtype} {v}");
                assert_eq!(number(-v, Narrowing::default()), -most, "{dtype} {v}");
                let (up, down) = (number(v, loose), number(-v, loose));
                assert!(up == beyond || (up.is_nan() && beyond.is_nan()), "{dtype} {v}: {up}");
                assert!(down == -beyond || (down.is_nan() && beyond.is_nan()), "{dtype} {v}");
            }
            let tiny = [f64::MIN_POSITIVE, f64::from_bits(1), -f64::from_bits(1)];
            assert!(tiny.iter().all(|&v| number(v, loose) == 0.0));
        }
    }

    #[test]
    fn powers_of_two_round_as_asked() {
        let code = |v: f64, saturate, powers| {
            encode_float(DType::F8E8M0, v, Narrowing { saturate, powers })
        };
        for (v, [up, down, nearest]) in [
            (1.0, [127, 127, 127]),
            (1.25, [128, 127, 127]),
            (1.5, [128, 127, 128]),
            (1.5f64.next_down(), [128, 127, 127]),
            (3.0, [129, 128, 129]),
            (1.5 * 2f64.powi(-127), [1, 0, 1]),
        ] {
            assert_eq!(code(v, true, Powers::Up), up, "{v}");
            assert_eq!(code(v, true, Powers::Down), down, "{v}");
            assert_eq!(code(v, true, Powers::Nearest), nearest, "{v}");
        }
        for (v, saturated) in [(0.0, 0), (1e-60, 0), (f64::from_bits(1), 0), (1e60, 254)] {
            assert_eq!(code(v, true, Powers::Up), saturated);
            assert_eq!(code(v, false, Powers::Nearest), 255);
        }
        assert_eq!(code(f64::INFINITY, true, Powers::Up), 254);
        assert_eq!(code(-1.0, true, Powers::Up), 255);
        assert_eq!(code(f64::NAN, true, Powers::Up), 255);
    }

    #[test]
    fn exponents_are_those_of_the_leading_bit() {
        for e in -1074..1024 {
            // `powi` rounds its way down to subnormal numbers.
            let power = if e < -1022 { f64::from_bits(1 << (e + 1074)) } else { 2f64.powi(e) };
            assert_eq!(exponent_of(power), e);
            assert_eq!(exponent_of(-power), e);
        }
    }
}
