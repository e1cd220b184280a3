//! A leak that begins late: the latest part of the series is one by itself, and ends higher than what was before, but for spikes.
//!
//! What fills and is emptied again and again comes back to where it was, and is none. A spike, held for a few steps and released, says
//! nothing about a rise that comes after it, however high it was. The two are told apart by how fast they rise.

use super::leak::Floor;
use super::series::{median_floor, rises_throughout, slope};

/// The shortest part of a long series that is looked at; of a short one it is the last half.
const LATEST_COUNT: usize = 64;
/// A part with fewer steps is not judged by itself.
const LEAST_PART_COUNT: usize = 16;
/// One in so many steps of the part is the longest that a spike may be held.
const SPIKE_PART: usize = 8;
/// A spike comes and goes so many times faster than the part rises.
const SPIKE_SPEED: i128 = 4;
/// All spikes together are at most one in so many of the steps before.
const SPIKES_PART: usize = 8;

/// The slope and the number of steps of the latest part, if that is a leak by itself.
pub(super) fn late_leak(floors: &[Floor]) -> Option<(i64, usize)> {
    let half_count = floors.len() / 2;
    let shorter = std::iter::successors(Some(half_count / 2), |count| Some(count / 2));
    let shorter = shorter.take_while(|count| *count > LATEST_COUNT);
    let counts = [floors.len() - half_count, floors.len().min(LATEST_COUNT)].into_iter().chain(shorter);
    counts.filter(|count| *count >= LEAST_PART_COUNT).find_map(|count| {
        let part = &floors[floors.len() - count..];
        if !rises_throughout(part) {
            return None;
        }
        let slope_bytes = slope(part);
        (slope_bytes > 0 && is_new_height(floors, count, slope_bytes)).then_some((slope_bytes, count))
    })
}

/// Whether the last quarter of the part, of so many steps, is higher than all that was before the part and in its first quarter; spikes
/// are left out.
fn is_new_height(floors: &[Floor], part_count: usize, slope_bytes: i64) -> bool {
    let before_count = floors.len() - part_count + part_count / 4;
    let Some(end_bytes) = median_floor(&floors[floors.len() - part_count / 4..]) else { return false };
    let longest = part_count / SPIKE_PART;
    let (mut at, mut spike_count) = (0, 0);
    while at < before_count {
        let length = floors[at..].iter().take_while(|floor| floor.live_bytes >= end_bytes).count();
        if length > 0 {
            let low_bytes = i128::from(end_bytes) - SPIKE_SPEED * longest as i128 * i128::from(slope_bytes);
            let is_low = |side: &[Floor]| median_floor(side).is_none_or(|bytes| i128::from(bytes) <= low_bytes);
            let (earlier, later) = (&floors[at.saturating_sub(longest)..at], &floors[at + length..]);
            if length > longest || !is_low(earlier) || !is_low(&later[..later.len().min(longest)]) {
                return false;
            }
            spike_count += length;
        }
        at += length.max(1);
    }
    spike_count * SPIKES_PART <= before_count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(live: impl IntoIterator<Item = i64>) -> Option<(i64, usize)> {
        let floor = |(number, live_bytes)| Floor { number, live_bytes, peak_bytes: None };
        late_leak(&(1..).zip(live).map(floor).collect::<Vec<_>>())
    }

    /// Steps without growth, a spike of so many steps in the midst of them, then steps that each keep ten bytes.
    fn after_a_spike(flat: i64, spike: i64, leaking: i64) -> Vec<i64> {
        let of_step = |n: i64| {
            let spike = if (flat / 2..flat / 2 + spike).contains(&n) { 1_000_000 } else { 0 };
            spike + (n + 1 - flat).max(0) * 10
        };
        (0..flat + leaking).map(of_step).collect()
    }

    #[test]
    fn a_spike_before_it_does_not_hide_a_leak() {
        assert_eq!(found(after_a_spike(200, 0, 60)), Some((10, 64)));
        assert_eq!(found(after_a_spike(200, 1, 60)), Some((10, 64)));
        assert_eq!(found(after_a_spike(200, 8, 60)), Some((10, 64)));
        assert_eq!(found(after_a_spike(200, 20, 60)), None, "held for long: it may come again");
        assert_eq!(found(after_a_spike(200, 3, 0)), None);
    }

    #[test]
    fn what_comes_back_to_where_it_was_is_no_leak_however_often() {
        for end in 150..700 {
            assert_eq!(found((0..end).map(|n| n % 100)), None, "filled and emptied in turn, {end} steps");
        }
    }
}
