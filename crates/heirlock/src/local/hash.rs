//! Maps by id. Ids come from counters of our own, so nobody can choose them to collide, and a multiplication spreads them well enough.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

pub(crate) type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// 2^64 divided by the golden ratio, as in Knuth's multiplicative hashing.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, id: u64) {
        // An id's upper half counts how often its slot was used, its lower half is the slot.
        self.0 = (self.0 ^ id ^ (id >> 32)).wrapping_mul(GOLDEN).rotate_left(26);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
