//! A producer and several consumers, who wait for a condition.
//!
//! Each consumer waits until there is a whole batch, or no more will come; the producer waits while the queue is full. Such a wait gives the lock up,
//! and returns with it when what it waits for is so.
//!
//! You do not need this where a consumer takes one thing at a time (a channel, `tokio::sync::mpsc`), or waits for something to be so once (`Event`).

use heirlock::local::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;

pub(crate) const ROOM: usize = 20;
pub(crate) const BATCH: usize = 8;

/// The jobs that wait, and whether there will be no more.
pub(crate) struct Queue {
    pub(crate) jobs: Mutex<(VecDeque<u32>, bool)>,
    room: Condvar,
    batch: Condvar,
}

impl Queue {
    pub(crate) fn new() -> Queue {
        Queue { jobs: Mutex::named("jobs", (VecDeque::new(), false)), room: Condvar::named("room"), batch: Condvar::named("a batch") }
    }

    pub(crate) async fn push(&self, job: u32) -> heirlock::Result<()> {
        let mut jobs = self.room.wait_while(self.jobs.lock().await?, |(waiting, _)| waiting.len() >= ROOM).await?;
        jobs.0.push_back(job);
        if jobs.0.len() >= BATCH {
            self.batch.notify_one();
        }
        Ok(())
    }

    /// The next batch. The last may be smaller, and an empty one means that there will be no more.
    pub(crate) async fn take(&self) -> heirlock::Result<Vec<u32>> {
        let mut jobs = self.batch.wait_while(self.jobs.lock().await?, |(waiting, closed)| waiting.len() < BATCH && !*closed).await?;
        let count = jobs.0.len().min(BATCH);
        self.room.notify_all();
        Ok(jobs.0.drain(..count).collect())
    }

    /// No more will come: all who wait take what is left.
    pub(crate) async fn close(&self) -> heirlock::Result<()> {
        self.jobs.lock().await?.1 = true;
        self.batch.notify_all();
        Ok(())
    }
}

pub(crate) async fn consume(queue: Arc<Queue>) -> heirlock::Result<Vec<Vec<u32>>> {
    let mut batches = Vec::new();
    loop {
        match queue.take().await? {
            batch if batch.is_empty() => return Ok(batches),
            batch => batches.push(batch),
        }
    }
}

/// What three consumers got of a hundred jobs.
pub(crate) async fn recipe() -> Result<Vec<Vec<u32>>, Box<dyn std::error::Error>> {
    let queue = Arc::new(Queue::new());
    let consumers = [(); 3].map(|()| tokio::spawn(consume(Arc::clone(&queue))));
    for job in 1..=100 {
        queue.push(job).await?;
    }
    queue.close().await?;
    let [first, second, third] = consumers;
    Ok([first.await??, second.await??, third.await??].concat())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let batches = recipe().await?;
    println!("the jobs 1 to 100 came in batches of {:?}", batches.iter().map(Vec::len).collect::<Vec<_>>());
    Ok(())
}
