//! The holder's side over the memory store.

use std::sync::Arc;
use std::time::Duration;

use heirlock::clock::{Clock, ManualClock};
use heirlock::lease::Evict;
use heirlock::store::{Fault, Faulty, MemoryStore, Point};
use heirlock::{Kind, Locks, LostReason, Released, Worker};

use super::MS;

#[tokio::test]
async fn a_waiter_is_woken_by_the_release() {
    let locks = Locks::new(MemoryStore::new()).await.unwrap();
    let first = locks.lock("k").await.unwrap();
    let waiter = tokio::spawn(locks.lock("k").into_future());
    while locks.inspect("k").await.unwrap().queue.is_empty() {
        tokio::task::yield_now().await;
    }
    let fence = first.fence();
    assert_eq!(first.release().await.unwrap(), Released::InTime);
    let second = waiter.await.unwrap().unwrap();
    assert!(second.fence() > fence);
}

#[tokio::test]
async fn a_lost_lease_says_why_and_stops_the_work() {
    let clock = ManualClock::new();
    let store = Faulty::new(MemoryStore::with_clock(Arc::new(clock.clone())));
    let locks = Locks::with(Arc::new(store.clone()), Arc::new(clock.clone()) as Arc<dyn Clock>).await.unwrap();
    let lease = locks.lock("k").ttl(MS(9_000)).await.unwrap();
    assert!(lease.remaining() <= MS(9_000 - 92));
    store.always(Point::Beat, Fault::HangRequest);
    clock.advance(MS(8_000));
    assert!(lease.is_valid());
    clock.advance(MS(908));
    assert!(!lease.is_valid());
    let work = lease.run(std::future::pending::<()>()).await;
    assert!(work.unwrap_err().is_lost());
    assert_eq!(lease.lost().await, LostReason::Expired);
    assert_eq!(lease.release().await.unwrap(), Released::AlreadyLost);
}

#[tokio::test]
async fn a_longest_hold_has_the_margin_of_its_own_length() {
    let clock = ManualClock::new();
    let store = MemoryStore::with_clock(Arc::new(clock.clone()));
    let locks = Locks::with(Arc::new(store), Arc::new(clock.clone()) as Arc<dyn Clock>).await.unwrap();
    let lease = locks.lock("k").ttl(Duration::from_secs(3_600)).max_hold(MS(3_000)).await.unwrap();
    assert_eq!(lease.remaining(), MS(3_000 - 30 - 2));
    clock.advance(MS(2_967));
    assert!(lease.is_valid());
    clock.advance(MS(1));
    assert!(!lease.is_valid());
    assert_eq!(lease.lost().await, LostReason::MaxHold);
}

#[tokio::test]
async fn an_eviction_tells_the_holder_and_keeps_others_out() {
    let locks = Locks::new(MemoryStore::new()).await.unwrap();
    let lease = locks.lock("k").await.unwrap();
    assert_eq!(locks.evict("k", Evict { fence: Some(lease.fence()), force: false }).await.unwrap(), 1);
    assert_eq!(lease.lost().await, LostReason::Evicted);
    assert!(lease.is_valid(), "nobody else can hold before it leaves or expires");
    assert!(lease.run(std::future::pending::<()>()).await.unwrap_err().is_evicted());
    assert!(locks.try_lock("k").await.unwrap_err().is_busy());
    drop(lease);
    drop(locks.lock("k").await.unwrap());
}

#[tokio::test]
async fn close_ends_what_waits_and_what_is_held() {
    let store = MemoryStore::new();
    let locks = Locks::new(store.clone()).await.unwrap();
    let lease = locks.lock("k").await.unwrap();
    let waiter = tokio::spawn(locks.lock("k").into_future());
    while locks.inspect("k").await.unwrap().queue.is_empty() {
        tokio::task::yield_now().await;
    }
    let other = locks.clone();
    locks.close().await;
    assert_eq!(waiter.await.unwrap().unwrap_err().kind(), Kind::Closed);
    assert_eq!(lease.lost().await, LostReason::Closed);
    assert!(!lease.is_valid());
    assert!(other.list("").await.unwrap().is_empty());
    assert!(other.lock("k").await.unwrap_err().is_closed());
    drop(Locks::new(store).await.unwrap().try_lock("k").await.unwrap());
}

#[tokio::test]
async fn options_are_checked_before_anything_is_sent() {
    let store = Faulty::new(MemoryStore::new());
    let locks = Locks::new(store.clone()).await.unwrap();
    let bad = [
        locks.lock(""),
        locks.lock("a\nb"),
        locks.lock("k").ttl(Duration::ZERO),
        locks.lock("k").ttl(Duration::MAX),
        locks.lock("k").ttl(MS(1)),
        locks.lock("k").slots(0),
        locks.lock("k").renew_every(Duration::from_secs(11)),
        locks.lock("k").renew_every(Duration::ZERO),
        locks.lock("k").max_hold(Duration::ZERO),
        locks.lock("k").timeout(Duration::MAX),
    ];
    for call in bad {
        let error = call.await.unwrap_err();
        assert!(error.is_invalid(), "{error}");
    }
    assert_eq!(store.counts().enters, 0);
}

#[tokio::test]
async fn the_worker_gives_name_priority_and_deadline() {
    let locks = Locks::new(MemoryStore::new()).await.unwrap();
    let worker = Worker::new("nightly-import").priority(7);
    let lease = worker.run(async { locks.lock("k").why("because").await }).await.unwrap();
    let view = locks.inspect("k").await.unwrap();
    let holder = &view.holders[0];
    assert_eq!((holder.owner.name.as_str(), holder.priority), ("nightly-import", 7));
    assert_eq!(holder.owner.why.as_deref(), Some("because"));
    assert!(holder.owner.site.as_ref().unwrap().contains("holder.rs"));
    let late = Worker::new("late").deadline(std::time::Instant::now() + MS(20));
    let error = late.run(async { locks.lock("k").await }).await.unwrap_err();
    assert!(error.is_timeout());
    drop(lease);
}

#[test]
fn threads_wait_without_a_runtime() {
    let locks = pollster::block_on(Locks::new(MemoryStore::new())).unwrap();
    let lease = locks.lock_blocking("k").unwrap();
    let error = locks.lock("k").timeout(MS(30)).blocking().unwrap_err();
    assert!(error.is_timeout(), "{error}");
    let error = locks.lock("k").timeout(Duration::ZERO).blocking().unwrap_err();
    assert!(error.is_timeout(), "{error}");
    // The one that ran out of time is withdrawn in the background: it must not be handed the key.
    while !pollster::block_on(locks.inspect("k")).unwrap().queue.is_empty() {
        std::thread::yield_now();
    }
    assert_eq!(lease.release_blocking().unwrap(), Released::InTime);
    drop(locks.lock("k").timeout(Duration::ZERO).blocking().unwrap());
}

#[tokio::test]
async fn a_late_enter_of_a_refused_call_leaves_nothing() {
    let store = Faulty::new(MemoryStore::new());
    let locks = Locks::new(store.clone()).await.unwrap();
    let slot = Locks::new(store.store().clone()).await.unwrap().lock("k").slots(3).await.unwrap();
    // The first request is under way while the retry is refused: the key is in use in another mode.
    store.next(Point::Enter, [Fault::ArriveLate(MS(200))]);
    assert!(locks.lock("k").await.unwrap_err().is_invalid());
    slot.release().await.unwrap();
    assert_eq!(store.counts().late, 0);
    while store.counts().late == 0 {
        tokio::time::sleep(MS(1)).await;
    }
    assert!(locks.list("").await.unwrap().is_empty(), "the late request is granted a lock that nobody has");
}

#[tokio::test]
async fn a_loss_is_told_in_time_while_many_requests_hang() {
    let store = Faulty::new(MemoryStore::new());
    let locks = Locks::new(store.clone()).await.unwrap();
    let mut others = Vec::new();
    for at in 0..300 {
        others.push(locks.lock(format!("other {at}")).await.unwrap());
    }
    let lease = locks.lock("k").ttl(MS(700)).await.unwrap();
    store.cut_off();
    drop(others);
    let end = std::time::Instant::now() + lease.remaining();
    assert_eq!(lease.lost().await, LostReason::Expired);
    let late = end.elapsed();
    assert!(late < MS(250), "{late:?} late");
}

#[tokio::test]
async fn a_timeout_tells_the_store_once() {
    let store = Faulty::new(MemoryStore::new());
    let locks = Locks::new(store.clone()).await.unwrap();
    let lease = locks.lock("k").await.unwrap();
    store.always(Point::Leave, Fault::SlowReply(MS(50)));
    assert!(locks.lock("k").timeout(MS(20)).await.unwrap_err().is_timeout());
    assert_eq!(lease.release().await.unwrap(), Released::InTime);
    locks.close().await;
    assert_eq!(store.counts().leaves, 2, "one of the waiter, one of the holder");
}

#[tokio::test]
async fn a_deadline_that_is_over_takes_a_free_key_and_waits_for_no_other() {
    let locks = Locks::new(MemoryStore::new()).await.unwrap();
    let past = std::time::Instant::now();
    let lease = locks.lock("k").deadline(past).await.unwrap();
    let error = locks.lock("k").deadline(past).await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    assert!(locks.inspect("k").await.unwrap().queue.is_empty());
    drop(lease);
}

#[tokio::test]
async fn a_short_wait_for_a_silent_store_is_a_timeout_and_a_long_one_is_not() {
    let store = Faulty::new(MemoryStore::new());
    let locks = Locks::new(store.clone()).await.unwrap();
    store.always(Point::Enter, Fault::HangRequest);
    assert!(locks.lock("k").timeout(MS(20)).await.unwrap_err().is_timeout());
    assert!(locks.lock("k").timeout(MS(1_100)).await.unwrap_err().is_unreachable());
    store.next(Point::Enter, [Fault::LoseRequest]);
    assert!(locks.lock("k").timeout(MS(20)).await.unwrap_err().is_unreachable(), "it said that the connection was cut");
}

#[tokio::test]
async fn one_hint_wakes_all_readers_of_a_session_and_few_of_its_writers() {
    let store = Faulty::new(MemoryStore::new());
    let (locks, others) = (Locks::new(store.clone()).await.unwrap(), Locks::new(store.clone()).await.unwrap());
    let writer = others.lock("k").await.unwrap();
    let readers: Vec<_> = (0..20).map(|_| tokio::spawn(locks.lock("k").shared().into_future())).collect();
    while locks.inspect("k").await.unwrap().queue.len() < 20 {
        tokio::task::yield_now().await;
    }
    let since = std::time::Instant::now();
    drop(writer);
    let mut held = Vec::new();
    for reader in readers {
        held.push(reader.await.unwrap().unwrap());
    }
    assert!(since.elapsed() < MS(900), "they waited for their looks: {:?}", since.elapsed());

    let writers: Vec<_> = (0..20).map(|_| tokio::spawn(others.lock("k").into_future())).collect();
    while others.inspect("k").await.unwrap().queue.len() < 20 {
        tokio::task::yield_now().await;
    }
    drop(held);
    for writer in writers {
        drop(writer.await.unwrap().unwrap());
    }
    assert!(others.list("").await.unwrap().iter().all(|key| key.queue.is_empty()));
}
