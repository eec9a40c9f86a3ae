//! S10: whose turn it is.

use std::cmp::Reverse;
use std::sync::Mutex;
use std::thread;

use super::Factory;
use super::chance::Chance;
use super::tools::{faulty_session, get, is_empty, open, wait_for, wait_for_queue};
use crate::sync::lock;

const WAITERS: usize = 50;
const SESSIONS: usize = 5;

/// **S10** 50 waiters on one key, mixed priorities: served by priority, then arrival; each exclusive release wakes exactly one waiter.
///
/// Woken is whoever gets a notice of a grant; they are counted where they come from the store.
pub fn case_s10_priority_then_arrival(factory: &dyn Factory) {
    let mut chance = Chance::of("S10");
    let store = open(factory);
    let sessions: Vec<_> = (0..SESSIONS).map(|_| faulty_session(factory)).collect();
    let granted = || sessions.iter().map(|(faulty, _)| faulty.counts().granted).sum::<u64>();
    let priorities: Vec<i32> = (0..WAITERS).map(|_| *chance.pick(&[i32::MIN, -1, 0, 1, i32::MAX])).collect();
    let served = Mutex::new(Vec::new());
    let first = get(sessions[0].1.lock("s10"));
    thread::scope(|threads| {
        for (at, &priority) in priorities.iter().enumerate() {
            let (locks, served) = (&sessions[at % SESSIONS].1, &served);
            threads.spawn(move || {
                let lease = get(locks.lock("s10").priority(priority));
                // Within the hold, so that the order is that of the holds.
                lock(served).push((at, lease.fence()));
                drop(lease);
            });
            wait_for_queue(&*store, "s10", at + 1);
        }
        assert_eq!(granted(), 0, "nobody was woken while the key was held");
        drop(first);
    });
    let served = lock(&served);
    let mut right: Vec<usize> = (0..WAITERS).collect();
    right.sort_by_key(|at| (Reverse(priorities[*at]), *at));
    assert_eq!(served.iter().map(|(at, _)| *at).collect::<Vec<_>>(), right, "priorities by arrival: {priorities:?}");
    assert!(served.is_sorted_by(|(_, before), (_, after)| before < after), "fences grow: {served:?}");
    wait_for("the last lease to be given back", || is_empty(&*store));
    if store.capabilities().notices {
        let all = u64::try_from(WAITERS).expect("a small number");
        wait_for("all notices", || granted() >= all);
        assert_eq!(granted(), all, "each release wakes exactly one");
    }
}
