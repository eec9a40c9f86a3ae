//! Count what happens per second, in one process.
//!
//! The count of the last second has parts that belong together: some slices of time, and how much fell into each. So one lock guards them all, and
//! the time is read under it, or two callers could come to it in the wrong order.
//!
//! You do not need this for a total: that is one number, which an atomic counts without any lock, as it does here. And as nothing is awaited while
//! this lock is held, a `std::sync::Mutex` would do, too; this one has a name in snapshots, and its waits can have a timeout.

use heirlock::local::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How much fell into each of the last ten slices of time: plain data, without a lock or a clock.
#[derive(Default)]
pub(crate) struct Window {
    /// The number of a slice, counted from the start, and what fell into it. One that is over is overwritten when its place is needed.
    slices: [(u64, u64); 10],
}

impl Window {
    pub(crate) fn add(&mut self, slice: u64) {
        let place = &mut self.slices[usize::try_from(slice % 10).unwrap_or(0)];
        *place = if place.0 == slice { (slice, place.1 + 1) } else { (slice, 1) };
    }

    /// What fell into this slice and the nine before it.
    pub(crate) fn sum(&self, slice: u64) -> u64 {
        self.slices.iter().filter(|(number, _)| number + 10 > slice).map(|(_, count)| count).sum()
    }
}

pub(crate) struct Rate {
    began: Instant,
    span: Duration,
    window: Mutex<Window>,
    total: AtomicU64,
}

impl Rate {
    pub(crate) fn per(span: Duration) -> Rate {
        Rate { began: Instant::now(), span, window: Mutex::named("rate", Window::default()), total: AtomicU64::new(0) }
    }

    pub(crate) async fn hit(&self) -> heirlock::Result<()> {
        self.total.fetch_add(1, Ordering::Relaxed);
        self.window.with(async |window| window.add(self.slice())).await
    }

    pub(crate) async fn rate(&self) -> heirlock::Result<u64> {
        self.window.with(async |window| window.sum(self.slice())).await
    }

    fn slice(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos() * 10 / self.span.as_nanos().max(1)).unwrap_or(u64::MAX - 10)
    }
}

/// What eight tasks of a thousand hits each make in a minute, and in all.
pub(crate) async fn recipe() -> Result<(u64, u64), Box<dyn std::error::Error>> {
    let requests = Arc::new(Rate::per(Duration::from_secs(60)));
    let hits = async |requests: Arc<Rate>| {
        for _ in 0..1000 {
            requests.hit().await?;
        }
        Ok::<_, heirlock::Error>(())
    };
    for task in [(); 8].map(|()| tokio::spawn(hits(Arc::clone(&requests)))) {
        task.await??;
    }
    Ok((requests.rate().await?, requests.total.load(Ordering::Relaxed)))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (rate, total) = recipe().await?;
    println!("{rate} in the last minute, counted under a lock; {total} in all, counted by an atomic");
    Ok(())
}
