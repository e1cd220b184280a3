//! Values by the address of their block: a hash table without a key beside the value, since the value knows its address.
//!
//! It is made for blocks that a program holds by address, where each allocation puts one in and each free takes one out. An address
//! is hashed by one multiplication, and stands at its *home* or as near behind it as there was room; what is taken out lets those
//! behind it move up, so that no marks are left. Addresses are the device's, not an adversary's. The table grows by a tenth, so that a
//! value of 24 bytes takes 30 to 33 and not up to twice that.

/// What can be found by its address.
pub(super) trait Addressed {
    fn address(&self) -> u64;
}

/// So many places there are behind the last home, to begin with.
const TAIL_LEN: usize = 32;

/// Values by address, one for each.
#[derive(Debug)]
pub(super) struct AddressTable<T> {
    places: Vec<Option<T>>,
    count: usize,
    /// With so many it grows: four fifths of the homes.
    limit: usize,
    home_count: usize,
}

impl<T> Default for AddressTable<T> {
    fn default() -> Self {
        Self { places: Vec::new(), count: 0, limit: 0, home_count: 0 }
    }
}

impl<T: Addressed> AddressTable<T> {
    /// Where an address stands if there is room.
    #[inline(always)]
    fn home(&self, address: u64) -> usize {
        // The upper half of a product depends on all bits of the address, and the upper half of another brings it below the count.
        let hash = address.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((u128::from(hash) * self.home_count as u128) >> 64) as usize
    }

    /// Puts a value in; returns the one that had its address.
    #[inline]
    pub(super) fn insert(&mut self, value: T) -> Option<T> {
        if self.count == self.limit {
            self.grow();
        }
        let address = value.address();
        let mut at = self.home(address);
        while let Some(place) = self.places.get_mut(at) {
            match place {
                None => {
                    *place = Some(value);
                    self.count += 1;
                    return None;
                }
                Some(other) if other.address() == address => return place.replace(value),
                Some(_) => at += 1,
            }
        }
        // However they crowd, there is room behind the last.
        self.places.push(Some(value));
        self.count += 1;
        None
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let values = std::mem::take(&mut self.places);
        self.home_count += self.home_count / 10 + 16;
        self.limit = self.home_count / 5 * 4;
        self.count = 0;
        self.places.reserve_exact(self.home_count + TAIL_LEN);
        self.places.resize_with(self.home_count + TAIL_LEN, || None);
        for value in values.into_iter().flatten() {
            // Its address was there once.
            let _ = self.insert(value);
        }
    }

    #[inline]
    fn find(&self, address: u64) -> Option<usize> {
        let mut at = self.home(address);
        while let Some(Some(value)) = self.places.get(at) {
            if value.address() == address {
                return Some(at);
            }
            at += 1;
        }
        None
    }

    pub(super) fn get(&self, address: u64) -> Option<&T> {
        self.places.get(self.find(address)?)?.as_ref()
    }

    /// Takes a value out.
    #[inline]
    pub(super) fn remove(&mut self, address: u64) -> Option<T> {
        let mut hole = self.find(address)?;
        let value = self.places[hole].take();
        self.count -= 1;
        let mut at = hole + 1;
        while let Some(Some(other)) = self.places.get(at) {
            // Each value is to be found from its home on without a gap.
            if self.home(other.address()) <= hole {
                self.places.swap(hole, at);
                hole = at;
            }
            at += 1;
        }
        value
    }

    /// Takes all out.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = T> + use<T> {
        std::mem::take(self).places.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Value(u64, usize);

    impl Addressed for Value {
        fn address(&self) -> u64 {
            self.0
        }
    }

    fn check(table: &AddressTable<Value>, model: &HashMap<u64, Value>) {
        assert_eq!(table.count, model.len());
        assert_eq!(table.places.iter().flatten().count(), model.len());
        assert!(model.iter().all(|(address, value)| table.get(*address) == Some(value)));
    }

    proptest! {
        #[test]
        fn it_has_what_a_map_has(
            // Few addresses, so that they come again; some far apart, and zero and the last.
            steps in prop::collection::vec((any::<bool>(), 0..300_u64, 0..4_u32), 0..600),
        ) {
            let (mut table, mut model) = (AddressTable::default(), HashMap::new());
            for (turn, (puts, number, spread)) in steps.into_iter().enumerate() {
                let address = match number {
                    299 => u64::MAX,
                    number => (number * 512) << (spread * 16),
                };
                if puts {
                    prop_assert_eq!(table.insert(Value(address, turn)), model.insert(address, Value(address, turn)));
                } else {
                    prop_assert_eq!(table.remove(address), model.remove(&address));
                }
                prop_assert_eq!(table.get(address), model.get(&address));
                if turn % 16 == 0 {
                    check(&table, &model);
                }
            }
            check(&table, &model);
            let mut all: Vec<Value> = table.take_all().collect();
            let mut expected: Vec<Value> = model.into_values().collect();
            all.sort_by_key(Value::address);
            expected.sort_by_key(Value::address);
            prop_assert_eq!(all, expected);
            prop_assert_eq!(table.get(0), None);
        }
    }

    /// All addresses that differ in bits which hardly change the product: they crowd, and are found all the same.
    #[test]
    fn a_crowd_behind_one_home_is_found_and_taken_out() {
        let mut table = AddressTable::default();
        let inverse = 0x9e37_79b9_7f4a_7c15_u64;
        // Multiples of the factor's inverse have products that are small numbers: one home for all.
        let mut factor_inverse = 1_u64;
        for _ in 0..6 {
            factor_inverse = factor_inverse.wrapping_mul(2_u64.wrapping_sub(inverse.wrapping_mul(factor_inverse)));
        }
        let addresses: Vec<u64> = (0..200).map(|number: u64| number.wrapping_mul(factor_inverse)).collect();
        // And of their negatives the last.
        let negative = addresses.iter().map(|address| address.wrapping_neg().wrapping_sub(factor_inverse));
        let addresses: Vec<u64> = addresses.iter().copied().chain(negative).collect();
        for (turn, address) in addresses.iter().enumerate() {
            assert_eq!(table.insert(Value(*address, turn)), None);
        }
        assert!(addresses.iter().all(|address| table.get(*address).is_some()));
        for address in addresses.iter().step_by(2) {
            assert!(table.remove(*address).is_some());
        }
        let is_left = |(turn, address): (usize, &u64)| table.get(*address).is_some() == (turn % 2 == 1);
        assert!(addresses.iter().enumerate().all(is_left));
    }
}
