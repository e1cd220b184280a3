//! The time of events, as cheaply as it can be had.
//!
//! A read of the system's clock costs more than all else that recording an event does. Where the processor's counter runs
//! at a constant rate it is read instead, as PyTorch does, and turned into time when a history is read.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A moment by the counter, or in nanoseconds since the clock was made.
pub(super) type Ticks = u64;

pub(super) struct Clock {
    /// Whether the processor's counter is the source.
    uses_counter: bool,
    origin: Instant,
    origin_ticks: Ticks,
    origin_us: i64,
}

impl Clock {
    pub(super) fn new() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let uses_counter = counter::is_constant();
        Self {
            uses_counter,
            origin: Instant::now(),
            origin_ticks: if uses_counter { counter::read() } else { 0 },
            origin_us: i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX),
        }
    }

    #[inline]
    pub(super) fn now(&self) -> Ticks {
        if self.uses_counter { counter::read() } else { self.origin.elapsed().as_nanos() as Ticks }
    }

    /// The rate from the clock's making to now. Times it gives to moments in between are off by no more than a read of the
    /// system's clock takes.
    pub(super) fn scale(&self) -> Scale {
        let ticks = self.now().saturating_sub(self.origin_ticks);
        let us = self.origin.elapsed().as_nanos() as f64 / 1000.0;
        let us_per_tick = match (self.uses_counter, ticks) {
            (false, _) => 0.001,
            (true, 0) => 0.0,
            (true, ticks) => us / ticks as f64,
        };
        Scale { origin_ticks: self.origin_ticks, origin_us: self.origin_us, us_per_tick }
    }
}

/// Turns ticks into time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    origin_ticks: Ticks,
    origin_us: i64,
    us_per_tick: f64,
}

impl Scale {
    /// Microseconds since 1970.
    pub(super) fn time_us(&self, ticks: Ticks) -> i64 {
        let since_origin = ticks.saturating_sub(self.origin_ticks) as f64 * self.us_per_tick;
        self.origin_us.saturating_add(since_origin as i64)
    }
}

#[cfg(target_arch = "x86_64")]
mod counter {
    use std::arch::x86_64::{__cpuid, _rdtsc};

    /// Whether the counter neither stops nor changes its rate: bit 8 of EDX in leaf 0x80000007.
    pub(super) fn is_constant() -> bool {
        const HIGHEST_EXTENDED: u32 = 0x8000_0000;
        const POWER_MANAGEMENT: u32 = 0x8000_0007;
        __cpuid(HIGHEST_EXTENDED).eax >= POWER_MANAGEMENT && __cpuid(POWER_MANAGEMENT).edx & (1 << 8) != 0
    }

    #[inline]
    #[expect(unsafe_code, reason = "the counter has no safe function")]
    pub(super) fn read() -> u64 {
        // SAFETY: the instruction is part of x86-64 and touches no memory. Systems that forbid it to programs, which none
        // does by default, end the program, as they would any that reads the clock.
        unsafe { _rdtsc() }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod counter {
    pub(super) fn is_constant() -> bool {
        false
    }

    pub(super) fn read() -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn ticks_become_the_system_s_time() {
        let epoch_us = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as i64;
        let clock = Clock::new();
        std::thread::sleep(Duration::from_millis(20));
        let (before, ticks, after) = (epoch_us(), clock.now(), epoch_us());
        std::thread::sleep(Duration::from_millis(20));
        let time_us = clock.scale().time_us(ticks);
        // A millisecond for a system clock that is being adjusted.
        assert!((before - 1000..=after + 1000).contains(&time_us), "{before} {time_us} {after}");
        assert!(clock.scale().time_us(clock.now()) >= time_us);
    }
}
