//! The README's example of a lock within one process.

use heirlock::{Worker, local::Mutex};
use std::time::Duration;

static DEVICE: Mutex<Vec<u8>> = Mutex::named("device", Vec::new());

#[tokio::main]
async fn main() -> heirlock::Result<()> {
    let (report, alarm) = (Worker::new("report"), Worker::new("alarm").priority(10));
    let held = report.run(DEVICE.lock()).await?;
    let waits = alarm.run(DEVICE.lock().timeout(Duration::from_millis(50)).into_future());
    let releases = async {
        // While the alarm waits, whoever holds the device counts as 10 in every queue.
        println!("the report counts as {}", report.effective_priority());
        drop(held);
    };
    let (device, ()) = tokio::join!(waits, releases);
    device?.push(7);
    Ok(())
}
