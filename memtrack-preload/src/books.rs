//! What the program did: its calls, its bytes, its live blocks, by device. Exact, and cheap enough to be always on.
//!
//! Nothing here calls the driver or memtrack, and figures are read without a lock, so that a process can be told about while it ends.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::live_blocks::{Before, Block, Going, LiveBlocks};
use crate::real::{Answer, OUT_OF_MEMORY, SUCCESS};

/// The driver's functions that are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
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
    /// What there was when the largest was refused.
    refusal: Mutex<Option<Refusal>>,
}

/// What there was when a request was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) requested_bytes: u64,
    /// What the program held then, as requested.
    pub(crate) live_bytes: u64,
    /// What the device had free, if it said so.
    pub(crate) device_free_bytes: Option<u64>,
}

/// Blocks of one size that one function gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LiveGroup {
    pub(crate) api: Api,
    /// Of each, as requested.
    pub(crate) bytes: u64,
    pub(crate) blocks: u64,
}

impl LiveGroup {
    /// Of all together.
    pub(crate) const fn total_bytes(&self) -> u64 {
        self.bytes.saturating_mul(self.blocks)
    }
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

    /// A block is gone that was live.
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
            // Nobody is waited for.
            refusal: self.refusal.try_lock().ok().and_then(|refusal| *refusal),
            live: Vec::new(),
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
    /// When the largest was.
    pub(crate) refusal: Option<Refusal>,
    /// What is live, the most bytes first: only in [`Books::figures_with_live`].
    pub(crate) live: Vec<LiveGroup>,
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
        match self.live.insert(address, block) {
            None => {}
            // Its free has been done, or this address would not be given; the thread that frees finds it gone.
            Some(Before::Going(before)) => self.device(before.device).fall(before.bytes),
            Some(Before::Live(before)) => self.device(before.device).vanish(before.bytes),
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

    /// An allocation that [`failed`](Self::failed) for want of memory, and what the device had free then.
    pub(crate) fn refused(&self, requested_bytes: u64, device: usize, device_free_bytes: Option<u64>) {
        let device = self.device(device);
        let mut largest = device.refusal.lock().unwrap_or_else(PoisonError::into_inner);
        if largest.is_none_or(|largest| requested_bytes > largest.requested_bytes) {
            let live_bytes = device.live_bytes.load(Ordering::Relaxed);
            *largest = Some(Refusal { requested_bytes, live_bytes, device_free_bytes });
        }
    }

    /// A free begins. Its block is held until the answer; as soon as it is freed another thread can be given its address.
    pub(crate) fn take(&self, address: u64) -> Option<Going> {
        self.live.begin_free(address)
    }

    /// The free of what [`take`](Self::take) gave, or of an address that it did not know, has been answered.
    pub(crate) fn freed(&self, api: Api, address: u64, taken: Option<Going>, device: usize, answer: Answer) {
        let device_index = taken.map_or(device, |going| going.block.device);
        if let Some(going) = taken {
            self.end(address, going, answer == SUCCESS);
        }
        if answer != SUCCESS {
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

    fn end(&self, address: u64, going: Going, is_gone: bool) {
        if self.live.end_free(address, going, is_gone) && is_gone {
            self.device(going.block.device).fall(going.block.bytes);
        }
    }

    /// The device's context is gone and all its memory with it; how many blocks that were.
    pub(crate) fn context_gone(&self, device: usize) -> usize {
        let gone = self.take_where(|_, block| block.device == device);
        let count = gone.len();
        self.ended(gone, true);
        count
    }

    /// As [`take`](Self::take) for the blocks that are meant: their context is about to end.
    pub(crate) fn take_where(&self, is_meant: impl Fn(u64, &Block) -> bool) -> Vec<(u64, Going)> {
        self.live.begin_free_where(is_meant)
    }

    /// The blocks that [`take_where`](Self::take_where) gave are gone, or stay.
    pub(crate) fn ended(&self, taken: Vec<(u64, Going)>, are_gone: bool) {
        for (address, going) in taken {
            self.end(address, going, are_gone);
            if are_gone {
                let device = self.device(going.block.device);
                add(&device.vanished_blocks, 1);
                add(&device.vanished_bytes, going.block.bytes);
            }
        }
    }

    /// The devices that were used.
    pub(crate) fn figures(&self) -> Vec<DeviceFigures> {
        let figures = self.devices.iter().enumerate().map(|(index, device)| device.figures(index));
        figures.filter(DeviceFigures::is_used).collect()
    }

    /// The devices that were used, with what is live on them. Every block is looked at.
    pub(crate) fn figures_with_live(&self) -> Vec<DeviceFigures> {
        let mut groups: BTreeMap<(usize, Api, u64), u64> = BTreeMap::new();
        self.live.look_at_all(|block| {
            *groups.entry((block.device.min(UNKNOWN_DEVICE), block.api, block.bytes)).or_default() += 1;
        });
        let mut figures = self.figures();
        for device in &mut figures {
            let number = device.device.unwrap_or(UNKNOWN_DEVICE);
            let of_device = groups.range((number, Api::Alloc, 0)..(number + 1, Api::Alloc, 0));
            device.live = of_device
                .map(|((_, api, bytes), blocks)| LiveGroup { api: *api, bytes: *bytes, blocks: *blocks })
                .collect();
            device.live.sort_by_key(|group| std::cmp::Reverse(group.total_bytes()));
        }
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live_blocks::Owner;

    fn block(bytes: u64, device: usize) -> Block {
        Block { bytes, device, owner: Owner::Driver, api: Api::Alloc }
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
    fn a_block_is_held_until_its_free_is_answered() {
        let books = Books::default();
        books.allocated(Api::Alloc, 0x1000, block(100, 0));
        let taken = books.take(0x1000);
        books.allocated(Api::Alloc, 0x2000, block(100, 0));
        let figures = only(&books);
        assert_eq!((figures.live_bytes, figures.live_blocks, figures.peak_bytes), (200, 2, 200));
        assert_eq!(books.figures_with_live()[0].live.len(), 1, "two of one size");
        assert_eq!(books.take(0x1000), None, "another call frees it");
        books.freed(Api::Free, 0x1000, taken, 0, SUCCESS);
        assert_eq!((only(&books).live_bytes, only(&books).live_blocks), (100, 1));
    }

    #[test]
    fn an_address_given_again_before_its_free_is_booked_is_no_free_that_was_not_seen() {
        let books = Books::default();
        books.allocated(Api::Alloc, 0x1000, block(100, 0));
        let taken = books.take(0x1000);
        books.allocated(Api::Alloc, 0x1000, block(30, 0));
        assert_eq!((only(&books).live_bytes, only(&books).peak_bytes), (30, 100));
        let again = books.take(0x1000);
        books.freed(Api::Free, 0x1000, taken, 0, SUCCESS);
        assert_eq!(only(&books).live_bytes, 30, "the second block is held");
        books.freed(Api::Free, 0x1000, again, 0, SUCCESS);
        let figures = only(&books);
        assert_eq!((figures.live_bytes, figures.live_blocks, figures.vanished_blocks), (0, 0, 0));
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
    fn a_context_that_does_not_end_keeps_its_blocks() {
        let books = Books::default();
        books.allocated(Api::Alloc, 0x1000, block(100, 0));
        books.allocated(Api::Alloc, 0x2000, block(10, 0));
        for (are_gone, left) in [(false, (110, 2, 0)), (true, (10, 1, 1))] {
            let taken = books.take_where(|address, _| address == 0x1000);
            books.ended(taken, are_gone);
            let figures = only(&books);
            assert_eq!((figures.live_bytes, figures.live_blocks, figures.vanished_blocks), left);
        }
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
    fn what_is_live_is_told_by_function_and_size_with_the_most_first() {
        let books = Books::default();
        for number in 1..=10 {
            books.allocated(Api::Alloc, number * 0x1000, block(10, 0));
        }
        books.allocated(Api::AllocAsync, 0x10_0000, Block { api: Api::AllocAsync, ..block(70, 0) });
        books.allocated(Api::Alloc, 0x20_0000, block(5, 1));
        free(&books, 0x1000);
        let live: Vec<_> = books.figures_with_live().into_iter().map(|device| device.live).collect();
        let group = |api, bytes, blocks| LiveGroup { api, bytes, blocks };
        assert_eq!(live[0], [group(Api::Alloc, 10, 9), group(Api::AllocAsync, 70, 1)]);
        assert_eq!(live[1], [group(Api::Alloc, 5, 1)]);
    }

    #[test]
    fn of_refusals_the_largest_is_told_with_what_there_was_then() {
        let books = Books::default();
        books.failed(Api::Alloc, 1, 0, OUT_OF_MEMORY);
        assert_eq!(only(&books).refusal, None);
        books.allocated(Api::Alloc, 0x1000, block(100, 0));
        books.refused(50, 0, Some(7));
        free(&books, 0x1000);
        books.refused(40, 0, Some(107));
        let expected = Refusal { requested_bytes: 50, live_bytes: 100, device_free_bytes: Some(7) };
        assert_eq!(only(&books).refusal, Some(expected));
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
