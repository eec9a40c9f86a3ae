//! Locks by key: the cases of two keys, by number, and that entries come and go with their use.
//!
//! What one key does is what a `Mutex` does: `futures.rs` and `bad_input.rs` have those cases. `cases.rs` has the table.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::local::{assert_idle, domain, ms, worker};
use crate::common::polls::{Hand, assert_says, everywhere, in_tasks, once, pause};
use crate::common::random::{Random, seed};
use heirlock::Worker;
use heirlock::local::{Domain, KeyedLock, Mutex, Order};

type Locks = KeyedLock<&'static str>;

/// Nobody holds or waits, and no key is there any more.
#[track_caller]
fn assert_over<K>(domain: &Domain, keyed: &KeyedLock<K>) {
    assert_eq!(keyed.len(), 0);
    assert!(keyed.is_empty());
    assert_idle(domain);
}

#[test]
fn keys_have_nothing_in_common() {
    everywhere(|| async {
        let (domain, _) = domain();
        let keyed = Locks::named("files").in_domain(&domain);
        let (a, b) = (keyed.lock("a").await.unwrap(), keyed.lock("b").await.unwrap());
        assert_eq!((*a.key(), *b.key(), keyed.len(), keyed.name()), ("a", "b", 2, Some("files")));
        assert!(keyed.is_locked("a") && keyed.is_locked("b") && !keyed.is_locked("c"));
        let mut waits = Hand::by(&worker("other", 0), keyed.lock("a")).waiting();
        assert_eq!((keyed.len(), format!("{keyed:?}")), (2, r#"KeyedLock { name: Some("files"), len: 2, .. }"#.into()));
        drop(a);
        drop(waits.ready().unwrap());
        drop((b, waits));
        assert_over(&domain, &keyed);
    });
}

#[test]
fn nothing_happens_before_the_first_poll() {
    let keyed = Locks::new();
    let unpolled = keyed.lock("a").timeout(ms(1)).priority(9);
    assert_eq!(keyed.len(), 0);
    drop(unpolled);
    // A wait that has ended keeps nothing.
    let guard = keyed.try_lock("a").unwrap();
    let mut late = keyed.lock("a").timeout(ms(0));
    assert!(pollster::block_on(&mut late).unwrap_err().is_timeout());
    drop(guard);
    let next = keyed.try_lock("a").unwrap();
    drop((late, next));
    assert_eq!(keyed.len(), 0);
}

/// An entry stays as long as anybody uses it: who holds it, who waits, who was granted it and does not know.
#[test]
fn entries_go_with_their_last_user() {
    let (domain, _) = domain();
    let keyed = Locks::new().in_domain(&domain);
    let guard = keyed.try_lock("a").unwrap();
    let first = Hand::by(&worker("first", 0), keyed.lock("a")).waiting();
    let second = Hand::by(&worker("second", 0), keyed.lock("a")).waiting();
    drop(guard);
    assert_eq!((first.wakes(), keyed.len()), (1, 1));
    assert!(keyed.is_locked("a") && keyed.try_lock("a").unwrap_err().is_would_block());
    drop(first);
    assert_eq!((second.wakes(), keyed.len()), (1, 1));
    drop(second);
    assert_over(&domain, &keyed);
}

#[test]
fn case_p03_not_last_in_first_out() {
    let (domain, _) = domain();
    let keyed = Locks::new().in_domain(&domain);
    let (holder, high, mid) = (worker("t", 10), worker("h", 50), worker("m", 30));
    let (a, b) = (Hand::by(&holder, keyed.lock("a")).ready().unwrap(), Hand::by(&holder, keyed.lock("b")).ready().unwrap());
    let mut high_waits = Hand::by(&high, keyed.lock("a")).waiting();
    let mut mid_waits = Hand::by(&mid, keyed.lock("b")).waiting();
    assert_eq!(holder.effective_priority(), 50);
    drop(a);
    let a = high_waits.ready().unwrap();
    assert_eq!((*a.key(), holder.effective_priority()), ("a", 30));
    drop(b);
    assert_eq!(holder.effective_priority(), 10);
    drop((mid_waits.ready().unwrap(), a));
    drop((high_waits, mid_waits));
    assert_over(&domain, &keyed);
}

/// A chain over keys of two `KeyedLock`s and a mutex.
#[test]
fn case_p01_p02_chains_through_keys() {
    let (domain, _) = domain();
    let (users, files, disk) = (Locks::new().in_domain(&domain), KeyedLock::new().in_domain(&domain), Mutex::new(()).in_domain(&domain));
    let workers = [10, 20, 30, 40].map(|base| worker("t", base));
    let [t0, t1, t2, t3] = &workers;
    let held = (
        Hand::by(t0, users.lock("u")).ready().unwrap(),
        Hand::by(t1, files.lock(1_u64)).ready().unwrap(),
        Hand::by(t2, disk.lock()).ready().unwrap(),
    );
    let waits = (Hand::by(t1, users.lock("u")).waiting(), Hand::by(t2, files.lock(1)).waiting());
    let last = Hand::by(t3, disk.lock()).waiting();
    assert_eq!(workers.each_ref().map(Worker::effective_priority), [40; 4]);
    drop(last);
    assert_eq!(workers.each_ref().map(Worker::effective_priority), [30, 30, 30, 40]);
    drop(waits.1);
    assert_eq!(workers.each_ref().map(Worker::effective_priority), [20, 20, 30, 40]);
    drop((waits.0, held));
    assert_over(&domain, &users);
    assert_over(&domain, &files);
}

/// Round over two keys; the error says which.
#[test]
fn case_p09_deadlock() {
    for tracked in [false, true] {
        let builder = Domain::builder();
        let domain = if tracked { builder.warn_after(std::time::Duration::from_secs(3600)).build() } else { builder.build() };
        let keyed = Locks::named("accounts").label(|key| key.to_uppercase()).in_domain(&domain);
        let (t1, t2) = (worker("t1", 20), worker("t2", 10));
        let (a, b) = (Hand::by(&t1, keyed.lock("a")).ready().unwrap(), Hand::by(&t2, keyed.lock("b")).ready().unwrap());
        let mut t1_waits = Hand::by(&t1, keyed.lock("b")).waiting();
        assert_eq!(t2.effective_priority(), 20);
        let snapshot = domain.snapshot();
        assert!(snapshot.locks.iter().any(|lock| lock.name == "accounts[B]" && lock.kind == "mutex"), "{snapshot}");
        let error = Hand::by(&t2, keyed.lock("a")).ready().unwrap_err();
        assert!(error.is_deadlock());
        let ways = [
            r#"deadlock: worker "t2" waits for lock "accounts[A]""#,
            r#"held by worker "t1""#,
            r#"which waits for lock "accounts[B]""#,
            r#"held by worker "t2""#,
        ];
        assert_says(&error.to_string(), &ways);
        drop(b);
        drop((t1_waits.ready().unwrap(), a));
        drop(t1_waits);
        assert_over(&domain, &keyed);
    }
}

/// With two levels of names, one, or none.
#[test]
fn what_a_key_is_called() {
    let (domain, clock) = domain();
    let label = |key: &&'static str| (*key).to_owned();
    let locks = [
        (Locks::named("files").label(label), "lock \"files[a]\""),
        (Locks::new().label(label), "lock \"[a]\""),
        (Locks::named("files"), "lock \"files\""),
        (Locks::new(), "the lock"),
    ];
    for (keyed, called) in locks {
        let keyed = keyed.in_domain(&domain);
        let guard = keyed.try_lock("a").unwrap();
        let error = keyed.try_lock("a").unwrap_err();
        assert_eq!(error.to_string(), format!("{called} is held"));
        let mut waits = Hand::new(keyed.lock("a").timeout(ms(5))).waiting();
        clock.advance(ms(5));
        domain.expire();
        assert_eq!(waits.ready().unwrap_err().to_string(), format!("{called} was not free in time"));
        drop(guard);
    }
}

/// Locks of one name are one class, whatever their keys.
#[test]
fn the_order_check_goes_by_the_name() {
    let domain = Domain::builder().check_order(true).build();
    let keyed = Locks::named("accounts").label(|key| (*key).to_owned()).in_domain(&domain);
    pollster::block_on(Worker::new("w").run(async {
        let _a = keyed.lock("a").await.unwrap();
        drop(keyed.lock("b").await.unwrap());
    }));
    let inversions = domain.snapshot().inversions;
    assert_eq!(inversions.len(), 1);
    assert_says(
        &inversions[0],
        &["worker \"w\" wanted lock \"accounts\"", "while it held lock \"accounts\"", "another lock of the same name"],
    );
    assert_over(&domain, &keyed);
}

#[test]
fn case_p18_p24_orders_and_limits() {
    let (domain, _) = domain();
    let keyed = KeyedLock::new().in_domain(&domain).order(Order::Fifo);
    let guard = keyed.try_lock(1).unwrap();
    let mut waits = [Hand::by(&worker("w1", 5), keyed.lock(1)).waiting(), Hand::by(&worker("w2", 50), keyed.lock(1)).waiting()];
    drop(guard);
    assert_eq!(waits.each_ref().map(Hand::wakes), [1, 0]);
    drop(waits[0].ready().unwrap());
    drop(waits[1].ready().unwrap());
    drop(waits);
    // The second grant since it became the oldest goes to the patient one.
    let keyed = KeyedLock::new().in_domain(&domain).bypass_limit(1);
    let guard = keyed.try_lock(1).unwrap();
    let mut waits = [0, 10, 20].map(|base| Hand::by(&worker("w", base), keyed.lock(1)).waiting());
    drop(guard);
    for next in [2, 0, 1] {
        assert_eq!(waits[next].wakes(), 1);
        drop(waits[next].ready().unwrap());
    }
    drop(waits);
    assert_over(&domain, &keyed);
    assert!(catch_unwind(|| Locks::new().bypass_limit(0)).is_err());
}

#[test]
fn case_f06_join_arms() {
    async fn arms(keyed: &Locks) -> [heirlock::Result<()>; 2] {
        let arm = || async {
            let _guard = keyed.lock("a").await?;
            pause().await;
            Ok(())
        };
        tokio::join!(arm(), arm()).into()
    }
    in_tasks(|| async {
        let keyed = Locks::new();
        assert!(arms(&keyed).await.iter().all(Result::is_ok));
        assert_eq!(keyed.len(), 0);
    });
    let keyed = Locks::named("files").label(|key| (*key).to_owned());
    let [first, second] = pollster::block_on(Worker::new("w").run(arms(&keyed)));
    assert!(first.is_ok());
    let text = second.unwrap_err().to_string();
    assert_says(&text, &[r#"deadlock: worker "w" waits for lock "files[a]""#, "which it holds itself", r#"worker.fork("arm")"#]);
    // Two keys in two arms are no question.
    let other = async {
        let (a, b) = tokio::join!(keyed.lock("a"), keyed.lock("b"));
        drop((a.unwrap(), b.unwrap()));
    };
    pollster::block_on(Worker::new("w").run(other));
    assert_eq!(keyed.len(), 0);
}

/// The snapshot shows a spawned child waiting for its parent's key.
#[cfg(feature = "tokio")]
#[tokio::test(flavor = "current_thread")]
async fn case_f07_spawned_child() {
    let (domain, _) = domain();
    let keyed = Arc::new(Locks::named("files").label(|key| (*key).to_owned()).in_domain(&domain));
    let parent = Worker::new("parent");
    let guard = parent.run(keyed.lock("a")).await.unwrap();
    let child = heirlock::spawn(Worker::new("child"), keyed.lock_owned("a"));
    while domain.records()[5] == 0 {
        tokio::task::yield_now().await;
    }
    let snapshot = domain.snapshot();
    let edge = &snapshot.edges[0];
    assert_eq!((&*edge.from.name, &*edge.to.name, edge.lock.as_deref()), ("child", "parent", Some("files[a]")));
    drop(guard);
    drop(child.await.unwrap().unwrap());
    assert_over(&domain, &keyed);
}

#[test]
fn case_f11_transfer() {
    let (domain, _) = domain();
    let keyed = Arc::new(Locks::new().in_domain(&domain));
    let (giver, taker, urgent) = (worker("giver", 1), worker("taker", 2), worker("urgent", 9));
    let guard = Hand::by(&giver, keyed.lock_owned("a")).ready().unwrap();
    let mut waits = Hand::by(&urgent, keyed.lock("a")).waiting();
    guard.transfer_to(&taker);
    assert_eq!((giver.effective_priority(), taker.effective_priority()), (1, 9));
    std::thread::spawn(move || drop(guard)).join().unwrap();
    assert_eq!((taker.effective_priority(), *waits.ready().unwrap().key()), (2, "a"));
    drop(waits);
    assert_over(&domain, &keyed);
}

/// A guard goes with a panic, and the next has the key; there is no value, so no poison.
#[test]
fn case_f12_released_on_unwind() {
    let (domain, _) = domain();
    let keyed = Locks::new().in_domain(&domain);
    let mut waits = None;
    let caught = catch_unwind(AssertUnwindSafe(|| {
        let _guard = keyed.try_lock("a").unwrap();
        waits = Some(Hand::new(keyed.lock("a")).waiting());
        panic!("on purpose");
    }));
    assert!(caught.is_err());
    drop(waits.unwrap().ready().unwrap());
    assert_over(&domain, &keyed);
}

#[test]
fn case_f17_bare_arms() {
    in_tasks(|| async {
        let (domain, _) = domain();
        let keyed = Arc::new(KeyedLock::new().in_domain(&domain));
        let sums = Arc::new([const { AtomicU64::new(0) }; 4]);
        let mut arms: Vec<_> = (0..100_usize)
            .map(|at| {
                let (keyed, sums, key) = (Arc::clone(&keyed), Arc::clone(&sums), at % 4);
                Box::pin(async move {
                    let _guard = keyed.lock(key).await.unwrap();
                    let before = sums[key].load(Ordering::Relaxed);
                    pause().await;
                    sums[key].store(before + 1, Ordering::Relaxed);
                })
            })
            .collect();
        // As `buffer_unordered` does, all arms in one task.
        while !arms.is_empty() {
            let mut left = Vec::new();
            for mut arm in arms {
                if once(&mut arm).await.is_pending() {
                    left.push(arm);
                }
            }
            arms = left;
            pause().await;
        }
        assert_eq!(sums.each_ref().map(|sum| sum.load(Ordering::Relaxed)), [25; 4]);
        assert_over(&domain, &keyed);
    });
}

/// Few keys whose entries come and go all the time, and acquires that are cancelled wherever they are: by tasks, on two threads.
#[test]
fn case_f05_cancel_storm_over_keys() {
    const KEYS: usize = 6;
    let seed = seed();
    println!("HEIRLOCK_SEED={seed}");
    let domain = Domain::builder().build();
    let keyed = Arc::new(KeyedLock::new().in_domain(&domain));
    let inside: Arc<[AtomicBool; KEYS]> = Arc::default();
    let held = Arc::new(AtomicU64::new(0));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let workers: Vec<Worker> = (0..8).map(|at| Worker::new("w").priority(at)).collect();
    runtime.block_on(async {
        let tasks = (0_u64..).zip(&workers).map(|(stream, worker)| {
            let (keyed, inside, held) = (Arc::clone(&keyed), Arc::clone(&inside), Arc::clone(&held));
            tokio::spawn(worker.run(async move {
                let mut random = Random::new(seed, stream);
                for _ in 0..1250 {
                    let key = random.index(KEYS);
                    let mut wait = keyed.lock(key).timeout(std::time::Duration::from_micros(random.within(0, 300)));
                    for _ in 0..random.pick(&[0, 1, 1, 2, 3, 1000]) {
                        match once(&mut wait).await {
                            std::task::Poll::Pending => pause().await,
                            std::task::Poll::Ready(Err(error)) => {
                                assert!(error.is_timeout(), "{error}");
                                break;
                            }
                            std::task::Poll::Ready(Ok(guard)) => {
                                assert!(!inside[key].swap(true, Ordering::Relaxed), "two are inside");
                                held.fetch_add(1, Ordering::Relaxed);
                                if random.chance(50) {
                                    pause().await;
                                }
                                inside[key].store(false, Ordering::Relaxed);
                                drop(guard);
                                break;
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
    assert!(held.load(Ordering::Relaxed) > 0);
    assert_over(&domain, &keyed);
}
