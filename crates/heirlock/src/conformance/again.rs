//! S12: a worker that asks again.

use std::thread;

use super::Factory;
use super::tools::{faulty_session, fence_of, get, is_empty, ms, open, ttl_of, view, wait_for, wait_for_queue};
use crate::lease::{Evict, LostReason, Released, Store};
use crate::{Lease, Locks, Worker};

/// **S12** One session, one worker: `lock(k)` twice gives the same lease and fence, released when both are; another worker of the same session waits;
/// after a loss, `lock(k)` is a new ticket.
pub fn case_s12_a_worker_asks_again(factory: &dyn Factory) {
    let store = open(factory);
    both_are_one(factory, &*store);
    an_expiry_ends_that(factory, &*store);
    an_eviction_ends_that(factory, &*store);
    wait_for("the last lease to be given back", || is_empty(&*store));
}

fn ask(worker: &Worker, locks: &Locks) -> Lease {
    worker.scope(|| get(locks.lock("s12")))
}

fn both_are_one(factory: &dyn Factory, store: &dyn Store) {
    let (faulty, locks) = faulty_session(factory);
    let (worker, other) = (Worker::new("first"), Worker::new("other"));
    let (first, second) = (ask(&worker, &locks), ask(&worker, &locks));
    let fence = first.fence();
    assert_eq!(second.fence(), fence);
    assert_eq!(faulty.counts().enters, 1, "the store was asked once");
    assert!(locks.try_lock("s12").blocking().expect_err("it is held").is_busy(), "without a worker every call is its own owner");
    thread::scope(|threads| {
        let next = threads.spawn(|| ask(&other, &locks));
        wait_for_queue(store, "s12", 1);
        assert_eq!(first.release_blocking().expect("nobody is asked"), Released::StillHeld);
        assert_eq!(faulty.counts().leaves, 0, "the store was told nothing");
        assert!(second.is_valid() && !next.is_finished());
        assert_eq!((fence_of(store, "s12"), view(store, "s12").queue.len()), (Some(fence), 1));
        assert_eq!(second.release_blocking().expect("the store answers"), Released::InTime);
        assert!(next.join().expect("no panic").fence() > fence);
    });
    wait_for("the other's lease to be given back", || is_empty(store));
}

fn an_expiry_ends_that(factory: &dyn Factory, store: &dyn Store) {
    let (faulty, locks) = faulty_session(factory);
    let worker = Worker::new("cut off");
    let ttl = ttl_of(store, ms(500));
    let lost = worker.scope(|| [get(locks.lock("s12").ttl(ttl)), get(locks.lock("s12").ttl(ttl))]);
    faulty.cut_off();
    for lease in &lost {
        assert_eq!(pollster::block_on(lease.lost()), LostReason::Expired, "all are lost together");
    }
    faulty.heal();
    let new = ask(&worker, &locks);
    assert!(new.fence() > lost[0].fence());
    for lease in lost {
        assert!(!lease.is_valid());
        assert_eq!(lease.release_blocking().expect("no error"), Released::AlreadyLost);
    }
    assert!(new.is_valid());
    assert_eq!(fence_of(store, "s12"), Some(new.fence()));
    assert_eq!(new.release_blocking().expect("the store answers"), Released::InTime);
}

fn an_eviction_ends_that(factory: &dyn Factory, store: &dyn Store) {
    let (_, locks) = faulty_session(factory);
    let worker = Worker::new("evicted");
    let old = ask(&worker, &locks);
    let request = Evict { fence: Some(old.fence()), force: false };
    assert_eq!(pollster::block_on(locks.evict("s12", request)).expect("the store answers"), 1);
    assert_eq!(pollster::block_on(old.lost()), LostReason::Evicted);
    thread::scope(|threads| {
        let next = threads.spawn(|| ask(&worker, &locks));
        // Behind what it has not yet given back.
        wait_for_queue(store, "s12", 1);
        let fence = old.fence();
        drop(old);
        assert!(next.join().expect("no panic").fence() > fence);
    });
}
