//! What live blocks hold while `policy:compact` moves pages under queued work: `compact-check cuda[:N]`. Random blocks on three streams
//! are filled in stream order, without waiting, given back and taken again from the same few pages; then what each should hold is
//! compared with what it holds. Exits with 1 where a byte differs.

use std::process::ExitCode;
use std::sync::Arc;

use memtrack::device::{Cuda, Device, Stream};
use memtrack::{AllocationError, CachingAllocator, Config};

type Failure = Box<dyn std::error::Error>;

const PAGE_BYTES: u64 = 2 << 20;
const LARGEST_PAGES: u64 = 64;
const LIMIT_PAGES: u64 = 640;
const STEP_COUNT: u64 = 6000;

/// Xorshift: the same numbers in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % end
    }
}

struct Block {
    address: u64,
    bytes: u64,
    value: u8,
    stream: Stream,
}

/// A device with several streams.
struct Subject {
    device: Arc<dyn Device>,
    streams: Vec<Stream>,
}

fn open(name: &str) -> Result<Subject, Failure> {
    let ordinal = match name.strip_prefix("cuda") {
        Some("") => 0,
        Some(number) => number.strip_prefix(':').unwrap_or(number).parse()?,
        None => return Err(format!("no device to check is called {name:?}; say cuda or cuda:N").into()),
    };
    let cuda = Arc::new(Cuda::new(ordinal)?);
    let mut streams = vec![Stream::DEFAULT];
    for _ in 0..2 {
        streams.push(cuda.register_stream(&cuda.context().new_stream()?)?);
    }
    Ok(Subject { device: cuda, streams })
}

fn fill(device: &dyn Device, block: &Block) -> Result<(), Failure> {
    // SAFETY: the block is live, and nobody but its own stream uses it.
    Ok(unsafe { device.fill(block.address, block.value, block.bytes, block.stream) }?)
}

/// Where the block first holds what it should not.
fn difference(device: &dyn Device, block: &Block, read: &mut Vec<u8>) -> Result<Option<usize>, Failure> {
    read.resize(block.bytes as usize, 0);
    // SAFETY: the block is live, nobody but its own stream uses it, and the read is ordered by that.
    unsafe { device.read(block.address, read, block.stream) }?;
    Ok(read.iter().position(|byte| *byte != block.value))
}

fn check(subject: &Subject) -> Result<bool, Failure> {
    let Subject { device, streams } = subject;
    let config: Config = "policy:compact,compact_slack_percent:0".parse()?;
    let allocator = CachingAllocator::with_config(Arc::clone(device), config)?;
    allocator.set_memory_fraction((LIMIT_PAGES * PAGE_BYTES) as f64 / device.total_bytes() as f64)?;
    let (mut random, mut read, mut live) = (Random(88_172_645_463_325_252), Vec::new(), Vec::<Block>::new());
    let (mut compared_count, mut refused_count) = (0_u64, 0_u64);
    for step in 0..STEP_COUNT {
        let wanted = random.below(100);
        if wanted < 55 {
            let most = [64 << 10, PAGE_BYTES, 16 * PAGE_BYTES, LARGEST_PAGES * PAGE_BYTES][random.below(4) as usize];
            let (bytes, stream) = (1 + random.below(most), streams[random.below(streams.len() as u64) as usize]);
            match allocator.allocate_raw(bytes, stream) {
                Ok(address) => {
                    let block = Block { address, bytes, value: 1 + (step % 255) as u8, stream };
                    // Several times: the last work of the block before may then be under way still.
                    for _ in 0..1 + random.below(8) {
                        fill(&**device, &block)?;
                    }
                    live.push(block);
                }
                Err(AllocationError::OutOfMemory(_)) => {
                    refused_count += 1;
                    let half = live.len() / 2;
                    live.drain(..half).try_for_each(|block| allocator.free_raw(block.address))?;
                }
                Err(error) => return Err(error.into()),
            }
        } else if wanted < 97 {
            if !live.is_empty() {
                let block = live.swap_remove(random.below(live.len() as u64) as usize);
                allocator.free_raw(block.address)?;
            }
        } else if let Some(block) = live.get(random.below(live.len().max(1) as u64) as usize) {
            compared_count += 1;
            if let Some(at) = difference(&**device, block, &mut read)? {
                println!("step {step}: byte {at} of a live block of {} bytes differs", block.bytes);
                return Ok(false);
            }
        }
        if step % 1500 == 1499 {
            allocator.empty_cache()?;
        }
    }
    for block in &live {
        compared_count += 1;
        if let Some(at) = difference(&**device, block, &mut read)? {
            println!("at the end byte {at} of a live block of {} bytes differs", block.bytes);
            return Ok(false);
        }
    }
    live.drain(..).try_for_each(|block| allocator.free_raw(block.address))?;
    println!(
        "{STEP_COUNT} steps, {compared_count} blocks compared, {refused_count} requests refused; {:?}",
        allocator.compact_stats()
    );
    let moves = allocator.compact_stats().moved_page_count;
    if moves < 100 {
        println!("only {moves} pages moved: that shows nothing");
    }
    Ok(moves >= 100)
}

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    match open(&name).and_then(|subject| check(&subject)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(2)
        }
    }
}
