//! The devices of this library, each with what the checks may do with it.

use std::any::Any;
use std::cell::Cell;
use std::sync::Arc;

use cudarc::driver::CudaGraph;
use memtrack::device::{Cuda, Device, Host, Simulated, Stream};

use super::{Capturing, Controls, Failure, Graph};
use crate::captured_stream::{CapturedStream, capture};
use crate::held_stream::hold;

/// A number that names no stream of any CUDA driver: those are aligned pointers.
const UNKNOWN_STREAM: Stream = Stream(0xdead_0001);

const THIRD_STREAM: Stream = Stream(8);

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
    struct Captured(Arc<Simulated>, Stream);
    impl Capturing for Captured {
        fn end(self: Box<Self>) -> Result<(), Failure> {
            Ok(())
        }

        fn into_graph(self: Box<Self>) -> Result<Box<dyn Graph>, Failure> {
            Ok(Box::new(Done))
        }
    }
    /// Its work has no content.
    struct Done;
    impl Graph for Done {
        fn launch(&self) -> Result<(), Failure> {
            Ok(())
        }
    }
    impl Drop for Captured {
        fn drop(&mut self) {
            // For all streams that have joined it.
            self.0.set_capture(self.1, None);
            self.0.set_capture(THIRD_STREAM, None);
        }
    }
    let device = Arc::new(Simulated::new());
    let (for_hold, for_use, for_capture) = (Arc::clone(&device), Arc::clone(&device), Arc::clone(&device));
    let last_capture = Cell::new(0);
    let controls = Controls {
        second_stream: Some(Stream(7)),
        third_stream: Some(THIRD_STREAM),
        hold: Some(Box::new(move |stream| {
            for_hold.set_busy(stream);
            Ok(Box::new(Held(Arc::clone(&for_hold), stream)) as Box<dyn Any>)
        })),
        capture: Some(Box::new(move |stream| {
            last_capture.set(last_capture.get() + 1);
            for_capture.set_capture(stream, Some(last_capture.get()));
            Ok(Box::new(Captured(Arc::clone(&for_capture), stream)) as Box<dyn Capturing>)
        })),
        set_other_use: Some(Box::new(move |bytes| for_use.set_other_use(bytes))),
        ..Controls::default()
    };
    (device, controls)
}

impl Capturing for CapturedStream {
    fn end(self: Box<Self>) -> Result<(), Failure> {
        Ok((*self).end()?)
    }

    fn into_graph(self: Box<Self>) -> Result<Box<dyn Graph>, Failure> {
        Ok(Box::new((*self).into_graph()?))
    }
}

impl Graph for CudaGraph {
    fn launch(&self) -> Result<(), Failure> {
        Ok(CudaGraph::launch(self)?)
    }
}

/// A CUDA device, with two more streams registered.
///
/// # Errors
///
/// When the driver refuses a stream.
pub fn cuda(device: Cuda) -> Result<(Arc<dyn Device>, Controls), Failure> {
    let device = Arc::new(device);
    let new_stream = || -> Result<Stream, Failure> { Ok(device.register_stream(&device.context().new_stream()?)?) };
    let (second_stream, third_stream) = (new_stream()?, new_stream()?);
    let (for_hold, for_capture) = (Arc::clone(&device), Arc::clone(&device));
    let controls = Controls {
        has_bytes: true,
        second_stream: Some(second_stream),
        third_stream: Some(third_stream),
        unknown_stream: Some(UNKNOWN_STREAM),
        hold: Some(Box::new(move |stream| {
            let stream = for_hold.cuda_stream(stream).ok_or("the stream is not registered")?;
            Ok(Box::new(hold(&stream)?) as Box<dyn Any>)
        })),
        capture: Some(Box::new(move |stream| {
            let stream = for_capture.cuda_stream(stream).ok_or("the stream is not registered")?;
            Ok(Box::new(capture(&stream)?) as Box<dyn Capturing>)
        })),
        orders_streams: true,
        set_other_use: None,
    };
    Ok((device, controls))
}
