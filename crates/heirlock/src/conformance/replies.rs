//! S04 and S05: replies that are lost.

use std::thread;
use std::time::{Duration, Instant};

use super::Factory;
use super::tools::{faulty_session, fence_of, get, is_empty, ms, open, poll_for, session, ttl_of, view, wait_for, wait_within};
use crate::lease::{Released, Store};
use crate::store::{Fault, Point};

const TTL: Duration = ms(5_000);

/// **S04** The reply of `enter` is lost: the retry finds the same ticket, the same fence, and validity counts from the retry's send; dropping instead
/// leaves no lock behind, also when the delayed `enter` arrives after the `leave`.
pub fn case_s04_the_reply_of_enter_is_lost(factory: &dyn Factory) {
    let store = open(factory);
    the_retry_finds_the_same(factory, &*store);
    assert!(is_empty(&*store));
    dropping_leaves_nothing(factory, &*store);
    a_late_enter_finds_nothing(factory, &*store);
}

fn the_retry_finds_the_same(factory: &dyn Factory, store: &dyn Store) {
    let (faulty, locks) = faulty_session(factory);
    let ttl = ttl_of(store, TTL);
    // The first is carried out; retries do not arrive until the fence has been read.
    faulty.next(Point::Enter, [Fault::LoseReply]);
    faulty.always(Point::Enter, Fault::LoseRequest);
    thread::scope(|threads| {
        let call = threads.spawn(|| {
            let lease = get(locks.lock("s04").ttl(ttl));
            // The end of validity lies between these two.
            let (before, remaining, after) = (Instant::now(), lease.remaining(), Instant::now());
            (lease, before + remaining, after + remaining)
        });
        wait_for("the first enter to be carried out", || fence_of(store, "s04").is_some());
        let fence = fence_of(store, "s04").expect("it is held");
        // Long enough to tell the first send from the retry.
        thread::sleep(ms(500));
        let healed = Instant::now();
        faulty.heal();
        let (lease, from, to) = call.join().expect("no panic");
        let got = Instant::now();
        assert_eq!(lease.fence(), fence, "the same ticket");
        let now = view(store, "s04");
        assert_eq!((now.holders.len(), now.queue.len(), now.last_fence), (1, 0, fence), "one ticket and one grant");
        // Less the margin of 1% and 2 ms, and what is rounded to milliseconds.
        let margin = ttl / 100 + ms(2);
        assert!(to + margin + ms(2) >= healed + ttl, "validity counts from before the retry was sent: {:?} short", healed + ttl - to);
        assert!(from + margin <= got + ttl, "validity is longer than the ttl from the retry");
        assert!(faulty.counts().enters >= 2);
        assert_eq!(lease.release_blocking().expect("the store answers"), Released::InTime);
    });
}

fn dropping_leaves_nothing(factory: &dyn Factory, store: &dyn Store) {
    let (faulty, locks) = faulty_session(factory);
    faulty.next(Point::Enter, [Fault::LoseReply]);
    faulty.always(Point::Enter, Fault::LoseRequest);
    assert!(poll_for(locks.lock("s04").ttl(TTL), ms(50)).is_none(), "it cannot know that it holds");
    wait_within("the dropped call's lock to go", ms(1_000), || is_empty(store));
    // And where the answer never comes at all.
    faulty.heal();
    faulty.always(Point::Enter, Fault::HangReply);
    assert!(poll_for(locks.lock("s04").ttl(TTL), ms(50)).is_none());
    wait_within("the dropped call's lock to go", ms(1_000), || is_empty(store));
}

fn a_late_enter_finds_nothing(factory: &dyn Factory, store: &dyn Store) {
    let (faulty, locks) = faulty_session(factory);
    faulty.next(Point::Enter, [Fault::ArriveLate(ms(300))]);
    faulty.always(Point::Enter, Fault::HangRequest);
    assert!(poll_for(locks.lock("s04").ttl(TTL), ms(30)).is_none());
    wait_for("the leave", || faulty.counts().leaves >= 1);
    assert_eq!(faulty.counts().late, 0, "the leave comes first");
    wait_for("the late enter", || faulty.counts().late == 1);
    assert!(is_empty(store), "the late enter has found that its ticket is gone");
    drop(get(session(factory).lock("s04")));
    wait_for("the last lease to be given back", || is_empty(store));
}

/// **S05** The reply of `leave` is lost and retried after someone else has entered: the other keeps it, and the leaver is told that it had released
/// in time.
pub fn case_s05_the_reply_of_leave_is_lost(factory: &dyn Factory) {
    let (store, others) = (open(factory), session(factory));
    let (faulty, locks) = faulty_session(factory);
    let ttl = ttl_of(&*store, TTL);
    let lease = get(locks.lock("s05").ttl(ttl));
    faulty.next(Point::Leave, [Fault::LoseReply]);
    faulty.always(Point::Leave, Fault::LoseRequest);
    thread::scope(|threads| {
        let release = threads.spawn(|| lease.release_blocking());
        let other = get(others.lock("s05").ttl(ttl));
        wait_for("a retry", || faulty.counts().leaves >= 2);
        faulty.heal();
        let released = release.join().expect("no panic").expect("the retry is answered");
        assert_eq!(released, Released::InTime);
        assert!(other.is_valid());
        assert_eq!(fence_of(&*store, "s05"), Some(other.fence()), "the other keeps it");
        assert_eq!(other.release_blocking().expect("the store answers"), Released::InTime);
    });
    assert!(is_empty(&*store));
}
