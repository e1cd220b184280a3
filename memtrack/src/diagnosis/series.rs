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

/// It rises in all of its parts, in small series, or in all but one of eight; and not as what goes up and down by chance does.
pub(super) fn rises_throughout(floors: &[Floor]) -> bool {
    let (part_count, least_count) = if floors.len() < EIGHT_PARTS_COUNT { (4, 3) } else { (8, 6) };
    rise_count(floors) >= LEAST_RISE_COUNT
        && rising_part_count(floors, part_count) >= least_count
        && is_beyond_chance(floors)
}

/// How many of the parts, each of as many steps, are higher than the one before, and by no small part of the average.
fn rising_part_count(floors: &[Floor], part_count: usize) -> usize {
    let part = |index: usize| &floors[floors.len() * index / part_count..floors.len() * (index + 1) / part_count];
    let medians: Vec<i128> = (0..part_count).filter_map(|index| median_floor(part(index)).map(i128::from)).collect();
    let [first, .., last] = medians[..] else { return 0 };
    let rises = medians.windows(2).map(|pair| pair[1] - pair[0]);
    let step_count = medians.len() as i128 - 1;
    rises.filter(|rise| *rise > 0 && rise * step_count * RISE_PART >= last - first).count()
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
