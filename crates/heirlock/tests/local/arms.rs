//! Many arms of one bare task for one lock: what they cost, and that none is forgotten.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::local::{assert_idle, end_doubt, permits, worker};
use crate::common::polls::{Hand, everywhere, in_tasks, once, pause};
use futures_util::stream::{FuturesUnordered, StreamExt};
use heirlock::clock::{BootClock, Clock, Moment};
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

/// The real time, and how often the timer's thread asks for it: each time that it looks at the domain.
#[derive(Clone, Default)]
struct Looks(Arc<AtomicUsize>);

impl Clock for Looks {
    fn now(&self) -> Moment {
        let timer = std::thread::current().name() == Some("heirlock-timer");
        self.0.fetch_add(usize::from(timer), Ordering::SeqCst);
        BootClock.now()
    }

    fn sleep_for(&self, until: Moment) -> Option<Duration> {
        BootClock.sleep_for(until)
    }
}

/// Two tasks of many arms, at the usual `stall_time`: whoever is passed over because this machine is busy has its turn all the same. The timer is not
/// rung each time that an arm is in doubt.
#[test]
fn tasks_of_many_arms_contend() {
    const EACH: usize = ARMS / 4;
    let looks = Looks::default();
    let domain = Domain::builder().clock(looks.clone()).build();
    let mutex = Arc::new(Mutex::new(0_usize).in_domain(&domain));
    let semaphore = Arc::new(Semaphore::new(2).in_domain(&domain));
    let start = Instant::now();
    let two = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    two.block_on(async {
        let tasks = [(); 2].map(|()| {
            let (mutex, semaphore) = (Arc::clone(&mutex), Arc::clone(&semaphore));
            tokio::spawn(async move {
                let arm = async || {
                    let _permit = semaphore.acquire().await.unwrap();
                    let mut guard = mutex.lock().await.unwrap();
                    pause().await;
                    *guard += 1;
                };
                let mut arms: FuturesUnordered<_> = (0..EACH).map(|_| arm()).collect();
                while arms.next().await.is_some() {}
            })
        });
        for task in tasks {
            task.await.unwrap();
        }
    });
    let (looks, most) = (looks.0.load(Ordering::SeqCst), 10 + 4 * start.elapsed().as_millis() / 20);
    assert_eq!((mutex.try_lock().map(|guard| *guard).unwrap(), semaphore.free_permits()), (2 * EACH, 2));
    assert!(looks as u128 <= most, "the timer looked {looks} times, {most} would be many");
    assert_idle(&domain);
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
