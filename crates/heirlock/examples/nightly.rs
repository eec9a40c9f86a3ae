//! The README's example.

use heirlock::Locks;
use std::time::Duration;

#[tokio::main]
async fn main() -> heirlock::Result<()> {
    let locks = Locks::connect("sqlite:/tmp/nightly.db").await?;
    let lease = locks.lock("nightly").priority(10).timeout(Duration::from_secs(60)).await?;
    // Dropped unfinished if the lock is lost, and then an error. The fence lets what you write to refuse a holder that is late.
    lease.run(async { println!("working, fence {}", lease.fence()) }).await?;
    lease.release().await?;
    Ok(())
}
