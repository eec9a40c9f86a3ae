//! A pool of connections, of which the urgent get one first.
//!
//! A few connections serve many tasks. Who finds none free waits by priority; and whoever has one counts as urgent as the most urgent who waits, so
//! that no other lock holds it up on its way to give it back. A connection whose work was dropped or panicked half way is not used again.
//!
//! You do not need this where all tasks are equally urgent, or where the driver comes with a pool whose order is good enough.

use heirlock::Worker;
use heirlock::local::{self, Event, Semaphore, SemaphorePermit};
use std::sync::{Mutex, MutexGuard, PoisonError};

pub(crate) struct Pool<C> {
    permits: Semaphore,
    /// Nothing is awaited while it is held, so it is a plain mutex.
    idle: Mutex<Vec<C>>,
}

pub(crate) struct Pooled<'p, C> {
    pub(crate) connection: C,
    pool: &'p Pool<C>,
    _permit: SemaphorePermit<'p>,
}

impl<C> Pool<C> {
    pub(crate) fn new(size: u32) -> Pool<C> {
        Pool { permits: Semaphore::named("connections", size).tracked(), idle: Mutex::new(Vec::new()) }
    }

    /// A connection that nobody else has meanwhile, made by `connect` if none is idle.
    pub(crate) async fn get(&self, connect: impl AsyncFnOnce() -> heirlock::Result<C>) -> heirlock::Result<Pooled<'_, C>> {
        let permit = self.permits.acquire().await?;
        let idle = self.idle().pop();
        let connection = if let Some(idle) = idle { idle } else { connect().await? };
        Ok(Pooled { connection, pool: self, _permit: permit })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<C>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C> Pooled<'_, C> {
    /// For the next. What is dropped without that is closed, for nobody knows what state it is in; the next makes a new one.
    pub(crate) fn give_back(self) {
        self.pool.idle().push(self.connection);
    }
}

/// Who was served, in order, and as what the batch job counted while the checkout waited, and afterwards.
pub(crate) async fn recipe() -> heirlock::Result<(Vec<String>, [i32; 2])> {
    let (pool, go, served) = (Pool::new(2), Event::named("go"), local::Mutex::new(Vec::new()));
    let work = async |worker: &Worker| {
        let pooled = pool.get(async || Ok("a connection")).await?;
        served.lock().await?.push(worker.name().to_owned());
        go.wait().await?;
        pooled.give_back();
        heirlock::Result::Ok(())
    };
    let workers = [("batch", 0), ("mail", 0), ("thumbnails", 0), ("checkout", 10)];
    let [batch, mail, thumbnails, checkout] = workers.map(|(name, priority)| Worker::new(name).priority(priority));
    let counts = async {
        // By now two have a connection, and two wait.
        let before = batch.effective_priority();
        go.set();
        Ok(before)
    };
    let [one, two, three, four] = [&batch, &mail, &thumbnails, &checkout].map(|worker| worker.run(work(worker)));
    let (.., before) = tokio::try_join!(one, two, three, four, counts)?;
    Ok((served.into_inner(), [before, batch.effective_priority()]))
}

#[tokio::main]
async fn main() -> heirlock::Result<()> {
    let (served, [before, after]) = recipe().await?;
    println!("two connections served {}; the batch job counted as {before} meanwhile, then as {after}", served.join(", "));
    Ok(())
}
