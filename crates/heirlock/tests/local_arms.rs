//! How often the timer looks at a domain in which arms are in doubt. A program of its own: the domains of other tests wake the same timer.
#![allow(missing_docs, clippy::unwrap_used)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::stream::{FuturesUnordered, StreamExt};
use heirlock::clock::{BootClock, Clock, Moment};
use heirlock::local::{Domain, Mutex, Semaphore};

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
    const EACH: usize = 500;
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
                    tokio::task::yield_now().await;
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
    assert_eq!(domain.records(), [0; 7], "nothing is left");
}
