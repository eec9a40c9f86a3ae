//! Call an external API, at most so many times at once.
//!
//! The provider allows some calls beside each other and refuses more. Here who comes too much waits for a permit, by priority, and not for longer
//! than it is worth: then the caller hears so, and the API is not asked at all. A heavy call takes several permits.
//!
//! You do not need this where one connection pool bounds the calls already. A limit of calls per second is another thing (see `rate_counter`); one
//! that all processes share is a lease with slots: `locks.lock("api").slots(3)`.

use heirlock::{Worker, local::Semaphore, spawn};
use std::error::Error;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub(crate) struct Limit {
    calls: Semaphore,
    patience: Duration,
}

impl Limit {
    pub(crate) fn new(at_once: u32, patience: Duration) -> Limit {
        Limit { calls: Semaphore::named("calls of the API", at_once), patience }
    }

    /// Calls, when there is room. `Timeout` if there was none in time, `Invalid` if there is never so much.
    pub(crate) async fn call<R>(&self, weight: u32, api: impl Future<Output = R>) -> heirlock::Result<R> {
        let _permits = self.calls.acquire_many(weight).timeout(self.patience).await?;
        Ok(api.await)
    }
}

/// Stands for the API, and sees by whom it is called, and how much of that is at once.
#[derive(Default)]
pub(crate) struct Api {
    callers: Mutex<Vec<&'static str>>,
    now: AtomicU32,
    pub(crate) most: AtomicU32,
}

impl Api {
    pub(crate) async fn answer(&self, who: &'static str, weight: u32) {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner).push(who);
        self.most.fetch_max(self.now.fetch_add(weight, Ordering::SeqCst) + weight, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(5)).await;
        self.now.fetch_sub(weight, Ordering::SeqCst);
    }

    pub(crate) fn callers(&self) -> Vec<&'static str> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Eleven callers, and what one heard who had no time.
pub(crate) async fn recipe() -> Result<(Arc<Api>, Option<heirlock::Error>), Box<dyn Error>> {
    let (limit, api) = (Arc::new(Limit::new(3, Duration::from_secs(10))), Arc::new(Api::default()));
    let call = |(who, priority, weight)| {
        let (limit, api) = (Arc::clone(&limit), Arc::clone(&api));
        spawn(Worker::new(who).priority(priority), async move { limit.call(weight, api.answer(who, weight)).await })
    };
    let calls: Vec<_> = [("sync", 0, 1); 9].into_iter().chain([("export", 5, 3), ("payment", 10, 1)]).map(call).collect();
    tokio::task::yield_now().await;
    let hasty = limit.calls.acquire().timeout(Duration::from_millis(1)).await.err();
    for call in calls {
        call.await??;
    }
    Ok((api, hasty))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let (api, hasty) = recipe().await?;
    println!("at most {} at once: {}", api.most.load(Ordering::SeqCst), api.callers().join(", "));
    println!("who had 1 ms heard: {}", hasty.map_or("nothing".into(), |error| error.to_string()));
    Ok(())
}
