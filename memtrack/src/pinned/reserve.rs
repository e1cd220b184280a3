//! The reserve segment: page-locked memory taken once, from which blocks are cut. What is given back can be cut again.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::device::DeviceError;
use crate::sync::lock;

/// Blocks start at multiples of this and take whole ones.
const GRAIN_BYTES: u64 = 4096;

/// The reserve of one allocator.
#[derive(Debug)]
pub(super) struct Reserve {
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// There is none, or none any more.
    Off,
    /// To be taken on first use, so many bytes.
    Untaken(u64),
    Taken(Segment),
}

#[derive(Debug)]
struct Segment {
    address: u64,
    bytes: u64,
    /// What is not cut off, address to bytes; no two ranges touch.
    free: BTreeMap<u64, u64>,
}

impl Segment {
    fn cut(&mut self, size_bytes: u64) -> Option<u64> {
        let bytes = size_bytes.next_multiple_of(GRAIN_BYTES);
        let (&start, &length) = self.free.iter().find(|(_, length)| **length >= bytes)?;
        self.free.remove(&start);
        if length > bytes {
            self.free.insert(start + bytes, length - bytes);
        }
        Some(start)
    }

    fn put_back(&mut self, address: u64, size_bytes: u64) {
        let (mut start, mut bytes) = (address, size_bytes.next_multiple_of(GRAIN_BYTES));
        if let Some(behind) = self.free.remove(&(start + bytes)) {
            bytes += behind;
        }
        if let Some((&before, &length)) = self.free.range(..start).next_back()
            && before + length == start
        {
            (start, bytes) = (before, length + bytes);
        }
        self.free.insert(start, bytes);
    }

    fn is_whole(&self) -> bool {
        self.free.get(&self.address) == Some(&self.bytes)
    }
}

impl Reserve {
    pub(super) fn new(bytes: Option<u64>) -> Self {
        Self { state: Mutex::new(bytes.map_or(State::Off, State::Untaken)) }
    }

    /// Cuts a block off, `None` where there is no room for it. On first use the segment is taken with `take`; where there is
    /// no memory for it, there is no reserve from then on, and that error comes back beside.
    pub(super) fn cut(
        &self,
        size_bytes: u64,
        take: impl FnOnce(u64) -> Result<u64, DeviceError>,
    ) -> Result<(Option<u64>, Option<DeviceError>), DeviceError> {
        let mut state = lock(&self.state);
        if let State::Untaken(wanted_bytes) = *state {
            let bytes = wanted_bytes.next_multiple_of(GRAIN_BYTES);
            match take(bytes) {
                Ok(address) => {
                    *state = State::Taken(Segment { address, bytes, free: BTreeMap::from([(address, bytes)]) });
                }
                Err(error) if error.is_out_of_memory() => {
                    *state = State::Off;
                    return Ok((None, Some(error)));
                }
                Err(error) => return Err(error),
            }
        }
        match &mut *state {
            State::Taken(segment) => Ok((segment.cut(size_bytes), None)),
            _ => Ok((None, None)),
        }
    }

    pub(super) fn put_back(&self, address: u64, size_bytes: u64) {
        if let State::Taken(segment) = &mut *lock(&self.state) {
            segment.put_back(address, size_bytes);
        }
    }

    /// Ends the reserve if nothing is cut off it: the segment's address and bytes, for the caller to give back.
    pub(super) fn end(&self) -> Option<(u64, u64)> {
        let mut state = lock(&self.state);
        let found = match &*state {
            State::Taken(segment) if segment.is_whole() => Some((segment.address, segment.bytes)),
            _ => None,
        };
        if found.is_some() {
            *state = State::Off;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_back_becomes_one_piece_again_in_any_order() {
        let base = 1 << 40;
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]] {
            let reserve = Reserve::new(Some(16 * GRAIN_BYTES));
            let sizes = [1, 2 * GRAIN_BYTES, 4 * GRAIN_BYTES, 8 * GRAIN_BYTES];
            let cut: Vec<u64> = sizes.iter().map(|size| reserve.cut(*size, |_| Ok(base)).unwrap().0.unwrap()).collect();
            assert_eq!(cut, [0, 1, 3, 7].map(|grains| base + grains * GRAIN_BYTES), "one behind the other");
            assert_eq!(reserve.cut(2 * GRAIN_BYTES, |_| Ok(0)).unwrap(), (None, None), "one grain is left");
            for (step, index) in order.into_iter().enumerate() {
                assert_eq!(reserve.end(), None, "{step} of 4 put back");
                reserve.put_back(cut[index], sizes[index]);
            }
            assert_eq!(reserve.cut(16 * GRAIN_BYTES, |_| Ok(0)).unwrap().0, Some(base));
            reserve.put_back(base, 16 * GRAIN_BYTES);
            assert_eq!(reserve.end(), Some((base, 16 * GRAIN_BYTES)));
            assert_eq!(reserve.end(), None);
        }
    }
}
