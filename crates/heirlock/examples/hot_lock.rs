//! Shrink a hot lock: hold it for less long, make many of it, let readers in together, do without; measured beside each other.
//!
//! Sixteen tasks make ten steps each. A step looks at one of sixteen counters, counts it up one time in ten, and waits for a millisecond, as for the
//! answer of a server. With one lock around all that, nobody does anything beside anybody else. Each of the other ways leaves something out.
//!
//! You do not need this before you have seen that a lock is hot: a snapshot shows a queue, `warn_after` a long hold. `docs/contention.md` says more.

use heirlock::local::{Mutex, RwLock};
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

static ONE: Mutex<[u64; 16]> = Mutex::named("one lock", [0; 16]);
static BRIEF: Mutex<[u64; 16]> = Mutex::named("one lock, let go in time", [0; 16]);
static EACH: [Mutex<u64>; 16] = [const { Mutex::named("a lock for each", 0) }; 16];
static SHARED: RwLock<[u64; 16]> = RwLock::named("a read-write lock", [0; 16]);
static ATOMICS: [AtomicU64; 16] = [const { AtomicU64::new(0) }; 16];

/// Which way, how long it took, and what was counted.
pub(crate) type Measured = (&'static str, Duration, u64);

/// A step is told at which counter to look, and how much more to count there: it gives what is counted there then.
async fn measure<F>(name: &'static str, step: fn(usize, u64) -> F) -> Result<Measured, Box<dyn Error>>
where
    F: Future<Output = heirlock::Result<u64>> + Send + 'static,
{
    let began = Instant::now();
    let tasks = std::array::from_fn::<_, 16, _>(|task| {
        tokio::spawn(async move {
            for number in 0..10 {
                let at = ((task * 10 + number).wrapping_mul(0x9E37_79B9) >> 16) % 16;
                step(at, u64::from(number == task % 10)).await?;
            }
            Ok::<_, heirlock::Error>(())
        })
    });
    for task in tasks {
        task.await??;
    }
    let (took, mut counted) = (began.elapsed(), 0);
    for at in 0..16 {
        counted += step(at, 0).await?;
    }
    Ok((name, took, counted))
}

fn count(counter: &mut u64, more: u64) -> u64 {
    *counter += more;
    *counter
}

async fn answered(value: u64) -> heirlock::Result<u64> {
    tokio::time::sleep(Duration::from_millis(1)).await;
    Ok(value)
}

pub(crate) async fn recipe() -> Result<[Measured; 5], Box<dyn Error>> {
    // A guard that has no name lives to the end of its statement, and so until the answer has come.
    let one = measure("one lock", |at, more| async move { answered(count(&mut ONE.lock().await?[at], more)).await });
    let brief = measure("one lock, let go in time", |at, more| async move {
        let value = count(&mut BRIEF.lock().await?[at], more);
        answered(value).await
    });
    let each = measure("a lock for each", |at, more| async move { answered(count(&mut *EACH[at].lock().await?, more)).await });
    let shared = measure("a read-write lock", |at, more| async move {
        let read = more == 0;
        if read { answered(SHARED.read().await?[at]).await } else { answered(count(&mut SHARED.write().await?[at], more)).await }
    });
    let atomics = measure("atomics", |at, more| async move { answered(ATOMICS[at].fetch_add(more, Ordering::Relaxed) + more).await });
    Ok([one.await?, brief.await?, each.await?, shared.await?, atomics.await?])
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    for (name, took, counted) in recipe().await? {
        println!("{name:25} {:>4} ms, {counted} counted", took.as_millis());
    }
    Ok(())
}
