//! S02: how long the dead delay a key.

use std::thread;
use std::time::{Duration, Instant};

use super::Factory;
use super::process::Process;
use super::tools::{
    FOR_EVER, assert_within, faulty_session, get, is_empty, ms, open, session, ttl_of, view, wait_for, wait_for_queue, wait_within,
};
use crate::lease::{MAX_QUEUE_LIFE, Store};

/// What S02 grants beyond a ttl or a queue_life.
const SLACK: Duration = ms(1_000);
const TTL: Duration = ms(2_000);
const AN_HOUR: Duration = Duration::from_secs(3_600);

/// How long a waiter of that ttl can be dead before it is noticed.
pub(super) fn queue_life(ttl: Duration) -> Duration {
    ttl.min(ms(MAX_QUEUE_LIFE))
}

/// **S02** A holder is killed: the next waiter holds within ttl + 1 s. A *waiter* is killed, also one with a ttl of an hour, also just after it was
/// granted: it delays the key by at most queue_life + 1 s.
///
/// The situations run side by side, on a key each.
pub fn case_s02_the_dead_delay_a_key_for_a_while(factory: &dyn Factory) {
    thread::scope(|threads| {
        threads.spawn(|| a_holder_dies(factory));
        for (ttl, name) in [(TTL, "2 s"), (AN_HOUR, "an hour")] {
            threads.spawn(move || a_waiter_dies(factory, ttl, &format!("waiter with a ttl of {name}"), false));
            threads.spawn(move || a_waiter_dies(factory, ttl, &format!("grantee with a ttl of {name}"), true));
        }
    });
    assert!(is_empty(&*open(factory)));
}

fn a_holder_dies(factory: &dyn Factory) {
    let (store, locks) = (open(factory), session(factory));
    let ttl = ttl_of(&*store, TTL);
    let mut holder = Process::start(factory);
    holder.order_lock("holder", ttl);
    let fence = holder.held();
    thread::scope(|threads| {
        let next = threads.spawn(|| (get(locks.lock("holder")), Instant::now()));
        wait_for_queue(&*store, "holder", 1);
        let killed = Instant::now();
        holder.kill();
        let (lease, held) = next.join().expect("no panic");
        assert!(lease.fence() > fence);
        assert_within("the next after a dead holder", held - killed, ttl, SLACK);
    });
}

/// A holder, a waiter that dies while it waits or once it is granted, and the next behind it.
fn a_waiter_dies(factory: &dyn Factory, ttl: Duration, key: &str, granted: bool) {
    let (store, locks) = (open(factory), session(factory));
    let ttl = ttl_of(&*store, ttl);
    let first = get(locks.lock(key));
    let mut waiter = Process::start(factory);
    waiter.order_lock(key, ttl);
    wait_for_queue(&*store, key, 1);
    thread::scope(|threads| {
        let next = threads.spawn(|| (get(locks.lock(key)), Instant::now()));
        wait_for_queue(&*store, key, 2);
        if granted {
            // Stopped, so that it cannot claim what it is granted.
            waiter.stop();
        } else {
            waiter.kill();
        }
        let released = Instant::now();
        drop(first);
        wait_within("the grant to the one that is not there", ms(1_000), || {
            let holders = view(&*store, key).holders;
            holders.len() == 1 && holders[0].owner.pid == waiter.id() && !holders[0].claimed
        });
        if granted {
            waiter.kill();
        }
        let (lease, held) = next.join().expect("no panic");
        assert_within(key, held - released, queue_life(ttl), SLACK);
        drop(lease);
    });
    wait_for("the last lease to be given back", || view(&*store, key).holders.is_empty());
}

/// **S02** within one process: sessions that are cut off from the store instead of processes that die. To the store it is the same.
pub fn case_s02_within_a_process(factory: &dyn Factory) {
    let store = open(factory);
    let ttl = ttl_of(&*store, TTL);
    thread::scope(|threads| {
        threads.spawn(|| a_holder_is_cut_off(factory, &*store, ttl));
        threads.spawn(|| a_waiter_is_cut_off(factory, &*store, ttl));
    });
    wait_for("the last lease to be given back", || is_empty(&*store));
}

fn a_holder_is_cut_off(factory: &dyn Factory, store: &dyn Store, ttl: Duration) {
    let (cut, locks) = faulty_session(factory);
    let others = session(factory);
    let holder = get(locks.lock("holder").ttl(ttl));
    thread::scope(|threads| {
        let next = threads.spawn(|| (get(others.lock("holder")), Instant::now()));
        wait_for_queue(store, "holder", 1);
        let since = Instant::now();
        cut.cut_off();
        let (lease, held) = next.join().expect("no panic");
        assert!(lease.fence() > holder.fence());
        assert!(!holder.is_valid(), "two hold at once");
        assert_within("the next after a holder that was cut off", held - since, ttl, SLACK);
        cut.heal();
    });
}

fn a_waiter_is_cut_off(factory: &dyn Factory, store: &dyn Store, ttl: Duration) {
    let (cut, locks) = faulty_session(factory);
    let others = session(factory);
    let first = get(others.lock("waiter"));
    thread::scope(|threads| {
        threads.spawn(|| {
            let error = locks.lock("waiter").ttl(ttl).timeout(FOR_EVER).blocking().expect_err("it is cut off");
            assert!(error.is_lost(), "{error}");
        });
        wait_for_queue(store, "waiter", 1);
        let next = threads.spawn(|| (get(others.lock("waiter")), Instant::now()));
        wait_for_queue(store, "waiter", 2);
        cut.cut_off();
        let released = Instant::now();
        drop(first);
        let (lease, held) = next.join().expect("no panic");
        assert_within("the next after a waiter that was cut off", held - released, queue_life(ttl), SLACK);
        drop(lease);
        cut.heal();
    });
}
