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

/// Sizes that a text compares: those that differ and would read the same are shown with their bytes, as `1.00 GiB (1073741825 B)`.
pub(super) fn compared<const COUNT: usize>(bytes: [u64; COUNT]) -> [String; COUNT] {
    told_apart(bytes, |bytes| size(bytes).to_string())
}

/// As [`compared`], of sizes that are shown in another way.
pub(crate) fn told_apart<const COUNT: usize>(bytes: [u64; COUNT], show: impl Fn(u64) -> String) -> [String; COUNT] {
    let texts = bytes.map(show);
    let is_ambiguous = |at: usize| (0..COUNT).any(|other| texts[other] == texts[at] && bytes[other] != bytes[at]);
    std::array::from_fn(
        |at| {
            if is_ambiguous(at) { format!("{} ({} B)", texts[at], bytes[at]) } else { texts[at].clone() }
        },
    )
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

    #[test]
    fn sizes_that_differ_never_read_the_same_where_they_are_compared() {
        assert_eq!(compared([GIB, GIB, MIB]), ["1.00 GiB", "1.00 GiB", "1.00 MiB"]);
        assert_eq!(compared([GIB + 1, GIB, MIB]), ["1.00 GiB (1073741825 B)", "1.00 GiB (1073741824 B)", "1.00 MiB"]);
        assert_eq!(compared([u64::MAX, u64::MAX - 1]).map(|text| text.ends_with("B)")), [true, true]);
    }
}
