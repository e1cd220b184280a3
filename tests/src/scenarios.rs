//! A simulated device and an allocator on it, with figures in MiB: what the scenarios from public reports of memory trouble run on.

use std::sync::Arc;

use memtrack::device::{Device, Simulated, Stream};
use memtrack::diagnosis::{Finding, FindingCode};
use memtrack::{AllocationError, CachingAllocator, Config, OutOfMemory};

/// 2^20 bytes.
pub const MIB: u64 = 1 << 20;

/// A device and its allocator.
pub struct Scenario {
    /// Without bytes.
    pub device: Arc<Simulated>,
    /// On it.
    pub allocator: CachingAllocator,
}

/// An allocator's state; sizes in MiB, rounded down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figures {
    /// Handed out.
    pub allocated: i64,
    /// Taken from the device.
    pub reserved: i64,
    /// Free in segments that also hold live blocks.
    pub inactive_split: i64,
    /// Left on the device.
    pub device_free: u64,
    /// Retries.
    pub retries: i64,
    /// Out of memory errors.
    pub ooms: i64,
}

impl Scenario {
    /// A device of so many MiB, of which others have `outside` from the start, and an allocator with settings in text form.
    ///
    /// # Panics
    ///
    /// When the settings are wrong.
    pub fn with_outside(device: u64, outside: u64, settings: &str) -> Self {
        Self::of_bytes(device * MIB, outside * MIB, settings)
    }

    /// As [`with_outside`](Self::with_outside), without others.
    pub fn new(device: u64, settings: &str) -> Self {
        Self::with_outside(device, 0, settings)
    }

    /// As [`with_outside`](Self::with_outside), in bytes.
    pub fn of_bytes(device: u64, outside: u64, settings: &str) -> Self {
        // Somebody listens on every thread: else a test that meets an event first, with nobody listening, can have it switched off.
        let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry());
        let device = Arc::new(Simulated::with_capacity(device));
        device.set_other_use(outside);
        let config: Config = settings.parse().unwrap_or_else(|error| panic!("{error}"));
        let allocator = CachingAllocator::with_config(device.clone(), config).unwrap_or_else(|error| panic!("{error}"));
        Self { device, allocator }
    }

    /// Asks for so many MiB on a stream.
    pub fn ask(&self, mebibytes: u64, stream: Stream) -> Result<u64, AllocationError> {
        self.allocator.allocate_raw(mebibytes * MIB, stream)
    }

    /// Takes so many MiB on a stream.
    ///
    /// # Panics
    ///
    /// When there are none.
    pub fn take_on(&self, mebibytes: u64, stream: Stream) -> u64 {
        self.ask(mebibytes, stream).unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// Takes so many MiB on the default stream.
    pub fn take(&self, mebibytes: u64) -> u64 {
        self.take_on(mebibytes, Stream::DEFAULT)
    }

    /// Runs out of memory for so many MiB on a stream.
    ///
    /// # Panics
    ///
    /// When it does not.
    pub fn fail_on(&self, mebibytes: u64, stream: Stream) -> OutOfMemory {
        match self.ask(mebibytes, stream) {
            Err(AllocationError::OutOfMemory(error)) => *error,
            outcome => panic!("{outcome:?}"),
        }
    }

    /// Runs out of memory for so many MiB on the default stream.
    pub fn fail(&self, mebibytes: u64) -> OutOfMemory {
        self.fail_on(mebibytes, Stream::DEFAULT)
    }

    /// Gives blocks back.
    ///
    /// # Panics
    ///
    /// When one is none.
    pub fn free(&self, addresses: impl IntoIterator<Item = u64>) {
        for address in addresses {
            self.allocator.free_raw(address).unwrap_or_else(|error| panic!("{error}"));
        }
    }

    /// How things stand.
    ///
    /// # Panics
    ///
    /// Never: a simulated device always says what is free.
    pub fn figures(&self) -> Figures {
        let stats = self.allocator.memory_stats();
        let free_bytes = self.device.memory().map_or_else(|error| panic!("{error}"), |memory| memory.free_bytes);
        Figures {
            allocated: stats.allocated_bytes.all.current >> 20,
            reserved: stats.reserved_bytes.all.current >> 20,
            inactive_split: stats.inactive_split_bytes.all.current >> 20,
            device_free: free_bytes / MIB,
            retries: stats.num_alloc_retries,
            ooms: stats.num_ooms,
        }
    }

    /// Reserved MiB now.
    pub fn reserved(&self) -> i64 {
        self.figures().reserved
    }

    /// The most MiB that were reserved.
    pub fn peak_reserved(&self) -> i64 {
        self.allocator.max_memory_reserved() >> 20
    }
}

/// The codes of findings, in order.
pub fn codes(findings: &[Finding]) -> Vec<FindingCode> {
    findings.iter().map(Finding::code).collect()
}

/// The first finding with a code.
///
/// # Panics
///
/// When there is none.
pub fn finding(findings: &[Finding], code: FindingCode) -> &Finding {
    findings.iter().find(|finding| finding.code() == code).unwrap_or_else(|| panic!("no {code} in {findings:#?}"))
}

/// A figure of a finding.
///
/// # Panics
///
/// When it has none of this name, or it is unknown.
pub fn figure(finding: &Finding, name: &str) -> i64 {
    let entries = finding.numbers.entries();
    match entries.iter().find(|(entry, _)| *entry == name) {
        Some((_, Some(figure))) => *figure,
        _ => panic!("no {name} in {finding:#?}"),
    }
}

/// A figure of a finding that is a whole number of MiB, in MiB.
///
/// # Panics
///
/// When it is not.
pub fn mib(finding: &Finding, name: &str) -> i64 {
    let bytes = figure(finding, name);
    assert_eq!(bytes % MIB as i64, 0, "{name} of {finding:#?}");
    bytes >> 20
}
