//! A binary heap that tells its items where they are, so that each can be moved or taken out in O(log n).

/// How much room an empty heap keeps.
const KEPT: usize = 64;

/// Slots by their keys, the smallest first. Whoever calls keeps the places that `moved(slot, place)` tells.
#[derive(Debug)]
pub(in crate::local) struct Heap<K> {
    items: Vec<(K, u32)>,
}

impl<K: Ord + Copy> Heap<K> {
    pub(in crate::local) const fn new() -> Heap<K> {
        Heap { items: Vec::new() }
    }

    pub(in crate::local) fn len(&self) -> usize {
        self.items.len()
    }

    pub(in crate::local) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(in crate::local) fn first(&self) -> Option<(K, u32)> {
        self.items.first().copied()
    }

    pub(in crate::local) fn items(&self) -> &[(K, u32)] {
        &self.items
    }

    /// The smallest of those that fit.
    pub(in crate::local) fn first_where(&self, fits: impl Fn(u32) -> bool) -> Option<(K, u32)> {
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

    pub(in crate::local) fn insert(&mut self, key: K, slot: u32, mut moved: impl FnMut(u32, usize)) {
        self.items.push((key, slot));
        self.rise(self.items.len() - 1, &mut moved);
    }

    pub(in crate::local) fn remove(&mut self, place: usize, mut moved: impl FnMut(u32, usize)) {
        self.items.swap_remove(place);
        if place < self.items.len() {
            let place = self.rise(place, &mut moved);
            self.sink(place, &mut moved);
        }
        if self.items.is_empty() && self.items.capacity() > KEPT {
            self.items = Vec::new();
        }
    }

    pub(in crate::local) fn rekey(&mut self, place: usize, key: K, mut moved: impl FnMut(u32, usize)) {
        self.items[place].0 = key;
        let place = self.rise(place, &mut moved);
        self.sink(place, &mut moved);
    }

    fn rise(&mut self, mut place: usize, moved: &mut impl FnMut(u32, usize)) -> usize {
        let item = self.items[place];
        while place > 0 {
            let above = (place - 1) / 2;
            if self.items[above].0 <= item.0 {
                break;
            }
            self.items[place] = self.items[above];
            moved(self.items[place].1, place);
            place = above;
        }
        self.items[place] = item;
        moved(item.1, place);
        place
    }

    fn sink(&mut self, mut place: usize, moved: &mut impl FnMut(u32, usize)) {
        let item = self.items[place];
        loop {
            let mut below = 2 * place + 1;
            if below >= self.items.len() {
                break;
            }
            if below + 1 < self.items.len() && self.items[below + 1].0 < self.items[below].0 {
                below += 1;
            }
            if item.0 <= self.items[below].0 {
                break;
            }
            self.items[place] = self.items[below];
            moved(self.items[place].1, place);
            place = below;
        }
        self.items[place] = item;
        moved(item.1, place);
    }
}
