//! The waiters of one lock.

use std::num::NonZeroU32;

use super::records::{OF_LOCK, Wait};
use super::slab::{Link, NIL, Slab};
use super::urgency::{FRONT, NEVER, Order, Rank, Urgency, descending, priority_of};
use crate::heap::Heap;

/// The heaps that a wait is in: `Wait::places` is indexed by these.
const SERVE: usize = 0;
const PRIORITY: usize = 1;
const DEADLINE: usize = 2;
const ARRIVAL: usize = 3;

/// The place of a wait that is in the line.
const IN_LINE: u32 = u32::MAX;

/// The waits of one lock: in the order in which they are served, and where that does not tell, the most urgent in each respect and the oldest.
///
/// An upgrade is before all others, and not counted as bypassed or as passing by: it keeps out nobody whom its holder did not keep out already,
/// but readers, who came later than that.
#[derive(Debug)]
pub(super) struct Queue {
    order: Order,
    limit: Option<NonZeroU32>,
    /// Most who wait are equal but for their arrival. Those stand in a line, where it costs the same to come and go however long it is.
    line: Line,
    /// The others.
    serve: Heap<Rank>,
    /// Where the order is not by priority.
    by_priority: Heap<u64>,
    /// Where the order is not by deadline; only waits that have one.
    by_deadline: Heap<u64>,
    /// Where there is a bypass limit.
    by_arrival: Heap<u64>,
    /// The oldest, and how many others were granted since it is.
    oldest: u32,
    bypassed: u32,
}

impl Queue {
    pub(super) fn new(order: Order, limit: Option<NonZeroU32>) -> Queue {
        Queue {
            order,
            limit,
            line: Line::EMPTY,
            serve: Heap::new(),
            by_priority: Heap::new(),
            by_deadline: Heap::new(),
            by_arrival: Heap::new(),
            oldest: NIL,
            bypassed: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.serve.len() + self.line.length
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.line.head == NIL && self.serve.is_empty()
    }

    /// In no order.
    pub(super) fn slots<'a>(&'a self, waits: &'a Slab<Wait>) -> impl Iterator<Item = u32> + 'a {
        self.line.slots(waits).chain(self.serve.items().iter().map(|item| item.1))
    }

    /// The first in serving order, the limit apart.
    #[inline]
    fn head(&self) -> Option<(Rank, u32)> {
        let in_line = (self.line.head != NIL).then_some((self.line.rank, self.line.head));
        match (in_line, self.serve.first()) {
            (Some(first), Some(other)) if other.0 < first.0 => Some(other),
            (None, other) => other,
            (first, _) => first,
        }
    }

    /// Who is next.
    pub(super) fn first(&self) -> Option<u32> {
        self.overdue().filter(|_| self.upgrade().is_none()).or_else(|| self.head().map(|(_, slot)| slot))
    }

    /// The oldest, when enough others were granted before it: it is next, or after an upgrade.
    pub(super) fn overdue(&self) -> Option<u32> {
        (self.oldest != NIL && self.limit.is_some_and(|limit| self.bypassed >= limit.get())).then_some(self.oldest)
    }

    /// The upgrade that waits, if one does.
    fn upgrade(&self) -> Option<u32> {
        self.serve.first().filter(|(rank, _)| *rank == FRONT).map(|(_, slot)| slot)
    }

    /// Whether a newcomer of this urgency would be next.
    pub(super) fn leads(&self, urgency: Urgency, arrival: u64) -> bool {
        self.overdue().is_none() && self.head().is_none_or(|(rank, _)| self.order.rank(urgency, arrival) < rank)
    }

    /// The best of all waits in each respect, those of one worker apart.
    pub(super) fn best(&self, waits: &Slab<Wait>, not: u32) -> Urgency {
        let fits = |slot: u32| waits[slot].worker != not;
        if self.is_empty() {
            return Urgency::NONE;
        }
        // The keys of the line are all the same, and that of an upgrade says nothing about its urgency.
        let line = self.line.slots(waits).find(|slot| fits(*slot)).map(|_| self.line.rank[0]);
        let upgrade = self.upgrade().filter(|slot| fits(*slot)).map(|slot| self.order.rank(waits[slot].urgency, 0)[0]);
        let ranked = |slot: u32| fits(slot) && !waits[slot].upgrades;
        let by_rank = || line.into_iter().chain(upgrade).chain(self.serve.first_where(ranked).map(|(rank, _)| rank[0])).min();
        let priority = match self.order {
            Order::Priority => by_rank(),
            _ => self.by_priority.first_where(fits).map(|(key, _)| key),
        };
        let deadline = match self.order {
            Order::Deadline => by_rank(),
            _ => self.by_deadline.first_where(fits).map(|(key, _)| key),
        };
        Urgency { priority: priority.map_or(i32::MIN, priority_of), deadline: deadline.unwrap_or(NEVER) }
    }

    pub(super) fn insert(&mut self, waits: &mut Slab<Wait>, slot: u32) {
        let Wait { urgency, arrival, upgrades, .. } = waits[slot];
        self.stand(waits, slot, if upgrades { FRONT } else { self.order.rank(urgency, arrival) });
        if self.order != Order::Priority {
            self.by_priority.insert(descending(urgency.priority), slot, |slot, place| waits[slot].places[PRIORITY] = place);
        }
        if self.order != Order::Deadline && urgency.deadline != NEVER {
            self.by_deadline.insert(urgency.deadline, slot, |slot, place| waits[slot].places[DEADLINE] = place);
        }
        if self.limit.is_some() && !upgrades {
            self.by_arrival.insert(arrival, slot, |slot, place| waits[slot].places[ARRIVAL] = place);
            self.recount();
        }
    }

    pub(super) fn remove(&mut self, waits: &mut Slab<Wait>, slot: u32) {
        let Wait { urgency, places, upgrades, .. } = waits[slot];
        self.step_out(waits, slot, places[SERVE]);
        if self.order != Order::Priority {
            self.by_priority.remove(places[PRIORITY], |slot, place| waits[slot].places[PRIORITY] = place);
        }
        if self.order != Order::Deadline && urgency.deadline != NEVER {
            self.by_deadline.remove(places[DEADLINE], |slot, place| waits[slot].places[DEADLINE] = place);
        }
        if self.limit.is_some() && !upgrades {
            self.by_arrival.remove(places[ARRIVAL], |slot, place| waits[slot].places[ARRIVAL] = place);
            self.recount();
        }
    }

    /// Changes the urgency of a wait; its place follows.
    pub(super) fn rekey(&mut self, waits: &mut Slab<Wait>, slot: u32, to: Urgency) {
        let Wait { urgency: from, arrival, places, upgrades, .. } = waits[slot];
        waits[slot].urgency = to;
        if self.order != Order::Fifo && !upgrades {
            let rank = self.order.rank(to, arrival);
            if places[SERVE] == IN_LINE {
                self.step_out(waits, slot, IN_LINE);
                self.stand(waits, slot, rank);
            } else {
                self.serve.rekey(places[SERVE], rank, |slot, place| waits[slot].places[SERVE] = place);
            }
        }
        if self.order != Order::Priority && from.priority != to.priority {
            let key = descending(to.priority);
            self.by_priority.rekey(places[PRIORITY], key, |slot, place| waits[slot].places[PRIORITY] = place);
        }
        if self.order != Order::Deadline && from.deadline != to.deadline {
            let moved = |slot: u32, place| waits[slot].places[DEADLINE] = place;
            match (from.deadline, to.deadline) {
                (NEVER, new) => self.by_deadline.insert(new, slot, moved),
                (_, NEVER) => self.by_deadline.remove(places[DEADLINE], moved),
                (_, new) => self.by_deadline.rekey(places[DEADLINE], new, moved),
            }
        }
    }

    /// Takes a place in serving order.
    fn stand(&mut self, waits: &mut Slab<Wait>, slot: u32, rank: Rank) {
        if rank != FRONT && self.line.admits(rank) {
            waits[slot].places[SERVE] = IN_LINE;
            self.line.append(waits, slot, rank);
        } else {
            self.serve.insert(rank, slot, |slot, place| waits[slot].places[SERVE] = place);
        }
    }

    fn step_out(&mut self, waits: &mut Slab<Wait>, slot: u32, place: u32) {
        if place == IN_LINE {
            self.line.remove(waits, slot);
        } else {
            self.serve.remove(place, |slot, place| waits[slot].places[SERVE] = place);
        }
    }

    /// Counts a grant to somebody who came later than the oldest; `NIL` is a reader that joined without queueing.
    pub(super) fn passed(&mut self, by: u32) {
        if self.oldest != NIL && self.oldest != by {
            self.bypassed = self.bypassed.saturating_add(1);
        }
    }

    fn recount(&mut self) {
        let oldest = self.by_arrival.first().map_or(NIL, |(_, slot)| slot);
        if oldest != self.oldest {
            self.oldest = oldest;
            self.bypassed = 0;
        }
    }
}

/// Waits that differ in their arrival only, the first to come first; linked through the list of their lock, which they need once granted.
#[derive(Debug)]
struct Line {
    head: u32,
    tail: u32,
    length: usize,
    /// The head's; what follows the first two keys is the arrival.
    rank: Rank,
    /// The tail's arrival.
    last: u64,
}

impl Line {
    const EMPTY: Line = Line { head: NIL, tail: NIL, length: 0, rank: [0; 3], last: 0 };

    /// Whether the newcomer would be the last of those.
    #[inline]
    fn admits(&self, rank: Rank) -> bool {
        self.head == NIL || rank[0] == self.rank[0] && rank[1] == self.rank[1] && rank[2] > self.last
    }

    #[inline]
    fn append(&mut self, waits: &mut Slab<Wait>, slot: u32, rank: Rank) {
        if self.head == NIL {
            (self.head, self.rank) = (slot, rank);
        } else {
            waits[self.tail].link[OF_LOCK].next = slot;
        }
        waits[slot].link[OF_LOCK] = Link { prev: self.tail, next: NIL };
        (self.tail, self.last) = (slot, rank[2]);
        self.length += 1;
    }

    #[inline]
    fn remove(&mut self, waits: &mut Slab<Wait>, slot: u32) {
        let Link { prev, next } = std::mem::replace(&mut waits[slot].link[OF_LOCK], Link::NONE);
        if prev == NIL {
            self.head = next;
        } else {
            waits[prev].link[OF_LOCK].next = next;
        }
        if next == NIL {
            self.tail = prev;
            self.last = if prev == NIL { 0 } else { waits[prev].arrival };
        } else {
            waits[next].link[OF_LOCK].prev = prev;
            if prev == NIL {
                self.rank[2] = waits[next].arrival;
            }
        }
        self.length -= 1;
    }

    fn slots<'a>(&self, waits: &'a Slab<Wait>) -> impl Iterator<Item = u32> + 'a {
        std::iter::successors((self.head != NIL).then_some(self.head), |slot| {
            let next = waits[*slot].link[OF_LOCK].next;
            (next != NIL).then_some(next)
        })
    }
}
