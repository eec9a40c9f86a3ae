//! Cells: the cases that concern them, by number, and what no case says.
//!
//! Under its type a cell that is empty is a `Mutex`, held by who makes the value, so what a queue does is tested with that. Here is what a cell adds:
//! that the others go on at once when there is a value, and one after the other tries when an attempt ends without.
//!
//! `cases.rs` has the table of the cases. F01 to F05, F07, F09, F15 and F17 are in `once_futures.rs`.

use std::future::{pending, ready};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::local::{assert_idle, cell, domain, ms, worker};
use crate::common::polls::{Hand, assert_says, everywhere, in_tasks, pause};
use heirlock::Worker;
use heirlock::local::{Domain, Mutex, OnceCell};

/// An attempt of this worker that goes on for ever.
fn making<'a>(worker: &'a Worker, cell: &'a OnceCell<u32>) -> Hand<'a, heirlock::Result<&'a u32>> {
    Hand::by(worker, cell.get_or_init(pending)).waiting()
}

/// An attempt of this worker, whose turn has not yet come, that succeeds at once.
fn behind<'a>(worker: &'a Worker, cell: &'a OnceCell<u32>, value: u32) -> Hand<'a, heirlock::Result<&'a u32>> {
    Hand::by(worker, cell.get_or_init(move || ready(value))).waiting()
}

#[test]
fn case_p02_p03_boosts_of_who_makes_it() {
    everywhere(|| async {
        let (domain, _, cell) = cell();
        let other = Mutex::new(()).in_domain(&domain);
        let (maker, high, mid) = (worker("maker", 10), worker("high", 50), worker("mid", 30));
        let held = Hand::by(&maker, other.lock()).ready().unwrap();
        let (done, is_done) = tokio::sync::oneshot::channel();
        let mut making_it = Hand::by(&maker, cell.get_or_init(async || is_done.await.unwrap())).waiting();
        let high_waits = behind(&high, &cell, 0);
        let (mut mid_waits, mid_too) = (behind(&mid, &cell, 0), Hand::by(&mid, other.lock().priority(20)).waiting());
        assert_eq!(maker.effective_priority(), 50);
        drop(high_waits);
        assert_eq!(maker.effective_priority(), 30);
        done.send(7).unwrap();
        assert_eq!(making_it.ready().unwrap(), &7);
        assert_eq!((maker.effective_priority(), mid_waits.wakes()), (20, 1));
        assert_eq!(mid_waits.ready().unwrap(), &7);
        drop((mid_too, held));
        assert_idle(&domain);
    });
}

#[test]
fn case_p09_deadlock() {
    everywhere(|| async {
        let (domain, _, cell) = cell();
        let lock = Mutex::named("lock", ()).in_domain(&domain);
        let (t1, t2) = (worker("t1", 0), worker("t2", 0));
        let guard = Hand::by(&t2, lock.lock()).ready().unwrap();
        let mut first = Hand::by(&t1, cell.get_or_try_init(async || lock.lock().await.map(|_| 1))).waiting();
        let error = Hand::by(&t2, cell.get_or_init(async || 2)).ready().unwrap_err();
        assert!(error.is_deadlock());
        let ways = [
            r#"deadlock: worker "t2" waits for lock "cell""#,
            r#"held by worker "t1""#,
            r#"which waits for lock "lock""#,
            r#"held by worker "t2""#,
        ];
        assert_says(&error.to_string(), &ways);
        drop(guard);
        assert_eq!(first.ready().unwrap(), &1);
        assert_idle(&domain);
    });
}

#[test]
fn case_p10_p20_time_that_is_over() {
    everywhere(|| async {
        for set_at in [99, 100] {
            let (domain, clock, cell) = cell();
            let (maker, waiter) = (worker("maker", 0), worker("waiter", 0));
            let (done, is_done) = tokio::sync::oneshot::channel();
            let mut making_it = Hand::by(&maker, cell.get_or_init(async || is_done.await.unwrap())).waiting();
            let error = Hand::by(&waiter, cell.get_or_init(async || 2).timeout(Duration::ZERO)).ready().unwrap_err();
            assert!(error.is_timeout());
            assert!(Hand::by(&waiter, cell.get_or_init(async || 2).deadline(Instant::now())).ready().unwrap_err().is_timeout());
            let mut late = Hand::by(&waiter, cell.get_or_init(async || 2).timeout(ms(100))).waiting();
            clock.advance(ms(set_at));
            while set_at == 100 && late.wakes() == 0 {
                std::thread::yield_now();
            }
            if set_at == 100 {
                // Also of one whose time is over it is told, if it has come by then.
                let mut told = Hand::by(&worker("other", 0), cell.get_or_init(async || 3).timeout(ms(5))).waiting();
                assert_eq!(late.ready().unwrap_err().to_string(), "lock \"cell\" was not free in time");
                clock.advance(ms(5));
                while told.wakes() == 0 {
                    std::thread::yield_now();
                }
                done.send(1).unwrap();
                assert_eq!(making_it.ready().unwrap(), &1);
                assert_eq!(told.ready().unwrap(), &1);
            } else {
                done.send(1).unwrap();
                assert_eq!(making_it.ready().unwrap(), &1);
                clock.advance(ms(51));
                assert_eq!(late.ready().unwrap(), &1);
            }
            assert_eq!(Hand::by(&waiter, cell.get_or_init(pending).timeout(Duration::ZERO)).ready().unwrap(), &1);
            assert_idle(&domain);
        }
    });
}

#[test]
fn case_p11_f13_turns_are_passed_on() {
    everywhere(|| async {
        let (domain, _, cell) = cell();
        let [first, second, third, fourth] = ["first", "second", "third", "fourth"].map(|name| worker(name, 0));
        let making_it = making(&first, &cell);
        let mut fails = Hand::by(&second, cell.get_or_try_init(async || Err::<u32, _>(failure()))).waiting();
        let (third_waits, mut fourth_waits) = (behind(&third, &cell, 3), behind(&fourth, &cell, 4));
        // Cancelled, failed, given the turn and dropped.
        drop(making_it);
        assert_eq!((fails.wakes(), third_waits.wakes(), fourth_waits.wakes()), (1, 0, 0));
        assert!(fails.ready().unwrap_err().is_closed());
        assert_eq!((third_waits.wakes(), fourth_waits.wakes()), (1, 0));
        drop(third_waits);
        assert_eq!(fourth_waits.wakes(), 1);
        assert!(cell.get().is_none());
        assert_eq!(fourth_waits.ready().unwrap(), &4);
        assert_eq!(cell.get(), Some(&4));
        assert_idle(&domain);
    });
}

fn failure() -> heirlock::Error {
    heirlock::Error::new(heirlock::Kind::Closed, "on purpose")
}

/// All at once, not one after the other: nobody's turn is waited for.
#[test]
fn whoever_waits_goes_on_at_once() {
    everywhere(|| async {
        let (domain, _, cell) = cell();
        let maker = worker("maker", 0);
        let (done, is_done) = tokio::sync::oneshot::channel();
        let mut making_it = Hand::by(&maker, cell.get_or_init(async || is_done.await.unwrap())).waiting();
        let workers: Vec<Worker> = (0..50).map(|at| worker("w", at)).collect();
        let mut all: Vec<_> = workers.iter().map(|worker| behind(worker, &cell, 0)).collect();
        done.send(5).unwrap();
        assert_eq!(making_it.ready().unwrap(), &5);
        assert!(all.iter().all(|wait| wait.wakes() == 1));
        // Nothing is left of them before they are polled, so any may be first, or none.
        assert_eq!(domain.records()[5..], [0, 0]);
        drop(all.split_off(25));
        for wait in all.iter_mut().rev() {
            assert_eq!(wait.ready().unwrap(), &5);
        }
        drop(all);
        assert_idle(&domain);
    });
}

#[test]
fn case_f06_join_arms() {
    async fn arms() -> [heirlock::Result<u32>; 2] {
        let (_, _, cell) = cell();
        let arm = async |value| {
            let make = async || {
                pause().await;
                value
            };
            cell.get_or_init(make).await.copied()
        };
        let (first, second) = tokio::join!(arm(1), arm(2));
        [first, second]
    }
    in_tasks(|| async {
        let [first, second] = arms().await;
        assert_eq!(first.unwrap(), second.unwrap());
    });
    let [first, second] = pollster::block_on(Worker::new("w").run(arms()));
    assert_eq!(first.unwrap(), 1);
    assert!(second.unwrap_err().is_deadlock());
}

/// One worker that asks for the cell within its own initialisation.
#[test]
fn case_f06_within_its_own_initialisation() {
    everywhere(|| async {
        let (domain, _, cell) = cell();
        let worker = worker("w", 0);
        let within = async || cell.get_or_init(async || 1).await.copied();
        let error = Hand::by(&worker, cell.get_or_try_init(within)).ready().unwrap_err();
        assert!(error.is_deadlock());
        assert_says(&error.to_string(), &[r#"deadlock: worker "w" waits for lock "cell""#, "which it holds itself"]);
        assert_idle(&domain);
        assert_eq!(Hand::by(&worker, cell.get_or_init(async || 2)).ready().unwrap(), &2);
    });
}

#[test]
fn case_f08_outside_a_task() {
    let (domain, _, cell) = cell();
    let within = async || cell.get_or_init(async || 1).timeout(Duration::ZERO).await.copied();
    assert!(pollster::block_on(cell.get_or_try_init(within)).unwrap_err().is_timeout());
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..8)
            .map(|at| {
                scope.spawn({
                    let cell = &cell;
                    move || *pollster::block_on(cell.get_or_init(async || at)).unwrap()
                })
            })
            .collect();
        let values: Vec<u32> = all.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!(values.iter().all(|value| Some(value) == cell.get()), "{values:?}");
    });
    assert_idle(&domain);
}

#[test]
fn case_f11_an_attempt_that_moves_to_another_thread() {
    let (domain, _, cell) = cell();
    let (low, high) = (worker("low", 1), worker("high", 8));
    let (done, is_done) = tokio::sync::oneshot::channel();
    let mut making_it = Hand::by(&low, cell.get_or_init(async || is_done.await.unwrap())).waiting();
    let mut waits = behind(&high, &cell, 0);
    done.send(3).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(making_it.ready().unwrap(), &3));
    });
    assert_eq!((low.effective_priority(), waits.ready().unwrap()), (1, &3));
    assert_idle(&domain);
}

#[test]
fn case_f12_panics_leave_the_next_to_try() {
    everywhere(|| async {
        let (domain, _, cell) = cell();
        let [first, second, third] = ["first", "second", "third"].map(|name| worker(name, 0));
        // In the closure, at a later poll, and of a future that is kept after that.
        assert!(
            catch_unwind(AssertUnwindSafe(
                || Hand::by(&first, cell.get_or_init(|| -> std::future::Ready<u32> { panic!("on purpose") })).poll()
            ))
            .is_err()
        );
        assert_idle(&domain);
        let mut panics = Hand::by(
            &second,
            cell.get_or_init(async || {
                pause().await;
                panic!("on purpose")
            }),
        )
        .waiting();
        let mut next = behind(&third, &cell, 3);
        assert!(catch_unwind(AssertUnwindSafe(|| panics.poll())).is_err());
        assert_eq!(next.wakes(), 1);
        assert_eq!(next.ready().unwrap(), &3);
        assert!(catch_unwind(AssertUnwindSafe(|| panics.poll())).is_err());
        drop(panics);
        assert_idle(&domain);
    });
}

#[test]
fn set_is_refused_while_somebody_makes_it() {
    let (domain, _, cell) = cell();
    let [first, second] = ["first", "second"].map(|name| worker(name, 0));
    let making_it = making(&first, &cell);
    let mut waits = behind(&second, &cell, 2);
    assert_eq!((cell.set(9), cell.get()), (Err(9), None));
    drop(making_it);
    // It is the other's turn.
    assert_eq!(cell.set(9), Err(9));
    assert_eq!(waits.ready().unwrap(), &2);
    assert_eq!(cell.set(9), Err(9));
    assert_idle(&domain);
    // Who waits goes on when it is set, too.
    let cell = OnceCell::new().in_domain(&domain);
    let sets = Hand::by(&first, async { cell.set(1) }).ready();
    assert_eq!((sets, Hand::by(&second, cell.get_or_init(pending)).ready().unwrap()), (Ok(()), &1));
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
    let mut cell = OnceCell::new();
    assert!(cell.get_mut().is_none() && cell.take().is_none());
    assert!(cell.set(Counted::new(&count)).is_ok());
    assert!(cell.set(Counted::new(&count)).is_err());
    assert!(cell.get_mut().is_some());
    assert_eq!(count.load(Ordering::Relaxed), 1);
    drop(cell.take());
    assert_eq!(count.load(Ordering::Relaxed), 0);
    assert!(cell.get().is_none());
    assert!(pollster::block_on(cell.get_or_init(async || Counted::new(&count))).is_ok());
    drop(cell);
    assert_eq!(count.load(Ordering::Relaxed), 0);
    let cell = OnceCell::from(Counted::new(&count));
    assert!(cell.get().is_some());
    drop(cell.into_inner().unwrap());
    drop(OnceCell::<Counted<'_>>::new_with(None));
    assert_eq!(count.load(Ordering::Relaxed), 0);
    assert!(OnceCell::<u8>::default().into_inner().is_none());
    assert_eq!(format!("{:?}", OnceCell::from(3)), "OnceCell { name: None, value: 3, .. }");
}

/// Dropped by a panic of somebody else, in whatever state.
#[test]
fn dropped_while_panicking() {
    let (domain, _, cell) = cell();
    let [first, second] = ["first", "second"].map(|name| worker(name, 0));
    let mut waits = None;
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let _makes = making(&first, &cell);
        waits = Some(behind(&second, &cell, 2));
        panic!("on purpose");
    }));
    assert!(caught.is_err());
    assert_eq!(waits.as_mut().unwrap().ready().unwrap(), &2);
    drop(waits);
    assert_idle(&domain);
}

/// A cell that has its value is over: so it stays where it moves, and it begins anew when the value is taken.
#[test]
fn a_cell_that_is_set_and_taken_from() {
    let (domain, _) = domain();
    let tracks = Domain::builder().warn_after(ms(3_600_000)).build();
    let (worker, other) = (worker("makes", 1), worker("waits", 9));
    for in_domain in [&domain, &tracks] {
        let set = OnceCell::named("cell").in_domain(in_domain);
        set.set(1).unwrap();
        for cell in [set, OnceCell::new_with(Some(1)).in_domain(in_domain), OnceCell::from(1).in_domain(&domain).in_domain(in_domain)] {
            let mut cell = cell.in_domain(&domain).in_domain(in_domain);
            assert_eq!((cell.set(2), cell.get()), (Err(2), Some(&1)));
            assert_eq!(*Hand::by(&worker, cell.get_or_init(async || 3)).ready().unwrap(), 1);
            assert_eq!((cell.take(), cell.take()), (Some(1), None));
            let mut makes = Hand::by(&worker, cell.get_or_init(pause_and_make)).waiting();
            let mut waits = Hand::by(&other, cell.get_or_init(async || 5)).waiting();
            assert_eq!(worker.effective_priority(), 9);
            assert_eq!((*makes.ready().unwrap(), *waits.ready().unwrap()), (4, 4));
            drop((makes, waits));
            assert_eq!(worker.effective_priority(), 1);
            drop(cell);
            assert_idle(in_domain);
        }
    }
}

async fn pause_and_make() -> u32 {
    pause().await;
    4
}
