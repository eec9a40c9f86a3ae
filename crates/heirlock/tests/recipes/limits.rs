//! Limits: a pool of connections, calls of an API.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use heirlock::{Error, Kind, Worker, spawn};

use crate::common::random::{Random, seed};
use crate::examples::api_limit::{Api, Limit};
use crate::examples::connection_pool::Pool;
use crate::examples::{api_limit, connection_pool};
use crate::{in_time, once};

#[tokio::test]
async fn connection_pool_serves_the_urgent_first_and_boosts_who_has_a_connection() {
    let (served, counts) = in_time(connection_pool::recipe()).await.unwrap();
    assert_eq!(served, ["batch", "mail", "checkout", "thumbnails"]);
    assert_eq!(counts, [10, 0]);
}

/// Some work is dropped, some panics: then the connection is closed, and never more than three are open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_pool_never_has_more_than_its_size() {
    struct Connection(Arc<[AtomicU32; 2]>);
    impl Connection {
        fn open(counts: &Arc<[AtomicU32; 2]>) -> Connection {
            let now = counts[0].fetch_add(1, Ordering::SeqCst) + 1;
            counts[1].fetch_max(now, Ordering::SeqCst);
            Connection(Arc::clone(counts))
        }
    }
    impl Drop for Connection {
        fn drop(&mut self) {
            self.0[0].fetch_sub(1, Ordering::SeqCst);
        }
    }
    let seed = seed();
    println!("HEIRLOCK_SEED={seed}");
    let (pool, counts) = (Arc::new(Pool::new(3)), Arc::new([const { AtomicU32::new(0) }; 2]));
    let inside = Arc::new(AtomicU32::new(0));
    let tasks: Vec<_> = (0..60)
        .map(|stream| {
            let (pool, counts, inside) = (Arc::clone(&pool), Arc::clone(&counts), Arc::clone(&inside));
            let mut random = Random::new(seed, stream);
            spawn(Worker::new("task").priority(i32::try_from(stream % 5).unwrap()), async move {
                for _ in 0..50 {
                    let pooled = pool.get(async || Ok(Connection::open(&counts))).await?;
                    let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    assert!(now <= 3, "{now} have a connection");
                    if random.chance(80) {
                        pooled.give_back();
                    }
                }
                assert!(random.chance(50), "on purpose");
                Ok::<_, Error>(())
            })
        })
        .collect();
    for task in tasks {
        match in_time(task).await {
            Ok(done) => done.unwrap(),
            Err(panicked) => {
                let words = panicked.into_panic();
                assert_eq!(words.downcast_ref::<&str>(), Some(&"on purpose"), "{:?}", words.downcast_ref::<String>());
            }
        }
    }
    let [_, most] = counts.each_ref().map(|count| count.load(Ordering::SeqCst));
    assert_eq!(most, 3, "as many were open at once as may be, and no more");
    drop(pool);
    assert_eq!(counts[0].load(Ordering::SeqCst), 0, "none is left behind");
}

#[tokio::test]
async fn connection_pool_uses_again_what_was_given_back_and_nothing_else() {
    let (pool, made) = (Pool::new(1), AtomicU32::new(0));
    let connect = async || Ok(made.fetch_add(1, Ordering::SeqCst));
    let refused = pool.get(async || Err(Error::new(Kind::Unreachable, "no server"))).await.err().unwrap();
    assert!(refused.is_unreachable());
    let first = in_time(pool.get(connect)).await.unwrap();
    assert_eq!(first.connection, 0);
    first.give_back();
    let again = in_time(pool.get(connect)).await.unwrap();
    assert_eq!(again.connection, 0);
    drop(again);
    assert_eq!(in_time(pool.get(connect)).await.unwrap().connection, 1);
}

#[tokio::test]
async fn api_limit_lets_the_urgent_in_first_and_never_too_many() {
    let (api, hasty) = in_time(api_limit::recipe()).await.unwrap();
    assert_eq!(api.most.load(Ordering::SeqCst), 3);
    let callers = ["sync", "sync", "sync", "payment", "export", "sync", "sync", "sync", "sync", "sync", "sync"];
    assert_eq!(api.callers(), callers);
    let hasty = hasty.unwrap();
    assert!(hasty.is_timeout() && hasty.to_string().contains("calls of the API"), "{hasty}");
}

/// Callers are aborted in the line and within their call: there is never too much at once, and in the end all permits are back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn api_limit_bears_callers_that_go_away() {
    /// A call under way, however it ends.
    struct Call(Arc<[AtomicU32; 2]>, u32);
    impl Call {
        fn begin(counts: Arc<[AtomicU32; 2]>, weight: u32) -> Call {
            let now = counts[0].fetch_add(weight, Ordering::SeqCst) + weight;
            counts[1].fetch_max(now, Ordering::SeqCst);
            Call(counts, weight)
        }
    }
    impl Drop for Call {
        fn drop(&mut self) {
            self.0[0].fetch_sub(self.1, Ordering::SeqCst);
        }
    }
    let seed = seed();
    println!("HEIRLOCK_SEED={seed}");
    let (limit, counts) = (Arc::new(Limit::new(3, Duration::from_secs(60))), Arc::new([const { AtomicU32::new(0) }; 2]));
    let mut random = Random::new(seed, 0);
    let tasks: Vec<_> = (0..200)
        .map(|_| {
            let (limit, counts, weight, turns) =
                (Arc::clone(&limit), Arc::clone(&counts), random.pick(&[1, 1, 1, 2, 3]), random.within(0, 20));
            tokio::spawn(async move {
                let call = async {
                    let _call = Call::begin(counts, weight);
                    for _ in 0..turns {
                        tokio::task::yield_now().await;
                    }
                };
                limit.call(weight, call).await
            })
        })
        .collect();
    for task in &tasks {
        if random.chance(50) {
            task.abort();
        }
        tokio::task::yield_now().await;
    }
    for task in tasks {
        match in_time(task).await {
            Ok(called) => called.unwrap(),
            Err(gone) => assert!(gone.is_cancelled()),
        }
    }
    let [now, most] = counts.each_ref().map(|count| count.load(Ordering::SeqCst));
    assert_eq!((now, most), (0, 3));
    in_time(limit.call(3, async {})).await.unwrap();
}

#[tokio::test]
async fn api_limit_does_not_call_when_there_is_no_room() {
    let (limit, api) = (Limit::new(2, Duration::ZERO), Api::default());
    let mut one = Box::pin(limit.call(1, std::future::pending::<()>()));
    assert!(once(&mut one).await.is_pending());
    assert!(in_time(limit.call(2, api.answer("late", 2))).await.unwrap_err().is_timeout());
    assert!(limit.call(3, api.answer("heavy", 3)).await.unwrap_err().is_invalid());
    assert!(api.callers().is_empty());
    drop(one);
    in_time(limit.call(2, api.answer("next", 2))).await.unwrap();
    assert_eq!(api.callers(), ["next"]);
}
