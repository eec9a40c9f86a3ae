//! End a service without losing work that has begun.
//!
//! All workers wait for their next job and for one event. When that is set, each finishes the job that it is at, takes no other and ends; whoever has
//! not ended in time is aborted and named, since a shutdown that waits for ever is none.
//!
//! You do not need this where work may be cut off anywhere: drop the runtime. Where parts of a program end one by one, `tokio_util`'s
//! `CancellationToken` makes trees of such events.

use heirlock::local::{Event, Semaphore};
use heirlock::{Worker, spawn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

#[derive(Default)]
pub(crate) struct Service {
    pub(crate) stop: Event,
    pub(crate) begun: AtomicU32,
    pub(crate) done: AtomicU32,
}

impl Service {
    /// Takes jobs, one permit each, until the service stops.
    pub(crate) async fn work<F: Future<Output = ()>>(&self, jobs: &Semaphore, job: impl Fn() -> F) -> heirlock::Result<()> {
        loop {
            tokio::select! {
                // In this order: who is to stop takes no job. If it was just granted one, that is free again.
                biased;
                stop = self.stop.wait() => return stop,
                next = jobs.acquire() => next?.forget(),
            }
            // Here, outside of the select, nothing drops it half way.
            self.begun.fetch_add(1, Ordering::SeqCst);
            job().await;
            self.done.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Tells all to stop, and waits for them; who failed or had to be aborted.
    pub(crate) async fn shut_down(&self, workers: Vec<(Worker, JoinHandle<heirlock::Result<()>>)>, grace: Duration) -> Vec<String> {
        self.stop.set();
        let end = tokio::time::Instant::now() + grace;
        let mut stuck = Vec::new();
        for (worker, mut task) in workers {
            if !matches!(tokio::time::timeout_at(end, &mut task).await, Ok(Ok(Ok(())))) {
                task.abort();
                stuck.push(worker.name().to_owned());
            }
        }
        stuck
    }
}

/// How many jobs were begun, done and left, and who was stuck: one of three workers never ends its job.
pub(crate) async fn recipe() -> heirlock::Result<(u32, u32, u32, Vec<String>)> {
    let (service, jobs) = (Arc::new(Service::default()), Arc::new(Semaphore::unbounded_named("jobs", 10)));
    let workers = ["mail", "thumbnails", "search"].map(|name| {
        let (service, jobs, worker) = (Arc::clone(&service), Arc::clone(&jobs), Worker::new(name));
        let job = move || async move { if name == "search" { std::future::pending().await } else { tokio::task::yield_now().await } };
        (worker.clone(), spawn(worker, async move { service.work(&jobs, job).await }))
    });
    while service.begun.load(Ordering::SeqCst) < 3 {
        tokio::task::yield_now().await;
    }
    let stuck = service.shut_down(workers.into(), Duration::from_millis(200)).await;
    Ok((service.begun.load(Ordering::SeqCst), service.done.load(Ordering::SeqCst), jobs.free_permits(), stuck))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> heirlock::Result<()> {
    let (begun, done, left, stuck) = recipe().await?;
    println!("{begun} jobs were begun, {done} done, {left} are left for the next start; failed or aborted: {}", stuck.join(", "));
    Ok(())
}
