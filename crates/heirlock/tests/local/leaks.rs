//! What is leaked holds nothing any more once its lock is somebody's alone again, or once the guard that it belongs to has gone.

use std::mem::forget;
use std::sync::Arc;

use crate::common::local::{assert_idle, domain, worker};
use crate::common::polls::Hand;
use heirlock::Worker;
use heirlock::local::{Domain, Event, Mutex, Promise, RwLock, Semaphore};

#[test]
fn case_f15_a_forgotten_upgrade_ends_with_its_guard() {
    for upgraded in [false, true] {
        let (domain, _) = domain();
        let lock = RwLock::new(1).in_domain(&domain);
        let (reader, upgrader) = (worker("reader", 1), worker("upgrader", 2));
        let read = Hand::by(&reader, lock.read()).ready().unwrap();
        let mut guard = Hand::by(&upgrader, lock.upgradable()).ready().unwrap();
        if upgraded {
            drop(read);
            forget(guard.try_upgrade().unwrap());
        } else {
            forget(Hand::by(&upgrader, guard.upgrade()).waiting());
            drop(read);
        }
        drop(guard);
        assert!(!lock.is_locked());
        *Hand::by(&reader, lock.write()).ready().unwrap() += 1;
        assert_eq!(lock.into_inner(), 2);
    }
}

#[test]
fn a_semaphore_that_moves_has_all_its_permits() {
    let (first, second) = (Domain::builder().build(), Domain::builder().build());
    for tracked in [false, true] {
        let make = |semaphore: Semaphore| if tracked { semaphore.tracked() } else { semaphore };
        let added = make(Semaphore::unbounded(0).in_domain(&first));
        added.release(5).unwrap();
        let added = added.in_domain(&second);
        assert_eq!(added.free_permits(), 5);
        drop(added.try_acquire_many(5).unwrap());
        assert_eq!(added.free_permits(), 5);
        let fewer = make(Semaphore::new(3).in_domain(&first));
        fewer.try_acquire_many(2).unwrap().forget();
        let fewer = fewer.in_domain(&second);
        assert!(fewer.try_acquire_many(2).unwrap_err().is_would_block());
        fewer.release(2).unwrap();
        assert_eq!(fewer.try_acquire_many(3).unwrap().permits(), 3);
        // One that somebody waited for, and with a permit that is leaked.
        let waited_for = make(Semaphore::new(1).in_domain(&first));
        forget(waited_for.try_acquire().unwrap());
        forget(Hand::by(&Worker::new("leaked"), waited_for.acquire()).waiting());
        let waited_for = waited_for.in_domain(&second);
        drop(waited_for.try_acquire().unwrap());
        assert_eq!(waited_for.free_permits(), 1);
    }
    assert_idle(&second);
}

#[test]
fn locks_that_move_are_free() {
    let (first, second) = (Domain::builder().build(), Domain::builder().build());
    let lock = RwLock::new(0).in_domain(&first);
    forget(Hand::by(&Worker::new("reader"), lock.read()).ready().unwrap());
    forget(Hand::by(&Worker::new("writer"), lock.write()).waiting());
    let lock = lock.in_domain(&second);
    assert!(!lock.is_locked());
    let mut guard = lock.try_upgradable().unwrap();
    *guard.try_upgrade().unwrap() += 1;
    drop(guard);
    drop(lock.try_write().unwrap());
    let mutex = Mutex::new(0).in_domain(&first);
    forget(Hand::by(&Worker::new("holder"), mutex.lock()).ready().unwrap());
    forget(Hand::by(&Worker::new("waiter"), mutex.lock()).waiting());
    let mutex = mutex.in_domain(&second);
    drop(mutex.try_lock().unwrap());
    let event = Event::new().in_domain(&first);
    forget(Hand::by(&Worker::new("waiter"), event.wait()).waiting());
    let event = event.in_domain(&second);
    assert_eq!(event.set(), 0);
    assert!(Hand::new(event.wait()).ready().is_ok());
    let (promise, producer) = (Arc::new(Promise::new().in_domain(&first)), Worker::new("producer"));
    {
        let producing = promise.producer(&producer).unwrap();
        forget(Hand::by(&Worker::new("waiter"), promise.wait()).waiting());
        forget(producing);
    }
    let promise = Arc::into_inner(promise).unwrap().in_domain(&second);
    let mut waits = Hand::by(&producer, promise.wait()).waiting();
    promise.set(7).unwrap();
    assert_eq!(*waits.ready().unwrap(), 7);
    drop(waits);
    assert_idle(&second);
}

/// As many arms of one bare task as there are; each queueing looks at one of the others, not at all of them.
#[tokio::test]
async fn case_f17_a_thousand_arms() {
    const ARMS: usize = if cfg!(miri) { 20 } else { 1000 };
    let (domain, _) = domain();
    let lock = Arc::new(Mutex::new(0).in_domain(&domain));
    let inner = Arc::clone(&lock);
    let arms = move || {
        let lock = Arc::clone(&inner);
        Box::pin(async move {
            let mut guard = lock.lock().await.unwrap();
            tokio::task::yield_now().await;
            *guard += 1;
        })
    };
    let start = std::time::Instant::now();
    tokio::spawn(async move {
        let mut pending: Vec<_> = (0..ARMS).map(|_| arms()).collect();
        std::future::poll_fn(|cx| {
            pending.retain_mut(|arm| arm.as_mut().poll(cx).is_pending());
            if pending.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
    })
    .await
    .unwrap();
    println!("{ARMS} arms took {:?}", start.elapsed());
    assert_eq!(*lock.try_lock().unwrap(), ARMS);
    assert_idle(&domain);
}
