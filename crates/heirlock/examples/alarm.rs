//! The README's example of a lock within one process.

use heirlock::{Worker, local::Mutex};
use std::time::Duration;

static DEVICE: Mutex<Vec<u8>> = Mutex::named("device", Vec::new());

#[tokio::main]
async fn main() -> heirlock::Result<()> {
    // While the alarm waits, whoever holds the device counts as 10 in every queue.
    let alarm = Worker::new("alarm").priority(10);
    let write = async || DEVICE.lock().timeout(Duration::from_millis(50)).await.map(|mut device| device.push(7));
    alarm.run(write()).await
}
