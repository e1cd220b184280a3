//! Byte sizes as people write and read them.
//!
//! Reading is strict: `6MiB` (2^20) and `6MB` (10^6) are different sizes and `6M` is neither, so it is refused.
//! Writing uses IEC units with two decimals, rounded to nearest, and never shows `1024.00 KiB` where `1.00 MiB` is meant.
//!
//! A crate of its own without dependencies, since `#[track_memory]` reads sizes while the program is compiled and memtrack
//! while it runs. Use it as `memtrack::units`.
#![forbid(unsafe_code)]

use std::fmt;

/// 2^10 bytes.
pub const KIB: u64 = 1 << 10;
/// 2^20 bytes.
pub const MIB: u64 = 1 << 20;
/// 2^30 bytes.
pub const GIB: u64 = 1 << 30;

/// What sizes look like, for messages.
pub const ACCEPTED_FORMS: &str = "a whole number of bytes, or a number with KiB, MiB, GiB, TiB (powers of 1024) or kB, MB, GB, TB (powers of 1000), as in `512MiB` or `1.5GiB`";

const UNITS: [(&str, u64); 9] = [
    ("B", 1),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
];

/// Why a text is not a size.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseSizeError {
    /// Nothing but white space.
    Empty,
    /// No digits before the unit, a sign, or two decimal points.
    NotANumber {
        /// The whole text as given.
        text: String,
    },
    /// `K`, `M`, `G` or `T` alone: two readings, 7 % apart at giga.
    AmbiguousUnit {
        /// The whole text as given.
        text: String,
        /// The unit found.
        unit: String,
    },
    /// A unit that does not exist, or with the wrong case.
    UnknownUnit {
        /// The whole text as given.
        text: String,
        /// The unit found.
        unit: String,
    },
    /// The number times the unit is not a whole number of bytes, such as `0.3B`.
    NotWhole {
        /// The whole text as given.
        text: String,
    },
    /// More than 2^64 - 1 bytes.
    TooLarge {
        /// The whole text as given.
        text: String,
    },
}

impl fmt::Display for ParseSizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "empty size; write {ACCEPTED_FORMS}"),
            Self::NotANumber { text } => write!(f, "`{text}` does not start with a number; write {ACCEPTED_FORMS}"),
            Self::AmbiguousUnit { text, unit } => write!(
                f,
                "ambiguous unit `{unit}` in `{text}`; write `{unit}B` (powers of 1000) or `{unit}iB` (powers of 1024)"
            ),
            Self::UnknownUnit { text, unit } => write!(f, "unknown unit `{unit}` in `{text}`; write {ACCEPTED_FORMS}"),
            Self::NotWhole { text } => write!(f, "`{text}` is not a whole number of bytes"),
            Self::TooLarge { text } => write!(f, "`{text}` is more than 2^64 - 1 bytes"),
        }
    }
}

impl std::error::Error for ParseSizeError {}

/// Reads a size such as `512`, `6MiB`, `1.5 GiB` or `80GB`.
///
/// # Errors
///
/// Every [`ParseSizeError`]; nothing is guessed.
pub fn parse_size(text: &str) -> Result<u64, ParseSizeError> {
    let owned = || text.to_owned();
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err(ParseSizeError::Empty);
    }
    let split = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let unit = unit.trim_start();
    let (whole, fraction) = match number.split_once('.') {
        Some((whole, fraction)) => (whole, fraction),
        None => (number, ""),
    };
    let digits_only = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits_only(fraction) || number.ends_with('.') {
        return Err(ParseSizeError::NotANumber { text: owned() });
    }
    let factor = if unit.is_empty() {
        1
    } else if let Some((_, factor)) = UNITS.iter().find(|(name, _)| *name == unit) {
        *factor
    } else if matches!(unit, "K" | "M" | "G" | "T") {
        return Err(ParseSizeError::AmbiguousUnit { text: owned(), unit: unit.to_owned() });
    } else {
        return Err(ParseSizeError::UnknownUnit { text: owned(), unit: unit.to_owned() });
    };
    // Exact decimal arithmetic: "1.5GiB" is 15 * 2^30 / 10. Floats would round 16777217.1-like inputs silently.
    let fraction = fraction.trim_end_matches('0');
    let too_large = || ParseSizeError::TooLarge { text: owned() };
    if fraction.len() > 18 {
        return Err(ParseSizeError::NotWhole { text: owned() });
    }
    let scale = 10_u128.pow(fraction.len() as u32);
    let digits: u128 = format!("{whole}{fraction}").parse().map_err(|_| too_large())?;
    let scaled = digits.checked_mul(u128::from(factor)).ok_or_else(too_large)?;
    if scaled % scale != 0 {
        return Err(ParseSizeError::NotWhole { text: owned() });
    }
    u64::try_from(scaled / scale).map_err(|_| too_large())
}

/// Bytes for people: `512 B`, `1.91 GiB`, and with a sign `-1.88 GiB`.
///
/// ```
/// use memtrack_units::Bytes;
/// assert_eq!(Bytes(512).to_string(), "512 B");
/// assert_eq!(Bytes(-1_048_576).to_string(), "-1.00 MiB");
/// assert_eq!(format!("{:+}", Bytes(2048)), "+2.00 KiB");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub i64);

impl Bytes {
    /// From an unsigned count; more than 2^63 - 1 shows as 2^63 - 1.
    pub fn unsigned(bytes: u64) -> Self {
        Self(i64::try_from(bytes).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let magnitude = self.0.unsigned_abs();
        let sign = match (self.0 < 0, f.sign_plus()) {
            (true, _) => "-",
            (false, true) => "+",
            (false, false) => "",
        };
        f.pad(&format!("{sign}{}", magnitude_text(magnitude)))
    }
}

fn magnitude_text(bytes: u64) -> String {
    if bytes < KIB {
        return format!("{bytes} B");
    }
    let mut unit_bytes = KIB;
    for unit in ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"] {
        // Hundredths, rounded half up, in whole numbers: a size just under the next unit moves up to it.
        let hundredths = (u128::from(bytes) * 100 + u128::from(unit_bytes / 2)) / u128::from(unit_bytes);
        if hundredths < 1024 * 100 || unit == "EiB" {
            return format!("{}.{:02} {unit}", hundredths / 100, hundredths % 100);
        }
        unit_bytes = unit_bytes.saturating_mul(1024);
    }
    unreachable!("every size is below 16 EiB, which the last unit covers")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_exactly_or_refused() {
        assert_eq!(parse_size("512"), Ok(512));
        assert_eq!(parse_size(" 6MiB "), Ok(6 * MIB));
        assert_eq!(parse_size("6 MB"), Ok(6_000_000));
        assert_eq!(parse_size("1.5GiB"), Ok(3 * GIB / 2));
        assert_eq!(parse_size("0.5KiB"), Ok(512));
        assert_eq!(parse_size("18446744073709551615"), Ok(u64::MAX));
        assert_eq!(parse_size(""), Err(ParseSizeError::Empty));
        assert!(matches!(parse_size("2G"), Err(ParseSizeError::AmbiguousUnit { unit, .. }) if unit == "G"));
        assert!(matches!(parse_size("2mib"), Err(ParseSizeError::UnknownUnit { .. })));
        assert!(matches!(parse_size("-1"), Err(ParseSizeError::NotANumber { .. })));
        assert!(matches!(parse_size("1..5MiB"), Err(ParseSizeError::NotANumber { .. })));
        assert!(matches!(parse_size("1.MiB"), Err(ParseSizeError::NotANumber { .. })));
        assert!(matches!(parse_size("0.3B"), Err(ParseSizeError::NotWhole { .. })));
        assert!(matches!(parse_size("18446744073709551616"), Err(ParseSizeError::TooLarge { .. })));
        assert!(matches!(parse_size("99999999999TiB"), Err(ParseSizeError::TooLarge { .. })));
        assert!(matches!(parse_size(&"9".repeat(60)), Err(ParseSizeError::TooLarge { .. })));
        assert!(matches!(parse_size("1.0000000000000000000000001GiB"), Err(ParseSizeError::NotWhole { .. })));
    }

    #[test]
    fn sizes_are_shown_rounded_to_nearest_in_the_unit_that_fits() {
        let shown = |bytes: i64| Bytes(bytes).to_string();
        assert_eq!(shown(0), "0 B");
        assert_eq!(shown(1023), "1023 B");
        assert_eq!(shown(1024), "1.00 KiB");
        assert_eq!(shown(1_048_575), "1.00 MiB");
        assert_eq!(shown(-2_147_483_647), "-2.00 GiB");
        assert_eq!(shown(i64::MAX), "8.00 EiB");
        assert_eq!(shown(i64::MIN), "-8.00 EiB");
        assert_eq!(format!("{:>12}", Bytes(2048)), "    2.00 KiB");
    }
}
