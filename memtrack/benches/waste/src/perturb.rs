//! Other traces of the same kinds: what a run with other data, sizes or company might ask.

use std::collections::HashMap;

use crate::trace::{Event, Trace};

/// A small generator of pseudo-random numbers; the same seed gives the same trace.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// From 0 to 1.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The step of each event, and of each block whether it lives within one step.
fn local_blocks(trace: &Trace) -> (Vec<usize>, Vec<bool>) {
    let (mut step, mut steps) = (0, Vec::with_capacity(trace.events.len()));
    let (mut born, mut local) = (Vec::new(), Vec::new());
    for event in &trace.events {
        match *event {
            Event::Step => step += 1,
            Event::Allocate { .. } => {
                born.push(step);
                local.push(false);
            }
            Event::Free { block } => local[block as usize] = born[block as usize] == step,
        }
        steps.push(step);
    }
    (steps, local)
}

/// Gives blocks their numbers anew, in order of allocation.
fn renumbered(name: String, events: impl IntoIterator<Item = Event>) -> Trace {
    let (mut numbers, mut count) = (HashMap::new(), 0);
    let rename = |event| match event {
        Event::Allocate { block, bytes, stream } => {
            numbers.insert(block, count);
            count += 1;
            Event::Allocate { block: count - 1, bytes, stream }
        }
        Event::Free { block } => Event::Free { block: numbers[&block] },
        Event::Step => Event::Step,
    };
    Trace { name, events: events.into_iter().map(rename).collect(), torch_reserved_bytes: 0 }
}

/// All sizes times a factor.
pub(crate) fn scaled(trace: &Trace, factor: f64) -> Trace {
    let scale = |event: &Event| match *event {
        Event::Allocate { block, bytes, stream } => {
            Event::Allocate { block, bytes: ((bytes as f64 * factor) as u64).max(4), stream }
        }
        other => other,
    };
    renumbered(format!("{} x{factor}", trace.name), trace.events.iter().map(scale))
}

/// Each step has a batch size of its own: what lives within the step is between 0.5 and 1.1 times as large.
pub(crate) fn batches(trace: &Trace, seed: u64) -> Trace {
    let (steps, local) = local_blocks(trace);
    let mut random = Random::new(seed);
    let factors: Vec<f64> = (0..=*steps.last().unwrap_or(&0)).map(|_| 0.5 + 0.6 * random.unit()).collect();
    let change = |(at, event): (usize, &Event)| match *event {
        Event::Allocate { block, bytes, stream } if local[block as usize] && bytes > 4096 => {
            Event::Allocate { block, bytes: ((bytes as f64 * factors[steps[at]]) as u64).max(4), stream }
        }
        other => other,
    };
    renumbered(format!("{} batches {seed}", trace.name), trace.events.iter().enumerate().map(change))
}

/// What lives within a step is replaced by that of other steps: `order` names, for each step, those that run in its place.
fn reordered(trace: &Trace, name: String, order: impl Fn(usize) -> Vec<usize>) -> Trace {
    let (steps, local) = local_blocks(trace);
    let step_count = steps.last().map_or(0, |last| last + 1);
    let mut inner: Vec<Vec<Event>> = vec![Vec::new(); step_count];
    let mut outer: Vec<Vec<(f64, Event)>> = vec![Vec::new(); step_count];
    let mut total = vec![0_usize; step_count];
    for &step in &steps {
        total[step] += 1;
    }
    let mut seen = vec![0_usize; step_count];
    for (&step, &event) in steps.iter().zip(&trace.events) {
        seen[step] += 1;
        match event {
            Event::Allocate { block, .. } | Event::Free { block } if local[block as usize] => inner[step].push(event),
            _ => outer[step].push((seen[step] as f64 / total[step] as f64, event)),
        }
    }
    let mut events = Vec::new();
    // A step that runs twice has blocks of its own each time.
    let mut copies = 0_u32;
    let block_count = local.len() as u32;
    for step in 0..step_count {
        let mut run = Vec::new();
        for other in order(step) {
            let shift = copies * block_count;
            copies += 1;
            run.extend(inner[other].iter().map(|event| match *event {
                Event::Allocate { block, bytes, stream } => Event::Allocate { block: block + shift, bytes, stream },
                Event::Free { block } => Event::Free { block: block + shift },
                Event::Step => Event::Step,
            }));
        }
        let count = run.len();
        let mut outer = outer[step].iter().peekable();
        for (at, event) in run.into_iter().enumerate() {
            while let Some((_, event)) = outer.next_if(|(part, _)| *part <= at as f64 / count as f64) {
                events.push(outer_block(*event));
            }
            events.push(event);
        }
        events.extend(outer.map(|(_, event)| outer_block(*event)));
    }
    renumbered(name, events)
}

/// Blocks that outlive a step have numbers apart from those within one.
fn outer_block(event: Event) -> Event {
    const APART: u32 = 1 << 31;
    match event {
        Event::Allocate { block, bytes, stream } => Event::Allocate { block: block | APART, bytes, stream },
        Event::Free { block } => Event::Free { block: block | APART },
        Event::Step => Event::Step,
    }
}

/// The steps in another order.
pub(crate) fn shuffled(trace: &Trace, seed: u64) -> Trace {
    let (steps, _) = local_blocks(trace);
    let mut random = Random::new(seed);
    let mut order: Vec<usize> = (0..=*steps.last().unwrap_or(&0)).collect();
    // Before the first step the model is made.
    for at in (2..order.len()).rev() {
        order.swap(at, 1 + random.below(at as u64) as usize);
    }
    reordered(trace, format!("{} shuffled {seed}", trace.name), |step| vec![order[step]])
}

/// A third of the steps is left out, a third runs twice.
pub(crate) fn repeated(trace: &Trace, seed: u64) -> Trace {
    let (steps, _) = local_blocks(trace);
    let mut random = Random::new(seed);
    let counts: Vec<u64> = (0..=*steps.last().unwrap_or(&0)).map(|_| random.below(3)).collect();
    let times = |step: usize| if step == 0 { 1 } else { counts[step] as usize };
    reordered(trace, format!("{} repeated {seed}", trace.name), |step| vec![step; times(step)])
}

/// Two runs at once, on streams of their own.
pub(crate) fn together(one: &Trace, other: &Trace, seed: u64) -> Trace {
    let mut random = Random::new(seed);
    let total = one.events.len() + other.events.len();
    let mut events = Vec::with_capacity(total);
    let (mut first, mut second) = (one.events.iter().peekable(), other.events.iter().peekable());
    let numbered = |event: &Event, second: u8| match *event {
        Event::Allocate { block, bytes, stream } => {
            Event::Allocate { block: 2 * block + u32::from(second), bytes, stream: 2 * stream + second }
        }
        Event::Free { block } => Event::Free { block: 2 * block + u32::from(second) },
        Event::Step => Event::Step,
    };
    while first.peek().is_some() || second.peek().is_some() {
        let takes_first = random.below(total as u64) < one.events.len() as u64;
        // A few events in a row, as threads run.
        for _ in 0..1 + random.below(8) {
            let (event, which) = if takes_first { (first.next(), 0) } else { (second.next(), 1) };
            events.extend(event.map(|event| numbered(event, which)));
        }
    }
    renumbered(format!("{} and {} {seed}", one.name, other.name), events)
}

/// Variants of all traces.
pub(crate) fn all(traces: &[Trace]) -> Vec<Trace> {
    let mut made = Vec::new();
    for (at, trace) in traces.iter().enumerate() {
        for seed in [1, 2] {
            made.push(batches(trace, seed));
            made.push(shuffled(trace, seed));
            made.push(repeated(trace, seed));
        }
        for factor in [0.31, 1.73, 3.1] {
            made.push(scaled(trace, factor));
        }
        made.push(together(trace, &traces[(at + 1) % traces.len()], 1));
        made.push(together(trace, &traces[(at + 2) % traces.len()], 2));
    }
    made
}
