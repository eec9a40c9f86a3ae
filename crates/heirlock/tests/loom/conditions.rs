//! Models of what waits for more than a free lock: conditions, and cells that are set once.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crate::common::loom_world::{Inside, World, assert_idle, model, poll_once, worker};
use heirlock::Worker;
use heirlock::local::{Condvar, Mutex, OnceCell, Wakeup};
use loom::future::block_on;
use loom::thread::spawn;

/// A condition, and what it is about.
struct Ready {
    lock: Mutex<bool>,
    changed: Condvar,
}

impl Ready {
    fn new(world: &World) -> Arc<Ready> {
        Arc::new(Ready { lock: Mutex::new(false).in_domain(&world.domain), changed: Condvar::new().in_domain(&world.domain) })
    }

    /// One that waits for the next notification, and has begun to.
    fn waiting(self: &Arc<Self>, worker: &Worker, timeout: Duration) -> Pin<Box<dyn Future<Output = Wakeup> + Send>> {
        let (ready, worker) = (Arc::clone(self), worker.clone());
        let mut wait = Box::pin(async move {
            worker
                .run(async {
                    let guard = ready.lock.lock().await.unwrap();
                    ready.changed.wait(guard).timeout(timeout).await.unwrap().1
                })
                .await
        });
        assert!(poll_once(&mut wait).is_pending());
        wait
    }

    fn assert_over(&self, world: &World, workers: &[&Worker]) {
        assert!(!self.lock.is_locked());
        assert_idle(&world.domain, workers);
    }
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn notify_against_wait() {
    model("notify against wait", 3, |world| {
        let (waits, sets) = (worker("waits", 9), worker("sets", 0));
        let ready = Ready::new(world);
        let waiting = spawn({
            let (ready, waits) = (Arc::clone(&ready), waits.clone());
            move || {
                block_on(waits.run(async {
                    let guard = ready.lock.lock().await.unwrap();
                    let guard = ready.changed.wait_while(guard, |ready| !*ready).await.unwrap();
                    assert!(*guard);
                }));
            }
        });
        *block_on(sets.run(ready.lock.lock())).unwrap() = true;
        ready.changed.notify_one();
        waiting.join().unwrap();
        ready.assert_over(world, &[&waits, &sets]);
    });
}

/// A notification that is not returned goes on: one of two who wait is cancelled, and the other is notified whichever of both was first.
#[test]
fn notify_against_cancel() {
    model("notify against cancel", 3, |world| {
        let (first, second) = (worker("first", 9), worker("second", 5));
        let ready = Ready::new(world);
        let (cancelled, waits) = (ready.waiting(&first, LONG), ready.waiting(&second, LONG));
        let cancels = spawn(move || drop(cancelled));
        let waiting = spawn(move || block_on(waits));
        ready.changed.notify_one();
        cancels.join().unwrap();
        assert_eq!(waiting.join().unwrap(), Wakeup::Notified);
        ready.assert_over(world, &[&first, &second]);
    });
}

/// Whoever is notified and out of time at once is one of both, and who waits behind it gets a notification that it did not take.
#[test]
fn notify_against_expiry() {
    model("notify against expiry", 2, |world| {
        let (first, second) = (worker("first", 9), worker("second", 5));
        let ready = Ready::new(world);
        let (hasty, patient) = (ready.waiting(&first, Duration::from_millis(5)), ready.waiting(&second, LONG));
        let hastes = spawn(move || block_on(hasty));
        let waits = spawn(move || block_on(patient));
        let notifies = spawn({
            let ready = Arc::clone(&ready);
            move || {
                assert!(ready.changed.notify_one());
                drop(ready);
            }
        });
        world.clock.advance(Duration::from_millis(5));
        world.domain.expire();
        notifies.join().unwrap();
        if hastes.join().unwrap() == Wakeup::Notified {
            assert!(ready.changed.notify_one());
        }
        assert_eq!(waits.join().unwrap(), Wakeup::Notified);
        ready.assert_over(world, &[&first, &second]);
    });
}

/// Two who would set a cell: one does, and both see all of what it made.
#[test]
fn two_initialise() {
    model("two initialise", 3, |world| {
        let (first, second) = (worker("first", 1), worker("second", 9));
        let cell = Arc::new(OnceCell::new().in_domain(&world.domain));
        let initialise = |worker: &Worker| {
            let (cell, worker) = (Arc::clone(&cell), worker.clone());
            move || {
                let make = || async {
                    let made = Inside::default();
                    made.visit();
                    made
                };
                let visits = block_on(worker.run(async { cell.get_or_init(make).await.unwrap().visits() }));
                drop(cell);
                visits
            }
        };
        let other = spawn(initialise(&second));
        assert_eq!((initialise(&first)(), other.join().unwrap()), (1, 1));
        assert_idle(&world.domain, &[&first, &second]);
    });
}

/// Once it is set nobody holds the cell, not even for a moment who had looked before that: nobody is ever seen to wait for that one.
#[test]
fn nobody_holds_what_is_set() {
    model("nobody holds a cell that is set", 2, |world| {
        let (first, second) = (worker("first", 1), worker("second", 9));
        let cell = Arc::new(OnceCell::new().in_domain(&world.domain));
        let initialise = |worker: &Worker| {
            let (cell, worker) = (Arc::clone(&cell), worker.clone());
            spawn(move || block_on(worker.run(async { *cell.get_or_init(|| async { 7 }).await.unwrap() })))
        };
        let others = [&first, &second].map(initialise);
        let is_set = cell.set(7).is_ok();
        let snapshot = world.domain.snapshot();
        assert!(!is_set || snapshot.locks.iter().all(|lock| lock.holders.is_empty()), "{snapshot}");
        for other in others {
            assert_eq!(other.join().unwrap(), 7);
        }
        assert_idle(&world.domain, &[&first, &second]);
    });
}

/// Whoever makes the value is cancelled; whoever waits for it makes it.
#[test]
fn initialise_against_cancel() {
    model("initialise against cancel", 5, |world| {
        let (first, second) = (worker("first", 9), worker("second", 1));
        let cell = Arc::new(OnceCell::<u32>::new().in_domain(&world.domain));
        let mut never = Box::pin({
            let (cell, first) = (Arc::clone(&cell), first.clone());
            async move { first.run(async { cell.get_or_init(std::future::pending::<u32>).await.map(|_| ()) }).await }
        });
        assert!(poll_once(&mut never).is_pending());
        let makes = spawn({
            let (cell, second) = (Arc::clone(&cell), second.clone());
            move || block_on(second.run(async { *cell.get_or_init(|| async { 7 }).await.unwrap() }))
        });
        drop(never);
        assert_eq!(makes.join().unwrap(), 7);
        assert_eq!(cell.get(), Some(&7));
        assert_idle(&world.domain, &[&first, &second]);
    });
}
