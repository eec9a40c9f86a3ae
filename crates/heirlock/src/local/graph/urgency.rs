//! How urgent a wait or a worker is, and the order of a queue.

/// The deadline of what has none: it is after all others.
pub const NEVER: u64 = u64::MAX;

/// The largest priority and the earliest deadline, each for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Urgency {
    /// Larger is more urgent.
    pub priority: i32,
    /// Earlier is more urgent; [`NEVER`] for none. It orders, it never expires anything.
    pub deadline: u64,
}

impl Urgency {
    /// Adds nothing to anything.
    pub const NONE: Urgency = Urgency { priority: i32::MIN, deadline: NEVER };

    /// Both together.
    #[must_use]
    pub fn join(self, other: Urgency) -> Urgency {
        Urgency { priority: self.priority.max(other.priority), deadline: self.deadline.min(other.deadline) }
    }

    /// Whether something that inherits `inherited` may owe a part of it to this.
    pub(super) fn supports(self, inherited: Urgency) -> bool {
        (inherited.priority > i32::MIN && self.priority >= inherited.priority)
            || (inherited.deadline < NEVER && self.deadline <= inherited.deadline)
    }
}

/// Who of a lock's queue is next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The highest priority, then the earliest deadline, then the first to arrive.
    #[default]
    Priority,
    /// The earliest deadline, then the highest priority, then the first to arrive.
    Deadline,
    /// The first to arrive.
    Fifo,
}

/// A place in a queue: smaller is served earlier.
pub(super) type Rank = [u64; 3];

/// Before all others.
pub(super) const FRONT: Rank = [0; 3];

impl Order {
    /// Never [`FRONT`]: of the first two keys, one is not 0.
    pub(super) fn rank(self, urgency: Urgency, arrival: u64) -> Rank {
        match self {
            Order::Priority => [descending(urgency.priority), urgency.deadline, arrival],
            Order::Deadline => [urgency.deadline, descending(urgency.priority), arrival],
            Order::Fifo => [0, 1, arrival],
        }
    }
}

/// Larger priorities become smaller numbers; the largest, 1.
pub(super) fn descending(priority: i32) -> u64 {
    (i64::from(i32::MAX) + 1 - i64::from(priority)).unsigned_abs()
}

/// What [`descending`] was made of.
pub(super) fn priority_of(number: u64) -> i32 {
    i64::try_from(number).ok().and_then(|number| i32::try_from(i64::from(i32::MAX) + 1 - number).ok()).unwrap_or(i32::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priorities_survive_being_turned_round() {
        for priority in [i32::MIN, i32::MIN + 1, -1, 0, 1, i32::MAX - 1, i32::MAX] {
            assert_eq!(priority_of(descending(priority)), priority);
        }
        assert!(descending(i32::MAX) < descending(0) && descending(0) < descending(i32::MIN));
    }

    #[test]
    fn nothing_ranks_before_the_front() {
        let most = Urgency { priority: i32::MAX, deadline: 0 };
        assert!([Order::Priority, Order::Deadline, Order::Fifo].iter().all(|order| order.rank(most, 0) > FRONT));
    }
}
