//! Measuring all subjects in one state, in turns.

use crate::counting::allocations;
use crate::state::State;
use crate::subjects::{self, Subject};
use std::time::{Duration, Instant};

/// How long a sample shall take: long beside a read of the clock, short beside a turn of the scheduler.
const SAMPLE: Duration = Duration::from_micros(60);

/// fastrace drops spans above ten thousand in a trace.
const MOST_CALLS: u64 = 8_000;

/// What was measured of one subject in one process.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The subject's title.
    pub title: String,
    /// Median time of a call over all samples.
    pub nanoseconds: f64,
    /// Allocations of the calling thread, a call, once everything is warm.
    pub allocations: f64,
}

/// Measures every subject that the state concerns, `samples` times, one after the other in each round.
pub fn measure(state: State, samples: usize) -> Vec<Measured> {
    let mut turns: Vec<Turns> = subjects::all()
        .filter(|subject| state.concerns(subject.library))
        .map(|subject| Turns::new(state, subject))
        .collect();
    for round in 0..samples {
        let first = round % turns.len().max(1);
        let (later, sooner) = turns.split_at_mut(first);
        for turn in sooner.iter_mut().chain(later) {
            turn.sample(state);
        }
    }
    turns.into_iter().map(|turns| turns.finish(state)).collect()
}

struct Turns {
    subject: &'static Subject,
    calls: u64,
    nanoseconds: Vec<f64>,
}

impl Turns {
    /// Warms the subject up, and finds how many calls make a sample.
    fn new(state: State, subject: &'static Subject) -> Self {
        let mut turns = Self { subject, calls: 16, nanoseconds: Vec::new() };
        while turns.calls < MOST_CALLS && turns.time(state) < SAMPLE {
            turns.calls *= 2;
        }
        turns
    }

    fn time(&self, state: State) -> Duration {
        let mut elapsed = Duration::ZERO;
        state.call(self.subject.library, || {
            let start = Instant::now();
            (self.subject.call)(self.calls);
            elapsed = start.elapsed();
        });
        elapsed
    }

    fn sample(&mut self, state: State) {
        let elapsed = self.time(state);
        self.nanoseconds.push(elapsed.as_secs_f64() * 1e9 / self.calls as f64);
    }

    fn finish(mut self, state: State) -> Measured {
        let mut made = 0;
        state.call(self.subject.library, || {
            let before = allocations();
            (self.subject.call)(MOST_CALLS);
            made = allocations() - before;
        });
        Measured {
            title: self.subject.title(),
            nanoseconds: median(&mut self.nanoseconds),
            allocations: made as f64 / MOST_CALLS as f64,
        }
    }
}

/// The median of values, which are sorted by it; 0 of none.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[count / 2],
        count => f64::midpoint(values[count / 2 - 1], values[count / 2]),
    }
}
