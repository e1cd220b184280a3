//! The devices of this library, each with what the checks may do with it.

use std::any::Any;
use std::sync::Arc;

use memtrack::device::{Cuda, Device, Host, Simulated, Stream};

use super::{Controls, Failure};
use crate::held_stream::hold;

/// A number that names no stream of any CUDA driver: those are aligned pointers.
const UNKNOWN_STREAM: Stream = Stream(0xdead_0001);

/// Host memory. It has no work that takes time.
pub fn host() -> (Arc<dyn Device>, Controls) {
    (Arc::new(Host::new()), Controls { has_bytes: true, second_stream: Some(Stream(7)), ..Controls::default() })
}

/// A simulated device.
pub fn simulated() -> (Arc<dyn Device>, Controls) {
    struct Held(Arc<Simulated>, Stream);
    impl Drop for Held {
        fn drop(&mut self) {
            self.0.set_idle(self.1);
        }
    }
    let device = Arc::new(Simulated::new());
    let (for_hold, for_use) = (Arc::clone(&device), Arc::clone(&device));
    let controls = Controls {
        second_stream: Some(Stream(7)),
        hold: Some(Box::new(move |stream| {
            for_hold.set_busy(stream);
            Ok(Box::new(Held(Arc::clone(&for_hold), stream)) as Box<dyn Any>)
        })),
        set_other_use: Some(Box::new(move |bytes| for_use.set_other_use(bytes))),
        ..Controls::default()
    };
    (device, controls)
}

/// A CUDA device, with a second stream registered.
///
/// # Errors
///
/// When the driver refuses the stream.
pub fn cuda(device: Cuda) -> Result<(Arc<dyn Device>, Controls), Failure> {
    let device = Arc::new(device);
    let second_stream = device.register_stream(&device.context().new_stream()?)?;
    let for_hold = Arc::clone(&device);
    let controls = Controls {
        has_bytes: true,
        second_stream: Some(second_stream),
        unknown_stream: Some(UNKNOWN_STREAM),
        hold: Some(Box::new(move |stream| {
            let stream = for_hold.cuda_stream(stream).ok_or("the stream is not registered")?;
            Ok(Box::new(hold(&stream)?) as Box<dyn Any>)
        })),
        orders_streams: true,
        set_other_use: None,
    };
    Ok((device, controls))
}
