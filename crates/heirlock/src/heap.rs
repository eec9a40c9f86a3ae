//! A heap that tells its items where they are, so that each can be moved or taken out in O(log n).

/// How much room an empty heap keeps.
const KEPT: usize = 64;

/// How many are below each. With four, who goes down a long way passes half as many levels as with two, and those that it is compared with at each lie
/// together in memory.
const BELOW: u32 = 4;

/// The first place below this one.
fn below(place: u32) -> u32 {
    BELOW * place + 1
}

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
        let (mut best, mut open): (Option<(K, u32)>, Vec<u32>) = (None, (below(0)..=BELOW).collect());
        while let Some(place) = open.pop() {
            let Some(&item) = self.items.get(place as usize) else { continue };
            if best.is_some_and(|best| best.0 <= item.0) {
                continue;
            }
            if fits(item.1) {
                best = Some(item);
            } else {
                open.extend(below(place)..below(place) + BELOW);
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
            let above = (place - 1) / BELOW;
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
            let first = below(place);
            if first >= end {
                break;
            }
            let mut least = first;
            for place in first + 1..end.min(first + BELOW) {
                if self.items[place as usize].0 < self.items[least as usize].0 {
                    least = place;
                }
            }
            let other = self.items[least as usize];
            if item.0 <= other.0 {
                break;
            }
            self.items[place as usize] = other;
            moved(other.1, place);
            place = least;
        }
        if place != from {
            self.items[place as usize] = item;
            moved(item.1, place);
        }
    }
}
