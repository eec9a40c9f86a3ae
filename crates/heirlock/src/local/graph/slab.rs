//! Records in numbered slots, and ids that are never used twice.

use std::ops::{Index, IndexMut};

/// No slot.
pub(super) const NIL: u32 = u32::MAX;

/// Records in slots. An id is a slot and how often it was used before; a slot whose count is exhausted is retired, so no id ever comes back.
#[derive(Debug)]
pub(super) struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
    live: usize,
}

#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    live: bool,
    /// What was removed stays until the slot is used again: records are large, plain, and looked at far more often than made.
    value: T,
}

impl<T> Slab<T> {
    pub(super) const fn new() -> Slab<T> {
        Slab { entries: Vec::new(), free: Vec::new(), live: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.live
    }

    #[inline]
    pub(super) fn insert(&mut self, value: T) -> u32 {
        self.live += 1;
        let Some(slot) = self.free.pop() else { return self.grow(value) };
        let entry = &mut self.entries[slot as usize];
        entry.live = true;
        entry.value = value;
        slot
    }

    #[cold]
    fn grow(&mut self, value: T) -> u32 {
        let slot = u32::try_from(self.entries.len()).ok().filter(|slot| *slot != NIL);
        let Some(slot) = slot else { panic!("more than four thousand million records in one domain") };
        self.entries.push(Entry { generation: 1, live: true, value });
        slot
    }

    /// Empties the slot.
    #[inline]
    pub(super) fn remove(&mut self, slot: u32) {
        let entry = &mut self.entries[slot as usize];
        debug_assert!(entry.live, "slot {slot} is empty");
        entry.live = false;
        self.live -= 1;
        if entry.generation < u32::MAX {
            entry.generation += 1;
            self.free.push(slot);
        }
    }

    /// The id of what is in the slot.
    #[inline]
    pub(super) fn id(&self, slot: u32) -> u64 {
        u64::from(self.entries[slot as usize].generation) << 32 | u64::from(slot)
    }

    /// The slot of the record with this id, if it still exists.
    #[inline]
    pub(super) fn slot(&self, id: u64) -> Option<u32> {
        let slot = slot_of(id);
        let entry = self.entries.get(slot as usize)?;
        (u64::from(entry.generation) == id >> 32 && entry.live).then_some(slot)
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        (0_u32..).zip(&self.entries).filter(|(_, entry)| entry.live).map(|(slot, _)| slot)
    }
}

impl<T> Index<u32> for Slab<T> {
    type Output = T;

    // Dozens of times an event, and the compiler thinks it too large to be inlined.
    #[allow(clippy::inline_always)]
    #[inline(always)]
    fn index(&self, slot: u32) -> &T {
        let entry = &self.entries[slot as usize];
        debug_assert!(entry.live, "slot {slot} is empty");
        &entry.value
    }
}

impl<T> IndexMut<u32> for Slab<T> {
    #[allow(clippy::inline_always)]
    #[inline(always)]
    fn index_mut(&mut self, slot: u32) -> &mut T {
        let entry = &mut self.entries[slot as usize];
        debug_assert!(entry.live, "slot {slot} is empty");
        &mut entry.value
    }
}

/// The slot that an id names.
#[inline]
pub(in crate::local) fn slot_of(id: u64) -> u32 {
    let [_, _, _, _, slot @ ..] = id.to_be_bytes();
    u32::from_be_bytes(slot)
}

/// The neighbours of a record in a list that runs through the records of a slab.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) prev: u32,
    pub(super) next: u32,
}

impl Link {
    pub(super) const NONE: Link = Link { prev: NIL, next: NIL };
}

/// A record that may be in `N` lists at once.
pub(super) trait Linked<const N: usize> {
    fn links(&mut self) -> &mut [Link; N];
}

impl<T> Slab<T> {
    /// Puts the record before the head.
    #[inline]
    pub(super) fn link<const N: usize>(&mut self, head: u32, slot: u32, list: usize) -> u32
    where
        T: Linked<N>,
    {
        self[slot].links()[list] = Link { prev: NIL, next: head };
        if head != NIL {
            self[head].links()[list].prev = slot;
        }
        slot
    }

    /// Takes the record out; returns the new head.
    #[inline]
    pub(super) fn unlink<const N: usize>(&mut self, head: u32, slot: u32, list: usize) -> u32
    where
        T: Linked<N>,
    {
        let Link { prev, next } = std::mem::replace(&mut self[slot].links()[list], Link::NONE);
        if next != NIL {
            self[next].links()[list].prev = prev;
        }
        if prev == NIL {
            return next;
        }
        self[prev].links()[list].next = next;
        head
    }
}
