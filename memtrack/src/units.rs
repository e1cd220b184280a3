//! Byte sizes as people write and read them.

pub use memtrack_units::{ACCEPTED_FORMS, Bytes, GIB, KIB, MIB, ParseSizeError, parse_size};

/// A count for fields of spans and events: signed, since exporters turn unsigned numbers into text, and at most 2^63 - 1.
pub(crate) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
