//! Guards: parts of a value, levels, other workers; poison.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::common::local::worker;
use crate::common::polls::{Hand, everywhere, pause};
use heirlock::local::{Domain, Mutex, MutexGuard, RLock, RLockGuard};

/// After a transfer it is the receiver who inherits, is named, and may not ask again.
#[test]
fn case_f11_transfer() {
    let domain = Domain::builder().build();
    let lock = Arc::new(Mutex::named("parcel", 1).in_domain(&domain));
    // Before anybody waits, and while somebody does.
    for waits_first in [false, true] {
        let (giver, taker, urgent) = (worker("giver", 1), worker("taker", 2), worker("urgent", 9));
        let guard = Hand::by(&giver, lock.lock_owned()).ready().unwrap();
        let early = waits_first.then(|| Hand::by(&urgent, lock.lock()).waiting());
        assert_eq!(giver.effective_priority(), if waits_first { 9 } else { 1 });
        guard.transfer_to(&taker);
        let mut waits = early.unwrap_or_else(|| Hand::by(&urgent, lock.lock()).waiting());
        assert_eq!((giver.effective_priority(), taker.effective_priority()), (1, 9));
        let error = Hand::by(&taker, lock.lock()).ready().unwrap_err();
        assert!(error.is_deadlock() && error.to_string().contains("\"taker\""), "{error}");
        // The giver may wait for it now.
        drop(Hand::by(&giver, lock.lock()).waiting());
        drop(guard);
        assert_eq!((taker.effective_priority(), *waits.ready().unwrap()), (2, 1));
        drop(waits);
        assert_eq!(domain.records(), [0; 7]);
    }
}

/// The receiver waits for the lock that it is given: it waits for itself from then on, and is told.
#[test]
fn case_f11_transfer_to_who_waits_for_it() {
    let domain = Domain::builder().build();
    let lock = Mutex::new(()).in_domain(&domain);
    let (giver, taker) = (worker("giver", 1), worker("taker", 2));
    let guard = Hand::by(&giver, lock.lock()).ready().unwrap();
    let mut waits = Hand::by(&taker, lock.lock()).waiting();
    guard.transfer_to(&taker);
    assert!(waits.ready().unwrap_err().is_deadlock());
    drop(guard);
    assert!(!lock.is_locked());
    assert_eq!(domain.records(), [0; 7]);
}

#[test]
fn case_f11_a_transfer_takes_all_levels() {
    let domain = Domain::builder().build();
    let lock = RLock::new(()).in_domain(&domain);
    let (giver, taker) = (worker("giver", 1), worker("taker", 2));
    let outer = Hand::by(&giver, lock.lock()).ready().unwrap();
    let inner = outer.again().unwrap();
    inner.transfer_to(&taker);
    let further = Hand::by(&taker, lock.lock()).ready().unwrap();
    let waits = Hand::by(&giver, lock.lock()).waiting();
    for guard in [outer, inner, further] {
        assert_eq!(waits.wakes(), 0);
        drop(guard);
    }
    assert_eq!(waits.wakes(), 1);
}

/// Whoever has a guard may enter again, whoever it is: here also a bare task, while others wait.
#[test]
fn again_needs_no_identity() {
    everywhere(|| async {
        let lock = RLock::new(5);
        let outer = lock.lock().await.unwrap();
        let inner = outer.again().unwrap();
        let mut waits = Hand::by(&worker("other", 3), lock.lock()).waiting();
        let third = inner.again().unwrap();
        drop((outer, inner));
        assert_eq!(waits.wakes(), 0);
        drop(third);
        assert_eq!(*waits.ready().unwrap(), 5);
    });
}

#[test]
fn merged_levels_go_together() {
    let lock = RLock::new(7);
    let owner = worker("owner", 0);
    for contended in [false, true] {
        let mut outer = Hand::by(&owner, lock.lock()).ready().unwrap();
        let inner = Hand::by(&owner, lock.lock()).ready().unwrap();
        let waits = contended.then(|| Hand::by(&worker("other", 3), lock.lock()).waiting());
        let part = RLockGuard::map(inner, |value| value);
        outer.merge(part);
        assert!(lock.is_locked());
        drop(outer);
        assert_eq!(lock.is_locked(), contended);
        drop(waits);
    }
    let other = RLock::new(8);
    let (mut guard, foreign) = (lock.try_lock().unwrap(), other.try_lock().unwrap());
    assert!(catch_unwind(AssertUnwindSafe(|| guard.merge(foreign))).is_err());
    drop(guard);
    assert!(!lock.is_locked() && !other.is_locked());
}

#[test]
fn parts_of_a_value() {
    let lock = Mutex::new((1, String::from("one")));
    let mut text = MutexGuard::map(lock.try_lock().unwrap(), |value| value.1.as_mut_str());
    text.make_ascii_uppercase();
    assert_eq!((&*text, lock.is_locked()), ("ONE", true));
    drop(text);
    let guard = MutexGuard::filter_map(lock.try_lock().unwrap(), |_| None::<&mut u8>).unwrap_err();
    assert_eq!(guard.1, "ONE");
    let number = MutexGuard::filter_map(guard, |value| Some(&mut value.0)).unwrap();
    assert_eq!((*number, lock.is_locked()), (1, true));
    drop(number);
    assert!(!lock.is_locked());
    let tree = RLock::new([3, 4]);
    let second = RLockGuard::filter_map(tree.try_lock().unwrap(), |values| values.get(1)).unwrap();
    assert_eq!((*second, format!("{second} {second:?}").as_str()), (4, "4 4"));
    let second = RLockGuard::filter_map(second, |_| None::<&u8>).unwrap_err();
    drop(second);
    assert!(!tree.is_locked());
}

/// Everything that can go wrong in a hold, for each kind of lock.
macro_rules! poison {
    ($name:ident, $lock:ident) => {
        #[test]
        fn $name() {
            struct Last;
            impl Drop for Last {
                fn drop(&mut self) {
                    drop(LOCK.lock_blocking().unwrap());
                }
            }
            static LOCK: $lock<u8> = $lock::named("state", 1).poisoning();
            let culprit = worker("culprit", 0);
            let line = line!();
            let unwound = catch_unwind(|| {
                let _guard = culprit.scope(|| LOCK.lock_blocking()).unwrap();
                panic!("on purpose")
            });
            assert!(unwound.is_err() && LOCK.is_poisoned() && !LOCK.is_locked());
            let told = |error: heirlock::Error, what: &str| {
                assert!(error.is_poisoned());
                let text = error.to_string();
                let place = format!("{}:{line}:", file!());
                assert!(text.contains("lock \"state\" is poisoned") && text.contains("worker \"culprit\""), "{text}");
                assert!(text.contains(what) && (what != "panicked" || text.contains(&place)), "{text}");
            };
            // Everybody is told, waiting or not, and the lock stays free.
            told(LOCK.try_lock().unwrap_err(), "panicked");
            told(pollster::block_on(LOCK.lock()).unwrap_err(), "panicked");
            told(LOCK.lock_blocking().unwrap_err(), "panicked");
            told(pollster::block_on(LOCK.with(async |_| ())).unwrap_err(), "panicked");
            assert!(!LOCK.is_locked());
            let guard = LOCK.lock().even_poisoned().blocking().unwrap();
            let mut waits = Hand::by(&worker("next", 3), LOCK.lock()).waiting();
            drop(guard);
            told(waits.ready().unwrap_err(), "panicked");
            assert!(!LOCK.is_locked());
            LOCK.clear_poison();
            assert_eq!(*LOCK.try_lock().unwrap(), 1);
            // Work dropped unfinished, also while others wait.
            let mut work = Hand::by(&culprit, LOCK.with(async |_| pause().await));
            assert!(work.poll().is_pending());
            let mut waits = Hand::by(&worker("next", 3), LOCK.lock()).waiting();
            drop(work);
            told(waits.ready().unwrap_err(), "unfinished");
            LOCK.clear_poison();
            // Finished work does not, nor does what is taken and given back while a thread is panicking already.
            assert_eq!(pollster::block_on(LOCK.with(async |value| *value)).unwrap(), 1);
            assert!(
                catch_unwind(|| {
                    let _last = Last;
                    panic!("on purpose")
                })
                .is_err()
            );
            assert!(!LOCK.is_poisoned() && LOCK.try_lock().is_ok());
            // Nor does anything where nobody asked for it.
            let plain = $lock::new(2);
            assert!(
                catch_unwind(AssertUnwindSafe(|| {
                    let _guard = plain.try_lock().unwrap();
                    panic!("on purpose")
                }))
                .is_err()
            );
            drop(Hand::new(plain.with(async |_| pause().await)).waiting());
            assert!(!plain.is_poisoned() && *plain.try_lock().unwrap() == 2);
        }
    };
}

poison!(case_f12_poison_of_a_mutex, Mutex);
poison!(case_f12_poison_of_a_re_entrant_lock, RLock);

/// A level that is taken and given back during a panic says nothing; the one before it does.
#[test]
fn case_f12_a_level_taken_while_unwinding() {
    static LOCK: RLock<u8> = RLock::new(1).poisoning();
    struct Again<'a>(RLockGuard<'a, u8>);
    impl Drop for Again<'_> {
        fn drop(&mut self) {
            drop(self.0.again().unwrap());
            drop(LOCK.lock_blocking().unwrap());
            assert!(!LOCK.is_poisoned());
        }
    }
    let unwound = catch_unwind(|| {
        let _again = Again(LOCK.lock_blocking().unwrap());
        panic!("on purpose")
    });
    assert!(unwound.is_err() && LOCK.is_poisoned() && !LOCK.is_locked());
}
