//! From the device's calls that PyTorch recorded to the addresses that a simulated device must hand out.

/// Which address ranges are reserved: a mapping into one of them is not a new one. A range whose last page loses its
/// memory is given up.
#[derive(Debug)]
pub struct Reservations {
    range_bytes: u64,
    /// First address and mapped bytes.
    ranges: Vec<(u64, u64)>,
}

impl Reservations {
    /// For a device of so many bytes.
    pub fn new(total_bytes: u64) -> Self {
        Self { range_bytes: total_bytes + total_bytes / 8, ranges: Vec::new() }
    }

    fn range_of(&mut self, address: u64) -> Option<usize> {
        self.ranges.iter().position(|(first, _)| (*first..*first + self.range_bytes).contains(&address))
    }

    /// A mapping; true if its range is new.
    pub fn map(&mut self, address: u64, bytes: u64) -> bool {
        match self.range_of(address) {
            Some(at) => {
                self.ranges[at].1 += bytes;
                false
            }
            None => {
                self.ranges.push((address, bytes));
                true
            }
        }
    }

    /// Memory is taken away from a range.
    pub fn unmap(&mut self, address: u64, bytes: u64) {
        let Some(at) = self.range_of(address) else { panic!("nothing is reserved at {address:#x}") };
        self.ranges[at].1 -= bytes;
        if self.ranges[at].1 == 0 {
            self.ranges.swap_remove(at);
        }
    }
}
