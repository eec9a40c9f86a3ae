//! Barriers: the cases that are theirs alone, by number, and what no case says. What they have in common with events and promises is in
//! `awaited.rs`; `cases.rs` has the table.

use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use crate::common::local::{Still, assert_idle, domain, ms, worker};
use crate::common::polls::{Hand, everywhere, in_tasks, once, pause};
use crate::common::random::{Random, seed};
use heirlock::Worker;
use heirlock::local::{Arrival, Barrier, DeadlockPolicy, Domain, Mutex};

type Waits<'a> = Hand<'a, heirlock::Result<Arrival>>;

#[test]
fn the_last_to_come_leads_and_the_next_round_begins() {
    everywhere(|| async {
        let (domain, _) = domain();
        let barrier = Barrier::named("start", 3).in_domain(&domain);
        let mut kept: Vec<Waits<'_>> = Vec::new();
        for _ in 0..3 {
            let mut round: Vec<Waits<'_>> = (0..2).map(|_| Hand::new(barrier.wait()).waiting()).collect();
            assert!(Hand::new(barrier.wait()).ready().unwrap().is_leader());
            assert!(round.iter().all(|wait| wait.wakes() == 1));
            // One is polled at once, the other when later rounds have long been complete.
            assert!(!round[0].ready().unwrap().is_leader());
            kept.extend(round.pop());
        }
        for mut wait in kept {
            assert!(!wait.ready().unwrap().is_leader());
        }
        assert_idle(&domain);
        assert_eq!((barrier.parties(), barrier.name()), (3, Some("start")));
        assert_eq!(format!("{barrier:?}"), "Barrier { name: Some(\"start\"), parties: 3, .. }");
    });
}

#[test]
fn case_p10_expiry_against_the_last_arrival() {
    for (comes_at, in_time) in [(100, false), (99, true)] {
        let clock = Still::default();
        let domain = Domain::builder().clock(clock.clone()).build();
        let barrier = Barrier::named("start", 2).in_domain(&domain);
        let mut hasty = Hand::by(&worker("hasty", 0), barrier.wait().timeout(ms(100))).waiting();
        clock.set(ms(comes_at));
        let mut last = Hand::by(&worker("last", 0), barrier.wait());
        assert_eq!(last.poll().is_ready(), in_time);
        clock.set(ms(150));
        let ended = hasty.ready();
        assert_eq!(ended.is_ok(), in_time);
        if let Err(error) = ended {
            // It has not arrived: another has to.
            assert_eq!((error.is_timeout(), error.to_string().as_str()), (true, "barrier \"start\" was not complete in time"));
            assert!(Hand::new(barrier.wait()).ready().unwrap().is_leader());
            assert!(!last.ready().unwrap().is_leader());
        }
        drop((hasty, last));
        assert_idle(&domain);
    }
}

#[test]
fn who_leaves_has_not_arrived() {
    everywhere(|| async {
        let (domain, clock) = domain();
        let barrier = Barrier::new(3).in_domain(&domain);
        for leaves in ["is dropped", "times out", "never waits"] {
            let mut first = Hand::new(barrier.wait()).waiting();
            match leaves {
                "is dropped" => drop(Hand::new(barrier.wait()).waiting()),
                "times out" => {
                    let mut late = Hand::new(barrier.wait().timeout(ms(10))).waiting();
                    clock.advance(ms(10));
                    domain.expire();
                    assert!(late.ready().unwrap_err().is_timeout());
                }
                _ => assert!(Hand::new(barrier.wait().timeout(Duration::ZERO)).ready().unwrap_err().is_timeout()),
            }
            let mut second = Hand::new(barrier.wait()).waiting();
            assert_eq!((first.wakes(), first.poll().is_pending()), (0, true), "{leaves}");
            // Whoever completes it needs no time.
            assert!(Hand::new(barrier.wait().timeout(Duration::ZERO)).ready().unwrap().is_leader());
            assert!(!first.ready().unwrap().is_leader() && !second.ready().unwrap().is_leader());
        }
        assert_idle(&domain);
    });
}

#[test]
fn case_f06_two_arms_are_two_arrivals() {
    async fn arms() {
        let (domain, _) = domain();
        let barrier = Barrier::new(2).in_domain(&domain);
        let (first, second) = tokio::join!(barrier.wait(), barrier.wait());
        assert_eq!([first.unwrap().is_leader(), second.unwrap().is_leader()], [false, true]);
        assert_idle(&domain);
    }
    in_tasks(arms);
    pollster::block_on(Worker::new("w").run(arms()));
}

/// Who has yet to come is not known: waiting boosts nobody, and is no deadlock, whatever the policy.
#[test]
fn case_f09_no_verdicts_and_no_boosts() {
    let domain = Domain::builder().deadlock_policy(DeadlockPolicy::ErrSuspected).build();
    let (barrier, lock) = (Barrier::new(2).in_domain(&domain), Mutex::new(()).in_domain(&domain));
    let (low, high) = (worker("low", 1), worker("high", 9));
    let guard = Hand::by(&high, lock.lock()).ready().unwrap();
    let mut waits = Hand::by(&high, barrier.wait()).waiting();
    let mut comes = Hand::by(&low, async {
        drop(lock.lock().await?);
        barrier.wait().await
    })
    .waiting();
    assert_eq!((low.effective_priority(), domain.snapshot().suspected.len()), (1, 0));
    // Its only cure is that somebody else comes.
    assert!(Hand::new(barrier.wait()).ready().unwrap().is_leader());
    assert!(!waits.ready().unwrap().is_leader());
    drop(guard);
    assert!(comes.poll().is_pending());
    drop((waits, comes));
    assert_idle(&domain);
}

#[test]
fn case_f10_who_completes_a_round_need_not_wait() {
    everywhere(|| async {
        let barrier = Barrier::new(2);
        let mut waits = Hand::new(barrier.wait()).waiting();
        assert!(barrier.wait_blocking().unwrap().is_leader());
        assert!(!waits.ready().unwrap().is_leader());
        assert!(Barrier::new(1).wait_blocking().unwrap().is_leader());
    });
}

#[test]
fn a_barrier_of_nobody_and_of_everybody() {
    for refused in [catch_unwind(|| Barrier::new(0)), catch_unwind(|| Barrier::named("start", 0))] {
        let text = *refused.unwrap_err().downcast::<&str>().unwrap();
        assert_eq!(text, "a barrier of 0 would never let anybody pass: give at least 1");
    }
    let domain = Domain::builder().build();
    let alone = Barrier::new(1).in_domain(&domain);
    for _ in 0..3 {
        assert!(Hand::new(alone.wait()).ready().unwrap().is_leader());
    }
    let never = Barrier::new(usize::MAX).in_domain(&domain);
    drop((Hand::new(never.wait()).waiting(), Hand::new(never.wait()).waiting()));
    assert_eq!(never.parties(), usize::MAX);
    assert_idle(&domain);
}

/// Threads that meet again and again: each round has one leader, and nobody is a round ahead.
#[test]
fn many_rounds_of_threads() {
    const ROUNDS: usize = if cfg!(miri) { 10 } else { 2_000 };
    let domain = Domain::builder().build();
    let (barrier, leaders) = (Barrier::new(4).in_domain(&domain), AtomicUsize::new(0));
    let before = [(); 2].map(|()| AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    // All that came before this round have been through the last one.
                    before[round % 2].fetch_add(1, Ordering::Relaxed);
                    let leads = barrier.wait_blocking().unwrap().is_leader();
                    assert_eq!(before[round % 2].load(Ordering::Relaxed), 4 * (round / 2 + 1));
                    leaders.fetch_add(usize::from(leads), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(leaders.load(Ordering::Relaxed), ROUNDS);
    assert_idle(&domain);
}

/// Random arrivals, polls and cancels, beside a plain list of who waits in which round.
#[test]
fn case_f13_no_round_is_lost() {
    let seed = seed();
    println!("HEIRLOCK_SEED={seed}");
    let mut rounds = 0;
    for history in 0..if cfg!(miri) { 3 } else { 300 } {
        let mut random = Random::new(seed, history);
        let domain = Domain::builder().build();
        let parties = random.index(4) + 1;
        let barrier = Barrier::new(parties).in_domain(&domain);
        let workers = [0, 1, 2].map(|at| worker("w", at));
        // Each with whether its round is complete.
        let mut all: Vec<(Waits<'_>, bool)> = Vec::new();
        for _ in 0..60 {
            let at = random.index(all.len().max(1));
            match random.within(0, 4) {
                0 | 1 => {
                    let mut wait = Hand::by(&workers[random.index(3)], barrier.wait());
                    let waiting = all.iter().filter(|(_, passed)| !passed).count();
                    match wait.poll() {
                        Poll::Ready(arrival) => {
                            assert!(arrival.unwrap().is_leader() && waiting + 1 == parties);
                            for (_, passed) in &mut all {
                                *passed = true;
                            }
                            rounds += 1;
                        }
                        Poll::Pending => {
                            assert!(waiting + 1 < parties);
                            all.push((wait, false));
                        }
                    }
                }
                2 if !all.is_empty() => {
                    let (mut wait, passed) = all.swap_remove(at);
                    match wait.poll() {
                        Poll::Ready(arrival) => assert!(passed && !arrival.unwrap().is_leader()),
                        Poll::Pending => {
                            assert!(!passed);
                            all.push((wait, false));
                        }
                    }
                }
                3 if !all.is_empty() => drop(all.swap_remove(at)),
                _ => {}
            }
        }
        drop(all);
        assert_idle(&domain);
    }
    println!("{rounds} rounds");
    assert!(rounds > 0);
}

#[test]
fn case_f05_cancel_storm() {
    const ROUNDS: u64 = if cfg!(miri) { 20 } else { 1250 };
    let seed = seed();
    println!("HEIRLOCK_SEED={seed}");
    let domain = Domain::builder().build();
    let barrier = Arc::new(Barrier::new(3).in_domain(&domain));
    let counts = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let tasks = (0..8).map(|task| {
            let (barrier, counts, mut random) = (Arc::clone(&barrier), Arc::clone(&counts), Random::new(seed, task));
            tokio::spawn(Worker::new("w").priority(i32::try_from(task % 3).unwrap()).run(async move {
                for _ in 0..ROUNDS {
                    let mut wait = barrier.wait().timeout(ms(random.within(0, 3)));
                    for _ in 0..random.within(0, 5) {
                        if let Poll::Ready(result) = once(&mut wait).await {
                            if let Ok(arrival) = result {
                                counts[usize::from(arrival.is_leader())].fetch_add(1, Ordering::Relaxed);
                            }
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
    let [others, leaders] = counts.each_ref().map(|count| count.load(Ordering::Relaxed));
    println!("{leaders} rounds, {others} others that noticed");
    // Some of a complete round are dropped before they notice.
    assert!(leaders > 0 && others <= 2 * leaders);
    assert_idle(&domain);
}
