//! `lock_all` over the memory store. Opposite orders, and what is given up midway, are S19's, of every store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use heirlock::clock::{Clock, ManualClock};
use heirlock::lease::{Evict, Mode};
use heirlock::store::{Fault, Faulty, MemoryStore, Point};
use heirlock::{Kind, Locks, LostReason, Released, Worker};

use super::MS;
use super::common::polls::Hand;

async fn memory() -> (Faulty<MemoryStore>, Locks) {
    let store = Faulty::new(MemoryStore::new());
    let locks = Locks::new(store.clone()).await.unwrap();
    (store, locks)
}

#[tokio::test]
async fn bad_calls_are_refused_before_anything_is_sent() {
    let (store, locks) = memory().await;
    let calls = [
        (locks.lock_all([""; 0]), "no key"),
        (locks.lock_all(["a", "b", "a"]), "a was given to lock_all twice"),
        (locks.lock_all(["a", ""]), "must not be empty"),
        (locks.lock_all(["a", "x\ny"]), "control characters"),
        (locks.lock_all(["a", "b"]).shared_keys(["b", "c"]), "\"c\""),
        (locks.lock_all(["a"]).ttl(Duration::ZERO), "ttl"),
        (locks.lock_all(["a"]).slots(0), "slots"),
    ];
    for (call, why) in calls {
        let error = call.await.unwrap_err();
        assert!(error.is_invalid() && error.to_string().contains(why), "{error}");
    }
    assert_eq!(store.counts().enters, 0);
}

#[tokio::test]
async fn leases_come_in_the_order_of_their_names_and_by_key() {
    let (store, locks) = memory().await;
    let leases = locks.lock_all(["c", "a", "b"]).shared_keys(["a"]).why("move").ttl(MS(9_000)).await.unwrap();
    let names: Vec<&str> = leases.iter().map(|lease| lease.key().as_str()).collect();
    assert_eq!(names, ["c", "a", "b"]);
    for lease in &leases {
        let right = if lease.key().as_str() == "a" { Mode::Shared } else { Mode::Exclusive };
        assert_eq!((lease.mode(), lease.ttl(), lease.owner().why.as_deref()), (right, MS(9_000), Some("move")));
        assert_eq!(leases.get(lease.key().as_str()).unwrap().fence(), lease.fence());
    }
    assert!(leases.get("d").is_none() && leases.is_valid() && leases.lost_reason().is_none());
    assert!(leases.remaining() <= MS(9_000) && !leases.remaining().is_zero());
    assert!(locks.inspect("b").await.unwrap().holders[0].owner.site.as_ref().unwrap().contains("all.rs"));
    assert_eq!(store.counts().enters, 3);
    assert_eq!(leases.release().await.unwrap(), Released::InTime);
    assert_eq!(store.counts().leaves, 3);
    assert!(locks.list("").await.unwrap().is_empty());
}

#[tokio::test]
async fn one_that_is_lost_ends_the_work_of_all() {
    let (_, locks) = memory().await;
    let leases = locks.lock_all(["a", "b", "c"]).await.unwrap();
    {
        let mut work = Hand::new(leases.run(std::future::pending::<()>())).waiting();
        locks.evict("b", Evict { fence: None, force: false }).await.unwrap();
        let (key, reason) = leases.lost().await;
        assert_eq!((key.as_str(), reason), ("b", LostReason::Evicted));
        let error = work.ready().unwrap_err();
        assert!(error.is_evicted() && error.to_string().contains("the lease on b is lost"), "{error}");
    }
    assert_eq!(leases.lost_reason().map(|(key, reason)| (key.as_str(), reason)), Some(("b", LostReason::Evicted)));
    assert!(leases.is_valid(), "nobody else can hold yet");
    assert_eq!(leases.release().await.unwrap(), Released::InTime);
}

#[tokio::test]
async fn a_release_tells_of_a_loss_and_releases_the_others() {
    let clock = ManualClock::new();
    let store = Faulty::new(MemoryStore::with_clock(Arc::new(clock.clone())));
    let locks = Locks::with(Arc::new(store.clone()), Arc::new(clock.clone()) as Arc<dyn Clock>).await.unwrap();
    let worker = Worker::new("mixed");
    let long = worker.run(locks.lock("b").ttl(MS(60_000)).into_future()).await.unwrap();
    let leases = worker.run(locks.lock_all(["a", "b", "c"]).ttl(MS(3_000)).into_future()).await.unwrap();
    assert_eq!(leases.get("b").unwrap().fence(), long.fence(), "the worker's own");
    store.always(Point::Beat, Fault::HangRequest);
    clock.advance(MS(3_000));
    assert!(!leases.is_valid() && leases.remaining().is_zero());
    assert!(leases.run(std::future::ready(())).await.unwrap_err().is_lost());
    assert_eq!(leases.release().await.unwrap(), Released::AlreadyLost);
    assert!(long.is_valid());
    assert_eq!(long.release().await.unwrap(), Released::InTime);
}

#[tokio::test]
async fn what_the_worker_holds_is_shared() {
    let (_, locks) = memory().await;
    let worker = Worker::new("again");
    let outer = worker.run(locks.lock("b").into_future()).await.unwrap();
    let leases = worker.run(locks.lock_all(["a", "b"]).into_future()).await.unwrap();
    let twice = worker.run(locks.lock_all(["b", "a"]).no_wait().into_future()).await.unwrap();
    assert_eq!(twice.release().await.unwrap(), Released::StillHeld);
    assert_eq!(leases.release().await.unwrap(), Released::StillHeld, "b is");
    assert!(locks.inspect("a").await.unwrap().holders.is_empty());
    assert_eq!(outer.release().await.unwrap(), Released::InTime);

    let reads = worker.run(locks.lock("b").shared().into_future()).await.unwrap();
    assert_eq!(worker.run(locks.lock_all(["a", "b"]).into_future()).await.unwrap_err().kind(), Kind::Deadlock);
    while !locks.inspect("a").await.unwrap().holders.is_empty() {
        tokio::task::yield_now().await;
    }
    drop(worker.run(locks.lock_all(["a", "b"]).shared_keys(["b"]).into_future()).await.unwrap());
    drop(reads);
}

#[tokio::test]
async fn two_calls_of_one_worker_in_opposite_orders_come_to_an_end() {
    let (_, locks) = memory().await;
    let worker = Worker::new("both");
    let other = locks.lock("b").await.unwrap();
    let first = Hand::by(&worker, locks.lock_all(["a", "b", "c"]).into_future()).waiting();
    let second = Hand::by(&worker, locks.lock_all(["c", "b", "a"]).into_future()).waiting();
    drop(other);
    let (first, second) = tokio::join!(first.into_future(), second.into_future());
    let (first, second) = (first.unwrap(), second.unwrap());
    for lease in &first {
        assert_eq!(second.get(lease.key().as_str()).unwrap().fence(), lease.fence());
    }
    drop(first);
    assert_eq!(second.release().await.unwrap(), Released::InTime);
}

#[tokio::test]
async fn a_deadline_that_is_over_takes_free_keys_and_waits_for_none() {
    let (_, locks) = memory().await;
    let past = Instant::now();
    drop(locks.lock_all(["a", "b"]).deadline(past).await.unwrap());
    let held = locks.lock("b").await.unwrap();
    assert!(locks.lock_all(["a", "b"]).deadline(past).await.unwrap_err().is_timeout());
    assert!(locks.inspect("b").await.unwrap().queue.is_empty());
    drop(held);
}

/// The time of all is one: what the first key took is not there for the second.
#[tokio::test]
async fn the_deadline_is_that_of_all() {
    let clock = ManualClock::new();
    let store = MemoryStore::with_clock(Arc::new(clock.clone()));
    let clock_of = |clock: &ManualClock| Arc::new(clock.clone()) as Arc<dyn Clock>;
    let locks = Locks::with(Arc::new(store.clone()), clock_of(&clock)).await.unwrap();
    let others = [locks.lock("a").await.unwrap(), locks.lock("b").await.unwrap()];
    let mut call = Hand::new(locks.lock_all(["a", "b"]).timeout(MS(5_000)).into_future()).waiting();
    clock.advance(MS(3_000));
    let [first, second] = others;
    first.release().await.unwrap();
    while locks.inspect("b").await.unwrap().queue.is_empty() {
        assert!(call.poll().is_pending());
        tokio::task::yield_now().await;
    }
    clock.advance(MS(1_999));
    assert!(call.poll().is_pending());
    clock.advance(MS(1));
    let error = call.await.unwrap_err();
    assert!(error.is_timeout() && error.to_string().starts_with("b "), "{error}");
    while !locks.inspect("a").await.unwrap().holders.is_empty() {
        tokio::task::yield_now().await;
    }
    drop(second);
}

/// Held for all that anybody can tell, though another key is still waited for.
#[tokio::test]
async fn a_key_that_is_lost_meanwhile_ends_the_call() {
    let clock = ManualClock::new();
    let store = Faulty::new(MemoryStore::with_clock(Arc::new(clock.clone())));
    let locks = Locks::with(Arc::new(store.clone()), Arc::new(clock.clone()) as Arc<dyn Clock>).await.unwrap();
    let other = locks.lock("b").ttl(MS(60_000)).await.unwrap();
    let call = Hand::new(locks.lock_all(["a", "b"]).ttl(MS(3_000)).into_future()).waiting();
    store.always(Point::Beat, Fault::HangRequest);
    clock.advance(MS(3_000));
    let error = call.await.unwrap_err();
    assert!(error.is_lost() && error.to_string().contains("the lease on a is lost"), "{error}");
    assert!(other.is_valid());
}
