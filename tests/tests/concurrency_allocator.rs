//! One allocator, many threads: contents stay apart, books stay right, nothing is lost, nothing waits for ever.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use memtrack::device::{Device, Fault, Host, Operation, Simulated, Stream};
use memtrack::{AllocationError, Buffer, CachingAllocator, Config};

const MIB: u64 = 1 << 20;
const THREADS: u64 = 8;

/// Runs `work`, and fails when it has not come back in a minute: a deadlock must not hang the test run.
fn within_a_minute(work: impl FnOnce() + Send + 'static) {
    let (done, finished) = channel();
    let worker = std::thread::spawn(move || {
        work();
        done.send(()).unwrap();
    });
    match finished.recv_timeout(Duration::from_secs(60)) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("deadlock: not done after a minute"),
        // Done, or panicked: joining tells.
        _ => worker.join().unwrap(),
    }
}

/// A small generator, so that each thread's course can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// A buffer filled with a mark of its own.
struct Marked {
    buffer: Buffer<u64>,
    mark: u64,
}

impl Marked {
    fn new(allocator: &CachingAllocator, stream: Stream, len: usize, mark: u64) -> Result<Self, AllocationError> {
        let mut buffer = Buffer::uninit_on(allocator, stream, len)?;
        buffer.as_mut_slice()?.fill(mark);
        Ok(Self { buffer, mark })
    }

    fn check(&self) {
        assert!(self.buffer.as_slice().unwrap().iter().all(|word| *word == self.mark), "somebody else wrote here");
    }
}

/// What a thread did: allocations, frees, and the rounded bytes of its allocations.
#[derive(Default)]
struct Account {
    allocations: i64,
    allocated_bytes: i64,
}

/// One thread's work: random lengths on its own and on a shared stream, some buffers sent on to a neighbour.
fn churn(allocator: &CachingAllocator, thread: u64, sender: &Sender<Marked>, receiver: &Receiver<Marked>) -> Account {
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ (thread + 1));
    let mut account = Account::default();
    let mut live: Vec<Marked> = Vec::new();
    for round in 0..400 {
        let len = match random.below(8) {
            0 => 1 + random.below(300_000),
            1..=3 => 1 + random.below(20_000),
            _ => 1 + random.below(500),
        };
        let stream = if random.below(2) == 0 { Stream(thread + 1) } else { Stream::DEFAULT };
        let marked = Marked::new(allocator, stream, len as usize, (thread << 32) | round).unwrap();
        account.allocations += 1;
        account.allocated_bytes += marked.buffer.allocated_bytes() as i64;
        if random.below(4) == 0 {
            marked.buffer.record_stream(Stream(random.below(THREADS))).unwrap();
        }
        live.push(marked);
        if random.below(3) == 0 {
            // The neighbour may have finished; then the buffer comes back and is dropped here.
            let _ = sender.send(live.swap_remove(random.below(live.len() as u64) as usize));
        }
        live.extend(receiver.try_iter());
        while live.len() > 20 || (!live.is_empty() && random.below(3) == 0) {
            let at = random.below(live.len() as u64) as usize;
            live[at].check();
            drop(live.swap_remove(at));
        }
        if random.below(200) == 0 {
            allocator.empty_cache().unwrap();
        }
    }
    live.iter().for_each(Marked::check);
    account
}

#[test]
fn contents_stay_apart_and_the_books_agree() {
    within_a_minute(|| {
        let device = Arc::new(Host::with_capacity(4096 * MIB));
        let allocator = CachingAllocator::new(device.clone());
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| channel::<Marked>()).unzip();
        let accounts: Vec<Account> = std::thread::scope(|scope| {
            let workers: Vec<_> = receivers
                .into_iter()
                .zip(0..THREADS)
                .map(|(receiver, thread)| {
                    let sender = senders[(thread as usize + 1) % senders.len()].clone();
                    let allocator = &allocator;
                    scope.spawn(move || churn(allocator, thread, &sender, &receiver))
                })
                .collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        drop(senders);
        // Host streams are always idle: the next allocation completes whatever was deferred.
        drop(Buffer::<u8>::uninit(&allocator, 1).unwrap());
        let stats = allocator.memory_stats();
        let sum = |of: fn(&Account) -> i64| accounts.iter().map(of).sum::<i64>();
        assert_eq!(stats.allocation.all.allocated, sum(|account| account.allocations) + 1);
        assert_eq!(stats.allocated_bytes.all.allocated, sum(|account| account.allocated_bytes) + 512);
        for statistic in [stats.allocation, stats.allocated_bytes, stats.active, stats.active_bytes] {
            assert_eq!(statistic.all.current, 0);
            assert_eq!(statistic.all.allocated, statistic.all.freed);
            assert_eq!(statistic.all.allocated, statistic.small_pool.allocated + statistic.large_pool.allocated);
        }
        assert_eq!(stats.requested_bytes.all.current, 0);
        assert_eq!(stats.inactive_split.all.current, 0, "all blocks are merged again");
        let used = |device: &Host| device.total_bytes() - device.memory().unwrap().free_bytes;
        assert_eq!(stats.reserved_bytes.all.current as u64, used(&device));
        allocator.empty_cache().unwrap();
        assert_eq!((allocator.memory_reserved(), used(&device)), (0, 0));
    });
}

/// Frees in one thread while another collects garbage: ages and counts are of different moments then.
#[test]
fn garbage_collection_while_other_threads_allocate_and_free() {
    within_a_minute(|| {
        let device = Arc::new(Simulated::with_capacity(1024 * MIB));
        let config: Config = "garbage_collection_threshold:0.05".parse().unwrap();
        let allocator = CachingAllocator::with_config(device.clone(), config).unwrap();
        allocator.set_memory_fraction(0.9).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let allocator = &allocator;
                scope.spawn(move || {
                    let mut random = Random(thread + 77);
                    for _ in 0..1000 {
                        let bytes = (10 + 2 * random.below(20)) * MIB;
                        let address = allocator.allocate_raw(bytes, Stream(thread)).unwrap();
                        allocator.free_raw(address).unwrap();
                    }
                });
            }
        });
        allocator.empty_cache().unwrap();
        assert_eq!((device.used_bytes(), allocator.memory_reserved()), (0, 0));
    });
}

/// Two threads want more than is free at the same time, again and again: each gives back what the other has cached.
#[test]
fn threads_that_run_out_of_memory_together_all_get_on() {
    within_a_minute(|| {
        let device = Arc::new(Simulated::with_capacity(100 * MIB));
        let allocator = CachingAllocator::new(device.clone());
        let start = Barrier::new(4);
        let refused: Vec<i64> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4_u64)
                .map(|thread| {
                    let (allocator, start, device) = (&allocator, &start, &device);
                    scope.spawn(move || {
                        let mut random = Random(thread + 5);
                        let mut refused = 0;
                        start.wait();
                        for _ in 0..500 {
                            let bytes = (20 + random.below(40)) * MIB;
                            match allocator.allocate_raw(bytes, Stream(thread)) {
                                Ok(address) => {
                                    allocator.record_stream_raw(address, Stream(thread + 10)).unwrap();
                                    device.set_busy(Stream(thread + 10));
                                    allocator.free_raw(address).unwrap();
                                }
                                Err(AllocationError::OutOfMemory(_)) => refused += 1,
                                Err(error) => panic!("{error}"),
                            }
                        }
                        refused
                    })
                })
                .collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        let stats = allocator.memory_stats();
        assert_eq!(stats.num_ooms, refused.iter().sum::<i64>());
        assert_eq!(stats.allocation.all.allocated, 2000 - stats.num_ooms);
        assert!(stats.num_alloc_retries > 0, "nobody had to retry");
        allocator.empty_cache().unwrap();
        assert_eq!((device.used_bytes(), allocator.memory_stats().active.all.current), (0, 0));
    });
}

/// Handles, buffers and frees that wait, dropped in every order: the device gets all of it back.
#[test]
fn everything_goes_back_whatever_is_dropped_last() {
    let orders = [["handle", "used", "plain"], ["used", "handle", "plain"], ["plain", "used", "handle"]];
    for order in orders.into_iter().chain([["handle", "plain", "used"], ["used", "plain", "handle"]]) {
        let device = Arc::new(Simulated::new());
        let allocator = CachingAllocator::new(device.clone());
        let other = Stream(9);
        device.set_busy(other);
        let plain = Buffer::<u8>::uninit(&allocator, 3_000_000).unwrap();
        let used = Buffer::<u8>::uninit_on(&allocator, Stream(4), 700).unwrap();
        used.record_stream(other).unwrap();
        allocator.allocate_raw(5000, Stream(5)).unwrap();
        let mut things: BTreeMap<&str, Box<dyn std::any::Any>> = BTreeMap::from([
            ("handle", Box::new(allocator) as Box<dyn std::any::Any>),
            ("plain", Box::new(plain)),
            ("used", Box::new(used)),
        ]);
        for name in order {
            assert_ne!(device.used_bytes(), 0, "something is still live");
            drop(things.remove(name));
        }
        assert_eq!(device.used_bytes(), 0, "dropped in the order {order:?}");
    }
}

#[test]
fn handles_and_buffers_are_dropped_by_different_threads_at_once() {
    within_a_minute(|| {
        for round in 0..200_u64 {
            let device = Arc::new(Simulated::new());
            let allocator = CachingAllocator::new(device.clone());
            device.set_busy(Stream(100));
            let start = Arc::new(Barrier::new(5));
            let mut workers = Vec::new();
            for thread in 0..4 {
                let buffer = Buffer::<u8>::uninit_on(&allocator, Stream(thread), 4096).unwrap();
                if (thread + round) % 2 == 0 {
                    buffer.record_stream(Stream(100)).unwrap();
                }
                let start = Arc::clone(&start);
                workers.push(std::thread::spawn(move || {
                    start.wait();
                    drop(buffer);
                }));
            }
            let clone = allocator.clone();
            workers.push(std::thread::spawn(move || drop(clone)));
            start.wait();
            drop(allocator);
            workers.into_iter().for_each(|worker| worker.join().unwrap());
            assert_eq!(device.used_bytes(), 0, "round {round}");
        }
    });
}

/// A block that another thread has just given back is announced before it can be waited for: whoever runs out of memory in
/// between waits for it too.
#[test]
fn a_free_that_another_thread_is_recording_is_waited_for() {
    within_a_minute(|| {
        let device = Arc::new(Simulated::with_capacity(100 << 20));
        let allocator = CachingAllocator::new(device.clone());
        let buffer = Buffer::<u8>::uninit(&allocator, 60 << 20).unwrap();
        buffer.record_stream(Stream(7)).unwrap();
        // A driver call can take its time.
        device.inject(Fault::Delay { operation: Operation::RecordEvent, duration: Duration::from_millis(500) });
        let freeing = thread::spawn(move || drop(buffer));
        while allocator.memory_allocated() > 0 {
            thread::yield_now();
        }
        assert!(Buffer::<u8>::uninit(&allocator, 60 << 20).is_ok());
        freeing.join().unwrap();
    });
}

/// The same between a poll that found an event done and the completion of its free.
#[test]
fn a_free_that_another_thread_is_completing_is_waited_for() {
    within_a_minute(|| {
        let device = Arc::new(Simulated::with_capacity(100 << 20));
        let allocator = CachingAllocator::new(device.clone());
        for _ in 0..200 {
            let buffer = Buffer::<u8>::uninit(&allocator, 60 << 20).unwrap();
            buffer.record_stream(Stream(7)).unwrap();
            device.set_busy(Stream(7));
            drop(buffer);
            device.set_idle(Stream(7));
            // Both poll; the one that finds nothing to poll needs the memory that the other is about to complete.
            thread::scope(|scope| {
                scope.spawn(|| drop(Buffer::<u8>::uninit(&allocator, 100).unwrap()));
                assert!(Buffer::<u8>::uninit(&allocator, 60 << 20).is_ok());
            });
        }
    });
}

/// Whoever waits for pending frees waits for those that were there when it began, not for a moment when there is none.
#[test]
fn emptying_the_cache_comes_to_an_end_while_others_go_on_freeing() {
    within_a_minute(|| {
        let device = Arc::new(Simulated::with_capacity(1 << 30));
        let allocator = CachingAllocator::new(device.clone());
        device.inject(Fault::Delay { operation: Operation::RecordEvent, duration: Duration::from_micros(50) });
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for number in 0..8 {
                let (allocator, done) = (&allocator, &done);
                scope.spawn(move || {
                    while !done.load(Ordering::Relaxed) {
                        let buffer = Buffer::<u8>::uninit_on(allocator, Stream(number), 512).unwrap();
                        buffer.record_stream(Stream(100 + number)).unwrap();
                    }
                });
            }
            thread::sleep(Duration::from_millis(20));
            let started = Instant::now();
            for _ in 0..5 {
                allocator.empty_cache().unwrap();
            }
            done.store(true, Ordering::Relaxed);
            assert!(started.elapsed() < Duration::from_secs(8), "one wait alone gave up after 10 s: {started:?}");
        });
        allocator.empty_cache().unwrap();
        let stats = allocator.memory_stats();
        assert_eq!((stats.active.all.current, stats.reserved_bytes.all.current), (0, 0));
    });
}
