//! Series of floors with noise, spikes, workspaces and leaks: a leak is told where there is one, and nowhere else.

use memtrack::diagnosis::{Floor, FloorTrend, Trend, judge_floors};

const MIB: i64 = 1 << 20;

/// Xorshift.
struct Random(u64);

impl Random {
    fn of(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

fn judged(live: &[i64]) -> FloorTrend {
    let floor = |(number, live_bytes): (u64, &i64)| Floor { number, live_bytes: *live_bytes, peak_bytes: None };
    judge_floors(&(1..).zip(live).map(floor).collect::<Vec<_>>())
}

/// A series without a leak: a constant, noise, and one spike that is released.
struct Quiet {
    live: Vec<i64>,
    noise: i64,
    spike_end: usize,
}

impl Quiet {
    fn new(seed: u64, count: usize) -> Self {
        let mut random = Random::of(seed);
        let noise = [0, 512, MIB, 100 * MIB][random.below(4)];
        let mut live: Vec<i64> =
            (0..count).map(|_| 8000 * MIB + random.below(noise as usize / 512 + 1) as i64 * 512).collect();
        let (at, width) = (random.below(count - 8), 1 + random.below(4));
        let height = [10, 100, 10_000, 1_000_000][random.below(4)] * (noise.max(512));
        live[at..at + width].iter_mut().for_each(|bytes| *bytes += height);
        Self { live, noise, spike_end: at + width }
    }
}

#[test]
fn a_constant_with_noise_and_a_spike_is_never_a_leak() {
    let mut judged_count = 0;
    for seed in 1..=800 {
        let quiet = Quiet::new(seed, 20 + Random::of(seed + 77).below(500));
        // As a detector looks: again and again while the series grows.
        let mut count = 20;
        while count <= quiet.live.len() {
            let trend = judged(&quiet.live[..count]);
            judged_count += 1;
            assert_ne!(trend.trend, Trend::Leak, "seed {seed}, {count} steps, noise {}: {trend:?}", quiet.noise);
            count += count.div_ceil(8);
        }
    }
    assert!(judged_count > 8000, "{judged_count}");
}

#[test]
fn workspaces_that_are_made_one_after_the_other_are_no_leak() {
    for seed in 1..=800 {
        let mut random = Random::of(seed);
        let count = 40 + random.below(400);
        let mut quiet = Quiet::new(seed, count);
        quiet.noise = 0;
        quiet.live.fill(8000 * MIB);
        for _ in 0..1 + random.below(3) {
            let at = random.below(count);
            let bytes = (1 + random.below(64)) as i64 * MIB;
            quiet.live[at..].iter_mut().for_each(|live| *live += bytes);
        }
        let trend = judged(&quiet.live);
        assert_ne!(trend.trend, Trend::Leak, "seed {seed}: {trend:?}");
    }
}

/// Whatever was before: the noise, and the spike wherever it was.
#[test]
fn a_steady_rise_over_the_last_steps_is_found_whatever_was_before() {
    for seed in 1..=800 {
        let mut random = Random::of(seed + 1_000_000);
        let count = 64 + random.below(900);
        let Quiet { mut live, noise, spike_end } = Quiet::new(seed, count);
        // Three quarters of the part that is looked at: the last 64 steps, or half of a short series.
        let least = 48.min(count * 3 / 8 + 1);
        let rising = least + random.below(count - least + 1);
        // Ten times the noise in all, and never less than a block a step.
        let step = (noise * 10 / least as i64).max(512);
        let first = count - rising;
        for (since, bytes) in live[first..].iter_mut().enumerate() {
            *bytes += (since as i64 + 1) * step;
        }
        let trend = judged(&live);
        assert_eq!(
            trend.trend,
            Trend::Leak,
            "seed {seed}: {count} steps, the last {rising} rise by {step}, noise {noise}, the spike ended at {spike_end}: {trend:?}"
        );
        // Of a part that begins before the rise does, the median of all pairs is somewhat less.
        assert!(
            trend.slope_bytes * 2 > step && trend.slope_bytes < step * 2,
            "seed {seed}: {step}, {count} steps, {rising} rising, noise {noise}, spike {spike_end}: {trend:?}"
        );
    }
}

#[test]
fn flat_then_a_spike_then_a_steady_rise_is_found_with_its_slope() {
    let of_step = |n: i64| match n {
        250..=252 => 20_000 * MIB,
        n => 8000 * MIB + (n - 299).max(0) * 24 * MIB,
    };
    let live: Vec<i64> = (0..360).map(of_step).collect();
    let trend = judged(&live);
    assert_eq!((trend.trend, trend.slope_bytes, trend.step_count), (Trend::Leak, 24 * MIB, 64));
    assert!(live[359] < 20_000 * MIB, "lower than the spike");
    assert_ne!(judged(&live[..300]).trend, Trend::Leak);
}

/// A buffer that is filled and emptied by chance, as one that is replayed from: what it holds is a random walk that never falls below nothing.
#[test]
fn a_random_walk_is_seldom_taken_for_a_leak() {
    let mut leak_count = 0;
    for seed in 1..=400 {
        let mut random = Random::of(seed);
        let mut held = 0_i64;
        let live: Vec<i64> = (0..100)
            .map(|_| {
                for _ in 0..4 {
                    held = if random.below(2) == 0 { (held + 1).min(200) } else { (held - 1).max(0) };
                }
                held * MIB
            })
            .collect();
        leak_count += usize::from(judged(&live).trend == Trend::Leak);
    }
    assert!(leak_count <= 8, "{leak_count} of 400");
}

/// Chance decides which steps keep something, how much comes and goes, and how much is kept: in the end it is found.
#[test]
fn a_leak_among_what_comes_and_goes_is_found() {
    for seed in 1..=400 {
        let mut random = Random::of(seed);
        let (one_in, noise) = (1 + random.below(6), random.below(8));
        let mut kept = 0_i64;
        let live: Vec<i64> = (0..300)
            .map(|_| {
                kept += i64::from(random.below(one_in) == 0);
                (kept + random.below(noise + 1) as i64) * MIB
            })
            .collect();
        let trend = judged(&live);
        assert_eq!(trend.trend, Trend::Leak, "seed {seed}: one step in {one_in}, noise {noise}: {trend:?}");
    }
}
