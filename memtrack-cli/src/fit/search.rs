//! The search over limits, which are whole numbers of steps here.
//!
//! Whether a run completes need not change once only: with a little more memory a retry can come later and leave another hole. So a
//! binary search finds *a* limit that holds with one below that does not, and limits above it are tested too. When one of them does not
//! hold, the search begins again above it.

use std::collections::BTreeMap;

/// Where to search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// No smaller limit holds, which needs no test.
    pub first: u64,
    /// A limit that should hold; if it does not, larger ones are tried.
    pub upper: u64,
    /// No larger limit is tested.
    pub most: u64,
}

/// What a search came to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Found {
    /// The smallest limit from which on all tested limits hold. The one below does not.
    pub answer: u64,
    /// The smallest tested limit that holds: less than the answer when one between them does not.
    pub smallest: u64,
    /// Tested limits above the smallest that do not hold, in order.
    pub gaps: Vec<u64>,
    /// How many limits were tested, the ones above the answer apart.
    pub tested: usize,
    /// How many limits above the answer were tested.
    pub tested_above: usize,
    /// Whether every limit between the answer and `upper` was tested.
    pub is_complete: bool,
}

/// Searches for the smallest limit from which on all tested limits hold, `None` when none does. Above an answer `checks` limits are
/// tested, half of them the next ones, half from there to the upper one, and those of `also`.
///
/// # Errors
///
/// Whatever a test fails with.
pub fn search<E>(
    range: Range,
    checks: usize,
    also: &[u64],
    holds: impl FnMut(u64) -> Result<bool, E>,
) -> Result<Option<Found>, E> {
    let mut tests = Tests { known: BTreeMap::new(), holds };
    let mut first = range.first;
    let upper = range.upper.max(first);
    let Some(mut high) = tests.first_holding(upper, range.most)? else { return Ok(None) };
    let answer = loop {
        let answer = tests.bisect(first, high)?;
        for limit in checked_above(answer, upper, checks) {
            tests.holds(limit)?;
        }
        for limit in also.iter().copied().filter(|limit| *limit > answer) {
            tests.holds(limit)?;
        }
        let Some(gap) = tests.highest_gap().filter(|gap| *gap > answer) else { break answer };
        first = gap + 1;
        let known = tests.known.range(first..).next().map(|(limit, _)| *limit);
        match known {
            Some(known) => high = known,
            None => match tests.first_holding(first, range.most)? {
                Some(found) => high = found,
                None => return Ok(None),
            },
        }
    };
    let known = &tests.known;
    let smallest = known.iter().find(|(_, holds)| **holds).map_or(answer, |(limit, _)| *limit);
    let gaps = known.range(smallest..).filter(|(_, holds)| !**holds).map(|(limit, _)| *limit).collect();
    let tested_above = known.range(answer + 1..).count();
    let between = known.range(answer..=upper.max(answer)).count() as u64;
    Ok(Some(Found {
        answer,
        smallest,
        gaps,
        tested: known.len() - tested_above,
        tested_above,
        is_complete: between == upper.max(answer) - answer + 1,
    }))
}

/// The limits that are tested above an answer: the next ones, and some from there to the upper one, which is the last. They lie the closer
/// the nearer they are, since a limit that does not hold is mostly found not far above the first that does.
fn checked_above(answer: u64, upper: u64, checks: usize) -> Vec<u64> {
    let checks = checks as u64;
    let above = upper.saturating_sub(answer);
    if above <= checks {
        return (answer + 1..=answer + above).collect();
    }
    let spread = checks / 2;
    let next = checks - spread;
    let left_out = u128::from(above - checks);
    let squared = |number: u64| u128::from(number) * u128::from(number);
    let spread_limits =
        (1..=spread).map(|place| answer + next + place + (left_out * squared(place) / squared(spread)) as u64);
    (answer + 1..=answer + next).chain(spread_limits).collect()
}

/// The tests that were made, each once.
struct Tests<H> {
    known: BTreeMap<u64, bool>,
    holds: H,
}

impl<E, H: FnMut(u64) -> Result<bool, E>> Tests<H> {
    fn holds(&mut self, limit: u64) -> Result<bool, E> {
        if let Some(known) = self.known.get(&limit) {
            return Ok(*known);
        }
        let holds = (self.holds)(limit)?;
        self.known.insert(limit, holds);
        Ok(holds)
    }

    /// A limit that holds, from this one on, each twice the last.
    fn first_holding(&mut self, from: u64, most: u64) -> Result<Option<u64>, E> {
        let mut limit = from.min(most);
        loop {
            if self.holds(limit)? {
                return Ok(Some(limit));
            }
            if limit >= most {
                return Ok(None);
            }
            limit = limit.saturating_mul(2).max(limit + 1).min(most);
        }
    }

    /// A limit that holds and is either `first` or right above one that does not; `high` holds.
    fn bisect(&mut self, first: u64, high: u64) -> Result<u64, E> {
        let (mut low, mut high) = (first, high);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.holds(middle)? { high = middle } else { low = middle + 1 }
        }
        Ok(high)
    }

    fn highest_gap(&self) -> Option<u64> {
        self.known.iter().rev().find(|(_, holds)| !**holds).map(|(limit, _)| *limit)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn found(range: (u64, u64), checks: usize, also: &[u64], holds: impl Fn(u64) -> bool) -> Option<Found> {
        let range = Range { first: range.0, upper: range.1, most: 1000 };
        let tested = |limit| {
            assert!(limit >= range.first && limit <= range.most, "{limit} need not be tested");
            Ok::<bool, Infallible>(holds(limit))
        };
        search(range, checks, also, tested).unwrap_or_else(|never| match never {})
    }

    #[test]
    fn a_single_step_is_found_wherever_it_is() {
        for step in 10..=100 {
            let found = found((10, 100), 4, &[], |limit| limit >= step).unwrap();
            assert_eq!((found.answer, found.smallest, found.gaps.len()), (step, step, 0));
            assert!(found.tested_above >= 4.min(100 - step as usize));
        }
    }

    #[test]
    fn with_as_many_checks_as_limits_the_answer_is_that_of_testing_all() {
        for pattern in 0_u64..1 << 12 {
            let holds = |limit: u64| limit >= 12 || pattern >> limit & 1 == 1;
            let by_hand = (0..=12).rev().take_while(|limit| holds(*limit)).last().unwrap();
            let found = found((0, 12), 12, &[], holds).unwrap();
            assert_eq!(found.answer, by_hand, "{pattern:b}");
            assert!(found.is_complete);
            assert!(found.smallest <= found.answer && (found.smallest == found.answer) == found.gaps.is_empty());
        }
    }

    #[test]
    fn a_gap_above_the_first_answer_is_named_and_the_answer_lies_above_it() {
        let found = found((0, 100), 8, &[], |limit| limit >= 40 && limit != 43 && limit != 42).unwrap();
        assert_eq!((found.answer, found.smallest), (44, 40));
        assert_eq!(found.gaps, [42, 43]);
        assert!(!found.is_complete);
    }

    #[test]
    fn a_limit_that_was_asked_for_is_tested_too() {
        let holds = |limit: u64| limit >= 40 && limit != 777;
        assert_eq!(found((0, 100), 8, &[777], holds).unwrap().answer, 778);
        assert_eq!(found((0, 100), 8, &[], holds).unwrap().answer, 40);
    }

    #[test]
    fn an_upper_limit_that_does_not_hold_is_left_upwards_and_none_is_said_where_none_holds() {
        assert_eq!(found((0, 100), 8, &[], |limit| limit >= 333).unwrap().answer, 333);
        assert_eq!(found((0, 0), 8, &[], |limit| limit >= 1000).unwrap().answer, 1000);
        assert_eq!(found((0, 100), 8, &[], |_| false), None);
        assert_eq!(found((0, 100), 8, &[1000], |limit| (40..1000).contains(&limit)), None);
    }

    #[test]
    fn what_is_tested_above_lies_above_and_ends_at_the_upper_limit() {
        assert_eq!(checked_above(5, 8, 16), [6, 7, 8]);
        assert_eq!(checked_above(0, 100, 4), [1, 2, 27, 100]);
        assert_eq!(checked_above(0, 100, 1), [1]);
        assert_eq!(checked_above(0, 100, 0), [0; 0]);
        assert_eq!(checked_above(9, 9, 16), [0; 0]);
        for (answer, upper, checks) in [(0, 1 << 40, 16), (100, 120, 19), (3, 1000, 997)] {
            let limits = checked_above(answer, upper, checks);
            assert_eq!(limits.len(), checks);
            assert!(limits.windows(2).all(|pair| pair[0] < pair[1]) && limits[0] > answer);
            assert_eq!(limits.last(), Some(&upper));
        }
    }
}
