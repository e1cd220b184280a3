//! The pinned allocator's statistics: a program measured on PyTorch 2.11.0, replayed step by step with PyTorch's counting,
//! and the same program with right counting against a plain count of what the steps do.
//!
//! The file is described in `fixtures/torch-2.11/special/README.md`.
#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use memtrack::device::{Device as _, Simulated, Stream};
use memtrack::pinned::PinnedConfig;
use memtrack::{PinnedAllocator, PinnedBuffer};
use serde_json::Value;

type Stats = BTreeMap<String, i64>;

const STREAM: Stream = Stream(7);

struct Program(Value);

impl Program {
    fn read() -> Self {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/torch-2.11/special/pinned.json");
        Self(serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap())
    }

    fn steps(&self) -> impl Iterator<Item = (&[Value], Stats)> {
        self.0["ops"]
            .as_array()
            .unwrap()
            .iter()
            .map(|step| (step["op"].as_array().unwrap().as_slice(), self.stats_of(&step["changed"])))
    }

    fn stats(&self, name: &str) -> Stats {
        self.stats_of(&self.0[name])
    }

    fn stats_of(&self, value: &Value) -> Stats {
        value.as_object().unwrap().iter().map(|(key, value)| (key.clone(), value.as_i64().unwrap())).collect()
    }

    fn time_keys(&self) -> Vec<&str> {
        self.0["time_keys"].as_array().unwrap().iter().map(|key| key.as_str().unwrap()).collect()
    }
}

struct Subject {
    device: Arc<Simulated>,
    allocator: PinnedAllocator,
    buffers: HashMap<u64, PinnedBuffer<u8>>,
}

impl Subject {
    fn new(torch_exact: bool) -> Self {
        let device = Arc::new(Simulated::new());
        let mut config = PinnedConfig::default();
        config.torch_exact = torch_exact;
        let allocator = PinnedAllocator::with_config(device.clone(), config).unwrap();
        Self { device, allocator, buffers: HashMap::new() }
    }

    fn run(&mut self, step: &[Value]) {
        let number = |index: usize| step[index].as_u64().unwrap();
        match step[0].as_str().unwrap() {
            "alloc" => {
                let buffer = PinnedBuffer::uninit(&self.allocator, usize::try_from(number(2)).unwrap()).unwrap();
                assert!(self.buffers.insert(number(1), buffer).is_none());
            }
            "free" => drop(self.buffers.remove(&number(1)).unwrap()),
            "use_on_busy_stream" => {
                self.device.set_busy(STREAM);
                self.buffers[&number(1)].record_stream(STREAM).unwrap();
            }
            "sync" => self.device.synchronize().unwrap(),
            "empty_cache" => self.allocator.empty_cache().unwrap(),
            "reset_peak" => self.allocator.reset_peak_host_memory_stats(),
            "reset_accumulated" => self.allocator.reset_accumulated_host_memory_stats(),
            other => panic!("a step `{other}`"),
        }
    }

    fn stats_without(&self, left_out: &[&str]) -> Stats {
        let mut stats = self.allocator.host_memory_stats().to_map();
        for key in left_out {
            assert!(stats.remove(*key).is_some(), "there is no {key}");
        }
        stats
    }
}

#[test]
fn with_pytorchs_counting_every_statistic_is_pytorchs_after_every_step() {
    let program = Program::read();
    let times = program.time_keys();
    let mut subject = Subject::new(true);
    let mut expected = program.stats("initial_stats");
    assert_eq!(subject.stats_without(&times), expected);
    let mut steps = 0;
    for (step, changed) in program.steps() {
        subject.run(step);
        expected.extend(changed);
        assert_eq!(subject.stats_without(&times), expected, "after step {steps}, {step:?}");
        steps += 1;
    }
    assert_eq!(steps, 28);
    assert_eq!(expected, program.stats("final_stats"));
}

/// One counter, kept by hand.
#[derive(Default)]
struct Count {
    current: i64,
    peak: i64,
    allocated: i64,
    freed: i64,
}

impl Count {
    fn add(&mut self, amount: i64) {
        self.current += amount;
        self.allocated += amount;
        self.peak = self.peak.max(self.current);
    }

    fn take(&mut self, amount: i64) {
        self.current -= amount;
        self.freed += amount;
    }
}

/// What the measured program does, counted by hand: sizes, and at which step a block is new, reused, or given back.
#[test]
fn by_default_the_statistics_are_what_a_hand_count_says() {
    let program = Program::read();
    let mut subject = Subject::new(false);
    let [mut allocations, mut allocated_bytes, mut requests, mut bytes]: [Count; 4] = Default::default();
    let (mut cached, mut held, mut waiting) = (Vec::<i64>::new(), HashMap::<u64, i64>::new(), Vec::<i64>::new());
    let (mut is_busy, mut used, mut takes, mut gives) = (false, None, 0, 0);
    for (index, (step, _)) in program.steps().enumerate() {
        subject.run(step);
        let number = |index: usize| step[index].as_u64().unwrap();
        match step[0].as_str().unwrap() {
            "alloc" => {
                if !is_busy {
                    for size in waiting.drain(..) {
                        requests.take(1);
                        bytes.take(size);
                        cached.push(size);
                    }
                }
                let size = i64::try_from(number(2).next_power_of_two()).unwrap();
                match cached.iter().position(|found| *found == size) {
                    Some(at) => drop(cached.remove(at)),
                    None => {
                        allocations.add(1);
                        allocated_bytes.add(size);
                        takes += 1;
                    }
                }
                requests.add(1);
                bytes.add(size);
                held.insert(number(1), size);
            }
            "free" => {
                let size = held.remove(&number(1)).unwrap();
                if used == Some(number(1)) {
                    waiting.push(size);
                } else {
                    requests.take(1);
                    bytes.take(size);
                    cached.push(size);
                }
            }
            "use_on_busy_stream" => (is_busy, used) = (true, Some(number(1))),
            "sync" => is_busy = false,
            "empty_cache" => {
                for size in cached.drain(..) {
                    allocations.take(1);
                    allocated_bytes.take(size);
                    gives += 1;
                }
            }
            "reset_peak" => {
                for count in [&mut allocations, &mut allocated_bytes, &mut requests, &mut bytes] {
                    count.peak = count.current;
                }
            }
            "reset_accumulated" => {
                for count in [&mut allocations, &mut allocated_bytes, &mut requests, &mut bytes] {
                    (count.allocated, count.freed) = (0, 0);
                }
            }
            other => panic!("a step `{other}`"),
        }
        let mut expected = Stats::from([("num_host_alloc".to_owned(), takes), ("num_host_free".to_owned(), gives)]);
        let counts = [
            ("allocations", &allocations),
            ("allocated_bytes", &allocated_bytes),
            ("active_requests", &requests),
            ("active_bytes", &bytes),
        ];
        for (name, count) in counts {
            let Count { current, peak, allocated, freed } = count;
            let entries = [("current", current), ("peak", peak), ("allocated", allocated), ("freed", freed)];
            expected.extend(entries.map(|(metric, value)| (format!("{name}.{metric}"), *value)));
        }
        assert_eq!(subject.stats_without(&program.time_keys()), expected, "after step {index}, {step:?}");
    }
    assert_eq!((held.len(), bytes.current), (2, 1025), "of the program's end");
}

#[test]
fn a_peak_of_pytorchs_is_the_sum_of_the_sizes_peaks() {
    let peaks = [true, false].map(|torch_exact| {
        let mut subject = Subject::new(torch_exact);
        let (first, second) = (64, 128);
        // Used, so that PyTorch counts the end of the use, by one byte more instead of 64 fewer.
        let buffer = PinnedBuffer::<u8>::uninit(&subject.allocator, first).unwrap();
        buffer.record_stream(STREAM).unwrap();
        drop(buffer);
        subject.buffers.insert(0, PinnedBuffer::uninit(&subject.allocator, second).unwrap());
        let stats = subject.allocator.host_memory_stats();
        (stats.active_requests.peak, stats.active_requests.current, stats.active_bytes.peak, stats.active_bytes.current)
    });
    assert_eq!(peaks, [(2, 1, 64 + 128, 64 + 1 + 128), (1, 1, 128, 128)]);
}

#[test]
fn times_are_counted_per_call_and_reset_as_said() {
    let subject = Subject::new(false);
    let delay = std::time::Duration::from_millis(3);
    subject.device.inject(memtrack::device::Fault::Delay {
        operation: memtrack::device::Operation::AllocatePinned,
        duration: delay,
    });
    let buffers = [1, 2].map(|len| PinnedBuffer::<u8>::uninit(&subject.allocator, len).unwrap());
    subject.device.clear_faults();
    drop(buffers);
    subject.allocator.empty_cache().unwrap();
    let stats = subject.allocator.host_memory_stats();
    let (alloc, free) = (stats.host_alloc_time, stats.host_free_time);
    assert_eq!((alloc.count, free.count, stats.num_host_alloc, stats.num_host_free), (2, 2, 2, 2));
    assert!(alloc.min >= 3000 && alloc.max >= alloc.min && alloc.total >= alloc.min + alloc.max, "{alloc:?}");
    assert!(alloc.avg() >= alloc.min && alloc.avg() <= alloc.max, "{alloc:?}");

    subject.allocator.reset_peak_host_memory_stats();
    let time = subject.allocator.host_memory_stats().host_alloc_time;
    assert_eq!((time.min, time.max, time.total, time.count), (0, 0, alloc.total, 2));
    subject.allocator.reset_accumulated_host_memory_stats();
    let stats = subject.allocator.host_memory_stats();
    assert_eq!((stats.host_alloc_time.total, stats.host_alloc_time.count, stats.host_alloc_time.avg()), (0, 0, 0));
    assert_eq!((stats.num_host_alloc, stats.num_host_free), (2, 2), "these are no accumulated counters");
}
