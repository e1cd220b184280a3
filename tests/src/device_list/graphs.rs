//! The allocator in graph captures: the memory that a graph works on each time it is launched.

use std::collections::HashMap;
use std::sync::Arc;

use memtrack::device::{Device, Simulated, Stream};
use memtrack::{AllocationError, Buffer, CachingAllocator, Capture, Config, GraphMemory, MemoryPool, PoolOptions};

use super::{Capturing, Check, Checked, Controls, Failure, Graph, Outcome, ensure, ensure_matches};
use crate::conformance::special::{CAPTURING, CapturesGraphs, replay_graphs};
use crate::reference_allocator::{Counters, flatten};

const MIB: u64 = 1 << 20;
const CANNOT_CAPTURE: Outcome = Outcome::Skipped("a stream cannot be captured");

pub(super) const CHECKS: &[(&str, Check)] = &[
    ("a captured program counts as in PyTorch", a_captured_program_counts_as_in_pytorch),
    ("a graph works on the memory of its capture at each launch", a_graph_works_on_its_memory),
    ("blocks that other streams use wait for the end of a capture", used_blocks_wait_for_the_end),
    ("blocks that other streams use are reused once joined, if so set", joined_blocks_are_reused),
    ("out of memory leaves a capture whole", out_of_memory_leaves_a_capture_whole),
];

/// A stream that can be captured, with a way to begin.
type Captures<'a> = (&'a dyn Fn(Stream) -> Result<Box<dyn Capturing>, Failure>, Stream);

fn captures(controls: &Controls) -> Option<Captures<'_>> {
    Some((&**controls.capture.as_ref()?, controls.second_stream?))
}

fn allocator(device: &Arc<dyn Device>, config: &str) -> Result<CachingAllocator, Failure> {
    Ok(CachingAllocator::with_config(Arc::clone(device), config.parse()?)?)
}

/// Sets bytes of a block, in the order of a stream; on a simulated device it is work without content.
fn fill(device: &dyn Device, address: u64, value: u8, bytes: u64, stream: Stream) -> Result<(), Failure> {
    if let Some(simulated) = device.as_any().downcast_ref::<Simulated>() {
        simulated.capture_work(stream);
        return Ok(());
    }
    // SAFETY: the calling check holds the block, and orders its streams or waits for them; a graph that fills it again is launched
    // only while the pool's memory is held.
    Ok(unsafe { device.fill(address, value, bytes, stream) }?)
}

/// Lets a stream wait for what another has been given, and join its capture.
fn join(device: &dyn Device, stream: Stream, other: Stream) -> Result<(), Failure> {
    if let Some(simulated) = device.as_any().downcast_ref::<Simulated>() {
        simulated.join_capture(stream, other);
        return Ok(());
    }
    let event = device.record_event(other)?;
    let joined = device.stream_wait_event(stream, &event);
    device.release_event(event);
    Ok(joined?)
}

/// `graph.json` on a device that can capture.
pub struct CapturedOn<'a> {
    allocator: CachingAllocator,
    captures: Captures<'a>,
    capturing: Option<(Capture, Box<dyn Capturing>)>,
    graphs: HashMap<u64, (Box<dyn Graph>, GraphMemory)>,
    pool: Option<MemoryPool>,
}

impl<'a> CapturedOn<'a> {
    /// A fresh allocator on the device; nothing if it cannot capture.
    ///
    /// # Errors
    ///
    /// None that is known: the settings are right.
    pub fn new(device: Arc<dyn Device>, controls: &'a Controls, torch_exact: bool) -> Result<Option<Self>, Failure> {
        let Some(captures) = captures(controls) else { return Ok(None) };
        let mut config = Config::default();
        config.torch_exact = torch_exact;
        let allocator = CachingAllocator::with_config(device, config)?;
        let (capturing, graphs, pool) = (None, HashMap::new(), None);
        Ok(Some(Self { allocator, captures, capturing, graphs, pool }))
    }
}

impl CapturesGraphs for CapturedOn<'_> {
    fn allocate(&mut self, bytes: u64, stream: u64) -> Result<u64, Failure> {
        let stream = if stream == CAPTURING { self.captures.1 } else { Stream(stream) };
        let address = self.allocator.allocate_raw(bytes, stream)?;
        // So that each graph has some work.
        fill(&**self.allocator.device(), address, 1, bytes, stream)?;
        Ok(address)
    }

    fn free(&mut self, address: u64) -> Result<(), Failure> {
        Ok(self.allocator.free_raw(address)?)
    }

    fn begin_capture(&mut self, new_pool: bool) -> Result<(), Failure> {
        if new_pool {
            self.pool = Some(self.allocator.create_pool(PoolOptions::default()));
        }
        let pool = self.pool.as_ref().ok_or("there is no pool")?;
        let (begin, stream) = self.captures;
        self.capturing = Some((pool.begin_capture(stream)?, begin(stream)?));
        Ok(())
    }

    fn end_capture(&mut self, graph: u64) -> Result<(), Failure> {
        let (capture, capturing) = self.capturing.take().ok_or("nothing is captured")?;
        self.graphs.insert(graph, (capturing.into_graph()?, capture.end()));
        if graph == 2 {
            self.pool = None;
        }
        Ok(())
    }

    fn replay(&mut self) -> Result<(), Failure> {
        self.graphs[&1].0.launch()?;
        Ok(self.allocator.device().synchronize()?)
    }

    fn delete_graph(&mut self, graph: u64) -> Result<(), Failure> {
        self.graphs.remove(&graph).map(drop).ok_or_else(|| "there is no such graph".into())
    }

    fn empty_cache(&mut self) -> Result<(), Failure> {
        Ok(self.allocator.empty_cache()?)
    }

    fn counters(&self) -> Counters {
        flatten(&self.allocator.memory_stats())
    }
}

fn a_captured_program_counts_as_in_pytorch(device: &Arc<dyn Device>, controls: &Controls) -> Checked {
    for torch_exact in [false, true] {
        let Some(mut subject) = CapturedOn::new(Arc::clone(device), controls, torch_exact)? else {
            return Ok(CANNOT_CAPTURE);
        };
        replay_graphs(&mut subject)?;
    }
    Ok(Outcome::Held)
}

fn a_graph_works_on_its_memory(device: &Arc<dyn Device>, controls: &Controls) -> Checked {
    const BYTES: usize = 3 << 20;
    let Some((begin, stream)) = captures(controls) else { return Ok(CANNOT_CAPTURE) };
    if !controls.has_bytes {
        return Ok(Outcome::Skipped("there are no bytes"));
    }
    let allocator = allocator(device, "")?;
    let buffer = || Buffer::<u8>::uninit_on(&allocator, stream, BYTES);
    let mut input = buffer()?;
    let pool = allocator.create_pool(PoolOptions::default());
    let capture = pool.begin_capture(stream)?;
    let capturing = begin(stream)?;
    // result = input, by way of two buffers of which the second has the memory of one freed before.
    let scratch = Buffer::<u8>::zeros_on(&allocator, stream, BYTES)?;
    let scratch_address = scratch.address();
    let mut first = buffer()?;
    first.copy_from(&input)?;
    drop(scratch);
    let mut second = buffer()?;
    ensure!(second.address() == scratch_address, "memory that was freed in the capture is not used again");
    fill(&**device, second.address(), 0xee, BYTES as u64, stream)?;
    second.copy_from(&first)?;
    let mut result = buffer()?;
    result.copy_from(&second)?;
    drop((first, second));
    let graph = capturing.into_graph()?;
    let memory = capture.end();
    ensure!(allocator.memory_reserved() == 40 << 20, "{} bytes reserved", allocator.memory_reserved());
    for seed in [1, 2] {
        let expected: Vec<u8> = (0..BYTES).map(|at| (at >> 7) as u8 ^ at as u8 ^ seed).collect();
        input.copy_from_slice(&expected)?;
        // Others' memory is elsewhere, also after the cache was emptied.
        let mut other = buffer()?;
        other.copy_from_slice(&vec![0x55; BYTES])?;
        graph.launch()?;
        ensure!(result.to_vec()? == expected, "launch {seed} gave another result");
        ensure!(
            other.to_vec()?.iter().all(|byte| *byte == 0x55),
            "launch {seed} wrote to memory that is not the graph's"
        );
        allocator.empty_cache()?;
        ensure!(allocator.memory_reserved() == 40 << 20, "{} bytes reserved", allocator.memory_reserved());
    }
    drop((input, pool));
    allocator.empty_cache()?;
    ensure!(allocator.memory_reserved() == 20 << 20, "the graph's memory is not all that is left");
    drop((graph, memory));
    allocator.empty_cache()?;
    ensure!(result.to_vec()?[1 << 7] == (1 ^ 0x80 ^ 2), "the result went with the graph");
    drop(result);
    allocator.empty_cache()?;
    ensure!(allocator.memory_reserved() == 0, "{} bytes are left", allocator.memory_reserved());
    Ok(Outcome::Held)
}

/// A block on the first stream, a segment of its own, that both work with in a capture, freed, and then asked for again: at once, after work on the
/// first stream, and once that has joined the second. Whether it was given out again in each case.
fn reused(
    device: &dyn Device,
    allocator: &CachingAllocator,
    [stream, other]: [Stream; 2],
) -> Result<[bool; 3], Failure> {
    const BYTES: u64 = 12 * MIB;
    let block = allocator.allocate_raw(BYTES, stream)?;
    fill(device, block, 1, BYTES, stream)?;
    join(device, other, stream)?;
    allocator.record_stream_raw(block, other)?;
    fill(device, block, 2, BYTES, other)?;
    allocator.free_raw(block)?;
    let mut held = Vec::new();
    let mut again = || -> Result<bool, Failure> {
        let next = allocator.allocate_raw(BYTES, stream)?;
        fill(device, next, 3, BYTES, stream)?;
        held.push(next);
        Ok(next == block)
    };
    let (at_once, after_work) = (again()?, again()?);
    join(device, stream, other)?;
    let after_join = again()?;
    held.into_iter().try_for_each(|block| allocator.free_raw(block))?;
    Ok([at_once, after_work, after_join])
}

/// Runs [`reused`] twice in one capture with this setting, and sees to it that nothing is left.
fn captured_reuse(device: &Arc<dyn Device>, controls: &Controls, config: &str, expected: [bool; 3]) -> Checked {
    let (Some((begin, stream)), Some(other)) = (captures(controls), controls.third_stream) else {
        return Ok(CANNOT_CAPTURE);
    };
    let allocator = allocator(device, config)?;
    let pool = allocator.create_pool(PoolOptions::default());
    let capture = pool.begin_capture(stream)?;
    let capturing = begin(stream)?;
    for turn in [1, 2] {
        let found = reused(&**device, &allocator, [stream, other])?;
        ensure!(found == expected, "turn {turn}: {found:?}");
    }
    let waiting = allocator.memory_stats().active.all.current;
    ensure!(waiting == if expected[2] { 0 } else { 2 }, "{waiting} blocks are not free yet");
    let graph = capturing.into_graph()?;
    let memory = capture.end();
    graph.launch()?;
    device.synchronize()?;
    allocator.free_raw(allocator.allocate_raw(512, Stream::DEFAULT)?)?;
    ensure!(allocator.memory_stats().active.all.current == 0, "blocks are held after the capture");
    drop((graph, memory, pool));
    allocator.empty_cache()?;
    ensure!(allocator.memory_reserved() == 0, "{} bytes are left", allocator.memory_reserved());
    Ok(Outcome::Held)
}

fn used_blocks_wait_for_the_end(device: &Arc<dyn Device>, controls: &Controls) -> Checked {
    captured_reuse(device, controls, "", [false; 3])
}

fn joined_blocks_are_reused(device: &Arc<dyn Device>, controls: &Controls) -> Checked {
    captured_reuse(device, controls, "graph_capture_record_stream_reuse:True", [false, false, true])
}

fn out_of_memory_leaves_a_capture_whole(device: &Arc<dyn Device>, controls: &Controls) -> Checked {
    let Some((begin, stream)) = captures(controls) else { return Ok(CANNOT_CAPTURE) };
    let allocator = allocator(device, "")?;
    // Work that is not known to be done, and memory that could be given back.
    let block = allocator.allocate_raw(30 * MIB, Stream::DEFAULT)?;
    allocator.record_stream_raw(block, stream)?;
    allocator.free_raw(block)?;
    let pool = allocator.create_pool(PoolOptions::default());
    let capture = pool.begin_capture(stream)?;
    let capturing = begin(stream)?;
    ensure_matches!(
        allocator.allocate_raw(2 * device.total_bytes(), stream),
        Err(AllocationError::OutOfMemory(error)) if error.returned_bytes == 0
    );
    let block = allocator.allocate_raw(MIB, stream)?;
    fill(&**device, block, 1, MIB, stream)?;
    allocator.empty_cache()?;
    ensure!(allocator.memory_stats().num_alloc_retries == 0, "a retry in a capture");
    let graph = capturing.into_graph()?;
    let memory = capture.end();
    graph.launch()?;
    allocator.free_raw(block)?;
    drop((graph, memory, pool));
    allocator.empty_cache()?;
    ensure!(allocator.memory_reserved() == 0, "{} bytes are left", allocator.memory_reserved());
    Ok(Outcome::Held)
}
