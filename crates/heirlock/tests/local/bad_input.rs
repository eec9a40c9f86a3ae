//! What is extreme, what happens where it should not: of each lock, of conditions, of cells.
//!
//! A time of nothing is case P20; levels without end are in `rlock.rs`, up to the last that can be counted in `src/local/rlock.rs`; guards that
//! are dropped in another thread are case F11, panics of who makes a cell's value F12; conditions within wakers are in `condvar_rules.rs`.

use std::future::{Future, pending};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex as StdMutex};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use crate::common::polls::{Hand, once};
use heirlock::Worker;
use heirlock::local::{Condvar, Domain, Mutex, OnceCell};

const MANY: usize = if cfg!(miri) { 100 } else { 100_000 };

/// When it is woken, it gives up what it has of the same domain.
struct Releases<T>(StdMutex<Option<T>>);

impl<T: Send + 'static> Releases<T> {
    fn waking(held: T) -> Waker {
        Waker::from(Arc::new(Releases(StdMutex::new(Some(held)))))
    }
}

impl<T: Send> Wake for Releases<T> {
    fn wake(self: Arc<Self>) {
        drop(self.0.lock().unwrap().take());
    }
}

mod mutex {
    use super::*;
    use heirlock::local::{Mutex as Lock, OwnedMutexGuard};

    type Owned = OwnedMutexGuard<()>;

    include!("../common/lock_bad_input.rs");
}

mod rlock {
    use super::*;
    use heirlock::local::{OwnedRLockGuard, RLock as Lock};

    type Owned = OwnedRLockGuard<()>;

    include!("../common/lock_bad_input.rs");
}

/// One key of many.
mod keyed {
    use super::*;
    use crate::common::keyed_lock::{Lock, Owned};

    include!("../common/lock_bad_input.rs");
}

/// A lock that is only written.
mod written {
    use super::*;
    use crate::common::written::{Lock, Owned};

    include!("../common/lock_bad_input.rs");
}

/// All wait with one lock, some leave, and the rest is notified at once.
#[test]
fn a_hundred_thousand_wait_for_a_condition() {
    let domain = Domain::builder().build();
    let (lock, changed) = (Mutex::new(0_usize).in_domain(&domain), Condvar::new().in_domain(&domain));
    let wait = || Hand::new(changed.wait(lock.try_lock().unwrap()).timeout(Duration::from_secs(3600))).waiting();
    let mut waits: Vec<_> = (0..MANY).map(|_| wait()).collect();
    let rest = waits.split_off(MANY / 2);
    drop(waits.split_off(MANY / 4));
    assert_eq!(changed.notify_all(), MANY / 4 + rest.len());
    drop(rest);
    for mut wait in waits {
        *wait.ready().unwrap().0 += 1;
    }
    assert_eq!(*lock.try_lock().unwrap(), MANY / 4);
    assert_eq!(domain.records(), [0; 7]);
}

#[test]
fn a_hundred_thousand_wait_for_a_cell() {
    let domain = Domain::builder().build();
    let cell = OnceCell::new().in_domain(&domain);
    let making_it = Hand::new(cell.get_or_init(pending)).waiting();
    let mut waits: Vec<_> =
        (0..MANY).map(|_| Hand::new(cell.get_or_init(async || 7).timeout(Duration::from_secs(3600))).waiting()).collect();
    let rest = waits.split_off(MANY / 2);
    drop(waits.split_off(MANY / 4));
    drop(making_it);
    for mut wait in waits {
        assert_eq!(wait.ready().unwrap(), &7);
    }
    drop(rest);
    assert_eq!(domain.records(), [0; 7]);
}

#[test]
fn extreme_priorities_at_a_cell() {
    let domain = Domain::builder().build();
    let cell = OnceCell::<u8>::new().in_domain(&domain);
    let [maker, low, high] = [i32::MIN, i32::MIN, i32::MAX].map(|base| Worker::new("w").priority(base));
    let making_it = Hand::by(&maker, cell.get_or_init(pending)).waiting();
    let low_waits = Hand::by(&low, cell.get_or_init(async || 1)).waiting();
    assert_eq!(maker.effective_priority(), i32::MIN);
    let mut high_waits = Hand::by(&high, cell.get_or_init(async || 2)).waiting();
    assert_eq!(maker.effective_priority(), i32::MAX);
    drop(making_it);
    assert_eq!((low_waits.wakes(), high_waits.ready().unwrap()), (0, &2));
    drop((high_waits, low_waits));
    assert_eq!(domain.records(), [0; 7]);
}

/// Each maker needs the next one's value.
#[test]
fn a_chain_of_ten_thousand_cells() {
    let domain = Domain::builder().build();
    let count = if cfg!(miri) { 50 } else { 10_000 };
    let cells: Vec<_> = (0..=count).map(|_| OnceCell::new().in_domain(&domain)).collect();
    let workers: Vec<_> = (0..=count).map(|_| Worker::new("link")).collect();
    let first = Hand::by(&workers[count], cells[count].get_or_init(pending::<usize>)).waiting();
    let chain = cells.windows(2).zip(&workers).rev().map(|(pair, worker)| {
        let [mine, needed] = pair else { unreachable!() };
        Hand::by(worker, mine.get_or_try_init(async || Ok::<_, heirlock::Error>(*needed.get_or_init(async || 0).await? + 1))).waiting()
    });
    let mut chain: Vec<_> = chain.collect();
    let high = Worker::new("high").priority(9);
    let last = Hand::by(&high, cells[0].get_or_init(async || 0)).waiting();
    assert_eq!(workers[count].effective_priority(), 9);
    // Round it goes.
    assert!(Hand::by(&workers[count], cells[0].get_or_init(async || 0)).ready().unwrap_err().is_deadlock());
    drop(last);
    assert_eq!(workers[count].effective_priority(), 0);
    // The next makes what this one did not.
    drop(first);
    for link in &mut chain {
        link.ready().unwrap();
    }
    assert_eq!(cells[0].get(), Some(&count));
    drop(chain);
    assert_eq!(domain.records(), [0; 7]);
}

/// The waker of one attempt ends another: no mutex is held then.
#[test]
fn an_attempt_that_ends_within_a_wake_up() {
    let domain = Domain::builder().build();
    let [first, second] = [(); 2].map(|()| Arc::new(OnceCell::<u8>::new().in_domain(&domain)));
    let making_it = Hand::new(first.get_or_init(pending)).waiting();
    let other = Arc::clone(&second);
    let making_other = Hand::new(async move { other.get_or_init(pending).await.copied() }).waiting();
    let mut other_waits = Hand::new(second.get_or_init(async || 2)).waiting();
    let waker = Releases::waking(making_other);
    let mut waits = Box::pin(first.get_or_init(async || 1));
    assert!(waits.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(waker);
    drop(making_it);
    assert_eq!(other_waits.ready().unwrap(), &2);
    assert_eq!(pollster::block_on(waits).unwrap(), &1);
    drop(other_waits);
    assert_eq!(domain.records(), [0; 7]);
}

/// A wait and an attempt, begun in tasks of a runtime that has gone.
#[test]
fn waits_that_outlive_their_runtime() {
    let domain = Domain::builder().build();
    let state = Arc::new((Mutex::new(0).in_domain(&domain), Condvar::new().in_domain(&domain), OnceCell::new().in_domain(&domain)));
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let making_it = Hand::new(state.2.get_or_init(pending)).waiting();
    let task = runtime.spawn({
        let state = Arc::clone(&state);
        async move {
            let (waits_on, makes) = (Arc::clone(&state), Arc::clone(&state));
            let mut wait = Box::pin(async move { waits_on.1.wait(waits_on.0.lock().await?).await.map(|guard| *guard) });
            let mut attempt = Box::pin(async move { makes.2.get_or_init(async || 7).await.copied() });
            assert!(once(&mut wait).await.is_pending() && once(&mut attempt).await.is_pending());
            (wait, attempt)
        }
    });
    let (wait, attempt) = runtime.block_on(task).unwrap();
    drop(runtime);
    assert!(state.1.notify_one());
    drop(making_it);
    assert_eq!(pollster::block_on(wait).unwrap(), 0);
    assert_eq!(pollster::block_on(attempt).unwrap(), 7);
    assert!(!state.0.is_locked());
    assert_eq!(domain.records(), [0; 7]);
}
