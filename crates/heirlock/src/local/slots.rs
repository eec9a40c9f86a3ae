//! What a domain keeps beside the graph's records: maps by their ids, as dense as the graph itself.

use std::marker::PhantomData;

use super::graph::slab::slot_of;
use super::graph::{LockKey, WaitKey, WorkerKey};

/// An id of the graph: its lower half is a slot, and its upper half counts how often the slot was used.
pub(super) trait Id: Copy {
    fn number(self) -> u64;
    fn of(number: u64) -> Self;
}

macro_rules! ids {
    ($($key:ident),*) => {
        $(impl Id for $key {
            #[inline]
            fn number(self) -> u64 {
                self.get()
            }

            #[inline]
            fn of(number: u64) -> $key {
                $key::from_number(number)
            }
        })*
    };
}

ids!(LockKey, WaitKey, WorkerKey);

/// A map from ids. It keeps its room, as the graph's slabs do: who comes next may well get the highest slot. No two ids with the same slot can be in
/// it at once: whoever inserts replaces what is there under an older id.
#[derive(Debug)]
pub(super) struct Slots<K, V> {
    entries: Vec<Option<(u64, V)>>,
    live: usize,
    key: PhantomData<K>,
}

/// The slot of an id.
#[inline]
pub(super) fn slot(id: impl Id) -> u32 {
    slot_of(id.number())
}

impl<K: Id, V> Slots<K, V> {
    pub(super) const fn new() -> Slots<K, V> {
        Slots { entries: Vec::new(), live: 0, key: PhantomData }
    }

    pub(super) fn len(&self) -> usize {
        self.live
    }

    #[inline]
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        match self.entries.get(slot(*key) as usize) {
            Some(Some((id, value))) if *id == key.number() => Some(value),
            _ => None,
        }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        match self.entries.get_mut(slot(*key) as usize) {
            Some(Some((id, value))) if *id == key.number() => Some(value),
            _ => None,
        }
    }

    /// What is in the slot, and under which id.
    #[inline]
    pub(super) fn at(&mut self, slot: u32) -> Option<(K, &mut V)> {
        let entry = self.entries.get_mut(slot as usize)?;
        entry.as_mut().map(|(id, value)| (K::of(*id), value))
    }

    /// The id of what is in the slot.
    pub(super) fn key_at(&self, slot: u32) -> Option<K> {
        self.entries.get(slot as usize)?.as_ref().map(|(id, _)| K::of(*id))
    }

    #[inline]
    pub(super) fn insert(&mut self, key: K, value: V) {
        let at = slot(key) as usize;
        if at >= self.entries.len() {
            self.entries.resize_with(at + 1, || None);
        }
        self.live += usize::from(self.entries[at].is_none());
        self.entries[at] = Some((key.number(), value));
    }

    #[inline]
    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let entry = self.entries.get_mut(slot(*key) as usize)?;
        if !matches!(entry, Some((id, _)) if *id == key.number()) {
            return None;
        }
        self.live -= 1;
        entry.take().map(|(_, value)| value)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.entries.iter().flatten().map(|(id, value)| (K::of(*id), value))
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (K, &mut V)> {
        self.entries.iter_mut().flatten().map(|(id, value)| (K::of(*id), value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(generation: u64, slot: u64) -> WaitKey {
        WaitKey::from_number(generation << 32 | slot)
    }

    #[test]
    fn an_older_id_finds_nothing() {
        let mut slots = Slots::new();
        slots.insert(key(1, 7), 'a');
        slots.insert(key(1, 2), 'b');
        slots.insert(key(2, 7), 'c');
        assert_eq!((slots.len(), slots.get(&key(1, 7)), slots.get(&key(2, 7))), (2, None, Some(&'c')));
        assert_eq!(slots.remove(&key(1, 7)), None);
        assert_eq!(slots.iter().map(|(key, value)| (key.get(), *value)).collect::<Vec<_>>(), [(1 << 32 | 2, 'b'), (2 << 32 | 7, 'c')]);
        assert_eq!((slots.remove(&key(2, 7)), slots.remove(&key(1, 2)), slots.len()), (Some('c'), Some('b'), 0));
    }
}
