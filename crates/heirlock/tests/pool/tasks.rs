//! Tasks: what they may do, how they end, and what their handles say.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use crate::common::polls::pause;
use crate::common::pools::{Counted, Plug, pool, runtime, worker};
use heirlock::local::{Event, Promise};
use heirlock::pool::{AbortHandle, Handle, JoinHandle, Pool};
use heirlock::{Result, Worker};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[test]
fn handles_cross_threads() {
    fn crosses<T: Send + Sync + 'static>() {}
    fn moves<T: Send + Unpin + 'static>() {}
    crosses::<Pool>();
    crosses::<Handle>();
    crosses::<AbortHandle>();
    moves::<JoinHandle<std::cell::Cell<u8>>>();
}

#[test]
fn a_task_is_its_worker() {
    let runtime = runtime();
    let pool = pool(&runtime, 2);
    let task =
        pool.spawn(worker("ingest", 3), async { Worker::current().map(|worker| (worker.name().to_owned(), worker.base_priority())) });
    assert_eq!(task.worker().name(), "ingest");
    assert_eq!(task.blocking().unwrap(), Some(("ingest".to_owned(), 3)));
}

/// tokio's timers, I/O, tasks and blocking threads work in it.
#[test]
fn it_is_in_the_context_of_tokio() -> Result<()> {
    let runtime = runtime();
    let pool = pool(&runtime, 2);
    let task = pool.spawn(Worker::new("client"), async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await?;
            stream.write_all(b"hello").await
        });
        let mut text = String::new();
        tokio::net::TcpStream::connect(address).await?.read_to_string(&mut text).await?;
        server.await??;
        tokio::time::sleep(Duration::from_millis(1)).await;
        let length = tokio::task::spawn_blocking(move || text.len()).await?;
        Ok::<_, std::io::Error>(length)
    });
    assert_eq!(task.blocking()?.unwrap(), 5);
    Ok(())
}

#[test]
fn a_panic_is_delivered_and_ends_nobody_else() {
    let runtime = runtime();
    let pool = pool(&runtime, 1);
    let dropped = Arc::new(AtomicUsize::new(0));
    let rash = pool.spawn(Worker::new("rash"), {
        let counted = Counted(Arc::clone(&dropped));
        async move {
            let _counted = counted;
            pause().await;
            panic!("number {}", Worker::current().map_or(0, |worker| worker.name().len()));
        }
    });
    let error = rash.blocking().unwrap_err();
    assert!(error.is_panicked());
    assert_eq!(error.to_string(), "task \"rash\" panicked: number 4");
    assert_eq!(error.into_panic().unwrap().downcast_ref::<String>().map(String::as_str), Some("number 4"));
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
    let error = pool.spawn(Worker::new("odd"), async { std::panic::panic_any(7_u8) }).blocking().unwrap_err();
    assert_eq!(error.to_string(), "task \"odd\" panicked: with something else than text");
    assert_eq!(error.into_panic().unwrap().downcast_ref(), Some(&7_u8));
    assert_eq!(pool.spawn(Worker::new("calm"), async { 7 }).blocking().unwrap(), 7);
    // Of which nobody hears.
    drop(pool.spawn(Worker::new("unheard"), async { panic!("on purpose") }));
    assert_eq!(pool.drain().blocking().unwrap(), 0);
}

/// Futures and results whose drop panics, wherever that is, end nothing but themselves.
#[test]
fn what_panics_when_dropped_ends_nobody_else() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(std::thread::panicking(), "bomb");
        }
    }
    /// What it panics with panics, too.
    struct Chain;
    impl Drop for Chain {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new(Bomb));
        }
    }
    let runtime = runtime();
    let pool = pool(&runtime, 1);
    // Captured, and so dropped with the future after it has given its result.
    let bomb = Bomb;
    let mut bomb = Some(bomb);
    let kept = pool.spawn(Worker::new("kept"), std::future::poll_fn(move |_| Poll::Ready(bomb.as_mut().map(|_| 7))));
    assert_eq!(kept.blocking().unwrap(), Some(7));
    // Cancelled.
    let bomb = Bomb;
    let cancelled = pool.spawn(Worker::new("cancelled"), async move {
        let _bomb = bomb;
        std::future::pending::<()>().await;
    });
    cancelled.abort();
    assert_eq!(cancelled.blocking().unwrap_err().to_string(), "task \"cancelled\" panicked: bomb");
    // A result that nobody takes.
    let plug = Plug::new(&pool);
    drop(pool.spawn(Worker::new("result"), async { Bomb }));
    plug.pull().unwrap();
    drop(pool.spawn(Worker::new("result that goes on"), async { Chain }));
    let chain = Chain;
    let mut chain = Some(chain);
    let kept = pool.spawn(Worker::new("kept"), std::future::poll_fn(move |_| Poll::Ready(chain.as_mut().map(|_| 7))));
    assert_eq!(kept.blocking().unwrap(), Some(7));
    let hooked = Worker::new("hooked");
    hooked.on_priority_change(|| drop(Chain));
    hooked.set_priority(1);
    // Refused.
    let closed = self::pool(&runtime, 1);
    let handle = closed.handle().clone();
    drop(closed);
    let bomb = Bomb;
    let refused = handle.spawn(Worker::new("refused"), async move { drop(bomb) });
    assert!(refused.blocking().unwrap_err().is_closed());
    assert_eq!(pool.spawn(Worker::new("calm"), async { 7 }).blocking().unwrap(), 7);
    assert_eq!(pool.drain().blocking().unwrap(), 0);
}

#[test]
fn an_aborted_task_is_dropped_before_it_is_told() {
    let runtime = runtime();
    let pool = pool(&runtime, 1);
    let (dropped, begun) = (Arc::new(AtomicUsize::new(0)), Arc::new(Event::new()));
    let endless = |counted: Counted, begun: Arc<Event>| async move {
        let _counted = counted;
        begun.set();
        std::future::pending::<()>().await;
    };
    // Waiting; not yet begun; being polled; ended.
    let waits = pool.spawn(Worker::new("waits"), endless(Counted(Arc::clone(&dropped)), Arc::clone(&begun)));
    pollster::block_on(begun.wait()).unwrap();
    let from_elsewhere = waits.abort_handle();
    assert!(!from_elsewhere.is_finished());
    from_elsewhere.abort();
    let error = waits.blocking().unwrap_err();
    assert_eq!((error.is_cancelled(), error.to_string().as_str()), (true, "task \"waits\" was cancelled before it had ended"));
    assert!(from_elsewhere.is_finished());
    assert_eq!(dropped.load(Ordering::SeqCst), 1);

    let plug = Plug::new(&pool);
    let unbegun = pool.spawn(Worker::new("unbegun"), {
        let counted = Counted(Arc::clone(&dropped));
        async move {
            drop(counted);
            7
        }
    });
    unbegun.abort();
    plug.pull().unwrap();
    assert!(unbegun.blocking().unwrap_err().is_cancelled());
    assert_eq!(dropped.load(Ordering::SeqCst), 2);

    // A poll that has begun goes on, and what it brings counts.
    let ((polls, polled_once), (go, goes)) = (std::sync::mpsc::channel(), std::sync::mpsc::channel::<()>());
    let polled = pool.spawn(Worker::new("polled"), async move {
        polls.send(()).unwrap();
        goes.recv().unwrap();
        7
    });
    polled_once.recv().unwrap();
    polled.abort();
    go.send(()).unwrap();
    assert_eq!(polled.blocking().unwrap(), 7);

    let ended = pool.spawn(Worker::new("ended"), async { 7 });
    while !ended.is_finished() {
        std::thread::yield_now();
    }
    ended.abort();
    assert_eq!(ended.blocking().unwrap(), 7);
}

/// Aborting who waits for a lock, or has it, leaves nothing of it behind.
#[test]
fn an_aborted_task_gives_up_its_locks() {
    let runtime = runtime();
    let pool = pool(&runtime, 1);
    let lock = Arc::new(heirlock::local::Mutex::new(()));
    let [holds, waits] = ["holds", "waits"].map(|name| {
        let lock = Arc::clone(&lock);
        pool.spawn(Worker::new(name), async move {
            let _guard = lock.lock().await;
            std::future::pending::<()>().await;
        })
    });
    while !lock.is_locked() {
        std::thread::yield_now();
    }
    waits.abort();
    assert!(waits.blocking().unwrap_err().is_cancelled());
    holds.abort();
    assert!(holds.blocking().unwrap_err().is_cancelled());
    assert!(lock.try_lock().is_ok());
}

/// A handle may be awaited from anywhere, by reference, and be dropped: the task goes on.
#[test]
fn a_task_outlives_its_handle() {
    let runtime = runtime();
    let pool = pool(&runtime, 2);
    let done = Arc::new(Promise::new());
    drop(pool.spawn(Worker::new("alone"), {
        let done = Arc::clone(&done);
        async move {
            pause().await;
            done.set(7)
        }
    }));
    assert_eq!(runtime.block_on(async { done.wait().await.copied() }).unwrap(), 7);
    let mut task = pool.spawn(Worker::new("asked"), async {
        pause().await;
        7
    });
    runtime.block_on(async {
        let asked = tokio::time::timeout(Duration::ZERO, &mut task).await;
        let value = match asked {
            Ok(value) => value,
            Err(_) => task.await,
        };
        assert_eq!(value.unwrap(), 7);
    });
}

#[test]
#[should_panic(expected = "polled after it had given the result")]
fn a_handle_gives_its_result_once() {
    let runtime = runtime();
    let pool = pool(&runtime, 1);
    let mut task = pool.spawn(Worker::new("task"), async { 7 });
    assert_eq!(pollster::block_on(&mut task).unwrap(), 7);
    let _again = pollster::block_on(&mut task);
}

/// Tasks spawn tasks and wait for them, on one thread, too.
#[test]
fn tasks_spawn_tasks() {
    let runtime = runtime();
    for threads in [1, 2] {
        let pool = pool(&runtime, threads);
        let outer = pool.spawn(Worker::new("outer"), async {
            let here = Handle::current().unwrap();
            let inner: Vec<_> = (0..10_u32).map(|n| here.spawn(Worker::new("inner"), async move { n })).collect();
            let mut sum = 0;
            for task in inner {
                sum += task.await?;
            }
            Ok::<_, heirlock::Error>(sum)
        });
        assert_eq!(outer.blocking().unwrap().unwrap(), 45);
        assert_eq!(format!("{:?}", pool.handle()), "Handle { pool: \"pool\", tasks: 0, ready: 0 }");
    }
}
