//! Shrink a hot lock: one lock, many locks, a read-write lock and none at all, beside each other.
//!
//! Four tasks on two threads read 64 counters, and one step in ten counts one up. What a step costs depends on how often two of them want the same lock, and
//! for how long: so await nothing under it, guard less with each (shards), let readers in together, or, where each value stands for itself, take atomics.
//!
//! You do not need this before you have seen that a lock is hot: a snapshot shows a queue, `warn_after` a long hold. `docs/contention.md` says more.

use heirlock::local::{Mutex, RwLock};
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

static AWAITS: Mutex<[u64; 64]> = Mutex::named("an await under it", [0; 64]);
static ONE: Mutex<[u64; 64]> = Mutex::named("one lock", [0; 64]);
static SHARDS: [Mutex<[u64; 4]>; 16] = [const { Mutex::named("shard", [0; 4]) }; 16];
static READERS: RwLock<[u64; 64]> = RwLock::named("a read-write lock", [0; 64]);
static ATOMICS: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

pub(crate) const TASKS: usize = 4;
pub(crate) const STEPS: usize = 5_000;

/// A way to do it, how long a step took, and what was counted in all.
pub(crate) type Measured = (&'static str, Duration, u64);

/// Each step is told which counter to look at, and how much to add: nothing, or one. It gives what the counter is then.
async fn measure<F>(name: &'static str, step: impl Fn(usize, u64) -> F + Copy + Send + 'static) -> Result<Measured, Box<dyn Error>>
where
    F: Future<Output = heirlock::Result<u64>> + Send + 'static,
{
    let began = Instant::now();
    let tasks = [(); TASKS].map(|()| {
        tokio::spawn(async move {
            for number in 0..STEPS {
                // As good as random, and the same for all that are measured.
                step((number.wrapping_mul(0x9E37_79B9) >> 16) % 64, u64::from(number % 10 == 0)).await?;
            }
            Ok::<_, heirlock::Error>(())
        })
    });
    for task in tasks {
        task.await??;
    }
    let took = began.elapsed() / u32::try_from(TASKS * STEPS)?;
    let mut counted = 0;
    for at in 0..64 {
        counted += step(at, 0).await?;
    }
    Ok((name, took, counted))
}

fn count(counter: &mut u64, more: u64) -> u64 {
    *counter += more;
    *counter
}

pub(crate) async fn recipe() -> Result<[Measured; 5], Box<dyn Error>> {
    let awaits = measure("an await under it", |at, more| async move {
        let mut all = AWAITS.lock().await?;
        tokio::task::yield_now().await;
        Ok(count(&mut all[at], more))
    });
    let one = measure("one lock", |at, more| async move { Ok(count(&mut ONE.lock().await?[at], more)) });
    let shards = measure("16 locks", |at, more| async move { Ok(count(&mut SHARDS[at % 16].lock().await?[at / 16], more)) });
    let readers = measure("a read-write lock", |at, more| async move {
        Ok(if more == 0 { READERS.read().await?[at] } else { count(&mut READERS.write().await?[at], more) })
    });
    let atomics = measure("atomics", |at, more| async move {
        Ok(if more == 0 { ATOMICS[at].load(Ordering::Relaxed) } else { ATOMICS[at].fetch_add(more, Ordering::Relaxed) + more })
    });
    Ok([awaits.await?, one.await?, shards.await?, readers.await?, atomics.await?])
}

#[tokio::main(worker_threads = 2)]
async fn main() -> Result<(), Box<dyn Error>> {
    for (name, step, counted) in recipe().await? {
        println!("{name:20} {:>6} ns a step, {counted} counted", step.as_nanos());
    }
    Ok(())
}
