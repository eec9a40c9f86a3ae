//! Events: the cases that are theirs alone, by number, and what no case says. What they have in common with barriers and promises is in
//! `awaited.rs`; `cases.rs` has the table.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, ThreadId};
use std::time::Duration;

use crate::common::local::{Still, assert_idle, domain, ms, worker};
use crate::common::polls::{Hand, everywhere, once, pause};
use crate::common::random::{Random, seed};
use heirlock::Worker;
use heirlock::clock::{Clock, Moment};
use heirlock::local::{Barrier, DeadlockPolicy, Domain, Event, Mutex};

#[test]
fn case_p10_expiry_against_set() {
    for (set_at, in_time) in [(100, false), (99, true)] {
        let clock = Still::default();
        let domain = Domain::builder().clock(clock.clone()).build();
        let event = Event::named("ready").in_domain(&domain);
        let mut hasty = Hand::by(&worker("hasty", 9), event.wait().timeout(ms(100))).waiting();
        let mut patient = Hand::by(&worker("patient", 0), event.wait()).waiting();
        clock.set(ms(set_at));
        assert_eq!(event.set(), 1 + usize::from(in_time));
        event.clear();
        clock.set(ms(150));
        let ended = hasty.ready();
        assert_eq!(ended.is_ok(), in_time);
        if let Err(error) = ended {
            assert_eq!((error.is_timeout(), error.to_string().as_str()), (true, "event \"ready\" was not set in time"));
        }
        patient.ready().unwrap();
        drop((hasty, patient));
        assert_idle(&domain);
    }
    // Without a name.
    let (_, event) = (domain(), Event::new());
    let error = pollster::block_on(event.wait().timeout(ms(1))).unwrap_err();
    assert_eq!(error.to_string(), "the event was not set in time");
}

#[test]
fn a_wait_ends_with_the_set_that_follows_it_and_no_other() {
    everywhere(|| async {
        let (domain, _) = domain();
        let event = Event::new().in_domain(&domain);
        assert_eq!((event.set(), event.set(), event.is_set()), (0, 0, true));
        event.wait().await.unwrap();
        assert!(event.clear());
        // Not with one that was before it.
        let mut early = Hand::new(event.wait()).waiting();
        assert_eq!(event.set(), 1);
        assert!(event.clear());
        // Nor with one that was before it, although another wait has yet to hear of that.
        let mut late = Hand::new(event.wait()).waiting();
        early.ready().unwrap();
        assert!(late.poll().is_pending() && late.wakes() == 0);
        assert_eq!((event.is_set(), event.set(), event.set()), (false, 1, 0));
        late.ready().unwrap();
        drop((early, late));
        assert_idle(&domain);
        assert_eq!(format!("{event:?}"), "Event { name: None, set: true, .. }");
    });
}

/// Nobody holds an event: waiting for it boosts nobody, and is no deadlock, whatever the policy.
#[test]
fn case_f09_no_verdicts_and_no_boosts() {
    everywhere(|| async {
        let domain = Domain::builder().deadlock_policy(DeadlockPolicy::ErrSuspected).build();
        let (event, lock) = (Event::new().in_domain(&domain), Mutex::new(()).in_domain(&domain));
        let (setter, other) = (worker("setter", 1), worker("other", 9));
        let guard = Hand::by(&other, lock.lock()).ready().unwrap();
        let mut waits = Hand::by(&other, event.wait()).waiting();
        // Who would set it waits for what the other holds: it cannot be known.
        let mut sets = Hand::by(&setter, lock.lock()).waiting();
        assert_eq!((setter.effective_priority(), other.effective_priority()), (1, 9));
        assert!(domain.snapshot().suspected.is_empty() && domain.snapshot().locks.iter().any(|lock| lock.unknown_releaser));
        event.set();
        waits.ready().unwrap();
        drop(guard);
        drop(sets.ready().unwrap());
        drop((waits, sets));
        assert_idle(&domain);
    });
}

/// In a domain that tracks, whoever takes the mutex reads the clock first.
#[test]
fn no_mutex_where_nobody_waits() {
    let domain = Domain::builder().clock(Still::default()).warn_after(ms(1)).build();
    let event = Event::new().in_domain(&domain);
    let before = Still::reads();
    for _ in 0..3 {
        assert_eq!(event.set(), 0);
        pollster::block_on(event.wait()).unwrap();
        event.wait_blocking().unwrap();
        pollster::block_on(event.wait().timeout(ms(5))).unwrap();
        assert!(event.is_set() && event.clear() && !event.is_set());
    }
    assert_eq!(Still::reads(), before);
    drop(Hand::new(event.wait()).waiting());
    assert!(Still::reads() > before, "a wait takes it");
    // Who has waited leaves no trace.
    let before = Still::reads();
    assert_eq!(event.set(), 0);
    assert_eq!(Still::reads(), before);
}

/// Random waits, sets, clears, polls and cancels, beside a plain list of who should have been told.
#[test]
fn case_f13_no_set_is_lost() {
    let seed = seed();
    println!("HEIRLOCK_SEED={seed}");
    let (mut told_of, mut still) = (0, 0);
    for history in 0..if cfg!(miri) { 3 } else { 300 } {
        let mut random = Random::new(seed, history);
        let domain = Domain::builder().build();
        let event = Event::new().in_domain(&domain);
        let workers: Vec<Worker> = (0..4).map(|at| worker(format!("w{at}"), 0)).collect();
        // Each with whether it should have been told.
        let (mut all, mut is_set): (Vec<(Hand<'_, _>, bool)>, _) = (Vec::new(), false);
        for _ in 0..60 {
            let at = random.index(all.len().max(1));
            match random.within(0, 6) {
                0 | 1 => {
                    let mut wait = Hand::by(random.pick(&[&workers[0], &workers[1], &workers[2], &workers[3]]), event.wait());
                    let polled = wait.poll();
                    assert_eq!(polled.is_ready(), is_set);
                    if polled.is_pending() {
                        all.push((wait, false));
                    }
                }
                2 => {
                    let waiting = all.iter_mut().filter(|(_, told)| !told).map(|(_, told)| *told = true).count();
                    assert_eq!(event.set(), waiting);
                    is_set = true;
                }
                3 => {
                    assert_eq!(event.clear(), is_set);
                    is_set = false;
                }
                4 if !all.is_empty() => {
                    let (mut wait, told) = all.swap_remove(at);
                    assert_eq!((wait.wakes(), wait.poll().is_ready()), (usize::from(told), told));
                    if told { told_of += 1 } else { all.push((wait, false)) }
                }
                5 if !all.is_empty() => drop(all.swap_remove(at)),
                _ => {}
            }
            assert_eq!(event.is_set(), is_set);
        }
        for (mut wait, told) in all {
            assert_eq!(wait.poll().is_ready(), told);
            still += usize::from(!told);
        }
        assert_idle(&domain);
    }
    println!("{told_of} were told, {still} still waited");
    assert!(told_of > 0 && still > 0);
}

/// Tasks that wait, set, clear and cancel at random.
#[test]
fn case_f05_cancel_storm() {
    const ROUNDS: u64 = if cfg!(miri) { 20 } else { 1250 };
    let seed = seed();
    println!("HEIRLOCK_SEED={seed}");
    let domain = Domain::builder().build();
    let event = Arc::new(Event::new().in_domain(&domain));
    let ended = Arc::new(AtomicU64::new(0));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let tasks = (0..8).map(|task| {
            let (event, ended, mut random) = (Arc::clone(&event), Arc::clone(&ended), Random::new(seed, task));
            tokio::spawn(Worker::new("w").priority(i32::try_from(task % 3).unwrap()).run(async move {
                for _ in 0..ROUNDS {
                    match random.within(0, 8) {
                        0 => drop(event.set()),
                        1..4 => drop(event.clear()),
                        _ => {
                            let mut wait = event.wait().timeout(ms(random.within(0, 3)));
                            for _ in 0..random.within(0, 5) {
                                if let Poll::Ready(result) = once(&mut wait).await {
                                    ended.fetch_add(u64::from(result.is_ok()), Ordering::Relaxed);
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
    assert!(ended.load(Ordering::Relaxed) > 0);
    assert_eq!(event.set(), 0);
    assert_idle(&domain);
}

/// One changes a number and sets the event, the other clears it and looks: by its last look it has seen the last change.
#[test]
fn whoever_clears_and_looks_misses_nothing() {
    const CHANGES: u64 = if cfg!(miri) { 50 } else { 20_000 };
    let domain = Domain::builder().build();
    let (news, state) = (Event::new().in_domain(&domain), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            for change in 1..=CHANGES {
                state.store(change, Ordering::Relaxed);
                news.set();
            }
        });
        let mut seen = 0;
        while seen < CHANGES {
            news.wait_blocking().unwrap();
            news.clear();
            let now = state.load(Ordering::Relaxed);
            assert!(now >= seen);
            seen = now;
        }
    });
    assert_idle(&domain);
}

/// Asks, when it is woken, whether the gate has opened yet.
struct Looks {
    domain: Domain,
    closed: AtomicUsize,
}

impl Wake for Looks {
    fn wake(self: Arc<Self>) {
        let closed = self.domain.snapshot().locks.iter().any(|lock| lock.name == "gate" && !lock.queue.is_empty());
        self.closed.fetch_add(usize::from(closed), Ordering::SeqCst);
    }
}

/// A clock that moves for the thread that made it only: the timer, which other domains may wake at any time, finds nobody late.
#[derive(Clone)]
struct Mine {
    still: Still,
    thread: ThreadId,
}

impl Clock for Mine {
    fn now(&self) -> Moment {
        if thread::current().id() == self.thread { self.still.now() } else { Still::default().now() }
    }

    fn sleep_for(&self, until: Moment) -> Option<Duration> {
        self.still.sleep_for(until)
    }
}

/// What opens a gate first ends all waits of the domain that are late. Those may be many: others are served in between, and nothing is told wrongly.
#[track_caller]
fn opens_after_the_late<R>(gate: fn(&Domain) -> R, opens: fn(&R), waits: for<'r> fn(&'r R) -> Hand<'r, bool>) {
    const MANY: usize = 1000;
    let clock = Mine { still: Still::default(), thread: thread::current().id() };
    let domain = Domain::builder().clock(clock.clone()).build();
    let (gate, other) = (gate(&domain), Event::named("other").in_domain(&domain));
    let looks = Arc::new(Looks { domain: domain.clone(), closed: AtomicUsize::new(0) });
    let waker = Waker::from(Arc::clone(&looks));
    let worker = worker("many", 0);
    let mut late: Vec<_> = (0..MANY).map(|_| Box::pin(worker.run(other.wait().timeout(ms(100))))).collect();
    for wait in &mut late {
        assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    let mut patient = waits(&gate).waiting();
    clock.still.set(ms(100));
    opens(&gate);
    // All but a last part have been told, and were woken, before.
    let before = looks.closed.load(Ordering::SeqCst);
    assert!(before > MANY * 9 / 10 && before < MANY, "{before} of {MANY}");
    assert!(patient.ready());
    for wait in &mut late {
        let Poll::Ready(ended) = wait.as_mut().poll(&mut Context::from_waker(&waker)) else { panic!("its time is over") };
        assert!(ended.unwrap_err().is_timeout());
    }
    drop((late, patient));
    assert_idle(&domain);
}

#[test]
fn a_set_ends_many_late_waits_in_parts() {
    opens_after_the_late(
        |domain| Event::named("gate").in_domain(domain),
        |gate| assert_eq!(gate.set(), 1),
        |gate| Hand::new(async { gate.wait().await.is_ok() }),
    );
}

#[test]
fn the_last_arrival_ends_many_late_waits_in_parts() {
    opens_after_the_late(
        |domain| Barrier::named("gate", 2).in_domain(domain),
        |gate| assert!(Hand::new(gate.wait()).ready().is_ok()),
        |gate| Hand::new(async { gate.wait().await.is_ok() }),
    );
}
