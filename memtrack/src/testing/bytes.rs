//! Sizes as tests write them.

use crate::units::{ParseSizeError, parse_size};

/// Why something is no size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SizeError {
    /// A text that is none.
    #[error(transparent)]
    Text(#[from] ParseSizeError),
    /// Fewer bytes than none.
    #[error("{bytes} bytes: a size cannot be negative")]
    Negative {
        /// As given.
        bytes: i64,
    },
}

/// What can stand for a size: a text such as `"2 MiB"`, read by [`parse_size`], or a whole number of bytes.
pub trait IntoBytes {
    /// The size in bytes.
    ///
    /// # Errors
    ///
    /// [`SizeError`] for a text that is no size, and for a negative number.
    fn into_bytes(self) -> Result<u64, SizeError>;
}

impl IntoBytes for &str {
    fn into_bytes(self) -> Result<u64, SizeError> {
        Ok(parse_size(self)?)
    }
}

impl IntoBytes for u64 {
    fn into_bytes(self) -> Result<u64, SizeError> {
        Ok(self)
    }
}

impl IntoBytes for u32 {
    fn into_bytes(self) -> Result<u64, SizeError> {
        Ok(self.into())
    }
}

impl IntoBytes for usize {
    fn into_bytes(self) -> Result<u64, SizeError> {
        // No machine has more than 64 bits of addresses.
        Ok(self as u64)
    }
}

impl IntoBytes for i64 {
    fn into_bytes(self) -> Result<u64, SizeError> {
        u64::try_from(self).map_err(|_| SizeError::Negative { bytes: self })
    }
}

/// Number literals, which are `i32` where nothing else is asked for.
impl IntoBytes for i32 {
    fn into_bytes(self) -> Result<u64, SizeError> {
        i64::from(self).into_bytes()
    }
}

/// The size, or a panic at the caller's line.
#[track_caller]
pub(super) fn required(size: impl IntoBytes) -> u64 {
    match size.into_bytes() {
        Ok(bytes) => bytes,
        Err(error) => panic!("memtrack: not a size: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_sizes_and_numbers_are_bytes() {
        assert_eq!("2 MiB".into_bytes(), Ok(2 << 20));
        assert_eq!("512".into_bytes(), Ok(512));
        assert_eq!(7_i32.into_bytes(), Ok(7));
        assert_eq!(7_i64.into_bytes(), Ok(7));
        assert_eq!(u64::MAX.into_bytes(), Ok(u64::MAX));
        assert_eq!(7_u32.into_bytes(), Ok(7));
        assert_eq!(7_usize.into_bytes(), Ok(7));
        assert_eq!((-7).into_bytes(), Err(SizeError::Negative { bytes: -7 }));
        assert!(matches!("2G".into_bytes(), Err(SizeError::Text(ParseSizeError::AmbiguousUnit { .. }))));
    }
}
