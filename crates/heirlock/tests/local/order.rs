//! Who is next, over real locks: orders, limits, and changes of priority.

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use std::time::{Duration, Instant};

use crate::common::local::worker;
use crate::common::polls::Hand;
use heirlock::Worker;
use heirlock::local::{Domain, Mutex, MutexGuard, Order, RLock};

type Waiting<'a> = Hand<'a, heirlock::Result<MutexGuard<'a, ()>>>;

/// The index of the wait that has been woken, with its guard; the wait goes.
fn served<'a>(waits: &mut Vec<(usize, Waiting<'a>)>) -> (usize, MutexGuard<'a, ()>) {
    let at = waits.iter().position(|(_, wait)| wait.wakes() > 0).unwrap();
    let (name, mut wait) = waits.remove(at);
    (name, wait.ready().unwrap())
}

/// The limit is the lock's own, or its domain's.
#[test]
fn case_p18_starvation_bound() {
    let limited = Domain::builder().bypass_limit(8).build();
    for lock in [Mutex::new(()).bypass_limit(8), Mutex::new(()).in_domain(&limited)] {
        let patient = worker("patient", 0);
        let mut guard = lock.try_lock().unwrap();
        let mut waits = vec![(usize::MAX, Hand::by(&patient, lock.lock()).waiting())];
        let busy: Vec<Worker> = (0..20).map(|_| worker("busy", 10)).collect();
        waits.push((0, Hand::by(&busy[0], lock.lock()).waiting()));
        for (name, worker) in busy.iter().enumerate().skip(1) {
            // The stream never ends: the next one waits before this one is served.
            waits.push((name, Hand::by(worker, lock.lock()).waiting()));
            drop(guard);
            let (next, taken) = served(&mut waits);
            guard = taken;
            assert_eq!(next, if name == 9 { usize::MAX } else { name - 1 - usize::from(name > 9) });
        }
    }
}

#[test]
fn a_limit_of_nothing_is_refused() {
    assert!(catch_unwind(|| Mutex::new(()).bypass_limit(0)).is_err());
    assert!(catch_unwind(|| RLock::new(()).bypass_limit(0)).is_err());
    assert!(catch_unwind(|| Domain::builder().bypass_limit(0)).is_err());
}

#[test]
fn case_p24_orders_and_boosts() {
    static LOCK: Mutex<()> = Mutex::named("line", ()).order(Order::Fifo);
    let fifo = Domain::builder().order(Order::Fifo).build();
    let by_domain = Mutex::new(()).in_domain(&fifo);
    for lock in [&LOCK, &by_domain] {
        let (t, w1, w2) = (worker("t", 1), worker("w1", 5), worker("w2", 50));
        let guard = Hand::by(&t, lock.lock()).ready().unwrap();
        let mut waits1 = Hand::by(&w1, lock.lock()).waiting();
        let mut waits2 = Hand::by(&w2, lock.lock()).waiting();
        assert_eq!(t.effective_priority(), 50);
        drop(guard);
        let guard = waits1.ready().unwrap();
        assert_eq!((t.effective_priority(), w1.effective_priority()), (1, 50));
        drop(guard);
        drop(waits2.ready().unwrap());
        assert_eq!(w1.effective_priority(), 5);
    }
}

#[test]
fn case_p26_deadlines_inherited_for_ordering() {
    let domain = Domain::builder().build();
    let l1 = Mutex::new(()).in_domain(&domain);
    let l2 = Mutex::new(()).in_domain(&domain).order(Order::Deadline);
    let start = Instant::now() + Duration::from_secs(3600);
    let at = |ms| start + Duration::from_millis(ms);
    let (x, a, b, h) = (worker("x", 0), worker("a", 0), worker("b", 0), worker("h", 0));
    let held = Hand::by(&x, l2.lock()).ready().unwrap();
    let held_l1 = Hand::by(&a, l1.lock()).ready().unwrap();
    let a_waits = Hand::by(&a, l2.lock()).waiting();
    let b_waits = Hand::by(&b, l2.lock().deadline(at(300))).waiting();
    let _h_waits = Hand::by(&h, l1.lock().deadline(at(100))).waiting();
    assert_eq!(a.current_deadline(), None);
    drop(held);
    assert_eq!((a_waits.wakes(), b_waits.wakes()), (1, 0));
    drop(held_l1);
}

/// The order is a lock's own where both say something.
#[test]
fn a_lock_overrules_its_domain() {
    let fifo = Domain::builder().order(Order::Fifo).build();
    let lock = Mutex::new(()).order(Order::Priority).in_domain(&fifo);
    let guard = lock.try_lock().unwrap();
    let first = Hand::by(&worker("first", 1), lock.lock()).waiting();
    let urgent = Hand::by(&worker("urgent", 2), lock.lock()).waiting();
    drop(guard);
    assert_eq!((first.wakes(), urgent.wakes()), (0, 1));
}

/// Each change is told, at a moment when the new value can be read and any lock of the domain be used.
#[test]
fn changes_of_priority_are_told() {
    let domain = Domain::builder().build();
    let (lock, other) = (Arc::new(Mutex::new(()).in_domain(&domain)), Arc::new(Mutex::new(()).in_domain(&domain)));
    let holder = worker("holder", 1);
    let seen = Arc::new(StdMutex::new(Vec::new()));
    let hear = |worker: &Worker| {
        let (worker, other, seen) = (worker.downgrade(), Arc::clone(&other), Arc::clone(&seen));
        move || {
            let _guard = other.lock_blocking().unwrap();
            seen.lock().unwrap().push(worker.upgrade().unwrap().effective_priority());
        }
    };
    holder.on_priority_change(hear(&holder));
    let guard = Hand::by(&holder, lock.lock()).ready().unwrap();
    let low = Hand::by(&worker("low", 5), lock.lock()).waiting();
    let high = Hand::by(&worker("high", 9), lock.lock()).waiting();
    drop(high);
    holder.set_priority(7);
    drop(low);
    drop(guard);
    holder.set_priority(2);
    let mut told = seen.lock().unwrap().clone();
    told.dedup();
    assert_eq!(told, [5, 9, 5, 7, 2]);
    // A hook given later takes the place of the first.
    let count = Arc::new(AtomicUsize::new(0));
    holder.on_priority_change({
        let count = Arc::clone(&count);
        move || {
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    holder.set_priority(3);
    assert_eq!((count.load(Ordering::SeqCst), seen.lock().unwrap().last().copied()), (1, Some(2)));
}

/// What a parent gains its forks gain, also one that takes part nowhere.
#[test]
fn changes_reach_forks() {
    let domain = Domain::builder().build();
    let lock = Mutex::new(()).in_domain(&domain);
    let parent = worker("parent", 1);
    let grandchild = parent.fork("child").fork("grandchild");
    let seen = Arc::new(AtomicI32::new(0));
    grandchild.on_priority_change({
        let (worker, seen) = (grandchild.downgrade(), Arc::clone(&seen));
        move || seen.store(worker.upgrade().unwrap().effective_priority(), Ordering::SeqCst)
    });
    let guard = Hand::by(&parent, lock.lock()).ready().unwrap();
    let waits = Hand::by(&worker("high", 9), lock.lock()).waiting();
    assert_eq!(seen.load(Ordering::SeqCst), 9);
    drop(waits);
    assert_eq!(seen.load(Ordering::SeqCst), 1);
    parent.set_priority(4);
    assert_eq!(seen.load(Ordering::SeqCst), 4);
    drop(guard);
}

/// A hook that goes with its worker is dropped where it may use the domain's locks.
#[test]
fn a_hook_is_dropped_outside_of_the_mutex() {
    struct Last(Arc<Mutex<()>>, Arc<AtomicUsize>);
    impl Drop for Last {
        fn drop(&mut self) {
            let wait = Hand::new(self.0.lock());
            drop(wait);
            drop(self.0.try_lock());
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }
    let domain = Domain::builder().build();
    let lock = Arc::new(Mutex::new(()).in_domain(&domain));
    let drops = Arc::new(AtomicUsize::new(0));
    let holder = worker("holder", 1);
    let last = Last(Arc::clone(&lock), Arc::clone(&drops));
    holder.on_priority_change(move || assert!(Arc::strong_count(&last.0) > 0));
    let guard = Hand::by(&holder, lock.lock()).ready().unwrap();
    // The graph keeps the holder from now on, and nobody else does.
    let waits = Hand::by(&worker("high", 9), lock.lock()).waiting();
    drop(holder);
    drop(guard);
    assert_eq!(drops.load(Ordering::SeqCst), 1);
    drop(waits);
}
