//! S06, S07, S11 and S17: beats that fail, notices that are lost, and time that passes.

use std::thread;
use std::time::{Duration, Instant};

use super::Factory;
use super::tools::{
    FOR_EVER, assert_within, faulty_session, fence_of, get, is_empty, ms, open, session, ttl_of, view, wait_for, wait_for_queue,
};
use crate::lease::{LostReason, Released, Store};
use crate::store::{Fault, Point};

/// **S06** Renewal fails twice then works: the lease goes on. Renewal hangs for ever: `lost` fires by timer before the store could expire it.
pub fn case_s06_failed_renewals(factory: &dyn Factory) {
    let store = open(factory);
    thread::scope(|threads| {
        for (name, two) in [
            ("requests lost", [Fault::LoseRequest, Fault::LoseRequest]),
            ("replies lost", [Fault::LoseReply, Fault::LoseReply]),
            ("both", [Fault::LoseRequest, Fault::LoseReply]),
        ] {
            let store = &*store;
            threads.spawn(move || renewal_recovers(factory, store, name, two));
        }
        threads.spawn(|| renewal_hangs(factory, &*store));
    });
    wait_for("the last lease to be given back", || is_empty(&*store));
}

fn renewal_recovers(factory: &dyn Factory, store: &dyn Store, name: &str, two: [Fault; 2]) {
    let (faulty, locks) = faulty_session(factory);
    let ttl = ttl_of(store, ms(1_500));
    let lease = get(locks.lock(name).ttl(ttl));
    let since = Instant::now();
    faulty.next(Point::Beat, two);
    wait_for("twice the ttl", || since.elapsed() > 2 * ttl);
    assert!(lease.is_valid(), "{name}: {:?}", lease.lost_reason());
    assert_eq!(fence_of(store, name), Some(lease.fence()));
    assert!(faulty.counts().beats > 4, "two failed, and it was renewed at least every ttl/3");
    assert_eq!(lease.release_blocking().expect("the store answers"), Released::InTime);
}

fn renewal_hangs(factory: &dyn Factory, store: &dyn Store) {
    let (faulty, locks) = faulty_session(factory);
    let others = session(factory);
    // The margin between the holder's end and the store's, 1% of it and 2 ms, must be more than a thread of a busy machine waits for its turn.
    let ttl = ttl_of(store, ms(6_000));
    let sent = Instant::now();
    let lease = get(locks.lock("hangs").ttl(ttl));
    // When the request went out, only the lease knows: a thread of a busy machine may wait for its turn before that. The store counts from then on.
    let remaining = lease.remaining();
    let expiry = Instant::now() + remaining + ttl / 100 + ms(2);
    // Leaves hang too, so that nothing but the expiry can free the key.
    faulty.cut_off();
    thread::scope(|threads| {
        let next = threads.spawn(|| (get(others.lock("hangs")), Instant::now()));
        wait_for_queue(store, "hangs", 1);
        let reason = pollster::block_on(lease.lost());
        let lost = Instant::now();
        assert_eq!(reason, LostReason::Expired);
        assert!(lost < expiry, "{:?} after the store's expiry at the earliest", lost - expiry);
        let (other, held) = next.join().expect("no panic");
        assert!(lost < held, "two held at once, for {:?}", lost - held);
        assert!(held + ms(1) >= sent + ttl, "the store expired it {:?} too early", sent + ttl - held);
        assert!(other.fence() > lease.fence());
        assert_within("the next after a renewal that hangs", held - sent, ttl, ms(1_000));
        faulty.heal();
    });
}

/// **S07** The notice of a grant is lost (notices cut off): the first waiter in line still holds within 1.5 s.
pub fn case_s07_a_lost_notice_costs_time_only(factory: &dyn Factory) {
    let (store, others) = (open(factory), session(factory));
    let (faulty, locks) = faulty_session(factory);
    faulty.set_deaf(true);
    for _ in 0..3 {
        let first = get(others.lock("s07"));
        thread::scope(|threads| {
            let next = threads.spawn(|| (get(locks.lock("s07")), Instant::now()));
            wait_for_queue(&*store, "s07", 1);
            let released = Instant::now();
            drop(first);
            let (lease, held) = next.join().expect("no panic");
            assert_within("the next without a notice", held - released, ms(1_000), ms(500));
            assert_eq!(lease.release_blocking().expect("the store answers"), Released::InTime);
        });
    }
    assert!(is_empty(&*store));
}

/// **S11** Releasing an expired lease whose key is free, or is held by another: reported as already lost, not as an error, and frees nothing.
pub fn case_s11_a_late_release_frees_nothing(factory: &dyn Factory) {
    let (store, others) = (open(factory), session(factory));
    let (faulty, locks) = faulty_session(factory);
    let ttl = ttl_of(&*store, ms(500));
    let free = get(locks.lock("free").ttl(ttl));
    let taken = get(locks.lock("taken").ttl(ttl));
    faulty.cut_off();
    let other = get(others.lock("taken"));
    wait_for("the expiry", || view(&*store, "free").holders.is_empty());
    faulty.heal();
    assert_eq!(free.release_blocking().expect("no error"), Released::AlreadyLost);
    assert_eq!(taken.release_blocking().expect("no error"), Released::AlreadyLost);
    assert!(view(&*store, "free").holders.is_empty());
    assert_eq!(fence_of(&*store, "taken"), Some(other.fence()), "the other keeps it");
    assert!(other.is_valid());
    assert_eq!(other.release_blocking().expect("the store answers"), Released::InTime);
}

/// **S17** A waiter that waits far longer than any ttl (10 ttl) is never purged while its process lives.
pub fn case_s17_waiters_are_kept(factory: &dyn Factory) {
    let (store, holders, waiters) = (open(factory), session(factory), session(factory));
    let ttl = ttl_of(&*store, ms(1_000));
    let first = get(holders.lock("s17").ttl(ttl));
    thread::scope(|threads| {
        let wait = || threads.spawn(|| waiters.lock("s17").ttl(ttl).timeout(10 * ttl + FOR_EVER).blocking().expect("it is granted"));
        let second = wait();
        wait_for_queue(&*store, "s17", 1);
        let third = wait();
        wait_for_queue(&*store, "s17", 2);
        let since = Instant::now();
        let mut waited = Duration::ZERO;
        while since.elapsed() < 10 * ttl {
            let now = view(&*store, "s17");
            let times: Vec<u64> = now.queue.iter().map(|waiter| waiter.waiting_ms).collect();
            assert_eq!(times.len(), 2, "after {:?}: {now:?}", since.elapsed());
            // A ticket that was purged and came anew would wait from zero.
            assert!(times[0] >= times[1] && ms(times[1]) >= waited, "{times:?} after {waited:?}");
            waited = ms(times[1]);
            thread::sleep(ttl / 50);
        }
        let fence = first.fence();
        assert_eq!(first.release_blocking().expect("the store answers"), Released::InTime);
        let second = second.join().expect("no panic");
        assert!(second.fence() > fence && !third.is_finished());
        drop(second);
        drop(third.join().expect("no panic"));
    });
    wait_for("the last lease to be given back", || is_empty(&*store));
}
