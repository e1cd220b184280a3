//! Numbers as C's library reads them, which is how PyTorch reads its settings.
//!
//! A sign may lead, what follows the number is ignored, and a whole number below zero wraps around.

/// Why a text gave no number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NumberError {
    /// It does not begin with one.
    NotANumber,
    /// It does not fit.
    OutOfRange,
}

/// The sign that a text may begin with, and the rest.
fn signed(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

fn digits_at(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// As `strtoull` with base 10.
pub(super) fn unsigned(text: &str) -> Result<u64, NumberError> {
    let (negative, rest) = signed(text);
    let digits = &rest[..digits_at(rest)];
    if digits.is_empty() {
        return Err(NumberError::NotANumber);
    }
    let magnitude: u64 = digits.parse().map_err(|_| NumberError::OutOfRange)?;
    Ok(if negative { magnitude.wrapping_neg() } else { magnitude })
}

/// As `strtod` in the C locale: decimal and hexadecimal numbers, infinities and not-a-number.
pub(super) fn double(text: &str) -> Result<f64, NumberError> {
    let (negative, rest) = signed(text);
    let begins = |word: &str| rest.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    let magnitude = if begins("inf") {
        f64::INFINITY
    } else if begins("nan") {
        f64::NAN
    } else if begins("0x") {
        hexadecimal(&rest[2..])?
    } else {
        decimal(rest)?
    };
    Ok(if negative { -magnitude } else { magnitude })
}

fn decimal(text: &str) -> Result<f64, NumberError> {
    let whole = digits_at(text);
    let mut end = whole;
    let mut fraction = 0;
    if let Some(after) = text[end..].strip_prefix('.') {
        fraction = digits_at(after);
        end += 1 + fraction;
    }
    if whole + fraction == 0 {
        return Err(NumberError::NotANumber);
    }
    let is_zero = !text[..end].bytes().any(|byte| matches!(byte, b'1'..=b'9'));
    end += exponent(&text[end..], b'e').map_or(0, |(_, length)| length);
    let value: f64 = text[..end].parse().map_err(|_| NumberError::NotANumber)?;
    // C's library also refuses what is too small to be held exactly. A decimal that small and yet exact has hundreds of
    // digits; it is refused with the others.
    if value.is_infinite() || (!value.is_normal() && !is_zero) {
        return Err(NumberError::OutOfRange);
    }
    Ok(value)
}

/// An exponent after its letter: its value, saturated, and its length with the letter. Without digits there is none.
fn exponent(text: &str, letter: u8) -> Option<(i64, usize)> {
    let first = text.as_bytes().first()?;
    if !first.eq_ignore_ascii_case(&letter) {
        return None;
    }
    let (negative, rest) = signed(&text[1..]);
    let digits = &rest[..digits_at(rest)];
    if digits.is_empty() {
        return None;
    }
    let magnitude = digits.parse().unwrap_or(i64::MAX);
    Some((if negative { -magnitude } else { magnitude }, text.len() - rest.len() + digits.len()))
}

/// What follows `0x`. Without a digit there the number is the `0` alone.
fn hexadecimal(text: &str) -> Result<f64, NumberError> {
    let (mut mantissa, mut power, mut end) = (0_u64, 0_i64, 0);
    let (mut lost, mut point) = (false, false);
    for character in text.chars() {
        match character.to_digit(16) {
            Some(digit) if mantissa < 1 << 58 => {
                mantissa = mantissa << 4 | u64::from(digit);
                power -= if point { 4 } else { 0 };
            }
            Some(digit) => {
                lost |= digit != 0;
                power += if point { 0 } else { 4 };
            }
            None if character == '.' && !point => point = true,
            None => break,
        }
        end += 1;
    }
    if mantissa == 0 {
        return Ok(0.0);
    }
    power = power.saturating_add(exponent(&text[end..], b'p').map_or(0, |(value, _)| value));
    // Only the fact that something was lost matters for rounding: 58 bits are kept, 53 are needed.
    mantissa |= u64::from(lost);
    let highest = power.saturating_add(i64::from(mantissa.ilog2()));
    if !(-1075..=1023).contains(&highest) {
        return Err(NumberError::OutOfRange);
    }
    // In two steps, as the power alone may be beyond what a number holds.
    let half = power / 2;
    let value = mantissa as f64 * power_of_two(half) * power_of_two(power - half);
    let exact = !lost && power + i64::from(mantissa.trailing_zeros()) >= -1074;
    if value.is_infinite() || (!value.is_normal() && !exact) {
        return Err(NumberError::OutOfRange);
    }
    Ok(value)
}

/// 2 to a power from -1022 to 1023.
fn power_of_two(power: i64) -> f64 {
    f64::from_bits(((power + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_are_read_as_c_reads_them() {
        assert_eq!(unsigned("30"), Ok(30));
        assert_eq!(unsigned("+30"), Ok(30));
        assert_eq!(unsigned("30abc"), Ok(30));
        assert_eq!(unsigned("0x10"), Ok(0));
        assert_eq!(unsigned("-1"), Ok(u64::MAX));
        assert_eq!(unsigned("-18446744073709551615"), Ok(1));
        assert_eq!(unsigned("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(unsigned("18446744073709551616"), Err(NumberError::OutOfRange));
        assert_eq!(unsigned("-18446744073709551616"), Err(NumberError::OutOfRange));
        assert_eq!(unsigned("1.9"), Ok(1));
        for text in ["", "abc", "-", "+-5", "--5", ".5", ":", "٣"] {
            assert_eq!(unsigned(text), Err(NumberError::NotANumber), "{text}");
        }
    }

    #[test]
    fn numbers_are_read_as_c_reads_them() {
        let rows = [
            ("0.5", 0.5),
            (".5", 0.5),
            ("5.", 5.0),
            ("+0.5x", 0.5),
            ("-0.5", -0.5),
            ("5e-1", 0.5),
            ("5.e-1", 0.5),
            ("5e", 5.0),
            ("5e+", 5.0),
            ("5ex", 5.0),
            ("0.5.5", 0.5),
            ("0e99999999999999999999", 0.0),
            ("0x1p-1", 0.5),
            ("0X.8", 0.5),
            ("0x1.8", 1.5),
            ("0x", 0.0),
            ("0x.", 0.0),
            ("0xg", 0.0),
            ("0x1p", 1.0),
            ("0x1p-1074", f64::from_bits(1)),
            ("0x1.fffffffffffffp1023", f64::MAX),
            ("0x10000000000000000p-65", 0.5),
            ("0x1.00000000000008p0", 1.0),
            ("0x1.000000000000080000000001p0", 1.0 + f64::EPSILON),
            ("0x0.00000000000000000000000001p100", 1.0 / 16.0),
            ("-Infinity", f64::NEG_INFINITY),
            ("infx", f64::INFINITY),
            ("2.2250738585072014e-308", f64::MIN_POSITIVE),
        ];
        for (text, value) in rows {
            assert_eq!(double(text), Ok(value), "{text}");
        }
        assert!(double("nan").unwrap().is_nan());
        assert!(double("-NaN(1)").unwrap().is_nan());
        for text in ["1e999", "1e99999999999999999999", "1e-400", "4.9e-324", "0x1p1024", "0x1p-1075", "0x1.8p-1074"] {
            assert_eq!(double(text), Err(NumberError::OutOfRange), "{text}");
        }
        for text in ["", ".", "e5", "-", "+.e1", "abc", "in", "x1", "½"] {
            assert_eq!(double(text), Err(NumberError::NotANumber), "{text}");
        }
    }
}
