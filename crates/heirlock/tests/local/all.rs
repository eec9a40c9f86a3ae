//! `lock_all`: what it takes, what it refuses, whose it is. `all_waits.rs` has what happens while it waits.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::common::local::{assert_idle, domain, ms, worker};
use crate::common::polls::{Hand, assert_says, everywhere, in_tasks, once};
use crate::common::three::{ORDERS, assert_none_held, three};
use heirlock::Worker;
use heirlock::local::{Domain, KeyedLock, Mutex, RLock, RwLock, Semaphore, lock_all};

#[test]
fn guards_come_in_the_order_of_their_acquires() {
    everywhere(|| async {
        let (domain, _) = domain();
        let (text, flag) = (Mutex::new(String::new()).in_domain(&domain), Arc::new(RLock::new(true).in_domain(&domain)));
        let (owned, keyed) = (Arc::new(Mutex::new(7).in_domain(&domain)), Arc::new(KeyedLock::new().in_domain(&domain)));
        let all =
            lock_all((keyed.lock_owned("k"), owned.lock_owned(), keyed.lock("l"), flag.lock_owned(), text.lock(), owned_again(&domain)));
        assert_eq!(format!("{all:?}"), "LockAll { locks: 6, acquired: 0, .. }");
        let (by_key, mut number, other_key, flag, mut text, _) = all.await.unwrap();
        *number += 1;
        text.push('x');
        assert_eq!((*by_key.key(), *number, *other_key.key(), *flag, text.as_str()), ("k", 8, "l", true, "x"));
        drop((by_key, number, other_key, flag, text));
        // Of one type, as many as there are, also none and one.
        let locks = three(&domain);
        let guards: Vec<_> = lock_all(locks.iter().rev().map(Mutex::lock).collect::<Vec<_>>()).await.unwrap();
        assert_eq!(guards.len(), 3);
        drop(guards);
        let [mut c, mut a, mut b] = lock_all([2, 0, 1].map(|at| locks[at].lock())).await.unwrap();
        (*a, *b, *c) = (1, 2, 3);
        drop((a, b, c));
        let (one,) = lock_all((locks[1].lock(),)).await.unwrap();
        assert_eq!(*one, 2);
        drop(one);
        assert!(lock_all(Vec::<heirlock::local::AcquireOwned<Mutex<u8>>>::new()).await.unwrap().is_empty());
        let eight: Vec<_> = (0..8).map(|at| Mutex::new(at).in_domain(&domain)).collect();
        let of = |at: usize| eight[at].lock();
        let guards = lock_all((of(7), of(6), of(5), of(4), of(3), of(2), of(1), of(0))).await.unwrap();
        assert_eq!((*guards.0, *guards.3, *guards.7), (7, 4, 0));
        drop(guards);
        assert!(keyed.is_empty());
        assert_idle(&domain);
    });
}

/// A lock that only its guard keeps alive.
fn owned_again(domain: &Domain) -> heirlock::local::AcquireOwned<Mutex<u8>> {
    Arc::new(Mutex::new(0).in_domain(domain)).lock_owned()
}

/// Readers share, permits are counted, also of who is polled by another worker before it has them.
#[test]
fn modes_and_permits() {
    everywhere(|| async {
        let (domain, _) = domain();
        let (table, gate) = (RwLock::new(1).in_domain(&domain), Mutex::new(2).in_domain(&domain));
        let slots = Semaphore::new(3).in_domain(&domain);
        let (one, other) = (worker("one", 3), worker("other", 4));
        let held = Hand::by(&one, lock_all((slots.acquire_many(2), table.read()))).ready().unwrap();
        assert_eq!((*held.1, slots.free_permits()), (1, 1));
        drop(Hand::by(&other, lock_all((table.read(), slots.acquire()))).ready().unwrap());
        assert!(lock_all([table.read(), table.read()]).await.unwrap_err().is_invalid());
        let writes = Hand::by(&other, lock_all((table.write(), gate.lock(), slots.acquire()))).waiting();
        assert_eq!(one.effective_priority(), 4);
        drop(writes);
        assert!(!gate.is_locked());
        // Begun by one worker, ended by another.
        let mut all = lock_all((table.read(), gate.lock(), slots.acquire_many(3)));
        assert!(other.scope(|| Hand::new(async { once(&mut all).await.is_pending() }).ready()));
        drop(held);
        let held = worker("third", 9).scope(|| Hand::new(all).ready()).unwrap();
        assert_eq!((*held.0, *held.1, slots.free_permits()), (1, 2, 0));
        let writes = Hand::by(&one, table.write().priority(7)).waiting();
        assert_eq!(other.effective_priority(), 7);
        drop((writes, held));
        assert_eq!(slots.free_permits(), 3);
        assert_idle(&domain);
    });
}

#[test]
fn nothing_happens_before_the_first_poll() {
    let (domain, _) = domain();
    let locks = three(&domain);
    let all = lock_all(locks.each_ref().map(Mutex::lock)).timeout(ms(1)).priority(3);
    assert_none_held(&locks);
    drop(all);
    assert_idle(&domain);
}

/// Whatever order they are named in, they are taken in one: who waits holds all before it and none after it.
#[test]
fn one_order_for_all() {
    let (domain, _) = domain();
    let locks = three(&domain);
    for held in 0..3 {
        for order in ORDERS {
            let guard = Hand::by(&worker("holder", 0), locks[held].lock()).ready().unwrap();
            let caller = worker("caller", 0);
            let mut all = Hand::by(&caller, lock_all(order.map(|at| locks[at].lock()))).waiting();
            assert_eq!(locks.each_ref().map(Mutex::is_locked), [true, held >= 1, held == 2]);
            drop(guard);
            drop(all.ready().unwrap());
            assert_none_held(&locks);
        }
    }
    assert_idle(&domain);
}

#[test]
fn twice_the_same_is_refused() {
    everywhere(|| async {
        let (domain, _) = domain();
        let (lock, other) = (Arc::new(Mutex::named("twice", 0).in_domain(&domain)), Mutex::new(0).in_domain(&domain));
        let error = lock_all((lock.lock(), other.lock(), lock.lock_owned())).await.unwrap_err();
        assert!(error.is_invalid());
        assert_eq!(error.to_string(), "lock \"twice\" was given to lock_all twice: give it once");
        assert!(!other.is_locked() && !lock.is_locked());
        // Also of a lock that could be entered again, and even where nobody could have it.
        let tree = RLock::new(()).in_domain(&domain);
        let guard = Hand::by(&worker("holder", 0), tree.lock()).ready().unwrap();
        assert!(lock_all([tree.lock(), tree.lock()]).await.unwrap_err().is_invalid());
        drop(guard);
        let keyed = KeyedLock::named("users").label(|id: &u8| id.to_string()).in_domain(&domain);
        let error = lock_all((keyed.lock(1), keyed.lock(2), keyed.lock(1))).await.unwrap_err();
        assert_eq!(error.to_string(), "lock \"users[1]\" was given to lock_all twice: give it once");
        assert!(keyed.is_empty());
        assert!(lock_all((lock.lock(), lock.lock())).blocking().unwrap_err().is_invalid());
        assert_idle(&domain);
    });
}

#[test]
fn an_acquire_that_was_polled_is_refused() {
    let (domain, _) = domain();
    let [a, b, _] = three(&domain);
    let guard = a.try_lock().unwrap();
    let mut queued = a.lock();
    assert!(Hand::new(async { once(&mut queued).await.is_pending() }).ready());
    let error = Hand::new(lock_all((b.lock(), queued))).ready().unwrap_err();
    assert!(error.is_invalid());
    assert_eq!(error.to_string(), "lock_all cannot take an acquire of lock \"a\" that was polled before: give it a new one");
    drop(guard);
    assert!(!a.is_locked() && !b.is_locked());
    assert_idle(&domain);
}

#[test]
fn case_f12_a_poisoned_one_fails_all() {
    let lock = Mutex::named("broken", 0).poisoning();
    let others = [Mutex::new(0), Mutex::new(1)];
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let _guard = lock.try_lock().unwrap();
        panic!("on purpose");
    }));
    assert!(caught.is_err());
    let error = pollster::block_on(lock_all((others[0].lock(), lock.lock(), others[1].lock()))).unwrap_err();
    assert!(error.is_poisoned());
    assert!(!others[0].is_locked() && !others[1].is_locked());
    drop(pollster::block_on(lock_all((others[0].lock(), lock.lock().even_poisoned(), others[1].lock()))).unwrap());
    lock.clear_poison();
    // A panic that ends the call before it has given anything away has broken nothing.
    let pair = [Mutex::new(0).poisoning(), Mutex::new(1).poisoning()];
    let guard = pair[1].try_lock().unwrap();
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let _all = Hand::new(lock_all((pair[1].lock(), pair[0].lock()))).waiting();
        assert!(pair[0].is_locked());
        panic!("on purpose");
    }));
    drop(guard);
    assert!(caught.is_err() && !pair[0].is_poisoned() && !pair[0].is_locked());
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let _guards = pollster::block_on(lock_all((pair[1].lock(), pair[0].lock()))).unwrap();
        panic!("on purpose");
    }));
    assert!(caught.is_err() && pair[0].is_poisoned() && pair[1].is_poisoned());
}

/// All that it acquires is the first one's who polls it.
#[test]
fn one_worker_holds_all() {
    let (domain, _) = domain();
    let locks = three(&domain);
    let (first, second) = (worker("first", 3), worker("second", 4));
    let guard = locks[1].try_lock().unwrap();
    let mut all = lock_all(locks.each_ref().map(Mutex::lock));
    assert!(first.scope(|| Hand::new(async { once(&mut all).await.is_pending() }).ready()));
    drop(guard);
    let guards = second.scope(|| Hand::new(all).ready()).unwrap();
    let urgent = locks.each_ref().map(|lock| Hand::by(&worker("urgent", 9), lock.lock()).waiting());
    let holders: Vec<_> = domain.snapshot().locks.iter().map(|lock| lock.holders[0].party.worker.name.clone()).collect();
    assert_eq!(holders, ["first"; 3]);
    assert_eq!((first.effective_priority(), second.effective_priority()), (9, 4));
    drop((guards, urgent));
    assert_none_held(&locks);
    assert_idle(&domain);
}

/// Threads that block, outside of a runtime, beside one another in opposite orders; and within one.
#[test]
fn blocking() {
    let (domain, clock) = domain();
    let locks = three(&domain);
    std::thread::scope(|scope| {
        for order in ORDERS {
            let locks = &locks;
            scope.spawn(move || {
                for _ in 0..200 {
                    for mut guard in lock_all(order.map(|at| locks[at].lock())).blocking().unwrap() {
                        *guard += 1;
                    }
                }
            });
        }
    });
    assert_eq!(locks.each_ref().map(|lock| *lock.try_lock().unwrap()), [1200; 3]);
    // In time, and too late.
    let guard = Hand::by(&worker("holder", 0), locks[1].lock()).ready().unwrap();
    std::thread::scope(|scope| {
        let late = scope.spawn(|| lock_all(locks.each_ref().map(Mutex::lock)).timeout(ms(10)).blocking().map(drop));
        while domain.records()[5] == 0 {
            std::thread::yield_now();
        }
        clock.advance(ms(10));
        domain.expire();
        assert!(late.join().unwrap().unwrap_err().is_timeout());
    });
    assert_eq!(locks.each_ref().map(Mutex::is_locked), [false, true, false]);
    in_tasks(|| async {
        let locks = [Mutex::new(0), Mutex::new(0)];
        drop(lock_all((locks[1].lock(), locks[0].lock())).blocking().unwrap());
        let guard = Hand::by(&worker("holder", 0), locks[1].lock()).ready().unwrap();
        if cfg!(feature = "tokio") {
            assert!(lock_all((locks[1].lock(), locks[0].lock())).blocking().unwrap_err().is_would_block());
        }
        assert!(!locks[0].is_locked());
        drop(guard);
    });
    drop(guard);
    assert_none_held(&locks);
    assert_idle(&domain);
}

/// The order of `lock_all` is its own: no order is learned from it, but from what its caller holds already.
#[test]
fn the_order_check() {
    let domain = Domain::builder().check_order(true).build();
    let locks = three(&domain);
    let keyed = KeyedLock::named("users").in_domain(&domain);
    pollster::block_on(Worker::new("w").run(async {
        // Keys of one name, and classes in both orders by where they lie.
        drop(lock_all((keyed.lock(1), keyed.lock(2))).await.unwrap());
        drop(lock_all((locks[0].lock(), locks[1].lock())).await.unwrap());
    }));
    assert_eq!(domain.snapshot().inversions, Vec::<String>::new());
    pollster::block_on(Worker::new("w").run(async {
        let b = locks[1].lock().await.unwrap();
        drop(locks[0].lock().await.unwrap());
        drop(b);
    }));
    assert_eq!(domain.snapshot().inversions, Vec::<String>::new());
    pollster::block_on(Worker::new("w").run(async {
        let _a = locks[0].lock().await.unwrap();
        drop(lock_all((locks[2].lock(), locks[1].lock())).await.unwrap());
    }));
    let inversions = domain.snapshot().inversions;
    assert_eq!(inversions.len(), 1);
    assert_says(&inversions[0], &["wanted lock \"b\"", "while it held lock \"a\"", "wanted lock \"a\"", "while it held lock \"b\""]);
    assert_none_held(&locks);
    assert_idle(&domain);
}

/// Kept and not polled, it holds what it has acquired, as guards would; forgotten, for ever.
#[test]
fn case_f15_forgotten() {
    let (domain, _) = domain();
    let locks = three(&domain);
    let guard = Hand::by(&worker("holder", 0), locks[2].lock()).ready().unwrap();
    std::mem::forget(Hand::by(&worker("leaked", 0), lock_all(locks.each_ref().map(Mutex::lock))).waiting());
    drop(guard);
    assert_eq!(locks.each_ref().map(Mutex::is_locked), [true; 3]);
    assert!(locks[0].try_lock().unwrap_err().is_would_block());
    let moved = Box::new(locks);
    drop(moved);
    assert_idle(&domain);
}
