//! Sizes in the texts of findings.

use std::fmt;

use crate::units::{Bytes, GIB, MIB};

/// As [`Bytes`], and in whole MiB where two decimals of a GiB would hide what a finding is about: 4094 MiB idle do not serve 4 GiB.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size(u64);

pub(super) fn size(bytes: u64) -> Size {
    Size(bytes)
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(bytes) = *self;
        let is_exact = u128::from(bytes) * 100 % u128::from(GIB) == 0;
        if (GIB..100 * GIB).contains(&bytes) && bytes.is_multiple_of(MIB) && !is_exact {
            write!(f, "{} MiB", bytes / MIB)
        } else {
            Bytes::unsigned(bytes).fmt(f)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_decimals_would_hide_is_shown_in_whole_mebibytes() {
        let shown = [512, 254 * MIB, 1022 * MIB, 4 * GIB, 4094 * MIB, 10 * GIB + 1, 1_000_000 * MIB]
            .map(|bytes| size(bytes).to_string());
        assert_eq!(shown, ["512 B", "254.00 MiB", "1022.00 MiB", "4.00 GiB", "4094 MiB", "10.00 GiB", "976.56 GiB"]);
    }
}
