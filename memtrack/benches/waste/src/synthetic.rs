//! Programs in which blocks of middle size outlive the large ones around them, which the recorded ones hardly do.

use crate::perturb::Random;
use crate::trace::{Event, Trace};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A program as it is written.
#[derive(Default)]
struct Program {
    events: Vec<Event>,
    count: u32,
}

impl Program {
    fn allocate(&mut self, bytes: u64) -> u32 {
        self.events.push(Event::Allocate { block: self.count, bytes, stream: 0 });
        self.count += 1;
        self.count - 1
    }

    fn free(&mut self, block: u32) {
        self.events.push(Event::Free { block });
    }

    fn free_all(&mut self, blocks: impl IntoIterator<Item = u32>) {
        blocks.into_iter().for_each(|block| self.free(block));
    }

    fn named(self, name: String) -> Trace {
        Trace { name, events: self.events, torch_reserved_bytes: 0 }
    }
}

/// A hundred large blocks with one of middle size after each. The large ones go, the others stay, and larger ones want the memory.
pub(crate) fn amid_large(large_bytes: u64, middle_bytes: u64, then_bytes: u64) -> Trace {
    let mut program = Program::default();
    let pairs: Vec<(u32, u32)> =
        (0..100).map(|_| (program.allocate(large_bytes), program.allocate(middle_bytes))).collect();
    program.free_all(pairs.iter().map(|pair| pair.0));
    let then: Vec<u32> = (0..100 * large_bytes / then_bytes).map(|_| program.allocate(then_bytes)).collect();
    program.free_all(then);
    program.free_all(pairs.iter().map(|pair| pair.1));
    program.named(format!("{} KiB amid {} MiB", middle_bytes / KIB, large_bytes / MIB))
}

/// Requests to a language model: each has a prefill of random length, keeps its keys and values in pages of one size, grows by one now and then, and goes.
pub(crate) fn paged_cache(page_bytes: u64, seed: u64) -> Trace {
    const LAYERS: u64 = 8;
    const WIDTH_BYTES: u64 = 2 * 1024;
    let mut random = Random::new(seed);
    let mut program = Program::default();
    for _ in 0..LAYERS {
        for mib in [6, 2, 16] {
            program.allocate(mib * MIB);
        }
    }
    let tokens_per_page = (page_bytes / (2 * WIDTH_BYTES)).max(1);
    // Tokens so far, tokens to come, pages.
    let mut requests: Vec<(u64, u64, Vec<u32>)> = Vec::new();
    for round in 0..500 {
        if requests.len() < 24 && round < 400 {
            let tokens = 16 + random.below(2032);
            let mut pages = Vec::new();
            let mut hidden = program.allocate(tokens * WIDTH_BYTES);
            for _ in 0..LAYERS {
                let heads = program.allocate(3 * tokens * WIDTH_BYTES);
                pages.extend((0..tokens.div_ceil(tokens_per_page)).map(|_| program.allocate(page_bytes)));
                let inner = program.allocate(4 * tokens * WIDTH_BYTES);
                let output = program.allocate(tokens * WIDTH_BYTES);
                program.free_all([inner, heads, std::mem::replace(&mut hidden, output)]);
            }
            program.free(hidden);
            requests.push((tokens, 1 + random.below(100), pages));
        }
        for (tokens, left, pages) in &mut requests {
            *tokens += 1;
            *left -= 1;
            if tokens.is_multiple_of(tokens_per_page) {
                pages.extend((0..LAYERS).map(|_| program.allocate(page_bytes)));
            }
            if *left == 0 {
                program.free_all(std::mem::take(pages));
            }
        }
        requests.retain(|request| request.1 > 0);
    }
    program.named(format!("cache of {} KiB pages {seed}", page_bytes / KIB))
}

/// What a step of training leaves behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// The optimizer runs in the backward pass and makes its state when it first sees a layer; gradients go at once.
    LazyState,
    /// Gradients stay allocated from the first step on.
    Gradients,
}

/// A convolutional net whose images are of another size in each step. A weight of `channels`, a quarter of it for two layers of three.
pub(crate) fn conv_net(kept: Kept, channels: u64, layers: usize, batch: u64, seed: u64) -> Trace {
    let mut random = Random::new(seed);
    let mut program = Program::default();
    let weight_bytes: Vec<u64> =
        (0..layers).map(|layer| channels * channels * 9 * 4 / if layer % 3 == 0 { 1 } else { 4 }).collect();
    for &bytes in &weight_bytes {
        program.allocate(bytes);
    }
    let mut has_kept = vec![false; layers];
    for _ in 0..60 {
        let side = 16 * (2 + random.below(5));
        let activation_bytes = batch * channels * side * side;
        let input = program.allocate(activation_bytes);
        let saved: Vec<[u32; 2]> = (0..layers).map(|_| [(); 2].map(|()| program.allocate(activation_bytes))).collect();
        let mut outer = program.allocate(activation_bytes);
        for (layer, saved) in saved.into_iter().enumerate().rev() {
            let gradient = program.allocate(weight_bytes[layer]);
            let is_first = !std::mem::replace(&mut has_kept[layer], true);
            if is_first && kept == Kept::LazyState {
                program.allocate(weight_bytes[layer]);
                program.allocate(weight_bytes[layer]);
            }
            if !(is_first && kept == Kept::Gradients) {
                program.free(gradient);
            }
            let inner = program.allocate(activation_bytes);
            program.free_all([std::mem::replace(&mut outer, inner), saved[1], saved[0]]);
        }
        program.free_all([outer, input]);
    }
    program.named(format!("conv net, {kept:?}, {channels} channels, {layers} layers {seed}"))
}

/// Blocks of random size kept among short-lived ones; each replaces another at random.
pub(crate) fn replaced(seed: u64) -> Trace {
    let mut random = Random::new(seed);
    let mut program = Program::default();
    let mut kept = Vec::new();
    for _ in 0..8000 {
        let passing = [(); 4].map(|()| program.allocate(MIB + random.below(8 * MIB)));
        kept.push(program.allocate(64 * KIB + random.below(3 * MIB)));
        program.free_all(passing);
        if kept.len() > 800 {
            program.free(kept.swap_remove(random.below(800) as usize));
        }
    }
    program.named(format!("replaced at random {seed}"))
}

/// Those for which the middle sizes have rules.
pub(crate) fn all() -> Vec<Trace> {
    let mut made = vec![
        amid_large(7 * MIB, 100 * KIB, 40 * MIB),
        amid_large(3 * MIB, 512 * KIB, 30 * MIB),
        amid_large(5 * MIB, 900 * KIB, 30 * MIB),
    ];
    for kib in [128, 256, 512, 1024] {
        made.extend([1, 2].map(|seed| paged_cache(kib * KIB, seed)));
    }
    for kept in [Kept::LazyState, Kept::Gradients] {
        for (channels, layers, batch) in [(64, 100, 4), (96, 60, 4), (128, 100, 2)] {
            made.extend([4, 5, 6, 7].map(|seed| conv_net(kept, channels, layers, batch, seed)));
        }
    }
    made
}
