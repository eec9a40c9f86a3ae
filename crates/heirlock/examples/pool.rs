//! The README's example of the pool.

use heirlock::{Worker, local::Mutex, pool::Pool};
use std::sync::Arc;

#[tokio::main]
async fn main() -> heirlock::Result<()> {
    let pool = Pool::builder().threads(2).build()?;
    let cache = Arc::new(Mutex::named("cache", 0));
    let add = |n| {
        let cache = Arc::clone(&cache);
        async move { cache.lock().await.map(|mut sum| *sum += n) }
    };
    let report = pool.spawn(Worker::new("report"), add(1));
    let alarm = pool.spawn(Worker::new("alarm").priority(10), add(2));
    alarm.await??;
    report.await??;
    pool.drain().await?;
    Ok(())
}
