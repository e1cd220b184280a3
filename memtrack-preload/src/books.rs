//! What the program did: its calls, its bytes, its live blocks, by device. Exact, and cheap enough to be always on.
//!
//! Nothing here calls the driver or memtrack, and figures are read without a lock, so that a process can be told about while it ends.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::live_blocks::{Block, LiveBlocks};
use crate::real::{Answer, OUT_OF_MEMORY, SUCCESS};

/// The driver's functions that are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Api {
    Alloc,
    AllocAsync,
    AllocFromPoolAsync,
    AllocPitch,
    AllocManaged,
    Free,
    FreeAsync,
}

impl Api {
    pub(crate) const ALL: [Self; 7] = [
        Self::Alloc,
        Self::AllocAsync,
        Self::AllocFromPoolAsync,
        Self::AllocPitch,
        Self::AllocManaged,
        Self::Free,
        Self::FreeAsync,
    ];

    /// As in `cuda.h`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Alloc => "cuMemAlloc",
            Self::AllocAsync => "cuMemAllocAsync",
            Self::AllocFromPoolAsync => "cuMemAllocFromPoolAsync",
            Self::AllocPitch => "cuMemAllocPitch",
            Self::AllocManaged => "cuMemAllocManaged",
            Self::Free => "cuMemFree",
            Self::FreeAsync => "cuMemFreeAsync",
        }
    }

    pub(crate) const fn frees(self) -> bool {
        matches!(self, Self::Free | Self::FreeAsync)
    }
}

/// Devices that are told apart.
pub(crate) const DEVICE_COUNT: usize = 64;
/// Where calls are booked whose device the driver does not say.
pub(crate) const UNKNOWN_DEVICE: usize = DEVICE_COUNT;

#[derive(Debug, Default)]
struct CallCount {
    done: AtomicU64,
    failed: AtomicU64,
}

/// One device. Devices share no cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct DeviceBooks {
    calls: [CallCount; Api::ALL.len()],
    live_bytes: AtomicU64,
    peak_bytes: AtomicU64,
    allocated_bytes: AtomicU64,
    /// Allocations that succeeded without an address, and frees of address 0.
    empty_allocations: AtomicU64,
    empty_frees: AtomicU64,
    /// Frees of addresses whose allocation was not seen.
    unknown_frees: AtomicU64,
    /// Blocks that went without a call that was seen.
    vanished_blocks: AtomicU64,
    vanished_bytes: AtomicU64,
    out_of_memory: AtomicU64,
    largest_refused_bytes: AtomicU64,
}

fn add(counter: &AtomicU64, amount: u64) -> u64 {
    counter.fetch_add(amount, Ordering::Relaxed) + amount
}

fn raise(mark: &AtomicU64, value: u64) {
    // Most often it is no new maximum, and then nothing is written.
    if value > mark.load(Ordering::Relaxed) {
        mark.fetch_max(value, Ordering::Relaxed);
    }
}

impl DeviceBooks {
    fn rise(&self, bytes: u64) {
        raise(&self.peak_bytes, add(&self.live_bytes, bytes));
    }

    fn fall(&self, bytes: u64) {
        self.live_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn vanish(&self, bytes: u64) {
        self.fall(bytes);
        add(&self.vanished_blocks, 1);
        add(&self.vanished_bytes, bytes);
    }

    fn figures(&self, device: usize) -> DeviceFigures {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let calls = Api::ALL.map(|api| {
            let count = &self.calls[api as usize];
            CallFigures { api, done: read(&count.done), failed: read(&count.failed) }
        });
        let sum =
            |frees: bool| calls.iter().filter(|call| call.api.frees() == frees).map(|call| call.done).sum::<u64>();
        let begun = sum(false).saturating_sub(read(&self.empty_allocations));
        let ended = sum(true).saturating_sub(read(&self.empty_frees) + read(&self.unknown_frees));
        DeviceFigures {
            device: (device != UNKNOWN_DEVICE).then_some(device),
            calls,
            live_bytes: read(&self.live_bytes),
            live_blocks: begun.saturating_sub(ended + read(&self.vanished_blocks)),
            peak_bytes: read(&self.peak_bytes),
            allocated_bytes: read(&self.allocated_bytes),
            unknown_frees: read(&self.unknown_frees),
            vanished_blocks: read(&self.vanished_blocks),
            vanished_bytes: read(&self.vanished_bytes),
            out_of_memory: read(&self.out_of_memory),
            largest_refused_bytes: read(&self.largest_refused_bytes),
        }
    }
}

/// So often a function was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallFigures {
    pub(crate) api: Api,
    pub(crate) done: u64,
    pub(crate) failed: u64,
}

/// What is known of one device at one time. Bytes are as requested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DeviceFigures {
    /// `None` for calls whose device the driver did not say.
    pub(crate) device: Option<usize>,
    pub(crate) calls: [CallFigures; Api::ALL.len()],
    pub(crate) live_bytes: u64,
    pub(crate) live_blocks: u64,
    pub(crate) peak_bytes: u64,
    /// Of all allocations ever.
    pub(crate) allocated_bytes: u64,
    pub(crate) unknown_frees: u64,
    pub(crate) vanished_blocks: u64,
    pub(crate) vanished_bytes: u64,
    pub(crate) out_of_memory: u64,
    pub(crate) largest_refused_bytes: u64,
}

impl DeviceFigures {
    fn is_used(&self) -> bool {
        self.calls.iter().any(|call| call.done + call.failed > 0)
    }

    /// Allocations, or frees, that succeeded.
    pub(crate) fn done(&self, frees: bool) -> u64 {
        self.calls.iter().filter(|call| call.api.frees() == frees).map(|call| call.done).sum()
    }

    pub(crate) fn failed(&self) -> u64 {
        self.calls.iter().map(|call| call.failed).sum()
    }
}

/// All devices.
#[derive(Debug)]
pub(crate) struct Books {
    devices: Box<[DeviceBooks]>,
    live: LiveBlocks,
}

impl Default for Books {
    fn default() -> Self {
        let devices = (0..=UNKNOWN_DEVICE).map(|_| DeviceBooks::default()).collect();
        Self { devices, live: LiveBlocks::default() }
    }
}

impl Books {
    fn device(&self, device: usize) -> &DeviceBooks {
        &self.devices[device.min(UNKNOWN_DEVICE)]
    }

    /// An allocation succeeded. Address 0 is what the driver gives for no bytes.
    pub(crate) fn allocated(&self, api: Api, address: u64, block: Block) {
        let device = self.device(block.device);
        add(&device.calls[api as usize].done, 1);
        if address == 0 {
            add(&device.empty_allocations, 1);
            return;
        }
        add(&device.allocated_bytes, block.bytes);
        // A block that is in the table under this address was freed by a call that was not seen.
        if let Some(before) = self.live.insert(address, block) {
            self.device(before.device).vanish(before.bytes);
        }
        device.rise(block.bytes);
    }

    /// A call failed.
    pub(crate) fn failed(&self, api: Api, requested_bytes: u64, device: usize, answer: Answer) {
        let device = self.device(device);
        add(&device.calls[api as usize].failed, 1);
        if answer == OUT_OF_MEMORY && !api.frees() {
            add(&device.out_of_memory, 1);
            raise(&device.largest_refused_bytes, requested_bytes);
        }
    }

    /// Takes a block out before it is freed: once it is, another thread can be given its address.
    pub(crate) fn take(&self, address: u64) -> Option<Block> {
        let block = self.live.remove(address)?;
        self.device(block.device).fall(block.bytes);
        Some(block)
    }

    /// The free of what [`take`](Self::take) gave, or of an address that it did not know, has been answered.
    pub(crate) fn freed(&self, api: Api, address: u64, taken: Option<Block>, device: usize, answer: Answer) {
        let device_index = taken.map_or(device, |block| block.device);
        if answer != SUCCESS {
            if let Some(block) = taken {
                self.device(block.device).rise(block.bytes);
                self.live.insert(address, block);
            }
            return self.failed(api, 0, device_index, answer);
        }
        let device = self.device(device_index);
        add(&device.calls[api as usize].done, 1);
        if address == 0 {
            add(&device.empty_frees, 1);
        } else if taken.is_none() {
            add(&device.unknown_frees, 1);
        }
    }

    /// The device's context is gone and all its memory with it; how many blocks that were.
    pub(crate) fn context_gone(&self, device: usize) -> usize {
        let gone = self.live.remove_all_of(device);
        for block in &gone {
            self.device(device).vanish(block.bytes);
        }
        gone.len()
    }

    /// The devices that were used.
    pub(crate) fn figures(&self) -> Vec<DeviceFigures> {
        let figures = self.devices.iter().enumerate().map(|(index, device)| device.figures(index));
        figures.filter(DeviceFigures::is_used).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live_blocks::Owner;

    fn block(bytes: u64, device: usize) -> Block {
        Block { bytes, device, owner: Owner::Driver }
    }

    fn only(books: &Books) -> DeviceFigures {
        let mut figures = books.figures();
        assert_eq!(figures.len(), 1, "{figures:?}");
        figures.remove(0)
    }

    fn free(books: &Books, address: u64) {
        let taken = books.take(address);
        books.freed(Api::Free, address, taken, 0, SUCCESS);
    }

    #[test]
    fn bytes_rise_and_fall_and_the_peak_stays() {
        let books = Books::default();
        books.allocated(Api::Alloc, 0x1000, block(100, 0));
        books.allocated(Api::AllocAsync, 0x2000, block(50, 0));
        free(&books, 0x1000);
        books.allocated(Api::Alloc, 0x1000, block(20, 0));
        let figures = only(&books);
        assert_eq!((figures.live_bytes, figures.live_blocks, figures.peak_bytes), (70, 2, 150));
        assert_eq!((figures.done(false), figures.done(true), figures.failed()), (3, 1, 0));
        assert_eq!(figures.allocated_bytes, 170);
    }

    #[test]
    fn a_free_that_fails_leaves_the_block() {
        let books = Books::default();
        books.allocated(Api::Alloc, 0x1000, block(100, 3));
        let taken = books.take(0x1000);
        books.freed(Api::Free, 0x1000, taken, 0, 700);
        let figures = only(&books);
        assert_eq!(figures.device, Some(3));
        assert_eq!((figures.live_bytes, figures.live_blocks, figures.failed()), (100, 1, 1));
        free(&books, 0x1000);
        assert_eq!((only(&books).live_bytes, only(&books).live_blocks), (0, 0));
    }

    #[test]
    fn nulls_and_unknown_addresses_are_no_blocks() {
        let books = Books::default();
        books.allocated(Api::AllocAsync, 0, block(0, 0));
        free(&books, 0);
        free(&books, 0x5000);
        let figures = only(&books);
        assert_eq!((figures.live_blocks, figures.unknown_frees), (0, 1));
        assert_eq!((figures.done(false), figures.done(true)), (1, 2));
    }

    #[test]
    fn an_address_given_again_means_a_free_that_was_not_seen() {
        let books = Books::default();
        books.allocated(Api::Alloc, 0x1000, block(100, 0));
        books.allocated(Api::Alloc, 0x1000, block(30, 0));
        let figures = only(&books);
        assert_eq!((figures.live_bytes, figures.live_blocks), (30, 1));
        assert_eq!((figures.vanished_blocks, figures.vanished_bytes), (1, 100));
    }

    #[test]
    fn a_context_takes_the_blocks_of_its_device_alone() {
        let books = Books::default();
        for number in 1..=100 {
            books.allocated(Api::Alloc, number * 0x1000, block(10, usize::from(number % 2 == 0)));
        }
        assert_eq!(books.context_gone(1), 50);
        let figures = books.figures();
        assert_eq!([figures[0].live_blocks, figures[1].live_blocks], [50, 0]);
        assert_eq!([figures[0].live_bytes, figures[1].live_bytes], [500, 0]);
    }

    #[test]
    fn only_refused_allocations_are_out_of_memory() {
        let books = Books::default();
        books.failed(Api::Alloc, 7, UNKNOWN_DEVICE, OUT_OF_MEMORY);
        books.failed(Api::AllocAsync, 5, UNKNOWN_DEVICE, OUT_OF_MEMORY);
        books.failed(Api::Alloc, 9, UNKNOWN_DEVICE, 1);
        let figures = only(&books);
        assert_eq!(figures.device, None);
        assert_eq!((figures.failed(), figures.out_of_memory, figures.largest_refused_bytes), (3, 2, 7));
    }

    #[test]
    fn threads_lose_nothing() {
        let books = Books::default();
        std::thread::scope(|scope| {
            for thread in 1..=4_u64 {
                let books = &books;
                scope.spawn(move || {
                    for number in 1..=1000 {
                        let address = thread << 40 | number << 9;
                        books.allocated(Api::Alloc, address, block(number, 0));
                        if number % 2 == 0 {
                            free(books, address);
                        }
                    }
                });
            }
        });
        let figures = only(&books);
        let odd: u64 = (1..=1000).filter(|number| number % 2 == 1).sum();
        assert_eq!((figures.live_bytes, figures.live_blocks), (4 * odd, 2000));
        assert!(figures.peak_bytes >= figures.live_bytes && figures.peak_bytes <= 4 * (odd + 1000), "{figures:?}");
    }
}
