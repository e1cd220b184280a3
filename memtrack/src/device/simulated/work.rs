//! Work that a test says streams were given, and what goes wrong with the memory that it uses.

use super::Simulated;
use super::streams::Streams;
use super::virtual_memory::Ranges;
use crate::device::Stream;

/// A piece of physical memory behind addresses: the driver's handle, and bytes within it from the first to before the last.
pub type PhysicalRange = (u64, u64, u64);

/// A use of memory that may not be over.
#[derive(Debug)]
struct Use {
    /// It is over when this is complete.
    event: u64,
    stream: Stream,
    address: u64,
    end: u64,
    physical: Vec<PhysicalRange>,
}

/// What was used, and what went wrong.
#[derive(Debug, Default)]
pub(super) struct Work {
    uses: Vec<Use>,
    violations: Vec<String>,
}

impl Work {
    fn forget_done(&mut self, streams: &Streams) {
        self.uses.retain(|used| !streams.is_complete(used.event));
    }

    /// Addresses lose their memory.
    pub(super) fn unmapped(&mut self, streams: &Streams, address: u64, end: u64) {
        if self.uses.is_empty() {
            return;
        }
        self.forget_done(streams);
        for used in self.uses.iter().filter(|used| used.address < end && used.end > address) {
            let stream = used.stream;
            self.violations.push(format!("{address:#x} was unmapped while work of {stream} may use it"));
        }
    }

    fn add(&mut self, ranges: &Ranges, streams: &mut Streams, stream: Stream, address: u64, bytes: u64) {
        self.forget_done(streams);
        let Some(physical) = ranges.physical_ranges(address, bytes) else {
            self.violations.push(format!("work of {stream} uses {address:#x}, where not all is mapped"));
            return;
        };
        let meet = |one: &PhysicalRange, other: &PhysicalRange| one.0 == other.0 && one.1 < other.2 && other.1 < one.2;
        for used in &self.uses {
            let is_shared = used.physical.iter().any(|one| physical.iter().any(|other| meet(one, other)));
            if is_shared && !streams.comes_after(stream, used.event) {
                let (other, at) = (used.stream, used.address);
                self.violations.push(format!(
                    "work of {stream} at {address:#x} uses memory that work of {other} at {at:#x} may use still"
                ));
            }
        }
        let event = streams.record(stream);
        self.uses.push(Use { event, stream, address, end: address + bytes, physical });
    }
}

impl Simulated {
    /// Says that a stream was given work which uses these bytes, read or written. While the stream is busy the work is not over before an
    /// event recorded after it is complete; it counts itself as such an event for
    /// [`complete_oldest_events`](Self::complete_oldest_events).
    ///
    /// What is wrong with it is found in [`violations`](Self::violations).
    pub fn give_work(&self, stream: Stream, address: u64, bytes: u64) {
        let mut state = self.state();
        let super::State { ranges, streams, work, .. } = &mut *state;
        work.add(ranges, streams, stream, address, bytes);
    }

    /// What went wrong with the memory that work uses, which real devices would not tell: addresses without memory, memory that another
    /// stream's work may use still at whatever address, and mappings that go under work. Only mapped memory is looked at.
    pub fn violations(&self) -> Vec<String> {
        self.state().work.violations.clone()
    }

    /// The physical memory behind addresses, in their order; `None` where not all of them have memory mapped.
    pub fn physical_ranges(&self, address: u64, bytes: u64) -> Option<Vec<PhysicalRange>> {
        self.state().ranges.physical_ranges(address, bytes)
    }

    /// At how many places memory is mapped.
    pub fn mapping_count(&self) -> usize {
        self.state().ranges.mapping_count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Device, VirtualMemory};

    const PAGE: u64 = 2 << 20;
    const A: Stream = Stream(1);
    const B: Stream = Stream(2);

    /// A device with one page at two addresses.
    fn aliased() -> (Simulated, u64) {
        let device = Simulated::new();
        let base = device.reserve(4 * PAGE).unwrap();
        let page = device.create(PAGE).unwrap();
        device.map(base, page).unwrap();
        device.map(base + 2 * PAGE, page).unwrap();
        (device, base)
    }

    #[test]
    fn another_stream_may_not_use_memory_at_any_address_before_the_work_is_over() {
        let (device, base) = aliased();
        device.set_busy(A);
        device.give_work(A, base, 512);
        device.give_work(A, base + 2 * PAGE, 512);
        device.give_work(B, base + 2 * PAGE + 512, 512);
        assert_eq!(device.violations(), Vec::<String>::new(), "other bytes, and the same stream");
        device.give_work(B, base + 2 * PAGE + 256, 512);
        assert_eq!(device.violations().len(), 2, "at both addresses");
    }

    #[test]
    fn another_stream_may_use_memory_once_it_waits_for_the_work() {
        let (device, base) = aliased();
        device.set_busy(A);
        device.give_work(A, base, PAGE);
        let event = device.record_event(A).unwrap();
        device.stream_wait_event(B, &event).unwrap();
        device.give_work(B, base + 2 * PAGE, PAGE);
        let event_of_b = device.record_event(B).unwrap();
        assert!(!device.query_event(&event_of_b).unwrap(), "B waits for A");
        device.stream_wait_event(Stream(3), &event_of_b).unwrap();
        device.give_work(Stream(3), base, PAGE);
        assert_eq!(device.violations(), Vec::<String>::new());
        device.set_idle(Stream(3));
        assert!(device.query_event(&event).unwrap(), "what was waited for is done");
    }

    #[test]
    fn mappings_may_not_go_under_work() {
        let (device, base) = aliased();
        device.set_busy(A);
        device.give_work(A, base, PAGE);
        // SAFETY: there is no memory behind these addresses.
        unsafe { device.unmap(base + 2 * PAGE, PAGE) }.unwrap();
        assert_eq!(device.violations(), Vec::<String>::new());
        // SAFETY: as above.
        unsafe { device.unmap(base, PAGE) }.unwrap();
        assert_eq!(device.violations().len(), 1);
        device.give_work(A, base, PAGE);
        assert_eq!(device.violations().len(), 2, "nothing is mapped there");
    }
}
