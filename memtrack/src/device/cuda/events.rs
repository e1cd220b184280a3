//! Events, made once and used again: recording one allocates nothing once the pool is warm.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard};

use cudarc::driver::sys;

use super::driver::{Driver, EventHandle};
use crate::device::{DeviceError, Event};
use crate::sync::{get_mut, lock};

/// Tells the events of one device object from those of another.
static NEXT_DEVICE: AtomicU32 = AtomicU32::new(1);

/// All events of a device. None is destroyed before the device goes, so a handle found here is always a live one.
#[derive(Debug)]
pub(super) struct Events {
    device: u32,
    slots: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    all: Vec<Slot>,
    idle: Vec<u32>,
}

#[derive(Debug)]
struct Slot {
    handle: EventHandle,
    /// Whether an [`Event`] names it at present.
    lent: bool,
}

impl Slots {
    fn take_idle(&mut self) -> Option<(u32, EventHandle)> {
        let index = self.idle.pop()?;
        let slot = self.all.get_mut(index as usize)?;
        slot.lent = true;
        Some((index, slot.handle))
    }
}

impl Events {
    pub(super) fn new() -> Self {
        Self { device: NEXT_DEVICE.fetch_add(1, Ordering::Relaxed), slots: Mutex::default() }
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        // No code under this lock can panic half-way through a change.
        lock(&self.slots)
    }

    /// # Safety
    ///
    /// `stream` is alive in the driver's context.
    pub(super) unsafe fn record(&self, driver: &Driver, stream: sys::CUstream) -> Result<Event, DeviceError> {
        let idle = self.slots().take_idle();
        let (index, handle) = match idle {
            Some(taken) => taken,
            None => self.add(driver.create_event()?),
        };
        // SAFETY: the slot was idle or new, and is lent to this event alone until that is released.
        let event = unsafe { Event::from_raw(u64::from(self.device) << 32 | u64::from(index)) };
        // SAFETY: a handle of the pool, which destroys none; the stream as promised by the caller.
        match unsafe { driver.record_event(handle, stream) } {
            Ok(()) => Ok(event),
            Err(error) => {
                self.release(&event);
                Err(error)
            }
        }
    }

    fn add(&self, handle: EventHandle) -> (u32, EventHandle) {
        let mut slots = self.slots();
        // Four thousand million events at once do not exist; the driver runs out of memory long before.
        let index = slots.all.len() as u32;
        slots.all.push(Slot { handle, lent: true });
        // Room for all to be idle at once, so that giving one back never allocates.
        let missing = slots.all.len() - slots.idle.len();
        slots.idle.reserve(missing);
        (index, handle)
    }

    fn index(&self, event: &Event) -> Option<u32> {
        let raw = event.raw();
        // The lower half, whatever stands in the upper.
        (raw >> 32 == u64::from(self.device)).then_some(raw as u32)
    }

    /// The driver's event behind one of ours; an event of another device is answered as the driver answers a bad handle.
    pub(super) fn handle(
        &self,
        driver: &Driver,
        call: &'static str,
        event: &Event,
    ) -> Result<EventHandle, DeviceError> {
        let slots = self.slots();
        let slot = self.index(event).and_then(|index| slots.all.get(index as usize)).filter(|slot| slot.lent);
        slot.map(|slot| slot.handle).ok_or_else(|| DeviceError::Driver {
            device: driver.device_name.clone(),
            call,
            code: sys::CUresult::CUDA_ERROR_INVALID_HANDLE as u32,
            name: "CUDA_ERROR_INVALID_HANDLE".to_owned(),
            description: "not an event that this device recorded and still has".to_owned(),
        })
    }

    pub(super) fn release(&self, event: &Event) {
        let Some(index) = self.index(event) else { return };
        let mut slots = self.slots();
        if let Some(slot) = slots.all.get_mut(index as usize)
            && slot.lent
        {
            slot.lent = false;
            slots.idle.push(index);
        }
    }

    pub(super) fn destroy_all(&mut self, driver: &Driver) {
        let slots = std::mem::take(get_mut(&mut self.slots));
        for slot in slots.all {
            // SAFETY: made by this driver and destroyed only here, where the pool forgets it. Whether the driver minds is
            // of no use to anybody any more.
            let _ = unsafe { driver.destroy_event(slot.handle) };
        }
    }
}
