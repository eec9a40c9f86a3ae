//! A worker that asks for what it holds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use heirlock::clock::{Clock, ManualClock};
use heirlock::lease::{Acquire, Evict, Mode};
use heirlock::store::{Fault, Faulty, MemoryStore, Point};
use heirlock::{Kind, Locks, LostReason, Released, Result, Worker};

use super::MS;

/// What can be asked for.
fn modes(locks: &Locks) -> [Acquire; 4] {
    [locks.lock("k"), locks.lock("k").shared(), locks.lock("k").slots(3), locks.lock("k").slots(4)]
}

#[tokio::test]
async fn what_is_asked_for_again_is_the_same_lease_or_refused() {
    let store = Faulty::new(MemoryStore::new());
    let locks = Locks::new(store.clone()).await.unwrap();
    let (same, deadlock, invalid) = (None, Some(Kind::Deadlock), Some(Kind::Invalid));
    let table = [
        [same, same, invalid, invalid],
        [deadlock, same, invalid, invalid],
        [invalid, invalid, same, invalid],
        [invalid, invalid, invalid, same],
    ];
    for (first, row) in table.iter().enumerate() {
        for (second, right) in row.iter().enumerate() {
            let worker = Worker::new("again");
            let ask = |at: usize| worker.run(modes(&locks)[at].clone().into_future());
            let held = ask(first).await.unwrap();
            let enters = store.counts().enters;
            let again = ask(second).await;
            assert_eq!(store.counts().enters, enters, "the store is not asked");
            match (right, again) {
                (None, Ok(again)) => {
                    assert_eq!((again.fence(), again.mode(), again.slot()), (held.fence(), held.mode(), held.slot()));
                    assert_eq!(again.release().await.unwrap(), Released::StillHeld);
                }
                (Some(kind), Err(error)) => assert_eq!(error.kind(), *kind, "{error}"),
                (_, other) => panic!("{first} then {second}: {other:?}"),
            }
            assert!(held.is_valid());
            assert_eq!(held.release().await.unwrap(), Released::InTime, "{first} then {second}");
            assert!(locks.list("").await.unwrap().is_empty());
        }
    }
}

#[tokio::test]
async fn an_upgrade_is_refused_with_the_cure() {
    let locks = Locks::new(MemoryStore::new()).await.unwrap();
    let worker = Worker::new("reader");
    let shared = worker.run(locks.lock("k").shared().into_future()).await.unwrap();
    let error = worker.run(locks.lock("k").into_future()).await.unwrap_err().to_string();
    assert!(error.contains("reader") && error.contains("release the shared lease first"), "{error}");
    drop(shared);
    assert_eq!(worker.run(locks.lock("k").into_future()).await.unwrap().mode(), Mode::Exclusive);
}

#[tokio::test]
async fn the_first_call_decides_how_it_is_held() {
    let store = Faulty::new(MemoryStore::new());
    let locks = Locks::new(store.clone()).await.unwrap();
    let worker = Worker::new("first");
    let first = worker.run(locks.lock("k").ttl(MS(60_000)).why("first").into_future()).await.unwrap();
    let call = locks.lock("k").ttl(MS(5_000)).max_hold(MS(1_000)).priority(7).why("second");
    // What is held is had at once, whatever the time.
    let second = worker.run(call.deadline(Instant::now()).into_future()).await.unwrap();
    assert_eq!((second.ttl(), second.owner().why.as_deref()), (MS(60_000), Some("first")));
    let third = worker.run(locks.try_lock("k").timeout(Duration::ZERO).into_future()).await.unwrap();
    assert_eq!(third.fence(), first.fence());
    // What it says is checked all the same.
    assert!(worker.run(locks.lock("k").ttl(Duration::ZERO).into_future()).await.unwrap_err().is_invalid());
    drop(first);
    drop(third);
    assert_eq!((locks.inspect("k").await.unwrap().holders.len(), store.counts().leaves), (1, 0));
    assert_eq!(second.release().await.unwrap(), Released::InTime);
}

#[tokio::test]
async fn only_a_worker_and_a_session_share() {
    let store = MemoryStore::new();
    let (locks, others) = (Locks::new(store.clone()).await.unwrap(), Locks::new(store).await.unwrap());
    let worker = Worker::new("one");
    let lease = worker.run(locks.lock("k").into_future()).await.unwrap();
    for (whose, call) in [
        ("another worker's", Worker::new("one").run(locks.try_lock("k").into_future())),
        ("a fork's", worker.fork("arm").run(locks.try_lock("k").into_future())),
        ("another session's", worker.run(others.try_lock("k").into_future())),
    ] {
        assert!(call.await.unwrap_err().is_busy(), "{whose}");
    }
    assert!(locks.try_lock("k").await.unwrap_err().is_busy(), "a bare task's");
    assert!(worker.run(locks.clone().try_lock("k").into_future()).await.is_ok(), "a clone is the same session");
    drop(lease);
    let bare = locks.lock("k").await.unwrap();
    assert!(worker.run(locks.try_lock("k").into_future()).await.unwrap_err().is_busy(), "the worker does not have what its task has");
    drop(bare);
}

#[tokio::test]
async fn all_are_lost_together_and_the_next_is_a_new_ticket() {
    let clock = ManualClock::new();
    let store = Faulty::new(MemoryStore::with_clock(Arc::new(clock.clone())));
    let locks = Locks::with(Arc::new(store.clone()), Arc::new(clock.clone()) as Arc<dyn Clock>).await.unwrap();
    let worker = Worker::new("late");
    let ask = || worker.run(locks.lock("k").ttl(MS(9_000)).into_future());
    let (first, second) = (ask().await.unwrap(), ask().await.unwrap());
    store.always(Point::Beat, Fault::HangRequest);
    clock.advance(MS(9_001));
    // Whether the keeper has looked by now or not.
    let third = ask().await.unwrap();
    assert!(third.fence() > first.fence());
    for lease in [first, second] {
        assert!(!lease.is_valid());
        assert_eq!(lease.lost().await, LostReason::Expired);
        assert!(lease.run(std::future::pending::<()>()).await.unwrap_err().is_lost());
        assert_eq!(lease.release().await.unwrap(), Released::AlreadyLost);
    }
    let fourth = ask().await.unwrap();
    assert_eq!(fourth.fence(), third.fence(), "the end of the old one takes nothing with it");
    assert_eq!(fourth.release().await.unwrap(), Released::StillHeld);
    assert_eq!(third.release().await.unwrap(), Released::InTime);
}

#[tokio::test]
async fn what_an_operator_wants_back_is_not_shared() {
    let locks = Locks::new(MemoryStore::new()).await.unwrap();
    let worker = Worker::new("evicted");
    let ask = || worker.run(locks.lock("k").into_future());
    let old = [ask().await.unwrap(), ask().await.unwrap()];
    locks.evict("k", Evict { fence: None, force: false }).await.unwrap();
    for lease in &old {
        assert_eq!(lease.lost().await, LostReason::Evicted);
    }
    let refused = worker.run(locks.try_lock("k").into_future()).await;
    assert!(refused.unwrap_err().is_busy(), "it waits for what it has not given back");
    let [first, second] = old;
    assert_eq!(first.release().await.unwrap(), Released::StillHeld);
    assert_eq!(second.release().await.unwrap(), Released::InTime);
    drop(ask().await.unwrap());
}

/// Of those that go at once exactly one is the last, and tells the store.
#[test]
fn one_of_many_that_go_at_once_is_the_last() -> Result<()> {
    let store = Faulty::new(MemoryStore::new());
    let locks = pollster::block_on(Locks::new(store.clone()))?;
    let worker = Worker::new("many");
    for round in 1..=200 {
        let leases: Vec<_> = worker.scope(|| (0..4).map(|_| locks.lock_blocking("k")).collect::<Result<_>>())?;
        let threads: Vec<_> = leases.into_iter().map(|lease| std::thread::spawn(|| lease.release_blocking().unwrap())).collect();
        let mut released: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        released.sort_by_key(|one| *one == Released::InTime);
        assert_eq!(released, [Released::StillHeld, Released::StillHeld, Released::StillHeld, Released::InTime]);
        assert_eq!(store.counts().leaves, round);
    }
    Ok(())
}
