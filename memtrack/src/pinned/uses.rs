//! Which streams use a buffer, and until when.

use super::pending::wait_for_end;
use crate::device::{Device, DeviceError, Event, Stream};

/// All uses on one stream. A later one comes after the earlier ones by itself, so one event says when the last is over.
#[derive(Debug)]
pub(super) struct Use {
    pub(super) stream: Stream,
    /// Recorded behind the last use; without one the stream's whole work is taken for it.
    pub(super) event: Option<Event>,
    /// Whether the stream may write the buffer.
    pub(super) writes: bool,
}

/// The uses of one buffer that were not waited for.
#[derive(Debug, Default)]
pub(super) struct Uses {
    uses: Vec<Use>,
}

impl Uses {
    /// Adds a use behind those that the stream has.
    pub(super) fn add(&mut self, device: &dyn Device, stream: Stream, event: Option<Event>, writes: bool) {
        match self.uses.iter_mut().find(|found| found.stream == stream) {
            Some(found) => {
                let earlier = std::mem::replace(&mut found.event, event);
                found.writes |= writes;
                earlier.into_iter().for_each(|event| device.release_event(event));
            }
            None => self.uses.push(Use { stream, event, writes }),
        }
    }

    /// The uses on other streams that a use on `stream` must come after: to write the buffer all of them, to read it those
    /// that write it.
    pub(super) fn before(&self, stream: Stream, writes: bool) -> impl Iterator<Item = &Use> {
        self.uses.iter().filter(move |found| found.stream != stream && (writes || found.writes))
    }

    /// Lets `stream` wait for the uses that its own must come after.
    pub(super) fn order(&self, device: &dyn Device, stream: Stream, writes: bool) -> Result<(), DeviceError> {
        for found in self.before(stream, writes) {
            match &found.event {
                Some(event) => device.stream_wait_event(stream, event)?,
                None => {
                    let event = device.record_event(found.stream)?;
                    let ordered = device.stream_wait_event(stream, &event);
                    device.release_event(event);
                    ordered?;
                }
            }
        }
        Ok(())
    }

    /// Waits for the uses that exclude the host: to write the buffer all of them, to read it those that write it. After an
    /// error the rest are uses still.
    pub(super) fn wait(&mut self, device: &dyn Device, writes: bool) -> Result<(), DeviceError> {
        while let Some(at) = self.uses.iter().position(|found| writes || found.writes) {
            let stream = self.uses[at].stream;
            // The event is taken out and given back by the wait; if that fails, the stream stands for it.
            let event = self.uses[at].event.take();
            wait_for_end(device, stream, event)?;
            self.uses.swap_remove(at);
        }
        Ok(())
    }

    /// Whether all uses are over. Never waits.
    pub(super) fn are_over(&self, device: &dyn Device) -> Result<bool, DeviceError> {
        for found in &self.uses {
            let is_over = match &found.event {
                Some(event) => device.query_event(event)?,
                None => {
                    let event = device.record_event(found.stream)?;
                    let is_over = device.query_event(&event);
                    device.release_event(event);
                    is_over?
                }
            };
            if !is_over {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(super) fn take(&mut self) -> Vec<Use> {
        std::mem::take(&mut self.uses)
    }
}
