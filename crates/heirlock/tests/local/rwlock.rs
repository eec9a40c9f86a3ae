//! Readers that are abandoned, cancelled, forgotten: cases by number. Writers alone are in `futures.rs`; who the reader is, in
//! `rwlock_workers.rs`; what no case says, in `rwlock_rules.rs`. `cases.rs` has the table.

use std::mem::forget;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use crate::common::inside::Inside;
use crate::common::local::{assert_idle, domain, end_doubt, holders, ms, shared, worker};
use crate::common::polls::{Hand, everywhere, once, pause};
use crate::common::random::{Random, seed};
use heirlock::Worker;
use heirlock::clock::Clock;
use heirlock::local::{Domain, RwLock};

#[test]
fn case_f01_abandoned_future_a() {
    everywhere(|| async {
        let (domain, _, lock) = shared();
        let guard = Hand::by(&worker("holder", 0), lock.write()).ready().unwrap();
        let mut abandoned = lock.read();
        assert!(once(&mut abandoned).await.is_pending());
        drop(guard);
        assert_eq!(*lock.read().await.unwrap(), 0);
        // It was displaced, and is as good as new: one level each time, not two.
        assert_eq!(*abandoned.await.unwrap(), 0);
        assert!(!lock.is_locked());
        assert_idle(&domain);
    });
}

/// It was granted to read, and its task would write. One line of work does not want both; of arms that are not told apart one may read before long.
#[test]
fn case_f01_abandoned_by_who_then_writes() {
    everywhere(|| async {
        let (domain, clock, lock) = shared();
        let bare = Worker::current().is_none();
        let guard = Hand::by(&worker("holder", 0), lock.write()).ready().unwrap();
        let mut abandoned = lock.read();
        assert!(once(&mut abandoned).await.is_pending());
        drop(guard);
        let mut writes = lock.write();
        match once(&mut writes).await {
            Poll::Ready(guard) => *guard.unwrap() += 1,
            Poll::Pending => {
                assert!(bare);
                end_doubt(&domain, &clock);
                *writes.await.unwrap() += 1;
            }
        }
        assert_eq!(*abandoned.await.unwrap(), 1);
        // And the other way round.
        let guard = Hand::by(&worker("holder", 0), lock.write()).ready().unwrap();
        let mut abandoned = lock.write();
        assert!(once(&mut abandoned).await.is_pending());
        drop(guard);
        let mut reads = lock.read();
        match once(&mut reads).await {
            Poll::Ready(guard) => assert_eq!(*guard.unwrap(), 1),
            Poll::Pending => {
                assert!(bare);
                end_doubt(&domain, &clock);
                assert_eq!(*reads.await.unwrap(), 1);
            }
        }
        *abandoned.await.unwrap() += 1;
        assert_eq!(*lock.read().await.unwrap(), 2);
        assert!(!lock.is_locked());
        assert_idle(&domain);
    });
}

#[test]
fn case_f02_abandoned_future_b() {
    everywhere(|| async {
        let (domain, clock, lock) = shared();
        // Of readers, who are granted the lock at once; and of a reader before a writer, who has it all the same.
        for writes in [false, true] {
            let guard = Hand::by(&worker("holder", 0), lock.write()).ready().unwrap();
            let mut f1 = lock.read();
            assert!(once(&mut f1).await.is_pending());
            if writes {
                let mut f2 = lock.write();
                assert!(once(&mut f2).await.is_pending());
                drop(guard);
                if let Poll::Ready(guard) = once(&mut f2).await {
                    *guard.unwrap() += 1;
                } else {
                    end_doubt(&domain, &clock);
                    *f2.await.unwrap() += 1;
                }
            } else {
                let mut f2 = lock.read();
                assert!(once(&mut f2).await.is_pending());
                drop(guard);
                assert_eq!(*f2.await.unwrap(), 0);
            }
            // Nobody waits for long because of f1: what both were granted may still be wanted.
            let mut other = Hand::by(&worker("other", 0), lock.write());
            if let Poll::Ready(guard) = other.poll() {
                drop(guard.unwrap());
            } else {
                assert!(!writes);
                end_doubt(&domain, &clock);
                assert!(other.poll().is_pending());
                other.woken(2);
                drop(other.ready().unwrap());
            }
            drop(f1);
            assert_idle(&domain);
        }
    });
}

#[test]
fn case_f03_select_in_a_loop() {
    everywhere(|| async {
        let (domain, _, lock) = shared();
        let mut guard = Some(Hand::by(&worker("holder", 0), lock.write()).ready().unwrap());
        let mut f1 = lock.read();
        for round in 0.. {
            if let Poll::Ready(first) = once(&mut f1).await {
                drop(first.unwrap());
                assert_eq!(round, 1);
                break;
            }
            // As the arm of `select!` that was ready.
            guard = None;
            drop(lock.read().await.unwrap());
        }
        assert!(guard.is_none());
        assert_idle(&domain);
    });
}

/// Two readers of two tasks, both granted the lock and polled no more; behind them one writes.
#[test]
fn case_f04_abandoned_by_other_tasks() {
    everywhere(|| async {
        let (domain, clock, lock) = shared();
        let lock = Arc::new(lock);
        let guard = Hand::by(&worker("holder", 0), lock.write()).ready().unwrap();
        let mut kept = ["r1", "r2"].map(|name| Hand::by(&worker(name, 0), lock.read()).waiting());
        let writes = std::thread::spawn({
            let (lock, clock) = (Arc::clone(&lock), clock.clone());
            move || {
                *lock.write_blocking().unwrap() += 1;
                clock.now()
            }
        });
        while domain.snapshot().locks[0].queue.len() < 3 {
            std::thread::yield_now();
        }
        let start = clock.now();
        drop(guard);
        for span in [Duration::ZERO, domain.stall_time().checked_sub(ms(1)).unwrap()] {
            clock.advance(span);
            domain.expire();
            assert_eq!(holders(&domain), ["r1", "r2"]);
        }
        // It takes no longer than it must: the clock stands from now on.
        clock.advance(ms(1));
        domain.expire();
        assert_eq!(writes.join().unwrap().since(start), domain.stall_time());
        // They believe nothing: they wait again, before who came after them.
        let guard = Hand::by(&worker("holder", 0), lock.write()).ready().unwrap();
        let mut later = Hand::by(&worker("later", 0), lock.write()).waiting();
        assert!(kept.iter_mut().all(|wait| wait.poll().is_pending()));
        drop(guard);
        let read = kept.each_mut().map(|wait| wait.ready().unwrap());
        assert_eq!((read.each_ref().map(|guard| **guard), later.wakes()), ([1, 1], 0));
        drop(read);
        drop(later.ready().unwrap());
        drop((kept, later));
        assert_idle(&domain);
    });
}

/// One of two goes before the writer comes for the lock: it has the other's all the same.
#[test]
fn case_f04_one_of_two_goes() {
    for first_goes in [true, false] {
        let (domain, clock, lock) = shared();
        let guard = Hand::by(&worker("holder", 0), lock.write()).ready().unwrap();
        let [first, second] = ["r1", "r2"].map(|name| Hand::by(&worker(name, 0), lock.read()).waiting());
        let mut writes = Hand::by(&worker("w", 0), lock.write()).waiting();
        drop(guard);
        domain.expire();
        clock.advance(domain.stall_time());
        domain.expire();
        writes.woken(1);
        let stays = if first_goes {
            drop(first);
            second
        } else {
            drop(second);
            first
        };
        // It takes over, and so is granted the lock.
        assert!(writes.poll().is_pending());
        assert_eq!(writes.wakes(), 2);
        drop(writes.ready().unwrap());
        drop((writes, stays));
        assert_idle(&domain);
    }
}

#[test]
fn case_f05_cancel_storm() {
    const EACH: u64 = if cfg!(miri) { 20 } else { 1250 };
    let seed = seed();
    println!("HEIRLOCK_SEED={seed}");
    for explicit in [true, false] {
        let domain = Domain::builder().build();
        // A count of writes, who is inside, and how often anybody was.
        let all = Arc::new((RwLock::new(0_u64).in_domain(&domain), Inside::default(), [const { AtomicU64::new(0) }; 3]));
        let acquires = |stream: u64| {
            let all = Arc::clone(&all);
            async move {
                let mut random = Random::new(seed, stream);
                let (lock, inside, [read, written, timed_out]) = &*all;
                for _ in 0..EACH {
                    let (priority, timeout) = (i32::try_from(random.within(0, 50)).unwrap(), Duration::from_micros(random.within(0, 300)));
                    let (hurries, writes) = (random.chance(30), random.chance(30));
                    // Dropped before it is polled, while it is queued, or when it was granted and does not know yet.
                    let polls = random.pick(&[0, 1, 1, 2, 3, 5, 1000]);
                    macro_rules! acquire {
                        ($mode:ident, $guard:ident, $visit:expr) => {{
                            let mut wait = lock.$mode().priority(priority);
                            if hurries {
                                wait = wait.timeout(timeout);
                            }
                            for _ in 0..polls {
                                match once(&mut wait).await {
                                    Poll::Pending => pause().await,
                                    Poll::Ready(Err(error)) => {
                                        assert!(error.is_timeout(), "{error}");
                                        timed_out.fetch_add(1, Ordering::Relaxed);
                                        break;
                                    }
                                    #[allow(unused_mut)]
                                    Poll::Ready(Ok(mut $guard)) => {
                                        inside.enter(writes);
                                        let before = *$guard;
                                        for _ in 0..random.index(3) {
                                            pause().await;
                                        }
                                        assert_eq!(*$guard, before);
                                        $visit;
                                        inside.leave(writes);
                                        break;
                                    }
                                }
                            }
                        }};
                    }
                    if writes {
                        acquire!(write, guard, {
                            *guard += 1;
                            written.fetch_add(1, Ordering::Relaxed);
                        });
                    } else {
                        acquire!(read, guard, read.fetch_add(1, Ordering::Relaxed));
                    }
                }
            }
        };
        let workers: Vec<Worker> = (0..8).map(|at| worker(format!("w{at}"), at)).collect();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let run = |(stream, worker): (u64, &Worker)| {
                let work = acquires(stream);
                if explicit { tokio::spawn(worker.run(work)) } else { tokio::spawn(work) }
            };
            let tasks: Vec<_> = (0..).zip(&workers).map(run).collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
        let (lock, _, [read, written, timed_out]) = &*all;
        let [read, written, timed_out] = [read, written, timed_out].map(|count| count.load(Ordering::Relaxed));
        println!("{read} read, {written} wrote, {timed_out} timed out");
        assert!(!lock.is_locked() && read > 0 && written > 0);
        assert_eq!(*lock.try_read().unwrap(), written);
        assert_idle(&domain);
        assert!(workers.iter().all(|worker| worker.effective_priority() == worker.base_priority()));
    }
}

#[test]
fn case_f13_lost_wake_up() {
    everywhere(|| async {
        let (domain, _, lock) = shared();
        let guard = Hand::by(&worker("holder", 0), lock.write()).ready().unwrap();
        let [gone, stays] = ["gone", "stays"].map(|name| Hand::by(&worker(name, 5), lock.read()).waiting());
        let mut writes = Hand::by(&worker("writes", 1), lock.write()).waiting();
        let mut late = Hand::by(&worker("late", 0), lock.read()).waiting();
        drop(guard);
        assert_eq!([&gone, &stays, &late].map(Hand::wakes), [1, 1, 0]);
        assert_eq!(writes.wakes(), 0);
        // Not before both have gone, whether they knew or not.
        let mut stays = stays;
        let guard = stays.ready().unwrap();
        drop(gone);
        assert_eq!(writes.wakes(), 0);
        drop(guard);
        assert_eq!((writes.wakes(), late.wakes()), (1, 0));
        // Nor is it lost that a writer does not come for it.
        assert!(writes.poll().is_ready());
        assert_eq!(late.wakes(), 1);
        drop(late.ready().unwrap());
        drop((stays, writes, late));
        assert_idle(&domain);
    });
}

/// The place of a writer that goes is nobody's: who was behind it is let in beside the readers.
#[test]
fn case_f13_a_writer_that_goes() {
    let (domain, clock, lock) = shared();
    let guard = Hand::by(&worker("holder", 0), lock.read()).ready().unwrap();
    for expires in [false, true] {
        let writes = Hand::by(&worker("writes", 0), lock.write().timeout(ms(5))).waiting();
        let mut behind = ["r1", "r2"].map(|name| Hand::by(&worker(name, 0), lock.read()).waiting());
        if expires {
            clock.advance(ms(5));
            domain.expire();
            writes.woken(1);
        }
        drop(writes);
        for wait in &behind {
            wait.woken(1);
        }
        drop(behind.each_mut().map(|wait| wait.ready().unwrap()));
        drop(behind);
        assert_idle(&domain);
    }
    drop(guard);
}

#[test]
fn case_f15_forgotten() {
    let (domain, clock) = domain();
    let [w1, w2, w3] = ["w1", "w2", "w3"].map(|name| worker(name, 0));
    let stalls = || {
        for _ in 0..2 {
            clock.advance(domain.stall_time());
            domain.expire();
        }
    };
    // A queued one: it is granted the lock beside the others, and whoever comes next takes over.
    let lock = RwLock::new(vec![1]).in_domain(&domain);
    let guard = Hand::by(&w1, lock.write()).ready().unwrap();
    forget(Hand::by(&w2, lock.read()).waiting());
    let mut waits = Hand::by(&w3, lock.write()).waiting();
    drop(guard);
    stalls();
    waits.woken(1);
    assert!(waits.poll().is_pending());
    waits.ready().unwrap().push(2);
    assert!(!lock.is_locked());
    drop(waits);
    // A granted one, with nobody behind it; then the lock moves and drops.
    let guard = Hand::by(&w1, lock.write()).ready().unwrap();
    forget(Hand::by(&w2, lock.read()).waiting());
    drop(guard);
    assert!(lock.is_locked());
    assert_eq!(holders(&domain), ["w2"]);
    drop(Box::new(lock));
    // What the first could still be told, were it ever polled: leaked as it is.
    let leaked = [0, 0, 1, 0, 0, 0, 0];
    assert_eq!(domain.records(), leaked);
    // A guard: who writes can only time out, and sees why; who reads need not care.
    let lock = RwLock::named("leaked", ()).in_domain(&domain);
    let line = line!() + 1;
    forget(Hand::by(&w1, lock.read()).ready().unwrap());
    drop(Hand::by(&w3, lock.read()).ready().unwrap());
    let mut late = Hand::by(&w2, lock.write().timeout(ms(1500))).waiting();
    stalls();
    let snapshot = domain.snapshot();
    assert_eq!(holders(&domain), ["w1"]);
    assert_eq!(snapshot.locks[0].holders[0].site, Some(format!("{}:{line}", file!())));
    assert!(late.ready().unwrap_err().is_timeout());
    drop(late);
    drop(Box::new(lock));
    assert_eq!(domain.records(), leaked);
}
