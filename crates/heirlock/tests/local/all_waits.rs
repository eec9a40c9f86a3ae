//! `lock_all` while it waits: all or none under one deadline, whatever the order; priorities, deadlocks, cancels.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use crate::common::local::{assert_idle, domain, ms, worker};
use crate::common::polls::{Hand, assert_says, everywhere, once, pause};
use crate::common::random::{Random, seed};
use crate::common::three::{ORDERS, assert_none_held, three};
use heirlock::Worker;
use heirlock::local::{Domain, KeyedLock, Mutex, RLock, lock_all};

#[test]
fn a_timeout_midway_leaves_none_held() {
    everywhere(|| async {
        let (domain, clock) = domain();
        let locks = three(&domain);
        for order in ORDERS {
            let guard = Hand::by(&worker("holder", 0), locks[2].lock()).ready().unwrap();
            let caller = worker("caller", 0);
            let mut all = Hand::by(&caller, lock_all(order.map(|at| locks[at].lock())).timeout(ms(10))).waiting();
            // Whoever waits for what it has got goes on then.
            let mut behind = Hand::by(&worker("behind", 5), locks[0].lock()).waiting();
            assert_eq!((caller.effective_priority(), locks[1].is_locked()), (5, true));
            clock.advance(ms(10));
            domain.expire();
            let error = all.ready().unwrap_err();
            assert!(error.is_timeout());
            assert_eq!(error.to_string(), "lock \"c\" was not free in time");
            assert_eq!((behind.wakes(), caller.effective_priority()), (1, 0));
            drop((behind.ready().unwrap(), guard));
            assert_none_held(&locks);
            drop((all, behind));
            assert_idle(&domain);
        }
    });
}

/// One span for all, from when it first waits: what the first wait took, the others do not have.
#[test]
fn one_deadline_for_all() {
    everywhere(|| async {
        let ((domain, clock), (elsewhere, other_clock)) = (domain(), domain());
        // The last is in another domain, with a clock of its own.
        let locks = [Mutex::new(0).in_domain(&domain), Mutex::new(0).in_domain(&domain), Mutex::new(0).in_domain(&elsewhere)];
        for (second, late) in [(1, 39), (1, 40), (2, 39), (2, 40)] {
            // Time that passes before it must wait is nobody's.
            let all = lock_all(locks.each_ref().map(Mutex::lock)).timeout(ms(100));
            clock.advance(ms(1000));
            let caller = worker("caller", 0);
            let first = Hand::by(&worker("holder", 0), locks[0].lock()).ready().unwrap();
            let held = Hand::by(&worker("holder", 0), locks[second].lock()).ready().unwrap();
            let all = Hand::by(&caller, all).waiting();
            clock.advance(ms(60));
            drop(first);
            let mut all = all.waiting();
            let (clock, domain) = if second == 2 { (&other_clock, &elsewhere) } else { (&clock, &domain) };
            clock.advance(ms(late));
            domain.expire();
            drop(held);
            assert_eq!(all.poll().map(|all| all.is_err_and(|error| error.is_timeout())), Poll::Ready(late == 40));
            drop(all);
            assert_none_held(&locks);
        }
        assert_idle(&domain);
        assert_idle(&elsewhere);
    });
}

#[test]
fn the_nearest_time_counts() {
    let (domain, clock) = domain();
    let locks = three(&domain);
    let far = Instant::now() + Duration::from_secs(3600);
    // That of one acquire, of all, or the worker's.
    for (own, of_all, past) in [(ms(5), ms(50), false), (ms(50), ms(5), false), (ms(50), ms(50), true)] {
        let guard = Hand::by(&worker("holder", 0), locks[1].lock()).ready().unwrap();
        let all = lock_all((locks[0].lock(), locks[1].lock().timeout(own).deadline(far), locks[2].lock())).timeout(of_all);
        let caller = if past { worker("caller", 0).deadline(Instant::now()) } else { worker("caller", 0) };
        let mut all = Hand::by(&caller, all);
        assert_eq!(all.poll().is_ready(), past);
        if !past {
            clock.advance(ms(5));
            domain.expire();
            assert!(all.ready().unwrap_err().is_timeout());
        }
        drop((guard, all));
        assert_none_held(&locks);
    }
    // A deadline that is over takes what is free, and orders like any.
    let past = Instant::now().checked_sub(ms(1)).unwrap();
    drop(Hand::new(lock_all(locks.each_ref().map(Mutex::lock)).deadline(past)).ready().unwrap());
    let guard = locks[2].try_lock().unwrap();
    assert!(Hand::new(lock_all(locks.each_ref().map(Mutex::lock)).deadline(past)).ready().unwrap_err().is_timeout());
    assert!(Hand::new(lock_all(locks.each_ref().map(Mutex::lock)).timeout(Duration::ZERO)).ready().unwrap_err().is_timeout());
    let late = Hand::by(&worker("late", 0), lock_all((locks[2].lock(), locks[0].lock())).deadline(far + ms(50))).waiting();
    drop(late);
    let later = Hand::by(&worker("later", 0), locks[2].lock().deadline(far + ms(100))).waiting();
    let soon = Hand::by(&worker("soon", 0), lock_all((locks[1].lock(), locks[2].lock())).deadline(far)).waiting();
    drop(guard);
    assert_eq!((soon.wakes(), later.wakes()), (1, 0));
    drop((soon, later));
    assert_none_held(&locks);
    assert_idle(&domain);
}

/// Each holder inherits while its lock is waited for, and the caller from whoever waits for what it has.
#[test]
fn priorities_flow() {
    everywhere(|| async {
        let (domain, _) = domain();
        let locks = three(&domain);
        let holders = [1, 2, 3].map(|base| worker("holder", base));
        let mut held: Vec<_> =
            holders.iter().zip(&locks).map(|(holder, lock)| Some(Hand::by(holder, lock.lock()).ready().unwrap())).collect();
        let caller = worker("caller", 0);
        // The last has a priority of its own.
        let all = lock_all((locks[2].lock().priority(70), locks[0].lock(), locks[1].lock())).priority(50);
        let mut all = Hand::by(&caller, all).waiting();
        let effective = || holders.each_ref().map(Worker::effective_priority);
        assert_eq!(effective(), [50, 2, 3]);
        held[0] = None;
        all = all.waiting();
        assert_eq!(effective(), [1, 50, 3]);
        // Transitively: what is wanted of the caller is wanted of whom it waits for.
        let urgent = Hand::by(&worker("urgent", 90), locks[0].lock()).waiting();
        assert_eq!((caller.effective_priority(), effective()), (90, [1, 90, 3]));
        held[1] = None;
        all = all.waiting();
        assert_eq!(effective(), [1, 2, 90]);
        drop(urgent);
        assert_eq!((caller.effective_priority(), effective()), (0, [1, 2, 70]));
        held[2] = None;
        drop(all.ready().unwrap());
        drop(all);
        assert_none_held(&locks);
        assert_idle(&domain);
    });
}

/// Notes when it is woken.
struct Notes(usize, Arc<StdMutex<Vec<usize>>>);

impl Wake for Notes {
    fn wake(self: Arc<Self>) {
        self.1.lock().unwrap().push(self.0);
    }
}

/// What is given up is given up from the last to the first.
#[test]
fn given_up_in_reverse() {
    let (domain, _) = domain();
    let locks = three(&domain);
    let guard = Hand::by(&worker("holder", 0), locks[2].lock()).ready().unwrap();
    let all = Hand::by(&worker("caller", 0), lock_all(locks.each_ref().map(Mutex::lock))).waiting();
    let order = Arc::new(StdMutex::new(Vec::new()));
    let mut behind = [0, 1].map(|at| Box::pin(locks[at].lock()));
    for (at, wait) in behind.iter_mut().enumerate() {
        let waker = Waker::from(Arc::new(Notes(at, Arc::clone(&order))));
        assert!(wait.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    }
    drop(all);
    assert_eq!(*order.lock().unwrap(), [1, 0]);
    drop((behind, guard));
    assert_none_held(&locks);
    assert_idle(&domain);
}

/// Plain locks taken in the other order elsewhere: the one who closes the cycle is told, whoever that is, and a failed call gives up all.
#[test]
fn case_p09_deadlock_with_plain_locks() {
    everywhere(|| async {
        for all_closes in [false, true] {
            let (domain, _) = domain();
            let locks = three(&domain);
            let (plain, caller) = (worker("plain", 0), worker("caller", 0));
            let held = Hand::by(&plain, locks[2].lock()).ready().unwrap();
            let blocks = all_closes.then(|| Hand::by(&worker("blocks", 0), locks[0].lock()).ready().unwrap());
            let mut all = Hand::by(&caller, lock_all([2, 1, 0].map(|at| locks[at].lock()))).waiting();
            if all_closes {
                // The caller has nothing yet; then it holds the first two, and the other wants one of these.
                drop(blocks);
                let mut plain_waits = {
                    let guard = Hand::by(&worker("between", 0), locks[1].lock()).ready().unwrap();
                    all = all.waiting();
                    let plain_waits = Hand::by(&plain, locks[0].lock()).waiting();
                    drop(guard);
                    plain_waits
                };
                let error = all.ready().unwrap_err();
                assert!(error.is_deadlock());
                assert_says(&error.to_string(), &[r#"worker "caller" waits for lock "c""#, r#"which waits for lock "a""#]);
                drop((plain_waits.ready().unwrap(), held));
            } else {
                let error = Hand::by(&plain, locks[0].lock()).ready().unwrap_err();
                assert!(error.is_deadlock());
                assert_says(&error.to_string(), &[r#"worker "plain" waits for lock "a""#, r#"which waits for lock "c""#]);
                drop(held);
                drop(all.ready().unwrap());
            }
            drop(all);
            assert_none_held(&locks);
            assert_idle(&domain);
        }
    });
}

/// One that already holds one of them waits for itself, and keeps it.
#[test]
fn who_holds_one_keeps_it() {
    let (domain, _) = domain();
    let locks = three(&domain);
    let caller = worker("caller", 0);
    let guard = Hand::by(&caller, locks[1].lock()).ready().unwrap();
    assert!(Hand::by(&caller, lock_all(locks.each_ref().map(Mutex::lock))).ready().unwrap_err().is_deadlock());
    assert_eq!(locks.each_ref().map(Mutex::is_locked), [false, true, false]);
    drop(guard);
    // A level more of one that can be entered again.
    let tree = RLock::new(()).in_domain(&domain);
    let outer = Hand::by(&caller, tree.lock()).ready().unwrap();
    drop(Hand::by(&caller, lock_all((locks[0].lock(), tree.lock()))).ready().unwrap());
    assert!(tree.is_locked());
    drop(outer);
    assert_idle(&domain);
}

#[test]
fn two_keys_in_both_orders() {
    everywhere(|| async {
        let (domain, _) = domain();
        let keyed = Arc::new(KeyedLock::named("accounts").in_domain(&domain));
        let balances = Arc::new([AtomicU64::new(100), AtomicU64::new(100)]);
        let transfer = |from: usize, to: usize| {
            let (keyed, balances) = (Arc::clone(&keyed), Arc::clone(&balances));
            async move {
                for amount in 0..10 {
                    let _guards = lock_all((keyed.lock(from), keyed.lock(to))).await.unwrap();
                    let before = [from, to].map(|at| balances[at].load(Ordering::Relaxed));
                    pause().await;
                    balances[from].store(before[0] - amount, Ordering::Relaxed);
                    balances[to].store(before[1] + amount, Ordering::Relaxed);
                }
            }
        };
        let [there, back, again] = ["there", "back", "again"].map(Worker::new);
        tokio::join!(there.run(transfer(0, 1)), back.run(transfer(1, 0)), again.run(transfer(0, 1)));
        assert_eq!(balances.each_ref().map(|balance| balance.load(Ordering::Relaxed)), [55, 145]);
        assert!(keyed.is_empty());
        assert_idle(&domain);
    });
}

/// Two and eight tasks over three locks in every order, which are dropped and time out on the way: as explicit workers and as bare tasks.
#[test]
fn case_f05_cancel_storm() {
    let seed = seed();
    println!("HEIRLOCK_SEED={seed}");
    for (tasks, explicit) in [(2, true), (8, true), (8, false)] {
        let domain = Domain::builder().build();
        let locks: Arc<[Mutex<u64>; 3]> = Arc::new([(); 3].map(|()| Mutex::new(0).in_domain(&domain)));
        let inside: Arc<[AtomicBool; 3]> = Arc::default();
        let tally: Arc<[AtomicU64; 3]> = Arc::default();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let work = (0..tasks).map(|stream| {
                let (locks, inside, tally) = (Arc::clone(&locks), Arc::clone(&inside), Arc::clone(&tally));
                let work = async move {
                    let mut random = Random::new(seed, stream);
                    for _ in 0..500 {
                        storm(&locks, &inside, &tally, &mut random).await;
                    }
                };
                let worker = Worker::new("w").priority(i32::try_from(stream).unwrap());
                if explicit { tokio::spawn(worker.run(work)) } else { tokio::spawn(work) }
            });
            for task in work.collect::<Vec<_>>() {
                task.await.unwrap();
            }
        });
        let [held, timed_out, dropped] = tally.each_ref().map(|count| count.load(Ordering::Relaxed));
        println!("{tasks} tasks: {held} held, {timed_out} timed out, {dropped} dropped on the way");
        assert!(held > 0 && dropped > 0);
        assert_eq!(locks.each_ref().map(|lock| *lock.try_lock().unwrap()), [held; 3]);
        assert_idle(&domain);
    }
}

/// Acquires all three, or is dropped, or is too late.
async fn storm(locks: &[Mutex<u64>; 3], inside: &[AtomicBool; 3], tally: &[AtomicU64; 3], random: &mut Random) {
    let order = random.pick(&ORDERS);
    let mut all = lock_all(order.map(|at| locks[at].lock())).priority(i32::try_from(random.within(0, 50)).unwrap());
    if random.chance(30) {
        all = all.timeout(Duration::from_micros(random.within(0, 300)));
    }
    for _ in 0..random.pick(&[0, 1, 1, 2, 3, 5, 1000]) {
        match once(&mut all).await {
            Poll::Pending => pause().await,
            Poll::Ready(Err(error)) => {
                assert!(error.is_timeout(), "{error}");
                tally[1].fetch_add(1, Ordering::Relaxed);
                return;
            }
            Poll::Ready(Ok(mut guards)) => {
                assert!(inside.iter().all(|inside| !inside.swap(true, Ordering::Relaxed)), "two are inside");
                for guard in &mut guards {
                    **guard += 1;
                }
                tally[0].fetch_add(1, Ordering::Relaxed);
                if random.chance(50) {
                    pause().await;
                }
                for inside in inside {
                    inside.store(false, Ordering::Relaxed);
                }
                return;
            }
        }
    }
    tally[2].fetch_add(1, Ordering::Relaxed);
}
