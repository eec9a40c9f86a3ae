//! What foreign code and odd uses must not break: hooks that panic, siblings that expire, deep forks, stalls of nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::local::{Still, domain, ms};
use crate::common::polls::{Hand, everywhere};
use heirlock::Worker;
use heirlock::clock::ManualClock;
use heirlock::local::{Domain, Mutex, RLock};

/// Ends what is over, as the timer would; returns when the timer could not have done it later.
fn pass(domain: &Domain, clock: &ManualClock, span: Duration) {
    clock.advance(span);
    domain.expire();
}

/// Of one worker's two waits the first expires in the very event that grants the second: each learns of its own.
#[test]
fn a_sibling_that_expires_takes_no_grant() {
    for bare in [false, true] {
        // No timer: the hand-over itself finds that the first has expired.
        let clock = Still::default();
        let domain = Domain::builder().clock(clock.clone()).trust_tasks(bare).build();
        let lock = Mutex::new(()).in_domain(&domain);
        let (holder, worker) = (Worker::new("holder"), Worker::new("worker"));
        let guard = Hand::by(&holder, lock.lock()).ready().unwrap();
        let mut expires = Hand::by(&worker, lock.lock().timeout(ms(10))).waiting();
        let mut granted = Hand::by(&worker, lock.lock()).waiting();
        clock.set(ms(20));
        drop(guard);
        assert!(expires.ready().unwrap_err().is_timeout());
        drop(granted.ready().unwrap());
        drop((expires, granted));
        assert_eq!(domain.records(), [0; 7]);
    }
}

/// A stalled grant is taken over by the next in line, another future of the same worker: it has the lock, and the first has to queue anew.
#[test]
fn a_sibling_that_lost_its_grant_takes_no_other() {
    let (domain, clock) = domain();
    let lock = Mutex::new(()).in_domain(&domain);
    let (holder, worker, other) = (Worker::new("holder"), Worker::new("worker").priority(5), Worker::new("other"));
    let guard = Hand::by(&holder, lock.lock()).ready().unwrap();
    let mut first = Hand::by(&worker, lock.lock()).waiting();
    let mut second = Hand::by(&worker, lock.lock()).waiting();
    let mut behind = Hand::by(&other, lock.lock()).waiting();
    drop(guard);
    for _ in 0..2 {
        pass(&domain, &clock, domain.stall_time());
    }
    assert!(behind.poll().is_pending());
    // Whichever is asked first has the worker's grant. The other waits for what its worker holds.
    let held = first.ready().unwrap();
    assert!(second.ready().unwrap_err().is_deadlock());
    drop((held, first, second));
    drop(behind.ready().unwrap());
    drop(behind);
    assert_eq!(domain.records(), [0; 7]);
}

/// A forgotten future whose time was over is nobody's hindrance.
#[test]
fn a_forgotten_expiry_costs_others_nothing() {
    let (domain, clock) = domain();
    let lock = Mutex::new(()).in_domain(&domain);
    let guard = Hand::by(&Worker::new("holder"), lock.lock()).ready().unwrap();
    std::mem::forget(Hand::by(&Worker::new("gone"), lock.lock().timeout(ms(1))).waiting());
    pass(&domain, &clock, ms(1));
    let mut waits = Hand::by(&Worker::new("next"), lock.lock()).waiting();
    drop(guard);
    drop(waits.ready().unwrap());
    assert!(!lock.is_locked());
}

/// A hook that panics ends nothing: not the wait of who caused the change, not the timer, not the domain's place on its list.
#[test]
fn a_hook_that_panics() {
    let domain = Domain::builder().build();
    let lock = Mutex::new(()).in_domain(&domain);
    let (low, high, calls) = (Worker::new("low"), Worker::new("high").priority(9), Arc::new(AtomicUsize::new(0)));
    let guard = Hand::by(&low, lock.lock()).ready().unwrap();
    low.on_priority_change({
        let calls = Arc::clone(&calls);
        move || {
            calls.fetch_add(1, Ordering::SeqCst);
            panic!("on purpose");
        }
    });
    // On the thread that waits, with a deadline that the timer must hear of; and then on the timer's.
    let mut waits = Hand::by(&high, lock.lock().timeout(ms(20))).waiting();
    assert!(calls.load(Ordering::SeqCst) > 0);
    while waits.wakes() == 0 {
        std::thread::yield_now();
    }
    assert!(waits.ready().unwrap_err().is_timeout());
    assert!(calls.load(Ordering::SeqCst) > 1);
    // The timer goes on, for this domain and for others.
    for domain in [domain.clone(), Domain::builder().build()] {
        let other = Mutex::new(()).in_domain(&domain);
        let held = other.try_lock().unwrap();
        assert!(pollster::block_on(other.lock().timeout(ms(5))).unwrap_err().is_timeout());
        drop(held);
    }
    drop(waits);
    let mut next = Hand::by(&high, lock.lock()).waiting();
    drop(guard);
    drop(next.ready().unwrap());
    assert!(!lock.is_locked());
    assert_eq!(domain.records(), [0; 7]);
}

/// What needs no wait can be had on a runtime's thread, also where the graph must be asked.
#[test]
fn case_f10_blocking_where_the_graph_knows() {
    everywhere(|| async {
        let tracking = Domain::builder().warn_after(Duration::from_secs(60)).build();
        let lock = Mutex::named("free", 1).in_domain(&tracking);
        assert_eq!(*lock.lock_blocking().unwrap(), 1);
        let again = RLock::new(2);
        let (owner, other) = (Worker::new("owner"), Worker::new("other"));
        let guard = owner.scope(|| again.lock_blocking()).unwrap();
        let waits = Hand::by(&other, again.lock()).waiting();
        assert_eq!(owner.scope(|| again.lock_blocking().map(|inner| *inner)).unwrap(), 2);
        drop((guard, waits));
        // The worker's own untaken grant.
        let plain = Mutex::new(3);
        let guard = Hand::by(&other, plain.lock()).ready().unwrap();
        let abandoned = Hand::by(&owner, plain.lock()).waiting();
        drop(guard);
        assert_eq!(owner.scope(|| plain.lock_blocking().map(|value| *value)).unwrap(), 3);
        drop(abandoned);
        assert!(!plain.is_locked());
    });
}

/// Whoever waits for a lock that may be entered again, and is given it, enters.
#[test]
fn case_f11_transfer_of_levels_to_who_waits_for_them() {
    let domain = Domain::builder().build();
    let lock = RLock::new(()).in_domain(&domain);
    let (giver, taker) = (Worker::new("giver"), Worker::new("taker"));
    let guard = Hand::by(&giver, lock.lock()).ready().unwrap();
    let mut waits = Hand::by(&taker, lock.lock()).waiting();
    guard.transfer_to(&taker);
    assert_eq!(waits.wakes(), 1);
    let inner = waits.ready().unwrap();
    drop(guard);
    assert!(lock.is_locked());
    drop((inner, waits));
    assert!(!lock.is_locked());
    assert_eq!(domain.records(), [0; 7]);
}

/// Forks of forks need no stack: to be asked, to take part, to go.
#[test]
fn two_hundred_thousand_generations_of_forks() {
    let domain = Domain::builder().build();
    let lock = Mutex::new(()).in_domain(&domain);
    let first = Worker::new("first").priority(7);
    let last = (0..200_000).fold(first.clone(), |parent, _| parent.fork("fork"));
    assert_eq!((last.base_priority(), last.current_deadline()), (7, None));
    let guard = Hand::by(&first, lock.lock()).ready().unwrap();
    drop(Hand::by(&last, lock.lock()).waiting());
    drop(guard);
    assert_eq!(domain.records(), [0; 7]);
    drop((first, last));
}

/// A stall of no time would have the timer look all the time.
#[test]
fn a_stall_time_of_nothing_is_a_millisecond() {
    assert_eq!(Domain::builder().stall_time(Duration::ZERO).build().stall_time(), ms(1));
}
