//! Stream-ordered memory, counted as an H200's driver counts it.
//!
//! What is not there: pieces too scattered to be used, and streams that have not come to a free yet. What is freed can be used
//! and trimmed at once.

use std::collections::BTreeMap;

use super::addresses::SEGMENT_ALIGNMENT_BYTES;
use super::faults::Operation;
use super::{Simulated, State};
use crate::device::{DeviceError, Stream, StreamOrderedMemory, StreamOrderedUsage};
use crate::units::MIB;

/// The pool takes memory of the device in steps of this.
const STEP_BYTES: u64 = 32 * MIB;

#[derive(Debug, Default)]
pub(super) struct Pool {
    usage: StreamOrderedUsage,
    /// Address to bytes.
    live: BTreeMap<u64, u64>,
}

/// As many whole steps as hold so many bytes; `None` when no number says it.
fn whole_steps(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(STEP_BYTES)
}

impl Simulated {
    fn refuse_captured(&self, state: &State, stream: Stream) -> Result<(), DeviceError> {
        if state.captures.id(stream).is_some() {
            let reason = "it is being captured, and memory taken or freed on it would be the graph's";
            return Err(DeviceError::InvalidStream { device: self.owned_name(), stream, reason });
        }
        Ok(())
    }
}

// SAFETY: there is no memory behind the addresses, and every access to it is refused. Live ranges are kept apart and aligned.
unsafe impl StreamOrderedMemory for Simulated {
    fn allocate_ordered(&self, bytes: u64, stream: Stream) -> Result<u64, DeviceError> {
        if bytes == 0 {
            return Err(self.invalid_size(bytes, "an allocation has at least one byte"));
        }
        self.refuse_captured(&self.state(), stream)?;
        self.run_script(Operation::AllocateOrdered, bytes)?;
        let mut state = self.state();
        let out_of_memory = || DeviceError::OutOfMemory { device: self.owned_name(), requested_bytes: bytes };
        let used_bytes = state.pool.usage.used_bytes.checked_add(bytes).ok_or_else(out_of_memory)?;
        let wanted_bytes = whole_steps(used_bytes).ok_or_else(out_of_memory)?.max(state.pool.usage.reserved_bytes);
        let missing_bytes = wanted_bytes - state.pool.usage.reserved_bytes;
        // Refused or not, as the driver does.
        let high_bytes = &mut state.pool.usage.reserved_high_bytes;
        *high_bytes = wanted_bytes.max(*high_bytes);
        self.check_room(&state, missing_bytes).map_err(|_| out_of_memory())?;
        let address = self.place(&mut state, bytes, SEGMENT_ALIGNMENT_BYTES)?;
        state.used_bytes += missing_bytes;
        let Pool { usage, live } = &mut state.pool;
        live.insert(address, bytes);
        usage.used_bytes = used_bytes;
        usage.used_high_bytes = usage.used_high_bytes.max(used_bytes);
        usage.reserved_bytes = wanted_bytes;
        Ok(address)
    }

    unsafe fn free_ordered(&self, address: u64, stream: Stream) -> Result<(), DeviceError> {
        self.refuse_captured(&self.state(), stream)?;
        self.run_script(Operation::FreeOrdered, 0)?;
        let mut state = self.state();
        let Some(bytes) = state.pool.live.remove(&address) else {
            return Err(self.invalid_address(address, "not the start of live stream-ordered memory"));
        };
        state.pool.usage.used_bytes -= bytes;
        state.addresses.remove(address);
        Ok(())
    }

    fn ordered_usage(&self) -> Result<StreamOrderedUsage, DeviceError> {
        Ok(self.state().pool.usage)
    }

    fn reset_ordered_high_marks(&self) -> Result<(), DeviceError> {
        let usage = &mut self.state().pool.usage;
        usage.used_high_bytes = usage.used_bytes;
        usage.reserved_high_bytes = usage.reserved_bytes;
        Ok(())
    }

    fn trim_ordered(&self, keep_bytes: u64) -> Result<(), DeviceError> {
        self.run_script(Operation::TrimOrdered, keep_bytes)?;
        let mut state = self.state();
        let usage = &mut state.pool.usage;
        let kept_bytes = whole_steps(usage.used_bytes.max(keep_bytes)).unwrap_or(u64::MAX).min(usage.reserved_bytes);
        let returned_bytes = usage.reserved_bytes - kept_bytes;
        usage.reserved_bytes = kept_bytes;
        state.used_bytes -= returned_bytes;
        Ok(())
    }
}
