//! PyTorch's expandable segments: what `policy:compact` was before it had rules of its own.

use std::collections::HashMap;

use super::Policy;
use super::space::{Space, State};
use crate::machine::{Machine, PAGE_BYTES};

/// Best fit; what is missing is mapped in multiples of 2 or 20 MiB at the first hole that is large enough. Nothing ever moves.
#[derive(Debug, Default)]
pub(crate) struct Expandable {
    spaces: HashMap<(u8, bool), Space>,
}

fn base(stream: u8, small: bool) -> u64 {
    (1 + 2 * u64::from(stream) + u64::from(small)) << 44
}

impl Policy for Expandable {
    fn allocate(&mut self, machine: &mut Machine, bytes: u64, stream: u8, _: u64) -> u64 {
        let small = bytes <= 1 << 20;
        let start = base(stream, small);
        let space = self.spaces.entry((stream, small)).or_insert_with(|| Space::new(start, 20 << 38, stream));
        let found = space.free.range((bytes, 0)..).next().map(|&(_, address)| address);
        let address = found.unwrap_or_else(|| {
            // The only hole is at the end: this model never unmaps.
            let (&hole, _) = space.blocks.iter().next_back().expect("a space has blocks");
            let before = space.blocks.range(..hole).next_back();
            let before = before.filter(|(_, block)| block.state == State::Free).map(|(_, block)| block.bytes);
            let unit_bytes = if small { PAGE_BYTES } else { 10 * PAGE_BYTES };
            let missing_bytes = (bytes - before.unwrap_or(0)).div_ceil(unit_bytes) * unit_bytes;
            for slot in hole / PAGE_BYTES..(hole + missing_bytes) / PAGE_BYTES {
                let page = machine.create();
                machine.map(slot, page);
            }
            space.set(hole, missing_bytes, State::Free, 0);
            hole - before.unwrap_or(0)
        });
        space.set(address, bytes, State::Live, 0);
        address
    }

    fn free(&mut self, _: &mut Machine, address: u64, bytes: u64, stream: u8) {
        let space = self.spaces.get_mut(&(stream, bytes <= 1 << 20)).expect("the block came from it");
        space.set(address, bytes, State::Free, 0);
    }
}
