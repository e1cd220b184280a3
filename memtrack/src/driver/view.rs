//! A device as the driver sees it: found once, asked often.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::sync::Mutex;

use super::{
    Connection, ContextMemory, DriverMemory, DriverReport, DriverSample, DriverUnavailable, MemoryQuery, PidNamespace,
    QueryFailure, QueryStatus, Reconciliation,
};
use crate::device::{Device, DeviceKind};
use crate::sync::lock;

/// By what a device was found in NVML.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MatchedBy {
    /// Its UUID as a whole GPU's.
    GpuUuid,
    /// Its UUID as a MIG instance's; the figures are the instance's.
    MigUuid,
    /// Its PCI address, because NVML does not know its UUID.
    PciAddress,
}

/// The driver's view of one device.
///
/// Safe to use from any thread. The queries take the driver's own lock for their time: on an H200 (driver 580) a
/// [`memory`] query takes 6 µs and a [`sample`] with its process lists 50 µs, on some machines several milliseconds. Use them at
/// the end of an epoch or a phase, not in a step.
///
/// ```
/// use memtrack::device::Host;
/// use memtrack::driver::{DriverReport, DriverView};
///
/// let device = Host::new();
/// let report = match DriverView::attach(&device, 0) {
///     Ok(view) => view.report(0, 0),
///     Err(why) => DriverReport::Unavailable(why),
/// };
/// assert_eq!(report.to_string(), "driver    no figures: host is a host device, which no GPU driver knows");
/// ```
///
/// [`memory`]: Self::memory
/// [`sample`]: Self::sample
pub struct DriverView {
    connection: Connection,
    matched_by: MatchedBy,
    own_pid: u32,
    namespace: PidNamespace,
    /// The query that answered first. It is kept: the other one's figures mean something else.
    query: Option<MemoryQuery>,
    baseline: Option<DriverMemory>,
    context: Mutex<ContextMemory>,
}

impl DriverView {
    /// Finds `device` in NVML and measures the context, with `reserved_bytes` what the allocator has reserved just now.
    ///
    /// Call it early, when this process holds little on the device but its context. Loads and starts NVML at the first
    /// call in a process (18 ms on an H200; 0.13 ms from then on); a process keeps it to its end.
    ///
    /// # Errors
    ///
    /// [`DriverUnavailable`] says why: every kind of it can come from here.
    pub fn attach(device: &dyn Device, reserved_bytes: u64) -> Result<Self, DriverUnavailable> {
        Self::builder().attach(device, reserved_bytes)
    }

    /// To attach with other settings than the usual ones.
    pub fn builder() -> DriverViewBuilder {
        DriverViewBuilder::default()
    }

    /// By what the device was found.
    pub fn matched_by(&self) -> MatchedBy {
        self.matched_by
    }

    /// The driver's version, such as `580.95.05`, if it says.
    pub fn driver_version(&self) -> Option<&str> {
        self.connection.driver_version()
    }

    /// The context as last measured.
    pub fn context(&self) -> ContextMemory {
        *lock(&self.context)
    }

    /// The whole device's memory: one query, without the process lists.
    ///
    /// # Errors
    ///
    /// [`QueryFailure`] when the driver does not answer, or not with figures. The query used at the start is never
    /// replaced by the other one later, since the two count differently.
    pub fn memory(&self) -> Result<DriverMemory, QueryFailure> {
        self.connection.memory(self.query)
    }

    /// All the driver's figures now.
    ///
    /// # Errors
    ///
    /// [`DriverUnavailable::Query`] when it gives neither the device's used bytes nor this process's. With one of them
    /// there is a sample, which says why the other is missing.
    pub fn sample(&self) -> Result<DriverSample, DriverUnavailable> {
        sample_through(&self.connection, self.query, self.own_pid, self.namespace)
    }

    /// Measures the context again, with `reserved_bytes` what the allocator has reserved just now.
    ///
    /// Call it when the program has loaded its kernels and libraries (cuBLAS alone takes tens of MiB at its first use),
    /// for instance after a warm-up step. What the process held outside the allocator at that time counts as context.
    ///
    /// # Errors
    ///
    /// As for [`sample`](Self::sample); the context then stays as it was.
    pub fn remeasure_context(&self, reserved_bytes: u64) -> Result<ContextMemory, DriverUnavailable> {
        let context = ContextMemory::measure(&self.sample()?, reserved_bytes, self.baseline)?;
        *lock(&self.context) = context;
        Ok(context)
    }

    /// Takes a sample and sets it beside the allocator's figures of just now. At the cost of a
    /// [`sample`](Self::sample).
    pub fn report(&self, allocated_bytes: u64, reserved_bytes: u64) -> DriverReport {
        self.sample()
            .and_then(|sample| Reconciliation::new(&sample, self.context(), allocated_bytes, reserved_bytes))
            .into()
    }
}

impl fmt::Debug for DriverView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DriverView")
            .field("matched_by", &self.matched_by())
            .field("driver_version", &self.driver_version())
            .field("query", &self.query)
            .field("context", &self.context())
            .finish_non_exhaustive()
    }
}

/// Settings for [`DriverView::attach`].
#[derive(Debug, Clone, Default)]
#[must_use = "nothing is attached before `attach`"]
pub struct DriverViewBuilder {
    lib_path: Option<OsString>,
    own_pid: Option<u32>,
    baseline: Option<DriverMemory>,
}

impl DriverViewBuilder {
    /// The NVML library to load, in place of `libnvidia-ml.so.1` (`nvml.dll`) where the loader finds it.
    ///
    /// The library runs in this process with all its rights. Each path is loaded once in a process and stays loaded.
    pub fn lib_path(mut self, path: impl AsRef<OsStr>) -> Self {
        self.lib_path = Some(path.as_ref().to_owned());
        self
    }

    /// The number by which the driver knows this process, where that is not the process's own: in a container, under a
    /// driver that lists the host's numbers.
    pub fn own_pid(mut self, pid: u32) -> Self {
        self.own_pid = Some(pid);
        self
    }

    /// The device's memory from before this process had a context on it, to measure the context where the driver's
    /// process list is of no use.
    pub fn baseline(mut self, before: DriverMemory) -> Self {
        self.baseline = Some(before);
        self
    }

    /// Finds the device and measures the context, as [`DriverView::attach`] does.
    ///
    /// # Errors
    ///
    /// As for [`DriverView::attach`].
    pub fn attach(self, device: &dyn Device, reserved_bytes: u64) -> Result<DriverView, DriverUnavailable> {
        let Self { lib_path, own_pid, baseline } = self;
        let kind = device.kind();
        if matches!(kind, DeviceKind::Host | DeviceKind::Simulated) {
            return Err(DriverUnavailable::NoDriver { device: device.name().to_owned(), kind });
        }
        let (connection, matched_by) = Connection::open(lib_path.as_deref(), device)?;
        // A number given by hand is the driver's number, whatever namespace this process is in.
        let (own_pid, namespace) = match own_pid {
            Some(pid) => (pid, PidNamespace::Initial),
            None => (std::process::id(), PidNamespace::of_this_process()),
        };
        let sample = sample_through(&connection, None, own_pid, namespace)?;
        let context = ContextMemory::measure(&sample, reserved_bytes, baseline)?;
        let query = sample.memory.ok().map(|memory| memory.query);
        Ok(DriverView { connection, matched_by, own_pid, namespace, query, baseline, context: Mutex::new(context) })
    }
}

fn sample_through(
    connection: &Connection,
    query: Option<MemoryQuery>,
    own_pid: u32,
    namespace: PidNamespace,
) -> Result<DriverSample, DriverUnavailable> {
    let memory = connection.memory(query);
    let (processes, list_is_whole) = connection.processes();
    let mut sample = DriverSample::new(memory, processes, list_is_whole, own_pid, namespace);
    sample.driver_version = connection.driver_version().map(str::to_owned);
    match &sample.memory {
        Err(failure) if failure.status == QueryStatus::DeviceLost || sample.own_process.known().is_none() => {
            Err(failure.clone().into())
        }
        _ => Ok(sample),
    }
}
