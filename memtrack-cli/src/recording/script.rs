//! Where the recorded segments lay, for a simulated device that is to put its own there.

/// What a simulated device is told about addresses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Script {
    /// Nothing: the recording does not say, so addresses cannot be compared.
    #[default]
    None,
    /// The addresses of segments and reservations in order.
    InOrder(Vec<u64>),
    /// Whatever an allocation needs lies at the address that it returned.
    AtAnswer,
}

/// An expandable segment, as far as its mappings tell.
#[derive(Debug)]
struct Reservation {
    start: u64,
    /// Behind the highest address that was ever mapped.
    end: u64,
    mapped_bytes: u64,
}

/// Turns the allocator's reports of its calls into addresses of segments and reservations: a mapping that lies in, or right
/// behind, what was mapped of a reservation before belongs to it, and any other is the first of a new one.
#[derive(Debug, Default)]
pub(super) struct ScriptWriter {
    addresses: Vec<u64>,
    reservations: Vec<Reservation>,
}

impl ScriptWriter {
    pub(super) fn segment_allocated(&mut self, address: u64) {
        self.addresses.push(address);
    }

    pub(super) fn mapped(&mut self, address: u64, bytes: u64) {
        let end = address.saturating_add(bytes);
        let known = self.reservations.iter_mut().find(|known| (known.start..=known.end).contains(&address));
        match known {
            Some(known) => {
                known.end = known.end.max(end);
                known.mapped_bytes = known.mapped_bytes.saturating_add(bytes);
            }
            None => {
                self.addresses.push(address);
                self.reservations.push(Reservation { start: address, end, mapped_bytes: bytes });
            }
        }
    }

    pub(super) fn unmapped(&mut self, address: u64, bytes: u64) {
        let known = self.reservations.iter_mut().find(|known| (known.start..known.end).contains(&address));
        if let Some(known) = known {
            known.mapped_bytes = known.mapped_bytes.saturating_sub(bytes);
        }
        // Its addresses go with the last page.
        self.reservations.retain(|known| known.mapped_bytes > 0);
    }

    pub(super) fn finish(self) -> Script {
        if self.addresses.is_empty() { Script::None } else { Script::InOrder(self.addresses) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_belongs_to_the_reservation_it_extends_or_fills_until_that_is_empty() {
        let mut script = ScriptWriter::default();
        script.mapped(100, 10);
        script.mapped(110, 10);
        script.segment_allocated(7);
        script.mapped(900, 10);
        script.unmapped(100, 10);
        script.mapped(100, 10);
        script.unmapped(900, 10);
        script.mapped(900, 10);
        assert_eq!(script.finish(), Script::InOrder(vec![100, 7, 900, 900]));
    }
}
