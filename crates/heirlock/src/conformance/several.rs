//! S19: several keys at once.

use std::thread;
use std::time::{Duration, Instant};

use super::Factory;
use super::process::Process;
use super::protocol::{Order, Reply};
use super::tools::{
    FOR_EVER, Log, fence_of, get, is_empty, ms, open, poll_for, session, ttl_of, view, wait_for, wait_for_queue, wait_within,
};
use super::worker::hold_all;
use crate::lease::{Evict, LeaseSet, Released, Store};
use crate::{Locks, Result};

const ROUNDS: u32 = 500;
const TTL_MS: u64 = 10_000;
const KEYS: [&str; 3] = ["s19/a", "s19/b", "s19/c"];

/// **S19** Three keys at once (`lock_all`) in opposite orders from two processes, 500 rounds: no deadlock, all or none; a timeout midway leaves none
/// held.
///
/// That all are held, and by one, is shown by a file for each key that must not be there.
pub fn case_s19_opposite_orders(factory: &dyn Factory) {
    let log = Log::new();
    let mut workers = [Process::start(factory), Process::start(factory)];
    for (worker, keys) in workers.iter_mut().zip(orders()) {
        worker.order(&Order::HoldAll { keys, ttl_ms: TTL_MS, times: ROUNDS, log: log.path() });
    }
    for worker in &workers {
        assert_eq!(worker.reply_within(3 * FOR_EVER), Reply::Done);
    }
    assert!(is_empty(&*open(factory)));
}

/// **S19** within one process: two sessions on two threads instead of two processes; and how a call of which a part is held ends.
pub fn case_s19_within_a_process(factory: &dyn Factory) {
    let store = open(factory);
    let log = Log::new();
    thread::scope(|threads| {
        for keys in orders() {
            let (locks, path) = (session(factory), log.path());
            threads.spawn(move || {
                for _ in 0..ROUNDS {
                    hold_all(&locks, &keys, ms(TTL_MS), &path).expect("a short hold");
                }
            });
        }
    });
    assert!(is_empty(&*store));
    a_timeout_midway(factory, &*store);
    a_drop_midway(factory, &*store);
    a_loss_midway(factory, &*store);
    what_is_held_is_renewed(factory, &*store);
    wait_for("the last lease to be given back", || is_empty(&*store));
}

fn orders() -> [Vec<String>; 2] {
    let keys = KEYS.map(str::to_owned).to_vec();
    [keys.clone(), keys.into_iter().rev().collect()]
}

/// Waits until the call has the first key, and waits for the second, which another holds.
fn wait_for_the_midst(store: &dyn Store) {
    wait_for_queue(store, KEYS[1], 1);
    assert_eq!(view(store, KEYS[0]).holders.len(), 1, "the first key comes first");
    assert!(view(store, KEYS[2]).holders.is_empty(), "the last key comes last");
}

fn none_held_but_the_second(store: &dyn Store) {
    wait_within("the others to be given up", ms(2_000), || {
        let now = KEYS.map(|name| view(store, name));
        let free = |at: usize| now[at].holders.is_empty() && now[at].queue.is_empty();
        free(0) && free(2) && now[1].queue.is_empty()
    });
    assert_eq!(view(store, KEYS[1]).holders.len(), 1);
}

fn a_timeout_midway(factory: &dyn Factory, store: &dyn Store) {
    let (locks, others) = (session(factory), session(factory));
    let held = get(others.lock(KEYS[1]));
    let since = Instant::now();
    thread::scope(|threads| {
        let call = threads.spawn(|| locks.lock_all(KEYS.into_iter().rev()).timeout(ms(2_000)).blocking());
        wait_for_the_midst(store);
        let error = call.join().expect("no panic").expect_err("the second is held");
        assert!(error.is_timeout() && error.to_string().contains(KEYS[1]), "{error}");
    });
    let took = since.elapsed();
    assert!(took >= ms(2_000), "gave up after {took:?}");
    none_held_but_the_second(store);
    assert!(locks.lock_all(KEYS).no_wait().blocking().expect_err("the second is held").is_busy());
    none_held_but_the_second(store);
    drop(held);
    wait_for("the second to be given back", || is_empty(store));
    let all = locks.lock_all(KEYS).no_wait().blocking().expect("all are free");
    assert_eq!(all.release_blocking().expect("the store answers"), Released::InTime);
}

fn a_drop_midway(factory: &dyn Factory, store: &dyn Store) {
    let (locks, others) = (session(factory), session(factory));
    let held = get(others.lock(KEYS[1]));
    thread::scope(|threads| {
        let call = threads.spawn(|| poll_for(locks.lock_all(KEYS), ms(1_500)));
        wait_for_the_midst(store);
        assert!(call.join().expect("no panic").is_none(), "it cannot have all");
    });
    none_held_but_the_second(store);
    drop(held);
    wait_for("the second to be given back", || is_empty(store));
}

fn a_loss_midway(factory: &dyn Factory, store: &dyn Store) {
    let (locks, others) = (session(factory), session(factory));
    let held = get(others.lock(KEYS[1]));
    thread::scope(|threads| {
        let call = threads.spawn(|| all(&locks, ms(TTL_MS)));
        wait_for_the_midst(store);
        assert_eq!(pollster::block_on(locks.evict(KEYS[0], Evict { fence: None, force: false })).expect("the store answers"), 1);
        let error = call.join().expect("no panic").expect_err("the first is lost");
        assert!(error.is_evicted() && error.to_string().contains(KEYS[0]), "{error}");
    });
    none_held_but_the_second(store);
    drop(held);
    wait_for("the second to be given back", || is_empty(store));
}

fn what_is_held_is_renewed(factory: &dyn Factory, store: &dyn Store) {
    let (locks, others) = (session(factory), session(factory));
    let ttl = ttl_of(store, ms(1_000));
    let held = get(others.lock(KEYS[1]));
    thread::scope(|threads| {
        let call = threads.spawn(|| all(&locks, ttl));
        wait_for_the_midst(store);
        let (since, fence) = (Instant::now(), fence_of(store, KEYS[0]));
        while since.elapsed() < 5 * ttl / 2 {
            assert_eq!(fence_of(store, KEYS[0]), fence, "after {:?}", since.elapsed());
            thread::sleep(ttl / 20);
        }
        drop(held);
        let leases = call.join().expect("no panic").expect("all are free");
        assert_eq!(leases.get(KEYS[0]).map(crate::Lease::fence), fence);
        assert_eq!(leases.release_blocking().expect("the store answers"), Released::InTime);
    });
}

fn all(locks: &Locks, ttl: Duration) -> Result<LeaseSet> {
    locks.lock_all(KEYS).ttl(ttl).timeout(FOR_EVER).blocking()
}
