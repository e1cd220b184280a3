//! A device that can be found in NVML and do nothing else.

use std::any::Any;

use memtrack::device::{Device, DeviceError, DeviceKind, DeviceMemory, DeviceUuid, Event, PciAddress, Stream};

/// Has a kind, a UUID and a PCI address, each as the test wants it.
#[derive(Debug)]
pub(crate) struct Gpu {
    pub(crate) kind: DeviceKind,
    pub(crate) uuid: Option<DeviceUuid>,
    pub(crate) pci_address: Option<PciAddress>,
}

impl Gpu {
    /// UUID and bus are made of `number`.
    pub(crate) fn new(number: u8) -> Self {
        let pci_address = PciAddress { domain: 0, bus: u32::from(number), device: 0 };
        Self { kind: DeviceKind::Cuda, uuid: Some(DeviceUuid([number; 16])), pci_address: Some(pci_address) }
    }

    fn refusal(&self) -> DeviceError {
        DeviceError::NoBytes { device: self.name().to_owned() }
    }
}

// SAFETY: it hands out no segment, so there is no address to be wrong about.
unsafe impl Device for Gpu {
    fn kind(&self) -> DeviceKind {
        self.kind
    }

    fn name(&self) -> &str {
        "cuda:0"
    }

    fn model(&self) -> &str {
        "a GPU known by name only"
    }

    fn uuid(&self) -> Option<DeviceUuid> {
        self.uuid
    }

    fn pci_address(&self) -> Option<PciAddress> {
        self.pci_address
    }

    fn total_bytes(&self) -> u64 {
        0
    }

    fn memory(&self) -> Result<DeviceMemory, DeviceError> {
        Err(self.refusal())
    }

    fn allocate(&self, _bytes: u64) -> Result<u64, DeviceError> {
        Err(self.refusal())
    }

    unsafe fn release(&self, _address: u64, _bytes: u64) -> Result<(), DeviceError> {
        Err(self.refusal())
    }

    fn record_event(&self, _stream: Stream) -> Result<Event, DeviceError> {
        Err(self.refusal())
    }

    fn query_event(&self, _event: &Event) -> Result<bool, DeviceError> {
        Err(self.refusal())
    }

    fn wait_event(&self, _event: &Event) -> Result<(), DeviceError> {
        Err(self.refusal())
    }

    fn release_event(&self, _event: Event) {}

    fn stream_wait_event(&self, _stream: Stream, _event: &Event) -> Result<(), DeviceError> {
        Err(self.refusal())
    }

    fn synchronize_stream(&self, _stream: Stream) -> Result<(), DeviceError> {
        Err(self.refusal())
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        Err(self.refusal())
    }

    unsafe fn write(&self, _address: u64, _source: &[u8], _stream: Stream) -> Result<(), DeviceError> {
        Err(self.refusal())
    }

    unsafe fn read(&self, _address: u64, _target: &mut [u8], _stream: Stream) -> Result<(), DeviceError> {
        Err(self.refusal())
    }

    unsafe fn copy(&self, _source: u64, _target: u64, _bytes: u64, _stream: Stream) -> Result<(), DeviceError> {
        Err(self.refusal())
    }

    unsafe fn fill(&self, _address: u64, _value: u8, _bytes: u64, _stream: Stream) -> Result<(), DeviceError> {
        Err(self.refusal())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
