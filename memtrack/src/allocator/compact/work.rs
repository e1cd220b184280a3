//! Which frees are so long ago that the work which used their blocks is over.
//!
//! The count of a stream's frees is its clock: each free is stamped with it, and so is an event, recorded under the lock of the stream's pools,
//! which covers all frees before it.

use std::collections::{HashMap, VecDeque};

use crate::device::{Device, DeviceError, Event, Stream};

/// So many events of a stream are asked about at most.
const EVENT_COUNT: usize = 64;

#[derive(Debug, Default)]
struct StreamWork {
    /// Frees stamped up to this are over.
    over_until: Option<u64>,
    /// Oldest first, by what they cover.
    events: VecDeque<(u64, Event)>,
}

impl StreamWork {
    fn is_over(&self, freed_at: u64) -> bool {
        self.over_until.is_some_and(|until| freed_at <= until)
    }

    /// Asks about the events. One that cannot be asked about is not over.
    fn poll(&mut self, device: &dyn Device) {
        while let Some((_, event)) = self.events.front() {
            if !matches!(device.query_event(event), Ok(true)) {
                break;
            }
            if let Some((until, event)) = self.events.pop_front() {
                device.release_event(event);
                self.over_until = Some(until);
            }
        }
    }

    /// Has an event that covers every free up to `now`.
    fn cover(&mut self, device: &dyn Device, stream: Stream, now: u64) -> Result<(), DeviceError> {
        if self.is_over(now) || self.events.back().is_some_and(|(until, _)| *until >= now) {
            return Ok(());
        }
        let event = device.record_event(stream)?;
        self.events.push_back((now, event));
        Ok(())
    }
}

/// By stream.
#[derive(Debug, Default)]
pub(super) struct Work(HashMap<Stream, StreamWork>);

impl Work {
    /// Whether the work is over that used a block of the stream freed at that time.
    pub(super) fn is_over(&self, stream: Stream, freed_at: u64) -> bool {
        self.0.get(&stream).is_some_and(|work| work.is_over(freed_at))
    }

    /// Frees of the stream stamped up to this are over.
    pub(super) fn over_until(&self, stream: Stream) -> Option<u64> {
        self.0.get(&stream)?.over_until
    }

    /// Finds out what is over of a stream whose pools are locked and whose clock says `now`.
    pub(super) fn refresh(&mut self, device: &dyn Device, stream: Stream, now: u64) {
        let work = self.0.entry(stream).or_default();
        work.poll(device);
        // A stream on which none can be recorded is one whose work is not known to be over.
        if work.events.len() < EVENT_COUNT && work.cover(device, stream, now).is_ok() {
            work.poll(device);
        }
    }

    /// Has later work of `waiting` wait for what `stream` was given up to `now`. The stream's pools are locked.
    pub(super) fn join(
        &mut self,
        device: &dyn Device,
        waiting: Stream,
        stream: Stream,
        now: u64,
    ) -> Result<(), DeviceError> {
        let work = self.0.entry(stream).or_default();
        work.cover(device, stream, now)?;
        match work.events.back() {
            Some((_, event)) => device.stream_wait_event(waiting, event),
            None => Ok(()),
        }
    }

    /// Waits until everything is over that the stream was given up to `now`. Its pools are locked.
    pub(super) fn synchronize(&mut self, device: &dyn Device, stream: Stream, now: u64) -> Result<(), DeviceError> {
        device.synchronize_stream(stream)?;
        let work = self.0.entry(stream).or_default();
        work.over_until = Some(now);
        work.events.drain(..).for_each(|(_, event)| device.release_event(event));
        Ok(())
    }

    /// Gives all events back.
    pub(super) fn close(&mut self, device: &dyn Device) {
        for (_, work) in self.0.drain() {
            work.events.into_iter().for_each(|(_, event)| device.release_event(event));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Simulated;

    const STREAM: Stream = Stream(3);

    #[test]
    fn a_free_is_over_once_an_event_recorded_after_it_is_complete() {
        let device = Simulated::new();
        device.set_busy(STREAM);
        let mut work = Work::default();
        work.refresh(&device, STREAM, 4);
        assert!(!work.is_over(STREAM, 4));
        work.refresh(&device, STREAM, 5);
        device.complete_oldest_events(1);
        work.refresh(&device, STREAM, 5);
        assert!(work.is_over(STREAM, 4) && !work.is_over(STREAM, 5));
        device.set_idle(STREAM);
        work.refresh(&device, STREAM, 6);
        assert!(work.is_over(STREAM, 6) && !work.is_over(STREAM, 7) && !work.is_over(Stream(4), 1));
    }

    #[test]
    fn a_stream_without_end_keeps_few_events() {
        let device = Simulated::new();
        device.set_busy(STREAM);
        let mut work = Work::default();
        (0..1000).for_each(|now| work.refresh(&device, STREAM, now));
        assert_eq!(work.0[&STREAM].events.len(), EVENT_COUNT);
    }
}
