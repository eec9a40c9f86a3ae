//! Values that many share: single flight, reloading, counting, a hot lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use heirlock::{Error, Kind, Worker, spawn};

use crate::common::random::{Random, seed};
use crate::examples::hot_reload::Config;
use crate::examples::rate_counter::{Rate, Window};
use crate::examples::single_flight::Cache;
use crate::examples::{hot_lock, hot_reload, rate_counter, single_flight};
use crate::{in_time, once};

#[tokio::test]
async fn single_flight_rebuilds_once_and_as_urgently_as_the_most_urgent_who_waits() {
    let (served, pages, late) = in_time(single_flight::recipe()).await.unwrap();
    assert_eq!(served, ["the front page", "a report", "a report", "a report"]);
    assert_eq!(pages.len(), 101);
    assert!(pages.iter().all(|page| Arc::ptr_eq(page, &pages[0])), "it was made once");
    let late = late.unwrap();
    assert_eq!((late.is_timeout(), &*late.to_string()), (true, "lock \"rebuilding[front page]\" was not free in time"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn single_flight_rebuilds_each_key_once() {
    let (cache, built) = (Arc::new(Cache::new()), Arc::new([const { AtomicU32::new(0) }; 4]));
    let asks: Vec<_> = (0..400)
        .map(|number| {
            let (cache, built, key) = (Arc::clone(&cache), Arc::clone(&built), number % 4);
            let ask = async move {
                let rebuild = async || {
                    tokio::task::yield_now().await;
                    Ok(format!("{key}.{}", built[key].fetch_add(1, Ordering::SeqCst)))
                };
                cache.get(&key.to_string(), rebuild).await
            };
            (key, spawn(Worker::new("ask").priority(i32::try_from(number).unwrap() % 7), ask))
        })
        .collect();
    for (key, ask) in asks {
        assert_eq!(*in_time(ask).await.unwrap().unwrap(), format!("{key}.0"));
    }
    assert_eq!(built.each_ref().map(|count| count.load(Ordering::SeqCst)), [1; 4]);
}

#[tokio::test]
async fn single_flight_lets_the_next_rebuild_what_another_did_not() {
    let cache = Cache::new();
    let (first, second, third) = (Worker::new("first"), Worker::new("second"), Worker::new("third"));
    let mut dropped = Box::pin(first.run(cache.get("page", async || std::future::pending().await)));
    assert!(once(&mut dropped).await.is_pending());
    let mut fails = Box::pin(second.run(cache.get("page", async || Err(Error::new(Kind::Storage, "no disk")))));
    let mut makes = Box::pin(third.run(cache.get("page", async || Ok("made".to_owned()))));
    assert!(once(&mut fails).await.is_pending() && once(&mut makes).await.is_pending());
    drop(dropped);
    assert!(in_time(fails).await.unwrap_err().is_storage());
    assert_eq!(&*in_time(makes).await.unwrap(), "made");
    assert_eq!(&*in_time(cache.get("page", async || unreachable!("it is there"))).await.unwrap(), "made");
}

#[tokio::test]
async fn hot_reload_changes_what_the_next_sees_unless_the_file_is_wrong() {
    let (workers, refused) = in_time(hot_reload::recipe()).await.unwrap();
    assert_eq!(workers, [4, 8, 8]);
    let refused = refused.unwrap();
    assert!(refused.is_invalid() && refused.to_string().ends_with("write `workers = 4`, not \"workers = many\""), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hot_reload_loads_once_and_again_after_a_failure() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("settings");
    let config = Arc::new(Config::new(&path));
    let missing = in_time(config.get()).await.unwrap_err();
    assert!(missing.is_storage() && missing.to_string().contains("settings"), "{missing}");
    std::fs::write(&path, "workers = 3\n").unwrap();
    let tasks: Vec<_> = (0..50)
        .map(|_| {
            let config = Arc::clone(&config);
            tokio::spawn(async move { config.get().await })
        })
        .collect();
    let first = in_time(config.get()).await.unwrap();
    assert_eq!(first.workers, 3);
    for task in tasks {
        assert!(Arc::ptr_eq(&in_time(task).await.unwrap().unwrap(), &first), "it was loaded once");
    }
    std::fs::remove_file(&path).unwrap();
    assert!(in_time(config.reload()).await.unwrap_err().is_storage());
    assert!(Arc::ptr_eq(&in_time(config.get()).await.unwrap(), &first));
}

/// Files are replaced while several reload them and one reads: what counts never goes back to an older file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hot_reload_never_goes_back() {
    const LAST: u32 = 500;
    let directory = tempfile::tempdir().unwrap();
    let (path, next) = (directory.path().join("settings"), directory.path().join("next"));
    std::fs::write(&path, "workers = 0").unwrap();
    let config = Arc::new(Config::new(&path));
    let reloads: Vec<_> = (0..3)
        .map(|_| {
            let config = Arc::clone(&config);
            tokio::spawn(async move {
                while config.get().await?.workers < LAST {
                    config.reload().await?;
                }
                Ok::<_, Error>(())
            })
        })
        .collect();
    let reads = tokio::spawn(async move {
        let mut seen = 0;
        while seen < LAST {
            let now = config.get().await?.workers;
            assert!(now >= seen, "{now} after {seen}");
            seen = now;
        }
        Ok::<_, Error>(())
    });
    for workers in 1..=LAST {
        std::fs::write(&next, format!("workers = {workers}")).unwrap();
        std::fs::rename(&next, &path).unwrap();
        tokio::task::yield_now().await;
    }
    for task in reloads.into_iter().chain([reads]) {
        in_time(task).await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rate_counter_misses_nothing() {
    assert_eq!(in_time(rate_counter::recipe()).await.unwrap(), (8000, 8000));
    // Long enough for both threads to come at once, again and again.
    let rate = Arc::new(Rate::per(Duration::from_secs(600)));
    let hits = [(); 2].map(|()| {
        let rate = Arc::clone(&rate);
        tokio::spawn(async move {
            for _ in 0..100_000 {
                rate.hit().await.unwrap();
            }
        })
    });
    for task in hits {
        in_time(task).await.unwrap();
    }
    assert_eq!(rate.rate().await.unwrap(), 200_000);
}

#[tokio::test]
async fn rate_counter_forgets_what_is_over() {
    let rate = Rate::per(Duration::from_millis(20));
    rate.hit().await.unwrap();
    in_time(async {
        while rate.rate().await.unwrap() > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// Against a list of all that ever fell, and when.
#[test]
fn rate_counter_knows_the_last_ten_slices() {
    let seed = seed();
    println!("HEIRLOCK_SEED={seed}");
    let mut random = Random::new(seed, 0);
    for _ in 0..200 {
        let (mut window, mut all, mut slice) = (Window::default(), Vec::new(), random.within(0, 3));
        for _ in 0..200 {
            slice += random.pick(&[0, 0, 0, 1, 1, 2, 9, 10, 11, 35]);
            if random.chance(70) {
                window.add(slice);
                all.push(slice);
            }
            let expected = all.iter().filter(|at| slice - **at < 10).count();
            assert_eq!(window.sum(slice), expected as u64, "at {slice}, of {all:?}");
        }
    }
}

/// The best of three rounds of each, so that it is what the ways are about, and not what else the machine did.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hot_lock_counts_the_same_in_less_time() {
    let mut best = [Duration::MAX; 5];
    for round in 1..=3 {
        let measured = in_time(hot_lock::recipe()).await.unwrap();
        let names = measured.map(|(name, _, _)| name);
        assert_eq!(names, ["one lock", "one lock, let go in time", "a lock for each", "a read-write lock", "atomics"]);
        for ((name, took, counted), best) in measured.into_iter().zip(&mut best) {
            assert_eq!(counted, 16 * round, "{name}");
            *best = took.min(*best);
        }
    }
    // 160 steps of a millisecond, one after the other.
    assert!(best[0] >= Duration::from_millis(160), "{best:?}");
    assert!(best[1..].iter().all(|took| *took < best[0]), "{best:?}");
}
