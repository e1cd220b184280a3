//! What a series of floors does as a whole, by measures that a few steps which differ do not move.

use super::leak::Floor;

/// Pairs are compared of at most so many steps, evenly spread.
const SAMPLE_COUNT: usize = 128;
/// The slopes of pairs of at most so many: each is a division, and all are sorted out.
const SLOPE_SAMPLE_COUNT: usize = 48;
/// From so many steps on the medians of eight parts are compared, else of four.
const EIGHT_PARTS_COUNT: usize = 32;
/// With fewer rises nothing rises again and again: three workspaces, made one after the other, are no leak.
const LEAST_RISE_COUNT: usize = 4;
/// From one part to the next at least one in so many of the average counts as a rise.
const RISE_PART: i128 = 4;
/// So many standard deviations are no chance; of a short series nine tenths of all pairs are asked for at most.
const CHANCE_DEVIATIONS: f64 = 4.0;
/// Steps that keep what came before them, as a random walk does, rise so many deviations of their own before it is no chance.
const WALK_DEVIATIONS: f64 = 4.0;
/// One in so many of the steps is the stretch over which a walk is looked at.
const WALK_PART: usize = 8;
/// Over a stretch, what comes back moves by so much less than what does not.
const COMES_BACK_PART: f64 = 4.0;
/// A series that has come down to one in so many of its rise is back at its start.
const BACK_PART: i128 = 4;
/// At least so many steps without a rise, and one in `STALLED_PART` of all, end a rise.
const LEAST_STALLED_COUNT: usize = 4;
const STALLED_PART: usize = 8;
const SHORT_SHARE: f64 = 0.9;

/// The median of the slopes between all pairs, in whole bytes per step.
pub(super) fn slope(floors: &[Floor]) -> i64 {
    let samples = samples(floors, SLOPE_SAMPLE_COUNT);
    let mut slopes: Vec<i64> = Vec::with_capacity(samples.len() * samples.len() / 2);
    for (index, (later, later_bytes)) in samples.iter().enumerate() {
        for (earlier, earlier_bytes) in &samples[index + 1..] {
            slopes.push(later_bytes.saturating_sub(*earlier_bytes) / (later - earlier));
        }
    }
    median(&mut slopes).unwrap_or(0)
}

/// Places and floors, the last first.
fn samples(floors: &[Floor], most: usize) -> Vec<(i64, i64)> {
    let stride = floors.len().div_ceil(most).max(1);
    floors.iter().enumerate().rev().step_by(stride).map(|(at, floor)| (at as i64, floor.live_bytes)).collect()
}

/// The lower of the two in the middle, when there are two. The order of the values changes; they are not sorted, which would take
/// ten times as long.
pub(super) fn median(values: &mut [i64]) -> Option<i64> {
    let middle = values.len().checked_sub(1)? / 2;
    Some(*values.select_nth_unstable(middle).1)
}

/// The same of floors.
pub(super) fn median_floor(floors: &[Floor]) -> Option<i64> {
    median(&mut floors.iter().map(|floor| floor.live_bytes).collect::<Vec<_>>())
}

pub(super) fn rise_count(floors: &[Floor]) -> usize {
    floors.windows(2).filter(|pair| pair[1].live_bytes > pair[0].live_bytes).count()
}

/// It rises in all of its parts, in small series, or in all but one of eight; it has not come back to its start since, and rises still;
/// and it does not do so as what goes up and down by chance does.
pub(super) fn rises_throughout(floors: &[Floor]) -> bool {
    let (part_count, least_count) = if floors.len() < EIGHT_PARTS_COUNT { (4, 3) } else { (8, 6) };
    let medians = part_medians(floors, part_count);
    rise_count(floors) >= LEAST_RISE_COUNT
        && rising_part_count(&medians) >= least_count
        && rises_but_for_one(&medians)
        && !is_back_at_its_start(floors, &medians)
        && !has_stalled(floors)
        && is_beyond_chance(floors)
        && is_beyond_a_walk(floors)
}

/// The medians of the parts, each of as many steps.
fn part_medians(floors: &[Floor], part_count: usize) -> Vec<i128> {
    let part = |index: usize| &floors[floors.len() * index / part_count..floors.len() * (index + 1) / part_count];
    (0..part_count).filter_map(|index| median_floor(part(index)).map(i128::from)).collect()
}

/// How many of the parts are higher than the one before, and by no small part of the average.
fn rising_part_count(medians: &[i128]) -> usize {
    let [first, .., last] = medians[..] else { return 0 };
    let rises = medians.windows(2).map(|pair| pair[1] - pair[0]);
    let step_count = medians.len() as i128 - 1;
    rises.filter(|rise| *rise > 0 && rise * step_count * RISE_PART >= last - first).count()
}

/// Whether the parts never fall once a single one is left out, which a spike or a dip may have moved. What fills and is emptied falls also
/// then.
fn rises_but_for_one(medians: &[i128]) -> bool {
    (0..medians.len()).any(|left_out| {
        let mut kept = medians.iter().enumerate().filter(|(index, _)| *index != left_out).map(|(_, median)| *median);
        let Some(mut before) = kept.next() else { return false };
        kept.all(|median| std::mem::replace(&mut before, median) <= median)
    })
}

/// Whether the last floor is down where the series began.
fn is_back_at_its_start(floors: &[Floor], medians: &[i128]) -> bool {
    let ([first, ..], Some(top), Some(last)) = (medians, medians.iter().max(), floors.last()) else { return false };
    (i128::from(last.live_bytes) - first) * BACK_PART <= top - first
}

/// Whether no step rises any more: for longer than ever between two that did.
fn has_stalled(floors: &[Floor]) -> bool {
    let (mut longest_gap, mut since, mut has_risen) = (0, 0, false);
    for pair in floors.windows(2) {
        if pair[1].live_bytes > pair[0].live_bytes {
            longest_gap = if has_risen { longest_gap.max(since) } else { 0 };
            (since, has_risen) = (0, true);
        } else {
            since += 1;
        }
    }
    since > longest_gap && since >= LEAST_STALLED_COUNT.max(floors.len() / STALLED_PART)
}

/// More is risen than steps would that go up and down by chance and stay where they come to, which Kendall's measure takes for a rise. What
/// comes back, as noise around a line does, is none of these, and neither is what never falls.
fn is_beyond_a_walk(floors: &[Floor]) -> bool {
    if floors.windows(2).all(|pair| pair[1].live_bytes >= pair[0].live_bytes) {
        return true;
    }
    let stretch = (floors.len() / WALK_PART).max(1);
    let variance_per_step = |count: usize| typical_change(floors, count).powi(2) / count as f64;
    let over_stretch = variance_per_step(stretch);
    let shorter = std::iter::successors(Some(1), |count| Some(count * 2)).take_while(|count| *count < stretch);
    let shorter: Vec<f64> = shorter.map(variance_per_step).collect();
    if shorter.iter().any(|of_shorter| over_stretch * COMES_BACK_PART <= *of_shorter) {
        return true;
    }
    // There are few stretches: two lengths are less easily all alike by chance than one.
    let over_stretch = shorter.last().map_or(over_stretch, |of_shorter| over_stretch.max(*of_shorter));
    let risen = slope(floors) as f64 * floors.len() as f64;
    risen >= WALK_DEVIATIONS * (over_stretch * floors.len() as f64).sqrt()
}

/// How much the changes over so many steps differ from their median: two thirds of them by no more, so that spikes do not count.
fn typical_change(floors: &[Floor], count: usize) -> f64 {
    let changes = floors.iter().zip(&floors[count.min(floors.len())..]);
    let mut changes: Vec<i64> =
        changes.map(|(earlier, later)| later.live_bytes.saturating_sub(earlier.live_bytes)).collect();
    let Some(middle) = median(&mut changes) else { return 0.0 };
    let mut differences: Vec<u64> = changes.iter().map(|change| change.abs_diff(middle)).collect();
    let at = differences.len() * 2 / 3;
    *differences.select_nth_unstable(at.min(changes.len() - 1)).1 as f64
}

/// More pairs of steps rise than chance would let: Kendall's measure, of which the deviation is known whatever the floors are.
fn is_beyond_chance(floors: &[Floor]) -> bool {
    let samples = samples(floors, SAMPLE_COUNT);
    let mut excess = 0_i64;
    for (index, (_, later_bytes)) in samples.iter().enumerate() {
        for (_, earlier_bytes) in &samples[index + 1..] {
            excess += match later_bytes.cmp(earlier_bytes) {
                std::cmp::Ordering::Less => -1,
                std::cmp::Ordering::Equal => 0,
                std::cmp::Ordering::Greater => 1,
            };
        }
    }
    let count = samples.len() as f64;
    let pair_count = count * (count - 1.0) / 2.0;
    let deviation = (count * (count - 1.0) * (2.0 * count + 5.0) / 18.0).sqrt();
    excess as f64 >= (CHANCE_DEVIATIONS * deviation).min(SHORT_SHARE * pair_count)
}
