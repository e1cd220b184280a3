//! Whether the driver's memory pool, read as a memory source, says what a program did that allocates by cudarc alone.
//!
//! `source-check` has no allocator of memtrack's. It allocates on the first GPU in nested scopes and annotated functions, on one
//! thread and on two, and compares each record with what it did; then it takes the time of a reading. It exits with 1 where a figure
//! differs, and with 2 where there is no GPU to ask.

use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DriverError};
use memtrack::scope::{Outcome, Scope};
use memtrack::source::{CudaPoolSource, MemorySource as _, PeakKind, SourceFigures, register_source};
use memtrack::track_memory;
use std::error::Error;
use std::process::ExitCode;
use std::sync::{Arc, Barrier};
use std::time::Instant;

type Failure = Box<dyn Error>;

const MIB: usize = 1 << 20;
const STEP_COUNT: u64 = 200;

/// A generator of small numbers, the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

/// Allocates as the program does, and keeps count of it.
struct Program {
    stream: Arc<CudaStream>,
    live: Vec<CudaSlice<u8>>,
    used_bytes: i64,
    /// The most since each open scope began, the innermost last.
    peaks: Vec<i64>,
    random: Random,
    compared_count: u64,
}

impl Program {
    fn take(&mut self, bytes: usize) -> Result<(), DriverError> {
        let slice = self.stream.alloc_zeros::<u8>(bytes)?;
        self.used_bytes += size(&slice);
        self.peaks.iter_mut().for_each(|peak| *peak = self.used_bytes.max(*peak));
        self.live.push(slice);
        Ok(())
    }

    fn give_back(&mut self) {
        if !self.live.is_empty() {
            let slice = self.live.swap_remove(self.random.below(self.live.len()));
            self.used_bytes -= size(&slice);
        }
    }

    /// Some of both, and scopes in between down to a depth.
    fn work(&mut self, depth: usize) -> Result<(), Failure> {
        for _ in 0..1 + self.random.below(6) {
            match self.random.below(5) {
                0 | 1 => {
                    // Odd sizes too: the driver counts to the byte, or the figures differ.
                    let most = [1000, MIB, 64 * MIB][self.random.below(3)];
                    let bytes = 1 + self.random.below(most);
                    self.take(bytes)?;
                }
                2 | 3 => self.give_back(),
                _ if depth > 0 => self.in_scope(depth - 1)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn in_scope(&mut self, depth: usize) -> Result<(), Failure> {
        let scope = open("random")?;
        let before_bytes = self.used_bytes;
        self.peaks.push(before_bytes);
        self.work(depth)?;
        let peak_bytes = self.peaks.pop().unwrap_or(before_bytes);
        let figures = close(scope)?;
        self.compared_count += 1;
        let expected = (Some(before_bytes), Some(self.used_bytes), Some(peak_bytes), PeakKind::Exact);
        let told = (figures.before_bytes, figures.after_bytes, figures.peak_bytes, figures.peak_kind);
        if told != expected {
            return Err(format!("the source says {told:?}, and the program did {expected:?}").into());
        }
        Ok(())
    }
}

fn size(slice: &CudaSlice<u8>) -> i64 {
    i64::try_from(slice.len()).unwrap_or(i64::MAX)
}

fn open(name: &'static str) -> Result<Scope, Failure> {
    memtrack::scope(name).ok_or_else(|| "no scope although a source is registered".into())
}

fn close(scope: Scope) -> Result<SourceFigures, Failure> {
    let figures = scope.close(Outcome::Ok).sources.into_iter().next().ok_or("a record without its source")?;
    match figures.failure {
        Some(error) => Err(error.into()),
        None => Ok(figures),
    }
}

#[track_memory(phase = "forward", err)]
fn forward(stream: &Arc<CudaStream>) -> Result<CudaSlice<u8>, DriverError> {
    drop(stream.alloc_zeros::<u8>(300 * MIB)?);
    stream.alloc_zeros::<u8>(100 * MIB)
}

#[track_memory(phase = "backward")]
fn backward(activations: CudaSlice<u8>) {
    drop(activations);
}

/// A training's shape, by its summary.
fn check_epoch(stream: &Arc<CudaStream>) -> Result<(), Failure> {
    let epoch = memtrack::epoch(1);
    for number in 0..3 {
        let _step = memtrack::step(number);
        backward(forward(stream)?);
    }
    let summary = epoch.finish().ok_or("no summary although a source is registered")?;
    println!("{summary}");
    let source = summary.sources.first().ok_or("a summary without its source")?;
    let rises: Vec<_> = source
        .phases
        .iter()
        .map(|phase| (phase.name, phase.entered_count, phase.net_bytes, phase.rise_max_bytes))
        .collect();
    let (kept, peak) = (100 << 20, 300 << 20);
    if rises != [("forward", 3, Some(3 * kept), Some(peak)), ("backward", 3, Some(-3 * kept), Some(0))] {
        return Err(format!("other phases than the program had: {rises:?}").into());
    }
    Ok(())
}

/// Two scopes that overlap on two threads: each has the peak of both, and says so.
fn check_threads(context: &Arc<CudaContext>) -> Result<(), Failure> {
    let (both_open, all_done) = (Barrier::new(2), Barrier::new(2));
    let run = |mebibytes: usize| -> Result<SourceFigures, String> {
        let told = |error: Failure| error.to_string();
        let bound = context.bind_to_thread().map_err(|error| error.to_string());
        let scope = bound.and_then(|()| open("beside another").map_err(told));
        both_open.wait();
        let slice = context.default_stream().alloc_zeros::<u8>(mebibytes * MIB).map_err(|error| error.to_string());
        all_done.wait();
        drop(slice?);
        close(scope?).map_err(told)
    };
    let (one, other) = std::thread::scope(|threads| {
        let other = threads.spawn(|| run(64));
        (run(128), other.join())
    });
    let all = [one?, other.map_err(|_| "a thread panicked")??];
    for figures in &all {
        if figures.peak_kind != PeakKind::Shared || figures.peak_delta_bytes() != Some(192 << 20) {
            return Err(format!("a shared peak of 192 MiB above the start was expected: {figures:?}").into());
        }
    }
    Ok(())
}

fn check() -> Result<(), Failure> {
    let context = CudaContext::new(0)?;
    let stream = context.default_stream();
    let source = Arc::new(CudaPoolSource::current(0)?);
    let registered = register_source(source.clone())?;
    let used = source.read()?.current_bytes;
    let mut program = Program {
        stream: Arc::clone(&stream),
        live: Vec::new(),
        used_bytes: i64::try_from(used)?,
        peaks: Vec::new(),
        random: Random(88_172_645_463_325_252),
        compared_count: 0,
    };
    for _ in 0..STEP_COUNT {
        program.in_scope(4)?;
    }
    println!("{} scopes compared, {} blocks live at the end", program.compared_count, program.live.len());
    if program.compared_count < 2 * STEP_COUNT {
        return Err("hardly any scope was inside another: that shows nothing".into());
    }
    drop(program);
    check_epoch(&stream)?;
    check_threads(&context)?;
    println!("two overlapping scopes share their peak and say so");
    let count = 10_000_u32;
    let started = Instant::now();
    for _ in 0..count {
        source.read()?;
    }
    println!("a reading takes {:?}", started.elapsed() / count);
    let started = Instant::now();
    for _ in 0..count {
        drop(close(open("empty")?)?);
    }
    println!("a scope with the source takes {:?}", started.elapsed() / count);
    drop(registered);
    match memtrack::scope("nothing is registered") {
        None => Ok(()),
        Some(_) => Err("a scope although nothing is registered any more".into()),
    }
}

fn main() -> ExitCode {
    // It opens the driver as the sources do, which say what is missing where cudarc would panic.
    if let Err(error) = CudaPoolSource::current(0) {
        eprintln!("error: {error}");
        return ExitCode::from(2);
    }
    match check() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
