//! A worker that asks again while it waits.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use heirlock::clock::{Clock, ManualClock};
use heirlock::store::{Fault, Faulty, MemoryStore, Point};
use heirlock::{Kind, Lease, Locks, Released, Result, Worker};

use super::MS;
use super::common::polls::Hand;
use super::common::random::{Random, seed};

/// How many wait for the key.
async fn queue(locks: &Locks) -> usize {
    locks.inspect("k").await.unwrap().queue.len()
}

async fn wait_for_queue(locks: &Locks, length: usize) {
    while queue(locks).await != length {
        tokio::task::yield_now().await;
    }
}

/// A worker's two calls for a key that another holds, both polled.
struct Two {
    other: Lease,
    first: Hand<'static, Result<Lease>>,
    second: Hand<'static, Result<Lease>>,
}

async fn two(locks: &Locks, worker: &Worker, patience: [Duration; 2]) -> Two {
    let other = locks.lock("k").await.unwrap();
    let [first, second] = patience.map(|span| Hand::by(worker, locks.lock("k").timeout(span).into_future()).waiting());
    // The second would be there by now.
    assert_eq!(queue(locks).await, 1);
    Two { other, first, second }
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn both_calls_get_one_lease() {
    let locks = Locks::new(MemoryStore::new()).await.unwrap();
    let worker = Worker::new("both");
    let Two { other, first, second } = two(&locks, &worker, [LONG; 2]).await;
    drop(other);
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    assert_eq!(first.fence(), second.fence());
    assert_eq!(first.release().await.unwrap(), Released::StillHeld);
    assert_eq!(second.release().await.unwrap(), Released::InTime);
}

/// The second is polled alone: it must not hang behind one that is kept, and may never be polled again.
#[tokio::test]
async fn a_first_call_that_is_polled_no_more_hinders_nobody() {
    let locks = Locks::new(MemoryStore::new()).await.unwrap();
    let worker = Worker::new("select");
    let Two { other, first, second } = two(&locks, &worker, [LONG; 2]).await;
    drop(other);
    let second = second.await.unwrap();
    assert_eq!(second.release().await.unwrap(), Released::StillHeld, "the first call has a share in it");
    drop(first);
    drop(locks.lock("k").await.unwrap());
}

/// Not even if nobody hears the answer to its request: time stands, so nothing but the second call can make the keeper ask.
#[tokio::test]
async fn a_first_call_that_hears_nothing_hinders_nobody() {
    let clock = ManualClock::new();
    let store = Faulty::new(MemoryStore::with_clock(Arc::new(clock.clone())));
    let locks = Locks::with(Arc::new(store.clone()), Arc::new(clock) as Arc<dyn Clock>).await.unwrap();
    let worker = Worker::new("deaf");
    store.next(Point::Enter, [Fault::HangReply]);
    let first = Hand::by(&worker, locks.lock("k").into_future()).waiting();
    let second = worker.run(locks.lock("k").into_future()).await.unwrap();
    assert_eq!(store.counts().enters, 2);
    drop(first);
    assert!(second.is_valid());
    assert_eq!(second.release().await.unwrap(), Released::InTime);
}

#[tokio::test]
async fn if_the_first_is_dropped_the_second_asks_for_itself() {
    let locks = Locks::new(MemoryStore::new()).await.unwrap();
    let worker = Worker::new("dropped");
    let Two { other, first, second } = two(&locks, &worker, [LONG; 2]).await;
    drop(first);
    let second = second.waiting();
    assert_eq!(second.wakes(), 1, "it was woken to ask");
    wait_for_queue(&locks, 1).await;
    drop(other);
    let lease = second.await.unwrap();
    assert_eq!(lease.release().await.unwrap(), Released::InTime);
}

#[tokio::test]
async fn if_the_second_is_dropped_the_first_waits_on() {
    let store = Faulty::new(MemoryStore::new());
    let locks = Locks::new(store.clone()).await.unwrap();
    let worker = Worker::new("dropped");
    let Two { other, first, second } = two(&locks, &worker, [LONG; 2]).await;
    drop(second);
    assert_eq!((queue(&locks).await, store.counts().leaves), (1, 0));
    drop(other);
    assert_eq!(first.await.unwrap().release().await.unwrap(), Released::InTime);
}

#[tokio::test]
async fn each_call_has_its_own_time() {
    let locks = Locks::new(MemoryStore::new()).await.unwrap();
    let worker = Worker::new("times");
    let Two { other, first, second } = two(&locks, &worker, [LONG, MS(30)]).await;
    assert!(second.await.unwrap_err().is_timeout());
    assert_eq!(queue(&locks).await, 1);
    drop(other);
    drop(first.await.unwrap());

    wait_for_queue(&locks, 0).await;
    let Two { other, first, second } = two(&locks, &worker, [MS(30), LONG]).await;
    assert!(first.await.unwrap_err().is_timeout());
    let second = second.waiting();
    wait_for_queue(&locks, 1).await;
    drop(other);
    drop(second.await.unwrap());
}

#[tokio::test]
async fn who_may_not_wait_is_busy_and_who_wants_more_is_refused() {
    let locks = Locks::new(MemoryStore::new()).await.unwrap();
    let worker = Worker::new("impatient");
    let other = locks.lock("k").await.unwrap();
    let first = Hand::by(&worker, locks.lock("k").shared().into_future()).waiting();
    let error = worker.run(locks.try_lock("k").shared().into_future()).await.unwrap_err();
    assert!(error.is_busy() && error.to_string().contains("impatient"), "{error}");
    assert!(worker.run(locks.lock("k").shared().timeout(Duration::ZERO).into_future()).await.unwrap_err().is_timeout());
    assert_eq!(worker.run(locks.lock("k").into_future()).await.unwrap_err().kind(), Kind::Deadlock);
    assert!(worker.run(locks.lock("k").slots(2).into_future()).await.unwrap_err().is_invalid());
    assert_eq!(queue(&locks).await, 1);
    drop(other);
    drop(first.await.unwrap());
}

#[tokio::test]
async fn a_first_call_that_fails_takes_nobody_with_it() {
    let store = Faulty::new(MemoryStore::new());
    let locks = Locks::new(store.clone()).await.unwrap();
    let worker = Worker::new("fails");
    let other = locks.lock("k").await.unwrap();
    // The store's answer is on its way while the second call comes.
    store.next(Point::Enter, [Fault::SlowReply(MS(50))]);
    let first = Hand::by(&worker, locks.try_lock("k").into_future()).waiting();
    let second = Hand::by(&worker, locks.lock("k").into_future()).waiting();
    assert!(first.await.unwrap_err().is_busy());
    let second = second.waiting();
    wait_for_queue(&locks, 1).await;
    drop(other);
    drop(second.await.unwrap());
}

#[tokio::test]
async fn a_closed_session_ends_both() {
    let locks = Locks::new(MemoryStore::new()).await.unwrap();
    let (worker, session) = (Worker::new("closed"), locks.clone());
    let Two { other, first, second } = two(&session, &worker, [LONG; 2]).await;
    locks.close().await;
    for call in [first, second] {
        assert!(call.await.unwrap_err().is_closed());
    }
    drop(other);
}

/// Whose leases there are, and how many: all of one worker.
#[derive(Default)]
struct Inside {
    worker: u64,
    leases: u32,
}

/// Says that there is a lease, until it goes. It goes before the lease does.
struct Counted<'l> {
    inside: &'l Mutex<Inside>,
    lease: Option<Lease>,
}

impl<'l> Counted<'l> {
    fn new(inside: &'l Mutex<Inside>, worker: u64, lease: Lease) -> Counted<'l> {
        let mut now = inside.lock().unwrap();
        assert!(now.leases == 0 || now.worker == worker, "{} and {worker} hold", now.worker);
        *now = Inside { worker, leases: now.leases + 1 };
        Counted { inside, lease: Some(lease) }
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.inside.lock().unwrap().leases -= 1;
        self.lease.take();
    }
}

/// Five workers, each with two calls at once or one within the other, dropped at random moments; whoever holds is alone but for itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_workers_dropped_at_random_leave_nothing() {
    let seed = seed();
    println!("repeat with HEIRLOCK_SEED={seed}");
    let locks = Locks::new(MemoryStore::new()).await.unwrap();
    let (inside, times) = (Arc::new(Mutex::new(Inside::default())), Arc::new(AtomicU32::new(0)));
    let mut tasks = Vec::new();
    for stream in 1..=5 {
        let (locks, inside, times) = (locks.clone(), Arc::clone(&inside), Arc::clone(&times));
        let mut random = Random::new(seed, stream);
        tasks.push(tokio::spawn(Worker::new(format!("worker {stream}")).run(async move {
            let hold = async |patience: Duration| {
                let Ok(lease) = tokio::time::timeout(patience, locks.lock("k").into_future()).await else { return };
                let lease = Counted::new(&inside, stream, lease.unwrap());
                tokio::task::yield_now().await;
                let again = Counted::new(&inside, stream, locks.lock("k").await.unwrap());
                drop(lease);
                tokio::task::yield_now().await;
                drop(again);
                times.fetch_add(1, Ordering::SeqCst);
            };
            for _ in 0..150 {
                let [one, two] = [(); 2].map(|()| Duration::from_micros(random.within(0, 3_000)));
                if random.chance(50) {
                    tokio::join!(hold(one), hold(two));
                } else {
                    hold(one).await;
                }
            }
        })));
    }
    for task in tasks {
        task.await.unwrap();
    }
    while !locks.list("").await.unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(times.load(Ordering::SeqCst) > 0, "nobody ever held");
}
