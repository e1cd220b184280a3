//! What tracking costs a step: epochs with and without it in turns, in one process.
//!
//! Two processes would differ by more than what is looked for: by where their memory and threads came to lie.

use std::fmt;
use std::time::Duration;

/// The first epochs are left out: kernels are loaded in them, and the cache fills.
const WARM_UP_COUNT: usize = 2;

/// The steps of each epoch, and whether it was tracked.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    epochs: Vec<(bool, Vec<Duration>)>,
}

impl Comparison {
    /// Another epoch begins; whether it is to be tracked. Of every two epochs one is, and not always the first one.
    pub(crate) fn next_epoch(&mut self) -> bool {
        let tracked = matches!(self.epochs.len() % 4, 0 | 3);
        self.epochs.push((tracked, Vec::new()));
        tracked
    }

    /// A step of it took so long.
    pub(crate) fn step(&mut self, took: Duration) {
        if let Some((_, steps)) = self.epochs.last_mut() {
            steps.push(took);
        }
    }

    /// For each two epochs the median steps, tracked and not.
    fn pairs(&self) -> Vec<(f64, f64)> {
        let mut pairs = Vec::new();
        for pair in self.epochs.get(WARM_UP_COUNT..).unwrap_or_default().chunks_exact(2) {
            let median_of = |tracked| pair.iter().find(|epoch| epoch.0 == tracked).and_then(|epoch| median(&epoch.1));
            if let (Some(tracked), Some(untracked)) = (median_of(true), median_of(false)) {
                pairs.push((tracked, untracked));
            }
        }
        pairs
    }
}

/// In nanoseconds.
fn median(steps: &[Duration]) -> Option<f64> {
    middle(steps.iter().map(|step| step.as_nanos() as f64).collect())
}

fn middle(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = self.pairs();
        let ratio = middle(pairs.iter().map(|(tracked, untracked)| tracked / untracked).collect());
        let tracked = middle(pairs.iter().map(|pair| pair.0).collect());
        let untracked = middle(pairs.iter().map(|pair| pair.1).collect());
        match (ratio, tracked, untracked) {
            (Some(ratio), Some(tracked), Some(untracked)) => write!(
                f,
                "a step takes {tracked:.0} ns tracked and {untracked:.0} ns untracked; median ratio of {} pairs of epochs {ratio:.4}",
                pairs.len()
            ),
            _ => f.write_str("too few epochs to compare; four are needed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_of_epochs_are_compared_by_their_median_steps() {
        let mut comparison = Comparison::default();
        assert_eq!(comparison.to_string(), "too few epochs to compare; four are needed");
        for _ in 0..6 {
            let nanoseconds = if comparison.next_epoch() { [110, 5000, 100] } else { [100, 90, 4000] };
            nanoseconds.into_iter().for_each(|nanoseconds| comparison.step(Duration::from_nanos(nanoseconds)));
        }
        let tracked: Vec<bool> = comparison.epochs.iter().map(|epoch| epoch.0).collect();
        assert_eq!(tracked, [true, false, false, true, true, false]);
        assert_eq!(
            comparison.to_string(),
            "a step takes 110 ns tracked and 100 ns untracked; median ratio of 2 pairs of epochs 1.1000"
        );
    }
}
