//! What grew between two lists of live blocks.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::view::LiveGroup;
use crate::units::signed;

/// What one scope's live blocks grew by.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupGrowth {
    /// The name of the scope; empty outside of all.
    pub scope: String,
    /// In rounded bytes.
    pub size_bytes: i64,
    /// In blocks.
    pub block_count: i64,
    /// The lines in it that grew: place, rounded bytes and blocks; most bytes first.
    pub places: Vec<(String, i64, i64)>,
}

/// What grew between two lists of live blocks, by scope, the most bytes first; what shrank or stayed is left out.
pub fn growth_by_group(before: &[LiveGroup], after: &[LiveGroup]) -> Vec<GroupGrowth> {
    let mut grown: HashMap<(&str, &str), (i64, i64)> = HashMap::new();
    for (groups, sign) in [(before, -1), (after, 1)] {
        for group in groups {
            let (bytes, blocks) = grown.entry((&group.scope, &group.place)).or_default();
            *bytes = bytes.saturating_add(sign * signed(group.size_bytes));
            *blocks = blocks.saturating_add(sign * signed(group.block_count));
        }
    }
    let mut scopes: HashMap<&str, GroupGrowth> = HashMap::new();
    for ((scope, place), (bytes, blocks)) in grown.into_iter().filter(|(_, (bytes, _))| *bytes > 0) {
        let group = scopes.entry(scope).or_insert_with(|| GroupGrowth {
            scope: scope.to_owned(),
            size_bytes: 0,
            block_count: 0,
            places: Vec::new(),
        });
        group.size_bytes = group.size_bytes.saturating_add(bytes);
        group.block_count = group.block_count.saturating_add(blocks);
        group.places.push((place.to_owned(), bytes, blocks));
    }
    let mut scopes: Vec<GroupGrowth> = scopes.into_values().collect();
    for group in &mut scopes {
        group.places.sort_by(|a, b| (Reverse(a.1), &a.0).cmp(&(Reverse(b.1), &b.0)));
    }
    scopes.sort_by(|a, b| (Reverse(a.size_bytes), &a.scope).cmp(&(Reverse(b.size_bytes), &b.scope)));
    scopes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_summed_by_scope_with_its_lines() {
        let group = |scope: &str, place: &str, blocks, bytes| LiveGroup {
            place: place.to_owned(),
            scope: scope.to_owned(),
            block_count: blocks,
            requested_bytes: bytes,
            size_bytes: bytes,
        };
        let before = [group("step", "a:1", 2, 20), group("model", "m:1", 1, 500)];
        let after = [group("step", "a:1", 5, 50), group("step", "a:2", 3, 12), group("model", "m:1", 1, 500)];
        let growth = growth_by_group(&before, &after);
        let [step] = &growth[..] else { panic!("{growth:?}") };
        assert_eq!((step.scope.as_str(), step.size_bytes, step.block_count), ("step", 42, 6));
        assert_eq!(step.places, [("a:1".to_owned(), 30, 3), ("a:2".to_owned(), 12, 3)]);
        assert_eq!(growth_by_group(&after, &before), []);
    }
}
