//! Sums of figures that come from anywhere, a damaged file too: they stop at the largest number instead of overflowing.

/// The sum, at most [`u64::MAX`].
pub(super) fn total(figures: impl IntoIterator<Item = u64>) -> u64 {
    figures.into_iter().fold(0, u64::saturating_add)
}

/// `part` is at most one part in `parts` of `whole`.
pub(super) fn is_at_most_one_in(parts: u64, part: u64, whole: u64) -> bool {
    u128::from(part) * u128::from(parts) <= u128::from(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_stop_at_the_largest_number_and_shares_are_exact() {
        assert_eq!(total([1, 2, 3]), 6);
        assert_eq!(total([u64::MAX, 1, u64::MAX]), u64::MAX);
        assert!(is_at_most_one_in(10, 1, 10) && !is_at_most_one_in(10, 2, 19));
        assert!(!is_at_most_one_in(10, u64::MAX / 9, u64::MAX));
    }
}
