//! Promises: the cases that concern whoever is to keep them, by number. What they have in common with events and barriers is in `awaited.rs`,
//! how they end and what is refused in `promise_ends.rs`; `cases.rs` has the table.
//!
//! Under its type a promise is a `Mutex` that is held until it is settled, so what a queue does is tested with that.

use std::sync::Arc;

use crate::common::local::{assert_idle, domain, ms, worker};
use crate::common::polls::{Hand, assert_says, everywhere, in_tasks, pause};
use heirlock::Worker;
use heirlock::local::{DeadlockPolicy, Domain, Mutex, Promise};

type Waits<'a> = Hand<'a, heirlock::Result<&'a u32>>;

fn promise(domain: &Domain) -> Promise<u32> {
    Promise::named("result").in_domain(domain)
}

fn awaiting<'a>(worker: &Worker, promise: &'a Promise<u32>) -> Waits<'a> {
    Hand::by(worker, promise.wait()).waiting()
}

#[test]
fn case_p01_p02_boosts_travel_through_producers() {
    everywhere(|| async {
        let (domain, clock) = domain();
        let (lock, first, second) = (Mutex::new(()).in_domain(&domain), promise(&domain), promise(&domain));
        let [holder, one, two, high, mid] = [10, 20, 30, 50, 40].map(|base| worker("t", base));
        let guard = Hand::by(&holder, lock.lock()).ready().unwrap();
        // `one` produces the first and waits for the lock, `two` the second and waits for the first.
        let produces = (first.producer(&one).unwrap(), second.producer(&two).unwrap());
        let mut locks = Hand::by(&one, lock.lock()).waiting();
        let mut needs = awaiting(&two, &first);
        let effective = || [&holder, &one, &two].map(Worker::effective_priority);
        assert_eq!(effective(), [30, 30, 30]);
        let late = Hand::by(&high, second.wait().timeout(ms(10))).waiting();
        let leaves = awaiting(&mid, &second);
        assert_eq!(effective(), [50, 50, 50]);
        clock.advance(ms(10));
        domain.expire();
        assert_eq!(effective(), [40, 40, 40]);
        drop(leaves);
        assert_eq!(effective(), [30, 30, 30]);
        drop(guard);
        assert_eq!(effective(), [10, 30, 30]);
        drop(locks.ready().unwrap());
        produces.0.set(1).unwrap();
        assert_eq!((effective(), needs.ready().unwrap()), ([10, 20, 30], &1));
        produces.1.set(2).unwrap();
        drop((locks, needs, late));
        assert_idle(&domain);
    });
}

/// Who waits already boosts whoever becomes the producer, and no more when it is another's.
#[test]
fn case_p12_f11_the_producer_changes() {
    everywhere(|| async {
        let (domain, _) = domain();
        let [first, second, high] = [1, 2, 9].map(|base| worker("w", base));
        for known in [false, true] {
            let promise = promise(&domain);
            let early = known.then(|| awaiting(&high, &promise));
            let producer = promise.producer(&first).unwrap();
            let mut waits = awaiting(&high, &promise);
            assert_eq!((first.effective_priority(), second.effective_priority()), (9, 2));
            producer.transfer_to(&second);
            assert_eq!((first.effective_priority(), second.effective_priority()), (1, 9));
            high.set_priority(7);
            assert_eq!(second.effective_priority(), 7);
            high.set_priority(9);
            // On another thread, too, it is the worker's that it was transferred to.
            std::thread::scope(|scope| {
                scope.spawn(|| producer.set(7).unwrap());
            });
            assert_eq!((second.effective_priority(), waits.ready().unwrap()), (2, &7));
            drop((waits, early));
            assert_idle(&domain);
        }
        // Before anybody waits that is the word's business alone.
        let promise = promise(&domain);
        let producer = promise.producer(&first).unwrap();
        producer.transfer_to(&second);
        let waits = awaiting(&high, &promise);
        assert_eq!((first.effective_priority(), second.effective_priority()), (1, 9));
        drop((waits, producer));
        assert_idle(&domain);
    });
}

#[test]
fn case_p09_deadlock() {
    everywhere(|| async {
        let (domain, _) = domain();
        let (lock, promise) = (Mutex::named("lock", ()).in_domain(&domain), promise(&domain));
        let (t1, t2) = (worker("t1", 0), worker("t2", 0));
        let guard = Hand::by(&t2, lock.lock()).ready().unwrap();
        let producer = promise.producer(&t1).unwrap();
        let mut first = Hand::by(&t1, lock.lock()).waiting();
        let error = Hand::by(&t2, promise.wait()).ready().unwrap_err();
        assert!(error.is_deadlock());
        let ways = [
            r#"deadlock: worker "t2" waits for promise "result""#,
            r#"produced by worker "t1" (from "#,
            r#"which waits for lock "lock""#,
            r#"held by worker "t2""#,
        ];
        assert_says(&error.to_string(), &ways);
        // Nothing is left of it: another may wait, and the first goes on.
        let mut other = awaiting(&worker("t3", 0), &promise);
        drop(guard);
        drop(first.ready().unwrap());
        producer.set(1).unwrap();
        assert_eq!(other.ready().unwrap(), &1);
        drop((first, other));
        assert_idle(&domain);
    });
}

/// A worker that waits for its own promise waits for ever; its fork may.
#[test]
fn case_f06_waiting_for_oneself() {
    everywhere(|| async {
        let (domain, _) = domain();
        let promise = promise(&domain);
        let own = worker("own", 3);
        let producer = promise.producer(&own).unwrap();
        for _ in 0..2 {
            let error = Hand::by(&own, promise.wait()).ready().unwrap_err();
            assert!(error.is_deadlock());
            assert_says(
                &error.to_string(),
                &[r#"deadlock: worker "own" waits for promise "result""#, "which it produces itself", "worker.fork"],
            );
        }
        let fork = own.fork("arm");
        let mut waits = Hand::by(&fork, promise.wait()).waiting();
        producer.set(1).unwrap();
        assert_eq!(waits.ready().unwrap(), &1);
        drop(waits);
        assert_idle(&domain);
    });
}

/// A worker that waits becomes the producer of what leads back to it: its wait is over.
#[test]
fn a_producer_closes_the_cycle() {
    everywhere(|| async {
        let (domain, _) = domain();
        let (lock, promise) = (Mutex::new(()).in_domain(&domain), promise(&domain));
        let (holder, waiter) = (worker("holder", 0), worker("waiter", 0));
        let guard = Hand::by(&holder, lock.lock()).ready().unwrap();
        let mut locks = Hand::by(&waiter, lock.lock()).waiting();
        let mut needs = awaiting(&holder, &promise);
        // For whom nobody is known to be at work, there is no cycle.
        assert_eq!(domain.snapshot().suspected.len(), 0);
        let producer = promise.producer(&waiter).unwrap();
        assert!(locks.ready().unwrap_err().is_deadlock());
        assert!(needs.poll().is_pending());
        producer.set(3).unwrap();
        assert_eq!(needs.ready().unwrap(), &3);
        drop((guard, locks, needs));
        // The same of its own wait for the promise, and by a transfer.
        let own = self::promise(&domain);
        let mut waits = awaiting(&waiter, &own);
        let producer = own.producer(&waiter).unwrap();
        assert!(waits.ready().unwrap_err().is_deadlock());
        drop(waits);
        let mut waits = awaiting(&holder, &own);
        producer.transfer_to(&holder);
        assert!(waits.ready().unwrap_err().is_deadlock());
        drop((waits, producer));
        assert_idle(&domain);
    });
}

#[test]
fn case_f07_spawned_child_with_its_result() {
    let one = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let two = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for runtime in [one, two] {
        for child_first in [true, false] {
            let domain = Domain::builder().build();
            let lock = Arc::new(Mutex::named("shared", 1).in_domain(&domain));
            let result: Arc<Promise<heirlock::Result<u32>>> = Arc::new(Promise::named("result").in_domain(&domain));
            let (parent, child) = (worker("parent", 5), worker("child", 0));
            let seen = domain.clone();
            let outcome = runtime.block_on(async {
                let task = parent.run(async move {
                    let guard = lock.lock().await?;
                    let producer = result.producer_owned(&child)?;
                    let (inner, view) = (Arc::clone(&lock), seen.clone());
                    tokio::spawn(child.run(async move {
                        // As the last, or as the first of both.
                        while !child_first && view.snapshot().edges.is_empty() {
                            pause().await;
                        }
                        let locked = inner.lock().await.map(|guard| *guard);
                        producer.set(locked).unwrap();
                    }));
                    while child_first && seen.snapshot().edges.is_empty() {
                        pause().await;
                    }
                    let awaited = result.wait().await;
                    drop(guard);
                    match awaited {
                        // The child was refused, and gave that as its result.
                        Ok(refused) => Ok(refused.as_ref().is_err_and(heirlock::Error::is_deadlock)),
                        // The parent was refused; it has let go, and the child goes on.
                        Err(error) => Ok(error.is_deadlock() && matches!(result.wait().await?, Ok(1))),
                    }
                });
                tokio::spawn(task).await.unwrap()
            });
            assert!(outcome.unwrap_or_else(|error: heirlock::Error| panic!("{error}")));
            let deadlocks = domain.snapshot().deadlocks;
            let [cycle] = deadlocks.as_slice() else { panic!("{deadlocks:?}") };
            let closer = if child_first { "parent" } else { "child" };
            assert!(cycle.len() == 2 && cycle[0].starts_with(&format!("worker {closer:?} waits for")), "{cycle:?}");
            assert_idle(&domain);
        }
    }
}

/// Of whoever is no explicit worker it is known that it should be boosted, but not that it can do nothing else.
#[test]
fn whoever_calls_is_the_producer() {
    async fn produces_and_waits(domain: Domain) -> (bool, String, usize) {
        let (lock, promise) = (Mutex::named("lock", ()).in_domain(&domain), promise(&domain));
        let other = worker("other", 9);
        let guard = Hand::by(&other, lock.lock()).ready().unwrap();
        let producer = promise.produce().unwrap();
        let mut locks = lock.lock();
        assert!(crate::common::polls::once(&mut locks).await.is_pending());
        let mut needs = Hand::by(&other, promise.wait());
        let refused = needs.poll().is_ready();
        let snapshot = domain.snapshot();
        let shown = snapshot.locks.iter().find(|lock| lock.name == "result").map(|lock| {
            lock.holders.first().map_or_else(|| format!("nobody: {}", lock.unknown_releaser), |holder| holder.party.worker.name.clone())
        });
        drop((producer, guard, needs, locks));
        (refused, shown.unwrap_or_default(), snapshot.suspected.len())
    }
    let (plain, trusting) = (Domain::builder().build(), Domain::builder().trust_tasks(true).build());
    // As a worker.
    assert_eq!(pollster::block_on(Worker::new("w").run(produces_and_waits(plain.clone()))), (true, "w".into(), 0));
    // A thread, and nobody known: shown, and in no verdict.
    let outside = std::thread::scope(|scope| scope.spawn(|| pollster::block_on(produces_and_waits(plain.clone()))).join().unwrap());
    assert_eq!((outside.0, outside.1.starts_with("thread "), outside.2), (false, true, 0));
    if cfg!(feature = "tokio") {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let in_task = |domain: &Domain| runtime.block_on(async { tokio::spawn(produces_and_waits(domain.clone())).await.unwrap() });
        let (refused, shown, suspected) = in_task(&plain);
        assert_eq!((refused, shown.starts_with("task "), suspected), (false, true, 1));
        assert!(in_task(&trusting).0);
        assert_eq!(runtime.block_on(produces_and_waits(plain.clone())), (false, "nobody: true".into(), 0));
        let strict = Domain::builder().deadlock_policy(DeadlockPolicy::ErrSuspected).build();
        assert!(in_task(&strict).0);
        assert_idle(&strict);
    }
    assert_idle(&plain);
    assert_idle(&trusting);
}

/// A bare task that produces is boosted by who waits: a lock that it queues for serves it first.
#[test]
fn a_task_that_produces_is_boosted() {
    if !cfg!(feature = "tokio") {
        return;
    }
    in_tasks(|| async {
        let (domain, _) = domain();
        let (lock, promise) = (Mutex::new(()).in_domain(&domain), promise(&domain));
        let guard = Hand::by(&worker("holder", 0), lock.lock()).ready().unwrap();
        let other = Hand::by(&worker("other", 5), lock.lock()).waiting();
        let producer = promise.produce().unwrap();
        let mut locks = lock.lock();
        assert!(crate::common::polls::once(&mut locks).await.is_pending());
        let mut needs = Hand::by(&worker("high", 9), promise.wait()).waiting();
        drop(guard);
        assert_eq!(other.wakes(), 0);
        drop(locks.await.unwrap());
        producer.set(1).unwrap();
        assert_eq!(needs.ready().unwrap(), &1);
        drop((needs, other));
        assert_idle(&domain);
    });
}

#[test]
fn case_f09_converging_waits_are_not_a_cycle() {
    everywhere(|| async {
        let domain = Domain::builder().build();
        let [top, left, right] = [(); 3].map(|()| promise(&domain));
        let [end, w1, w2, start] = [0, 1, 2, 3].map(|at| worker(format!("w{at}"), at));
        let made = top.producer(&end).unwrap();
        let makers = [left.producer(&w1).unwrap(), right.producer(&w2).unwrap()];
        // From `start` by two ways to `end`.
        let mut waits = [awaiting(&w1, &top), awaiting(&w2, &top)];
        let mut starts = [awaiting(&start, &left), awaiting(&start, &right)];
        assert_eq!(end.effective_priority(), 3);
        made.set(1).unwrap();
        for ((wait, maker), start) in waits.iter_mut().zip(makers).zip(&mut starts) {
            maker.set(*wait.ready().unwrap() + 1).unwrap();
            assert_eq!(start.ready().unwrap(), &2);
        }
        drop((waits, starts));
        assert_idle(&domain);
    });
}

/// Each producer needs the next one's value.
#[test]
fn a_chain_of_ten_thousand_promises() {
    let domain = Domain::builder().build();
    let count = if cfg!(miri) { 50 } else { 10_000 };
    let promises: Vec<_> = (0..=count).map(|_| promise(&domain)).collect();
    let workers: Vec<_> = (0..=count).map(|_| Worker::new("link")).collect();
    let mut producers: Vec<_> = promises.iter().zip(&workers).map(|(promise, worker)| promise.producer(worker).unwrap()).collect();
    let mut chain: Vec<_> = workers.iter().zip(&promises[1..]).map(|(worker, needed)| awaiting(worker, needed)).collect();
    let high = Hand::by(&worker("high", 9), promises[0].wait()).waiting();
    assert_eq!(workers[count].effective_priority(), 9);
    // Round it goes.
    assert!(Hand::by(&workers[count], promises[0].wait()).ready().unwrap_err().is_deadlock());
    drop(high);
    assert_eq!(workers[count].effective_priority(), 0);
    producers.pop().unwrap().set(0).unwrap();
    while let (Some(mut link), Some(producer)) = (chain.pop(), producers.pop()) {
        producer.set(link.ready().unwrap() + 1).unwrap();
    }
    assert_eq!(promises[0].get().map(|links| *links as usize), Some(count));
    assert_idle(&domain);
}

/// A domain that checks orders knows that a promise comes before what its producer takes, and a lock before what its holder awaits.
#[test]
fn promises_take_part_in_the_order_of_locks() {
    let domain = Domain::builder().check_order(true).build();
    let lock = Mutex::named("lock", ()).in_domain(&domain);
    let (first, second, other) = (worker("first", 0), worker("second", 0), worker("other", 0));
    let first_result = promise(&domain);
    let producer = first_result.producer(&first).unwrap();
    let mut waits = awaiting(&other, &first_result);
    drop(Hand::by(&first, lock.lock()).ready().unwrap());
    producer.set(1).unwrap();
    waits.ready().unwrap();
    assert!(domain.snapshot().inversions.is_empty());
    let second_result = promise(&domain);
    let guard = Hand::by(&second, lock.lock()).ready().unwrap();
    let waits_too = awaiting(&second, &second_result);
    let inversions = domain.snapshot().inversions;
    assert_eq!(inversions.len(), 1, "{inversions:?}");
    drop((waits, waits_too, guard));
    drop(second_result);
    assert_idle(&domain);
}
