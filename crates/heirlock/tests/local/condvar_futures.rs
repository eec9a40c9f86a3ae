//! Waits for conditions that are abandoned, cancelled, forgotten, or many: cases by number. `cases.rs` has the table.

use std::mem::forget;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use crate::common::local::{assert_idle, ms, pair, worker};
use crate::common::polls::{Hand, everywhere, in_tasks, once, pause};
use crate::common::random::{Random, seed};
use heirlock::Worker;
use heirlock::clock::Clock;
use heirlock::local::{Condvar, Domain, Mutex, MutexGuard};

/// A wait of this worker, polled once.
fn waits<'a>(worker: &'a Worker, lock: &'a Mutex<u32>, changed: &'a Condvar) -> Hand<'a, heirlock::Result<MutexGuard<'a, u32>>> {
    Hand::by(worker, changed.wait(Hand::by(worker, lock.lock()).ready().unwrap())).waiting()
}

#[test]
fn case_f01_abandoned_future_a() {
    everywhere(|| async {
        let (domain, _, lock, changed) = pair();
        let mut abandoned = changed.wait(lock.lock().await.unwrap());
        assert!(once(&mut abandoned).await.is_pending());
        assert!(!lock.is_locked() && changed.notify_one());
        *changed.wait(lock.lock().await.unwrap()).await.unwrap() += 1;
        // Its notification was used up. It has its lock again when it is polled, to look for itself; and it passes nothing on.
        let other = waits(&worker("other", 0), &lock, &changed).wakes();
        *abandoned.await.unwrap() += 1;
        assert_eq!((*lock.try_lock().unwrap(), other), (2, 0));
        assert_idle(&domain);
    });
}

#[test]
fn case_f02_abandoned_future_b() {
    everywhere(|| async {
        let (domain, _, lock, changed) = pair();
        let mut f1 = changed.wait(lock.lock().await.unwrap());
        assert!(once(&mut f1).await.is_pending());
        let mut f2 = changed.wait(lock.lock().await.unwrap());
        assert!(once(&mut f2).await.is_pending());
        assert!(changed.notify_one());
        drop(f2.await.unwrap());
        // Nobody waits because of f1.
        let other = worker("other", -1);
        let mut other_waits = waits(&other, &lock, &changed);
        assert!(changed.notify_one());
        drop(other_waits.ready().unwrap());
        drop(f1);
        assert_idle(&domain);
    });
}

#[test]
fn case_f03_select_in_a_loop() {
    everywhere(|| async {
        let (domain, _, lock, changed) = pair();
        let mut f1 = changed.wait(lock.lock().await.unwrap());
        for round in 0.. {
            if let Poll::Ready(first) = once(&mut f1).await {
                drop(first.unwrap());
                assert_eq!(round, 1);
                break;
            }
            assert!(changed.notify_one());
            // As the arm of `select!` that was ready.
            drop(changed.wait(lock.lock().await.unwrap()).await.unwrap());
        }
        assert_idle(&domain);
    });
}

#[test]
fn case_f04_abandoned_by_another_task() {
    everywhere(|| async {
        let (domain, clock, lock, changed) = pair();
        let (lock, changed) = (Arc::new(lock), Arc::new(changed));
        let mut f1 = changed.wait(lock.lock().await.unwrap());
        assert!(once(&mut f1).await.is_pending());
        let second = std::thread::spawn({
            let (lock, changed, clock) = (Arc::clone(&lock), Arc::clone(&changed), clock.clone());
            move || {
                drop(changed.wait(lock.lock_blocking().unwrap()).blocking().unwrap());
                clock.now()
            }
        });
        // The second waits behind f1.
        while domain.records()[5] < 2 {
            std::thread::yield_now();
        }
        let start = clock.now();
        assert!(changed.notify_one());
        for span in [Duration::ZERO, domain.stall_time().checked_sub(ms(1)).unwrap()] {
            clock.advance(span);
            domain.expire();
            assert!(!second.is_finished());
            // The second still waits for the condition, and holds nothing.
            assert_eq!(domain.snapshot().locks.iter().map(|lock| lock.queue.len()).sum::<usize>(), 1);
        }
        // It takes no longer than it must: the clock stands from now on.
        clock.advance(ms(1));
        domain.expire();
        assert_eq!(second.join().unwrap().since(start), domain.stall_time());
        // It believes nothing: it gets the lock when it is free, to look for itself.
        let guard = Hand::by(&Worker::new("holder"), lock.lock()).ready().unwrap();
        assert!(once(&mut f1).await.is_pending());
        drop(guard);
        drop(f1.await.unwrap());
        assert_idle(&domain);
    });
}

#[test]
fn case_f05_cancel_storm() {
    const WAITS: u64 = if cfg!(miri) { 20 } else { 1250 };
    let seed = seed();
    println!("HEIRLOCK_SEED={seed}");
    let domain = Domain::builder().build();
    let state = Arc::new((Mutex::new(0_u64).in_domain(&domain), Condvar::new().in_domain(&domain)));
    let storm = move |task: u64, state: Arc<(Mutex<u64>, Condvar)>| async move {
        let mut random = Random::new(seed, task);
        let (lock, changed) = &*state;
        for _ in 0..WAITS {
            let mut guard = lock.lock().await.unwrap();
            *guard += 1;
            if random.chance(40) {
                changed.notify_one();
            }
            let mut waiting = changed.wait(guard).priority(i32::try_from(random.within(0, 3)).unwrap()).timeout(ms(random.within(0, 3)));
            // Dropped before its first poll, while it waits, when it was notified, while it waits for the lock, or at its end.
            for _ in 0..random.within(0, 6) {
                if once(&mut waiting).await.is_ready() {
                    break;
                }
                if random.chance(50) {
                    changed.notify_one();
                }
                pause().await;
            }
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..8).map(|task| tokio::spawn(Worker::new("w").run(storm(task, Arc::clone(&state))))).collect();
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert!(!state.0.is_locked() && !state.1.notify_one());
    assert_eq!(*state.0.try_lock().unwrap(), 8 * WAITS);
    assert_idle(&domain);
}

#[test]
fn case_f13_lost_wake_up() {
    everywhere(|| async {
        let (domain, _, lock, changed) = pair();
        let (notified, next, holder) = (worker("notified", 0), worker("next", 0), worker("holder", 0));
        for state in ["notified", "queued for the lock", "granted the lock"] {
            let mut first = waits(&notified, &lock, &changed);
            let mut second = waits(&next, &lock, &changed);
            let guard = Hand::by(&holder, lock.lock()).ready().unwrap();
            assert!(changed.notify_one());
            assert_eq!((first.wakes(), second.wakes()), (1, 0));
            let mut guard = Some(guard);
            if state != "notified" {
                assert!(first.poll().is_pending());
            }
            if state == "granted the lock" {
                guard = None;
                assert_eq!(first.wakes(), 2);
            }
            drop(first);
            drop(guard);
            assert_eq!(second.wakes(), 1, "{state}");
            drop(second.ready().unwrap());
            assert!(!lock.is_locked());
            assert_idle(&domain);
        }
        // With nobody behind it, it is gone.
        let first = waits(&notified, &lock, &changed);
        assert!(changed.notify_one());
        drop(first);
        drop(waits(&next, &lock, &changed));
        assert_idle(&domain);
    });
}

/// Random waits, notifications, polls and cancels, beside a plain list of who should have been told.
#[test]
fn case_f13_no_notification_is_lost() {
    let seed = seed();
    println!("HEIRLOCK_SEED={seed}");
    let (mut returned, mut passed_on) = (0, 0);
    for history in 0..if cfg!(miri) { 3 } else { 300 } {
        let mut random = Random::new(seed, history);
        let (domain, _, lock, changed) = pair();
        let workers: Vec<Worker> = (0..8).map(|at| worker(format!("w{at}"), 0)).collect();
        // Each with whether it should have been told.
        let mut all: Vec<(Hand<'_, _>, bool)> = Vec::new();
        let mut free: Vec<&Worker> = workers.iter().collect();
        let mut who: Vec<&Worker> = Vec::new();
        let pass = |all: &mut Vec<(Hand<'_, heirlock::Result<MutexGuard<'_, u32>>>, bool)>| {
            let next = all.iter_mut().find(|(_, told)| !told);
            next.map(|next| next.1 = true).is_some()
        };
        for _ in 0..60 {
            let at = random.index(all.len().max(1));
            match random.within(0, 4) {
                0 if !free.is_empty() => {
                    let worker = free.remove(0);
                    all.push((waits(worker, &lock, &changed), false));
                    who.push(worker);
                }
                1 => assert_eq!(changed.notify_one(), pass(&mut all)),
                2 if !all.is_empty() => {
                    // Somebody may have the lock, and the wait end while it waits for that.
                    let guard = random.chance(50).then(|| lock.try_lock().unwrap());
                    if guard.is_some() {
                        assert!(all[at].0.poll().is_pending());
                    }
                    let told = all[at].1;
                    if guard.is_some() && random.chance(50) {
                        drop(all.remove(at));
                        free.push(who.remove(at));
                        passed_on += usize::from(told && pass(&mut all));
                    }
                    drop(guard);
                    if let Some((wait, told)) = all.get_mut(at) {
                        let polled = wait.poll();
                        assert_eq!(polled.is_ready(), *told);
                        if let Poll::Ready(guard) = polled {
                            drop(guard.unwrap());
                            drop(all.remove(at));
                            free.push(who.remove(at));
                            returned += 1;
                        }
                    }
                }
                3 if !all.is_empty() => {
                    let (wait, told) = all.remove(at);
                    drop(wait);
                    free.push(who.remove(at));
                    passed_on += usize::from(told && pass(&mut all));
                }
                _ => {}
            }
        }
        for (mut wait, told) in all {
            assert_eq!(wait.wakes() > 0, told);
            if told {
                drop(wait.ready().unwrap());
            }
        }
        assert_idle(&domain);
    }
    println!("returned {returned}, passed on {passed_on}");
    assert!(returned > 0 && passed_on > 0);
}

#[test]
fn case_f15_forgotten() {
    let (domain, clock, lock, changed) = pair();
    let [w1, w2, w3] = ["w1", "w2", "w3"].map(Worker::new);
    // One that is notified and forgotten: the next has it after `stall_time`.
    forget(waits(&w1, &lock, &changed));
    let mut next = waits(&w2, &lock, &changed);
    assert!(changed.notify_one());
    while next.wakes() == 0 {
        clock.advance(domain.stall_time() / 2);
        std::thread::yield_now();
    }
    // It takes over, and so is notified.
    while next.poll().is_pending() {
        assert!(next.wakes() > 0);
    }
    drop(next);
    assert!(!lock.is_locked());
    // One that waits for its lock: who comes next takes that over.
    let mut queued = waits(&w1, &lock, &changed);
    let guard = Hand::by(&w3, lock.lock()).ready().unwrap();
    assert!(changed.notify_one() && queued.poll().is_pending());
    forget(queued);
    drop(guard);
    let mut next = Hand::by(&w2, lock.lock()).waiting();
    while next.wakes() == 0 {
        clock.advance(domain.stall_time() / 2);
        std::thread::yield_now();
    }
    while next.poll().is_pending() {
        assert!(next.wakes() > 0);
    }
    drop(next);
    // One that waits; then the condition moves and goes. And one that was never polled keeps its lock.
    forget(waits(&w1, &lock, &changed));
    let moved = Box::new(changed);
    let guard = Hand::by(&w3, lock.lock()).ready().unwrap();
    forget(moved.wait(guard));
    assert!(lock.is_locked());
    drop(moved);
    assert!(Hand::by(&w2, lock.lock().timeout(Duration::ZERO)).ready().unwrap_err().is_timeout());
    drop(lock);
}

#[test]
fn case_f17_bare_arms() {
    in_tasks(|| async {
        let (domain, _, lock, changed) = pair();
        let gone_on = AtomicUsize::new(0);
        let mut arms: Vec<_> = (0..100)
            .map(|_| {
                Hand::new(async {
                    let mut state = changed.wait_while(lock.lock().await.unwrap(), |state| *state == 0).await.unwrap();
                    let before = *state;
                    pause().await;
                    *state = before + 1;
                    gone_on.fetch_add(1, Ordering::Relaxed);
                })
            })
            .collect();
        for arm in &mut arms {
            assert!(arm.poll().is_pending());
        }
        *lock.lock().await.unwrap() = 1;
        assert_eq!(changed.notify_all(), 100);
        let mut rounds = 0;
        while gone_on.load(Ordering::Relaxed) < 100 {
            arms.retain_mut(|arm| arm.poll().is_pending());
            rounds += 1;
            assert!(rounds < 1000, "{} went on", gone_on.load(Ordering::Relaxed));
        }
        assert_eq!(*lock.try_lock().unwrap(), 101);
        drop(arms);
        assert_idle(&domain);
    });
}
