//! `policy:compact` on the mock driver, which puts the same bytes behind two addresses: what live buffers hold never changes.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::sync::Arc;

use memtrack::device::{Cuda, Device, Stream};
use memtrack::{AllocationError, CachingAllocator, Config};
use memtrack_tests::mock::{Live, Mock};

const PAGE: u64 = 2 << 20;

/// Xorshift: the same numbers in every run.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state >> 16
}

struct Block {
    address: u64,
    stream: Stream,
    content: Vec<u8>,
}

fn assert_intact(cuda: &Cuda, block: &Block) {
    let mut found = vec![0; block.content.len()];
    // SAFETY: the block is live, and nobody else touches it.
    unsafe { cuda.read(block.address, &mut found, block.stream) }.unwrap();
    assert!(found == block.content, "the bytes of a live block changed");
}

#[test]
fn what_live_blocks_hold_never_changes_while_pages_move_between_blocks_and_streams() {
    let mock = Mock::exclusive();
    let cuda = Arc::new(Cuda::new(0).unwrap_or_else(|error| panic!("{error}")));
    let contexts: Vec<_> = (0..2).map(|_| cuda.context().new_stream().unwrap()).collect();
    let mut streams = vec![Stream::DEFAULT];
    streams.extend(contexts.iter().map(|stream| cuda.register_stream(stream).unwrap()));
    let config: Config = "policy:compact".parse().unwrap();
    let allocator = CachingAllocator::with_config(cuda.clone(), config).unwrap();
    allocator.set_memory_fraction((48 * PAGE) as f64 / cuda.total_bytes() as f64).unwrap();
    let mut state = 88_172_645_463_325_252;
    let mut live: Vec<Block> = Vec::new();
    for step in 0..600_u64 {
        let stream = streams[random(&mut state) as usize % streams.len()];
        if random(&mut state) % 5 < 3 {
            let most = [2000, 200 << 10, 3 << 20, 12 << 20][random(&mut state) as usize % 4];
            let bytes = 1 + random(&mut state) % most;
            let address = match allocator.allocate_raw(bytes, stream) {
                Ok(address) => address,
                Err(AllocationError::OutOfMemory(_)) => {
                    live.drain(..live.len() / 2).for_each(|block| allocator.free_raw(block.address).unwrap());
                    continue;
                }
                Err(error) => panic!("{error:?}"),
            };
            let content: Vec<u8> = (0..bytes).map(|at| (step * 31 + at / 512 + at) as u8).collect();
            // SAFETY: the block was just handed out, and nobody else touches it.
            unsafe { cuda.write(address, &content, stream) }.unwrap();
            live.push(Block { address, stream, content });
        } else if !live.is_empty() {
            let block = live.swap_remove(random(&mut state) as usize % live.len());
            assert_intact(&cuda, &block);
            allocator.free_raw(block.address).unwrap();
        }
        if step % 100 == 99 {
            live.iter().for_each(|block| assert_intact(&cuda, block));
        }
        if step % 200 == 199 {
            allocator.empty_cache().unwrap();
            live.iter().for_each(|block| assert_intact(&cuda, block));
        }
    }
    let pages = allocator.compact_stats();
    assert!(pages.moved_page_count > 100 && pages.released_page_count > 0, "{pages:?}");
    live.iter().for_each(|block| assert_intact(&cuda, block));
    live.drain(..).for_each(|block| allocator.free_raw(block.address).unwrap());
    allocator.empty_cache().unwrap();
    let left = [Live::Physical, Live::Mappings, Live::Reservations].map(|what| mock.live(what));
    assert_eq!((left, allocator.memory_reserved()), ([0; 3], 0));
    // The device keeps events for their next use.
    drop((allocator, cuda, contexts));
    assert_eq!(mock.live(Live::Events), 0);
}
