//! A GPU whose streams stand for those of a recording.

use std::collections::HashMap;
use std::sync::Arc;

use memtrack::device::{Cuda, Device, DeviceError, Stream};

use super::SessionError;

/// An open GPU.
pub(super) struct Gpu {
    device: Arc<Cuda>,
    /// By the handles that the recording has.
    streams: HashMap<u64, Stream>,
}

impl Gpu {
    pub(super) fn open(ordinal: usize) -> Result<Self, SessionError> {
        let device = Cuda::new(ordinal).map_err(|error| SessionError::NoGpu(error.to_string()))?;
        Ok(Self { device: Arc::new(device), streams: HashMap::from([(0, Stream::DEFAULT)]) })
    }

    pub(super) fn device(&self) -> Arc<dyn Device> {
        Arc::<Cuda>::clone(&self.device)
    }

    /// The stream for a handle of the recording, made on first use.
    pub(super) fn stream(&mut self, handle: u64) -> Result<Stream, SessionError> {
        if let Some(stream) = self.streams.get(&handle) {
            return Ok(*stream);
        }
        let made = self.device.context().new_stream().map_err(|error| DeviceError::Driver {
            device: self.device.name().to_owned(),
            call: "cuStreamCreate",
            code: error.0 as u32,
            name: format!("{:?}", error.0),
            description: error.to_string(),
        })?;
        let stream = self.device.register_stream(&made)?;
        self.streams.insert(handle, stream);
        Ok(stream)
    }
}
