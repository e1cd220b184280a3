//! Whether the driver's figures of a GPU add up while memory comes and goes, and why an out of memory on it happened.
//!
//! `driver-check` goes through a program's life on the first GPU: before it has a context, with one, with buffers, after
//! cuBLAS, beside a second process that holds memory, after `empty_cache`, and out of memory. After each step it prints the
//! reconciled figures, and fails if 16 MiB or more are unexplained. `driver-check hold BYTES` is the second process: it holds
//! that much until its standard input ends.

use cudarc::cublas::sys::cublasOperation_t;
use cudarc::cublas::{CudaBlas, Gemm as _, GemmConfig};
use memtrack::device::{Cuda, Device, Stream};
use memtrack::diagnosis::{Finding, FindingCode};
use memtrack::driver::{DriverView, Inventory, Reconciliation};
use memtrack::units::{Bytes, GIB, MIB};
use memtrack::{AllocationError, Buffer, CachingAllocator, Config};
use std::error::Error;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// What may stay unexplained: with nobody on it, an H200 has 9 MiB in use.
const ALLOWED_BYTES: u64 = 16 * MIB;
/// What the second process holds, beside its context.
const HELD_BYTES: u64 = GIB;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.as_slice() {
        [] => check(),
        [hold, bytes] if hold == "hold" => self::hold(bytes),
        _ => Err("usage: driver-check, or driver-check hold BYTES".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Holds memory until nobody writes to standard input any more.
fn hold(bytes: &str) -> Outcome<()> {
    let allocator = CachingAllocator::new(Arc::new(Cuda::new(0)?));
    let _held = Buffer::<u8>::uninit(&allocator, bytes.parse()?)?;
    writeln!(io::stdout(), "holding")?;
    io::stdout().flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// The second process, which ends with this value.
struct Holder(Child);

impl Holder {
    fn start(bytes: u64) -> Outcome<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(["hold", &bytes.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        let holder = Self(child);
        if line.trim() == "holding" { Ok(holder) } else { Err("the second process got no memory".into()) }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Prints the figures and holds what is unexplained against what is allowed.
fn show(step: &str, allocator: &CachingAllocator, view: &DriverView) -> Outcome<Reconciliation> {
    let report = view.report(unsigned(allocator.memory_allocated()), unsigned(allocator.memory_reserved()));
    println!("{step}: {report}");
    let figures = report.reconciliation().ok_or("the driver has no figures")?.clone();
    allowed(step, figures.unexplained_bytes)?;
    Ok(figures)
}

fn allowed(step: &str, unexplained_bytes: i64) -> Outcome<()> {
    if unexplained_bytes.unsigned_abs() < ALLOWED_BYTES {
        return Ok(());
    }
    Err(format!("{step}: {} unexplained, {} allowed", Bytes(unexplained_bytes), Bytes::unsigned(ALLOWED_BYTES)).into())
}

fn unsigned(bytes: i64) -> u64 {
    u64::try_from(bytes).unwrap_or(0)
}

fn check() -> Outcome<()> {
    let before = Inventory::open(None)?;
    let used_before: Vec<(String, i64)> = before
        .devices()
        .iter()
        .filter_map(|device| {
            let sample = device.sample();
            let listed: u64 = sample.processes.ok()?.iter().filter_map(|process| process.memory.known()).sum();
            let used_bytes = sample.memory.ok()?.used_bytes;
            Some((device.uuid.clone().ok()?, i64::try_from(used_bytes).ok()? - i64::try_from(listed).ok()?))
        })
        .collect();

    let device = Cuda::new(0)?;
    let uuid = device.uuid().ok_or("the device has no UUID")?.to_string();
    let (_, nobodys) = used_before
        .iter()
        .find(|(known, _)| known.ends_with(&uuid))
        .ok_or("the device was not listed before it had a context")?;
    println!("before the context: used by no process {}", Bytes(*nobodys));
    allowed("before the context", *nobodys)?;

    let stream = device.cuda_stream(Stream::DEFAULT).ok_or("the device has no default stream")?;
    // The usual segments of PyTorch, whatever the environment says.
    let allocator = CachingAllocator::with_config(Arc::new(device), Config::default())?;
    let _current = allocator.make_current();
    let view = allocator.attach_driver()?;
    show("with a context", &allocator, view)?;

    let kept = Buffer::<f32>::zeros(&allocator, 64 << 20)?;
    drop(Buffer::<u8>::uninit(&allocator, 512 << 20)?);
    let figures = show("with 256 MiB allocated and 512 MiB cached", &allocator, view)?;
    if (figures.allocated_bytes, figures.cached_bytes) != (256 * MIB, 512 * MIB) {
        return Err("the allocator's own figures are wrong".into());
    }

    let blas = multiply(&stream, &allocator)?;
    let report = view.report(unsigned(allocator.memory_allocated()), unsigned(allocator.memory_reserved()));
    println!("after cuBLAS, before it counts as context: {report}");
    let context = view.context().bytes;
    let remeasured = view.remeasure_context(unsigned(allocator.memory_reserved()))?.bytes;
    show("after cuBLAS", &allocator, view)?;
    println!("cuBLAS took {}", Bytes(i64::try_from(remeasured)? - i64::try_from(context)?));

    let holder = Holder::start(HELD_BYTES)?;
    let figures = show("beside a second process", &allocator, view)?;
    let others = figures.other_processes_bytes.ok_or("the second process is not told of")?;
    if others < HELD_BYTES {
        return Err(format!(
            "the second process holds {}, told of {}",
            Bytes::unsigned(HELD_BYTES),
            Bytes::unsigned(others)
        )
        .into());
    }
    for finding in allocator.diagnose() {
        println!("    {finding}");
    }
    drop(holder);
    show("after the second process", &allocator, view)?;

    allocator.empty_cache()?;
    let figures = show("after empty_cache", &allocator, view)?;
    if figures.cached_bytes != 0 {
        return Err("the cache is not empty".into());
    }
    drop(kept);
    run_out(&allocator, view)?;
    // Only now: what cuBLAS holds counts as context.
    drop(blas);
    Ok(())
}

/// One product through cuBLAS, which takes memory of its own for it.
fn multiply(stream: &Arc<cudarc::driver::CudaStream>, allocator: &CachingAllocator) -> Outcome<CudaBlas> {
    const SIDE: i32 = 1024;
    let blas = CudaBlas::new(stream.clone())?;
    let len = (SIDE * SIDE) as usize;
    let (a, b) = (Buffer::<f32>::zeros(allocator, len)?, Buffer::<f32>::zeros(allocator, len)?);
    let mut c = Buffer::<f32>::zeros(allocator, len)?;
    let config = GemmConfig {
        transa: cublasOperation_t::CUBLAS_OP_N,
        transb: cublasOperation_t::CUBLAS_OP_N,
        m: SIDE,
        n: SIDE,
        k: SIDE,
        alpha: 1.0,
        lda: SIDE,
        ldb: SIDE,
        beta: 0.0,
        ldc: SIDE,
    };
    // SAFETY: the three matrices have the side and the leading dimension that the configuration names.
    unsafe { blas.gemm(config, &a.cuda()?, &b.cuda()?, &mut c.cuda_mut()?) }?;
    stream.synchronize()?;
    Ok(blas)
}

/// Fills the card with segments that are cut in two, one part kept and one free. What is free would do for the request, in no
/// one place, and the findings must say so.
fn run_out(allocator: &CachingAllocator, view: &DriverView) -> Outcome<()> {
    const SEGMENT: usize = 1630 << 20;
    const KEPT: usize = 685 << 20;
    let mut segments = Vec::new();
    loop {
        match Buffer::<u8>::uninit(allocator, SEGMENT) {
            Ok(segment) => segments.push(segment),
            Err(AllocationError::OutOfMemory(_)) => break,
            Err(error) => return Err(error.into()),
        }
    }
    let (mut kept, mut rests) = (Vec::new(), Vec::new());
    for segment in segments {
        drop(segment);
        kept.push(Buffer::<u8>::uninit(allocator, KEPT)?);
        // Held until all are cut, or the next one to be kept would go there.
        rests.push(Buffer::<u8>::uninit(allocator, SEGMENT - KEPT)?);
    }
    drop(rests);
    show("with holes in the whole card", allocator, view)?;
    match Buffer::<u8>::uninit(allocator, SEGMENT + (132 << 20)) {
        Err(AllocationError::OutOfMemory(error)) => {
            println!("{error:#}");
            let codes: Vec<_> = error.findings().iter().map(Finding::code).collect();
            if codes.contains(&FindingCode::Fragmentation) {
                Ok(())
            } else {
                Err(format!("the findings are {codes:?}, without fragmentation").into())
            }
        }
        Err(error) => Err(error.into()),
        Ok(_) => Err("there was a place for the request".into()),
    }
}
