//! A binary heap that tells its items where they are, so that each can be moved or taken out in O(log n).

/// How much room an empty heap keeps.
const KEPT: usize = 64;

/// Slots by their keys, the smallest first. Whoever calls keeps the places that `moved(slot, place)` tells.
#[derive(Debug)]
pub(crate) struct Heap<K> {
    items: Vec<(K, u32)>,
}

impl<K: Ord + Copy> Heap<K> {
    pub(crate) const fn new() -> Heap<K> {
        Heap { items: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(crate) fn first(&self) -> Option<(K, u32)> {
        self.items.first().copied()
    }

    /// The key at this place.
    #[cfg(feature = "tokio")]
    pub(crate) fn key(&self, place: u32) -> K {
        self.items[place as usize].0
    }

    pub(crate) fn items(&self) -> &[(K, u32)] {
        &self.items
    }

    /// The smallest of those that fit.
    pub(crate) fn first_where(&self, fits: impl Fn(u32) -> bool) -> Option<(K, u32)> {
        let first = self.first()?;
        if fits(first.1) {
            return Some(first);
        }
        let (mut best, mut open): (Option<(K, u32)>, _) = (None, vec![1, 2]);
        while let Some(place) = open.pop() {
            let Some(&item) = self.items.get(place) else { continue };
            if best.is_some_and(|best| best.0 <= item.0) {
                continue;
            }
            if fits(item.1) {
                best = Some(item);
            } else {
                open.extend([2 * place + 1, 2 * place + 2]);
            }
        }
        best
    }

    pub(crate) fn insert(&mut self, key: K, slot: u32, mut moved: impl FnMut(u32, u32)) {
        let place = self.end();
        self.items.push((key, slot));
        self.rise(place, &mut moved);
    }

    pub(crate) fn remove(&mut self, place: u32, mut moved: impl FnMut(u32, u32)) {
        self.items.swap_remove(place as usize);
        if place < self.end() {
            let place = self.rise(place, &mut moved);
            self.sink(place, &mut moved);
        }
        if self.items.is_empty() && self.items.capacity() > KEPT {
            self.items = Vec::new();
        }
    }

    pub(crate) fn rekey(&mut self, place: u32, key: K, mut moved: impl FnMut(u32, u32)) {
        self.items[place as usize].0 = key;
        let place = self.rise(place, &mut moved);
        self.sink(place, &mut moved);
    }

    /// The place after the last. Slots are numbered by `u32`, so there are no more items.
    fn end(&self) -> u32 {
        u32::try_from(self.items.len()).unwrap_or(u32::MAX)
    }

    fn rise(&mut self, mut place: u32, moved: &mut impl FnMut(u32, u32)) -> u32 {
        let item = self.items[place as usize];
        while place > 0 {
            let above = (place - 1) / 2;
            let other = self.items[above as usize];
            if other.0 <= item.0 {
                break;
            }
            self.items[place as usize] = other;
            moved(other.1, place);
            place = above;
        }
        self.items[place as usize] = item;
        moved(item.1, place);
        place
    }

    fn sink(&mut self, mut place: u32, moved: &mut impl FnMut(u32, u32)) {
        let (item, end, from) = (self.items[place as usize], self.end(), place);
        loop {
            let mut below = 2 * place + 1;
            if below >= end {
                break;
            }
            if below + 1 < end && self.items[below as usize + 1].0 < self.items[below as usize].0 {
                below += 1;
            }
            let other = self.items[below as usize];
            if item.0 <= other.0 {
                break;
            }
            self.items[place as usize] = other;
            moved(other.1, place);
            place = below;
        }
        if place != from {
            self.items[place as usize] = item;
            moved(item.1, place);
        }
    }
}
