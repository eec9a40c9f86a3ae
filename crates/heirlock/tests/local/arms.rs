//! Many arms of one bare task for one lock: what they cost, and that none is forgotten.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::local::{assert_idle, end_doubt, permits, worker};
use crate::common::polls::{Hand, everywhere, in_tasks, once, pause};
use futures_util::stream::{FuturesUnordered, StreamExt};
use heirlock::local::{Domain, Mutex, RwLock, Semaphore};

const ARMS: usize = 2000;

/// Counts how often it is polled.
async fn counted<F: Future>(polls: &AtomicUsize, future: F) -> F::Output {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| {
        polls.fetch_add(1, Ordering::Relaxed);
        future.as_mut().poll(cx)
    })
    .await
}

/// So many arms that are polled when they are woken; how often in all they were. Once to queue, and once to be served: who is served makes nobody
/// else ask again.
async fn run<F: Future<Output = ()>>(arm: impl Fn() -> F) {
    let mut arms: FuturesUnordered<F> = (0..ARMS).map(|_| arm()).collect();
    while arms.next().await.is_some() {}
}

#[test]
fn each_arm_is_polled_to_queue_and_to_be_served() {
    in_tasks(|| async {
        // Nobody is passed over, however slow this machine is.
        let domain = Domain::builder().stall_time(Duration::from_secs(36_000)).build();
        let (mutex, rwlock) = (Mutex::new(0).in_domain(&domain), RwLock::new(0).in_domain(&domain));
        let held = (Hand::by(&worker("holder", 0), mutex.lock()).ready(), Hand::by(&worker("holder", 0), rwlock.write()).ready());
        let polls = AtomicUsize::new(0);
        let mut arms = pin!(run(|| async {
            let mut guard = counted(&polls, mutex.lock()).await.unwrap();
            pause().await;
            *guard += 1;
        }));
        let mut writers = pin!(run(|| async {
            let mut guard = counted(&polls, rwlock.write()).await.unwrap();
            pause().await;
            *guard += 1;
        }));
        // All queue, then the holder goes.
        let mut held = Some(held);
        std::future::poll_fn(|cx| {
            let first = [arms.as_mut().poll(cx).is_pending(), writers.as_mut().poll(cx).is_pending()];
            if polls.load(Ordering::Relaxed) == 2 * ARMS {
                held = None;
                return std::task::Poll::Ready(());
            }
            assert_eq!(first, [true; 2]);
            std::task::Poll::Pending
        })
        .await;
        tokio::join!(arms, writers);
        assert_eq!((*mutex.lock().await.unwrap(), *rwlock.read().await.unwrap()), (ARMS, ARMS));
        assert_eq!(polls.load(Ordering::Relaxed), 4 * ARMS);
        for tracked in [false, true] {
            let semaphore = Semaphore::new(3).in_domain(&domain);
            let semaphore = if tracked { semaphore.tracked() } else { semaphore };
            let polls = AtomicUsize::new(0);
            run(|| async {
                let _permit = counted(&polls, semaphore.acquire()).await.unwrap();
                pause().await;
            })
            .await;
            let polls = polls.load(Ordering::Relaxed);
            assert!((2 * ARMS - 3..=2 * ARMS).contains(&polls), "{polls} polls of {ARMS} arms");
            assert_eq!(semaphore.free_permits(), 3);
        }
        assert_idle(&domain);
    });
}

/// A call that does not wait has what its own worker was granted and has left lying for too long.
#[test]
fn a_try_takes_back_what_was_forgotten() {
    everywhere(|| async {
        for tracked in [false, true] {
            let (domain, clock, semaphore) = permits(3, tracked);
            let held = Hand::by(&worker("holder", 0), semaphore.acquire_many(3)).ready().unwrap();
            let mut kept = semaphore.acquire_many(3);
            assert!(once(&mut kept).await.is_pending());
            drop(held);
            // It may be about to be polled.
            assert!(semaphore.try_acquire().unwrap_err().is_would_block());
            end_doubt(&domain, &clock);
            let permit = semaphore.try_acquire().unwrap();
            assert_eq!(semaphore.free_permits(), 2);
            assert!(once(&mut kept).await.is_pending());
            drop(permit);
            assert_eq!(kept.await.unwrap().permits(), 3);
            assert_idle(&domain);
        }
    });
}
