//! Many leases of one session beside a store that is slow, fails, or hangs.

use std::future::IntoFuture;
use std::time::Instant;

use heirlock::store::{Fault, Faulty, MemoryStore, Point};
use heirlock::{Kind, Lease, Locks, LostReason, Released};

use super::MS;

const MANY: usize = 2_000;

async fn hold_many(locks: &Locks, ttl: u64) -> Vec<Lease> {
    let mut leases = Vec::with_capacity(MANY);
    for number in 0..MANY {
        leases.push(locks.lock(format!("key {number}")).ttl(MS(ttl)).await.unwrap());
    }
    leases
}

/// The store does not answer for half a ttl: nothing is lost, for there is time to try again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_that_comes_back_in_time() {
    let store = Faulty::new(MemoryStore::new());
    let locks = Locks::new(store.clone()).await.unwrap();
    let leases = hold_many(&locks, 3_000).await;
    store.always(Point::Beat, Fault::HangReply);
    let since = Instant::now();
    while since.elapsed() < MS(1_500) {
        assert!(leases.iter().all(Lease::is_valid));
        tokio::time::sleep(MS(20)).await;
    }
    store.heal();
    // Each has been renewed since, and goes on for as long again.
    let by = Instant::now() + MS(10_000);
    while leases.iter().any(|lease| lease.remaining() < MS(1_600)) {
        assert!(Instant::now() < by, "some are not renewed");
        assert!(leases.iter().all(Lease::is_valid));
        tokio::time::sleep(MS(5)).await;
    }
    for lease in leases {
        assert_eq!(lease.release().await.unwrap(), Released::InTime);
    }
}

/// It never answers again: all are lost by timer, each in its own time, and nobody waits for a request that hangs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_are_lost_in_time_beside_a_store_that_hangs() {
    let store = Faulty::new(MemoryStore::new());
    let locks = Locks::new(store.clone()).await.unwrap();
    let leases = hold_many(&locks, 1_500).await;
    store.always(Point::Beat, Fault::HangRequest);
    // Those requests that passed before are answered meanwhile.
    tokio::time::sleep(MS(50)).await;
    let told: Vec<_> = leases
        .into_iter()
        .map(|lease| {
            let end = Instant::now() + lease.remaining();
            tokio::spawn(async move { (lease.lost().await, end, Instant::now()) })
        })
        .collect();
    for told in told {
        let (reason, end, now) = told.await.unwrap();
        assert_eq!(reason, LostReason::Expired);
        assert!(now + MS(50) >= end, "told {:?} before its end", end - now);
        assert!(now < end + MS(500), "told {:?} after its end", now - end);
    }
}

/// Some requests hang: what they were for is asked again, and the rest goes on meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_hang_keep_nobody_else_waiting() {
    let store = Faulty::new(MemoryStore::new());
    let locks = Locks::new(store.clone()).await.unwrap();
    let leases = hold_many(&locks, 2_000).await;
    store.next(Point::Beat, [Fault::HangRequest, Fault::HangReply, Fault::HangRequest]);
    let since = Instant::now();
    while since.elapsed() < MS(4_000) {
        assert!(leases.iter().all(Lease::is_valid), "after {:?}", since.elapsed());
        tokio::time::sleep(MS(20)).await;
    }
    store.heal();
}

/// What waits and what is held is answered by a close, and a close is over in its time, whatever hangs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_close_beside_a_store_that_hangs_answers_all() {
    let store = Faulty::new(MemoryStore::new());
    let (locks, other) = (Locks::new(store.clone()).await.unwrap(), Locks::new(store.clone()).await.unwrap());
    let mut held = Vec::new();
    let mut theirs = Vec::new();
    for number in 0..100 {
        held.push(locks.lock(format!("held {number}")).await.unwrap());
        theirs.push(other.lock(format!("theirs {number}")).await.unwrap());
    }
    let waiting: Vec<_> = (0..100).map(|number| tokio::spawn(locks.lock(format!("theirs {number}")).into_future())).collect();
    for number in 0..100 {
        while locks.inspect(format!("theirs {number}")).await.unwrap().queue.is_empty() {
            tokio::task::yield_now().await;
        }
    }
    for point in [Point::Enter, Point::Beat, Point::Leave] {
        store.always(point, Fault::HangRequest);
    }
    let since = Instant::now();
    let closing = tokio::spawn(locks.close());
    for waiter in waiting {
        assert_eq!(waiter.await.unwrap().unwrap_err().kind(), Kind::Closed);
    }
    for lease in &held {
        assert_eq!(lease.lost().await, LostReason::Closed);
    }
    assert!(since.elapsed() < MS(2_000), "they are answered at once: {:?}", since.elapsed());
    closing.await.unwrap();
    assert!(since.elapsed() < MS(9_000), "6 s, and half as much again for a slow machine: {:?}", since.elapsed());
    store.heal();
}
