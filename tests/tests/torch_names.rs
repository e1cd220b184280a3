//! `docs/torch.md` names nothing that is not there: every name that stands for one of PyTorch's is used here, and the page is
//! read for names that are not.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use memtrack::device::{Cuda, Device, DeviceMemory, Host, Simulated, Stream};
use memtrack::driver::{DriverUnavailable, DriverView};
use memtrack::history::{
    self, ContextLevel, Enabled, HistoryOptions, ReadLimits, Segment, Snapshot, Stacks, TraceAction,
};
use memtrack::pinned::{CapturePool, HostMemoryStats, PinnedConfig};
use memtrack::{
    AllocationError, Backend, Buffer, CachingAllocator, Capture, Config, CurrentAllocatorError, GraphMemory,
    MemoryPool, MemoryStats, OutOfMemory, PinnedAllocator, PinnedBuffer, Policy, PoolGuard, PoolId, PoolOptions,
    empty_cache, get_allocator_backend, get_per_process_memory_fraction, list_gpu_processes, max_memory_allocated,
    max_memory_reserved, mem_get_info, memory_allocated, memory_reserved, memory_stats, memory_summary,
    reset_accumulated_memory_stats, reset_peak_memory_stats, set_default, set_per_process_memory_fraction,
};

const PAGE: &str = include_str!("../../docs/torch.md");
const THIS: &str = include_str!("torch_names.rs");

/// The default allocator is the process's, so tests that set it take turns.
fn default_allocator() -> (MutexGuard<'static, ()>, CachingAllocator) {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let allocator = CachingAllocator::new(Arc::new(Host::with_capacity(256 << 20)));
    set_default(&allocator);
    (turn, allocator)
}

#[test]
fn figures_resets_and_limits() {
    let none = set_per_process_memory_fraction(1.0);
    assert!(none.is_ok() || none == Err(CurrentAllocatorError::NoneCurrent));
    let (_turn, allocator) = default_allocator();
    let buffer = Buffer::<u8>::zeros(&allocator, 1000).unwrap();
    assert_eq!((memory_allocated(), max_memory_allocated()), (1024, 1024));
    assert_eq!((memory_reserved(), max_memory_reserved()), (2 << 20, 2 << 20));
    let stats: MemoryStats = memory_stats();
    assert_eq!(stats.to_map().len(), 122);
    assert_eq!(allocator.memory_stats().allocated_bytes.small_pool.peak, 1024);
    let (ordinal, abbreviated) = (0, true);
    assert_ne!(memory_summary(abbreviated), stats.torch_memory_summary(ordinal, abbreviated));
    let segments: Vec<Segment> = allocator.memory_snapshot();
    assert_eq!(segments.len(), 1);
    drop(buffer);
    empty_cache().unwrap();
    reset_peak_memory_stats();
    reset_accumulated_memory_stats();
    assert_eq!(memory_stats().to_map().values().filter(|value| **value > 0).count(), 0);
    let memory: DeviceMemory = mem_get_info().unwrap();
    assert_eq!((memory.free_bytes, memory.total_bytes), (256 << 20, 256 << 20));
    assert_eq!(allocator.device().memory(), Ok(memory));
    let f = 0.5;
    set_per_process_memory_fraction(f).unwrap();
    assert_eq!((get_per_process_memory_fraction(), allocator.limit_bytes()), (f, Some(128 << 20)));
    allocator.set_memory_fraction(1.0).unwrap();
    assert!(list_gpu_processes().starts_with("GPU:host"));
    assert_eq!(get_allocator_backend(), Backend::Native);
    assert_eq!(allocator.config().backend, Backend::Native);
    let view: Result<&DriverView, DriverUnavailable> = allocator.attach_driver();
    assert!(view.is_err(), "host memory has no driver");
    let _ = |view: &DriverView| view.memory().map(|memory| (memory.used_bytes, memory.query));
}

#[test]
fn allocations_streams_and_the_current_allocator() {
    let (_turn, allocator) = default_allocator();
    let _current = allocator.make_current();
    let (bytes, stream) = (1000, Stream::DEFAULT);
    let address = allocator.allocate_raw(bytes, stream).unwrap();
    allocator.record_stream_raw(address, stream).unwrap();
    allocator.free_raw(address).unwrap();
    let len = 10;
    let buffer = Buffer::<u8>::zeros_on(&allocator, stream, len).unwrap();
    Buffer::record_stream(&buffer, stream).unwrap();
    let device: &Arc<dyn Device> = allocator.device();
    assert_eq!(device.capture_id(stream), Ok(None));
    allocator.device().synchronize_stream(stream).unwrap();
    allocator.device().synchronize().unwrap();
    let _ = Cuda::register_stream;
    let error = allocator.allocate_raw(1 << 40, stream).unwrap_err();
    let AllocationError::OutOfMemory(numbers) = error else { panic!("{error}") };
    let OutOfMemory { requested_bytes, .. } = *numbers;
    assert_eq!(requested_bytes, 1 << 40);
}

#[test]
fn pools_and_captures() {
    let allocator = CachingAllocator::new(Arc::new(Simulated::new()));
    let pool: MemoryPool = allocator.create_pool(PoolOptions::default().use_on_oom(true).no_split(true));
    let id: PoolId = MemoryPool::id(&pool);
    assert_ne!(id, PoolId::DEFAULT);
    let stream = Stream::DEFAULT;
    {
        let _guard: PoolGuard = MemoryPool::enter(&pool).unwrap();
        assert!(matches!(pool.enter(), Err(AllocationError::PoolInUse { .. })));
        let address = allocator.allocate_raw(1000, stream).unwrap();
        allocator.free_raw(address).unwrap();
    }
    assert_eq!((MemoryPool::use_count(&pool), MemoryPool::memory_snapshot(&pool).len()), (1, 1));
    let capture: Capture = MemoryPool::begin_capture(&pool, stream).unwrap();
    let graph: GraphMemory = Capture::end(capture);
    assert_eq!(pool.use_count(), 2);
    drop(graph);
    assert_eq!(pool.use_count(), 1);
}

#[test]
fn pinned_memory() {
    let device: Arc<dyn Device> = Arc::new(Host::new());
    let allocator = &PinnedAllocator::with_config(Arc::clone(&device), PinnedConfig::default()).unwrap();
    let (len, source) = (4, &[1_u32, 2, 3, 4]);
    drop(PinnedBuffer::<u32>::uninit(allocator, len).unwrap());
    let mut target = PinnedBuffer::<u32>::zeros(allocator, len).unwrap();
    let pinned = PinnedBuffer::from_slice(allocator, source).unwrap();
    let mut buffer = Buffer::zeros(&CachingAllocator::new(device), len).unwrap();
    Buffer::copy_from_pinned(&mut buffer, &pinned).unwrap();
    Buffer::copy_to_pinned(&buffer, &mut target).unwrap();
    assert_eq!(target.as_slice().unwrap(), source);
    target.as_mut_slice().unwrap()[0] = 5;
    let stream = Stream::DEFAULT;
    PinnedBuffer::record_stream(&target, stream).unwrap();
    assert!(target.is_idle().unwrap());
    let stats: HostMemoryStats = allocator.host_memory_stats();
    assert_eq!((stats.to_map().len(), allocator.host_memory_stats().active_bytes.current), (28, 32));
    allocator.reset_peak_host_memory_stats();
    allocator.reset_accumulated_host_memory_stats();
    let pool: CapturePool = allocator.capture_pool();
    drop(PinnedBuffer::<u32>::uninit_in(&pool, len).unwrap());
    // SAFETY: no graph was captured.
    unsafe { CapturePool::release(&pool) };
    drop((pool, target, pinned));
    PinnedAllocator::empty_cache(allocator).unwrap();
    assert_eq!(allocator.host_memory_stats().allocated_bytes.current, 0);
}

#[test]
fn histories_and_snapshots() {
    let allocator = CachingAllocator::new(Arc::new(Simulated::new()));
    allocator.record_memory_history(Some(&HistoryOptions::new()));
    let options = HistoryOptions::new()
        .enabled(Enabled::All)
        .context(ContextLevel::All)
        .stacks(Stacks::All)
        .max_entries(1000)
        .clear_history(true)
        .skip_actions([TraceAction::Snapshot]);
    allocator.record_memory_history(Some(&options));
    let text = "layer 1";
    history::set_memory_metadata(text);
    assert_eq!(&*history::memory_metadata(), text);
    allocator.allocate_raw(1000, Stream::DEFAULT).unwrap();
    let snapshot: Snapshot = allocator.snapshot();
    snapshot.check_consistency().unwrap();
    assert_eq!(Snapshot::usage(&snapshot).allocated_bytes, 1024);
    assert_eq!(Snapshot::usage_groups(&snapshot).len(), 1);
    assert_eq!(&*snapshot.device_traces[0][1].user_metadata, text);

    let path = &std::env::temp_dir().join(format!("memtrack-names-{}.pickle", std::process::id()));
    allocator.dump_snapshot(path).unwrap();
    let read = Snapshot::read_file(path, &ReadLimits::default()).unwrap();
    assert_eq!(read.segments, snapshot.segments);
    let (bytes, limits) = (&fs::read(path).unwrap(), &ReadLimits::default());
    fs::remove_file(path).unwrap();
    assert_eq!(Snapshot::from_pickle(bytes, limits).unwrap(), read);
    let mut json = Vec::new();
    read.write_json(&mut json).unwrap();
    assert_eq!(Snapshot::from_json(&json, limits).unwrap(), read);
    allocator.record_memory_history(None);
    assert!(allocator.snapshot().device_traces[0].is_empty());
}

/// What a subscriber sees of an out of memory is `memtrack::oom`.
#[test]
fn an_out_of_memory_is_an_event() {
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);
    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    // Somebody listens on every thread: else another test that meets the same event first, with nobody listening, can have it
    // switched off.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry());
    let (lines, allocator) = (Lines::default(), CachingAllocator::new(Arc::new(Simulated::with_capacity(1 << 20))));
    let asked = Arc::new(Mutex::new(0));
    let count = Arc::clone(&asked);
    let hook = allocator.on_oom(move |_| {
        *count.lock().unwrap() += 1;
        memtrack::OomResponse::GiveUp
    });
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
    tracing::subscriber::with_default(subscriber, || allocator.allocate_raw(1000, Stream::DEFAULT)).unwrap_err();
    let written = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    assert!(written.contains("memtrack::oom"), "{written}");
    drop(hook);
    assert_eq!(*asked.lock().unwrap(), 1);
}

#[test]
fn settings() {
    let text = "max_split_size_mb:64";
    let allocator = CachingAllocator::new(Arc::new(Simulated::new()));
    allocator.apply_settings(text).unwrap();
    // PyTorch's variables are not set where tests run, or else as somebody wants them; MEMTRACK_ALLOC_CONF is the other one.
    let _ = Config::from_torch_env();
    assert_eq!(memtrack::ENVIRONMENT_VARIABLE, "MEMTRACK_ALLOC_CONF");
    let mut config = Config::from_torch(text).unwrap();
    config.max_split_size_bytes = None;
    config.max_non_split_rounding_bytes = 20 << 20;
    config.garbage_collection_threshold = None;
    config.roundup_power2_divisions = Default::default();
    config.large_segment_size_bytes = 20 << 20;
    config.expandable_segments = true;
    config.backend = Backend::Native;
    config.per_process_memory_fraction = 1.0;
    config.release_lock_on_cudamalloc = true;
    config.graph_capture_record_stream_reuse = true;
    config.pinned_use_background_threads = true;
    config.pinned_use_cuda_host_register = true;
    config.pinned_num_register_threads = 2;
    config.pinned_reserve_segment_size_bytes = Some(1 << 20);
    config.policy = Policy::Torch;
    config.torch_exact = true;
    assert_eq!("torch_exact:True".parse::<Config>().unwrap().torch_exact, config.torch_exact);
    assert_eq!(PinnedConfig::from(&config).register_threads, 2);
    assert!(CachingAllocator::with_config(Arc::new(Simulated::new()), config).is_ok());
}

#[test]
fn the_drivers_own_pool() {
    let config = "backend:cudaMallocAsync".parse().unwrap();
    let allocator = CachingAllocator::with_config(Arc::new(Simulated::new()), config).unwrap();
    let address = allocator.allocate_raw(1000, Stream::DEFAULT).unwrap();
    assert_eq!(allocator.memory_stats().allocated_bytes.all.current, 1000);
    allocator.record_memory_history(Some(&HistoryOptions::new()));
    allocator.free_raw(address).unwrap();
    allocator.reset_accumulated_memory_stats();
    allocator.set_memory_fraction(0.5).unwrap();
    allocator.empty_cache().unwrap();
    let snapshot = allocator.snapshot();
    assert!(snapshot.segments.is_empty() && snapshot.device_traces.iter().all(Vec::is_empty));
    let refused = allocator.create_pool(PoolOptions::default()).enter().unwrap_err();
    assert!(matches!(refused, AllocationError::NotWithBackend { .. }));
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| !character.is_alphanumeric() && character != '_').filter(|word| !word.is_empty())
}

/// The names in code of the second column, of the tables whose second column is memtrack's.
fn names(page: &str) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    let mut is_ours = false;
    for line in page.lines() {
        let Some(second) = line.strip_prefix('|').and_then(|line| line.split('|').nth(1)) else {
            is_ours = false;
            continue;
        };
        if matches!(second.trim(), "memtrack" | "field of `Config`") {
            is_ours = true;
        } else if is_ours {
            let spans = second.split('`').skip(1).step_by(2);
            names.extend(spans.flat_map(words));
        }
    }
    names
}

#[test]
fn the_page_names_nothing_that_is_not_used_here() {
    let code: String = THIS.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    let used: BTreeSet<&str> = words(&code).collect();
    let named = names(PAGE);
    assert!(named.len() > 100, "the page has no tables any more: {named:?}");
    let unused: Vec<_> = named.difference(&used).collect();
    assert!(unused.is_empty(), "docs/torch.md names what is not tested to be there: {unused:?}");
    let page = "| PyTorch | memtrack |\n|---|---|\n| `a` | `.b(c)` and `d::e` |\n\n| `f` | `g` |\n";
    assert_eq!(names(page).into_iter().collect::<Vec<_>>(), ["b", "c", "d", "e"]);
}
