//! Mutexes: what no case with a number says.
#![allow(missing_docs)]
#![allow(clippy::unwrap_used)]

mod common {
    pub(crate) mod polls;
}

use std::time::{Duration, Instant};

use common::polls::{Hand, everywhere};
use heirlock::Worker;
use heirlock::clock::ManualClock;
use heirlock::local::{Domain, Mutex};

const fn ms(span: u64) -> Duration {
    Duration::from_millis(span)
}

fn domain() -> (Domain, ManualClock) {
    let clock = ManualClock::new();
    (Domain::builder().clock(clock.clone()).build(), clock)
}

fn worker(name: &str, priority: i32) -> Worker {
    Worker::new(name).priority(priority)
}

/// Nobody holds or waits, and the domain remembers nobody.
#[track_caller]
fn assert_idle(domain: &Domain) {
    assert_eq!(domain.records(), [0; 7]);
}

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
