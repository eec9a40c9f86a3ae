//! How promises end: set, broken, cancelled, never; and what is refused. `cases.rs` has the table.

use std::mem::forget;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use crate::common::local::{Still, assert_idle, domain, ms, worker};
use crate::common::polls::{Hand, assert_says, everywhere, once, pause};
use crate::common::random::{Random, seed};
use heirlock::Worker;
use heirlock::local::{Domain, Promise};

fn promise(domain: &Domain) -> Promise<u32> {
    Promise::named("result").in_domain(domain)
}

/// The line of the call, as errors write it.
#[track_caller]
fn line() -> String {
    Location::caller().to_string()
}

#[test]
fn case_f12_f13_a_broken_promise_is_told_to_all() {
    everywhere(|| async {
        let (domain, _) = domain();
        for how in ["dropped", "by a panic", "aborted"] {
            let promise = promise(&domain);
            let child = worker("child", 0);
            let (producer, at) = (promise.producer(&child).unwrap(), line());
            let mut waits = [0, 9].map(|priority| Hand::by(&worker("w", priority), promise.wait()).waiting());
            match how {
                "dropped" => drop(producer),
                "by a panic" => {
                    let panics = catch_unwind(AssertUnwindSafe(|| {
                        let _producer = producer;
                        panic!("on purpose");
                    }));
                    assert!(panics.is_err());
                }
                _ => drop(
                    Hand::by(&child, async {
                        pause().await;
                        producer.set(1)
                    })
                    .waiting(),
                ),
            }
            let text = format!(
                "broken promise: worker \"child\", which was to set promise \"result\" (from {}), dropped its producer without a value",
                at.rsplit_once(':').unwrap().0
            );
            let before_column = text.split(')').next().unwrap().to_owned();
            for wait in &mut waits {
                let error = wait.ready().unwrap_err();
                assert!(error.is_closed() && error.to_string().starts_with(&before_column), "{error}");
                assert_says(&error.to_string(), &["dropped its producer without a value"]);
            }
            // And to all who come later, whatever they want.
            let errors = [promise.wait_blocking().unwrap_err(), promise.producer(&child).unwrap_err(), promise.produce().unwrap_err()];
            assert!(errors.iter().all(|error| error.is_closed() && error.to_string().starts_with("broken promise")), "{errors:?}");
            assert_eq!((promise.get(), promise.set(1), promise.cancel(), promise.is_cancelled()), (None, Err(1), false, false));
            assert!(format!("{promise:?}").contains("<broken>"));
            drop(waits);
            assert!(promise.into_inner().is_none());
            assert_idle(&domain);
        }
        // Where nobody is known, nobody is named; nor where nothing is.
        let nameless = Promise::<u8>::new().in_domain(&domain);
        if let Ok(producer) = std::thread::scope(|scope| scope.spawn(|| nameless.produce()).join().unwrap()) {
            drop(producer);
        }
        assert_says(&nameless.wait().await.unwrap_err().to_string(), &["broken promise: thread ", "was to set the promise (from "]);
    });
    let (nobodys, runtime) = (Promise::<u8>::new(), tokio::runtime::Builder::new_current_thread().build().unwrap());
    runtime.block_on(async { drop(nobodys.produce()) });
    let whoever = if cfg!(feature = "tokio") { "broken promise: whoever was to set the promise" } else { "broken promise: thread" };
    assert!(nobodys.wait_blocking().unwrap_err().to_string().starts_with(whoever));
}

#[test]
fn cancelled_by_anybody() {
    everywhere(|| async {
        let (domain, _) = domain();
        let writer = worker("writer", 1);
        for produced in [false, true] {
            let promise = promise(&domain);
            let producer = produced.then(|| promise.producer(&writer).unwrap());
            let mut waits = Hand::by(&worker("high", 9), promise.wait()).waiting();
            assert_eq!(writer.effective_priority(), if produced { 9 } else { 1 });
            assert!(!promise.is_cancelled() && promise.cancel() && !promise.cancel() && promise.is_cancelled());
            // Nobody needs it any more.
            assert_eq!((writer.effective_priority(), waits.wakes()), (1, 1));
            let error = waits.ready().unwrap_err();
            assert_eq!((error.is_closed(), error.to_string().as_str()), (true, "promise \"result\" was cancelled"));
            if let Some(producer) = producer {
                assert!(producer.is_cancelled());
                producer.transfer_to(&worker("heir", 0));
                assert_eq!(producer.set(7), Err(7));
            }
            let errors = [promise.wait().await.unwrap_err(), promise.producer(&writer).unwrap_err()];
            assert!(errors.iter().all(|error| error.is_closed() && error.to_string().ends_with("was cancelled")), "{errors:?}");
            assert_eq!((promise.set(7), promise.get()), (Err(7), None));
            assert!(format!("{promise:?}").contains("<cancelled>"));
            drop(waits);
            assert_idle(&domain);
        }
        // Too late for one that is set; and a producer that goes after that breaks nothing.
        let promise = promise(&domain);
        promise.set(1).unwrap();
        assert_eq!((promise.cancel(), promise.get()), (false, Some(&1)));
        let promise = self::promise(&domain);
        let producer = promise.producer(&writer).unwrap();
        assert!(promise.cancel());
        drop(producer);
        assert!(promise.is_cancelled());
        assert_idle(&domain);
    });
}

#[test]
fn once_and_by_one() {
    let (domain, _) = domain();
    let (first, second) = (worker("first", 0), worker("second", 0));
    let promise = Arc::new(promise(&domain));
    let producer = promise.producer_owned(&first).unwrap();
    let refused = [promise.producer(&second).map(drop), promise.producer_owned(&first).map(drop), promise.produce().map(drop)];
    for error in refused.into_iter().map(Result::unwrap_err) {
        assert!(error.is_invalid());
        assert_says(&error.to_string(), &["worker \"first\" produces promise \"result\" already (from ", "transfer_to()"]);
    }
    // It is the producer's business.
    assert_eq!((promise.set(9), promise.get()), (Err(9), None));
    producer.set(1).unwrap();
    assert_eq!((promise.set(9), promise.get()), (Err(9), Some(&1)));
    let error = promise.produce_owned().unwrap_err();
    assert_eq!((error.is_invalid(), error.to_string().starts_with("promise \"result\" is over already")), (true, true));
    assert_eq!(Arc::into_inner(promise).unwrap().into_inner(), Some(1));
    assert_idle(&domain);
    assert_eq!(format!("{:?}", Promise::<u8>::default()), "Promise { name: None, value: <unset>, .. }");
}

/// A value that has come by the time the wait looks is what it gets, whether or not its time was over before.
#[test]
fn case_p10_expiry_against_set() {
    for set_at in [99, 100] {
        let clock = Still::default();
        let domain = Domain::builder().clock(clock.clone()).build();
        let promise = promise(&domain);
        let mut waits = Hand::by(&worker("w", 0), promise.wait().timeout(ms(100))).waiting();
        let mut told = Hand::by(&worker("told", 0), promise.wait().timeout(ms(50))).waiting();
        clock.set(ms(50));
        domain.expire();
        let error = told.ready().unwrap_err();
        assert_eq!((error.is_timeout(), error.to_string().as_str()), (true, "promise \"result\" was not set in time"));
        clock.set(ms(set_at));
        if set_at == 100 {
            domain.expire();
            assert_eq!(waits.wakes(), 1);
        }
        promise.set(7).unwrap();
        clock.set(ms(150));
        assert_eq!(waits.ready().unwrap(), &7);
        drop((waits, told));
        assert_idle(&domain);
    }
}

#[test]
fn values_come_and_go_once() {
    /// Counts those that live.
    struct Counted<'a>(&'a AtomicUsize);
    impl<'a> Counted<'a> {
        fn new(count: &'a AtomicUsize) -> Counted<'a> {
            count.fetch_add(1, Ordering::Relaxed);
            Counted(count)
        }
    }
    impl Drop for Counted<'_> {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
    let count = AtomicUsize::new(0);
    let promise = Promise::new();
    assert!(promise.set(Counted::new(&count)).is_ok());
    assert!(promise.set(Counted::new(&count)).is_err());
    assert_eq!(count.load(Ordering::Relaxed), 1);
    drop(promise);
    assert_eq!(count.load(Ordering::Relaxed), 0);
    let promise = Promise::new();
    assert!(promise.produce().unwrap().set(Counted::new(&count)).is_ok());
    drop(promise.into_inner().unwrap());
    assert_eq!(count.load(Ordering::Relaxed), 0);
    let promise = Promise::new();
    let producer = promise.produce().unwrap();
    assert!(promise.cancel());
    drop(producer.set(Counted::new(&count)));
    assert_eq!(count.load(Ordering::Relaxed), 0);
}

/// Behind a forgotten producer one can only be out of time, and who looks sees its line.
#[test]
fn case_f15_forgotten_producer() {
    let (domain, clock) = domain();
    let promise = promise(&domain);
    let (producer, at) = (promise.producer(&worker("careless", 0)).unwrap(), line());
    forget(producer);
    let mut late = Hand::by(&worker("w", 0), promise.wait().timeout(ms(10))).waiting();
    let snapshot = domain.snapshot();
    let site = snapshot.locks[0].holders[0].site.as_deref().unwrap();
    assert!(at.starts_with(site), "{site} {at}");
    clock.advance(ms(10));
    while late.wakes() == 0 {
        std::thread::yield_now();
    }
    assert!(late.ready().unwrap_err().is_timeout());
    drop(late);
    // Whoever gives up on it can say so.
    assert!(promise.cancel());
    assert_idle(&domain);
}

#[test]
fn case_f05_cancel_storm() {
    const ROUNDS: u64 = if cfg!(miri) { 10 } else { 1250 };
    let seed = seed();
    println!("HEIRLOCK_SEED={seed}");
    let domain = Domain::builder().build();
    let promises: Arc<Vec<Promise<u64>>> = Arc::new((0..ROUNDS).map(|_| Promise::new().in_domain(&domain)).collect());
    let counts = Arc::new([(); 3].map(|()| AtomicUsize::new(0)));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let workers: Vec<Worker> = (0..8).map(|at| worker("w", at % 3)).collect();
    runtime.block_on(async {
        let tasks = (0_u64..).zip(&workers).map(|(task, worker)| {
            let (promises, counts, mut random) = (Arc::clone(&promises), Arc::clone(&counts), Random::new(seed, task));
            tokio::spawn(worker.run(async move {
                let count = |which: usize| {
                    counts[which].fetch_add(1, Ordering::Relaxed);
                };
                for promise in promises.iter() {
                    // Some produce, some of these give up; some cancel; most wait, for some time.
                    match random.within(0, 10) {
                        0..2 => {
                            let Ok(producer) = promise.produce() else { continue };
                            for _ in 0..random.within(0, 4) {
                                pause().await;
                            }
                            if random.chance(70) && producer.set(task).is_ok() {
                                count(0);
                            }
                        }
                        2 if random.chance(30) => drop(promise.cancel()),
                        _ => {
                            let mut wait = promise.wait().timeout(ms(random.within(0, 3)));
                            for _ in 0..random.within(0, 5) {
                                if let Poll::Ready(result) = once(&mut wait).await {
                                    match result {
                                        Ok(value) => assert_eq!(Some(value), promise.get()),
                                        Err(error) if error.is_closed() => count(1),
                                        Err(error) if error.is_timeout() => count(2),
                                        Err(error) => panic!("{error}"),
                                    }
                                    break;
                                }
                                pause().await;
                            }
                        }
                    }
                }
            }))
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
    });
    let [set, closed, late] = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
    println!("{set} set, {closed} told of none, {late} late");
    assert!(set > 0 && closed > 0);
    assert_eq!(promises.iter().filter(|promise| promise.get().is_some()).count(), set);
    // What nobody has undertaken is still open.
    for promise in promises.iter() {
        promise.cancel();
    }
    assert_idle(&domain);
    for worker in &workers {
        assert_eq!(worker.effective_priority(), worker.base_priority());
    }
}

/// A promise that is settled stays so where it moves.
#[test]
fn a_settled_promise_that_moves() {
    let (domain, _) = domain();
    let tracks = Domain::builder().warn_after(ms(3_600_000)).build();
    for ends in [|promise: &Promise<u32>| promise.set(1).is_ok(), |promise: &Promise<u32>| promise.cancel()] {
        let settled = promise(&domain);
        assert!(ends(&settled));
        let settled = settled.in_domain(&tracks).in_domain(&domain).in_domain(&tracks);
        assert_eq!(Hand::by(&worker("w", 1), settled.wait()).ready().ok(), settled.get());
        assert!(settled.producer(&worker("late", 1)).is_err() && settled.set(2).is_err());
        drop(settled);
        assert_idle(&tracks);
    }
}
