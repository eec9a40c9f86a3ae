//! A part of a [`KeyedLock`](super::KeyedLock)'s map: plain data, which gives its room back.
//!
//! It goes by the hashes of keys alone and so calls nothing of a user's: its mutex may be held around all of it. Of different keys whose 64 bits are
//! the same there is a list.

use std::collections::hash_map::Entry as Place;
use std::sync::Arc;

use super::pin::Entry;
use crate::local::hash::IdMap;

/// So many keys, at most, have their room kept when they go.
const KEPT: usize = 7;

pub(super) struct Shard<K> {
    by_hash: IdMap<u64, Chain<K>>,
    entries: usize,
    /// For how many there is room: the most there were since it was last given back. The map itself does not count what its deleted entries take.
    room: usize,
}

/// The entries of one hash, in the order in which they came.
struct Chain<K> {
    first: Slot<K>,
    rest: Vec<Slot<K>>,
}

/// An entry, and by how many it is pinned.
struct Slot<K> {
    entry: Arc<Entry<K>>,
    pins: usize,
}

impl<K> Shard<K> {
    pub(super) const fn new() -> Shard<K> {
        Shard { by_hash: IdMap::with_hasher(std::hash::BuildHasherDefault::new()), entries: 0, room: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.entries
    }

    pub(super) fn entries(&self) -> impl Iterator<Item = &Arc<Entry<K>>> {
        self.by_hash.values().flat_map(Chain::slots).map(|slot| &slot.entry)
    }

    /// The oldest entry of this hash, pinned.
    pub(super) fn pin_first(&mut self, hash: u64) -> Option<Arc<Entry<K>>> {
        self.by_hash.get_mut(&hash).map(|chain| chain.first.pin())
    }

    /// The entries of this hash but for those that are known, pinned. Those are pinned already, are some of the oldest, and in this order.
    pub(super) fn pin_others<'a>(&mut self, hash: u64, known: impl Iterator<Item = &'a Arc<Entry<K>>>) -> Vec<Arc<Entry<K>>>
    where
        K: 'a,
    {
        let mut known = known.peekable();
        let slots = self.by_hash.get_mut(&hash).into_iter().flat_map(Chain::slots_mut);
        let is_new = |slot: &&mut Slot<K>| known.next_if(|entry| Arc::ptr_eq(entry, &slot.entry)).is_none();
        slots.filter(is_new).map(Slot::pin).collect()
    }

    /// Adds an entry that is pinned once.
    pub(super) fn insert(&mut self, entry: Arc<Entry<K>>) {
        self.entries += 1;
        self.room = self.room.max(self.entries);
        let hash = entry.hash;
        let slot = Slot { entry, pins: 1 };
        match self.by_hash.entry(hash) {
            Place::Vacant(place) => {
                place.insert(Chain { first: slot, rest: Vec::new() });
            }
            Place::Occupied(place) => place.into_mut().rest.push(slot),
        }
    }

    /// Takes a pin off. An entry that was pinned by nobody else is no more in the map and comes out, to be dropped elsewhere.
    pub(super) fn unpin(&mut self, entry: &Arc<Entry<K>>) -> Option<Arc<Entry<K>>> {
        let Place::Occupied(mut place) = self.by_hash.entry(entry.hash) else { unreachable!("what is pinned is in the map") };
        let chain = place.get_mut();
        let Some(at) = chain.slots().position(|slot| Arc::ptr_eq(&slot.entry, entry)) else { unreachable!("what is pinned is in the map") };
        let slot = if at == 0 { &mut chain.first } else { &mut chain.rest[at - 1] };
        slot.pins -= 1;
        if slot.pins > 0 {
            return None;
        }
        let gone = if at > 0 {
            chain.rest.remove(at - 1)
        } else if chain.rest.is_empty() {
            place.remove().first
        } else {
            let second = chain.rest.remove(0);
            std::mem::replace(&mut chain.first, second)
        };
        self.entries -= 1;
        self.give_back_room();
        Some(gone.entry)
    }

    /// When three quarters stand empty: what moving the rest costs was paid for by those that went.
    fn give_back_room(&mut self) {
        if self.room > KEPT && self.entries < self.room / 4 {
            self.room = KEPT.max(2 * self.entries);
            self.by_hash.shrink_to(self.room);
        }
    }
}

impl<K> Chain<K> {
    fn slots(&self) -> impl Iterator<Item = &Slot<K>> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    fn slots_mut(&mut self) -> impl Iterator<Item = &mut Slot<K>> {
        std::iter::once(&mut self.first).chain(&mut self.rest)
    }
}

impl<K> Slot<K> {
    fn pin(&mut self) -> Arc<Entry<K>> {
        self.pins += 1;
        Arc::clone(&self.entry)
    }
}
