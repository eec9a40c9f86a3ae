//! Attempts at making a value that are abandoned, cancelled, forgotten, or many: cases by number. `cases.rs` has the table.

use std::future::{pending, ready};
use std::mem::forget;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use crate::common::local::{assert_idle, cell, ms, worker};
use crate::common::polls::{Hand, everywhere, in_tasks, once, pause};
use crate::common::random::{Random, seed};
use heirlock::Worker;
use heirlock::clock::Clock;
use heirlock::local::{Domain, OnceCell};

/// An attempt of this worker that goes on for ever.
fn making<'a>(worker: &'a Worker, cell: &'a OnceCell<u32>) -> Hand<'a, heirlock::Result<&'a u32>> {
    Hand::by(worker, cell.get_or_init(pending)).waiting()
}

/// An attempt of this worker, whose turn has not yet come, that succeeds at once.
fn behind<'a>(worker: &'a Worker, cell: &'a OnceCell<u32>, value: u32) -> Hand<'a, heirlock::Result<&'a u32>> {
    Hand::by(worker, cell.get_or_init(move || ready(value))).waiting()
}

fn failure() -> heirlock::Error {
    heirlock::Error::new(heirlock::Kind::Closed, "on purpose")
}

#[test]
fn case_f01_abandoned_future_a() {
    everywhere(|| async {
        let (domain, _, cell) = cell();
        let first = worker("first", 0);
        let making_it = making(&first, &cell);
        let mut abandoned = Box::pin(cell.get_or_init(async || 1));
        assert!(once(&mut abandoned).await.is_pending());
        drop(making_it);
        assert_eq!(cell.get_or_init(async || 2).await.unwrap(), &2);
        assert_eq!(abandoned.await.unwrap(), &2);
        assert_idle(&domain);
    });
}

#[test]
fn case_f02_abandoned_future_b() {
    everywhere(|| async {
        let (domain, _, cell) = cell();
        let [first, other] = ["first", "other"].map(|name| worker(name, 0));
        let making_it = making(&first, &cell);
        let mut f1 = Box::pin(cell.get_or_init(async || 1));
        let mut f2 = Box::pin(cell.get_or_try_init(async || Err::<u32, _>(failure())));
        assert!(once(&mut f1).await.is_pending() && once(&mut f2).await.is_pending());
        drop(making_it);
        assert!(f2.await.unwrap_err().is_closed());
        // Nobody waits because of f1.
        assert_eq!(Hand::by(&other, cell.get_or_init(async || 3)).ready().unwrap(), &3);
        drop(f1);
        assert_idle(&domain);
    });
}

#[test]
fn case_f03_select_in_a_loop() {
    everywhere(|| async {
        let (_, _, cell) = cell();
        let first = worker("first", 0);
        let mut making_it = Some(making(&first, &cell));
        let mut f1 = Box::pin(cell.get_or_init(async || 1));
        for round in 0.. {
            if let Poll::Ready(value) = once(&mut f1).await {
                assert_eq!((round, value.unwrap()), (1, &1));
                break;
            }
            // As the arm of `select!` that was ready.
            making_it = None;
            assert!(cell.get_or_try_init(async || Err::<u32, _>(failure())).await.unwrap_err().is_closed());
        }
        assert!(making_it.is_none());
    });
}

#[test]
fn case_f04_abandoned_by_another_task() {
    everywhere(|| async {
        let (domain, clock, cell) = cell();
        let cell = Arc::new(cell);
        let first = worker("first", 0);
        let making_it = making(&first, &cell);
        let mut f1 = Box::pin(cell.get_or_init(async || 1));
        assert!(once(&mut f1).await.is_pending());
        let second = std::thread::spawn({
            let (cell, clock) = (Arc::clone(&cell), clock.clone());
            move || {
                assert_eq!(pollster::block_on(cell.get_or_init(async || 2)).unwrap(), &2);
                clock.now()
            }
        });
        while domain.records()[5] < 2 {
            std::thread::yield_now();
        }
        let start = clock.now();
        drop(making_it);
        for span in [Duration::ZERO, domain.stall_time().checked_sub(ms(1)).unwrap()] {
            clock.advance(span);
            domain.expire();
            assert_eq!((cell.get(), domain.snapshot().locks[0].queue.len()), (None, 1));
        }
        // It takes no longer than it must: the clock stands from now on.
        clock.advance(ms(1));
        domain.expire();
        assert_eq!(second.join().unwrap().since(start), domain.stall_time());
        assert_eq!(f1.await.unwrap(), &2);
        assert_idle(&domain);
    });
}

#[test]
fn case_f05_cancel_storm() {
    const ROUNDS: u64 = if cfg!(miri) { 10 } else { 1250 };
    let seed = seed();
    println!("HEIRLOCK_SEED={seed}");
    let domain = Domain::builder().build();
    let cells: Arc<Vec<OnceCell<u64>>> = Arc::new((0..ROUNDS).map(|_| OnceCell::new().in_domain(&domain)).collect());
    let successes = Arc::new(AtomicUsize::new(0));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let tasks = (0..8).map(|task| {
            let (cells, successes, mut random) = (Arc::clone(&cells), Arc::clone(&successes), Random::new(seed, task));
            tokio::spawn(Worker::new("w").priority(i32::try_from(task % 3).unwrap()).run(async move {
                for cell in cells.iter() {
                    let fails = random.chance(30);
                    let successes = &successes;
                    let make = async move || {
                        pause().await;
                        if fails {
                            return Err(failure());
                        }
                        successes.fetch_add(1, Ordering::Relaxed);
                        Ok(task)
                    };
                    let mut attempt = Hand::new(cell.get_or_try_init(make).timeout(ms(random.within(0, 3))));
                    for _ in 0..random.within(0, 5) {
                        if attempt.poll().is_ready() {
                            break;
                        }
                        pause().await;
                    }
                }
            }))
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
    });
    assert_idle(&domain);
    let set = cells.iter().filter(|cell| cell.get().is_some()).count();
    println!("{set} of {} set", cells.len());
    // Each was made once and no more, and whatever was made is there.
    assert_eq!(successes.load(Ordering::Relaxed), set);
    assert!(set > 0);
    for cell in cells.iter() {
        let was_set = cell.get().is_some();
        assert_eq!((cell.set(0).is_ok(), cell.get().is_some()), (!was_set, true));
    }
}

/// Who makes the value awaits a child that needs it: who looks sees why nothing moves.
#[test]
fn case_f07_spawned_child() {
    let one = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let two = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for runtime in [one, two] {
        let (domain, _, cell) = cell();
        let cell = Arc::new(cell);
        let (parent, child) = (worker("parent", 0), worker("child", 0));
        let inner = Arc::clone(&cell);
        let child = child.run(async move { *inner.get_or_init(async || 1).await.unwrap() });
        runtime.block_on(async {
            let task =
                tokio::spawn(parent.run(async move { *cell.get_or_init(async || tokio::spawn(child).await.unwrap()).await.unwrap() }));
            while domain.snapshot().edges.is_empty() {
                pause().await;
            }
            let snapshot = domain.snapshot();
            let edges: Vec<_> = snapshot.edges.iter().map(|edge| (&*edge.from.name, &*edge.to.name, edge.lock.as_deref())).collect();
            assert_eq!(edges, [("child", "parent", Some("cell"))]);
            assert!(snapshot.suspected.is_empty(), "of the await, nothing is known");
            task.abort();
            assert!(task.await.is_err());
        });
    }
}

#[test]
fn case_f09_converging_waits_are_not_a_cycle() {
    everywhere(|| async {
        let domain = Domain::builder().build();
        let [top, left, right] = [(); 3].map(|()| OnceCell::<u32>::new().in_domain(&domain));
        let [end, w1, w2, start] = [0, 1, 2, 3].map(|at| worker(format!("w{at}"), at));
        let made = Hand::by(&end, top.get_or_init(pending)).waiting();
        let needs = async || Ok::<u32, heirlock::Error>(*top.get_or_init(async || 1).await? + 1);
        // From `start` by two ways to `end`.
        let mut makers = [Hand::by(&w1, left.get_or_try_init(needs)).waiting(), Hand::by(&w2, right.get_or_try_init(needs)).waiting()];
        let mut starts = [behind(&start, &left, 0), behind(&start, &right, 0)];
        assert_eq!(end.effective_priority(), 3);
        drop(made);
        // Both are as urgent as `start`: the first to come makes it.
        for maker in &mut makers {
            assert_eq!(maker.ready().unwrap(), &2);
        }
        for start in &mut starts {
            assert_eq!(start.ready().unwrap(), &2);
        }
        drop((starts, makers));
        assert_idle(&domain);
    });
}

#[test]
fn case_f15_forgotten() {
    let (domain, clock, cell) = cell();
    let [w1, w2, w3] = ["w1", "w2", "w3"].map(Worker::new);
    // One whose turn comes and who is forgotten.
    let making_it = making(&w1, &cell);
    forget(behind(&w2, &cell, 2));
    let mut next = behind(&w3, &cell, 3);
    drop(making_it);
    while next.wakes() == 0 {
        clock.advance(domain.stall_time() / 2);
        std::thread::yield_now();
    }
    let value = loop {
        if let Poll::Ready(value) = next.poll() {
            break *value.unwrap();
        }
    };
    assert_eq!(value, 3);
    drop(next);
    // One that is making: who waits can only time out; then the cell goes.
    let cell = OnceCell::named("leaked").in_domain(&domain);
    forget(making(&w1, &cell));
    let mut late = Hand::by(&w2, cell.get_or_init(async || 2).timeout(ms(10))).waiting();
    assert_eq!(cell.set(1), Err(1));
    clock.advance(ms(10));
    while late.wakes() == 0 {
        std::thread::yield_now();
    }
    assert!(late.ready().unwrap_err().is_timeout());
    drop(late);
    assert!(format!("{cell:?}").contains("<unset>"));
    drop(cell);
    assert_eq!(domain.records()[4..], [0, 0, 0]);
}

#[test]
fn case_f17_bare_arms() {
    in_tasks(|| async {
        let (domain, _, cell) = cell();
        let successes = AtomicUsize::new(0);
        let mut arms: Vec<_> = (0..100)
            .map(|_| {
                let make = async || {
                    pause().await;
                    successes.fetch_add(1, Ordering::Relaxed);
                    7
                };
                let cell = &cell;
                Hand::new(async move { *cell.get_or_init(make).await.unwrap() })
            })
            .collect();
        let mut rounds = 0;
        while !arms.is_empty() {
            arms.retain_mut(|arm| arm.poll().is_pending());
            rounds += 1;
            assert!(rounds < 1000);
        }
        assert_eq!((successes.load(Ordering::Relaxed), cell.get()), (1, Some(&7)));
        assert_idle(&domain);
    });
}
