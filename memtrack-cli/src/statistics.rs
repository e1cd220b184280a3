//! The statistics by name, as files have them, without a map at each step.

use std::sync::OnceLock;

use memtrack::MemoryStats;

/// One of the statistics of `torch.cuda.memory_stats`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StatisticKey(usize);

impl StatisticKey {
    /// The statistic of this name, `None` when there is none.
    pub fn find(name: &str) -> Option<Self> {
        names().binary_search_by(|known| known.as_str().cmp(name)).ok().map(Self)
    }

    /// The name, such as `allocated_bytes.all.peak`.
    pub fn name(self) -> &'static str {
        names().get(self.0).map_or("", String::as_str)
    }

    /// All of them, sorted by name.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..names().len()).map(Self)
    }
}

/// All names, sorted.
fn names() -> &'static [String] {
    static NAMES: OnceLock<Vec<String>> = OnceLock::new();
    NAMES.get_or_init(|| MemoryStats::default().to_map().into_keys().collect())
}

/// The value of every statistic at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Values(Vec<i64>);

impl From<&MemoryStats> for Values {
    fn from(stats: &MemoryStats) -> Self {
        Self(stats.to_map().into_values().collect())
    }
}

impl Values {
    /// The value of a statistic.
    pub fn get(&self, key: StatisticKey) -> i64 {
        self.0.get(key.0).copied().unwrap_or_default()
    }
}

/// What statistics should be, as far as anything said so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expectation(Vec<Option<i64>>);

impl Default for Expectation {
    /// Nothing is expected.
    fn default() -> Self {
        Self(vec![None; names().len()])
    }
}

impl Expectation {
    /// Expects this value from now on.
    pub fn set(&mut self, key: StatisticKey, value: i64) {
        if let Some(expected) = self.0.get_mut(key.0) {
            *expected = Some(value);
        }
    }

    /// How many statistics are expected to have some value.
    pub fn len(&self) -> usize {
        self.0.iter().flatten().count()
    }

    /// Whether nothing is expected.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first statistic by name that is not as expected: which, what it should be, and what it is.
    pub fn first_difference(&self, values: &Values) -> Option<(StatisticKey, i64, i64)> {
        let pairs = self.0.iter().zip(&values.0).enumerate();
        pairs
            .filter_map(|(index, (expected, got))| expected.map(|expected| (StatisticKey(index), expected, *got)))
            .find(|(_, expected, got)| expected != got)
    }
}

impl FromIterator<(StatisticKey, i64)> for Expectation {
    fn from_iter<I: IntoIterator<Item = (StatisticKey, i64)>>(pairs: I) -> Self {
        let mut expectation = Self::default();
        pairs.into_iter().for_each(|(key, value)| expectation.set(key, value));
        expectation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_and_no_other() {
        assert_eq!(StatisticKey::all().count(), 122);
        for key in StatisticKey::all() {
            assert_eq!(StatisticKey::find(key.name()), Some(key));
        }
        assert_eq!(StatisticKey::find("active.all"), None);
        let stats = MemoryStats::default();
        assert_eq!(Values::from(&stats).get(StatisticKey::find("num_ooms").unwrap()), 0);
    }

    #[test]
    fn only_what_is_expected_is_compared() {
        let (ooms, peak) = ("num_ooms", "segment.all.peak");
        let key = |name| StatisticKey::find(name).unwrap();
        let values = Values::from(&MemoryStats::default());
        let mut expectation = Expectation::default();
        assert_eq!(expectation.first_difference(&values), None);
        expectation.set(key(peak), 1);
        expectation.set(key(ooms), 2);
        assert_eq!(expectation.first_difference(&values), Some((key(ooms), 2, 0)));
        assert_eq!(expectation.len(), 2);
    }
}
