//! Who uses lent memory, and in what order.
//!
//! A stream that asks for the pointer first waits for every use of it that this loan still knows of, and the buffer's own
//! stream waits for all of them when the loan ends. Nothing here is done while the memory stays on one stream.

use std::sync::{Arc, OnceLock};

use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError, SyncOnDrop, sys};

use crate::device::StreamIdentity;

/// On so many streams beside its own a loan is ordered by events; the uses on further ones are waited for on the host.
const OTHER_STREAMS: usize = 4;

/// Device memory in a borrower's hands.
#[derive(Debug)]
pub(super) struct Loan {
    pub(super) address: sys::CUdeviceptr,
    pub(super) len: usize,
    /// The buffer's own stream.
    home: Arc<CudaStream>,
    /// The stream it is lent to.
    pub(super) stream: Arc<CudaStream>,
    /// Its uses on other streams, which cudarc asked for through `device_ptr`; filled from the front.
    uses: [OnceLock<Use>; OTHER_STREAMS],
}

/// All uses on one stream. A later one comes after the earlier ones by itself, so one event says when the last is over.
#[derive(Debug)]
struct Use {
    stream: StreamIdentity,
    ended: CudaEvent,
}

impl Loan {
    /// Lends memory of `home`'s to `stream`, which waits for what `home` has been given.
    pub(super) fn new(
        address: sys::CUdeviceptr,
        len: usize,
        home: Arc<CudaStream>,
        stream: Arc<CudaStream>,
    ) -> Result<Self, DriverError> {
        if !is_same(&stream, &home) {
            order(&stream, &home)?;
        }
        Ok(Self { address, len, home, stream, uses: [const { OnceLock::new() }; OTHER_STREAMS] })
    }

    /// The pointer for work of `stream`'s, which is over when what comes with it is dropped.
    pub(super) fn pointer<'a>(&'a self, stream: &'a CudaStream) -> (sys::CUdeviceptr, SyncOnDrop<'a>) {
        self.wait_for_uses(stream);
        if is_same(stream, &self.stream) {
            return (self.address, SyncOnDrop::Record(None));
        }
        order_or_wait(stream, &self.stream);
        // Where cudarc would not record the event, it would never be one to wait for.
        let is_recorded = stream.context().is_managing_stream_synchronization();
        let until = match is_recorded.then(|| self.end_of_use(stream)).flatten() {
            Some(ended) => SyncOnDrop::Record(Some((ended, stream))),
            None => SyncOnDrop::sync_stream(stream),
        };
        (self.address, until)
    }

    /// The address as a kernel's argument, for a launch on the stream it was lent to.
    pub(super) fn argument(&self) -> &sys::CUdeviceptr {
        self.wait_for_uses(&self.stream);
        &self.address
    }

    fn uses(&self) -> impl Iterator<Item = &Use> {
        self.uses.iter().map_while(OnceLock::get)
    }

    fn wait_for_uses(&self, stream: &CudaStream) {
        for Use { ended, .. } in self.uses() {
            // With an error on the context when the use was over, cudarc did not record its end: then this thread waits for
            // everything. An error that somebody has taken off the context in between leaves no trace to go by.
            let context = ended.context();
            let earlier = context.check_err();
            if earlier.is_err() {
                context.record_err(context.synchronize());
            }
            context.record_err(earlier);
            // The stream's own uses too: its handle may have been another stream's, gone since.
            let waits = despite_earlier_errors(stream.context(), || stream.wait(ended));
            let waits = waits.or_else(|_| despite_earlier_errors(ended.context(), || ended.synchronize()));
            stream.context().record_err(waits);
        }
    }

    /// The event for the end of `stream`'s uses; `None` when there is none to be had.
    fn end_of_use(&self, stream: &CudaStream) -> Option<&CudaEvent> {
        let identity = StreamIdentity::of(stream)?;
        for slot in &self.uses {
            if slot.get().is_none() {
                let context = stream.context();
                let ended = despite_earlier_errors(context, || context.new_event(None)).ok()?;
                // Another thread may have been faster, for this stream or for another.
                let _ = slot.set(Use { stream: identity, ended });
            }
            if let Some(found) = slot.get().filter(|found| found.stream == identity) {
                return Some(&found.ended);
            }
        }
        None
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if !is_same(&self.stream, &self.home) {
            order_or_wait(&self.home, &self.stream);
        }
        self.wait_for_uses(&self.home);
    }
}

fn is_same(one: &CudaStream, other: &CudaStream) -> bool {
    // Not the `Arc`s: cudarc makes a new one each time it is asked for the default stream. A stream without an identity is
    // not even the same as itself.
    StreamIdentity::of(one).is_some_and(|identity| StreamIdentity::of(other) == Some(identity))
}

/// Lets `later` wait for what `earlier` has been given. They may be of different contexts: the event is one of `earlier`'s,
/// and any stream can wait for it.
fn order(later: &CudaStream, earlier: &CudaStream) -> Result<(), DriverError> {
    despite_earlier_errors(later.context(), || despite_earlier_errors(earlier.context(), || later.join(earlier)))
}

/// As [`order`], where nobody can be told of a failure: then this thread waits instead. cudarc does not look for errors
/// between asking for a pointer and using it.
fn order_or_wait(later: &CudaStream, earlier: &CudaStream) {
    let ordered =
        order(later, earlier).or_else(|_| despite_earlier_errors(earlier.context(), || earlier.synchronize()));
    later.context().record_err(ordered);
}

/// cudarc's calls answer with the error that an earlier drop left on the context, and then do nothing. That error is put
/// aside meanwhile, and back for whom it concerns.
pub(super) fn despite_earlier_errors<T>(
    context: &CudaContext,
    calls: impl FnOnce() -> Result<T, DriverError>,
) -> Result<T, DriverError> {
    let earlier = context.check_err();
    let answer = calls();
    context.record_err(earlier);
    answer
}
