//! Models of promises: of who waits, who produces, and who gives up.

use std::sync::Arc;

use crate::common::loom_world::{Inside, World, assert_idle, model, poll_once, worker};
use heirlock::local::Promise;
use heirlock::{Error, Worker};
use loom::future::block_on;
use loom::thread::spawn;

fn promise<T>(world: &World) -> Arc<Promise<T>> {
    Arc::new(Promise::new().in_domain(&world.domain))
}

/// Waits in a thread of its own for what `look` says of the value.
fn waiter<T: Send + Sync + 'static, R: Send + 'static>(
    promise: &Arc<Promise<T>>,
    worker: &Worker,
    look: fn(&T) -> R,
) -> loom::thread::JoinHandle<Result<R, Error>> {
    let (promise, worker) = (Arc::clone(promise), worker.clone());
    spawn(move || {
        let seen = block_on(worker.run(promise.wait())).map(look);
        drop(promise);
        seen
    })
}

/// Of a value and a wait that begins, one sees the other; and whoever waited sees all of the value.
#[test]
fn set_against_wait() {
    model("promise: set against wait", 3, |world| {
        let (promise, waits, makes) = (promise(world), worker("waits", 9), worker("makes", 1));
        let waiting = waiter(&promise, &waits, Inside::visits);
        let producer = promise.producer(&makes).unwrap();
        let made = Inside::default();
        made.visit();
        assert!(producer.set(made).is_ok());
        assert_eq!(waiting.join().unwrap().unwrap(), 1);
        assert_idle(&world.domain, &[&waits, &makes]);
    });
}

/// Two who look at the same time, before it is settled or after: nobody is left in the queue.
#[test]
fn set_against_two_waits() {
    model("promise: set against two waits", 2, |world| {
        let (promise, first, second) = (promise(world), worker("first", 9), worker("second", 1));
        let waiting = [&first, &second].map(|worker| waiter(&promise, worker, |value: &u8| *value));
        promise.set(7).unwrap();
        for thread in waiting {
            assert_eq!(thread.join().unwrap().unwrap(), 7);
        }
        assert_idle(&world.domain, &[&first, &second]);
    });
}

/// Who had looked before it was settled, and comes only then, does not hold it for a moment: nobody is ever seen to wait for that one.
#[test]
fn nobody_holds_what_is_settled() {
    model("promise: nobody holds what is settled", 2, |world| {
        let (promise, first, second) = (promise(world), worker("first", 9), worker("second", 1));
        let waiting = [&first, &second].map(|worker| waiter(&promise, worker, |value: &u8| *value));
        promise.set(7).unwrap();
        assert!(world.domain.snapshot().locks.iter().all(|lock| lock.holders.is_empty()));
        for thread in waiting {
            assert_eq!(thread.join().unwrap().unwrap(), 7);
        }
        assert_idle(&world.domain, &[&first, &second]);
    });
}

/// One is polled once and kept, in the queue or after it: the other does not wait for it.
#[test]
fn set_against_an_abandoned_wait() {
    model("promise: set against an abandoned wait", 2, |world| {
        let (promise, first, second) = (promise(world), worker("first", 9), worker("second", 1));
        let abandons = spawn({
            let (promise, first) = (Arc::clone(&promise), first.clone());
            move || {
                let mut wait = Box::pin(async move { first.run(promise.wait()).await.copied() });
                let _ = poll_once(&mut wait);
                wait
            }
        });
        let waiting = waiter(&promise, &second, |value: &u8| *value);
        promise.set(7).unwrap();
        assert_eq!(waiting.join().unwrap().unwrap(), 7);
        drop(abandons.join().unwrap());
        assert_idle(&world.domain, &[&first, &second]);
    });
}

#[test]
fn set_against_cancel_of_a_wait() {
    model("promise: set against cancel of a wait", 4, |world| {
        let (promise, waits, makes) = (promise::<u8>(world), worker("waits", 9), worker("makes", 1));
        let producer = promise.producer_owned(&makes).unwrap();
        let sets = spawn(move || producer.set(1).unwrap());
        let mut wait = Box::pin(waits.run(promise.wait()));
        let _ = poll_once(&mut wait);
        drop(wait);
        sets.join().unwrap();
        assert_eq!(promise.get(), Some(&1));
        assert_idle(&world.domain, &[&waits, &makes]);
    });
}

/// One of both ends it, and all others learn of that one.
#[test]
fn set_against_cancel() {
    model("promise: set against cancel", 3, |world| {
        let (promise, waits, makes) = (promise(world), worker("waits", 9), worker("makes", 1));
        let producer = promise.producer_owned(&makes).unwrap();
        let waiting = waiter(&promise, &waits, |value: &u8| *value);
        let sets = spawn(move || producer.set(1));
        let cancelled = promise.cancel();
        assert_eq!(sets.join().unwrap(), if cancelled { Err(1) } else { Ok(()) });
        assert_eq!(waiting.join().unwrap().map_err(|error| error.is_closed()), if cancelled { Err(true) } else { Ok(1) });
        assert_eq!((promise.is_cancelled(), promise.get().is_some()), (cancelled, !cancelled));
        assert_idle(&world.domain, &[&waits, &makes]);
    });
}

/// Whoever waits is told that the promise is broken, also if it begins at that moment.
#[test]
fn a_broken_promise_against_wait() {
    model("promise: broken against wait", 3, |world| {
        let (promise, waits, makes) = (promise::<u8>(world), worker("waits", 9), worker("makes", 1));
        let producer = promise.producer(&makes).unwrap();
        let waiting = waiter(&promise, &waits, |value| *value);
        drop(producer);
        assert!(waiting.join().unwrap().unwrap_err().is_closed());
        assert_idle(&world.domain, &[&waits, &makes]);
    });
}

/// Whoever waits boosts whoever is the producer, whichever came first.
#[test]
fn a_producer_against_wait() {
    model("promise: producer against wait", 4, |world| {
        let (promise, waits, makes) = (promise::<u8>(world), worker("waits", 9), worker("makes", 1));
        let begins = spawn({
            let (promise, waits) = (Arc::clone(&promise), waits.clone());
            move || {
                let mut wait = Box::pin(async move { waits.run(promise.wait()).await.copied() });
                assert!(poll_once(&mut wait).is_pending());
                wait
            }
        });
        let producer = promise.producer(&makes).unwrap();
        let wait = begins.join().unwrap();
        assert_eq!(makes.effective_priority(), 9);
        producer.set(2).unwrap();
        assert_eq!(block_on(wait).unwrap(), 2);
        assert_idle(&world.domain, &[&waits, &makes]);
    });
}

/// One becomes the producer, or finds it cancelled; nobody is left behind, and nobody holds what is over.
#[test]
fn a_producer_against_cancel() {
    model("promise: producer against cancel", 3, |world| {
        let (promise, waits, makes, heir) = (promise::<u8>(world), worker("waits", 9), worker("makes", 1), worker("heir", 1));
        let waiting = waiter(&promise, &waits, |value| *value);
        let produces = spawn({
            let (promise, makes, heir) = (Arc::clone(&promise), makes.clone(), heir.clone());
            move || {
                let produced = promise.producer(&makes).map(|producer| {
                    producer.transfer_to(&heir);
                    producer.set(1)
                });
                drop(promise);
                produced
            }
        });
        let cancelled = promise.cancel();
        let produced = produces.join().unwrap();
        match produced {
            Ok(set) => assert_eq!(set, if cancelled { Err(1) } else { Ok(()) }),
            Err(error) => assert!(cancelled && (error.is_closed() || error.is_invalid()), "{error}"),
        }
        assert_eq!(waiting.join().unwrap().is_ok(), !cancelled);
        assert_idle(&world.domain, &[&waits, &makes, &heir]);
    });
}
