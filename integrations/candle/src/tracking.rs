//! What memtrack measures in this program: the driver's pool, from which candle takes its tensors.

use std::sync::Arc;

use candle_core::Device;
use memtrack::source::{CudaPoolSource, SourceError, SourceRegistration, register_source};

/// Measuring, until it is dropped.
#[derive(Debug)]
pub(crate) struct Tracking {
    /// For people: what is read, or why nothing is.
    pub(crate) told: String,
    _registration: Option<SourceRegistration>,
}

impl Tracking {
    /// From here on scopes, phases and epochs read the device's pool. Unless measuring is wanted, each costs a load and no more.
    pub(crate) fn start(device: &Device, wanted: bool) -> Self {
        memtrack::set_enabled(wanted);
        if !wanted {
            return Self { told: "memtrack is switched off".to_owned(), _registration: None };
        }
        if !device.is_cuda() {
            let told = "memtrack measures nothing here: on the CPU candle's tensors are in no pool that could be read";
            return Self { told: told.to_owned(), _registration: None };
        }
        match register() {
            Ok(registration) => Self {
                told: "memtrack reads the driver's pool of the first GPU".to_owned(),
                _registration: Some(registration),
            },
            // Training needs no figures.
            Err(error) => Self { told: format!("memtrack measures nothing: {error}"), _registration: None },
        }
    }
}

fn register() -> Result<SourceRegistration, SourceError> {
    register_source(Arc::new(CudaPoolSource::current(0)?))
}
