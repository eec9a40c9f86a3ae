//! Waits that end because their time is over.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;

use crate::common::Report;
use crate::compare::{By, Peer, compare, runtime};
use crate::contended::tasks;

const WAITS: u64 = 10_000;
/// Less than it takes to begin so many waits.
const SHORT: Duration = Duration::from_millis(1);

pub(crate) fn timeouts(report: &mut Report) {
    for threads in [1, 2] {
        let runtime = runtime(threads);
        // Ours has a thread for its deadlines, which the wall does not see where a processor is idle.
        for (by, how) in [(By::Wall, ""), (By::Process, ", processor time")] {
            let what = format!("10,000 waits that time out, {threads} thread{}{how}", if threads == 1 { "" } else { "s" });
            compare(report, &what, || ours(&runtime, by), vec![Peer::new("tokio", 0.7, || theirs(&runtime, by))]);
        }
    }
}

fn ours(runtime: &Runtime, by: By) -> f64 {
    let lock = Arc::new(heirlock::local::Mutex::new(()));
    let _guard = lock.try_lock().unwrap();
    let shared = Arc::clone(&lock);
    tasks(runtime, by, WAITS, WAITS, move |_| {
        let lock = Arc::clone(&shared);
        async move { assert!(lock.lock().timeout(SHORT).await.is_err_and(|error| error.is_timeout())) }
    })
}

fn theirs(runtime: &Runtime, by: By) -> f64 {
    let lock = Arc::new(tokio::sync::Mutex::new(()));
    let _guard = lock.try_lock().unwrap();
    let shared = Arc::clone(&lock);
    tasks(runtime, by, WAITS, WAITS, move |_| {
        let lock = Arc::clone(&shared);
        async move { assert!(tokio::time::timeout(SHORT, lock.lock()).await.is_err()) }
    })
}
