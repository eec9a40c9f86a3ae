//! A priority inversion, as the Mars Pathfinder had one in 1997: Low holds a lock for which High waits, and tasks that are more urgent than Low, but
//! need no lock, keep it from being polled. With a lock whose holder inherits, in a pool that polls by what is inherited, they do not come in
//! between. `heirlock demo inversion` draws the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use heirlock::{Worker, local::Mutex, pool::Pool};
use tokio::{sync::oneshot, task::yield_now};

type Task = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

fn compute() {
    let from = Instant::now();
    while from.elapsed() < Duration::from_millis(2) {
        std::hint::spin_loop();
    }
}

/// How often others were polled while High waited, and how long that was.
async fn play<G: Send + 'static, L: Future<Output = G> + Send + 'static>(
    lock: impl Fn() -> L,
    spawn: impl Fn(&'static str, i32, Task) + Clone + Send + 'static,
) -> (usize, Duration) {
    let (low, high, others, (got, gets)) = (lock(), lock(), Arc::new(AtomicUsize::new(0)), oneshot::channel());
    let spawns = spawn.clone();
    let low = async move {
        let _guard = low.await;
        // Now, while Low has the lock, all others come.
        for _ in 0..3 {
            let others = Arc::clone(&others);
            let other = async move {
                for _ in 0..20 {
                    others.fetch_add(1, SeqCst);
                    compute();
                    yield_now().await;
                }
            };
            spawns("other", 5, Box::pin(other));
        }
        let high = async move {
            let (from, before) = (Instant::now(), others.load(SeqCst));
            let _guard = high.await;
            let _ = got.send((others.load(SeqCst) - before, from.elapsed()));
        };
        spawns("high", 10, Box::pin(high));
        for _ in 0..10 {
            yield_now().await;
            compute();
        }
    };
    spawn("low", 1, Box::pin(low));
    gets.await.unwrap_or_default()
}

/// In a pool with inheritance, in a pool without, and as plain tokio tasks.
pub(crate) async fn recipe() -> heirlock::Result<[(usize, Duration); 3]> {
    let pool = Pool::builder().threads(1).build()?;
    let handle = pool.handle().clone();
    let in_pool = move |name, priority, task| drop(handle.spawn(Worker::new(name).priority(priority), task));
    let (heirs, plain) = (Arc::new(Mutex::new(())), Arc::new(tokio::sync::Mutex::new(())));
    let with = play(|| heirs.lock_owned().into_future(), in_pool.clone()).await;
    let without = play(|| Arc::clone(&plain).lock_owned(), in_pool).await;
    pool.drain().await?;
    let on_tokio = play(|| Arc::clone(&plain).lock_owned(), |_, _, task| drop(tokio::spawn(task))).await;
    Ok([with, without, on_tokio])
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> heirlock::Result<()> {
    let names = ["a pool, and a lock with inheritance", "a pool, and a lock without", "plain tokio tasks"];
    for (name, (polls, span)) in names.into_iter().zip(recipe().await?) {
        println!("{name}: High waits {} ms, and for {polls} polls of others", span.as_millis());
    }
    Ok(())
}
