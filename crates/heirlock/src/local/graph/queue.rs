//! The waiters of one lock.

use std::num::NonZeroU32;

use super::heap::Heap;
use super::records::Wait;
use super::slab::{NIL, Slab};
use super::urgency::{NEVER, Order, Rank, Urgency, descending, priority_of};

/// The heaps that a wait is in: `Wait::places` is indexed by these.
const SERVE: usize = 0;
const PRIORITY: usize = 1;
const DEADLINE: usize = 2;
const ARRIVAL: usize = 3;

/// The waits of one lock: in the order in which they are served, and where that does not tell, the most urgent in each respect and the oldest.
#[derive(Debug)]
pub(super) struct Queue {
    order: Order,
    limit: Option<NonZeroU32>,
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
            serve: Heap::new(),
            by_priority: Heap::new(),
            by_deadline: Heap::new(),
            by_arrival: Heap::new(),
            oldest: NIL,
            bypassed: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.serve.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.serve.is_empty()
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = u32> + '_ {
        self.serve.items().iter().map(|item| item.1)
    }

    /// Who is next.
    pub(super) fn first(&self) -> Option<u32> {
        self.overdue().or_else(|| self.serve.first().map(|(_, slot)| slot))
    }

    /// The oldest, when enough others were granted before it.
    pub(super) fn overdue(&self) -> Option<u32> {
        (self.oldest != NIL && self.limit.is_some_and(|limit| self.bypassed >= limit.get())).then_some(self.oldest)
    }

    /// Whether a newcomer of this urgency would be next.
    pub(super) fn leads(&self, urgency: Urgency, arrival: u64) -> bool {
        self.overdue().is_none() && self.serve.first().is_none_or(|(rank, _)| self.order.rank(urgency, arrival) < rank)
    }

    /// The best of all waits in each respect, those of one worker apart.
    pub(super) fn best(&self, waits: &Slab<Wait>, not: u32) -> Urgency {
        let fits = |slot: u32| waits[slot].worker != not;
        if self.serve.is_empty() {
            return Urgency::NONE;
        }
        let priority = match self.order {
            Order::Priority => self.serve.first_where(fits).map(|(rank, _)| rank[0]),
            _ => self.by_priority.first_where(fits).map(|(key, _)| key),
        };
        let deadline = match self.order {
            Order::Deadline => self.serve.first_where(fits).map(|(rank, _)| rank[0]),
            _ => self.by_deadline.first_where(fits).map(|(key, _)| key),
        };
        Urgency { priority: priority.map_or(i32::MIN, priority_of), deadline: deadline.unwrap_or(NEVER) }
    }

    pub(super) fn insert(&mut self, waits: &mut Slab<Wait>, slot: u32) {
        let Wait { urgency, arrival, .. } = waits[slot];
        self.serve.insert(self.order.rank(urgency, arrival), slot, |slot, place| waits[slot].places[SERVE] = place);
        if self.order != Order::Priority {
            self.by_priority.insert(descending(urgency.priority), slot, |slot, place| waits[slot].places[PRIORITY] = place);
        }
        if self.order != Order::Deadline && urgency.deadline != NEVER {
            self.by_deadline.insert(urgency.deadline, slot, |slot, place| waits[slot].places[DEADLINE] = place);
        }
        if self.limit.is_some() {
            self.by_arrival.insert(arrival, slot, |slot, place| waits[slot].places[ARRIVAL] = place);
            self.recount();
        }
    }

    pub(super) fn remove(&mut self, waits: &mut Slab<Wait>, slot: u32) {
        let Wait { urgency, places, .. } = waits[slot];
        self.serve.remove(places[SERVE], |slot, place| waits[slot].places[SERVE] = place);
        if self.order != Order::Priority {
            self.by_priority.remove(places[PRIORITY], |slot, place| waits[slot].places[PRIORITY] = place);
        }
        if self.order != Order::Deadline && urgency.deadline != NEVER {
            self.by_deadline.remove(places[DEADLINE], |slot, place| waits[slot].places[DEADLINE] = place);
        }
        if self.limit.is_some() {
            self.by_arrival.remove(places[ARRIVAL], |slot, place| waits[slot].places[ARRIVAL] = place);
            self.recount();
        }
    }

    /// Changes the urgency of a wait; its place follows.
    pub(super) fn rekey(&mut self, waits: &mut Slab<Wait>, slot: u32, to: Urgency) {
        let Wait { urgency: from, arrival, places, .. } = waits[slot];
        waits[slot].urgency = to;
        if self.order != Order::Fifo {
            let rank = self.order.rank(to, arrival);
            self.serve.rekey(places[SERVE], rank, |slot, place| waits[slot].places[SERVE] = place);
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
