//! The steps of `peer_bench.cpp` through `Buffer`s, which spare the look-up of each freed address: peer_buffers PEER STEPS
//! TRACE..., where PEER is `buffers` with or without an end that `setup.rs` knows. Change both programs together.

use std::array;
use std::collections::{BTreeMap, HashMap};
use std::error::Error;
use std::fs;
use std::process::ExitCode;
use std::thread;
use std::time::Instant;

use memtrack::device::Stream;
use memtrack::scope::{Outcome, Scope};
use memtrack::{AllocationError, Buffer, CachingAllocator};
use memtrack_peers::Peer;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (Some(name), Some(steps)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: peer_buffers PEER STEPS TRACE..., with some of pair,churn,threads,replay as STEPS");
        return ExitCode::from(2);
    };
    match measure(&name, &steps, arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(name: &str, steps: &str, traces: impl Iterator<Item = String>) -> Result<(), Box<dyn Error>> {
    if !name.starts_with("buffers") {
        return Err(format!("this build has no peer {name}").into());
    }
    let steps: Vec<&str> = steps.split(',').collect();
    let has = |part| steps.contains(&part);
    let mut peer = Peer::open(name)?;
    if has("pair") {
        timed(name, "pair", || pairs(&peer, name))?;
    }
    if has("churn") {
        timed(name, "churn", || churn(&peer, name))?;
    }
    if has("threads") {
        timed(name, "threads", || threads(&peer, name))?;
    }
    if has("replay") {
        timed(name, "replay", || {
            for path in traces {
                replay(&mut peer, name, &path)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Says how long a part of the program took.
fn timed(name: &str, part: &str, steps: impl FnOnce() -> Result<(), Box<dyn Error>>) -> Result<(), Box<dyn Error>> {
    let begin = Instant::now();
    steps()?;
    println!(r#"{{"peer":"{name}","bench":"part","part":"{part}","seconds":{:.2}}}"#, begin.elapsed().as_secs_f64());
    Ok(())
}

/// Closes a thread's scope: the allocations that were booked to it, none where there is no scope.
fn leave(scope: Option<Scope>) -> i64 {
    scope.map_or(0, |scope| scope.close(Outcome::Ok).own_allocation_count)
}

fn nanoseconds_since(begin: Instant) -> f64 {
    begin.elapsed().as_nanos() as f64
}

/// SplitMix64, so that both programs draw the same numbers.
struct Random {
    state: u64,
}

impl Random {
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = self.state;
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 512 bytes to 16 MiB, evenly over the powers of two.
    fn size(&mut self) -> usize {
        let power = self.next() % 15;
        ((512 + self.next() % 512) << power) as usize
    }
}

fn pair(allocator: &CachingAllocator, stream: Stream, bytes: usize) -> Result<(), AllocationError> {
    Buffer::<u8>::uninit_on(allocator, stream, bytes).map(drop)
}

fn pairs(peer: &Peer, name: &str) -> Result<(), Box<dyn Error>> {
    const COUNT: usize = 20_000;
    for bytes in [512, 64 << 10, 4 << 20, 100 << 20] {
        pair(peer.allocator(), Stream::DEFAULT, bytes)?;
        let mut times = [0.0; 7];
        let scope = peer.enter();
        for time in &mut times {
            let begin = Instant::now();
            for _ in 0..COUNT {
                pair(peer.allocator(), Stream::DEFAULT, bytes)?;
            }
            *time = nanoseconds_since(begin) / COUNT as f64;
        }
        let owned = leave(scope);
        peer.allocator().device().synchronize()?;
        times.sort_by(f64::total_cmp);
        println!(r#"{{"peer":"{name}","bench":"pair","bytes":{bytes},"owned":{owned},"ns":{:.1}}}"#, times[3]);
    }
    Ok(())
}

fn churn(peer: &Peer, name: &str) -> Result<(), Box<dyn Error>> {
    const COUNT: usize = 100_000;
    let mut random = Random { state: 1 };
    let scope = peer.enter();
    let allocate = |bytes| Buffer::<u8>::uninit(peer.allocator(), bytes).map(Some);
    let mut live = (0..4096).map(|_| allocate(random.size())).collect::<Result<Vec<_>, _>>()?;
    let steps: Vec<(usize, usize)> =
        (0..COUNT).map(|_| ((random.next() % live.len() as u64) as usize, random.size())).collect();
    let mut ns = 0.0;
    // The last pass counts, when all segments are there.
    for _ in 0..3 {
        let begin = Instant::now();
        for &(place, bytes) in &steps {
            // Freed first.
            live[place] = None;
            live[place] = allocate(bytes)?;
        }
        ns = nanoseconds_since(begin) / COUNT as f64;
    }
    drop(live);
    let owned = leave(scope);
    peer.allocator().device().synchronize()?;
    println!(r#"{{"peer":"{name}","bench":"churn","owned":{owned},"ns":{ns:.1}}}"#);
    Ok(())
}

fn threads(peer: &Peer, name: &str) -> Result<(), Box<dyn Error>> {
    const BYTES: usize = 64 << 10;
    const TOTAL: usize = 64_000;
    for number in array::from_fn::<usize, 5, _>(|power| 1 << power) {
        let count = TOTAL / number;
        let streams = (0..number).map(|_| peer.new_stream()).collect::<Result<Vec<_>, _>>()?;
        for stream in &streams {
            pair(peer.allocator(), *stream, BYTES)?;
        }
        let work = |stream: Stream| -> Result<i64, AllocationError> {
            let scope = peer.enter();
            (0..count).try_for_each(|_| pair(peer.allocator(), stream, BYTES))?;
            Ok(leave(scope))
        };
        let begin = Instant::now();
        let owned = thread::scope(|threads| {
            let workers: Vec<_> = streams.iter().map(|stream| threads.spawn(|| work(*stream))).collect();
            workers.into_iter().try_fold(0, |owned, worker| match worker.join() {
                Ok(outcome) => outcome.map(|more| owned + more).map_err(Box::<dyn Error>::from),
                Err(_) => Err("a thread panicked".into()),
            })
        })?;
        let ns = nanoseconds_since(begin) / (count * number) as f64;
        peer.allocator().device().synchronize()?;
        println!(r#"{{"peer":"{name}","bench":"threads","threads":{number},"owned":{owned},"ns":{ns:.1}}}"#);
    }
    Ok(())
}

/// One `a` or `f` line of a trace.
#[derive(Clone, Copy)]
struct Step {
    allocates: bool,
    block: usize,
    bytes: usize,
    stream: usize,
}

struct Trace {
    steps: Vec<Step>,
    block_count: usize,
    stream_count: usize,
    /// The most bytes asked for at a time.
    requested_peak: usize,
}

fn read_trace(path: &str) -> Result<Trace, Box<dyn Error>> {
    let text = fs::read_to_string(path).map_err(|error| format!("{path} cannot be read: {error}"))?;
    let mut trace = Trace { steps: Vec::new(), block_count: 0, stream_count: 0, requested_peak: 0 };
    let mut streams = HashMap::from([(0_u64, 0_usize)]);
    let mut live: BTreeMap<usize, Step> = BTreeMap::new();
    let mut requested = 0;
    for line in text.lines() {
        let mut words = line.split(' ');
        match words.next() {
            Some("a") => {
                let mut number = || -> Result<u64, Box<dyn Error>> { Ok(words.next().unwrap_or_default().parse()?) };
                let (block, bytes, handle) = (number()? as usize, number()? as usize, number()?);
                let next = streams.len();
                let stream = *streams.entry(handle).or_insert(next);
                let step = Step { allocates: true, block, bytes: bytes.max(1), stream };
                live.insert(block, step);
                trace.steps.push(step);
                trace.block_count = trace.block_count.max(block + 1);
                requested += step.bytes;
                trace.requested_peak = trace.requested_peak.max(requested);
            }
            Some("f") => {
                if let Some(step) = live.remove(&words.next().unwrap_or_default().parse()?) {
                    requested -= step.bytes;
                    trace.steps.push(Step { allocates: false, ..step });
                }
            }
            _ => {}
        }
    }
    // What the run still held goes too, so that each pass begins with nothing allocated.
    trace.steps.extend(live.values().map(|step| Step { allocates: false, ..*step }));
    trace.stream_count = streams.len();
    Ok(trace)
}

/// Passes after the first, of which the best counts.
const WARM_PASSES: u32 = 4;

fn replay(peer: &mut Peer, name: &str, path: &str) -> Result<(), Box<dyn Error>> {
    let trace = read_trace(path)?;
    peer.renew()?;
    let peer = &*peer;
    let allocator = peer.allocator();
    let mut streams = vec![Stream::DEFAULT];
    for _ in 1..trace.stream_count {
        streams.push(peer.new_stream()?);
    }
    let mut blocks: Vec<Option<Buffer<u8>>> = (0..trace.block_count).map(|_| None).collect();
    let moved = || peer.moved_page_count().map_or(-1, u64::cast_signed);
    let (mut cold, mut warm, mut reserved_peak, mut moved_cold) = (0.0, f64::INFINITY, 0, 0);
    let scope = peer.enter();
    for pass in 0..=WARM_PASSES {
        let begin = Instant::now();
        for step in &trace.steps {
            blocks[step.block] = if step.allocates {
                Some(Buffer::uninit_on(allocator, streams[step.stream], step.bytes)?)
            } else {
                None
            };
        }
        let ns = nanoseconds_since(begin);
        allocator.device().synchronize()?;
        if pass == 0 {
            (cold, reserved_peak, moved_cold) = (ns, allocator.max_memory_reserved(), moved());
        } else {
            warm = ns.min(warm);
        }
    }
    let moved_warm = moved() - moved_cold;
    let owned = leave(scope);
    let file = path.rsplit('/').next().unwrap_or(path);
    println!(
        r#"{{"peer":"{name}","bench":"replay","trace":"{file}","steps":{},"requested_peak":{},"reserved_peak":{reserved_peak},"moved_cold":{moved_cold},"moved_warm":{:.1},"owned":{owned},"cold_ms":{:.2},"ns":{:.1}}}"#,
        trace.steps.len(),
        trace.requested_peak,
        if moved_cold < 0 { -1.0 } else { moved_warm as f64 / f64::from(WARM_PASSES) },
        cold / 1e6,
        warm / trace.steps.len() as f64
    );
    Ok(())
}
