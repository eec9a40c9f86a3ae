//! Mutexes: what no case with a number says.

use std::time::{Duration, Instant};

use crate::common::local::{assert_idle, domain, ms, worker};
use crate::common::polls::{Hand, everywhere};
use heirlock::Worker;
use heirlock::local::{DeadlockPolicy, Domain, Mutex};

#[test]
fn nothing_happens_before_the_first_poll() {
    let (domain, _) = domain();
    let lock = Mutex::new(()).in_domain(&domain);
    let guard = lock.try_lock().unwrap();
    drop(lock.lock().timeout(ms(1)).priority(9));
    assert_idle(&domain);
    drop(guard);
    let unpolled = lock.lock();
    assert!(!lock.is_locked());
    drop(unpolled);
}

/// A wait that ended long ago is dropped while somebody holds the lock of whom the graph knows nothing.
#[test]
fn the_end_of_an_old_wait_changes_nothing() {
    let (domain, clock) = domain();
    let lock = Mutex::new(()).in_domain(&domain);
    let guard = lock.try_lock().unwrap();
    let late = Hand::new(lock.lock().timeout(ms(5))).waiting();
    clock.advance(ms(5));
    drop(guard);
    let guard = lock.try_lock().unwrap();
    drop(late);
    assert!(lock.is_locked());
    assert!(lock.try_lock().unwrap_err().is_would_block());
    drop(guard);
    assert!(!lock.is_locked());
    assert_idle(&domain);
}

#[test]
fn nobody_passes_the_queue() {
    let (domain, _) = domain();
    let lock = Mutex::new(()).in_domain(&domain);
    let guard = lock.try_lock().unwrap();
    let mut waits = Hand::new(lock.lock()).waiting();
    drop(guard);
    assert!(lock.try_lock().unwrap_err().is_would_block());
    drop(waits.ready().unwrap());
    drop(lock.try_lock().unwrap());
}

#[test]
fn a_base_changed_while_waiting_moves_the_wait() {
    let (domain, _) = domain();
    let lock = Mutex::new(()).in_domain(&domain);
    let (holder, w1, w2) = (worker("holder", 0), worker("w1", 1), worker("w2", 2));
    let guard = Hand::by(&holder, lock.lock()).ready().unwrap();
    let (waits1, waits2) = (Hand::by(&w1, lock.lock()).waiting(), Hand::by(&w2, lock.lock()).waiting());
    w1.set_priority(7);
    assert_eq!(holder.effective_priority(), 7);
    drop(guard);
    assert_eq!((waits1.wakes(), waits2.wakes()), (1, 0));
}

#[test]
fn the_machines_clock_ends_waits_too() {
    everywhere(|| async {
        let lock = Mutex::named("slow", ());
        let _guard = Hand::by(&Worker::new("holder"), lock.lock()).ready().unwrap();
        let start = Instant::now();
        let error = lock.lock().priority(3).timeout(ms(20)).await.unwrap_err();
        assert!(error.is_timeout() && start.elapsed() >= ms(20));
        assert_eq!(error.to_string(), "lock \"slow\" was not free in time");
        let worker = Worker::new("hurried").deadline(Instant::now() + ms(10));
        assert!(worker.run(lock.lock()).await.unwrap_err().is_timeout());
        // Long ones are no overflow.
        drop(Hand::new(lock.lock().timeout(Duration::MAX)).waiting());
    });
}

#[test]
fn values_come_and_go() {
    let mut lock: Mutex<Vec<u8>> = Mutex::default();
    lock.get_mut().push(1);
    pollster::block_on(lock.lock()).unwrap().push(2);
    assert_eq!(format!("{lock:?}"), "Mutex { name: None, value: [1, 2] }");
    let guard = lock.try_lock().unwrap();
    assert_eq!(format!("{lock:?} {guard:?}"), "Mutex { name: None, value: <locked> } [1, 2]");
    drop(guard);
    let unsized_lock: &Mutex<[u8]> = &Mutex::new([1, 2, 3]);
    assert_eq!(unsized_lock.try_lock().unwrap().len(), 3);
    assert_eq!(lock.into_inner(), [1, 2]);
}

#[test]
fn the_lowest_priority_is_the_victim() {
    let domain = Domain::builder().deadlock_policy(DeadlockPolicy::LowestPriority).build();
    let (a, b) = (Mutex::named("a", ()).in_domain(&domain), Mutex::named("b", ()).in_domain(&domain));
    let (low, high) = (worker("low", 1), worker("high", 2));
    let (held_a, held_b) = (Hand::by(&low, a.lock()).ready().unwrap(), Hand::by(&high, b.lock()).ready().unwrap());
    let mut low_waits = Hand::by(&low, b.lock()).waiting();
    // The closer waits on, and the other is told.
    let mut high_waits = Hand::by(&high, a.lock()).waiting();
    assert_eq!(low_waits.wakes(), 1);
    let error = low_waits.ready().unwrap_err();
    assert!(error.is_deadlock());
    let text = error.to_string();
    assert!(text.contains(r#"waits for lock "b" (at "#) && text.contains(r#"), held by worker "high" (from "#), "{text}");
    drop(held_a);
    drop(high_waits.ready().unwrap());
    drop(held_b);
    assert_idle(&domain);
}

/// Two pending waits may mean "any of": only when one is left is the cycle certain.
#[test]
fn case_p28_certain_at_last() {
    let (domain, _) = domain();
    let [a, b, c] = [(); 3].map(|()| Mutex::new(()).in_domain(&domain));
    let (t1, t2) = (worker("t1", 0), worker("t2", 0));
    let held = (Hand::by(&t1, a.lock()).ready().unwrap(), Hand::by(&t2, b.lock()).ready().unwrap(), c.try_lock().unwrap());
    let (mut for_b, for_c) = (Hand::by(&t1, b.lock()).waiting(), Hand::by(&t1, c.lock()).waiting());
    let mut for_a = Hand::by(&t2, a.lock()).waiting();
    assert_eq!(for_b.wakes(), 0);
    drop(for_c);
    assert_eq!((for_b.wakes(), for_a.wakes()), (1, 0));
    assert!(for_b.ready().unwrap_err().is_deadlock());
    drop(held);
    drop(for_a.ready().unwrap());
    assert_idle(&domain);
}

#[test]
fn domains_are_apart() {
    let (one, other) = (Domain::builder().build(), Domain::builder().build());
    let (a, b) = (Mutex::new(()).in_domain(&one), Mutex::new(()).in_domain(&other));
    let (low, mid, high) = (worker("low", 1), worker("mid", 2), worker("high", 3));
    let held = (Hand::by(&low, a.lock()).ready().unwrap(), Hand::by(&mid, b.lock()).ready().unwrap());
    let mid_waits = Hand::by(&mid, a.lock()).waiting();
    let high_waits = Hand::by(&high, b.lock()).waiting();
    // The chain ends at the edge of a domain.
    assert_eq!((mid.effective_priority(), low.effective_priority()), (3, 2));
    drop((mid_waits, high_waits, held));
    assert_idle(&one);
    assert_idle(&other);
}
